//! Window functions over recorded weather, as SQL: moving sums, averages and extremes of each station.

use super::Plan;
use super::weather::{BATCH_ROWS, NAMES, create};
use crate::Result;
use crate::measure::timed;
use crate::question::{AnsweredQuery, Kind, Question, Summary};
use crate::report::Report;
use crate::sql::Sql;
use crate::weather::Weather;
use ebbtide::Settings;

/// A day of hourly values, in rows and in time.
const DAY_OF_ROWS: &str = "PARTITION BY station ORDER BY time ROWS BETWEEN 23 PRECEDING AND CURRENT ROW";
const DAY: &str = "PARTITION BY station ORDER BY time RANGE BETWEEN INTERVAL '24 hours' PRECEDING AND CURRENT ROW";
const WEEK: &str = "PARTITION BY station ORDER BY time RANGE BETWEEN INTERVAL '7 days' PRECEDING AND CURRENT ROW";
const CENTRED: &str = "PARTITION BY station ORDER BY time ROWS BETWEEN 12 PRECEDING AND 12 FOLLOWING";
const MONTH: &str = "PARTITION BY station ORDER BY time RANGE BETWEEN INTERVAL '30 days' PRECEDING AND CURRENT ROW";
const SO_FAR: &str = "PARTITION BY station ORDER BY time ROWS UNBOUNDED PRECEDING";

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("windows", &Settings::default());
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    report.say(format!("{}: {} rows of {} stations, compacted", weather.source, weather.rows(), weather.series()));
    report.say("each query returns a value for every row");
    let folder = tempfile::tempdir()?;
    let (db, collection) = create(folder.path())?;
    for batch in weather.batches(BATCH_ROWS)? {
        collection.insert(&batch)?;
    }
    db.flush()?;
    db.compact(None)?;
    let sql = Sql::over(&db)?.ok_or("windows are computed by SQL alone: build with --features sql")?;
    let one = &weather.stations[..1];
    let questions = [
        ("sum over 24 hours", question(&[], &[("sum(precip)", DAY)])),
        ("average over 24 hours", question(&[], &[("avg(temp)", DAY)])),
        ("average over 24 rows", question(&[], &[("avg(temp)", DAY_OF_ROWS)])),
        ("average over 25 rows, centred", question(&[], &[("avg(temp)", CENTRED)])),
        ("maximum over 7 days", question(&[], &[("max(temp)", WEEK)])),
        (
            "average, minimum and maximum over 30 days",
            question(&[], &[("avg(temp)", MONTH), ("min(temp)", MONTH), ("max(temp)", MONTH)]),
        ),
        ("sum so far", question(&[], &[("sum(precip)", SO_FAR)])),
        ("average over 24 hours of one station", question(one, &[("avg(temp)", DAY)])),
    ];
    for (name, question) in questions.into_iter().filter(|(name, _)| plan.wants(name)) {
        let text = question.sql(NAMES);
        let answer = Summary::of(&sql.run(&text)?);
        let mut seconds = Vec::new();
        for _ in 0..plan.asks() {
            seconds.push(timed(|| sql.run(&text))?.0);
        }
        report.add_millis(format!("{name}, SQL"), &seconds, format!("{} rows, sum {:.1}", answer.rows, answer.sum));
        report.queries.push(AnsweredQuery { name: name.to_owned(), draws: vec![question], answers: vec![answer] });
    }
    db.close()?;
    Ok(report)
}

fn question(series: &[String], functions: &[(&str, &str)]) -> Question {
    let functions: Vec<String> = functions.iter().map(|(call, over)| format!("{call} OVER ({over})")).collect();
    Question {
        what: Kind::Windows { functions: functions.join(", ") },
        series: series.to_vec(),
        from: None,
        to: None,
        fields: Vec::new(),
    }
}
