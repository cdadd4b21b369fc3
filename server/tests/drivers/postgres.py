"""What clients of PostgreSQL's protocol in Python see: python postgres.py PORT, of a server without accounts that serves the
database `weather` with the collection `w` of serve_postgres.rs."""

import asyncio
import datetime as dt
import decimal
import sys
import uuid

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import psycopg

PORT = int(sys.argv[1])
UTC = dt.timezone.utc
FIRST = dt.datetime(2024, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)


def connect(**options):
    return psycopg.connect(host="127.0.0.1", port=PORT, dbname="weather", user="me", **options)


def refused(state, work):
    try:
        work()
    except psycopg.Error as error:
        assert error.sqlstate == state, (error.sqlstate, error)
        return str(error)
    raise AssertionError(f"not refused with {state}")


def with_psycopg():
    with connect(autocommit=True) as db:
        rows = db.execute("SELECT * FROM w ORDER BY t").fetchall()
        assert rows == [
            (FIRST, "roof", 21.5, 3, True, '{"a":1}'),
            (dt.datetime(2024, 1, 2, tzinfo=UTC), "yard", None, -3, False, None),
        ], rows
        assert db.cursor(binary=True).execute("SELECT * FROM w ORDER BY t").fetchall() == rows
        found = db.execute("SELECT s FROM w WHERE t >= %s AND temp > %s ORDER BY t LIMIT %s", (FIRST, 1.5, 5)).fetchall()
        assert found == [("roof",)], found
        insert = "INSERT INTO w (t, s, temp, n) VALUES (%s, %s, %s, %s)"
        assert db.execute(insert, (dt.datetime(2024, 2, 1, tzinfo=UTC), "it's", 2.5, 7)).rowcount == 1
        assert db.execute(insert, (dt.datetime(2024, 2, 2, tzinfo=UTC), None, None, None)).rowcount == 1
        with db.cursor() as cursor:
            many = [(dt.datetime(2024, 3, 1, hour, tzinfo=UTC), "many", hour / 2, hour) for hour in range(24)]
            cursor.executemany(insert, many)
            assert cursor.rowcount == 24
        assert db.execute("SELECT count(*), sum(n) FROM w WHERE s = %s", ("many",)).fetchone() == (24, 276)
        for query in ["COPY (SELECT s, n, temp FROM w WHERE s = 'many' ORDER BY t) TO STDOUT", "COPY w TO STDOUT"]:
            with db.cursor().copy(query) as copy:
                rows = list(copy.rows())
            assert len(rows) in (24, 28), rows
        with db.cursor().copy("COPY (SELECT s, n, NULL AS x, '' AS y FROM w ORDER BY t LIMIT 1) TO STDOUT (FORMAT csv, HEADER)") as copy:
            assert b"".join(copy) == b's,n,x,y\nroof,3,,""\n'
        with db.cursor().copy("COPY (SELECT n, temp FROM w WHERE s = 'many' ORDER BY t) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int8", "float8"])
            assert list(copy.rows())[2] == (2, 1.0)
        assert db.execute("DELETE FROM w WHERE s = %s OR n = %s OR s IS NULL", ("many", 7)).rowcount == 26
        for condition, names in [("<> ALL(%t::text[])", ["roof", "yard"]), ("<> ALL(%t)", ["roof", "yard"]), ("= ANY(%t)", [])]:
            assert db.execute(f"DELETE FROM w WHERE s {condition}", (names,)).rowcount == 0, condition
        values = db.execute(
            "SELECT 1::int2, 2::int4, 3::int8, 1.5::float4, 'x', date '2024-01-02', 12.50::decimal(10,2), NULL, [1, 2],"
            " {'a': 1}, interval '1 day 2 hours', X'00ff'"
        ).fetchone()
        assert values == (
            1, 2, 3, 1.5, "x", dt.date(2024, 1, 2), decimal.Decimal("12.50"), None, [1, 2],
            {"a": 1}, dt.timedelta(days=1, hours=2), b"\x00\xff",
        ), values
        for binary in (False, True):
            ranks = db.cursor(binary=binary).execute("SELECT row_number() OVER (ORDER BY t) AS n FROM w ORDER BY t")
            assert (ranks.fetchall(), ranks.description[0].type_code) == ([(1,), (2,)], 20), binary
        small = db.cursor(binary=True).execute("SELECT (-5)::tinyint, [(-5)::tinyint, NULL], arrow_cast(X'0a', 'FixedSizeBinary(1)')")
        assert small.fetchone() == (-5, [-5, None], b"\n")
        above = "arrow_cast(18446744073709551615, 'UInt64')"
        assert "CAST" in refused("22003", lambda: db.execute(f"SELECT {above} AS n").fetchall())
        assert db.execute(f"SELECT CAST({above} AS NUMERIC(20, 0))").fetchone() == (decimal.Decimal(2**64 - 1),)
        assert "did you mean SELECT" in refused("42601", lambda: db.execute("SELEC 1"))
        refused("22P02", lambda: db.execute("SELECT %s::int8 + n FROM w", ("seven",)))
        far = dt.datetime(2300, 1, 1, tzinfo=UTC)
        assert db.execute("INSERT INTO w (t, s) VALUES (%s, 'far')", (far,)).rowcount == 1
        assert db.execute("DELETE FROM w WHERE t = %s AND s = ANY(%s)", (far, ["near"])).rowcount == 0
        assert db.execute("DELETE FROM w WHERE t = ANY(%s) AND s = ANY(%s)", ([far], ["near", "far"])).rowcount == 1
        assert db.execute("SELECT TIMESTAMPTZ '2024-01-01 02:00:00.5+02'").fetchone() == (FIRST,)
        number = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
        assert db.execute("SELECT %b || '', %b || ''", (number, dt.time(1, 2, 3))).fetchone() == (str(number), "01:02:03.000000")
        with db.cursor().copy("COPY (SELECT 'Infinity'::float8, '-Infinity'::float8, [interval '1 day']) TO STDOUT (FORMAT csv)") as copy:
            assert b"".join(copy) == b'Infinity,-Infinity,"{""1 day""}"\n'
        columns = "SELECT ordinal_position, data_type FROM information_schema.columns WHERE table_name = 'w' ORDER BY 1 LIMIT 3"
        expected = [(1, "timestamp with time zone"), (2, "text"), (3, "double precision")]
        assert db.execute(columns).fetchall() == expected
        many = "SELECT count(*) FROM w WHERE s = ANY(%s) AND t <> ALL(%s) AND n = ANY(%s::int8[])"
        assert db.execute(many, (["roof", "attic, \"old\""], [], [3, 4])).fetchone() == (1,)
        hour = dt.timedelta(hours=1, microseconds=5)
        late = dt.timedelta(hours=1)
        assert db.execute("SELECT %s::interval, t + %s FROM w ORDER BY t LIMIT 1", (hour, late)).fetchone() == (hour, FIRST + late)
        day = dt.datetime(2024, 1, 1, tzinfo=UTC)
        assert db.execute("SELECT date_trunc(%s, t) FROM w ORDER BY t LIMIT 1", ("day",)).fetchone() == (day,)
        sums = "SELECT sum(n) OVER (ORDER BY t ROWS BETWEEN %s PRECEDING AND CURRENT ROW) FROM w ORDER BY t"
        assert db.execute(sums, (1,)).fetchall() == [(3,), (0,)]
        assert db.execute("SELECT to_char(t AT TIME ZONE %s, 'HH24:MI') FROM w ORDER BY t LIMIT 1", ("Asia/Kolkata",)).fetchone() == ("05:30",)
        filled = "SELECT date_bin_gapfill('12 hours', t) AS b, count(n) FROM w WHERE t >= %s AND t < %s GROUP BY b"
        assert len(db.execute(filled, (day, day + dt.timedelta(days=2))).fetchall()) == 4
        assert psycopg.types.TypeInfo.fetch(db, "hstore") is None
        # psycopg declares no type for a list of texts in text form.
        assert db.execute("SELECT %t, %t, %b", ([1.5, None], ["a", "b,c"], ["a", "b,c"])).fetchone() == ([1.5, None], '{a,"b,c"}', ["a", "b,c"])
        assert psycopg.ClientCursor(db).execute("SELECT %s", (b"\x00\xff",)).fetchone() == (b"\x00\xff",)
        for state, wrong in [
            ("42703", "SELECT nope FROM w"), ("42883", "SELECT nope(n) FROM w"), ("22012", "SELECT n / 0 FROM w"),
            ("22003", "SELECT 9223372036854775807 + n FROM w WHERE n > 0"), ("22P02", "SELECT 'x'::int8"), ("42P01", "SELECT 1 FROM nope"),
        ]:
            refused(state, lambda: db.execute(wrong))
        refused("26000", lambda: db.execute("DEALLOCATE nope"))
        refused("26000", lambda: db.execute("EXECUTE nope"))
        refused("0A000", lambda: db.execute("SET TIME ZONE 'Europe/Berlin'"))
        db.execute("SET statement_timeout = '20ms'")
        endless = "SELECT count(*) FROM generate_series(1, 10000000) a JOIN generate_series(1, 10000000) b ON a.value * b.value = -1"
        assert "timeout" in refused("57014", lambda: db.execute(endless))
        db.execute("RESET statement_timeout")
        assert db.execute("SHOW statement_timeout").fetchone() == ("0",)
        db.execute("SET default_transaction_read_only = on")
        refused("25006", lambda: db.execute("DELETE FROM w"))
    with connect() as db:
        assert db.execute("SELECT count(*) FROM w").fetchone() == (2,)
        with db.transaction():
            db.execute("SELECT 1")
        assert "autocommit" in refused("0A000", lambda: db.execute("INSERT INTO w (t, s) VALUES (now(), 'x')"))
        refused("25P02", lambda: db.execute("SELECT 1"))
        db.rollback()
        rows = list(db.cursor().stream("SELECT value FROM generate_series(1, 100000)"))
        assert len(rows) == 100000 and rows[-1] == (100000,)


