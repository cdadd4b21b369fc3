//! Messages of MongoDB's wire protocol.
//!
//! 1. A length is believed only as far as bytes arrive, and nothing is unpacked beyond [`MESSAGE_BYTES_MAX`].
//! 2. A message is parsed in place: documents are slices of it.
//! 3. What breaks the framing is a [`FrameError`] and ends the connection. A command that cannot be read, in a frame that is whole, is
//!    one too, but gets a reply.

mod compression;

pub(crate) use compression::Compressor;

use crate::error::{CommandError, ServerCode};
use bson::RawDocument;
use std::fmt;

/// Bytes of a message's header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a message at most, its header included.
pub(crate) const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// Writes of a command at most.
pub(crate) const WRITE_BATCH_MAX: usize = 100_000;
/// Levels that a command document may have.
const DEPTH_MAX: usize = 200;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;

const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
/// Bits of the flags below this one must be known.
const REQUIRED_BITS: u32 = 0xffff;

/// Why a message cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameError {
    message: String,
    /// For a reply, if the frame is whole.
    code: Option<ServerCode>,
}

impl FrameError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        FrameError { message: message.into(), code: None }
    }

    fn of_command(code: ServerCode, message: impl Into<String>) -> Self {
        FrameError { message: message.into(), code: Some(code) }
    }

    /// What the client is told, if it can be told anything.
    pub(crate) fn of_client(&self) -> Option<CommandError> {
        self.code.map(|code| CommandError::of_server(code, self.message.as_str()))
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

type Result<T> = std::result::Result<T, FrameError>;

/// The header that every message begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the whole message.
    pub(crate) length: usize,
    pub(crate) request_id: i32,
    op_code: i32,
}

/// Where the reply to a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) request_id: i32,
    pub(crate) form: Form,
}

impl ReplyTo {
    /// For a message that perhaps cannot be read; `None` if the client wants no reply.
    pub(crate) fn of(message: &[u8]) -> Result<Option<ReplyTo>> {
        let header = Header::parse(message)?;
        let flags = Reader(message.get(HEADER_BYTES..).unwrap_or_default()).int()?.cast_unsigned();
        let form = if header.op_code == OP_QUERY { Form::Query } else { Form::Message };
        let is_wanted = form == Form::Query || flags & MORE_TO_COME == 0;
        Ok(is_wanted.then_some(ReplyTo { request_id: header.request_id, form }))
    }
}

impl Header {
    /// Reads a header and checks what it claims.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header> {
        let mut reader = Reader(bytes);
        let (length, request_id) = (reader.int()?, reader.int()?);
        let (_response_to, op_code) = (reader.int()?, reader.int()?);
        match usize::try_from(length) {
            Ok(length @ HEADER_BYTES..=MESSAGE_BYTES_MAX) => Ok(Header { length, request_id, op_code }),
            _ => Err(FrameError::new(format!(
                "a message of {length} bytes: {HEADER_BYTES} to {MESSAGE_BYTES_MAX} bytes are possible"
            ))),
        }
    }
}

/// How a request came, and so how its reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// OP_MSG.
    Message,
    /// OP_QUERY, of the handshake of older drivers, which is answered by OP_REPLY.
    Query,
}

/// A message that is not compressed any more.
#[derive(Debug)]
pub(crate) enum Unpacked<'a> {
    /// It never was.
    Plain(&'a [u8]),
    /// It was, by this.
    Compressed(Vec<u8>, Compressor),
}

impl Unpacked<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Unpacked::Plain(bytes) => bytes,
            Unpacked::Compressed(bytes, _) => bytes,
        }
    }

    /// What the reply is compressed with.
    pub(crate) fn compressor(&self) -> Option<Compressor> {
        match self {
            Unpacked::Plain(_) => None,
            Unpacked::Compressed(_, compressor) => Some(*compressor),
        }
    }
}

/// Bytes that a whole message takes without its compression, beside itself.
pub(crate) fn unpacked_bytes(message: &[u8]) -> Result<usize> {
    match Header::parse(message)?.op_code {
        OP_COMPRESSED => Packed::parse(message).map(|packed| packed.size),
        _ => Ok(0),
    }
}

/// A compressed message.
struct Packed<'a> {
    op_code: i32,
    /// Bytes of its content without the compression.
    size: usize,
    compressor: Compressor,
    content: &'a [u8],
}

