//! The log of a Delta Lake table, as far as Ebbtide writes it.
//!
//! Version `n` is the object `_delta_log/<n, 20 digits>.json`: lines of JSON, each one action. It is made by a put that fails if it
//! is there, so that each version has one writer. The log has no holes, so the newest version is found by asking for the next, from a
//! checkpoint on if the entries before it were removed.

use crate::file::hex;
use chrono::{DateTime, SecondsFormat};
use ebbtide::buckets::{Schema, SegmentMeta};
use ebbtide::ttl::{Precision, Timestamp, Value as Known};
use ebbtide::{ArchiveFile, ArchiveNumber, ArchiveOutcome, ArchivedBounds, ArchivedFile};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// What begins the name of an application in `txn` that says who owns the table: identity, collection and owner follow.
const OWNER: &str = "ebbtide-owner-";
/// What begins the name in `txn` that says that a commit was made: its number follows.
const COMMIT: &str = "ebbtide-commit-";

/// What says in `commitInfo` of which version an entry is, and the CRC-32 of the lines after it: an entry that is emptied, cut off or
/// another one would leave out rows.
const PROOF: &str = "ebbtide";

/// The tag of a file with the version that added it.
const ADDED_BY: &str = "ebbtide.version";
/// The tag of a file that is a segment, with its summary.
const SUMMARY: &str = "ebbtide.summary";

/// The property of a published table with the instant at which its version was made.
pub(crate) const MADE_AT: &str = "ebbtide.made.at";

/// The name of the object of a version.
pub(crate) fn name_of(version: u64) -> String {
    format!("_delta_log/{version:020}.json")
}

/// The version of an object in the folder of the log, by its name there.
pub(crate) fn version_in(name: &str) -> Option<u64> {
    name.get(..20).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// A checkpoint in the store.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) version: u64,
    /// In milliseconds since 1970.
    pub(crate) made_at: i64,
}

/// What the log says up to a version.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The version that comes next.
    pub(crate) next: u64,
    pub(crate) owner: Option<Owner>,
    /// The text of the newest schema.
    pub(crate) schema: Option<String>,
    pub(crate) metadata: Value,
    protocol: Value,
    commits: HashSet<String>,
    files: BTreeMap<String, Entry>,
    /// When files were removed from the table, by name, with the versions that did it.
    removed: BTreeMap<String, (u64, i64)>,
    /// The checkpoints of a published table that this process has read or written, from the oldest on.
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// When the first entry that was read was made; in milliseconds since 1970.
    pub(crate) first_at: Option<i64>,
    /// The CRC-32 of the newest entry, unless the log was read from a checkpoint alone.
    pub(crate) newest: Option<u32>,
}

/// Who may add to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The identity of the database and the number of the collection.
    pub(crate) of: String,
    pub(crate) number: String,
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    file: ArchivedFile,
    /// The action that added it.
    add: Value,
    added: u64,
    removed: Option<u64>,
}

/// The part of an owner's name that a database and its copies share.
pub(crate) fn owned_by(identity: &[u8], collection: u64) -> String {
    format!("{}-{collection}", hex(identity))
}

impl Log {
    /// The files of a version.
    pub(crate) fn files(&self, version: u64) -> Vec<ArchivedFile> {
        let is_in = |entry: &&Entry| entry.added <= version && entry.removed.is_none_or(|removed| removed > version);
        self.files.values().filter(is_in).map(|entry| entry.file.clone()).collect()
    }

    /// Whether a file may still be read: it is in the newest version, or was removed after an instant.
    pub(crate) fn needs(&self, file: &str, since: i64) -> bool {
        self.removed.get(file).map_or(self.files.contains_key(file), |(_, at)| *at >= since)
    }

