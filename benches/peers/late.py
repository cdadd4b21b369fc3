"""Measurements out of order, beside DuckDB and ClickHouse.

    VENV/bin/python benches/peers/late.py --program target/release/ebbtide

Needs chdb, duckdb, psycopg[binary] and pyarrow. 3,000,000 rows of 500 series, one a minute, with an integer and two doubles of one
decimal: in order of time; with 30 % late by up to an hour; shuffled over all of their four days; and three years of backfill of
100 series whose metas have no rule, each second row live data of the last 20 hours of 400 series under a rule of a day. All are inserted
in batches of 10,000 rows, each durable: Ebbtide by one `ebbtide import --batch-rows 10000` of the Parquet file, the others from the same
file through their library. "Written" is what the process wrote to its files (`ru_oublock`) until it ended, to what is on disk then;
compaction afterwards is not in the rate, and its size is shown. The number of rows and the sums must agree.
"""

import os
import shutil
import sys
import tempfile
import time

import chdb
import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from program import Done, Ebbtide, Report, agree, options, size, tuples

ROWS, SERIES, BATCH = 3_000_000, 500, 10_000
CHECK = "SELECT count(*) AS n, sum(a) AS a, sum(b) AS b, sum(c) AS c FROM w"
DUCK = """
import duckdb, sys, time
from pyarrow import parquet
file, folder, batch = sys.argv[1:]
db = duckdb.connect(folder + "/w.duckdb", config={"threads": 2})
db.execute(f"CREATE TABLE w AS SELECT * FROM '{file}' LIMIT 0")
start = time.perf_counter(), time.process_time()
for rows in parquet.ParquetFile(file).iter_batches(int(batch)):
    db.register("rows", rows)
    db.execute("INSERT INTO w SELECT * FROM rows")
    db.unregister("rows")
db.execute("CHECKPOINT")
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""
CLICK = """
import sys, time
from chdb import session
from pyarrow import parquet
file, folder, batch = sys.argv[1:]
db = session.Session(folder + "/house")
codec = "CODEC(Gorilla, ZSTD(1))"
db.query(f"CREATE TABLE w (time DateTime64(3) CODEC(DoubleDelta, ZSTD(1)), kind LowCardinality(String), series LowCardinality(String), "
         f"a Int64 CODEC(Delta, ZSTD(1)), b Float64 {codec}, c Float64 {codec}) ENGINE = MergeTree ORDER BY (kind, series, time) "
         "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1")
start = time.perf_counter(), time.process_time()
for rows in parquet.ParquetFile(file).iter_batches(int(batch)):
    db.query("INSERT INTO w SELECT * FROM Python(rows)")
