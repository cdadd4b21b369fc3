//! `ebbtide status` and `ebbtide metrics`: what is stored, how old it is, and what expires next.

use crate::args::{Cli, MetricsArgs, StatusArgs};
use crate::human::{bytes, contents, counted};
use crate::{Failure, files, open, parse_now, replicas, say};
use ebbtide::{
    BucketInfo, CollectionSnapshot, Database, DocumentsSnapshot, FailingPlace, RuleInfo, RungInfo, Snapshot, Unshipped,
};
use ebbtide_query::system;
use ebbtide_ttl::{Timestamp, retention_text};

/// Runs `ebbtide status`.
pub(crate) fn status(cli: &Cli, args: &StatusArgs) -> Result<(), Failure> {
    if let Some(url) = &args.follow {
        if cli.names_db {
            return Err(Failure::usage("--follow reports on a copy, and --db names a database: drop one of them"));
        }
        return copy_status(url);
    }
    let (database, snapshot) = &open_snapshot(cli, args.now.as_deref())?;
    say!("database {}", cli.db.display());
    for note in
        crate::import::unfinished(&cli.db, snapshot)?.into_iter().chain(crate::dump::unfinished(&cli.db, snapshot)?)
    {
        say!("note: {note}");
    }
    copies(database)?;
    let ordinary = snapshot.document_collections();
    if snapshot.collections().is_empty() && ordinary.is_empty() {
        say!("no collections");
        return Ok(());
    }
    for name in snapshot.collections() {
        say!();
        one_status(&snapshot.collection(&name)?)?;
    }
    for name in &ordinary {
        say!();
        documents_status(&snapshot.documents(name)?)?;
    }
    let drops = database.sweeps();
    if let Some(last) = drops.last() {
        let what = if ordinary.contains(&last.collection) { "document" } else { "measurement" };
        say!();
        say!(
            "last drop: {} from {} by {}: {}, {}, {}",
            last.at,
            last.collection,
            last.rule,
            counted(last.buckets, "bucket"),
            counted(last.measurements, what),
            bytes(last.bytes)
        );
    }
    Ok(())
}

/// Prints how old a copy is and what its collections have, without fetching their segments.
fn copy_status(url: &str) -> Result<(), Failure> {
    let (replica, _folder) = replicas::newest(url)?;
    let database = replica.database();
    if let Some(replica) = database.replica_status() {
        let behind = about(age(database.clock().now(), replica.until).max(0.0));
        say!("copy {url}: what was acknowledged before {}, {behind} ago", replica.until);
        say!("  epoch {}, piece {}", replica.epoch, replica.piece);
    }
    unshipped(url)?;
    let snapshot = database.snapshot();
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        let segments = collection.segments();
        let rows = counted(segments.iter().map(|segment| segment.rows).sum(), "measurement");
        let size = bytes(segments.iter().map(|segment| segment.bytes).sum());
        let open = collection.part(&[], true)?.count()?;
        say!("{name}: {rows} in {}, {size}; {open} in open buckets", counted(segments.len() as u64, "segment"));
        if let Some((first, last)) = collection.time_range() {
            say!("  {first} to {last}");
        }
    }
    for name in snapshot.document_collections() {
        say!("{name}: an ordinary collection");
    }
    Ok(())
}

/// Prints what is missing in a copy since its primary was replaced, as far as former primaries have found out.
fn unshipped(url: &str) -> Result<(), Failure> {
    for Unshipped { until, rows, found_at, .. } in open::builder(".").unshipped(url)? {
        let what = "measurements and changed documents of a former primary that are not here, acknowledged after";
        match rows {
            Some(0) => {}
            Some(rows) => say!("note: {what} {until}: {rows}, as of {found_at}"),
            None => say!("note: {what} {until}: not known, perhaps none"),
        }
    }
    Ok(())
}

