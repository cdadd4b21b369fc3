//! Settings of a connection: `SET`, `RESET` and `SHOW`.
//!
//! A setting that says how something is done here has the value that is true, and takes no other. Those that change something
//! here do: `statement_timeout`, and whether transactions may write. Settings of PostgreSQL's planner are kept and change nothing.

use super::error::{FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE, Refusal, UNDEFINED_OBJECT};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

/// What a setting takes.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// Any text.
    Text,
    /// On or off.
    Switch,
    /// A time in milliseconds, or with a unit.
    Time,
    /// These alone, in any case; each is the same.
    Only(&'static [&'static str]),
    /// Nothing: it can only be shown.
    Nothing,
}

#[derive(Clone, Copy)]
struct Known {
    name: &'static str,
    default: &'static str,
    takes: Takes,
    /// Whether clients are told of its value at the beginning and when it changes.
    is_reported: bool,
    about: &'static str,
}

const fn known(
    name: &'static str,
    default: &'static str,
    takes: Takes,
    is_reported: bool,
    about: &'static str,
) -> Known {
    Known { name, default, takes, is_reported, about }
}

/// The version of PostgreSQL whose protocol and catalog clients may expect, and our own.
const VERSION: &str = concat!("16.6 (Ebbtide ", env!("CARGO_PKG_VERSION"), ")");
/// Settings of PostgreSQL's planner, memory and logs. Programs set them; they change nothing here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("backend_flush_after", "0"),
    ("check_function_bodies", "on"),
    ("constraint_exclusion", "partition"),
    ("cursor_tuple_fraction", "0.1"),
    ("default_statistics_target", "100"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("effective_cache_size", "4GB"),
    ("effective_io_concurrency", "1"),
    ("enable_bitmapscan", "on"),
    ("enable_hashagg", "on"),
    ("enable_hashjoin", "on"),
    ("enable_indexonlyscan", "on"),
    ("enable_indexscan", "on"),
    ("enable_material", "on"),
    ("enable_mergejoin", "on"),
    ("enable_nestloop", "on"),
    ("enable_parallel_append", "on"),
    ("enable_parallel_hash", "on"),
    ("enable_partition_pruning", "on"),
    ("enable_partitionwise_aggregate", "off"),
    ("enable_partitionwise_join", "off"),
    ("enable_seqscan", "on"),
    ("enable_sort", "on"),
    ("from_collapse_limit", "8"),
    ("geqo", "on"),
    ("hash_mem_multiplier", "2"),
    ("jit", "off"),
    ("join_collapse_limit", "8"),
    ("log_min_duration_statement", "-1"),
    ("log_statement", "none"),
    ("maintenance_work_mem", "64MB"),
    ("max_parallel_workers_per_gather", "2"),
    ("plan_cache_mode", "auto"),
    ("quote_all_identifiers", "off"),
    ("random_page_cost", "4"),
    ("row_security", "on"),
    ("seq_page_cost", "1"),
    ("synchronize_seqscans", "on"),
    ("synchronous_commit", "on"),
    ("tcp_keepalives_idle", "0"),
    ("temp_buffers", "8MB"),
    ("temp_tablespaces", ""),
    ("work_mem", "4MB"),
    ("xmloption", "content"),
];
const PATHS: &[&str] = &["\"$user\", public", "\"$user\",public", "public", "$user, public", "$user,public", ""];
const ZONES: &[&str] = &["UTC", "Etc/UTC", "GMT", "Z", "Zulu", "Universal", "0", "+00:00", "+00", "DEFAULT", "LOCAL"];

