//! What other programs find in the folders of collections after a crash: each measurement once, under types that agree, or
//! the marker that stops them.

use ebbtide::buckets::SegmentReader;
use ebbtide::fs::Fs;
use ebbtide::fs::sim::SimFs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

const MARKER: &str = "run-COMPACT-first.parquet";

/// Reads all segments in the folder of each collection, as somebody else would before the database is opened again.
pub(crate) fn check(image: &SimFs) -> Result<(), String> {
    let mut folders: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for path in image.files() {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let is_of_collection = folder.extension().is_some_and(|number| number.to_string_lossy().parse::<u64>().is_ok());
        if is_of_collection {
            folders.entry(folder).or_default().push(path);
        }
    }
    let is_marked = |files: &[PathBuf]| files.iter().any(|file| file.file_name().is_some_and(|name| name == MARKER));
    folders.values().filter(|files| !is_marked(files)).try_for_each(|files| check_folder(image, files))
}

fn check_folder(image: &SimFs, files: &[PathBuf]) -> Result<(), String> {
    let (mut ids, mut types) = (BTreeSet::new(), BTreeMap::new());
    for path in files {
        // One that is not whole stops everybody.
        let file = image.open_read(path).map_err(|error| error.to_string())?;
        let Ok(reader) = SegmentReader::open(file, &path.display().to_string()) else { return Ok(()) };
        for column in reader.parquet_metadata().file_metadata().schema_descr().columns() {
            let ty = format!("{:?} {:?}", column.physical_type(), column.logical_type_ref());
            let known = types.entry(column.path().string()).or_insert_with(|| ty.clone());
            if *known != ty {
                return Err(format!(
                    "other programs read {} as {known}, and {} has {ty}",
                    column.path(),
                    path.display()
                ));
            }
        }
        let all = 0..reader.directory().row_count();
        let batches = reader.read(&["id".to_owned()], reader.schema(), std::slice::from_ref(&all), 4_096);
        for batch in batches.map_err(|error| error.to_string())? {
            let Ok(batch) = batch else { return Ok(()) };
            for id in batch.column(0).as_primitive::<Int64Type>().iter().flatten() {
                if !ids.insert(id) {
                    return Err(format!("other programs find {id} twice: {}", path.display()));
                }
            }
        }
    }
    Ok(())
}