impl<'a> Packed<'a> {
    fn parse(message: &'a [u8]) -> Result<Packed<'a>> {
        let mut reader = Reader(message.get(HEADER_BYTES..).unwrap_or_default());
        let (op_code, size, compressor) = (reader.int()?, reader.int()?, reader.byte()?);
        if op_code == OP_COMPRESSED {
            return Err(FrameError::new("a compressed message within a compressed message"));
        }
        let size = usize::try_from(size).ok().filter(|size| *size <= MESSAGE_BYTES_MAX - HEADER_BYTES);
        let size = size.ok_or_else(|| FrameError::new("a compressed message that is larger than a message may be"))?;
        Ok(Packed { op_code, size, compressor: Compressor::of_number(compressor)?, content: reader.0 })
    }
}

/// A whole message without its compression.
pub(crate) fn unpacked(message: &[u8]) -> Result<Unpacked<'_>> {
    let header = Header::parse(message)?;
    if header.op_code != OP_COMPRESSED {
        return Ok(Unpacked::Plain(message));
    }
    let Packed { op_code, size, compressor, content } = Packed::parse(message)?;
    let mut plain = header_bytes(HEADER_BYTES + size, header.request_id, 0, op_code);
    compressor.unpack(content, size, &mut plain)?;
    Ok(Unpacked::Compressed(plain, compressor))
}

/// Documents beside the command, as drivers send the many documents of a write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence<'a> {
    /// The field of the command that they belong to.
    pub(crate) name: &'a str,
    pub(crate) documents: Vec<&'a RawDocument>,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message<'a> {
    pub(crate) form: Form,
    /// The database of an OP_QUERY; an OP_MSG names it in its document.
    pub(crate) database: Option<&'a str>,
    pub(crate) body: &'a RawDocument,
    pub(crate) sequences: Vec<Sequence<'a>>,
    /// Whether the client wants no reply.
    pub(crate) more_to_come: bool,
}

