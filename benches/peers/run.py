"""Compares Ebbtide with other engines: the same rows, batches and queries, engines in turn, answers compared.

    python3 -m venv VENV && VENV/bin/pip install -r benches/peers/requirements.txt
    VENV/bin/python benches/peers/run.py weather tsbs windows --runner target/release/ebbtide-benches --json peers.json

Every engine gets batches of 10,000 rows in the order of arrival, with one durable commit per batch, and then whatever
makes the data final on disk according to its manual: ingest is measured until then. Sizes are measured after the
engine has merged its files; the time for that is not counted, nor for Ebbtide's compaction. Each query runs once for
each of its draws, and is then timed. Answers agree if they have the same number of rows, and the sums of their numbers
are equal to nine digits. The first 600,000 rows of the weather are also inserted in batches of 1,000, which Ebbtide
gets as documents and the others as before.
"""

import argparse
import csv
import gzip
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import questions
import servers
import tables

FILES = ["inmet_2024_CO.csv.gz", "inmet_2024_N.csv.gz", "inmet_2024_S.csv.gz"]
BATCH = 10_000
SMALL_BATCH, SMALL_ROWS = 1_000, 600_000  # As the runner's documents.
ENGINES = {
    "duckdb": tables.Duck,
    "clickhouse": tables.Click,
    "sqlite": tables.Lite,
    "victoriametrics": servers.Victoria,
    "influxdb": servers.Influx,
}
WORKLOADS = {
    "weather": ("station", ["duckdb", "clickhouse", "sqlite"]),
    "tsbs": ("hostname", ["duckdb", "clickhouse", "victoriametrics", "influxdb"]),
    "windows": ("station", ["duckdb"]),
}
INGEST, SMALL, SIZE = "ingest, cells/s", "ingest in batches of 1,000, cells/s", "bytes per cell"
OURS = {
    "weather": {
        "ingest, batches of 10,000, acknowledged and sealed": INGEST,
        "ingest, documents, batches of 1,000": SMALL,
        "bytes per cell, compacted": SIZE,
    },
    "tsbs": {"ingest, acknowledged and sealed": INGEST, "bytes per value, compacted": SIZE},
    "windows": {},
}


def weather(folder):
    """All rows by time, then by station as in the files."""
    station, stamp, fields, names = [], [], None, None
    for name in FILES:
        with gzip.open(Path(folder) / name, "rt") as file:
            rows = csv.reader(file)
            names = next(rows)[2:]
            fields = fields or [[] for _ in names]
            for row in rows:
                station.append(row[0])
                stamp.append(row[1].rstrip("Z"))
                for column, text in zip(fields, row[2:]):
                    column.append(float(text) if text else None)
    times = np.array(stamp, dtype="datetime64[ms]")
    order = pa.array(np.argsort(times, kind="stable"))
    columns = {"time": pa.array(times), "station": pa.array(station)}
    columns |= {name: pa.array(column, pa.float64()) for name, column in zip(names, fields)}
    return pa.table(columns).take(order).combine_chunks()


def generated(path):
    """The data exported by the runner, with each tag as a column."""
    table = pa.ipc.open_file(path).read_all()
    columns = {"time": table["time"].cast(pa.timestamp("ms"))}
    tags = table["tags"].combine_chunks()
    tags = tags.chunk(0) if isinstance(tags, pa.ChunkedArray) else tags
    columns |= {f.name: tags.field(i).cast(pa.string()) for i, f in enumerate(tags.type)}
    columns |= {name: table[name] for name in table.column_names[2:]}
    return pa.table(columns).combine_chunks()


def ingest(engine, table, rows, figures, name):
    """Inserts a table in batches, until it is final on disk; returns the number of cells."""
    batches = [table.slice(at, rows) for at in range(0, table.num_rows, rows)]
    if hasattr(engine, "convert"):
        batches = [engine.convert(batch) for batch in batches]  # Not counted.
    cells = table.num_rows * sum(not pa.types.is_string(f.type) for f in table.schema) - table.num_rows
    start = time.perf_counter()
    for batch in batches:
        engine.insert(batch)
    engine.seal()
    figures.setdefault(name, []).append(cells / (time.perf_counter() - start))
    return cells


