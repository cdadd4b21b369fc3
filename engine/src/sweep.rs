//! The sweeper: drops whole buckets once nothing in them is visible any more.
//!
//! A pass reads the clock once. The bounds of segments in memory tell what is due; a segment that is due as a whole is dropped
//! without reading its directory, and one edit drops everything that visits counted for a rule. A file is unlinked when the
//! last snapshot that can see it is dropped.

pub(crate) mod drop_edit;
mod open;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod size;
pub(crate) mod sweeper;

pub use sweeper::Operation;

use crate::documents::due::Due;
use crate::documents::sweep::Drops;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::rung_of;
use crate::metrics::TtlMetrics;
use crate::state::CollectionState;
use crate::sync::Guard;
use drop_edit::{DropEdit, record_of, record_of_documents, shown};
use ebbtide_ttl::{Code, PassTarget, RuleRef, Timestamp, Visit, VisitLimit, run_pass};
use options::SweepOptions;
use plan::item::Item;
use plan::{OpenBuckets, Plan};
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sweeper::{AcceptedNow, Held};

/// Rows that decay into the rungs of a ladder with one edit, about.
const DECAY_ROWS_MAX: u64 = 1 << 22;

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SweepReport {
    /// The counts of this pass.
    #[serde(flatten)]
    pub counts: TtlMetrics,
    /// Why nothing was dropped, if the clock guard held the pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Segments that could not be read, each with path and offset: what is due in them, or elsewhere in their windows, stays.
    /// A segment of which all is due goes without being read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Runs one pass with its hand-offs.
pub(crate) fn sweep_and_hand_off(engine: &Engine, options: &SweepOptions) -> Result<SweepReport> {
    let mut report = sweep(engine, options)?;
    hand_off(engine, options, &mut report)?;
    Ok(report)
}

/// Hands over what is due where that is required, and adds it to the report of the pass.
pub(crate) fn hand_off(engine: &Engine, options: &SweepOptions, report: &mut SweepReport) -> Result<()> {
    if report.counts.passes == 0 && report.held.is_none() {
        return Ok(());
    }
    let at = engine.clock.now();
    let handed = crate::hand_off::run(engine, options, report.held.is_none().then_some(at), at)?;
    let dropped = handed.dropped;
    let mut counts = TtlMetrics {
        deleted_documents: dropped.measurements,
        deleted_buckets: dropped.buckets,
        deleted_bytes: dropped.bytes,
        reclaimed_files: dropped.files,
        held_buckets: handed.held,
        failed_rules: handed.failed,
        ..TtlMetrics::default()
    };
    let new = handed.unread.into_iter().filter(|error| !report.unread.contains(error)).collect::<Vec<_>>();
    counts.failed_rules += new.len() as u64;
    report.unread.extend(new);
    engine.metrics.swept(&counts);
    report.counts.add(&counts);
    Ok(())
}

/// Runs one pass, within limits, over all that is neither handed over nor moved to an archive.
pub(crate) fn sweep(engine: &Engine, options: &SweepOptions) -> Result<SweepReport> {
    let _span = tracing::debug_span!("sweep").entered();
    engine.check_writable()?;
    let _pass = engine.sweeper.pass.lock();
    let parameters = engine.sweeper.parameters.lock().clone();
    if !parameters.monitor_enabled {
        return Ok(SweepReport::default());
    }
    let (wall, started) = (engine.clock.now(), engine.clock.monotonic());
    let (place, tolerance) = ((engine.fs.as_ref(), engine.dir.as_path()), parameters.clock_jump_tolerance_secs);
    let now = match engine.sweeper.accept(place, wall, started, tolerance) {
        Ok(now) => now,
        Err(held) => {
            tracing::warn!(%held, "the sweep was held");
            let (mut counts, mut unread) = (TtlMetrics::default(), BTreeSet::new());
            if let Held::Copy(_) = held {
                return Ok(SweepReport { counts, held: Some(held.to_string()), unread: Vec::new() });
            }
            // Sizes need no clock.
            enforce_sizes(engine, options, (None, wall), &mut counts, &mut unread)?;
            engine.metrics.swept(&counts);
            return Ok(SweepReport { counts, held: Some(held.to_string()), unread: unread.into_iter().collect() });
        }
    };
    let mut pass = Pass {
        engine,
        options,
        now,
        plans: BTreeMap::new(),
        counted: (0, 0),
        dropped: Visit::default(),
        failed: 0,
        broken: BTreeSet::new(),
        unread: BTreeSet::new(),
        documents: BTreeMap::new(),
        held: BTreeMap::new(),
        no_room: None,
        fatal: None,
    };
    let clock = engine.clock.clone();
    let report = run_pass(&parameters, &|| clock.monotonic(), &mut pass, options.max_sub_passes);
    pass.settle_all();
    let (fatal, mut unread) = (pass.fatal.take(), std::mem::take(&mut pass.unread));
    *engine.sweeper.running.lock() = None;
    let duration = engine.clock.monotonic().saturating_sub(started);
    let mut counts = TtlMetrics {
        passes: report.passes,
        sub_passes: report.sub_passes,
        deleted_documents: pass.dropped.measurements,
        deleted_buckets: pass.dropped.buckets,
        deleted_bytes: pass.dropped.bytes,
        reclaimed_files: pass.dropped.files,
        held_buckets: pass.held.values().sum(),
        failed_rules: (report.failed.len() + unread.len()) as u64 + pass.failed,
        duration_micros: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
    };
    let no_room = pass.no_room.take();
    let sized = match fatal {
        Some(error) => Err(error),
        None => enforce_sizes(engine, options, (Some(now.instant()), wall), &mut counts, &mut unread),
    };
    engine.metrics.swept(&counts);
    match sized.and(no_room.map_or(Ok(()), Err)) {
        Err(error) => Err(error),
        Ok(()) => Ok(SweepReport { counts, held: None, unread: unread.into_iter().collect() }),
    }
}

/// Drops what is above the `maxBytes` of collections, and adds it to the counts of the pass. `now` is its instant, unless the clock
/// guard holds it.
fn enforce_sizes(
    engine: &Engine,
    options: &SweepOptions,
    (now, at): (Option<Timestamp>, Timestamp),
    counts: &mut TtlMetrics,
    unread: &mut BTreeSet<String>,
) -> Result<()> {
    let limited: Vec<u64> = {
        let state = engine.state.read();
        let is_limited = |c: &&Arc<CollectionState>| c.options.max_bytes.is_some() && !options.hands_off(c);
        state.collections.values().filter(is_limited).map(|c| c.id).collect()
    };
    for id in limited {
        match size::enforce(engine, id, options.leave_a_core, (now, at)) {
            Ok((dropped, unreadable)) => {
                counts.deleted_documents += dropped.measurements;
                counts.deleted_buckets += dropped.buckets;
                counts.deleted_bytes += dropped.bytes;
                counts.reclaimed_files += dropped.files;
                let before = unread.len();
                unread.extend(unreadable.iter().map(ToString::to_string));
                counts.failed_rules += (unread.len() - before) as u64;
            }
            Err(error) if engine.poisoned().is_some() => return Err(error),
            Err(error) => {
                tracing::error!(collection = id, %error, "the size of a collection could not be enforced");
                counts.failed_rules += 1;
            }
        }
    }
    Ok(())
}

struct Pass<'a> {
    engine: &'a Engine,
    options: &'a SweepOptions,
    now: AcceptedNow,
    /// By collection what is due, and what visits counted of it. A plan is made at most once per sub-pass, unless something
    /// else changes the segments.
    plans: BTreeMap<u64, Plan>,
    /// Buckets and measurements that visits counted.
    counted: (u64, u64),
    dropped: Visit,
    /// How many times counted buckets could not be dropped.
    failed: u64,
    /// Collections whose counted buckets could not be dropped: they are not visited again in this pass.
    broken: BTreeSet<u64>,
    /// Errors about segments that could not be read.
    unread: BTreeSet<String>,
    /// By ordinary collection what is due.
    documents: BTreeMap<u64, DueDocuments>,
    /// By collection how many buckets are due and stay, because a hold covers something in them.
    held: BTreeMap<u64, u64>,
    /// Why a collection with a ladder could not be swept on a full disk; all others were.
    no_room: Option<Error>,
    /// An error that ends the pass.
    fatal: Option<Error>,
}

