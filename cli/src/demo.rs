//! `ebbtide demo`: a year of recorded weather, replayed on a virtual clock and expiring on the way.

use crate::args::DemoArgs;
use crate::{Failure, chart, files, human, say};
use arrow::array::{ArrayRef, Float64Builder, RecordBatch, StringBuilder, TimestampMillisecondArray};
use ebbtide::Database;
use ebbtide_query::output::{TableStyle, render};
use ebbtide_query::{Session, SessionSettings};
use ebbtide_ttl::{Clock, SystemClock, Timestamp, VirtualClock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// 26,115 hourly measurements of three airports; `fixtures/weather` says where they come from.
const FIXTURE: &[u8] = include_bytes!("../../fixtures/weather/nyc_2013_hourly.csv.gz");
const DAY_MS: i64 = 86_400_000;

const SET_UP: [&str; 4] = [
    "CREATE COLLECTION recent WITH (timeField = 'time', metaField = 'station', granularity = 'minutes') EXPIRE AFTER 30 DAYS",
    "CREATE TTL INDEX jfk_short ON recent (time) EXPIRE AFTER 7 DAYS WHERE station = 'JFK'",
    "CREATE LADDER ON recent (STEP '1 day' FOR 365 DAYS, STEP '7 days' FOREVER) FIELDS (temp, wind_gust, precip)",
    "CREATE COLLECTION archive WITH (timeField = 'time', metaField = 'station', granularity = 'hours')",
];

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let real = SystemClock::new();
    let started = real.monotonic();
    // A temporary folder is kept only if all was shown, with where it is: nobody would find it otherwise.
    let (folder, temporary) = folder(args)?;
    let days = Days::read()?;
    let (first, last) = days.range()?;
    let clock = VirtualClock::new(Timestamp::from_millis(first));
    let database = Database::builder(&folder).clock(Arc::new(clock.clone()) as Arc<dyn Clock>).open()?;
    let session = Session::with_settings(database.clone(), &SessionSettings::default())?;

    heading("A year of weather that forgets itself")?;
    say!("Hourly measurements of three New York airports in 2013, replayed day by day on a virtual clock.");
    say!("'recent' keeps measurements for thirty days, those of JFK for a week. What goes leaves aggregates of three");
    say!("fields in a ladder: by day for a year, by week for ever. 'archive' keeps everything.");
    say!();
    for statement in SET_UP {
        say!("  {statement};");
        runtime.block_on(session.execute(statement))?;
    }
    say!();
    let dropped = replay(&database, &clock, &days, last)?;
    say!();
    say!(
        "{} measurements were dropped in {} whole buckets; each sweep added them to the ladder's bins and unlinked files.",
        human::grouped(dropped.measurements),
        human::grouped(dropped.buckets)
    );
    questions(&session, runtime)?;
    let snapshot = database.snapshot();
    let rungs: u64 = snapshot.ladders()?.iter().map(|rung| rung.bytes).sum();
    let all = snapshot.collection("archive")?.info()?.bytes;
    let percent = (rungs * 100).div_ceil(all.max(1));
    say!(
        "These bins are {} on disk, {percent} % of the {} in which 'archive' keeps every measurement.",
        human::bytes(rungs),
        human::bytes(all)
    );
    drop((session, snapshot));
    database.close()?;
    farewell(&folder, last)?;
    if let Some(temporary) = temporary {
        drop(temporary.keep());
    }
    eprintln!("done in {:.1} s", real.monotonic().saturating_sub(started).as_secs_f64());
    Ok(())
}

/// The folder of the demo's database, which is removed with the second value if that is dropped.
fn folder(args: &DemoArgs) -> Result<(PathBuf, Option<TempDir>), Failure> {
    if let Some(folder) = &args.into {
        if Database::exists(folder)? {
            let what =
                format!("there is already a database at {}; the demo needs a folder of its own", folder.display());
            return Err(Failure::usage(what));
        }
        return Ok((folder.clone(), None));
    }
    let made = tempfile::Builder::new().prefix("ebbtide-demo-").tempdir();
    let made = made.map_err(|e| Failure::new(format!("cannot create a temporary folder: {e}")))?;
    Ok((made.path().to_owned(), Some(made)))
}

fn heading(text: &str) -> Result<(), Failure> {
    say!();
    if files::colour() {
        say!("\x1b[1m{text}\x1b[0m");
    } else {
        say!("{text}");
    }
    say!();
    Ok(())
}

