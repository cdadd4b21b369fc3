//! Ebbtide's own statements: commands, listings, and dry runs of expiry.

use super::{Session, StatementStream};
use crate::error::{QueryError, Result};
use crate::statement::{self, Alteration, Listing, Statement};
use crate::{functions, system};
use ebbtide::documents_model::DefaultTtl;
use ebbtide::documents_model::json::value_from_json;
use ebbtide::suggest;
use ebbtide::{Database, DocumentsOptions, Snapshot, Stop};
use ebbtide_ttl::{Code, RuleSet, Timestamp};
use serde_json::{Map, Value};

impl Session {
    /// Runs a write: `work` ends if it is stopped before its commit, for which it asks.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(Database, Stop) -> ebbtide::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.stop.of_statement().write(self.database.clone(), work).await
    }

    /// Runs a change that cannot be stopped once it has begun.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(Database) -> ebbtide::Result<T> + Send + 'static,
    ) -> Result<T> {
        let begun = move |database: Database, stop: Stop| {
            stop.begin_commit()?;
            work(database)
        };
        self.write(begun).await
    }

    /// Runs work that goes on if its statement is stopped, since it changes nothing that clients see.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Database) -> ebbtide::Result<T> + Send + 'static,
    ) -> Result<T> {
        let database = self.database.clone();
        match tokio::task::spawn_blocking(move || work(database)).await {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(QueryError::new(Code::InternalError, error.to_string())),
        }
    }

    pub(super) fn collection(&self, name: &str) -> Result<ebbtide::CollectionSnapshot> {
        self.snapshot().collection(name).map_err(|e| self.with_hint(e.into(), name))
    }

    /// Refuses the name of no collection.
    pub(super) fn must_exist(&self, name: &str) -> Result<()> {
        let exists = self.snapshots().iter().any(|snapshot| snapshot.has_collection(name));
        if exists { Ok(()) } else { self.collection(name).map(drop) }
    }

    /// Adds the name that was probably meant to an error about an unknown collection.
    pub(super) fn with_hint(&self, error: QueryError, name: &str) -> QueryError {
        if error.code() != Code::NamespaceNotFound {
            return error;
        }
        let names: Vec<String> = self.snapshots().iter().flat_map(Snapshot::all_collections).collect();
        let hint = suggest::hint(name, names.iter().map(String::as_str));
        QueryError::new(error.code(), format!("{}{hint}", error.message()))
    }

    pub(super) async fn command(
        &self,
        document: &Map<String, Value>,
        done: &str,
        lenient: bool,
    ) -> Result<StatementStream> {
        self.files.check_command(document)?;
        if !self.others.is_empty() {
            return Err(not_written());
        }
        let (command, name) = match document.iter().next() {
            Some((command, Value::String(name))) => (command.as_str(), name.as_str()),
            _ => ("", ""),
        };
        if let Some(index) = document.get("indexes").map(|indexes| &indexes[0])
            && self.snapshot().collection(name).is_ok()
        {
            check_index(name, index)?;
        }
        let exists = self.snapshot().has_collection(name);
        if lenient && command == "create" && exists {
            return Ok(StatementStream::message(format!("collection {name} already exists; nothing was done")));
        }
        if lenient && command == "drop" && !exists {
            return Ok(StatementStream::message(format!("collection {name} does not exist; nothing was done")));
        }
        // What may be the misspelled name of a collection.
        let collection = match command {
            "createHold" => document.get("collection").and_then(Value::as_str).unwrap_or_default(),
            "dropHold" => "",
            _ => name,
        };
        let changes_rules = ["collMod", "createIndexes"].contains(&command);
        let snapshot = self.snapshot();
        let what = if snapshot.documents(name).is_ok() { "document" } else { "measurement" };
        let name_of = name.to_owned();
        let mut value = Value::Object(document.clone());
        if snapshot.documents(name).is_ok()
            && let Some(filter) = value.pointer_mut("/indexes/0/partialFilterExpression")
        {
            leave_out_nulls(filter);
        }
        let before = Some(snapshot).filter(|snapshot| changes_rules && snapshot.has_collection(name));
        let work = move |db: Database, stop: Stop| {
            // A count fails if data is damaged, which is no reason to refuse a change of rules.
            let count = |snapshot: &Snapshot| match snapshot.documents(&name_of) {
                Ok(documents) => documents.count(),
                Err(_) => snapshot.collection(&name_of)?.count(),
            };
            let visible = before.as_ref().and_then(|before| count(before).ok());
            stop.begin_commit()?;
            db.run_command(&value)?;
            let Some((before, visible)) = before.zip(visible) else { return Ok(0) };
            let after = count(&db.snapshot_at(before.now()));
            Ok(visible.saturating_sub(after.unwrap_or(visible)))
        };
        Ok(StatementStream::message(match self.write(work).await.map_err(|e| self.with_hint(e, collection))? {
            0 => done.to_owned(),
            1 => format!("{done}; this hides 1 {what} that was visible"),
            hidden => format!("{done}; this hides {hidden} {what}s that were visible"),
        }))
    }

    /// Changes the fields of a collection, or copies it.
    pub(super) async fn alter(&self, collection: &str, change: &Alteration) -> Result<StatementStream> {
        if self.snapshot().documents(collection).is_ok() {
            return Err(QueryError::new(Code::InvalidOptions, instead(collection, change)));
        }
        let (name, work) = (collection.to_owned(), change.clone());
        let work = move |db: Database| match &work {
            Alteration::RenameField { from, to } => {
                db.rename_field(&name, from, to)?;
                Ok(format!("field {from} of {name} is named {to} now"))
            }
            Alteration::DropField(field) => {
                db.drop_field(&name, field)?;
                Ok(format!("field {field} of {name} dropped"))
            }
            Alteration::Copy(to) => {
                let count = db.copy_collection(&name, to)?;
                let plural = if count == 1 { "" } else { "s" };
                Ok(format!("collection {to} created with {count} measurement{plural} of {name}"))
            }
        };
        let done = self.change(work).await.map_err(|e| self.with_hint(e, collection))?;
        Ok(StatementStream::message(done))
    }

    pub(super) async fn show(&self, listing: &Listing) -> Result<StatementStream> {
        let quoted = |name: &str| name.replace('\'', "''");
        let sql = match listing {
            Listing::Functions(pattern) => {
                let rows = functions::list(&self.context.state(), pattern.as_deref())?;
                return Ok(StatementStream::batch(rows, None));
            }
            Listing::Collections => "SELECT * FROM ebbtide.collections ORDER BY name".to_owned(),
            Listing::Ttl(None) => "SELECT * FROM ebbtide.ttl_rules ORDER BY collection".to_owned(),
            Listing::Ttl(Some(name)) => {
                self.must_exist(name)?;
                format!("SELECT * FROM ebbtide.ttl_rules WHERE collection = '{}'", quoted(name))
            }
            Listing::Indexes(name) => {
                let which = match name {
                    None => String::new(),
                    Some(name) => {
                        self.must_exist(name)?;
                        format!("WHERE collection = '{}' ", quoted(name))
                    }
                };
                format!("SELECT * FROM ebbtide.indexes {which}ORDER BY collection, name")
            }
            Listing::Buckets(name) => {
                if !self.snapshots().iter().any(|snapshot| snapshot.collection(name).is_ok()) {
                    self.collection(name)?;
                }
                let name = quoted(name);
                format!("SELECT * FROM ebbtide.buckets WHERE collection = '{name}' ORDER BY meta, window_start")
            }
            Listing::Operations => "SELECT * FROM ebbtide.operations".to_owned(),
            Listing::Ladders => "SELECT * FROM ebbtide.ladders".to_owned(),
            Listing::Publications => "SELECT * FROM ebbtide.publications".to_owned(),
            Listing::Holds => "SELECT * FROM ebbtide.holds".to_owned(),
            Listing::Sweeps => "SELECT * FROM ebbtide.sweeps".to_owned(),
            Listing::Parameters => "SELECT * FROM ebbtide.parameters".to_owned(),
            Listing::Tables => "SELECT table_schema AS schema, table_name AS name FROM information_schema.tables \
                                WHERE table_schema <> 'information_schema' ORDER BY table_schema = 'ebbtide', schema, name"
                .to_owned(),
        };
        let held =
            matches!(listing, Listing::Ttl(_)).then(|| self.databases().find_map(Database::clock_held)).flatten();
        let mut statements = statement::parse(&sql)?;
        let statement = statements.remove(0);
        let mut stream = self.sql(&statement, &sql).await?;
        stream.message = held.map(|held| format!("the sweeper is held: {held}"));
        Ok(stream)
    }

    pub(super) async fn describe(&self, name: &str, statement: &Statement, text: &str) -> Result<StatementStream> {
        if !self.others.is_empty() {
            return self.sql(statement, text).await;
        }
        if let Ok(documents) = self.snapshot().documents(name) {
            return Ok(StatementStream::batch(system::describe_documents(&documents)?, None));
        }
        match self.snapshot().collection(name) {
            Ok(collection) => Ok(StatementStream::batch(system::describe_rows(&collection)?, None)),
            Err(_) => self.sql(statement, text).await,
        }
    }

    pub(super) fn explain_expiry(
        &self,
        name: &str,
        at: Option<&str>,
        proposed: &Map<String, Value>,
    ) -> Result<StatementStream> {
        if !self.others.is_empty() {
            let message =
                "EXPLAIN EXPIRY is about the sweeps of one database, and several are read here: read one alone";
            return Err(QueryError::new(Code::InvalidOptions, message));
        }
        let snapshot = self.snapshot();
        let at = match at {
            Some(text) => Timestamp::parse(text).map_err(|e| QueryError::new(Code::BadValue, e))?,
            None => snapshot.now(),
        };
        if let Ok(documents) = snapshot.documents(name) {
            let proposed = proposed_options(documents.options(), proposed)?;
            let rows = documents.explain_expiry(at, proposed.as_ref())?;
            let message = rows.is_empty().then(|| format!("a sweep at {at} would drop nothing of {name}"));
            return Ok(StatementStream::batch(system::expiry_rows(&rows)?, message));
        }
        let collection = snapshot.collection(name).map_err(|e| self.with_hint(e.into(), name))?;
        let rules = proposed_rules(&collection, proposed)?;
        let rows = collection.explain_expiry(at, rules.as_ref())?;
        let message = match collection.suspended() {
            Some(_) => Some(format!("nothing expires: {}", collection.state())),
            None if rows.is_empty() => Some(format!("a sweep at {at} would drop nothing of {name}")),
            None => None,
        };
        Ok(StatementStream::batch(system::expiry_rows(&rows)?, message))
    }
}

