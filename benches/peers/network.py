"""The server on loopback through the clients that people use, beside VictoriaMetrics and the library itself.

    VENV/bin/python benches/peers/network.py --program target/release/ebbtide --runner target/release/ebbtide-benches

Needs adbc-driver-flightsql, psycopg[binary] and pymongo beside what requirements.txt names; `victoria-metrics` and `pgbench` take
part if they are installed. Server and clients share the machine. Every write is durable before it is acknowledged, except those
of VictoriaMetrics, which does not sync them.
"""

import argparse
import datetime as dt
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

import adbc_driver_flightsql.dbapi as flight
import numpy as np
import psycopg
import pyarrow as pa
import pymongo

from run import generated, weather
from servers import Victoria, lines

LINES = 5_000
ROWS_OUT = 10_000_000
BATCH = 10_000
IDLE = 100
CLIENTS = 64
SECONDS = 10
START = dt.datetime(2016, 1, 1, 3, tzinfo=dt.timezone.utc)
# TSBS: single-groupby-1-1-1.
QUERY = """SELECT date_bin('60 seconds', time) AS minute, max(usage_user) FROM cpu WHERE hostname = {} AND time >= {} AND time < {}
GROUP BY minute ORDER BY minute"""


class Ebbtide:
    """The program, with the database `bench` in a folder of its own."""

    def __init__(self, program):
        self.program, self.folder = program, tempfile.mkdtemp()
        self.sql("SELECT 1")
        command = [program, "serve", "--db", "bench", "--mongodb", "0", "--http", "0", "--pg", "0"]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.ports = {}
        for line in self.process.stdout:
            if line == "ready\n":
                break
            door, address = line.split()
            self.ports[door] = int(address.rsplit(":", 1)[1])

    def sql(self, text):
        subprocess.run([self.program, "--db", "bench", "sql", text], cwd=self.folder, check=True, capture_output=True)

    def flight(self):
        return flight.connect(f"grpc://127.0.0.1:{self.ports['http']}", autocommit=True)

    def postgres(self):
        return psycopg.connect(host="127.0.0.1", port=self.ports["pg"], dbname="bench", user="bench", autocommit=True)

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) / 1024

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Report:
    def __init__(self):
        self.figures = {}

    def add(self, name, unit, value, note=""):
        self.figures.setdefault((name, unit, note), []).append(value)

    def median(self, name):
        return statistics.median(next(values for (of, _, _), values in self.figures.items() if of == name))

    def show(self):
        print("| figure | unit | median | min | max | runs | note |\n| --- | --- | --- | --- | --- | --- | --- |")
        for (name, unit, note), values in self.figures.items():
            told = [f"{f(values):,.3g}" if f(values) < 1000 else f"{f(values):,.0f}" for f in (statistics.median, min, max)]
            print(f"| {name} | {unit} | {' | '.join(told)} | {len(values)} | {note} |")


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def line_protocol(args, table, report):
    """Metrics a second, of which each line has ten."""
    bodies = [lines(table.slice(at, LINES)) for at in range(0, table.num_rows, LINES)]
    metrics = table.num_rows * sum(pa.types.is_integer(field.type) for field in table.schema)
    for _ in range(args.runs):
        server = Ebbtide(args.program)
        try:
            line = http.client.HTTPConnection("127.0.0.1", server.ports["http"])

            def send():
                for body in bodies:
                    line.request("POST", "/write?db=bench&precision=ms", body, {"X-Ebbtide": "1"})
                    answer = line.getresponse()
                    text = answer.read()
                    assert answer.status == 204, text

            report.add("line protocol, TSBS, 5,000 lines a request", "metrics/s", metrics / timed(send))
        finally:
            server.close()
        if Victoria.is_there():
            folder, other = tempfile.mkdtemp(), Victoria()
            other.open(folder, None, None)
            try:
                report.add(f"the same, {Victoria.name}", "metrics/s", metrics / timed(lambda: [other.insert(b) for b in bodies]))
            finally:
                other.close()
                shutil.rmtree(folder, ignore_errors=True)


