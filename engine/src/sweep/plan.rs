//! What is due in one collection, in one version of it, at one instant. Making a plan changes nothing.
//!
//! # Why a drop never takes a live measurement
//!
//! A bucket (meta, window) may lie in several pieces: at most one in each segment, and one in each chunk in memory.
//!
//! 1. No time in a piece is after its bound ([`due_scan::bound_of`]). So once the cut-off of the effective rule hides the bound, it hides
//!    every measurement in the piece. `DropEdit::add` asserts that it hides the last time of everything that is dropped.
//! 2. A meta has one effective rule, so all pieces of a bucket have the same. `DueScan::buckets` refuses a bucket of two.
//! 3. A bucket is dropped with all of its pieces. Segments are dropped or cut on their own only where their windows overlap
//!    those of nothing else that may hold one of their metas (`Overlaps::is_alone`, which asserts that it knows the segment
//!    itself); all other pieces are collected by bucket, and one that is not due keeps the others.
//! 4. What an unreadable segment holds is unknown, so buckets whose windows overlap it stay. `DueScan::buckets` asserts that no
//!    piece comes from such a segment.
//! 5. What was examined is what is dropped. Only the holder of the maintenance lock changes segments or rules, and a plan
//!    that outlives the lock is compared with the present version ([`Plan::still_holds`]). `Pass::drop` asserts that the
//!    segments in the state are the very ones of the plan.
//! 6. While a measurement lies outside of 1970..2038, nothing expires. No insert can add one between the last check for that
//!    and the edit, because the sweep holds the log (`Engine::log_unless_suspended`).
//! 7. A bucket that has a measurement which a hold covers is not due. Making or lifting a hold needs the maintenance lock too, and
//!    a plan is of the holds that it was made under.
//! 8. The instant of a plan is one reading of the clock that the clock guard accepted before the plan was made: only
//!    `Sweeper::accept` makes an [`AcceptedNow`], and it asserts that the guard accepts the reading. What that instant hides
//!    stays hidden at every later one.

pub(crate) mod due_scan;
pub(crate) mod item;
mod overlaps;

use super::sweeper::AcceptedNow;
use crate::error::{Error, Result};
use crate::holds::Hold;
use crate::segment::Segment;
use crate::state::CollectionState;
use due_scan::DueScan;
use ebbtide_ttl::Visit;
use item::Item;
use item::split;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What is due in one collection, by rule.
pub(crate) struct Plan {
    due: BTreeMap<usize, VecDeque<Item>>,
    /// What visits have counted to its end, each with the rule that it is due by. One edit drops all of it.
    counted: Vec<(usize, Item)>,
    /// Whether open buckets are due, or keep sealed ones from being dropped: they have to be sealed first.
    pub(crate) needs_flush: bool,
    /// Errors about segments that cannot be read: what is due in them, or elsewhere in their windows, stays.
    pub(crate) unread: Vec<Error>,
    /// The segments that the plan was made for. Holding them keeps others from reusing their addresses.
    segments: Arc<BTreeMap<u64, Arc<Segment>>>,
    rules_epoch: u64,
    holds: Arc<Vec<Hold>>,
    /// Buckets that are due and stay, because a hold covers something in them.
    pub(crate) held: u64,
}

/// What to do about open buckets that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenBuckets {
    /// They are sealed before anything is dropped.
    SealFirst,
    /// They are left to another pass, and so are the sealed pieces of the same buckets.
    Wait,
}

impl Plan {
    /// Plans the sweep of a collection at `now`.
    pub(super) fn make(collection: &CollectionState, now: AcceptedNow, open: OpenBuckets) -> Result<Self> {
        let mut plan = Plan {
            due: BTreeMap::new(),
            counted: Vec::new(),
            needs_flush: false,
            unread: Vec::new(),
            segments: collection.segments.clone(),
            rules_epoch: collection.rules_epoch,
            holds: collection.holds.clone(),
            held: 0,
        };
        if collection.suspension().is_some() || collection.rules.is_empty() {
            return Ok(plan);
        }
        let mut scan = DueScan::new(collection, &collection.rules, Some(collection.rules_epoch), now.instant());
        scan.open_wait = open == OpenBuckets::Wait;
        plan.needs_flush = open == OpenBuckets::SealFirst && scan.open_buckets_due();
        if plan.needs_flush {
            return Ok(plan);
        }
        let due = scan.due_segments()?;
        for (segment, rule) in &due.whole {
            let live = segment.live();
            plan.due.entry(*rule).or_default().push_back(Item::Segment {
                segment: segment.file.id,
                buckets: u64::from(live.buckets),
                counted: 0,
                rows: live.rows,
                bytes: segment.live_bytes(),
            });
        }
        for segment in &due.alone {
            for (rule, item) in scan.part(segment)? {
                plan.due.entry(rule).or_default().push_back(item);
            }
        }
        for (_, bucket) in scan.buckets(&due.shared)? {
            plan.due.entry(bucket.rule).or_default().push_back(bucket.into());
        }
        plan.held = scan.held();
        plan.unread = scan.into_unread();
        Ok(plan)
    }

