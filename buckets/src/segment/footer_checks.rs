//! Checks the claims of a segment's footer: a checksum proves that nothing was damaged, not that the writer
//! was honest, and the Parquet reader trusts every number of it.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use std::ops::Range;

/// A number that may not be negative.
fn count(what: &str, number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{what} is {number}"))
}

/// The bytes of a column of a row group.
fn bytes_of(column: &ColumnChunkMetaData) -> Result<Range<u64>, String> {
    let data = count("a data offset", column.data_page_offset())?;
    let dictionary = column.dictionary_page_offset().map(|at| count("a dictionary offset", at)).transpose()?;
    let start = dictionary.unwrap_or(data);
    let len = count("a compressed size", column.compressed_size())?;
    count("an uncompressed size", column.uncompressed_size())?;
    let end = start.checked_add(len).ok_or_else(|| format!("{len} bytes from {start} on overflow"))?;
    if data < start || data > end {
        return Err(format!("its data begins at {data}, outside of its bytes {start}..{end}"));
    }
    Ok(start..end)
}

/// Checks counts, sizes and places of everything that the footer describes.
///
/// # Errors
/// The first claim that cannot be true for a file with `rows` rows whose data ends at `data_end`.
pub(crate) fn check(metadata: &ParquetMetaData, rows: u64, data_end: u64) -> Result<(), String> {
    let mut rows_left = rows;
    let mut taken: Vec<Range<u64>> = Vec::new();
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let in_group = |message: String| format!("row group {at}: {message}");
        let rows = count("its number of rows", group.num_rows()).map_err(in_group)?;
        let more = || in_group(format!("{rows} rows are more than the {rows_left} that are left"));
        rows_left = rows_left.checked_sub(rows).ok_or_else(more)?;
        for (leaf, column) in group.columns().iter().enumerate() {
            let in_column =
                |message: String| in_group(format!("column '{}': {message}", column.column_path().string()));
            let values = count("its number of values", column.num_values()).map_err(in_column)?;
            if values < rows || (column.column_descr().max_rep_level() == 0 && values > rows) {
                return Err(in_column(format!("{values} values for {rows} rows")));
            }
            let bytes = bytes_of(column).map_err(in_column)?;
            if bytes.end > data_end {
                return Err(in_column(format!("bytes {bytes:?} are not all before {data_end}, where the data ends")));
            }
            let index = metadata.offset_index().and_then(|index| index.get(at)?.get(leaf));
            let mut next = (bytes.start, 0);
            for page in index.map_or(&[][..], |index| index.page_locations()) {
                let offset = count("the offset of a page", page.offset).map_err(in_column)?;
                let size = count("the size of a page", page.compressed_page_size.into()).map_err(in_column)?;
                let row = count("the first row of a page", page.first_row_index).map_err(in_column)?;
                let end = offset.checked_add(size).filter(|end| *end <= bytes.end);
                let Some(end) = end.filter(|_| offset >= next.0 && row >= next.1 && row < rows.max(1)) else {
                    let message =
                        format!("a page of {size} bytes at {offset}, from row {row} on, is not where it can be");
                    return Err(in_column(message));
                };
                next = (end, row);
            }
            taken.push(bytes);
        }
    }
    if rows_left > 0 {
        return Err(format!("{rows_left} rows are in no row group"));
    }
    taken.sort_by_key(|bytes| (bytes.start, bytes.end));
    match taken.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => Err(format!("two columns overlap: bytes {:?} and {:?}", pair[0], pair[1])),
        None => Ok(()),
    }
}
