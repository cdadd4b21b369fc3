//! Requests with a key, which are stored once however often they come.
//!
//! A key is known for an account, an interface and a database. With it the checksum of what the request says is kept, and what
//! became of it.

use super::lines::BadLines;
use super::problem::Problem;
use crate::shared::{Shared, add};
use axum::http::{HeaderMap, StatusCode};
use ebbtide::{BegunRequest, Database, Request, WriteBatch, WriteBatchError};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;

/// The header with the key.
pub(super) const KEY: &str = "idempotency-key";
/// Bytes of a key at most.
const KEY_BYTES_MAX: usize = 255;

/// What became of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    /// Rows that were stored.
    pub(super) stored: u64,
    /// Lines that were not.
    #[serde(flatten)]
    pub(super) bad: BadLines,
}

impl Written {
    pub(super) fn all(stored: u64) -> Written {
        Written { stored, bad: BadLines::default() }
    }

    /// How many rows were stored, if all were.
    ///
    /// # Errors
    /// About the lines that were not.
    pub(super) fn complete(self) -> Result<u64, Problem> {
        if self.bad.is_empty() {
            return Ok(self.stored);
        }
        Err(Problem::of_lines(self.bad, usize::try_from(self.stored).unwrap_or(usize::MAX)))
    }

    /// As it is kept with the key.
    pub(super) fn to_reply(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn of_reply(reply: &[u8]) -> Result<Written, Problem> {
        serde_json::from_slice(reply).map_err(|error| {
            let what = format!("the request was stored, and the reply to it cannot be read: {error}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what)
        })
    }
}

/// The key of a request and the checksum of what it says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Once {
    key: [u8; 32],
    digest: [u8; 32],
}

impl Once {
    /// Of a request with a key. `content` is what two requests that are one have in common.
    ///
    /// # Errors
    /// If there are several keys, or one that is no key.
    pub(super) fn of(
        (interface, account): (&str, &str),
        headers: &HeaderMap,
        content: &[&[u8]],
    ) -> Result<Option<Once>, Problem> {
        let mut keys = headers.get_all(KEY).iter();
        let Some(key) = keys.next() else { return Ok(None) };
        let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && key.to_str().is_ok();
        if !is_key || keys.next().is_some() {
            let what = format!("Idempotency-Key is one text of 1 to {KEY_BYTES_MAX} visible ASCII characters");
            return Err(Problem::bad(what));
        }
        let key = checksum(&[b"given", interface.as_bytes(), account.as_bytes(), key.as_bytes()]);
        Ok(Some(Once { key, digest: checksum(content) }))
    }

    /// Of a request without a key, which is the one that says the same.
    pub(super) fn of_content((interface, account): (&str, &str), content: &[&[u8]]) -> Once {
        let digest = checksum(content);
        Once { key: checksum(&[b"made", interface.as_bytes(), account.as_bytes(), &digest]), digest }
    }
}

/// The SHA-256 of some texts, each with its length before it.
fn checksum(texts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text);
    }
    let mut sum = [0; 32];
    sum.copy_from_slice(context.finish().as_ref());
    sum
}

/// Runs a write, or tells what became of it when it came before. What it stores is added to `counter`.
pub(super) fn run(
    (shared, database): (&Shared, &Database),
    once: Option<Once>,
    counter: &AtomicU64,
    write: impl FnOnce(Option<&mut Request>) -> Result<Written, Problem>,
) -> Result<Written, Problem> {
    let written = match once.map(|Once { key, digest }| database.begin_request(key, digest)).transpose()? {
        None => write(None)?,
        Some(BegunRequest::New(mut request)) => write(Some(&mut request))?,
        Some(BegunRequest::Repeated(reply)) => {
            add(&shared.counters.requests_repeated, 1);
            return Written::of_reply(&reply);
        }
        Some(BegunRequest::OtherContent) => {
            let what = "the Idempotency-Key was used for a request with other content: nothing was stored";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what));
        }
    };
    add(counter, written.stored);
    Ok(written)
}

/// Stores a batch, with the request that it is of.
pub(super) fn commit(
    batch: WriteBatch<'_>,
    request: Option<&mut Request>,
    written: &Written,
) -> Result<u64, WriteBatchError> {
    match request {
        Some(request) => batch.commit_once(request, &written.to_reply()),
        None => batch.commit(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::BadLine;
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_key_is_of_an_account_and_an_interface() {
        let headers = HeaderMap::from_iter([(KEY.parse().unwrap(), HeaderValue::from_static("a"))]);
        let of = |who, content: &[&[u8]]| Once::of(who, &headers, content).ok().flatten().unwrap();
        let first = of(("lines", "ada"), &[b"m", b"v=1"]);
        assert_eq!(first, of(("lines", "ada"), &[b"m", b"v=1"]));
        let other = of(("lines", "ada"), &[b"mv", b"=1"]);
        assert!(other.key == first.key && other.digest != first.digest);
        assert_ne!(of(("lines", "bob"), &[]).key, first.key);
        assert_ne!(of(("samples", "ada"), &[]).key, first.key);
        assert_eq!(Once::of(("lines", "ada"), &HeaderMap::new(), &[]).ok(), Some(None));
    }

    #[test]
    fn a_key_is_one_short_text() {
        for values in [vec![""], vec!["a", "b"], vec!["a\tb\u{fc}"]] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(KEY, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            assert!(Once::of(("lines", ""), &headers, &[]).is_err(), "{headers:?}");
        }
        let long = HeaderMap::from_iter([(KEY.parse().unwrap(), HeaderValue::from_str(&"k".repeat(256)).unwrap())]);
        assert!(Once::of(("lines", ""), &long, &[]).is_err());
    }

    #[test]
    fn a_reply_is_what_it_was() {
        let bad = [BadLine::new(2, "no fields", b"cpu")].into_iter().collect();
        let written = Written { stored: 3, bad };
        assert_eq!(Written::of_reply(&written.to_reply()).ok().as_ref(), Some(&written));
        let before = br#"{"stored":3,"bad":[{"number":2,"reason":"no fields","text":"cpu"}]}"#;
        assert_eq!(Written::of_reply(before).ok(), Some(written));
        assert!(Written::of_reply(b"").is_err());
    }
}
