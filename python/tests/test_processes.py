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


def test_a_child_cannot_connect_after_its_parent_did(tmp_path: Path) -> None:
    run(
        tmp_path,
        """for path, read_only in (("db", True), ("other", False)):
    try: ebbtide.connect(path, read_only=read_only)
    except ebbtide.InvalidError as error: assert "forked" in str(error) and "forkserver" in str(error), error
    else: raise SystemExit("a child connected")
assert not os.path.exists("other")""",
    )


def test_children_connect_themselves_before_their_parent_does(tmp_path: Path) -> None:
    program = """
import multiprocessing
import ebbtide

def count(path):
    with ebbtide.connect(path, read_only=True) as db:
        return db.sql("SELECT count(*) FROM w").fetchall()

def fill():
    import datetime
    with ebbtide.connect("db") as db:
        db.create_collection("w").insert([{"time": datetime.datetime(2024, 1, 1)}])

if __name__ == "__main__":
    forks = multiprocessing.get_context("fork")
    writer = forks.Process(target=fill)
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    with forks.Pool(2) as pool:
        assert pool.map(count, ["db"] * 4) == [[(1,)]] * 4
    assert count("db") == [(1,)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(count, ["db"] * 4) == [[(1,)]] * 4
"""
    (tmp_path / "program.py").write_text(program)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=300)
