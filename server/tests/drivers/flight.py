"""What clients of Flight SQL see: python flight.py PORT, of a server without accounts that serves the database `weather` with the
collection `w` of serve_postgres.rs; and python flight.py PORT NAME PASSWORD TOKEN, of one where that account may read."""

import datetime as dt
import sys
import urllib.request

import adbc_driver_flightsql.dbapi as flight
import pandas
import polars
import pyarrow as pa
import pyarrow.flight as raw

PORT = int(sys.argv[1])
UTC = dt.timezone.utc
FIRST = dt.datetime(2024, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)


def refused(says, work):
    try:
        work()
    except flight.Error as error:
        assert says in str(error), error
        return
    raise AssertionError(f"not refused with {says}")


ADDRESS = f"grpc://127.0.0.1:{PORT}"


def field(number, content):
    """A field of a message of Protocol Buffers that holds bytes, text or a message."""
    size, length = len(content), b""
    while size > 127:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def asked(sql):
    """A command of Flight SQL, CommandStatementQuery in google.protobuf.Any, for clients that know Flight alone."""
    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return raw.FlightDescriptor.for_command(field(1, kind) + field(2, field(1, sql.encode())))


def fetched(client, sql, options):
    (endpoint,) = client.get_flight_info(asked(sql), options).endpoints
    return client.do_get(endpoint.ticket, options).read_all()


if len(sys.argv) > 2:
    NAME, PASSWORD, TOKEN = sys.argv[2:]

    def login(name, password):
        return flight.connect(ADDRESS, db_kwargs={"username": name, "password": password}, autocommit=True)

    with login(NAME, PASSWORD) as db, db.cursor() as cursor:
        cursor.execute("SELECT count(*) AS n FROM w")
        assert cursor.fetch_arrow_table().to_pylist() == [{"n": 2}]
        refused("this statement needs the role write", lambda: cursor.execute("DELETE FROM w"))
        table = pa.table({"t": pa.array([FIRST], pa.timestamp("ms", "UTC")), "s": ["x"]})
        refused("needs the role write", lambda: cursor.adbc_ingest("w", table, mode="append"))
    refused("the login was refused", lambda: login(NAME, "wrong").cursor().execute("SELECT 1"))
    # Whatever the length of what is encoded.
    for password in ["wrong", "wrong1", "wrong12"]:
        refused("the login was refused", lambda: login(NAME, password).cursor().execute("SELECT 1"))
    unreadable = {"adbc.flight.sql.authorization_header": "Basic !"}
    refused("cannot be decoded", lambda: flight.connect(ADDRESS, db_kwargs=unreadable, autocommit=True).cursor().execute("SELECT 1"))
    refused("a login is needed", lambda: flight.connect(ADDRESS, autocommit=True).cursor().execute("SELECT 1"))
    bearer = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
    with flight.connect(ADDRESS, db_kwargs=bearer, autocommit=True) as db, db.cursor() as cursor:
        cursor.execute("SELECT count(*) AS n FROM w")
        assert cursor.fetch_arrow_table().to_pylist() == [{"n": 2}]
    with raw.connect(ADDRESS) as client:
        for header in [client.authenticate_basic_token(NAME, PASSWORD), (b"authorization", f"Bearer {TOKEN}".encode())]:
            options = raw.FlightCallOptions(headers=[header])
            assert fetched(client, "SELECT s FROM w ORDER BY t", options).to_pydict() == {"s": ["roof", "yard"]}
        for headers in [[], [(b"authorization", b"Bearer ebt_nothing")]]:
            try:
                client.get_flight_info(asked("SELECT 1"), raw.FlightCallOptions(headers=headers))
            except raw.FlightUnauthenticatedError:
                continue
            raise AssertionError(f"not refused: {headers}")
    print("done")
    sys.exit()

