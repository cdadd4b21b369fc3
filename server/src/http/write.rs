//! Line protocol over HTTP, in the three forms that InfluxDB's clients send.
//!
//! A measurement is a collection, its tags are the meta, and all of a request is examined before any of it is stored.

use super::lines::{BadLine, Body, Points, TAGS, TIME, Unit, document, lines};
use super::{Caller, Ends, Refused, authorize, body};
use crate::accounts::Role;
use crate::error::{CommandError, ServerCode};
use crate::settings::AutoCreate;
use crate::shared::{Shared, add};
use axum::Extension;
use axum::body::Body as HttpBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide::{Collection, CollectionOptions, Database, ErrorKind};
use ebbtide_ttl::{Clock as _, Code, Value};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// Of what a sender may try again, after so many seconds.
const RETRY_SECONDS: &str = "1";

/// Which of InfluxDB's generations a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `/write?db=&rp=&precision=&u=&p=`.
    One,
    /// `/api/v2/write?org=&bucket=&precision=`.
    Two,
    /// `/api/v3/write_lp?db=&precision=&accept_partial=`.
    Three,
}

/// The parameters of all forms.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Parameters {
    db: Option<String>,
    rp: Option<String>,
    bucket: Option<String>,
    precision: Option<String>,
    accept_partial: Option<bool>,
    u: Option<String>,
    p: Option<String>,
}

type Asked = Result<Query<Parameters>, QueryRejection>;

/// Why a request is not stored, or not all of it.
struct Problem {
    status: StatusCode,
    message: String,
    lines: Vec<BadLine>,
}

impl Problem {
    fn new(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem { status, message: message.into(), lines: Vec::new() }
    }

    fn bad(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, message)
    }

    fn of(error: &ebbtide::Error) -> Problem {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Busy | ErrorKind::Full => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, error.to_string())
    }

    fn of_command(error: &CommandError) -> Problem {
        let is = |code: ServerCode| error.code == code as i32;
        let status = if is(ServerCode::IngressRequestRateLimitExceeded) || is(ServerCode::MaxTimeMSExpired) {
            StatusCode::TOO_MANY_REQUESTS
        } else if error.is_mistake {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Problem::new(status, error.message.clone())
    }

    /// About some lines: the first is named, and all are listed where the form has a place for them.
    fn of_lines(lines: Vec<BadLine>, stored: usize) -> Problem {
        let first = lines.first().map(|bad| format!("line {}: {}", bad.number, bad.reason)).unwrap_or_default();
        let others = match lines.len() {
            0 | 1 => String::new(),
            n => format!(" (and {} more lines)", n - 1),
        };
        let outcome = match stored {
            0 => "nothing was stored".to_owned(),
            n => format!("{n} other lines were stored"),
        };
        Problem { lines, ..Problem::bad(format!("{first}{others}: {outcome}")) }
    }

    /// In the words of a generation.
    fn response(&self, form: Form) -> Response {
        let listed =
            |bad: &BadLine| json!({"line_number": bad.number, "error_message": bad.reason, "original_line": bad.text});
        let body = match form {
            Form::One => json!({"error": self.message}),
            Form::Two => json!({"code": code_of(self.status), "message": self.message}),
            Form::Three => {
                json!({"error": self.message, "data": self.lines.iter().map(listed).collect::<Vec<_>>()})
            }
        };
        let mut response = (self.status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        response
    }
}

impl From<ebbtide::Error> for Problem {
    fn from(error: ebbtide::Error) -> Self {
        Problem::of(&error)
    }
}

/// The word of the second generation for a status.
fn code_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::REQUEST_TIMEOUT => "timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "internal error",
    }
}

macro_rules! handlers {
    ($($name:ident: $form:expr),*) => {
        $(pub(super) async fn $name(
            State(shared): State<Arc<Shared>>,
            Extension(ends): Extension<Ends>,
            asked: Asked,
            headers: HeaderMap,
            body: HttpBody,
        ) -> Response {
            answer($form, shared, ends, asked, headers, body).await
        })*
    };
}

handlers!(first: Form::One, second: Form::Two, third: Form::Three);

async fn answer(
    form: Form,
    shared: Arc<Shared>,
    ends: Ends,
    asked: Asked,
    headers: HeaderMap,
    body: HttpBody,
) -> Response {
    match stored(form, &shared, ends, asked, &headers, body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(Outcome::Refused(refused)) => {
            let Refused(status, message) = &refused;
            let told = Problem::new(*status, message.clone()).response(form);
            let mut response = refused.into_response();
            // With the header that asks for a login.
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *response.body_mut() = told.into_body();
            response
        }
        Err(Outcome::Problem(problem)) => {
            add(&shared.counters.writes_refused, 1);
            tracing::info!(peer = %ends.peer, status = problem.status.as_u16(), what = %problem.message, "a write was refused");
            problem.response(form)
        }
    }
}

