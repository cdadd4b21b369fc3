"""A million series by time: many hosts with ten fields each, beside VictoriaMetrics.

    VENV/bin/python benches/peers/hosts.py --program target/release/ebbtide

Needs adbc-driver-flightsql, psycopg[binary] and pyarrow, and `victoria-metrics` installed. By default 100,000 hosts x 10 integer fields, which are a million
series of VictoriaMetrics, with six rounds of one row each that are ten seconds apart (`--hosts`, `--rounds`), each host with a region and
a rack, as line protocol in requests of 5,000 lines on one connection. Ebbtide's rows are durable before the reply, VictoriaMetrics does
not sync them. Memory is that of the process after the last request. Then, with everything in memory or not as it is, the first time of
each in the running server: the last point of all, one series' rows, the distinct regions; and one series in a server that has just
started. Ebbtide is asked through PostgreSQL's protocol, whose driver makes Python objects of every value, and for the last points
also through Flight SQL. Numbers and sums must agree.
"""

import http.client
import json
import os
import random
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import adbc_driver_flightsql.dbapi as flight
import pyarrow.compute as pc

from program import Ebbtide, Report, Server, memory, options, size, timed
from servers import Victoria

LINES, FIELDS, STEP = 5_000, 10, 10_000
START = 1_767_225_600_000  # 2026-01-01, in milliseconds.


def requests(hosts, rounds):
    """The bodies of the requests, and the sum of the last values of the first field."""
    made, last = random.Random(1), 0
    for turn in range(rounds):
        for first in range(0, hosts, LINES):
            lines = []
            for host in range(first, min(first + LINES, hosts)):
                values = [made.randrange(100) for _ in range(FIELDS)]
                fields = ",".join(f"f{at}={value}i" for at, value in enumerate(values))
                lines.append(f"cpu,host=h{host},rack={host % 500},region=r{host % 9} {fields} {START + turn * STEP}")
                last += values[0] if turn + 1 == rounds else 0
            yield "\n".join(lines).encode(), last


def processor(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Theirs:
    """VictoriaMetrics, with times of its own for a query's window."""

    def __init__(self, folder, rounds):
        self.server = Victoria()
        self.server.open(folder, None, None)
        self.process, self.at = self.server.process, START + (rounds - 1) * STEP

    def write(self, body):
        self.server.insert(body)

    def query(self, text, at):
        told = json.loads(self.server.send("GET", "/api/v1/query?" + urlencode({"query": text, "time": at / 1000})))
        return told["data"]["result"]

    def last(self):
        """One query for each field, since a query may select 300,000 series unless it is configured otherwise."""
        found = [self.query(f"last_over_time(cpu_f{at}[5m])", self.at) for at in range(FIELDS)]
        return sum(map(len, found)), sum(int(one["value"][1]) for one in found[0])

    def series(self):
        found = self.query('{__name__=~"cpu_.*",host="h777"}[10m]', self.at)
        return sum(len(one["values"]) for one in found)

    def distinct(self):
        text = "/api/v1/label/region/values?" + urlencode({"start": START / 1000 - 10, "end": self.at / 1000 + 10})
        return len(json.loads(self.server.send("GET", text))["data"])

    def close(self):
        self.server.close()


class Ours:
    def __init__(self, ours, line):
        self.server = Server(ours, "--http", "0")
        self.process, self.line = self.server.process, line
        self.http = http.client.HTTPConnection("127.0.0.1", self.server.ports["http"])

    def write(self, body):
        self.http.request("POST", f"/write?db={self.line}&precision=ms", body, {"X-Ebbtide": "1"})
        answer = self.http.getresponse()
        text = answer.read()
        assert answer.status == 204, text

    def last(self):
        found = self.server.ask("SELECT f0, * FROM latest('cpu')")
        return len(found) * FIELDS, sum(row[0] for row in found)

    def last_as_arrow(self):
        address = f"grpc://127.0.0.1:{self.server.ports['http']}"
        with flight.connect(address, autocommit=True) as db, db.cursor() as cursor:
            cursor.execute("SELECT * FROM latest('cpu')")
            found = cursor.fetch_arrow_table()
        return found.num_rows * FIELDS, pc.sum(found["f0"]).as_py()

    def series(self):
        return FIELDS * len(self.server.ask("SELECT * FROM cpu WHERE tags.host = 'h777'"))

    def distinct(self):
        return len(self.server.ask("SELECT DISTINCT tags.region AS region FROM cpu"))

    def close(self):
        self.server.__exit__()


def measure(report, name, what, process, work):
    start, before = time.perf_counter(), processor(process)
    found = work()
    report.add(what, "ms", name, (time.perf_counter() - start) * 1e3, (processor(process) - before) * 1e3)
    return found


def main():
    parser = options(__doc__, runs=1)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    name = "VictoriaMetrics"
    report = Report(["Ebbtide", name])
    rows = args.hosts * args.rounds
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            ours = Ebbtide(args.program, os.path.join(folder, "ours"))
            ours.run("sql", "SELECT 1")
            others = os.path.join(folder, "theirs")
            os.mkdir(others)

            def start(engine, ours=ours, others=others):
                return Ours(ours, "ours") if engine == "Ebbtide" else Theirs(others, args.rounds)

            running = {engine: start(engine) for engine in ["Ebbtide", name]}
            seconds, spent, base = dict.fromkeys(running, 0), {}, {}
            for engine, at in running.items():
                spent[engine], base[engine] = processor(at.process), memory(at.process)
            for body, last in requests(args.hosts, args.rounds):
                for engine, at in running.items():
                    seconds[engine] += timed(at.write, body)[0]
            running[name].server.seal()
            for engine, at in running.items():
                took = processor(at.process) - spent[engine]
                report.add("ingest", "metrics/s", engine, rows * FIELDS / seconds[engine], took, more_is_better=True)
                report.add("memory a host", "KiB", engine, (memory(at.process) - base[engine]) * 1024 / args.hosts)
            for what, ask, want in [
                (f"last point of {args.hosts * FIELDS:,} series", lambda at: at.last(), (args.hosts * FIELDS, last)),
                ("one host's rows", lambda at: at.series(), FIELDS * args.rounds),
                ("distinct regions", lambda at: at.distinct(), 9),
            ]:
                for engine, at in running.items():
                    found = measure(report, engine, what, at.process, lambda ask=ask, at=at: ask(at))
                    if found != want:
                        raise SystemExit(f"{what}: {engine} finds {found}, not {want}")
            ours_now = running["Ebbtide"]
            found = measure(report, "Ebbtide", "last points as Arrow", ours_now.process, ours_now.last_as_arrow)
            assert found == (args.hosts * FIELDS, last), found
            for engine, at in running.items():
                at.close()
                running[engine] = at = start(engine)
                report.add("on disk", "MB", engine, size(ours.folder if engine == "Ebbtide" else others) / 1e6)
                for what in ["one host's rows after a start", "the same again"]:
                    found = measure(report, engine, what, at.process, at.series)
                    assert found == FIELDS * args.rounds, found
                at.close()
    report.show()


if __name__ == "__main__":
    main()
