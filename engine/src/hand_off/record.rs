//! What the manifest knows of a hand-off that is under way.

use ebbtide_buckets::{BucketId, MetaKey, Window};
use ebbtide_ttl::Value;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// The identities of buckets that were handed over, or may have been, and are not dropped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HandedOver {
    /// The generation of the next bucket that is handed over for the first time.
    next: u64,
    pending: Vec<Pending>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pending {
    meta: Value,
    window: (i64, i64),
    generation: u64,
}

impl Pending {
    fn id(&self) -> BucketId {
        let (start, end) = self.window;
        BucketId { meta: MetaKey::of(&self.meta), window: Window { start, end } }
    }
}

impl HandedOver {
    pub(super) fn generations(&self) -> HashMap<BucketId, u64> {
        self.pending.iter().map(|pending| (pending.id(), pending.generation)).collect()
    }

    pub(super) fn add(&mut self, id: &BucketId) -> u64 {
        let generation = self.next;
        self.next += 1;
        let window = (id.window.start, id.window.end);
        self.pending.push(Pending { meta: id.meta.value(), window, generation });
        generation
    }

    pub(super) fn remove(&mut self, gone: &HashSet<BucketId>) {
        self.pending.retain(|pending| !gone.contains(&pending.id()));
    }
}
