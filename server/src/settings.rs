//! Settings of a server.

use crate::accounts::AccountsFile;
use crate::frame::MESSAGE_BYTES_MAX;
use ebbtide::FileAccess;
use ebbtide_ttl::Precision;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// The files for TLS, in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and then those of its issuers.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// How a collection comes into being when line protocol writes to it: with the time field `time` and the meta field `tags`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoCreate {
    /// Whether it does. Default: yes.
    pub enabled: bool,
    /// How fine its times are. Default: nanoseconds, as in line protocol.
    pub precision: Precision,
    /// How long its measurements live; `None` for ever. Default: for ever.
    pub expire_after_seconds: Option<i64>,
    /// How long they live if they came for one of these buckets, `db` or `db/rp`. Default: none.
    pub buckets: BTreeMap<String, i64>,
}

impl Default for AutoCreate {
    fn default() -> Self {
        AutoCreate { enabled: true, precision: Precision::Ns, expire_after_seconds: None, buckets: BTreeMap::new() }
    }
}

/// Which collections samples of Prometheus remote write go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prometheus {
    /// The collection of all metrics that no pattern fits. Default: `prometheus`.
    pub collection: String,
    /// Patterns of metrics' names, in which `*` stands for any text, each with a collection; the first that fits decides. Default:
    /// none.
    pub patterns: Vec<(String, String)>,
}

impl Default for Prometheus {
    fn default() -> Self {
        Prometheus { collection: "prometheus".to_owned(), patterns: Vec::new() }
    }
}

/// How a server is reached, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address to listen on. Default: 127.0.0.1.
    pub listen: IpAddr,
    /// The port of MongoDB's wire protocol, 0 for any that is free; `None` to leave it closed. Default: 27017.
    pub mongodb: Option<u16>,
    /// The port of HTTP, 0 for any that is free; `None` to leave it closed. Default: closed.
    pub http: Option<u16>,
    /// The port of PostgreSQL's wire protocol, 0 for any that is free; `None` to leave it closed. Default: closed.
    pub postgresql: Option<u16>,
    /// Names of this server beside its addresses, for the `Host` of HTTP requests. Default: none.
    pub http_hosts: Vec<String>,
    /// The certificate and the key for TLS, on all ports; `None` for connections without TLS. Default: none.
    pub tls: Option<TlsFiles>,
    /// Whether an address that other hosts can reach is allowed although there are no accounts. Default: no.
    pub insecure: bool,
    /// The file with the accounts, which need not exist; `None` for a server without accounts. Default: none.
    pub accounts: Option<AccountsFile>,
    /// How long a login that is refused waits for its reply. After it, logins from the same address are looked at one after
    /// the other, with pauses of this time and up to four times as long. Default: half a second.
    pub login_delay: Duration,
    /// Connections at a time; more are closed at once. Default: 10,000.
    pub connections_max: usize,
    /// Bytes of a message at most. Default: 48,000,000, which is also the most that is possible.
    pub message_bytes_max: usize,
    /// Bytes of messages that all connections together may hold while they are read and answered. Default: 512 MiB.
    pub message_memory_bytes: usize,
    /// How long a client may take for the rest of a message that it has begun, or for taking some of a reply. Default: 1
    /// minute.
    pub stall_max: Duration,
    /// Open cursors at a time. Default: 10,000.
    pub cursors_max: usize,
    /// After this time without use a cursor is closed. Default: 10 minutes.
    pub cursor_idle_max: Duration,
    /// After this time a cursor is closed, used or not, so that it lets go of its snapshot. Default: 1 hour.
    pub cursor_lifetime_max: Duration,
    /// Bytes that one command may keep in memory for a sort, or for the stages of a pipeline together. Default: 100 MiB.
    pub statement_bytes_max: usize,
    /// Bytes that all SQL statements that run may take together for sorts, joins and groups before they spill to disk. Default:
    /// 1 GiB.
    pub sql_memory_bytes: usize,
    /// How long a command or a SQL statement may take; `maxTimeMS` of a command can only shorten it. Default: no limit.
    pub statement_max: Option<Duration>,
    /// How long a write waits for memory while what is in memory is sealed, unless its `maxTimeMS` is shorter; after it nothing
    /// of the command is stored. Default: 30 seconds.
    pub write_wait_max: Duration,
    /// Documents that one account may insert, update and delete in a second, on average. Default: no limit.
    pub rows_per_second_max: Option<u64>,
    /// The folders of this machine that clients may read and write by their paths, and archive and publish to. Default: none.
    pub files: FileAccess,
    /// Whether a write creates the collection that it names, as in MongoDB. Default: yes.
    pub auto_create: bool,
    /// How collections come into being that line protocol and remote write write to.
    pub auto_create_lines: AutoCreate,
    /// Where samples of remote write go.
    pub prometheus: Prometheus,
    /// How long commands that are running may take to end when the server stops. Default: 10 seconds.
    pub grace: Duration,
}

impl Settings {
    /// [`Settings::message_bytes_max`] is at least this: a document of the largest size, and what is around it.
    pub const MESSAGE_BYTES_LEAST: usize = 17 << 20;
    /// [`Settings::message_bytes_max`] is at most this.
    pub const MESSAGE_BYTES_MOST: usize = MESSAGE_BYTES_MAX;
    /// Each time is at most this: ten years.
    pub const TIME_MOST: Duration = Duration::from_secs(3650 * 86_400);

    /// Refuses times above [`Settings::TIME_MOST`], by the names that they have in the configuration.
    pub(crate) fn check_times(&self) -> Result<(), String> {
        let times = [
            ("grace_seconds", self.grace),
            ("stall_seconds of [limits]", self.stall_max),
            ("cursor_idle_seconds of [limits]", self.cursor_idle_max),
            ("cursor_lifetime_seconds of [limits]", self.cursor_lifetime_max),
            ("statement_seconds of [limits]", self.statement_max.unwrap_or_default()),
            ("write_wait_seconds of [limits]", self.write_wait_max),
            ("login_delay_milliseconds of [limits]", self.login_delay),
        ];
        match times.into_iter().find(|(_, time)| *time > Settings::TIME_MOST) {
            Some((name, _)) => {
                let most = Settings::TIME_MOST.as_secs();
                Err(format!("{name} is more than ten years: give {most} seconds at most"))
            }
            None => Ok(()),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            mongodb: Some(27017),
            http: None,
            postgresql: None,
            http_hosts: Vec::new(),
            tls: None,
            insecure: false,
            accounts: None,
            login_delay: Duration::from_millis(500),
            connections_max: 10_000,
            message_bytes_max: MESSAGE_BYTES_MAX,
            message_memory_bytes: 512 << 20,
            stall_max: Duration::from_secs(60),
            cursors_max: 10_000,
            cursor_idle_max: Duration::from_secs(600),
            cursor_lifetime_max: Duration::from_secs(3600),
            statement_bytes_max: 100 << 20,
            sql_memory_bytes: 1 << 30,
            statement_max: None,
            write_wait_max: Duration::from_secs(30),
            rows_per_second_max: None,
            files: FileAccess::none(),
            auto_create: true,
            auto_create_lines: AutoCreate::default(),
            prometheus: Prometheus::default(),
            grace: Duration::from_secs(10),
        }
    }
}
