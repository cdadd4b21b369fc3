//! `ebbtide sweep --expired-to`: writes what a sweep drops to a file, or to the standard output, before it is dropped.

use crate::dump::SyncedFile;
use crate::{Failure, files};
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{ExpiredBucket, ExpirySink, SinkError};
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The sink of `--expired-to FILE`, or of `-`.
///
/// # Errors
/// If the name does not show a format, the file exists or is in the folder of the database.
pub(crate) fn sink(database: &Path, to: &Path) -> Result<Arc<dyn ExpirySink>, Failure> {
    if to == Path::new("-") {
        return Ok(Arc::new(Printed::default()));
    }
    let is_packed = to.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let Some(format) = Format::of_path(to).filter(|_| !is_packed) else {
        let what = format!(
            "the format is not clear from the name {}: use .parquet, .csv or .ndjson, or - for lines of JSON",
            to.display()
        );
        return Err(Failure::usage(what));
    };
    files::keep_out(database, to)?;
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write {}: {e}", to.display()));
    if RealFs.exists(to).map_err(|e| fail(&e))? {
        return Err(Failure::usage(format!("{} exists and is not overwritten: name another file", to.display())));
    }
    Ok(Arc::new(InFile { path: to.to_owned(), format, begun: Mutex::default() }))
}

/// Lines of JSON on the standard output.
#[derive(Default)]
struct Printed {
    /// The output may end within a line.
    is_broken: AtomicBool,
}

impl ExpirySink for Printed {
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err("the standard output could not be written".into());
        }
        let out = Box::new(io::stdout());
        let mut writer = ResultWriter::new(Format::Ndjson, bucket.rows.schema_ref(), out, TableStyle::default())?;
        let written = writer.write(&bucket.rows).and_then(|()| writer.finish());
        self.is_broken.store(written.is_err(), Ordering::Relaxed);
        Ok(written?)
    }

    fn commit(&self) -> Result<(), SinkError> {
        Ok(io::Write::flush(&mut io::stdout())?)
    }
}

/// A file with the measurements of one collection, which is complete and durable before they are dropped.
struct InFile {
    path: PathBuf,
    format: Format,
    begun: Mutex<Begun>,
}

#[derive(Default)]
enum Begun {
    #[default]
    No,
    Yes {
        collection: String,
        writer: Box<ResultWriter>,
        file: SyncedFile,
    },
    Done {
        collection: String,
    },
    /// The file may end within a bucket.
    Broken,
}

impl InFile {
    fn broken(&self) -> SinkError {
        format!("{} could not be written: remove it, and sweep again", self.path.display()).into()
    }

    fn begin(&self, bucket: &ExpiredBucket) -> Result<Begun, SinkError> {
        let file = SyncedFile::create(&self.path)?;
        let (schema, style) = (bucket.rows.schema_ref(), TableStyle::default());
        let writer = Box::new(ResultWriter::new(self.format, schema, Box::new(file.clone()), style)?);
        Ok(Begun::Yes { collection: bucket.collection.clone(), writer, file })
    }
}

impl ExpirySink for InFile {
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Begun::No = *begun {
            *begun = self.begin(bucket)?;
        }
        match &mut *begun {
            Begun::Yes { collection, writer, .. } if *collection == bucket.collection => {
                let written = writer.write(&bucket.rows);
                if written.is_err() {
                    *begun = Begun::Broken;
                }
                Ok(written?)
            }
            Begun::Broken => Err(self.broken()),
            Begun::Yes { collection, .. } | Begun::Done { collection } => {
                let what = format!(
                    "{} has the measurements of '{collection}': sweep again with another file for those of '{}'",
                    self.path.display(),
                    bucket.collection
                );
                Err(what.into())
            }
            Begun::No => Ok(()),
        }
    }

    fn commit(&self) -> Result<(), SinkError> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *begun) {
            Begun::Broken => {
                *begun = Begun::Broken;
                Err(self.broken())
            }
            Begun::Yes { collection, writer, file } => {
                // Until its end is there and durable.
                *begun = Begun::Broken;
                writer.finish()?;
                file.sync()?;
                let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
                RealFs.sync_dir(folder.unwrap_or(Path::new(".")))?;
                *begun = Begun::Done { collection };
                Ok(())
            }
            other => {
                *begun = other;
                Ok(())
            }
        }
    }

    fn buckets_at_once(&self) -> usize {
        // The end of the file makes it complete.
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Takes everything but the end of a file.
    struct EndsNot;

    impl Write for EndsNot {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn a_file_whose_end_could_not_be_written_is_not_complete_however_often_it_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expired.csv");
        let file = SyncedFile::create(&path).unwrap();
        let schema = std::sync::Arc::new(arrow::datatypes::Schema::empty());
        let writer = ResultWriter::new(Format::Csv, &schema, Box::new(EndsNot), TableStyle::default()).unwrap();
        let begun = Begun::Yes { collection: "c".to_owned(), writer: Box::new(writer), file };
        let sink = InFile { path, format: Format::Csv, begun: Mutex::new(begun) };
        assert!(sink.commit().is_err());
        let error = sink.commit().unwrap_err().to_string();
        assert!(error.contains("expired.csv could not be written: remove it, and sweep again"), "{error}");
    }
}
