//! The configuration file.

use crate::accounts::AccountsFile;
use crate::error::Failure;
use crate::settings::{Settings, TlsFiles};
use ebbtide::fs::{Fs, RealFs};
use ebbtide_ttl::Precision;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A configuration file: what is served, and how. What it does not say has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The folder of the database.
    pub db: Option<PathBuf>,
    /// The folder of databases.
    pub dbs: Option<PathBuf>,
    /// [`Settings::listen`].
    pub listen: Option<IpAddr>,
    /// The file of [`Settings::accounts`].
    pub accounts: Option<PathBuf>,
    /// [`Settings::insecure`].
    pub insecure: Option<bool>,
    /// [`Settings::grace`].
    pub grace_seconds: Option<u64>,
    /// The folders of [`Settings::files`].
    #[serde(default)]
    pub client_folders: Vec<PathBuf>,
    /// How the log looks.
    pub log_format: Option<LogFormat>,
    #[serde(default)]
    mongodb: MongoDb,
    #[serde(default)]
    http: Http,
    #[serde(default)]
    pg: PostgreSql,
    tls: Option<Tls>,
    #[serde(default)]
    autocreate: AutoCreateTable,
    #[serde(default)]
    prometheus: PrometheusTable,
    #[serde(default)]
    ship: Ship,
    #[serde(default)]
    limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ship {
    to: Option<String>,
    every: Option<String>,
    keep: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MongoDb {
    port: Option<u16>,
    auto_create: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Http {
    port: Option<u16>,
    #[serde(default)]
    hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PostgreSql {
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AutoCreateTable {
    enabled: Option<bool>,
    precision: Option<String>,
    expire_after_seconds: Option<i64>,
    #[serde(default)]
    buckets: BTreeMap<String, i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrometheusTable {
    collection: Option<String>,
    #[serde(default)]
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    metrics: String,
    collection: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    connections: Option<usize>,
    message_bytes: Option<usize>,
    message_memory_bytes: Option<usize>,
    stall_seconds: Option<u64>,
    cursors: Option<usize>,
    cursor_idle_seconds: Option<u64>,
    cursor_lifetime_seconds: Option<u64>,
    statement_memory_bytes: Option<usize>,
    sql_memory_bytes: Option<usize>,
    statement_seconds: Option<u64>,
    write_wait_seconds: Option<u64>,
    rows_per_second: Option<u64>,
    login_delay_milliseconds: Option<u64>,
}

/// An error with what a number must be in words.
fn in_words(error: &str) -> String {
    let types = [
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected i64", "expected a whole number"),
    ];
    let words = types.iter().find_map(|(name, words)| Some(format!("{}{words}", error.strip_suffix(name)?)));
    words.unwrap_or_else(|| error.to_owned())
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

impl Config {
    /// Where the database is shipped to, how often, and for how long the copy keeps points in time.
    #[must_use]
    pub fn ship(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (self.ship.to.as_deref(), self.ship.every.as_deref(), self.ship.keep.as_deref())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or if something in it is not known or has a wrong type or value; with its line.
    pub fn read(path: &Path) -> Result<Config, Failure> {
        let said = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", path.display()));
        let bytes = RealFs::new().read(path).map_err(|e| said(&format!("cannot be read: {e}")))?;
        let text = String::from_utf8(bytes).map_err(|_| said(&"it is not UTF-8"))?;
        let config: Config = toml::from_str(&text).map_err(|e| said(&in_words(e.to_string().trim_end())))?;
        config.check().map_err(|e| said(&e))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.db.is_some() && self.dbs.is_some() {
            return Err("db and dbs are both given: one of them is served".to_owned());
        }
        let settings = self.settings();
        let message = settings.message_bytes_max;
        if !(Settings::MESSAGE_BYTES_LEAST..=Settings::MESSAGE_BYTES_MOST).contains(&message) {
            return Err(format!(
                "message_bytes of [limits] is {message}: {} to {} are possible",
                Settings::MESSAGE_BYTES_LEAST,
                Settings::MESSAGE_BYTES_MOST
            ));
        }
        if settings.message_memory_bytes < message {
            return Err("message_memory_bytes of [limits] is less than message_bytes".to_owned());
        }
        let auto = &self.autocreate;
        if let Some(precision) = &auto.precision {
            precision.parse::<Precision>().map_err(|e| format!("precision of [autocreate]: {e}"))?;
        }
        if let Some(life) = auto.expire_after_seconds.iter().chain(auto.buckets.values()).find(|life| **life < 0) {
            return Err(format!("a life of {life} seconds in [autocreate] is negative"));
        }
        let limits = [
            ("connections", settings.connections_max as u64),
            ("cursors", settings.cursors_max as u64),
            ("stall_seconds", settings.stall_max.as_secs()),
            ("write_wait_seconds", settings.write_wait_max.as_secs()),
            ("rows_per_second", settings.rows_per_second_max.unwrap_or(1)),
            ("sql_memory_bytes", settings.sql_memory_bytes as u64),
            ("statement_seconds", settings.statement_max.map_or(1, |time| time.as_secs())),
        ];
        if let Some((name, _)) = limits.into_iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} of [limits] is 0: give at least 1, or leave it out"));
        }
        settings.check_times()
    }

    /// The settings that it gives. Neither port is open unless it is named.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let (mongodb, http, postgresql) = (self.mongodb.port, self.http.port, self.pg.port);
        let mut settings = Settings { mongodb, http, postgresql, ..Settings::default() };
        let seconds = |given: Option<u64>| given.map(Duration::from_secs);
        set(&mut settings.listen, self.listen);
        set(&mut settings.insecure, self.insecure);
        set(&mut settings.grace, seconds(self.grace_seconds));
        set(&mut settings.auto_create, self.mongodb.auto_create);
        set(&mut settings.prometheus.collection, self.prometheus.collection.clone());
        let pattern = |one: &Pattern| (one.metrics.clone(), one.collection.clone());
        settings.prometheus.patterns = self.prometheus.patterns.iter().map(pattern).collect();
        settings.http_hosts.clone_from(&self.http.hosts);
        settings.accounts = self.accounts.clone().map(AccountsFile::new);
        settings.tls = self.tls.clone().map(|Tls { cert, key }| TlsFiles { cert, key });
        let auto = &mut settings.auto_create_lines;
        set(&mut auto.enabled, self.autocreate.enabled);
        set(&mut auto.precision, self.autocreate.precision.as_ref().and_then(|precision| precision.parse().ok()));
        auto.expire_after_seconds = self.autocreate.expire_after_seconds;
        auto.buckets.clone_from(&self.autocreate.buckets);
        let limits = &self.limits;
        set(&mut settings.connections_max, limits.connections);
        set(&mut settings.message_bytes_max, limits.message_bytes);
        set(&mut settings.message_memory_bytes, limits.message_memory_bytes);
        set(&mut settings.stall_max, seconds(limits.stall_seconds));
        set(&mut settings.cursors_max, limits.cursors);
        set(&mut settings.cursor_idle_max, seconds(limits.cursor_idle_seconds));
        set(&mut settings.cursor_lifetime_max, seconds(limits.cursor_lifetime_seconds));
        set(&mut settings.statement_bytes_max, limits.statement_memory_bytes);
        set(&mut settings.sql_memory_bytes, limits.sql_memory_bytes);
        settings.statement_max = seconds(limits.statement_seconds);
        set(&mut settings.write_wait_max, seconds(limits.write_wait_seconds));
        settings.rows_per_second_max = limits.rows_per_second;
        set(&mut settings.login_delay, limits.login_delay_milliseconds.map(Duration::from_millis));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.toml");
        RealFs::new().create(&path).unwrap().append(text.as_bytes()).unwrap();
        Config::read(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn a_file_without_anything_has_the_defaults() {
        assert_eq!(read("").unwrap().settings(), Settings { mongodb: None, ..Settings::default() });
    }

    #[test]
    fn the_example_of_the_guide_has_every_setting_with_its_default() {
        let guide = String::from_utf8(RealFs::new().read(Path::new("../docs/serve.md")).unwrap()).unwrap();
        let example = guide.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let shown = read(example).unwrap();
        assert_eq!(shown.settings(), Settings { http: Some(8080), postgresql: Some(5432), ..Settings::default() });
        // With those that have no default nothing is left out but `dbs`, which would contradict `db`.
        let whole = read(&example.replace("#: ", "")).unwrap();
        let said = format!("{whole:?}");
        assert_eq!(said.matches("None").count(), 1, "{said}");
        assert!(whole.dbs.is_none() && said.contains("db.example.org"), "{said}");
    }

    #[test]
    fn what_is_not_known_is_named_with_its_line() {
        for (text, says) in [
            ("listen = \"127.0.0.1\"\nlisten_on = 1\n", "line 2"),
            ("listen = \"127.0.0.1\"\nlisten_on = 1\n", "listen_on"),
            ("[limits]\nconnection = 1\n", "connections"),
            ("[mongo]\n", "mongo"),
            ("listen = \"here\"\n", "line 1"),
            ("[mongodb]\nport = 70000\n", "line 2"),
            ("[mongodb]\nport = 70000\n", "expected a whole number from 0 to 65535"),
            ("[limits]\nconnections = \"x\"\n", "expected a whole number, 0 or more"),
            ("grace_seconds = -1\n", "expected a whole number, 0 or more"),
            ("[autocreate]\nexpire_after_seconds = 1.5\n", "expected a whole number"),
            ("[tls]\ncert = \"a\"\n", "key"),
            ("[limits]\nconnections = 0\n", "at least 1"),
            ("[limits]\nmessage_bytes = 5\n", "message_bytes"),
            ("[limits]\nstatement_seconds = 9223372036854775807\n", "statement_seconds of [limits] is more"),
            ("[limits]\nstall_seconds = 315360001\n", "stall_seconds of [limits] is more"),
            ("[limits]\nlogin_delay_milliseconds = 9223372036854775807\n", "login_delay_milliseconds"),
            ("grace_seconds = 315360001\n", "grace_seconds is more"),
            ("[limits]\nmessage_memory_bytes = 5\n", "message_memory_bytes"),
            ("db = \"a\"\ndbs = \"b\"\n", "both"),
            ("[autocreate]\nprecision = \"s\"\n", "precision"),
            ("[autocreate.buckets]\na = -1\n", "negative"),
            ("log_format = \"xml\"\n", "json"),
            ("= 1", "line 1"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says) && error.contains("server.toml"), "{text}: {error}");
        }
    }
}
