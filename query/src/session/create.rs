//! `CREATE COLLECTION c AS SELECT ...`: a collection of a query's rows. Without a column of times, or with `EXPIRE ITEMS`, it is an
//! ordinary collection.

use super::rewrites::resolved;
use super::sql::is_query;
use super::{Session, StatementStream};
use crate::dml;
use crate::documents::json::json_columns;
use crate::documents::values::documents_of;
use crate::error::{QueryError, Result};
use crate::functions;
use crate::output::{instant, text};
use crate::parsing::{Failure, parse};
use crate::provider::CollectionTable;
use crate::sql::{self, ParsedStatement};
use crate::statement::{self, CreateAs, Statement};
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use ebbtide::{Database, OnConflict};
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Rows that say how far apart measurements are.
const SAMPLE_ROWS: usize = 200_000;
/// Rows that are stored with one insert.
const INSERT_ROWS: usize = 100_000;
/// Names of columns that are taken for the time, of several with times.
const TIME_NAMES: [&str; 5] = ["time", "timestamp", "ts", "date", "t"];

impl Session {
    pub(super) async fn create_as(
        &self,
        create: &CreateAs,
        statement: &Statement,
        text: &str,
    ) -> Result<StatementStream> {
        let name = create.document.get("create").and_then(Value::as_str).unwrap_or_default().to_owned();
        if self.snapshots().iter().any(|snapshot| snapshot.has_collection(&name)) {
            if create.lenient {
                return Ok(StatementStream::message(format!("collection {name} exists already; nothing was done")));
            }
            let message =
                format!("collection '{name}' exists: DROP COLLECTION {name} removes it, INSERT INTO adds to it");
            return Err(QueryError::new(Code::NamespaceExists, message));
        }
        let mut statements = statement::parse(&create.query)?;
        let Some(query) = statements.pop() else {
            return Err(QueryError::new(Code::FailedToParse, "a query is expected after AS"));
        };
        let stack = sql::stack_for(&query.tokens)?;
        let work = self.fill(name, create.document.clone(), &query, stack);
        sql::on_stack(stack, Box::pin(work)).await.map_err(|error| self.failed(error, statement, text))
    }

    /// Makes the collection and stores the rows; without all of them nothing stays.
    async fn fill(
        &self,
        name: String,
        mut document: Map<String, Value>,
        query: &Statement,
        stack: usize,
    ) -> Result<StatementStream, Failure> {
        let context = self.begin();
        let ParsedStatement { statement, headings } = parse(query, stack, &context)?;
        if !is_query(&statement) {
            return Err(QueryError::new(Code::FailedToParse, "a query is expected after AS").into());
        }
        let state = self.state(&context);
        let plan = state.statement_to_plan(statement).await?;
        let json = json_columns(&plan);
        let (now, config) = (context.now(), state.config_options());
        let plan = functions::readable(resolved(plan, now, config)?, &headings)?;
        let sources = sources(&plan)?;
        let config = state.config().clone();
        let (physical, task) = self.planning.plan(plan, &context, &config, || state).await?;
        let mut rows = execute_stream(physical, task)?;
        let schema = rows.schema();
        if is_ordinary(&document, &schema) {
            return self.fill_documents(name, document, rows, &json).await;
        }
        let options = document.entry("timeseries").or_insert_with(|| json!({}));
        let time = choose_time(options, &schema, &name, &sources)?;
        let meta = choose_meta(options, &schema, &time, &sources)?;
        let (sample, ended) = sample(&mut rows).await?;
        let mut options = options.clone();
        complete(&mut options, &schema, &time, meta.as_deref(), &sample);
        document.insert("timeseries".to_owned(), options.clone());
        let command = Value::Object(document);
        self.change(move |db| db.run_command(&command)).await?;
        let stored = self.store(&name, sample, (!ended).then_some(rows)).await;
        match stored {
            Ok(count) => {
                let what = |key: &str| options[key].as_str().map(str::to_owned);
                let meta = meta.map(|meta| format!(", meta field {meta}")).unwrap_or_default();
                let buckets = what("granularity").map(|word| format!(", granularity {word}")).unwrap_or_default();
                let plural = if count == 1 { "" } else { "s" };
                Ok(StatementStream::message(format!(
                    "collection {name} created with {count} measurement{plural}: time field {time}{meta}{buckets}"
                )))
            }
            Err(failure) => {
                self.blocking(move |db| db.drop_collection(&name)).await?;
                Err(failure)
            }
        }
    }