/// The error of a sweep that dropped nothing but what is beyond the sizes of collections.
pub(super) fn held_sweep(why: &str, dropped: u64) -> QueryError {
    let by_size = match dropped {
        0 => String::new(),
        1 => "; 1 bucket dropped by size".to_owned(),
        many => format!("; {many} buckets dropped by size"),
    };
    QueryError::new(Code::IllegalOperation, format!("nothing was dropped because it has expired: {why}{by_size}"))
}

/// The error for a change where several databases are read.
pub(super) fn not_written() -> QueryError {
    QueryError::new(Code::IllegalOperation, "several databases are read as one here: they cannot be changed")
}

/// What to do with an ordinary collection instead of a change that only time series have.
fn instead(collection: &str, change: &Alteration) -> String {
    let way = match change {
        Alteration::RenameField { from, to } => format!(
            "fields are renamed by the command {{\"update\": \"{collection}\", \"updates\": [{{\"q\": {{}}, \"u\": {{\"$rename\": \
             {{\"{from}\": \"{to}\"}}}}, \"multi\": true}}]}}"
        ),
        Alteration::DropField(field) => format!("UPDATE {collection} SET {field} = NULL removes a field"),
        Alteration::Copy(to) => format!(
            "ebbtide dump --collection {collection} FOLDER and ebbtide restore FOLDER --collection {collection} --as {to} copy it"
        ),
    };
    format!("'{collection}' is an ordinary collection: {way}")
}

