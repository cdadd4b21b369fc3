//! Counts the requests that a server refuses because there are too many: the library that repeats them does not tell.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Too Many Requests, and Service Unavailable, which S3 and Azure answer instead.
const REFUSALS: [u16; 2] = [429, 503];

/// How many requests were refused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refused(Arc<AtomicU64>);

impl Refused {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl HttpConnector for Refused {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Counted { client, refused: self.clone() }))
    }
}

#[derive(Debug)]
struct Counted {
    client: HttpClient,
    refused: Refused,
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.client.execute(request).await?;
        if REFUSALS.contains(&response.status().as_u16()) {
            self.refused.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(response)
    }
}
