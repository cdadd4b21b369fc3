//! `POST /sql`: one statement, and its rows in the format that is asked for.

use super::caller::{Caller, Refused, authorize, check_sender, check_still};
use super::failed::Failed;
use super::target;
use crate::accounts::Role;
use crate::ends::Ends;
use crate::error::{CommandError, ServerCode};
use crate::gate::Actor;
use crate::shared::{Shared, add, aside};
use crate::sql::{RowsFormat, RowsWriter, Sql, SqlError, SqlKind, SqlResult, SqlStatement};
use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, StringArray};
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide_ttl::Code;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// A piece of a reply is sent when it has so many bytes.
const PIECE_BYTES: usize = 64 << 10;
/// The type of Arrow's stream format.
pub(super) const ARROW: &str = "application/vnd.apache.arrow.stream";
const JSON: &str = "application/json";
/// The header with the message of a statement that also has rows.
const MESSAGE: HeaderName = HeaderName::from_static("x-ebbtide-message");

/// The form of a reply: its name as a parameter, its media type, and what writes it, which is Arrow's stream format if nothing
/// is named.
struct Form {
    name: &'static str,
    media: &'static str,
    format: Option<RowsFormat>,
}

/// The first is the default.
const FORMS: [Form; 6] = [
    Form { name: "json", media: JSON, format: Some(RowsFormat::Json) },
    Form { name: "ndjson", media: "application/x-ndjson", format: Some(RowsFormat::Ndjson) },
    Form { name: "csv", media: "text/csv", format: Some(RowsFormat::Csv) },
    Form { name: "table", media: "text/plain", format: Some(RowsFormat::Table) },
    Form { name: "arrow", media: ARROW, format: None },
    Form { name: "parquet", media: "application/vnd.apache.parquet", format: Some(RowsFormat::Parquet) },
];

impl Form {
    /// The form that a request asks for: by the parameter, or by the type of `Accept` that is one and has the greatest weight.
    fn of(named: Option<&str>, headers: &HeaderMap) -> Result<&'static Form, Failed> {
        let all = || FORMS.iter().map(|form| form.name).collect::<Vec<_>>().join(", ");
        if let Some(named) = named {
            let found = FORMS.iter().find(|form| form.name.eq_ignore_ascii_case(named));
            return found
                .ok_or_else(|| Failed::mistake(format!("format '{named}' is not known: use one of {}", all())));
        }
        let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return Ok(&FORMS[0]) };
        let mut types: Vec<(&str, f32)> = accept.split(',').map(weighted).filter(|(_, weight)| *weight > 0.0).collect();
        // Those of the same weight keep their order.
        types.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (media, _) in types {
            let is_any = matches!(media, "*/*" | "application/*");
            if let Some(form) = FORMS.iter().find(|form| is_any || form.media.eq_ignore_ascii_case(media)) {
                return Ok(form);
            }
        }
        let media: Vec<&str> = FORMS.iter().map(|form| form.media).collect();
        let what = format!("Accept names none of {}; format={} would do as well", media.join(", "), all());
        Err(Failed { status: StatusCode::NOT_ACCEPTABLE, ..Failed::mistake(what) })
    }
}

/// A type of `Accept`, and its weight: `text/csv;q=0.5`.
fn weighted(one: &str) -> (&str, f32) {
    let mut parts = one.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.strip_prefix('=')?.parse().ok());
    (media, weight.unwrap_or(1.0))
}

/// The parameters of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    db: Option<String>,
    format: Option<String>,
}

type Asked = Result<Query<Parameters>, QueryRejection>;

/// A statement with values, as JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    sql: String,
    #[serde(default)]
    parameters: Vec<Value>,
}

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(ends): Extension<Ends>,
    asked: Asked,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match reply(&shared, ends, asked, &headers, body).await {
        Ok(response) => response,
        Err(Outcome::Refused(refused)) => {
            let Refused(status, message) = &refused;
            let told = match *status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Failed { status: *status, ..CommandError::of_server(ServerCode::Unauthorized, message).into() }
                }
                status => Failed::new(status, Code::BadValue, message),
            };
            let told = told.into_response();
            let mut response = refused.into_response();
            // With the header that asks for a login.
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            *response.body_mut() = told.into_body();
            response
        }
        Err(Outcome::Failed(failed)) => {
            add(&shared.counters.sql_failed, 1);
            tracing::info!(peer = %ends.peer, status = failed.status.as_u16(), what = %failed.message, "a statement was refused");
            failed.into_response()
        }
    }
}

enum Outcome {
    Refused(Refused),
    Failed(Failed),
}

