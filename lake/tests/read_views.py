"""Runs the views of a published table in DuckDB and ClickHouse, and prints what is in them: program, rows and sum of v. A program that
is not there is named on standard error."""

import glob
import os
import sys

folder, name = sys.argv[1:]
# chdb reads what lies below its working folder.
os.chdir("/")
COUNT = f"SELECT count(*), sum(v) FROM {name}"


def text_of(view):
    with open(os.path.join(folder, view)) as file:
        return file.read()


def duckdb():
    import duckdb
    import duckdb_extension_delta

    found = glob.glob(os.path.join(list(duckdb_extension_delta.__path__)[0], "**", "*.duckdb_extension"), recursive=True)
    duckdb.sql(f"LOAD '{found[0]}'")
    return lambda: (duckdb.sql(text_of("view.duckdb.sql")), duckdb.sql(COUNT).fetchone())[1]


def clickhouse():
    from chdb.session import Session

    session = Session()
    return lambda: (session.query(text_of("view.clickhouse.sql")), str(session.query(COUNT, "TSV")).split())[1]


for program in (duckdb, clickhouse):
    try:
        read = program()
    except ImportError as error:
        print(f"skipped: {program.__name__}: {error}", file=sys.stderr)
        continue
    print(program.__name__, *map(int, read()))
