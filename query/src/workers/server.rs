//! A worker: answers parts of the queries of sessions on other machines, over copies in stores.

use super::WorkerToken;
use super::channels::Channels;
use super::codec::LeafCodec;
use super::leaf::SharedScanExec;
use super::pinned::Pinned;
use crate::context::StatementContext;
use crate::error::{QueryError, Result, external};
use crate::functions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, exec_datafusion_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{
    DistributedExt, NetworkBoundaryExt, Worker, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse,
    WorkerQueryContext,
};
use ebbtide::{CopyReader, FileAccess};
use ebbtide_ttl::Code;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// How long a worker that ends lets queries go on.
const GRACE: Duration = Duration::from_secs(10);
/// Bytes of the headers of a request, which have the positions of all copies.
const HEADERS_MAX: u32 = 1 << 20;
/// Leaves of plans that read nothing.
const EMPTY_LEAVES: [&str; 2] = ["EmptyExec", "PlaceholderRowExec"];

/// What a worker has.
#[derive(Debug)]
pub struct WorkerSettings {
    /// Opens copies.
    pub reader: CopyReader,
    /// The URLs that may be read: these, and those in folders under them.
    pub allowed: Vec<String>,
    /// What it asks of those who send it queries.
    pub token: Option<WorkerToken>,
    /// Bytes that the sorts, joins and groups of its tasks may take together.
    pub memory_bytes: usize,
}

