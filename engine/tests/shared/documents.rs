//! Ordinary collections in tests: commands on documents, a plain map with a clock on which they do the same, and what a database
//! holds.
//!
//! The whole content of a document follows from what the map keeps of it, so that a wrong byte anywhere is a failure.

use ebbtide::documents_model::DefaultTtl;
use ebbtide::documents_model::json::document_from_json;
use ebbtide::fs::{Fs, Layer, WriteFile};
use ebbtide::ttl::{Precision, Timestamp};
use ebbtide::{Database, DocumentsSnapshot, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Formatter};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A document to write: which `_id`, its number, its own life, and its date in seconds from now.
#[derive(Debug, Clone)]
pub(crate) struct NewDocument {
    pub(crate) id: i64,
    pub(crate) number: i64,
    pub(crate) ttl: Option<i64>,
    pub(crate) date: Option<i64>,
}

/// Which documents a command is about.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    Id(i64),
    Ids(Vec<i64>),
    /// Those whose number is at most this.
    NumberAtMost(i64),
    All,
}

/// A change of the rules. One that does not apply changes nothing.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    DefaultTtl(Option<i64>),
    CreateIndex(i64),
    ChangeIndex(i64),
    DropIndex,
}

/// One atomic command.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Each document takes the place of the one with its `_id`, if there is one.
    Put(Vec<NewDocument>),
    /// Refused if a visible document has the `_id`.
    Insert(NewDocument),
    /// Adds to the numbers of visible documents.
    Add(Which, i64),
    /// Removes documents for good, also expired ones.
    Delete(Which),
    Change(Rule),
}

/// A stored document. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) number: i64,
    pub(crate) ttl: Option<i64>,
    pub(crate) date: Option<i64>,
    pub(crate) written: i64,
}

/// Everything that is stored, expired or not, and the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Model {
    pub(crate) documents: BTreeMap<i64, Kept>,
    pub(crate) default_ttl: Option<i64>,
    /// The seconds of the TTL index on `date`, if there is one.
    pub(crate) index: Option<i64>,
}

impl Model {
    /// When a document expires.
    pub(crate) fn expires_at(&self, kept: &Kept) -> Option<i64> {
        let life = match (self.default_ttl, kept.ttl) {
            (None, _) | (Some(_), Some(-1)) | (Some(-1), None) => None,
            (Some(_), Some(own)) => Some(own),
            (Some(default), None) => Some(default),
        };
        let by_item = life.map(|seconds| kept.written + seconds * 1_000);
        let by_index = self.index.and_then(|e| Some(kept.date? + e * 1_000));
        by_item.into_iter().chain(by_index).min()
    }

    pub(crate) fn is_visible(&self, kept: &Kept, now: i64) -> bool {
        self.expires_at(kept).is_none_or(|at| at > now)
    }

    pub(crate) fn visible(&self, now: i64) -> BTreeMap<i64, Kept> {
        let visible = self.documents.iter().filter(|(_, kept)| self.is_visible(kept, now));
        visible.map(|(id, kept)| (*id, kept.clone())).collect()
    }

    /// What has expired and is still stored.
    pub(crate) fn due(&self, now: i64) -> BTreeSet<i64> {
        self.documents.iter().filter(|(_, kept)| !self.is_visible(kept, now)).map(|(id, _)| *id).collect()
    }

    /// Runs a command; returns what its reply counts.
    pub(crate) fn run(&mut self, command: &Command, now: i64) -> i64 {
        match command {
            Command::Put(new) => {
                new.iter().for_each(|new| self.put(new, now));
                i64::try_from(new.len()).unwrap_or(i64::MAX)
            }
            Command::Insert(new) => {
                let is_taken = self.documents.get(&new.id).is_some_and(|kept| self.is_visible(kept, now));
                if !is_taken {
                    self.put(new, now);
                }
                i64::from(!is_taken)
            }
            Command::Add(which, number) => self.add(which, *number, now),
            Command::Delete(which) => self.delete(which, now),
            Command::Change(rule) => {
                match rule {
                    Rule::DefaultTtl(seconds) => self.default_ttl = *seconds,
                    Rule::CreateIndex(e) => self.index = self.index.or(Some(*e)),
                    Rule::ChangeIndex(e) => self.index = self.index.and(Some(*e)),
                    Rule::DropIndex => self.index = None,
                }
                0
            }
        }
    }

