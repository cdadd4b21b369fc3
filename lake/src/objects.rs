//! Object storage as a store: S3, Google Cloud Storage, Azure, and what speaks their protocols.
//!
//! Requests run on threads of their own, so that they can be waited for anywhere. Requests that are refused because there are too
//! many (429, 503), and those that fail on the way, are repeated with growing pauses, until [`RETRIES_FOR`] have passed.

use crate::busy::Refused;
use crate::cancellation::Cancellation;
use crate::store::{Object, REQUESTS_AT_ONCE, Store, StoreError};
use bytes::Bytes;
use ebbtide::ttl::{Clock, SystemClock};
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};

/// For how long a request is repeated.
const RETRIES_FOR: Duration = Duration::from_secs(20);
/// More than there is time for.
const RETRIES_MAX: usize = 1_000;
/// A pause between repeated requests is random: at most this many times the one before, and at most this long.
const PAUSES_GROW: f64 = 3.0;
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long one request may take.
const REQUEST: &str = "60 seconds";
/// A larger object is fetched in parts of this size: each is repeated by itself, and takes less than a request may.
const PART_BYTES: u64 = 8 << 20;

/// A prefix of a bucket or container.
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    clock: SystemClock,
    refused: Refused,
    cancellation: Cancellation,
}

// What the store itself shows of its settings is not for logs.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("prefix", &self.prefix.as_ref()).finish_non_exhaustive()
    }
}

impl Objects {
    /// The store of a URL, `s3://bucket/path` and its like, with settings from the environment.
    pub(crate) fn open(url: &str, cancellation: &Cancellation) -> Result<Objects, StoreError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| StoreError::new("not a URL"))?;
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        let prefix = Path::parse(path.trim_matches('/')).map_err(|error| StoreError::new(&error.to_string()))?;
        check_server(scheme, |variable| std::env::var(variable).ok())?;
        let backoff = BackoffConfig { base: PAUSES_GROW, max_backoff: PAUSE_MAX, ..BackoffConfig::default() };
        let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRIES_FOR };
        // The environment may say otherwise.
        let timeout = |variable: &str| std::env::var(variable).unwrap_or_else(|_| REQUEST.to_owned());
        let key = ClientConfigKey::Timeout;
        let refused = Refused::default();
        let connector = refused.clone();
        let store: Result<Arc<dyn ObjectStore>, Error> = match scheme {
            "s3" => {
                let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry);
                let builder = builder.with_config(AmazonS3ConfigKey::Client(key), timeout("AWS_TIMEOUT"));
                builder.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
                let builder = builder.with_config(GoogleConfigKey::Client(key), timeout("GOOGLE_TIMEOUT"));
                builder.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
            }
            "az" => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
                let builder = builder.with_config(AzureConfigKey::Client(key), timeout("AZURE_TIMEOUT"));
                builder.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
            }
            other => return Err(StoreError::new(&format!("'{other}' is not a kind of storage"))),
        };
        let store = store.map_err(|error| StoreError::new(&error.to_string()))?;
        let (clock, cancellation) = (SystemClock::new(), cancellation.clone());
        Ok(Objects { store, prefix, clock, refused, cancellation })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Runs a request to its end, or until it is cancelled.
    fn run<T, F>(&self, request: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
        let started = RUNTIME.get_or_init(|| {
            let threads = tokio::runtime::Builder::new_multi_thread();
            { threads }.worker_threads(2).thread_name("ebbtide-lake").enable_all().build().ok()
        });
        let failed = |source: &str| Error::Generic { store: "lake", source: source.to_owned().into() };
        let runtime = started.as_ref().ok_or_else(|| failed("no threads for requests"))?;
        let (done, answer) = mpsc::channel();
        let (request, cancellation) = (request(Arc::clone(&self.store)), self.cancellation.clone());
        let cancelled = failed("the request was cancelled, since the program ends");
        drop(runtime.spawn(async move {
            let answer = tokio::select! {
                biased;
                () = cancellation.cancelled() => Err(cancelled),
                answer = request => answer,
            };
            // What has failed on the way is of no other kind.
            if !matches!(answer, Err(Error::Generic { .. })) {
                cancellation.count_answer();
            }
            // The caller waits for the result.
            drop(done.send(answer));
        }));
        let wait = || answer.recv().map_err(|_| failed("a request ended by a panic"));
        // A thread of the caller's runtime that waits hands its other tasks over.
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait)?,
            _ => wait()?,
        }
    }

    /// Parts of an object, several at a time; if a tag is given, only of the version that has it.
    fn parts(&self, name: &str, ranges: &[Range<u64>], tag: Option<String>) -> Result<Vec<Bytes>, StoreError> {
        let (path, wanted) = (self.path(name), ranges.to_vec());
        let parts = self.run(|store| async move {
            let get = async |range: Range<u64>| {
                let options = GetOptions::new().with_range(Some(range)).with_if_match(tag.clone());
                store.get_opts(&path, options).await?.bytes().await
            };
            futures::stream::iter(wanted.into_iter().map(get)).buffered(REQUESTS_AT_ONCE).try_collect::<Vec<_>>().await
        });
        let parts = parts.map_err(|error| shown(&error))?;
        match parts.iter().zip(ranges).all(|(part, range)| part.len() as u64 == range.end - range.start) {
            true => Ok(parts),
            false => Err(StoreError::new(&format!("{name} is shorter than it was"))),
        }
    }
}

