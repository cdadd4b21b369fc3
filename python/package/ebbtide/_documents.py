"""Ordinary collections: documents by `_id`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ._durations import Duration, seconds
from ._ebbtide import Connection
from ._measurements import _index_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._requests import _Document


class Documents:
    """An ordinary collection. It names the collection; each call sees it as it is then."""

    def __init__(self, native: Connection, name: str) -> None:
        self._native = native
        self._name = name

    @property
    def name(self) -> str:
        """The collection's name."""
        return self._name

    def __repr__(self) -> str:
        return f"<ebbtide.Documents {self._name!r}>"

    def insert(self, documents: _Document | Iterable[_Document]) -> int:
        """Stores a dict, or several, each under an `_id` that no document has; returns how many.

        A document without an `_id` gets an ObjectId. When one is refused, those before it are stored: the exception's `index`
        says which it is.
        """
        given = [documents] if isinstance(documents, Mapping) else list(documents)
        reply = self._native.command({"insert": self._name, "documents": given})
        _index_error(reply)
        return int(reply["n"])

    def find(
        self,
        filter: _Document | None = None,
        *,
        sort: Mapping[str, int] | None = None,
        projection: Mapping[str, Any] | None = None,
        skip: int = 0,
        limit: int = 0,
    ) -> list[dict[str, Any]]:
        """The documents that match a filter in MongoDB's form, in order of `_id`. `limit=0` is no limit."""
        asked = (filter or {}, sort or {}, projection or {})
        return self._native.find_documents(self._name, asked, (skip, limit))

    def get(self, id: object) -> dict[str, Any] | None:
        """The document with this `_id`, unless it has expired."""
        found = self.find({"_id": {"$eq": id}}, limit=1)
        return found[0] if found else None

    def count(self, filter: _Document | None = None) -> int:
        """How many documents are visible and match."""
        return int(self._native.command({"count": self._name, "query": filter or {}})["n"])

    def update(
        self,
        filter: _Document,
        update: _Document,
        *,
        many: bool = False,
        upsert: bool = False,
    ) -> int:
        """Changes the first document that matches, or all; returns how many matched or were inserted.

        `update` has MongoDB's operators, or is the document that replaces what matches.
        """
        one = {"q": filter, "u": update, "multi": many, "upsert": upsert}
        reply = self._native.command({"update": self._name, "updates": [one]})
        _index_error(reply)
        return int(reply["n"])

    def delete(self, filter: _Document, *, many: bool = True) -> int:
        """Removes what matches, or the first of it; returns how many were visible."""
        one = {"q": filter, "limit": 0 if many else 1}
        reply = self._native.command({"delete": self._name, "deletes": [one]})
        _index_error(reply)
        return int(reply["n"])

    def create_index(self, field: str, *, name: str | None = None, expire_after: Duration | None = None) -> None:
        """Makes an index on a field; with `expire_after` documents go that long after the date in it."""
        index: dict[str, Any] = {"key": {field: 1}, "name": name or f"{field}_1"}
        if expire_after is not None:
            index["expireAfterSeconds"] = seconds(expire_after, "expire_after")
        self._native.command({"createIndexes": self._name, "indexes": [index]})

    def drop_index(self, name: str) -> None:
        """Removes an index, and with it its rule."""
        self._native.command({"dropIndexes": self._name, "index": name})

    def drop(self) -> None:
        """Drops the collection and all its documents."""
        self._native.command({"drop": self._name})

