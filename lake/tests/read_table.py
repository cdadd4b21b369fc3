"""Reads a published table with other programs. For each line of input, with the folder, the rows and the sum of v, it answers with
one line: "ok", or what is wrong. The first line of output names the programs that read."""

import glob
import os
import sys

# chdb reads what lies below its working folder.
os.chdir("/")
readers = {}


def reader(name):
    def register(function):
        try:
            readers[name] = function()
        except Exception as error:
            print(f"skipped: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return function

    return register


@reader("polars")
def polars():
    import polars

    def read(folder):
        frame = polars.scan_delta(folder).select("v").collect()
        return frame.height, frame["v"].sum() or 0

    return read


@reader("deltalake")
def deltalake():
    from deltalake import DeltaTable, QueryBuilder

    def read(folder):
        query = QueryBuilder().register("t", DeltaTable(folder))
        rows = query.execute("SELECT count(*) AS n, coalesce(sum(v), 0) AS s FROM t").read_all()
        return tuple(int(rows.column(name)[0].as_py()) for name in ("n", "s"))

    return read


@reader("duckdb")
def duckdb():
    import duckdb
    import duckdb_extension_delta

    folder_of = list(duckdb_extension_delta.__path__)[0]
    found = glob.glob(os.path.join(folder_of, "**", "*.duckdb_extension"), recursive=True)
    duckdb.sql(f"LOAD '{found[0]}'")

    def read(folder):
        return duckdb.sql(f"SELECT count(*), coalesce(sum(v), 0)::BIGINT FROM delta_scan('{folder}')").fetchone()

    return read


@reader("chdb")
def chdb():
    import chdb

    def read(folder):
        told = str(chdb.query(f"SELECT count(), sum(v) FROM deltaLakeLocal('{folder}')", "TSV"))
        return tuple(int(part) for part in told.split())

    return read


print(" ".join(readers), flush=True)
for line in sys.stdin:
    folder, rows, total = line.rsplit(maxsplit=2)
    wrong = []
    for name, read in readers.items():
        try:
            found = tuple(read(folder))
            if found != (int(rows), int(total)):
                wrong.append(f"{name} finds {found} and not {(int(rows), int(total))}")
        except Exception as error:
            wrong.append(f"{name} fails: {str(error).splitlines()[0]}")
    print("; ".join(wrong) or "ok", flush=True)
