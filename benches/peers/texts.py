"""Log lines of 40 templates: bytes, LIKE, an id that occurs once, levels by minute, beside DuckDB and ClickHouse.

    VENV/bin/python benches/peers/texts.py --program target/release/ebbtide

Needs chdb, duckdb, psycopg[binary] and pyarrow. By default 3,000,000 lines of 20 hosts (the goal names 50 million: `--rows`), each with a
level and a message of some 100 characters made of one of 40 templates, numbers, addresses, and a request's id of 16 hexadecimal digits
that occurs once. DuckDB's table is sorted by host and time; ClickHouse is a MergeTree of that order with ZSTD(1), merged, and does not
remember which blocks a condition has left out (`use_query_condition_cache`), since users do not repeat a search. One connection each, in
turn; the first round does not count. Answers must agree.
"""

import os
import tempfile

import chdb
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from chdb import session
from pyarrow import parquet

from program import Ebbtide, Report, Server, agree, measured, options, size, tuples

TEMPLATES, HOSTS = 40, 20
WORDS = """accepted request from client connection closed after timeout while reading upstream response header cache miss for key retry
attempt failed with status user session created token refreshed queue depth above limit worker started job finished in disk usage at percent
checkpoint complete wrote buffers slow query detected scanning index rebuild scheduled replica lag behind primary heartbeat lost node""".split()
QUERIES = {
    "count of LIKE '%needle%'": "SELECT count(*) AS n FROM logs WHERE message LIKE '%needle%'",
    "count of LIKE '%timeout%retry%'": "SELECT count(*) AS n FROM logs WHERE message LIKE '%timeout%retry%'",
    "an id that occurs once": "SELECT host, level FROM logs WHERE message LIKE '%{id}%'",
    "the same within one host": "SELECT host, level FROM logs WHERE host = '{host}' AND message LIKE '%{id}%'",
    "level by minute": "SELECT {minute} AS m, level, count(*) AS n FROM logs GROUP BY m, level",
    "errors by host": "SELECT host, count(*) AS n FROM logs WHERE level = 'ERROR' GROUP BY host",
    "the longest message of each level": "SELECT level, max(length(message)) AS n FROM logs GROUP BY level",
}


def written(rows, path):
    """Writes the lines in the order of time, and returns an id and the host that has it."""
    random = np.random.default_rng(1)
    shapes = []
    for _ in range(TEMPLATES):
        words = list(random.choice(WORDS, 10))
        shapes.append([" ".join(words[at : at + 3]) for at in range(0, 9, 3)])
    shapes[39][1] += " needle"
    share = random.zipf(1.3, rows) % TEMPLATES
    share[random.random(rows) < 0.002] = 39
    share[(share == 39) & (random.random(rows) < 0.5)] = 3

    def at(part):
        return pa.array([shape[part] for shape in shapes]).take(pa.array(share))

    def text(numbers):
        return pa.array(numbers).cast(pa.string())

    ids = np.char.mod("%016x", random.integers(1 << 60, 1 << 63, rows, dtype=np.int64))
    address = pc.binary_join_element_wise(*[text(random.integers(1, 255, rows)) for _ in range(2)], ".")
    parts = [
        at(0),
        text(random.integers(1, 30_000, rows)),
        "ms 10.0.",
        address,
        at(1),
        text(random.integers(100, 599, rows)),
        at(2),
        "id=",
        pa.array(ids),
    ]
    message = pc.binary_join_element_wise(*parts, " ")
    time = np.datetime64("2024-06-01T00:00:00", "ms") + np.sort(random.integers(0, 86_400_000, rows))
    hosts = random.integers(0, HOSTS, rows)
    host = pa.array([f"host-{h:02}" for h in range(HOSTS)]).take(pa.array(hosts))
    level = pa.array(["INFO", "DEBUG", "WARN", "ERROR"]).take(pa.array(np.where(share % 10 == 7, 3, share % 3)))
    parquet.write_table(pa.table({"time": time, "host": host, "level": level, "message": message}), path, compression="zstd")
    return ids[rows // 3], f"host-{hosts[rows // 3]:02}", pc.sum(pc.binary_length(message)).as_py()


def main():
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    args = parser.parse_args()
    duck, click = f"DuckDB {duckdb.__version__}", f"ClickHouse (chdb {chdb.__version__})"
    report = Report(["Ebbtide", duck, click])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logs.parquet")
        id, host, length = written(args.rows, path)
        ours = Ebbtide(args.program, os.path.join(folder, "ours"))
        done = ours.run("import", path, "--into", "logs", "--meta", "host")
        report.add("import of Parquet", "s", "Ebbtide", done.seconds, done.processor)
        ours.run("sql", "COMPACT logs")
        stored = os.path.join(folder, "w.duckdb")
        db = duckdb.connect(stored)
        db.execute("SET threads = 2; SET enable_progress_bar = false")
        took = measured(db.execute, f"CREATE TABLE logs AS SELECT * FROM '{path}' ORDER BY host, time; CHECKPOINT")
        report.add("import of Parquet", "s", duck, *took)
        house = session.Session(os.path.join(folder, "house"))
        house.query("SET use_query_condition_cache = 0")
        zstd = "CODEC(ZSTD(1))"
        house.query(
            f"CREATE TABLE logs (time DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)), host LowCardinality(String) {zstd}, "
            f"level LowCardinality(String) {zstd}, message String {zstd}) ENGINE = MergeTree ORDER BY (host, time)"
        )
        took = measured(house.query, f"INSERT INTO logs SELECT * FROM file('{path}', Parquet)")
        report.add("import of Parquet", "s", click, *took)
        house.query("OPTIMIZE TABLE logs FINAL")
        bytes_of = "SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 'logs' AND active"
        for engine, count in [("Ebbtide", ours.size()), (duck, size(stored)), (click, int(str(house.query(bytes_of, "TabSeparated"))))]:
            report.add(f"on disk; the messages have {length / 1e6:,.0f} MB", "MB", engine, count / 1e6)

        def ask(query):
            return tuples(pa.ipc.open_stream(house.query(query, "ArrowStream").bytes()).read_all())

        with Server(ours) as server:
            for run in range(args.runs + 1):
                for what, query in QUERIES.items():
                    query = query.replace("{id}", id).replace("{host}", host)
                    plain = query.replace("{minute}", "date_trunc('minute', time)")
                    theirs = query.replace("{minute}", "toDateTime64(toStartOfMinute(time), 3)")
                    if run == 0:
                        answer = ours.rows(plain)
                        agree(answer, tuples(db.sql(plain).to_arrow_table()), what)
                        agree(answer, ask(theirs), what)
                    for engine, took in [
                        ("Ebbtide", server.measured(plain)),
                        (duck, measured(lambda text=plain: db.execute(text).fetchall())),
                        (click, measured(ask, theirs)),
                    ]:
                        if run > 0:
                            report.add(what, "ms", engine, took[0] * 1e3, took[1] * 1e3)
    report.show()


if __name__ == "__main__":
    main()
