"""Time series databases with an HTTP interface: VictoriaMetrics and InfluxDB, each started on a free port in its own folder."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from urllib.parse import urlencode

import pyarrow as pa

import questions


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def lines(batch):
    """A batch in line protocol."""
    tags = [f.name for f in batch.schema if pa.types.is_string(f.type)]
    fields = [f.name for f in batch.schema if pa.types.is_integer(f.type)]
    stamps = batch.column("time").cast(pa.int64()).to_pylist()
    heads = [",".join(f"{t}={v}" for t, v in zip(tags, row)) for row in zip(*(batch.column(t).to_pylist() for t in tags))]
    bodies = [",".join(f"{f}={v}i" for f, v in zip(fields, row)) for row in zip(*(batch.column(f).to_pylist() for f in fields))]
    return "\n".join(f"cpu,{h} {b} {t}" for h, b, t in zip(heads, bodies, stamps)).encode()


def size(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


class Server:
    def start(self, command, ready):
        self.log = open(os.path.join(self.folder, "server.log"), "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.http = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        for _ in range(300):
            try:
                self.send("GET", ready)
                return
            except OSError:
                self.http.close()
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} does not answer")

    def send(self, method, path, body=None):
        self.http.request(method, path, body)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{self.name}: {path}: {answer.status} {text[:300]!r}")
        return text

    def steady(self, folder):
        """The size once it has stopped changing: merges continue in the background."""
        before = -1
        for _ in range(60):
            now = size(folder)
            if now == before:
                break
            before = now
            time.sleep(2)
        return before

    def close(self):
        self.http.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Victoria(Server):
    """Does not sync each batch: data acknowledged in the last seconds may be lost. Results are not cached."""

    name = "VictoriaMetrics 1.79.5"
    compares_sums = False  # Its windows are open at their start, and it does not cut the first one off at the range.

    @staticmethod
    def is_there():
        return shutil.which("victoria-metrics") is not None

    def open(self, folder, _table, _key):
        self.folder, self.port = folder, free_port()
        self.data = os.path.join(folder, "data")
        flags = [f"-storageDataPath={self.data}", f"-httpListenAddr=127.0.0.1:{self.port}", "-retentionPeriod=100y"]
        self.start(["victoria-metrics", *flags, "-search.latencyOffset=0s", "-loggerLevel=ERROR"], "/health")

    convert = staticmethod(lines)

    def insert(self, body):
        self.send("POST", "/write?precision=ms", body)

    def seal(self):
        self.send("GET", "/internal/force_flush")

    def merge(self):
        self.send("GET", "/internal/force_merge")
        time.sleep(3)
        return self.steady(self.data)

    def prepare(self, question):
        name, parts = questions.kind(question)
        metrics = f'__name__=~"cpu_({"|".join(question["fields"])})"'
        hosts = f', hostname=~"{"|".join(question["series"])}"' if question["series"] else ""
        if name == "last":
            text = f"last_over_time({{{metrics}}}[1d])"
            return "/api/v1/query?" + urlencode({"query": text, "time": 1_451_692_799, "nocache": 1})
        if name == "rows" or parts.get("newest") is not None:
            return None  # No rows of several metrics, no newest groups.
        width = parts["width"]
        window = f"{width // 1000}s"
        if name == "max":
            text = f"max(max_over_time({{{metrics}{hosts}}}[{window}])) by (__name__)"
        else:
            text = f"avg(avg_over_time({{{metrics}{hosts}}}[{window}])) by (__name__, hostname)"
        first = question["from"] // width * width + width - 1
        last = (question["to"] - 1) // width * width + width - 1
        span = {"query": text, "start": first / 1000, "end": last / 1000, "step": window, "nocache": 1}
        return "/api/v1/query_range?" + urlencode(span)

    def ask(self, path):
        return self.send("GET", path)

    def summed(self, answer):
        """Each row is one value of each metric."""
        found = json.loads(answer)["data"]["result"]
        values = [v for series in found for v in series.get("values", [series.get("value")])]
        metrics = {series["metric"].get("__name__") for series in found}
        return len(values) // max(len(metrics), 1), sum(float(v[1]) for v in values)


class Influx(Server):
    """Syncs its log with every batch, which is its default."""

    name = "InfluxDB 1.6.7"
    compares_sums = True

    @staticmethod
    def is_there():
        return shutil.which("influxd") is not None

    def open(self, folder, _table, _key):
        self.folder, self.port = folder, free_port()
        self.data = os.path.join(folder, "data")
        config = os.path.join(folder, "influxdb.conf")
        with open(config, "w", encoding="ascii") as file:
            file.write(
                f'reporting-disabled = true\nbind-address = "127.0.0.1:{free_port()}"\n'
                f'[meta]\ndir = "{folder}/meta"\n[data]\ndir = "{self.data}"\nwal-dir = "{folder}/wal"\n'
                'query-log-enabled = false\nindex-version = "tsi1"\ncache-snapshot-write-cold-duration = "2s"\n'
                'compact-full-write-cold-duration = "2s"\n'
                f'[http]\nbind-address = "127.0.0.1:{self.port}"\nlog-enabled = false\n[monitor]\nstore-enabled = false\n'
            )
        self.start(["influxd", "-config", config], "/ping")
        self.send("POST", "/query?" + urlencode({"q": "CREATE DATABASE b"}))

    convert = staticmethod(lines)

    def insert(self, body):
        self.send("POST", "/write?db=b&precision=ms", body)

    def seal(self):
        pass  # Acknowledged is durable; its shards are written from memory later.

    def merge(self):
        time.sleep(6)
        return self.steady(self.data)

    def prepare(self, question):
        name, parts = questions.kind(question)
        conditions = [f"time {op} {question[at]}ms" for op, at in ((">=", "from"), ("<", "to")) if question[at] is not None]
        if question["series"]:
            conditions.append("(" + " OR ".join(f"hostname = '{s}'" for s in question["series"]) + ")")
        each = lambda function: ", ".join(f"{function}({f})" for f in question["fields"])
        if name == "last":
            text = f"SELECT {', '.join(question['fields'])} FROM cpu GROUP BY hostname ORDER BY time DESC LIMIT 1"
            return "/query?" + urlencode({"db": "b", "epoch": "ms", "q": text})
        if name == "rows":
            if parts["above"] is not None:
                conditions.append(f"{question['fields'][0]} > {parts['above']}")
            text = f"SELECT * FROM cpu WHERE {' AND '.join(conditions)}"
        elif name == "max":
            end = "" if parts["newest"] is None else f" ORDER BY time DESC LIMIT {parts['newest']}"
            if parts["newest"] is not None:
                conditions.append("time >= 1451606400000ms")
            width = parts["width"] // 1000
            text = f"SELECT {each('max')} FROM cpu WHERE {' AND '.join(conditions)} GROUP BY time({width}s) fill(none){end}"
        else:
            width = parts["width"] // 1000
            text = f"SELECT {each('mean')} FROM cpu WHERE {' AND '.join(conditions)} GROUP BY time({width}s), hostname fill(none)"
        return "/query?" + urlencode({"db": "b", "epoch": "ms", "q": text})

    def ask(self, path):
        return self.send("GET", path)

    def summed(self, answer):
        result = json.loads(answer)["results"][0]
        if "error" in result:
            raise RuntimeError(result["error"])
        rows = [row for series in result.get("series", []) for row in series["values"]]
        return len(rows), float(sum(v for row in rows for v in row[1:] if isinstance(v, (int, float))))
