"""Asks raw data in DuckDB what the runner's workload `ladder` asks bins: one field of the weather by day, of one series and of all.

    VENV/bin/python benches/peers/ladder.py --runner target/release/ebbtide-benches --json ladder-peers.json

DuckDB has the rows sorted by station and time, and computes what a bin shows. The runner and DuckDB take turns, and must
agree in the number of bins.
"""

import argparse
import csv
import gzip
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import run
import tables

ASKS = 15


def text(field, station):
    f = f'"{field}"'
    where = f"WHERE station = '{station}'" if station else ""
    return f"""SELECT station, time_bucket(INTERVAL 1 DAY, time) AS bin, count(*) AS measurements, count({f}), sum({f}), avg({f}),
        min({f}), max({f}), stddev_samp({f}), arg_min({f}, time), min(time) FILTER ({f} IS NOT NULL), arg_max({f}, time),
        max(time) FILTER ({f} IS NOT NULL) FROM w {where} GROUP BY ALL ORDER BY ALL"""


def first_station(folder):
    """That of which the runner asks."""
    with gzip.open(Path(folder) / run.FILES[0], "rt") as file:
        rows = csv.reader(file)
        next(rows)
        return next(rows)[0]


def ours(runner, data):
    """The medians of the two questions in ms, and how many bins each has."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [runner, "ladder", "--only", "decay", "--runs", "1", "--data", data, "--json", out]
        subprocess.run(command, check=True, capture_output=True)
        report = json.loads(Path(out).read_text())
    found = {}
    for figure in report["figures"]:
        for series in ("one series", "all series"):
            if "rollup of" in figure["name"] and figure["name"].endswith(f"by day, {series}"):
                found[series] = (figure["median"], int(figure["note"].split()[0]))
    return found


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--runner", required=True)
    args.add_argument("--data", default="../shared/data/weather")
    args.add_argument("--runs", type=int, default=2)
    args.add_argument("--json")
    args = args.parse_args()
    weather = run.weather(args.data)
    field = weather.column_names[2]
    station = first_station(args.data)
    took = {series: {"Ebbtide": [], "DuckDB": []} for series in ("one series", "all series")}
    with tempfile.TemporaryDirectory() as folder:
        duck = tables.Duck()
        duck.open(folder, weather, "station")
        duck.insert(weather)
        duck.merge()
        for _ in range(args.runs):
            for series, (median, bins) in ours(args.runner, args.data).items():
                took[series]["Ebbtide"].append(median)
                question = text(field, station if series == "one series" else None)
                answer = duck.ask(question)
                if answer.num_rows != bins:
                    print(f"DIFFERS {series}: {answer.num_rows} bins, ours {bins}")
                for _ in range(ASKS):
                    start = time.perf_counter()
                    duck.ask(question)
                    took[series]["DuckDB"].append((time.perf_counter() - start) * 1e3)
        duck.close()
    medians = {series: {name: statistics.median(times) for name, times in of.items()} for series, of in took.items()}
    for series, of in medians.items():
        print(f"{field} by day, {series}: Ebbtide {of['Ebbtide']:.3g} ms, DuckDB {of['DuckDB']:.3g} ms, "
              f"{of['DuckDB'] / of['Ebbtide']:.2f} x")
    if args.json:
        Path(args.json).write_text(json.dumps(medians, indent=1) + "\n")


if __name__ == "__main__":
    main()
