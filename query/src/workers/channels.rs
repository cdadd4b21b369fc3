//! Connections to workers: with the secret, and with the worker's address in every error.

use super::{WorkerToken, address_of};
use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::stream::{BoxStream, StreamExt};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tonic::transport::Endpoint;
use url::Url;

/// How long a worker may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How often a worker is asked whether it is still there, and how long it may take to answer: a machine that is gone ends a query.
const ALIVE: Duration = Duration::from_secs(10);

/// Connects to workers. A connection is used again, by all queries of a session or a worker.
#[derive(Clone, Default)]
pub(super) struct Channels {
    token: Option<WorkerToken>,
    connections: Arc<Mutex<HashMap<Url, BoxCloneSyncChannel>>>,
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("token", &self.token).finish_non_exhaustive()
    }
}

impl Channels {
    pub(super) fn new(token: Option<WorkerToken>) -> Channels {
        Channels { token, connections: Arc::default() }
    }

    pub(super) fn token(&self) -> Option<&WorkerToken> {
        self.token.as_ref()
    }

    /// The connection to a worker. One that breaks is made anew when it is used again.
    async fn connection(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let known = self.connections.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let failed = |error: tonic::transport::Error| {
            let failure = WorkerFailure(format!("{BEGIN}{} cannot be reached: {}", address_of(url), cause(&error)));
            DataFusionError::External(Box::new(failure))
        };
        let endpoint = Endpoint::from_shared(url.to_string()).map_err(failed)?;
        let endpoint = endpoint.connect_timeout(CONNECT).tcp_nodelay(true);
        let endpoint = endpoint.http2_keep_alive_interval(ALIVE).keep_alive_timeout(ALIVE);
        let connection = BoxCloneSyncChannel::new(endpoint.connect().await.map_err(failed)?);
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.insert(url.clone(), connection.clone());
        Ok(connection)
    }
}

/// What is at the bottom of an error.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let channel = create_worker_client(self.connection(url).await?);
        Ok(Box::new(NamedChannel { channel, address: address_of(url).into(), token: self.token.clone() }))
    }
}

/// A connection to a worker.
struct NamedChannel {
    channel: Box<dyn WorkerChannel>,
    address: Arc<str>,
    token: Option<WorkerToken>,
}

impl NamedChannel {
    fn with_token(&self, mut headers: HeaderMap) -> HeaderMap {
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.header());
        }
        headers
    }
}

#[async_trait]
impl WorkerChannel for NamedChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        plan: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let (headers, address) = (self.with_token(headers), Arc::clone(&self.address));
        let answers = self.channel.coordinator_channel(headers, plan, messages, metrics, context).await;
        let answers = answers.map_err(|error| WorkerFailure::of(&address, &error))?;
        Ok(answers.map(move |answer| answer.map_err(|error| WorkerFailure::of(&address, &error))).boxed())
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let headers = self.with_token(headers);
        let streams = self.channel.execute_task(headers, request, metrics, context).await;
        let streams = streams.map_err(|error| WorkerFailure::of(&self.address, &error))?;
        let named = |stream: BoxStream<'static, Result<RecordBatch>>| {
            let address = Arc::clone(&self.address);
            stream.map(move |batch| batch.map_err(|error| WorkerFailure::of(&address, &error))).boxed()
        };
        Ok(streams.into_iter().map(named).collect())
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        let info = self.channel.get_worker_info(request).await;
        info.map_err(|error| WorkerFailure::of(&self.address, &error))
    }
}

/// What went wrong at a worker.
#[derive(Debug)]
struct WorkerFailure(String);

/// What every message begins with. A worker that passes on what another one said adds nothing.
const BEGIN: &str = "worker ";

impl WorkerFailure {
    fn of(address: &str, error: &DataFusionError) -> DataFusionError {
        let text = in_words(error);
        let failure = if text.starts_with(BEGIN) { text } else { format!("{BEGIN}{address}: {text}") };
        DataFusionError::External(Box::new(WorkerFailure(failure)))
    }
}

impl fmt::Display for WorkerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkerFailure {}

/// The message of an error, without the names of the kinds of errors around it.
fn in_words(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Shared(inner) => in_words(inner),
        DataFusionError::Context(_, inner) => in_words(inner),
        DataFusionError::External(inner) => match inner.downcast_ref::<tonic::Status>() {
            Some(status) => of_status(status),
            None => match inner.downcast_ref::<DataFusionError>() {
                Some(inner) => in_words(inner),
                None => inner.to_string(),
            },
        },
        DataFusionError::ResourcesExhausted(message) => {
            let what = message.lines().next().unwrap_or_default();
            format!("it ran out of memory: {what}; start it with a larger --memory, or select less")
        }
        error => error.message().into_owned(),
    }
}

fn of_status(status: &tonic::Status) -> String {
    match status.code() {
        tonic::Code::Unauthenticated => status.message().to_owned(),
        tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Internal | tonic::Code::Cancelled => {
            format!("the connection broke: {}", status.message())
        }
        code => format!("{code}: {}", status.message()),
    }
}
