"""Windows, joins, distinct values, quantiles, gap filling and ASOF joins over INMET 2024, beside DuckDB.

    VENV/bin/python benches/peers/analysis.py --program target/release/ebbtide

Needs duckdb, psycopg[binary] and pyarrow. 2,441,952 rows of 278 stations x 17 fields, a table of 565 stations, the mean of each station's
day in another collection (101,748 rows), and 500,000 probes at random times. DuckDB's table is sorted by station and time. Each query is
asked of both in turn, of Ebbtide over PostgreSQL's protocol on loopback, of DuckDB in this process; the first round does not count. Timed
is from the text to the rows, of which there are at most some thousand. Answers must agree.
"""

import os
import tempfile

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from program import Ebbtide, Report, Server, agree, inmet, measured, options, tuples

PROBES = 500_000
DAY = "ROWS BETWEEN 23 PRECEDING AND CURRENT ROW"
HOURS = "RANGE BETWEEN INTERVAL '23 hours' PRECEDING AND CURRENT ROW"
OVER = "OVER (PARTITION BY station ORDER BY time"


def rolling(function, frame):
    return f"SELECT count(r), sum(r), max(r) FROM (SELECT {function} {OVER} {frame}) AS r FROM w) AS x"


# A query that both understand, or one for each.
QUERIES = {
    "rolling sum over 24 rows": rolling("sum(precip)", DAY),
    "rolling sum over 24 hours": rolling("sum(precip)", HOURS),
    "rolling average of 3 fields over 24 rows": f"""SELECT sum(a), sum(b), sum(c) FROM (SELECT avg(temp) {OVER} {DAY}) AS a,
        avg(pressure) {OVER} {DAY}) AS b, avg(wind_speed) {OVER} {DAY}) AS c FROM w) AS x""",
    "rolling maximum over 24 rows": rolling("max(temp)", DAY),
    "difference to the row before": f"SELECT count(d), sum(abs(d)) FROM (SELECT temp - lag(temp) {OVER}) AS d FROM w) AS x",
    "cumulative sum": f"SELECT sum(s) FROM (SELECT sum(precip) {OVER}) AS s FROM w) AS x",
    "the three hottest hours of each station": """SELECT station, time, temp FROM (SELECT station, time, temp,
        row_number() OVER (PARTITION BY station ORDER BY temp DESC NULLS LAST, time) AS n FROM w) AS x WHERE n <= 3""",
    "join with stations, by state and month": """SELECT s.state, date_trunc('month', w.time) AS m, count(*), avg(w.temp), max(w.wind_gust)
        FROM w JOIN stations s ON w.station = s.station GROUP BY s.state, m""",
    "join with stations above 1,000 m": """SELECT count(*), avg(w.temp) FROM w JOIN stations s ON w.station = s.station
        WHERE s.altitude_m > 1000""",
    "join with the means of days": """SELECT count(*), sum(abs(w.temp - d.mean)) FROM w JOIN daily d
        ON w.station = d.station AND date_trunc('day', w.time) = d.time""",
    "join of two stations on time": """SELECT count(*), sum(abs(a.temp - b.temp)) FROM w a JOIN w b ON a.time = b.time
        WHERE a.station = 'A001' AND b.station = 'A801'""",
    "distinct pairs of station and direction": "SELECT count(*) FROM (SELECT DISTINCT station, wind_dir FROM w) AS x",
    "distinct values of one field": "SELECT count(DISTINCT temp), count(DISTINCT pressure) FROM w",
    "distinct values by station": "SELECT station, count(DISTINCT temp) FROM w GROUP BY station",
    "distinct stations": "SELECT count(DISTINCT station) FROM w",
    "median by station": "SELECT station, median(temp) FROM w GROUP BY station",
    "90th percentile of everything": (
        "SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY temp) FROM w",
        "SELECT quantile_cont(temp, 0.9) FROM w",
    ),
    "gaps filled: 30 minutes, one month, last value": (
        """SELECT count(*), count(t), sum(t) FROM (SELECT station, date_bin_gapfill('30 minutes', time) AS b, locf(avg(temp)) AS t FROM w
        WHERE time >= '2024-03-01T00:00:00Z' AND time < '2024-04-01T00:00:00Z' GROUP BY station, b) AS x""",
        """WITH m AS (SELECT station, time_bucket(INTERVAL '30 minutes', time) AS b, avg(temp) AS t FROM w
        WHERE time >= '2024-03-01' AND time < '2024-04-01' GROUP BY ALL), grid AS (SELECT station, b FROM (SELECT DISTINCT station FROM m),
        generate_series(TIMESTAMP '2024-03-01', TIMESTAMP '2024-03-31 23:30:00', INTERVAL '30 minutes') AS g(b)),
        filled AS (SELECT last_value(t IGNORE NULLS) OVER (PARTITION BY station ORDER BY b) AS t FROM grid LEFT JOIN m USING (station, b))
        SELECT count(*), count(t), sum(t) FROM filled""",
    ),
    "ASOF join of 500,000 probes": "SELECT count(*), sum(w.temp) FROM probes p ASOF JOIN w ON p.station = w.station AND p.time >= w.time",
}
DAILY = "SELECT station, date_trunc('day', time) AS time, avg(temp) AS mean FROM w GROUP BY 1, 2"


