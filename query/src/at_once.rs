//! Methods of DataFusion's asynchronous traits that return at once.
//!
//! `async_trait` makes a future of each method, and the compiler proves that everything in it can be sent to other threads. For
//! DataFusion's plans and expressions this takes it 3 to 6 seconds for each method. A future that is ready has only the result.

/// `TableProvider::scan` by a method that is not asynchronous.
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

/// `TableProvider::delete_from` as a plan that fails when it is run, since `DELETE` itself does not run as a plan of DataFusion (see
/// `dml`); and `update`, which fails with a message.
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