    /// Whether the plan still describes this version of the collection.
    pub(crate) fn is_of(&self, collection: &CollectionState) -> bool {
        Arc::ptr_eq(&self.segments, &collection.segments) && self.has_rules_of(collection)
    }

    /// Whether the rules and the holds are those of this version.
    fn has_rules_of(&self, collection: &CollectionState) -> bool {
        self.rules_epoch == collection.rules_epoch && Arc::ptr_eq(&self.holds, &collection.holds)
    }

    /// Rebases the plan on a version that differs only by the plan's own drops.
    pub(crate) fn rebase(&mut self, collection: &CollectionState) {
        self.segments = collection.segments.clone();
        self.rules_epoch = collection.rules_epoch;
        self.holds = collection.holds.clone();
    }

    /// Removes and returns the items that were counted to their end; the caller drops them.
    pub(crate) fn take_counted(&mut self) -> Vec<(usize, Item)> {
        std::mem::take(&mut self.counted)
    }

    /// Counts up to `limit` buckets of a rule as dropped, without dropping them: that spares an edit for each visit, and
    /// reading the directories of segments that are due as a whole. [`Plan::take_counted`] and [`Plan::all_counted`] return
    /// what was counted.
    pub(crate) fn count(&mut self, rule: usize, limit: Option<u64>, out_of_time: &dyn Fn() -> bool) -> Result<Visit> {
        let mut visit = Visit::default();
        let Some(due) = self.due.get_mut(&rule) else { return Ok(visit) };
        let limit = limit.unwrap_or(u64::MAX);
        while visit.buckets < limit {
            let left = limit - visit.buckets;
            if visit.buckets > 0 && !due.is_empty() && out_of_time() {
                break;
            }
            match due.pop_front() {
                None => return Ok(visit),
                Some(Item::Segment { segment, buckets, counted, rows, bytes }) => {
                    let more = left.min(buckets - counted);
                    let item = Item::Segment { segment, buckets, counted: counted + more, rows, bytes };
                    visit.buckets += more;
                    if counted + more < buckets {
                        due.push_front(item);
                    } else {
                        visit.measurements += rows;
                        self.counted.push((rule, item));
                    }
                }
                Some(Item::Part { segment, ordinals, rows, .. }) if ordinals.len() > left => {
                    let segment = self.segments.get(&segment);
                    let segment = segment.ok_or_else(|| Error::internal("a plan holds the segments that it names"))?;
                    let (part, rest) = match split(segment, ordinals, rows, left) {
                        // What was counted before stays counted; another plan finds the rest.
                        Err(error) if visit.buckets > 0 && error.is_of_one_file() => break,
                        split => split?,
                    };
                    due.push_front(rest);
                    visit.buckets += part.buckets();
                    visit.measurements += part.rows();
                    self.counted.push((rule, part));
                }
                Some(item) => {
                    visit.buckets += item.buckets();
                    visit.measurements += item.rows();
                    self.counted.push((rule, item));
                }
            }
        }
        visit.stopped_at_limit = true;
        Ok(visit)
    }

    /// Everything that visits have counted and that is not yet dropped, by rule. The last item of a rule may have been counted
    /// in part.
    pub(crate) fn all_counted(&self) -> impl Iterator<Item = (usize, &Item)> {
        let begun = self.due.iter().filter_map(|(rule, items)| Some((*rule, items.front()?)));
        let begun = begun.filter(|(_, item)| matches!(item, Item::Segment { counted, .. } if *counted > 0));
        self.counted.iter().map(|(rule, item)| (*rule, item)).chain(begun)
    }

    /// Whether a collection still has the segments of an item as the plan saw them, under the same rules.
    pub(crate) fn still_holds(&self, collection: &CollectionState, item: &Item) -> bool {
        let is_same = |id: &u64| match (self.segments.get(id), collection.segments.get(id)) {
            (Some(planned), Some(present)) => Arc::ptr_eq(planned, present),
            _ => false,
        };
        self.has_rules_of(collection) && item.segments().iter().all(is_same)
    }
}