/// A worker that listens.
pub struct Serving {
    listener: TcpListener,
    address: SocketAddr,
    worker: Worker,
    token: Option<WorkerToken>,
    sessions: Arc<Sessions>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Serving {
    /// Listens at an address; port 0 takes a free one.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if other machines can reach the address and there is no token, or if nothing may be read;
    /// [`Code::HostUnreachable`] if it cannot be listened at.
    pub async fn bind(address: SocketAddr, settings: WorkerSettings) -> Result<Serving> {
        if !address.ip().is_loopback() && settings.token.is_none() {
            let what = format!(
                "other machines can reach {address}, and a worker runs whatever it is sent: give it a token, or listen at 127.0.0.1"
            );
            return Err(QueryError::new(Code::InvalidOptions, what));
        }
        if settings.allowed.is_empty() {
            let what = "the worker may read nothing: name the URLs of copies that it may read";
            return Err(QueryError::new(Code::InvalidOptions, what));
        }
        let failed =
            |e: std::io::Error| QueryError::new(Code::HostUnreachable, format!("cannot listen at {address}: {e}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = settings.token.clone();
        let pool = Arc::new(FairSpillPool::new(settings.memory_bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let sessions = Arc::new(Sessions::new(settings)?);
        let of_tasks = Arc::clone(&sessions);
        let worker = Worker::from_session_builder(move |asked: WorkerQueryContext| {
            let sessions = Arc::clone(&of_tasks);
            async move { sessions.state(asked).await }
        });
        Ok(Serving { listener, address, worker: worker.with_runtime_env(runtime), token, sessions })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `end`, and then for the queries that are running, but not for long.
    ///
    /// # Errors
    /// [`Code::HostUnreachable`] if connections can no longer be accepted.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<()> {
        tokio::task::spawn_blocking(move || self.sessions.open_copies());
        let token = self.token;
        let check = move |request: tonic::Request<()>| {
            let given = request.metadata().get("authorization").map(|value| value.as_encoded_bytes());
            match &token {
                Some(token) if !token.is_in(given) => Err(tonic::Status::unauthenticated(
                    "the token is wrong or missing: give the session the one that the worker has",
                )),
                _ => Ok(request),
            }
        };
        let service = InterceptedService::new(self.worker.into_worker_server(), check);
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = Server::builder()
            .http2_max_header_list_size(HEADERS_MAX)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, async {
                drop(stopped.await);
            });
        tokio::pin!(server);
        let failed = |e: tonic::transport::Error| QueryError::new(Code::HostUnreachable, e.to_string());
        tokio::select! {
            ended = &mut server => return ended.map_err(failed),
            () = end => drop(stop.send(())),
        }
        tokio::time::timeout(GRACE, server).await.unwrap_or(Ok(())).map_err(failed)
    }
}

/// Makes the sessions that tasks run in.
struct Sessions {
    settings: WorkerSettings,
    /// To the other workers, which have the same token.
    channels: Channels,
    /// Has the functions.
    template: SessionState,
}

impl Sessions {
    fn new(settings: WorkerSettings) -> Result<Sessions> {
        let state = functions::with_planner(SessionStateBuilder::new().with_default_features()).build();
        let context = SessionContext::new_with_state(state);
        functions::register(&context)?;
        functions::register_internal(&context);
        let channels = Channels::new(settings.token.clone());
        Ok(Sessions { settings, channels, template: context.state() })
    }

    /// The state for a task: with the snapshot that its query sees.
    async fn state(self: Arc<Self>, asked: WorkerQueryContext) -> Result<SessionState, DataFusionError> {
        let pinned = Pinned::of_headers(&asked.headers)?;
        let WorkerQueryContext { mut builder, .. } = asked;
        let mut config = builder.config().take().unwrap_or_default();
        let mut template = SessionStateBuilder::new_from_existing(self.template.clone());
        if let Some(runtime) = builder.runtime_env().take() {
            template = template.with_runtime_env(runtime);
        }
        pinned.set(config.options_mut())?;
        for position in &pinned.positions {
            self.check(&position.url)?;
        }
        let (sessions, positions) = (Arc::clone(&self), pinned.positions);
        let open = move || positions.iter().map(|position| sessions.settings.reader.at(position)).collect();
        let opened: Result<Vec<_>, _> =
            tokio::task::spawn_blocking(open).await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
        let opened = opened.map_err(external)?;
        let plain = template.with_config(config.clone()).build();
        let session = Arc::new(SessionContext::new_with_state(plain.clone()));
        let mut contexts = opened.into_iter().map(|(database, snapshot)| {
            StatementContext::new(database, snapshot.at(pinned.now), Arc::clone(&session) as _, FileAccess::none())
        });
        let first = contexts.next().ok_or_else(|| exec_datafusion_err!("the query reads no copy"))?;
        let context = Arc::new(first.with_others(contexts.collect()));
        let mut planning = plain.clone();
        planning.config_mut().set_extension(Arc::clone(&context));
        let mut state = plain;
        let config = state.config_mut();
        config.set_extension(context);
        config.set_distributed_user_codec(LeafCodec { state: Some(planning) });
        config.set_distributed_channel_resolver(self.channels.clone());
        config.set_distributed_worker_plan_rewrite_handler(checked);
        Ok(state)
    }

    /// Opens what may be read, as far as these are copies: a task waits ten seconds for that, and no longer.
    fn open_copies(&self) {
        for url in &self.settings.allowed {
            if let Err(error) = self.settings.reader.open_newest(url) {
                tracing::warn!(url, %error, "no copy is opened here yet");
            }
        }
    }

    fn check(&self, url: &str) -> Result<(), DataFusionError> {
        let is_under = |allowed: &String| {
            let rest = url.strip_prefix(allowed.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if self.settings.allowed.iter().any(is_under) && !url.split('/').any(|part| part == "..") {
            return Ok(());
        }
        let what = format!("it may not read {url}: start it with --allow {url}");
        Err(external(ebbtide::Error::new(Code::IllegalOperation, what)))
    }
}

/// Refuses plans that read or write anything but collections: a plan could name files of this machine.
fn checked(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse, DataFusionError> {
    let mut refused = None;
    event.plan.apply(|node| {
        if !is_harmless(node) {
            refused = Some(node.name().to_owned());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match refused {
        None => Ok(WorkerPlanRewriteEventResponse::new(event.plan)),
        Some(name) => {
            let what = format!("it refuses a plan with {name}: workers read collections and nothing else");
            Err(external(ebbtide::Error::new(Code::IllegalOperation, what)))
        }
    }
}

fn is_harmless(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(source) = node.downcast_ref::<DataSourceExec>() {
        return source.data_source().downcast_ref::<MemorySourceConfig>().is_some();
    }
    let is_leaf = node.children().is_empty();
    let is_known = node.is::<SharedScanExec>() || node.is_network_boundary() || EMPTY_LEAVES.contains(&node.name());
    node.name() != "DataSinkExec" && (!is_leaf || is_known)
}
