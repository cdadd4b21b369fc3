//! A running server: its doors, its connections, and how it ends.

use crate::connection;
use crate::databases::Databases;
use crate::error::Failure;
use crate::settings::Settings;
use crate::shared::{Shared, add};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How often cursors are looked at that idle.
const CURSOR_TICK: Duration = Duration::from_secs(1);
/// After a failed accept, as with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A running server. It stops when it is dropped, without grace; [`Server::stop`] stops it in good order.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    mongodb: Option<SocketAddr>,
    stopping: watch::Sender<bool>,
    accepting: Option<JoinHandle<JoinSet<()>>>,
    reaping: JoinHandle<()>,
}

impl Server {
    /// Opens the doors and starts the background work of the databases. Must be called in a tokio runtime of several
    /// threads.
    ///
    /// # Errors
    /// If a port cannot be opened, or the address can be reached by other hosts and that is not allowed.
    pub async fn start(databases: Databases, settings: Settings) -> Result<Server, Failure> {
        if !settings.listen.is_loopback() && !settings.insecure {
            let what = format!(
                "{} can be reached by other hosts and there are no accounts: listen on 127.0.0.1, or say --insecure",
                settings.listen
            );
            return Err(Failure::new(what));
        }
        let listener = match settings.mongodb {
            None => None,
            Some(port) => {
                let bound = TcpListener::bind((settings.listen, port)).await;
                Some(bound.map_err(|e| Failure::new(format!("cannot listen on {}:{port}: {e}", settings.listen)))?)
            }
        };
        let local = |listener: &TcpListener| listener.local_addr().map_err(|e| Failure::new(e.to_string()));
        let mongodb = listener.as_ref().map(local).transpose()?;
        databases.start()?;
        let address = mongodb.unwrap_or_else(|| SocketAddr::new(settings.listen, 0));
        let shared = Arc::new(Shared::new(databases, settings, address));
        let (stopping, stopped) = watch::channel(false);
        let accepting = listener.map(|listener| tokio::spawn(accept(listener, shared.clone(), stopped)));
        let reaping = tokio::spawn(reap(shared.clone()));
        Ok(Server { shared, mongodb, stopping, accepting, reaping })
    }

    /// Where the door of MongoDB's protocol is, if it is open.
    #[must_use]
    pub fn mongodb_address(&self) -> Option<SocketAddr> {
        self.mongodb
    }

    /// Takes no new connections, lets the commands that are running end within [`Settings::grace`], makes everything durable,
    /// and closes the databases.
    ///
    /// # Errors
    /// If a database cannot be closed.
    pub async fn stop(mut self) -> Result<(), Failure> {
        self.stopping.send_replace(true);
        self.reaping.abort();
        if let Some(accepting) = self.accepting.take()
            && let Ok(mut connections) = accepting.await
        {
            let ended = async { while connections.join_next().await.is_some() {} };
            if tokio::time::timeout(self.shared.settings.grace, ended).await.is_err() {
                tracing::warn!(connections = connections.len(), "commands did not end within the grace time");
                connections.shutdown().await;
            }
        }
        self.shared.cursors.clear();
        tokio::task::block_in_place(|| self.shared.databases.close())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.reaping.abort();
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// Takes connections until the server stops; returns those that are open.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let until_stopped = stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return connections,
        };
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if connections.len() >= shared.settings.connections_max {
            add(&shared.counters.connections_refused, 1);
            tracing::warn!(%peer, limit = shared.settings.connections_max, "a connection was refused: too many are open");
            continue;
        }
        let number = shared.next_connection();
        add(&shared.counters.connections_made, 1);
        let (shared, until_stopped) = (shared.clone(), until_stopped.clone());
        connections.spawn(async move {
            shared.counters.connections.fetch_add(1, Ordering::Relaxed);
            connection::serve(stream, peer, number, &shared, until_stopped).await;
            shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Closes cursors that idle or are too old.
async fn reap(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(CURSOR_TICK);
    loop {
        ticks.tick().await;
        shared.cursors.reap(shared.now());
    }
}

/// Waits for SIGINT or, on Unix, SIGTERM.
///
/// # Errors
/// If the signals cannot be listened to.
pub async fn interrupted() -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("signals cannot be listened to: {e}"));
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        tokio::select! {
            outcome = tokio::signal::ctrl_c() => outcome.map_err(failed),
            _ = terminated.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.map_err(failed)
}
