"""Wide collections: 1,000 and 5,000 fields of which 2 % hold a value, beside DuckDB.

    VENV/bin/python benches/peers/wide.py --program target/release/ebbtide

Needs duckdb, psycopg[binary] and pyarrow. 50 series; 2,000,000 doubles with two decimals in all: 100,000 rows of 1,000 fields, 20,000
rows of 5,000. Each series has fields of its own, the same in all of its rows, as kinds of devices have. Timed: a program that imports the
file, as Parquet and as lines of JSON, into an empty database; DuckDB has the types from the Parquet file in both cases. "Three fields" is
the first statement of a new process, with the database's pages out of the cache, after the connection is made; then the same statement
again. Each column's number of values and sum must agree for the three fields.
"""

import os
import shutil
import sys
import tempfile

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cold import drop
from program import Done, Ebbtide, Report, Server, agree, options, size

VALUES, SERIES, FILLED = 2_000_000, 50, 0.02
SHAPES = [1_000, 5_000]
INSERT = """
import duckdb, sys, time
start = time.perf_counter(), time.process_time()
db = duckdb.connect(sys.argv[1])
db.execute("SET enable_progress_bar = false")
db.execute(f"CREATE TABLE w AS SELECT * FROM '{sys.argv[3]}' LIMIT 0")
db.execute(f"INSERT INTO w SELECT * FROM '{sys.argv[2]}'" if sys.argv[2] == sys.argv[3] else f"COPY w FROM '{sys.argv[2]}'")
db.execute("CHECKPOINT")
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""
QUERY = """
import duckdb, sys, time
db = duckdb.connect(sys.argv[1])
for _ in range(2):
    start = time.perf_counter(), time.process_time()
    db.execute(sys.argv[2]).fetchall()
    print(time.perf_counter() - start[0], time.process_time() - start[1])
"""


def written(fields, folder):
    """The rows as Parquet and as lines of JSON."""
    rows = int(VALUES / FILLED / fields)
    random = np.random.default_rng(fields)
    series = np.arange(rows) % SERIES
    own = [np.sort(random.choice(fields, int(fields * FILLED), replace=False)) for _ in range(SERIES)]
    own[7] = np.union1d(own[7], [17, fields // 2, fields - 3])
    values = {}
    for number, chosen in enumerate(own):
        at = np.flatnonzero(series == number)
        for field in chosen:
            column = values.setdefault(field, np.full(rows, np.nan))
            column[at] = np.round(random.normal(20, 5, len(at)), 2)
    time = np.datetime64("2024-01-01T00:00:00", "ms") + np.arange(rows) // SERIES * 60_000
    empty = np.full(rows, np.nan)
    columns = {"time": time, "series": [f"s{s:02}" for s in series]}
    for field in range(fields):
        columns[f"f{field}"] = pa.array(values.get(field, empty), from_pandas=True)
    paths = [os.path.join(folder, f"wide-{fields}.{kind}") for kind in ["parquet", "ndjson"]]
    parquet.write_table(pa.table(columns), paths[0], row_group_size=20_000, use_dictionary=False)
    with open(paths[1], "w") as out:
        for row, stamp in enumerate(np.datetime_as_string(time, unit="s")):
            told = "".join(f',"f{f}":{values[f][row]}' for f in own[series[row]])
            out.write(f'{{"time":"{stamp}Z","series":"s{series[row]:02}"{told}}}\n')
    return paths


def main():
    args = options(__doc__).parse_args()
    name = f"DuckDB {duckdb.__version__}"
    report = Report(["Ebbtide", name])
    with tempfile.TemporaryDirectory() as folder:
        for fields in SHAPES:
            paths = written(fields, folder)
            query = ", ".join(f"count(f{f}) AS n{f}, sum(f{f} * 2) AS s{f}" for f in [17, fields // 2, fields - 3])
            query = f"SELECT {query} FROM w"
            for _ in range(args.runs):
                for path, what in zip(paths, ["Parquet", "JSON"]):
                    ours, theirs = Ebbtide(args.program, os.path.join(folder, "ours")), os.path.join(folder, "w.duckdb")
                    done = ours.run("import", path, "--into", "w", "--meta", "series")
                    report.add(f"{fields:,} fields: import of {what}", "s", "Ebbtide", done.seconds, done.processor)
                    report.add(f"{fields:,} fields: memory of the import of {what}", "MiB", "Ebbtide", done.memory)
                    took = Done([sys.executable, "-c", INSERT, theirs, path, paths[0]])
                    report.add(f"{fields:,} fields: import of {what}", "s", name, *map(float, took.out.split()))
                    report.add(f"{fields:,} fields: memory of the import of {what}", "MiB", name, took.memory)
                    if what == "Parquet":
                        report.add(f"{fields:,} fields: on disk", "MB", "Ebbtide", ours.size() / 1e6)
                        report.add(f"{fields:,} fields: on disk", "MB", name, size(theirs) / 1e6)
                    with duckdb.connect(theirs, read_only=True) as db:
                        agree(ours.rows(query), db.execute(query).fetchall(), f"{fields} fields from {what}")
                    drop(ours.folder, theirs)
                    with Server(ours) as server:
                        for which in ["first time", "again"]:
                            figures = [s * 1e3 for s in server.measured(query)]
                            report.add(f"{fields:,} fields: three, {which}", "ms", "Ebbtide", *figures)
                    told = Done([sys.executable, "-c", QUERY, theirs, query]).out.splitlines()
                    for which, line in zip(["first time", "again"], told):
                        report.add(f"{fields:,} fields: three, {which}", "ms", name, *[float(s) * 1e3 for s in line.split()])
                    shutil.rmtree(ours.folder)
                    os.remove(theirs)
    report.show()


if __name__ == "__main__":
    main()