    /// The files that were removed before an instant, by a version up to this one.
    pub(crate) fn removed_before(&self, instant: i64, version: u64) -> Vec<String> {
        let is_due = |(_, (by, at)): &(&String, &(u64, i64))| *by <= version && *at < instant;
        self.removed.iter().filter(is_due).map(|(name, _)| name.clone()).collect()
    }

    /// Those of these files that are in the newest version.
    pub(crate) fn present<'a>(&self, files: &'a [String]) -> Vec<&'a String> {
        let is_present = |file: &&String| self.files.get(*file).is_some_and(|entry| entry.removed.is_none());
        files.iter().filter(is_present).collect()
    }

    /// The version with which the file of a commit came.
    pub(crate) fn added_by(&self, number: ArchiveNumber) -> Option<u64> {
        let number = hex(&number);
        let is_of_commit = |entry: &&Entry| entry.removed.is_none() && entry.file.name.starts_with(&number);
        self.files.values().find(is_of_commit).map(|entry| entry.added)
    }

    pub(crate) fn has_commit(&self, number: ArchiveNumber) -> bool {
        self.commits.contains(&hex(&number))
    }

    /// The rows that came after a version by other commits than one.
    pub(crate) fn rows_after(&self, version: Option<u64>, except: Option<ArchiveNumber>) -> u64 {
        let except = except.map(|number| hex(&number));
        let is_other = |entry: &&Entry| {
            version.is_none_or(|version| entry.added > version)
                && except.as_ref().is_none_or(|except| !entry.file.name.starts_with(except))
        };
        self.files.values().filter(is_other).map(|entry| entry.file.rows).sum()
    }

    /// Adds what the next version says.
    ///
    /// # Errors
    /// What is wrong with it, in words for people.
    pub(crate) fn apply(&mut self, content: &[u8]) -> Result<(), String> {
        let version = self.next;
        let applied = parsed(content).and_then(|actions| {
            self.check(content, &actions)?;
            self.apply_all(version, actions)
        });
        applied.map_err(|what| format!("{} is damaged: {what}. Put it back as it was written", name_of(version)))?;
        self.next += 1;
        self.newest = Some(crc32fast::hash(content));
        Ok(())
    }

    /// What became of a commit of one of the owners in `known`.
    pub(crate) fn outcome(&self, known: &[ArchiveNumber], commit: ArchiveNumber) -> ArchiveOutcome {
        let is_known = |owner: &Owner| known.iter().any(|known| hex(known) == owner.number);
        match self.added_by(commit) {
            Some(version) => ArchiveOutcome::Made(version),
            None if self.owner.as_ref().is_none_or(is_known) => ArchiveOutcome::Unknown,
            // The commit was sent for a version no later than the claim of the other owner, so that version is taken.
            None => ArchiveOutcome::Absent,
        }
    }

    /// What a checkpoint of a version says.
    ///
    /// # Errors
    /// As for [`Log::apply`].
    pub(crate) fn of_checkpoint(version: u64, content: &[u8]) -> Result<Log, String> {
        let mut log = Log::default();
        log.apply_all(version, parsed(content)?)?;
        log.next = version + 1;
        if let Some(made_at) = log.instant(MADE_AT).and_then(|at| at.to_units(Precision::Ms)) {
            log.checkpoints.push(Checkpoint { version, made_at });
        }
        Ok(log)
    }

    /// Whether an entry is the one that was written for the next version. Those of other programs do not tell.
    fn check(&self, content: &[u8], actions: &[Value]) -> Result<(), String> {
        let first = actions.first().ok_or("it is empty")?;
        let made_by = &first["commitInfo"];
        if let Some(of) = made_by[PROOF]["version"].as_u64() {
            let others = content.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &content[end + 1..]);
            return match made_by[PROOF]["crc32"] == checksum(others) {
                _ if of != self.next => Err(format!("it is the entry of version {of}")),
                true => Ok(()),
                false => Err("its checksum is another".to_owned()),
            };
        }
        // Entries of Ebbtide without a proof, of earlier builds.
        if made_by["engineInfo"] == "Ebbtide" && !self.is_next(actions) {
            return Err("it is the entry of another version".to_owned());
        }
        Ok(())
    }

    /// Whether actions of Ebbtide can be those of the next version.
    fn is_next(&self, actions: &[Value]) -> bool {
        let path = |action: &Value| action["path"].as_str().map(str::to_owned);
        let removed: HashSet<String> = actions.iter().filter_map(|action| path(&action["remove"])).collect();
        let epoch = self.owner.as_ref().map_or(1, |owner| owner.epoch + 1);
        let version = self.next.to_string();
        removed.iter().all(|name| self.files.get(name).is_some_and(|entry| entry.removed.is_none()))
            && actions.iter().all(|action| {
                let is_owner = action["txn"]["appId"].as_str().is_some_and(|app| app.starts_with(OWNER));
                // A file that stays, with other rows left out, is removed and added.
                let is_new = path(&action["add"]).is_some_and(|path| !removed.contains(&path));
                (!is_owner || action["txn"]["version"] == epoch)
                    && (!is_new || action["add"]["tags"][ADDED_BY] == version.as_str())
            })
    }

    fn apply_all(&mut self, version: u64, actions: Vec<Value>) -> Result<(), String> {
        let made_at = || actions.iter().find_map(|action| action["commitInfo"]["timestamp"].as_i64());
        self.first_at = self.first_at.or_else(made_at);
        for remove in actions.iter().map(|action| &action["remove"]) {
            if let Some(path) = remove["path"].as_str() {
                let at = remove["deletionTimestamp"].as_i64().unwrap_or_default();
                self.removed.insert(path.to_owned(), (version, at));
                if let Some(entry) = self.files.get_mut(path) {
                    entry.removed = Some(version);
                }
            }
        }
        for action in actions {
            if let Some(number) = action["txn"]["appId"].as_str().and_then(|app| app.strip_prefix(COMMIT)) {
                self.commits.insert(number.to_owned());
            }
            if let Some(name) = action["txn"]["appId"].as_str().and_then(|app| app.strip_prefix(OWNER)) {
                let (of, number) = name.rsplit_once('-').ok_or("an owner without a number")?;
                let epoch = action["txn"]["version"].as_u64().ok_or("an owner without an epoch")?;
                self.owner = Some(Owner { of: of.to_owned(), number: number.to_owned(), epoch });
            }
            if let Some(schema) = action["metaData"]["schemaString"].as_str() {
                self.schema = Some(schema.to_owned());
                self.metadata = action["metaData"].clone();
            }
            if action["protocol"].is_object() {
                self.protocol = action["protocol"].clone();
            }
            if let Some(path) = action["add"]["path"].as_str() {
                let (file, added) = added(&action["add"], path).ok_or("a file that Ebbtide did not add")?;
                let entry = Entry { file, add: action["add"].clone(), added, removed: None };
                self.files.insert(path.to_owned(), entry);
                // The same file with other rows left out.
                self.removed.remove(path);
            }
        }
        Ok(())
    }

    /// The actions that say all that the log says, but for files that were removed before an instant.
    pub(crate) fn checkpoint(&self, since: i64) -> Vec<Value> {
        let owner = self.owner.iter().map(|owner| (format!("{OWNER}{}-{}", owner.of, owner.number), owner.epoch));
        let commits = self.commits.iter().map(|number| (format!("{COMMIT}{number}"), 1));
        let txns = owner.chain(commits).map(|(app, version)| json!({"txn": {"appId": app, "version": version}}));
        let files = self.files.values().filter(|entry| entry.removed.is_none());
        let adds = files.map(|entry| json!({"add": entry.add}));
        let removed = self.removed.iter().filter(|(_, (_, at))| *at >= since);
        let removes = removed.map(|(name, (_, at))| remove(name, *at));
        let first = [json!({"protocol": self.protocol}), json!({"metaData": self.metadata})];
        first.into_iter().chain(txns).chain(adds).chain(removes).collect()
    }

    /// The version that makes a database the owner. The first one also makes the table.
    pub(crate) fn claim(&self, of: &str, owner: ArchiveNumber, schema: String, now: i64) -> String {
        let mut actions = vec![self.owned_from_now(of, owner, now)];
        if self.next == 0 {
            let protocol = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [],
                "writerFeatures": ["appendOnly"]});
            actions.push(json!({"protocol": protocol}));
            actions.push(json!({"metaData": {"id": uuid(owner), "format": {"provider": "parquet", "options": {}},
                "schemaString": schema, "partitionColumns": [], "configuration": {}, "createdTime": now}}));
        }
        self.entry("CLAIM", &actions, now)
    }

    /// The version that removes files.
    pub(crate) fn retire(&self, files: &[&String], now: i64) -> String {
        self.entry("DELETE", &files.iter().map(|name| remove(name, now)).collect::<Vec<_>>(), now)
    }

    /// The entry of the next version: these actions, and before them who made it, and what proves that it is this entry.
    pub(crate) fn entry(&self, operation: &str, actions: &[Value], now: i64) -> String {
        let others: String = actions.iter().map(|action| format!("{action}\n")).collect();
        let proof = json!({"version": self.next, "crc32": checksum(others.as_bytes())});
        let first = json!({"commitInfo":
            {"timestamp": now, "operation": operation, "engineInfo": "Ebbtide", PROOF: proof}});
        format!("{first}\n{others}")
    }

    /// An instant in the properties of the table.
    pub(crate) fn instant(&self, property: &str) -> Option<Timestamp> {
        Timestamp::parse(self.metadata["configuration"][property].as_str()?).ok()
    }

    /// What added the files of the newest version.
    pub(crate) fn adds(&self) -> impl Iterator<Item = &Value> {
        self.files.values().filter(|entry| entry.removed.is_none()).map(|entry| &entry.add)
    }

    /// What says who makes versions from now on.
    pub(crate) fn owned_from_now(&self, of: &str, owner: ArchiveNumber, now: i64) -> Value {
        let epoch = self.owner.as_ref().map_or(1, |owner| owner.epoch + 1);
        json!({"txn": {"appId": format!("{OWNER}{of}-{}", hex(&owner)), "version": epoch, "lastUpdated": now}})
    }

    /// The version that adds a file.
    pub(crate) fn add(&self, file: &ArchiveFile, schema: String, now: i64) -> String {
        let commit = format!("{COMMIT}{}", hex(&file.number));
        let mut actions = vec![json!({"txn": {"appId": commit, "version": 1, "lastUpdated": now}})];
        if self.schema.as_ref() != Some(&schema) {
            let mut metadata = self.metadata.clone();
            metadata["schemaString"] = Value::String(schema);
            actions.push(json!({"metaData": metadata}));
        }
        actions.push(json!({"add": self.added(file, now)}));
        self.entry("WRITE", &actions, now)
    }

    /// What adds a file with the next version.
    pub(crate) fn added(&self, file: &ArchiveFile, now: i64) -> Value {
        let (schema_of, (first, last)) = (&file.schema, file.times);
        let (mut least, mut greatest) = (json!({}), json!({}));
        least[&schema_of.time] = instant(first, schema_of, false);
        greatest[&schema_of.time] = instant(last, schema_of, true);
        for bounds in &file.bounds {
            place(&mut least, &bounds.path, &bounds.min);
            place(&mut greatest, &bounds.path, &bounds.max);
        }
        let stats = json!({
            "numRecords": file.rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": {&schema_of.time: 0},
        });
        let mut tags = json!({
            "ebbtide.crc32": format!("{:08x}", file.checksum),
            "ebbtide.first": first.to_string(),
            "ebbtide.last": last.to_string(),
            ADDED_BY: self.next.to_string(),
        });
        if let Some(meta) = &file.segment {
            tags[SUMMARY] = json!(json!(meta).to_string());
        }
        json!({"path": file.name, "partitionValues": {}, "size": file.bytes.len(), "modificationTime": now,
            "dataChange": true, "stats": stats.to_string(), "tags": tags})
    }
}