impl<E: Into<Failed>> From<E> for Outcome {
    fn from(error: E) -> Self {
        Outcome::Failed(error.into())
    }
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        Outcome::Refused(refused)
    }
}

async fn reply(
    shared: &Arc<Shared>,
    ends: Ends,
    asked: Asked,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Outcome> {
    let Query(parameters) = asked.map_err(|error| Failed::mistake(error.body_text()))?;
    let Caller { role, actor, .. } = authorize(shared, ends, headers, None, Role::Read).await?;
    check_sender(headers, false)?;
    let form = Form::of(parameters.format.as_deref(), headers)?;
    if headers.contains_key(super::once::KEY) {
        let what = "a statement has no Idempotency-Key: insert over /collections, line protocol or remote write";
        return Err(Failed::mistake(what).into());
    }
    let Some(sql) = shared.sql.clone() else {
        let what = "this server runs no SQL";
        return Err(Failed::new(StatusCode::NOT_FOUND, Code::CommandNotFound, what).into());
    };
    let database = target::database(shared, parameters.db.as_deref())?;
    let (_memory, body) = super::body::read(shared, headers, body).await?;
    let (written, statement) = aside(body.len(), || -> Result<_, Failed> {
        let written = written(headers, body)?;
        let statement = crate::sql::single(&*sql, database, &written.sql, role)?;
        Ok((written, statement))
    })?;
    let values = written.parameters.iter().enumerate().map(value).collect::<Result<Vec<_>, _>>()?;
    let running = Running::new(shared);
    let deadline = shared.settings.statement_max.map(|longest| Instant::now() + longest);
    let (kind, needs) = (statement.kind(), statement.needs());
    let SqlResult { schema, rows, message } = started(deadline, statement, values).await??;
    let deadline = deadline.filter(|_| kind == SqlKind::Query);
    let reader = (kind == SqlKind::Query).then_some((actor, needs));
    let Some(rows) = rows else { return Ok(told(form, message)) };
    let mut reply = Reply::new(&*sql, form, &schema, rows, deadline, running, reader)?;
    // An error that comes before much was written gets its status.
    let first = reply.piece().await?;
    let peer = ends.peer;
    let rest = stream::try_unfold(reply, move |mut reply| async move {
        match reply.piece().await {
            Ok(piece) => Ok(piece.map(|piece| (piece, reply))),
            Err(failed) => {
                add(&reply.running.0.counters.sql_failed, 1);
                tracing::warn!(%peer, what = %failed.message, "a reply was broken off");
                Err(io::Error::other(failed.message))
            }
        }
    });
    let pieces = stream::iter(first.map(Ok)).chain(rest);
    let mut response = (StatusCode::OK, [(CONTENT_TYPE, form.media)], Body::from_stream(pieces)).into_response();
    if let Some(message) = message.and_then(|message| HeaderValue::from_str(&message).ok()) {
        response.headers_mut().insert(MESSAGE, message);
    }
    Ok(response)
}

/// The statement in a body: JSON says so, and all else is the statement itself.
fn written(headers: &HeaderMap, body: Bytes) -> Result<Written, Failed> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON)) {
        return serde_json::from_slice(&body).map_err(|error| {
            Failed::mistake(format!("the body is not of the form {{\"sql\": \"...\", \"parameters\": [...]}}: {error}"))
        });
    }
    let sql = String::from_utf8(body.into()).map_err(|_| Failed::mistake("the statement is not UTF-8"))?;
    Ok(Written { sql, parameters: Vec::new() })
}

/// A parameter's value: an array of one.
fn value((at, value): (usize, &Value)) -> Result<ArrayRef, Failed> {
    Ok(match value {
        Value::Null => Arc::new(NullArray::new(1)),
        Value::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
        Value::String(value) => Arc::new(StringArray::from(vec![value.as_str()])),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Arc::new(Int64Array::from(vec![value])),
            None if !number.is_f64() => {
                let what = format!("parameter ${} is {number}, which int64 does not hold: give it as a string", at + 1);
                return Err(Failed::new(StatusCode::BAD_REQUEST, Code::BadValue, what));
            }
            None => Arc::new(Float64Array::from(vec![number.as_f64().unwrap_or(f64::NAN)])),
        },
        Value::Array(_) | Value::Object(_) => {
            let what =
                format!("parameter ${} is a list or an object: give null, a boolean, a number or a string", at + 1);
            return Err(Failed::new(StatusCode::BAD_REQUEST, Code::TypeMismatch, what));
        }
    })
}

