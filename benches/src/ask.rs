//! Runs the queries of a workload and measures the answers.

use crate::Result;
use crate::measure::timed;
use crate::question::{AnsweredQuery, Names, Question, Summary};
use crate::report::Report;
use crate::sql::Sql;
use ebbtide::CollectionSnapshot;

/// Runs every draw of a query once to warm up, then `runs` times in turn, directly and, if there is SQL, as SQL too.
///
/// # Errors
/// Errors of the database; an error if SQL gives a different answer than the direct call.
pub fn ask(
    report: &mut Report,
    snapshot: &CollectionSnapshot,
    sql: Option<&Sql>,
    names: Names,
    (name, draws): (&str, &[Question]),
    runs: usize,
) -> Result<()> {
    let answers = draws.iter().map(|q| Ok(Summary::of(&q.direct(snapshot, names)?))).collect::<Result<Vec<_>>>()?;
    let mut seconds = Vec::with_capacity(runs);
    for question in draws.iter().cycle().take(runs.max(draws.len())) {
        seconds.push(timed(|| question.direct(snapshot, names))?.0);
    }
    let note = match answers.as_slice() {
        [one] => format!("{} rows, sum {:.1}", one.rows, one.sum),
        several => format!("{} draws, {} rows in all", several.len(), several.iter().map(|a| a.rows).sum::<usize>()),
    };
    report.add_millis(name, &seconds, note);
    if let Some(sql) = sql {
        let texts: Vec<String> = draws.iter().map(|q| q.sql(names)).collect();
        for (text, direct) in texts.iter().zip(&answers) {
            let answer = Summary::of(&sql.run(text)?);
            if !answer.agrees(direct) {
                return Err(format!("{name}: SQL returned {answer:?}, the direct call {direct:?}: {text}").into());
            }
        }
        let mut seconds = Vec::with_capacity(runs);
        for text in texts.iter().cycle().take(runs.max(texts.len())) {
            seconds.push(timed(|| sql.run(text))?.0);
        }
        report.add_millis(format!("{name}, SQL"), &seconds, "the same answers");
        // All draws are the same query with different values.
        let asked: Vec<_> = draws.iter().map(|q| q.sql_with_parameters(names)).collect();
        if let Some((text, _)) = asked.first() {
            let prepared = sql.prepare(text)?;
            for ((text, values), direct) in asked.iter().zip(&answers) {
                let answer = Summary::of(&prepared(values)?);
                if !answer.agrees(direct) {
                    return Err(format!(
                        "{name}: prepared SQL returned {answer:?}, the direct call {direct:?}: {text}"
                    )
                    .into());
                }
            }
            let mut seconds = Vec::with_capacity(runs);
            for (_, values) in asked.iter().cycle().take(runs.max(asked.len())) {
                seconds.push(timed(|| prepared(values))?.0);
            }
            report.add_millis(format!("{name}, prepared"), &seconds, "prepared once; series and times are parameters");
        }
    }
    report.queries.push(AnsweredQuery { name: name.to_owned(), draws: draws.to_vec(), answers });
    Ok(())
}
