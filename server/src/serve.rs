//! A running server: its doors, its connections, and how it ends.

use crate::connection;
use crate::databases::Databases;
use crate::ends::Ends;
use crate::error::Failure;
use crate::gate::Gate;
use crate::http;
use crate::postgres;
use crate::settings::Settings;
use crate::shared::{Shared, add};
use crate::sql::Sql;
use crate::tls::Tls;
use axum::Router;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// How often cursors that idle, the file of the accounts and those for TLS are looked at.
const TICK: Duration = Duration::from_secs(1);
/// After a failed accept, as with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server. It stops when it is dropped, without grace; [`Server::stop`] stops it in good order.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    mongodb: Option<SocketAddr>,
    http: Option<SocketAddr>,
    postgresql: Option<SocketAddr>,
    stopping: watch::Sender<bool>,
    accepting: Vec<JoinHandle<JoinSet<()>>>,
    ticking: JoinHandle<()>,
}

/// What is spoken at a door.
#[derive(Clone)]
enum Protocol {
    /// TLS is asked for within it.
    PostgreSql,
    /// With TLS all of it is inside.
    Inside(Inside),
}

#[derive(Clone)]
enum Inside {
    MongoDb,
    Http(Router),
}

impl Server {
    /// Opens the doors and starts the background work of the databases. Must be called in a tokio runtime of several
    /// threads.
    ///
    /// # Errors
    /// If a port cannot be opened, if a file of the accounts or for TLS cannot be used, if a time is above
    /// [`Settings::TIME_MOST`], or if the address can be reached by other hosts and that is not allowed.
    pub async fn start(databases: Databases, settings: Settings) -> Result<Server, Failure> {
        Server::open(databases, settings, None).await
    }

    /// Like [`Server::start`], with SQL for the doors that take it.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub async fn start_with_sql(
        databases: Databases,
        settings: Settings,
        sql: Arc<dyn Sql>,
    ) -> Result<Server, Failure> {
        Server::open(databases, settings, Some(sql)).await
    }

    async fn open(databases: Databases, settings: Settings, sql: Option<Arc<dyn Sql>>) -> Result<Server, Failure> {
        settings.check_times().map_err(Failure::new)?;
        let gate = Gate::new(settings.accounts.clone(), settings.login_delay)?;
        if !settings.listen.is_loopback() && !settings.insecure && !gate.needs_login() {
            let what = format!(
                "{} can be reached by other hosts and there are no accounts: add one with ebbtide user add, listen on \
                 127.0.0.1, or say --insecure",
                settings.listen
            );
            return Err(Failure::new(what));
        }
        let tls = settings.tls.clone().map(Tls::new).transpose()?.map(Arc::new);
        let mongodb = bind(settings.listen, settings.mongodb).await?;
        let http = bind(settings.listen, settings.http).await?;
        let postgresql = bind(settings.listen, settings.postgresql).await?;
        databases.start()?;
        let of = |door: &Option<(TcpListener, SocketAddr)>| door.as_ref().map(|(_, address)| *address);
        let (mongodb_at, http_at, postgresql_at) = (of(&mongodb), of(&http), of(&postgresql));
        let address = mongodb_at.or(http_at).or(postgresql_at).unwrap_or_else(|| SocketAddr::new(settings.listen, 0));
        let mut shared = Shared::new(databases, settings, gate, address);
        shared.sql = sql;
        let shared = Arc::new(shared);
        let (stopping, stopped) = watch::channel(false);
        let door = |protocol, (listener, _)| {
            let door = Door { listener, protocol, tls: tls.clone(), shared: shared.clone(), stopped: stopped.clone() };
            tokio::spawn(door.accept())
        };
        let accepting = [
            mongodb.map(|bound| door(Protocol::Inside(Inside::MongoDb), bound)),
            http.map(|bound| door(Protocol::Inside(Inside::Http(http::router(shared.clone()))), bound)),
            postgresql.map(|bound| door(Protocol::PostgreSql, bound)),
        ];
        let accepting = accepting.into_iter().flatten().collect();
        let ticking = tokio::spawn(tick(shared.clone(), tls.clone()));
        Ok(Server {
            shared,
            mongodb: mongodb_at,
            http: http_at,
            postgresql: postgresql_at,
            stopping,
            accepting,
            ticking,
        })
    }

    /// Where the door of MongoDB's protocol is, if it is open.
    #[must_use]
    pub fn mongodb_address(&self) -> Option<SocketAddr> {
        self.mongodb
    }

    /// Where the door of HTTP is, if it is open.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where the door of PostgreSQL's protocol is, if it is open.
    #[must_use]
    pub fn postgresql_address(&self) -> Option<SocketAddr> {
        self.postgresql
    }

    /// Takes no new connections, lets the commands that are running end within [`Settings::grace`], makes everything durable,
    /// and closes the databases.
    ///
    /// # Errors
    /// If a database cannot be closed.
    pub async fn stop(mut self) -> Result<(), Failure> {
        self.stopping.send_replace(true);
        self.ticking.abort();
        let mut doors = Vec::new();
        for accepting in std::mem::take(&mut self.accepting) {
            doors.extend(accepting.await);
        }
        let ended = async {
            for connections in &mut doors {
                while connections.join_next().await.is_some() {}
            }
        };
        if tokio::time::timeout(self.shared.settings.grace, ended).await.is_err() {
            let open = self.shared.counters.connections.load(Ordering::Relaxed);
            tracing::warn!(connections = open, "commands did not end within the grace time");
            for operation in self.shared.clients.all().iter().filter_map(|client| client.running()) {
                operation.kill();
            }
            for mut connections in doors {
                connections.shutdown().await;
            }
        }
        self.shared.cursors.clear();
        tokio::task::block_in_place(|| self.shared.databases.close())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ticking.abort();
        self.accepting.iter().for_each(JoinHandle::abort);
    }
}

