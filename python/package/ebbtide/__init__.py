"""Ebbtide, a time-series database that forgets on schedule.

>>> import ebbtide
>>> with ebbtide.connect("weather") as db:
...     db.sql("SELECT count(*) FROM readings").fetchall()
"""

from __future__ import annotations

from ._database import Database, Swept, connect
from ._documents import Documents
from ._ebbtide import __version__
from ._errors import (
    BusyError,
    CorruptError,
    Error,
    FileError,
    FullError,
    InternalError,
    InvalidError,
    PoisonedError,
)
from ._measurements import Collection
from ._object_id import ObjectId
from ._result import Chart, Result

__all__ = [
    "BusyError",
    "Chart",
    "Collection",
    "CorruptError",
    "Database",
    "Documents",
    "Error",
    "FileError",
    "FullError",
    "InternalError",
    "InvalidError",
    "ObjectId",
    "PoisonedError",
    "Result",
    "Swept",
    "__version__",
    "connect",
]