async def with_asyncpg():
    db = await asyncpg.connect(host="127.0.0.1", port=PORT, database="weather", user="me")
    rows = await db.fetch("SELECT s, temp FROM w WHERE t >= $1 AND temp > $2 LIMIT $3", FIRST, 0.5, 2)
    assert [tuple(row) for row in rows] == [("roof", 21.5)], rows
    done = await db.execute("INSERT INTO w (t, s, temp, n) VALUES ($1, $2, $3, $4)", dt.datetime(2024, 4, 1, tzinfo=UTC), "a", 1.5, 3)
    assert done == "INSERT 0 1", done
    assert await db.execute("DELETE FROM w WHERE s = ANY($1) AND n = ANY($2) AND temp > $3", ["a", "b"], [3, 4], 1.0) == "DELETE 1"
    async with db.transaction():
        values = [row["value"] async for row in db.cursor("SELECT value FROM generate_series(1, 1000)", prefetch=7)]
    assert values == list(range(1, 1001))
    assert await db.fetchval("SELECT array_agg(temp) FROM w") == [21.5, None]
    assert await db.fetchval("SELECT [1, 2]") == [1, 2]
    assert await db.fetchval("SELECT $1::int + 1", 5) == 6
    assert await db.fetchval("SELECT count(*) FROM w WHERE t > $1::timestamptz", FIRST) == 1
    assert await db.fetchval("SELECT count(*) FROM w WHERE n = ANY($1::int8[])", [3, 4]) == 1
    assert await db.fetchval("SELECT count(*) FROM w WHERE s = ANY($1)", ["roof", "attic"]) == 1
    assert await db.fetchval("SELECT count(*) FROM w WHERE t = ANY($1)", [FIRST]) == 1
    assert await db.fetchval("SELECT date_trunc($1, t) FROM w ORDER BY t LIMIT 1", "day") == FIRST.replace(microsecond=0)
    assert await db.fetchval("SELECT max(t) - $1::interval FROM w", dt.timedelta(days=1, hours=1)) == dt.datetime(2023, 12, 31, 23, tzinfo=UTC)
    frame = "SELECT count(*) OVER (ORDER BY t ROWS BETWEEN $1 PRECEDING AND CURRENT ROW) FROM w ORDER BY t"
    assert [row[0] for row in await db.fetch(frame, 0)] == [1, 1]
    filled = "SELECT date_bin_gapfill('12 hours', t) AS b, count(n) FROM w WHERE t >= $1 AND t < $2 GROUP BY b"
    assert len(await db.fetch(filled, FIRST.replace(microsecond=0), dt.datetime(2024, 1, 3, tzinfo=UTC))) == 4
    await db.reset()
    await db.close()
    async with asyncpg.create_pool(host="127.0.0.1", port=PORT, database="weather", user="me", min_size=2, max_size=8) as pool:
        counts = await asyncio.gather(*(pool.fetchval("SELECT count(*) FROM w WHERE n > $1", -100 + at) for at in range(50)))
    assert counts == [2] * 50, counts