/// Listens on a port, if one is given.
async fn bind(listen: IpAddr, port: Option<u16>) -> Result<Option<(TcpListener, SocketAddr)>, Failure> {
    let Some(port) = port else { return Ok(None) };
    let failed = |e: std::io::Error| Failure::new(format!("cannot listen on {}: {e}", SocketAddr::new(listen, port)));
    let listener = TcpListener::bind((listen, port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, address)))
}

/// A port that takes connections.
struct Door {
    listener: TcpListener,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
}

impl Door {
    /// Takes connections until the server stops; returns those that are open.
    async fn accept(mut self) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.stopped.changed() => return connections,
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
            let Some(place) = Place::take(&self.shared) else {
                add(&self.shared.counters.connections_refused, 1);
                let limit = self.shared.settings.connections_max;
                tracing::warn!(%peer, limit, "a connection was refused: too many are open");
                continue;
            };
            add(&self.shared.counters.connections_made, 1);
            let tls = self.tls.as_ref().map(|tls| match self.protocol {
                Protocol::Inside(Inside::Http(_)) => tls.http_acceptor(),
                _ => tls.acceptor(),
            });
            let (protocol, stopped) = (self.protocol.clone(), self.stopped.clone());
            connections.spawn(async move { serve(stream, peer, &place.0, protocol, tls, stopped).await });
        }
    }
}

/// The place of a connection among those that may be open.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Place> {
        let open = shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let place = Place(shared.clone());
        (open < shared.settings.connections_max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection until it ends.
async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    protocol: Protocol,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
) {
    // Replies are written whole, so waiting for more to send only costs time.
    let local = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let ends = match local {
        Ok(local) => Ends { peer, local },
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection was closed");
            return;
        }
    };
    let protocol = match protocol {
        Protocol::PostgreSql => return postgres::serve(stream, ends, shared, tls, stopped).await,
        Protocol::Inside(protocol) => protocol,
    };
    let Some(tls) = tls else { return speak(stream, ends, shared, protocol, stopped).await };
    match tokio::time::timeout(shared.settings.stall_max, tls.accept(stream)).await {
        Ok(Ok(stream)) => speak(stream, ends, shared, protocol, stopped).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
        Err(_) => tracing::debug!(%peer, "no TLS: the client stalled"),
    }
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    ends: Ends,
    shared: &Shared,
    protocol: Inside,
    stopped: watch::Receiver<bool>,
) {
    match protocol {
        Inside::MongoDb => connection::serve(stream, ends.peer, shared, stopped).await,
        Inside::Http(router) => http::serve(stream, ends, router, shared, stopped).await,
    }
}

/// Closes cursors that idle or are too old, and notices that the accounts or the files for TLS were changed.
async fn tick(shared: Arc<Shared>, tls: Option<Arc<Tls>>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        shared.cursors.reap(shared.now());
        shared.gate.forget(shared.now());
        shared.profiler.note_sweeps(|| shared.databases.all());
        if let Err(error) = shared.gate.refresh() {
            tracing::error!(%error, "the accounts stay as they were");
        }
        if let Some(Err(error)) = tls.as_ref().map(|tls| tls.refresh()) {
            tracing::error!(%error, "the certificate and the key for TLS stay as they were");
        }
    }
}

/// SIGINT, on Unix SIGTERM, and on Linux SIGHUP.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// None if it is, or may be, ignored.
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    /// Signals from now on. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the signals cannot be listened to.
    #[cfg(unix)]
    pub fn new() -> Result<Signals, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|e| Failure::new(format!("signals cannot be listened to: {e}")));
        Ok(Signals {
            hangup: if is_hangup_ignored() { None } else { Some(listen(SignalKind::hangup())?) },
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Signals from now on. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// If the signals cannot be listened to.
    #[cfg(not(unix))]
    pub fn new() -> Result<Signals, Failure> {
        Ok(Signals {})
    }

    /// Waits for the next one.
    #[cfg(unix)]
    pub async fn next(&mut self) {
        let Signals { interrupt, terminate, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => {
                    hangup.recv().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = hung_up => {}
        }
    }

    /// Waits for the next one.
    #[cfg(not(unix))]
    pub async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "signals cannot be listened to");
            std::future::pending().await
        }
    }
}

/// Whether SIGHUP has been ignored since the process began, as under `nohup`. It then stays so. Only Linux tells: elsewhere it counts as
/// ignored, so that nothing is changed about it.
#[cfg(unix)]
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The last bit is that of signal 1.
    mask.is_none_or(|mask| mask & 1 != 0)
}
