"""From the start of a program to its first result: 1 GB of measurements with the files cached and not, and after a kill with a full log.

    VENV/bin/python benches/peers/cold.py --program target/release/ebbtide

Needs duckdb, `duckdb-cli`, psycopg[binary] and pyarrow. 10,000,000 rows of 100 series x 10 doubles with 53 random bits each, so that both
have 1 GB; DuckDB's table is sorted by series and time. Timed is the whole command `ebbtide sql QUERY` or `duckdb FILE QUERY`, in turn.
For "not cached", the pages of the database and of the program are dropped first (only those: `posix_fadvise`). "Killed": one process
inserts batches of 10,000 rows, each durable, until its log has 40 MiB (the memtable is full before the log's 64 MiB), and is killed; the
next command then reads the log. DuckDB does the same with checkpoints off, as a library, which reports the time without its import, and
must have every row that it acknowledged. The answers must agree. `ebbtide-benches open` has the 100,000 segments.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from program import Done, Ebbtide, Report, agree, duckdb_program, options, size

ROWS = 10_000_000
BATCH = 10_000
LOG = 40 << 20
FIELDS = ", ".join(f"random() AS f{i}" for i in range(10))
SELECT = f"SELECT TIMESTAMP '2024-01-01' + INTERVAL 1 SECOND * (i // 100) AS time, 's' || (i % 100) AS series, {FIELDS}"
QUERIES = {
    "no table": "SELECT 1 AS one",
    "count of everything": "SELECT count(*) AS n FROM m",
    "last minute of one series": "SELECT count(*) AS n, sum(f0) AS s FROM m WHERE series = 's7' AND time >= '2024-01-02T03:45:40'",
    "sum of one field": "SELECT sum(f3) AS s FROM m",
}
WRITER = """
import duckdb, sys
from pyarrow import parquet
db = duckdb.connect(sys.argv[1], config={"threads": 2})
db.execute("SET enable_progress_bar = false; SET checkpoint_threshold = '1TB'")
db.execute(f"CREATE TABLE m AS SELECT * FROM '{sys.argv[2]}' LIMIT 0")
db.execute("CHECKPOINT")
for batch in parquet.ParquetFile(sys.argv[2]).iter_batches(int(sys.argv[3])):
    db.register("batch", batch)
    db.execute("INSERT INTO m SELECT * FROM batch")
    print(batch.num_rows, flush=True)
"""
READER = """
import duckdb, sys, time
start = time.perf_counter(), time.process_time()
print(duckdb.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0], time.perf_counter() - start[0], time.process_time() - start[1])
"""


def drop(*paths):
    """Drops the cached pages of files."""
    os.sync()
    for path in paths:
        for file in [Path(path)] if os.path.isfile(path) else Path(path).rglob("*"):
            if file.is_file():
                handle = os.open(file, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)


def killed(process, full):
    """Waits until the log is full, and kills the process."""
    while process.poll() is None and not full():
        time.sleep(0.005)
    if process.poll() is not None:
        raise RuntimeError("the log was not full at the end of the data")
    process.send_signal(signal.SIGKILL)
    process.wait()


def logs(folder):
    return [file for file in Path(folder).glob("wal-*.log")]


def main():
    parser = options(__doc__, runs=7)
    parser.add_argument("--duckdb", default=duckdb_program(), help="DuckDB's program")
    args = parser.parse_args()
    version = Done([args.duckdb, "--version"]).out.split()[0].lstrip("v")
    other = f"DuckDB {version}, program"
    library = f"DuckDB {duckdb.__version__}, library"
    report = Report(["Ebbtide", other, library])
    with tempfile.TemporaryDirectory() as folder:
        data, theirs = os.path.join(folder, "m.parquet"), os.path.join(folder, "m.duckdb")
        duckdb.connect().execute(f"COPY ({SELECT} FROM range({ROWS}) AS t(i)) TO '{data}'")
        ours = Ebbtide(args.program, os.path.join(folder, "ours"))
        ours.run("import", data, "--into", "m", "--meta", "series", "--granularity", "seconds")
        Done([args.duckdb, theirs, f"CREATE TABLE m AS SELECT * FROM '{data}' ORDER BY series, time; CHECKPOINT"])
        for name, at in [("Ebbtide", ours.folder), (other, theirs)]:
            report.add("the database", "MB", name, size(at) / 1e6)
        for what, query in QUERIES.items():
            with duckdb.connect() as check:
                check.execute(f"CREATE VIEW m AS SELECT * FROM '{data}'")
                agree(ours.rows(query), check.execute(query).fetchall(), what)
        for _ in range(args.runs):
            for cached in [True, False]:
                for what, query in QUERIES.items():
                    for name, command, files in [
                        ("Ebbtide", [ours.program, "--db", ours.folder, "sql", query], [ours.program, ours.folder]),
                        (other, [args.duckdb, theirs, query], [os.path.realpath(args.duckdb), theirs]),
                    ]:
                        if not cached:
                            drop(*files)
                        done = Done(command)
                        name_of = f"{what}, {'cached' if cached else 'not cached'}"
                        report.add(name_of, "ms", name, done.seconds * 1e3, done.processor * 1e3)
        after_kills(args, folder, data, report, library)
    report.show()


def after_kills(args, folder, data, report, name):
    text = os.path.join(folder, "m.csv")
    duckdb.connect().execute(f"COPY (SELECT * FROM '{data}' LIMIT 2000000) TO '{text}'")
    query = "SELECT count(*) AS n FROM m"
    for run in range(3):
        ours = Ebbtide(args.program, os.path.join(folder, f"killed-{run}"))
        with open(text) as source:
            command = [ours.program, "import", "-", "--format", "csv", "--into", "m", "--meta", "series", "--granularity", "seconds"]
            command += ["--batch-rows", str(BATCH), "--flush-ms", "60000", "--db", ours.folder]
            process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            killed(process, lambda at=ours.folder: sum(map(size, logs(at))) >= LOG)
        report.add("killed: its log", "MiB", "Ebbtide", sum(map(size, logs(ours.folder))) / (1 << 20))
        for time_of in ["first command after the kill", "second command"]:
            done = ours.run("sql", "--format", "csv", query)
            report.add(time_of, "ms", "Ebbtide", done.seconds * 1e3, done.processor * 1e3)
        shutil.rmtree(ours.folder)
        report.add("rows found", "", "Ebbtide", int(done.out.split()[1]), more_is_better=True)
        theirs = os.path.join(folder, f"killed-{run}.duckdb")
        seen = os.path.join(folder, "seen")
        with open(seen, "w") as out:
            process = subprocess.Popen([sys.executable, "-c", WRITER, theirs, data, str(BATCH)], stdout=out)
            log = theirs + ".wal"
            killed(process, lambda at=log: os.path.exists(at) and size(at) >= LOG)
        acknowledged = sum(map(int, Path(seen).read_text().split()))
        report.add("killed: its log", "MiB", name, size(log) / (1 << 20))
        for time_of in ["first command after the kill", "second command"]:
            found, seconds, processor = map(float, Done([sys.executable, "-c", READER, theirs, query]).out.split())
            report.add(time_of, "ms", name, seconds * 1e3, processor * 1e3)
        if found < acknowledged:
            raise SystemExit(f"DuckDB has {found} of {acknowledged} rows")
        report.add("rows found", "", name, found, more_is_better=True)


if __name__ == "__main__":
    main()
