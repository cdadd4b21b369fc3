//! Counters and sizes in the text format that Prometheus scrapes.

use super::MetricsSnapshot;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::snapshot::{CollectionInfo, RuleInfo, RungInfo, Snapshot};
use ebbtide_ttl::Timestamp;
use std::fmt::{Display, Write as _};

/// How far the database is shipped, or follows its primary.
fn copies(page: &mut Page, engine: &Engine, now: Timestamp) {
    let behind = |until: Timestamp| seconds(Timestamp::from_nanos(now.nanos().saturating_sub(until.nanos()).max(0)));
    if let Some(ship) = engine.copies.ship.lock().as_ref() {
        if let Some(until) = ship.shipped_until {
            page.single(
                "ship_lag_seconds",
                "gauge",
                "Time since everything acknowledged was in the copy.",
                behind(until),
            );
        }
        page.single("ship_sent_bytes_total", "counter", "Bytes sent to the copy.", ship.bytes);
        let help = "Whether the last attempt to ship the database failed.";
        page.single("ship_failing", "gauge", help, u8::from(ship.failed.is_some()));
    }
    if let Some(replica) = engine.copies.replica.lock().as_ref() {
        let help = "Time since the instant up to which the replica has what its primary acknowledged.";
        page.single("replica_lag_seconds", "gauge", help, behind(replica.until));
        let help = "Whether the last attempt of the replica to go on failed.";
        page.single("replica_failing", "gauge", help, u8::from(replica.failed.is_some()));
    }
}

/// Samples, family by family.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// Begins a family: `kind` is `counter` or `gauge`.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP ebbtide_{name} {help}\n# TYPE ebbtide_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "ebbtide_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Whole seconds with their fraction, exactly.
fn seconds(time: Timestamp) -> String {
    const SECOND: i128 = 1_000_000_000;
    let (whole, nanos) = (time.nanos().div_euclid(SECOND), time.nanos().rem_euclid(SECOND));
    match (whole, nanos) {
        (whole, 0) => whole.to_string(),
        (whole, nanos) if whole >= 0 => format!("{whole}.{nanos:09}"),
        (whole, nanos) => format!("-{}.{:09}", -(whole + 1), SECOND - nanos),
    }
}

impl MetricsSnapshot {
    /// The counters as text for Prometheus, a `HELP` and a `TYPE` line before each.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut page = Page::default();
        let counters = [
            ("inserted_measurements_total", "Measurements that were acknowledged.", self.inserted),
            ("inserts_total", "Atomic inserts that were acknowledged.", self.batches),
            ("log_written_bytes_total", "Bytes appended to the log.", self.log_bytes),
            ("log_syncs_total", "Syncs of the log.", self.log_syncs),
            ("seals_total", "Times that the open buckets of a collection were sealed.", self.seals),
            ("compactions_total", "Times that small segments were merged.", self.compactions),
            ("segments_written_total", "Segment files written.", self.segments_written),
            ("segment_written_bytes_total", "Bytes of segment files written.", self.segment_bytes_written),
            ("sweep_passes_total", "Passes of the sweeper.", self.ttl.passes),
            ("sweep_sub_passes_total", "Sub-passes of the sweeper.", self.ttl.sub_passes),
            ("sweep_deleted_measurements_total", "Measurements dropped.", self.ttl.deleted_documents),
            ("sweep_deleted_buckets_total", "Buckets dropped.", self.ttl.deleted_buckets),
            ("sweep_deleted_bytes_total", "Bytes on disk of what was dropped.", self.ttl.deleted_bytes),
            ("sweep_reclaimed_files_total", "Files that drops made superfluous.", self.ttl.reclaimed_files),
            ("sweep_failed_rules_total", "Visits of the sweeper to a rule that failed.", self.ttl.failed_rules),
        ];
        for (name, help, value) in counters {
            page.single(name, "counter", help, value);
        }
        let (whole, micros) = (self.ttl.duration_micros / 1_000_000, self.ttl.duration_micros % 1_000_000);
        let spent = format!("{whole}.{micros:06}");
        page.single("sweep_seconds_total", "counter", "Time spent in passes of the sweeper.", spent);
        page.single("open_files", "gauge", "Segment files held open for reading.", self.open_files);
        page.text
    }
}

/// What could not be written to, or slowly.
fn failing(page: &mut Page, engine: &Engine) {
    let places = match crate::failing::places::list(engine) {
        Ok(places) => places,
        Err(error) => {
            tracing::warn!(%error, "which archives, tables and copies fail is not known");
            return;
        }
    };
    let help = "1 for an archive, a published table or a copy that could not be written to when it was tried last.";
    page.family("place_failing", "gauge", help);
    let (throttled, failing): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| place.throttled);
    for place in failing {
        page.sample("place_failing", &[("what", &place.what), ("url", &place.url)], 1);
    }
    let help = "1 for an archive, a published table or a copy whose store refused requests (429, 503) in the last ten minutes.";
    page.family("place_throttled", "gauge", help);
    for place in throttled {
        page.sample("place_throttled", &[("what", &place.what), ("url", &place.url)], 1);
    }
}

