"""The queries of the runner's report, as SQL of other engines, and summaries of their answers."""

import math
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc


def kind(question):
    """The kind of a query, and its parameters."""
    what = question["what"]
    return (what, {}) if isinstance(what, str) else next(iter(what.items()))


def instant(millis):
    return datetime.fromtimestamp(millis / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def sql(question, table, key, words):
    """SQL for a table with one row per measurement; `words` has the engine's dialect."""
    name, parts = kind(question)
    fields = question["fields"]
    conditions = []
    if question["series"]:
        conditions.append(f"{key} IN ({', '.join(repr(s) for s in question['series'])})")
    if question["from"] is not None:
        conditions.append(f"time >= {words.time(instant(question['from']))}")
    if question["to"] is not None:
        conditions.append(f"time < {words.time(instant(question['to']))}")
    if name == "rows" and parts["above"] is not None:
        conditions.append(f"{fields[0]} > {parts['above']}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    each = lambda function: ", ".join(f"{function}({f})" for f in fields)
    if name == "rows":
        return f"SELECT * FROM {table}{where}"
    if name == "max":
        order = "bin" if parts["newest"] is None else f"bin DESC LIMIT {parts['newest']}"
        return f"SELECT {words.bin(parts['width'])} AS bin, {each('max')} FROM {table}{where} GROUP BY bin ORDER BY {order}"
    if name == "avg":
        series = f", {key}" if parts["by_series"] else ""
        order = "" if parts["by_series"] else " ORDER BY bin"
        return f"SELECT {words.bin(parts['width'])} AS bin{series}, {each('avg')} FROM {table}{where} GROUP BY bin{series}{order}"
    if name == "last":
        return words.last(table, key, fields)
    if name == "count":
        return f"SELECT count(*) FROM {table}"
    if name == "windows":
        return f"SELECT {key}, time, {parts['functions']} FROM {table}{where}"
    if name == "summary":
        return f"SELECT min({fields[0]}), max({fields[0]}), avg({fields[0]}) FROM {table}"
    raise ValueError(f"unknown question {name}")


def summed(table):
    """The number of rows of an Arrow table, and the sum of its numbers without bins and times."""
    total = 0.0
    for name, column in zip(table.column_names, table.columns):
        number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if number and name != "bin":
            values = column.cast(pa.float64())
            total += pc.sum(values).as_py() or 0.0
    return table.num_rows, total


def agree(ours, rows, total):
    return ours["rows"] == rows and math.isclose(ours["sum"], total, rel_tol=1e-9, abs_tol=1e-6)
