//! A part of a collection, for readers that share its segments.

use super::CollectionSnapshot;
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::state::CollectionState;
use ebbtide_ttl::Code;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

impl CollectionSnapshot {
    /// The same with these segments only, by the names that [`CollectionSnapshot::segments`] gives, and with or without open
    /// buckets. Several parts that together have each segment once, and one of them the open buckets, have each measurement once.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if the collection has no segment of a name.
    pub fn part(&self, segments: &[String], has_open: bool) -> Result<CollectionSnapshot> {
        let mut wanted: HashSet<&str> = segments.iter().map(String::as_str).collect();
        let mut chosen = BTreeMap::new();
        for (id, segment) in self.state.segments.iter() {
            if wanted.remove(segment.file.relative_path().to_string_lossy().as_ref()) {
                chosen.insert(*id, segment.clone());
            }
        }
        if let Some(missing) = wanted.into_iter().next() {
            let what = format!("collection '{}' has no segment {missing}", self.name());
            return Err(Error::new(Code::NamespaceNotFound, what));
        }
        let mut state = CollectionState { segments: Arc::new(chosen), ..(*self.state).clone() };
        if !has_open {
            state.memtable = Memtable::default();
        }
        Ok(CollectionSnapshot { state: Arc::new(state), ..self.clone() })
    }
}
