//! Arrow IPC files state the length of each message before it, and the decompressed size of each buffer. Arrow's reader
//! allocates that much at once, so impossible claims are refused before it reads the file.

use arrow::ipc::{RecordBatch, root_as_footer, root_as_message};
use std::io::{Read, Seek, SeekFrom};

/// Maximum total size of the decompressed buffers of one message.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// Bytes at the end of a file: the length of the footer, and the magic.
const END_BYTES: u64 = 10;

/// The two formats of Arrow IPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With a footer that lists the positions of messages.
    File,
    /// One message after the other.
    Stream,
}

/// Checks all lengths in a file.
pub(super) fn check(file: &mut (impl Read + Seek), form: Form) -> Result<(), String> {
    let len = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    match form {
        Form::File => check_file(file, len),
        Form::Stream => check_stream(file, len),
    }
}

fn check_file(file: &mut (impl Read + Seek), len: u64) -> Result<(), String> {
    let before = len.checked_sub(END_BYTES).ok_or("it ends early")?;
    let footer = length(&read_at(file, len, before, 4)?)?;
    let start = before.checked_sub(footer).ok_or("its footer is longer than the file")?;
    let bytes = read_at(file, len, start, footer)?;
    let footer = root_as_footer(&bytes).map_err(|e| format!("its footer: {e}"))?;
    let blocks = footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().into_iter().flatten());
    for block in blocks {
        let parts = (block.offset(), i64::from(block.metaDataLength()), block.bodyLength());
        let (Ok(at), Ok(head), Ok(body)) = (u64::try_from(parts.0), u64::try_from(parts.1), u64::try_from(parts.2))
        else {
            return Err("a length in its footer is negative".to_owned());
        };
        let metadata = metadata(file, len, at)?.ok_or("its footer names a message that does not exist")?.1;
        check_message(file, len, &metadata, (at.saturating_add(head), body))?;
    }
    Ok(())
}

fn check_stream(file: &mut (impl Read + Seek), len: u64) -> Result<(), String> {
    let mut at = 0;
    while at < len {
        let Some((body_at, metadata)) = metadata(file, len, at)? else { break };
        let message = root_as_message(&metadata).map_err(|e| format!("a message: {e}"))?;
        let body = u64::try_from(message.bodyLength()).map_err(|_| "the length of a message is negative")?;
        check_message(file, len, &metadata, (body_at, body))?;
        at = body_at + body;
    }
    Ok(())
}

/// The metadata of the message at an offset, and where its body begins; `None` at the end of a stream.
fn metadata(file: &mut (impl Read + Seek), len: u64, at: u64) -> Result<Option<(u64, Vec<u8>)>, String> {
    let first = read_at(file, len, at, 4)?;
    // Older writers omit the continuation marker.
    let (word, start) = match first == [0xff; 4] {
        true => (read_at(file, len, at + 4, 4)?, at + 8),
        false => (first, at + 4),
    };
    match length(&word)? {
        0 => Ok(None),
        bytes => Ok(Some((start + bytes, read_at(file, len, start, bytes)?))),
    }
}

fn check_message(
    file: &mut (impl Read + Seek),
    len: u64,
    metadata: &[u8],
    (body_at, body): (u64, u64),
) -> Result<(), String> {
    if body_at.checked_add(body).is_none_or(|end| end > len) {
        return Err(format!("a message claims a length of {body} bytes, but the file ends before"));
    }
    let message = root_as_message(metadata).map_err(|e| format!("a message: {e}"))?;
    let of_dictionary = || message.header_as_dictionary_batch()?.data();
    match message.header_as_record_batch().or_else(of_dictionary) {
        Some(batch) if batch.compression().is_some() => check_unpacked(file, len, &batch, body_at),
        _ => Ok(()),
    }
}

/// Each compressed buffer begins with its decompressed length.
fn check_unpacked(
    file: &mut (impl Read + Seek),
    len: u64,
    batch: &RecordBatch<'_>,
    body_at: u64,
) -> Result<(), String> {
    let mut unpacked: u64 = 0;
    for buffer in batch.buffers().into_iter().flatten().filter(|buffer| buffer.length() != 0) {
        let offset = u64::try_from(buffer.offset()).map_err(|_| "the offset of a buffer is negative")?;
        let prefix = read_at(file, len, body_at.saturating_add(offset), 8)?;
        let claim = i64::from_le_bytes(prefix.try_into().map_err(|_| "it ends early")?);
        // -1 means that the buffer is not compressed.
        unpacked = unpacked.saturating_add(u64::try_from(claim.max(0)).unwrap_or(0));
        if claim < -1 || unpacked > UNPACKED_BYTES_MAX {
            let most = UNPACKED_BYTES_MAX >> 20;
            return Err(format!("a batch claims a decompressed size of more than {most} MiB: write smaller batches"));
        }
    }
    Ok(())
}

fn length(word: &[u8]) -> Result<u64, String> {
    let word = word.try_into().map(i32::from_le_bytes).map_err(|_| "it ends early")?;
    u64::try_from(word).map_err(|_| "a length is negative".to_owned())
}

fn read_at(file: &mut (impl Read + Seek), len: u64, at: u64, bytes: u64) -> Result<Vec<u8>, String> {
    if at.checked_add(bytes).is_none_or(|end| end > len) {
        return Err("it ends early".to_owned());
    }
    let mut buffer = vec![0; usize::try_from(bytes).map_err(|_| "it is too large for this machine")?];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut buffer)).map_err(|e| e.to_string())?;
    Ok(buffer)
}

#[cfg(test)]
mod tests;
