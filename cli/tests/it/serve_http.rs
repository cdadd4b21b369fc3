//! SQL and rows over HTTP, as programs send them.

use crate::cli::inside;
use crate::serve::{REPLY_MAX, Serving, serve};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Float64Type;
use arrow::ipc::{reader::StreamReader, writer::StreamWriter};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use tempfile::TempDir;

/// What a page of another host cannot send.
const SENDER: &str = "X-Ebbtide: 1\r\n";

struct Http {
    serving: Serving,
    address: String,
    folder: TempDir,
}

struct Reply {
    status: u16,
    head: String,
    /// What came, and whether all of it did.
    body: Vec<u8>,
    is_whole: bool,
}

impl Reply {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Takes the pieces of a body in chunks out of it.
fn unchunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if length == 0 {
            return (body, true);
        }
        let Some(piece) = rest.get(at + 2..at + 2 + length) else { break };
        body.extend_from_slice(piece);
        rest = rest.get(at + 4 + length..).unwrap_or_default();
    }
    (body, false)
}

impl Http {
    fn new(args: &[&str]) -> Http {
        let folder = tempfile::tempdir().unwrap();
        let args = [&["--db", "weather", "--http", "0"], args].concat();
        let serving = serve(folder.path(), &args);
        let address = serving.doors[0].strip_prefix("http ").unwrap().to_owned();
        Http { serving, address, folder }
    }

