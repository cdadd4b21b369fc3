//! Statements that are short for queries: `PIVOT`, `UNPIVOT` and `SUMMARIZE`.

use super::{Session, StatementStream};
use crate::error::{QueryError, Result};
use crate::output::{number, text};
use crate::sql::filtered;
use crate::statement::{self, Pivot};
use datafusion::arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field};
use ebbtide_ttl::Code;
use std::sync::Arc;

/// Columns that a pivot makes at most.
const PIVOT_COLUMNS_MAX: usize = 1000;
/// Columns that are summarized with one pass over the rows.
const SUMMARIZED_AT_ONCE: usize = 40;

/// What is told of a column, besides its name and type, and how it is asked for.
const FACTS: [(&str, &str); 10] = [
    ("count", "count({c})"),
    ("distinct", "approx_distinct({d})"),
    ("min", "min({c})"),
    ("q25", "approx_percentile_cont(0.25) WITHIN GROUP (ORDER BY {c})"),
    ("median", "approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY {c})"),
    ("q75", "approx_percentile_cont(0.75) WITHIN GROUP (ORDER BY {c})"),
    ("max", "max({c})"),
    ("avg", "avg({c})"),
    ("std", "stddev({c})"),
    ("rows", "count(*)"),
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Session {
    /// Starts the one query of a text that this program has written.
    async fn start_text(&self, sql: &str) -> Result<StatementStream> {
        let mut statements = statement::parse(sql)?;
        match statements.pop() {
            Some(statement) => self.start(&statement, sql).await,
            None => Err(QueryError::new(Code::FailedToParse, "there is no statement")),
        }
    }

    pub(super) async fn pivot(&self, pivot: &Pivot) -> Result<StatementStream> {
        let Some(question) = pivot.question() else { return self.start_text(&pivot.query(None, filtered)).await };
        let answer = self.execute(&question).await?;
        let found: Vec<(String, String)> = match answer.schema.fields().as_ref() {
            [field] if field.name() == "v" => answer
                .batches
                .iter()
                .flat_map(|batch| (0..batch.num_rows()).map(|row| (Arc::clone(batch.column(0)), row)))
                .filter_map(|(column, row)| {
                    let value = text(column.as_ref(), row)?;
                    let kind = column.data_type();
                    let plain = kind.is_numeric() || *kind == DataType::Boolean;
                    let literal = if plain { value.clone() } else { format!("'{}'", value.replace('\'', "''")) };
                    Some((literal, quoted(&value)))
                })
                .collect(),
            fields => fields.iter().map(|field| (quoted(field.name()), quoted(field.name()))).collect(),
        };
        if found.len() > PIVOT_COLUMNS_MAX || found.is_empty() {
            let message = match found.len() {
                0 => "there is nothing to pivot: no value is there".to_owned(),
                many => format!(
                    "the pivot would make {many} columns, {PIVOT_COLUMNS_MAX} are possible: list values after ON with IN"
                ),
            };
            return Err(QueryError::new(Code::BadValue, message));
        }
        self.start_text(&pivot.query(Some(found), filtered)).await
    }

    /// What there is in each column of a table or query.
    pub(super) async fn summarize(&self, source: &str) -> Result<StatementStream> {
        let schema = self.execute(&format!("SELECT * FROM {source} LIMIT 0")).await?.schema;
        let mut told = Told::default();
        for fields in schema.fields().chunks(SUMMARIZED_AT_ONCE) {
            let asked: Vec<String> = fields.iter().enumerate().flat_map(|(at, field)| questions(at, field)).collect();
            let answer = self.execute(&format!("SELECT {} FROM {source}", asked.join(", "))).await?;
            let Some(batch) = answer.batches.iter().find(|batch| batch.num_rows() == 1) else { continue };
            for (at, field) in fields.iter().enumerate() {
                told.add(at, field, batch);
            }
        }
        Ok(StatementStream::batch(told.batch()?, None))
    }
}

/// What is asked about a column; each answer is called after the column's place and the fact.
fn questions(at: usize, field: &Field) -> Vec<String> {
    let column = quoted(field.name());
    let kind = field.data_type();
    let comparable = kind.is_numeric()
        || kind.is_string()
        || matches!(kind, DataType::Boolean | DataType::Timestamp(..) | DataType::Date32);
    let distinct = match kind {
        DataType::Timestamp(..) => format!("CAST({column} AS BIGINT)"),
        kind if kind.is_integer() || kind.is_string() => column.clone(),
        _ => format!("CAST({column} AS VARCHAR)"),
    };
    let asked = |fact: &str| match fact {
        "count" | "rows" => true,
        "distinct" | "min" | "max" => comparable,
        _ => kind.is_numeric(),
    };
    let facts = FACTS.iter().filter(|(fact, _)| asked(fact));
    facts
        .map(|(fact, call)| format!("{} AS \"{at} {fact}\"", call.replace("{c}", &column).replace("{d}", &distinct)))
        .collect()
}

/// The rows of a summary.
#[derive(Default)]
struct Told {
    columns: Vec<String>,
    types: Vec<String>,
    counts: [Vec<Option<u64>>; 3],
    values: [Vec<Option<String>>; 5],
    numbers: [Vec<Option<f64>>; 2],
}

impl Told {
    fn add(&mut self, at: usize, field: &Field, batch: &RecordBatch) {
        let cell = |fact: &str| batch.column_by_name(&format!("{at} {fact}"));
        let value = |fact: &str| cell(fact).and_then(|column| text(column.as_ref(), 0));
        let count = |fact: &str| value(fact).and_then(|count| count.parse::<u64>().ok());
        self.columns.push(field.name().clone());
        self.types.push(crate::system::type_name(field.data_type()));
        let nulls = count("rows").zip(count("count")).map(|(rows, count)| rows.saturating_sub(count));
        for (told, count) in self.counts.iter_mut().zip([count("count"), nulls, count("distinct")]) {
            told.push(count);
        }
        for (told, fact) in self.values.iter_mut().zip(["min", "q25", "median", "q75", "max"]) {
            told.push(value(fact));
        }
        for (told, fact) in self.numbers.iter_mut().zip(["avg", "std"]) {
            told.push(cell(fact).and_then(|column| number(column.as_ref(), 0)));
        }
    }

    fn batch(self) -> Result<RecordBatch> {
        let text = |cells: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(cells)) };
        let whole = |cells: Vec<Option<u64>>| -> ArrayRef { Arc::new(UInt64Array::from(cells)) };
        let double = |cells: Vec<Option<f64>>| -> ArrayRef { Arc::new(Float64Array::from(cells)) };
        let plain = |cells: Vec<String>| text(cells.into_iter().map(Some).collect());
        let [count, nulls, distinct] = self.counts.map(whole);
        let [min, q25, median, q75, max] = self.values.map(text);
        let [avg, std] = self.numbers.map(double);
        Ok(RecordBatch::try_from_iter([
            ("column", plain(self.columns)),
            ("type", plain(self.types)),
            ("count", count),
            ("nulls", nulls),
            ("distinct", distinct),
            ("min", min),
            ("q25", q25),
            ("median", median),
            ("q75", q75),
            ("max", max),
            ("avg", avg),
            ("std", std),
        ])?)
    }
}
