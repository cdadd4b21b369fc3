//! A query of a workload: run by the engine directly, written as SQL, and described to other engines as JSON.

use crate::Result;
use crate::query::{Grouping, NamedSeries, checksum, group, rows, rows_above};
use arrow::array::RecordBatch;
use ebbtide::ttl::{Precision, Timestamp};
use ebbtide::{Aggregate, AggregateRequest, CollectionSnapshot, FieldBound, MetaFilter, ScanRequest, TimeRange};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// The kind of a query, with its parameters.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Whole rows; with a threshold, those in which the first field is above it.
    Rows {
        /// The threshold.
        above: Option<f64>,
    },
    /// The maximum of each field in each bin of time.
    Max {
        /// Width of a bin in milliseconds.
        width: i64,
        /// Only this many bins, the newest ones.
        newest: Option<usize>,
    },
    /// The mean of each field in each bin of time.
    Avg {
        /// Width of a bin in milliseconds.
        width: i64,
        /// Whether each series has its own bins.
        by_series: bool,
    },
    /// The newest row of every series.
    Last,
    /// The number of rows.
    Count,
    /// Minimum, maximum and mean of the first field.
    Summary,
    /// The meta and the time of every row, and window functions; only as SQL.
    Windows {
        /// The functions, as SQL that all engines understand.
        functions: String,
    },
}

/// A query: what is computed, and from which rows.
#[derive(Debug, Clone, Serialize)]
pub struct Question {
    /// The kind of the query.
    pub what: Kind,
    /// Names of the selected series; all series if empty.
    pub series: Vec<String>,
    /// The start of the range of time in milliseconds, inclusive.
    pub from: Option<i64>,
    /// The end of the range of time in milliseconds, exclusive.
    pub to: Option<i64>,
    /// The fields of the query.
    pub fields: Vec<String>,
}

/// The value of a parameter of a prepared query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A name.
    Text(String),
    /// Milliseconds since 1970.
    Instant(i64),
}

/// A summary of an answer, for comparing answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of rows.
    pub rows: usize,
    /// The sum of all numbers.
    pub sum: f64,
}

impl Summary {
    /// Summarizes an answer.
    #[must_use]
    pub fn of(batches: &[RecordBatch]) -> Self {
        Summary { rows: batches.iter().map(RecordBatch::num_rows).sum(), sum: batches.iter().map(checksum).sum() }
    }

    /// Whether two summaries are of the same answer: sums of doubles added in a different order differ in their last
    /// digits.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        self.rows == other.rows && (self.sum - other.sum).abs() <= 1e-9 * self.sum.abs().max(other.sum.abs()).max(1.0)
    }
}

/// The names in the data of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The collection.
    pub collection: &'static str,
    /// The meta.
    pub meta: &'static str,
    /// The member of the meta that identifies a series, if the meta is an object.
    pub member: Option<&'static str>,
}

impl Question {
    fn request(&self, names: Names) -> ScanRequest {
        let series = NamedSeries::new(names.member, self.series.clone());
        ScanRequest {
            time: TimeRange::of_units(self.from, self.to.map(|t| t - 1), Precision::Ms),
            meta: (!self.series.is_empty()).then(|| Arc::new(series) as Arc<dyn MetaFilter>),
            ..ScanRequest::default()
        }
    }

    /// Runs the query without SQL.
    ///
    /// # Errors
    /// Errors of the database; an error for windows.
    pub fn direct(&self, snapshot: &CollectionSnapshot, names: Names) -> Result<Vec<RecordBatch>> {
        let request = self.request(names);
        let grouping = |aggregate, width, by_series| Grouping {
            aggregate,
            width: Some(width),
            by_series,
            fields: self.fields.clone(),
        };
        let field = || self.fields.first().cloned().ok_or("the query needs a field");
        match self.what {
            Kind::Rows { above: None } => rows(snapshot, &request),
            Kind::Rows { above: Some(above) } => {
                let bound = FieldBound { field: field()?, min: Some(above), max: None };
                rows_above(snapshot, &ScanRequest { bounds: vec![bound], ..request }, &field()?, above)
            }
            Kind::Max { width, newest: None } => {
                Ok(vec![group(snapshot, &request, &grouping(Aggregate::Max, width, false))?])
            }
            Kind::Max { width, newest: Some(newest) } => {
                self.newest(snapshot, request, &grouping(Aggregate::Max, width, false), newest)
            }
            Kind::Avg { width, by_series } => {
                Ok(vec![group(snapshot, &request, &grouping(Aggregate::Avg, width, by_series))?])
            }
            Kind::Last => Ok(vec![snapshot.last_points(&request)?]),
            Kind::Count => {
                let count = i64::try_from(snapshot.count()?)?;
                let column = Arc::new(arrow::array::Int64Array::from(vec![count])) as _;
                Ok(vec![RecordBatch::try_from_iter([("count(*)", column)])?])
            }
            Kind::Summary => {
                let field = field()?;
                let aggregates =
                    vec![Aggregate::Min(field.clone()), Aggregate::Max(field.clone()), Aggregate::Avg(field)];
                Ok(vec![snapshot.aggregate(&AggregateRequest {
                    aggregates,
                    time: request.time,
                    ..Default::default()
                })?])
            }
            Kind::Windows { .. } => Err("windows are computed by SQL alone".into()),
        }
    }

