//! Results of a pipeline, made while they are fetched.

use crate::command::Command;
use crate::cursors::Results;
use crate::deadline::Deadline;
use crate::error::{CommandError, Result};
use crate::measurements::{Measurements, Query};
use bson::raw::RawDocumentBuf;
use ebbtide::{FindRequest, Snapshot};
use ebbtide_documents::{ExpressionError, Foreign, Pipeline, PipelineRun};
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
    pub(crate) fn over(command: &Command<'_>, source: Box<dyn Results>, pipeline: &Pipeline) -> Result<Piped> {
        let run = pipeline.run(command.now_ms(), command.shared.settings.statement_bytes_max);
        let others = match pipeline.foreign_collections().next() {
            Some(_) => command.existing()?.map(|database| database.snapshot()),
            None => None,
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

/// The collections of a database at one instant, for `$lookup`; none without one.
#[derive(Debug)]
pub(crate) struct Others(pub(crate) Option<Snapshot>);

impl Foreign for Others {
    fn documents(
        &self,
        collection: &str,
        bytes_max: usize,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<Vec<RawDocumentBuf>, ExpressionError> {
        let of_error = |error: CommandError| ExpressionError::new(error.code, error.message);
        self.read(collection, bytes_max, stop).map_err(of_error)
    }
}

impl Others {
    fn read(&self, collection: &str, bytes_max: usize, stop: &dyn Fn() -> bool) -> Result<Vec<RawDocumentBuf>> {
        let Some(snapshot) = &self.0 else { return Ok(Vec::new()) };
        let everything = crate::reply::empty();
        let mut results: Box<dyn Results> = match snapshot.documents(collection) {
            Ok(documents) => Box::new(documents.find(FindRequest::new(everything)?)),
            Err(error) if error.code() == Code::NamespaceNotFound => return Ok(Vec::new()),
            Err(_) => Box::new(Measurements::new(snapshot.collection(collection)?, Query::new(everything)?)),
        };
        let (clock, ended) = (Arc::new(SystemClock::new()), Arc::default());
        let (mut documents, mut bytes) = (Vec::new(), 0);
        while !results.is_done() {
            let batch = results.next_batch(READ, READ_BYTES, Deadline::new(&clock, &ended))?;
            if stop() {
                return Err(CommandError::new(Code::Interrupted, "the command was ended"));
            }
            bytes += batch.iter().map(|document| document.as_bytes().len() + 64).sum::<usize>();
            if bytes > bytes_max {
                let limit = bytes_max >> 20;
                let what = format!("$lookup keeps the collection '{collection}' in memory, of {limit} MB at most");
                return Err(CommandError::new(Code::ExceededMemoryLimit, what));
            }
            documents.extend(batch);
        }
        Ok(documents)
    }
}
