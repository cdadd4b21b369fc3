//! Changes of a collection's name.

use super::Database;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::options::check_collection_name;
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
            let id = match state.documents.get(from) {
                Some(documents) => documents.id,
                None => state.collection(from)?.id,
            };
            if from == to {
                let what = format!("collection '{from}' has this name already: give it another one");
                return Err(Error::new(Code::IllegalOperation, what));
            }
            let taken = match (state.kind_of(to), state.views.contains_key(to)) {
                (Some("collection"), _) => "collection '{}' exists already: drop it first, or choose another name",
                (_, true) => "'{}' is a view already: DROP VIEW removes it",
                _ => "",
            };
            if !taken.is_empty() {
                return Err(Error::new(Code::NamespaceExists, taken.replace("{}", to)));
            }
            id
        };
        engine.commit(vec![Op::RenameCollection { id, name: to.to_owned() }])
    }
}