/// The fixture, divided into days.
struct Days {
    batch: RecordBatch,
    times: Vec<i64>,
}

impl Days {
    fn read() -> Result<Self, Failure> {
        let fail = |e: &dyn std::fmt::Display| Failure::new(format!("the embedded fixture cannot be read: {e}"));
        let mut reader = csv::Reader::from_reader(flate2::read::GzDecoder::new(FIXTURE));
        let header = reader.headers().map_err(|e| fail(&e))?.clone();
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| fail(&e))?;
            let time = Timestamp::parse(record.get(1).unwrap_or_default()).map_err(|e| fail(&e))?;
            let ms = time.to_units(ebbtide_ttl::Precision::Ms).ok_or_else(|| fail(&"a time out of range"))?;
            rows.push((ms, record));
        }
        rows.sort_by_key(|(ms, _)| *ms);
        let times: Vec<i64> = rows.iter().map(|(ms, _)| *ms).collect();
        let mut stations = StringBuilder::new();
        for (_, record) in &rows {
            stations.append_value(record.get(0).unwrap_or_default());
        }
        let time: ArrayRef = Arc::new(TimestampMillisecondArray::from(times.clone()).with_timezone("UTC"));
        let mut columns: Vec<(&str, ArrayRef)> = vec![("time", time), ("station", Arc::new(stations.finish()))];
        for (at, name) in header.iter().enumerate().skip(2) {
            let mut cells = Float64Builder::new();
            for (_, record) in &rows {
                cells.append_option(record.get(at).and_then(|c| c.parse().ok()));
            }
            columns.push((name, Arc::new(cells.finish())));
        }
        let batch = RecordBatch::try_from_iter(columns).map_err(|e| fail(&e))?;
        Ok(Days { batch, times })
    }

    /// Midnight before the first measurement and after the last.
    fn range(&self) -> Result<(i64, i64), Failure> {
        match (self.times.first(), self.times.last()) {
            (Some(first), Some(last)) => {
                Ok((first.div_euclid(DAY_MS) * DAY_MS, (last.div_euclid(DAY_MS) + 1) * DAY_MS))
            }
            _ => Err(Failure::new("the embedded fixture is empty")),
        }
    }

    /// Measurements from one instant up to, not including, another.
    fn between(&self, from: i64, to: i64) -> RecordBatch {
        let from = self.times.partition_point(|t| *t < from);
        let to = self.times.partition_point(|t| *t < to);
        self.batch.slice(from, to - from)
    }
}

#[derive(Default)]
struct DropTotals {
    buckets: u64,
    measurements: u64,
}

/// Replays the year: for each day, its measurements are inserted, the clock is advanced, and the sweeper runs.
fn replay(database: &Database, clock: &VirtualClock, days: &Days, end: i64) -> Result<DropTotals, Failure> {
    let (recent, archive) = (database.collection("recent")?, database.collection("archive")?);
    let mut dropped = DropTotals::default();
    let mut inserted = 0;
    let (mut midnight, _) = days.range()?;
    let mut month = midnight;
    row(["", "inserted", "recent", "gone", "buckets", "recent", "ladder", "archive"])?;
    row(["date", "so far", "shows", "for good", "dropped", "on disk", "on disk", "on disk"])?;
    while midnight < end {
        let day = days.between(midnight, midnight + DAY_MS);
        midnight += DAY_MS;
        clock.set(Timestamp::from_millis(midnight));
        if day.num_rows() > 0 {
            inserted += recent.insert(&day)?;
        }
        let date = Timestamp::from_millis(midnight).to_string();
        let report = date.get(8..10) == Some("01") || midnight >= end;
        // Buckets are sealed and swept every fourth day: each time waits for several syncs.
        if !report && midnight.div_euclid(DAY_MS) % 4 != 0 {
            continue;
        }
        database.flush()?;
        let swept = database.sweep()?.counts;
        dropped.buckets += swept.deleted_buckets;
        dropped.measurements += swept.deleted_documents;
        if report {
            archive.insert(&days.between(month, midnight))?;
            database.compact(None)?;
            month = midnight;
            let (now, all) = (recent.snapshot()?, archive.snapshot()?);
            let rungs = now.rung_infos()?.iter().map(|rung| rung.bytes).sum();
            row([
                date.get(..10).unwrap_or(&date),
                &human::grouped(inserted),
                &human::grouped(now.count()?),
                &human::grouped(dropped.measurements),
                &human::grouped(dropped.buckets),
                &human::bytes(now.info()?.bytes),
                &human::bytes(rungs),
                &human::bytes(all.info()?.bytes),
            ])?;
        }
    }
    Ok(dropped)
}