/// Checks the address of a server that the environment names. The libraries below panic or give no reason if it is wrong.
fn check_server(scheme: &str, variable: impl Fn(&str) -> Option<String>) -> Result<(), StoreError> {
    let (names, allow) = match scheme {
        "s3" => (&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"][..], "AWS_ALLOW_HTTP"),
        "az" => (&["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"][..], "AZURE_ALLOW_HTTP"),
        _ => return Ok(()),
    };
    let is_true = |text: String| matches!(&*text.to_ascii_lowercase(), "1" | "true" | "on" | "yes" | "y");
    // An emulator has an address of its own.
    if scheme == "az" && variable("AZURE_STORAGE_USE_EMULATOR").is_some_and(is_true) {
        return Ok(());
    }
    // The first one counts.
    let set = names.iter().find_map(|name| Some((name, variable(name)?.to_ascii_lowercase())));
    let Some((name, address)) = set.filter(|(_, address)| !address.starts_with("https://")) else { return Ok(()) };
    let wrong = if !address.starts_with("http://") {
        format!("{name} must begin with https:// or http://")
    } else if !variable(allow).is_some_and(is_true) {
        format!("{name} begins with http://, which needs {allow}=true")
    } else {
        return Ok(());
    };
    Err(StoreError::new(&wrong))
}

fn shown(error: &Error) -> StoreError {
    StoreError::new(&error.to_string())
}

impl Store for Objects {
    fn gets_at_once(&self) -> usize {
        REQUESTS_AT_ONCE
    }

    fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let path = self.path(name);
        let found = self.run(|store| async move {
            let found = store.get(&path).await?;
            let meta = found.meta.clone();
            let content = if meta.size > PART_BYTES { None } else { Some(found.bytes().await?) };
            Ok((meta, content))
        });
        match found {
            Ok((_, Some(content))) => Ok(Some(content)),
            Ok((meta, None)) => {
                let starts = (0..meta.size).step_by(PART_BYTES as usize);
                let parts: Vec<_> = starts.map(|start| start..meta.size.min(start + PART_BYTES)).collect();
                Ok(Some(self.parts(name, &parts, meta.e_tag)?.concat().into()))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(shown(&error)),
        }
    }

    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        let path = self.path(name);
        match self.run(|store| async move { store.head(&path).await }) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(shown(&error)),
        }
    }

    fn get_range(&self, name: &str, start: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let path = self.path(name);
        let content = self.run(|store| async move { store.get_range(&path, start..start + bytes).await });
        let content = content.map_err(|error| shown(&error))?;
        match content.len() as u64 == bytes {
            true => Ok(content),
            false => Err(StoreError::new(&format!("{name} is shorter than it was"))),
        }
    }

    /// Several at a time.
    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        self.parts(name, ranges, None)
    }

    fn put(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        let path = self.path(name);
        let put = self.run(|store| async move { store.put(&path, PutPayload::from_bytes(content)).await });
        put.map(drop).map_err(|error| shown(&error))
    }

    fn put_if_absent(&self, name: &str, content: Bytes) -> Result<bool, StoreError> {
        let path = self.path(name);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.run(|store| async move { store.put_opts(&path, PutPayload::from_bytes(content), options).await }) {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(shown(&error)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let prefix = if folder.is_empty() { self.prefix.clone() } else { self.path(folder) };
        let asked = prefix.clone();
        let found = self.run(|store| async move {
            let prefix = Some(&asked).filter(|prefix| !prefix.as_ref().is_empty());
            Ok(store.list_with_delimiter(prefix).await?.objects)
        });
        let objects = found.map_err(|error| shown(&error))?.into_iter().filter_map(|meta| {
            let name = meta.location.prefix_match(&prefix)?;
            let name: Vec<_> = name.map(|part| part.as_ref().to_owned()).collect();
            let [name] = name.as_slice() else { return None };
            Some(Object { name: name.clone(), modified: meta.last_modified.timestamp_millis() })
        });
        Ok(objects.collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match self.run(|store| async move { store.delete(&path).await }) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(shown(&error)),
        }
    }

    fn refused(&self) -> u64 {
        self.refused.count()
    }

    fn now(&self) -> i64 {
        i64::try_from(self.clock.now().nanos().div_euclid(1_000_000)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    #[test]
    fn objects_of_one_part_and_of_several_are_read_as_they_were_written() {
        let objects = Objects {
            store: Arc::new(InMemory::new()),
            prefix: Path::from("prefix"),
            clock: SystemClock::new(),
            refused: Refused::default(),
            cancellation: Cancellation::default(),
        };
        let part = usize::try_from(PART_BYTES).unwrap();
        for bytes in [0, 1, part, part + 1, 3 * part, 3 * part + 17] {
            let content: Bytes = (0..bytes).map(|at| (at / 7) as u8).collect();
            objects.put("object", content.clone()).unwrap();
            assert!(objects.get("object").unwrap() == Some(content), "{bytes} bytes");
        }
        assert!(objects.exists("object").unwrap());
        assert!(!objects.exists("missing").unwrap());
        assert_eq!(objects.get("missing").unwrap(), None);
    }

    #[test]
    fn the_address_of_a_server_that_cannot_be_used_is_an_error() {
        for (scheme, variables, told) in [
            ("s3", &[("AWS_ENDPOINT_URL", "https://h:9000")][..], None),
            ("s3", &[("AWS_ENDPOINT_URL", "http://h:9000"), ("AWS_ALLOW_HTTP", "true")][..], None),
            ("s3", &[("AWS_ENDPOINT_URL", "http://h:9000")][..], Some("needs AWS_ALLOW_HTTP=true")),
            ("s3", &[("AWS_ENDPOINT_URL", "h:9000")][..], Some("AWS_ENDPOINT_URL must begin with https:// or http://")),
            ("az", &[("AZURE_STORAGE_ENDPOINT", "http://h")][..], Some("needs AZURE_ALLOW_HTTP=true")),
            ("az", &[("AZURE_STORAGE_ENDPOINT", "http://h"), ("AZURE_STORAGE_USE_EMULATOR", "true")][..], None),
            ("gs", &[("AWS_ENDPOINT_URL", "h:9000")][..], None),
        ] {
            let found = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            let error = check_server(scheme, found).err().map(|error| error.to_string());
            match told {
                None => assert_eq!(error, None),
                Some(told) => assert!(error.as_ref().is_some_and(|error| error.contains(told)), "{error:?}"),
            }
        }
    }

    #[test]
    fn requests_that_are_not_answered_and_later_ones_can_be_cancelled() {
        let objects = Objects {
            store: Arc::new(InMemory::new()),
            prefix: Path::from("prefix"),
            clock: SystemClock::new(),
            refused: Refused::default(),
            cancellation: Cancellation::default(),
        };
        objects.put("object", Bytes::from_static(b"content")).unwrap();
        assert!(!objects.exists("missing").unwrap());
        let cancellation = objects.cancellation.clone();
        let fails = || Error::Generic { store: "lake", source: "no connection".into() };
        assert!(objects.run(|_| async move { Err::<(), Error>(fails()) }).is_err());
        assert_eq!(cancellation.answered(), 2);
        // It is cancelled while it runs.
        let unanswered = objects.run(|_| async move {
            cancellation.cancel();
            std::future::pending::<Result<(), Error>>().await
        });
        assert!(unanswered.unwrap_err().to_string().contains("was cancelled"));
        assert!(objects.get("object").unwrap_err().to_string().contains("was cancelled"));
        assert_eq!(objects.cancellation.answered(), 2);
    }
}
