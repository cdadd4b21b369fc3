//! PostgreSQL's protocol: by its messages, and by programs that speak it.

use crate::cli::inside;
use crate::serve::{Serving, serve};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

struct Server {
    serving: Serving,
    folder: TempDir,
    port: String,
}

/// Makes the database `weather` with two measurements in `w`.
pub(crate) fn make_weather(folder: &Path) {
    let made = inside(
        folder,
        &[
            "--db",
            "weather",
            "sql",
            "CREATE COLLECTION w WITH (timeField = 't', metaField = 's')",
            "INSERT INTO w (t, s, temp, n, ok, o) VALUES ('2024-01-01 00:00:00.5', 'roof', 21.5, 3, true, '{\"a\":1}'), \
             ('2024-01-02', 'yard', NULL, -3, false, NULL)",
        ],
        "",
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
}

/// A server of it.
fn weather(args: &[&str]) -> Server {
    let folder = tempfile::tempdir().unwrap();
    make_weather(folder.path());
    let args = [&["--db", "weather", "--pg", "0"], args].concat();
    let serving = serve(folder.path(), &args);
    let door = serving.doors.iter().find_map(|door| door.strip_prefix("pg 127.0.0.1:"));
    let port = door.unwrap().to_owned();
    Server { serving, folder, port }
}

/// A client that sends what a test says.
struct Client {
    stream: TcpStream,
    key: Vec<u8>,
}

/// A message: its type, and what it says.
type Message = (u8, Vec<u8>);

impl Server {
    fn open(&self) -> TcpStream {
        TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap()
    }

    /// A client that has begun, with these parameters.
    fn client(&self, parameters: &str) -> Client {
        let mut client = Client { stream: self.open(), key: Vec::new() };
        let body = format!("\0\x03\0\0{}\0", parameters.replace('|', "\0") + "\0");
        client.send_untyped(body.as_bytes());
        let begun = client.until(b'Z');
        client.key = begun.iter().find(|(kind, _)| *kind == b'K').unwrap().1.clone();
        client
    }
}

impl Client {
    fn send_untyped(&mut self, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.stream.write_all(&[&length, body].concat()).unwrap();
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.stream.write_all(&[&[kind], &length[..], body].concat()).unwrap();
    }

    fn query(&mut self, text: &str) -> Vec<Message> {
        self.send(b'Q', format!("{text}\0").as_bytes());
        self.until(b'Z')
    }

    /// The next message; nothing at the end.
    fn next(&mut self) -> Option<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).unwrap();
        Some((head[0], body))
    }

    /// The messages up to one of this type, or to the end.
    fn until(&mut self, last: u8) -> Vec<Message> {
        let mut all = Vec::new();
        while let Some(message) = self.next() {
            let is_last = message.0 == last;
            all.push(message);
            if is_last {
                break;
            }
        }
        all
    }
}

fn kinds(messages: &[Message]) -> String {
    messages.iter().map(|(kind, _)| char::from(*kind)).collect()
}

fn state(messages: &[Message]) -> String {
    let (_, error) = messages.iter().find(|(kind, _)| *kind == b'E').unwrap();
    let fields = error.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let state = fields.into_iter().find_map(|field| field.strip_prefix('C').map(str::to_owned));
    state.unwrap()
}

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 10000000) a JOIN generate_series(1, 10000000) b \
                       ON a.value * b.value = -1";

