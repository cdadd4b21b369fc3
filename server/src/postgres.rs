//! The door of PostgreSQL's wire protocol, version 3.0.
//!
//! Messages and the forms of values are `pgwire`'s and `arrow-pg`'s; what is done on them is here.
//!
//! 1. A statement runs in its connection's session, and reads at one instant, its own: a transaction may read, and sees what
//!    PostgreSQL calls read committed. One that writes is atomic by itself, and refused in a transaction.
//! 2. Rows are sent as they are found. While a statement runs its connection is watched: it ends when the client goes away, asks
//!    for its end on another connection, or when its time is over.

mod conversation;
mod copy;
mod error;
mod instants;
mod lexer;
mod login;
mod own;
mod rows;
mod settings;
mod statements;
mod texts;
mod values;
mod wire;

use crate::ends::Ends;
use crate::shared::{Shared, is_stopped};
use conversation::Conversation;
use error::{PROTOCOL_VIOLATION, Refusal, SHUTDOWN};
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use wire::{Broken, Stream, Wire};

/// Serves a connection until it ends.
pub(crate) async fn serve(
    stream: TcpStream,
    ends: Ends,
    shared: &Shared,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let negotiated = tokio::select! {
        negotiated = timeout(shared.settings.stall_max, negotiate(stream, shared, tls.is_some())) => negotiated,
        () = is_stopped(&mut stopped) => return,
    };
    let outcome = match negotiated {
        Err(_) => return tracing::debug!(peer = %ends.peer, "no startup message: the client stalled"),
        Ok(Err(broken)) => Err(broken),
        Ok(Ok(Negotiated::Plain(wire))) => converse(wire, ends, shared, tls.is_some(), false, stopped).await,
        Ok(Ok(Negotiated::Tls(stream))) => {
            let Some(tls) = tls else { return };
            match timeout(shared.settings.stall_max, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let mut wire = Wire::new(stream, shared);
                    wire.expect_startup();
                    converse(wire, ends, shared, true, true, stopped).await
                }
                Ok(Err(error)) => return tracing::debug!(peer = %ends.peer, %error, "no TLS"),
                Err(_) => return tracing::debug!(peer = %ends.peer, "no TLS: the client stalled"),
            }
        }
    };
    match outcome {
        Ok(()) => {}
        Err(Broken::Io(error)) => tracing::debug!(peer = %ends.peer, %error, "a connection was closed"),
        Err(Broken::Refused(refusal)) => {
            tracing::debug!(peer = %ends.peer, error = %refusal.message, "a connection was closed");
        }
    }
}

enum Negotiated<'a> {
    Plain(Wire<'a, TcpStream>),
    Tls(TcpStream),
}

/// Answers requests for encryption, which come before everything else.
async fn negotiate(stream: TcpStream, shared: &Shared, has_tls: bool) -> Result<Negotiated<'_>, Broken> {
    let mut wire = Wire::new(stream, shared);
    loop {
        match wire.message(true).await? {
            Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_))) => {
                let answer = if has_tls { SslResponse::Accept } else { SslResponse::Refuse };
                wire.put(&PgWireBackendMessage::SslResponse(answer))?;
                wire.flush().await?;
                if has_tls {
                    let what = || Refusal::fatal(PROTOCOL_VIOLATION, "data before TLS began");
                    return Ok(Negotiated::Tls(wire.into_stream().ok_or_else(what)?));
                }
            }
            Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresGss(_))) => {
                wire.put(&PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse))?;
                wire.flush().await?;
            }
            Some(_) => {
                wire.expect_startup();
                return Ok(Negotiated::Plain(wire));
            }
            None => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// From the startup message to the end.
async fn converse<S: Stream>(
    mut wire: Wire<'_, S>,
    ends: Ends,
    shared: &Shared,
    needs_tls: bool,
    has_tls: bool,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Broken> {
    let number = shared.next_connection();
    let started = tokio::select! {
        started = timeout(shared.settings.stall_max, wire.message(true)) => started,
        () = is_stopped(&mut stopped) => return Ok(()),
    };
    let started = started.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
    let startup = match started {
        Some(PgWireFrontendMessage::Startup(startup)) => startup,
        Some(PgWireFrontendMessage::CancelRequest(request)) => {
            shared.cancellations.cancel(&request);
            return Ok(());
        }
        _ => return Ok(()),
    };
    wire.expect_messages();
    let place = shared.cancellations.enter(number).map_err(|what| Refusal::fatal(PROTOCOL_VIOLATION, what))?;
    let opened = match needs_tls && !has_tls {
        true => {
            Err(Refusal::fatal("28000", "this server takes connections with TLS alone: use sslmode=require").into())
        }
        false => tokio::select! {
            opened = login::open(&mut wire, ends, shared, &startup, &place) => opened,
            () = is_stopped(&mut stopped) => return Ok(()),
        },
    };
    let mut conversation = match opened {
        Ok(client) => Conversation::new(wire, shared, client, place),
        Err(Broken::Refused(refusal)) => return tell(&mut wire, refusal).await,
        Err(broken) => return Err(broken),
    };
    match conversation.run(&mut stopped).await {
        Err(Broken::Refused(refusal)) => tell(conversation.wire(), refusal).await,
        outcome => outcome,
    }
}

/// Says why a connection ends.
async fn tell<S: Stream>(wire: &mut Wire<'_, S>, refusal: Refusal) -> Result<(), Broken> {
    let refusal = Refusal { is_fatal: true, ..refusal };
    wire.put(&PgWireBackendMessage::ErrorResponse(refusal.response()))?;
    wire.flush().await?;
    Err(refusal.into())
}

/// Waits for the server's stop, and says so.
async fn stop(stopped: &mut watch::Receiver<bool>) -> Broken {
    is_stopped(stopped).await;
    Refusal::fatal(SHUTDOWN, "the server stops").into()
}
