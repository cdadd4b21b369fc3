"""The Python package beside DuckDB's: ten million rows as a Polars frame, and how long the import takes.

    VENV/bin/python benches/peers/notebook.py

Needs duckdb, polars, pyarrow and the package `ebbtide`, built with `maturin build --release` (docs/release.md). Each of the two takes
its turn. Both have the same rows in a file: five columns, sorted by series and time, read once before.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import duckdb
import numpy as np
import pyarrow as pa

import ebbtide

ROWS = 10_000_000
SERIES = 100
QUERY = "SELECT t, s, a, b, c FROM numbers"


def numbers():
    at = np.arange(ROWS, dtype="int64")
    return pa.table(
        {
            "t": pa.array((at // SERIES * 1000).astype("datetime64[ms]")),
            "s": pa.array(at % SERIES),
            "a": pa.array(at),
            "b": pa.array(at / 8),
            "c": pa.array(at % 1000 / 10),
        }
    )


def timed(work):
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def imports(module, runs):
    """Seconds of an import in interpreters of their own, beyond what the interpreter takes to start."""
    program = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return [float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout) for _ in range(runs)]


def show(name, seconds, unit, scale):
    values = [s * scale for s in seconds]
    print(f"| {name} | {unit} | {statistics.median(values):,.3g} | {min(values):,.3g} | {max(values):,.3g} | {len(values)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    rows = numbers()
    with tempfile.TemporaryDirectory() as folder:
        other = duckdb.connect(os.path.join(folder, "numbers.duckdb"))
        other.execute("SET threads = 2")
        other.execute("CREATE TABLE numbers AS SELECT * FROM rows ORDER BY s, t")
        other.execute("CHECKPOINT")
        with ebbtide.connect(os.path.join(folder, "ebbtide")) as db:
            into = db.create_collection("numbers", time="t", meta="s")
            for batch in rows.to_batches(max_chunksize=100_000):
                into.insert(batch)
            db.compact("numbers")
            ours, theirs = [], []
            for run in range(args.runs + 1):
                for took, work in [(ours, lambda: db.sql(QUERY).pl()), (theirs, lambda: other.sql(QUERY).pl())]:
                    seconds, frame = timed(work)
                    assert frame.height == ROWS, frame
                    if run > 0:
                        took.append(seconds)
                    del frame
    print("| figure | unit | median | min | max | runs |\n| --- | --- | --- | --- | --- | --- |")
    show("db.sql(...).pl() of 10,000,000 rows", ours, "s", 1)
    show("the same, DuckDB", theirs, "s", 1)
    show("import ebbtide", imports("ebbtide", args.runs), "ms", 1e3)
    show("import duckdb", imports("duckdb", args.runs), "ms", 1e3)


if __name__ == "__main__":
    main()
