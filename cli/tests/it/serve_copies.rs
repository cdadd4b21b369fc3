//! Servers that ship their database, and servers that follow it.

use crate::cli::inside;
use crate::serve::{REPLY_MAX, get, serve, serve_with};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn sql(address: &str, statement: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(REPLY_MAX)).unwrap();
    write!(
        stream,
        "POST /sql HTTP/1.1\r\nHost: localhost\r\nX-Ebbtide: 1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{statement}",
        statement.len()
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Asks until the answer is yes. What is asked for comes after a second or two.
fn until(what: &str, is_so: impl Fn() -> bool) {
    assert!((0..20_000).any(|_| is_so()), "{what} did not come about");
}

#[test]
fn a_server_ships_its_database_and_another_one_follows_it_until_it_is_promoted() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let primary = serve(folder.path(), &["--db", "weather", "--http", "0", "--ship-to", &url]);
    let address = primary.doors[0].strip_prefix("http ").unwrap().to_owned();
    let made = sql(&address, "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')");
    assert!(made.contains(" 200 OK"), "{made}");
    let rows = "INSERT INTO doors (t, door, opened) VALUES ('2024-06-01T10:00:00Z', 'front', 3)";
    assert!(sql(&address, rows).contains(" 200 OK"));
    until("a copy", || get(&address, "/metrics").contains("\nebbtide_ship_failing{database=\"weather\"} 0\n"));

    let replica = serve(folder.path(), &["--db", "beside", "--http", "0", "--follow", &url]);
    let beside = replica.doors[0].strip_prefix("http ").unwrap().to_owned();
    // What is written now is seen there some time later.
    assert!(
        sql(&address, "INSERT INTO doors (t, door, opened) VALUES ('2024-06-01T11:00:00Z', 'back', 4)")
            .contains(" 200 OK")
    );
    until("the new row", || sql(&beside, "SELECT door FROM doors").contains("back"));
    assert!(get(&beside, "/metrics").contains("\nebbtide_replica_lag_seconds{database=\"beside\"} "));
    let refused = sql(&beside, rows);
    assert!(refused.contains("read replica"), "{refused}");
    assert_eq!(replica.end().0, Some(0));

    let promoted = inside(folder.path(), &["promote", "--from", &url, "--db", "beside"], "");
    assert_eq!((promoted.code, promoted.stderr.as_str()), (0, ""), "{}", promoted.stdout);
    // The old primary learns of it, and refuses writes from then on.
    until("a refusal", || !sql(&address, rows).contains(" 200 OK"));
    let refused = sql(&address, rows);
    assert!(refused.contains("another folder was made the primary"), "{refused}");
    let (code, log) = primary.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("the last changes were not shipped: another folder was made the primary"), "{log}");
    let again = inside(folder.path(), &["--db", "weather", "sql", rows], "");
    assert!(again.stderr.contains("another folder was made the primary"), "{}", again.stderr);
    let counted =
        inside(folder.path(), &["--db", "beside", "sql", "--format", "csv", "SELECT count(*) AS n FROM doors"], "");
    assert!(counted.stdout.starts_with("n\n"), "{}", counted.stdout);
}

#[test]
fn the_last_changes_are_shipped_when_a_server_ends() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let serving = serve(folder.path(), &["--db", "weather", "--http", "0", "--ship-to", &url]);
    let address = serving.doors[0].strip_prefix("http ").unwrap().to_owned();
    assert!(sql(&address, "CREATE COLLECTION doors WITH (timeField = 't')").contains(" 200 OK"));
    assert!(sql(&address, "INSERT INTO doors (t) VALUES ('2024-06-01T10:00:00Z')").contains(" 200 OK"));
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(inside(folder.path(), &["restore", "--from", &url, "--db", "restored"], "").code, 0);
    let args = ["--db", "restored", "sql", "--format", "csv", "SELECT count(*) AS n FROM doors"];
    assert_eq!(inside(folder.path(), &args, "").stdout, "n\n1\n");
}

#[test]
fn a_store_that_does_not_answer_delays_the_end_by_seconds_only() {
    let folder = tempfile::tempdir().unwrap();
    // It accepts connections, as an operating system does for a program that hangs.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", hangs.local_addr().unwrap());
    let serving = serve_with(
        folder.path(),
        &["--db", "weather", "--http", "0", "--grace", "0", "--ship-to", "s3://bucket/copy"],
        &[
            ("AWS_ENDPOINT_URL", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_TIMEOUT", "3600 seconds"),
        ],
    );
    let address = serving.doors[0].strip_prefix("http ").unwrap().to_owned();
    assert!(sql(&address, "CREATE COLLECTION doors WITH (timeField = 't')").contains(" 200 OK"));
    // A request is under way.
    let _request = hangs.accept().unwrap();
    let (code, log) = serving.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("the last changes were not shipped") && log.contains("was cancelled"), "{log}");
    // It was closed.
    assert_eq!(inside(folder.path(), &["--db", "weather", "verify"], "").code, 0);
}
