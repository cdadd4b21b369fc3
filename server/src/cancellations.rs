//! Ends statements of PostgreSQL's protocol from another connection.

use crate::scram;
use parking_lot::Mutex;
use pgwire::messages::cancel::CancelRequest;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The statements that can be ended from another connection, by the number of theirs.
#[derive(Debug, Default)]
pub(crate) struct Cancellations(Mutex<HashMap<i32, (i32, Arc<Notify>)>>);

/// The place of a connection among those whose statements can be ended.
pub(crate) struct Cancellable<'a> {
    all: &'a Cancellations,
    pub(crate) number: i32,
    pub(crate) secret: i32,
    pub(crate) ended: Arc<Notify>,
}

impl Cancellations {
    /// # Errors
    /// Without random numbers.
    pub(crate) fn enter(&self, number: i32) -> Result<Cancellable<'_>, String> {
        let secret = scram::random()?;
        let (secret, ended) = (i32::from_be_bytes(secret), Arc::new(Notify::new()));
        self.0.lock().insert(number, (secret, Arc::clone(&ended)));
        Ok(Cancellable { all: self, number, secret, ended })
    }

    /// Ends the statement that a request names, if its secret is right.
    pub(crate) fn cancel(&self, request: &CancelRequest) {
        let all = self.0.lock();
        if let Some((secret, ended)) = all.get(&request.pid)
            && request.secret_key.as_i32() == Some(*secret)
        {
            // It is kept until the statement looks. The next message forgets it.
            ended.notify_one();
        }
    }
}

impl Drop for Cancellable<'_> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.number);
    }
}