/// A line of the table of the replay.
fn row([date, inserted, shows, gone, buckets, recent, ladder, archive]: [&str; 8]) -> Result<(), Failure> {
    say!("{date:>10} {inserted:>8} {shows:>7} {gone:>8} {buckets:>7} {recent:>9} {ladder:>9} {archive:>9}");
    Ok(())
}

const QUESTIONS: [(&str, &str, bool); 6] = [
    (
        "What is left of the year in 'recent'?",
        "SELECT station, count(*) AS measurements, min(time) AS oldest, max(time) AS newest
FROM recent GROUP BY station ORDER BY station",
        false,
    ),
    (
        "What does each rule cover, and what expires next?",
        "SELECT rule, filter, expire_after_seconds AS seconds, buckets, measurements, next_expiry
FROM ebbtide.ttl_rules WHERE collection = 'recent'",
        false,
    ),
    (
        "How did the temperature change over the year (archive, degrees Celsius)?",
        "SELECT date_bin(INTERVAL '7 days', time) AS week, round((avg(temp) - 32) / 1.8, 1) AS celsius
FROM archive GROUP BY week ORDER BY week",
        true,
    ),
    (
        "Where was the wind strongest?",
        "SELECT time, station, wind_gust, pressure FROM archive
WHERE wind_gust IS NOT NULL ORDER BY wind_gust DESC, time LIMIT 5",
        false,
    ),
    (
        "What was the last measurement at each airport?",
        "SELECT station, max(time) AS time, last_value(temp ORDER BY time) AS temp, last_value(humid ORDER BY time) AS humid
FROM archive GROUP BY station ORDER BY station",
        false,
    ),
    (
        "What was the whole year like, although 'recent' has dropped eleven months of it?",
        "SELECT station, sum(measurements) AS measurements, round(sum(temp_sum) / sum(temp_count), 1) AS temp,
       min(temp_min) AS coldest, max(temp_max) AS warmest, max(wind_gust_max) AS gust, sum(precip_sum) AS rain
FROM rollup('recent', '1 day') GROUP BY station ORDER BY station",
        false,
    ),
];

fn questions(session: &Session, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    for (question, sql, is_chart) in QUESTIONS {
        heading(question)?;
        for line in sql.lines() {
            say!("  {line}");
        }
        let result = runtime.block_on(session.execute(sql))?;
        if is_chart {
            let width = usize::from(files::width().unwrap_or(80)).min(100);
            let style = chart::Style { width, height: 12, colour: files::colour() };
            say!("{}", chart::draw(&result.schema, &result.batches, style).map_err(Failure::new)?.trim_end());
        } else {
            let style = TableStyle { width: files::width(), ..TableStyle::default() };
            say!("{}", render(&result.schema, &result.batches, style));
        }
    }
    Ok(())
}

fn farewell(folder: &Path, end: i64) -> Result<(), Failure> {
    let program = if std::env::var_os("CARGO").is_some() { "cargo run --" } else { "ebbtide" };
    let now = Timestamp::from_millis(end);
    let later = Timestamp::from_millis(end + DAY_MS);
    heading("Explore the database")?;
    say!("It is in {}", folder.display());
    say!("The year it covers is long past: --now reads it as of an earlier time. Try:");
    say!();
    let db = folder.display();
    say!("  export EBBTIDE_DB={db}");
    say!("  {program} status");
    say!("  {program} sql --now {now} 'SELECT station, count(*) FROM recent GROUP BY station'");
    say!("  {program} sql --now {later} 'SELECT station, count(*) FROM recent GROUP BY station'");
    say!(
        "  {program} sql --chart \"SELECT date_trunc('month', time) AS m, station, avg(temp) FROM archive GROUP BY 1, 2\""
    );
    say!("  {program} sql 'EXPLAIN EXPIRY FOR recent'");
    say!("  {program} sweep --dry-run");
    say!("  {program} sql            # a shell");
    Ok(())
}
