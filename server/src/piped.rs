//! Results of a pipeline, made while they are fetched.

use crate::command::{Command, refuse_buckets};
use crate::cursors::Results;
use crate::deadline::{Deadline, KeptDeadline};
use crate::error::{CommandError, Result, ServerCode};
use crate::measurements::{Measurements, Query};
use crate::profiler;
use bson::raw::{RawDocument, RawDocumentBuf};
use ebbtide::{FindRequest, Snapshot};
use ebbtide_documents::{ExpressionError, Foreign, Pipeline, PipelineMemory, PipelineRun, Take};
use ebbtide_ttl::Code;
use parking_lot::Mutex;
use std::sync::Arc;

/// Documents that are read at a time.
const READ: usize = 1024;
/// Bytes of them.
pub(crate) const READ_BYTES: usize = 4 << 20;

/// Results of a pipeline.
pub(crate) struct Piped {
    /// Nothing once all has been read.
    source: Option<Box<dyn Results>>,
    run: PipelineRun,
    /// What was read and not given to the pipeline yet.
    read: std::vec::IntoIter<RawDocumentBuf>,
    ready: std::vec::IntoIter<RawDocumentBuf>,
    /// The deadline of the command that fetches results, for the other collections that are read.
    ends: Option<Arc<Mutex<KeptDeadline>>>,
}

impl Piped {
    /// The results of a pipeline over some documents.
    pub(crate) fn over(
        command: &Command<'_>,
        source: Box<dyn Results>,
        pipeline: &Pipeline,
        memory: &PipelineMemory,
    ) -> Result<Piped> {
        let mut run = pipeline.run_within(command.now_ms(), memory);
        let mut ends = None;
        if pipeline.reads_others()
            && let Some(database) = command.existing()?
        {
            let deadline = Arc::new(Mutex::new(command.deadline.kept()));
            run = run.with_foreign(Box::new(Others { snapshot: database.snapshot(), ends: deadline.clone() }));
            ends = Some(deadline);
        }
        let (read, ready) = (Vec::new().into_iter(), Vec::new().into_iter());
        Ok(Piped { source: Some(source), run, read, ready, ends })
    }

    /// Reads until something comes out, or the end.
    fn fill(&mut self, deadline: Deadline<'_>) -> Result<()> {
        while self.ready.as_slice().is_empty() {
            let Some(source) = &mut self.source else { return Ok(()) };
            deadline.check()?;
            if self.read.as_slice().is_empty() {
                self.read = source.next_batch(READ, READ_BYTES, deadline)?.into_iter();
            }
            let mut more = true;
            while more && self.run.results_bytes() < READ_BYTES {
                let Some(document) = self.read.next() else { break };
                more = self.run.take_unless(document, &|| deadline.check().is_err())?;
            }
            if !more || (source.is_done() && self.read.as_slice().is_empty()) {
                self.source = None;
                self.run.finish_unless(&|| deadline.check().is_err())?;
            }
            self.ready = self.run.results().into_iter();
        }
        Ok(())
    }
}

impl Results for Piped {
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        if let Some(ends) = &self.ends {
            *ends.lock() = deadline.kept();
        }
        let (mut batch, mut size) = (Vec::new(), 0);
        while batch.len() < count {
            self.fill(deadline)?;
            let Some(next) = self.ready.as_slice().first() else { break };
            size += next.as_bytes().len();
            if size > bytes && !batch.is_empty() {
                return Ok(batch);
            }
            batch.extend(self.ready.next());
        }
        // So that the reply with the last documents also says that there are no more.
        if count > 0 {
            self.fill(deadline)?;
        }
        Ok(batch)
    }

    fn is_done(&self) -> bool {
        self.source.is_none() && self.ready.as_slice().is_empty()
    }
}

/// What the pipelines of a command may keep in memory.
pub(crate) fn memory(command: &Command<'_>) -> PipelineMemory {
    PipelineMemory::new(command.shared.settings.statement_bytes_max)
}

/// The results of one source after those of another.
pub(crate) struct Chained {
    first: Option<Box<dyn Results>>,
    second: Box<dyn Results>,
}

impl Chained {
    pub(crate) fn new(first: Box<dyn Results>, second: Box<dyn Results>) -> Chained {
        Chained { first: Some(first), second }
    }
}

impl Results for Chained {
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        if let Some(first) = &mut self.first {
            let batch = first.next_batch(count, bytes, deadline)?;
            if first.is_done() {
                self.first = None;
            }
            if !batch.is_empty() || count == 0 || self.first.is_some() {
                return Ok(batch);
            }
        }
        self.second.next_batch(count, bytes, deadline)
    }

    fn is_done(&self) -> bool {
        self.first.is_none() && self.second.is_done()
    }
}

/// The collections of a database at one instant, for `$lookup` and `$unionWith`.
#[derive(Debug)]
struct Others {
    snapshot: Snapshot,
    ends: Arc<Mutex<KeptDeadline>>,
}

impl Foreign for Others {
    fn visit(
        &self,
        collection: &str,
        filter: &RawDocument,
        stop: &dyn Fn() -> bool,
        take: &mut Take<'_>,
    ) -> std::result::Result<(), ExpressionError> {
        let of_error = |error: CommandError| ExpressionError::new(error.code, error.message);
        let Some(mut results) = self.find(collection, filter).map_err(of_error)? else { return Ok(()) };
        let ends = self.ends.lock().clone();
        while !results.is_done() {
            let batch = results.next_batch(READ, READ_BYTES, ends.get()).map_err(of_error)?;
            if stop() {
                return Err(of_error(CommandError::new(Code::Interrupted, "the command was ended")));
            }
            for document in batch {
                if !take(document)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Others {
    /// The documents of a collection that match a filter; nothing if it does not exist.
    fn find(&self, collection: &str, filter: &RawDocument) -> Result<Option<Box<dyn Results>>> {
        refuse_buckets(collection)?;
        if collection == profiler::COLLECTION {
            let what = format!("'{collection}' cannot be read by $lookup, nor by $unionWith within another stage");
            return Err(CommandError::of_server(ServerCode::CommandNotSupported, what));
        }
        let snapshot = &self.snapshot;
        Ok(match snapshot.documents(collection) {
            Ok(documents) => Some(Box::new(documents.find(FindRequest::new(filter)?))),
            Err(error) if error.code() == Code::NamespaceNotFound => None,
            Err(_) => Some(Box::new(Measurements::new(snapshot.collection(collection)?, Query::new(filter)?))),
        })
    }
}