def rows_out(args, report):
    server = Ebbtide(args.program)
    try:
        with server.flight() as db, db.cursor() as cursor:
            cursor.execute("CREATE COLLECTION numbers WITH (timeField = 't', metaField = 's')")
            at = np.arange(ROWS_OUT, dtype="int64")
            table = pa.table(
                {
                    "t": pa.array((at // 100 * 1000).astype("datetime64[ms]")),
                    "s": pa.array(at % 100),
                    "a": pa.array(at),
                    "b": pa.array(at / 8),
                    "c": pa.array(at % 1000 / 10),
                }
            )
            cursor.adbc_ingest("numbers", table.to_reader(100_000), mode="append")
            cursor.execute("COMPACT numbers")
            for _ in range(args.runs + 1):

                def fetch():
                    cursor.execute("SELECT t, s, a, b, c FROM numbers")
                    assert sum(batch.num_rows for batch in cursor.fetch_record_batch()) == ROWS_OUT

                rate = ROWS_OUT / timed(fetch)
                report.add("Flight SQL: 5 columns, 10,000,000 rows out", "rows/s", rate)
    finally:
        server.close()


def ingest(args, report):
    table = weather(args.data)
    for _ in range(args.runs):
        server = Ebbtide(args.program)
        try:
            with server.flight() as db, db.cursor() as cursor:
                cursor.execute("CREATE COLLECTION weather WITH (timeField = 'time', metaField = 'station', granularity = 'hours')")

                def send():
                    cursor.adbc_ingest("weather", table.to_reader(BATCH), mode="append")

                report.add("adbc_ingest of INMET, batches of 10,000", "rows/s", table.num_rows / timed(send))
        finally:
            server.close()
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [args.runner, "weather", "--only", "ingest", "--runs", "1", "--data", args.data, "--json", out.name]
            subprocess.run(command, check=True, capture_output=True)
            for figure in json.load(open(out.name))["figures"]:
                if figure["name"].startswith("ingest") and figure["unit"] == "rows/s":
                    report.add(f"the library: {figure['name']}", "rows/s", figure["median"])


def queries(args, table, report):
    server = Ebbtide(args.program)
    try:
        with server.flight() as db, db.cursor() as cursor:
            cursor.execute("CREATE COLLECTION cpu WITH (timeField = 'time', metaField = 'hostname')")
            kept = ["time", "hostname", "usage_user", "usage_system"]
            cursor.adbc_ingest("cpu", table.select(kept).to_reader(100_000), mode="append")
            cursor.execute("COMPACT cpu")
        with server.postgres() as db, db.cursor() as cursor:

            def prepared(host):
                given = (f"host_{host}", START, START + dt.timedelta(hours=1))
                return cursor.execute(QUERY.format("%s", "%s", "%s"), given, prepare=True).fetchall()

            report.add("PostgreSQL: single-groupby-1-1-1, prepared, p50", "ms", p50(prepared), "psycopg, one client")
            report.add("the same as text, p50", "ms", p50(lambda host: cursor.execute(text(f"'host_{host}'")).fetchall()), "psycopg")
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"])

        def posted(host):
            connection.request("POST", "/sql", text(f"'host_{host}'"), {"X-Ebbtide": "1"})
            return json.loads(connection.getresponse().read())

        report.add("the same by POST /sql, p50", "ms", p50(posted), "one connection")
        connection.close()
        if shutil.which("pgbench"):
            for mode, host in [("prepared", "'host_' || :host"), ("simple", "'host_:host'")]:
                with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
                    script.write("\\set host random(0, 99)\n" + text(host).replace("\n", " ") + ";\n")
                    script.flush()
                    command = ["pgbench", "-n", "-M", mode, "-T", str(SECONDS), "-f", script.name]
                    command += ["-h", "127.0.0.1", "-p", str(server.ports["pg"]), "-U", "bench"]

                    def told(clients, threads, figure):
                        all = [*command, "-c", str(clients), "-j", str(threads), "bench"]
                        answer = subprocess.run(all, check=True, capture_output=True, text=True).stdout
                        assert re.search(r"number of failed transactions: 0 ", answer), answer
                        return float(re.search(figure + r" = ([\d.]+)", answer)[1])

                    for _ in range(args.runs):
                        report.add(f"pgbench -M {mode}, one client, mean", "ms", told(1, 1, "latency average"))
                        report.add(f"pgbench -M {mode}, 64 clients", "/s", told(CLIENTS, 2, "tps"))
    finally:
        server.close()


def text(host):
    """The query of the hour as text."""
    return QUERY.format(host, "'2016-01-01T03:00:00Z'", "'2016-01-01T04:00:00Z'")


def p50(ask):
    """The median time, in milliseconds, of 2,000 calls with numbers of hosts, each of which returns 60 rows."""
    took = []
    for at in range(2_000):
        start = time.perf_counter()
        found = ask(at % 100)
        took.append((time.perf_counter() - start) * 1e3)
        assert len(found) == 60, found
    return statistics.median(took)


def idle(args, report):
    def raw(port):
        plug = socket.create_connection(("127.0.0.1", port))
        plug.sendall(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        plug.recv(1000)
        return plug

    def mongodb(port):
        client = pymongo.MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true", maxPoolSize=1)
        client.admin.command("ping")
        return client

    for name, connect in [("HTTP", lambda s: raw(s.ports["http"])), ("PostgreSQL", Ebbtide.postgres), ("MongoDB", lambda s: mongodb(s.ports["mongodb"]))]:
        server = Ebbtide(args.program)
        try:
            connect(server)
            before = server.memory()
            held = [connect(server) for _ in range(IDLE)]
            report.add(f"memory of {IDLE} idle connections, {name}", "MiB", server.memory() - before)
            del held
        finally:
            server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="ebbtide, built with --release")
    parser.add_argument("--runner", required=True, help="ebbtide-benches, built with --release")
    parser.add_argument("--data", default="../shared/data/weather")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    args.program, args.runner, args.data = map(os.path.abspath, (args.program, args.runner, args.data))
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tsbs.arrow")
        command = [args.runner, "tsbs", "--only", "nothing", "--runs", "1", "--export", path]
        subprocess.run(command, check=True, capture_output=True)
        table = generated(path)
    line_protocol(args, table, report)
    rows_out(args, report)
    ingest(args, report)
    queries(args, table, report)
    idle(args, report)
    report.show()


if __name__ == "__main__":
    main()
