//! Prometheus remote write 1.0.
//!
//! A sample is a measurement of one collection: its labels, the metric's name among them, are the meta, and its value is the
//! field `value`.

use super::body;
use super::caller::{Caller, Refused, authorize, check_sender};
use super::once::{self, Once, Written};
use super::place::{Place, options};
use super::problem::{Form, Outcome, Problem, wait_for_room};
use super::target::{OfDatabase, named, of_request};
use crate::accounts::Role;
use crate::ends::Ends;
use crate::settings::Prometheus;
use crate::shared::{Shared, aside};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide::buckets::{Cell, Measurement};
use ebbtide::{Database, Request};
use ebbtide_ttl::{Precision, RuleError, Timestamp, Value};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Its meta field.
const LABELS: &str = "labels";
/// The field of the sample.
const VALUE: &str = "value";
/// The label with the name of the metric.
const NAME: &str = "__name__";
/// Series, labels and samples of a request at most.
const PARTS_MAX: usize = 2_000_000;

/// `prometheus.WriteRequest`, as far as it is stored; metadata about metrics is left out.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    /// Native histograms, whose content is not read.
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Histogram {}

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(ends): Extension<Ends>,
    asked: OfDatabase,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match stored(&shared, ends, asked, &headers, body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(outcome) => outcome.response(&shared, ends, Form::One),
    }
}

async fn stored(
    shared: &Arc<Shared>,
    ends: Ends,
    asked: OfDatabase,
    headers: &HeaderMap,
    body: Body,
) -> Result<(), Outcome> {
    let database = named(asked)?;
    let Caller { account, .. } = authorize(shared, ends, headers, None, Role::Write).await?;
    check_sender(headers, headers.contains_key(VERSION))?;
    check_form(headers)?;
    let refused = |Refused(status, message): Refused| Problem::new(status, message);
    let (_memory, body) = body::raw(shared, body).await.map_err(refused)?;
    let of = ("remote write", account.as_str());
    let once = aside(body.len(), || -> Result<_, Problem> {
        Ok(Once::of(of, headers, &[&body])?.unwrap_or_else(|| Once::of_content(of, &[&body])))
    })?;
    let store = || {
        let request = unpacked(&body, shared.settings.message_bytes_max)?;
        store(shared, database.as_deref(), &account, request, once)
    };
    Ok(tokio::task::block_in_place(store)?)
}

/// The header that every sender sets, which a page of another host cannot send without asking.
const VERSION: &str = "x-prometheus-remote-write-version";

/// Refuses what is not version 1 of the protocol: a sender of version 2 then sends version 1.
fn check_form(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let unsupported = |what: String| Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    let kind = text(CONTENT_TYPE.as_str()).replace(' ', "").to_ascii_lowercase();
    if !matches!(kind.as_str(), "" | "application/x-protobuf" | "application/x-protobuf;proto=prometheus.writerequest")
    {
        return unsupported(format!("remote write 1.0 is taken here, and not '{kind}'"));
    }
    match text(CONTENT_ENCODING.as_str()) {
        "snappy" => Ok(()),
        other => unsupported(format!("a body has Content-Encoding: snappy, and not '{other}'")),
    }
}

fn unpacked(body: &[u8], most: usize) -> Result<WriteRequest, Problem> {
    let packed = |error: snap::Error| Problem::bad(format!("the body is not packed with snappy: {error}"));
    let length = snap::raw::decompress_len(body).map_err(packed)?;
    if length > most {
        let Refused(status, message) = body::too_large(most);
        return Err(Problem::new(status, message));
    }
    let bytes = snap::raw::Decoder::new().decompress_vec(body).map_err(packed)?;
    let parts = parts(&bytes);
    if parts > PARTS_MAX {
        let what = format!("the request has {parts} series, labels and samples: send at most {PARTS_MAX} at a time");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    WriteRequest::decode(bytes.as_slice())
        .map_err(|error| Problem::bad(format!("the body is not a WriteRequest: {error}")))
}

/// The number of series, labels and samples of a request. Each takes more memory than bytes of the request, of which it may have two.
/// What is no request is counted as far as it can be read.
fn parts(mut request: &[u8]) -> usize {
    let mut parts = 0;
    while let Some(mut series) = next_part(&mut request) {
        parts += 1;
        while next_part(&mut series).is_some() {
            parts += 1;
        }
    }
    parts
}

/// The content of the next field of a message, empty unless it has a length; nothing at the end.
fn next_part<'a>(message: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (tag, wire_type) = decode_key(message).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, tag, message, DecodeContext::default()).ok()?;
        return Some(&[]);
    }
    let length = decode_varint(message).ok()?;
    let (content, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
    *message = rest;
    Some(content)
}

fn store(
    shared: &Shared,
    database: Option<&str>,
    account: &str,
    request: WriteRequest,
    once: Once,
) -> Result<(), Problem> {
    let settings = &shared.settings.prometheus;
    let mut rows = 0;
    let mut collections: BTreeMap<String, Vec<TimeSeries>> = BTreeMap::new();
    for series in request.timeseries {
        if !series.histograms.is_empty() {
            return Err(Problem::bad("native histograms are not stored: nothing of the request was stored"));
        }
        rows += series.samples.len();
        let metric = series.labels.iter().find(|label| label.name == NAME).map_or("", |label| label.value.as_str());
        collections.entry(settings.collection_of(metric).to_owned()).or_default().push(series);
    }
    if rows == 0 {
        return Ok(());
    }
    shared.rates.take(account, rows as u64, shared.now()).map_err(|e| Problem::of_command(&e))?;
    let database = of_request(shared, database)?;
    wait_for_room(shared, &database)?;
    let store = |request: Option<&mut Request>| insert(shared, &database, collections, request);
    once::run((shared, &database), Some(once), &shared.counters.samples_stored, store).map(drop)
}