static TRUE: &[Known] = &[
    known("application_name", "", Takes::Text, true, "What the program calls itself."),
    known("bytea_output", "hex", Takes::Only(&["hex"]), false, "How bytes are shown."),
    known(
        "client_encoding",
        "UTF8",
        Takes::Only(&["UTF8", "UTF-8", "unicode"]),
        true,
        "How text is encoded for the client.",
    ),
    known("client_min_messages", "notice", Takes::Text, false, "Notices are sent always."),
    known(
        "DateStyle",
        "ISO, MDY",
        Takes::Only(&["ISO, MDY", "ISO", "ISO,MDY", "ISO, DMY", "ISO, YMD"]),
        true,
        "How dates are shown.",
    ),
    known(
        "default_transaction_isolation",
        "read committed",
        Takes::Only(&["read committed", "read uncommitted"]),
        false,
        "Each statement sees one instant.",
    ),
    known("default_transaction_read_only", "off", Takes::Switch, true, "Whether statements that write are refused."),
    known(
        "extra_float_digits",
        "1",
        Takes::Only(&["1", "2", "3"]),
        false,
        "Floating-point numbers are shown so that they are read as themselves.",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Takes::Time,
        false,
        "A transaction holds nothing while it idles.",
    ),
    known("in_hot_standby", "off", Takes::Nothing, true, "Whether this is a standby."),
    known("integer_datetimes", "on", Takes::Nothing, true, "Whether times are whole numbers in binary form."),
    known("IntervalStyle", "postgres", Takes::Only(&["postgres"]), true, "How intervals are shown."),
    known("is_superuser", "off", Takes::Nothing, true, "Whether the account may do everything."),
    known("lock_timeout", "0", Takes::Time, false, "No statement waits for a lock."),
    known("max_identifier_length", "63", Takes::Nothing, false, "Names may be longer here."),
    known("role", "none", Takes::Only(&["none"]), false, "The account is that of the connection."),
    known("search_path", "\"$user\", public", Takes::Only(PATHS), false, "Where tables are looked for."),
    known("server_encoding", "UTF8", Takes::Nothing, true, "How text is stored."),
    known("server_version", VERSION, Takes::Nothing, true, "The version of PostgreSQL that this is like, and its own."),
    known("server_version_num", "160006", Takes::Nothing, false, "The version of PostgreSQL that this is like."),
    known("session_authorization", "", Takes::Nothing, true, "The account."),
    known("ssl", "off", Takes::Nothing, false, "Whether the connection uses TLS."),
    known(
        "standard_conforming_strings",
        "on",
        Takes::Only(&["on", "true", "1"]),
        true,
        "Whether backslashes in strings are plain.",
    ),
    known("statement_timeout", "0", Takes::Time, false, "How long a statement may take."),
    known("TimeZone", "UTC", Takes::Only(ZONES), true, "The zone in which times are shown."),
    known(
        "transaction_isolation",
        "read committed",
        Takes::Only(&["read committed", "read uncommitted"]),
        false,
        "Each statement sees one instant.",
    ),
    known("transaction_read_only", "off", Takes::Switch, false, "Whether statements that write are refused."),
];

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let without = |(name, default): &(&'static str, &'static str)| {
        known(name, default, Takes::Text, false, "Known to PostgreSQL's clients; it changes nothing here.")
    };
    TRUE.iter().copied().chain(WITHOUT_EFFECT.iter().map(without)).collect()
});

fn find(name: &str) -> Option<&'static Known> {
    let name = match name.to_ascii_lowercase().as_str() {
        "time zone" => "TimeZone",
        "names" => "client_encoding",
        "transaction isolation level" => "transaction_isolation",
        _ => name,
    };
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

/// A change, with the value before it.
#[derive(Debug, Clone)]
struct Change {
    is_local: bool,
    name: &'static str,
    before: Option<String>,
}

/// The settings of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// Those that differ from the default.
    values: BTreeMap<&'static str, String>,
    /// What `RESET` goes back to: what the connection began with.
    begun: BTreeMap<&'static str, String>,
    /// Those that hold for a transaction alone, before those above.
    local: BTreeMap<&'static str, String>,
    /// What a transaction has changed, in a transaction.
    changes: Option<Vec<Change>>,
}

impl Settings {
    /// Sets one that can only be shown, or that the client asked for at the beginning; from then on it is the default.
    pub(super) fn begin(&mut self, name: &str, value: &str) {
        if let Some(known) = find(name) {
            self.values.insert(known.name, value.to_owned());
            self.begun.insert(known.name, value.to_owned());
        }
    }

