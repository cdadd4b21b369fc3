//! The page of metrics: those of each database, with its name as a label, and those of the server.

use crate::error::Failure;
use crate::shared::Shared;
use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

/// Families of samples, in the order in which they came.
#[derive(Default)]
struct Page {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
}

struct Family {
    help: String,
    kind: String,
    samples: String,
}

impl Page {
    fn family(&mut self, name: &str) -> &mut Family {
        let count = self.families.len();
        let at = *self.by_name.entry(name.to_owned()).or_insert(count);
        if at == count {
            self.families.push(Family { help: String::new(), kind: String::new(), samples: String::new() });
        }
        &mut self.families[at]
    }

    /// Adds the page of one database.
    fn add(&mut self, database: &str, text: &str) {
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().unwrap_or_default();
                self.family(name).help = line.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap_or_default();
                self.family(name).kind = line.to_owned();
            } else {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                let rest = &line[name.len()..];
                let family = self.family(name);
                // Names of databases have letters, digits, '_' and '-' alone.
                let _ = match rest.strip_prefix('{') {
                    Some(labels) => writeln!(family.samples, "{name}{{database=\"{database}\",{labels}"),
                    None => writeln!(family.samples, "{name}{{database=\"{database}\"}}{rest}"),
                };
            }
        }
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        let name = format!("ebbtide_server_{name}");
        let family = self.family(&name);
        family.help = format!("# HELP {name} {help}");
        family.kind = format!("# TYPE {name} {kind}");
        let _ = writeln!(family.samples, "{name} {value}");
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Family { help, kind, samples } in &self.families {
            let _ = write!(text, "{help}\n{kind}\n{samples}");
        }
        text
    }
}

/// The page, in the text format of Prometheus.
pub(super) fn page(shared: &Shared) -> Result<String, Failure> {
    let mut page = Page::default();
    for (name, database) in shared.databases.all() {
        page.add(&name, &database.prometheus(&database.snapshot())?);
    }
    let counters = &shared.counters;
    for (name, help, counter) in [
        ("connections_accepted_total", "Connections that were accepted.", &counters.connections_made),
        ("connections_refused_total", "Connections above the limit.", &counters.connections_refused),
        ("logins_total", "Logins that succeeded.", &counters.logins),
        ("logins_refused_total", "Logins that were refused.", &counters.logins_refused),
        ("http_requests_total", "HTTP requests.", &counters.http_requests),
        ("sql_statements_total", "SQL statements that were started.", &counters.sql_statements),
        ("sql_failed_total", "SQL statements that failed.", &counters.sql_failed),
        ("http_received_bytes_total", "Bytes of the bodies of HTTP requests, as they came.", &counters.http_bytes_in),
        ("samples_stored_total", "Samples of Prometheus remote write that were stored.", &counters.samples_stored),
        ("rows_posted_total", "Measurements and documents that POST /collections stored.", &counters.rows_posted),
        ("lines_stored_total", "Lines of line protocol that were stored.", &counters.lines_stored),
        ("repeated_requests_total", "Writes over HTTP that had been stored before.", &counters.requests_repeated),
        ("refused_writes_total", "Writes over HTTP that were refused, or a part of them.", &counters.writes_refused),
        ("received_bytes_total", "Bytes received by MongoDB's protocol.", &counters.bytes_in),
        ("sent_bytes_total", "Bytes sent by it.", &counters.bytes_out),
        ("messages_total", "Messages received by it.", &counters.requests),
        ("refused_commands_total", "Commands that ended with an error.", &counters.refused),
        ("inserted_documents_total", "Documents of insert commands.", &counters.inserts),
        ("queries_total", "Commands find.", &counters.queries),
        ("updates_total", "Commands update.", &counters.updates),
        ("deletes_total", "Commands delete.", &counters.deletes),
        ("get_mores_total", "Commands getMore.", &counters.get_mores),
        ("other_commands_total", "All other commands.", &counters.commands),
    ] {
        page.single(name, "counter", help, counter.load(Ordering::Relaxed));
    }
    let running = counters.sql_running.load(Ordering::Relaxed);
    page.single("sql_running", "gauge", "SQL statements that run, or whose rows are being sent.", running);
    page.single(
        "cursors_timed_out_total",
        "counter",
        "Cursors that idled out or were too old.",
        shared.cursors.timed_out(),
    );
    page.single("connections", "gauge", "Connections that are open.", counters.connections.load(Ordering::Relaxed));
    page.single("cursors", "gauge", "Cursors that are open.", shared.cursors.len());
    let up = shared.now().saturating_sub(shared.started);
    page.single("uptime_seconds", "gauge", "Seconds since the start.", up.as_secs());
    Ok(page.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_databases_become_one() {
        let one = "# HELP a About a.\n# TYPE a gauge\na 1\n# HELP b About b.\n# TYPE b gauge\nb{x=\"y z\"} 2\n";
        let mut page = Page::default();
        page.add("d1", one);
        page.add("d2", one);
        page.single("up", "gauge", "Is up.", 1);
        let expected = "# HELP a About a.\n# TYPE a gauge\na{database=\"d1\"} 1\na{database=\"d2\"} 1\n\
                        # HELP b About b.\n# TYPE b gauge\nb{database=\"d1\",x=\"y z\"} 2\nb{database=\"d2\",x=\"y z\"} 2\n\
                        # HELP ebbtide_server_up Is up.\n# TYPE ebbtide_server_up gauge\nebbtide_server_up 1\n";
        assert_eq!(page.text(), expected);
    }
}
