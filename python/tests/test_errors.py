"""What goes wrong, and who hears of it."""

from __future__ import annotations

import decimal
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

import ebbtide
from conftest import START

# It returns nothing and never ends.
ENDLESS = (
    "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b "
    "WHERE a.value + b.value < 0"
)


def test_a_statement_is_checked_at_once(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    with pytest.raises(ebbtide.InvalidError, match="did you mean 'temp'") as wrong:
        db.sql("SELECT tmp FROM weather")
    assert (wrong.value.code, wrong.value.code_name, wrong.value.index) == (2, "BadValue", None)
    with pytest.raises(ebbtide.InvalidError) as missing:
        db.sql("SELECT * FROM wether")
    assert missing.value.code_name == "NamespaceNotFound"
    with pytest.raises(ebbtide.InvalidError, match="expected one statement, found 2"):
        db.sql("SELECT 1; SELECT 2")


@pytest.mark.parametrize("how", ["fetchall", "arrow", "pl", "df"])
def test_an_error_among_the_rows_is_ours(db: ebbtide.Database, weather: ebbtide.Collection, how: str) -> None:
    for package in {"arrow": ["pyarrow"], "pl": ["polars"], "df": ["pyarrow", "pandas"]}.get(how, []):
        pytest.importorskip(package)
    result = db.sql('SELECT 100 / ("count" - 59) FROM weather')
    with pytest.raises(ebbtide.InvalidError, match="(?i)divi") as wrong:
        getattr(result, how)()
    assert wrong.value.code == 2


def test_an_error_names_the_measurement(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    rows = [{"time": START, "count": 1}, {"time": START, "count": "two"}]
    with pytest.raises(ebbtide.InvalidError, match="count") as wrong:
        weather.insert(rows)
    assert (wrong.value.code_name, wrong.value.index, wrong.value.stored) == ("TypeMismatch", 1, 0)
    with pytest.raises(ebbtide.InvalidError) as without:
        weather.insert([{"time": START}, {"time": START}, {"count": 1}])
    assert without.value.index == 2
    assert weather.count() == 120


def test_a_large_table_is_stored_in_parts(db: ebbtide.Database) -> None:
    pa = pytest.importorskip("pyarrow")
    collection = db.create_collection("parts")
    rows, bad = 1000, 999
    stamps = pa.array([*range(bad), None], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    table = pa.table({"time": stamps, "text": [str(row) * 20_000 for row in range(rows)]})
    assert table.nbytes > 48 << 20
    with pytest.raises(ebbtide.InvalidError) as wrong:
        collection.insert(table)
    assert wrong.value.index == bad
    assert 0 < wrong.value.stored < bad
    assert collection.count() == wrong.value.stored


def test_wrong_types(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    for data, words in [({"time": START}, "into a list"), ("text", "str"), (7, "int"), (None, "NoneType")]:
        with pytest.raises(TypeError, match=words):
            weather.insert(data)
    with pytest.raises(TypeError, match="object of type object"):
        weather.insert([{"time": START, "x": object()}])
    with pytest.raises(TypeError, match="the name of a field is a str, not int"):
        weather.insert([{"time": START, 1: 2}])
    with pytest.raises(OverflowError):
        weather.insert([{"time": START, "count": 2**64}])
    with pytest.raises(ebbtide.InvalidError):
        weather.insert([7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expire_after must be a timedelta"):
        db.create_collection("x", expire_after="7 days")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="whole seconds"):
        weather.set_expiry(timedelta(milliseconds=1))
    with pytest.raises(TypeError):
        db.sql(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        db.sql("SELECT 1", at=7)  # type: ignore[arg-type]
    with pytest.raises(ebbtide.InvalidError):
        db.sql("SELECT 1", at="yesterday noon")
    with pytest.raises(TypeError):
        ebbtide.connect(7)  # type: ignore[arg-type]
    nested: list[object] = []
    nested.append(nested)
    with pytest.raises(ebbtide.InvalidError, match="nested deeper"):
        weather.insert([{"time": START, "x": nested}])


def test_no_time(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    pd, np = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    for missing in (pd.NaT, np.datetime64("NaT")):
        with pytest.raises(ebbtide.InvalidError):
            weather.insert([{"time": missing}])
        for call in (
            lambda: db.sql("SELECT 1", at=missing),
            lambda: weather.last_points(start=missing),
            lambda: weather.aggregate({"temp": "sum"}, end=missing),
            lambda: weather.explain_expiry(missing),
        ):
            with pytest.raises(ebbtide.InvalidError):
                call()
    assert weather.insert([{"time": START, "note": "none", "when": pd.NaT}]) == 1
    assert "when" not in db.sql("SELECT * FROM weather").columns
    assert weather.explain_expiry(np.datetime64("2024-01-01")).columns == weather.explain_expiry(START).columns


def test_what_no_field_holds(db: ebbtide.Database) -> None:
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    pd = pytest.importorskip("pandas")
    w = db.create_collection("w")
    many = decimal.Decimal("12345678901234567890.12")
    for data, words in [
        (pd.DataFrame({"time": [START], "p": pd.period_range("2024-01", periods=1, freq="M")}), "'p'.*pandas.period"),
        (pa.table({"time": [START], "b": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))}), "bool8"),
        (pl.DataFrame({"time": [START], "o": pl.Series([object()], dtype=pl.Object)}), "objects of Python"),
        (pl.DataFrame({"time": [START], "i": pl.Series([1], dtype=pl.Int128)}), "cannot be read"),
        (pa.table({"time": [START], "d": [decimal.Decimal("9007199254740993.5")]}), "'d'.*no double holds exactly"),
        (pd.Series([1]), "cannot be read"),
        (pl.Series([1]), "cannot be read"),
        (pa.Table.from_arrays([pa.array([START]), pa.array([1]), pa.nulls(1)], names=["time", "a", "a"]), "twice"),
    ]:
        with pytest.raises(ebbtide.InvalidError, match=words):
            w.insert(data)
    with pytest.raises(ebbtide.InvalidError, match="more digits than a double"):
        w.insert([{"time": START, "d": many}])
    with pytest.raises(ebbtide.InvalidError, match="too long"):
        w.aggregate({"x": "sum"}, every=10**40)
    assert w.count() == 0


def test_an_empty_path() -> None:
    with pytest.raises(ebbtide.Error, match="empty"):
        ebbtide.connect("")


def test_errors_can_be_pickled() -> None:
    error = ebbtide.InvalidError("no", 2, "BadValue", 3, 4)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code, copy.index, copy.stored) == (ebbtide.InvalidError, "no", 2, 3, 4)


def test_threads(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    def work(thread: int) -> int:
        for minute in range(20):
            weather.insert([{"time": START + timedelta(minutes=minute), "station": {"id": str(thread), "floor": 9}}])
            db.sql("SELECT avg(temp) FROM weather").fetchall()
        text = "SELECT count(*) FROM weather WHERE station['id'] = $1"
        return int(db.sql(text, str(thread)).fetchall()[0][0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [20] * 8
    assert weather.count() == 120 + 160


def test_other_threads_run_during_a_query(db: ebbtide.Database) -> None:
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    other = threading.Thread(target=tick)
    other.start()
    db.sql("SELECT sum(a.value * b.value) FROM generate_series(1, 3000) a, generate_series(1, 3000) b").fetchall()
    done.set()
    other.join()
    assert ticks > 10


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for another process there")
@pytest.mark.parametrize("how", ["fetchall()", "arrow()", "pl()", "__arrow_c_stream__()", "direct"])
def test_ctrl_c_ends_a_query(tmp_path: Path, how: str) -> None:
    packages = {"arrow()": ["pyarrow"], "pl()": ["polars"], "direct": ["polars"]}.get(how, [])
    for package in packages:
        pytest.importorskip(package)
    read = {
        "direct": "polars.DataFrame(result)",
        # The capsule itself waits for nothing: a reader does.
        "__arrow_c_stream__()": "result.__arrow_c_stream__(); result.fetchall()",
    }.get(how, f"result.{how}")
    # Polars turns an interrupt of the stream into its own error; one that comes in its Python code stays what it is.
    caught = "(KeyboardInterrupt, polars.exceptions.ComputeError)" if how == "direct" else "KeyboardInterrupt"
    # The thread says that the main thread is in a call, other than the one that started the thread.
    program = (
        # An interrupt that comes while a package is imported may be lost in it.
        f"import {', '.join(['ebbtide', 'sys', 'threading', *packages])}\n"
        f"db = ebbtide.connect({str(tmp_path / 'db')!r})\n"
        f"result = db.sql({ENDLESS!r})\n"
        "main = threading.get_ident()\n"
        "def tell():\n"
        "    while sys._current_frames()[main].f_code.co_filename in ('<string>', threading.__file__): pass\n"
        "    print('ready', flush=True)\n"
        "try:\n"
        "    threading.Thread(target=tell, daemon=True).start()\n"
        f"    {read}\n"
        "    for _ in range(10**9): pass\n"
        f"except {caught}:\n"
        "    assert db.sql('SELECT 1').fetchall() == [(1,)]\n"
        "    db.close()\n"
        "    print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "interrupted\n"
    assert child.returncode == 0


def test_an_interrupt_ends_one_query(db: ebbtide.Database) -> None:
    slow = "SELECT count(*) FROM generate_series(1, 4000) a, generate_series(1, 4000) b WHERE a.value + b.value < 0"
    copy = db.create_collection("copy")
    results: list[object] = []
    main = threading.get_ident()

    def interrupt(name: str) -> None:
        while sys._current_frames()[main].f_code.co_name != name:
            pass
        signal.raise_signal(signal.SIGINT)

    for name, call in [
        ("fetchall", lambda: db.sql(ENDLESS).fetchall()),
        ("_insert_result", lambda: copy.insert(db.sql(ENDLESS))),
    ]:
        other = threading.Thread(target=lambda: results.append(db.sql(slow).fetchall()))
        other.start()
        with pytest.raises(KeyboardInterrupt):
            threading.Thread(target=interrupt, args=(name,)).start()
            call()
        other.join()
    assert results == [[(0,)]] * 2
