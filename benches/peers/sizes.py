"""Bytes of every file of recorded weather, and of doubles with all their bits, beside other formats.

    VENV/bin/python benches/peers/sizes.py --program target/release/ebbtide

Needs duckdb, pcodec, psycopg[binary], pyarrow and vortex-data. Ebbtide: the segment files after an import and COMPACT, with times,
series, bounds and statistics; the import's number of rows, and number of values and sum of each column of numbers, must be those of the
file. DuckDB: the used blocks of a table sorted by series and time. Parquet: pyarrow with zstd level 3, and Vortex: one file, both of the
sorted table. pcodec: each column of numbers and times that holds values, sorted by series and time, compressed as a whole at the default
level, decompressed and compared; texts, and the bits that say where values are missing, by zstd level 3. It is a codec, not a store: it
has no bounds, and every read decompresses a column. `floats`: 1,000,000 rows of 100 series with one double: a random walk, a sine with
noise, uniform noise, and a mean of three readings with one decimal.
"""

import os
import shutil
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import vortex
from pcodec import ChunkConfig, standalone
from pyarrow import csv, parquet

from program import Ebbtide, Report, agree, options, size

ENGINES = ["Ebbtide", f"DuckDB {duckdb.__version__}", "Parquet, zstd", "Vortex", "pcodec"]
FLOATS, SERIES = 1_000_000, 100


def floats():
    random = np.random.default_rng(1)
    step, shape = FLOATS // SERIES, (SERIES, FLOATS // SERIES)
    noise = random.normal(size=shape)
    readings = np.round(20 + random.normal(size=(*shape, 3)), 1)
    made = {
        "random walk": noise.cumsum(axis=1),
        "sine with noise": 20 + 5 * np.sin(np.arange(step) / 500) + noise / 10,
        "uniform noise": random.random(shape),
        "mean of three readings": readings.sum(axis=2) / 3,
    }
    at = np.datetime64("2024-01-01T00:00:00", "ms") + np.arange(step) * 60_000
    for name, values in made.items():
        station = np.repeat([f"s{i:03}" for i in range(SERIES)], step)
        yield f"floats: {name}", pa.table({"station": station, "time": np.tile(at, SERIES), "value": values.ravel()})


def packed(table):
    """Bytes by pcodec, and by zstd for what it does not take."""
    zstd, total = pa.Codec("zstd", 3), 0
    for column in table.combine_chunks().columns:
        if column.null_count:
            total += len(zstd.compress(np.packbits(pc.is_valid(column).to_numpy()).tobytes()))
        values = column.drop_null()
        if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
            values = values.cast(pa.timestamp("ms")).cast(pa.int64())
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            values = values.to_numpy()
            if len(values):
                bytes_of = standalone.simple_compress(values, ChunkConfig())
                assert np.array_equal(values, standalone.simple_decompress(bytes_of))
                total += len(bytes_of)
        elif not pa.types.is_null(values.type):
            codes = values.dictionary_encode().combine_chunks()
            codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
            total += len(zstd.compress("\n".join(codes.dictionary.to_pylist()).encode()))
            width = np.min_scalar_type(max(len(codes.dictionary) - 1, 1))
            total += len(zstd.compress(codes.indices.to_numpy().astype(width).tobytes()))
    return total


def is_number(kind):
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def main():
    args = options(__doc__).parse_args()
    report = Report(ENGINES)
    totals = dict.fromkeys(ENGINES, 0)
    files = sorted(path for path in args.data.glob("*.csv*") if "stations" not in path.name)
    with tempfile.TemporaryDirectory() as folder:
        tables = [(path.name.split(".")[0], csv.read_csv(path), path) for path in files]
        for name, table in floats():
            path = Path(folder) / "floats.parquet"
            path = path.with_stem(name.replace(" ", "-").replace(":", ""))
            parquet.write_table(table, path)
            tables.append((name, table, path))
        for name, table, path in tables:
            time = table.schema.get_field_index("time")
            table = table.set_column(time, "time", table["time"].cast(pa.timestamp("ms"), safe=False))
            table = table.sort_by([("station", "ascending"), ("time", "ascending")])
            fields = [f.name for f in table.schema if is_number(f.type)]
            values = sum(len(c) - c.null_count for c in table.columns) - 2 * table.num_rows
            ours = Ebbtide(args.program, os.path.join(folder, "ours"))
            ours.run("import", path, "--into", "w", "--time", "time", "--meta", "station")
            ours.run("sql", "COMPACT w")
            check = ", ".join(f'count("{f}"), sum("{f}")' for f in fields)
            check = f"SELECT count(*), {check} FROM w"
            bytes_of = {"Ebbtide": sum(size(file) for file in Path(ours.folder).rglob("seg-*"))}
            stored = os.path.join(folder, "w.duckdb")
            with duckdb.connect(stored) as db:
                db.execute("SET enable_progress_bar = false")
                db.register("sorted", table)
                db.execute("CREATE TABLE w AS SELECT * FROM sorted")
                db.execute("CHECKPOINT")
                agree(ours.rows(check), db.execute(check).fetchall(), name)
                bytes_of[ENGINES[1]] = db.execute("SELECT used_blocks * block_size FROM pragma_database_size()").fetchone()[0]
            other = os.path.join(folder, "w.other")
            parquet.write_table(table, other, compression="zstd", compression_level=3)
            bytes_of[ENGINES[2]] = size(other)
            kept = [column for column in table.column_names if not pa.types.is_null(table[column].type)]
            vortex.io.write(vortex.array(table.select(kept)), other)
            bytes_of[ENGINES[3]] = size(other)
            bytes_of[ENGINES[4]] = packed(table)
            for engine, count in bytes_of.items():
                report.add(f"{name}: {values:,} values", "bytes a value", engine, count / values)
                if not name.startswith("floats"):
                    totals[engine] += count
            shutil.rmtree(ours.folder)
            os.remove(stored)
        for engine, count in totals.items():
            report.add("all recorded files", "MB", engine, count / 1e6)
    report.show()


if __name__ == "__main__":
    main()
