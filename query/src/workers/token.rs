//! The secret that workers and sessions share.

use crate::error::{QueryError, Result};
use ebbtide_ttl::Code;
use http::HeaderValue;
use std::fmt;

/// The least number of characters.
const LENGTH_MIN: usize = 16;

/// A secret that a worker asks of those who send it queries. It is sent as it is: on a network that others listen on, put the
/// connections into a tunnel.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerToken(String);

impl fmt::Debug for WorkerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerToken(..)")
    }
}

impl WorkerToken {
    /// A secret of at least 16 printable ASCII characters; white space around it does not count.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if it is anything else.
    pub fn new(secret: &str) -> Result<WorkerToken> {
        let secret = secret.trim();
        if secret.len() < LENGTH_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what =
                format!("the token of workers needs at least {LENGTH_MIN} printable ASCII characters without spaces");
            return Err(QueryError::new(Code::InvalidOptions, what));
        }
        Ok(WorkerToken(secret.to_owned()))
    }

    /// The header `authorization` with it.
    pub(super) fn header(&self) -> HeaderValue {
        let value = HeaderValue::from_str(&format!("Bearer {}", self.0));
        let mut value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }

    /// Whether a header has it. The time that this takes does not depend on where they differ.
    pub(super) fn is_in(&self, header: Option<&[u8]>) -> bool {
        let (expected, given) = (self.header(), header.unwrap_or_default());
        let expected = expected.as_bytes();
        let differs = |(a, b): (&u8, &u8)| a ^ b;
        expected.len() == given.len() && expected.iter().zip(given).map(differs).fold(0, |all, one| all | one) == 0
    }
}