/// The actions of an entry.
fn parsed(content: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    let actions = text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str::<Value>);
    actions.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}

fn remove(file: &str, at: i64) -> Value {
    json!({"remove": {"path": file, "deletionTimestamp": at, "dataChange": true}})
}

/// Puts a value where a path leads.
fn place(object: &mut Value, path: &[String], value: &Known) {
    let value = match value {
        Known::Int(number) => json!(number),
        Known::Double(number) => json!(number),
        Known::String(text) => json!(text),
        _ => return,
    };
    let mut at = object;
    for name in path {
        at = &mut at[name];
    }
    *at = value;
}

/// The bounds in statistics.
fn bounds_in(stats: &Value) -> Vec<ArchivedBounds> {
    let mut found = Vec::new();
    collect(Vec::new(), &stats["minValues"], &stats["maxValues"], &mut found);
    found
}

fn collect(path: Vec<String>, min: &Value, max: &Value, found: &mut Vec<ArchivedBounds>) {
    if let (Value::Object(least), Value::Object(greatest)) = (min, max) {
        for (name, min) in least {
            let path = path.iter().chain([name]).cloned().collect();
            collect(path, min, greatest.get(name).unwrap_or(&Value::Null), found);
        }
    } else if let (Some(min), Some(max)) = (known(min), known(max)) {
        found.push(ArchivedBounds { path, min, max });
    }
}

