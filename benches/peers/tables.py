"""Engines with SQL: DuckDB, ClickHouse (chdb), SQLite. Each is configured as its manual recommends for this use."""

import os
import sqlite3

import chdb
import duckdb
import pyarrow as pa
from chdb import session

import questions


class Duck:
    """Commits each batch, synced to its log; sorted at the end, for compression and zone maps."""

    name = f"DuckDB {duckdb.__version__}"

    def open(self, folder, table, key):
        self.key = key
        self.file = os.path.join(folder, "w.duckdb")
        self.db = duckdb.connect(self.file)
        types = {"time": "TIMESTAMP_MS"} | {f.name: "VARCHAR" for f in table.schema if pa.types.is_string(f.type)}
        types |= {f.name: "BIGINT" for f in table.schema if pa.types.is_integer(f.type)}
        columns = ", ".join(f"{n} {types.get(n, 'DOUBLE')}" for n in table.column_names)
        self.db.execute(f"CREATE TABLE w ({columns})")

    def insert(self, batch):
        self.db.register("batch", batch)
        self.db.execute("INSERT INTO w SELECT * FROM batch")
        self.db.unregister("batch")

    def seal(self):
        self.db.execute("CHECKPOINT")

    def merge(self):
        self.db.execute(f"CREATE TABLE s AS SELECT * FROM w ORDER BY {self.key}, time")
        self.db.execute("DROP TABLE w")
        self.db.execute("ALTER TABLE s RENAME TO w")
        self.db.execute("CHECKPOINT")
        return self.db.execute("SELECT used_blocks * block_size FROM pragma_database_size()").fetchall()[0][0]

    def prepare(self, question):
        return questions.sql(question, "w", self.key, self)

    def ask(self, text):
        return self.db.sql(text).to_arrow_table()

    def summed(self, answer):
        return questions.summed(answer)

    def time(self, text):
        return f"TIMESTAMP '{text}'"

    def bin(self, width):
        return f"date_trunc('{ {60_000: 'minute', 3_600_000: 'hour'}[width] }', time)"

    def last(self, table, key, fields):
        return f"SELECT * FROM {table} WHERE ({key}, time) IN (SELECT ({key}, max(time)) FROM {table} GROUP BY {key})"

    def close(self):
        self.db.close()


class Click:
    """A MergeTree in the order of the queries, with codecs for time series, each part synced; merged at the end."""

    name = f"ClickHouse (chdb {chdb.__version__})"

    def open(self, folder, table, key):
        self.key = key
        self.db = session.Session(folder)

        def column(field):
            if field.name == "time":
                return "time DateTime64(3) CODEC(DoubleDelta, ZSTD(1))"
            if pa.types.is_string(field.type):
                return f"{field.name} LowCardinality(String)"
            if pa.types.is_integer(field.type):
                return f"{field.name} Int64 CODEC(Delta, ZSTD(1))"
            return f"{field.name} Nullable(Float64) CODEC(Gorilla, ZSTD(1))"

        self.db.query("CREATE DATABASE b")
        self.db.query(
            f"CREATE TABLE b.w ({', '.join(column(f) for f in table.schema)}) ENGINE = MergeTree ORDER BY ({key}, time) "
            "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
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

    def prepare(self, question):
        return questions.sql(question, "b.w", self.key, self)

    def ask(self, text):
        return self.db.query(text, "ArrowStream")

    def summed(self, answer):
        return questions.summed(pa.ipc.open_stream(answer.bytes()).read_all())

    def time(self, text):
        return f"toDateTime64('{text}', 3, 'UTC')"

    def bin(self, width):
        return {60_000: "toStartOfMinute(time)", 3_600_000: "toStartOfHour(time)"}[width]

    def last(self, table, key, fields):
        return f"SELECT * FROM {table} WHERE ({key}, time) IN (SELECT {key}, max(time) FROM {table} GROUP BY {key})"

    def close(self):
        self.db.close()


class Lite:
    """A WITHOUT ROWID table in WAL mode, every commit synced."""

    name = f"SQLite {sqlite3.sqlite_version}"

    def open(self, folder, table, key):
        self.key = key
        self.file = os.path.join(folder, "w.sqlite")
        self.db = sqlite3.connect(self.file)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        kinds = {f.name: "TEXT" if f.name == "time" or pa.types.is_string(f.type) else "REAL" for f in table.schema}
        columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        self.db.execute(f"CREATE TABLE w ({columns}, PRIMARY KEY ({key}, time)) WITHOUT ROWID")
        self.holes = ", ".join("?" * table.num_columns)

    def insert(self, batch):
        columns = [batch.column(i).to_pylist() for i in range(batch.num_columns)]
        columns[0] = [t.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] for t in columns[0]]
        with self.db:
            self.db.executemany(f"INSERT INTO w VALUES ({self.holes})", zip(*columns))

    def seal(self):
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def merge(self):
        self.db.execute("VACUUM")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.path.getsize(self.file)

    def prepare(self, question):
        return questions.sql(question, "w", self.key, self)

    def ask(self, text):
        return self.db.execute(text).fetchall()

    def summed(self, answer):
        return len(answer), float(sum(v for row in answer for v in row if isinstance(v, (int, float))))

    def time(self, text):
        return f"'{text}'"

    def bin(self, width):
        return {60_000: "substr(time, 1, 16)", 3_600_000: "substr(time, 1, 13)"}[width]

    def last(self, table, key, fields):
        return f"SELECT max(time), {key}, {', '.join(fields)} FROM {table} GROUP BY {key}"

    def close(self):
        self.db.close()