with raw.connect(ADDRESS) as client:
    options = raw.FlightCallOptions()
    info = client.get_flight_info(asked("SELECT t, temp FROM w ORDER BY t"), options)
    assert info.schema.names == ["t", "temp"], info.schema
    assert client.get_schema(asked("SELECT t, temp FROM w"), options).schema == info.schema
    assert client.get_schema(asked("DELETE FROM w"), options).schema.names == []
    assert fetched(client, "SELECT t, temp FROM w ORDER BY t", options).to_pydict()["temp"] == [21.5, None]
    assert fetched(client, "SELECT value FROM generate_series(1, 1000000)", options).num_rows == 1_000_000
    try:
        client.get_flight_info(asked("SELECT nope FROM w"), options)
        raise AssertionError("a wrong statement is not refused")
    except pa.ArrowInvalid as error:
        assert "there is no column 'nope'" in str(error), error

with flight.connect(f"grpc://127.0.0.1:{PORT}", autocommit=True) as db, db.cursor() as cursor:

    def rows(sql, parameters=None):
        cursor.execute(sql, parameters)
        return [tuple(row.values()) for row in cursor.fetch_arrow_table().to_pylist()]

    assert rows("SELECT t, s, temp, n, ok FROM w ORDER BY t") == [
        (FIRST, "roof", 21.5, 3, True),
        (dt.datetime(2024, 1, 2, tzinfo=UTC), "yard", None, -3, False),
    ]
    assert rows("SELECT s FROM w WHERE temp > $1 AND n < $2", (1.5, 10)) == [("roof",)]
    nothing = pa.table({"t": pa.array([], pa.timestamp("ms", "UTC")), "s": pa.array([], pa.string())})
    assert cursor.adbc_ingest("w", nothing, mode="append") == 0
    # Values change the types of columns, and whether they have nulls.
    assert rows("SELECT s, $1 AS label FROM w ORDER BY t LIMIT 1", ("x",)) == [("roof", "x")]
    assert rows("SELECT n + $1 AS v FROM w ORDER BY t", (0.5,)) == [(3.5,), (-2.5,)]
    assert rows("SELECT coalesce(temp, $1) AS v FROM w ORDER BY t", (1.5,)) == [(21.5,), (1.5,)]
    assert rows("SELECT $1::int + 1 AS v", (1,)) == [(2,)]
    assert db.adbc_get_info()["vendor_name"] == "Ebbtide"
    assert db.adbc_get_table_types() == ["BASE TABLE", "VIEW"]
    assert db.adbc_get_table_schema("w").names == ["t", "s", "temp", "n", "ok", "o"]
    (catalog,) = db.adbc_get_objects(depth="all").read_all().to_pylist()
    assert catalog["catalog_name"] == "weather"
    (public,) = [schema for schema in catalog["catalog_db_schemas"] if schema["db_schema_name"] == "public"]
    assert [table["table_name"] for table in public["db_schema_tables"]] == ["w"], public

    start = dt.datetime(2024, 7, 1, tzinfo=UTC)
    table = pa.table(
        {
            "t": pa.array([start + dt.timedelta(seconds=at) for at in range(100_000)], pa.timestamp("ms", "UTC")),
            "s": [f"sent{at % 10}" for at in range(100_000)],
            "temp": [at / 8 for at in range(100_000)],
        }
    )
    assert cursor.adbc_ingest("w", table, mode="append") == 100_000
    assert rows("SELECT count(*), sum(temp) FROM w WHERE s LIKE 'sent%'") == [(100_000, sum(at / 8 for at in range(100_000)))]
    cursor.execute("DELETE FROM w WHERE s LIKE 'sent%'")
    assert cursor.rowcount == 100_000, cursor.rowcount
    assert rows("SELECT count(*) FROM w") == [(2,)]
    two = [(dt.datetime(2024, 8, day, tzinfo=UTC), "many", float(day)) for day in (1, 2)]
    cursor.executemany("INSERT INTO w (t, s, temp) VALUES ($1, $2, $3)", two)
    assert cursor.rowcount == 2
    cursor.execute("DELETE FROM w WHERE s = 'many'")
    assert rows("SELECT count(*) FROM w") == [(2,)]

    refused("there is no column 'nope'", lambda: rows("SELECT nope FROM w"))
    refused("CREATE COLLECTION nowhere", lambda: cursor.adbc_ingest("nowhere", table, mode="create"))
    refused("'weather', not to 'other'", lambda: cursor.adbc_ingest("w", table, mode="append", catalog_name="other"))
    assert cursor.adbc_ingest("w", table.slice(0, 10), mode="append", catalog_name="weather") == 10
    cursor.execute("DELETE FROM w WHERE s LIKE 'sent%'")
    refused("exists already", lambda: cursor.adbc_ingest("w", table, mode="create"))
    refused("DROP COLLECTION", lambda: cursor.adbc_ingest("w", table, mode="replace"))
    refused("temp", lambda: cursor.adbc_ingest("w", pa.table({"t": table["t"][:1], "temp": ["warm"]}), mode="append"))
    # Small batches arrive together: those before the one with a row that is refused are stored.
    schema = pa.schema([("t", pa.timestamp("ms")), ("s", pa.string())])
    batches = [pa.record_batch([[1_700_000_000_000 + row for row in range(10)], [f"batch {at}"] * 10], schema) for at in range(20)]
    without_time = pa.record_batch([[1_700_000_000_000] * 9 + [None], ["bad"] * 10], schema)
    reader = pa.RecordBatchReader.from_batches(schema, [*batches, without_time, *batches])
    refused("200 rows before it are stored", lambda: cursor.adbc_ingest("w", reader, mode="append"))
    cursor.execute("SELECT count(*), count(DISTINCT s) FROM w WHERE s LIKE 'ba%'")
    assert cursor.fetchone() == (200, 20)
    cursor.execute("DELETE FROM w WHERE s LIKE 'ba%'")
    assert rows("SELECT count(*) FROM w") == [(2,)]
    cursor.execute("SHOW COLLECTIONS")
    assert cursor.fetch_arrow_table().column("name").to_pylist() == ["w"]
    cursor.execute("SELECT value, value * 2 AS twice FROM generate_series(1, 3000000)")
    assert sum(batch.num_rows for batch in cursor.fetch_record_batch()) == 3_000_000
    assert pandas.read_sql("SELECT s, temp FROM w ORDER BY t", db)["s"].tolist() == ["roof", "yard"]
    assert polars.read_database("SELECT s, temp FROM w ORDER BY t", db).shape == (2, 2)


