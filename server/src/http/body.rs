//! The body of a request.

use super::caller::Refused;
use crate::shared::{MessageMemory, Shared, add};
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use flate2::read::MultiGzDecoder;
use futures::StreamExt;
use std::io::Read;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout, timeout_at};

/// Bytes that are unpacked at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The body as it was sent, with the memory that it takes: as much as has come, whatever it announces.
pub(super) async fn raw(shared: &Shared, body: Body) -> Result<(MessageMemory<'_>, Bytes), Refused> {
    let (most, longest) = (shared.settings.message_bytes_max, shared.settings.stall_max);
    let mut memory = MessageMemory::default();
    let (mut pieces, mut bytes) = (body.into_data_stream(), Vec::new());
    let mut deadline = Instant::now() + longest;
    let late =
        |_| Refused(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} s", longest.as_secs()));
    while let Some(piece) = timeout_at(deadline, pieces.next()).await.map_err(late)? {
        let piece =
            piece.map_err(|error| Refused(StatusCode::BAD_REQUEST, format!("the body does not end: {error}")))?;
        if bytes.len() + piece.len() > most {
            return Err(too_large(most));
        }
        let begun = Instant::now();
        reserve(shared, &mut memory, bytes.len() + piece.len()).await?;
        deadline += begun.elapsed();
        bytes.extend_from_slice(&piece);
    }
    add(&shared.counters.http_bytes_in, bytes.len() as u64);
    Ok((memory, bytes.into()))
}

/// Waits until there is memory for so many bytes in all.
async fn reserve<'a>(shared: &'a Shared, memory: &mut MessageMemory<'a>, bytes: usize) -> Result<(), Refused> {
    let longest = shared.settings.stall_max;
    let grown = timeout(longest, shared.grow(memory, bytes)).await.map_err(|_| {
        let what = format!(
            "there was no memory for the body within {} s: send it again later, or raise message_memory_bytes of [limits]",
            longest.as_secs()
        );
        Refused(StatusCode::SERVICE_UNAVAILABLE, what)
    })?;
    grown.map_err(|_| stops())
}

fn stops() -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, "the server stops".to_owned())
}

/// The body, which may be compressed with gzip, with the memory that it takes.
pub(super) async fn read<'a>(
    shared: &'a Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<(MessageMemory<'a>, Bytes), Refused> {
    let (mut memory, body) = raw(shared, body).await?;
    let encoding = headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes().to_ascii_lowercase());
    let body = match encoding.as_deref() {
        None | Some(b"" | b"identity") => body,
        Some(b"gzip" | b"x-gzip") => unzipped(shared, &mut memory, &body).await?,
        Some(_) => {
            let what = "a body is plain or has Content-Encoding: gzip";
            return Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, what.to_owned()));
        }
    };
    Ok((memory, body))
}

/// The refusal of more than `most` bytes.
pub(super) fn too_large(most: usize) -> Refused {
    Refused(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have {most} bytes: send less at a time"))
}

/// What a body of gzip has, at most as many bytes as a body may have.
async fn unzipped<'a>(shared: &'a Shared, memory: &mut MessageMemory<'a>, body: &[u8]) -> Result<Bytes, Refused> {
    let (mut decoder, mut text) = (MultiGzDecoder::new(body), Vec::new());
    let most = shared.settings.message_bytes_max;
    loop {
        reserve(shared, memory, body.len() + text.len() + PIECE_BYTES).await?;
        let piece = block_in_place(|| decoder.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut text));
        match piece {
            Ok(_) if text.len() > most => return Err(too_large(most)),
            Ok(0) => return Ok(text.into()),
            Ok(_) => {}
            Err(error) => {
                return Err(Refused(StatusCode::BAD_REQUEST, format!("the body is not a complete gzip file: {error}")));
            }
        }
    }
}