/// What is due of an ordinary collection, by segment, and the epoch of the rules that say so.
struct DueDocuments {
    rules_epoch: u64,
    by_segment: BTreeMap<u64, Due>,
}

impl PassTarget for Pass<'_> {
    fn rules(&mut self) -> Vec<RuleRef> {
        self.settle_all();
        self.documents.clear();
        let state = self.engine.state.read();
        let rule_of =
            |name: &str, rule: Option<&str>| RuleRef { collection: name.to_owned(), rule: rule.map(str::to_owned) };
        let collections = state.collections.values().filter(|c| !self.options.hands_off(c));
        let swept = |c: &Arc<CollectionState>| {
            let views = c.rules.iter().filter(|view| c.archive_of(view.index).is_none());
            views.map(|view| rule_of(&c.name, view.name)).collect::<Vec<_>>()
        };
        let measurements = collections.flat_map(swept);
        let documents = state.documents.values().filter(|_| self.options.sink.is_none());
        measurements.chain(documents.flat_map(|d| d.sweep_rules())).collect()
    }

    fn visit(&mut self, rule: &RuleRef, limit: VisitLimit) -> std::result::Result<Visit, String> {
        if self.fatal.is_some() {
            return Ok(Visit::default());
        }
        let visited = self.visit_rule(rule, limit);
        visited.map_err(|error| {
            tracing::error!(?rule, %error, "a rule could not be swept");
            if self.engine.poisoned().is_some() {
                self.fatal = Some(error.clone());
            }
            error.to_string()
        })
    }
}

