//! The database that a request names, or the only one.

use super::failed::Failed;
use super::problem::Problem;
use crate::shared::Shared;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use ebbtide::Database;
use ebbtide_ttl::Code;
use serde::Deserialize;

/// The parameters of a request that has only `db`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    db: Option<String>,
}

pub(super) type OfDatabase = Result<Query<Parameters>, QueryRejection>;

/// The name that a request gives, if it gives one.
pub(super) fn named(asked: OfDatabase) -> Result<Option<String>, Problem> {
    let Query(parameters) = asked.map_err(|error| Problem::bad(error.body_text()))?;
    Ok(parameters.db)
}

/// The database of a write.
pub(super) fn of_request(shared: &Shared, name: Option<&str>) -> Result<Database, Problem> {
    database(shared, name).map_err(|failed| Problem::new(failed.status, failed.message))
}

/// The database of a name, or the only one.
pub(super) fn database(shared: &Shared, name: Option<&str>) -> Result<Database, Failed> {
    let missing = |what: String| Failed::new(StatusCode::NOT_FOUND, Code::NamespaceNotFound, what);
    let all = || shared.databases.all();
    let names = || all().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    match name {
        Some(name) => shared
            .databases
            .get(name)?
            .ok_or_else(|| missing(format!("there is no database '{name}'; there are: {}", names()))),
        None => match all().as_slice() {
            [(_, only)] => Ok(only.clone()),
            [] => Err(missing("there is no database: a write creates one".to_owned())),
            _ => Err(Failed::mistake(format!("the parameter db is missing: it names one of {}", names()))),
        },
    }
}
