//! Ends requests to object storage that are not answered.

use std::sync::Arc;
use tokio::sync::watch;

/// Cancels requests to object storage, those that run and all later ones. What was to be written may be written all the same. Clones
/// cancel the same requests; [`crate::Lake::cancelled_by`] says which.
#[derive(Debug, Clone)]
pub struct Cancellation(Arc<watch::Sender<bool>>);

impl Default for Cancellation {
    fn default() -> Self {
        Cancellation(Arc::new(watch::Sender::new(false)))
    }
}

impl Cancellation {
    /// Cancels the requests.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Waits until they are cancelled.
    pub(crate) async fn cancelled(&self) {
        if self.0.subscribe().wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }
}
