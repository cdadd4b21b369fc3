//! Documents of ordinary collections, as MongoDB knows them: BSON values and their order, filters, updates, and when a
//! document expires.
//!
//! Everything here is a function of its arguments: nothing opens a file or reads the clock.

pub use bson;

pub use ebbtide_ttl::{Code, RuleError};

/// The result of an operation on documents.
pub type Result<T> = std::result::Result<T, RuleError>;