impl Pass<'_> {
    fn visit_rule(&mut self, rule: &RuleRef, limit: VisitLimit) -> Result<Visit> {
        let engine = self.engine;
        let maintenance = engine.maintenance.lock_leaving(self.options.leave_a_core);
        let found = engine.state.read().collections.get(&rule.collection).cloned();
        let Some(found) = found else { return self.visit_documents(rule, limit) };
        if self.warn_if_suspended(&found) || self.broken.contains(&found.id) {
            return Ok(Visit::default());
        }
        let mut visit = self.refresh_plan(&found, &maintenance)?;
        let collection = self.present(found.id)?;
        let Some(plan) = self.plans.get_mut(&collection.id) else { return Ok(visit) };
        // Rules may have changed since the sub-pass began: the plan's own rules are what counts.
        let view = collection.rules.find(rule.rule.as_deref());
        // What is moved to an archive is not swept.
        let Some(view) = view.filter(|view| collection.archive_of(view.index).is_none()) else { return Ok(visit) };
        let started = engine.clock.monotonic();
        let out_of_time = || limit.time.is_some_and(|max| engine.clock.monotonic().saturating_sub(started) >= max);
        let counted = plan.count(view.index, limit.buckets, &out_of_time)?;
        if !counted.stopped_at_limit {
            self.drop_counted(&collection)?;
        }
        visit.add(&counted);
        visit.stopped_at_limit = counted.stopped_at_limit;
        let (name, label) = shown(engine, &collection, view.label());
        self.note_progress(&name, &label, &visit);
        Ok(visit)
    }

    /// Drops what is due through a rule of an ordinary collection. The caller holds the maintenance lock.
    fn visit_documents(&mut self, rule: &RuleRef, limit: VisitLimit) -> Result<Visit> {
        let engine = self.engine;
        let present = || engine.state.read().documents.get(&rule.collection).cloned();
        let (Some(name), Some(mut collection)) = (rule.rule.as_deref(), present()) else { return Ok(Visit::default()) };
        let Some(seconds) = collection.seconds_of(name) else { return Ok(Visit::default()) };
        let is_first = self.documents.get(&collection.id).is_none_or(|d| d.rules_epoch != collection.rules_epoch);
        if is_first && collection.has_due_in_memory(self.now.instant()) {
            match crate::documents::seal::flush(engine, &rule.collection) {
                // Dropping what is sealed and due makes room.
                Err(error) if error.code() == Code::OutOfDiskSpace => {
                    tracing::warn!(%error, "documents are due and could not be sealed");
                }
                flushed => flushed?,
            }
            let Some(sealed) = present() else { return Ok(Visit::default()) };
            collection = sealed;
        }
        let started = engine.clock.monotonic();
        let ends_early = || {
            limit.time.is_some_and(|max| engine.clock.monotonic().saturating_sub(started) >= max)
                || (!engine.clock.is_virtual() && engine.maintenance.is_awaited())
        };
        let rules_epoch = collection.rules_epoch;
        let fresh = || DueDocuments { rules_epoch, by_segment: BTreeMap::new() };
        let known = self.documents.entry(collection.id).or_insert_with(fresh);
        if is_first {
            *known = fresh();
        }
        let (mut drops, mut stopped) = (Drops::default(), false);
        for (id, segment) in collection.segments.iter() {
            stopped = limit.buckets.is_some_and(|max| drops.counted >= max) || (!drops.is_empty() && ends_early());
            if stopped {
                break;
            }
            let due = match known.by_segment.entry(*id) {
                Entry::Occupied(due) => &*due.into_mut(),
                Entry::Vacant(place) => match Due::of(&collection, segment, self.now.instant()) {
                    Ok(due) => place.insert(due),
                    Err(error) if error.is_of_one_file() => {
                        if self.unread.insert(error.to_string()) {
                            tracing::error!(collection = %collection.name, %error, "what is due in an unreadable segment stays");
                        }
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            drops.take(due, &collection, segment, (name, limit.buckets));
        }
        stopped |= limit.buckets.is_some_and(|max| drops.counted >= max);
        if drops.is_empty() {
            return Ok(Visit::default());
        }
        let (mut ops, visit) = drops.edits(&collection);
        ops.push(record_of_documents(&collection, self.now.instant(), (seconds, name), &visit));
        engine.commit(ops)?;
        self.dropped.add(&visit);
        let visit = Visit { buckets: drops.counted, stopped_at_limit: stopped, ..visit };
        self.note_progress(&collection.name, name, &visit);
        Ok(visit)
    }

    /// A collection as it is now. The caller holds the maintenance lock, without which none is dropped.
    fn present(&self, id: u64) -> Result<Arc<CollectionState>> {
        let present = self.engine.state.read().by_id(id).cloned();
        present.ok_or_else(|| Error::internal("a collection was dropped beside the maintenance lock"))
    }

    /// Makes a plan for the present version of a collection, unless there is one. Returns what was dropped meanwhile: open buckets
    /// that could not be sealed on a full disk.
    fn refresh_plan(&mut self, collection: &CollectionState, maintenance: &Guard<'_, ()>) -> Result<Visit> {
        if self.plans.get(&collection.id).is_some_and(|plan| plan.is_of(collection)) {
            return Ok(Visit::default());
        }
        if let Some(stale) = self.plans.remove(&collection.id) {
            self.settle(&stale, collection);
        }
        let (mut unsealed, mut collection) = (Visit::default(), self.present(collection.id)?);
        let mut plan = Plan::make(&collection, self.now, OpenBuckets::SealFirst)?;
        if plan.needs_flush {
            match crate::seal::flush(self.engine, maintenance, Some(&collection.name)) {
                Err(error) if error.code() == Code::OutOfDiskSpace && collection.ladder.is_some() => {
                    self.no_room.get_or_insert_with(|| error.clone());
                    return Err(error);
                }
                // Dropping what is sealed and due makes room, which a full disk needs most of all.
                Err(error) if error.code() == Code::OutOfDiskSpace => {
                    tracing::warn!(%error, "open buckets are due and could not be sealed");
                    unsealed = open::drop_all(self.engine, collection.id, self.now.instant())?;
                    self.dropped.add(&unsealed);
                }
                flushed => flushed?,
            }
            collection = self.present(collection.id)?;
            // Due buckets may have been inserted meanwhile: a writer of expired measurements must not stop the sweep.
            plan = Plan::make(&collection, self.now, OpenBuckets::Wait)?;
        }
        if plan.held > 0 {
            self.held.insert(collection.id, plan.held);
        }
        for error in &plan.unread {
            if self.unread.insert(error.to_string()) {
                tracing::error!(collection = %collection.name, %error, "what is due in an unreadable segment stays");
            }
        }
        self.plans.insert(collection.id, plan);
        Ok(unsealed)
    }

    /// Drops what visits counted to its end, while nothing else can change what was examined.
    fn drop_counted(&mut self, collection: &CollectionState) -> Result<()> {
        let Some(plan) = self.plans.get_mut(&collection.id) else { return Ok(()) };
        let items = plan.take_counted();
        self.drop_or_note(collection, &items.iter().map(|(rule, item)| (*rule, item)).collect::<Vec<_>>());
        let now = self.present(collection.id)?;
        if let Some(plan) = self.plans.get_mut(&collection.id) {
            plan.rebase(&now);
        }
        Ok(())
    }

    fn note_progress(&mut self, collection: &str, label: &str, visit: &Visit) {
        self.counted.0 += visit.buckets;
        self.counted.1 += visit.measurements;
        *self.engine.sweeper.running.lock() = Some(Operation {
            started: self.now.instant(),
            collection: collection.to_owned(),
            rule: label.to_owned(),
            buckets: self.counted.0,
            measurements: self.counted.1,
        });
    }

    /// Drops what visits have counted, and discards the plans.
    fn settle_all(&mut self) {
        for (id, plan) in std::mem::take(&mut self.plans) {
            if plan.all_counted().next().is_none() {
                continue;
            }
            let _maintenance = self.engine.maintenance.lock_leaving(self.options.leave_a_core);
            let collection = self.engine.state.read().by_id(id).cloned();
            if let Some(collection) = collection {
                self.settle(&plan, &collection);
            }
        }
    }

    /// The same for one plan, in the present version of its collection, in one edit. The caller holds the maintenance lock.
    fn settle(&mut self, plan: &Plan, collection: &CollectionState) {
        let suspended =
            self.engine.state.read().suspension_of(collection).is_some() || self.options.hands_off(collection);
        let mut items: Vec<(usize, &Item)> = plan.all_counted().collect();
        // Where the segment or the rules have changed since, another visit finds what is still due.
        let is_swept = |rule| collection.archive_of(rule).is_none();
        items.retain(|(rule, item)| !suspended && is_swept(*rule) && plan.still_holds(collection, item));
        self.drop_or_note(collection, &items);
    }

    /// Drops items, or notes why that failed.
    fn drop_or_note(&mut self, collection: &CollectionState, items: &[(usize, &Item)]) {
        if items.is_empty() {
            return;
        }
        if collection.ladder.is_some() {
            return self.drop_in_portions(collection.id, items);
        }
        let mut outcome = self.drop(collection, items);
        if outcome.as_ref().is_err_and(|error| error.code() == Code::OutOfDiskSpace) {
            // Dropping whole segments makes room, and the edit for it takes little.
            let (whole, rest): (Vec<_>, Vec<_>) = items.iter().copied().partition(|(_, item)| item.is_whole());
            if !whole.is_empty() && !rest.is_empty() {
                outcome = self.drop(collection, &whole).map(|first| {
                    let second = self.drop(collection, &rest);
                    self.note_failed(collection, second.as_ref().err());
                    first || second.unwrap_or(false)
                });
            }
        }
        self.note_failed(collection, outcome.as_ref().err());
        if !outcome.unwrap_or(false) {
            self.broken.insert(collection.id);
        }
    }

    /// Drops items of a collection with a ladder, which decay first: in several edits, so that not all bins are in memory at once.
    fn drop_in_portions(&mut self, id: u64, items: &[(usize, &Item)]) {
        let mut rest = items;
        while !rest.is_empty() {
            let mut rows = 0;
            let fit = rest.iter().take_while(|(_, item)| {
                let fits = rows < DECAY_ROWS_MAX;
                rows += item.rows();
                fits
            });
            let (portion, others) = rest.split_at(fit.count());
            rest = others;
            let outcome = self.present(id).and_then(|collection| {
                let outcome = self.drop(&collection, portion);
                self.note_failed(&collection, outcome.as_ref().err());
                outcome
            });
            if let Err(error) = &outcome
                && error.code() == Code::OutOfDiskSpace
            {
                self.no_room.get_or_insert_with(|| error.clone());
            }
            if !outcome.unwrap_or(false) {
                self.broken.insert(id);
                return;
            }
        }
    }

    fn note_failed(&mut self, collection: &CollectionState, error: Option<&Error>) {
        let Some(error) = error else { return };
        tracing::error!(collection = %collection.name, %error, "what is due could not be dropped");
        self.failed += 1;
        if self.engine.poisoned().is_some() {
            self.fatal = Some(error.clone());
        }
    }

    /// Drops items, each by its rule, in one edit, except what cannot be read. Returns whether anything was dropped.
    fn drop(&mut self, collection: &CollectionState, items: &[(usize, &Item)]) -> Result<bool> {
        let mut edit = DropEdit::of(self.engine, collection);
        let mut by_rule: BTreeMap<usize, Visit> = BTreeMap::new();
        for (rule, item) in items {
            let view = collection.rules.rule(*rule);
            let view = view.ok_or_else(|| Error::internal("a rule that a plan names is gone"))?;
            let cutoff = collection.drop_cutoff(self.now.instant(), view.expire_after_seconds);
            match edit.add(item, cutoff) {
                Err(error) if error.is_of_one_file() => {
                    tracing::error!(collection = %collection.name, %error, "what is due in an unreadable segment stays");
                    self.unread.insert(error.to_string());
                }
                added => by_rule.entry(*rule).or_default().add(&added?),
            }
        }
        if by_rule.is_empty() {
            return Ok(false);
        }
        let mut ops = Vec::new();
        let (files, pieces) = edit.edits(self.engine, Some(self.now.instant()), &mut ops)?;
        let mut sum = Visit { files, ..Visit::default() };
        for (rule, visit) in &mut by_rule {
            let Some(view) = collection.rules.rule(*rule) else { continue };
            if rung_of(&collection.name).is_some() {
                visit.measurements = 0; // They are bins.
            }
            sum.add(visit);
            let rule = (view.expire_after_seconds, view.label());
            ops.push(record_of(self.engine, collection, self.now.instant(), rule, visit));
        }
        let Some(_no_inserts) = self.engine.log_unless_suspended(collection.id) else {
            pieces.take_back(self.engine);
            return Ok(false);
        };
        let present = self.present(collection.id)?;
        let is_same = |id: &u64| match (present.segments.get(id), collection.segments.get(id)) {
            (Some(now), Some(seen)) => Arc::ptr_eq(now, seen),
            _ => false,
        };
        let touched = items.iter().flat_map(|(_, item)| item.segments());
        assert!(touched.into_iter().all(|id| is_same(&id)), "what was looked at is what is dropped");
        pieces.commit(self.engine, ops)?;
        self.dropped.add(&sum);
        Ok(true)
    }

    fn warn_if_suspended(&self, collection: &CollectionState) -> bool {
        let mut warned = self.engine.sweeper.warned.lock();
        match self.engine.state.read().suspension_of(collection) {
            Some(measurements) if rung_of(&collection.name).is_none() && warned.insert(collection.id) => {
                tracing::warn!(
                    collection = %collection.name,
                    measurements,
                    "expiry is suspended: measurements lie outside of 1970..2038"
                );
                true
            }
            Some(_) => true,
            None => {
                warned.remove(&collection.id);
                false
            }
        }
    }
}
