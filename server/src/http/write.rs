//! Line protocol over HTTP, in the three forms that InfluxDB's clients send.
//!
//! A measurement is a collection, its tags are the meta, and all of a request is examined before any of it is stored.

use super::body;
use super::caller::{Caller, Refused, authorize, check_sender};
use super::lines::{BadLine, BadLines, Body, TAGS, TIME, Unit, lines, unfit};
use super::once::{self, Once, Written};
use super::place::{Place, options};
use super::problem::{self, Form, Outcome, Problem, reason};
use crate::accounts::Role;
use crate::ends::Ends;
use crate::shared::{Shared, aside};
use axum::Extension;
use axum::body::Body as HttpBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide::line_protocol::{LinePoint, Points};
use ebbtide::{Database, ErrorKind, Request};
use ebbtide_ttl::Clock as _;
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
    check_sender(headers, given.is_some())?;
    let default = if form == Form::Three { "auto" } else { "ns" };
    let named = parameters.precision.as_deref().unwrap_or(default);
    let unit = Unit::named(named).ok_or_else(|| {
        let units = "h, m, s, ms, us, ns or auto";
        Problem::bad(format!("precision '{named}' is not known: use {units}; the default here is {default}"))
    })?;
    let target = Target::of(form, &parameters)?;
    let refused = |Refused(status, message): Refused| Problem::new(status, message);
    let (_memory, text) = body::read(shared, headers, body).await.map_err(refused)?;
    let partial = form == Form::Three && parameters.accept_partial.unwrap_or(true);
    let content: [&[u8]; 4] = [target.bucket.as_bytes(), named.as_bytes(), &[u8::from(partial)], &text];
    let once = aside(text.len(), || Once::of(("line protocol", &account), headers, &content))?;
    let write = Write { shared, target, unit, partial, account };
    tokio::task::block_in_place(|| write.store(&text, once)?.complete())?;
    Ok(())
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
    fn store(&self, text: &[u8], once: Option<Once>) -> Result<Written, Problem> {
        let mut body = Body::read(text, self.unit, self.shared.clock.now());
        for points in body.lines.measurements() {
            if let Err(error) = crate::databases::check_collection(points.name()) {
                let refused = |point: LinePoint<'_>| BadLine::new(point.number(), error.message.as_str(), b"");
                body.bad.extend(points.as_measurements(TIME).map(refused));
            }
        }
        if !self.partial && !body.bad.is_empty() {
            return Err(Problem::of_lines(with_text(body.bad, text), 0));
        }
        if body.len() == 0 && body.bad.is_empty() {
            return Ok(Written::default());
        }
        let rows = body.len() as u64;
        self.shared.rates.take(&self.account, rows, self.shared.now()).map_err(|e| Problem::of_command(&e))?;
        let database = self.shared.databases.get_or_create(&self.target.database);
        let database = database.map_err(|e| Problem::of_command(&e))?;
        problem::wait_for_room(self.shared, &database)?;
        let counter = &self.shared.counters.lines_stored;
        once::run((self.shared, &database), once, counter, |request| self.insert(&database, body, request, text))
    }

    /// Stores all points, or with `partial` those that can be stored, with one record of the log.
    fn insert(
        &self,
        database: &Database,
        body: Body<'_>,
        mut request: Option<&mut Request>,
        text: &[u8],
    ) -> Result<Written, Problem> {
        let (mut bad, mut places) = (body.bad, Vec::new());
        let is_named = |points: &&Points<'_>| crate::databases::check_collection(points.name()).is_ok();
        for points in body.lines.measurements().filter(is_named) {
            match self.place(database, points.name()) {
                Ok(place) => places.push((points, place)),
                Err(problem) if problem.status == StatusCode::BAD_REQUEST => {
                    let refused = |point: LinePoint<'_>| BadLine::new(point.number(), problem.message.as_str(), b"");
                    bad.extend(points.as_measurements(TIME).map(refused));
                    if !self.partial {
                        return Err(Problem::of_lines(with_text(bad, text), 0));
                    }
                }
                Err(problem) => return Err(problem),
            }
        }
        let mut ready = Vec::with_capacity(places.len());
        for (points, place) in &places {
            let (one, refused) = Ready::of(points, place);
            bad.extend(refused);
            ready.push(one);
        }
        if !self.partial && (!bad.is_empty() || ready.iter().any(|one| one.place.collection.is_none())) {
            bad.extend(ready.iter().filter_map(Ready::examined));
            if !bad.is_empty() {
                return Err(Problem::of_lines(with_text(bad, text), 0));
            }
        }
        bad.extend(self.create(database, &mut ready)?);
        loop {
            let stored = ready.iter().map(|one| one.points.len() as u64).sum();
            let written = Written { stored, bad: with_text(bad.clone(), text) };
            if stored == 0 {
                return Ok(written);
            }
            let batch = ready
                .iter()
                .fold(database.write_batch(), |batch, one| batch.insert_measurements(one.name, &one.points));
            let refused = match once::commit(batch, request.as_deref_mut(), &written) {
                Ok(_) => return Ok(written),
                Err(refused) if refused.error.kind() == ErrorKind::Invalid => refused,
                Err(refused) => return Err(refused.error.into()),
            };
            let before = bad.len();
            if self.partial {
                for one in &mut ready {
                    bad.extend(one.sort_out()?);
                }
            } else {
                bad.extend(ready.iter().filter_map(Ready::examined));
                if !bad.is_empty() {
                    return Err(Problem::of_lines(with_text(bad, text), 0));
                }
            }
            if bad.len() == before {
                return Err(refused.error.into());
            }
        }
    }

    /// Where the points of a measurement go.
    fn place(&self, database: &Database, name: &str) -> Result<Place, Problem> {
        Place::of((self.shared, database), name, (TAGS, self.shared.settings.auto_create_lines.precision))
    }

    /// Creates the collections that are not there yet and will have points. Points that no new collection would take are taken
    /// out and returned.
    fn create(&self, database: &Database, ready: &mut Vec<Ready<'_>>) -> Result<Vec<BadLine>, Problem> {
        let auto = &self.shared.settings.auto_create_lines;
        let mut bad = Vec::new();
        let is_new = |one: &Ready<'_>| one.place.collection.is_none();
        for one in ready.iter_mut().filter(|one| is_new(one)) {
            bad.extend(one.without_hope());
        }
        if self.partial && ready.iter().any(is_new) {
            // Points that are refused alone are sorted out later. Those that are too much together are not.
            for one in ready.iter() {
                match one.place.check(&one.points) {
                    Err(error) if error.index().is_none() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        for one in ready.iter_mut().filter(|one| is_new(one) && !one.points.is_empty()) {
            let options = || options(auto, &self.target.bucket, TAGS).precision(auto.precision);
            one.place.create(database, one.name, options)?;
        }
        ready.retain(|one| one.place.collection.is_some());
        Ok(bad)
    }
}

/// Points for a collection.
struct Ready<'a> {
    name: &'a str,
    place: Place,
    points: Vec<LinePoint<'a>>,
}

impl<'a> Ready<'a> {
    /// The points of a measurement, and those that cannot be of its collection.
    fn of(points: &'a Points<'_>, place: &'a Place) -> (Ready<'a>, Vec<BadLine>) {
        let (time, meta) = (&place.schema.time, place.schema.meta.as_deref());
        let (layouts, with_tags) = unfit(points, time, meta);
        let points_max = points.len();
        let mut ready = Ready { name: points.name(), place: place.clone(), points: Vec::with_capacity(points_max) };
        let mut bad = Vec::new();
        for point in points.as_measurements(time) {
            let with_tags = with_tags.filter(|_| point.has_tags());
            match with_tags.or(layouts[point.layout()].as_deref()) {
                Some(why) => bad.push(BadLine::new(point.number(), why, b"")),
                None => ready.points.push(point),
            }
        }
        (ready, bad)
    }

    /// The first point that the collection would refuse.
    fn examined(&self) -> Option<BadLine> {
        let error = self.place.check(&self.points).err()?;
        let point = error.index().and_then(|index| self.points.get(index)).or(self.points.last())?;
        Some(BadLine::new(point.number(), reason(&error), b""))
    }

    /// Takes out all points, if a collection without measurements would refuse each of them.
    fn without_hope(&mut self) -> Vec<BadLine> {
        let mut bad = Vec::new();
        for point in &self.points {
            match self.place.check(std::slice::from_ref(point)) {
                Ok(()) => return Vec::new(),
                Err(error) => bad.push(BadLine::new(point.number(), reason(&error), b"")),
            }
        }
        self.points.clear();
        bad
    }

    /// Takes out the points that the collection would refuse.
    fn sort_out(&mut self) -> Result<Vec<BadLine>, Problem> {
        let Some(collection) = &self.place.collection else { return Ok(Vec::new()) };
        let refused = collection.check_measurements_lenient(&self.points)?;
        let of_line = |(index, error): &(usize, ebbtide::Error)| {
            Some(BadLine::new(self.points.get(*index)?.number(), reason(error), b""))
        };
        let bad = refused.iter().filter_map(of_line).collect();
        let (mut refused, mut at) = (refused.iter().map(|(index, _)| *index).peekable(), 0);
        self.points.retain(|_| {
            at += 1;
            refused.next_if_eq(&(at - 1)).is_none()
        });
        Ok(bad)
    }
}

/// Bad lines in order, with their text.
fn with_text(mut bad: BadLines, text: &[u8]) -> BadLines {
    bad.listed.sort_by_key(|bad| bad.number);
    let mut lines = lines(text);
    for bad in bad.listed.iter_mut().filter(|bad| bad.text.is_empty()) {
        if let Some((_, line)) = lines.by_ref().find(|(number, _)| *number == bad.number) {
            *bad = BadLine::new(bad.number, std::mem::take(&mut bad.reason), line);
        }
    }
    bad
}