def probes(stations, path):
    random = np.random.default_rng(1)
    at = np.datetime64("2024-01-01T00:00:00", "ms") + random.integers(0, 366 * 86_400_000, PROBES)
    names = np.array(stations)[random.integers(0, len(stations), PROBES)]
    table = pa.table({"time": pa.array(at), "station": names, "n": np.arange(PROBES)})
    parquet.write_table(table.sort_by("time"), path)


def fetch(db, query):
    return db.sql(query).fetchall()


def main():
    parser = options(__doc__, runs=5)
    args = parser.parse_args()
    name = f"DuckDB {duckdb.__version__}"
    report = Report(["Ebbtide", name])
    with tempfile.TemporaryDirectory() as folder:
        plain, asked = os.path.join(folder, "inmet.csv"), os.path.join(folder, "probes.parquet")
        inmet(args.data, plain)
        stations = args.data / "inmet_2024_stations.csv"
        other = duckdb.connect(os.path.join(folder, "w.duckdb"))
        other.execute("SET threads = 2; SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        other.execute(f"CREATE TABLE w AS SELECT * REPLACE (time::TIMESTAMP::TIMESTAMP_MS AS time) FROM '{plain}' ORDER BY station, time")
        other.execute(f"CREATE TABLE stations AS SELECT * FROM '{stations}'")
        other.execute(f"CREATE TABLE daily AS {DAILY}")
        probes([station for (station,) in other.execute("SELECT DISTINCT station FROM w ORDER BY 1").fetchall()], asked)
        other.execute(f"CREATE TABLE probes AS SELECT * FROM '{asked}'")
        other.execute("CHECKPOINT")
        ours = Ebbtide(args.program, os.path.join(folder, "ours"))
        ours.run("import", plain, "--into", "w", "--meta", "station")
        ours.run("import", stations, "--into", "stations", "--meta", "station", "--at", "2024-01-01T00:00:00Z", "--text", "founded")
        ours.run("import", asked, "--into", "probes", "--meta", "station")
        ours.run(
            "sql",
            "CREATE COLLECTION daily WITH (timeField = 'time', metaField = 'station')",
            f"INSERT INTO daily (station, time, mean) {DAILY}",
        )
        asks = {what: (query, query) if isinstance(query, str) else query for what, query in QUERIES.items()}
        for what, (query, same) in asks.items():
            agree(ours.rows(query), tuples(other.sql(same).to_arrow_table()), what)
        with Server(ours) as server:
            for run in range(args.runs + 1):
                for what, (query, same) in asks.items():
                    for engine, took in [("Ebbtide", server.measured(query)), (name, measured(fetch, other, same))]:
                        if run > 0:
                            report.add(what, "ms", engine, took[0] * 1000, took[1] * 1000)
    report.show()


if __name__ == "__main__":
    main()
