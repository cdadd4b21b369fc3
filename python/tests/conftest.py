"""What the tests have in common."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import ebbtide

START = datetime(2024, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebbtide.Database]:
    with ebbtide.connect(tmp_path / "db") as opened:
        yield opened


@pytest.fixture
def weather(db: ebbtide.Database) -> ebbtide.Collection:
    """Two stations with a measurement a minute for an hour, of numbers, texts, objects and nulls."""
    collection = db.create_collection("weather", time="time", meta="station")
    rows = [
        {
            "time": START + timedelta(minutes=minute),
            "station": {"id": name, "floor": floor},
            "temp": 20 + minute / 8 if minute % 7 else None,
            "count": minute,
            "note": f"minute {minute}",
            "ok": minute % 2 == 0,
        }
        for minute in range(60)
        for floor, name in enumerate(["roof", "cellar"])
    ]
    assert collection.insert(rows) == 120
    return collection