fn known(value: &Value) -> Option<Known> {
    match value {
        Value::String(text) => Some(Known::from(text.as_str())),
        Value::Number(number) => number.as_i64().map(Known::Int).or_else(|| number.as_f64().map(Known::Double)),
        _ => None,
    }
}

/// A file and the version that added it.
fn added(add: &Value, path: &str) -> Option<(ArchivedFile, u64)> {
    let stats: Value = serde_json::from_str(add["stats"].as_str()?).ok()?;
    let tag = |name: &str| add["tags"][name].as_str();
    let segment: Option<SegmentMeta> = tag(SUMMARY).map(serde_json::from_str).transpose().ok()?;
    let file = ArchivedFile {
        name: path.to_owned(),
        bytes: add["size"].as_u64()?,
        checksum: u32::from_str_radix(tag("ebbtide.crc32")?, 16).ok()?,
        rows: stats["numRecords"].as_u64()?,
        times: (tag("ebbtide.first")?.parse().ok()?, tag("ebbtide.last")?.parse().ok()?),
        bounds: bounds_in(&stats),
        segment,
    };
    let is_of_file =
        |meta: &SegmentMeta| (meta.rows, meta.bytes, (meta.first, meta.last)) == (file.rows, file.bytes, file.times);
    if !segment.as_ref().is_none_or(is_of_file) {
        return None;
    }
    Some((file, tag(ADDED_BY)?.parse().ok()?))
}

/// An instant as statistics have it, in milliseconds, rounded down or up; null if it has no such form.
fn instant(time: i64, schema: &Schema, up: bool) -> Value {
    let a_milli = schema.precision.per_second() / 1000;
    let floor = time.div_euclid(a_milli);
    let millis = floor + i64::from(up && floor.saturating_mul(a_milli) != time);
    let text = DateTime::from_timestamp_millis(millis).map(|t| t.to_rfc3339_opts(SecondsFormat::Millis, true));
    text.map_or(Value::Null, Value::String)
}

/// A number in the form of a UUID.
pub(crate) fn uuid(number: ArchiveNumber) -> String {
    let text = hex(&number);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}
