"""Requests that a database and a collection have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ._durations import Duration, nanoseconds, seconds
from ._ebbtide import Connection, instant_text
from ._errors import InvalidError
from ._result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Document = Mapping[str, Any]


def last_points(
    native: Connection,
    collection: str,
    fields: Sequence[str] | None,
    start: datetime | None,
    end: datetime | None,
    where: _Document | None,
    at: datetime | None,
) -> Result:
    """As `Database.last_points`."""
    which = {"start": start, "end": end, "where": where}
    return Result(native.last_points(collection, fields, which, at))


def aggregate(
    native: Connection,
    collection: str,
    aggregates: Mapping[str, str | Sequence[str]],
    by_meta: bool,
    every: Duration | None,
    start: datetime | None,
    end: datetime | None,
    where: _Document | None,
    at: datetime | None,
) -> Result:
    """As `Database.aggregate`."""
    wanted = [
        (field, function)
        for field, functions in aggregates.items()
        for function in ([functions] if isinstance(functions, str) else functions)
    ]
    width = None if every is None else nanoseconds(every, "every")
    if width is not None and abs(width) >= 1 << 126:
        raise InvalidError(f"'every' is too long: {every}", 2, "BadValue")
    groups = {"aggregates": wanted, "by_meta": by_meta, "width_nanos": width}
    which = {"start": start, "end": end, "where": where}
    return Result(native.aggregate(collection, groups, which, at))


def explain_expiry(
    native: Connection, collection: str, at: datetime | str | None, expire_after: Duration | None
) -> Result:
    """As `Database.explain_expiry`."""
    text = f'EXPLAIN EXPIRY FOR "{collection.replace(chr(34), chr(34) * 2)}"'
    if at is not None:
        instant = at if isinstance(at, str) else instant_text(at)
        text += " AT '" + instant.replace("'", "''") + "'"
    if expire_after is not None:
        text += f" WITH (expireAfterSeconds = {seconds(expire_after, 'expire_after')})"
    return Result(native.sql(text, (), None))
