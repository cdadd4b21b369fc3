//! What is said of commands.

use super::*;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use tracing::{Dispatch, Level};

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A log of one level, and its lines.
fn log(level: Level) -> (Dispatch, Lines) {
    /// While there is only one log, `tracing` asks the thread that meets an event first whether anybody wants it, and keeps the
    /// answer for all threads: a test without a log would switch the event off. With a second one it asks all logs.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing::subscriber::NoSubscriber::new()));
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(move || writer.clone());
    (Dispatch::new(log.finish()), lines)
}

/// What is logged while this runs, at a level.
fn said(level: Level, work: impl FnOnce()) -> String {
    let (log, lines) = log(level);
    tracing::dispatcher::with_default(&log, work);
    String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap()
}

#[test]
fn a_slow_command_is_logged_with_its_plan_if_it_is_profiled() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = client(&shared, Some("admin"));
    let find = || said(Level::INFO, || drop(answer(&shared, &admin, &rawdoc! { "find": "c", "$db": "d" })));
    assert_eq!(code(&shared, &admin, &rawdoc! { "create": "c", "$db": "d" }), 0);
    // None takes an hour.
    assert_eq!(code(&shared, &admin, &rawdoc! { "profile": 0, "slowms": 3_600_000, "$db": "d" }), 0);
    assert_eq!(find(), "");
    // All take more than -1.
    assert_eq!(code(&shared, &admin, &rawdoc! { "profile": 0, "slowms": -1, "$db": "d" }), 0);
    let line = find();
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in ["a command was slow", r#"name="find""#, r#"namespace="d.c""#, "millis=", "peer=127.0.0.1:1"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(code(&shared, &admin, &rawdoc! { "profile": 2, "$db": "d" }), 0);
    assert!(find().contains(r#"plan="COLLSCAN""#), "{}", find());
}

#[test]
fn what_happens_in_a_command_names_it_and_its_collection() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = client(&shared, Some("admin"));
    let wrong = rawdoc! { "find": "c", "filter": { "$nope": 1 }, "$db": "d" };
    let said = said(Level::DEBUG, || assert_eq!(code(&shared, &admin, &wrong), 2));
    let line = said.lines().find(|line| line.contains("a command was refused")).unwrap();
    assert!(line.contains(r#"command{name="find" namespace="d.c"}"#), "{line}");
}

#[tokio::test]
async fn what_happens_in_a_connection_names_its_number_and_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let (log, lines) = log(Level::DEBUG);
    let _said_here = tracing::dispatcher::set_default(&log);
    let (here, there) = tokio::io::duplex(64);
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    drop(there);
    // Half of a header.
    let half = tokio::io::AsyncReadExt::chain(&[0_u8; 8][..], tokio::io::empty());
    let stream = tokio::io::join(half, here);
    crate::connection::serve(stream, SocketAddr::from((Ipv4Addr::LOCALHOST, 7)), &shared, stopped).await;
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(said.contains("connection{number=1 peer=127.0.0.1:7}: "), "{said}");
    assert!(said.contains("a connection was closed"), "{said}");
}
