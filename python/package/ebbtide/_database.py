"""Databases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime

from ._documents import Documents
from ._durations import Duration, seconds
from ._ebbtide import Connection
from ._measurements import Collection, ladder_document
from ._requests import aggregate, explain_expiry, last_points
from ._result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from ._requests import _Document


class Swept:
    """What a sweep dropped, or would drop."""

    buckets: int
    """Buckets."""
    measurements: int
    """Measurements and documents."""
    bytes: int
    """Bytes of them on disk."""
    held: str | None
    """Why nothing was dropped, if the clock cannot be trusted."""

    def __init__(self, buckets: int, measurements: int, bytes: int, held: str | None = None) -> None:
        self.buckets = buckets
        self.measurements = measurements
        self.bytes = bytes
        self.held = held

    def __repr__(self) -> str:
        held = "" if self.held is None else f", held={self.held!r}"
        return f"Swept(buckets={self.buckets}, measurements={self.measurements}, bytes={self.bytes}{held})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Swept) and vars(self) == vars(other)



def connect(path: str | os.PathLike[str], read_only: bool = False, *, background: bool = False) -> Database:
    """Opens the database in the folder `path`; one that is opened for writing is created if it does not exist.

    One process writes. Others may open the database at the same time with `read_only=True`, and see it as it is at that moment.
    With `background=True` what expires is dropped every minute, and files are merged; otherwise `Database.sweep` and
    `Database.compact` do that.
    """
    return Database(Connection(path, read_only, background))


class Database:
    """An open database, which `connect` returns. Any thread may use it; `with` closes it at the end of its block."""

    def __init__(self, native: Connection) -> None:
        self._native = native

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is in memory to its place and releases the folder. Closing it again does nothing."""
        self._native.close()

    def __repr__(self) -> str:
        state = "closed" if self._native.is_closed else repr(os.fspath(self._native.path))
        return f"<ebbtide.Database {state}>"

    @property
    def path(self) -> str:
        """The folder."""
        return os.fspath(self._native.path)

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._native.is_read_only

    def now(self) -> datetime:
        """The instant by which expiry is decided now."""
        return self._native.now()

    def sql(self, text: str, *params: object, at: datetime | str | None = None) -> Result:
        """Runs one statement. A query is checked now, and its rows are found when they are read.

        `params` are the values of `$1`, `$2` and so on in a query. With `at` the query sees what is stored now with expiry
        decided at that instant, past or future.
        """
        return Result(self._native.sql(text, params, at))

    def command(self, document: _Document) -> dict[str, Any]:
        """Runs a command document in MongoDB's form, such as `{"collStats": "weather"}`, and returns its reply."""
        reply: dict[str, Any] = self._native.command(document)
        return reply

    def collections(self) -> list[str]:
        """Names of all collections, sorted."""
        series, ordinary = self._native.collections()
        return sorted(series + ordinary)

    def collection(self, name: str) -> Collection:
        """A time-series collection."""
        return Collection(self._native, name)

    def documents(self, name: str) -> Documents:
        """An ordinary collection."""
        self._native.command({"count": name})
        if name not in self._native.collections()[1]:
            self._native.command({"update": name, "updates": []})
        return Documents(self._native, name)

    def create_collection(
        self,
        name: str,
        *,
        time: str = "time",
        meta: str | None = None,
        expire_after: Duration | None = None,
        grace: Duration | None = None,
        max_bytes: int | None = None,
        ladder: Mapping[Duration, Duration | None] | None = None,
        **options: object,
    ) -> Collection:
        """Makes a time-series collection. If it exists with the same options, nothing changes.

        `time` is the field with the times, `meta` the one that tells the series apart. Measurements live for `expire_after`; after
        that they are kept hidden for `grace`, and above `max_bytes` the oldest go first. `ladder` is as for
        `Collection.set_ladder`. `options` are others of `timeseries`: `granularity`, `precision`, `expiry` and so on.
        """
        series: dict[str, Any] = {"timeField": time, **options}
        if meta is not None:
            series["metaField"] = meta
        command: dict[str, Any] = {"create": name, "timeseries": series}
        if expire_after is not None:
            command["expireAfterSeconds"] = seconds(expire_after, "expire_after")
        if grace is not None:
            command["graceSeconds"] = seconds(grace, "grace")
        if max_bytes is not None:
            command["maxBytes"] = max_bytes
        if ladder is not None:
            command["ladder"] = ladder_document(ladder)
        self._native.command(command)
        return self.collection(name)

    def create_documents(self, name: str, *, expire_after: Duration | None = None) -> Documents:
        """Makes an ordinary collection. With `expire_after` documents go that long after they were last written."""
        command: dict[str, Any] = {"create": name}
        if expire_after is not None:
            command["defaultTTL"] = seconds(expire_after, "expire_after")
        self._native.command(command)
        return Documents(self._native, name)

    def last_points(
        self,
        collection: str,
        *,
        fields: Sequence[str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        where: _Document | None = None,
        at: datetime | None = None,
    ) -> Result:
        """The newest measurement of every series, from `start` on and before `end`.

        `fields` are the columns, all if None; `where` is a filter on the meta field, such as `{"station": "JFK"}`.
        """
        return last_points(self._native, collection, fields, start, end, where, at)

    def aggregate(
        self,
        collection: str,
        aggregates: Mapping[str, str | Sequence[str]],
        *,
        by_meta: bool = False,
        every: Duration | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        where: _Document | None = None,
        at: datetime | None = None,
    ) -> Result:
        """Aggregates of numbers, mostly from statistics: much faster than reading the rows.

        `aggregates` has for each field one of `count`, `sum`, `avg`, `min`, `max`, `first` and `last`, or several; `{"*": "count"}`
        counts measurements. With `by_meta` each series is a group of its own, with `every` each interval of that width.
        """
        return aggregate(self._native, collection, aggregates, by_meta, every, start, end, where, at)

    def explain_expiry(
        self, collection: str, at: datetime | str | None = None, *, expire_after: Duration | None = None
    ) -> Result:
        """What a sweep at an instant would drop, by rule and day; with `expire_after` under that life instead. Changes nothing."""
        return explain_expiry(self._native, collection, at, expire_after)

    def sweep(self, dry_run: bool = False) -> Swept:
        """Drops what has expired. With `dry_run` it only says what would be dropped."""
        if not dry_run:
            report = self._native.sweep()
            return Swept(
                report["deletedBuckets"], report["deletedDocuments"], report["deletedBytes"], report.get("held")
            )
        buckets = measurements = freed = 0
        for name in self.collections():
            for _, _, *due in self.explain_expiry(name).fetchall():
                buckets, measurements, freed = buckets + due[0], measurements + due[1], freed + due[2]
        return Swept(buckets, measurements, freed)

    def create_hold(
        self,
        name: str,
        collection: str,
        reason: str,
        *,
        where: _Document | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> None:
        """Keeps what is stored from being dropped or deleted until the hold is lifted: all, or that of some metas and times."""
        command: dict[str, Any] = {"createHold": name, "collection": collection, "reason": reason}
        given = {"filter": where, "from": start, "to": end}
        command.update((option, value) for option, value in given.items() if value is not None)
        self._native.command(command)

    def lift_hold(self, name: str) -> None:
        """Ends a hold."""
        self._native.command({"dropHold": name})

    def holds(self) -> list[dict[str, Any]]:
        """All holds, active or lifted."""
        listed: list[dict[str, Any]] = self._native.command({"listHolds": 1})["cursor"]["firstBatch"]
        return listed

    def flush(self) -> None:
        """Writes what is in memory to segment files."""
        self._native.flush()

    def compact(self, collection: str | None = None) -> None:
        """Merges small files, of one collection or of all."""
        self._native.compact(collection)