    /// Makes an ordinary collection of the rows.
    async fn fill_documents(
        &self,
        name: String,
        mut document: Map<String, Value>,
        mut rows: SendableRecordBatchStream,
        json: &[bool],
    ) -> Result<StatementStream, Failure> {
        document.remove("timeseries");
        let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        let command = Value::Object(document);
        self.change(move |db| db.run_command(&command)).await?;
        let mut count = 0;
        let mut stored = Ok(());
        while let Some(batch) = self.next(&mut rows).await.transpose() {
            let (name, documents) = match batch.and_then(|batch| Ok(documents_of(&batch, &names, json)?)) {
                Ok(documents) => (name.clone(), documents),
                Err(failure) => {
                    stored = Err(failure);
                    break;
                }
            };
            let store =
                move |db: Database, stop| db.documents(&name)?.with_stop(stop).store(documents, OnConflict::Refuse);
            match self.write(store).await {
                Ok(more) => count += more,
                Err(error) => {
                    stored = Err(error.into());
                    break;
                }
            }
        }
        if let Err(failure) = stored {
            self.blocking(move |db| db.drop_collection(&name)).await?;
            return Err(failure);
        }
        let plural = if count == 1 { "" } else { "s" };
        Ok(StatementStream::message(format!(
            "collection {name} created with {count} document{plural}: an ordinary collection"
        )))
    }

    /// The next rows, unless the statement is stopped: nobody else ends it once the collection is made.
    async fn next(&self, rows: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>, Failure> {
        Ok(self.stop.of_statement().or_stopped(rows.try_next()).await??)
    }

    async fn store(
        &self,
        name: &str,
        sample: Vec<RecordBatch>,
        rest: Option<SendableRecordBatchStream>,
    ) -> Result<u64, Failure> {
        let mut count = 0;
        let mut waiting = sample;
        let mut rest = rest;
        loop {
            let rows: usize = waiting.iter().map(RecordBatch::num_rows).sum();
            let next = match &mut rest {
                Some(stream) if rows < INSERT_ROWS => self.next(stream).await?,
                _ => None,
            };
            match next {
                Some(batch) => {
                    waiting.push(batch);
                    continue;
                }
                None if rows < INSERT_ROWS => rest = None,
                None => {}
            }
            let Some(first) = waiting.first() else { break };
            let whole = concat_batches(&first.schema(), &waiting).map_err(QueryError::from)?;
            waiting.clear();
            let mut from = 0;
            while from < whole.num_rows() {
                let piece = whole.slice(from, INSERT_ROWS.min(whole.num_rows() - from));
                from += piece.num_rows();
                let name = name.to_owned();
                let insert = move |db: Database, stop| dml::insert_rows(&db.collection(&name)?.with_stop(stop), &piece);
                count += self.write(insert).await?;
            }
            if rest.is_none() {
                break;
            }
        }
        Ok(count)
    }
}

/// Whether the rows become documents: there are no times among them, and nothing of a time series is asked for.
fn is_ordinary(document: &Map<String, Value>, schema: &SchemaRef) -> bool {
    let has_times = schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Timestamp(..)));
    let series = document.get("timeseries").and_then(Value::as_object).is_some_and(|options| !options.is_empty());
    let is_series = series || document.contains_key("expireAfterSeconds");
    document.contains_key("defaultTTL") || !(has_times || is_series)
}

