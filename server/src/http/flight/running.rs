//! Queries whose rows are being sent, which `CancelFlightInfo` and `CancelQuery` end by their tickets.

use arrow_flight::FlightInfo;
use axum::body::Bytes;
use futures::stream::{AbortHandle, Abortable, BoxStream};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::Status;

struct Query {
    ticket: Bytes,
    account: String,
    handle: AbortHandle,
}

#[derive(Default)]
struct Table {
    queries: HashMap<u64, Query>,
    next: u64,
}

/// The queries that are running.
#[derive(Clone, Default)]
pub(super) struct RunningQueries(Arc<Mutex<Table>>);

/// Removes a query when its rows are sent or nobody takes them any more.
struct Listed {
    queries: RunningQueries,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.queries.0.lock().queries.remove(&self.number);
    }
}

impl RunningQueries {
    /// The rows of the query with this ticket, which end with an error when it is cancelled.
    pub(super) fn cancellable<T: Send + 'static>(
        &self,
        ticket: Bytes,
        account: String,
        rows: BoxStream<'static, Result<T, Status>>,
    ) -> BoxStream<'static, Result<T, Status>> {
        let (handle, registration) = AbortHandle::new_pair();
        let listed = {
            let mut table = self.0.lock();
            let number = table.next;
            table.next += 1;
            table.queries.insert(number, Query { ticket, account, handle: handle.clone() });
            Listed { queries: self.clone(), number }
        };
        let state = (Some(Abortable::new(rows, registration)), handle, listed);
        let rows = stream::unfold(state, |(rows, handle, listed)| async move {
            let mut rows = rows?;
            match rows.next().await {
                Some(next) => Some((next, (Some(rows), handle, listed))),
                None if handle.is_aborted() => {
                    let error = Err(Status::cancelled("the query was cancelled by its client"));
                    Some((error, (None, handle, listed)))
                }
                None => None,
            }
        });
        rows.boxed()
    }

    /// Ends the queries of a result, if the account began them; whether there were any.
    pub(super) fn cancel(&self, info: &FlightInfo, account: &str) -> bool {
        let is_meant = |query: &&Query| {
            let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
            query.account == account && tickets.into_iter().any(|ticket| ticket.ticket == query.ticket)
        };
        let table = self.0.lock();
        table.queries.values().filter(is_meant).map(|query| query.handle.abort()).count() > 0
    }
}
