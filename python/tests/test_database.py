"""Databases, collections, retention."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import ebbtide
from conftest import START


def test_nothing_but_the_package_is_needed(tmp_path: Path) -> None:
    # -I and -S: no other package is there.
    home = Path(ebbtide.__file__).parent.parent
    program = (
        f"import sys; sys.path.insert(0, {str(home)!r})\n"
        "for name in ('pyarrow', 'pandas', 'polars', 'numpy', 'duckdb'): sys.modules[name] = None\n"
        "import ebbtide, datetime\n"
        f"db = ebbtide.connect({str(tmp_path / 'db')!r})\n"
        "c = db.create_collection('w')\n"
        "c.insert([{'time': datetime.datetime.now(), 'temp': 1.5}])\n"
        "assert db.sql('SELECT temp FROM w').fetchall() == [(1.5,)]\n"
        "db.sql('SELECT temp FROM w')._repr_html_()\n"
        "try: db.sql('SELECT 1').pl()\n"
        "except ImportError as error: assert 'pip install polars' in str(error), error\n"
        "else: raise SystemExit('polars is not there')\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


def test_a_closed_database(tmp_path: Path) -> None:
    db = ebbtide.connect(tmp_path / "db")
    collection = db.create_collection("w")
    with db:
        assert repr(os.fspath(tmp_path / "db")) in repr(db)
    db.close()
    assert repr(db) == "<ebbtide.Database closed>"
    with pytest.raises(ebbtide.InvalidError, match="is closed"):
        db.sql("SELECT 1")
    with pytest.raises(ebbtide.InvalidError, match="is closed"):
        collection.insert([])


def test_read_only(tmp_path: Path) -> None:
    with pytest.raises(ebbtide.InvalidError) as missing:
        ebbtide.connect(tmp_path / "db", read_only=True)
    assert missing.value.code_name == "NamespaceNotFound"
    with ebbtide.connect(tmp_path / "db") as writer:
        assert not writer.read_only
        writer.create_collection("w").insert([{"time": START}])
        with ebbtide.connect(tmp_path / "db", read_only=True) as reader:
            assert reader.read_only and reader.path == str(tmp_path / "db")
            assert reader.sql("SELECT count(*) FROM w").fetchall() == [(1,)]
            with pytest.raises(ebbtide.Error):
                reader.collection("w").insert([{"time": START}])
            with pytest.raises(ebbtide.Error):
                reader.create_collection("x")
        with pytest.raises(ebbtide.BusyError):
            ebbtide.connect(tmp_path / "db")


def test_two_databases_at_once(tmp_path: Path) -> None:
    with ebbtide.connect(tmp_path / "a") as a, ebbtide.connect(tmp_path / "b") as b:
        a.create_collection("w").insert([{"time": START, "temp": 1.0}])
        b.create_collection("w").insert(a.sql("SELECT time, temp + 1 AS temp FROM w"))
        assert a.sql("SELECT temp FROM w").fetchall() == [(1.0,)]
        assert b.sql("SELECT temp FROM w").fetchall() == [(2.0,)]


def test_a_database_is_there_again(tmp_path: Path) -> None:
    with ebbtide.connect(tmp_path / "db") as db:
        db.create_collection("w", meta="s").insert([{"time": START, "s": 1}])
    with ebbtide.connect(str(tmp_path / "db")) as db:
        assert db.collections() == ["w"]
        assert db.collection("w").find() == [{"time": START, "s": 1}]


def test_measurements(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    assert (weather.name, weather.time_field, weather.meta_field) == ("weather", "time", "station")
    roof = {"station.id": "roof"}
    assert weather.count() == 120 and weather.count(roof) == 60
    found = weather.find({**roof, "count": {"$gte": 58}}, sort={"time": -1}, projection={"count": 1, "note": 1})
    assert found == [{"count": 59, "note": "minute 59"}, {"count": 58, "note": "minute 58"}]
    assert weather.delete({"station.id": "cellar"}) == 60
    assert weather.count() == 60
    weather.drop()
    assert db.collections() == []


def test_last_points(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    last = db.last_points("weather", fields=["time", "count"], where={"station.id": "roof"})
    assert last.columns == ["time", "count"]
    assert last.fetchall() == [(START + timedelta(minutes=59), 59)]
    # The end is not included.
    before = weather.last_points(fields=["count"], end=START + timedelta(minutes=10))
    assert before.fetchall() == [(9,), (9,)]
    with pytest.raises(ebbtide.InvalidError, match="meta field 'station' alone"):
        db.last_points("weather", where={"count": 1})


def test_aggregate(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    every = db.aggregate("weather", {"*": "count", "count": ["min", "max"]}, every=timedelta(minutes=20))
    assert every.columns == ["time", "count(*)", "min(count)", "max(count)"]
    assert [row[1:] for row in every.fetchall()] == [(40, 0, 19), (40, 20, 39), (40, 40, 59)]
    by_meta = weather.aggregate({"count": "sum"}, by_meta=True, start=START + timedelta(minutes=58))
    assert sorted(row[1] for row in by_meta.fetchall()) == [117, 117]
    with pytest.raises(ebbtide.InvalidError, match="there is no aggregate 'mean'"):
        db.aggregate("weather", {"count": "mean"})
    with pytest.raises(ebbtide.InvalidError, match="no field 'tmp'"):
        db.aggregate("weather", {"tmp": "max"})


def test_retention(db: ebbtide.Database) -> None:
    now = db.now()
    hours = db.create_collection("hours", meta="sensor", expire_after=timedelta(days=7), grace=timedelta(0))
    hours.insert([{"time": now - timedelta(hours=hour), "sensor": "a" if hour % 2 else "b"} for hour in range(48)])
    count = "SELECT count(*) FROM hours"
    assert db.sql(count).fetchall() == [(48,)]
    assert db.sql(count, at=now + timedelta(days=6)).fetchall()[0][0] == 24
    assert db.sql(count, at=now + timedelta(days=8)).fetchall() == [(0,)]

    hours.create_rule("short", timedelta(hours=6), {"sensor": "a"})
    assert [rule["name"] for rule in hours.rules() if "partialFilterExpression" in rule] == ["short"]
    assert db.sql(count).fetchall() == [(24 + 3,)]
    hours.drop_rule("short")
    assert db.sql(count).fetchall() == [(48,)]

    hours.set_expiry(timedelta(hours=1))
    assert hours.count() == 1
    would = db.sweep(dry_run=True)
    assert would.measurements > 0 and would == db.sweep(dry_run=True)
    explained = hours.explain_expiry()
    assert sum(row[explained.columns.index("measurements")] for row in explained.fetchall()) == would.measurements
    assert hours.explain_expiry(expire_after=timedelta(days=30)).fetchall() == []
    assert hours.explain_expiry(now + timedelta(days=9)).fetchall() != []
    done = db.sweep()
    assert (done.buckets, done.measurements, done.held) == (would.buckets, would.measurements, None)
    assert db.sweep(dry_run=True) == ebbtide.Swept(0, 0, 0)
    assert repr(ebbtide.Swept(1, 2, 3)) == "Swept(buckets=1, measurements=2, bytes=3)"


def test_ladder(db: ebbtide.Database) -> None:
    climate = db.create_collection(
        "climate", meta="station", ladder={timedelta(hours=1): timedelta(days=90), timedelta(days=1): None}
    )
    climate.insert([{"time": START + timedelta(minutes=m), "station": "park", "temp": float(m)} for m in range(120)])
    climate.set_expiry(timedelta(days=1))
    db.sweep()
    assert climate.count() == 0
    bins = db.sql("SELECT measurements, temp_max FROM rollup('climate', '1 day')").fetchall()
    assert bins == [(120, 119.0)]
    with pytest.raises(ebbtide.Error):
        climate.set_ladder(None)
    climate.set_ladder(None, force=True)


def test_holds(db: ebbtide.Database) -> None:
    kept = db.create_collection("kept", meta="s", expire_after=timedelta(hours=1))
    kept.insert([{"time": START, "s": name} for name in "ab"])
    db.create_hold("case 7", "kept", "audit", where={"s": "a"}, start=START - timedelta(days=1))
    assert db.sweep().buckets == 1
    assert [hold["reason"] for hold in db.holds()] == ["audit"]
    db.lift_hold("case 7")
    assert db.sweep().buckets == 1


def test_documents(db: ebbtide.Database) -> None:
    sessions = db.create_documents("sessions", expire_after=timedelta(minutes=30))
    assert sessions.insert({"_id": "3f2a", "user": "ada", "visits": 1, "since": START}) == 1
    assert sessions.insert([{"user": "bob", "visits": 2.5, "raw": b"\x00"}, {"user": "cyd", "tags": ["x", None]}]) == 2
    assert sessions.update({"_id": "3f2a"}, {"$inc": {"visits": 1}}) == 1
    assert sessions.get("3f2a") == {"_id": "3f2a", "user": "ada", "visits": 2, "since": START}
    bob = sessions.find({"user": "bob"})[0]
    assert isinstance(bob["_id"], ebbtide.ObjectId) and bob["raw"] == b"\x00"
    assert sessions.get(bob["_id"]) == bob
    assert sessions.find(sort={"user": -1}, projection={"_id": 0, "user": 1}, limit=2) == [{"user": "cyd"}, {"user": "bob"}]
    assert sessions.update({"user": "dan"}, {"$set": {"visits": 1}}, upsert=True) == 1
    assert sessions.update({}, {"$set": {"seen": True}}, many=True) == 4
    assert sessions.count({"seen": True}) == 4
    with pytest.raises(ebbtide.InvalidError) as taken:
        sessions.insert([{"_id": "new"}, {"_id": "3f2a"}])
    assert (taken.value.code, taken.value.index, taken.value.stored) == (11000, 1, 1)
    assert sessions.delete({"user": "ada"}) == 1
    assert sessions.delete({}, many=False) == 1
    sessions.create_index("since", expire_after=timedelta(days=1))
    later = db.now() + timedelta(minutes=31)
    assert db.sql("SELECT count(*) FROM sessions", at=later).fetchall() == [(0,)]
    assert db.documents("sessions").name == "sessions"
    with pytest.raises(ebbtide.InvalidError):
        db.documents("none")
    with pytest.raises(ebbtide.InvalidError):
        db.collection("sessions")
    sessions.drop()


def test_binary_and_code_of_bson_come_back(db: ebbtide.Database) -> None:
    bson = pytest.importorskip("bson")
    kept = db.create_documents("kept")
    document = {"_id": 1, "raw": bson.Binary(b"\x00" * 16, 4), "code": bson.Code("x"), "plain": b"y"}
    kept.insert(document)
    found = kept.get(1)
    assert found == {**document, "code": {"$code": "x"}} and found["raw"].subtype == 4
    kept.update({"_id": 1}, found)
    assert kept.get(1) == found


def test_object_ids() -> None:
    one = ebbtide.ObjectId("0123456789abcdef01234567")
    assert one == ebbtide.ObjectId("0123456789ABCDEF01234567") and len({one, ebbtide.ObjectId(str(one))}) == 1
    assert one != "0123456789abcdef01234567" and repr(one) == "ObjectId('0123456789abcdef01234567')"
    with pytest.raises(ValueError):
        ebbtide.ObjectId("xyz")


def test_statements_of_all_kinds(db: ebbtide.Database) -> None:
    made = db.sql("CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 7 DAYS")
    assert made.columns == [] and "w" in (made.message or "") and made.fetchall() == []
    inserted = db.sql("INSERT INTO w (t, s) VALUES (now(), 'a'), (now(), 'b')")
    assert inserted.fetchall() == inserted.fetchall() == [(2,)]
    assert db.sql("SELECT count(*) FROM w").fetchall() == [(2,)]
    assert db.sql("SHOW COLLECTIONS").fetchall()[0][0] == "w"
    assert db.sql("DELETE FROM w WHERE s = 'a'").fetchall() == [(1,)]
    assert db.sql("EXPLAIN SELECT * FROM w").fetchall()
    assert db.command({"collStats": "w"})["ok"] == 1


def test_the_program() -> None:
    run = subprocess.run([sys.executable, "-m", "ebbtide", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"ebbtide {ebbtide.__version__}"
    wrong = subprocess.run([sys.executable, "-m", "ebbtide", "--nonsense"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--nonsense" in wrong.stderr


def test_times(db: ebbtide.Database) -> None:
    collection = db.create_collection("w", precision="ns")
    east = timezone(timedelta(hours=2))
    collection.insert([{"time": datetime(2024, 1, 1, 2, tzinfo=east)}, {"time": datetime(2024, 1, 1)}])
    assert db.sql("SELECT DISTINCT time FROM w").fetchall() == [(START,)]
    np = pytest.importorskip("numpy")
    collection.insert([{"time": np.datetime64("2024-01-01T00:00:00.000000001"), "x": np.float32(1.5), "n": np.int64(7)}])
    assert db.sql("SELECT x, n FROM w WHERE time > $1", START).fetchall() == [(1.5, 7)]
    days = [np.datetime64(text) for text in ("2024-02-01T05", "2024-02", "2024")]
    collection.insert([{"time": day, "list": np.array(days, "M8[ns]")} for day in days])
    found = db.sql("SELECT time, list FROM w WHERE list IS NOT NULL ORDER BY time DESC").fetchall()
    times = [START.replace(month=2, hour=5), START.replace(month=2), START]
    assert found == [(time, times) for time in times]
    with pytest.raises(TypeError, match="timedelta64"):
        collection.insert([{"time": START, "x": np.timedelta64(5, "ns")}])
