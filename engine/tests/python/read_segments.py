"""Reads a database's segment files with other people's readers and compares every value with the CSV they came from.

usage: read_segments.py FOLDER CSV.GZ

Exits with 77 and a line of text if a package is missing.
"""

import csv
import datetime
import glob
import gzip
import sys

try:
    import duckdb
    import pandas
    import polars
    import pyarrow
    import pyarrow.parquet
except ImportError as missing:
    print(f"no Python module {missing.name}")
    sys.exit(77)

NUMBERS = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
COLUMNS = ["time", "station"] + NUMBERS


def expected(path):
    """Every measurement by station and time; numbers as the doubles that the texts of the CSV mean."""
    rows = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            time = datetime.datetime.fromisoformat(row["time"].replace("Z", "+00:00"))
            rows[row["station"], time] = [float(row[name]) if row[name] else None for name in NUMBERS]
    return rows


def number(value):
    """A value of a column as the double it means; what pandas shows for a missing one is None."""
    return None if value is None or value is pandas.NaT or value != value else float(value)


def compare(reader, rows, want):
    """Compares rows of plain Python values, in the order of COLUMNS."""
    found = {}
    for time, station, *numbers in rows:
        if hasattr(time, "to_pydatetime"):
            time = time.to_pydatetime()
        assert time.utcoffset() == datetime.timedelta(0), f"{reader}: the time {time!r} is not in UTC"
        assert (station, time) not in found, f"{reader}: {station} {time} twice"
        found[station, time] = [number(value) for value in numbers]
    assert len(found) == len(want), f"{reader}: {len(found)} rows, expected {len(want)}"
    for key, values in want.items():
        assert found[key] == values, f"{reader}: {key}: {found[key]}, expected {values}"
    print(f"{reader}: {len(found)} rows, every value as in the CSV")


def by_pyarrow(files, want):
    tables = [pyarrow.parquet.read_table(file) for file in files]
    for table in tables:
        schema = table.schema
        # Fields come in the order in which they were first seen.
        assert schema.names[:2] == COLUMNS[:2] and sorted(schema.names) == sorted(COLUMNS), schema.names
        assert schema.field("time").type == pyarrow.timestamp("ms", "UTC"), schema.field("time")
        assert schema.field("wind_dir").type == pyarrow.int64(), schema.field("wind_dir")
        station = schema.field("station").type
        assert station in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()), station
        for name in NUMBERS:
            kind = schema.field(name).type
            right = pyarrow.types.is_decimal(kind) or kind in (pyarrow.float64(), pyarrow.int64())
            assert right, f"{name} is {kind}"
        # Short decimals in all their rows.
        assert pyarrow.types.is_decimal(schema.field("temp").type), schema.field("temp")
    rows = [row for table in tables for row in zip(*(table.column(name).to_pylist() for name in COLUMNS))]
    compare("pyarrow", rows, want)


def by_pandas(files, want):
    rows = []
    for file in files:
        frame = pandas.read_parquet(file, engine="pyarrow")
        assert str(frame["time"].dtype) == "datetime64[ms, UTC]", frame["time"].dtype
        rows.extend(zip(*(frame[name].tolist() for name in COLUMNS)))
    compare("pandas", rows, want)


def by_polars(files, want):
    rows = []
    for file in files:
        frame = polars.read_parquet(file)
        assert frame.schema["time"] == polars.Datetime("ms", "UTC"), frame.schema["time"]
        assert frame.schema["station"] == polars.String, frame.schema["station"]
        rows.extend(frame.select(COLUMNS).iter_rows())
    compare("polars", rows, want)
    pattern = files[0].rsplit("/", 1)[0] + "/seg-*.parquet"
    hottest = polars.scan_parquet(pattern).select(polars.col("temp").cast(polars.Float64).max()).collect().item()
    assert hottest == max(values[0] for values in want.values() if values[0] is not None), hottest


def by_duckdb(files, want):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    table = f"read_parquet({files!r})"
    types = dict(row[:2] for row in connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall())
    assert types["time"] == "TIMESTAMP WITH TIME ZONE", types
    assert types["station"] == "VARCHAR" and types["wind_dir"] == "BIGINT", types
    assert types["temp"].startswith(("DECIMAL", "DOUBLE")), types
    # Without the package pytz, times come as text or numbers only.
    rows = connection.execute(
        f"SELECT epoch_ms(time), {', '.join(COLUMNS[1:])} FROM {table}"
    ).fetchall()
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    rows = [(epoch + datetime.timedelta(milliseconds=row[0]), *row[1:]) for row in rows]
    compare("duckdb", rows, want)
    # Statistics and pages are right where a query goes by them.
    since = datetime.datetime(2013, 7, 1, tzinfo=datetime.timezone.utc)
    count = connection.execute(
        f"SELECT count(*) FROM {table} WHERE time >= TIMESTAMPTZ '2013-07-01 00:00:00+00' AND station = 'JFK' AND temp > 80"
    ).fetchone()[0]
    right = sum(1 for (s, t), v in want.items() if s == "JFK" and t >= since and v[0] is not None and v[0] > 80)
    assert count == right, f"duckdb: {count} hot hours at JFK, expected {right}"


def main(folder, path):
    files = sorted(glob.glob(glob.escape(folder) + "/seg-*.parquet"))
    assert files, f"no segment in {folder}"
    want = expected(path)
    for read in [by_pyarrow, by_pandas, by_polars, by_duckdb]:
        read(files, want)
    print(f"{len(files)} segment files")


main(*sys.argv[1:])
