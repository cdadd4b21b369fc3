"""What the scripts share that drive the program `ebbtide` beside other engines: runs of it, answers compared, figures in a table."""

import argparse
import atexit
import gzip
import math
import os
import shutil
import statistics
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import psycopg
import pyarrow as pa

WEATHER = Path(__file__).resolve().parents[3] / "shared" / "data" / "weather"
REGIONS = ["inmet_2024_CO.csv.gz", "inmet_2024_N.csv.gz", "inmet_2024_S.csv.gz"]


def duckdb_program():
    """DuckDB's program in the package `duckdb-cli`. Its command `duckdb` is a script, whose time is mostly Python's start."""
    return os.path.join(sysconfig.get_path("platlib"), "duckdb_cli", "duckdb")


def options(about, runs=3):
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/ebbtide", help="the released program")
    parser.add_argument("--data", type=Path, default=WEATHER, help="the folder of recorded weather")
    parser.add_argument("--runs", type=int, default=runs)
    return parser


class Done:
    """A program that has run: its output, wall and processor time in seconds, the peak of its memory in
    MiB, and the bytes that it wrote to files."""

    def __init__(self, command, **how):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.perf_counter()
            process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err, **how)
            _, status, usage = os.wait4(process.pid, 0)
            self.seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            self.processor, self.memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
            self.written = usage.ru_oublock * 512
            self.out, self.err = (file.seek(0) or file.read().decode() for file in (out, err))
        if process.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {process.returncode}, {self.err}")


class Ebbtide:
    """A database in a folder, used through the program."""

    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), str(folder)

    def run(self, *arguments):
        return Done([self.program, *arguments, "--db", self.folder])

    def rows(self, statement):
        """The rows of a query, as tuples."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.arrow")
            self.run("sql", "--output", path, statement)
            with pa.OSFile(path) as file:
                return tuples(pa.ipc.open_file(file).read_all())

    def size(self):
        return size(self.folder)


class Server:
    """The database of a folder, served over PostgreSQL's protocol, without TLS and passwords."""

    def __init__(self, ours, *arguments):
        at, name = os.path.split(ours.folder)
        command = [ours.program, "serve", "--db", name, "--pg", "0", *arguments]
        self.process = subprocess.Popen(command, cwd=at, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        atexit.register(self.process.kill)
        self.ports = {}
        for line in self.process.stdout:
            if line == "ready\n":
                break
            door, address = line.split()
            self.ports[door] = int(address.rsplit(":", 1)[1])
        where = {"host": "127.0.0.1", "port": self.ports["pg"], "dbname": name, "user": "bench"}
        self.line = psycopg.connect(**where, autocommit=True, prepare_threshold=None)

    def ask(self, statement):
        return self.line.execute(statement).fetchall()

    def measured(self, statement):
        """Wall and processor time of a statement in seconds."""
        before = self.processor()
        seconds, _ = timed(self.ask, statement)
        return seconds, self.processor() - before

    def processor(self):
        """Of all threads, in seconds."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def memory(self):
        """The peak of its memory in MiB."""
        return memory(self.process, "VmHWM")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.line.close()
        self.process.terminate()
        self.process.wait()


def memory(process, which="VmRSS"):
    """The memory of a running process in MiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(which))


def measured(work, *arguments):
    """Wall and processor time in seconds of work in this process."""
    before, start = time.process_time(), time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start, time.process_time() - before


def size(path):
    """The bytes of a file, or of all files in a folder."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def tuples(table):
    """The rows of an Arrow table; times are milliseconds since 1970."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        elif pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        columns.append(column.to_pylist())
    return list(zip(*columns))


def agree(ours, theirs, what):
    """Fails if two answers differ by more than their order and the rounding of sums."""

    def order(row):
        return [(v is None, isinstance(v, str), float(f"{v:.6g}") if isinstance(v, float) else v or 0) for v in row]

    def equal(a, b):
        number = isinstance(a, (int, float)) and isinstance(b, (int, float))
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6) if number else a == b

    if len(ours) != len(theirs):
        raise SystemExit(f"{what}: {len(ours)} rows and {len(theirs)}")
    for a, b in zip(sorted(ours, key=order), sorted(theirs, key=order)):
        if len(a) != len(b) or not all(map(equal, a, b)):
            raise SystemExit(f"{what}: {a} and {b}")


def timed(work, *arguments):
    start = time.perf_counter()
    found = work(*arguments)
    return time.perf_counter() - start, found


def inmet(data, path):
    """The three regions of INMET as one CSV file."""
    with open(path, "wb") as out:
        for at, name in enumerate(REGIONS):
            with gzip.open(data / name) as file:
                header = file.readline()
                if at == 0:
                    out.write(header)
                shutil.copyfileobj(file, out)


def load():
    """The average number of running processes within the last minute."""
    return os.getloadavg()[0]


def told(value):
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


class Report:
    """Figures by name and engine; less is better unless said otherwise. Shown are medians, with the least and the greatest, and what
    of the processor's time they took, which says more than the time on a clock if other work runs on the machine."""

    def __init__(self, engines):
        self.engines, self.figures, self.loads = engines, {}, [load()]

    def add(self, name, unit, engine, value, processor=None, more_is_better=False):
        self.figures.setdefault((name, unit, more_is_better), {}).setdefault(engine, []).append((value, processor))
        self.loads.append(load())

    def show(self):
        columns = ["figure", "unit", *self.engines, "to the best other", "processor time to the best other"]
        print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        for (name, unit, more_is_better), by in self.figures.items():
            cells, ratios = [name, unit], []
            for at, best in [(0, max if more_is_better else min), (1, min)]:
                medians = {e: statistics.median(v[at] for v in values) for e, values in by.items() if values[0][at] is not None}
                ours = medians.pop(self.engines[0], None)
                theirs = best(medians.values()) if medians else 0
                ratios.append(f"{told(ours / theirs)} x" if ours is not None and theirs else "")
            for engine in self.engines:
                values = [value for value, _ in by.get(engine, [])]
                spent = [processor for _, processor in by.get(engine, []) if processor is not None]
                cell = told(statistics.median(values)) if values else ""
                if len(values) > 1 and told(min(values)) != told(max(values)):
                    cell += f" ({told(min(values))} to {told(max(values))})"
                cells.append(cell + (f"; {told(statistics.median(spent))}" if spent else ""))
            print(f"| {' | '.join(cells + ratios)} |")
        print(f"\nMedian (least to greatest); processor time. Load of the machine: {min(self.loads):.0f} to {max(self.loads):.0f}.")
