"""Other packages read results, and what they hold goes in again, unchanged."""

from __future__ import annotations

import decimal
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import pytest

import ebbtide
from conftest import START

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SELECT = "SELECT time, station['id'] AS id, temp, \"count\", note, ok FROM weather ORDER BY time, id"


def plain(value: Any) -> Any:
    """A value without what packages differ in: NaN for null, their own classes for times and numbers."""
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    if hasattr(value, "item"):
        value = value.item()
    return None if value is None or value != value else value


def test_fetchall(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    rows = db.sql(SELECT).fetchall()
    assert len(rows) == 120
    assert rows[0] == (START, "cellar", None, 0, "minute 0", True)
    assert rows[-1] == (START + timedelta(minutes=59), "roof", 20 + 59 / 8, 59, "minute 59", False)
    assert rows[0][0].tzinfo is timezone.utc
    assert db.sql("SELECT station FROM weather LIMIT 1").fetchall()[0][0].keys() == {"id", "floor"}


@pytest.mark.parametrize("package", ["pyarrow", "polars", "pandas", "duckdb"])
def test_packages_read_the_same(db: ebbtide.Database, weather: ebbtide.Collection, package: str) -> None:
    pytest.importorskip(package)
    wanted = db.sql(SELECT).fetchall()
    result = db.sql(SELECT)
    if package == "pyarrow":
        rows = [tuple(row.values()) for row in result.arrow().to_pylist()]
    elif package == "polars":
        rows = result.pl().rows()
    elif package == "pandas":
        pytest.importorskip("pyarrow")
        rows = [tuple(row) for row in result.df().itertuples(index=False)]
    else:
        import duckdb

        # Its own times with a zone need one more package.
        rows = duckdb.sql("SELECT * REPLACE (epoch_ms(time) AS time) FROM result").fetchall()
        rows = [(EPOCH + timedelta(milliseconds=row[0]), *row[1:]) for row in rows]
    assert [tuple(plain(cell) for cell in row) for row in rows] == wanted


def test_a_result_can_be_read_again(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    result = db.sql("SELECT count(*) FROM weather")
    assert result.fetchall() == [(120,)]
    weather.insert([{"time": START, "station": {"id": "roof", "floor": 0}}])
    assert result.fetchall() == [(121,)]


def test_the_first_read_sees_what_was_there_before(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    result = db.sql("SELECT count(*) FROM weather")
    weather.insert([{"time": START, "station": {"id": "roof", "floor": 0}}])
    assert result.fetchall() == [(120,)]
    assert result.fetchall() == [(121,)]


def test_rows_come_in_batches(db: ebbtide.Database) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    # More rows than any memory holds: only a stream begins.
    result = db.sql("SELECT a.value FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b")
    reader = pyarrow.RecordBatchReader.from_stream(result)
    assert reader.read_next_batch().num_rows > 0


def test_numbers_are_not_copied(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pl = pytest.importorskip("polars")
    last = db.last_points("weather")
    read = [pyarrow.table(last).column("count").chunk(0).buffers()[1].address for _ in range(2)]
    assert read[0] == read[1]
    pytest.importorskip("numpy")
    assert pl.DataFrame(last)["count"].to_numpy(allow_copy=False).ctypes.data == read[0]


@pytest.mark.parametrize("package", ["pyarrow", "polars", "pandas", "duckdb", "result"])
def test_packages_write_the_same(db: ebbtide.Database, weather: ebbtide.Collection, package: str) -> None:
    pytest.importorskip("pyarrow")
    if package != "result":
        pytest.importorskip(package)
    result = db.sql("SELECT * FROM weather")
    data: Any = result
    if package == "pyarrow":
        data = result.arrow()
    elif package == "polars":
        data = result.pl()
    elif package == "pandas":
        data = result.df()
    elif package == "duckdb":
        import duckdb

        data = duckdb.sql("SELECT * FROM result").arrow()
    copy = db.create_collection("copy", time="time", meta="station")
    assert copy.insert(data) == 120
    order = "ORDER BY time, station['id']"
    assert db.sql(f"SELECT * FROM copy {order}").fetchall() == db.sql(f"SELECT * FROM weather {order}").fetchall()


def test_a_pandas_index_with_a_name_is_a_column(db: ebbtide.Database) -> None:
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"temp": [1.0, float("nan"), 3.0]}, index=pd.date_range(START, periods=3, freq="h", name="time"))
    collection = db.create_collection("hours", time="time")
    assert collection.insert(frame) == 3
    assert collection.insert(frame.reset_index().iloc[1:]) == 2
    assert db.sql("SELECT count(*), count(temp) FROM hours").fetchall() == [(5, 3)]
    assert db.sql("SELECT * FROM hours").columns == ["time", "temp"]


def test_a_pandas_range_with_a_name_is_a_column_too(db: ebbtide.Database) -> None:
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"time": [START] * 2, "__index_level_x": [1, 2]}, index=pd.RangeIndex(10, 12, name="seq"))
    db.create_collection("w").insert(frame)
    assert db.sql('SELECT seq, "__index_level_x" FROM w ORDER BY seq').fetchall() == [(10, 1), (11, 2)]


