//! Results of a pipeline, made while they are fetched.

use crate::command::Command;
use crate::cursors::Results;
use crate::deadline::Deadline;
use crate::error::{CommandError, Result};
use crate::measurements::{Measurements, Query};
use bson::raw::{RawDocument, RawDocumentBuf};
use ebbtide::{FindRequest, Snapshot};
use ebbtide_documents::{ExpressionError, Foreign, Pipeline, PipelineMemory, PipelineRun, Take};
use ebbtide_ttl::{Code, SystemClock};
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
}

impl Piped {
    /// The results of a pipeline over some documents.
    pub(crate) fn over(
        command: &Command<'_>,
        source: Box<dyn Results>,
        pipeline: &Pipeline,
        memory: &PipelineMemory,
    ) -> Result<Piped> {
        let run = pipeline.run_within(command.now_ms(), memory);
        let others = match pipeline.reads_others() {
            true => command.existing()?.map(|database| database.snapshot()),
            false => None,
        };
        let run = run.with_foreign(Box::new(Others(others)));
        Ok(Piped { source: Some(source), run, read: Vec::new().into_iter(), ready: Vec::new().into_iter() })
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

/// The collections of a database at one instant, for `$lookup` and `$unionWith`; none without one.
#[derive(Debug)]
pub(crate) struct Others(pub(crate) Option<Snapshot>);

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
        let (clock, ended) = (Arc::new(SystemClock::new()), Arc::default());
        while !results.is_done() {
            let batch = results.next_batch(READ, READ_BYTES, Deadline::new(&clock, &ended)).map_err(of_error)?;
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
        let Some(snapshot) = &self.0 else { return Ok(None) };
        Ok(match snapshot.documents(collection) {
            Ok(documents) => Some(Box::new(documents.find(FindRequest::new(filter)?))),
            Err(error) if error.code() == Code::NamespaceNotFound => None,
            Err(_) => Some(Box::new(Measurements::new(snapshot.collection(collection)?, Query::new(filter)?))),
        })
    }
}
