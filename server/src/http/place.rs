//! The collections of a write. What is not there yet is created once it is known that something will be stored in it.

use super::lines::TIME;
use super::problem::Problem;
use crate::settings::AutoCreate;
use crate::shared::Shared;
use axum::http::StatusCode;
use ebbtide::buckets::{Measurement, Schema, batch_from_measurements};
use ebbtide::{Collection, CollectionOptions, Database, check_accepted, check_collection_name};
use ebbtide_ttl::{Code, Precision};
use std::sync::Arc;

/// A collection, or one that may be created, and its fields.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// None if it has to be created.
    pub(super) collection: Option<Collection>,
    pub(super) schema: Arc<Schema>,
}

impl Place {
    /// The collection of this name. If there is none, and `[autocreate]` is on, it may be created with these fields.
    pub(super) fn of(
        (shared, database): (&Shared, &Database),
        name: &str,
        (meta, precision): (&str, Precision),
    ) -> Result<Place, Problem> {
        let missing = match database.collection(name) {
            Err(error) if error.code() == Code::NamespaceNotFound => error,
            found => {
                let collection = found?;
                let schema = Arc::clone(collection.snapshot()?.schema());
                return Ok(Place { collection: Some(collection), schema });
            }
        };
        if !shared.settings.auto_create_lines.enabled {
            return Err(Problem::bad(format!("{missing}; and [autocreate] is off")));
        }
        check_collection_name(name)?;
        let snapshot = database.snapshot();
        if snapshot.has_collection(name) || snapshot.views().contains_key(name) {
            let what = format!("'{name}' is an ordinary collection or a view: send measurements to another name");
            return Err(Problem::bad(what));
        }
        Ok(Place { collection: None, schema: Arc::new(Schema::new(TIME, Some(meta.to_owned()), precision)) })
    }

    /// Whether the collection, or a new one, would take these measurements: the error is about the first that it would not.
    pub(super) fn check<'a>(&self, measurements: &[impl Measurement<'a>]) -> ebbtide::Result<()> {
        if let Some(collection) = &self.collection {
            return collection.check_measurements(measurements);
        }
        let options = CollectionOptions::new(TIME);
        let check = |rows: usize| {
            let accepted = batch_from_measurements(&measurements[..rows], &self.schema)?;
            check_accepted(accepted, &options)
        };
        let mut outcome = check(measurements.len());
        while let Err(error) = &outcome
            && let Err(earlier) = check(error.index().unwrap_or(0))
        {
            outcome = Err(earlier);
        }
        outcome
    }

    /// Creates the collection, if it has to be.
    pub(super) fn create(
        &mut self,
        database: &Database,
        name: &str,
        options: impl FnOnce() -> CollectionOptions,
    ) -> Result<(), Problem> {
        if self.collection.is_some() {
            return Ok(());
        }
        let collection = match database.create_collection(name, options()) {
            // Another request was faster.
            Err(error) if error.code() == Code::NamespaceExists => database.collection(name)?,
            made => made?,
        };
        let snapshot = collection.snapshot()?;
        let fields = |schema: &Schema| (schema.time.clone(), schema.meta.clone());
        if fields(snapshot.schema()) != fields(&self.schema) {
            let what = format!("collection '{name}' was created meanwhile with other fields: send the request again");
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, what));
        }
        self.collection = Some(collection);
        Ok(())
    }
}

/// How a collection is created for a bucket.
pub(super) fn options(auto: &AutoCreate, bucket: &str, meta: &str) -> CollectionOptions {
    let options = CollectionOptions::new(TIME).meta_field(meta);
    match auto.buckets.get(bucket).copied().or(auto.expire_after_seconds) {
        Some(seconds) => options.expire_after_seconds(seconds),
        None => options,
    }
}
