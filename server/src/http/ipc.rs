//! Arrow's messages from clients. They state the length of what follows and the size to which it unpacks, and Arrow's readers
//! allocate that much at once and expect each buffer within its message: what cannot be true is refused before.

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::{Message, root_as_message};
use arrow::record_batch::RecordBatch;
use axum::body::Bytes;

/// What a stream ends with.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

fn wrong(what: impl Into<String>) -> ArrowError {
    ArrowError::IpcError(what.into())
}

fn early() -> ArrowError {
    wrong("it ends early")
}

/// Bytes, and those that come after them.
type Parted<'a> = (&'a [u8], &'a [u8]);

/// The batches of a stream, whose buffers take `most` bytes together at most.
pub(super) fn batches(body: &Bytes, most: usize) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let messages = Buffer::from(body.clone()).slice_with_length(0, checked(body, most)?);
    let (mut decoder, mut batches) = (StreamDecoder::new(), Vec::new());
    for mut rest in [messages, Buffer::from(END)] {
        while !rest.is_empty() {
            batches.extend(decoder.decode(&mut rest)?);
        }
    }
    Ok((decoder.schema().ok_or_else(early)?, batches))
}

/// Checks the messages of a stream; the bytes that they take.
fn checked(stream: &[u8], most: usize) -> Result<usize, ArrowError> {
    let (mut rest, mut left) = (stream, most);
    while let Some((metadata, after)) = metadata(rest)? {
        let message = root_as_message(metadata).map_err(|error| wrong(format!("a message: {error}")))?;
        let length = usize::try_from(message.bodyLength()).map_err(|_| early())?;
        let (body, after) = after.split_at_checked(length).ok_or_else(early)?;
        check(&message, body, &mut left)?;
        rest = after;
    }
    Ok(stream.len() - rest.len())
}

/// The metadata of the next message, and what comes after it; nothing at the end.
fn metadata(stream: &[u8]) -> Result<Option<Parted<'_>>, ArrowError> {
    if stream.is_empty() {
        return Ok(None);
    }
    // Older writers omit the mark before the length.
    let rest = stream.strip_prefix(&[0xff; 4]).unwrap_or(stream);
    let (length, rest) = rest.split_first_chunk().ok_or_else(early)?;
    match usize::try_from(i32::from_le_bytes(*length)).map_err(|_| early())? {
        0 => Ok(None),
        length => rest.split_at_checked(length).ok_or_else(early).map(Some),
    }
}

/// Checks that the buffers of a message are within its body, and take no more bytes than are left once they are unpacked.
pub(super) fn check(message: &Message<'_>, body: &[u8], left: &mut usize) -> Result<(), ArrowError> {
    let of_dictionary = || message.header_as_dictionary_batch()?.data();
    let Some(batch) = message.header_as_record_batch().or_else(of_dictionary) else { return Ok(()) };
    for buffer in batch.buffers().into_iter().flatten() {
        let (at, length) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length()));
        let range = at.ok().zip(length.ok()).and_then(|(at, length)| Some(at..at.checked_add(length)?));
        let part =
            range.and_then(|range| body.get(range)).ok_or_else(|| wrong("a buffer is not within its message"))?;
        let bytes = match batch.compression() {
            Some(_) if !part.is_empty() => match part.first_chunk().map(|claim| i64::from_le_bytes(*claim)) {
                // It is not compressed.
                Some(-1) => part.len(),
                Some(claim) => usize::try_from(claim).unwrap_or(usize::MAX),
                None => return Err(early()),
            },
            _ => part.len(),
        };
        let more = || wrong("its buffers take more bytes than message_bytes of [limits] allows: send less at a time");
        *left = left.checked_sub(bytes).ok_or_else(more)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
    use std::sync::Arc;

    const MOST: usize = 1 << 20;

    /// Nothing if this build of Arrow does not compress so.
    fn stream(compression: Option<CompressionType>) -> Option<Vec<u8>> {
        let column = Arc::new(Int64Array::from(vec![7; 1000]));
        let batch = RecordBatch::try_from_iter([("x", column as _)]).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).ok()?;
        writer.write(&batch.slice(0, 0)).unwrap();
        writer.into_inner().ok()
    }

    fn error(stream: Vec<u8>) -> String {
        batches(&stream.into(), MOST).unwrap_err().to_string()
    }

    /// With the last number of this value in another one's place.
    fn with(mut stream: Vec<u8>, value: i64, other: i64) -> Vec<u8> {
        let at = stream.windows(8).rposition(|window| window == value.to_le_bytes()).unwrap();
        stream[at..at + 8].copy_from_slice(&other.to_le_bytes());
        stream
    }

    #[test]
    fn streams_are_read_with_and_without_their_end() {
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let Some(whole) = stream(compression) else { continue };
            let with_more = [&whole[..], b"more"].concat();
            let cut = whole[..whole.len() - END.len()].to_vec();
            for stream in [whole, with_more, cut] {
                let (schema, batches) = batches(&stream.into(), MOST).unwrap();
                assert_eq!(schema.fields().len(), 1);
                assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [1000, 0]);
            }
        }
    }

    #[test]
    fn lengths_that_cannot_be_true_are_refused() {
        let plain = stream(None).unwrap();
        assert!(error([&b"\xff\xff\xff\xff\xff\xff\xff\x7f"[..], &[b'a'; 64]].concat()).contains("ends early"));
        assert!(error(Vec::new()).contains("ends early"));
        assert!(error(plain[..plain.len() / 2].to_vec()).contains("ends early"));
        // The length of the body, and that of its only buffer.
        for length in [1 << 62, -1] {
            let mut changed = plain.clone();
            while let Some(at) = changed.windows(8).position(|window| window == 8000_i64.to_le_bytes()) {
                changed[at..at + 8].copy_from_slice(&i64::to_le_bytes(length));
            }
            let error = error(changed);
            assert!(error.contains("ends early") || error.contains("not within"), "{error}");
        }
        let outside = error(with(plain.clone(), 8000, 1 << 40));
        assert!(outside.contains("not within") || outside.contains("ends early"), "{outside}");
        // What a buffer says that it unpacks to.
        if let Some(packed) = stream(Some(CompressionType::LZ4_FRAME)) {
            assert!(error(with(packed, 8000, 1 << 62)).contains("message_bytes"));
        }
        assert!(batches(&plain.into(), 7999).is_err());
    }
}
