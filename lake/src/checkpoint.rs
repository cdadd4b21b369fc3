//! Checkpoints: all that the log says up to a version, in one Parquet file, so that a reader need not read every version.
//!
//! One that cannot be written is left out. Of a published table the entries before a checkpoint are removed once it is an hour old and
//! can be read; until then, and of archives always, one that cannot be read is left out, and the versions themselves are read.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;

/// A checkpoint is written with every version that is a multiple of this.
const EVERY: u64 = 100;
/// The folder of the log.
pub(crate) const FOLDER: &str = "_delta_log";
const SUFFIX: &str = ".checkpoint.parquet";
/// The object that names the newest checkpoint.
pub(crate) const LAST: &str = "_delta_log/_last_checkpoint";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The name of the checkpoint of a version.
pub(crate) fn name_of(version: u64) -> String {
    format!("{FOLDER}/{version:020}{SUFFIX}")
}

/// Whether an object of the log is a checkpoint.
pub(crate) fn is_name(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// Whether a checkpoint is written with a version, however old the last one is.
pub(crate) fn is_due(version: u64) -> bool {
    version > 0 && version.is_multiple_of(EVERY)
}

/// What [`LAST`] says of a checkpoint with this many actions.
pub(crate) fn pointer(version: u64, actions: usize) -> Bytes {
    Bytes::from(json!({"version": version, "size": actions}).to_string())
}

/// The version of the checkpoint that [`LAST`] names.
pub(crate) fn version_of(pointer: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(pointer).ok()?["version"].as_u64()
}

/// Encodes actions.
pub(crate) fn encode(actions: &[Value]) -> Result<Bytes> {
    let schema = Arc::new(schema());
    let mut decoder =
        arrow_json::ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(actions.len()).build_decoder()?;
    decoder.serialize(actions)?;
    let batch = decoder.flush()?.unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(&schema)));
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, None)?;
    writer.write(&batch)?;
    Ok(Bytes::from(writer.into_inner()?))
}

/// Decodes the actions of a checkpoint, as lines of JSON.
pub(crate) fn decode(content: Bytes) -> Result<Vec<u8>> {
    let mut lines = arrow_json::LineDelimitedWriter::new(Vec::new());
    for batch in ParquetRecordBatchReaderBuilder::try_new(content)?.build()? {
        lines.write(&batch?)?;
    }
    lines.finish()?;
    Ok(lines.into_inner())
}

fn schema() -> Schema {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let whole = |name: &str| Field::new(name, DataType::Int64, true);
    let version = |name: &str| Field::new(name, DataType::Int32, true);
    let yes = |name: &str| Field::new(name, DataType::Boolean, true);
    let list = |name: &str| Field::new_list(name, Field::new("element", DataType::Utf8, true), true);
    let map = |name: &str| {
        let (key, value) = (Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true));
        Field::new_map(name, "key_value", key, value, false, true)
    };
    let object = |name: &str, members: Vec<Field>| Field::new_struct(name, members, true);
    Schema::new(vec![
        object("txn", vec![text("appId"), whole("version"), whole("lastUpdated")]),
        object(
            "add",
            vec![
                text("path"),
                map("partitionValues"),
                whole("size"),
                whole("modificationTime"),
                yes("dataChange"),
                text("stats"),
                map("tags"),
                object(
                    "deletionVector",
                    vec![text("storageType"), text("pathOrInlineDv"), version("sizeInBytes"), whole("cardinality")],
                ),
            ],
        ),
        object("remove", vec![text("path"), whole("deletionTimestamp"), yes("dataChange")]),
        object(
            "metaData",
            vec![
                text("id"),
                object("format", vec![text("provider"), map("options")]),
                text("schemaString"),
                list("partitionColumns"),
                map("configuration"),
                whole("createdTime"),
            ],
        ),
        object(
            "protocol",
            vec![
                version("minReaderVersion"),
                version("minWriterVersion"),
                list("readerFeatures"),
                list("writerFeatures"),
            ],
        ),
    ])
}
