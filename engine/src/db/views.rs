//! Views: statements that are kept under a name. What they mean, a query engine says.

use super::Database;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::options::check_view;
use ebbtide_ttl::Code;

impl Database {
    /// Keeps the statement that makes a view, under the name of the view. With `replaces` one that is there may be changed.
    ///
    /// # Durability
    /// When this returns, the view survives a power cut.
    /// # Errors
    /// [`Code::InvalidNamespace`] for the name, [`Code::NamespaceExists`] if a collection has it, or a view without `replaces`,
    /// [`Code::BSONObjectTooLarge`] for a statement of more than a mebibyte.
    pub fn put_view(&self, name: &str, text: &str, replaces: Replaces) -> Result<()> {
        let engine = &self.engine;
        engine.check_writable()?;
        check_view(name, text)?;
        let _maintenance = engine.maintenance.lock();
        {
            let state = engine.state.read();
            if state.collections.contains_key(name) || state.documents.contains_key(name) {
                return Err(Error::new(Code::NamespaceExists, format!("'{name}' is a collection already")));
            }
            if replaces == Replaces::Nothing && state.views.contains_key(name) {
                let what = format!("view '{name}' exists: CREATE OR REPLACE VIEW changes it");
                return Err(Error::new(Code::NamespaceExists, what));
            }
        }
        engine.commit(vec![Op::PutView { name: name.to_owned(), text: text.to_owned() }])
    }

    /// Removes a view.
    ///
    /// # Durability
    /// When this returns, the view does not come back.
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn drop_view(&self, name: &str) -> Result<()> {
        let engine = &self.engine;
        engine.check_writable()?;
        let _maintenance = engine.maintenance.lock();
        if !engine.state.read().views.contains_key(name) {
            return Err(Error::new(Code::NamespaceNotFound, format!("view '{name}' does not exist")));
        }
        engine.commit(vec![Op::DropView { name: name.to_owned() }])
    }
}

/// What [`Database::put_view`] may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// Nothing: a view of the name must not be there.
    Nothing,
    /// A view of the name.
    View,
}