enum Outcome {
    Refused(Refused),
    Problem(Problem),
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        Outcome::Refused(refused)
    }
}

impl From<Problem> for Outcome {
    fn from(problem: Problem) -> Self {
        Outcome::Problem(problem)
    }
}

async fn stored(
    form: Form,
    shared: &Arc<Shared>,
    ends: Ends,
    asked: Asked,
    headers: &HeaderMap,
    body: HttpBody,
) -> Result<(), Outcome> {
    let Query(parameters) = asked.map_err(|error| Problem::bad(error.body_text()))?;
    let given = parameters.u.as_deref().zip(parameters.p.as_deref());
    let Caller { account, .. } = authorize(shared, ends, headers, given, Role::Write).await?;
    super::check_sender(headers, given.is_some())?;
    let named = parameters.precision.as_deref().unwrap_or(if form == Form::Three { "auto" } else { "ns" });
    let unit = Unit::named(named).ok_or_else(|| {
        Problem::bad(format!("precision '{named}' is not known: use s, ms, us or ns, which is the default"))
    })?;
    let target = Target::of(form, &parameters)?;
    let refused = |Refused(status, message): Refused| Problem::new(status, message);
    let (_memory, text) = body::read(shared, headers, body).await.map_err(refused)?;
    let partial = form == Form::Three && parameters.accept_partial.unwrap_or(true);
    let write = Write { shared, target, unit, partial, account };
    Ok(tokio::task::block_in_place(|| write.store(&text))?)
}

/// Where a request's points go.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    database: String,
    /// The name whose retention a collection gets that is created.
    bucket: String,
}

impl Target {
    fn of(form: Form, parameters: &Parameters) -> Result<Target, Problem> {
        let missing = |name: &str| Problem::bad(format!("the parameter {name} is missing: it names the database"));
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        match form {
            Form::Two => {
                let bucket = given(&parameters.bucket).ok_or_else(|| missing("bucket"))?;
                let database = bucket.split_once('/').map_or(bucket.as_str(), |(database, _)| database).to_owned();
                Ok(Target { database, bucket })
            }
            Form::One | Form::Three => {
                let database = given(&parameters.db).ok_or_else(|| missing("db"))?;
                let policy = given(&parameters.rp).filter(|_| form == Form::One);
                let bucket = policy.map_or_else(|| database.clone(), |policy| format!("{database}/{policy}"));
                Ok(Target { database, bucket })
            }
        }
    }
}

/// A request that was read.
struct Write<'a> {
    shared: &'a Shared,
    target: Target,
    unit: Unit,
    partial: bool,
    account: String,
}

