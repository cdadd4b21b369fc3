//! Listings of an ordinary collection: what is stored, under which rule, and when it expires. Its buckets are its segments,
//! and the documents that are in none yet as one.

use super::columns::DocumentColumns;
use super::due::{PROPOSED, each_expiry};
use super::forecast::dropped;
use super::memtable::ENTRY_BYTES;
use super::options::DocumentsOptions;
use super::segment::DocumentSegment;
use super::snapshot::DocumentsSnapshot;
use super::stored::raw;
use crate::error::Result;
use crate::json::value_of;
use crate::snapshot::{CollectionInfo, ExpiryRow, RuleInfo, SegmentInfo};
use ebbtide_documents::json::{relaxed_text, to_relaxed};
use ebbtide_documents::{DefaultTtl, ITEMS_RULE};
use ebbtide_ttl::{Precision, Timestamp, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

impl DocumentsSnapshot {
    /// Its columns in SQL besides `_ts` and `document`.
    #[must_use]
    pub fn columns(&self) -> &Arc<DocumentColumns> {
        &self.state.columns
    }

    /// A summary of the collection.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn info(&self) -> Result<CollectionInfo> {
        let is_open = self.state.memtable.documents().next().is_some();
        Ok(CollectionInfo {
            name: self.name().to_owned(),
            buckets: self.state.segments.len() as u64 + u64::from(is_open),
            measurements: self.count()?,
            bytes: self.segment_bytes() + self.state.memtable.bytes() as u64,
            first_time: None,
            last_time: None,
            state: "active".to_owned(),
        })
    }

    /// Bytes in memory of what is in no segment.
    #[must_use]
    pub fn open_bytes(&self) -> u64 {
        self.state.memtable.bytes() as u64
    }

    /// The segment files.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &Arc<DocumentSegment>| SegmentInfo {
            file: segment.file.relative_path().to_string_lossy().into_owned(),
            rows: segment.live_rows(),
            rows_written: segment.file.meta.rows,
            buckets: 1,
            bytes: segment.file.meta.bytes,
            first_time: None,
            last_time: None,
        };
        self.state.segments.values().map(info).collect()
    }

    /// The paths of the segment files, and how many documents are in none yet.
    #[must_use]
    pub fn segment_files(&self) -> (Vec<PathBuf>, u64) {
        let files = self.state.segments.values().map(|segment| segment.file.path.clone()).collect();
        (files, self.state.memtable.documents().count() as u64)
    }

    /// Every rule by which documents expire, with what it covers.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn rule_infos(&self) -> Result<Vec<RuleInfo>> {
        let rules = self.state.sweep_rules().filter_map(|rule| rule.rule);
        let mut infos: Vec<RuleInfo> = rules.map(|rule| self.rule_info(rule)).collect();
        if infos.is_empty() {
            return Ok(infos);
        }
        let mut add = |rule: &str, part: Part| {
            let Some(info) = infos.iter_mut().find(|info| info.rule == rule) else { return };
            info.buckets += 1;
            info.measurements += part.visible;
            info.bytes += part.bytes;
            info.next_expiry = info.next_expiry.into_iter().chain(part.first_expiry).min();
        };
        for (rule, part) in self.open_parts() {
            add(&rule, part);
        }
        for segment in self.state.segments.values() {
            for (rule, part) in self.parts_of(segment)? {
                add(&rule, part);
            }
        }
        for due in dropped(&self.state, self.now)? {
            if let Some(info) = infos.iter_mut().find(|info| info.rule == due.rule) {
                info.due_buckets += due.buckets;
                info.due_measurements += due.measurements;
            }
        }
        Ok(infos)
    }

    /// A rule with the counts of nothing.
    fn rule_info(&self, rule: String) -> RuleInfo {
        let filter = self.options().indexes.iter().find(|index| index.name == rule);
        let filter = filter.and_then(|index| index.filter.as_deref()).map(|filter| {
            let filter = raw(filter);
            value_of(&to_relaxed(filter)).unwrap_or_else(|_| Value::String(relaxed_text(filter)))
        });
        RuleInfo {
            expire_after_seconds: self.state.seconds_of(&rule).unwrap_or(-1),
            filter,
            buckets: 0,
            measurements: 0,
            bytes: 0,
            due_buckets: 0,
            due_measurements: 0,
            next_expiry: None,
            expire_into: None,
            state: "active".to_owned(),
            rule,
        }
    }

    /// What of the documents in memory falls under each rule.
    fn open_parts(&self) -> Parts {
        let mut parts = Parts::new();
        for (_, stored) in self.state.memtable.documents() {
            if let Some((expires, rule)) = self.state.rules.expires_at(raw(&stored.document), stored.written) {
                let part = parts.entry(rule.to_string()).or_default();
                part.add(expires, self.now);
                part.bytes += (stored.document.len() + ENTRY_BYTES) as u64;
            }
        }
        parts
    }

    /// What of a segment falls under each rule: from its summary in the manifest, if that suffices.
    fn parts_of(&self, segment: &DocumentSegment) -> Result<Parts> {
        let (state, mut parts) = (&self.state, Parts::new());
        let gone = state.gone(segment);
        let now = self.now.to_units_saturating(Precision::Ms);
        if state.rules.indexes.is_empty() {
            let default_ttl = state.options.default_ttl;
            let (lives, first) = (&segment.file.meta.lives, segment.first_item_expiry(default_ttl));
            let Some(first) = first else { return Ok(parts) };
            if gone.is_empty() && first > now {
                let inheriting = if default_ttl == DefaultTtl::Never { 0 } else { lives.inheriting };
                let visible = lives.own + inheriting;
                let first_expiry = Some(Timestamp::from_millis(first));
                parts.insert(ITEMS_RULE.to_owned(), Part { visible, bytes: segment.share(visible), first_expiry });
                return Ok(parts);
            }
        }
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        each_expiry(state, segment, &mut |row, expires, rule| {
            if !gone.contains(row) {
                let rule = rule.to_string();
                *counts.entry(rule.clone()).or_default() += 1;
                parts.entry(rule).or_default().add(expires, self.now);
            }
        })?;
        for (rule, part) in &mut parts {
            part.bytes = segment.share(counts.get(rule).copied().unwrap_or_default());
        }
        Ok(parts)
    }

    /// What a sweep at `at` would drop, by the day on which it expires, under the present settings or proposed ones. Nothing is
    /// changed. A segment that goes as a whole counts as a bucket, on the day of its last document.
    ///
    /// # Errors
    /// Errors of reading; what is wrong with the proposed settings.
    pub fn explain_expiry(&self, at: Timestamp, proposed: Option<&DocumentsOptions>) -> Result<Vec<ExpiryRow>> {
        let Some(options) = proposed else { return dropped(&self.state, at) };
        let mut state = (*self.state).clone();
        (state.rules, state.rules_epoch) = (Arc::new(options.rules()?), PROPOSED);
        state.options = Arc::new(options.clone());
        dropped(&state, at)
    }
}

/// What of one bucket falls under one rule.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    visible: u64,
    bytes: u64,
    first_expiry: Option<Timestamp>,
}

/// By rule.
type Parts = BTreeMap<String, Part>;

impl Part {
    fn add(&mut self, expires: Timestamp, now: Timestamp) {
        self.visible += u64::from(expires > now);
        self.first_expiry = Some(self.first_expiry.map_or(expires, |first| first.min(expires)));
    }
}
