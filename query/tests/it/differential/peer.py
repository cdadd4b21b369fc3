"""Runs statements in DuckDB: a line of JSON for each, and one of its answer."""

import json
import struct
import sys
from decimal import Decimal

import duckdb


def cell(value):
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return {"i": str(value)}
    if isinstance(value, float):
        return {"d": struct.pack(">d", value).hex()}
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value()
        return {"i": str(int(value))} if whole else cell(float(value))
    if isinstance(value, dict):
        return {"o": [[name, cell(member)] for name, member in value.items()]}
    if isinstance(value, (list, tuple)):
        return [cell(item) for item in value]
    return str(value)


connection = duckdb.connect(":memory:", config={"threads": 1})
connection.execute("SET default_null_order = 'nulls_last'")
# A statement that takes long would draw its progress between the answers.
connection.execute("SET enable_progress_bar = false")
for line in sys.stdin:
    request = json.loads(line)
    try:
        for statement in request.get("run", []):
            connection.execute(statement)
        rows = connection.execute(request["query"]).fetchall() if "query" in request else []
        answer = {"rows": [[cell(value) for value in row] for row in rows]}
    except duckdb.Error as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