    /// The newest bins: looks back from the end, further each time, until there are enough.
    fn newest(
        &self,
        snapshot: &CollectionSnapshot,
        request: ScanRequest,
        grouping: &Grouping,
        newest: usize,
    ) -> Result<Vec<RecordBatch>> {
        let width = grouping.width.unwrap_or(1);
        let last = self.to.ok_or("the query needs an end")?.saturating_sub(1);
        let mut bins = i64::try_from(newest)?;
        loop {
            let from = last.div_euclid(width).saturating_sub(bins - 1).saturating_mul(width);
            let request =
                ScanRequest { time: TimeRange::of_units(Some(from), Some(last), Precision::Ms), ..request.clone() };
            let groups = group(snapshot, &request, grouping)?;
            if groups.num_rows() >= newest || from <= 0 {
                let skip = groups.num_rows().saturating_sub(newest);
                return Ok(vec![groups.slice(skip, groups.num_rows() - skip)]);
            }
            bins = bins.saturating_mul(64);
        }
    }

    /// The query as Ebbtide's SQL.
    #[must_use]
    pub fn sql(&self, names: Names) -> String {
        let (text, values) = self.sql_with_parameters(names);
        // From the last to the first, since `$10` starts with `$1`.
        let put = |text: String, (at, value): (usize, &Value)| {
            let literal = match value {
                Value::Text(text) => format!("'{text}'"),
                Value::Instant(t) => format!("TIMESTAMP '{}'", Timestamp::from_units(*t, Precision::Ms)),
            };
            text.replace(&format!("${}", at + 1), &literal)
        };
        values.iter().enumerate().rev().fold(text, put)
    }

    /// The query as SQL with parameters for names of series and instants, and their values.
    #[must_use]
    pub fn sql_with_parameters(&self, names: Names) -> (String, Vec<Value>) {
        let series = names.member.map_or_else(|| names.meta.to_owned(), |member| format!("{}.{member}", names.meta));
        let mut values = Vec::new();
        let mut place = |value: Value| {
            values.push(value);
            format!("${}", values.len())
        };
        let mut conditions = Vec::new();
        let wanted: Vec<String> = self.series.iter().map(|name| place(Value::Text(name.clone()))).collect();
        match wanted.as_slice() {
            [] => {}
            [one] => conditions.push(format!("{series} = {one}")),
            more => conditions.push(format!("{series} IN ({})", more.join(", "))),
        }
        conditions.extend(self.from.map(|t| format!("time >= {}", place(Value::Instant(t)))));
        conditions.extend(self.to.map(|t| format!("time < {}", place(Value::Instant(t)))));
        let each =
            |function: &str| self.fields.iter().map(|f| format!("{function}({f})")).collect::<Vec<_>>().join(", ");
        let bin = |width: i64| format!("date_bin('{} seconds', time) AS bin", width / 1000);
        let (columns, end) = match &self.what {
            Kind::Rows { above } => {
                let field = self.fields.first();
                conditions.extend(above.zip(field).map(|(above, field)| format!("{field} > {above:?}")));
                ("*".to_owned(), String::new())
            }
            Kind::Max { width, newest } => {
                let order = newest.map_or("bin".to_owned(), |n| format!("bin DESC LIMIT {n}"));
                (format!("{}, {}", bin(*width), each("max")), format!(" GROUP BY bin ORDER BY {order}"))
            }
            Kind::Avg { width, by_series: false } => {
                (format!("{}, {}", bin(*width), each("avg")), " GROUP BY bin ORDER BY bin".to_owned())
            }
            Kind::Avg { width, by_series: true } => {
                let meta = names.meta;
                (format!("{}, {meta}, {}", bin(*width), each("avg")), format!(" GROUP BY bin, {meta}"))
            }
            Kind::Last => ("*".to_owned(), String::new()),
            Kind::Count => ("count(*)".to_owned(), String::new()),
            Kind::Summary => {
                let field = self.fields.first().map_or("", String::as_str);
                (format!("min({field}), max({field}), avg({field})"), String::new())
            }
            Kind::Windows { functions } => (format!("{}, time, {functions}", names.meta), String::new()),
        };
        let from = match self.what {
            Kind::Last => format!("latest('{}')", names.collection),
            _ => names.collection.to_owned(),
        };
        let conditions =
            if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        (format!("SELECT {columns} FROM {from}{conditions}{end}"), values)
    }
}

