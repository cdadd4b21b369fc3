//! Registering sinks.

use super::Database;
use crate::error::Result;
use crate::hand_off::sink::ExpirySink;
use crate::options::CollectionChange;
use std::sync::Arc;

impl Database {
    /// Registers the sink of a time-series collection: from now on its buckets are dropped only after the sink has taken them over,
    /// whatever rule they go by. The collection remembers that (`handOff` in `listCollections`): a database that is opened later
    /// drops nothing there before a sink is registered, unless a sweep is told to ([`crate::SweepOptions::without_sink`]).
    ///
    /// The sink is called by sweeps, in a thread of its own, at least once for each bucket: a bucket that is handed over and not
    /// dropped before a crash is handed over again under the same identity. A call that takes longer than `ttlHandOffTimeoutMS`
    /// (30,000 by default) counts as failed.
    ///
    /// ```
    /// use ebbtide::{CollectionOptions, Database, ExpiredBucket, SinkError};
    /// use std::sync::Arc;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let db = Database::open(folder.path().join("db"))?;
    /// db.create_collection("weather", CollectionOptions::new("t").expire_after_seconds(3600))?;
    /// db.on_expiry("weather", Arc::new(|bucket: &ExpiredBucket| -> Result<(), SinkError> {
    ///     println!("{} measurements of {:?} go", bucket.rows.num_rows(), bucket.meta);
    ///     Ok(())
    /// }))?;
    /// db.sweep()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::NamespaceNotFound`]; [`ebbtide_ttl::Code::InvalidOptions`] for an ordinary collection.
    pub fn on_expiry(&self, collection: &str, sink: Arc<dyn ExpirySink>) -> Result<()> {
        let slot = self.engine.state.read().collection(collection)?.sink.clone();
        let change = CollectionChange { hand_off: Some(true), ..CollectionChange::default() };
        self.modify_collection(collection, &change, None)?;
        let mut slot = slot.0.lock();
        slot.sink = Some(sink);
        slot.failed = None;
        Ok(())
    }

    /// Removes the sink of a collection: its buckets are dropped without a hand-off from now on.
    ///
    /// # Errors
    /// As for [`Database::on_expiry`].
    pub fn remove_expiry_sink(&self, collection: &str) -> Result<()> {
        let slot = self.engine.state.read().collection(collection)?.sink.clone();
        let change = CollectionChange { hand_off: Some(false), ..CollectionChange::default() };
        self.modify_collection(collection, &change, None)?;
        slot.0.lock().sink = None;
        Ok(())
    }
}
