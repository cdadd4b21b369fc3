//! The options of `ebbtide serve` and `ebbtide user`.

use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve a folder of databases instead, each in a folder of its name; a write to a new name creates one
    #[arg(long, value_name = "DIR")]
    pub(crate) dbs: Option<PathBuf>,

    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) listen: Option<IpAddr>,

    /// Port of MongoDB's wire protocol, 0 for any free port [default: 27017, if no port is given]
    #[arg(long, value_name = "PORT")]
    pub(crate) mongodb: Option<u16>,

    /// Port of HTTP for SQL, line protocol, remote write, metrics and a page, 0 for any free port [default: 8080, if no port is given]
    #[arg(long, value_name = "PORT")]
    pub(crate) http: Option<u16>,

    /// Port of PostgreSQL's wire protocol, 0 for any free port [default: 5432, if no port is given]
    #[arg(long, value_name = "PORT")]
    pub(crate) pg: Option<u16>,

    /// File with the accounts of `ebbtide user` [default: accounts.json in the folder that is served]
    #[arg(long, value_name = "FILE")]
    pub(crate) accounts: Option<PathBuf>,

    /// Listen on an address that other hosts can reach, although there are no accounts
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Folder that clients may use by its path: to read files as tables, and as administrators to write files, to archive and to
    /// publish; can be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) client_folder: Vec<PathBuf>,

    /// Certificate for TLS, followed by those of its issuers, in PEM form; without it connections are not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Ship the database to a copy at this URL, continuously
    #[arg(long, value_name = "URL")]
    pub(crate) ship_to: Option<String>,

    /// For how long the copy keeps points in time, such as 7d; forever keeps all [default: 7d]
    #[arg(long, value_name = "TIME")]
    pub(crate) ship_keep: Option<String>,

    /// Serve a read replica of the database that is shipped to this URL; its segments are kept in the folder of --db
    #[arg(long, value_name = "URL", conflicts_with_all = ["dbs", "ship_to", "ship_keep"])]
    pub(crate) follow: Option<String>,

    /// Configuration file in TOML, with all settings and limits; options given here win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Format of the log on standard error [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormatName>,

    /// Seconds that running commands have to end after SIGTERM, SIGINT or, on Linux, SIGHUP [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u64>,
}

/// An address of this machine; one of IPv6 may be in brackets.
fn parse_address(text: &str) -> Result<IpAddr, String> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(|inside| inside.contains(':'));
    let what = "write an IP address, such as 127.0.0.1, ::1 or 0.0.0.0";
    inside.unwrap_or(text).parse().map_err(|_| what.to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormatName {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// Folder of databases, if the server serves one with --dbs.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dbs: Option<PathBuf>,

    /// File with the accounts. Default: accounts.json in the folder that is served.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) accounts: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) action: UserAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// Add an account. Once there is one, clients have to log in.
    Add {
        /// The name to log in with.
        name: String,
        /// What the account may do; each role may do what those before it may.
        #[arg(long, value_enum)]
        role: RoleName,
        /// Read the password from the first line of this file, - for standard input, instead of asking for it.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List the accounts with their roles.
    List,
    /// Change the password of an account. Clients that are logged in with the old one have to log in again.
    Passwd {
        /// The account.
        name: String,
        /// Read the password from the first line of this file, - for standard input, instead of asking for it.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Create and print a token that programs can log in with over HTTP and gRPC. It is not shown again.
    Token {
        /// The account.
        name: String,
    },
    /// Revoke all tokens of an account.
    Revoke {
        /// The account.
        name: String,
    },
    /// Remove an account. Clients that are logged in with it lose access.
    Remove {
        /// The account.
        name: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RoleName {
    /// Query.
    Read,
    /// Insert, update and delete.
    Write,
    /// Create, drop and rename collections; change rules, parameters and the clock.
    Admin,
}
