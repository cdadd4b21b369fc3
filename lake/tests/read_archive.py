"""Reads an archive with other programs, and compares what they find. Arguments: the folder, the rows, the sum of v."""

import sys

folder, rows, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def check(reader, found):
    if found != (rows, total):
        sys.exit(f"{reader} finds {found} and not {(rows, total)}")
    print(reader, "ok")


import deltalake

table = deltalake.DeltaTable(folder).to_pyarrow_table()
check("deltalake", (table.num_rows, sum(table.column("v").to_pylist())))
first = min(table.column("t").to_pylist())
if first.isoformat() != "2024-01-01T00:00:00+00:00":
    sys.exit(f"deltalake finds the first time {first}")

import polars

frame = polars.read_delta(folder)
check("polars", (frame.height, frame["v"].sum()))

# The extension as a package, or one that DuckDB has installed.
try:
    import glob
    import os

    import duckdb
    import duckdb_extension_delta

    folder_of = list(duckdb_extension_delta.__path__)[0]
    found = glob.glob(os.path.join(folder_of, "**", "*.duckdb_extension"), recursive=True)
    duckdb.sql(f"LOAD '{found[0]}'" if found else "LOAD delta")
except Exception as error:
    print(f"skipped: duckdb without its extension delta: {str(error).splitlines()[0]}")
else:
    check("duckdb", duckdb.sql(f"SELECT count(*), sum(v)::BIGINT FROM delta_scan('{folder}')").fetchone())
