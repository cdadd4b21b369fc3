//! Documents of ordinary collections, as MongoDB knows them: BSON values and their order, filters, updates, and when a
//! document expires.
//!
//! Everything here is a function of its arguments: nothing opens a file or reads the clock.

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod cases;
mod decimal;
mod distinct;
mod expiry;
mod expression;
mod filter;
pub mod json;
mod key;
mod order;
mod paths;
mod pipeline;
mod projection;
mod raw;
mod sort;
mod stop;
mod stored;
mod update;
mod validate;

pub use bson;

pub use decimal::Decimal;
pub use distinct::Distinct;
pub use ebbtide_ttl::{Code, RuleError};
pub use expiry::{
    DefaultTtl, ITEMS_RULE, ItemRules, ItemTtl, RuleName, TTL_FIELD, TTL_SECONDS_MAX, TtlIndex, check_ttl,
    earliest_date, has_expired,
};
pub use expression::figure::{Figure, FigureValue};
pub use expression::{Constants, Expression, ExpressionError};
pub use filter::{Filter, Interval, Multiplicity, Purpose};
pub use key::{append_value_key, id_key, id_of, value_key};
pub use order::{TypeClass, compare, compare_objects, whole_number};
pub use paths::{Path, index_keys};
pub use pipeline::{
    FirstGroups, Foreign, GroupPlan, Memory as PipelineMemory, Pipeline, PipelineRun, Take, UnionWith, WindowFigures,
    all_of, has_expressions, split_expressions,
};
pub use projection::Projection;
pub use raw::element::{Element, Elements, NextElement};
pub use raw::type_name;
pub use raw::writer::DocumentWriter;
pub use sort::Sort;
pub use stored::{with_id_of_key, without_id};
pub use update::Update;
pub use validate::{DOCUMENT_BYTES_MAX, ObjectIds, check, with_id};

/// The result of an operation on documents.
pub type Result<T> = std::result::Result<T, RuleError>;
