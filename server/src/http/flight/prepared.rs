//! Prepared statements of Flight SQL: they belong to accounts, not to connections.

use crate::scram;
use crate::settings::Settings;
use crate::sql::SqlStatement;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::IpcWriteOptions;
use arrow::record_batch::RecordBatch;
use arrow_flight::{IpcMessage, SchemaAsIpc};
use axum::body::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

const HANDLE_BYTES: usize = 16;

struct Prepared {
    statement: Arc<dyn SqlStatement>,
    account: String,
    values: Vec<ArrayRef>,
    used: Duration,
}

/// The prepared statements of a server.
pub(super) struct Kept {
    all: Mutex<HashMap<Bytes, Prepared>>,
    most: usize,
    idle_max: Duration,
}

impl Kept {
    /// As many as there may be cursors, and they idle for as long.
    pub(super) fn new(settings: &Settings) -> Kept {
        Kept { all: Mutex::default(), most: settings.cursors_max, idle_max: settings.cursor_idle_max }
    }

    /// Keeps one; its handle.
    pub(super) fn add(
        &self,
        statement: Arc<dyn SqlStatement>,
        account: String,
        now: Duration,
    ) -> Result<Bytes, Status> {
        let handle = scram::random::<HANDLE_BYTES>().map_err(Status::internal)?;
        let handle = Bytes::copy_from_slice(&handle);
        let mut all = self.all.lock();
        if all.len() >= self.most {
            all.retain(|_, kept| now.saturating_sub(kept.used) < self.idle_max);
        }
        if all.len() >= self.most {
            return Err(Status::resource_exhausted(format!("{} prepared statements are open: close some", self.most)));
        }
        all.insert(handle.clone(), Prepared { statement, account, values: Vec::new(), used: now });
        Ok(handle)
    }

    fn with<T>(
        &self,
        handle: &Bytes,
        account: &str,
        now: Duration,
        work: impl FnOnce(&mut Prepared) -> T,
    ) -> Result<T, Status> {
        let mut all = self.all.lock();
        let kept = all.get_mut(handle).filter(|kept| kept.account == account);
        let kept = kept.ok_or_else(|| {
            Status::not_found("there is no such prepared statement: it was closed, or idled too long")
        })?;
        kept.used = now;
        Ok(work(kept))
    }

    /// The statement and its values.
    pub(super) fn get(
        &self,
        handle: &Bytes,
        account: &str,
        now: Duration,
    ) -> Result<(Arc<dyn SqlStatement>, Vec<ArrayRef>), Status> {
        self.with(handle, account, now, |kept| (Arc::clone(&kept.statement), kept.values.clone()))
    }

    pub(super) fn bind(
        &self,
        handle: &Bytes,
        account: &str,
        values: Vec<ArrayRef>,
        now: Duration,
    ) -> Result<(), Status> {
        self.with(handle, account, now, |kept| kept.values = values)
    }

    pub(super) fn remove(&self, handle: &Bytes, account: &str) {
        let mut all = self.all.lock();
        if all.get(handle).is_some_and(|kept| kept.account == account) {
            all.remove(handle);
        }
    }
}

/// The parameters of a statement as columns; text where the type is open.
pub(super) fn parameters(types: &[Option<DataType>]) -> Schema {
    let field = |(at, kind): (usize, &Option<DataType>)| {
        Field::new(format!("${}", at + 1), kind.clone().unwrap_or(DataType::Utf8), true)
    };
    Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>())
}

/// Columns in the form of Arrow's messages.
pub(super) fn bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &options).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(super::unmade)
}

/// The rows of batches, each as arrays of one.
pub(super) fn rows(batches: &[RecordBatch]) -> Vec<Vec<ArrayRef>> {
    let of = |batch: &RecordBatch| -> Vec<Vec<ArrayRef>> {
        let row = |at| batch.columns().iter().map(|column| column.slice(at, 1)).collect();
        (0..batch.num_rows()).map(row).collect()
    };
    batches.iter().flat_map(of).collect()
}
