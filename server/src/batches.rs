//! Results in batches: the first one, and those that `getMore` asks for.

use crate::command::{Command, mismatch, missing};
use crate::cursors::Results;
use crate::error::Result;
use crate::reply;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::rawdoc;
use tokio::task::block_in_place;

/// Documents of a first batch, if the client names no number.
const FIRST_BATCH: usize = 101;
/// Bytes of documents in a batch.
const BATCH_BYTES: usize = 16 << 20;

/// The reply with the first batch of some results; the rest becomes a cursor.
pub(crate) fn first_batch(
    command: &Command<'_>,
    namespace: &str,
    mut results: Box<dyn Results>,
    batch_size: Option<u64>,
    only_one: bool,
) -> Result<RawDocumentBuf> {
    let count = batch_size.map_or(FIRST_BATCH, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let batch = results.next_batch(count, BATCH_BYTES, command.deadline)?;
    let id = match only_one || results.is_done() {
        true => 0,
        false => {
            let owner = command.client.user_name();
            let may_idle = command.flag("noCursorTimeout")?.unwrap_or(false);
            command.shared.cursors.put(namespace.to_owned(), owner, (results, may_idle), command.shared.now())?
        }
    };
    Ok(reply::batch(id, namespace, "firstBatch", &batch))
}

pub(crate) fn get_more(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let RawBsonRef::Int64(id) = command.subject() else {
        return Err(mismatch("getMore", "the number of a cursor (long)", command.subject()));
    };
    let collection = command.string("collection")?;
    let collection = collection.ok_or_else(|| missing("collection", "getMore"))?;
    let namespace = command.namespace(collection);
    let count = command.count("batchSize")?.filter(|count| *count > 0).and_then(|count| usize::try_from(count).ok());
    let cursors = &command.shared.cursors;
    let mut results = cursors.take(id, &namespace, command.client.user_name().as_deref())?;
    let mut next = || results.next_batch(count.unwrap_or(usize::MAX), BATCH_BYTES, command.deadline);
    let batch = match block_in_place(&mut next) {
        Ok(batch) => batch,
        Err(error) => {
            cursors.remove(id);
            return Err(error);
        }
    };
    let is_open = if results.is_done() {
        cursors.remove(id);
        false
    } else {
        cursors.put_back(id, results, command.shared.now())
    };
    Ok(reply::batch(if is_open { id } else { 0 }, &namespace, "nextBatch", &batch))
}

pub(crate) fn kill(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let namespace = command.namespace(command.collection()?);
    let number = |value| match value {
        RawBsonRef::Int64(id) => Ok(id),
        other => Err(mismatch("a cursor", "a long", other)),
    };
    let ids = command.values("cursors")?.into_iter().map(number).collect::<Result<Vec<i64>>>()?;
    let closed = command.shared.cursors.kill(&ids, &namespace, command.client.user_name().as_deref())?;
    let (killed, unknown): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| closed.contains(id));
    let list = |ids: Vec<i64>| ids.into_iter().collect::<RawArrayBuf>();
    let none = RawArrayBuf::new;
    Ok(reply::finished(rawdoc! {
        "cursorsKilled": list(killed), "cursorsNotFound": list(unknown), "cursorsAlive": none(), "cursorsUnknown": none(),
    }))
}
