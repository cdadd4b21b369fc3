use super::*;
use crate::db::{Collection, Database};
use crate::fs::sim::SimFs;
use crate::options::CollectionOptions;
use crate::snapshot::ScanRequest;
use ebbtide_buckets::value_at;
use ebbtide_documents::bson::oid::ObjectId;
use ebbtide_documents::bson::raw::{CString, RawArrayBuf, RawBson};
use ebbtide_documents::bson::spec::BinarySubtype;
use ebbtide_documents::bson::{Binary, DateTime, Decimal128, RawDocumentBuf, Regex, rawdoc};
use ebbtide_ttl::{OutOfRange, Precision, VirtualClock};
use proptest::prelude::*;
use std::sync::Arc;

const DIR: &str = "/db";

fn scalar() -> impl Strategy<Value = RawBson> {
    prop_oneof![
        Just(RawBson::Null),
        any::<bool>().prop_map(RawBson::Boolean),
        any::<i32>().prop_map(RawBson::Int32),
        prop_oneof![Just(1 << 53), Just((1 << 53) + 1), any::<i64>()].prop_map(RawBson::Int64),
        prop_oneof![Just(-0.0), Just(0.5), Just(f64::NAN), Just(3.0), any::<f64>()].prop_map(RawBson::Double),
        "[a-c\u{e9}]{0,3}".prop_map(RawBson::String),
        any::<i64>().prop_map(|ms| RawBson::DateTime(DateTime::from_millis(ms))),
        any::<[u8; 2]>()
            .prop_map(|bytes| { RawBson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: bytes.to_vec() }) }),
        any::<[u8; 12]>().prop_map(|bytes| RawBson::ObjectId(ObjectId::from_bytes(bytes))),
        prop_oneof![Just("1.5"), Just("0.1"), Just("NaN")]
            .prop_map(|text| RawBson::Decimal128(text.parse::<Decimal128>().unwrap())),
        Just(RawBson::Undefined),
        Just(RawBson::MaxKey),
        Just(RawBson::RegularExpression(Regex { pattern: "a".try_into().unwrap(), options: "i".try_into().unwrap() })),
    ]
}

fn object(members: Vec<(String, RawBson)>) -> RawDocumentBuf {
    let mut object = RawDocumentBuf::new();
    for (name, value) in members {
        object.append(CString::try_from(name).unwrap(), value);
    }
    object
}

fn any_value() -> impl Strategy<Value = RawBson> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| RawBson::Array(items.into_iter().collect::<RawArrayBuf>())),
            prop::collection::vec(("[xyz]", inner), 0..3).prop_map(|members| RawBson::Document(object(members))),
        ]
    })
}

/// Mostly of the type that goes with the name.
fn member() -> impl Strategy<Value = (String, RawBson)> {
    let whole = prop_oneof![4 => (-5i32..5).prop_map(RawBson::Int32), 1 => any::<i64>().prop_map(RawBson::Int64),
        1 => (-3i32..3).prop_map(|i| RawBson::Double(f64::from(i)))];
    let real = prop_oneof![4 => any::<f64>().prop_map(RawBson::Double), 1 => (-5i32..5).prop_map(RawBson::Int32)];
    let list = prop::collection::vec("[ab]".prop_map(RawBson::String), 0..3);
    let inner = prop::collection::vec(("[xy]", (0i32..3).prop_map(RawBson::Int32)), 0..2);
    prop_oneof![
        6 => whole.prop_map(|value| ("a".to_owned(), value)),
        6 => real.prop_map(|value| ("b".to_owned(), value)),
        4 => "[a-c]{0,20}".prop_map(|text| ("c".to_owned(), RawBson::String(text))),
        2 => any::<bool>().prop_map(|b| ("d".to_owned(), RawBson::Boolean(b))),
        2 => (0i64..5).prop_map(|ms| ("e".to_owned(), RawBson::DateTime(DateTime::from_millis(ms)))),
        1 => list.prop_map(|items| ("f".to_owned(), RawBson::Array(items.into_iter().collect()))),
        1 => inner.prop_map(|members| ("g".to_owned(), RawBson::Document(object(members)))),
        2 => "[ab]".prop_map(|text| ("m".to_owned(), RawBson::String(text))),
        1 => ("[a-gmt]", any_value()),
        1 => prop_oneof![Just("_id"), Just(""), Just("$x")].prop_flat_map(|name| {
            any_value().prop_map(move |value| (name.to_owned(), value))
        }),
    ]
}