def test_slices_of_objects_within_objects(db: ebbtide.Database) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = [{"b": {"c": i, "d": [i]}} for i in range(5)]
    table = pa.table({"time": [START] * 5, "a": rows, "f": pa.array([[i, i] for i in range(5)], pa.list_(pa.int64(), 2))})
    w = db.create_collection("w")
    batch = table.to_batches()[0]
    for data in (table.slice(1, 2), batch.slice(2), table.slice(4).to_reader(), batch.to_struct_array()[3:]):
        w.insert(data)
    wanted = sorted([1, 2, 2, 3, 4, 4, 3, 4])
    assert db.sql("SELECT a['b']['c'], a['b']['d'][1], f[2] FROM w ORDER BY 1").fetchall() == [(i, i, i) for i in wanted]


def test_polars_columns_without_a_type(db: ebbtide.Database) -> None:
    pytest.importorskip("pyarrow")
    pl = pytest.importorskip("polars")
    w = db.create_collection("w")
    w.insert(pl.DataFrame({"time": [START], "x": [None], "y": [[None]], "z": [{"u": None, "v": 1}]}))
    w.insert([{"time": START, "x": "text", "y": [1]}])
    assert db.sql("SELECT x, y, z['v'] FROM w ORDER BY x NULLS FIRST").fetchall() == [(None, [None], 1), ("text", [1], None)]


def test_values_of_python(db: ebbtide.Database) -> None:
    row = db.sql(
        "SELECT 1::int, 2.5, 'x', true, NULL, DATE '2024-02-29', TIMESTAMP '2024-01-01T00:00:00.123456Z', "
        "1.25::decimal(10, 2), [1, 2], {'a': 1}, X'00ff'"
    ).fetchall()[0]
    assert row[:6] == (1, 2.5, "x", True, None, date(2024, 2, 29))
    assert row[6].replace(tzinfo=timezone.utc) == datetime(2024, 1, 1, microsecond=123456, tzinfo=timezone.utc)
    assert row[7:] == (decimal.Decimal("1.25"), [1, 2], {"a": 1}, b"\x00\xff")
    row = db.sql(
        "SELECT $1::timestamp - $2::timestamp, TIME '01:02:03.000004', 1::decimal(50, 2), arrow_cast(1.5, 'Float16'), "
        "arrow_cast(X'00ff', 'FixedSizeBinary(2)'), arrow_cast([1, 2], 'FixedSizeList(2, Int64)'), "
        "[arrow_cast(1, 'Dictionary(Int32, Int64)')]",
        START, START - timedelta(days=1),
    ).fetchall()[0]
    assert row == (timedelta(days=1), time(1, 2, 3, 4), decimal.Decimal("1.00"), 1.5, b"\x00\xff", [1, 2], [1])


def test_parameters(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    text = "SELECT count(*) FROM weather WHERE time >= $1 AND station['id'] = $2 AND \"count\" < $3"
    assert db.sql(text, START + timedelta(minutes=30), "roof", 40).fetchall() == [(10,)]
    assert db.sql(text, date(2024, 1, 1), "roof", 40.5).fetchall() == [(41,)]
    with pytest.raises(ebbtide.InvalidError, match="expected 3"):
        db.sql(text, 1)
    with pytest.raises(TypeError, match="object of type set"):
        db.sql(text, START, "roof", {1})
    assert db.sql("SELECT $1", timedelta(days=-1)).fetchall() == [(timedelta(days=-1),)]
    with pytest.raises(ebbtide.InvalidError, match="64 bits"):
        db.sql("SELECT $1", timedelta.max)


def test_parameters_of_packages(db: ebbtide.Database) -> None:
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    for nanos in (pd.Timedelta(5, "ns"), np.timedelta64(5, "ns")):
        assert db.sql("SELECT arrow_cast($1, 'Int64')", nanos).fetchall() == [(5,)]
    assert db.sql("SELECT $1", np.timedelta64(5, "s")).fetchall() == [(timedelta(seconds=5),)]
    for missing in (pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT")):
        assert db.sql("SELECT $1 IS NULL", missing).fetchall() == [(True,)]
    with pytest.raises(ebbtide.InvalidError, match="timedelta64"):
        db.sql("SELECT $1", np.timedelta64(5, "M"))


def test_html(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    html = db.sql("SELECT time, temp, '<b>&' AS note FROM weather ORDER BY time")._repr_html_()
    assert "<th>temp</th>" in html and "&lt;b&gt;&amp;" in html and "<b>" not in html
    assert html.count("<tr>") == 21 and "the first 20 rows" in html
    assert "<svg" in html
    assert "<svg" not in db.sql("SELECT 1 AS one")._repr_html_()
    assert "created" in db.sql("CREATE COLLECTION other WITH (timeField = 't')")._repr_html_()


def test_chart(db: ebbtide.Database, weather: ebbtide.Collection) -> None:
    chart = db.sql("SELECT time, avg(temp) AS temp FROM weather GROUP BY 1").chart("Warm & cold")
    assert chart.svg.startswith("<svg") and "Warm &amp; cold" in chart._repr_svg_()
    with pytest.raises(ebbtide.InvalidError, match="nothing to draw"):
        db.sql("SELECT 'a' AS a").chart()
