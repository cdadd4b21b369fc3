//! Footers that claim what cannot be, under checksums that hold.

use super::super::read::tail_checksum_at;
use super::*;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnChunkMetaDataBuilder, FileMetaData, ParquetMetaData, ParquetMetaDataWriter,
    RowGroupMetaData,
};

fn sound() -> (Vec<u8>, Schema) {
    let docs: Vec<Value> = (0..100)
        .map(|i| {
            object(&[("t", date(i * 1000)), ("m", Value::from("a")), ("v", Value::Int(i % 7)), ("s", Value::from("x"))])
        })
        .collect();
    let accepted = accept(&docs, &schema());
    let (segment, schema) = seal(&[(accepted.batch, accepted.schema)], 3600);
    (segment.bytes, schema)
}

/// The file with another footer, and a checksum of its tail that holds.
fn with_footer(bytes: &[u8], reader: &SegmentReader, metadata: &ParquetMetaData) -> Vec<u8> {
    let data_end = usize::try_from(reader.data_end()).unwrap();
    let (rest, trailer) = bytes.split_at(bytes.len() - 8);
    let footer = u32::from_le_bytes(trailer[..4].try_into().unwrap()) as usize;
    // What comes before the footer stays, the page indexes and what it says of their places too.
    let mut forged = rest[..rest.len() - footer].to_vec();
    ParquetMetaDataWriter::new(&mut forged, metadata).finish().unwrap();
    let at = tail_checksum_at(&forged).unwrap();
    forged[at..at + 8].copy_from_slice(b"00000000");
    let crc = format!("{:08x}", crc32fast::hash(&forged[data_end..]));
    forged[at..at + 8].copy_from_slice(crc.as_bytes());
    forged
}

type Lie<T> = (&'static str, Box<dyn Fn(T) -> T>);

fn of_file(lie: impl Fn(&mut Vec<RowGroupMetaData>) + 'static) -> Box<dyn Fn(ParquetMetaData) -> ParquetMetaData> {
    Box::new(move |metadata| {
        let file = metadata.file_metadata();
        let mut groups = metadata.row_groups().to_vec();
        lie(&mut groups);
        let (maker, pairs) = (file.created_by().map(str::to_owned), file.key_value_metadata().cloned());
        // The rows of the file are written as the sum of those of its groups.
        let file = FileMetaData::new(file.version(), 0, maker, pairs, file.schema_descr_ptr(), None);
        ParquetMetaData::new(file, groups)
    })
}

fn of_group(
    lie: impl Fn(RowGroupMetaData) -> RowGroupMetaData + 'static,
) -> Box<dyn Fn(ParquetMetaData) -> ParquetMetaData> {
    of_file(move |groups| groups[0] = lie(groups[0].clone()))
}

/// A lie about the column of whole numbers.
fn of_column(
    lie: impl Fn(ColumnChunkMetaData, &ColumnChunkMetaData) -> ColumnChunkMetaData + 'static,
) -> Box<dyn Fn(ParquetMetaData) -> ParquetMetaData> {
    of_group(move |group| {
        let mut columns = group.columns().to_vec();
        let at = columns.iter().position(|c| c.column_path().string() == "v").unwrap();
        columns[at] = lie(columns[at].clone(), &columns[0]);
        group.into_builder().set_column_metadata(columns).build().unwrap()
    })
}

fn lies() -> Vec<Lie<ParquetMetaData>> {
    let mut lies: Vec<Lie<ParquetMetaData>> = vec![
        ("no row groups", of_file(|groups| groups.clear())),
        ("a row group named a thousand times", of_file(|groups| *groups = vec![groups[0].clone(); 1000])),
        (
            "a column in another's place",
            of_column(|column, other| {
                let place = column.into_builder().set_data_page_offset(other.data_page_offset());
                place.set_dictionary_page_offset(other.dictionary_page_offset()).build().unwrap()
            }),
        ),
        (
            "an offset index elsewhere",
            of_column(|column, _| column.into_builder().set_offset_index_offset(Some(4)).build().unwrap()),
        ),
    ];
    for number in [1 << 62, -(1 << 62), 1 << 40, -1, 0] {
        lies.extend([
            ("rows of a group", of_group(move |group| group.into_builder().set_num_rows(number).build().unwrap())),
            (
                "rows of two groups",
                of_file(move |groups| {
                    // Together they have as many as there are.
                    let Some(other) = groups[0].num_rows().checked_sub(number) else { return };
                    let with = |rows| groups[0].clone().into_builder().set_num_rows(rows).build().unwrap();
                    *groups = vec![with(number), with(other)];
                }),
            ),
            (
                "bytes of a group",
                of_group(move |group| group.into_builder().set_total_byte_size(number).build().unwrap()),
            ),
        ]);
        type Set = fn(ColumnChunkMetaDataBuilder, i64) -> ColumnChunkMetaDataBuilder;
        let sets: [(&'static str, Set); 7] = [
            ("values of a column", |column, n| column.set_num_values(n)),
            ("compressed bytes", |column, n| column.set_total_compressed_size(n)),
            ("uncompressed bytes", |column, n| column.set_total_uncompressed_size(n)),
            ("bytes of texts", |column, n| column.set_unencoded_byte_array_data_bytes(Some(n))),
            ("where data begins", |column, n| column.set_data_page_offset(n)),
            ("where a dictionary begins", |column, n| column.set_dictionary_page_offset(Some(n))),
            ("where the offset index is", |column, n| column.set_offset_index_offset(Some(n))),
        ];
        lies.extend(sets.map(|(what, set)| {
            (what, of_column(move |column, _| set(column.into_builder(), number).build().unwrap()))
        }));
        let length = i32::try_from(number.clamp(i32::MIN.into(), i32::MAX.into())).unwrap();
        lies.push((
            "how long the offset index is",
            of_column(move |column, _| column.into_builder().set_offset_index_length(Some(length)).build().unwrap()),
        ));
    }
    lies
}

#[test]
fn a_footer_that_claims_what_cannot_be_is_refused_by_name_and_place_or_makes_no_difference() {
    let (bytes, schema) = sound();
    let reader = open(&bytes).unwrap();
    let expected = rows(&read_all(&reader, &schema).unwrap());
    let honest = ParquetMetaData::new(
        reader.parquet_metadata().file_metadata().clone(),
        reader.parquet_metadata().row_groups().to_vec(),
    );
    let same = open(&with_footer(&bytes, &reader, &honest)).and_then(|reader| read_all(&reader, &schema)).unwrap();
    assert_eq!(rows(&same), expected, "a footer without a lie");
    let mut refused = 0;
    for (what, lie) in lies() {
        let forged = with_footer(&bytes, &reader, &lie(honest.clone()));
        let outcome = open(&forged).and_then(|reader| {
            let _memory = (reader.columns_memory(), reader.memory_bytes());
            reader.verify()?;
            read_all(&reader, &schema)
        });
        match outcome {
            Ok(batch) => assert_eq!(rows(&batch), expected, "{what}"),
            Err(error) => {
                assert!(error.name == "s1" && error.offset <= forged.len() as u64, "{what}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 40, "{refused}");
}
