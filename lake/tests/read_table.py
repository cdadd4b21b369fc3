"""Reads a published table with other programs. Each line of input is an object with the folder or the URL and the rows that must be
there, without fields that are null and with instants in milliseconds. The answer is one line: "ok", or what is wrong. The first line of
output names the programs that read. Keys and addresses of servers are in the environment, as Ebbtide takes them."""

import datetime
import decimal
import json
import math
import os
import sys

from programs import ACCOUNT, AZURE, KEY, S3, duckdb_with_delta

# chdb reads what lies below its working folder.
os.chdir("/")
readers = {}


def reader(name):
    def register(function):
        try:
            readers[name] = function()
        except Exception as error:
            print(f"skipped: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return function

    return register


@reader("polars")
def polars():
    import polars

    return lambda place: polars.scan_delta(place).collect().to_dicts()


@reader("deltalake")
def deltalake():
    from deltalake import DeltaTable, QueryBuilder
    import pyarrow

    def read(place):
        query = QueryBuilder().register("t", DeltaTable(place))
        return pyarrow.table(query.execute("SELECT * FROM t").read_all()).to_pylist()

    return read


@reader("duckdb")
def duckdb():
    duckdb = duckdb_with_delta()
    return lambda place: duckdb.sql(f"FROM delta_scan('{place}')").to_arrow_table().to_pylist()


@reader("chdb")
def chdb():
    import chdb
    from pyarrow import ipc

    def table(place):
        bucket, _, path = place.partition("://")[2].partition("/")
        if place.startswith("s3://"):
            key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
            return f"deltaLake('{S3}/{bucket}/{path}', '{key}', '{secret}')"
        if place.startswith("az://"):
            return f"deltaLakeAzure('{AZURE}/{ACCOUNT}', '{bucket}', '{path}', '{ACCOUNT}', '{KEY}')"
        return f"deltaLakeLocal('{place}')"

    def read(place):
        result = chdb.query(f"SELECT * FROM {table(place)}", "ArrowStream")
        return ipc.open_stream(result.bytes()).read_all().to_pylist()

    return read


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def plain(value):
    """A value as the input has it."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items() if member is not None}
    if isinstance(value, datetime.datetime):
        utc = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        return (utc - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value


def same(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return type(one) is type(other) and one == other


def key(row):
    return (row["t"], json.dumps(row.get("sensor"), sort_keys=True), row.get("v", 0))


def difference(found, expected):
    if len(found) != len(expected):
        return f"{len(found)} rows and not {len(expected)}"
    pairs = zip(sorted(found, key=key), sorted(expected, key=key))
    return next((f"{one} and not {other}" for one, other in pairs if not same(one, other)), None)


print(" ".join(readers), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    wrong = []
    for name, read in readers.items():
        try:
            different = difference([plain(row) for row in read(asked["place"])], asked["rows"])
            wrong.extend([f"{name} finds {different}"] if different else [])
        except Exception as error:
            wrong.append(f"{name} fails: {str(error).splitlines()[0]}")
    print("; ".join(wrong) or "ok", flush=True)