def measure_small(engine, table, key, found):
    folder = tempfile.mkdtemp()
    engine.open(folder, table, key)
    try:
        ingest(engine, table.slice(0, SMALL_ROWS), SMALL_BATCH, found[engine.name], SMALL)
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def measure(engine, table, key, asked, found):
    folder = tempfile.mkdtemp()
    figures = found.setdefault(engine.name, {})
    engine.open(folder, table, key)
    try:
        cells = ingest(engine, table, BATCH, figures, INGEST)
        figures.setdefault(SIZE, []).append(engine.merge() / cells)
        for question in asked:
            texts = [engine.prepare(draw) for draw in question["draws"]]
            if texts[0] is None:
                continue
            for text, ours in zip(texts, question["answers"]):
                rows, total = engine.summed(engine.ask(text))
                if getattr(engine, "compares_sums", True):
                    same = questions.agree(ours, rows, total)
                else:
                    same = abs(rows - ours["rows"]) <= 1 + ours["rows"] // 12  # One bin more at the end.
                if not same:
                    print(f"DIFFERS {engine.name}, {question['name']}: {rows} rows, sum {total}, ours {ours}: {text[:400]}")
            took = []
            for text in (texts * 15)[: max(len(texts), 9)]:
                start = time.perf_counter()
                engine.ask(text)
                took.append((time.perf_counter() - start) * 1e3)
            figures.setdefault(question["name"], []).append(statistics.median(took))
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def ours(runner, workload, data, found, export=None):
    """Two runs in one process, as for the other engines; returns the runner's queries and answers."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [runner, workload, "--runs", "2", "--data", data, "--json", out]
        subprocess.run(command + (["--export", export] if export else []), check=True, capture_output=True)
        report = json.loads(Path(out).read_text())
    fields = 17 if workload == "weather" else 1
    for figure in report["figures"]:
        name, median = figure["name"], figure["median"]
        engine = "Ebbtide"
        if name.endswith(", SQL"):
            engine, name = "Ebbtide, SQL", name.removesuffix(", SQL")
        name = OURS[workload].get(name, name)
        factor = fields if name in (INGEST, SMALL) else 1  # Rows per second with this many cells, or metrics per second.
        found.setdefault(engine, {}).setdefault(name, []).append(median * factor)
    return report["queries"], {k: report[k] for k in ("machine", "versions", "settings", "data")}


def compare(workload, asked, medians):
    """The table, ratios first. Above 1 is better than the best other engine."""
    peers = [engine for engine in medians if not engine.startswith("Ebbtide")]
    names = [INGEST, SMALL, SIZE, *(q["name"] for q in asked)]
    lines, logs = [], {"Ebbtide": [], "Ebbtide, SQL": []}
    for name in names:
        best = [medians[p][name] for p in peers if name in medians[p]]
        if not best or not any(name in medians.get(engine, {}) for engine in logs):
            continue
        is_rate = name in (INGEST, SMALL)
        best = max(best) if is_rate else min(best)
        ratios = []
        for engine in logs:
            value = medians.get(engine, {}).get(name)
            ratio = None if value is None else value / best if is_rate else best / value
            ratios.append("" if ratio is None else f"{ratio:.2f} x")
            if ratio is not None and name not in (INGEST, SMALL, SIZE):
                logs[engine].append(math.log(ratio))
        cells = [medians.get(e, {}).get(name) for e in [*logs, *peers]]
        lines.append([name, *ratios, *("" if c is None else f"{c:,.4g}" if c < 1e4 else f"{c:,.0f}" for c in cells)])
    print(f"\n{workload}: queries in ms, medians\n")
    header = ["figure", "direct v best other engine", "SQL v best other engine", "Ebbtide", "Ebbtide, SQL", *peers]
    print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    for engine, values in logs.items():
        if values:
            print(f"{engine}: {math.exp(sum(values) / len(values)):.2f} x the best other engine, geometric mean of the queries")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("workloads", nargs="*", default=["weather", "tsbs"])
    args.add_argument("--runner", required=True)
    args.add_argument("--data", default="../shared/data/weather")
    args.add_argument("--runs", type=int, default=2)
    args.add_argument("--engines", help="only these, separated by commas; default: all that are installed, except SQLite")
    args.add_argument("--json")
    args = args.parse_args()
    result = {}
    for workload in args.workloads:
        key, engines = WORKLOADS[workload]
        wanted = args.engines.split(",") if args.engines else [e for e in engines if e != "sqlite"]
        chosen = [ENGINES[name] for name in engines if name in wanted]
        chosen = [engine for engine in chosen if getattr(engine, "is_there", lambda: True)()]
        found, table = {}, None
        for run in range(args.runs):
            with tempfile.TemporaryDirectory() as folder:
                export = os.path.join(folder, "tsbs.arrow") if workload == "tsbs" and table is None else None
                asked, about = ours(args.runner, workload, args.data, found, export)
                if table is None:
                    table = generated(export) if export else weather(args.data)
            print(f"run {run + 1}: Ebbtide done; {table.num_rows} rows", file=sys.stderr)
            for engine in chosen:
                measure(engine(), table, key, asked, found)
                if workload == "weather" and engine.name != tables.Lite.name:
                    measure_small(engine(), table, key, found)
                print(f"run {run + 1}: {engine.name} done", file=sys.stderr)
        medians = {e: {n: statistics.median(v) for n, v in figures.items()} for e, figures in found.items()}
        compare(workload, asked, medians)
        result[workload] = {"about": about, "medians": medians, "runs": args.runs}
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
