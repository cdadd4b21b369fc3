//! The versions of a published table: what is added, left out and removed.
//!
//! A file of the table has rows of one segment, those that were visible when it was written; its tags say which. It is a copy of the
//! segment's file if all rows are visible and no column is stored as decimals. Rows that are no longer visible are left out by a deletion
//! vector. The file is written again, without these rows, if any of them were deleted rather than
//! expired, if they are more than half of it, or if the segment has visible rows that the file lacks.

use crate::file::{encode, hex, of_segment};
use crate::log::{Log, MADE_AT, owned_by, uuid};
use crate::schema::{has_types_of, text_of};
use crate::store::Store;
use crate::vectors::{rows_of_text, text_of_rows, vector_of};
use arrow::array::RecordBatch;
use ebbtide::ttl::Timestamp;
use ebbtide::{ArchiveFile, Publication, PublishedSegment, PublishedVersion, SinkError};
use roaring::RoaringBitmap;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// The tag of a file that names its segment.
const SEGMENT: &str = "ebbtide.segment";
/// The tag with the rows of the segment that are in the file, if these are not all.
const ROWS: &str = "ebbtide.rows";

/// For how long entries of the log and files stay that are no longer needed, for programs that remove them too.
const RETENTION: &str = "interval 1 hours";

/// The property of the table with the instant up to which it hides what expires.
const HIDES_BEFORE: &str = "ebbtide.hides.before";

/// The owner of a published table: the part of its name that a database and its copies share.
pub(crate) fn published_by(identity: &[u8], collection: u64) -> String {
    format!("{}-table", owned_by(identity, collection))
}

/// Files that were written for a version, by the segments that they were made of: they serve the next try too.
pub(crate) struct Uploads<'a> {
    pub(crate) files: HashMap<String, ArchiveFile>,
    /// How many files this process has written. No name is used twice: a request that failed may have its effect later.
    pub(crate) written: &'a AtomicU64,
}

/// The next version.
pub(crate) struct Next {
    /// What it says; none if the version that is there says the same.
    pub(crate) actions: Option<String>,
    pub(crate) version: PublishedVersion,
}

/// Writes the files of the next version of a table, and returns what the version says: nothing, unless one is needed, if the newest
/// version says the same.
pub(crate) fn version_of(
    log: &Log,
    content: &Publication,
    store: &dyn Store,
    uploads: &mut Uploads<'_>,
    is_needed: bool,
) -> Result<Next, SinkError> {
    let schema = text_of(log.schema.as_deref(), &content.schema)?;
    // With another type for a field, nothing that is there can stay.
    let is_compatible = log.schema.as_ref().is_none_or(|known| has_types_of(Some(known), &content.schema));
    let segments: HashMap<&str, &PublishedSegment> =
        content.segments.iter().map(|segment| (segment.id.as_str(), segment)).collect();
    // Files that leave the table, or stay with other rows left out.
    let (mut left, mut kept) = (Vec::new(), HashSet::new());
    for add in log.adds() {
        let segment = add["tags"][SEGMENT].as_str().and_then(|id| segments.get(id)).filter(|_| is_compatible);
        let Some((segment, hidden)) = segment.and_then(|segment| Some((segment, hidden_in(add, segment)?))) else {
            left.push((add, None));
            continue;
        };
        kept.insert(segment.id.as_str());
        let vector = vector_of(&hidden)?;
        if vector != add["deletionVector"] {
            left.push((add, Some(vector)));
        }
    }
    let new = || content.segments.iter().filter(|segment| !kept.contains(segment.id.as_str()));
    for segment in new() {
        if !uploads.files.contains_key(&segment.id) {
            let file = written(content, segment, uploads.written.fetch_add(1, Ordering::Relaxed))?;
            store.put(&file.name, file.bytes.clone())?;
            uploads.files.insert(segment.id.clone(), file);
        }
    }
    // Uploads may have taken long, and what leaves is kept from now on for those who read the version before.
    let now = store.now();
    let mut changes = Vec::new();
    for (add, vector) in left {
        changes.push(removed(add, now));
        let Some(vector) = vector else { continue };
        let mut add = add.clone();
        match (vector, add.as_object_mut()) {
            (Value::Null, Some(add)) => drop(add.remove("deletionVector")),
            (vector, _) => add["deletionVector"] = vector,
        }
        changes.push(json!({"add": add}));
    }
    for (segment, file) in new().filter_map(|segment| Some((segment, uploads.files.get(&segment.id)?))) {
        let mut add = log.added(file, now);
        add["tags"][SEGMENT] = json!(segment.id);
        if segment.visible.len() < segment.rows {
            add["tags"][ROWS] = json!(text_of_rows(&segment.visible)?);
        }
        changes.push(json!({"add": add}));
    }
    let of = published_by(&content.identity, content.collection);
    let is_owner = log.owner.as_ref().is_some_and(|owner| owner.number == hex(&content.owner));
    let hides = content.rules.iter().next().is_some();
    let is_same =
        !is_needed && log.next > 0 && is_owner && changes.is_empty() && !hides && log.schema.as_ref() == Some(&schema);
    let made_at = if is_same { log.instant(MADE_AT) } else { Some(Timestamp::from_millis(now)) };
    let version = PublishedVersion {
        version: if is_same { log.next - 1 } else { log.next },
        made_at,
        files: content.segments.len() as u64,
        measurements: content.segments.iter().map(|segment| segment.visible.len()).sum(),
        hides_before: content.hides_before,
    };
    if is_same {
        return Ok(Next { actions: None, version });
    }
    let mut actions = Vec::new();
    if log.next == 0 {
        let protocol = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"]});
        actions.push(json!({"protocol": protocol}));
    }
    if !is_owner {
        actions.push(log.owned_from_now(&of, content.owner, now));
    }
    let mut metadata = match log.next {
        0 => {
            json!({"id": uuid(content.owner), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
            "createdTime": now})
        }
        _ => log.metadata.clone(),
    };
    metadata["schemaString"] = json!(schema);
    metadata["configuration"] = json!({"delta.enableDeletionVectors": "true",
        "delta.logRetentionDuration": RETENTION, "delta.deletedFileRetentionDuration": RETENTION,
        MADE_AT: Timestamp::from_millis(now).to_string(), HIDES_BEFORE: content.hides_before.to_string()});
    actions.push(json!({"metaData": metadata}));
    actions.extend(changes);
    Ok(Next { actions: Some(log.entry("WRITE", &actions, now)), version })
}

