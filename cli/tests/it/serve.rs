//! `ebbtide serve` and `ebbtide user`, as an operator uses them.

use crate::cli::{Log, command, inside, write};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

pub(crate) struct Serving {
    child: Child,
    out: BufReader<ChildStdout>,
    log: Log,
    /// The lines before `ready`.
    pub(crate) doors: Vec<String>,
}

pub(crate) fn serve(folder: &Path, args: &[&str]) -> Serving {
    serve_with(folder, args, &[])
}

/// The same with these variables of the environment.
pub(crate) fn serve_with(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Serving {
    let mut all = command();
    all.envs(variables.iter().copied());
    begun(all, folder, args)
}

/// A server that this command, to which its arguments are added, begins.
fn begun(mut all: Command, folder: &Path, args: &[&str]) -> Serving {
    all.current_dir(folder).arg("serve").args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let log = Log::of(&mut all);
    let mut child = all.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut doors = Vec::new();
    loop {
        let mut line = String::new();
        if out.read_line(&mut line).unwrap() == 0 {
            panic!("{}: {}", child.wait().unwrap(), log.text());
        }
        match line.trim_end() {
            "ready" => return Serving { child, out, log, doors },
            door => doors.push(door.to_owned()),
        }
    }
}

impl Serving {
    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by a signal; its exit code and its log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        assert!(Command::new("kill").args(["-TERM", &self.id().to_string()]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        (self.child.wait().unwrap().code(), self.log.text())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A server that has not replied by then never will.
pub(crate) const REPLY_MAX: Duration = Duration::from_secs(120);

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(REPLY_MAX)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn doors_are_opened_as_asked_and_a_signal_ends_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serve(folder.path(), &["--dbs", "dbs", "--http", "0", "--log-format", "json"]);
    let [door] = serving.doors.as_slice() else { panic!("{:?}", serving.doors) };
    let address = door.strip_prefix("http ").unwrap().to_owned();
    assert!(get(&address, "/health").ends_with("{\"status\":\"pass\",\"name\":\"ebbtide\"}"));
    assert!(get(&address, "/metrics").contains("\nebbtide_server_connections "));
    // The first account closes the door without a restart.
    let added = inside(
        folder.path(),
        &["user", "add", "ada", "--role", "admin", "--dbs", "dbs", "--password-file", "-"],
        "horse\n",
    );
    assert_eq!((added.code, added.stderr.as_str()), (0, ""), "{}", added.stdout);
    while get(&address, "/metrics").contains(" 200 OK") {}
    assert!(get(&address, "/metrics").contains(" 401 "));
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.is_empty() && log.lines().all(|line| line.starts_with("{\"timestamp\":")), "{log}");

    // With MongoDB's port alone, by a configuration; an option wins over it.
    write(folder.path(), "server.toml", "dbs = 'nowhere'\n[mongodb]\nport = 0\n[limits]\nconnections = 5\n");
    let serving = serve(folder.path(), &["--dbs", "dbs", "--config", "server.toml"]);
    assert!(
        matches!(serving.doors.as_slice(), [door] if door.starts_with("mongodb 127.0.0.1:")),
        "{:?}",
        serving.doors
    );
    assert_eq!(serving.end().0, Some(0));
    assert!(!folder.path().join("nowhere").exists());
}

#[test]
fn what_is_wrong_is_said_before_a_door_opens() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |args: &[&str], says: &[&str]| {
        let output = inside(folder.path(), &[&["serve", "--mongodb", "0"], args].concat(), "");
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{}", output.stderr);
        for says in says {
            assert!(output.stderr.contains(says), "{}", output.stderr);
        }
    };
    fails(&["--listen", "0.0.0.0"], &["ebbtide user add", "--insecure"]);
    write(folder.path(), "wrong.toml", "[mongodb]\nport = 0\n[limits]\nconnection = 5\n");
    fails(&["--config", "wrong.toml"], &["wrong.toml", "line 4", "connection"]);
    write(folder.path(), "cert.pem", "no certificate");
    fails(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], &["cert.pem", "no certificate"]);
    fails(&["--accounts", "acounts.json"], &["there is no file of accounts at acounts.json"]);
    fails(&["--ship-keep", "7d"], &["--ship-to"]);
    write(folder.path(), "ship.toml", "[ship]\nevery = \"1s\"\n");
    fails(&["--config", "ship.toml"], &["--ship-to"]);
    write(folder.path(), "accounts.json", "{}");
    fails(&["--accounts", "accounts.json"], &["accounts.json"]);
    assert_eq!(inside(folder.path(), &["serve", "--tls-cert", "cert.pem"], "").code, 2);
    assert_eq!(inside(folder.path(), &["serve", "--read-only"], "").code, 2);
    for args in [&["serve", "--db", "a", "--dbs", "b"][..], &["--db", "a", "user", "list", "--dbs", "b"]] {
        let both = inside(folder.path(), args, "");
        assert_eq!(both.code, 2, "{args:?}: {}", both.stderr);
        assert!(both.stderr.contains("--db and --dbs are both given"), "{}", both.stderr);
        assert!(!folder.path().join("b").exists());
    }
    let within = format!("file://{}", folder.path().join("db/copy").display());
    let refused = inside(folder.path(), &["--db", "db", "serve", "--mongodb", "0", "--ship-to", &within], "");
    assert!(refused.code == 1 && refused.stderr.contains("in the folder of the database"), "{}", refused.stderr);
    std::fs::create_dir(folder.path().join("shared")).unwrap();
    for (args, what) in [
        (vec!["--client-folder", "."], "the database, "),
        (
            vec!["--client-folder", "shared", "--accounts", "shared/accounts.json"],
            "the file with the accounts, shared/accounts.json",
        ),
        (
            vec!["--client-folder", "shared", "--tls-cert", "c.pem", "--tls-key", "shared/k.pem"],
            "the key of TLS, shared/k.pem",
        ),
    ] {
        let refused = inside(folder.path(), &[&["--db", "db", "serve"], args.as_slice()].concat(), "");
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(what), "{}", refused.stderr);
    }
}

