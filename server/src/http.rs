//! The HTTP door: whether the server is there, its metrics, line protocol, Prometheus remote write, rows, SQL, and a page.
//!
//! 1. A request whose `Host` is none of the server's names is refused, so that a page of another host that has its name point
//!    here reads nothing; so is one with the `Origin` of another host.
//! 2. Where there are accounts everything but `/ping` and `/health` needs a login.

mod body;
mod caller;
mod collections;
mod failed;
mod flight;
mod ipc;
mod lines;
mod metrics;
mod once;
mod page;
mod place;
mod problem;
mod remote;
mod sql;
mod target;
mod write;

use crate::accounts::Role;
use crate::ends::Ends;
use crate::shared::{Shared, add, is_stopped};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use caller::{Refused, authorize};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;

/// Bytes of the head of a request at most.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// What answers the requests.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    page::add(Router::new())
        .route("/ping", get(|| async { StatusCode::NO_CONTENT }))
        .route("/health", get(health))
        .route("/metrics", get(scrape))
        .route("/write", post(write::first))
        .route("/api/v2/write", post(write::second))
        .route("/api/v3/write_lp", post(write::third))
        .route("/api/v1/write", post(remote::answer))
        .route("/sql", post(sql::answer))
        .route("/collections/{name}", post(collections::answer))
        .route_service(flight::PATH, flight::service(&shared))
        .fallback(|| async {
            let what = "there are /, /health, /metrics, /ping, /collections/NAME, /sql, /write, /api/v1/write, /api/v2/write and /api/v3/write_lp here";
            Refused(StatusCode::NOT_FOUND, what.to_owned())
        })
        .layer(from_fn_with_state(shared.clone(), check_names))
        .with_state(shared)
}

/// What a connection of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of the requests and replies of a connection of HTTP/2 that are on their way: gRPC sends batches.
const WINDOW_BYTES: u32 = 8 << 20;

/// Serves a connection until it ends.
pub(crate) async fn serve<S>(stream: S, ends: Ends, router: Router, shared: &Shared, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router.layer(Extension(ends)));
    // A client that takes nothing of a reply would hold a statement and its snapshot for ever.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(shared.settings.stall_max));
    let mut stream = Box::pin(stream);
    let begun = tokio::select! {
        begun = tokio::time::timeout(shared.settings.stall_max, begin(&mut stream)) => begun,
        () = is_stopped(&mut stopped) => return,
    };
    let Ok(Ok(begun)) = begun else {
        return tracing::debug!(peer = %ends.peer, "a connection without a request was closed");
    };
    let is_second = begun == PREFACE;
    let (rest, output) = tokio::io::split(stream);
    let io = TokioIo::new(tokio::io::join(io::Cursor::new(begun).chain(rest), output));
    let outcome = if is_second {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(shared.settings.stall_max))
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .serve_connection(io, service);
        tokio::pin!(connection);
        tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = is_stopped(&mut stopped) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(shared.settings.stall_max)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(io, service);
        tokio::pin!(connection);
        tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = is_stopped(&mut stopped) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(peer = %ends.peer, %error, "a connection was closed");
    }
}

/// The first bytes of a connection: as many as tell whether it is of HTTP/2.
async fn begin(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut begun = Vec::with_capacity(PREFACE.len());
    while begun.len() < PREFACE.len() && PREFACE.starts_with(&begun) {
        let mut more = [0; PREFACE.len()];
        let read = stream.read(&mut more[..PREFACE.len() - begun.len()]).await?;
        if read == 0 {
            break;
        }
        begun.extend_from_slice(&more[..read]);
    }
    Ok(begun)
}

/// The host of `host[:port]`, without the brackets of an address.
fn host_of(authority: &str) -> &str {
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

/// Whether a host is a name of this server, as reached by a connection.
fn is_known(shared: &Shared, local: IpAddr, host: &str) -> bool {
    let is_local = |address: IpAddr| address.to_canonical() == local.to_canonical();
    host.parse::<IpAddr>().is_ok_and(is_local)
        || (host.eq_ignore_ascii_case("localhost") && local.to_canonical().is_loopback())
        || shared.settings.http_hosts.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// Why a request is refused whatever it asks for, if it is.
fn refusal(shared: &Shared, ends: Ends, request: &Request) -> Option<Refused> {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST).or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let Some(host) = host.filter(|host| is_known(shared, ends.local.ip(), host_of(host))) else {
        let what = "the Host of the request is no name of this server: use its address, or put the name into hosts of \
                    [http] in its configuration";
        return Some(Refused(StatusCode::MISDIRECTED_REQUEST, what.to_owned()));
    };
    if !request.headers().contains_key(ORIGIN) {
        return None;
    }
    let origin = text(ORIGIN).and_then(|origin| origin.split_once("://"));
    let is_own = origin.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host));
    let foreign = || Refused(StatusCode::FORBIDDEN, "a page of another host may not ask this server".to_owned());
    (!is_own).then(foreign)
}

async fn check_names(
    State(shared): State<Arc<Shared>>,
    Extension(ends): Extension<Ends>,
    request: Request,
    next: Next,
) -> Response {
    add(&shared.counters.http_requests, 1);
    let refused = refusal(&shared, ends, &request);
    match refused {
        Some(refused) => refused.into_response(),
        None => next.run(request).await,
    }
}

/// Whether all databases can be written to.
async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let fails = shared.databases.all().iter().any(|(_, database)| database.write_failure().is_some());
    let (status, text) = match fails {
        false => (StatusCode::OK, r#"{"status":"pass","name":"ebbtide"}"#),
        true => (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"fail","name":"ebbtide"}"#),
    };
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

async fn scrape(
    State(shared): State<Arc<Shared>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    authorize(&shared, ends, &headers, None, Role::Read).await?;
    let text = tokio::task::block_in_place(|| metrics::page(&shared))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_from_authorities() {
        for (authority, host) in [
            ("localhost", "localhost"),
            ("127.0.0.1:8080", "127.0.0.1"),
            ("[::1]:8080", "::1"),
            ("[::1]", "::1"),
            ("db.example.org:80", "db.example.org"),
            ("", ""),
        ] {
            assert_eq!(host_of(authority), host);
        }
    }
}
