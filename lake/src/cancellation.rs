//! Ends requests to object storage that are not answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// Cancels requests to object storage, those that run and all later ones. What was to be written may be written all the same. Clones
/// cancel the same requests; [`crate::Lake::cancelled_by`] says which.
#[derive(Debug, Clone)]
pub struct Cancellation(Arc<Requests>);

#[derive(Debug)]
struct Requests {
    cancelled: watch::Sender<bool>,
    answered: AtomicU64,
}

impl Default for Cancellation {
    fn default() -> Self {
        Cancellation(Arc::new(Requests { cancelled: watch::Sender::new(false), answered: AtomicU64::new(0) }))
    }
}

impl Cancellation {
    /// Cancels the requests.
    pub fn cancel(&self) {
        self.0.cancelled.send_replace(true);
    }

    /// How many requests object storage has answered so far. One that failed on the way is not answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.0.answered.load(Ordering::Relaxed)
    }

    /// Counts a request that was answered.
    pub(crate) fn count_answer(&self) {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until they are cancelled.
    pub(crate) async fn cancelled(&self) {
        if self.0.cancelled.subscribe().wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }
}