    fn connect(&self, line: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(REPLY_MAX)).unwrap();
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        stream
    }

    fn ask(&self, line: &str, headers: &str, body: &[u8]) -> Reply {
        let mut all = Vec::new();
        // A reply that is broken off may end with an error.
        let _ = self.connect(line, headers, body).read_to_end(&mut all);
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(all[..end].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &all[end + 4..];
        let (body, is_whole) =
            if head.contains("transfer-encoding: chunked") { unchunked(rest) } else { (rest.to_vec(), true) };
        Reply { status, head, body, is_whole }
    }

    fn sql(&self, statement: &str) -> Reply {
        self.ask("POST /sql", SENDER, statement.as_bytes())
    }

    /// A statement's reply, which must be a success.
    fn run(&self, statement: &str) -> Value {
        let reply = self.sql(statement);
        assert_eq!(reply.status, 200, "{statement}: {}", reply.text());
        reply.json()
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.ask("GET /metrics", "", b"");
        let line = page.text().lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
        line.parse().unwrap()
    }

    fn end(self) {
        let (code, log) = self.serving.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

fn weather(args: &[&str]) -> Http {
    let http = Http::new(args);
    http.run("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')");
    http.run("INSERT INTO w (t, s, temp) VALUES ('2024-01-01', 'roof', 21.5), ('2024-01-02', 'yard', NULL)");
    http
}

#[test]
fn rows_come_in_the_form_that_is_asked_for() {
    let http = weather(&[]);
    let query = b"SELECT * FROM w ORDER BY t";
    let json = "[\n{\"t\":\"2024-01-01T00:00:00Z\",\"s\":\"roof\",\"temp\":21.5},\n\
                {\"t\":\"2024-01-02T00:00:00Z\",\"s\":\"yard\",\"temp\":null}\n]\n";
    let lines: String = json.lines().filter(|line| line.len() > 1).fold(String::new(), |mut all, line| {
        writeln!(all, "{}", line.trim_end_matches(',')).unwrap();
        all
    });
    let csv = "t,s,temp\n2024-01-01T00:00:00Z,roof,21.5\n2024-01-02T00:00:00Z,yard,\n";
    for (line, accept, media, body) in [
        ("POST /sql", "", "application/json", json),
        ("POST /sql", "Accept: */*\r\n", "application/json", json),
        ("POST /sql", "Accept: text/html, text/csv;q=0.9\r\n", "text/csv", csv),
        ("POST /sql", "Accept: text/csv; q=0.1, application/json;q=0.9\r\n", "application/json", json),
        ("POST /sql", "Accept: */*;q=0.1, text/csv\r\n", "text/csv", csv),
        ("POST /sql?format=ndjson", "Accept: text/csv\r\n", "application/x-ndjson", &lines),
        ("POST /sql?format=CSV", "", "text/csv", csv),
        ("POST /sql?db=weather&format=csv", "", "text/csv", csv),
    ] {
        let reply = http.ask(line, &format!("{SENDER}{accept}"), query);
        assert!(reply.status == 200 && reply.is_whole, "{line} {accept} {}", reply.head);
        assert!(reply.head.contains(&format!("content-type: {media}")), "{}", reply.head);
        assert_eq!(reply.text(), body, "{line} {accept}");
    }
    let table = http.ask("POST /sql", &format!("{SENDER}Accept: text/plain\r\n"), query);
    assert!(table.text().contains("│ 2024-01-01T00:00:00Z ┆ roof ┆ 21.5 │"), "{}", table.text());
    let parquet = http.ask("POST /sql?format=parquet", SENDER, query);
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
    let arrow = http.ask("POST /sql", &format!("{SENDER}Accept: application/vnd.apache.arrow.stream\r\n"), query);
    let batches: Vec<RecordBatch> =
        StreamReader::try_new(arrow.body.as_slice(), None).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    assert!((batches[0].column_by_name("temp").unwrap().as_primitive::<Float64Type>().value(0) - 21.5).abs() < 1e-12);

    // A statement without rows.
    assert_eq!(http.run("CREATE VIEW v AS SELECT 1"), json!({"message": "view v created"}));
    let told = http.ask("POST /sql?format=table", SENDER, b"DROP VIEW v");
    assert_eq!((told.status, told.text()), (200, "view v dropped\n"));
    assert_eq!(http.ask("POST /sql?format=csv", SENDER, b"FLUSH").status, 204);

    // With values, in JSON.
    let json = format!("{SENDER}Content-Type: application/json; charset=utf-8\r\n");
    let asked = br#"{"sql": "SELECT s FROM w WHERE temp > $1 AND s <> $2", "parameters": [20, "yard' OR 1=1"]}"#;
    assert_eq!(http.ask("POST /sql", &json, asked).json(), json!([{"s": "roof"}]));
    http.end();
}

#[test]
fn nothing_of_a_statement_is_left_for_the_next() {
    let http = weather(&[]);
    let query = |sensor: &str| http.run(&format!("SELECT count(*) AS n FROM w WHERE s = '{sensor}'"));
    for change in [
        "SET datafusion.sql_parser.enable_ident_normalization = false",
        "SELECT s INTO mine FROM w",
        "CREATE TEMPORARY VIEW mine AS SELECT 1 AS n",
        "PREPARE mine AS SELECT 1",
    ] {
        assert_eq!(query("roof"), query("roof"), "{change}");
        assert_eq!(http.sql(change).status / 100, 2, "{change}");
        assert_eq!(query("nobody"), json!([{"n": 0}]), "{change}");
        assert_eq!(http.sql("SELECT * FROM mine").status, 404, "{change}");
        assert_ne!(http.sql("EXECUTE mine").status / 100, 2, "{change}");
        assert_eq!(http.sql("SELECT COUNT(*) AS N FROM W").status, 200, "{change}");
    }
}

#[test]
fn what_is_wrong_is_told_with_a_status_and_a_code() {
    let http = weather(&[]);
    for (statement, status, name, says) in [
        ("SELECT tmp FROM w", 400, "BadValue", "did you mean 'temp'"),
        ("SELEC 1", 400, "FailedToParse", "SELEC"),
        ("", 400, "FailedToParse", "found 0"),
        ("SELECT 1; SELECT 2", 400, "FailedToParse", "found 2"),
        ("SELECT 1 / 0", 400, "BadValue", "zero"),
        ("CREATE COLLECTION w WITH (timeField = 'x')", 400, "NamespaceExists", "'w'"),
        // Files are the server's, and not those of whoever asks.
        ("SELECT * FROM 'x.csv'", 400, "IllegalOperation", "no files"),
        ("SELECT * FROM read_csv('/etc/passwd')", 400, "IllegalOperation", "no files"),
        ("CREATE VIEW f AS SELECT * FROM '/etc/passwd.csv'", 400, "IllegalOperation", "no files"),
        ("INSERT INTO w SELECT * FROM 'x.parquet'", 400, "IllegalOperation", "no files"),
        ("ALTER COLLECTION w EXPIRE AFTER 1 DAY INTO 'file:///tmp/x'", 400, "IllegalOperation", "no files"),
        ("ALTER COLLECTION w SET expireInto = 'file:///tmp/x'", 400, "IllegalOperation", "no files"),
        ("PUBLISH w TO 'file:///tmp/x'", 400, "IllegalOperation", "no files"),
        ("COPY w TO 'x.csv'", 400, "IllegalOperation", "no files"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", 400, "IllegalOperation", "no files"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", 400, "IllegalOperation", "no files"),
        ("SET datafusion.runtime.temp_directory = '/'", 400, "IllegalOperation", "network"),
    ] {
        let reply = http.sql(statement);
        let body = reply.json();
        assert_eq!((reply.status, body["codeName"].as_str()), (status, Some(name)), "{statement}: {body}");
        assert!(body["error"].as_str().unwrap().contains(says), "{statement}: {body}");
    }
    let json = format!("{SENDER}Content-Type: application/json\r\n");
    for (line, headers, body, status, says) in [
        ("POST /sql", "", "SELECT 1", 403, "X-Ebbtide"),
        ("GET /sql", SENDER, "", 405, ""),
        ("POST /sql?format=xml", SENDER, "SELECT 1", 400, "json, ndjson, csv, table, arrow, parquet"),
        ("POST /sql?fromat=csv", SENDER, "SELECT 1", 400, "fromat"),
        ("POST /sql?db=other", SENDER, "SELECT 1", 404, "weather"),
        ("POST /sql", &format!("{SENDER}Accept: text/html\r\n"), "SELECT 1", 406, "text/csv"),
        ("POST /sql", &format!("{SENDER}Accept: text/csv;q=0\r\n"), "SELECT 1", 406, "text/csv"),
        ("POST /sql", &json, "SELECT 1", 400, "parameters"),
        ("POST /sql", &json, r#"{"sql": "SELECT $1", "parameters": [[]]}"#, 400, "$1"),
        ("POST /sql", &json, r#"{"sql": "SELECT $1", "parameters": [1, 2]}"#, 400, "expected 1, got 2"),
        ("POST /sql", &format!("{SENDER}Content-Encoding: br\r\n"), "SELECT 1", 415, "gzip"),
    ] {
        let reply = http.ask(line, headers, body.as_bytes());
        assert_eq!(reply.status, status, "{line} {headers}: {}", reply.text());
        assert!(reply.text().contains(says), "{line} {headers}: {}", reply.text());
    }
    // What fails after a part was sent is broken off.
    let late = http.sql("SELECT 10 / (value - 900000) AS x FROM generate_series(1, 1000000)");
    assert!(late.status == 200 && !late.is_whole, "{}", late.head);
    assert!(http.metric("ebbtide_server_sql_failed_total") >= 20);
    http.end();
}

#[expect(clippy::disallowed_methods, reason = "files of other programs")]
#[test]
fn clients_use_files_in_the_folders_that_the_operator_names() {
    let folders = tempfile::tempdir().unwrap();
    let (shared, private) = (folders.path().join("shared"), folders.path().join("private"));
    for folder in [&shared, &private] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("x.csv"), "s,temp\nroof,21\nyard,20\n").unwrap();
    }
    let http = weather(&["--client-folder", shared.to_str().unwrap()]);
    let at = |statement: &str| {
        let statement =
            statement.replace("SHARED", shared.to_str().unwrap()).replace("PRIVATE", private.to_str().unwrap());
        http.sql(&statement)
    };
    for statement in
        ["SELECT temp FROM 'SHARED/x.csv' WHERE s = 'roof'", "SELECT temp FROM 'SHARED/*.csv' WHERE s = 'roof'"]
    {
        assert_eq!(at(statement).json(), json!([{"temp": 21}]), "{statement}");
    }
    for statement in [
        "COPY (SELECT temp FROM w) TO 'SHARED/w.parquet'",
        "ALTER COLLECTION w EXPIRE AFTER 20000 DAYS INTO 'file://SHARED/archive'",
        "PUBLISH w TO 'file://SHARED/table'",
    ] {
        let reply = at(statement);
        assert!(reply.status < 300, "{statement}: {}", reply.text());
    }
    assert!(shared.join("w.parquet").exists());
    assert_eq!(at("SELECT count(*) AS n FROM 'SHARED/w.parquet'").json(), at("SELECT count(*) AS n FROM w").json());
    for statement in [
        "SELECT * FROM 'PRIVATE/x.csv'",
        "SELECT * FROM 'SHARED/../private/x.csv'",
        "SELECT * FROM 'SHARED/../private/*.csv'",
        "SELECT * FROM 'SHARED/*/../../private/x.csv'",
        "SELECT * FROM 'PRIVATE/none*.csv'",
        "SELECT * FROM read_csv('file://PRIVATE/x.csv')",
        "COPY w TO 'PRIVATE/w.parquet'",
        "COPY w TO 'file://SHARED/w.csv'",
        "COPY w TO 'SHARED/../private/w.csv'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION 'PRIVATE/x.csv'",
        "ALTER COLLECTION w SET expireInto = 'file://PRIVATE/archive'",
        "ALTER COLLECTION w SET expireInto = 'file://SHARED/../private/archive'",
        "PUBLISH w TO 'file://PRIVATE/table'",
        "SET datafusion.runtime.temp_directory = '/'",
    ] {
        let reply = at(statement);
        let body = reply.json();
        assert_eq!((reply.status, body["codeName"].as_str()), (400, Some("IllegalOperation")), "{statement}: {body}");
    }
    assert_eq!(std::fs::read_dir(&private).unwrap().count(), 1);
    http.end();
}

#[test]
fn a_role_may_do_what_it_says() {
    let http = weather(&[]);
    for role in ["read", "write", "admin"] {
        let args = ["user", "add", role, "--role", role, "--db", "weather", "--password-file", "-"];
        assert_eq!(inside(http.folder.path(), &args, "horse\n").code, 0);
    }
    while http.ask("GET /metrics", "", b"").status == 200 {}
    let ask = |role: &str, statement: &str| {
        http.ask("POST /sql", &format!("Authorization: Bearer {role}:horse\r\n"), statement.as_bytes())
    };
    let statements = [
        ("SELECT count(*) FROM w", 0),
        ("EXPLAIN SELECT * FROM w", 0),
        ("SHOW TTL", 0),
        ("EXPLAIN EXPIRY FOR w WITH (expireAfterSeconds = 60)", 0),
        ("INSERT INTO w (t, s) VALUES ('2024-01-03', 'roof')", 1),
        ("WITH x AS (SELECT 1) INSERT INTO w (t, s) SELECT TIMESTAMP '2024-01-03', 'roof'", 1),
        ("EXPLAIN ANALYZE INSERT INTO w (t, s) VALUES ('2024-01-03', 'roof')", 1),
        ("DELETE FROM w WHERE s = 'yard'", 1),
        ("COPY (SELECT 1) TO 'x.csv'", 2),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", 2),
        ("CREATE VIEW v AS SELECT 1", 2),
        ("DROP VIEW v", 2),
        ("SELECT * INTO x FROM w", 2),
        ("CREATE COLLECTION c WITH (timeField = 't')", 2),
        ("ALTER COLLECTION w EXPIRE AFTER 20000 DAYS", 2),
        ("SWEEP", 2),
        ("FLUSH", 2),
        ("DROP COLLECTION c", 2),
    ];
    for (statement, needed) in statements {
        for (at, role) in ["read", "write", "admin"].into_iter().enumerate() {
            let reply = ask(role, statement);
            assert_eq!(reply.status == 403, at < needed, "{role}: {statement}: {} {}", reply.status, reply.text());
        }
    }
    assert_eq!(ask("nobody", "SELECT 1").status, 401);
    let rows = http.ask("POST /collections/w", "Authorization: Bearer read:horse\r\n", b"{}");
    assert_eq!(rows.status, 403, "{}", rows.text());
    http.end();
}

#[test]
fn a_token_logs_in_until_it_is_revoked_and_is_not_stored() {
    let http = weather(&[]);
    let user = |args: &[&str], input: &str| {
        inside(http.folder.path(), &[&["user"], args, &["--db", "weather"]].concat(), input)
    };
    assert_eq!(user(&["token", "sensors"], "").stderr.trim(), "error: no account 'sensors'");
    assert_eq!(user(&["add", "sensors", "--role", "write", "--password-file", "-"], "horse\n").code, 0);
    let tokens = [(); 2].map(|()| user(&["token", "sensors"], "").stdout.trim().to_owned());
    assert!(tokens[0] != tokens[1] && tokens.iter().all(|token| token.starts_with("ebt_") && token.len() == 47));
    let file = std::fs::read_to_string(http.folder.path().join("weather/accounts.json")).unwrap();
    assert!(tokens.iter().all(|token| !file.contains(&token[4..])), "{file}");
    while http.ask("GET /metrics", "", b"").status == 200 {}
    let ask = |scheme: &str, token: &str| {
        let login = format!("Authorization: {scheme} {token}\r\n");
        http.ask("POST /sql", &login, b"DELETE FROM w WHERE s = 'nobody'").status
    };
    // What was made last may not be known yet.
    while ask("Bearer", &tokens[1]) == 401 {}
    assert_eq!((ask("Bearer", &tokens[0]), ask("Token", &tokens[1])), (200, 200));
    let sweep = http.ask("POST /sql", &format!("Authorization: Bearer {}\r\n", tokens[0]), b"SWEEP");
    assert_eq!(sweep.status, 403, "{}", sweep.text());
    assert_eq!(ask("Bearer", "ebt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), 401);
    assert_eq!(user(&["revoke", "sensors"], "").stdout, "revoked 2 tokens of 'sensors'\n");
    while ask("Bearer", &tokens[0]) == 200 {}
    assert_eq!(ask("Bearer", &tokens[0]), 401);
    http.end();
}

#[test]
fn a_statement_ends_with_its_client_or_the_server() {
    let http = weather(&[]);
    let endless = "SELECT count(*) FROM generate_series(1, 10000000) a JOIN generate_series(1, 10000000) b \
                   ON a.value * b.value = -1";
    let streamed = "SELECT value FROM generate_series(1, 1000000000000)";
    for statement in [endless, streamed] {
        let client = http.connect("POST /sql", SENDER, statement.as_bytes());
        while http.metric("ebbtide_server_sql_running") == 0 {}
        drop(client);
        while http.metric("ebbtide_server_sql_running") > 0 {}
    }
    let _client = http.connect("POST /sql", SENDER, endless.as_bytes());
    while http.metric("ebbtide_server_sql_running") == 0 {}
    // Other requests are answered meanwhile, and a signal ends all.
    assert_eq!(http.run("SELECT 1 AS one"), json!([{"one": 1}]));
    http.end();
}

#[test]
fn the_statements_of_a_removed_account_end() {
    let http = weather(&[]);
    let user = |args: &[&str]| {
        let args = [&["user"], args, &["--db", "weather"]].concat();
        assert_eq!(inside(http.folder.path(), &args, "horse\n").code, 0);
    };
    for name in ["ada", "eve"] {
        user(&["add", name, "--role", "read", "--password-file", "-"]);
    }
    while http.ask("GET /metrics", "", b"").status == 200 {}
    let statement = b"SELECT value FROM generate_series(1, 1000000000000)";
    let mut client = http.connect("POST /sql?format=csv", "Authorization: Bearer ada:horse\r\n", statement);
    let mut some = vec![0; 1 << 20];
    client.read_exact(&mut some).unwrap();
    user(&["remove", "ada"]);
    // To the end it would take days.
    while client.read(&mut some).is_ok_and(|read| read > 0) {}
    assert_eq!(http.ask("GET /metrics", "Authorization: Bearer eve:horse\r\n", b"").status, 200);
    http.end();
}

#[test]
fn rows_are_stored_all_or_none() {
    let http = weather(&[]);
    let post = |line: &str, headers: &str, body: &[u8]| http.ask(line, &format!("{SENDER}{headers}"), body);
    let lines = b"{\"t\": \"2024-02-01T00:00:00Z\", \"s\": \"roof\", \"temp\": 1.5}\n\n\
                  {\"t\": {\"$date\": \"2024-02-02T00:00:00Z\"}, \"s\": \"roof\", \"temp\": 2, \"note\": \"x\"}\n";
    assert_eq!(post("POST /collections/w", "", lines).json(), json!({"inserted": 2}));
    let columns = post("POST /sql?format=arrow", "", b"SELECT t, s, temp + 1 AS temp FROM w WHERE s = 'roof'");
    let arrow = "Content-Type: application/vnd.apache.arrow.stream\r\n";
    assert_eq!(post("POST /collections/w?db=weather", arrow, &columns.body).json(), json!({"inserted": 3}));
    let empty = StreamReader::try_new(columns.body.as_slice(), None).unwrap().schema();
    let mut stream = StreamWriter::try_new(Vec::new(), &empty).unwrap();
    stream.finish().unwrap();
    assert_eq!(post("POST /collections/w", arrow, stream.get_ref()).json(), json!({"inserted": 0}));
    let sum = json!([{"n": 7, "sum": 53.0}]);
    assert_eq!(http.run("SELECT count(*) AS n, sum(temp) AS sum FROM w"), sum);
    for (line, headers, body, status, says) in [
        ("POST /collections/w", "", &b"{\"t\": \"2024-02-03\", \"s\": \"a\"}\n{\"t\": 5}"[..], 400, "line 2: "),
        ("POST /collections/w", "", b"{\"t\": \"2024-02-03\", \"s\": \"a\"}\n\n{\"t\": ", 400, "line 3: "),
        ("POST /collections/w", "", b"{\"t\": \"yesterday\"}", 400, "line 1: field 't': "),
        ("POST /collections/w", "", b"{\"t\": \"2024-02-03\", \"temp\": \"warm\"}", 400, "line 1: "),
        ("POST /collections/w", arrow, &columns.body[..columns.body.len() / 2], 400, "Arrow stream"),
        ("POST /collections/w", arrow, b"no stream", 400, "Arrow stream"),
        ("POST /collections/x", "", b"{}", 404, "'x'"),
        ("POST /collections/w?db=x", "", b"{}", 404, "weather"),
    ] {
        let reply = post(line, headers, body);
        assert_eq!(reply.status, status, "{line}: {}", reply.text());
        assert!(reply.json()["error"].as_str().unwrap().contains(says), "{line}: {}", reply.text());
    }
    assert_eq!(http.run("SELECT count(*) AS n, sum(temp) AS sum FROM w"), sum);

    // Of an ordinary collection those that can be stored are.
    http.run("CREATE COLLECTION d");
    let documents = b"{\"_id\": 1, \"a\": {\"$numberLong\": \"5\"}}\n{\"_id\": 2}\n{\"_id\": 1}\n";
    let reply = post("POST /collections/d", "", documents);
    assert_eq!(reply.status, 400);
    assert!(
        reply.text().contains("line 3: ") && reply.text().contains("2 other lines were stored"),
        "{}",
        reply.text()
    );
    assert_eq!(post("POST /collections/d", arrow, &columns.body).status, 415);
    assert_eq!(http.run("SELECT count(*) AS n FROM d"), json!([{"n": 2}]));
    http.end();
}
