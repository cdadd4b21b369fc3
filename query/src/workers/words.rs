//! What workers do in a plan, in words.

use super::leaf::SharedScanExec;
use super::newest::NewestExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{DistributedLeafExec, NetworkBoundaryExt};
use std::sync::Arc;

/// `None` for a node that is the same without workers.
pub(crate) fn words(node: &Arc<dyn ExecutionPlan>) -> Option<String> {
    if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>() {
        let scan = leaf.original().downcast_ref::<SharedScanExec>()?;
        return Some(format!("{}; {} tasks on workers read a part each", scan.words(), leaf.variants().len()));
    }
    if let Some(scan) = node.downcast_ref::<SharedScanExec>() {
        return Some(scan.words());
    }
    if let Some(newest) = node.downcast_ref::<NewestExec>() {
        return Some(newest.words());
    }
    let tasks = node.as_network_boundary()?.input_stage().task_count();
    let s = if tasks == 1 { "" } else { "s" };
    Some(match node.name() {
        "NetworkShuffleExec" => format!("{tasks} task{s} on workers send each row to the task for its key"),
        "NetworkBroadcastExec" => format!("{tasks} task{s} on workers send all rows to each task that needs them"),
        _ => format!("gets the rows of {tasks} task{s} on workers"),
    })
}