/// The reply to a statement without rows.
fn told(form: &Form, message: Option<String>) -> Response {
    let message = message.unwrap_or_else(|| "done".to_owned());
    match form.format {
        Some(RowsFormat::Json | RowsFormat::Ndjson) => {
            let body = format!("{}\n", json!({"message": message}));
            (StatusCode::OK, [(CONTENT_TYPE, form.media)], body).into_response()
        }
        Some(RowsFormat::Table) => {
            (StatusCode::OK, [(CONTENT_TYPE, form.media)], format!("{message}\n")).into_response()
        }
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

/// What comes before a statement has run for too long.
pub(super) async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Failed> {
    let Some(deadline) = deadline else { return Ok(work.await) };
    // Work that never waits would never be interrupted.
    if Instant::now() >= deadline {
        return Err(late());
    }
    tokio::time::timeout_at(deadline, work).await.map_err(|_| late())
}

/// A statement that was started, unless it has run for too long before it took effect.
pub(super) async fn started(
    deadline: Option<Instant>,
    statement: Arc<dyn SqlStatement>,
    values: Vec<ArrayRef>,
) -> Result<Result<SqlResult, SqlError>, Failed> {
    let starting = statement.start(values);
    let Some(deadline) = deadline else { return Ok(starting.result.await) };
    let ended = async {
        tokio::time::sleep_until(deadline).await;
        late()
    };
    starting.unless(ended).await
}

fn late() -> Failed {
    let what = "the statement took longer than statement_seconds of [limits] allows";
    Failed::new(StatusCode::SERVICE_UNAVAILABLE, Code::Interrupted, what)
}

/// A statement among those that run.
pub(super) struct Running(Arc<Shared>);

impl Running {
    pub(super) fn new(shared: &Arc<Shared>) -> Running {
        add(&shared.counters.sql_statements, 1);
        shared.counters.sql_running.fetch_add(1, Ordering::Relaxed);
        Running(shared.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.counters.sql_running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What was written and not sent yet.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows in Arrow's stream format.
struct ArrowRows(StreamWriter<Buffer>);

impl RowsWriter for ArrowRows {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), SqlError> {
        self.0.write(rows).map_err(unwritten)
    }

    fn finish(mut self: Box<Self>) -> Result<(), SqlError> {
        self.0.finish().map_err(unwritten)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over results")]
fn unwritten(error: arrow::error::ArrowError) -> SqlError {
    SqlError::Failed(Code::InternalError, format!("the rows cannot be written: {error}"))
}

/// Rows on their way to a client.
struct Reply {
    rows: BoxStream<'static, Result<RecordBatch, SqlError>>,
    /// None at the end.
    writer: Option<Box<dyn RowsWriter>>,
    written: Buffer,
    deadline: Option<Instant>,
    running: Running,
    /// On whose account they are read, and the role that this needs; nothing of a statement that has done what it does.
    reader: Option<(Actor, Role)>,
    /// Bytes of the rows so far.
    bytes: usize,
}

impl Reply {
    fn new(
        sql: &dyn Sql,
        form: &Form,
        schema: &SchemaRef,
        rows: BoxStream<'static, Result<RecordBatch, SqlError>>,
        deadline: Option<Instant>,
        running: Running,
        reader: Option<(Actor, Role)>,
    ) -> Result<Reply, Failed> {
        let written = Buffer::default();
        let writer: Box<dyn RowsWriter> = match form.format {
            Some(format) => sql.writer(format, schema, Box::new(written.clone()))?,
            None => Box::new(ArrowRows(StreamWriter::try_new(written.clone(), schema).map_err(unwritten)?)),
        };
        Ok(Reply { rows, writer: Some(writer), written, deadline, running, reader, bytes: 0 })
    }

    /// The next piece; none at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Failed> {
        while let Some(writer) = &mut self.writer {
            let rows = within(self.deadline, self.rows.next()).await?.transpose()?;
            if let Some((actor, needed)) = &self.reader {
                check_still(&self.running.0, actor, *needed)?;
            }
            match rows {
                Some(rows) => {
                    let bytes = rows.get_array_memory_size();
                    self.bytes += bytes;
                    aside(bytes, || writer.write(&rows))?;
                }
                // Some forms are written at the end.
                None => aside(self.bytes, || self.writer.take().map_or(Ok(()), RowsWriter::finish))?,
            }
            if self.written.0.lock().len() >= PIECE_BYTES {
                break;
            }
        }
        let piece = std::mem::take(&mut *self.written.0.lock());
        Ok((!piece.is_empty()).then(|| Bytes::from(piece)))
    }
}
