//! One connection: reading messages, running commands, sending replies.

use crate::client::Client;
use crate::frame::{self, HEADER_BYTES, Header, Message, ReplyTo};
use crate::shared::{Shared, add, aside, is_stopped};
use crate::{dispatch, login};
use bson::RawDocumentBuf;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{SemaphorePermit, watch};
use tokio::time::timeout;
use tracing::Instrument;

/// Bytes that are read or written at a time.
const CHUNK: usize = 64 << 10;
/// Bytes of a message before the login at most, where one is needed.
const STRANGER_BYTES_MAX: usize = 64 << 10;

/// Serves a connection until it ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: SocketAddr,
    shared: &Shared,
    stopped: watch::Receiver<bool>,
) {
    let number = shared.next_connection();
    let span = tracing::debug_span!("connection", number, %peer);
    converse(stream, Client::new(number, peer), shared, stopped).instrument(span).await;
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    client: Client,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) {
    let client = shared.clients.enter(client);
    let mut input = Input { buffer: Vec::new(), permits: Vec::new() };
    loop {
        let message = tokio::select! {
            // A message that has begun is read to its end, and answered.
            biased;
            message = input.message(&mut stream, &client, shared) => message,
            () = is_stopped(&mut stopped) => return,
        };
        let outcome = match message {
            Ok(Some(length)) => answer(&mut stream, &input.buffer[..length], &client, shared).await.map(|()| length),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(length) => input.done(length),
            Err(error) => {
                tracing::debug!(peer = %client.peer, %error, "a connection was closed");
                return;
            }
        }
        if *stopped.borrow() {
            return;
        }
    }
}

/// What was read and not yet answered.
struct Input<'a> {
    buffer: Vec<u8>,
    /// Memory that the buffer takes beyond one chunk.
    permits: Vec<SemaphorePermit<'a>>,
}

impl<'a> Input<'a> {
    /// Reads until the buffer begins with a whole message; its length, or nothing at the end of the stream. It can be cancelled
    /// without loss.
    async fn message(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        client: &Client,
        shared: &'a Shared,
    ) -> io::Result<Option<usize>> {
        loop {
            let have = self.buffer.len();
            let mut wanted = HEADER_BYTES;
            if have >= HEADER_BYTES {
                wanted = Header::parse(&self.buffer).map_err(invalid)?.length;
                if wanted > shared.settings.message_bytes_max {
                    let most = shared.settings.message_bytes_max;
                    let what = format!("a message of {wanted} bytes, above the limit of {most}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                if wanted > STRANGER_BYTES_MAX && login::is_stranger(shared, client) {
                    return Err(large());
                }
                if have >= wanted {
                    return Ok(Some(wanted));
                }
            }
            if self.buffer.capacity() == have {
                // Memory grows with what arrives, not with what is announced.
                let more = (wanted - have).clamp(CHUNK, CHUNK.max(have));
                let reserve = self.reserve(more, shared);
                timeout(shared.settings.stall_max, reserve).await.map_err(|_| stalled())??;
            }
            let read = stream.read_buf(&mut self.buffer);
            // A client may idle between messages, not within one, nor before its login.
            let read = match have {
                0 if !login::is_stranger(shared, client) => read.await?,
                _ => timeout(shared.settings.stall_max, read).await.map_err(|_| stalled())??,
            };
            if read == 0 {
                return if have == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            add(&shared.counters.bytes_in, read as u64);
        }
    }

    /// Makes space for more bytes, once the memory of all connections allows it.
    async fn reserve(&mut self, more: usize, shared: &'a Shared) -> io::Result<()> {
        if self.buffer.capacity() > 0 {
            self.permits.push(shared.memory.acquire_many(shared.units(more)).await.map_err(io::Error::other)?);
        }
        self.buffer.reserve_exact(more);
        Ok(())
    }

    /// Forgets a message that was answered.
    fn done(&mut self, length: usize) {
        self.buffer.drain(..length);
        if self.buffer.is_empty() && !self.permits.is_empty() {
            self.buffer = Vec::new();
            self.permits.clear();
        }
    }
}

fn invalid(error: frame::FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a large message before the login")
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client stalled")
}

/// Runs the command of a message; its reply, unless none is wanted.
async fn replied(message: &Message<'_>, client: &Client, shared: &Shared) -> io::Result<Option<RawDocumentBuf>> {
    let turn = match dispatch::is_proof(message) {
        true => Some(shared.turn(client.peer.ip()).await.ok_or_else(|| io::Error::other("too many logins wait"))?),
        false => None,
    };
    let run = || dispatch::run(shared, client, message);
    let reply = match dispatch::is_quick(message) {
        true => run(),
        // The others take long, or wait for the disk.
        false => tokio::task::block_in_place(run),
    };
    drop(turn);
    if client.take_refusal() {
        tokio::time::sleep(shared.gate.delay()).await;
    }
    Ok(reply)
}

/// Answers a message.
async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &[u8],
    client: &Client,
    shared: &Shared,
) -> io::Result<()> {
    add(&shared.counters.requests, 1);
    // What a message grows to counts like what is read.
    let more = frame::unpacked_bytes(message).map_err(invalid)?;
    if more > shared.settings.message_bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a compressed message above the limit of messages"));
    }
    if more > STRANGER_BYTES_MAX && login::is_stranger(shared, client) {
        return Err(large());
    }
    let memory = shared.memory.acquire_many(shared.units(more));
    let _memory = timeout(shared.settings.stall_max, memory).await.map_err(|_| stalled())?.map_err(io::Error::other)?;
    let unpacked = aside(more, || frame::unpacked(message)).map_err(invalid)?;
    // To look at bytes, or to copy them, takes much less time than to compress them.
    let reply = match aside(unpacked.bytes().len() / 16, || Message::parse(unpacked.bytes())) {
        Ok(message) => replied(&message, client, shared).await?,
        Err(error) => {
            let told = error.of_client().ok_or_else(|| invalid(error))?;
            dispatch::count_refused(shared, client, "", &told);
            Some(told.reply())
        }
    };
    let (Some(reply), Some(to)) = (reply, ReplyTo::of(unpacked.bytes()).map_err(invalid)?) else { return Ok(()) };
    let bytes = if unpacked.compressor().is_some() { reply.as_bytes().len() } else { reply.as_bytes().len() / 16 };
    let frame = aside(bytes, || frame::reply(to, &reply, unpacked.compressor()));
    drop(reply);
    for chunk in frame.chunks(CHUNK) {
        timeout(shared.settings.stall_max, stream.write_all(chunk)).await.map_err(|_| stalled())??;
    }
    // With TLS some of it may still be here.
    timeout(shared.settings.stall_max, stream.flush()).await.map_err(|_| stalled())??;
    add(&shared.counters.bytes_out, frame.len() as u64);
    Ok(())
}