/// Refuses what is no TTL index of a time-series collection.
fn check_index(collection: &str, index: &Value) -> Result<()> {
    if index.get("expireAfterSeconds").is_none() {
        let message = "CREATE INDEX is not needed on a time-series collection: measurements are found by meta and time without one; \
                       for an expiry rule, write CREATE TTL INDEX name ON collection (time) EXPIRE AFTER 1 DAY WHERE meta = 'a'";
        return Err(QueryError::new(Code::BadValue, message));
    }
    if index.get("partialFilterExpression").is_none() {
        let message = format!(
            "a TTL index needs WHERE, which says which series expire: WHERE meta = 'a'; for all of them, write ALTER COLLECTION \
             {collection} EXPIRE AFTER 1 DAY"
        );
        return Err(QueryError::new(Code::InvalidOptions, message));
    }
    Ok(())
}

/// The types of all values that are not null.
const TYPES: [&str; 16] = [
    "number",
    "string",
    "object",
    "array",
    "binData",
    "objectId",
    "bool",
    "date",
    "regex",
    "javascript",
    "javascriptWithScope",
    "symbol",
    "dbPointer",
    "timestamp",
    "minKey",
    "maxKey",
];

/// IS NOT NULL is written as `$exists: true`, which matches a null of a document.
fn leave_out_nulls(filter: &mut Value) {
    match filter {
        Value::Object(tests) if tests.get("$exists") == Some(&Value::Bool(true)) => {
            *filter = serde_json::json!({ "$type": TYPES });
        }
        Value::Object(parts) => parts.values_mut().for_each(leave_out_nulls),
        Value::Array(parts) => parts.iter_mut().for_each(leave_out_nulls),
        _ => {}
    }
}

