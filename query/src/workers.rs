//! Queries that several machines answer.
//!
//! The database is a copy that was shipped to a store ([`ebbtide::CopyPosition`]). The session plans a query over its snapshot
//! without reading segments; `datafusion-distributed` cuts the plan into stages and sends their tasks to workers. With each task go the
//! position of the copy and the instant of the snapshot, so all workers see what the session sees.
//!
//! 1. A leaf of a plan reads a [`share`] of a collection: each segment and each file of an archive is in exactly one share, and open
//!    buckets are in the first. The segments of a share are named; a worker that lacks one fails.
//! 2. A worker opens exactly the position that it is asked for, or fails.
//! 3. A failure of a task is a failure of the query, with the worker's address.
//! 4. What cannot be sent runs in the session itself, which then fetches what it needs.

mod channels;
mod codec;
mod leaf;
mod newest;
mod pinned;
mod plan;
mod server;
mod share;
mod token;
mod words;

pub(crate) use leaf::{Reads, shared_latest, shared_scan};
pub(crate) use plan::plan;
pub use server::{Serving, WorkerSettings};
pub use token::WorkerToken;
pub(crate) use words::words;

use crate::error::{QueryError, Result};
use channels::Channels;
use ebbtide_ttl::Code;
use std::sync::Arc;
use url::Url;

/// Machines that answer parts of a session's queries.
#[derive(Debug, Clone)]
pub struct Workers {
    urls: Arc<Vec<Url>>,
    channels: Channels,
}

impl PartialEq for Workers {
    fn eq(&self, other: &Workers) -> bool {
        (&self.urls, self.channels.token()) == (&other.urls, other.channels.token())
    }
}

impl Eq for Workers {}

impl Workers {
    /// The workers at these addresses, such as `10.0.0.7:7070`, and the secret that they ask for.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if one is no address, or there is none.
    pub fn new(addresses: &[impl AsRef<str>], token: Option<WorkerToken>) -> Result<Workers> {
        let mut urls = addresses.iter().map(|address| url_of(address.as_ref())).collect::<Result<Vec<_>>>()?;
        // In an order that is the same in all sessions: each worker gets its own share of the segments again.
        urls.sort();
        urls.dedup();
        if urls.is_empty() {
            return Err(QueryError::new(Code::InvalidOptions, "there is no worker: name at least one address"));
        }
        Ok(Workers { urls: Arc::new(urls), channels: Channels::new(token) })
    }

    /// How many tasks a stage has that reads a collection. One worker gets two: with one the plan would not be cut.
    fn tasks(&self) -> usize {
        self.urls.len().max(2)
    }

    /// The worker of a task.
    fn url(&self, task: usize) -> &Url {
        &self.urls[task % self.urls.len()]
    }
}

fn url_of(address: &str) -> Result<Url> {
    let text = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    // A URL does not keep the port that its scheme has by default.
    let port = address.trim_end_matches('/').rsplit_once(':').map_or("", |(_, port)| port);
    let has_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let url = Url::parse(&text).ok().filter(|url| {
        has_port
            && url.scheme() == "http"
            && url.has_host()
            && url.port_or_known_default().is_some()
            && url.path() == "/"
    });
    url.ok_or_else(|| {
        let what = format!("'{address}' is not the address of a worker: write HOST:PORT, such as 10.0.0.7:7070");
        QueryError::new(Code::InvalidOptions, what)
    })
}

/// The address in a worker's URL.
fn address_of(url: &Url) -> &str {
    &url[url::Position::BeforeHost..url::Position::AfterPort]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        for (address, shown) in
            [("10.0.0.7:7070", "10.0.0.7:7070"), ("http://h:80/", "h"), ("[::1]:7070", "[::1]:7070")]
        {
            assert_eq!(address_of(&url_of(address).unwrap()), shown);
        }
        for address in ["", "h", "1.2.3", "[::1]", "http://h", "h:", "h:x", "https://h:1", "h:1/path"] {
            let error = url_of(address).unwrap_err().to_string();
            assert!(error.contains("write HOST:PORT"), "{address}: {error}");
        }
    }
}
