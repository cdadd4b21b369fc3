"""DuckDB and the emulators of object storage, for the scripts beside this one."""

import glob
import os

# The account that Azurite is known for.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# Where the servers are, if the environment names them as Ebbtide takes them.
S3, AZURE = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AZURITE_BLOB_STORAGE_URL"))


def duckdb_with_delta():
    """DuckDB with its extension for Delta tables, and with access to the servers."""
    import duckdb
    import duckdb_extension_delta

    def load(extension):
        folder = list(extension.__path__)[0]
        found = glob.glob(os.path.join(folder, "**", "*.duckdb_extension"), recursive=True)
        duckdb.sql(f"LOAD '{found[0]}'")

    load(duckdb_extension_delta)
    if S3:
        import duckdb_extension_httpfs

        load(duckdb_extension_httpfs)
        key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        duckdb.sql(
            f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', USE_SSL false,"
            f" URL_STYLE 'path', ENDPOINT '{S3.removeprefix('http://')}')"
        )
    if AZURE:
        import duckdb_extension_azure

        load(duckdb_extension_azure)
        duckdb.sql(
            "CREATE SECRET (TYPE azure, CONNECTION_STRING 'DefaultEndpointsProtocol=http;"
            f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={AZURE}/{ACCOUNT}')"
        )
    return duckdb