/// Milliseconds of an hour and of a minute.
const UNITS: [(i64, &str); 2] = [(3_600_000, "hour"), (60_000, "minute")];

impl Question {
    /// The query as a pipeline of MongoDB, in Extended JSON.
    ///
    /// # Errors
    /// For windows, and for bins of other widths than hours and minutes.
    pub fn pipeline(&self, names: Names) -> Result<Json> {
        let series = names.member.map_or_else(|| names.meta.to_owned(), |member| format!("{}.{member}", names.meta));
        let mut conditions = serde_json::Map::new();
        match self.series.as_slice() {
            [] => {}
            [one] => drop(conditions.insert(series.clone(), json!(one))),
            more => drop(conditions.insert(series.clone(), json!({ "$in": more }))),
        }
        let date = |millis: i64| json!({ "$date": millis });
        let bounds = [("$gte", self.from), ("$lt", self.to)].into_iter();
        let range: serde_json::Map<_, _> =
            bounds.filter_map(|(operator, at)| Some((operator.to_owned(), date(at?)))).collect();
        if !range.is_empty() {
            conditions.insert("time".to_owned(), range.into());
        }
        let each = |id: Json, operator: &str| {
            let field = |field: &String| (field.clone(), json!({ operator: format!("${field}") }));
            let id = [("_id".to_owned(), id)].into_iter();
            json!({ "$group": id.chain(self.fields.iter().map(field)).collect::<serde_json::Map<_, _>>() })
        };
        let bin = |width: i64| -> Result<Json> {
            let unit = UNITS.iter().find(|(millis, _)| *millis == width).ok_or("bins of hours or minutes alone")?.1;
            Ok(json!({ "$dateTrunc": { "date": "$time", "unit": unit } }))
        };
        let in_order = json!({ "$sort": { "_id": 1 } });
        let first = self.fields.first();
        let stages = match &self.what {
            Kind::Rows { above } => {
                conditions.extend(above.zip(first).map(|(above, field)| (field.clone(), json!({ "$gt": above }))));
                vec![]
            }
            Kind::Max { width, newest: None } => vec![each(bin(*width)?, "$max"), in_order],
            Kind::Max { width, newest: Some(newest) } => {
                vec![each(bin(*width)?, "$max"), json!({ "$sort": { "_id": -1 } }), json!({ "$limit": newest })]
            }
            Kind::Avg { width, by_series: false } => vec![each(bin(*width)?, "$avg"), in_order],
            Kind::Avg { width, by_series: true } => {
                vec![each(json!({ "bin": bin(*width)?, "series": format!("${series}") }), "$avg")]
            }
            Kind::Last => {
                // As MongoDB's manual writes it, for which it can skip from series to series in an index.
                let mut newest = each(json!(format!("${series}")), "$first");
                newest["$group"]["time"] = json!({ "$first": "$time" });
                vec![json!({ "$sort": { series: 1, "time": -1 } }), newest]
            }
            Kind::Count => vec![json!({ "$count": "count" })],
            Kind::Summary => {
                let of = |operator: &str| json!({ operator: first.map(|field| format!("${field}")) });
                vec![json!({ "$group": { "_id": null, "min": of("$min"), "max": of("$max"), "avg": of("$avg") } })]
            }
            Kind::Windows { .. } => return Err("windows are computed by SQL alone".into()),
        };
        let matching = (!conditions.is_empty()).then(|| json!({ "$match": conditions }));
        Ok(matching.into_iter().chain(stages).collect())
    }
}

/// A query of a workload with one or several draws of series and times, and the answer to each.
#[derive(Debug, Clone, Serialize)]
pub struct AnsweredQuery {
    /// Its name.
    pub name: String,
    /// Its draws.
    pub draws: Vec<Question>,
    /// The answer to each draw.
    pub answers: Vec<Summary>,
}
