//! The signals that ask the program to end.

#[cfg(feature = "server")]
pub(crate) use ebbtide_server::Signals;
use std::time::Duration;
#[cfg(not(feature = "server"))]
pub(crate) use without_server::Signals;

/// Signals that follow the first one within this time are taken for the same one: `timeout` signals a process and then its group.
const ONE_SIGNAL: Duration = Duration::from_millis(200);

/// Waits, after the first signal, for another one that is not part of it.
pub(crate) async fn second(signals: &mut Signals) {
    let same = async {
        loop {
            signals.next().await;
        }
    };
    drop(tokio::time::timeout(ONE_SIGNAL, same).await);
    signals.next().await;
}

#[cfg(not(feature = "server"))]
mod without_server {
    use crate::Failure;

    /// SIGINT, and on Unix SIGTERM.
    pub(crate) struct Signals {
        #[cfg(unix)]
        terminate: tokio::signal::unix::Signal,
    }

    impl Signals {
        pub(crate) fn new() -> Result<Signals, Failure> {
            Ok(Signals {
                #[cfg(unix)]
                terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
            })
        }

        /// Waits for the next one.
        #[cfg(unix)]
        pub(crate) async fn next(&mut self) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = self.terminate.recv() => {}
            }
        }

        /// Waits for the next one.
        #[cfg(not(unix))]
        pub(crate) async fn next(&mut self) {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending().await
            }
        }
    }
}