impl Write<'_> {
    fn store(&self, text: &[u8]) -> Result<(), Problem> {
        let mut body = Body::read(text, self.unit, self.shared.clock.now());
        if !self.partial && !body.bad.is_empty() {
            return Err(Problem::of_lines(body.bad, 0));
        }
        if body.len() == 0 && body.bad.is_empty() {
            return Ok(());
        }
        let rows = body.len() as u64;
        self.shared.rates.take(&self.account, rows, self.shared.now()).map_err(|e| Problem::of_command(&e))?;
        let database = self.shared.databases.get_or_create(&self.target.database);
        let database = database.map_err(|e| Problem::of_command(&e))?;
        self.wait_for_room(&database)?;
        let mut ready = Vec::with_capacity(body.measurements.len());
        for (name, points) in std::mem::take(&mut body.measurements) {
            match self.ready(&database, &name, &points) {
                Ok(one) => {
                    let bad = if self.partial { Vec::new() } else { one.examined(&points) };
                    body.bad.extend(
                        one.bad.iter().chain(&bad).map(|(at, why)| BadLine::new(points.lines[*at], why.as_str(), b"")),
                    );
                    ready.push((one, points));
                }
                Err(problem) if self.partial && problem.status == StatusCode::BAD_REQUEST => {
                    let of = |line: &usize| BadLine::new(*line, problem.message.as_str(), b"");
                    body.bad.extend(points.lines.iter().map(of));
                }
                Err(problem) => return Err(problem),
            }
        }
        if !self.partial && !body.bad.is_empty() {
            return Err(self.of_lines(body.bad, 0, text));
        }
        let mut stored = 0;
        for (one, points) in ready {
            let refused = one.store(self.partial)?;
            stored += one.documents.len() - refused.len();
            body.bad.extend(refused.into_iter().map(|(at, why)| BadLine::new(points.lines[at], why, b"")));
        }
        add(&self.shared.counters.lines_stored, stored as u64);
        if body.bad.is_empty() { Ok(()) } else { Err(self.of_lines(body.bad, stored, text)) }
    }

    /// The bad lines in order, with their text.
    fn of_lines(&self, mut bad: Vec<BadLine>, stored: usize, text: &[u8]) -> Problem {
        bad.sort_by_key(|bad| bad.number);
        let mut lines = lines(text);
        for bad in &mut bad {
            if let Some((_, line)) = lines.by_ref().find(|(number, _)| *number == bad.number) {
                *bad = BadLine::new(bad.number, std::mem::take(&mut bad.reason), line);
            }
        }
        Problem::of_lines(bad, stored)
    }

    fn wait_for_room(&self, database: &Database) -> Result<(), Problem> {
        if !database.is_full() {
            return Ok(());
        }
        let (room, wait) = (self.shared.room.clone(), self.shared.settings.write_wait_max);
        let database = database.clone();
        let made = tokio::runtime::Handle::current().block_on(tokio::time::timeout(wait, async move {
            let turn = room.lock_owned().await;
            let make = move || {
                let made = database.make_room();
                drop(turn);
                made
            };
            tokio::task::spawn_blocking(make).await
        }));
        match made {
            Ok(Ok(made)) => Ok(made?),
            Ok(Err(_)) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server stops")),
            Err(_) => {
                let what = format!("the memory was full for {} ms: send this again later", wait.as_millis());
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, what))
            }
        }
    }

    /// The points of a measurement as documents of its collection, which is created if there is none.
    fn ready(&self, database: &Database, name: &str, points: &Points) -> Result<Ready, Problem> {
        crate::databases::check_collection(name).map_err(|e| Problem::of_command(&e))?;
        let collection = self.collection(database, name)?;
        let snapshot = collection.snapshot()?;
        let (time, meta) = (&snapshot.options().time_field, snapshot.options().meta_field.as_deref());
        let mut ready = Ready { documents: Vec::new(), places: Vec::new(), bad: Vec::new(), collection };
        for (at, (point, instant)) in points.points.iter().zip(&points.instants).enumerate() {
            match document(point, *instant, time, meta) {
                Ok(document) => {
                    ready.documents.push(document);
                    ready.places.push(at);
                }
                Err(why) => ready.bad.push((at, why)),
            }
        }
        Ok(ready)
    }

    fn collection(&self, database: &Database, name: &str) -> Result<Collection, Problem> {
        let missing = match database.collection(name) {
            Err(error) if error.code() == Code::NamespaceNotFound => error,
            found => return Ok(found?),
        };
        let auto = &self.shared.settings.auto_create_lines;
        if !auto.enabled {
            return Err(Problem::bad(format!("{missing}; and [autocreate] is off")));
        }
        match database.create_collection(name, options(auto, &self.target.bucket)) {
            // Another request was faster.
            Err(error) if error.code() == Code::NamespaceExists => Ok(database.collection(name)?),
            made => Ok(made?),
        }
    }
}

/// How a collection is created for a bucket.
fn options(auto: &AutoCreate, bucket: &str) -> CollectionOptions {
    let options = CollectionOptions::new(TIME).meta_field(TAGS).precision(auto.precision);
    match auto.buckets.get(bucket).copied().or(auto.expire_after_seconds) {
        Some(seconds) => options.expire_after_seconds(seconds),
        None => options,
    }
}

/// Documents for a collection, and the points of which none could be made.
struct Ready {
    collection: Collection,
    documents: Vec<Value>,
    /// For each document the place of its point.
    places: Vec<usize>,
    bad: Vec<(usize, String)>,
}

impl Ready {
    /// The first point that the collection would refuse.
    fn examined(&self, points: &Points) -> Vec<(usize, String)> {
        match self.collection.check_documents(&self.documents) {
            Ok(()) => Vec::new(),
            Err(error) => {
                let at = error.index().and_then(|index| self.places.get(index).copied());
                vec![(at.unwrap_or_default().min(points.lines.len().saturating_sub(1)), reason(&error))]
            }
        }
    }

    /// Stores all, or with `partial` what can be stored; returns what could not.
    fn store(&self, partial: bool) -> Result<Vec<(usize, String)>, Problem> {
        if !partial {
            self.collection.insert_documents(&self.documents)?;
            return Ok(Vec::new());
        }
        let reply = self.collection.insert_documents_lenient(&self.documents)?;
        let place = |index: usize| self.places.get(index).copied().unwrap_or_default();
        Ok(reply.errors.into_iter().map(|(index, error)| (place(index), reason(&error))).collect())
    }
}

/// What an error says, without the index of the document: the line is told instead.
fn reason(error: &ebbtide::Error) -> String {
    let text = error.to_string();
    let rest = error.index().and_then(|index| text.strip_prefix(&format!("index {index}: ")));
    rest.map(str::to_owned).unwrap_or(text)
}
