//! Results of a pipeline, made while they are fetched.

use crate::command::Command;
use crate::cursors::{List, Results};
use crate::deadline::{Deadline, KeptDeadline};
use crate::error::{CommandError, Result, ServerCode};
use crate::measurements::{Measurements, Query};
use crate::source::Source;
use bson::raw::{RawDocument, RawDocumentBuf};
use ebbtide::{FindRequest, Snapshot};
use ebbtide_documents::{ExpressionError, Foreign, Pipeline, PipelineMemory, PipelineRun, Take, UnionWith};
use ebbtide_ttl::Code;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;

/// Documents that are read at a time.
const READ: usize = 1024;
/// Bytes of them.
pub(crate) const READ_BYTES: usize = 4 << 20;
/// Collections of `$unionWith` that are read by themselves, at most: each has a pipeline around those before it, with documents that
/// it has read. Those of further ones are read within the pipeline.
const UNITED_MAX: usize = 16;

/// What the pipelines of a command have in common.
pub(crate) struct Context {
    /// What they may keep in memory.
    memory: PipelineMemory,
    /// The database at one instant, if it exists.
    snapshot: Option<Snapshot>,
    /// The bytes that lists of documents may take beside that.
    list_bytes: Cell<usize>,
    unions_left: Cell<usize>,
}

impl Context {
    pub(crate) fn of(command: &Command<'_>) -> Result<Context> {
        let bytes_max = command.shared.settings.statement_bytes_max;
        Ok(Context {
            memory: PipelineMemory::new(bytes_max),
            snapshot: command.existing()?.map(|database| database.snapshot()),
            list_bytes: Cell::new(bytes_max),
            unions_left: Cell::new(UNITED_MAX),
        })
    }

    /// A collection of the command's database.
    pub(crate) fn source(&self, name: &str) -> Result<Source> {
        Source::within(self.snapshot.as_ref(), name)
    }

    /// The bytes that the next list of documents may take.
    pub(crate) fn list_bytes(&self) -> usize {
        self.list_bytes.get()
    }

    /// Documents that are there as a whole.
    pub(crate) fn list(&self, documents: Vec<RawDocumentBuf>) -> Box<dyn Results> {
        let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
        self.list_bytes.set(self.list_bytes.get().saturating_sub(bytes));
        Box::new(List::new(documents))
    }

    /// Cuts a pipeline at its first `$unionWith`, if the collection of that is to be read by itself.
    pub(crate) fn cut_at_union(&self, pipeline: &mut Pipeline) -> Option<(UnionWith, Pipeline)> {
        let left = self.unions_left.get().checked_sub(1)?;
        let cut = pipeline.cut_at_union()?;
        self.unions_left.set(left);
        Some(cut)
    }
}

/// Results of a pipeline.
pub(crate) struct Piped {
    /// Nothing once all has been read.
    source: Option<Box<dyn Results>>,
    run: PipelineRun,
    /// What was read and not given to the pipeline yet.
    read: std::vec::IntoIter<RawDocumentBuf>,
    /// The deadline of the command that fetches results, for the other collections that are read.
    ends: Option<Arc<Mutex<KeptDeadline>>>,
}

impl Piped {
    /// The results of a pipeline over some documents.
    pub(crate) fn over(
        command: &Command<'_>,
        source: Box<dyn Results>,
        pipeline: &Pipeline,
        context: &Context,
    ) -> Piped {
        let mut run = pipeline.run_within(command.now_ms, &context.memory);
        let mut ends = None;
        if pipeline.reads_others()
            && let Some(snapshot) = &context.snapshot
        {
            let deadline = Arc::new(Mutex::new(command.deadline.kept()));
            run = run.with_foreign(Box::new(Others { snapshot: snapshot.clone(), ends: deadline.clone() }));
            ends = Some(deadline);
        }
        Piped { source: Some(source), run, read: Vec::new().into_iter(), ends }
    }

    /// Reads until something comes out, or the end.
    fn fill(&mut self, deadline: Deadline<'_>) -> Result<()> {
        while self.run.next_result().is_none() {
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
            let Some(next) = self.run.next_result() else { break };
            size += next.as_bytes().len();
            if size > bytes && !batch.is_empty() {
                return Ok(batch);
            }
            batch.extend(self.run.take_result());
        }
        // So that the reply with the last documents also says that there are no more.
        if count > 0 {
            self.fill(deadline)?;
        }
        Ok(batch)
    }

    fn is_done(&self) -> bool {
        self.source.is_none() && self.run.next_result().is_none()
    }
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

/// The collections of a database at one instant, for `$lookup`, `$graphLookup` and `$unionWith`.
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
        Ok(match Source::within(Some(&self.snapshot), collection)? {
            Source::Documents(snapshot) => Some(Box::new(snapshot.find(FindRequest::new(filter)?))),
            Source::Measurements(snapshot) => Some(Box::new(Measurements::new(snapshot, Query::new(filter)?))),
            Source::Missing => None,
            Source::Profile => {
                let what = format!(
                    "'{collection}' cannot be read by $lookup and $graphLookup, nor by $unionWith within another stage"
                );
                return Err(CommandError::of_server(ServerCode::CommandNotSupported, what));
            }
        })
    }
}