/// The time fields and meta fields of the collections that a query reads.
fn sources(plan: &LogicalPlan) -> Result<Vec<(String, Option<String>)>, Failure> {
    let mut found = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = source_as_provider(&scan.source)?.downcast_ref::<CollectionTable>()
        {
            found.push((table.planned.schema.time.clone(), table.planned.schema.meta.clone()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The column with the time: the one that is given, the time of what is read, one that is called so, or the only one.
fn choose_time(
    options: &Value,
    schema: &SchemaRef,
    name: &str,
    sources: &[(String, Option<String>)],
) -> Result<String, Failure> {
    let is_time = |column: &str| {
        schema.field_with_name(column).is_ok_and(|field| matches!(field.data_type(), DataType::Timestamp(..)))
    };
    let wrong = |message: String| Failure::Query(QueryError::new(Code::BadValue, message));
    if let Some(given) = options["timeField"].as_str() {
        return match is_time(given) {
            true => Ok(given.to_owned()),
            false => Err(wrong(format!("timeField '{given}' is no column of the query that holds times"))),
        };
    }
    let times: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).filter(|name| is_time(name)).collect();
    let named = sources.iter().map(|(time, _)| time.as_str()).chain(TIME_NAMES);
    let chosen = named.into_iter().find(|name| times.contains(name)).or(match times.as_slice() {
        [one] => Some(*one),
        _ => None,
    });
    match (chosen, times.as_slice()) {
        (Some(chosen), _) => Ok(chosen.to_owned()),
        (None, []) => Err(wrong(format!(
            "a time series needs a column of times, and the query gives none: select one too (a text becomes a time with \
             x::timestamp), or make an ordinary collection: CREATE COLLECTION {name} AS"
        ))),
        (None, several) => Err(wrong(format!(
            "the query gives several columns of times ({}): say which, CREATE COLLECTION {name} WITH (timeField = '{}') AS",
            several.join(", "),
            several[0]
        ))),
    }
}

/// The column that names the series: the one that is given, or the meta of what is read.
fn choose_meta(
    options: &Value,
    schema: &SchemaRef,
    time: &str,
    sources: &[(String, Option<String>)],
) -> Result<Option<String>, Failure> {
    if let Some(given) = options["metaField"].as_str() {
        if schema.field_with_name(given).is_err() {
            let message = format!("metaField '{given}' is no column of the query");
            return Err(QueryError::new(Code::BadValue, message).into());
        }
        return Ok(Some(given.to_owned()));
    }
    let metas = sources.iter().filter_map(|(_, meta)| meta.as_deref());
    Ok(metas.filter(|meta| *meta != time).find(|meta| schema.field_with_name(meta).is_ok()).map(str::to_owned))
}

/// The first rows, and whether they are all.
async fn sample(rows: &mut SendableRecordBatchStream) -> Result<(Vec<RecordBatch>, bool), Failure> {
    let (mut batches, mut count) = (Vec::new(), 0);
    while count < SAMPLE_ROWS {
        match rows.try_next().await? {
            Some(batch) => {
                count += batch.num_rows();
                batches.push(batch);
            }
            None => return Ok((batches, true)),
        }
    }
    Ok((batches, false))
}

/// Adds the options that the rows decide, unless they are given.
fn complete(options: &mut Value, schema: &SchemaRef, time: &str, meta: Option<&str>, sample: &[RecordBatch]) {
    let Some(options) = options.as_object_mut() else { return };
    options.insert("timeField".to_owned(), json!(time));
    if let Some(meta) = meta {
        options.insert("metaField".to_owned(), json!(meta));
    }
    let given =
        ["granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"].iter().any(|o| options.contains_key(*o));
    if !given {
        options.insert("granularity".to_owned(), json!(granularity(sample, time, meta)));
    }
    let unit = schema.field_with_name(time).ok().map(|field| field.data_type().clone());
    if !options.contains_key("precision")
        && let Some(DataType::Timestamp(unit, _)) = unit
    {
        let precision = match unit {
            TimeUnit::Second | TimeUnit::Millisecond => "ms",
            TimeUnit::Microsecond => "us",
            // Functions give nanoseconds, whatever they were given.
            TimeUnit::Nanosecond if in_milliseconds(sample, time) => "ms",
            TimeUnit::Nanosecond => "ns",
        };
        options.insert("precision".to_owned(), json!(precision));
    }
}

fn in_milliseconds(sample: &[RecordBatch], time: &str) -> bool {
    let columns = sample.iter().filter_map(|batch| batch.column_by_name(time));
    columns.into_iter().all(|column| {
        (0..column.len())
            .filter(|row| column.is_valid(*row))
            .all(|row| instant(column.as_ref(), row).is_none_or(|time| time.nanos() % 1_000_000 == 0))
    })
}

/// The width of buckets that fits the median step of a series.
fn granularity(sample: &[RecordBatch], time: &str, meta: Option<&str>) -> &'static str {
    let (mut last, mut steps) = (HashMap::new(), Vec::new());
    for batch in sample {
        let Some(times) = batch.column_by_name(time) else { continue };
        let metas = meta.and_then(|meta| batch.column_by_name(meta));
        for row in (0..batch.num_rows()).filter(|row| times.is_valid(*row)) {
            let Some(at) = instant(times.as_ref(), row) else { continue };
            let series = metas.and_then(|metas| text(metas.as_ref(), row));
            if let Some(before) = last.insert(series, at.nanos())
                && before != at.nanos()
            {
                steps.push((at.nanos() - before).abs());
            }
        }
    }
    if steps.is_empty() {
        return "seconds";
    }
    let middle = steps.len() / 2;
    match *steps.select_nth_unstable(middle).1 / 1_000_000_000 {
        ..60 => "seconds",
        60..3600 => "minutes",
        _ => "hours",
    }
}
