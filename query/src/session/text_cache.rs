//! Queries whose text a session runs repeatedly, with the same or with other literals: they are optimized once.
//!
//! The second time that a text occurs, apart from the literals that something is compared with, it is prepared with parameters
//! in their places. If it has a plan for all values (see [`crate::prepared`]), it runs with that plan from then on, without being
//! parsed. If it has none, or the plan does not fit a value or fails, the text runs as it is. So errors are always those of the
//! text.

use super::{Session, StatementStream};
use crate::prepared::PreparedQuery;
use crate::statement::{OpenQuery, ParameterizedQuery, Statement, parse};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::context::SessionState;
use quick_cache::unsync::Cache;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Texts that a session remembers.
const TEXTS_MAX: usize = 64;
/// A longer text is not remembered.
const BYTES_MAX: usize = 4 << 10;
/// Nor is a query with more columns, whose plan needs much memory.
const COLUMNS_MAX: usize = 256;

/// The texts that a session has run.
pub(super) struct TextCache {
    texts: Mutex<Cache<OpenQuery, TextState>>,
}

/// How a text is run.
#[derive(Debug, Clone)]
enum TextState {
    /// As text: it was run once so far.
    Once,
    Prepared(Arc<PreparedQuery>),
    /// As text: it has no plan for all values.
    NotGeneric,
}

impl Default for TextCache {
    fn default() -> Self {
        TextCache { texts: Mutex::new(Cache::new(TEXTS_MAX)) }
    }
}

impl fmt::Debug for TextCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.texts();
        let plans =
            texts.iter().filter(|(_, known)| matches!(known, TextState::Prepared(query) if query.has_generic_plan()));
        f.debug_struct("TextCache").field("texts", &texts.len()).field("plans", &plans.count()).finish()
    }
}

impl TextCache {
    fn texts(&self) -> MutexGuard<'_, Cache<OpenQuery, TextState>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was known of a query before this run, which is noted.
    fn noted(&self, query: &OpenQuery) -> Option<TextState> {
        let mut texts = self.texts();
        let known = texts.get(query).cloned();
        if known.is_none() {
            texts.insert(query.clone(), TextState::Once);
        }
        known
    }

    fn prepared(&self, query: &OpenQuery) -> Option<Arc<PreparedQuery>> {
        match self.texts().get(query) {
            Some(TextState::Prepared(prepared)) => Some(Arc::clone(prepared)),
            _ => None,
        }
    }
}

/// A statement that clients prepare, with the parameters that it has; `None` if it is too long to be remembered.
fn as_prepared(statement: &Statement) -> Option<OpenQuery> {
    (statement.text.len() <= BYTES_MAX).then(|| OpenQuery { text: statement.text.clone(), types: None })
}

impl Session {
    /// Starts a query with the plan that it has for all values; `None` if it has none yet.
    pub(crate) async fn start_repeated(&self, statement: &Statement) -> Option<StatementStream> {
        let ParameterizedQuery { query, values } = self.repeatable(statement)?;
        let prepared = match self.text_cache.noted(query) {
            None | Some(TextState::NotGeneric) => return None,
            Some(TextState::Prepared(prepared)) => prepared,
            Some(TextState::Once) => {
                // A query that is wrong now may be right later.
                let prepared = self.prepare_repeated(query).await?;
                self.text_cache.texts().insert(query.clone(), TextState::Prepared(Arc::clone(&prepared)));
                prepared
            }
        };
        let started = prepared.start_generic(self, values).await;
        if started.is_none() && prepared.has_no_generic_plan() {
            self.text_cache.texts().insert(query.clone(), TextState::NotGeneric);
        }
        started
    }

    /// Starts a query that was run before, perhaps with other literals, if its plan is known and reads few rows, so that its
    /// rows can be read on a thread that must not be blocked for long; `None` otherwise.
    pub async fn start_short(&self, statement: &Statement) -> Option<StatementStream> {
        let ParameterizedQuery { query, values } = self.repeatable(statement)?;
        self.text_cache.prepared(query)?.start_short(self, values).await.ok().flatten()
    }

    /// The columns of the rows of a query that was run before, perhaps with other literals, if its plan is known.
    #[must_use]
    pub fn known_columns(&self, statement: &Statement) -> Option<SchemaRef> {
        let ParameterizedQuery { query, .. } = self.repeatable(statement)?;
        self.text_cache.prepared(query)?.known_columns(self)
    }

    /// Whether a statement is known to be a query that only reads, since it was run before, perhaps with other literals, or
    /// prepared: only queries of collections have generic plans.
    pub(super) fn is_known_query(&self, statement: &Statement) -> bool {
        let as_text = self.repeatable(statement).and_then(|found| self.text_cache.prepared(&found.query));
        let prepared = as_text.or_else(|| self.text_cache.prepared(&as_prepared(statement)?));
        prepared.is_some_and(|prepared| prepared.has_generic_plan())
    }

    /// The query that a statement of this `whole` text was prepared as.
    pub(crate) fn prepared_before(&self, statement: &Statement, whole: &str) -> Option<Arc<PreparedQuery>> {
        self.text_cache.prepared(&as_prepared(statement)?).filter(|query| query.source().1 == whole)
    }

    /// Keeps a query that was prepared.
    pub(crate) fn keep_prepared(&self, query: &Arc<PreparedQuery>) {
        let (statement, whole) = query.source();
        if whole.len() <= BYTES_MAX
            && query.column_count() <= COLUMNS_MAX
            && let Some(key) = as_prepared(statement)
        {
            self.text_cache.texts().insert(key, TextState::Prepared(Arc::clone(query)));
        }
    }

    fn repeatable<'a>(&self, statement: &'a Statement) -> Option<&'a ParameterizedQuery> {
        let are_doubles = |session: &SessionState| !session.config_options().sql_parser.parse_float_as_decimal;
        let is_short = statement.text.len() <= BYTES_MAX;
        if is_short && are_doubles(&self.context.get().ok()?.state_ref().read()) {
            statement.parameterized()
        } else {
            None
        }
    }

    /// Prepares a query with parameters in the places of its literals.
    async fn prepare_repeated(&self, query: &OpenQuery) -> Option<Arc<PreparedQuery>> {
        let statement = parse(&query.text).ok()?.pop()?;
        let prepared = self.prepare_new(statement, &query.text).await.ok()?;
        prepared.has_run(COLUMNS_MAX);
        Some(prepared)
    }
}