/// A document of which few members are wrong, and rarely a byte.
fn document() -> impl Strategy<Value = Vec<u8>> {
    let time = prop_oneof![
        30 => (0i64..100_000).prop_map(|ms| Some(RawBson::DateTime(DateTime::from_millis(ms)))),
        1 => any::<i64>().prop_map(|ms| Some(RawBson::DateTime(DateTime::from_millis(ms)))),
        1 => scalar().prop_map(Some),
        1 => Just(None),
    ];
    let id = any::<Option<[u8; 12]>>();
    let flip = prop_oneof![40 => Just(None), 1 => any::<(prop::sample::Index, u8)>().prop_map(Some)];
    (time, id, prop::collection::vec(member(), 0..6), flip).prop_map(|(time, id, members, flip)| {
        let mut document = RawDocumentBuf::new();
        if let Some(id) = id {
            document.append(CString::try_from("_id").unwrap(), ObjectId::from_bytes(id));
        }
        if let Some(time) = time {
            document.append(CString::try_from("t").unwrap(), time);
        }
        for (name, value) in members {
            document.append(CString::try_from(name).unwrap(), value);
        }
        let mut bytes = document.into_bytes();
        if let Some((at, byte)) = flip.filter(|_| bytes.len() > 5) {
            let at = 4 + at.index(bytes.len() - 5);
            bytes[at] = byte;
        }
        bytes
    })
}

/// The document as a tree of values.
fn tree(document: &RawDocument, ids: IdPolicy) -> Result<Value> {
    let mut members = Vec::new();
    for member in document {
        let (name, value) = member.map_err(|e| Error::new(Code::BadValue, format!("not a BSON document: {e}")))?;
        if ids == IdPolicy::Drop && name.as_str() == "_id" && matches!(value, RawBsonRef::ObjectId(_)) {
            continue;
        }
        members.push((Name::from(name.as_str()), value_of_bson(value)?));
    }
    Ok(Value::Object(members))
}

fn about(index: usize, error: &Error) -> Error {
    Error::new(error.code(), format!("index {index}: {error}")).with_index(index)
}