def is_running():
    """Whether the server works at a statement."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as page:
        return b"\nebbtide_server_sql_running 0\n" not in page.read()


# A result without an end comes as it is read, and ends with its reader.
with raw.connect(ADDRESS) as client:
    (endpoint,) = client.get_flight_info(asked("SELECT value FROM generate_series(1, 1000000000000)")).endpoints
    reader = client.do_get(endpoint.ticket)
    assert sum(reader.read_chunk().data.num_rows for _ in range(100)) > 100
    assert is_running()
    reader.cancel()
    while is_running():
        pass

    # Ends by its ticket too, from another connection; the reader learns why.
    info = client.get_flight_info(asked("SELECT value FROM generate_series(1, 1000000000000)"))
    reader = client.do_get(info.endpoints[0].ticket)
    reader.read_chunk()
    assert is_running()
    (cancelled,) = client.do_action(raw.Action("CancelFlightInfo", field(1, info.serialize())))
    assert cancelled.body.to_pybytes() == bytes([8, 1]), cancelled
    try:
        while True:
            reader.read_chunk()
    except raw.FlightCancelledError as error:
        assert "the query was cancelled by its client" in str(error), error
    while is_running():
        pass
    for name, says in [("CancelFlightInfo", "no query of this result is running"), ("Reboot", "there is no action 'Reboot'")]:
        try:
            list(client.do_action(raw.Action(name, field(1, info.serialize()))))
            raise AssertionError(f"{name} is not refused")
        except (KeyError, pa.ArrowInvalid) as error:
            assert says in str(error), error
    assert "CancelFlightInfo" in [action.type for action in client.list_actions()]
with flight.connect(ADDRESS, autocommit=True) as db, db.cursor() as cursor:
    assert cursor.adbc_execute_schema("SELECT t, temp FROM w").names == ["t", "temp"]
    cursor.execute("SELECT value FROM generate_series(1, 1000000000000)")
    with cursor.fetch_record_batch() as reader:
        assert next(iter(reader)).num_rows > 0
        assert is_running()
while is_running():
    pass

print("done")
