"""Many rows, several times the cache: groups, quantiles, distinct counts, a filter, the top hundred, beside DuckDB, ClickHouse and Hyper.

    VENV/bin/python benches/peers/large.py --program target/release/ebbtide

Needs chdb, duckdb, psycopg[binary], pyarrow and tableauhyperapi. By default 20,000,000 rows of 1,000 series (the goal names a thousand
million: `--rows`) in the order of time, with a double of two decimals, an integer of 0 to 99, and the id of one of 3,000,000 users;
decoded they have 640 MB, twice Ebbtide's cache. The tables of DuckDB and ClickHouse are sorted by series and time, as Ebbtide's is;
Hyper's has the order of arrival. DuckDB and ClickHouse may use 1.25 GiB, as Ebbtide's cache (256 MiB) and a statement (1 GiB) together
may by default. Each engine runs all queries once, and then again in each run; the first round does not count. Answers must agree.
"""

import os
import tempfile

import chdb
import duckdb
import pyarrow as pa
from chdb import session
from tableauhyperapi import Connection, CreateMode, HyperProcess, Telemetry

from program import Ebbtide, Report, Server, agree, measured, options, size, tuples

MEMORY = 1_342_177_280  # Of bytes: what a statement and the cache may use in Ebbtide together.
QUERIES = {
    "average and maximum by series": "SELECT series, avg(v) AS a, max(v) AS m, count(*) AS n FROM m GROUP BY series",
    "average by hour": "SELECT date_trunc('hour', time) AS h, avg(v) AS a FROM m GROUP BY h",
    "sums by code and half of the series": "SELECT code, sum(v) AS s, count(*) AS n FROM m WHERE series < 's500' GROUP BY code",
    "median and 99th percentile": "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS a, "
    "percentile_cont(0.99) WITHIN GROUP (ORDER BY v) AS b FROM m",
    "count distinct users": "SELECT count(DISTINCT person) AS n FROM m",
    "count distinct users by code": "SELECT code, count(DISTINCT person) AS n FROM m GROUP BY code",
    "a filter that leaves 1 %": "SELECT count(*) AS n, sum(v) AS s, max(person) AS p FROM m WHERE code = 42",
    "the hundred largest": "SELECT v, person FROM m ORDER BY v DESC, person LIMIT 100",
    "the hundred users with most rows": "SELECT person, count(*) AS n FROM m GROUP BY person ORDER BY n DESC, person LIMIT 100",
}
MADE = """SELECT (TIMESTAMP '2024-01-01' + INTERVAL 1 MINUTE * (i // 1000))::TIMESTAMP_MS AS time, printf('s%03d', i % 1000) AS series,
    round(50 + 20 * sin(i / 1000 / 300.0 + i % 1000) + hash(i) % 1000 / 100.0, 2) AS v, (hash(i + 7) % 100)::BIGINT AS code,
    (hash(i + 13) % 3000000)::BIGINT AS person FROM range({rows}) AS t(i)"""


def main():
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    args = parser.parse_args()
    duck, click, hyper = f"DuckDB {duckdb.__version__}", f"ClickHouse (chdb {chdb.__version__})", "Hyper"
    report = Report(["Ebbtide", duck, click, hyper])
    with tempfile.TemporaryDirectory() as folder:
        path, stored = os.path.join(folder, "m.parquet"), os.path.join(folder, "m.duckdb")
        with duckdb.connect() as made:
            made.execute("SET enable_progress_bar = false")
            made.execute(f"COPY ({MADE.format(rows=args.rows)}) TO '{path}' (COMPRESSION zstd)")
        ours = Ebbtide(args.program, os.path.join(folder, "ours"))
        done = ours.run("import", path, "--into", "m", "--meta", "series")
        report.add("import of Parquet", "s", "Ebbtide", done.seconds, done.processor)
        report.add("memory of the import", "MiB", "Ebbtide", done.memory)
        db = duckdb.connect(stored)
        db.execute(f"SET threads = 2; SET enable_progress_bar = false; SET memory_limit = '{MEMORY}B'")
        took = measured(db.execute, f"CREATE TABLE m AS SELECT * FROM '{path}' ORDER BY series, time; CHECKPOINT")
        report.add("import of Parquet", "s", duck, *took)
        db.execute("SET preserve_insertion_order = false")
        house = session.Session(os.path.join(folder, "house"))
        house.query(
            "CREATE TABLE m (time DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)), series LowCardinality(String), "
            "v Float64 CODEC(Gorilla, ZSTD(1)), "
            "code Int64 CODEC(T64, ZSTD(1)), person Int64 CODEC(T64, ZSTD(1))) ENGINE = MergeTree ORDER BY (series, time)"
        )
        report.add("import of Parquet", "s", click, *measured(house.query, f"INSERT INTO m SELECT * FROM file('{path}', Parquet)"))
        house.query("OPTIMIZE TABLE m FINAL")
        house.query(f"SET max_memory_usage = {MEMORY}, use_query_condition_cache = 0")
        bytes_of = "SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 'm' AND active"
        quiet = Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU
        with (
            Server(ours) as server,
            HyperProcess(quiet, parameters={"log_config": ""}) as process,
            Connection(process.endpoint, os.path.join(folder, "m.hyper"), CreateMode.CREATE_AND_REPLACE) as other,
        ):
            took, _ = measured(other.execute_command, f"CREATE TABLE m AS SELECT * FROM external('{path}')")
            report.add("import of Parquet", "s", hyper, took)
            for engine, count in [
                ("Ebbtide", ours.size()),
                (duck, size(stored)),
                (click, int(str(house.query(bytes_of, "TabSeparated")))),
                (hyper, size(os.path.join(folder, "m.hyper"))),
            ]:
                report.add("on disk", "MB", engine, count / 1e6)
            os.remove(path)

            def clicked(query):
                query = query.replace("date_trunc('hour', time)", "toDateTime64(toStartOfHour(time), 3)")
                for share in ["0.5", "0.99"]:
                    query = query.replace(f"percentile_cont({share}) WITHIN GROUP (ORDER BY v)", f"quantileExactInclusive({share})(v)")
                return tuples(pa.ipc.open_stream(house.query(query, "ArrowStream").bytes()).read_all())

            def ducked(query):
                return db.execute(query).fetchall()

            def hyped(query):
                return other.execute_list_query(query)

            for run in range(args.runs + 1):
                for what, query in QUERIES.items():
                    if run == 0:
                        answer = ours.rows(query)
                        agree(answer, tuples(db.sql(query).to_arrow_table()), f"{what}, DuckDB")
                        agree(answer, clicked(query), f"{what}, ClickHouse")
                        if "hour" not in what:
                            agree(answer, list(map(tuple, hyped(query))), f"{what}, Hyper")
                    for engine, work in [("Ebbtide", None), (duck, ducked), (click, clicked), (hyper, hyped)]:
                        took = server.measured(query) if work is None else measured(work, query)
                        if run > 0:
                            report.add(what, "ms", engine, took[0] * 1e3, None if engine == hyper else took[1] * 1e3)
            report.add("peak of the server's memory", "MiB", "Ebbtide", server.memory())
    report.show()


if __name__ == "__main__":
    main()
