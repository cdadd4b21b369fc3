//! The session of DataFusion, which is made once the clock allows it.
//!
//! DataFusion reads the clock when it makes a session and when it runs a plan, and panics if the clock is before 1970. Statements
//! that are not queries need neither.

use crate::context::SessionSource;
use crate::error::{QueryError, Result};
use datafusion::execution::context::SessionState;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use ebbtide_ttl::{Clock, Code, SystemClock, Timestamp};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Adds functions and tables to a new session.
type Complete = Box<dyn Fn(&SessionContext) -> Result<()> + Send>;

/// The session, or what it is to be made of.
pub(crate) struct LateContext {
    made: OnceLock<SessionContext>,
    /// `None` once the session is made.
    waiting: Mutex<Option<(SessionState, Complete)>>,
    /// The clock of this machine.
    now: fn() -> Timestamp,
}

impl LateContext {
    /// Makes the session from this state, now or when the clock allows it.
    ///
    /// # Errors
    /// What `complete` fails with.
    pub(crate) fn new(
        state: SessionState,
        complete: impl Fn(&SessionContext) -> Result<()> + Send + 'static,
    ) -> Result<LateContext> {
        LateContext::by_clock(state, complete, machine_now)
    }

    fn by_clock(
        state: SessionState,
        complete: impl Fn(&SessionContext) -> Result<()> + Send + 'static,
        now: fn() -> Timestamp,
    ) -> Result<LateContext> {
        let waiting = Mutex::new(Some((state, Box::new(complete) as Complete)));
        let context = LateContext { made: OnceLock::new(), waiting, now };
        match context.get() {
            Err(error) if context.check_clock().is_ok() => Err(error),
            _ => Ok(context),
        }
    }

    /// Checks that queries can run.
    ///
    /// # Errors
    /// [`Code::IllegalOperation`] if the clock is before 1970.
    pub(crate) fn check_clock(&self) -> Result<()> {
        check((self.now)())
    }

    /// The session.
    ///
    /// # Errors
    /// As for [`LateContext::check_clock`], and what completing it fails with, if it has not been made yet.
    pub(crate) fn get(&self) -> Result<&SessionContext> {
        if let Some(context) = self.made.get() {
            return Ok(context);
        }
        self.check_clock()?;
        let mut waiting = self.waiting();
        if let Some((state, complete)) = waiting.as_ref() {
            // After an error it is tried again.
            let context = SessionContext::new_with_state(state.clone());
            complete(&context)?;
            drop(self.made.set(context));
            *waiting = None;
        }
        self.made.get().ok_or_else(|| QueryError::new(Code::InternalError, "the session was not made"))
    }

    fn waiting(&self) -> MutexGuard<'_, Option<(SessionState, Complete)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the session; before it is made, one without its functions.
    pub(crate) fn state(&self) -> SessionState {
        if let Ok(context) = self.get() {
            return context.state();
        }
        let waiting = self.waiting().as_ref().map(|(state, _)| state.clone());
        waiting.unwrap_or_else(|| SessionStateBuilder::new().build())
    }
}

fn machine_now() -> Timestamp {
    SystemClock::new().now()
}

fn check(now: Timestamp) -> Result<()> {
    if now >= Timestamp::EPOCH {
        return Ok(());
    }
    let what = "queries cannot run while the clock of this machine is before 1970: set the clock";
    Err(QueryError::new(Code::IllegalOperation, what))
}

/// Checks that sessions of DataFusion can be made.
///
/// # Errors
/// As for [`LateContext::check_clock`].
#[cfg(feature = "postgres")]
pub(crate) fn check_clock() -> Result<()> {
    check(machine_now())
}

impl SessionSource for LateContext {
    fn config(&self) -> SessionConfig {
        match self.get() {
            Ok(context) => context.copied_config(),
            Err(_) => self.state().config().clone(),
        }
    }

    fn state(&self) -> SessionState {
        LateContext::state(self)
    }
}

#[cfg(test)]
mod tests;
