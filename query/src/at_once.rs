//! Methods of DataFusion's asynchronous traits that return at once.
//!
//! `async_trait` turns each method into a future that holds its arguments, and the compiler has to prove that this future is `Send`.
//! With DataFusion's plans and expressions among the arguments, that takes 3 to 6 seconds for each method. A ready future
//! holds only the result.

/// Implements `TableProvider::scan` by calling a synchronous method.
macro_rules! scan_at_once {
    ($scan:ident) => {
        fn scan<'life0, 'life1, 'life2, 'life3, 'async_trait>(
            &'life0 self,
            state: &'life1 dyn datafusion::catalog::Session,
            projection: Option<&'life2 Vec<usize>>,
            filters: &'life3 [datafusion::logical_expr::Expr],
            limit: Option<usize>,
        ) -> futures::future::BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            'life3: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(std::future::ready(self.$scan(state, projection, filters, limit)))
        }
    };
}

/// Implements `TableProvider::delete_from` with a plan that only `EXPLAIN` shows, since `dml` runs `DELETE` itself, and `update` with
/// an error.
macro_rules! change_at_once {
    ($message:literal) => {
        fn delete_from<'life0, 'life1, 'async_trait>(
            &'life0 self,
            _state: &'life1 dyn datafusion::catalog::Session,
            _filters: Vec<datafusion::logical_expr::Expr>,
        ) -> futures::future::BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(std::future::ready(Ok(DeleteSink::plan(&self.planned.name))))
        }

        fn update<'life0, 'life1, 'async_trait>(
            &'life0 self,
            _state: &'life1 dyn datafusion::catalog::Session,
            _assignments: Vec<(String, datafusion::logical_expr::Expr)>,
            _filters: Vec<datafusion::logical_expr::Expr>,
        ) -> futures::future::BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(std::future::ready(not_impl_err!($message)))
        }
    };
}

pub(crate) use {change_at_once, scan_at_once};