def with_adbc():
    with adbc.connect(f"postgresql://me@127.0.0.1:{PORT}/weather") as db, db.cursor() as cursor:
        cursor.execute("SELECT t, s, temp, n, ok FROM w ORDER BY t")
        table = cursor.fetch_arrow_table()
        assert table.column("t").to_pylist()[0] == FIRST, table
        assert table.column("temp").to_pylist() == [21.5, None], table
        schema = db.adbc_get_table_schema("w")
        assert schema.names == ["t", "s", "temp", "n", "ok", "o"], schema
        cursor.execute("SELECT n FROM w WHERE n > 100")
        assert cursor.fetch_arrow_table().num_rows == 0


def with_odbc():
    try:
        import pyodbc

        options = f"Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={PORT};Database=weather;Uid=me;"
        db = pyodbc.connect(options, autocommit=True)
    except Exception as error:
        print(f"skipped: ODBC cannot be had: {error}")
        return
    cursor = db.cursor()
    assert [row.table_name for row in cursor.tables(tableType="TABLE")] == ["w"]
    columns = [(row.column_name, row.type_name) for row in cursor.columns(table="w")]
    assert columns[:3] == [("t", "timestamptz"), ("s", "text"), ("temp", "float8")], columns
    assert cursor.execute("SELECT s FROM w WHERE temp > ?", 1.5).fetchall()[0][0] == "roof"
    cursor.execute("INSERT INTO w (t, s, temp) VALUES (?, ?, ?)", "2024-06-01 00:00:00+00", "odbc", 2.5)
    assert cursor.execute("DELETE FROM w WHERE s = ?", "odbc").rowcount == 1
    print("odbc")


with_psycopg()
asyncio.run(with_asyncpg())
with_adbc()
with_odbc()
print("done")
