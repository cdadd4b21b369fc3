//! Archives of [`ebbtide`]: tables in object storage, or in folders, to which what expires is moved instead of being deleted.
//!
//! A table is one of Delta Lake: Parquet files, and a log of JSON lines that says which of them count. Other programs read it while
//! Ebbtide adds to it. A place is a URL: `file:///folder`, `s3://bucket/path`, `gs://bucket/path` or `az://container/path`. Keys and
//! endpoints come from the environment, as the tools of these services have them (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
//! `AZURE_STORAGE_ACCOUNT_NAME`, `GOOGLE_SERVICE_ACCOUNT`, ...), and are never shown.
//!
//! ```
//! use ebbtide::{CollectionOptions, Database};
//! use ebbtide_lake::Lake;
//! use std::sync::Arc;
//!
//! # let folder = tempfile::tempdir()?;
//! let archive = format!("file://{}", folder.path().join("archive").display());
//! let db = Database::builder(folder.path().join("db")).archives(Arc::new(Lake::new())).open()?;
//! db.create_collection("weather", CollectionOptions::new("t").expire_after_seconds(3600).expire_into(archive))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The program of the page on copies.
#[cfg(doctest)]
#[doc = include_str!("../../docs/copies.md")]
struct CopiesPage;

mod bounds;
mod busy;
mod cancellation;
mod checkpoint;
mod copies;
mod file;
mod folder;
mod log;
mod objects;
mod places;
mod publish;
mod reader;
mod schema;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod sim;
mod store;
mod table;
mod vectors;
mod views;

pub use cancellation::Cancellation;
pub use places::Lake;
pub use store::{Object, Store, StoreError};
pub use table::Table;
