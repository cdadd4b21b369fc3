"""Import of one file by a program: INMET 2024 of three regions as CSV, as CSV in gzip, and as Parquet.

    VENV/bin/python benches/peers/imports.py --program target/release/ebbtide

Needs duckdb, pyarrow, and `duckdb-cli` for the other program. 2,441,952 rows of 278 stations x 17 fields. Timed is the whole command,
from its start to its exit, into an empty database, with everything on disk at the end: `ebbtide import`, and `duckdb` with CREATE TABLE
AS SELECT * FROM the file and a checkpoint. Both find the types themselves. The library of DuckDB does the same in a new interpreter,
which reports the time without its own start. Each has its turn in every run. The number of rows, of values and the sum of each column
must agree.
"""

import gzip
import os
import shutil
import sys
import tempfile

import duckdb
import pyarrow as pa
from pyarrow import csv, parquet

from program import Done, Ebbtide, Report, agree, duckdb_program, inmet, options, size

LIBRARY = """
import sys, time, duckdb
start = time.perf_counter(), time.process_time()
db = duckdb.connect(sys.argv[1])
db.execute("SET enable_progress_bar = false")
db.execute(f"CREATE TABLE w AS SELECT * FROM '{sys.argv[2]}'")
db.execute("CHECKPOINT")
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""


def main():
    parser = options(__doc__)
    parser.add_argument("--duckdb", default=duckdb_program(), help="DuckDB's program")
    args = parser.parse_args()
    version = Done([args.duckdb, "--version"]).out.split()[0].lstrip("v")
    library, program = f"DuckDB {duckdb.__version__}, library", f"DuckDB {version}, program"
    report = Report(["Ebbtide", library, program])
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "inmet.csv")
        inmet(args.data, plain)
        packed, columns = plain + ".gz", os.path.join(folder, "inmet.parquet")
        with open(plain, "rb") as source, gzip.open(packed, "wb", compresslevel=6) as out:
            shutil.copyfileobj(source, out)
        table = csv.read_csv(plain)
        parquet.write_table(table, columns, compression="zstd")
        rows = table.num_rows
        fields = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
        check = f"SELECT count(*), {', '.join(f'count({f}), sum({f})' for f in fields)} FROM w"
        del table
        for _ in range(args.runs):
            for name, file in [("CSV", plain), ("CSV in gzip", packed), ("Parquet", columns)]:
                at = os.path.join(folder, "ours")
                ours = Ebbtide(args.program, at)
                done = ours.run("import", file, "--into", "w", "--time", "time", "--meta", "station")
                report.add(name, "s", "Ebbtide", done.seconds, done.processor)
                report.add(f"{name}: on disk", "MB", "Ebbtide", ours.size() / 1e6)
                answer = ours.rows(check)
                if name == "Parquet":
                    report.add("Parquet, rows", "million/s", "Ebbtide", rows / done.seconds / 1e6, more_is_better=True)
                shutil.rmtree(at)
                other = os.path.join(folder, "w.duckdb")
                took = Done([sys.executable, "-c", LIBRARY, other, file]).out.split()
                report.add(name, "s", library, *map(float, took))
                report.add(f"{name}: on disk", "MB", library, size(other) / 1e6)
                with duckdb.connect(other, read_only=True) as db:
                    agree(answer, db.execute(check).fetchall(), name)
                os.remove(other)
                statements = f"CREATE TABLE w AS SELECT * FROM '{file}'; CHECKPOINT"
                done = Done([args.duckdb, other, statements])
                report.add(name, "s", program, done.seconds, done.processor)
                os.remove(other)
    report.show()


if __name__ == "__main__":
    main()
