//! `POST /collections/NAME`: measurements or documents as lines of JSON, and measurements as an Arrow stream.

use super::body;
use super::caller::{Caller, Refused, authorize, check_sender};
use super::ipc;
use super::lines::BadLine;
use super::once::{self, Once, Written};
use super::problem::{Form, Outcome, Problem, reason, wait_for_room};
use super::target::{OfDatabase, named, of_request};
use crate::accounts::Role;
use crate::ends::Ends;
use crate::shared::{Shared, aside};
use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide::documents_model::json::document_from_slice;
use ebbtide::{Collection, Database, Documents, Request, WriteBatchError, WriteOutcome};
use ebbtide_ttl::{Code, Timestamp, Value};
use serde_json::json;
use std::sync::Arc;

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(ends): Extension<Ends>,
    Path(name): Path<String>,
    asked: OfDatabase,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match stored(&shared, ends, &name, asked, &headers, body).await {
        Ok(count) => {
            let body = format!("{}\n", json!({"inserted": count}));
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(outcome) => outcome.response(&shared, ends, Form::One),
    }
}

async fn stored(
    shared: &Arc<Shared>,
    ends: Ends,
    name: &str,
    asked: OfDatabase,
    headers: &HeaderMap,
    body: Body,
) -> Result<u64, Outcome> {
    let database = named(asked)?;
    let Caller { account, .. } = authorize(shared, ends, headers, None, Role::Write).await?;
    check_sender(headers, false)?;
    let database = of_request(shared, database.as_deref())?;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_arrow = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(super::sql::ARROW));
    let refused = |Refused(status, message): Refused| Problem::new(status, message);
    let (_memory, body) = body::read(shared, headers, body).await.map_err(refused)?;
    let once = aside(body.len(), || Once::of(("collections", &account), headers, &[name.as_bytes(), &body]))?;
    let insert = Insert { shared, database, name, account };
    let store = |request: Option<&mut Request>| match is_arrow {
        true => insert.arrow(&body, request),
        false => insert.lines(&body, request),
    };
    let counter = &shared.counters.rows_posted;
    let written = tokio::task::block_in_place(|| once::run((shared, &insert.database), once, counter, store))?;
    Ok(written.complete()?)
}

/// What a request is about.
pub(super) struct Insert<'a> {
    pub(super) shared: &'a Shared,
    pub(super) database: Database,
    pub(super) name: &'a str,
    pub(super) account: String,
}

