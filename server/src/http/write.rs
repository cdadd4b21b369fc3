//! Line protocol over HTTP, in the three forms that InfluxDB's clients send.
//!
//! A measurement is a collection, its tags are the meta, and all of a request is examined before any of it is stored.

use super::lines::{BadLine, Body, Points, TAGS, TIME, Unit, document, lines};
use super::problem::{self, Form, Outcome, Problem, reason};
use super::{Caller, Ends, Refused, authorize, body};
use crate::accounts::Role;
use crate::settings::AutoCreate;
use crate::shared::{Shared, add};
use axum::Extension;
use axum::body::Body as HttpBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide::{Collection, CollectionOptions, Database};
use ebbtide_ttl::{Clock as _, Code, Value};
use serde::Deserialize;
use std::sync::Arc;

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
        Err(outcome) => outcome.response(&shared, ends, form),
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
        problem::wait_for_room(self.shared, &database)?;
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
        let auto = &self.shared.settings.auto_create_lines;
        let options = || options(auto, &self.target.bucket, TAGS).precision(auto.precision);
        collection_or_new(self.shared, database, name, options)
    }
}

/// The collection of this name, which is created if there is none and `[autocreate]` is on.
pub(super) fn collection_or_new(
    shared: &Shared,
    database: &Database,
    name: &str,
    options: impl FnOnce() -> CollectionOptions,
) -> Result<Collection, Problem> {
    let missing = match database.collection(name) {
        Err(error) if error.code() == Code::NamespaceNotFound => error,
        found => return Ok(found?),
    };
    if !shared.settings.auto_create_lines.enabled {
        return Err(Problem::bad(format!("{missing}; and [autocreate] is off")));
    }
    match database.create_collection(name, options()) {
        // Another request was faster.
        Err(error) if error.code() == Code::NamespaceExists => Ok(database.collection(name)?),
        made => Ok(made?),
    }
}

/// How a collection is created for a bucket.
pub(super) fn options(auto: &AutoCreate, bucket: &str, meta: &str) -> CollectionOptions {
    let options = CollectionOptions::new(TIME).meta_field(meta);
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