/// Stores documents by way of trees of values: the number of those that are stored, and what is wrong with others.
fn by_way_of_trees(to: &Collection, ids: IdPolicy, documents: &[&RawDocument], ordered: bool) -> Outcome {
    let (mut readable, mut indexes, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (index, document) in documents.iter().enumerate() {
        match tree(document, ids) {
            Ok(value) => {
                readable.push(value);
                indexes.push(index);
            }
            Err(error) if ordered => return outcome(Err(to.fault_before(&readable, about(index, &error)))),
            Err(error) => refused.push((index, about(index, &error))),
        }
    }
    if ordered {
        return outcome(to.insert_documents(&readable));
    }
    let lenient = to.insert_documents_lenient(&readable).unwrap();
    let renumbered = |(at, error): (usize, Error)| (indexes[at], error.renumbered(indexes[at]));
    refused.extend(lenient.errors.into_iter().map(renumbered));
    refused.sort_by_key(|(index, _)| *index);
    Outcome {
        stored: lenient.stored,
        refused: refused.into_iter().map(|(i, e)| (i, e.code(), e.to_string())).collect(),
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    stored: u64,
    refused: Vec<(usize, Code, String)>,
}

fn outcome(stored: Result<u64>) -> Outcome {
    match stored {
        Ok(stored) => Outcome { stored, refused: Vec::new() },
        Err(error) => Outcome { stored: 0, refused: vec![(error.index().unwrap(), error.code(), error.to_string())] },
    }
}

fn rows(collection: &Collection) -> Vec<Vec<String>> {
    let snapshot = collection.snapshot().unwrap();
    let units = snapshot.scan(&ScanRequest::default()).unwrap();
    let batches = units.iter().flat_map(|unit| unit.read().unwrap().map(std::result::Result::unwrap));
    let mut rows = Vec::new();
    for batch in batches {
        let fields = batch.schema();
        for row in 0..batch.num_rows() {
            let shown = fields.fields().iter().zip(batch.columns());
            rows.push(
                shown.map(|(field, column)| format!("{}: {:?}", field, value_at(column.as_ref(), row))).collect(),
            );
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_of_bson_are_stored_as_their_values_are(
        batches in prop::collection::vec((prop::collection::vec(document(), 1..8), any::<bool>()), 1..5),
        keeps in any::<bool>(),
        rejects in any::<bool>(),
        is_fine in any::<bool>(),
    ) {
        let clock = VirtualClock::new(Timestamp::from_millis(0));
        let db = Database::builder(DIR).fs(Arc::new(SimFs::new(DIR))).clock(Arc::new(clock)).open().unwrap();
        let mut options = CollectionOptions::new("t").meta_field("m");
        options.ids = if keeps { IdPolicy::Keep } else { IdPolicy::Drop };
        options.out_of_range = if rejects { OutOfRange::Reject } else { OutOfRange::Suspend };
        options.precision = if is_fine { Precision::Ns } else { Precision::Ms };
        let direct = db.create_collection("direct", options.clone()).unwrap();
        let by_trees = db.create_collection("trees", options.clone()).unwrap();
        for (documents, ordered) in &batches {
            let documents: Vec<&RawDocument> = documents.iter().filter_map(|d| RawDocument::from_bytes(d).ok()).collect();
            let found = match ordered {
                true => outcome(direct.insert_bson(&documents)),
                false => {
                    let lenient = direct.insert_bson_lenient(&documents).unwrap();
                    let refused = lenient.errors.into_iter().map(|(i, e)| (i, e.code(), e.to_string()));
                    Outcome { stored: lenient.stored, refused: refused.collect() }
                }
            };
            let expected = by_way_of_trees(&by_trees, options.ids, &documents, *ordered);
            prop_assert_eq!(found, expected);
            prop_assert_eq!(rows(&direct), rows(&by_trees));
        }
    }

    #[test]
    fn members_are_those_that_the_crate_reads(
        bytes in document(),
        changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        keeps in any::<bool>(),
    ) {
        let mut bytes = bytes;
        for (at, byte) in changes {
            // The length and the last byte are checked before.
            let at = at.index(bytes.len());
            if (4..bytes.len() - 1).contains(&at) {
                bytes[at] = if byte % 4 == 0 { byte / 4 } else { byte };
            }
        }
        let Ok(document) = RawDocument::from_bytes(&bytes) else { return Ok(()) };
        let ids = if keeps { IdPolicy::Keep } else { IdPolicy::Drop };
        let shown = |member| format!("{member:?}");
        let ours: Vec<String> = RawMeasurement { document, ids }.members().unwrap().take(100).map(shown).collect();
        let of_crate = document.iter().filter_map(|member| match member {
            Ok((name, RawBsonRef::ObjectId(_))) if !keeps && name.as_str() == "_id" => None,
            Ok((name, value)) => Some(cell(value).map(|cell| (name.as_str(), cell))),
            Err(error) => Some(Err(RuleError::new(Code::BadValue, format!("not a BSON document: {error}")))),
        });
        prop_assert_eq!(ours, of_crate.take(100).map(shown).collect::<Vec<String>>());
    }
}

#[test]
fn scalars_are_borrowed_and_object_ids_dropped() {
    let document = rawdoc! { "_id": ObjectId::new(), "t": DateTime::from_millis(5), "s": "text", "o": { "x": 1 } };
    let cells = |ids| -> Vec<(&str, Cell<'_>)> {
        RawMeasurement { document: &document, ids }.members().unwrap().map(std::result::Result::unwrap).collect()
    };
    let dropped = cells(IdPolicy::Drop);
    assert_eq!(dropped.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["t", "s", "o"]);
    assert!(matches!(&dropped[1].1, Cell::String(Cow::Borrowed("text"))));
    assert!(matches!(&dropped[2].1, Cell::Nested(_)));
    assert!(matches!(&cells(IdPolicy::Keep)[0].1, Cell::String(text) if text.len() == 24));
}