impl Insert<'_> {
    /// Refuses more rows than an account may write now, and waits until the database has room.
    pub(super) fn admit(&self, rows: usize) -> Result<(), Problem> {
        let rows = rows as u64;
        self.shared.rates.take(&self.account, rows, self.shared.now()).map_err(|e| Problem::of_command(&e))?;
        wait_for_room(self.shared, &self.database)
    }

    fn is_ordinary(&self) -> bool {
        self.database.document_collections().iter().any(|name| name == self.name)
    }

    /// Rows of an Arrow stream, all or none.
    fn arrow(&self, body: &Bytes, request: Option<&mut Request>) -> Result<Written, Problem> {
        let wrong =
            |error: arrow::error::ArrowError| Problem::bad(format!("the body is not a complete Arrow stream: {error}"));
        let (schema, batches) = ipc::batches(body, self.shared.settings.message_bytes_max).map_err(wrong)?;
        self.batch(&concat_batches(&schema, &batches).map_err(wrong)?, request)
    }

    /// Rows, all or none.
    fn batch(&self, rows: &RecordBatch, request: Option<&mut Request>) -> Result<Written, Problem> {
        self.check()?;
        self.admit(rows.num_rows())?;
        self.admitted(rows, request)
    }

    /// Refuses a collection that takes no rows.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.is_ordinary() {
            let what = format!("'{}' is an ordinary collection, which takes documents: send lines of JSON", self.name);
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
        }
        self.collection().map(drop)
    }

    /// Rows that may be inserted, all or none.
    pub(super) fn admitted(&self, rows: &RecordBatch, request: Option<&mut Request>) -> Result<Written, Problem> {
        let written = Written::all(rows.num_rows() as u64);
        let batch = self.database.write_batch().insert(self.name, rows);
        once::commit(batch, request, &written).map_err(|refused| Problem::of(&refused.error))?;
        Ok(written)
    }

    /// Lines of Extended JSON.
    fn lines(&self, body: &Bytes, request: Option<&mut Request>) -> Result<Written, Problem> {
        let lines = body.split(|byte| *byte == b'\n').zip(1..).filter(|(line, _)| !line.trim_ascii().is_empty());
        if self.is_ordinary() {
            let documents = self.database.documents(self.name)?;
            return self.documents(&documents, lines, request);
        }
        self.measurements(&self.collection()?, lines, request)
    }

    fn collection(&self) -> Result<Collection, Problem> {
        self.database.collection(self.name).map_err(|error| match error.code() {
            Code::NamespaceNotFound => Problem::new(StatusCode::NOT_FOUND, error.to_string()),
            _ => error.into(),
        })
    }

    /// Measurements, all or none. A time may be a text of RFC 3339 as well.
    fn measurements<'b>(
        &self,
        collection: &Collection,
        lines: impl Iterator<Item = (&'b [u8], usize)>,
        request: Option<&mut Request>,
    ) -> Result<Written, Problem> {
        let time = collection.snapshot()?.options().time_field.clone();
        let (mut measurements, mut numbers) = (Vec::new(), Vec::new());
        for (line, number) in lines {
            let at = |what: &dyn std::fmt::Display| Problem::bad(format!("line {number}: {what}: nothing was stored"));
            let mut measurement = ebbtide::json::from_slice(line).map_err(|error| at(&error))?;
            if let Value::Object(members) = &mut measurement
                && let Some((_, value)) = members.iter_mut().find(|(name, _)| **name == *time)
                && let Value::String(text) = value
            {
                let instant = Timestamp::parse(text).map_err(|error| at(&format!("field '{time}': {error}")))?;
                *value = Value::Date(instant);
            }
            measurements.push(measurement);
            numbers.push(number);
        }
        self.admit(measurements.len())?;
        let written = Written::all(measurements.len() as u64);
        let batch = self.database.write_batch().insert_documents(self.name, &measurements);
        once::commit(batch, request, &written).map_err(|WriteBatchError { error, .. }| {
            match error.index().and_then(|at| numbers.get(at)) {
                Some(number) => Problem::bad(format!("line {number}: {}: nothing was stored", reason(&error))),
                None => error.into(),
            }
        })?;
        Ok(written)
    }

    /// Documents, of which those that are refused are told.
    fn documents<'b>(
        &self,
        documents: &Documents,
        lines: impl Iterator<Item = (&'b [u8], usize)>,
        request: Option<&mut Request>,
    ) -> Result<Written, Problem> {
        let (mut read, mut numbers) = (Vec::new(), Vec::new());
        for (line, number) in lines {
            let document = document_from_slice(line)
                .map_err(|error| Problem::bad(format!("line {number}: {error}: nothing was stored")))?;
            read.push(Ok(document));
            numbers.push(number);
        }
        self.admit(read.len())?;
        let written = move |outcome: &WriteOutcome| {
            let refused = outcome.refused.iter().filter_map(|(at, error)| Some((*numbers.get(*at)?, reason(error))));
            Written { stored: outcome.n, bad: refused.map(|(number, why)| BadLine::new(number, why, b"")).collect() }
        };
        let outcome = match request {
            None => documents.insert_many(read, false)?,
            Some(request) => {
                let written = written.clone();
                documents.insert_many_once(read, request, move |outcome| written(outcome).to_reply())?
            }
        };
        Ok(written(&outcome))
    }
}
