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
        let parts = match leaf.variants().len() {
            1 => "1 task on workers reads it".to_owned(),
            tasks => format!("{tasks} tasks on workers read a part each"),
        };
        return Some(format!("{}; {parts}", scan.words()));
    }
    if let Some(scan) = node.downcast_ref::<SharedScanExec>() {
        return Some(scan.words());
    }
    if let Some(newest) = node.downcast_ref::<NewestExec>() {
        return Some(newest.words());
    }
    let tasks = node.as_network_boundary()?.input_stage().task_count();
    let (tasks, send) = if tasks == 1 { ("1 task".to_owned(), "sends") } else { (format!("{tasks} tasks"), "send") };
    Some(match node.name() {
        "NetworkShuffleExec" => format!("{tasks} on workers {send} each row to the task for its key"),
        "NetworkBroadcastExec" => format!("{tasks} on workers {send} all rows to each task that needs them"),
        _ => format!("gets the rows of {tasks} on workers"),
    })
}
