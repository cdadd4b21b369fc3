//! Published tables.

use super::Database;
use crate::error::Result;
use crate::publication::{PublicationInfo, PublishedVersion, publisher};

impl Database {
    /// Publishes a time-series collection at a place (`file:///folder`, `s3://bucket/path`, `gs://bucket/path`,
    /// `az://container/path`): a table of what is visible, which other programs read, and whose first version is there when this
    /// returns. The background makes a version every `every_seconds`, 1 to 86,400; without it [`Database::publish_now`] does. A
    /// collection that is published already gets another place or interval; what is at the old place stays. A table at the place
    /// that a copy of this database has published is taken over.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::NamespaceNotFound`]; [`ebbtide_ttl::Code::InvalidOptions`] for a URL or an interval that is not
    /// allowed, or a place that another collection uses; [`ebbtide_ttl::Code::HostUnreachable`] if the place cannot be written to
    /// or has another table. After an error everything is as before.
    pub fn publish(&self, collection: &str, url: &str, every_seconds: i64) -> Result<PublishedVersion> {
        publisher::publish_to(&self.engine, (collection, None), url, every_seconds)
    }

    /// Brings the table of a published collection up to date now.
    ///
    /// # Errors
    /// As for [`Database::publish`]; [`ebbtide_ttl::Code::InvalidOptions`] if the collection is not published.
    pub fn publish_now(&self, collection: &str) -> Result<PublishedVersion> {
        publisher::run_now(&self.engine, (collection, None))
    }

    /// Ends the publication of a collection. The table stays as it is, and nothing in it expires from then on. Programs that still
    /// read it should use its views.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::NamespaceNotFound`]; [`ebbtide_ttl::Code::InvalidOptions`] if the collection is not published.
    pub fn unpublish(&self, collection: &str) -> Result<()> {
        publisher::unpublish(&self.engine, (collection, None))
    }

    /// Publishes what the bins of a rung show, the one with this step: a table with the columns of
    /// [`CollectionSnapshot::rollup`](crate::CollectionSnapshot::rollup), where sums are doubles. All else is as with
    /// [`Database::publish`], but each version is computed from the whole rung, so the interval should not be much shorter than the step.
    /// When the rung goes, its publication ends.
    ///
    /// # Errors
    /// As for [`Database::publish`]; [`ebbtide_ttl::Code::InvalidOptions`] if there is no such rung.
    pub fn publish_rung(
        &self,
        collection: &str,
        step_seconds: i64,
        url: &str,
        every_seconds: i64,
    ) -> Result<PublishedVersion> {
        publisher::publish_to(&self.engine, (collection, Some(step_seconds)), url, every_seconds)
    }

    /// Brings the table of a published rung up to date now.
    ///
    /// # Errors
    /// As for [`Database::publish_rung`]; [`ebbtide_ttl::Code::InvalidOptions`] if the rung is not published.
    pub fn publish_rung_now(&self, collection: &str, step_seconds: i64) -> Result<PublishedVersion> {
        publisher::run_now(&self.engine, (collection, Some(step_seconds)))
    }

    /// Ends the publication of a rung. The table stays as it is.
    ///
    /// # Errors
    /// As for [`Database::unpublish`]; [`ebbtide_ttl::Code::InvalidOptions`] if there is no such rung.
    pub fn unpublish_rung(&self, collection: &str, step_seconds: i64) -> Result<()> {
        publisher::unpublish(&self.engine, (collection, Some(step_seconds)))
    }

    /// The published collections and rungs. In a process that has made no version yet, the tables are asked for their newest ones, which takes a
    /// request or more for each.
    #[must_use]
    pub fn publications(&self) -> Vec<PublicationInfo> {
        publisher::list(&self.engine)
    }
}
