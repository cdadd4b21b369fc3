//! How the nodes of this module are sent. Functions are sent by their names, which the session of a worker knows.

use super::leaf::{Asked, Reads, SharedScanExec};
use super::newest::NewestExec;
use super::share::Share;
use datafusion::common::{Result, exec_err, internal_datafusion_err, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::bytes::Serializeable;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use prost::Message;
use std::fmt;
use std::sync::Arc;

/// The version of [`NodeMessage`]: sessions and workers must agree.
const VERSION: u32 = 2;

/// A leaf as bytes.
#[derive(Clone, PartialEq, Message)]
struct LeafMessage {
    #[prost(enumeration = "ReadsMessage", tag = "2")]
    reads: i32,
    #[prost(string, tag = "3")]
    collection: String,
    #[prost(bool, tag = "4")]
    has_projection: bool,
    #[prost(uint64, repeated, tag = "5")]
    projection: Vec<u64>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    filters: Vec<Vec<u8>>,
    #[prost(uint64, optional, tag = "7")]
    limit: Option<u64>,
    #[prost(uint64, tag = "8")]
    partitions: u64,
    #[prost(message, optional, tag = "9")]
    share: Option<ShareMessage>,
    #[prost(uint64, tag = "10")]
    database: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum ReadsMessage {
    Visible = 0,
    Archived = 1,
    Latest = 2,
}

/// One of the nodes of this module.
#[derive(Clone, PartialEq, Message)]
struct NodeMessage {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(oneof = "Node", tags = "2, 3")]
    node: Option<Node>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Node {
    #[prost(message, tag = "2")]
    Leaf(LeafMessage),
    #[prost(message, tag = "3")]
    Newest(NewestMessage),
}

#[derive(Clone, PartialEq, Message)]
struct NewestMessage {
    #[prost(uint64, tag = "1")]
    time: u64,
    #[prost(uint64, optional, tag = "2")]
    meta: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ShareMessage {
    #[prost(uint64, tag = "1")]
    task: u64,
    #[prost(string, repeated, tag = "2")]
    workers: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    segments: Vec<String>,
}

/// Turns nodes into bytes, and on a worker bytes into nodes.
pub(super) struct LeafCodec {
    /// What a worker plans with: its configuration has the statement's snapshot.
    pub(super) state: Option<SessionState>,
}

impl fmt::Debug for LeafCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafCodec").finish_non_exhaustive()
    }
}

impl PhysicalExtensionCodec for LeafCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(state) = &self.state else { return internal_err!("a session is sent a plan") };
        let message = NodeMessage::decode(bytes).map_err(|e| internal_datafusion_err!("a plan cannot be read: {e}"))?;
        if message.version != VERSION {
            return exec_err!(
                "the query comes from another version of Ebbtide than the worker's: use the same one everywhere"
            );
        }
        match (message.node, inputs) {
            (Some(Node::Leaf(leaf)), []) => {
                let (asked, share) = asked_of(leaf, context)?;
                Ok(Arc::new(SharedScanExec::of_asked(asked, share, state)?))
            }
            (Some(Node::Newest(newest)), [input]) => {
                let meta = newest.meta.map(size).transpose()?;
                Ok(Arc::new(NewestExec::new(Arc::clone(input), size(newest.time)?, meta)?))
            }
            _ => internal_err!("a plan has a node with other inputs than it has"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let message = if let Some(leaf) = node.downcast_ref::<SharedScanExec>() {
            Node::Leaf(message_of(leaf)?)
        } else if let Some(newest) = node.downcast_ref::<NewestExec>() {
            Node::Newest(NewestMessage { time: newest.time as u64, meta: newest.meta.map(|meta| meta as u64) })
        } else {
            return exec_err!("{} is not sent to workers", node.name());
        };
        let message = NodeMessage { version: VERSION, node: Some(message) };
        message.encode(bytes).map_err(|e| internal_datafusion_err!("encode a plan: {e}"))
    }
}

fn size(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|e| internal_datafusion_err!("a plan cannot be read: {e}"))
}

fn asked_of(message: LeafMessage, context: &TaskContext) -> Result<(Asked, Option<Share>)> {
    let reads = match message.reads() {
        ReadsMessage::Visible => Reads::Visible,
        ReadsMessage::Archived => Reads::Archived,
        ReadsMessage::Latest => Reads::Latest,
    };
    let projection = message.projection.into_iter().map(size).collect::<Result<Vec<_>>>()?;
    let filters = message.filters.iter().map(|filter| Expr::from_bytes_with_ctx(filter, context));
    let asked = Asked {
        reads,
        database: size(message.database)?,
        collection: message.collection,
        projection: message.has_projection.then_some(projection),
        filters: filters.collect::<Result<_>>()?,
        limit: message.limit.map(size).transpose()?,
        partitions: size(message.partitions)?.max(1),
    };
    let Some(share) = message.share else { return Ok((asked, None)) };
    Ok((asked, Some(Share { task: size(share.task)?, workers: share.workers, segments: share.segments })))
}

fn message_of(leaf: &SharedScanExec) -> Result<LeafMessage> {
    let asked = &leaf.asked;
    let reads = match asked.reads {
        Reads::Visible => ReadsMessage::Visible,
        Reads::Archived => ReadsMessage::Archived,
        Reads::Latest => ReadsMessage::Latest,
    };
    let filters = asked.filters.iter().map(|filter| Ok(filter.to_bytes()?.to_vec()));
    let share = leaf.share.as_ref().map(|share| ShareMessage {
        task: share.task as u64,
        workers: share.workers.clone(),
        segments: share.segments.clone(),
    });
    Ok(LeafMessage {
        reads: reads.into(),
        database: asked.database as u64,
        collection: asked.collection.clone(),
        has_projection: asked.projection.is_some(),
        projection: asked.projection.iter().flatten().map(|column| *column as u64).collect(),
        filters: filters.collect::<Result<_>>()?,
        limit: asked.limit.map(|limit| limit as u64),
        partitions: asked.partitions as u64,
        share,
    })
}
