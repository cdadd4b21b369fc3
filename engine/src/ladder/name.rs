//! How a rung is named to people.

use super::rung_of;
use crate::state::State;

/// What a collection is called, or the one that a rung is of, and the rung's step.
pub(crate) fn named(state: &State, name: &str) -> (String, Option<i64>) {
    let rung = rung_of(name).and_then(|(parent, step)| Some((state.by_id(parent)?.name.clone(), Some(step))));
    rung.unwrap_or_else(|| (name.to_owned(), None))
}
