"""Time-series collections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from ._durations import Duration, seconds
from ._ebbtide import Connection
from ._errors import Error, InvalidError
from ._requests import aggregate, explain_expiry, last_points
from ._result import Result, _package

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._requests import _Document


def _index_error(reply: Mapping[str, Any]) -> None:
    """Raises the first error of a reply that has errors of single documents."""
    for wrong in reply.get("writeErrors", ())[:1]:
        stored = int(reply.get("n", 0))
        raise InvalidError(wrong["errmsg"], wrong["code"], wrong["codeName"], wrong["index"], stored)


class Collection:
    """A time-series collection. It names the collection; each call sees it as it is then."""

    def __init__(self, native: Connection, name: str) -> None:
        self._native = native
        self._name = name
        self._time, self._meta = native.fields(name)

    @property
    def name(self) -> str:
        """The collection's name."""
        return self._name

    @property
    def time_field(self) -> str:
        """The field with the times."""
        return self._time

    @property
    def meta_field(self) -> str | None:
        """The field that tells the series apart, if there is one."""
        return self._meta

    def __repr__(self) -> str:
        return f"<ebbtide.Collection {self._name!r}>"

    def insert(self, data: object) -> int:
        """Stores measurements and returns their number. When this returns they survive a power cut.

        `data` is a table, a frame or a stream (pyarrow, Polars, pandas, DuckDB, a Result: whatever has `__arrow_c_stream__`), or
        an iterable of dicts. A pandas frame gives its columns and the levels of its index that have a name.

        Dicts, and tables of up to 32 MiB, are stored as a whole or not at all; larger ones in parts, in their order, and the
        exception says in `stored` how much of them was stored before it.
        """
        if isinstance(data, Result):
            return self._insert_result(data)
        stopped: list[BaseException] = []
        data = _arrow_data(data, stopped)
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            try:
                return self._native.insert_arrow(self._name, data)
            except Error:
                if not stopped:
                    raise
            raise stopped[0]
        if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
            hint = "put the dict into a list" if isinstance(data, Mapping) else "collect a LazyFrame first"
            raise TypeError(f"insert takes a table, a frame or an iterable of dicts, not {type(data).__name__}: {hint}")
        return self._native.insert_dicts(self._name, list(data))

    def _insert_result(self, data: Result) -> int:
        rows = data._rows
        try:
            return self._native.insert_arrow(self._name, rows)
        except Error as error:
            why = rows.take_failure()
            if why is None:
                raise
            if isinstance(why, Error):
                why.stored = error.stored
            raise why from None

    def find(
        self,
        filter: _Document | None = None,
        *,
        sort: Mapping[str, int] | None = None,
        projection: Mapping[str, int] | None = None,
        skip: int = 0,
        limit: int = 0,
    ) -> list[dict[str, Any]]:
        """Measurements that match a filter in MongoDB's form, as dicts, in order of time. `limit=0` is no limit."""
        return _find(self._native, self._name, filter, sort, projection, skip, limit)

    def count(self, filter: _Document | None = None) -> int:
        """How many measurements are visible and match."""
        return int(self._native.command({"count": self._name, "query": filter or {}})["n"])

    def delete(self, filter: _Document) -> int:
        """Deletes the measurements that match; returns how many of them were visible."""
        return int(self._native.command({"delete": self._name, "deletes": [{"q": filter, "limit": 0}]})["n"])

    def last_points(
        self,
        *,
        fields: Sequence[str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        where: _Document | None = None,
        at: datetime | None = None,
    ) -> Result:
        """As `Database.last_points`."""
        return last_points(self._native, self._name, fields, start, end, where, at)

    def aggregate(
        self,
        aggregates: Mapping[str, str | Sequence[str]],
        *,
        by_meta: bool = False,
        every: Duration | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        where: _Document | None = None,
        at: datetime | None = None,
    ) -> Result:
        """As `Database.aggregate`."""
        return aggregate(self._native, self._name, aggregates, by_meta, every, start, end, where, at)

    def set_expiry(self, expire_after: Duration | None) -> None:
        """Changes how long measurements live; None for ever. It acts at once on what is stored."""
        life = "off" if expire_after is None else seconds(expire_after, "expire_after")
        self._native.command({"collMod": self._name, "expireAfterSeconds": life})

    def create_rule(self, name: str, expire_after: Duration, where: _Document) -> None:
        """Makes a rule for some metas, or for measurements of some metas: a partial TTL index in MongoDB's terms."""
        index = {
            "key": {self._time: 1},
            "name": name,
            "expireAfterSeconds": seconds(expire_after, "expire_after"),
            "partialFilterExpression": where,
        }
        self._native.command({"createIndexes": self._name, "indexes": [index]})

    def drop_rule(self, name: str) -> None:
        """Removes a rule. What it hid and was not dropped yet is visible again."""
        self._native.command({"dropIndexes": self._name, "index": name})

    def rules(self) -> list[dict[str, Any]]:
        """The rules, as `listIndexes` shows them."""
        listed: list[dict[str, Any]] = self._native.command({"listIndexes": self._name})["cursor"]["firstBatch"]
        return listed

    def set_ladder(
        self,
        rungs: Mapping[Duration, Duration | None] | None,
        *,
        fields: Sequence[str] | None = None,
        force: bool = False,
    ) -> None:
        """Keeps bins of measurements that are dropped: for each width of bins how long they live, None for ever.

        `set_ladder(None)` removes the ladder. What would lose bins that are stored nowhere else is refused without `force`.
        """
        command: dict[str, Any] = {"collMod": self._name, "ladder": ladder_document(rungs, fields)}
        if force:
            command["force"] = True
        self._native.command(command)

    def explain_expiry(
        self, at: datetime | None = None, *, expire_after: Duration | None = None
    ) -> Result:
        """What a sweep at an instant would drop, by rule and day; with `expire_after` under that life instead. Changes nothing."""
        return explain_expiry(self._native, self._name, at, expire_after)

    def drop(self) -> None:
        """Drops the collection and all its measurements."""
        self._native.command({"drop": self._name})


def ladder_document(
    rungs: Mapping[Duration, Duration | None] | None, fields: Sequence[str] | None = None
) -> dict[str, Any] | str:
    """A ladder as the option `ladder` of a command."""
    if rungs is None:
        return "off"
    listed = [
        {
            "step": seconds(step, "the step of a rung"),
            "expireAfterSeconds": None if life is None else seconds(life, "the life of a rung"),
        }
        for step, life in rungs.items()
    ]
    return {"rungs": listed} if fields is None else {"fields": list(fields), "rungs": listed}


def _find(
    native: Connection,
    name: str,
    filter: _Document | None,
    sort: Mapping[str, int] | None,
    projection: Mapping[str, int] | None,
    skip: int,
    limit: int,
) -> list[dict[str, Any]]:
    command: dict[str, Any] = {"find": name, "filter": filter or {}, "skip": skip, "limit": limit}
    if sort is not None:
        command["sort"] = sort
    if projection is not None:
        command["projection"] = projection
    found: list[dict[str, Any]] = native.command(command)["cursor"]["firstBatch"]
    return found


def _package_of(data: object) -> str:
    return type(data).__module__.partition(".")[0]


def _arrow_data(data: Any, stopped: list[BaseException]) -> Any:
    """Frames and tables in the forms of Arrow that its import in Rust takes; anything else as it is.

    What stops them, such as Ctrl-C, is added to `stopped`: Arrow's stream keeps only its text.
    """
    if _package_of(data) == "pandas" and hasattr(data, "to_records"):
        data = _pandas_table(data)
    elif _package_of(data) == "polars" and hasattr(data, "to_arrow") and hasattr(data, "schema"):
        data = _polars_frame(data)
    return _without_offsets(data, stopped) if _package_of(data) == "pyarrow" else data


def _pandas_table(frame: Any) -> Any:
    """A pandas frame as a table, without the levels of its index that have no name."""
    named = any(name is not None for name in frame.index.names)
    table = _package("pyarrow", "inserting a pandas frame").Table.from_pandas(frame, preserve_index=named)
    if not named:
        return table
    # The levels of the index are the last columns.
    count = table.num_columns - frame.index.nlevels
    unnamed = {f"__index_level_{level}__" for level in range(frame.index.nlevels)}
    return table.select([i for i, name in enumerate(table.column_names) if i < count or name not in unnamed])


def _polars_frame(frame: Any) -> Any:
    """A Polars frame without its own form of columns that have only nulls."""
    import polars

    for name, dtype in frame.schema.items():
        if dtype == polars.Object:
            raise InvalidError(f"field '{name}': no field holds objects of Python; cast it first", 14, "TypeMismatch")
    if polars.Null in frame.dtypes:
        frame = frame.with_columns(polars.col(polars.Null).cast(polars.Boolean))
    if not any("Null" in str(dtype) for dtype in frame.dtypes):
        return frame
    _package("pyarrow", "inserting a Polars frame with nulls that have no type in lists or structs")
    return frame.to_arrow()


def _without_offsets(data: Any, stopped: list[BaseException]) -> Any:
    """Data of pyarrow; copied if it has objects within objects, of which Arrow's import in Rust takes no slices."""
    import pyarrow

    if isinstance(data, pyarrow.StructArray):
        data = pyarrow.RecordBatch.from_struct_array(data)
    schema = getattr(data, "schema", ())
    if not isinstance(schema, pyarrow.Schema) or not any(_nests(field.type, False) for field in schema):
        return data

    def batches() -> Iterator[Any]:
        try:
            for batch in [data] if isinstance(data, pyarrow.RecordBatch) else pyarrow.RecordBatchReader.from_stream(data):
                copy = pyarrow.BufferOutputStream()
                with pyarrow.ipc.new_stream(copy, schema) as stream:
                    stream.write_batch(batch)
                yield from pyarrow.ipc.open_stream(copy.getvalue())
        except GeneratorExit:
            raise
        except BaseException as why:
            stopped.append(why)
            raise

    return pyarrow.RecordBatchReader.from_batches(schema, batches())


def _nests(type: Any, within: bool) -> bool:
    """Whether a type has objects within objects, or within lists of a fixed length."""
    import pyarrow

    type = getattr(type, "storage_type", type)
    is_object = pyarrow.types.is_struct(type)
    if is_object and within:
        return True
    within = within or is_object or pyarrow.types.is_fixed_size_list(type)
    return any(_nests(type.field(i).type, within) for i in range(type.num_fields))

