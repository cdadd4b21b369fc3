//! What is known of a command while it runs: for `currentOp`, `killOp`, the profiler and `top`.

use crate::frame::Message;
use bson::raw::{CString, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of a command that are shown.
const SHOWN_BYTES: usize = 1024;
/// Commands about one collection.
const OF_COLLECTION: [&str; 18] = [
    "aggregate",
    "collMod",
    "collStats",
    "compact",
    "count",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "drop",
    "dropIndexes",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "listIndexes",
    "update",
    "validate",
];
/// Commands that carry the proof of a password.
const SECRET: [&str; 6] = ["saslStart", "saslContinue", "hello", "isMaster", "ismaster", "logout"];

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its number, by which it is ended.
    pub(crate) number: i32,
    pub(crate) name: &'static str,
    /// Whether it changes what is stored.
    pub(crate) writes: bool,
    pub(crate) database: String,
    /// `database.collection`, or `database.$cmd` and the like.
    pub(crate) namespace: String,
    /// Whether it is about one collection.
    pub(crate) has_collection: bool,
    pub(crate) user: Option<String>,
    /// The command as it is shown: without what proves a password, and shortened.
    pub(crate) command: RawDocumentBuf,
    /// When it began, on the monotonic clock.
    pub(crate) begun: Duration,
    pub(crate) killed: Arc<AtomicBool>,
    /// Whether it may be recorded when it ends.
    pub(crate) is_profiled: bool,
    /// How it finds its documents, noted if it may be recorded.
    pub(crate) plan: Mutex<Option<String>>,
}

impl Operation {
    /// The command of a message, which the handler of this name runs from now on.
    pub(crate) fn new(number: i32, (name, writes): (&'static str, bool), message: &Message<'_>) -> Operation {
        let body = message.body;
        let text = |name: &str| body.get(name).ok().flatten().and_then(RawBsonRef::as_str);
        let database = message.database.or_else(|| text("$db")).unwrap_or_default();
        let subject = body.iter().next().and_then(Result::ok).and_then(|(_, value)| value.as_str());
        let collection = if name == "getMore" { text("collection") } else { subject };
        let collection = collection.filter(|_| OF_COLLECTION.contains(&name));
        let has_collection = collection.is_some();
        let no_collection = if name == "aggregate" { "$cmd.aggregate" } else { "$cmd" };
        Operation {
            number,
            name,
            writes,
            database: database.to_owned(),
            namespace: format!("{database}.{}", collection.unwrap_or(no_collection)),
            has_collection,
            user: None,
            command: shown(name, body),
            begun: Duration::ZERO,
            killed: Arc::default(),
            is_profiled: false,
            plan: Mutex::new(None),
        }
    }

    /// Whether it is about the collection of this name.
    pub(crate) fn is_of(&self, collection: &str) -> bool {
        self.namespace.strip_prefix(&self.database).and_then(|rest| rest.strip_prefix('.')) == Some(collection)
    }

    /// What MongoDB calls its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self.name {
            "find" => "query",
            "insert" => "insert",
            "update" => "update",
            "delete" => "remove",
            "getMore" => "getmore",
            _ => "command",
        }
    }

    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }
}

/// A command as it may be shown.
fn shown(name: &str, body: &RawDocument) -> RawDocumentBuf {
    let mut shown = RawDocumentBuf::new();
    let inner = body.get_document("explain").ok().and_then(|inner| inner.iter().next()?.ok());
    if SECRET.contains(&name) || inner.is_some_and(|(name, _)| SECRET.contains(&name.as_str())) {
        if let Ok(name) = CString::try_from(name) {
            shown.append(name.as_ref(), 1);
        }
        return shown;
    }
    if body.as_bytes().len() <= SHOWN_BYTES {
        return body.to_owned();
    }
    let mut is_whole = true;
    for element in body.iter_elements().map_while(Result::ok) {
        let fits = shown.as_bytes().len() + element.size() <= SHOWN_BYTES;
        match element.value() {
            Ok(value) if fits => shown.append(element.key(), value),
            _ => is_whole = false,
        }
    }
    if !is_whole {
        shown.append(cstr!("$truncated"), true);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn what_proves_a_password_is_not_shown() {
        let payload = "n,,n=ada,r=secret";
        for (name, command) in [
            ("saslStart", rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload }),
            ("saslContinue", rawdoc! { "saslContinue": 1, "payload": payload }),
            ("hello", rawdoc! { "hello": 1, "speculativeAuthenticate": { "saslStart": 1, "payload": payload } }),
            ("isMaster", rawdoc! { "isMaster": 1, "speculativeAuthenticate": { "payload": payload } }),
            ("explain", rawdoc! { "explain": { "saslStart": 1, "payload": payload } }),
        ] {
            let mut expected = RawDocumentBuf::new();
            expected.append(CString::try_from(name).unwrap().as_ref(), 1);
            assert_eq!(shown(name, &command), expected);
        }
    }

    #[test]
    fn a_large_command_is_shortened() {
        let small = rawdoc! { "find": "c", "filter": { "a": 1 }, "$db": "d" };
        assert_eq!(shown("find", &small), small);
        let large = rawdoc! { "find": "c", "filter": { "a": "x".repeat(2000) }, "$db": "d" };
        assert_eq!(shown("find", &large), rawdoc! { "find": "c", "$db": "d", "$truncated": true });
    }
}
