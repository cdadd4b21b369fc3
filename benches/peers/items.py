"""The store of sessions of the workload `items` in SQLite. The runner starts it:

    python3 items.py DATABASE BATCH

Each command is a line, followed by lines of data and an empty line; the answer is a line of figures. Only the database's own
work is timed.

    put           lines of id, expiry, JSON with tabs between: seconds for one commit per batch
    fill          the same in one commit that does not wait for the disk
    get N         lines of ids: p50 and p99 in microseconds of the last N look-ups, each with the JSON read
    expire AT     seconds for deleting what has expired by then
"""

import json
import sqlite3
import sys
import time

PUT = "INSERT OR REPLACE INTO items VALUES (?, ?, ?)"


def data():
    for line in sys.stdin:
        if line == "\n":
            return
        yield line.rstrip("\n")


def records():
    return [(id, int(expires), text) for id, expires, text in (line.split("\t", 2) for line in data())]


def put(db, batch):
    rows = records()
    start = time.perf_counter()
    for at in range(0, len(rows), batch):
        db.execute("BEGIN")
        db.executemany(PUT, rows[at : at + batch])
        db.execute("COMMIT")
    return [time.perf_counter() - start]


def fill(db):
    db.execute("PRAGMA synchronous = OFF")
    seconds = put(db, 1 << 60)
    db.execute("PRAGMA synchronous = FULL")
    return seconds


def get(db, measured):
    micros = []
    for id in list(data()):
        start = time.perf_counter()
        json.loads(db.execute("SELECT doc FROM items WHERE id = ?", (id,)).fetchone()[0])
        micros.append((time.perf_counter() - start) * 1e6)
    micros = sorted(micros[-measured:])
    return [micros[len(micros) // 2], micros[len(micros) * 99 // 100]]


def expire(db, at):
    list(data())
    start = time.perf_counter()
    db.execute("DELETE FROM items WHERE expires <= ?", (at,))
    return [time.perf_counter() - start]


def main():
    path, batch = sys.argv[1], int(sys.argv[2])
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA cache_size = -{256 << 10}")
    db.execute("CREATE TABLE items (id TEXT PRIMARY KEY, expires INTEGER, doc TEXT)")
    db.execute("CREATE INDEX items_expires ON items (expires)")
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "put":
            answer = put(db, batch)
        elif command == "fill":
            answer = fill(db)
        elif command == "get":
            answer = get(db, int(arguments[0]))
        else:
            answer = expire(db, int(arguments[0]))
        print(*answer, flush=True)


main()
