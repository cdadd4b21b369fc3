//! The HTTP port from raw requests.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebbtide_server::{AccountsFile, AutoCreate, Databases, Prometheus, Role, Server, Settings};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn running(settings: Settings) -> (Server, SocketAddr, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = running_in(settings, folder.path()).await;
    (server, address, folder)
}

async fn running_in(settings: Settings, folder: &Path) -> (Server, SocketAddr) {
    let databases = Databases::in_folder(folder).unwrap();
    let settings = Settings { mongodb: None, http: Some(0), http_hosts: vec!["db.example.org".into()], ..settings };
    let server = Server::start(databases, settings).await.unwrap();
    let address = server.http_address().unwrap();
    assert_eq!(server.mongodb_address(), None);
    (server, address)
}

/// The status of a reply, and all of it.
async fn ask(address: SocketAddr, line: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    (status, reply)
}

fn basic(name: &str, password: &str) -> String {
    format!("Host: localhost\r\nAuthorization: Basic {}\r\n", STANDARD.encode(format!("{name}:{password}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_the_server_can_be_asked() {
    let (server, address, folder) = running(Settings::default()).await;
    drop(ebbtide::Database::open(folder.path().join("later")).unwrap());
    let local = "Host: localhost\r\n";
    assert_eq!(ask(address, "GET /ping", local).await.0, 204);
    let (status, health) = ask(address, "GET /health", local).await;
    assert!(status == 200 && health.ends_with("\r\n\r\n{\"status\":\"pass\",\"name\":\"ebbtide\"}"), "{health}");
    assert!(health.contains("content-type: application/json"), "{health}");
    assert_eq!(ask(address, "GET /nothing", local).await.0, 404);
    assert_eq!(ask(address, "POST /health", local).await.0, 405);
    let (status, metrics) = ask(address, "GET /metrics", local).await;
    assert_eq!(status, 200);
    assert!(
        metrics.contains("\n# TYPE ebbtide_server_http_requests_total counter\nebbtide_server_http_requests_total 5\n"),
        "{metrics}"
    );
    assert!(metrics.contains("\nebbtide_server_connections "), "{metrics}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_loads_nothing_from_elsewhere() {
    let (server, address, _folder) = running(Settings::default()).await;
    for (path, kind) in
        [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript"), ("/page.svg", "image/svg+xml")]
    {
        let (status, reply) = ask(address, &format!("GET {path}"), "Host: localhost\r\n").await;
        assert_eq!(status, 200, "{path}");
        for header in [&format!("content-type: {kind}"), "content-security-policy: default-src 'self'", "nosniff"] {
            assert!(reply.contains(header), "{path}: {header}");
        }
        let rest = reply.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains("http://") && !rest.contains("https://"), "{path} names another host");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_those_of_all_databases() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let database = ebbtide::Database::open(folder.path().join(name)).unwrap();
        database.create_documents("c", ebbtide::DocumentsOptions::default()).unwrap();
        database.close().unwrap();
    }
    let databases = Databases::in_folder(folder.path()).unwrap();
    let server =
        Server::start(databases, Settings { http: Some(0), mongodb: None, ..Settings::default() }).await.unwrap();
    let (_, metrics) = ask(server.http_address().unwrap(), "GET /metrics", "Host: localhost\r\n").await;
    for name in ["one", "two"] {
        let sample = format!("ebbtide_collection_measurements{{database=\"{name}\",collection=\"c\"}} 0\n");
        assert!(metrics.contains(&sample), "{metrics}");
    }
    let families: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let distinct: std::collections::BTreeSet<&str> = families.iter().copied().collect();
    assert_eq!(families.len(), distinct.len(), "each family comes once");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_hosts_read_nothing() {
    let (server, address, _folder) = running(Settings::default()).await;
    let port = address.port();
    for (headers, status) in [
        (format!("Host: 127.0.0.1:{port}\r\n"), 204),
        ("Host: LOCALHOST\r\n".to_owned(), 204),
        ("Host: db.example.org:80\r\n".to_owned(), 204),
        ("Host: evil.example\r\n".to_owned(), 421),
        ("Host: 127.0.0.2\r\n".to_owned(), 421),
        ("Host: localhost.evil.example\r\n".to_owned(), 421),
        ("Host: \r\n".to_owned(), 421),
        (String::new(), 421),
        (format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n"), 204),
        (format!("Host: localhost:{port}\r\nOrigin: http://localhost:1\r\n"), 403),
        (format!("Host: localhost:{port}\r\nOrigin: https://evil.example\r\n"), 403),
        ("Host: localhost\r\nOrigin: null\r\n".to_owned(), 403),
    ] {
        let (found, reply) = ask(address, "GET /ping", &headers).await;
        assert_eq!(found, status, "{headers}: {reply}");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_a_login_where_there_are_accounts() {
    let folder = tempfile::tempdir().unwrap();
    let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
    file.change(|accounts| accounts.add("rea", Role::Read, "p:w")).unwrap();
    let login_delay = Duration::from_millis(1);
    let (server, address, _dbs) = running(Settings { accounts: Some(file), login_delay, ..Settings::default() }).await;
    for (headers, status) in [
        ("Host: localhost\r\n".to_owned(), 401),
        (basic("rea", "p:w"), 200),
        (basic("rea", "p"), 401),
        (basic("eve", "p:w"), 401),
        ("Host: localhost\r\nAuthorization: Bearer rea:p:w\r\n".to_owned(), 200),
        ("Host: localhost\r\nAuthorization: Bearer x\r\n".to_owned(), 401),
    ] {
        let (found, reply) = ask(address, "GET /metrics", &headers).await;
        assert_eq!(found, status, "{headers}: {reply}");
        assert_eq!(reply.contains("www-authenticate: Basic"), status == 401, "{reply}");
        assert_eq!(reply.contains("ebbtide_server_"), status == 200, "{reply}");
    }
    assert_eq!(ask(address, "GET /health", "Host: localhost\r\n").await.0, 200);
    let (_, metrics) = ask(address, "GET /metrics", &basic("rea", "p:w")).await;
    assert!(metrics.contains("\nebbtide_server_logins_refused_total 2\n"), "{metrics}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stalls_is_closed() {
    let stall_max = Duration::from_millis(50);
    let (server, address, _folder) = running(Settings { stall_max, ..Settings::default() }).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply).await;
    // A head without an end is no way to hold memory either.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(format!("GET /ping HTTP/1.1\r\nX: {}", "x".repeat(100_000)).as_bytes()).await;
    let _ = stream.read_to_end(&mut reply).await;
    assert!(!String::from_utf8_lossy(&reply).contains(" 204 "));
    // And of a body the rest must come as well.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /write?db=d HTTP/1.1\r\nHost: localhost\r\nX-Ebbtide: 1\r\nConnection: close\r\nContent-Length: 100\r\n\r\nm v=1";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    server.stop().await.unwrap();
}

const PROGRAM: &str = "X-Ebbtide: 1\r\n";
const TWO: &str = "cpu,host=a usage=0.5,cores=4i 1704067200\nmem,host=a free=7i 1704067200\n";

async fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    (reply.split(' ').nth(1).unwrap().parse().unwrap(), reply)
}

/// How many measurements each collection of a database has, after the server.
fn counts(folder: &tempfile::TempDir, database: &str) -> Vec<(String, u64)> {
    let database = ebbtide::Database::open(folder.path().join(database)).unwrap();
    let snapshot = database.snapshot();
    let count = |name: String| (name.clone(), snapshot.collection(&name).unwrap().count().unwrap());
    database.collections().into_iter().map(count).collect()
}

fn named(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn line_protocol_of_three_generations_is_stored() {
    let auto = AutoCreate { buckets: [("plant/week".to_owned(), 604_800)].into(), ..AutoCreate::default() };
    let settings = Settings { auto_create_lines: auto, ..Settings::default() };
    let (server, address, folder) = running(settings).await;
    let none = post(address, "/write?db=plant&precision=s", PROGRAM, b"").await;
    assert_eq!(none.0, 204, "{}", none.1);
    for (path, body) in [
        ("/write?db=plant&precision=s", TWO),
        ("/api/v2/write?org=o&bucket=plant/week&precision=s", "disk,host=a used=1i 1704067200"),
        ("/api/v2/write?org=o&bucket=plant", "cpu,host=b usage=1 1704067200000000001\n# comment\n\n"),
        ("/api/v3/write_lp?db=plant&precision=auto&no_sync=false", "cpu,host=b usage=1 1704067200123"),
        ("/api/v3/write_lp?db=plant&precision=second", "cpu usage=2 1704067200\r\n"),
    ] {
        let (status, reply) = post(address, path, PROGRAM, body.as_bytes()).await;
        assert_eq!(status, 204, "{path}: {reply}");
    }
    let (_, metrics) = ask(address, "GET /metrics", "Host: localhost\r\n").await;
    assert!(metrics.contains("\nebbtide_server_lines_stored_total 6\n"), "{metrics}");
    server.stop().await.unwrap();
    // The one that is kept for a week has expired.
    assert_eq!(counts(&folder, "plant"), named(&[("cpu", 4), ("disk", 0), ("mem", 1)]));
    let database = ebbtide::Database::open(folder.path().join("plant")).unwrap();
    let snapshot = database.snapshot();
    let cpu = snapshot.collection("cpu").unwrap();
    let (first, last) = cpu.time_range().unwrap();
    assert_eq!(
        (first.to_string().as_str(), last.to_string().as_str()),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123Z")
    );
    assert_eq!((cpu.options().time_field.as_str(), cpu.options().meta_field.as_deref()), ("time", Some("tags")));
    let life = |name: &str| snapshot.collection(name).unwrap().rules().iter().next().map(|r| r.expire_after_seconds);
    assert_eq!((life("disk"), life("cpu")), (Some(604_800), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_is_named_and_nothing_of_its_request_is_stored() {
    let (server, address, folder) = running(Settings::default()).await;
    assert_eq!(post(address, "/write?db=d", PROGRAM, TWO.as_bytes()).await.0, 204);
    let long_tag = format!("aaa v=1\nbbb,host={} v=1", "x".repeat(70_000));
    for (path, body, says) in [
        (
            "/write?db=d",
            "cpu v=1\n\ncpu v",
            "{\"error\":\"line 3: column 6: a field is written name=value: nothing was stored\"}",
        ),
        (
            "/api/v2/write?bucket=d",
            "cpu v=1\ncpu\nmem",
            "{\"code\":\"invalid\",\"message\":\"line 2: column 4: expected fields after a space (and 1 more line): nothing",
        ),
        (
            "/api/v2/write?bucket=d",
            "aaa v=1\ncpu v=1\ncpu usage=\"high\"",
            "line 3: field 'usage' is double, the value is a string",
        ),
        ("/api/v2/write?bucket=d", "aaa v=1\ncpu time=1", "line 2: field 'time' has the name"),
        ("/write?db=d", "aaa v=1\nbbb v=1i\nbbb v=\"x\"", "line 3: field 'v'"),
        ("/write?db=d", long_tag.as_str(), "line 2: the meta takes 7"),
        ("/api/v3/write_lp?db=d&accept_partial=false", "aaa v=1\ncpu", "\"original_line\":\"cpu\""),
        ("/write", "cpu v=1", "parameter db is missing"),
        ("/api/v2/write?db=d", "cpu v=1", "parameter bucket is missing"),
        ("/write?db=d&precision=weeks", "cpu v=1", "'weeks'"),
        ("/write?db=../x", "cpu v=1", "../x"),
        ("/write?db=admin", "cpu v=1", "holds nothing"),
        ("/write?db=d", "system.profile v=1", "system.profile"),
        ("/api/v3/write_lp?db=d&accept_partial=perhaps", "cpu v=1", "accept_partial"),
    ] {
        let (status, reply) = post(address, path, PROGRAM, body.as_bytes()).await;
        assert!(status == 400 && reply.contains(says), "{path} {body}: {reply}");
        assert!(reply.contains("content-type: application/json\r\n"), "{reply}");
    }
    assert_eq!(ask(address, "GET /write?db=d", "Host: localhost\r\n").await.0, 405);
    server.stop().await.unwrap();
    // No collection was created for them.
    assert_eq!(counts(&folder, "d"), named(&[("cpu", 1), ("mem", 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_third_generation_stores_the_good_lines_and_lists_the_others() {
    let (server, address, folder) = running(Settings::default()).await;
    let body = "cpu v=1i\ncpu\ncpu v=\"x\"\nmem v=1i\ncpu v=2i";
    let (status, reply) = post(address, "/api/v3/write_lp?db=d", PROGRAM, body.as_bytes()).await;
    assert_eq!(status, 400, "{reply}");
    let told: serde_json::Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert!(told["error"].as_str().unwrap().ends_with("(and 1 more line): 3 other lines were stored"), "{told}");
    let lines: Vec<_> = told["data"].as_array().unwrap().iter().map(|bad| bad["line_number"].as_u64()).collect();
    assert_eq!(lines, [Some(2), Some(3)]);
    assert_eq!(told["data"][1]["original_line"], "cpu v=\"x\"");
    let (name, tag) = ("x".repeat(1_025), "x".repeat(70_000));
    let unfit = format!("long {name}=1i\nlong time=1i\nwide,host={tag} v=1i\nmem v=2i");
    let (status, reply) = post(address, "/api/v3/write_lp?db=d", PROGRAM, unfit.as_bytes()).await;
    assert!(status == 400 && reply.contains("(and 2 more lines): 1 other line was stored"), "{reply}");
    server.stop().await.unwrap();
    assert_eq!(counts(&folder, "d"), named(&[("cpu", 2), ("mem", 2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_needs_the_role_or_a_header_that_no_page_sends() {
    let (server, address, _folder) = running(Settings::default()).await;
    let (status, reply) = post(address, "/write?db=d", "", b"m v=1").await;
    assert!(status == 403 && reply.contains("X-Ebbtide: 1"), "{reply}");
    for headers in [PROGRAM, "Authorization: Token whatever\r\n"] {
        assert_eq!(post(address, "/write?db=d", headers, b"m v=1").await.0, 204, "{headers}");
    }
    let foreign = format!("{PROGRAM}Origin: https://evil.example\r\n");
    assert_eq!(post(address, "/write?db=d", &foreign, b"m v=1").await.0, 403);
    server.stop().await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
    file.change(|accounts| accounts.add("rea", Role::Read, "p")).unwrap();
    file.change(|accounts| accounts.add("wri", Role::Write, "p")).unwrap();
    let login_delay = Duration::from_millis(1);
    let settings = Settings { accounts: Some(file), login_delay, rows_per_second_max: Some(1), ..Settings::default() };
    let (server, address, dbs) = running(settings).await;
    for (path, headers, status) in [
        ("/write?db=d", PROGRAM, 401),
        ("/write?db=d&u=rea&p=p", "", 403),
        ("/write?db=d&u=wri&p=q", "", 401),
        ("/write?db=d", "Authorization: Token rea:p\r\n", 403),
        ("/write?db=d", "Authorization: Token wri:p\r\n", 204),
        ("/api/v2/write?bucket=d", "Authorization: Token wri:p\r\n", 429),
    ] {
        let (found, reply) = post(address, path, headers, b"m v=1\nm v=2\nm v=3").await;
        assert_eq!(found, status, "{path} {headers}: {reply}");
        assert_eq!(reply.contains("\r\nwww-authenticate: "), status == 401, "{reply}");
        assert_eq!(reply.contains("\r\nretry-after: 1\r\n"), status == 429, "{reply}");
    }
    server.stop().await.unwrap();
    assert_eq!(counts(&dbs, "d"), named(&[("m", 3)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_may_be_packed_and_have_a_limit() {
    let auto = AutoCreate { enabled: false, ..AutoCreate::default() };
    let settings = Settings { message_bytes_max: 1000, auto_create_lines: auto, ..Settings::default() };
    let (server, address, folder) = running(settings).await;
    let database = ebbtide::Database::open(folder.path().join("later")).unwrap();
    drop(database);
    let packed = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let gzip = format!("{PROGRAM}Content-Encoding: gzip\r\n");
    let (large, many) = ("m v=1i\n".repeat(200), "#".repeat(2000));
    for (headers, body, status, says) in [
        (&gzip, packed("m v=1i"), 400, "[autocreate] is off"),
        (&gzip, packed("m v=1i")[..9].to_vec(), 400, "not a complete gzip file"),
        (&gzip, b"m v=1i".to_vec(), 400, "not a complete gzip file"),
        (&gzip.replace("gzip", "GZIP"), packed("m v=1i"), 400, "[autocreate] is off"),
        (&gzip, packed(&large), 413, "1000 bytes"),
        (&PROGRAM.to_owned(), many.into_bytes(), 413, "1000 bytes"),
        (&format!("{PROGRAM}Content-Encoding: br\r\n"), b"m v=1i".to_vec(), 415, "gzip"),
    ] {
        let (found, reply) = post(address, "/api/v2/write?bucket=d", headers, &body).await;
        assert!(found == status && reply.contains(says), "{status} {says}: {reply}");
    }
    server.stop().await.unwrap();
    assert_eq!(counts(&folder, "d"), []);
}

/// The bytes of a protobuf field that has a length.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// A series of a WriteRequest, with samples of a value and a time in milliseconds below 128.
fn series(labels: &[(&str, &str)], samples: &[(f64, u8)]) -> Vec<u8> {
    let label =
        |(name, value): &(&str, &str)| field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat());
    let sample =
        |(value, millis): &(f64, u8)| field(2, &[&[1 << 3 | 1][..], &value.to_le_bytes(), &[2 << 3, *millis]].concat());
    let content = labels.iter().map(label).chain(samples.iter().map(sample)).collect::<Vec<_>>().concat();
    field(1, &content)
}

const SNAPPY: &str = "Content-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n\
                      X-Prometheus-Remote-Write-Version: 0.1.0\r\n";

fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_remote_write_go_to_the_collections_of_their_metrics() {
    let prometheus = Prometheus { patterns: vec![("node_*".to_owned(), "node".to_owned())], ..Prometheus::default() };
    let settings = Settings {
        prometheus,
        auto_create_lines: AutoCreate { buckets: [("node".to_owned(), 2_000_000_000)].into(), ..AutoCreate::default() },
        ..Settings::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::one(folder.path().join("m")).unwrap();
    let settings = Settings { mongodb: None, http: Some(0), ..settings };
    let server = Server::start(databases, settings).await.unwrap();
    let address = server.http_address().unwrap();
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let body = [
        series(&[("__name__", "up"), ("job", "a")], &[(1.0, 1), (stale, 2)]),
        series(&[("__name__", "node_load1")], &[(0.5, 3)]),
        // Metadata about a metric.
        field(3, b"\x08\x01"),
        series(&[("__name__", "idle")], &[]),
    ];
    let (status, reply) = post(address, "/api/v1/write", SNAPPY, &snappy(&body.concat())).await;
    assert_eq!(status, 204, "{reply}");
    let version_2 = SNAPPY.replace("x-protobuf", "x-protobuf;proto=io.prometheus.write.v2.Request");
    let histogram =
        field(1, &[field(1, &[field(1, b"__name__"), field(2, b"h")].concat()), field(4, b"\x08\x01")].concat());
    for (headers, body, expected) in [
        (SNAPPY, snappy(b""), 204),
        (SNAPPY, b"plain".to_vec(), 400),
        (SNAPPY, snappy(b"no protobuf"), 400),
        (SNAPPY, snappy(&histogram), 400),
        // It says that it has 4 GiB.
        (SNAPPY, b"\xff\xff\xff\xff\x0f".to_vec(), 413),
        (&version_2, snappy(b""), 415),
        ("X-Ebbtide: 1\r\nContent-Encoding: zstd\r\n", snappy(b""), 415),
        ("Content-Encoding: snappy\r\n", snappy(b""), 403),
    ] {
        let (status, reply) = post(address, "/api/v1/write", headers, &body).await;
        assert_eq!(status, expected, "{headers} {reply}");
    }
    server.stop().await.unwrap();

    assert_eq!(counts(&folder, "m"), named(&[("node", 1), ("prometheus", 2)]));
    let database = ebbtide::Database::open(folder.path().join("m")).unwrap();
    let snapshot = database.snapshot();
    let samples = snapshot.collection("prometheus").unwrap();
    assert_eq!(samples.options().time_field, "time");
    assert_eq!(samples.options().meta_field.as_deref(), Some("labels"));
    let node = snapshot.collection("node").unwrap();
    assert_eq!(node.rules().iter().next().map(|rule| rule.expire_after_seconds), Some(2_000_000_000));
    let mut bits = Vec::new();
    for unit in samples.scan(&ebbtide::ScanRequest::default()).unwrap() {
        for batch in unit.read().unwrap() {
            let values = batch.unwrap().column_by_name("value").unwrap().clone();
            let values = values.as_any().downcast_ref::<arrow::array::Float64Array>().unwrap().clone();
            bits.extend(values.values().iter().map(|value| value.to_bits()));
        }
    }
    bits.sort_unstable();
    assert_eq!(bits, [1.0_f64.to_bits(), stale.to_bits()], "a stale marker keeps its bits");
}

/// Posts, expects a status, and returns the body.
async fn posted(address: SocketAddr, path: &str, headers: &str, body: &[u8], status: u16) -> String {
    let (found, reply) = post(address, path, &format!("{PROGRAM}{headers}"), body).await;
    assert_eq!(found, status, "{path}: {reply}");
    reply.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_come_take_no_memory() {
    let (most, settings) = (Settings::MESSAGE_BYTES_LEAST, Settings::default());
    let settings = Settings { message_bytes_max: most, message_memory_bytes: most, ..settings };
    let (server, address, folder) = running(settings).await;
    let mut stalled = Vec::new();
    for length in ["Transfer-Encoding: chunked".to_owned(), format!("Content-Length: {most}")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /write?db=d HTTP/1.1\r\nHost: localhost\r\nX-Ebbtide: 1\r\n{length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    // Both are known once as many requests were counted.
    let counted = |page: &str| {
        let count = page.lines().find_map(|line| line.strip_prefix("ebbtide_server_http_requests_total ")).unwrap();
        count.parse::<usize>().unwrap()
    };
    let mut asked = 1;
    while counted(&ask(address, "GET /metrics", "Host: localhost\r\n").await.1) < asked + stalled.len() {
        asked += 1;
    }
    posted(address, "/write?db=d", "", b"m v=1", 204).await;
    // Bytes of a stream of Arrow's that announces more than it has.
    let arrow = "Content-Type: application/vnd.apache.arrow.stream\r\n";
    let announced = [&b"\xff\xff\xff\xff\xff\xff\xff\x7f"[..], &[b'a'; 64]].concat();
    let refused = posted(address, "/collections/m?db=d", arrow, &announced, 400).await;
    assert!(refused.contains("not a complete Arrow stream"), "{refused}");
    drop(stalled);
    server.stop().await.unwrap();
    assert_eq!(counts(&folder, "d"), named(&[("m", 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_is_stored_once() {
    let (server, address, folder) = running(Settings::default()).await;
    let key = "Idempotency-Key: 7f3a\r\n";
    let (v1, v3) = ("/write?db=d&precision=s", "/api/v3/write_lp?db=d&precision=s");
    posted(address, v1, key, TWO.as_bytes(), 204).await;
    posted(address, v1, key, TWO.as_bytes(), 204).await;
    let other = posted(address, v1, key, b"cpu usage=9 1704067201", 422).await;
    assert!(other.contains("Idempotency-Key"), "{other}");
    posted(address, "/write?db=d&precision=ms", key, TWO.as_bytes(), 422).await;
    // What was stored in part is told as it was the first time.
    let part = b"cpu usage=1 1704067205\ncpu\ncpu usage=\"high\" 1704067206\n";
    let first = posted(address, v3, "Idempotency-Key: part\r\n", part, 400).await;
    assert!(first.contains("1 other line was stored") && first.contains("\"line_number\":3"), "{first}");
    assert_eq!(posted(address, v3, "Idempotency-Key: part\r\n", part, 400).await, first);
    // One of which nothing is stored is examined again.
    posted(address, v1, "Idempotency-Key: bad\r\n", b"cpu", 400).await;
    posted(address, v1, "Idempotency-Key: bad\r\n", b"cpu usage=3 1704067207", 204).await;
    // Of another interface it is another key.
    let row = b"{\"time\": \"2024-02-01\", \"usage\": 5}\n";
    for _ in 0..2 {
        assert_eq!(posted(address, "/collections/cpu", key, row, 200).await, "{\"inserted\":1}\n");
    }
    let remote = snappy(&series(&[("__name__", "up")], &[(1.0, 1)]));
    let headers = "Content-Encoding: snappy\r\n";
    posted(address, "/api/v1/write", headers, &remote, 204).await;
    posted(address, "/api/v1/write", headers, &remote, 204).await;
    posted(address, "/api/v1/write", &format!("{headers}{key}"), &remote, 204).await;
    let (_, metrics) = ask(address, "GET /metrics", "Host: localhost\r\n").await;
    for line in ["lines_stored_total 4", "samples_stored_total 2", "rows_posted_total 1", "repeated_requests_total 4"] {
        assert!(metrics.contains(&format!("\nebbtide_server_{line}\n")), "{line}: {metrics}");
    }
    posted(address, v1, "Idempotency-Key: a\r\nIdempotency-Key: b\r\n", TWO.as_bytes(), 400).await;
    server.stop().await.unwrap();
    assert_eq!(counts(&folder, "d"), named(&[("cpu", 4), ("mem", 1), ("prometheus", 2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_known_after_a_restart_and_documents_have_one_too() {
    let folder = tempfile::tempdir().unwrap();
    {
        let database = ebbtide::Database::open(folder.path().join("d")).unwrap();
        database.create_documents("notes", ebbtide::DocumentsOptions::default()).unwrap();
    }
    let documents = b"{\"a\": 1}\n{\"_id\": 1}\n{\"_id\": 1}\n";
    let mut replies = Vec::new();
    for _ in 0..2 {
        let (server, address) = running_in(Settings::default(), folder.path()).await;
        replies.push(posted(address, "/collections/notes", "Idempotency-Key: 1\r\n", documents, 400).await);
        server.stop().await.unwrap();
    }
    assert!(replies[0].contains("line 3: ") && replies[0].contains("2 other lines were stored"), "{replies:?}");
    assert_eq!(replies[0], replies[1]);
    let database = ebbtide::Database::open(folder.path().join("d")).unwrap();
    assert_eq!(database.documents("notes").unwrap().snapshot().unwrap().count().unwrap(), 2);
}
