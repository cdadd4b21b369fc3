use super::*;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::collections::BTreeSet;

/// A session with a table `t` of two partitions, whose column `v` has the values 0 to 99,999, each twice.
fn session(memory: usize) -> SessionContext {
    let values = |from: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100_000).map(|v| (v + from) % 100_000)));
        RecordBatch::try_from_iter([("v", column)]).unwrap()
    };
    let batches = [0, 50_000].map(|from| {
        let all = values(from);
        (0..100).map(|at| all.slice(at * 1000, 1000)).collect::<Vec<RecordBatch>>()
    });
    let table = MemTable::try_new(batches[0][0].schema(), batches.to_vec()).unwrap();
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(memory)));
    let config = SessionConfig::new().with_target_partitions(2);
    let session = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    session.register_table("t", Arc::new(table)).unwrap();
    session
}

async fn plan(session: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let plan = HashGroups.optimize(plan, session.copied_config().options()).unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("GroupsExec"), "{shown}");
    plan
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_executed_again_returns_all_rows_again() {
    // All groups fit into 64 MiB. They do not fit into 20.5 MiB, where DataFusion's operators finish the work.
    for memory in [64 << 20, 41 << 19] {
        let session = session(memory);
        let plan = plan(&session, "SELECT DISTINCT v FROM t").await;
        for _ in 0..2 {
            let batches = collect(Arc::clone(&plan), session.task_ctx()).await.unwrap();
            let values = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            let values: Vec<i64> = values.collect();
            assert_eq!(values.len(), 100_000, "{memory}");
            assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), 100_000, "{memory}");
        }
        let handed_over = plan.metrics().unwrap().sum_by_name("handed_to_datafusion").unwrap().as_usize();
        assert_eq!(handed_over, if memory < 64 << 20 { 2 } else { 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_memory_is_reserved_once_all_groups_are_returned() {
    for memory in [64 << 20, 41 << 19] {
        let session = session(memory);
        let plan = plan(&session, "SELECT v, count(*) FROM t GROUP BY v").await;
        let batches = collect(Arc::clone(&plan), session.task_ctx()).await.unwrap();
        let counts = batches.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().values().to_vec());
        assert!(counts.into_iter().all(|count| count == 2), "{memory}");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100_000);
        let reserved = session.runtime_env().memory_pool.reserved();
        assert_eq!(reserved, 0, "{memory}");
        drop(plan);
    }
}