/// Stores the series of each collection, all or none.
fn insert(
    shared: &Shared,
    database: &Database,
    collections: BTreeMap<String, Vec<TimeSeries>>,
    request: Option<&mut Request>,
) -> Result<Written, Problem> {
    let mut ready = Vec::with_capacity(collections.len());
    for (name, series) in collections {
        crate::databases::check_collection(&name).map_err(|e| Problem::of_command(&e))?;
        let place = Place::of((shared, database), &name, (LABELS, Precision::Ms))?;
        if place.schema.meta.is_none() {
            return Err(Problem::bad(format!("collection '{name}' has no meta field for labels")));
        }
        let labels: Vec<Value> = series.iter().map(labels_of).collect();
        ready.push((name, place, series, labels));
    }
    let samples: Vec<_> =
        ready.iter().map(|(name, place, series, labels)| (name, samples(series, labels, &place.schema.time))).collect();
    if ready.iter().any(|(_, place, ..)| place.collection.is_none()) {
        for ((_, place, ..), (_, samples)) in ready.iter().zip(&samples) {
            place.check(samples).map_err(|error| Problem::of(&error))?;
        }
    }
    for (name, place, ..) in &ready {
        let options = || options(&shared.settings.auto_create_lines, name, LABELS).precision(Precision::Ms);
        place.clone().create(database, name, options)?;
    }
    let written = Written::all(samples.iter().map(|(_, samples)| samples.len() as u64).sum());
    let batch =
        samples.iter().fold(database.write_batch(), |batch, (name, samples)| batch.insert_measurements(name, samples));
    once::commit(batch, request, &written).map_err(|refused| Problem::of(&refused.error))?;
    Ok(written)
}

/// The labels of a series.
fn labels_of(series: &TimeSeries) -> Value {
    let label = |label: &Label| (label.name.as_str().into(), Value::String(label.value.clone()));
    Value::Object(series.labels.iter().map(label).collect())
}

/// The samples of series as measurements of a collection with a time field of this name.
fn samples<'a>(series: &'a [TimeSeries], labels: &'a [Value], time: &'a str) -> Vec<Labelled<'a>> {
    let of_one = |(series, labels): (&'a TimeSeries, &'a Value)| {
        series.samples.iter().map(move |sample| Labelled { time, labels, sample: *sample })
    };
    series.iter().zip(labels).flat_map(of_one).collect()
}

/// A sample with its labels, which are the meta.
#[derive(Debug, Clone, Copy)]
struct Labelled<'a> {
    time: &'a str,
    labels: &'a Value,
    sample: Sample,
}

impl<'a> Measurement<'a> for Labelled<'a> {
    fn members(self) -> Result<impl Iterator<Item = Result<(&'a str, Cell<'a>), RuleError>>, RuleError> {
        let at = Cell::Date(Timestamp::from_millis(self.sample.timestamp));
        Ok([Ok((self.time, at)), Ok((VALUE, Cell::Double(self.sample.value)))].into_iter())
    }

    fn shared_meta(self) -> Option<&'a Value> {
        Some(self.labels)
    }
}

impl Prometheus {
    /// The collection of a metric: that of the first pattern that fits, or the one for all others.
    fn collection_of(&self, metric: &str) -> &str {
        let found = self.patterns.iter().find(|(pattern, _)| fits(pattern, metric));
        found.map_or(self.collection.as_str(), |(_, collection)| collection)
    }
}

/// Whether a name fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_request_are_counted_as_they_come() {
        let sample = Sample { value: 1.0, timestamp: 2 };
        let label = Label { name: NAME.to_owned(), value: "up".to_owned() };
        let series = TimeSeries { labels: vec![label], samples: vec![sample; 3], histograms: Vec::new() };
        let bytes = WriteRequest { timeseries: vec![series.clone(), series] }.encode_to_vec();
        assert_eq!(parts(&bytes), 10);
        assert!(parts(&bytes[..bytes.len() - 1]) < 10);
        let packed = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
        let most = 16 << 20;
        assert_eq!(unpacked(&packed(&bytes), most).ok().map(|request| request.timeseries.len()), Some(2));
        let empty = [0x0a, 0].repeat(PARTS_MAX + 1);
        assert_eq!(
            unpacked(&packed(&empty), most).err().map(|problem| problem.status),
            Some(StatusCode::PAYLOAD_TOO_LARGE)
        );
    }

    #[test]
    fn metrics_go_where_the_first_pattern_that_fits_says() {
        let to = |pattern: &str, collection: &str| (pattern.to_owned(), collection.to_owned());
        let settings = Prometheus {
            collection: "others".to_owned(),
            patterns: vec![to("up", "state"), to("node_*_total", "counts"), to("node_*", "node"), to("*", "rest")],
        };
        for (metric, collection) in [
            ("up", "state"),
            ("upper", "rest"),
            ("node_cpu_seconds_total", "counts"),
            ("node_total", "node"),
            ("node__total", "counts"),
            ("node_load1", "node"),
            ("", "rest"),
        ] {
            assert_eq!(settings.collection_of(metric), collection, "{metric}");
        }
        assert_eq!(Prometheus::default().collection_of("up"), "prometheus");
    }
}