impl<'a> Message<'a> {
    /// Reads a whole message that is not compressed.
    pub(crate) fn parse(message: &'a [u8]) -> Result<Message<'a>> {
        let header = Header::parse(message)?;
        if header.length != message.len() {
            return Err(FrameError::new("a message is shorter than it says"));
        }
        let content = message.get(HEADER_BYTES..).unwrap_or_default();
        let parsed = match header.op_code {
            OP_MSG => Self::op_msg(message, content),
            OP_QUERY => Self::op_query(content),
            other => {
                Err(FrameError::new(format!("an operation {other}: OP_MSG, OP_QUERY and OP_COMPRESSED are known")))
            }
        }?;
        check(parsed.body, DEPTH_MAX)?;
        Ok(parsed)
    }

    fn op_msg(message: &[u8], content: &'a [u8]) -> Result<Message<'a>> {
        let mut reader = Reader(content);
        let flags = reader.int()?.cast_unsigned();
        if flags & REQUIRED_BITS & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
            return Err(FrameError::new(format!("flags {flags:#x} of a message are not known")));
        }
        if flags & CHECKSUM_PRESENT != 0 {
            reader.0 = checked(message, reader.0)?;
        }
        let (mut body, mut sequences): (_, Vec<Sequence<'a>>) = (None, Vec::new());
        while !reader.0.is_empty() {
            match reader.byte()? {
                0 if body.is_none() => body = Some(reader.document()?),
                0 => return Err(FrameError::new("a message with two bodies")),
                1 => {
                    let sequence = reader.sequence()?;
                    if sequences.iter().any(|other| other.name == sequence.name) {
                        return Err(FrameError::new(format!("a message with two lists '{}'", sequence.name)));
                    }
                    sequences.push(sequence);
                }
                other => return Err(FrameError::new(format!("a section of kind {other}"))),
            }
        }
        let body = body.ok_or_else(|| FrameError::new("a message without a body"))?;
        Ok(Message { form: Form::Message, database: None, body, sequences, more_to_come: flags & MORE_TO_COME != 0 })
    }

    fn op_query(content: &'a [u8]) -> Result<Message<'a>> {
        let mut reader = Reader(content);
        let _flags = reader.int()?;
        let namespace = reader.text()?;
        let (_skip, _count) = (reader.int()?, reader.int()?);
        let body = reader.document()?;
        let Some(database) = namespace.strip_suffix(".$cmd") else {
            return Err(FrameError::new("OP_QUERY on a collection: use a driver that sends commands"));
        };
        Ok(Message { form: Form::Query, database: Some(database), body, sequences: Vec::new(), more_to_come: false })
    }
}

/// The content of a message without its checksum, which is verified.
fn checked<'a>(message: &[u8], content: &'a [u8]) -> Result<&'a [u8]> {
    let short = || FrameError::new("a message without the checksum that it announces");
    let (content, _) = content.split_last_chunk::<4>().ok_or_else(short)?;
    let (before, sum) = message.split_last_chunk::<4>().ok_or_else(short)?;
    if crc32c::crc32c(before) != u32::from_le_bytes(*sum) {
        return Err(FrameError::new("the checksum of a message is wrong"));
    }
    Ok(content)
}

/// Checks that a document can be read to its depth.
fn check(document: &RawDocument, levels: usize) -> Result<()> {
    use bson::raw::RawBsonRef;
    if levels == 0 {
        let what = format!("the command nests deeper than {DEPTH_MAX} levels");
        return Err(FrameError::of_command(ServerCode::Overflow, what));
    }
    for member in document {
        let (_, value) = member.map_err(|e| not_bson("a document", &e))?;
        match value {
            RawBsonRef::Document(inner) => check(inner, levels - 1)?,
            RawBsonRef::Array(list) => match RawDocument::from_bytes(list.as_bytes()) {
                Ok(inner) => check(inner, levels - 1)?,
                Err(e) => return Err(not_bson("a list", &e)),
            },
            RawBsonRef::JavaScriptCodeWithScope(code) => check(code.scope, levels - 1)?,
            _ => {}
        }
    }
    Ok(())
}

fn not_bson(what: &str, why: &bson::error::Error) -> FrameError {
    FrameError::of_command(ServerCode::InvalidBSON, format!("{what} of the command is not BSON: {why}"))
}

/// The frame of a reply.
pub(crate) fn reply(to: ReplyTo, document: &RawDocument, compressor: Option<Compressor>) -> Vec<u8> {
    let ReplyTo { request_id: response_to, form } = to;
    let body = document.as_bytes();
    let (op_code, before): (_, &[u8]) = match form {
        // No flags, one section of kind 0.
        Form::Message => (OP_MSG, &[0; 5]),
        // AwaitCapable, no cursor, from 0, one document.
        Form::Query => (OP_REPLY, &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
    };
    let mut frame = header_bytes(HEADER_BYTES + before.len() + body.len(), 0, response_to, op_code);
    frame.reserve_exact(before.len() + body.len());
    frame.extend(before);
    frame.extend(body);
    let content = &frame[HEADER_BYTES..];
    let Some((compressor, packed)) = compressor.and_then(|compressor| Some((compressor, compressor.pack(content)?)))
    else {
        return frame;
    };
    let mut compressed = header_bytes(HEADER_BYTES + 9 + packed.len(), 0, response_to, OP_COMPRESSED);
    compressed.extend(op_code.to_le_bytes());
    compressed.extend(length(content.len()));
    compressed.push(compressor.number());
    compressed.extend(packed);
    compressed
}

fn header_bytes(bytes: usize, request_id: i32, response_to: i32, op_code: i32) -> Vec<u8> {
    let rest = [request_id, response_to, op_code];
    length(bytes).into_iter().chain(rest.into_iter().flat_map(i32::to_le_bytes)).collect()
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_le_bytes()
}

/// What is left to read of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(bytes).ok_or_else(|| FrameError::new("a message ends before its content does"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn int(&mut self) -> Result<i32> {
        let bytes = self.take(4)?;
        Ok(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// The length that comes next, which counts itself.
    fn length(&self) -> Result<usize> {
        let length = Reader(self.0).int()?;
        let fits = usize::try_from(length).ok().filter(|length| (5..=self.0.len()).contains(length));
        fits.ok_or_else(|| FrameError::new(format!("{length} bytes where {} are left", self.0.len())))
    }

    fn document(&mut self) -> Result<&'a RawDocument> {
        let bytes = self.take(self.length()?)?;
        RawDocument::from_bytes(bytes).map_err(|e| not_bson("a document", &e))
    }

    fn text(&mut self) -> Result<&'a str> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| FrameError::new("a name without an end"))?;
        let name = &self.take(end + 1)?[..end];
        std::str::from_utf8(name).map_err(|_| FrameError::new("a name that is not UTF-8"))
    }

    fn sequence(&mut self) -> Result<Sequence<'a>> {
        let mut inner = Reader(self.take(self.length()?)?.get(4..).unwrap_or_default());
        let name = inner.text()?;
        let mut documents = Vec::new();
        while !inner.0.is_empty() {
            if documents.len() == WRITE_BATCH_MAX {
                let what = format!("more than {WRITE_BATCH_MAX} documents in one command: send them in several");
                return Err(FrameError::of_command(ServerCode::InvalidLength, what));
            }
            documents.push(inner.document()?);
        }
        Ok(Sequence { name, documents })
    }
}

#[cfg(test)]
mod tests;
