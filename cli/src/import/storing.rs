//! Storing the rows of files: one thread stores batches while another makes the next ones.

use super::bad::Mark;
use super::bar::Bar;
use super::plan::Plan;
use super::resume::Progress;
use super::{Failure, Job, Rows};
use arrow::array::RecordBatch;
use ebbtide::Collection;
use ebbtide_buckets::batch_bytes;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Batches that may wait to be stored: now and then one takes as long as several, since a segment is written with it.
const AHEAD: usize = 8;
/// The maximum bytes of these batches.
const AHEAD_BYTES: usize = 64 << 20;

/// Stores every row, and records the progress before each batch.
pub(super) fn store(
    collection: &Collection,
    plan: &Plan<'_>,
    progress: &mut Progress,
    bar: &Bar<'_>,
) -> Result<(), Failure> {
    let schema = collection.snapshot()?.schema().as_ref().clone();
    let start = (progress.state.file, progress.state.rows);
    let (sender, batches) = sync_channel::<Batch>(AHEAD);
    let (outcomes, receiver) = sync_channel(AHEAD + 1);
    // Lines that are set aside are durable before the rows around them are stored, and are recorded with their own batch:
    // none may be set aside for the next one while a batch is being stored.
    let lenient = plan.job.bad.borrow().lenient();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for batch in batches {
                let outcome = batch.store(collection, progress);
                // Without a place for bad lines, a refused row ends the import: nothing after it is stored.
                let ends = outcome.is_err() && !lenient;
                if outcomes.send(outcome).is_err() || ends {
                    return;
                }
            }
        });
        let mut storing = Storing { job: &plan.job, bar, sender, receiver, pending: VecDeque::new(), stored: 0 };
        let read = plan.rows(&schema, start, &mut |file, rows| {
            storing.begin(file, rows)?;
            let stored = storing.finish(if lenient { 0 } else { AHEAD });
            // What failed is reported, not that nothing else was stored after it.
            stored.inspect_err(|_| storing.pending.clear())?;
            Ok(ControlFlow::Continue(()))
        });
        // A row that was refused comes before one that could not be read.
        storing.finish(0).and(read)
    })
}

/// A batch of rows of one file.
struct Batch {
    rows: RecordBatch,
    file: usize,
    /// Number of rows of the file up to and including them.
    end: u64,
    /// The lines set aside by then.
    bad: Mark,
}

enum Refused {
    Unrecorded(Failure),
    Unstored(ebbtide::Error),
}

impl Batch {
    /// Stores the rows and returns their number.
    fn store(self, collection: &Collection, progress: &mut Progress) -> Result<u64, Refused> {
        let Batch { rows, file, end, bad } = self;
        let mut count = 0;
        if rows.num_rows() > 0 {
            let id = progress.begin(file, end, rows.num_rows() as u64, bad.clone()).map_err(Refused::Unrecorded)?;
            count = collection.insert_with_id(&rows, id).map_err(Refused::Unstored)?;
        }
        progress.done(file, end, count, bad);
        Ok(count)
    }
}

/// The side that makes batches.
struct Storing<'s, 'a> {
    job: &'s Job<'a>,
    bar: &'s Bar<'s>,
    sender: SyncSender<Batch>,
    receiver: Receiver<Result<u64, Refused>>,
    /// What is not known to be stored, each with the number of its file, in order.
    pending: VecDeque<(usize, Rows)>,
    stored: u64,
}

impl Storing<'_, '_> {
    /// Begins to store rows.
    fn begin(&mut self, file: usize, rows: Rows) -> Result<(), Failure> {
        let batch = Batch { rows: rows.batch.clone(), file, end: rows.end, bad: self.job.bad.borrow_mut().mark()? };
        self.pending.push_back((file, rows));
        // If this fails, so does what waits for the outcome.
        let _ = self.sender.send(batch);
        Ok(())
    }

    /// Waits until at most this number of batches waits to be stored. Rows that cannot be stored are set aside.
    fn finish(&mut self, ahead: usize) -> Result<(), Failure> {
        let bytes =
            |pending: &VecDeque<(usize, Rows)>| pending.iter().map(|(_, rows)| batch_bytes(&rows.batch)).sum::<usize>();
        while (self.pending.len() > ahead || (self.pending.len() > 1 && bytes(&self.pending) > AHEAD_BYTES))
            && let Some((file, mut rows)) = self.pending.pop_front()
        {
            match self.receiver.recv() {
                Ok(Ok(0)) => {}
                Ok(Ok(count)) => {
                    self.stored += count;
                    self.bar.tick(self.stored);
                }
                Ok(Err(Refused::Unstored(error))) => {
                    self.job.set_aside(&mut rows, error)?;
                    self.begin(file, rows)?;
                }
                Ok(Err(Refused::Unrecorded(failure))) => return Err(failure),
                Err(_) => return Err(Failure::new("storing the rows failed")),
            }
        }
        Ok(())
    }
}
