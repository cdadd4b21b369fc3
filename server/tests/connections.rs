//! Connections from raw frames: what a client that is slow, wrong or hostile sees, and that the server outlives it.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use ebbtide_server::{AccountsFile, Databases, Role, Server, Settings};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A frame of an OP_MSG with one document.
fn frame(flags: u32, document: &RawDocument) -> Vec<u8> {
    let length = i32::try_from(21 + document.as_bytes().len()).unwrap();
    let header = [length, 1, 0, 2013].into_iter().flat_map(i32::to_le_bytes);
    header.chain(flags.to_le_bytes()).chain([0]).chain(document.as_bytes().iter().copied()).collect()
}

async fn reply(stream: &mut TcpStream) -> RawDocumentBuf {
    let mut header = [0; 21];
    stream.read_exact(&mut header).await.unwrap();
    let length = usize::try_from(i32::from_le_bytes(header[..4].try_into().unwrap())).unwrap();
    let mut body = vec![0; length - 21];
    stream.read_exact(&mut body).await.unwrap();
    RawDocumentBuf::from_bytes(body).unwrap()
}

async fn ask(stream: &mut TcpStream, document: &RawDocument) -> RawDocumentBuf {
    stream.write_all(&frame(0, document)).await.unwrap();
    reply(stream).await
}

/// Whether the server closes the connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]).await, Ok(0) | Err(_))
}

async fn ping(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let answer = ask(&mut stream, &rawdoc! { "ping": 1, "$db": "admin" }).await;
    assert_eq!(answer.get_f64("ok").unwrap(), 1.0);
    stream
}