/// What is stored, and what expires next, in one snapshot.
pub(crate) fn gauges(engine: &Engine, snapshot: &Snapshot) -> Result<String> {
    let mut page = Page::default();
    let mut all: Vec<Sizes> = Vec::new();
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        all.push(Sizes {
            info: collection.info()?,
            rules: collection.rule_infos()?,
            suspended: collection.suspended().is_some(),
            segments: collection.segments().len() as u64,
            open_bytes: collection.state.memtable.bytes() as u64,
        });
    }
    for name in snapshot.document_collections() {
        let collection = snapshot.documents(&name)?;
        all.push(Sizes {
            info: collection.info()?,
            rules: collection.rule_infos()?,
            suspended: false,
            segments: collection.segments().len() as u64,
            open_bytes: collection.open_bytes(),
        });
    }
    collections(&mut page, &all);
    rules(&mut page, &all);
    rungs(&mut page, &snapshot.ladders()?);
    page.single("now_seconds", "gauge", "The instant that expiry was decided at, since 1970.", seconds(snapshot.now()));
    copies(&mut page, engine, snapshot.now());
    failing(&mut page, engine);
    page.single("log_bytes", "gauge", "Bytes of the log files that are there.", log_bytes(engine)?);
    Ok(page.text)
}

/// The figures of one collection.
struct Sizes {
    info: CollectionInfo,
    rules: Vec<RuleInfo>,
    suspended: bool,
    segments: u64,
    open_bytes: u64,
}

fn rungs(page: &mut Page, all: &[RungInfo]) {
    type Value = fn(&RungInfo) -> u64;
    let families: [(&str, &str, Value); 2] = [
        ("rung_bins", "Bins of measurements that have been dropped.", |rung| rung.bins),
        ("rung_bytes", "Bytes of these bins on disk.", |rung| rung.bytes),
    ];
    for (name, help, value) in families.into_iter().filter(|_| !all.is_empty()) {
        page.family(name, "gauge", help);
        for rung in all {
            let step = rung.step_seconds.to_string();
            page.sample(name, &[("collection", &rung.collection), ("step_seconds", &step)], value(rung));
        }
    }
}

fn collections(page: &mut Page, all: &[Sizes]) {
    type Value = fn(&Sizes) -> u64;
    let families: [(&str, &str, Value); 6] = [
        ("collection_measurements", "Visible measurements.", |s| s.info.measurements),
        ("collection_buckets", "Buckets that are stored.", |s| s.info.buckets),
        ("collection_bytes", "Bytes on disk, and in memory of what is not sealed yet.", |s| s.info.bytes),
        ("collection_open_bytes", "Bytes in memory that are not sealed yet.", |s| s.open_bytes),
        ("collection_segments", "Segment files.", |s| s.segments),
        ("collection_suspended", "1 if nothing expires because of times out of range.", |s| u64::from(s.suspended)),
    ];
    for (name, help, value) in families {
        page.family(name, "gauge", help);
        for one in all {
            page.sample(name, &[("collection", &one.info.name)], value(one));
        }
    }
    type Time = fn(&Sizes) -> Option<Timestamp>;
    let times: [(&str, &str, Time); 2] = [
        ("collection_first_time_seconds", "The first stored time, since 1970.", |s| s.info.first_time),
        ("collection_last_time_seconds", "The last stored time, since 1970.", |s| s.info.last_time),
    ];
    for (name, help, time) in times {
        page.family(name, "gauge", help);
        for one in all {
            if let Some(time) = time(one) {
                page.sample(name, &[("collection", &one.info.name)], seconds(time));
            }
        }
    }
}

fn rules(page: &mut Page, all: &[Sizes]) {
    type Value = fn(&RuleInfo) -> Option<String>;
    let families: [(&str, &str, Value); 7] = [
        ("rule_expire_after_seconds", "How long measurements live.", |r| Some(r.expire_after_seconds.to_string())),
        ("rule_measurements", "Visible measurements under the rule.", |r| Some(r.measurements.to_string())),
        ("rule_buckets", "Buckets under the rule.", |r| Some(r.buckets.to_string())),
        ("rule_bytes", "Bytes of them.", |r| Some(r.bytes.to_string())),
        ("rule_due_buckets", "Buckets that a sweep now would drop.", |r| Some(r.due_buckets.to_string())),
        ("rule_due_measurements", "Measurements that would go with them.", |r| Some(r.due_measurements.to_string())),
        ("rule_next_expiry_seconds", "When the first bucket goes, since 1970.", |r| r.next_expiry.map(seconds)),
    ];
    for (name, help, value) in families {
        page.family(name, "gauge", help);
        for one in all {
            for rule in &one.rules {
                if let Some(value) = value(rule) {
                    page.sample(name, &[("collection", &one.info.name), ("rule", &rule.rule)], value);
                }
            }
        }
    }
}

/// Bytes of the log; a file that another program has removed meanwhile has none.
fn log_bytes(engine: &Engine) -> Result<u64> {
    let logs: Vec<u64> = engine.state.read().logs.iter().copied().collect();
    let mut sum = 0;
    for first_seq in logs {
        let path = crate::files::FileName::Log(first_seq).path(&engine.dir);
        match engine.fs.len(&path) {
            Ok(len) => sum += len,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("measure the log", &path, &error)),
        }
    }
    Ok(sum)
}
