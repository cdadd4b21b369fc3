//! What the caller of a sweep chooses.

use crate::hand_off::sink::ExpirySink;
use crate::ladder::rung_of;
use crate::state::CollectionState;
use std::fmt;
use std::sync::Arc;

/// Limits of a pass of the sweeper, and what becomes of what it drops.
#[derive(Clone, Default)]
pub struct SweepOptions {
    /// Stops after this number of sub-passes, even if more is due.
    pub max_sub_passes: Option<u64>,
    /// Takes over what this pass drops of every time-series collection without a sink of its own. Documents that have expired are
    /// not handed over: such a pass leaves them for the next one without a sink, still hidden from reads.
    pub sink: Option<Arc<dyn ExpirySink>>,
    /// Drops without a hand-off where one is required, and no sink is registered.
    pub without_sink: bool,
    /// Leaves a core to other work, as the passes of [`Database::start_background`](crate::Database::start_background) do.
    pub leave_a_core: bool,
}

impl fmt::Debug for SweepOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SweepOptions { max_sub_passes, sink, without_sink, leave_a_core } = self;
        let mut shown = f.debug_struct("SweepOptions");
        shown.field("max_sub_passes", max_sub_passes).field("has_sink", &sink.is_some());
        shown.field("without_sink", without_sink).field("leave_a_core", leave_a_core).finish()
    }
}

impl SweepOptions {
    /// Whether some buckets of a collection are dropped only after a hand-off, or once they are in an archive.
    pub(crate) fn hands_any_off(&self, collection: &CollectionState) -> bool {
        self.hands_off(collection) || collection.archives().any(|archive| archive.index.is_some())
    }

    /// Whether all of them are.
    pub(crate) fn hands_off(&self, collection: &CollectionState) -> bool {
        // Bins are not handed over.
        rung_of(&collection.name).is_none()
            && (collection.options.expire_into.is_some()
                || self.sink.is_some()
                || ((collection.options.hand_off || collection.sink.sink().is_some()) && !self.without_sink))
    }
}