    fn put(&mut self, document: &NewDocument, now: i64) {
        let date = document.date.map(|seconds| now + seconds * 1_000);
        let NewDocument { id, number, ttl, .. } = *document;
        self.documents.insert(id, Kept { number, ttl, date, written: now });
    }

    /// The stored documents that a command is about.
    fn chosen(&self, which: &Which) -> Vec<i64> {
        let is_meant = |(id, kept): &(&i64, &Kept)| match which {
            Which::Id(one) => *id == one,
            Which::Ids(ids) => ids.contains(id),
            Which::NumberAtMost(most) => kept.number <= *most,
            Which::All => true,
        };
        self.documents.iter().filter(is_meant).map(|(id, _)| *id).collect()
    }

    fn add(&mut self, which: &Which, number: i64, now: i64) -> i64 {
        let visible = self.visible(now);
        let chosen = self.chosen(which).into_iter().filter(|id| visible.contains_key(id));
        let chosen: Vec<i64> = chosen.collect();
        for id in &chosen {
            if let Some(kept) = self.documents.get_mut(id) {
                kept.number += number;
                kept.written = now;
            }
        }
        i64::try_from(chosen.len()).unwrap_or(i64::MAX)
    }

    fn delete(&mut self, which: &Which, now: i64) -> i64 {
        let visible = self.visible(now);
        let chosen = self.chosen(which);
        self.documents.retain(|id, _| !chosen.contains(id));
        i64::try_from(chosen.iter().filter(|id| visible.contains_key(id)).count()).unwrap_or(i64::MAX)
    }
}

/// A document as a replacement stores it: the `_id` comes first.
fn id_first(id: i64, kept: &Kept) -> Json {
    let mut document = json!({"_id": id});
    for (name, value) in written(id, kept).as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
    document
}

/// A document as it is written. The `_id` is in the midst of every third.
fn written(id: i64, kept: &Kept) -> Json {
    let mut document = match id % 3 {
        0 => json!({"n": kept.number, "_id": id}),
        _ => json!({"_id": id, "n": kept.number}),
    };
    document["text"] = json!("document ".repeat(usize::try_from(id % 7).unwrap_or(0)));
    document["same"] = json!({"list": [id, null, 0.5], "": true});
    if let Some(ttl) = kept.ttl {
        document["ttl"] = json!(ttl);
    }
    if let Some(date) = kept.date {
        document["date"] = json!({"$date": {"$numberLong": date.to_string()}});
    }
    document
}

fn filter(which: &Which) -> Json {
    match which {
        Which::Id(id) => json!({"_id": id}),
        Which::Ids(ids) => json!({"_id": {"$in": ids}}),
        Which::NumberAtMost(most) => json!({"n": {"$lte": most}}),
        Which::All => json!({}),
    }
}

/// Runs a command on a database; returns what its reply counts.
pub(crate) fn run(db: &Database, name: &str, command: &Command, now: i64) -> Result<i64, Error> {
    let document = |new: &NewDocument| {
        let date = new.date.map(|seconds| now + seconds * 1_000);
        written(new.id, &Kept { number: new.number, ttl: new.ttl, date, written: now })
    };
    let command = match command {
        Command::Put(new) => {
            let updates = new.iter().map(|new| json!({"q": {"_id": new.id}, "u": document(new), "upsert": true}));
            json!({"update": name, "updates": updates.collect::<Vec<_>>()})
        }
        Command::Insert(new) => json!({"insert": name, "documents": [document(new)]}),
        Command::Add(which, number) => {
            let update = json!({"q": filter(which), "u": {"$inc": {"n": number}}, "multi": true});
            json!({"update": name, "updates": [update]})
        }
        Command::Delete(which) => json!({"delete": name, "deletes": [{"q": filter(which), "limit": 0}]}),
        Command::Change(rule) => return change(db, name, rule).map(|()| 0),
    };
    db.run_command(&command).map(|reply| reply["n"].as_i64().unwrap_or(-1))
}

