//! What the server takes does not grow with what it has done: memory and open files over many finds, and over time while programs
//! write and what they wrote expires.
//!
//! `EBBTIDE_SERVER_FINDS` sets how many finds, `EBBTIDE_SERVER_WRITER_SECONDS` how long two writers insert 1,000 rows a second; with
//! 0 seconds they insert a few without a pause.
#![expect(clippy::disallowed_methods, reason = "writers that keep a rate, and what the system says of a process")]

use crate::child::Process;
use bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const FINDS: u64 = 4_000;
const CONNECTIONS: u64 = 4;
const WRITERS: i64 = 2;
/// Rows of each writer in a second, half of them measurements and half documents.
const ROWS: i64 = 500;
/// Rounds of the writers without a pause.
const ROUNDS: i64 = 12;
/// Seconds after which what was written expires.
const LIFE: i32 = 60;
/// Measurements are taken so often in all.
const SAMPLES: u64 = 30;
/// What may be taken after the first third beyond the most that was taken in it.
const KIB_MORE: u64 = 48 << 10;
const FILES_MORE: u64 = 64;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A connection that sends raw frames.
struct Connection(TcpStream);

impl Connection {
    fn open(port: u16) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection(stream)
    }

    fn run(&mut self, command: &RawDocument) -> RawDocumentBuf {
        let length = i32::try_from(21 + command.as_bytes().len()).unwrap();
        let mut frame: Vec<u8> = [length, 1, 0, 2013, 0].into_iter().flat_map(i32::to_le_bytes).collect();
        frame.push(0);
        frame.extend(command.as_bytes());
        self.0.write_all(&frame).unwrap();
        let mut header = [0; 21];
        self.0.read_exact(&mut header).unwrap();
        let length = usize::try_from(i32::from_le_bytes(header[..4].try_into().unwrap())).unwrap();
        let mut body = vec![0; length - 21];
        self.0.read_exact(&mut body).unwrap();
        let reply = RawDocumentBuf::from_bytes(body).unwrap();
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command:?}: {reply:?}");
        assert!(reply.get("writeErrors").unwrap().is_none(), "{command:?}: {reply:?}");
        reply
    }

    /// Rows of a writer for an instant: measurements, and documents with the date from which on they expire.
    fn write(&mut self, writer: i64, round: i64, now: DateTime) {
        let at = |row: i64| DateTime::from_millis(now.timestamp_millis() + row);
        let measured = (0..ROWS / 2).map(|row| rawdoc! { "t": at(row), "m": writer, "v": row, "round": round });
        let measured: bson::RawArrayBuf = measured.collect();
        self.run(&rawdoc! { "insert": "measured", "$db": "load", "documents": measured });
        let kept =
            (0..ROWS / 2).map(|row| rawdoc! { "_id": format!("{writer}-{round}-{row}"), "at": at(row), "v": row });
        let kept: bson::RawArrayBuf = kept.collect();
        self.run(&rawdoc! { "insert": "kept", "$db": "load", "documents": kept });
    }
}

/// Memory in KiB and open files of a process.
fn taken(process: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = line.split_whitespace().next().unwrap().parse().unwrap();
    (kib, std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64)
}

/// Checks what was taken, in the order of time.
fn check(what: &str, samples: &[(u64, u64)]) {
    for (at, (kib, files)) in samples.iter().enumerate() {
        println!("{what}, {at} of {}: {} MiB, {files} files", samples.len(), kib >> 10);
    }
    let (first, rest) = samples.split_at(samples.len().div_ceil(3));
    // Nothing only if the writers were faster than one sample.
    let most = |samples: &[(u64, u64)], of: fn(&(u64, u64)) -> u64| samples.iter().map(of).max().unwrap_or(0);
    let (kib, kib_then) = (most(first, |s| s.0), most(rest, |s| s.0));
    assert!(kib_then <= kib + KIB_MORE, "{what}: {kib} KiB in the first third, {kib_then} KiB then");
    let (files, files_then) = (most(first, |s| s.1), most(rest, |s| s.1));
    assert!(files_then <= files + FILES_MORE, "{what}: {files} files in the first third, {files_then} then");
}

