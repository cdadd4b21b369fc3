"""Processes made by fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

BEGIN = """
import datetime, gc, os, ebbtide
time = datetime.datetime(2024, 1, 1)
db = ebbtide.connect("db", background=True)
w = db.create_collection("w")
w.insert([{"time": time, "x": 0}])
docs = db.create_documents("docs")
result = db.sql("SELECT x FROM w")
child = os.fork()
if child == 0:
"""
END = """
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert w.insert([{"time": time, "x": 2}]) == 1
db.flush()
db.close()
with ebbtide.connect("db") as db:
    assert db.sql("SELECT x FROM w ORDER BY x").fetchall() == [(0,), (2,)]
"""


def run(tmp_path: Path, child: str) -> None:
    program = BEGIN + "".join(f"    {line}\n" for line in child.splitlines()) + END
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=300)


def test_a_child_cannot_use_the_database_of_its_parent(tmp_path: Path) -> None:
    run(
        tmp_path,
        """for call in (
    lambda: w.insert([{"time": time, "x": 1}]), lambda: docs.insert({"_id": 1}), lambda: docs.find(), w.find, db.now,
    lambda: w.aggregate({"x": "sum"}), lambda: w.last_points(), db.sweep, db.flush, db.compact, db.collections,
    result.fetchall, lambda: db.sql("SELECT 1"), lambda: db.path,
):
    try: call()
    except ebbtide.Error as error: assert "forked" in str(error) and "spawn" in str(error), error
    else: raise SystemExit("a child used the database of its parent")
assert repr(db) == "<ebbtide.Database closed>"
db.close()
del db, w, docs, result
gc.collect()""",
    )


def test_a_child_opens_databases_itself(tmp_path: Path) -> None:
    run(
        tmp_path,
        """with ebbtide.connect("db", read_only=True) as own:
    assert own.sql("SELECT count(*) FROM w").fetchall() == [(1,)]
    assert own.aggregate("w", {"*": "count"}).fetchall() == [(1,)]
with ebbtide.connect("other") as own:
    own.create_collection("v").insert([{"time": time}])
    assert own.sql("SELECT count(*) FROM v").fetchall() == [(1,)]""",
    )
