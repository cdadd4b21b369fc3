//! Changes of a collection's name and fields, and copies.

use super::Database;
use crate::copy;
use crate::error::{Error, Result};
use crate::fields::{self, FieldChange};
use crate::manifest::Op;
use crate::options::check_collection_name;
use crate::state::State;
use ebbtide_ttl::Code;

impl Database {
    /// Gives a collection another name. Its measurements, options, rules and segment files stay as they are, and so does the
    /// folder of the files, which has the first name of the collection. Snapshots that are open know it by the old name; a
    /// [`Collection`](crate::Collection) that was obtained under the old name finds nothing any more. Views keep their text:
    /// those that name the collection fail until there is one of that name again.
    ///
    /// # Durability
    /// When this returns, the new name survives a power cut. At no time has the collection both names, or none.
    /// # Errors
    /// [`Code::NamespaceNotFound`] for `from`; [`Code::InvalidNamespace`] for `to`, [`Code::NamespaceExists`] if a collection or
    /// a view has that name, [`Code::IllegalOperation`] if it is the one that the collection has.
    pub fn rename_collection(&self, from: &str, to: &str) -> Result<()> {
        let engine = &self.engine;
        check_collection_name(to)?;
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let id = {
            let state = engine.state.read();
            let id = match state.documents(from) {
                Ok(documents) => documents.id,
                Err(_) => state.collection(from)?.id,
            };
            if from == to {
                let what = format!("collection '{from}' has this name already: give it another one");
                return Err(Error::new(Code::IllegalOperation, what));
            }
            check_free(&state, to)?;
            id
        };
        self.check_unheld(from, "the collection keeps its name")?;
        engine.commit(vec![Op::RenameCollection { id, name: to.to_owned() }])
    }

    /// Gives an ordinary collection the name of another one, which it replaces if that exists: in one step, so that readers see
    /// the old one or the new one.
    ///
    /// # Durability
    /// When this returns, the replacement survives a power cut.
    /// # Errors
    /// [`Code::NamespaceNotFound`] for `from`, [`Code::InvalidNamespace`] for `to`, [`Code::IllegalOperation`] if they are the
    /// same; [`Code::InvalidOptions`] if one of them is a time series; [`Code::NamespaceExists`] if `to` is a view.
    pub fn replace_collection(&self, from: &str, to: &str) -> Result<()> {
        let engine = &self.engine;
        check_collection_name(to)?;
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let mut ops = Vec::new();
        {
            let state = engine.state.read();
            let time_series = |name: &str| state.collection(name).is_ok();
            if let Some(name) = [from, to].into_iter().find(|name| time_series(name)) {
                return Err(Error::time_series_collection(name));
            }
            let id = state.documents(from)?.id;
            match state.documents.get(to) {
                Some(old) if old.id == id => {
                    let what = format!("collection '{from}' has this name already: give it another one");
                    return Err(Error::new(Code::IllegalOperation, what));
                }
                Some(old) => ops.push(Op::DropCollection { id: old.id }),
                None => check_free(&state, to)?,
            }
            ops.push(Op::RenameCollection { id, name: to.to_owned() });
        }
        engine.commit(ops)?;
        engine.cut_log_if_room()
    }

    /// Gives a field another name. The time field and the meta field keep theirs, and so do members of objects.
    ///
    /// All segments of the collection are rewritten, which takes as long and as much space on disk as a compaction of all of
    /// them. Inserts go on meanwhile and wait only at the end; those that still name the field as before make a new field.
    /// Snapshots that are open keep the old name. Expired measurements that were not dropped are kept.
    ///
    /// # Durability
    /// When this returns, the new name survives a power cut. Until then, all measurements have the old one.
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::BadValue`] if there is no such field, or one of the new name;
    /// [`Code::InvalidOptions`] for the time field, the meta field, a member of an object and a name that is not allowed;
    /// [`Code::OutOfDiskSpace`], and damage in a segment: nothing was changed.
    pub fn rename_field(&self, collection: &str, from: &str, to: &str) -> Result<()> {
        fields::change(&self.engine, collection, FieldChange::Rename { from, to })
    }

    /// Removes a field and its values, for good. The name is free for values of any type. In all else it is like
    /// [`Database::rename_field`].
    ///
    /// # Durability
    /// When this returns, the values do not come back after a power cut.
    /// # Errors
    /// As for [`Database::rename_field`].
    pub fn drop_field(&self, collection: &str, field: &str) -> Result<()> {
        fields::change(&self.engine, collection, FieldChange::Drop { field })
    }

    /// Makes a collection with the options, rules and fields of another one and the measurements that are visible in it now;
    /// returns their number. Values are the same to the bit. Expired measurements are not copied, and neither is the history
    /// of sweeps; buckets have the present width of windows.
    ///
    /// # Durability
    /// When this returns, the copy survives a power cut. At no time is there a part of it.
    /// # Errors
    /// [`Code::NamespaceNotFound`] for `from`; [`Code::InvalidNamespace`] for `to`, [`Code::NamespaceExists`] if a collection or
    /// a view has that name; [`Code::OutOfDiskSpace`], and damage in a segment: nothing was changed.
    pub fn copy_collection(&self, from: &str, to: &str) -> Result<u64> {
        check_collection_name(to)?;
        copy::copy(&self.engine, from, to, || check_free(&self.engine.state.read(), to))
    }
}

impl Database {
    /// Fails if an active hold covers anything that a time-series collection stores.
    pub(super) fn check_unheld(&self, collection: &str, action: &str) -> Result<()> {
        let snapshot = self.engine.snapshot();
        if snapshot.holds.iter().all(|hold| hold.lifted_at.is_some()) {
            return Ok(());
        }
        snapshot.collection(collection).map_or(Ok(()), |collection| collection.check_unheld(action))
    }
}

/// Refuses a name that a collection or a view has.
fn check_free(state: &State, name: &str) -> Result<()> {
    let taken = match (state.kind_of(name), state.views.contains_key(name)) {
        (Some("collection"), _) => format!("collection '{name}' exists already: drop it first, or choose another name"),
        (_, true) => format!("'{name}' is a view already: DROP VIEW removes it"),
        _ => return Ok(()),
    };
    Err(Error::new(Code::NamespaceExists, taken))
}