/// The newest version of a table, as its log tells.
pub(crate) fn newest(log: &Log) -> Option<PublishedVersion> {
    let rows = |add: &Value| {
        let stats: Option<Value> = add["stats"].as_str().and_then(|stats| serde_json::from_str(stats).ok());
        let rows = stats.and_then(|stats| stats["numRecords"].as_u64()).unwrap_or_default();
        rows.saturating_sub(add["deletionVector"]["cardinality"].as_u64().unwrap_or_default())
    };
    Some(PublishedVersion {
        version: log.next.checked_sub(1)?,
        files: log.adds().count() as u64,
        measurements: log.adds().map(rows).sum(),
        made_at: log.instant(MADE_AT),
        hides_before: log.instant(HIDES_BEFORE)?,
    })
}

/// The positions in a file of what is no longer visible; none if the file is to be written anew, or to go.
fn hidden_in(add: &Value, segment: &PublishedSegment) -> Option<RoaringBitmap> {
    let has = match add["tags"][ROWS].as_str() {
        Some(text) => rows_of_text(text)?,
        None => (0..u32::try_from(segment.rows).ok()?).collect(),
    };
    let hidden = &has - &segment.visible;
    let is_usable = segment.visible.is_subset(&has) && has.is_disjoint(&segment.deleted);
    if !is_usable || hidden.len() * 2 > has.len() {
        return None;
    }
    if has.len() == segment.rows {
        return Some(hidden);
    }
    hidden.iter().map(|row| u32::try_from(has.rank(row) - 1).ok()).collect()
}

fn removed(add: &Value, now: i64) -> Value {
    let mut remove = json!({"path": add["path"], "deletionTimestamp": now, "dataChange": true, "size": add["size"],
        "extendedFileMetadata": true, "partitionValues": {}});
    if !add["deletionVector"].is_null() {
        remove["deletionVector"] = add["deletionVector"].clone();
    }
    json!({"remove": remove})
}

/// The file of what is visible of a segment.
fn written(content: &Publication, segment: &PublishedSegment, number: u64) -> Result<ArchiveFile, SinkError> {
    let whole = if segment.visible.len() == segment.rows { segment.source.file()? } else { None };
    let mut file = match whole {
        Some(whole) => ArchiveFile { segment: None, ..of_segment(content.owner, &content.schema, whole)? },
        None => {
            let rows: Vec<RecordBatch> = segment.source.read(&segment.visible)?.collect::<Result<_, _>>()?;
            encode(content.owner, &content.schema, &rows)?
        }
    };
    file.name = format!("{}-{number}.parquet", hex(&content.owner));
    Ok(file)
}