/// A server with a collection of each kind.
fn served(folder: &std::path::Path) -> (Process, Connection) {
    let server = Process::start(&folder.join("dbs"), 0);
    let mut connection = Connection::open(server.port());
    let timeseries = rawdoc! { "timeField": "t", "metaField": "m" };
    connection
        .run(&rawdoc! { "create": "measured", "$db": "load", "timeseries": timeseries, "expireAfterSeconds": LIFE });
    let index = rawdoc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": LIFE };
    let indexes: bson::RawArrayBuf = [index].into_iter().collect();
    connection.run(&rawdoc! { "createIndexes": "kept", "$db": "load", "indexes": indexes });
    connection.run(&rawdoc! { "setParameter": 1, "ttlMonitorSleepSecs": 1, "$db": "admin" });
    (server, connection)
}

#[test]
fn finds_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut connection) = served(folder.path());
    // Far from expiring.
    let later = DateTime::from_millis(DateTime::now().timestamp_millis() + 100_000_000);
    connection.write(0, 0, later);
    let finds = number("EBBTIDE_SERVER_FINDS", FINDS);
    let find = |connection: &mut Connection, n: u64| {
        let row = i64::try_from(n).unwrap() % (ROWS / 2);
        let found = match n % 3 {
            0 => connection.run(
                &rawdoc! { "find": "measured", "$db": "load", "filter": { "v": row }, "projection": { "_id": 0 } },
            ),
            1 => connection.run(&rawdoc! { "find": "kept", "$db": "load", "filter": { "_id": format!("0-0-{row}") } }),
            // Leaves a cursor, which is closed.
            _ => connection.run(&rawdoc! { "find": "kept", "$db": "load", "batchSize": 1 }),
        };
        let cursor = found.get_document("cursor").unwrap();
        assert_eq!(cursor.get_array("firstBatch").unwrap().into_iter().count(), 1, "{found:?}");
        if let id @ 1.. = cursor.get_i64("id").unwrap() {
            connection.run(&rawdoc! { "killCursors": "kept", "$db": "load", "cursors": [id] });
        }
    };
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        thread::scope(|scope| {
            for n in 0..CONNECTIONS {
                let port = server.port();
                scope.spawn(move || {
                    let mut connection = Connection::open(port);
                    (0..finds / SAMPLES / CONNECTIONS).for_each(|at| find(&mut connection, at * CONNECTIONS + n));
                });
            }
        });
        samples.push(taken(server.id()));
    }
    check(&format!("{finds} finds"), &samples);
}

#[test]
fn an_hour_of_writers_takes_no_more_than_minutes_do() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = served(folder.path());
    let seconds = i64::try_from(number("EBBTIDE_SERVER_WRITER_SECONDS", 0)).unwrap();
    let rounds = if seconds == 0 { ROUNDS } else { seconds };
    let mut samples = Vec::new();
    thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let port = server.port();
            scope.spawn(move || {
                let mut connection = Connection::open(port);
                let begun = DateTime::now().timestamp_millis();
                for round in 0..rounds {
                    connection.write(writer, round, DateTime::now());
                    let next = if seconds == 0 { 0 } else { begun + (round + 1) * 1_000 };
                    let left = u64::try_from(next - DateTime::now().timestamp_millis()).unwrap_or(0);
                    thread::sleep(Duration::from_millis(left));
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let pause =
            Duration::from_millis(u64::try_from(rounds * 1_000).unwrap() / SAMPLES / if seconds == 0 { 20 } else { 1 });
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(pause);
            samples.push(taken(server.id()));
        }
    });
    check(&format!("{seconds} s of writers"), &samples);
    if seconds > i64::from(LIFE) {
        let mut connection = Connection::open(server.port());
        let counted = connection.run(&rawdoc! { "count": "kept", "$db": "load" }).get_i32("n").unwrap();
        assert!(i64::from(counted) < (i64::from(LIFE) + 10) * WRITERS * ROWS, "{counted} are left");
    }
}
