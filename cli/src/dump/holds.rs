//! Legal holds in the description of a dump.

use ebbtide::{HoldInfo, json};
use ebbtide_ttl::{Timestamp, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A hold in `dump.json`: instants as text, the filter as in command documents.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DumpedHold {
    name: String,
    pub(super) collection: String,
    filter: Option<Json>,
    from: Option<String>,
    to: Option<String>,
    reason: String,
    made_at: String,
    lifted_at: Option<String>,
}

impl From<HoldInfo> for DumpedHold {
    fn from(hold: HoldInfo) -> Self {
        let text = |instant: Timestamp| instant.to_string();
        DumpedHold {
            name: hold.name,
            collection: hold.collection,
            filter: hold.filter.as_ref().map(json::json_of),
            from: hold.from.map(text),
            to: hold.to.map(text),
            reason: hold.reason,
            made_at: text(hold.made_at),
            lifted_at: hold.lifted_at.map(text),
        }
    }
}

impl DumpedHold {
    /// The hold, or what is wrong with it.
    pub(super) fn read(&self) -> Result<HoldInfo, String> {
        let instant = |text: &Option<String>| text.as_deref().map(Timestamp::parse).transpose();
        let filter = |json: &Json| json::value_of(json).map_err(|error| error.to_string());
        let filter: Option<Value> = self.filter.as_ref().map(filter).transpose()?;
        Ok(HoldInfo {
            name: self.name.clone(),
            collection: self.collection.clone(),
            filter,
            from: instant(&self.from)?,
            to: instant(&self.to)?,
            reason: self.reason.clone(),
            made_at: Timestamp::parse(&self.made_at)?,
            lifted_at: instant(&self.lifted_at)?,
            measurements: 0,
        })
    }
}
