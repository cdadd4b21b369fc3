//! What a query sees, as it is sent with each of its tasks: the positions of the copies, the instant, and the settings of the session.

use crate::context::StatementContext;
use datafusion::common::{Result, config_datafusion_err, exec_datafusion_err};
use datafusion::config::ConfigOptions;
use ebbtide::CopyPosition;
use ebbtide_ttl::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

const HEADER: HeaderName = HeaderName::from_static("x-ebbtide-query");
/// The settings that concern how a plan runs.
const SETTINGS: &str = "datafusion.execution.";
/// Of these, the one that each machine has for itself.
const OF_MACHINE: &str = "datafusion.execution.target_partitions";

/// What a query sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pinned {
    /// Those of the session's databases, in their order.
    pub(super) positions: Vec<CopyPosition>,
    pub(super) now: Timestamp,
    settings: Map<String, Value>,
}

impl Pinned {
    /// What a statement over replicas sees; `None` if one of its databases is none.
    pub(super) fn of(context: &StatementContext, options: &ConfigOptions) -> Option<Pinned> {
        let positions = context.snapshots().map(|snapshot| snapshot.position().cloned()).collect::<Option<_>>()?;
        let usual: Map<String, Value> = settings_of(&ConfigOptions::new()).collect();
        let settings = settings_of(options).filter(|(key, value)| usual.get(key) != Some(value)).collect();
        Some(Pinned { positions, now: context.snapshot().now(), settings })
    }

    pub(super) fn headers(&self) -> Result<HeaderMap> {
        let copy =
            |CopyPosition { url, epoch, piece }: &CopyPosition| json!({ "url": url, "epoch": epoch, "piece": piece });
        let copies: Vec<Value> = self.positions.iter().map(copy).collect();
        let text = json!({ "copies": copies, "now": self.now.nanos().to_string(), "settings": self.settings });
        let value = HeaderValue::from_bytes(text.to_string().as_bytes());
        let value = value.map_err(|e| exec_datafusion_err!("the query cannot be sent to workers: {e}"))?;
        Ok(HeaderMap::from_iter([(HEADER, value)]))
    }

    pub(super) fn of_headers(headers: &HeaderMap) -> Result<Pinned> {
        let given = headers.get(HEADER).and_then(|value| serde_json::from_slice::<Value>(value.as_bytes()).ok());
        let parsed = given.as_ref().and_then(|given| {
            let position = |copy: &Value| {
                let number = |name: &str| copy.get(name)?.as_u64();
                let url = copy.get("url")?.as_str()?.to_owned();
                Some(CopyPosition { url, epoch: number("epoch")?, piece: number("piece")? })
            };
            let positions = given.get("copies")?.as_array()?.iter().map(position).collect::<Option<Vec<_>>>()?;
            let now = Timestamp::from_nanos(given.get("now")?.as_str()?.parse().ok()?);
            Some(Pinned { positions, now, settings: given.get("settings")?.as_object()?.clone() })
        });
        parsed.ok_or_else(|| exec_datafusion_err!("the query does not say which copy it reads: it is not from Ebbtide"))
    }

    /// Applies the settings of the session.
    pub(super) fn set(&self, options: &mut ConfigOptions) -> Result<()> {
        for (key, value) in self.settings.iter().filter(|(key, _)| is_sent(key)) {
            let value = value.as_str().ok_or_else(|| config_datafusion_err!("the value of {key} is no text"))?;
            options.set(key, value)?;
        }
        Ok(())
    }
}

fn is_sent(key: &str) -> bool {
    key.starts_with(SETTINGS) && key != OF_MACHINE
}

fn settings_of(options: &ConfigOptions) -> impl Iterator<Item = (String, Value)> {
    options
        .entries()
        .into_iter()
        .filter(|entry| is_sent(&entry.key))
        .filter_map(|e| Some((e.key, Value::from(e.value?))))
}
