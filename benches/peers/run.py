"""The weather workload beside DuckDB, ClickHouse (chdb) and SQLite: same rows, same batches, engines in turn.

    python3 -m venv VENV && VENV/bin/pip install -r benches/peers/requirements.txt
    VENV/bin/python benches/peers/run.py --runner target/release/ebbtide-benches [--data DIR] [--runs N]

Every engine gets batches of 10,000 rows in the order of arrival, one durable commit a batch, then whatever its manual says
makes the data final on disk. What is counted is until then. Sizes are of what is left when the engine has merged.
"""

import argparse
import csv
import gzip
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chdb
import duckdb
import numpy as np
import pyarrow as pa
from chdb import session

FILES = ["inmet_2024_CO.csv.gz", "inmet_2024_N.csv.gz", "inmet_2024_S.csv.gz"]
BATCH = 10_000
QUERIES = {
    "count": "SELECT count(*) FROM w",
    "avg of one field over everything": "SELECT min(temp), max(temp), avg(temp) FROM w",
    "avg of one field by hour and series, 7 days":
        "SELECT station, {hour} AS h, avg(temp) FROM w WHERE time >= {t0} AND time < {t7} GROUP BY station, h",
    "single series, raw rows of 12 h": "SELECT * FROM w WHERE station = 'A001' AND time >= {t0} AND time < {t12}",
    "last point of every station": "{last}",
}


def load(folder):
    """All rows by time, then by station as in the files."""
    station, stamp, fields, names = [], [], None, None
    for name in FILES:
        with gzip.open(Path(folder) / name, "rt") as file:
            rows = csv.reader(file)
            names = next(rows)[2:]
            fields = fields or [[] for _ in names]
            for row in rows:
                station.append(row[0])
                stamp.append(row[1].rstrip("Z"))
                for column, text in zip(fields, row[2:]):
                    column.append(float(text) if text else None)
    times = np.array(stamp, dtype="datetime64[ms]")
    order = pa.array(np.argsort(times, kind="stable"))
    columns = {"time": pa.array(times), "station": pa.array(station)}
    columns |= {name: pa.array(column, pa.float64()) for name, column in zip(names, fields)}
    return pa.table(columns).take(order).combine_chunks()


def size(folder):
    return sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file() and not f.is_symlink())


class Duck:
    name = f"DuckDB {duckdb.__version__}"

    def open(self, folder, table):
        self.file = os.path.join(folder, "w.duckdb")
        self.db = duckdb.connect(self.file)
        fields = ", ".join(f"{n} DOUBLE" for n in table.column_names[2:])
        self.db.execute(f"CREATE TABLE w (time TIMESTAMP_MS, station VARCHAR, {fields})")

    def insert(self, batch):
        self.db.register("batch", batch)
        self.db.execute("INSERT INTO w SELECT * FROM batch")  # Commits by itself: synced to the log.
        self.db.unregister("batch")

    def seal(self):
        self.db.execute("CHECKPOINT")

    def merge(self):
        """Sorted, as its manual advises for compression and for zone maps."""
        self.db.execute("CREATE TABLE s AS SELECT * FROM w ORDER BY station, time")
        self.db.execute("DROP TABLE w")
        self.db.execute("ALTER TABLE s RENAME TO w")
        self.db.execute("CHECKPOINT")
        used = self.db.execute("SELECT used_blocks * block_size FROM pragma_database_size()").fetchone()
        return used[0]

    def query(self, text):
        return len(self.db.execute(text).fetchall())

    def say(self, name):
        last = "SELECT max(time), arg_max(temp, time), station FROM w GROUP BY station"
        return {"hour": "date_trunc('hour', time)", "last": last, "quote": "TIMESTAMP '{}'"}[name]

    def close(self):
        self.db.close()


class Click:
    name = f"ClickHouse (chdb {chdb.__version__})"

    def open(self, folder, table):
        self.db = session.Session(folder)
        fields = ", ".join(f"{n} Nullable(Float64) CODEC(Gorilla, ZSTD(1))" for n in table.column_names[2:])
        self.db.query("CREATE DATABASE b")
        self.db.query(
            f"CREATE TABLE b.w (time DateTime64(3) CODEC(DoubleDelta, ZSTD(1)), station LowCardinality(String), {fields}) "
            "ENGINE = MergeTree ORDER BY (station, time) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
        )

    def insert(self, batch):
        self.batch = batch
        self.db.query("INSERT INTO b.w SELECT * FROM Python(batch)")

    def seal(self):
        pass  # Every part is whole and synced.

    def merge(self):
        self.db.query("OPTIMIZE TABLE b.w FINAL")
        text = self.db.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 'w' AND active", "TabSeparated")
        return int(str(text))

    def query(self, text):
        return str(self.db.query(text.replace("FROM w", "FROM b.w"), "TabSeparated")).count("\n")

    def say(self, name):
        last = "SELECT max(time), argMax(temp, time), station FROM w GROUP BY station"
        return {"hour": "toStartOfHour(time)", "last": last, "quote": "toDateTime64('{}', 3)"}[name]

    def close(self):
        self.db.close()


