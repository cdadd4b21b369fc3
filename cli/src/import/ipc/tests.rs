use super::{Form, check};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::CompressionType;
use arrow::ipc::reader::{FileReader, StreamReader};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn batch() -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..300));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..300).map(|i| format!("text {}", i % 7))));
    RecordBatch::try_from_iter([("id", ids), ("s", texts)]).unwrap()
}

fn written(form: Form, compression: Option<CompressionType>) -> Vec<u8> {
    let (mut out, batch) = (Vec::new(), batch());
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    match form {
        Form::File => {
            let mut writer = FileWriter::try_new_with_options(&mut out, &batch.schema(), options).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        Form::Stream => {
            let mut writer = StreamWriter::try_new_with_options(&mut out, &batch.schema(), options).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
    }
    out
}

/// The rows that Arrow's reader finds.
fn rows(bytes: &[u8], form: Form) -> Option<usize> {
    let batches: Vec<_> = match form {
        Form::File => FileReader::try_new(Cursor::new(bytes), None).ok()?.collect(),
        Form::Stream => StreamReader::try_new(Cursor::new(bytes), None).ok()?.collect(),
    };
    batches.into_iter().map(|batch| batch.ok().map(|batch| batch.num_rows())).sum()
}

#[test]
fn what_passes_takes_no_memory_that_the_file_does_not_account_for() {
    for form in [Form::File, Form::Stream] {
        for compression in [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)] {
            let whole = written(form, compression);
            assert_eq!(check(&mut Cursor::new(&whole), form), Ok(()));
            assert_eq!(rows(&whole, form), Some(300));
            let mut refused = 0;
            // Every aligned 32-bit and 64-bit number gets an impossible value, including all lengths.
            for at in (0..whole.len() - 8).step_by(4) {
                for lie in [&(1_i64 << 60).to_le_bytes()[..], &i64::MIN.to_le_bytes(), &i32::MAX.to_le_bytes()] {
                    let mut bytes = whole.clone();
                    bytes[at..at + lie.len()].copy_from_slice(lie);
                    match check(&mut Cursor::new(&bytes), form) {
                        Err(_) => refused += 1,
                        // Allocating memory for an unchecked length would end the whole process.
                        Ok(()) => drop(catch_unwind(AssertUnwindSafe(|| rows(&bytes, form)))),
                    }
                }
            }
            assert!(refused > 10, "{form:?} {compression:?}: {refused}");
            for end in 0..whole.len() {
                drop(check(&mut Cursor::new(&whole[..end]), form));
            }
        }
    }
}

#[test]
fn a_batch_that_unpacks_to_more_than_fits_is_named() {
    let mut bytes = written(Form::Stream, Some(CompressionType::ZSTD));
    // The column of numbers takes 2,400 bytes.
    let at = bytes.windows(8).position(|window| window == 2400_i64.to_le_bytes()).unwrap();
    bytes[at..at + 8].copy_from_slice(&(1_i64 << 33).to_le_bytes());
    let error = check(&mut Cursor::new(&bytes), Form::Stream).unwrap_err();
    assert!(error.contains("decompressed size of more than 512 MiB"), "{error}");
}
