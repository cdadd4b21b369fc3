"""Runs the views of a published table, whose texts are in a folder, in DuckDB and ClickHouse or those that are named, and prints what is
in them: program, rows and sum of v. A program that is not there is named on standard error."""

import os
import sys

from programs import ACCOUNT, AZURE, KEY, duckdb_with_delta

folder, name, *programs = sys.argv[1:]
# chdb reads what lies below its working folder.
os.chdir("/")
COUNT = f"SELECT count(*), coalesce(sum(v), 0) FROM {name}"


def text_of(view):
    with open(os.path.join(folder, view)) as file:
        return file.read()


def duckdb():
    program = duckdb_with_delta()
    return lambda: (program.sql(text_of("view.duckdb.sql")), program.sql(COUNT).fetchone())[1]


def clickhouse():
    from chdb.session import Session

    session = Session()
    if AZURE:
        # As the comment in the view says.
        url = f"{AZURE}/{ACCOUNT}"
        session.query(
            f"CREATE NAMED COLLECTION ebbtide AS storage_account_url = '{url}', account_name = '{ACCOUNT}', account_key = '{KEY}'"
        )
    return lambda: (session.query(text_of("view.clickhouse.sql")), str(session.query(COUNT, "TSV")).split())[1]


for program in (duckdb, clickhouse):
    if programs and program.__name__ not in programs:
        continue
    try:
        read = program()
    except ImportError as error:
        print(f"skipped: {program.__name__}: {error}", file=sys.stderr)
        continue
    print(program.__name__, *map(int, read()))