/// The settings that EXPLAIN EXPIRY of an ordinary collection assumes; `None` for the current ones.
fn proposed_options(current: &DocumentsOptions, proposed: &Map<String, Value>) -> Result<Option<DocumentsOptions>> {
    let mut given = None;
    for (key, value) in proposed {
        if key != "defaultTTL" {
            let message = format!("EXPLAIN EXPIRY of an ordinary collection has no option {key}; it takes defaultTTL");
            return Err(QueryError::new(Code::IDLUnknownField, message));
        }
        let value = match value {
            Value::String(text) => Value::String(text.to_lowercase()),
            other => other.clone(),
        };
        let failed = |e: ebbtide_ttl::RuleError| QueryError::new(e.code, e.message);
        let value = value_from_json(&value).map_err(failed)?;
        let default_ttl = DefaultTtl::parse(value.as_raw_bson_ref()).map_err(failed)?;
        given = Some(DocumentsOptions { default_ttl, ..current.clone() });
    }
    Ok(given)
}

/// The rules that EXPLAIN EXPIRY assumes; `None` for the current ones.
fn proposed_rules(collection: &ebbtide::CollectionSnapshot, proposed: &Map<String, Value>) -> Result<Option<RuleSet>> {
    if proposed.is_empty() {
        return Ok(None);
    }
    let mut rules = collection.rules().clone();
    for (key, value) in proposed {
        match (key.as_str(), value) {
            ("expireAfterSeconds", value) => {
                let value = match value {
                    Value::String(text) => ebbtide_ttl::Value::String(text.to_lowercase()),
                    Value::Number(n) => match (n.as_i64(), n.as_f64()) {
                        (Some(whole), _) => ebbtide_ttl::Value::Int(whole),
                        (None, fraction) => ebbtide_ttl::Value::Double(fraction.unwrap_or(f64::NAN)),
                    },
                    Value::Bool(b) => ebbtide_ttl::Value::Bool(*b),
                    _ => ebbtide_ttl::Value::Null,
                };
                rules.change_collection(ebbtide_ttl::parse_expire_after_or_off(&value)?);
            }
            (key, _) => {
                let message = format!("EXPLAIN EXPIRY has no option {key}; it takes expireAfterSeconds");
                return Err(QueryError::new(Code::IDLUnknownField, message));
            }
        }
    }
    Ok(Some(rules))
}
