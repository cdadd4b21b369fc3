//! The HTTP port from raw requests.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebbtide_server::{AccountsFile, Databases, Role, Server, Settings};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn running(settings: Settings) -> (Server, SocketAddr, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::in_folder(folder.path()).unwrap();
    let settings = Settings { mongodb: None, http: Some(0), http_hosts: vec!["db.example.org".into()], ..settings };
    let server = Server::start(databases, settings).await.unwrap();
    let address = server.http_address().unwrap();
    assert_eq!(server.mongodb_address(), None);
    (server, address, folder)
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
    assert!(status == 200 && health.ends_with("\r\n\r\n{\"status\":\"pass\"}"), "{health}");
    assert!(health.contains("content-type: application/json"), "{health}");
    assert_eq!(ask(address, "GET /", local).await.0, 404);
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
    server.stop().await.unwrap();
}
