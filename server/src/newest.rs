//! The newest measurement of each series, for pipelines that need no other.

use crate::columns::columns_of;
use crate::error::Result;
use crate::measurements::{Query, Selection};
use arrow::array::RecordBatch;
use bson::raw::RawDocumentBuf;
use ebbtide::{CollectionSnapshot, ScanRequest, TimeRange};
use ebbtide_documents::{DocumentWriter, Pipeline};

/// The documents of a pipeline that begins with a `$sort` by time and a `$group` by the meta of which each takes its newest one
/// alone; nothing if it is another pipeline, or if the filter is about more than metas and times.
pub(crate) fn newest(
    snapshot: &CollectionSnapshot,
    query: &Query,
    pipeline: &Pipeline,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let schema = snapshot.schema();
    let Some(meta) = schema.meta.as_deref().filter(|meta| pipeline.needs_newest(&schema.time, meta)) else {
        return Ok(None);
    };
    let Selection { times, meta: metas, is_exact } = query.selection(snapshot);
    if !is_exact {
        return Ok(None);
    }
    let Some((from, to)) = times.filter(|(from, to)| from <= to) else { return Ok(Some(Vec::new())) };
    let needed = pipeline.needed_fields();
    let is_needed = |name: &String| {
        *name == schema.time || name == meta || needed.as_ref().is_none_or(|needed| needed.contains(name))
    };
    let columns = schema.arrow().fields().iter().map(|field| field.name().clone()).filter(is_needed).collect();
    let time = TimeRange::of_units(Some(from), Some(to), schema.precision);
    let request = ScanRequest { projection: Some(columns), time, meta: metas, ..ScanRequest::default() };
    Ok(Some(documents(&snapshot.last_points(&request)?)))
}

fn documents(rows: &RecordBatch) -> Vec<RawDocumentBuf> {
    let columns = columns_of(rows);
    let mut bytes = 0;
    let document = |row: usize| {
        let mut writer = DocumentWriter::with_capacity(bytes);
        columns.iter().for_each(|column| column.append(row, &mut writer));
        let document = writer.finish();
        bytes = document.as_bytes().len();
        document
    };
    (0..rows.num_rows()).map(document).collect()
}