#[test]
fn an_error_leaves_out_what_follows_until_the_next_sync() {
    let server = weather(&[]);
    let mut client = server.client("user|me|database|weather");
    assert_eq!(kinds(&client.query("SELECT 1; SELECT 2")), "TDCTDCZ");
    assert_eq!(kinds(&client.query(" ; -- nothing")), "IZ");
    assert_eq!(kinds(&client.query("SELECT 1; SELEC 2; SELECT 3")), "TDCEZ");
    client.send(b'P', b"one\0SELECT $1::int8\0\0\0");
    client.send(b'D', b"Sone\0");
    client.send(b'B', b"\0one\0\0\0\0\x01\0\0\0\x015\0\0");
    client.send(b'E', b"\0\0\0\0\0");
    client.send(b'S', b"");
    assert_eq!(kinds(&client.until(b'Z')), "1tT2DCZ");
    client.send(b'P', b"one\0SELECT 1\0\0\0");
    client.send(b'E', b"\0\0\0\0\0");
    client.send(b'B', b"\0one\0\0\0\0\0\0\0");
    client.send(b'S', b"");
    let answers = client.until(b'Z');
    assert_eq!((kinds(&answers).as_str(), state(&answers).as_str()), ("EZ", "42P05"));
    for (kind, body, expected) in [
        (b'B', &b"\0two\0\0\0\0\0\0\0"[..], "26000"),
        (b'E', b"two\0\0\0\0\0", "34000"),
        (b'B', b"\0one\0\0\0\0\0\0\0", "08P01"),
        (b'P', b"\0SELECT 1; SELECT 2\0\0\0", "42601"),
    ] {
        client.send(kind, body);
        client.send(b'S', b"");
        assert_eq!(state(&client.until(b'Z')), expected);
    }
    // Memory by the highest number of a parameter would end the server.
    for text in ["SELECT $4000000000", "DELETE FROM weather WHERE temp = $65536"] {
        let answers = client.query(text);
        let (_, error) = answers.iter().find(|(kind, _)| *kind == b'E').unwrap();
        assert!(String::from_utf8_lossy(error).contains("a statement has 65535 at most"));
    }
    assert_eq!(kinds(&client.query("SELECT 1")), "TDCZ");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_prepared_statement_is_refused_once_its_columns_have_changed() {
    let server = weather(&[]);
    let mut client = server.client("user|me|database|weather");
    client.send(b'P', b"first\0SELECT * FROM w ORDER BY t LIMIT 1\0\0\0");
    client.send(b'D', b"Sfirst\0");
    client.send(b'S', b"");
    assert_eq!(kinds(&client.until(b'Z')), "1tTZ");
    let run = |client: &mut Client, describe: bool| {
        client.send(b'B', b"\0first\0\0\0\0\0\0\0");
        if describe {
            client.send(b'D', b"P\0");
        }
        client.send(b'E', b"\0\0\0\0\0");
        client.send(b'S', b"");
        client.until(b'Z')
    };
    assert_eq!(kinds(&run(&mut client, false)), "2DCZ");
    // A whole number that becomes a double, and a column more.
    for values in ["(t, s, n) VALUES ('2024-01-03', 'roof', 0.5)", "(t, s, more) VALUES ('2024-01-03', 'roof', 1)"] {
        assert_eq!(kinds(&client.query(&format!("INSERT INTO w {values}"))), "CZ");
        let refused = run(&mut client, false);
        assert_eq!((kinds(&refused).as_str(), state(&refused).as_str()), ("2EZ", "0A000"), "{values}");
        // By this, drivers know that they can prepare it again.
        assert!(String::from_utf8_lossy(&refused[1].1).contains("\0RRevalidateCachedQuery\0"), "{values}");
        // A client that asks for the columns each time is told the new ones.
        assert_eq!(kinds(&run(&mut client, true)), "2TDCZ");
        assert_eq!(kinds(&run(&mut client, false)), "2DCZ");
    }
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn the_smallest_numbers_have_two_bytes_in_binary_form() {
    let server = weather(&[]);
    let mut client = server.client("user|me|database|weather");
    client.send(b'P', b"\0SELECT (-5)::tinyint AS a\0\0\0");
    // All columns in binary form.
    client.send(b'B', b"\0\0\0\0\0\0\0\x01\0\x01");
    client.send(b'E', b"\0\0\0\0\0");
    client.send(b'S', b"");
    let answers = client.until(b'Z');
    assert_eq!(kinds(&answers), "12DCZ");
    assert_eq!(answers[2].1, [0, 1, 0, 0, 0, 2, 0xff, 0xfb]);
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_list_that_is_sent_as_a_text_is_stored_as_a_list() {
    let server = weather(&[]);
    let mut client = server.client("user|me|database|weather");
    // Named as float8[].
    let named = 1022_u32.to_be_bytes();
    let insert = b"\0INSERT INTO w (t, s, l) VALUES ('2024-01-05', 'roof', $1)\0\0\x01";
    client.send(b'P', &[&insert[..], &named].concat());
    client.send(b'B', b"\0\0\0\0\0\x01\0\0\0\x07{1.5,2}\0\0");
    client.send(b'E', b"\0\0\0\0\0");
    client.send(b'S', b"");
    assert_eq!(kinds(&client.until(b'Z')), "12CZ");
    let stored = client.query("SELECT l[1] + l[2] AS sum FROM w WHERE l IS NOT NULL");
    assert_eq!(firsts(&stored), ["3.5"]);
    // As text[].
    let texts = 1009_u32.to_be_bytes();
    client.send(b'P', &[&b"\0DELETE FROM w WHERE s <> ALL($1)\0\0\x01"[..], &texts].concat());
    client.send(b'B', b"\0\0\0\0\0\x01\0\0\0\x06{roof}\0\0");
    client.send(b'E', b"\0\0\0\0\0");
    client.send(b'S', b"");
    let deleted = client.until(b'Z');
    assert_eq!((kinds(&deleted).as_str(), &deleted[2].1[..]), ("12CZ", &b"DELETE 1\0"[..]));
    client.send(b'P', &[&b"\0SELECT $1\0\0\x01"[..], &named].concat());
    client.send(b'B', b"\0\0\0\0\0\x01\0\0\0\x03{a}\0\0");
    client.send(b'S', b"");
    assert_eq!(state(&client.until(b'Z')), "22P02");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn what_is_no_message_ends_the_connection_with_words() {
    let server = weather(&[]);
    for (kind, body) in [(b'~', &b""[..]), (b'p', b"password\0")] {
        let mut client = server.client("user|me");
        client.send(kind, body);
        let answers = client.until(b'E');
        assert_eq!(state(&answers), "08P01");
        assert_eq!(client.next(), None);
    }
    let mut client = server.client("user|me");
    client.stream.write_all(b"Q\x7f\xff\xff\xff").unwrap();
    assert_eq!(state(&client.until(b'E')), "08P01");
    for (parameters, expected) in [
        ("user|me|database|nowhere", "3D000"),
        ("database|weather", "28000"),
        ("user|me|replication|true", "0A000"),
        ("user|me|client_encoding|LATIN1", "0A000"),
    ] {
        let mut client = Client { stream: server.open(), key: Vec::new() };
        let body = format!("\0\x03\0\0{}\0\0", parameters.replace('|', "\0"));
        client.send_untyped(body.as_bytes());
        assert_eq!(state(&client.until(b'Z')), expected, "{parameters}");
    }
    // Neither TLS nor GSSAPI is here, and a page's request is no startup message.
    let mut client = Client { stream: server.open(), key: Vec::new() };
    client.send_untyped(&80_877_103_u32.to_be_bytes());
    let mut answer = [0];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    let mut page = server.open();
    page.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSELECT 1").unwrap();
    let mut rest = Vec::new();
    let _closed = page.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest[0] == b'E', "{rest:?}");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_write_that_is_answered_as_cancelled_has_no_effect() {
    let server = weather(&[]);
    let mut client = server.client("user|me");
    client.query("CREATE COLLECTION o");
    client.query("INSERT INTO o (_id, v) SELECT value, 0 FROM generate_series(1, 5000)");
    let total = |client: &mut Client| {
        let answers = client.query("SELECT sum(v) FROM o");
        let row = answers.into_iter().find(|(kind, _)| *kind == b'D').unwrap().1;
        // The count of columns and the length of the text come first.
        String::from_utf8(row[6..].to_vec()).unwrap().parse::<i64>().unwrap()
    };
    let mut updated = 0;
    for timeout in 1..10 {
        client.query(&format!("SET statement_timeout = {timeout}"));
        let answers = client.query("UPDATE o SET v = v + 1");
        match kinds(&answers).as_str() {
            "CZ" => updated += 5000,
            _ => assert_eq!(state(&answers), "57014"),
        }
        client.query("SET statement_timeout = 0");
        // Commands on a collection are done in turn: one that still ran in the background would come before this one.
        client.query("UPDATE o SET w = 1");
        assert_eq!(total(&mut client), updated);
    }
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_statement_ends_when_it_is_cancelled_or_its_client_goes_away() {
    let server = weather(&["--http", "0"]);
    let http = server.serving.doors.iter().find_map(|door| door.strip_prefix("http ")).unwrap().to_owned();
    let running = || {
        let page = crate::serve::get(&http, "/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix("ebbtide_server_sql_running "));
        line.unwrap().trim() != "0"
    };
    let mut client = server.client("user|me");
    client.send(b'Q', format!("{ENDLESS}\0").as_bytes());
    while !running() {}
    let mut other = Client { stream: server.open(), key: Vec::new() };
    let wrong = [&80_877_102_u32.to_be_bytes()[..], &client.key[..4], b"\0\0\0\0"].concat();
    other.send_untyped(&wrong);
    assert_eq!(other.next(), None);
    assert!(running());
    let mut other = Client { stream: server.open(), key: Vec::new() };
    let request = [&80_877_102_u32.to_be_bytes()[..], &client.key].concat();
    other.send_untyped(&request);
    assert_eq!(state(&client.until(b'Z')), "57014");
    assert_eq!(kinds(&client.query("SELECT 1")), "TDCZ");
    while running() {}
    for statement in [ENDLESS, "SELECT value FROM generate_series(1, 1000000000000)"] {
        let mut client = server.client("user|me");
        client.send(b'Q', format!("{statement}\0").as_bytes());
        while !running() {}
        drop(client);
        while running() {}
    }
    // The end is noticed behind what was sent ahead.
    let mut client = server.client("user|me");
    client.send(b'Q', format!("{ENDLESS}\0").as_bytes());
    while !running() {}
    for _ in 0..96 {
        client.send(b'Q', format!("SELECT 1 -- {}\0", "x".repeat(32 << 10)).as_bytes());
    }
    drop(client);
    while running() {}
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn what_is_set_in_a_transaction_ends_as_in_postgres() {
    let server = weather(&[]);
    let mut client = server.client("user|me");
    for (statements, expected) in [
        ("SET statement_timeout = '1s'", "1s"),
        ("BEGIN; SET statement_timeout = '2s'; ROLLBACK", "1s"),
        ("BEGIN; SET statement_timeout = '2s'; COMMIT", "2s"),
        ("SET LOCAL statement_timeout = '3s'", "2s"),
        ("BEGIN; SET LOCAL statement_timeout = '3s'; COMMIT", "2s"),
        ("BEGIN; SET LOCAL statement_timeout = '7s'; SET statement_timeout = '9s'; COMMIT", "9s"),
        ("BEGIN; SAVEPOINT a; SET statement_timeout = '4s'; ROLLBACK TO a; COMMIT", "9s"),
        ("BEGIN; RESET ALL; SELECT nope; ", "9s"),
    ] {
        client.query(statements);
        client.query("COMMIT");
        assert_eq!(firsts(&client.query("SHOW statement_timeout")), [expected], "{statements}");
    }
    assert_eq!(state(&client.query("DEALLOCATE nope")), "26000");
    let copied = client.query("COPY COLLECTION w TO w2");
    assert!(copied.iter().all(|(kind, _)| *kind != b'E'), "{copied:?}");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_write_behind_with_is_named_and_counted_as_what_it_is() {
    let server = weather(&[]);
    let mut client = server.client("user|me");
    let insert =
        "WITH x (a) AS (SELECT 1), y AS (SELECT a FROM x) INSERT INTO w (t, s, v) SELECT now(), 'with', a FROM y";
    let done = client.query(insert);
    let tags: Vec<&[u8]> = done.iter().filter(|(kind, _)| *kind == b'C').map(|(_, tag)| tag.as_slice()).collect();
    assert_eq!(tags, [b"INSERT 0 1\0"], "{done:?}");
    let refused = client.query(&format!("BEGIN; {insert}"));
    let (_, error) = refused.iter().find(|(kind, _)| *kind == b'E').unwrap();
    assert!(String::from_utf8_lossy(error).contains("INSERT in a transaction"), "{refused:?}");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn prepare_and_execute_may_be_sent_as_text() {
    let server = weather(&[]);
    let mut client = server.client("user|me");
    assert_eq!(kinds(&client.query("PREPARE p AS SELECT $1::int + 1 AS n")), "CZ");
    assert_eq!(firsts(&client.query("EXECUTE p(41)")), ["42"]);
    // By the messages that drivers send for a statement without values.
    client.send(b'P', b"\0PREPARE q (int) AS SELECT n FROM w WHERE n > $1\0\0\0");
    client.send(b'B', b"\0\0\0\0\0\0\0\0");
    client.send(b'D', b"P\0");
    client.send(b'E', b"\0\0\0\0\0");
    client.send(b'S', b"");
    assert_eq!(kinds(&client.until(b'Z')), "12nCZ");
    assert_eq!(firsts(&client.query("EXECUTE q(0)")), ["3"]);
    assert_eq!(kinds(&client.query("PREPARE r AS INSERT INTO w (t, s, n) VALUES (now(), $1, $2)")), "CZ");
    assert_eq!(firsts(&client.query("EXECUTE r('text', 7); SELECT n FROM w WHERE s = 'text'")).last().unwrap(), "7");
    // What it returns is described; a write is not run for that.
    for (text, told) in [("EXECUTE q(0)", "1tTZ"), ("EXECUTE r('text', 8)", "1tnZ")] {
        client.send(b'P', format!("\0{text}\0\0\0").as_bytes());
        client.send(b'D', b"S\0");
        client.send(b'S', b"");
        assert_eq!(kinds(&client.until(b'Z')), told, "{text}");
    }
    assert_eq!(firsts(&client.query("SELECT count(*) FROM w WHERE s = 'text'")), ["1"]);
    let refused = client.query("BEGIN; EXECUTE r('text', 8)");
    let (_, error) = refused.iter().find(|(kind, _)| *kind == b'E').unwrap();
    assert!(String::from_utf8_lossy(error).contains("EXECUTE in a transaction"), "{refused:?}");
    assert_eq!(server.serving.end().0, Some(0));
}

/// Python with the clients, if there is one.
pub(crate) fn clients_python() -> Option<PathBuf> {
    let python = std::env::var_os("EBBTIDE_CLIENTS").map(|clients| PathBuf::from(clients).join("venv/bin/python"));
    let python = python.filter(|python| python.exists());
    if python.is_none() {
        eprintln!(
            "skipped: EBBTIDE_CLIENTS names no folder of clients (server/tests/drivers/install FOLDER makes one)"
        );
    }
    python
}

pub(crate) fn driver(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/drivers").join(name)
}

/// Runs a program that has to end well; what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{told}");
    told
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn drivers_in_python_read_and_write() {
    let Some(python) = clients_python() else { return };
    let server = weather(&[]);
    let told = run(Command::new(python).arg(driver("postgres.py")).arg(&server.port));
    eprint!("{told}");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn jdbc_reads_and_writes() {
    let jar = Path::new("/usr/share/java/postgresql.jar");
    if !exists("java") || !jar.exists() {
        eprintln!("skipped: there is no java, or no {} (Debian: libpostgresql-jdbc-java)", jar.display());
        return;
    }
    let server = weather(&[]);
    let url = format!("jdbc:postgresql://127.0.0.1:{}/weather", server.port);
    let told = run(Command::new("java").arg("-cp").arg(jar).arg(driver("Postgres.java")).arg(url));
    assert!(told.ends_with("done\n"), "{told}");
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn psql_logs_in_and_lists_tables() {
    if !exists("psql") {
        eprintln!("skipped: there is no psql (Debian: postgresql-client)");
        return;
    }
    let server = weather(&[]);
    let password = "battery staple";
    let added = inside(
        server.folder.path(),
        &["user", "add", "ada", "--role", "read", "--db", "weather", "--password-file", "-"],
        password,
    );
    assert_eq!(added.code, 0, "{}", added.stderr);
    let psql = |password: &str, commands: &[&str]| {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-A", "-t", "-h", "127.0.0.1", "-p", &server.port, "-U", "ada", "-d", "weather"]);
        psql.env("PGPASSWORD", password).stdin(Stdio::null());
        for command in commands {
            psql.args(["-c", command]);
        }
        let output = psql.output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    };
    // The server notices its first account within a second.
    while !psql("wrong", &["SELECT 1"]).contains("the login was refused") {}
    let told =
        psql(password, &["SELECT s FROM w ORDER BY t", "\\dt", "\\d w", "INSERT INTO w (t, s) VALUES (now(), 'x')"]);
    let listed = psql(password, &["\\d+", "\\dt+", "\\d+ w", "\\du", "\\l+", "\\df", "\\dn+", "\\dv+"]);
    assert!(!listed.contains("ERROR"), "{listed}");
    assert!(listed.contains("public|w|table|ada|permanent|"), "{listed}");
    assert!(told.starts_with("roof\nyard\npublic|w|table|ada\n"), "{told}");
    assert!(told.contains("\nt|timestamp with time zone||not null|\ns|text|||\ntemp|double precision|||\n"), "{told}");
    assert!(told.contains("this statement needs the role write"), "{told}");
    assert_eq!(server.serving.end().0, Some(0));
}

/// The first value of each row of a reply.
fn firsts(messages: &[Message]) -> Vec<String> {
    let rows = messages.iter().filter(|(kind, _)| *kind == b'D');
    let first = |(_, row): &Message| {
        let length = u32::from_be_bytes(row[2..6].try_into().unwrap()) as usize;
        String::from_utf8(row[6..6 + length].to_vec()).unwrap()
    };
    rows.map(first).collect()
}

/// What is refused, by a part of its text: zones other than UTC, and pgcli's list of functions, whose columns are none here.
const REFUSED_AT_FIRST: [&str; 2] = ["set time zone", "proallargtypes"];

#[test]
fn what_programs_ask_when_they_connect_is_answered() {
    let clients = std::env::var_os("EBBTIDE_CLIENTS").map(PathBuf::from);
    let Some(recorded) = clients.and_then(|clients| std::fs::read_to_string(clients.join("startup.json")).ok()) else {
        eprintln!(
            "skipped: EBBTIDE_CLIENTS names no folder with startup.json (server/tests/drivers/install FOLDER makes one)"
        );
        return;
    };
    let recorded: BTreeMap<String, Vec<String>> = serde_json::from_str(&recorded).unwrap();
    let server = weather(&[]);
    let mut refused = 0;
    for (program, statements) in &recorded {
        let mut client = server.client("user|ada|database|weather");
        for statement in statements {
            // Grafana asks for the columns of the table that was recorded.
            let reply = client.query(&statement.replace("public.games", "public.w"));
            let error = reply.iter().find(|(kind, _)| *kind == b'E').map(|(_, error)| String::from_utf8_lossy(error));
            if REFUSED_AT_FIRST.iter().any(|part| statement.contains(part)) {
                assert_ne!(error, None, "{program}: {statement}");
                refused += 1;
                continue;
            }
            assert_eq!(error, None, "{program}: {statement}");
            if program == "grafana" {
                let expected = if statement.contains("information_schema.columns") { "temp" } else { "public.w" };
                let found = firsts(&reply);
                assert!(found.iter().any(|name| name == expected), "{statement}: {found:?}");
            }
        }
    }
    assert_eq!((recorded.len(), refused), (6, REFUSED_AT_FIRST.len()));
    server.serving.end();
}

/// What psql's listings, SQLAlchemy and ibis ask, as recorded at PostgreSQL.
const REFLECTION: &str = include_str!("reflection.sql");

#[test]
fn what_is_asked_about_tables_and_columns_is_answered() {
    let server = weather(&[]);
    let mut client = server.client("user|ada|database|weather");
    client.query("CREATE VIEW v AS SELECT t, temp FROM w WHERE temp > 20");
    for statement in REFLECTION.split("\n;\n\n") {
        let reply = client.query(statement);
        let error = reply.iter().find(|(kind, _)| *kind == b'E').map(|(_, error)| String::from_utf8_lossy(error));
        assert_eq!(error, None, "{statement}");
        if statement.contains("json_build_object") && statement.contains("IN ('w')") {
            assert_eq!(firsts(&reply), ["t", "s", "temp", "n", "ok", "o"], "{statement}");
        }
        if statement.contains("pg_get_viewdef(pg_catalog.pg_class.oid)") {
            assert_eq!(firsts(&reply), ["SELECT t, temp FROM w WHERE temp > 20;"], "{statement}");
        }
    }
    let mut answer = |statement: &str| firsts(&client.query(statement));
    let text = "SELECT t, temp FROM w WHERE temp > 20;";
    assert_eq!(answer("SELECT view_definition FROM information_schema.views WHERE table_schema = 'public'"), [text]);
    assert_eq!(answer("SELECT v.definition FROM pg_catalog.pg_views v WHERE v.schemaname = 'public'"), [text]);
    assert_eq!(answer("SELECT viewname FROM pg_views WHERE schemaname = 'public'"), ["v"]);
    assert_eq!(answer("SELECT table_catalog FROM information_schema.tables WHERE table_name = 'w'"), ["weather"]);
    assert_eq!(answer("SELECT count(*) FROM \"weather\".\"public\".\"w\""), ["2"]);
    assert_eq!(answer("SELECT oid FROM pg_type WHERE oid = to_regtype('int8')"), ["20"]);
    // As Npgsql tells arrays from other types when it connects.
    let readers = "SELECT p.proname FROM pg_type t LEFT JOIN pg_proc p ON p.oid = t.typreceive WHERE t.typname =";
    assert_eq!(answer(&format!("{readers} '_int4'")), ["array_recv"]);
    assert_eq!(answer("SELECT count(array_to_string(defaclacl, ',')) FROM pg_default_acl"), ["0"]);
    assert_eq!(
        answer("SELECT udt_name FROM information_schema.columns WHERE table_name = 'w' AND column_name = 't'"),
        ["timestamptz"]
    );
    for table in ["table_constraints", "key_column_usage", "character_sets", "sequences"] {
        assert_eq!(answer(&format!("SELECT count(*) FROM information_schema.{table}")), ["0"]);
    }
    assert_eq!(answer("SELECT count(*) FROM pg_indexes"), ["0"]);
    drop(client);
    server.serving.end();
}

#[test]
fn statements_about_collections_are_answered_whatever_their_columns_are_called() {
    let server = weather(&[]);
    let mut client = server.client("user|ada|database|weather");
    for (statement, expected) in [
        ("SELECT (SELECT max(o.n) FROM w AS o WHERE o.s = pg_w.s) FROM w AS pg_w ORDER BY s", &["3", "-3"][..]),
        ("SELECT ARRAY(SELECT n FROM w AS pg_w ORDER BY n)", &["{-3,3}"]),
        ("SELECT ARRAY(SELECT n FROM w AS pg_w WHERE n > 9)", &["{}"]),
        ("SELECT ARRAY(SELECT relname FROM pg_class WHERE relname = 'w')", &["{w}"]),
        ("SELECT ARRAY(SELECT conname FROM pg_constraint)", &["{}"]),
        ("SELECT (SELECT count(*) FROM w AS o WHERE o.s = c.relname) FROM pg_class AS c WHERE relname = 'w'", &["0"]),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM pg_index i RIGHT JOIN pg_class c ON c.oid = i.indrelid)", &["1"]),
    ] {
        let reply = client.query(statement);
        let error = reply.iter().find(|(kind, _)| *kind == b'E').map(|(_, error)| String::from_utf8_lossy(error));
        assert_eq!(error, None, "{statement}");
        assert_eq!(firsts(&reply), expected, "{statement}");
    }
    drop(client);
    server.serving.end();
}

#[test]
fn the_present_is_an_instant() {
    let server = weather(&[]);
    let mut client = server.client("user|ada|database|weather");
    for expression in ["now()", "current_timestamp - INTERVAL '1 hour'", "date_trunc('day', now())"] {
        let reply = client.query(&format!("SELECT {expression} AS a"));
        let (_, columns) = reply.iter().find(|(kind, _)| *kind == b'T').unwrap();
        // The number of columns; the name of the first one, its table, its number there, and its type.
        assert_eq!(columns[10..14], 1184_u32.to_be_bytes(), "{expression}");
        assert!(firsts(&reply)[0].ends_with("+00"), "{expression}");
    }
    let recent = "SELECT count(*) FROM w WHERE t > now() - INTERVAL '1 hour' OR now() - t < INTERVAL '1 hour'";
    assert_eq!(firsts(&client.query(recent)), ["0"]);
    assert_eq!(firsts(&client.query("SELECT (now() AT TIME ZONE 'UTC')::timestamp = now()::timestamp")), ["t"]);
    drop(client);
    server.serving.end();
}

#[test]
fn bins_and_ranges_as_grafana_writes_them_are_understood() {
    let server = weather(&[]);
    let mut client = server.client("user|ada|database|weather");
    // As its macros $__timeGroup and $__timeFilter are expanded.
    let reply = client.query(
        "SELECT floor(extract(epoch from t)/86400)*86400 AS \"time\", avg(temp) AS temp FROM w \
         WHERE t BETWEEN '2023-12-31T00:00:00Z' AND '2024-01-03T00:00:00Z' GROUP BY 1 ORDER BY 1",
    );
    assert_eq!(firsts(&reply), ["1704067200.0", "1704153600.0"]);
    drop(client);
    server.serving.end();
}
