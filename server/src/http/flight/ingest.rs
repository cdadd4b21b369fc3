//! The record batches of an ingest.

#[cfg(test)]
mod tests;

use super::{code_of, internal};
use crate::http::collections::Insert;
use crate::http::problem::Problem;
use arrow::array::{Array, ArrayData};
use arrow::buffer::Buffer;
use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tonic::Status;

/// Batches that have arrived are inserted together, up to about this many rows and bytes.
const ROWS_TOGETHER: usize = 1 << 16;
const BYTES_TOGETHER: usize = 8 << 20;
/// Bytes of record batches that are decoded before they are inserted.
const BYTES_AHEAD: usize = 16 << 20;
/// Bytes that a batch takes beside its buffers.
const BYTES_BESIDE: usize = 1 << 10;

/// Record batches, which are decoded while others are inserted.
pub(super) struct Arriving {
    decoded: mpsc::UnboundedReceiver<Next>,
    decoding: AbortHandle,
}

/// A batch and the room that it takes; `None` at the end.
type Next = Result<Option<(RecordBatch, OwnedSemaphorePermit)>, Status>;

impl Drop for Arriving {
    fn drop(&mut self) {
        self.decoding.abort();
    }
}

impl Arriving {
    pub(super) fn new(mut batches: FlightRecordBatchStream) -> Arriving {
        let (sender, decoded) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(BYTES_AHEAD));
        let decode = async move {
            loop {
                let next = match batches.next().await {
                    Some(Ok(batch)) => {
                        let bytes = u32::try_from(bytes(&batch).min(BYTES_AHEAD)).unwrap_or(u32::MAX);
                        let Ok(room) = Arc::clone(&room).acquire_many_owned(bytes).await else { return };
                        Ok(Some((batch, room)))
                    }
                    Some(Err(error)) => Err(error.into()),
                    None => Ok(None),
                };
                let is_last = !matches!(next, Ok(Some(_)));
                if sender.send(next).is_err() || is_last {
                    return;
                }
            }
        };
        Arriving { decoded, decoding: tokio::spawn(decode).abort_handle() }
    }

    /// Those that have arrived: if there is none yet, the next. And whether more may follow, or why none can.
    pub(super) async fn arrived(&mut self) -> (Vec<RecordBatch>, Result<bool, Status>) {
        let (mut together, mut rows, mut bytes) = (Vec::new(), 0, 0);
        let mut next = self.decoded.recv().await.ok_or(TryRecvError::Disconnected);
        loop {
            match next {
                Ok(Ok(Some((batch, room)))) => {
                    (rows, bytes) = (rows + batch.num_rows(), bytes + room.num_permits());
                    together.push(batch);
                }
                Ok(Ok(None)) => return (together, Ok(false)),
                Ok(Err(status)) => return (together, Err(status)),
                Err(TryRecvError::Empty) => return (together, Ok(true)),
                Err(TryRecvError::Disconnected) => return (together, Err(internal("a batch cannot be decoded"))),
            }
            if rows >= ROWS_TOGETHER || bytes >= BYTES_TOGETHER {
                return (together, Ok(true));
            }
            next = self.decoded.try_recv();
        }
    }
}

/// Bytes of a batch, without what its buffers share with others.
fn bytes(batch: &RecordBatch) -> usize {
    fn of(data: &ArrayData) -> usize {
        let buffers: usize = data.buffers().iter().map(Buffer::len).sum();
        buffers + data.child_data().iter().map(of).sum::<usize>()
    }
    BYTES_BESIDE + batch.columns().iter().map(|column| of(&column.to_data())).sum::<usize>()
}

/// Inserts batches as one, which takes one sync of the log; one by one if a row is refused, those before the batch that it is in.
/// Adds the rows that are stored to the count.
pub(super) fn insert_together(insert: &Insert<'_>, batches: &[RecordBatch], count: &mut u64) -> Result<(), Status> {
    if batches.is_empty() {
        return Ok(());
    }
    insert.check().map_err(status)?;
    let mut admitted = 0;
    let admission = batches.iter().try_for_each(|batch| {
        insert.admit(batch.num_rows())?;
        admitted += 1;
        Ok(())
    });
    store(insert, &batches[..admitted], count).map_err(status)?;
    admission.map_err(status)
}

fn store(insert: &Insert<'_>, batches: &[RecordBatch], count: &mut u64) -> Result<(), Problem> {
    if let [first, _, ..] = batches
        && let Ok(all) = concat_batches(&first.schema(), batches)
    {
        match insert.admitted(&all, None) {
            Ok(stored) => {
                *count += stored.stored;
                return Ok(());
            }
            Err(problem) if !problem.status.is_client_error() => return Err(problem),
            Err(_) => {}
        }
    }
    for batch in batches {
        *count += insert.admitted(batch, None)?.stored;
    }
    Ok(())
}

fn status(problem: Problem) -> Status {
    Status::new(code_of(problem.status), problem.message)
}