/// Prints how far the database is shipped, what cannot be written to, and what holds its sweeps.
fn copies(database: &Database) -> Result<(), Failure> {
    if let Some((note, behind)) = database.shipped()? {
        say!("shipped to {} until {}; {} since", note.url, note.until, counted(behind, "log record"));
    }
    if let Some(reason) = database.superseded()? {
        say!("note: it is not shipped any more, and refuses writes: {reason}");
    }
    for FailingPlace { what, url, since, error, throttled, .. } in database.failing_places()? {
        let how = if throttled { "has been throttled" } else { "has failed" };
        say!("note: the {what} at {url} {how} since {since}: {error}");
    }
    if let Some(held) = database.clock_held() {
        say!("note: {held}");
    }
    Ok(())
}

/// Runs `ebbtide metrics`.
pub(crate) fn metrics(cli: &Cli, args: &MetricsArgs) -> Result<(), Failure> {
    let (database, snapshot) = open_snapshot(cli, args.now.as_deref())?;
    let text = database.prometheus(&snapshot)?;
    say!("{}", text.trim_end());
    Ok(())
}

fn open_snapshot(cli: &Cli, now: Option<&str>) -> Result<(Database, Snapshot), Failure> {
    let now = parse_now(now)?;
    let database = open::for_reading(cli)?;
    let snapshot = match now {
        Some(now) => database.snapshot_at(now),
        None => database.snapshot(),
    };
    Ok((database, snapshot))
}

/// Prints what an ordinary collection stores by rule, and what expires next.
pub(crate) fn documents_status(collection: &DocumentsSnapshot) -> Result<(), Failure> {
    let info = collection.info()?;
    let (documents, buckets) = (counted(info.measurements, "document"), counted(info.buckets, "bucket"));
    say!("{}: {documents} in {buckets}, {}", info.name, bytes(info.bytes));
    let columns = collection.columns().iter().count() as u64;
    let indexes = collection.options().indexes.len();
    let indexes = match indexes {
        0 => String::new(),
        1 => ", 1 index".to_owned(),
        many => format!(", {many} indexes"),
    };
    say!("  an ordinary collection, {}{indexes}", counted(columns, "column"));
    let rules = collection.rule_infos()?;
    if rules.is_empty() {
        say!("  keeps everything forever");
    }
    for rule in rules {
        let filter = rule.filter.as_ref().map(|f| format!(" where {}", system::value_text(f))).unwrap_or_default();
        let life = match (rule.rule.as_str(), rule.expire_after_seconds) {
            ("items", -1) => "items with a ttl of their own expire after it".to_owned(),
            ("items", n) => format!("items keep {}, or their own ttl", retention_text(n)),
            (name, 0) => format!("{name} expires documents at their date{filter}"),
            (name, n) => format!("{name} expires documents {} after their date{filter}", retention_text(n)),
        };
        say!("  {life}: {}, {}", counted(rule.measurements, "document"), bytes(rule.bytes));
        if rule.due_measurements > 0 {
            say!("    due now: {}", counted(rule.due_measurements, "document"));
        }
        if let Some(next) = rule.next_expiry.filter(|next| *next > collection.now()) {
            say!("    next at {next}, in {}", about(age(next, collection.now())));
        }
    }
    Ok(())
}

/// Prints what a collection stores by age and rule, and what expires next.
pub(crate) fn one_status(collection: &CollectionSnapshot) -> Result<(), Failure> {
    let (info, options) = (collection.info()?, collection.options());
    let (measurements, buckets) = (counted(info.measurements, "measurement"), counted(info.buckets, "bucket"));
    say!("{}: {measurements} in {buckets}, {}", info.name, bytes(info.bytes));
    let meta = options.meta_field.as_deref().map(|m| format!(", meta {m}")).unwrap_or_default();
    say!(
        "  time {}{meta}, windows of {}, {}",
        options.time_field,
        retention_text(options.bucketing.span_seconds()),
        counted(collection.schema().fields.len() as u64, "field")
    );
    if let (Some(first), Some(last)) = (info.first_time, info.last_time) {
        say!("  {first} to {last}");
    }
    let buckets = collection.buckets()?;
    let rules = collection.rule_infos()?;
    for rule in &rules {
        let own: Vec<&BucketInfo> = buckets.iter().filter(|b| b.rule.as_deref() == Some(&rule.rule)).collect();
        one_rule(rule, &own, collection)?;
    }
    let kept: Vec<&BucketInfo> = buckets.iter().filter(|b| b.rule.is_none()).collect();
    if rules.is_empty() {
        say!("  keeps everything forever");
    } else if !kept.is_empty() {
        let size = kept.iter().map(|b| b.bytes).sum();
        say!("  no rule covers {}, {}: kept forever", counted(kept.len() as u64, "bucket"), bytes(size));
    }
    if let Some(oldest) = kept.iter().map(|b| b.first_time).min() {
        let life = age(collection.now(), oldest).max(1.0);
        draw(&Strip::of(&kept, collection.now(), life, None), "", &about(life))?;
    }
    for rung in collection.rung_infos()? {
        one_rung(&rung, collection.now())?;
    }
    if collection.suspended().is_some() {
        say!("  {}: nothing expires until they are deleted", info.state);
    }
    Ok(())
}