struct Running {
    server: Server,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

async fn running(settings: Settings) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::one(folder.path().join("db")).unwrap();
    let server = Server::start(databases, Settings { mongodb: Some(0), ..settings }).await.unwrap();
    let address = server.mongodb_address().unwrap();
    Running { server, address, folder }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_close_their_connection_alone() {
    let running = running(Settings::default()).await;
    let mut good = ping(running.address).await;
    let huge = [&48_000_001_i32.to_le_bytes()[..], &[0; 12]].concat();
    let negative = [&(-5_i32).to_le_bytes()[..], &[0; 12]].concat();
    let lying = {
        let mut lying = frame(0, &rawdoc! { "ping": 1, "$db": "admin" });
        lying[21..25].copy_from_slice(&1_000_000_i32.to_le_bytes());
        lying
    };
    for bytes in
        [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), huge, negative, lying, frame(1, &rawdoc! { "ping": 1 })]
    {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        assert!(is_closed(&mut stream).await);
    }
    assert_eq!(ask(&mut good, &rawdoc! { "ping": 1, "$db": "admin" }).await.get_f64("ok").unwrap(), 1.0);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_idle_between_messages_and_not_within_one() {
    let running = running(Settings { stall_max: Duration::from_millis(50), ..Settings::default() }).await;
    let mut idle = ping(running.address).await;
    let mut half = TcpStream::connect(running.address).await.unwrap();
    half.write_all(&frame(0, &rawdoc! { "ping": 1, "$db": "admin" })[..30]).await.unwrap();
    assert!(is_closed(&mut half).await);
    assert_eq!(ask(&mut idle, &rawdoc! { "ping": 1, "$db": "admin" }).await.get_f64("ok").unwrap(), 1.0);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_allowed_are_closed() {
    let running = running(Settings { connections_max: 2, ..Settings::default() }).await;
    let first = ping(running.address).await;
    let _second = ping(running.address).await;
    let mut third = TcpStream::connect(running.address).await.unwrap();
    assert!(is_closed(&mut third).await);
    drop(first);
    // The place becomes free once the server has seen the end of the first one.
    loop {
        let mut next = TcpStream::connect(running.address).await.unwrap();
        if next.write_all(&frame(0, &rawdoc! { "ping": 1, "$db": "admin" })).await.is_ok()
            && !is_closed(&mut next).await
        {
            break;
        }
    }
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_writes_are_done_without_a_reply_and_survive_a_stop() {
    let running = running(Settings::default()).await;
    let mut stream = ping(running.address).await;
    let insert = rawdoc! { "insert": "c", "$db": "db", "documents": [{ "_id": 1 }], "writeConcern": { "w": 0 } };
    stream.write_all(&frame(2, &insert)).await.unwrap();
    // The next reply is that of the next command.
    let found = ask(&mut stream, &rawdoc! { "find": "c", "$db": "db" }).await;
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.get_document(0).unwrap(), &*rawdoc! { "_id": 1 });
    running.server.stop().await.unwrap();
    assert!(is_closed(&mut stream).await);
    let again = ebbtide::Database::open(running.folder.path().join("db")).unwrap();
    assert_eq!(again.documents("c").unwrap().snapshot().unwrap().count().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_are_not_let_in_without_accounts() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::one(folder.path().join("db")).unwrap();
    let everywhere = Settings { listen: "0.0.0.0".parse().unwrap(), mongodb: Some(0), ..Settings::default() };
    let error = Server::start(databases, everywhere).await.unwrap_err();
    assert!(error.to_string().contains("--insecure"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_database_refuses_writes_under_other_names() {
    let running = running(Settings::default()).await;
    let mut stream = ping(running.address).await;
    let error = ask(&mut stream, &rawdoc! { "insert": "c", "$db": "test", "documents": [{}] }).await;
    assert_eq!(error.get_i32("code").unwrap(), 73);
    let empty = ask(&mut stream, &rawdoc! { "find": "c", "$db": "test" }).await;
    assert!(empty.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty());
    for name in ["..", "a/b", "a b", ""] {
        let error = ask(&mut stream, &rawdoc! { "find": "c", "$db": name }).await;
        assert_eq!(error.get_i32("code").unwrap(), 73, "{name}");
    }
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_ends_when_it_idles_or_is_too_old() {
    let idles = Settings { cursor_idle_max: Duration::ZERO, ..Settings::default() };
    let ages = Settings { cursor_lifetime_max: Duration::ZERO, ..Settings::default() };
    for settings in [idles, ages] {
        let running = running(settings).await;
        let mut stream = ping(running.address).await;
        ask(&mut stream, &rawdoc! { "insert": "c", "$db": "db", "documents": [{}, {}, {}] }).await;
        let found = ask(&mut stream, &rawdoc! { "find": "c", "$db": "db", "batchSize": 1 }).await;
        let id = found.get_document("cursor").unwrap().get_i64("id").unwrap();
        assert_ne!(id, 0);
        // Reaped by the next tick; until then it answers.
        loop {
            let more =
                ask(&mut stream, &rawdoc! { "getMore": id, "collection": "c", "$db": "db", "batchSize": 0 }).await;
            if more.get_f64("ok").unwrap() == 0.0 {
                assert_eq!(more.get_i32("code").unwrap(), 43);
                break;
            }
            let next = ask(&mut stream, &rawdoc! { "find": "c", "$db": "db", "batchSize": 1 }).await;
            let open = next.get_document("cursor").unwrap().get_i64("id").unwrap();
            let status = ask(&mut stream, &rawdoc! { "serverStatus": 1, "$db": "admin" }).await;
            let cursors = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
            if cursors.get_i32("timedOut").unwrap() > 0 {
                let gone = ask(&mut stream, &rawdoc! { "getMore": id, "collection": "c", "$db": "db" }).await;
                assert_eq!(gone.get_i32("code").unwrap(), 43);
                break;
            }
            ask(&mut stream, &rawdoc! { "killCursors": "c", "cursors": [open], "$db": "db" }).await;
        }
        running.server.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_without_a_timeout_may_idle() {
    let running = running(Settings { cursor_idle_max: Duration::ZERO, ..Settings::default() }).await;
    let mut stream = ping(running.address).await;
    ask(&mut stream, &rawdoc! { "insert": "c", "$db": "db", "documents": [{}, {}, {}] }).await;
    let find = rawdoc! { "find": "c", "$db": "db", "batchSize": 1, "noCursorTimeout": true };
    let kept = ask(&mut stream, &find).await.get_document("cursor").unwrap().get_i64("id").unwrap();
    ask(&mut stream, &rawdoc! { "find": "c", "$db": "db", "batchSize": 1 }).await;
    // Until the other one has been reaped.
    loop {
        let status = ask(&mut stream, &rawdoc! { "serverStatus": 1, "$db": "admin" }).await;
        let cursors = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
        if cursors.get_i32("timedOut").unwrap() > 0 {
            break;
        }
    }
    let more = ask(&mut stream, &rawdoc! { "getMore": kept, "collection": "c", "$db": "db" }).await;
    assert_eq!(more.get_f64("ok").unwrap(), 1.0, "{more:?}");
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_unknown_things_are_refused_by_name() {
    let running = running(Settings::default()).await;
    let mut stream = ping(running.address).await;
    for (command, code) in [
        (rawdoc! { "find": "c", "$db": "db", "startTransaction": true, "autocommit": false }, 20),
        (rawdoc! { "find": "c", "$db": "db", "fliter": {} }, 40415),
        (rawdoc! { "find": "c", "$db": "db", "collation": { "locale": "de" } }, 115),
        (rawdoc! { "finds": "c", "$db": "db" }, 59),
        (rawdoc! { "find": "c" }, 40414),
        (rawdoc! { "find": 5, "$db": "db" }, 2),
        (rawdoc! { "find": "c", "$db": "db", "limit": -1 }, 51024),
        (rawdoc! { "insert": "c", "$db": "db" }, 40414),
        (rawdoc! { "insert": "c", "$db": "db", "documents": [1] }, 14),
        (rawdoc! { "insert": "c", "$db": "db", "documents": [] }, 16),
        (rawdoc! { "update": "c", "$db": "db", "updates": [] }, 16),
        (rawdoc! { "delete": "c", "$db": "db", "deletes": [] }, 16),
        (rawdoc! { "aggregate": "c", "$db": "db", "pipeline": [], "cursor": { "foo": 1 } }, 40415),
        (rawdoc! { "update": "c", "$db": "db", "updates": [{ "q": {}, "u": {}, "x": 1 }] }, 40415),
        (rawdoc! { "delete": "c", "$db": "db", "deletes": [{ "q": {} }] }, 40414),
        (rawdoc! { "drop": "c", "$db": "db" }, 26),
    ] {
        let error = ask(&mut stream, &command).await;
        assert_eq!(error.get_f64("ok").unwrap(), 0.0, "{command:?}");
        assert_eq!(error.get_i32("code").unwrap(), code, "{command:?}: {error:?}");
    }
    running.server.stop().await.unwrap();
}

/// A server with the account `ada` and its file; refused logins cost `delay`.
async fn with_account(folder: &std::path::Path, delay: Duration) -> (Running, AccountsFile) {
    let file = AccountsFile::new(folder.join(AccountsFile::NAME));
    file.change(|accounts| accounts.add("ada", Role::Admin, "secret")).unwrap();
    let accounts = Some(file.clone());
    (running(Settings { accounts, login_delay: delay, ..Settings::default() }).await, file)
}

fn binary(bytes: &[u8]) -> bson::Binary {
    bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// The first message of a login; the server's answer to it.
async fn begin(stream: &mut TcpStream, name: &str) -> String {
    let payload = binary(format!("n,,n={name},r=nonce").as_bytes());
    let start = rawdoc! { "saslStart": 1, "$db": "admin", "mechanism": "SCRAM-SHA-256", "payload": payload };
    let challenge = ask(stream, &start).await;
    String::from_utf8(challenge.get_binary("payload").unwrap().bytes.to_vec()).unwrap()
}

/// A login with a proof that is wrong; the code and the message of the error.
async fn guess(stream: &mut TcpStream, name: &str) -> (i32, String) {
    let challenge = begin(stream, name).await;
    let nonce = challenge.split(',').next().unwrap();
    let payload = binary(format!("c=biws,{nonce},p={}=", "A".repeat(43)).as_bytes());
    let go_on = rawdoc! { "saslContinue": 1, "$db": "admin", "conversationId": 1, "payload": payload };
    let error = ask(stream, &go_on).await;
    (error.get_i32("code").unwrap(), error.get_str("errmsg").unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_cost_time_and_tell_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (running, _) = with_account(folder.path(), Duration::from_millis(20)).await;
    let began = tokio::time::Instant::now();
    let mut said = std::collections::BTreeSet::new();
    for name in ["ada", "eve", "ada", "eve", "ada"] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        said.insert(guess(&mut stream, name).await);
    }
    assert_eq!(said.into_iter().collect::<Vec<_>>(), [(18, "Authentication failed.".to_owned())]);
    // Five replies that are kept back for 20 ms each, and pauses of 20, 40, 80 and 80 ms between them.
    assert!(began.elapsed() >= Duration::from_millis(220), "{:?}", began.elapsed());
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_burst_of_guesses_few_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    // Whoever has to wait after a refused login waits for too long.
    let (running, _) = with_account(folder.path(), Duration::from_secs(40)).await;
    let mut guesses = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let challenge = begin(&mut stream, "ada").await;
        let nonce = challenge.split(',').next().unwrap();
        let payload = binary(format!("c=biws,{nonce},p={}=", "A".repeat(43)).as_bytes());
        let go_on = rawdoc! { "saslContinue": 1, "$db": "admin", "conversationId": 1, "payload": payload };
        guesses.push((stream, frame(0, &go_on)));
    }
    let (closed, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = tokio::task::JoinSet::new();
    for (mut stream, guess) in guesses {
        let closed = closed.clone();
        waiting.spawn(async move {
            stream.write_all(&guess).await.unwrap();
            closed.send(is_closed(&mut stream).await).unwrap();
        });
    }
    // The others are looked at together, or wait for their reply.
    for _ in 0..50 - 8 {
        assert_eq!(ends.recv().await, Some(true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_login_a_client_does_not_idle_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
    file.change(|accounts| accounts.add("ada", Role::Admin, "secret")).unwrap();
    let stall_max = Duration::from_millis(50);
    let running = running(Settings { accounts: Some(file), stall_max, ..Settings::default() }).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut greeted = ping(running.address).await;
    assert!(is_closed(&mut silent).await && is_closed(&mut greeted).await);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_and_without_an_account_look_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (running, _) = with_account(folder.path(), Duration::ZERO).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut shown = Vec::new();
    for name in ["ada", "eve", "eve", "ada"] {
        let challenge = begin(&mut stream, name).await;
        let parts: Vec<String> = challenge.split(',').map(str::to_owned).collect();
        let [nonce, salt, rounds] = parts.as_slice() else { panic!("{challenge}") };
        assert!(nonce.starts_with("r=nonce") && nonce.len() > 30 && rounds == "i=15000", "{challenge}");
        shown.push(salt.clone());
    }
    assert_eq!((&shown[0], &shown[1]), (&shown[3], &shown[2]), "a salt stays the same");
    assert_eq!(shown[0].len(), shown[1].len());
    assert_ne!(shown[0], shown[1]);
    // The messages of a login have an order.
    for (conversation, payload, code) in [(99, "c=biws", 17), (1, "", 17)] {
        let payload = binary(payload.as_bytes());
        let go_on = rawdoc! { "saslContinue": 1, "$db": "admin", "conversationId": conversation, "payload": payload };
        assert_eq!(ask(&mut stream, &go_on).await.get_i32("code").unwrap(), code);
    }
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_login_only_small_messages_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (running, file) = with_account(folder.path(), Duration::ZERO).await;
    let mut stream = ping(running.address).await;
    let large = rawdoc! { "ping": 1, "$db": "admin", "comment": "x".repeat(100_000) };
    stream.write_all(&frame(0, &large)).await.unwrap();
    assert!(is_closed(&mut stream).await);
    // A frame of few bytes that says it is large when it is unpacked: zlib, 40 MB.
    let packed = [&2013_i32.to_le_bytes()[..], &40_000_000_i32.to_le_bytes(), &[2], &[0; 9]].concat();
    let header = [i32::try_from(16 + packed.len()).unwrap(), 1, 0, 2012].into_iter().flat_map(i32::to_le_bytes);
    let mut stream = ping(running.address).await;
    stream.write_all(&header.chain(packed).collect::<Vec<u8>>()).await.unwrap();
    assert!(is_closed(&mut stream).await);
    // The door stays closed when the last account is gone.
    file.change(|accounts| accounts.remove("ada")).unwrap();
    let mut stream = ping(running.address).await;
    assert_eq!(ask(&mut stream, &rawdoc! { "find": "c", "$db": "db" }).await.get_i32("code").unwrap(), 13);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_notices_its_first_account() {
    let folder = tempfile::tempdir().unwrap();
    let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
    let running = running(Settings { accounts: Some(file.clone()), ..Settings::default() }).await;
    let mut stream = ping(running.address).await;
    let payload = binary(b"n,,n=ada,r=nonce");
    let start = rawdoc! { "saslStart": 1, "$db": "admin", "mechanism": "SCRAM-SHA-256", "payload": payload };
    let error = ask(&mut stream, &start).await;
    assert_eq!(error.get_i32("code").unwrap(), 18);
    assert!(error.get_str("errmsg").unwrap().contains("ebbtide user add"), "{error:?}");
    file.change(|accounts| accounts.add("ada", Role::Admin, "secret")).unwrap();
    // Noticed by the next tick.
    while ask(&mut stream, &rawdoc! { "find": "c", "$db": "db" }).await.get_f64("ok").unwrap() == 1.0 {}
    assert_eq!(ask(&mut stream, &start).await.get_f64("ok").unwrap(), 1.0);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nests_deeper_than_allowed_are_refused() {
    let running = running(Settings::default()).await;
    let nested = |levels: u32| {
        let wrap = |inner: RawDocumentBuf, _| rawdoc! { "a": inner };
        let deep = (0..levels).fold(rawdoc! { "a": 1 }, wrap);
        rawdoc! { "find": "c", "$db": "db", "filter": deep }
    };
    let mut stream = ping(running.address).await;
    assert!(ask(&mut stream, &nested(150)).await.get_f64("ok").is_ok());
    for levels in [250, 5_000] {
        let refused = ask(&mut stream, &nested(levels)).await;
        assert_eq!(refused.get_str("codeName").unwrap(), "Overflow", "{levels}");
        // One that wants no reply gets none.
        stream.write_all(&frame(2, &nested(levels))).await.unwrap();
        assert!(ask(&mut stream, &rawdoc! { "ping": 1, "$db": "admin" }).await.get_str("codeName").is_err());
    }
    running.server.stop().await.unwrap();
}

/// The threads of the runtime that wait for nothing do not wait for messages, as long as the one that did runs a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_takes_long_hinders_no_other_connection() {
    let running = running(Settings::default()).await;
    let mut stream = ping(running.address).await;
    let text = "a".repeat(2_000);
    let documents = bson::RawArrayBuf::from_iter((0..300).map(|_| rawdoc! { "text": text.as_str() }));
    ask(&mut stream, &rawdoc! { "insert": "c", "$db": "db", "documents": documents }).await;
    let pattern = bson::Regex { pattern: "(a|aa)+b".try_into().unwrap(), options: "".try_into().unwrap() };
    let patterns = bson::RawArrayBuf::from_iter((0..20).map(|_| pattern.clone()));
    let filter = rawdoc! { "text": { "$in": patterns } };
    let long = [
        rawdoc! { "find": "c", "$db": "db", "filter": filter.clone() },
        rawdoc! { "count": "c", "$db": "db", "query": filter.clone() },
        rawdoc! { "distinct": "c", "$db": "db", "key": "_id", "query": filter },
    ];
    for command in long {
        stream.write_all(&frame(0, &command)).await.unwrap();
        let mut others = 0;
        tokio::select! {
            biased;
            answer = reply(&mut stream) => drop(answer),
            () = async { loop { drop(ping(running.address).await); others += 1; } } => {}
        }
        assert!(others > 0, "{command:?}");
    }
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_and_half_frames_hinder_nobody() {
    const IDLE: i32 = 1_000;
    let running = running(Settings::default()).await;
    let mut idle = Vec::new();
    for n in 0..IDLE {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        if n % 2 == 0 {
            // The beginning of a message that says it has 40 MB.
            stream.write_all(&[&40_000_000_i32.to_le_bytes()[..], &[1; 2]].concat()).await.unwrap();
        }
        idle.push(stream);
    }
    let mut stream = ping(running.address).await;
    let status = ask(&mut stream, &rawdoc! { "serverStatus": 1, "$db": "admin" }).await;
    assert_eq!(status.get_document("connections").unwrap().get_i32("current").unwrap(), IDLE + 1);
    drop(idle);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_makes_no_folder_of_the_server_an_archive() {
    let running = running(Settings::default()).await;
    let mut stream = ping(running.address).await;
    let timeseries = || rawdoc! { "timeField": "t", "metaField": "m" };
    let create = rawdoc! { "create": "w", "$db": "db", "timeseries": timeseries() };
    assert_eq!(ask(&mut stream, &create).await.get_f64("ok").unwrap(), 1.0);
    for command in [
        rawdoc! { "collMod": "w", "expireAfterSeconds": 60, "expireInto": "file:///tmp/x", "$db": "db" },
        rawdoc! { "create": "v", "timeseries": timeseries(), "expireInto": "file:///tmp/x", "$db": "db" },
        rawdoc! { "createIndexes": "w", "indexes": [{ "key": { "t": 1 }, "name": "i", "expireAfterSeconds": 60,
        "partialFilterExpression": { "m": 1 }, "expireInto": "file:///tmp/x" }], "$db": "db" },
        rawdoc! { "collMod": "w", "index": { "name": "i", "expireInto": "file:///tmp/x" }, "$db": "db" },
    ] {
        let refused = ask(&mut stream, &command).await;
        assert_eq!(refused.get_str("codeName").unwrap(), "IllegalOperation", "{command:?}: {refused:?}");
        assert!(refused.get_str("errmsg").unwrap().contains("an archive or a table in a folder"), "{refused:?}");
    }
    let listed = ask(&mut stream, &rawdoc! { "listCollections": 1, "$db": "db" }).await;
    assert!(!format!("{listed:?}").contains("file:///tmp/x"), "{listed:?}");
    running.server.stop().await.unwrap();
}

/// What mongodump 100.x asks about a collection of measurements, after it has listed the collections.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_buckets_is_told_how_to_make_a_backup() {
    let running = running(Settings::default()).await;
    let mut stream = ping(running.address).await;
    let create = rawdoc! { "create": "w", "$db": "db", "timeseries": { "timeField": "t", "metaField": "m" } };
    assert_eq!(ask(&mut stream, &create).await.get_f64("ok").unwrap(), 1.0);
    let pipeline = [rawdoc! { "$collStats": { "count": {} } }];
    for command in [
        rawdoc! { "find": "system.buckets.w", "filter": {}, "hint": { "_id": 1 } },
        rawdoc! { "count": "system.buckets.w" },
        rawdoc! { "listIndexes": "system.buckets.w" },
        rawdoc! { "listCollections": 1, "filter": { "name": "system.buckets.w" } },
        rawdoc! { "aggregate": "system.buckets.w", "pipeline": bson::RawArrayBuf::from_iter(pipeline), "cursor": {} },
    ] {
        let mut command = command;
        command.append(bson::raw::cstr!("$db"), "db");
        let refused = ask(&mut stream, &command).await;
        assert_eq!(refused.get_i32("code").unwrap(), 115, "{command:?}: {refused:?}");
        let told = refused.get_str("errmsg").unwrap();
        assert!(told.contains("'system.buckets.w'") && told.contains("ebbtide dump"), "{told}");
    }
    let listed = ask(&mut stream, &rawdoc! { "listCollections": 1, "filter": { "name": "w" }, "$db": "db" }).await;
    assert_eq!(listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap().into_iter().count(), 1);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_of_clients_that_are_gone_count_until_they_are_closed() {
    let running = running(Settings { cursors_max: 3, ..Settings::default() }).await;
    let mut stream = ping(running.address).await;
    ask(&mut stream, &rawdoc! { "insert": "c", "$db": "db", "documents": [{}, {}] }).await;
    let find = rawdoc! { "find": "c", "$db": "db", "batchSize": 1 };
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut gone = ping(running.address).await;
        ids.push(ask(&mut gone, &find).await.get_document("cursor").unwrap().get_i64("id").unwrap());
    }
    let refused = ask(&mut stream, &find).await;
    assert_eq!(refused.get_i32("code").unwrap(), 146, "{refused:?}");
    // What needs no cursor works, and closing one makes a place.
    let whole = rawdoc! { "find": "c", "$db": "db" };
    assert_eq!(ask(&mut stream, &whole).await.get_f64("ok").unwrap(), 1.0);
    ask(&mut stream, &rawdoc! { "killCursors": "c", "$db": "db", "cursors": [ids[0]] }).await;
    assert_eq!(ask(&mut stream, &find).await.get_f64("ok").unwrap(), 1.0);
    running.server.stop().await.unwrap();
}
