//! The memory of a server, as the kernel counts it: of connections that wait, and of a result without an end.

use crate::serve::{Serving, get, serve};
use crate::serve_postgres::make_weather;
use std::io::{Read, Write};
use std::net::TcpStream;

const MEBIBYTE: u64 = 1 << 20;

/// A figure of the server in bytes by its name in the kernel's status: `VmRSS` is the current size, `VmHWM` the largest so far.
fn memory(serving: &Serving, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn address(serving: &Serving, door: &str) -> String {
    serving.doors.iter().find_map(|line| line.strip_prefix(door)?.strip_prefix(' ')).unwrap().to_owned()
}

/// A connection that has sent this, and has been answered up to these bytes.
fn connected(address: &str, sent: &[u8], last: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(sent).unwrap();
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(last) || answer.is_empty() {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..length]);
    }
    stream
}

/// The beginning of a conversation in PostgreSQL's protocol, and the end of its answer.
const STARTUP: &[u8] = b"\0\0\0\x11\0\x03\0\0user\0me\0\0";
const READY: &[u8] = b"Z\0\0\0\x05I";

/// The command `ping` of MongoDB.
const PING: &[u8] = b"\x33\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
                      \x1e\0\0\0\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";

#[test]
fn a_hundred_idle_connections_take_less_than_fifty_mebibytes() {
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for (door, sent, last) in [
        ("mongodb", PING, &b"\0"[..]),
        ("http", b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n\r\n"),
        ("http", http2, b""),
        ("pg", STARTUP, READY),
    ] {
        let folder = tempfile::tempdir().unwrap();
        make_weather(folder.path());
        let serving = serve(folder.path(), &["--db", "weather", &format!("--{door}"), "0"]);
        let address = address(&serving, door);
        let _first = connected(&address, sent, last);
        let before = memory(&serving, "VmRSS");
        let idle: Vec<TcpStream> = (0..100).map(|_| connected(&address, sent, last)).collect();
        let taken = memory(&serving, "VmRSS").saturating_sub(before);
        assert!(taken < 50 * MEBIBYTE, "{door}: {taken} bytes");
        drop(idle);
        assert_eq!(serving.end().0, Some(0));
    }
}

#[test]
fn a_result_without_an_end_is_sent_in_little_memory_and_ends_with_its_client() {
    const STATEMENT: &str = "SELECT value, repeat('x', 1000) AS x FROM generate_series(1, 1000000000000)";
    let folder = tempfile::tempdir().unwrap();
    make_weather(folder.path());
    let serving = serve(folder.path(), &["--db", "weather", "--http", "0", "--pg", "0"]);
    let http = address(&serving, "http");
    let length = STATEMENT.len();
    let head = "POST /sql HTTP/1.1\r\nHost: localhost\r\nX-Ebbtide: 1\r\nAccept: application/x-ndjson\r\n";
    let mut posted = TcpStream::connect(&http).unwrap();
    write!(posted, "{head}Content-Length: {length}\r\n\r\n{STATEMENT}").unwrap();
    let mut asked = connected(&address(&serving, "pg"), STARTUP, READY);
    let length = u32::try_from(length + 5).unwrap().to_be_bytes();
    asked.write_all(&[b"Q", &length[..], STATEMENT.as_bytes(), b"\0"].concat()).unwrap();
    for mut stream in [posted, asked] {
        let mut read = |mebibytes: u64| {
            let mut piece = vec![0; 1 << 20];
            (0..mebibytes).for_each(|_| stream.read_exact(&mut piece).unwrap());
            memory(&serving, "VmHWM")
        };
        let before = read(64);
        let taken = read(256) - before;
        assert!(taken < 64 * MEBIBYTE, "{taken} bytes");
    }
    while !get(&http, "/metrics").contains("\nebbtide_server_sql_running 0\n") {}
    assert_eq!(serving.end().0, Some(0));
}