    /// Whether there is a setting of this name.
    pub(super) fn is_known(name: &str) -> bool {
        find(name).is_some()
    }

    /// The name as it is written, and the value.
    pub(super) fn show(&self, name: &str) -> Result<(&'static str, &str), Refusal> {
        let known = find(name).ok_or_else(|| unknown(name))?;
        Ok((known.name, self.value(known)))
    }

    /// All, with what they are about.
    pub(super) fn all(&self) -> Vec<[&str; 3]> {
        KNOWN.iter().map(|known| [known.name, self.value(known), known.about]).collect()
    }

    /// Those that clients are told of.
    pub(super) fn reported(&self) -> Vec<(&'static str, String)> {
        let reported = KNOWN.iter().filter(|known| known.is_reported);
        reported.map(|known| (known.name, self.value(known).to_owned())).collect()
    }

    fn value(&self, known: &Known) -> &str {
        let set = self.local.get(known.name).or_else(|| self.values.get(known.name));
        set.map_or(known.default, String::as_str)
    }

    /// Changes one. `None` sets it to what the connection began with.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Result<(), Refusal> {
        let known = find(name).ok_or_else(|| unknown(name))?;
        let value = match value {
            None => self.begun.get(known.name).cloned().unwrap_or_else(|| known.default.to_owned()),
            Some(value) => checked(known, value)?,
        };
        self.put(is_local, known.name, Some(value));
        if !is_local {
            self.put(true, known.name, None);
        }
        Ok(())
    }

    /// Sets all to what the connection began with.
    pub(super) fn reset(&mut self) {
        for Known { name, .. } in KNOWN.iter() {
            self.put(false, name, self.begun.get(name).cloned());
            self.put(true, name, None);
        }
    }

    fn put(&mut self, is_local: bool, name: &'static str, value: Option<String>) {
        let values = if is_local { &mut self.local } else { &mut self.values };
        if values.get(name) == value.as_ref() {
            return;
        }
        let before = match value {
            Some(value) => values.insert(name, value),
            None => values.remove(name),
        };
        if let Some(changes) = &mut self.changes {
            changes.push(Change { is_local, name, before });
        }
    }

    pub(super) fn begin_transaction(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// The number of changes in the transaction.
    pub(super) fn changes(&self) -> usize {
        self.changes.as_ref().map_or(0, Vec::len)
    }

    /// Takes back the changes in the transaction, but for the first `kept`.
    pub(super) fn roll_back(&mut self, kept: usize) {
        let Some(mut changes) = self.changes.take() else { return };
        for Change { is_local, name, before } in changes.drain(kept..).rev() {
            self.put(is_local, name, before);
        }
        self.changes = Some(changes);
    }

    /// Ends what was to hold for the transaction alone, and keeps its other changes.
    pub(super) fn end_transaction(&mut self) {
        self.changes = None;
        self.local.clear();
    }

    fn is_on(&self, name: &str) -> bool {
        self.show(name).is_ok_and(|(_, value)| value == "on")
    }

    /// Whether statements that write are refused.
    pub(super) fn is_read_only(&self) -> bool {
        self.is_on("transaction_read_only") || self.is_on("default_transaction_read_only")
    }

    /// How long a statement may take, if that is limited.
    pub(super) fn statement_timeout(&self) -> Option<Duration> {
        let (_, value) = self.show("statement_timeout").ok()?;
        milliseconds(value).filter(|time| !time.is_zero())
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// A time in milliseconds, or with a unit.
fn milliseconds(value: &str) -> Option<Duration> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    let unit = match value[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let time = Duration::from_millis(number.checked_mul(unit)?);
    Some(time).filter(|time| *time <= crate::settings::Settings::TIME_MOST)
}

/// The value that is kept.
fn checked(known: &Known, value: &str) -> Result<String, Refusal> {
    let name = known.name;
    let wrong =
        || Refusal::new(INVALID_PARAMETER_VALUE, format!("invalid value for parameter \"{name}\": \"{value}\""));
    match known.takes {
        Takes::Text => Ok(value.to_owned()),
        Takes::Switch => match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok("on".to_owned()),
            "off" | "false" | "no" | "0" => Ok("off".to_owned()),
            _ => Err(wrong()),
        },
        Takes::Time => milliseconds(value).map(|_| value.to_owned()).ok_or_else(wrong),
        Takes::Only(values) if values.iter().any(|one| one.eq_ignore_ascii_case(value)) => Ok(known.default.to_owned()),
        Takes::Only(_) if name == "TimeZone" => {
            let what = "times are shown in UTC alone; name a zone where it matters: to_char(time AT TIME ZONE 'Europe/Berlin', \
                        '%H:%M'), date_bin('1 day', time, 'Europe/Berlin')";
            Err(Refusal::new(FEATURE_NOT_SUPPORTED, what))
        }
        Takes::Only(_) => {
            let what = format!("parameter \"{name}\" is always \"{}\" here, not \"{value}\"", known.default);
            Err(Refusal::new(FEATURE_NOT_SUPPORTED, what))
        }
        Takes::Nothing => Err(Refusal::new("55P02", format!("parameter \"{name}\" cannot be changed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_holds() {
        let mut settings = Settings::default();
        settings.begin("session_authorization", "ada");
        assert_eq!(settings.show("SESSION_authorization").unwrap(), ("session_authorization", "ada"));
        settings.set("statement_timeout", Some("2s"), false).unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        settings.set("client_encoding", Some("utf-8"), false).unwrap();
        assert_eq!(settings.show("names").unwrap().1, "UTF8");
        for (name, value, state) in [
            ("time zone", "Europe/Berlin", FEATURE_NOT_SUPPORTED),
            ("client_encoding", "LATIN1", FEATURE_NOT_SUPPORTED),
            ("server_version", "9", "55P02"),
            ("statement_timeout", "1 year", INVALID_PARAMETER_VALUE),
            ("statement_timeout", "3651d", INVALID_PARAMETER_VALUE),
            ("statement_timeout", "99999999999999999999", INVALID_PARAMETER_VALUE),
            ("no_such_setting", "1", UNDEFINED_OBJECT),
        ] {
            assert_eq!(settings.set(name, Some(value), false).unwrap_err().state, state, "{name}");
        }
        settings.set("work_mem", Some("64MB"), false).unwrap();
        assert_eq!(settings.show("work_mem").unwrap().1, "64MB");
        settings.reset();
        assert_eq!(settings.statement_timeout(), None);
        assert_eq!(settings.show("session_authorization").unwrap().1, "ada");
    }

    #[test]
    fn what_is_set_for_a_transaction_ends_with_it() {
        let mut settings = Settings::default();
        settings.set("default_transaction_read_only", Some("yes"), false).unwrap();
        settings.set("statement_timeout", Some("10"), false).unwrap();
        settings.set("statement_timeout", Some("20"), true).unwrap();
        settings.set("transaction_read_only", Some("on"), true).unwrap();
        assert!(settings.is_read_only());
        settings.end_transaction();
        assert_eq!(settings.show("statement_timeout").unwrap().1, "10");
        assert_eq!(settings.show("transaction_read_only").unwrap().1, "off");
        assert!(settings.is_read_only(), "for the session");
    }

    #[test]
    fn a_rollback_takes_back_what_was_set() {
        let mut settings = Settings::default();
        let shown = |settings: &Settings| settings.show("statement_timeout").unwrap().1.to_owned();
        settings.set("statement_timeout", Some("1s"), false).unwrap();
        settings.begin_transaction();
        settings.set("statement_timeout", Some("7s"), true).unwrap();
        settings.set("statement_timeout", Some("9s"), false).unwrap();
        assert_eq!(shown(&settings), "9s");
        let savepoint = settings.changes();
        settings.set("statement_timeout", None, true).unwrap();
        assert_eq!(shown(&settings), "0");
        settings.reset();
        settings.roll_back(savepoint);
        assert_eq!(shown(&settings), "9s");
        let mut committed = settings.clone();
        committed.end_transaction();
        assert_eq!(shown(&committed), "9s");
        settings.roll_back(0);
        settings.end_transaction();
        assert_eq!(shown(&settings), "1s");
    }
}
