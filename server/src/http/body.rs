//! The body of a request.

use super::caller::Refused;
use crate::shared::{MEMORY_UNIT, Shared, add};
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, StatusCode};
use flate2::read::MultiGzDecoder;
use std::io::Read;
use tokio::sync::SemaphorePermit;

/// The body as it was sent, with the memory that it takes.
pub(super) async fn raw<'a>(
    shared: &'a Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<(SemaphorePermit<'a>, Bytes), Refused> {
    let most = shared.settings.message_bytes_max;
    // As much as a body may have where its length is not known before its end.
    let length = headers.get(CONTENT_LENGTH).filter(|_| !headers.contains_key(CONTENT_ENCODING));
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(most).min(most);
    let units = u32::try_from(length.div_ceil(MEMORY_UNIT)).unwrap_or(u32::MAX);
    let stops = |_| Refused(StatusCode::SERVICE_UNAVAILABLE, "the server stops".to_owned());
    let memory = shared.memory.acquire_many(units).await.map_err(stops)?;
    let longest = shared.settings.stall_max;
    let body = tokio::time::timeout(longest, to_bytes(body, most)).await.map_err(|_| {
        Refused(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} s", longest.as_secs()))
    })?;
    let body = body.map_err(|_| too_large(most))?;
    add(&shared.counters.http_bytes_in, body.len() as u64);
    Ok((memory, body))
}

/// The body, which may be compressed with gzip, with the memory that it takes.
pub(super) async fn read<'a>(
    shared: &'a Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<(SemaphorePermit<'a>, Bytes), Refused> {
    let (memory, body) = raw(shared, headers, body).await?;
    let body = match headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
        None | Some(b"" | b"identity") => body,
        Some(b"gzip" | b"x-gzip") => unzipped(&body, shared.settings.message_bytes_max)?,
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

/// What a body of gzip has, at most `most` bytes.
fn unzipped(body: &[u8], most: usize) -> Result<Bytes, Refused> {
    let mut text = Vec::new();
    match MultiGzDecoder::new(body).take(most as u64 + 1).read_to_end(&mut text) {
        Ok(_) if text.len() > most => Err(too_large(most)),
        Ok(_) => Ok(text.into()),
        Err(error) => Err(Refused(StatusCode::BAD_REQUEST, format!("the body is no complete gzip: {error}"))),
    }
}