/// Prints what a rung keeps of measurements that were dropped, and when the first of its bins goes.
fn one_rung(rung: &RungInfo, now: Timestamp) -> Result<(), Failure> {
    let life =
        rung.expire_after_seconds.map_or_else(|| "forever".to_owned(), |life| format!("for {}", retention_text(life)));
    let (step, bins) = (retention_text(rung.step_seconds), counted(rung.bins, "bin"));
    say!("  ladder: aggregates of {step} {life}: {bins}, {}", bytes(rung.bytes));
    if let (Some(first), Some(last)) = (rung.first_bin, rung.last_bin) {
        say!("    {first} to {last}");
    }
    if let Some(next) = rung.next_expiry.filter(|next| *next > now) {
        say!("    next at {next}, in {}", about(age(next, now)));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a scale of some dozen cells")]
fn one_rule(rule: &RuleInfo, own: &[&BucketInfo], collection: &CollectionSnapshot) -> Result<(), Failure> {
    let now = collection.now();
    let filter = rule.filter.as_ref().map(|f| format!(" where {}", system::value_text(f))).unwrap_or_default();
    let what = if rule.rule == "collection" { "keeps".to_owned() } else { format!("{} keeps", rule.rule) };
    let life = rule.expire_after_seconds;
    let measurements = counted(rule.measurements, "measurement");
    say!("  {what} {}{filter}: {measurements}, {}", retention_text(life), bytes(rule.bytes));
    let next = own.iter().filter_map(|b| b.expires_at).filter(|at| *at > now).min();
    let next = next.filter(|_| collection.suspended().is_none());
    if !own.is_empty() && life > 0 {
        let half = if life % 2 == 0 { middle(life) } else { String::new() };
        draw(&Strip::of(own, now, life as f64, next), &half, &retention_text(life))?;
    }
    if rule.due_buckets > 0 {
        say!("    due now: {}", contents(rule.due_buckets, rule.due_measurements));
    }
    if let Some(next) = next {
        let going: Vec<&&BucketInfo> = own.iter().filter(|b| b.expires_at == Some(next)).collect();
        let (measurements, size) = going.iter().fold((0, 0), |(m, s), b| (m + b.measurements, s + b.bytes));
        say!("    next at {next}, in {}:", about(age(next, now)));
        let (buckets, measurements) =
            (counted(going.len() as u64, "bucket"), counted(measurements, "visible measurement"));
        say!("      {buckets} with {measurements}, {}", bytes(size));
    }
    Ok(())
}

/// Half of a retention, if that is a round number: 12 hours of a day, but not 84 hours of a week.
fn middle(life: i64) -> String {
    let (whole, half) = (retention_text(life), retention_text(life / 2));
    let unit = |text: &str| text.split(' ').next_back().map(|word| word.trim_end_matches('s').to_owned());
    let count: i64 = half.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(i64::MAX);
    if unit(&whole) == unit(&half) || count <= 30 { half } else { String::new() }
}

/// Seconds from one instant to a later one; negative for an earlier one.
#[expect(clippy::cast_precision_loss, reason = "a scale of some dozen cells")]
fn age(now: Timestamp, then: Timestamp) -> f64 {
    (now.nanos() - then.nanos()) as f64 / 1e9
}

/// A duration in the largest unit that it has at least two of.
#[expect(clippy::cast_possible_truncation, reason = "whole units")]
fn about(length: f64) -> String {
    let units = [(31_557_600.0, "years"), (86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")];
    let (size, word) = units.into_iter().find(|(size, _)| length >= 2.0 * size).unwrap_or((1.0, "seconds"));
    match ((length / size).floor() as i64, word) {
        (1, "seconds") => "1 second".to_owned(),
        (count, word) => format!("{count} {word}"),
    }
}

/// Cells after the expiry, for what has expired and is still stored.
const BEYOND: usize = 8;

/// What is stored by age: cells from the newest to the expiry, and some after it.
struct Strip {
    /// Bytes.
    cells: Vec<f64>,
    /// Whether anything in the cell expires next.
    next: Vec<bool>,
    /// Cells before the expiry.
    life: usize,
}

impl Strip {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a scale of some dozen cells"
    )]
    fn of(buckets: &[&BucketInfo], now: Timestamp, life: f64, next: Option<Timestamp>) -> Strip {
        let width = usize::from(files::width().unwrap_or(80)).clamp(40, 100);
        let count = width - 8 - BEYOND;
        let mut strip = Strip { cells: vec![0.0; count + BEYOND], next: vec![false; count + BEYOND], life: count };
        // What is exactly as old as the retention has expired. Without a rule, the oldest data is in the last cell
        // before the expiry.
        let last = if buckets.iter().all(|b| b.rule.is_none()) { count - 1 } else { count + BEYOND - 1 };
        let cell = |at: Timestamp| ((age(now, at) / life * count as f64).max(0.0) as usize).min(last);
        for bucket in buckets {
            // A bucket's bytes are assumed to be spread evenly between its first and its last time.
            let cells = cell(bucket.last_time)..=cell(bucket.first_time);
            let share = bucket.bytes as f64 / cells.clone().count() as f64;
            for at in cells {
                strip.cells[at] += share;
                strip.next[at] |= next.is_some() && bucket.expires_at == next;
            }
        }
        strip
    }

    /// The cells as characters, darker for more bytes; in colour for what has expired and what expires next.
    fn text(&self, colour: bool) -> String {
        let most = self.cells.iter().copied().fold(0.0, f64::max);
        let mut text = String::from("\u{2595}");
        for (at, weight) in self.cells.iter().enumerate() {
            if at == self.life {
                text.push('\u{258f}');
            }
            let shade = match weight / most {
                part if part > 0.75 => '\u{2588}',
                part if part > 0.5 => '\u{2593}',
                part if part > 0.25 => '\u{2592}',
                part if part > 0.0 => '\u{2591}',
                _ => ' ',
            };
            let paint = match (shade, at >= self.life, self.next[at]) {
                (' ', ..) => None,
                (_, true, _) => Some("31"),
                (_, _, true) => Some("33"),
                _ => Some("36"),
            };
            match paint.filter(|_| colour) {
                Some(paint) => text.push_str(&format!("\x1b[{paint}m{shade}\x1b[0m")),
                None => text.push(shade),
            }
        }
        text
    }
}

/// Prints a strip and a scale below it: now at the left, the retention at the expiry.
fn draw(strip: &Strip, middle: &str, end: &str) -> Result<(), Failure> {
    say!("    {}", strip.text(files::colour()).trim_end());
    let mut scale: Vec<char> = vec![' '; strip.life + 2];
    let mut put = |text: &str, at: usize| {
        for (cell, letter) in scale.iter_mut().skip(at).zip(text.chars()) {
            *cell = letter;
        }
    };
    put("now", 1);
    if middle.len() + end.len() + 12 < strip.life {
        put(middle, (strip.life / 2 + 1).saturating_sub(middle.len() / 2));
    }
    put(end, (strip.life + 2).saturating_sub(end.len()));
    let beyond = strip.cells[strip.life..].iter().any(|weight| *weight > 0.0);
    let note = if beyond { " expired" } else { "" };
    say!("    {}{note}", scale.iter().collect::<String>().trim_end());
    Ok(())
}