took = time.perf_counter() - start[0], time.process_time() - start[1]
db.query("OPTIMIZE TABLE w FINAL")
print(*took, *str(db.query("SELECT count(), sum(a), sum(b), sum(c) FROM w", "TabSeparated")).split(),
      str(db.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 'w' AND active", "TabSeparated")))
"""


def values(random, series, steps):
    """Walks of each series, in the order of (step, series)."""
    walk = random.integers(-3, 4, (steps, series)).cumsum(axis=0)
    return walk.ravel(), (walk / 10 + 20).round(1).ravel(), random.normal(1013, 3, (steps, series)).round(1).ravel()


def table(kind, time, series, columns, order):
    a, b, c = (column[order] for column in columns)
    names = pa.array([f"s{s:03}" for s in range(SERIES)]).take(pa.array(series[order]))
    kinds = pa.array(["cold", "live"]).take(pa.array(kind[order]))
    stamps = np.asarray(time, "datetime64[ms]")[order]
    return pa.table({"time": stamps, "kind": kinds, "series": names, "a": a, "b": b, "c": c})


def orders():
    """The rows in each order."""
    random = np.random.default_rng(1)
    steps = ROWS // SERIES
    at = np.repeat(np.arange(steps), SERIES)
    series, cold = np.tile(np.arange(SERIES), steps), np.zeros(ROWS, int)
    columns = values(random, SERIES, steps)
    time_of = np.datetime64("2024-01-01T00:00:00", "ms") + at * 60_000
    arrival = at + np.where(random.random(ROWS) < 0.3, random.random(ROWS) * 60, 0)
    yield "in order", table(cold, time_of, series, columns, np.arange(ROWS))
    yield "30 % late by up to an hour", table(cold, time_of, series, columns, np.argsort(arrival, kind="stable"))
    yield "shuffled", table(cold, time_of, series, columns, random.permutation(ROWS))
    half, now = ROWS // 2, np.datetime64(int(time.time()), "s").astype("datetime64[ms]")
    live, old = SERIES * 4 // 5, SERIES // 5
    step = 20 * 3_600_000 * live // half
    stamps = np.empty(ROWS, "datetime64[ms]")
    stamps[0::2] = now - (half // old - np.arange(half) // old) * (3 * 365 * 86_400_000 * old // half)
    stamps[1::2] = now - 72_000_000 + np.arange(half) // live * step
    series = np.empty(ROWS, int)
    series[0::2], series[1::2] = live + np.arange(half) % old, np.arange(half) % live
    yield "backfill beside live", table(np.arange(ROWS) % 2, stamps, series, columns, np.arange(ROWS))


def main():
    args = options(__doc__).parse_args()
    duck, click = f"DuckDB {duckdb.__version__}", f"ClickHouse (chdb {chdb.__version__})"
    report = Report(["Ebbtide", duck, click])
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (what, rows) in enumerate(orders()):
            files.append((what, os.path.join(folder, f"{number}.parquet")))
            parquet.write_table(rows, files[-1][1], row_group_size=100_000)
        for _ in range(args.runs):
            for what, file in files:
                ours = Ebbtide(args.program, os.path.join(folder, "ours"))
                statements = ["CREATE COLLECTION w WITH (timeField = 'time', metaField = 'tags', granularity = 'seconds')"]
                if what == "backfill beside live":
                    statements.append("CREATE TTL INDEX day ON w (time) EXPIRE AFTER 1 DAY WHERE tags.kind = 'live'")
                ours.run("sql", *statements)
                done = ours.run("import", file, "--into", "w", "--time", "time", "--meta", "kind,series", "--batch-rows", BATCH)
                report.add(f"{what}: rows", "/s", "Ebbtide", ROWS / done.seconds, done.processor, more_is_better=True)
                report.add(f"{what}: on disk", "MB", "Ebbtide", ours.size() / 1e6)
                report.add(f"{what}: written to what is on disk", "x", "Ebbtide", done.written / ours.size())
                done = ours.run("sql", "COMPACT w")
                report.add(f"{what}: compacted", "MB", "Ebbtide", ours.size() / 1e6, done.processor)
                answer = ours.rows(CHECK)
                shutil.rmtree(ours.folder)
                for name, script in [(duck, DUCK), (click, CLICK)]:
                    at = tempfile.mkdtemp(dir=folder)
                    done = Done([sys.executable, "-c", script, file, at, str(BATCH)])
                    told = list(map(float, done.out.split()))
                    report.add(f"{what}: rows", "/s", name, ROWS / told[0], told[1], more_is_better=True)
                    bytes_of = size(os.path.join(at, "w.duckdb")) if name == duck else told[6]
                    report.add(f"{what}: compacted", "MB", name, bytes_of / 1e6)
                    if name == duck:
                        with duckdb.connect(os.path.join(at, "w.duckdb"), read_only=True) as db:
                            theirs = tuples(db.sql(CHECK).to_arrow_table())
                    else:
                        theirs = [tuple(told[2:6])]
                    agree(answer, theirs, what)
                    shutil.rmtree(at)
    report.show()


if __name__ == "__main__":
    main()