const INDEX: &str = "by_date";

fn change(db: &Database, name: &str, rule: &Rule) -> Result<(), Error> {
    let has_index = rules(&db.snapshot().documents(name)?).1.is_some();
    let command = match (rule, has_index) {
        (Rule::DefaultTtl(seconds), _) => {
            let value = seconds.map_or(json!("off"), |seconds| json!(seconds));
            json!({"collMod": name, "defaultTTL": value})
        }
        (Rule::CreateIndex(e), false) => {
            let index = json!({"key": {"date": 1}, "name": INDEX, "expireAfterSeconds": e});
            json!({"createIndexes": name, "indexes": [index]})
        }
        (Rule::ChangeIndex(e), true) => {
            json!({"collMod": name, "index": {"name": INDEX, "expireAfterSeconds": e}})
        }
        (Rule::DropIndex, true) => json!({"dropIndexes": name, "index": INDEX}),
        _ => return db.modify_documents(name, |_| Ok(())),
    };
    db.run_command(&command).map(drop)
}

/// The default time to live and the seconds of the TTL index.
pub(crate) fn rules(snapshot: &DocumentsSnapshot) -> (Option<i64>, Option<i64>) {
    let options = snapshot.options();
    let index = options.indexes.iter().find(|index| index.name == INDEX).and_then(|index| index.expire_after_seconds);
    let default_ttl = match options.default_ttl {
        DefaultTtl::Off => None,
        DefaultTtl::Never => Some(-1),
        DefaultTtl::Seconds(n) => Some(i64::from(n)),
    };
    (default_ttl, index)
}

/// The documents that a scan finds. An `_id` that comes twice, and content that was never written, are failures.
pub(crate) fn scanned(snapshot: &DocumentsSnapshot) -> Result<BTreeMap<i64, Kept>, Error> {
    let mut found = BTreeMap::new();
    snapshot.for_each(&mut |document| {
        let raw = &document.document;
        let field = |name: &str| raw.get(name).expect("a stored document is BSON");
        let whole = |name: &str| field(name).and_then(|value| value.as_i64());
        let id = whole("_id").expect("an _id");
        let kept = Kept {
            number: whole("n").expect("a number"),
            ttl: whole("ttl"),
            date: field("date").and_then(|value| value.as_datetime()).map(|date| date.timestamp_millis()),
            written: document.written.to_units(Precision::Ms).expect("a time in range"),
        };
        let forms =
            [written(id, &kept), id_first(id, &kept)].map(|form| document_from_json(&form).expect("a document"));
        let is_exact = forms.iter().any(|form| form.as_bytes() == raw.as_bytes());
        assert!(is_exact, "the content of document {id} is wrong: {kept:?}: {raw:?}");
        assert_eq!(found.insert(id, kept), None, "_id {id} is there twice");
        Ok(true)
    })?;
    Ok(found)
}

/// All that is stored, expired or not: as it was seen before anything could expire.
pub(crate) fn stored(db: &Database, name: &str) -> Result<BTreeMap<i64, Kept>, Error> {
    scanned(&db.snapshot_at(Timestamp::from_millis(0)).documents(name)?)
}

/// A disk on which something else is done at the moment when the next segment begins to be written, by the same thread.
#[derive(Clone)]
pub(crate) struct Beside<F> {
    disk: F,
    action: Action,
}

/// What is to be done once.
pub(crate) type Action = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

impl<F> Beside<F> {
    pub(crate) fn new(disk: F, action: Action) -> Self {
        Beside { disk, action }
    }
}

/// Does what is still to be done.
pub(crate) fn act(action: &Action) {
    let action = action.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(action) = action {
        action();
    }
}

impl<F: Debug> Debug for Beside<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(f)
    }
}

impl<F: Fs> Layer for Beside<F> {
    fn below(&self) -> &dyn Fs {
        &self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-")) {
            act(&self.action);
        }
        self.disk.create(path)
    }
}