class Lite:
    name = f"SQLite {sqlite3.sqlite_version}"

    def open(self, folder, table):
        self.file = os.path.join(folder, "w.sqlite")
        self.db = sqlite3.connect(self.file)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        fields = ", ".join(f"{n} REAL" for n in table.column_names[2:])
        self.db.execute(f"CREATE TABLE w (time TEXT, station TEXT, {fields}, PRIMARY KEY (station, time)) WITHOUT ROWID")
        self.holes = ", ".join("?" * table.num_columns)

    def insert(self, batch):
        columns = [batch.column(i).to_pylist() for i in range(batch.num_columns)]
        columns[0] = [t.isoformat(" ") for t in columns[0]]
        with self.db:
            self.db.executemany(f"INSERT INTO w VALUES ({self.holes})", zip(*columns))

    def seal(self):
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def merge(self):
        self.db.execute("VACUUM")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.path.getsize(self.file)

    def query(self, text):
        return len(self.db.execute(text).fetchall())

    def say(self, name):
        last = "SELECT max(time), temp, station FROM w GROUP BY station"
        return {"hour": "substr(time, 1, 13)", "last": last, "quote": "'{}'"}[name]

    def close(self):
        self.db.close()


ENGINES = {"duckdb": Duck, "clickhouse": Click, "sqlite": Lite}


def measure(engine, table, seconds):
    folder = tempfile.mkdtemp()
    try:
        engine.open(folder, table)
        batches = [table.slice(at, BATCH) for at in range(0, table.num_rows, BATCH)]
        start = time.perf_counter()
        for batch in batches:
            engine.insert(batch)
        engine.seal()
        took = time.perf_counter() - start
        merged = engine.merge()
        cells = table.num_rows * (table.num_columns - 2)
        found = {"ingest, rows/s": table.num_rows / took, "bytes a cell, merged": merged / cells}
        quote = engine.say("quote")
        at = {"t0": "2024-07-01 11:00:00", "t12": "2024-07-01 23:00:00", "t7": "2024-07-08 11:00:00"}
        words = {key: quote.format(value) for key, value in at.items()}
        words |= {"hour": engine.say("hour"), "last": engine.say("last")}
        for name, text in QUERIES.items():
            text = text.format(**words)
            engine.query(text)
            took = []
            for _ in range(5):
                start = time.perf_counter()
                rows = engine.query(text)
                took.append((time.perf_counter() - start) * 1e3)
            found[f"{name}, ms"] = statistics.median(took)
            found[f"{name}, rows"] = rows
        for name, value in found.items():
            seconds.setdefault(engine.name, {}).setdefault(name, []).append(value)
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def ours(runner, data, seconds):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        subprocess.run([runner, "weather", "--runs", "1", "--data", data, "--json", out], check=True, capture_output=True)
        for figure in json.loads(Path(out).read_text())["figures"]:
            seconds.setdefault("Ebbtide", {}).setdefault(f"{figure['name']}, {figure['unit']}", []).append(figure["median"])


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--runner", required=True)
    args.add_argument("--data", default="../shared/data/weather")
    args.add_argument("--runs", type=int, default=3)
    args.add_argument("--engines", default="duckdb,clickhouse,sqlite")
    args.add_argument("--json")
    args = args.parse_args()
    table = load(args.data)
    print(f"{table.num_rows} rows, {table.num_columns - 2} fields", file=sys.stderr)
    seconds = {}
    for run in range(args.runs):
        ours(args.runner, args.data, seconds)
        for engine in [ENGINES[name]() for name in args.engines.split(",")]:
            measure(engine, table, seconds)
            print(f"run {run + 1}: {engine.name} done", file=sys.stderr)
    medians = {e: {n: statistics.median(v) for n, v in figures.items()} for e, figures in seconds.items()}
    for engine, figures in medians.items():
        print(engine)
        for name, value in figures.items():
            print(f"  {name:60} {value:14,.3f}")
    if args.json:
        Path(args.json).write_text(json.dumps(medians, indent=1) + "\n")


if __name__ == "__main__":
    main()
