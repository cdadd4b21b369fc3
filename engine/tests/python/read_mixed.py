"""Reads the segment files of a collection by pattern, by folder and as a list, with every reader.

usage: read_mixed.py < CASES.json

A case has the folder, the files in the order in which they may be read as a list, whether they agree, and the count and the
sums that are right. A reader may refuse what does not agree, and is never wrong. Exits with 77 if a package is missing.
"""

import glob
import json
import sys

try:
    import duckdb
    import pandas
    import polars
    import pyarrow
    import pyarrow.dataset
except ImportError as missing:
    print(f"no Python module {missing.name}")
    sys.exit(77)

try:
    import chdb
except ImportError:
    print("skipped: ClickHouse, since there is no Python module chdb")
    chdb = None


def of_duckdb(table):
    return duckdb.connect().execute(f"SELECT count(*), sum(v) FROM {table}").fetchone()


def of_clickhouse(files, settings=""):
    query = f"SELECT count(), sum(v) FROM file('{files}', Parquet) {settings}"
    text = chdb.query(query, "TabSeparated").bytes().decode()
    return [None if field == "\\N" else float(field) for field in text.strip().split("\t")]


def of_polars(source):
    frame = polars.scan_parquet(source).select(polars.len(), polars.col("v").cast(polars.Float64).sum().alias("s"))
    return frame.collect().row(0)


def of_pyarrow(source):
    table = pyarrow.dataset.dataset(source).to_table(columns=["v"])
    return table.num_rows, sum(float(v) for v in table.column("v").to_pylist() if v is not None)


def of_pandas(source):
    frame = pandas.read_parquet(source)
    return len(frame), sum(float(v) for v in frame["v"] if v == v and v is not None)


def readers(folder, files):
    """Each reader with each way to name the files."""
    pattern = folder + "/*.parquet"
    names = ",".join(file.removeprefix(folder + "/") for file in files)
    alternatives = f"{folder}/{{{names}}}" if len(files) > 1 else files[0]
    return {
        ("duckdb", "pattern"): lambda: of_duckdb(f"'{pattern}'"),
        ("duckdb", "list"): lambda: of_duckdb(f"read_parquet({files!r})"),
        ("clickhouse", "pattern"): lambda: of_clickhouse(pattern),
        ("clickhouse", "folder"): lambda: of_clickhouse(folder + "/"),
        # Once it has read any of the files, it takes the types of that one for all without this.
        ("clickhouse", "list"): lambda: of_clickhouse(alternatives, "SETTINGS schema_inference_use_cache_for_file = 0"),
        ("polars", "pattern"): lambda: of_polars(pattern),
        ("polars", "folder"): lambda: of_polars(folder),
        ("polars", "list"): lambda: of_polars(files),
        ("pyarrow", "pattern"): lambda: of_pyarrow(sorted(glob.glob(pattern))),
        ("pyarrow", "folder"): lambda: of_pyarrow(folder),
        ("pyarrow", "list"): lambda: of_pyarrow(files),
        ("pandas", "pattern"): lambda: of_pandas(sorted(glob.glob(pattern))),
        ("pandas", "folder"): lambda: of_pandas(folder),
        ("pandas", "list"): lambda: of_pandas(files),
    }


def check(case):
    right = refused = 0
    for (reader, way), read in readers(case["folder"], case["files"]).items():
        if reader == "clickhouse" and chdb is None:
            continue
        what = f"{case['name']}: {reader} by {way}"
        try:
            count, total = read()
        except Exception as error:
            # The first file decides in these two, and the list begins with the widest.
            must = case["agree"] or (way == "list" and reader in ("duckdb", "clickhouse"))
            assert not (must and case["complete"]), f"{what}: {error}"
            # Neither of these two names a file that it cannot read.
            says = "run-COMPACT-first" in str(error) or reader in ("polars", "clickhouse")
            assert says or way == "list" or case["agree"], f"{what}: the error does not say what to do: {error}"
            refused += 1
            continue
        assert count == case["count"], f"{what}: {count} rows, expected {case['count']}"
        assert abs(float(total) - case["sum"]) < 1e-7, f"{what}: sum {total}, expected {case['sum']}"
        right += 1
    print(f"{case['name']}: {right} right, {refused} refused")


cases = json.load(sys.stdin)
for case in cases:
    check(case)
print(f"{len(cases)} cases")
