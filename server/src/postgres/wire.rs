//! Messages of PostgreSQL's protocol on a connection.

use super::error::{PROTOCOL_VIOLATION, Refusal};
use crate::shared::{MEMORY_UNIT, MessageMemory, Shared, add};
use bytes::BytesMut;
use pgwire::messages::{DecodeContext, PgWireBackendMessage, PgWireFrontendMessage, ProtocolVersion};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Bytes that are read at a time, and after which replies are sent.
pub(super) const CHUNK: usize = 64 << 10;
/// Bytes of a message before the login at most.
const STRANGER_BYTES_MAX: usize = 10_000;
/// Bytes that are read ahead while a statement runs at most: without memory from what all connections share, and with it. The end of
/// a connection comes behind what the client has sent before, so it can be noticed only if there is room for that.
const AHEAD_BYTES_MAX: usize = 1 << 20;
const AHEAD_SHARED_BYTES_MAX: usize = 16 << 20;

/// The stream of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// The socket below it.
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Waits until the other side has closed a connection, without reading what it has sent before.
#[cfg(target_os = "linux")]
async fn closed(socket: &TcpStream) {
    // Of urgent data the system tells only those who register for it, so what remains is the end.
    let _closed = socket.ready(tokio::io::Interest::PRIORITY).await;
}

#[cfg(not(target_os = "linux"))]
async fn closed(_socket: &TcpStream) {
    std::future::pending().await
}

/// Why a conversation cannot go on.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client is gone, or stalled.
    Io(io::Error),
    /// It is told why.
    Refused(Refusal),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

impl From<Refusal> for Broken {
    fn from(refusal: Refusal) -> Self {
        Broken::Refused(refusal)
    }
}

/// A connection with what was read and not yet answered, and what was answered and not yet sent.
pub(super) struct Wire<'a, S> {
    stream: S,
    shared: &'a Shared,
    input: BytesMut,
    output: BytesMut,
    context: DecodeContext,
    /// Memory of the message that is read or answered.
    memory: MessageMemory<'a>,
    /// Memory of what was read far ahead.
    ahead: Option<SemaphorePermit<'a>>,
}

impl<'a, S> Wire<'a, S> {
    pub(super) fn new(stream: S, shared: &'a Shared) -> Wire<'a, S> {
        let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        Wire {
            stream,
            shared,
            input: BytesMut::new(),
            output: BytesMut::new(),
            context,
            memory: MessageMemory::default(),
            ahead: None,
        }
    }

    /// The stream, for TLS to begin on. Nothing if the client has sent something already, which would be read as if it had come
    /// by TLS.
    pub(super) fn into_stream(self) -> Option<S> {
        self.input.is_empty().then_some(self.stream)
    }

    /// What comes next is no request for TLS.
    pub(super) fn expect_startup(&mut self) {
        self.context.awaiting_frontend_ssl = false;
    }

    /// What comes next are messages with a type.
    pub(super) fn expect_messages(&mut self) {
        self.context.awaiting_frontend_ssl = false;
        self.context.awaiting_frontend_startup = false;
    }

    /// Adds a message to what is sent.
    pub(super) fn put(&mut self, message: &PgWireBackendMessage) -> Result<(), Refusal> {
        Ok(message.encode(&mut self.output)?)
    }

    /// Whether so much waits that it should be sent.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= CHUNK
    }

    /// The bytes of the message that the input begins with, once they are known.
    fn announced(&self, is_stranger: bool) -> Result<Option<usize>, Refusal> {
        let begin = usize::from(!self.context.awaiting_frontend_startup);
        let Some(Ok(bytes)) = self.input.get(begin..begin + 4).map(<[u8; 4]>::try_from) else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
        let most = if is_stranger { STRANGER_BYTES_MAX } else { self.shared.settings.message_bytes_max };
        match length {
            0..4 => Err(Refusal::fatal(PROTOCOL_VIOLATION, "a message without a length")),
            length if length > most => {
                let what = format!("a message of {length} bytes, above the limit of {most}");
                Err(Refusal::fatal(PROTOCOL_VIOLATION, what))
            }
            length => Ok(Some(begin + length)),
        }
    }
}