#[test]
fn accounts_are_kept_beside_the_database_and_their_file_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let user = |args: &[&str], input: &str| inside(folder.path(), &[&["--db", "db", "user"], args].concat(), input);
    let none = user(&["list"], "");
    assert!(none.code == 1 && none.stderr.contains("accounts.json does not exist"), "{}", none.stderr);
    assert_eq!(user(&["add", "ada", "--role", "admin", "--password-file", "-"], "horse\n").code, 0);
    assert_eq!(user(&["add", "bob", "--role", "read", "--password-file", "-"], "staple\r\n").code, 0);
    assert_eq!(user(&["list"], "").stdout, "admin  ada\nread   bob\n");
    assert_eq!(user(&["passwd", "bob", "--password-file", "-"], "battery").code, 0);
    for (args, input, says) in [
        (&["add", "ada", "--role", "read", "--password-file", "-"][..], "x\n", "exists"),
        (&["add", "eve", "--role", "read", "--password-file", "-"], "\n", "empty"),
        (&["add", "eve", "--role", "read", "--password-file", "missing"], "", "missing"),
        (&["passwd", "eve", "--password-file", "-"], "x\n", "no account 'eve'"),
        (&["remove", "eve"], "", "no account 'eve'"),
        (&["add", "", "--role", "read", "--password-file", "-"], "x\n", "'' is not a valid account name"),
    ] {
        let output = user(args, input);
        assert!(output.code == 1 && output.stderr.contains(says), "{args:?}: {}", output.stderr);
    }
    // The database is made beside them, and does not mind.
    let made = inside(folder.path(), &["--db", "db", "command", r#"{"create": "c"}"#], "");
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(inside(folder.path(), &["--db", "db", "verify"], "").code, 0);
    assert_eq!(user(&["remove", "bob"], "").code, 0);
    assert_eq!(user(&["list"], "").stdout, "admin  ada\n");
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let add = ["user", "add", "ada", "--role", "admin", "--dbs", "dbs", "--password-file", "-"];
    assert_eq!(inside(folder.path(), &add, "horse").code, 0);
    // A refused login waits for its reply, and the end of the server for it.
    write(folder.path(), "slow.toml", "grace_seconds = 3600\n[limits]\nlogin_delay_milliseconds = 3600000\n");
    let mut serving = serve(folder.path(), &["--dbs", "dbs", "--http", "0", "--config", "slow.toml"]);
    let mut stream = TcpStream::connect(serving.doors[0].strip_prefix("http ").unwrap()).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YWRhOndyb25n\r\n\r\n").unwrap();
    while !serving.log.text().contains("a login was refused") {
        assert!(serving.child.try_wait().unwrap().is_none(), "{}", serving.log.text());
    }
    let id = serving.child.id().to_string();
    while serving.child.try_wait().unwrap().is_none() {
        Command::new("kill").args(["-INT", &id]).status().unwrap();
    }
    assert_eq!(serving.child.wait().unwrap().code(), Some(1));
    assert!(serving.log.text().contains("second signal"));
}

#[test]
fn signals_at_the_same_time_end_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = serve(folder.path(), &["--dbs", "dbs", "--http", "0"]);
    let id = serving.id().to_string();
    Command::new("kill").args(["-TERM", &id, &id, &id]).status().unwrap();
    Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{}", serving.log.text());
}

#[cfg(target_os = "linux")]
#[test]
fn a_hangup_ends_in_good_order_unless_it_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let hang_up = |serving: &Serving| {
        assert!(Command::new("kill").args(["-HUP", &serving.id().to_string()]).status().unwrap().success());
    };
    let mut serving = serve(folder.path(), &["--dbs", "dbs", "--http", "0"]);
    hang_up(&serving);
    assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{}", serving.log.text());
    let mut all = Command::new("nohup");
    all.arg(env!("CARGO_BIN_EXE_ebbtide")).env_remove("EBBTIDE_DB").env_remove("EBBTIDE_LOG");
    let serving = begun(all, folder.path(), &["--dbs", "dbs", "--http", "0"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{ignored}");
    hang_up(&serving);
    assert!(get(serving.doors[0].strip_prefix("http ").unwrap(), "/health").contains("pass"));
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn an_address_may_be_in_brackets_and_a_name_is_refused_with_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    // What is wrong then is something else.
    let read = inside(folder.path(), &["--read-only", "serve", "--dbs", "dbs", "--listen", "[::1]"], "");
    assert!(read.stderr.contains("drop --read-only"), "{}", read.stderr);
    for name in ["localhost", "[127.0.0.1]", "127.0.0.1:80"] {
        let refused = inside(folder.path(), &["serve", "--dbs", "dbs", "--http", "0", "--listen", name], "");
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains("write an IP address"), "{}", refused.stderr);
    }
}

#[test]
fn a_file_beside_the_databases_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dbs")).unwrap();
    write(&folder.path().join("dbs"), "README", "what is served here");
    let (code, log) = serve(folder.path(), &["--dbs", "dbs", "--http", "0"]).end();
    assert_eq!(code, Some(0), "{log}");
}