impl<S: Stream> Wire<'_, S> {
    /// The next message; nothing at the end of the stream. It can be cancelled without loss.
    pub(super) async fn message(&mut self, is_stranger: bool) -> Result<Option<PgWireFrontendMessage>, Broken> {
        self.memory = MessageMemory::default();
        if self.ahead.is_some() && self.input.len() < AHEAD_BYTES_MAX {
            self.input = BytesMut::from(&self.input[..]);
            self.ahead = None;
        }
        loop {
            let announced = self.announced(is_stranger)?;
            if let Some(length) = announced {
                if self.input.len() >= length {
                    let decoded = PgWireFrontendMessage::decode(&mut self.input, &self.context);
                    let decoded = decoded.map_err(|error| Refusal::fatal(PROTOCOL_VIOLATION, error.to_string()))?;
                    return match decoded {
                        Some(message) => Ok(Some(message)),
                        None => Err(Refusal::fatal(PROTOCOL_VIOLATION, "a message that is cut off").into()),
                    };
                }
                if length > CHUNK {
                    // The message's own takes its place.
                    self.ahead = None;
                    // Memory grows with what arrives, not with what is announced.
                    let bytes = length.min(self.input.len() + CHUNK);
                    let grown = self.shared.grow(&mut self.memory, bytes);
                    timeout(self.shared.settings.stall_max, grown).await.map_err(|_| stalled())??;
                }
            }
            self.input.reserve(CHUNK);
            let has_begun = !self.input.is_empty();
            let read = self.stream.read_buf(&mut self.input);
            // A client may idle between messages, not within one.
            let read = match has_begun {
                false => read.await?,
                true => timeout(self.shared.settings.stall_max, read).await.map_err(|_| stalled())??,
            };
            if read == 0 {
                return if has_begun { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) } else { Ok(None) };
            }
            add(&self.shared.counters.bytes_in, read as u64);
        }
    }

    /// Whether there is memory for more of what is read ahead.
    fn may_read_on(&mut self) -> bool {
        let memory = &self.shared.memory;
        // Half of it is left to messages.
        let half = self.shared.settings.message_memory_bytes / MEMORY_UNIT / 2;
        if self.ahead.is_none() && memory.available_permits() > half {
            let units = self.shared.units(AHEAD_SHARED_BYTES_MAX);
            self.ahead = memory.try_acquire_many(units).ok();
        }
        self.ahead.is_some() && self.input.len() < AHEAD_SHARED_BYTES_MAX
    }

    /// Waits until the client is gone. What it sends meanwhile is kept, up to a limit.
    pub(super) async fn is_gone(&mut self) {
        loop {
            if self.input.len() >= AHEAD_BYTES_MAX && !self.may_read_on() {
                return closed(self.stream.socket()).await;
            }
            self.input.reserve(CHUNK);
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return,
                Ok(read) => add(&self.shared.counters.bytes_in, read as u64),
            }
        }
    }

    /// Sends what was put.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let longest = self.shared.settings.stall_max;
        for chunk in self.output.chunks(CHUNK) {
            timeout(longest, self.stream.write_all(chunk)).await.map_err(|_| stalled())??;
        }
        // With TLS some of it may still be here.
        timeout(longest, self.stream.flush()).await.map_err(|_| stalled())??;
        add(&self.shared.counters.bytes_out, self.output.len() as u64);
        if self.output.capacity() > 4 * CHUNK {
            self.output = BytesMut::new();
        }
        self.output.clear();
        Ok(())
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client stalled")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_end_of_a_connection_is_noticed_behind_what_is_not_read() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, (socket, _)) = (client.unwrap(), accepted.unwrap());
        client.write_all(&[0; 1000]).await.unwrap();
        socket.readable().await.unwrap();
        assert_eq!(closed(&socket).now_or_never(), None);
        drop(client);
        closed(&socket).await;
    }
}
