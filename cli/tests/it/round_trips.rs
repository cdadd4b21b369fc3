//! Random values of every type through every way to write and to read. The values that come back must equal those
//! stored, bit for bit; where a format cannot hold a value, docs/cli.md says so, and those columns are left out here.

use crate::cli::{inside, write};
use ebbtide::buckets::value_at;
use ebbtide::ttl::{Precision, Timestamp, Value};
use ebbtide::{Collection, CollectionOptions, Database, ScanRequest, json};
use ebbtide_query::Session;
use std::path::Path;

/// The values that CSV preserves: no lists, no bytes, no empty texts, no white space around texts.
const PLAIN: [&str; 7] = ["t", "m", "i", "d", "b", "x", "u"];
/// The values that JSON preserves: no NaN, no infinities, no bytes, no times except the measurement's own.
const JSON: [&str; 9] = ["t", "m", "i", "f", "b", "x", "z", "l", "o"];
const ALL: [&str; 12] = ["t", "m", "i", "d", "f", "b", "x", "z", "u", "l", "o", "y"];
const ROWS: usize = 150;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn int(&mut self) -> i64 {
        let ends = [i64::MIN, i64::MAX, 0, -1, 9_007_199_254_740_993, -9_007_199_254_740_993];
        match self.below(3) {
            0 => ends[self.below(ends.len())],
            1 => self.next().cast_signed(),
            _ => self.below(100) as i64,
        }
    }

    fn double(&mut self) -> f64 {
        let odd = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -0.0, 0.1, 0.942_450_283_777_050_3, 1e23];
        match self.below(3) {
            0 => odd[self.below(odd.len())],
            1 => Some(f64::from_bits(self.next())).filter(|d| d.is_finite()).unwrap_or(1.5),
            _ => self.below(1_000_000) as f64 / 1_000.0,
        }
    }

    fn text(&mut self) -> String {
        let parts =
            ["a", "'", "\"", ",", ";", "\n", "\t", "\\", "ä", "😀", "=", " ", "$x", "{", "NULL", "1.0", "\u{7f}"];
        (0..self.below(6)).map(|_| parts[self.below(parts.len())]).collect()
    }

    fn time(&mut self, precision: Precision) -> Timestamp {
        // The range in which every format can write dates.
        let nanos = (self.next() % 8_000_000_000_000_000_000) as i128 - 4_000_000_000_000_000_000;
        Timestamp::from_units(Timestamp::from_nanos(nanos).to_units(precision).unwrap(), precision)
    }
}

/// A measurement with some of the fields; the first one has all.
fn document(at: usize, precision: Precision, draw: &mut Draw) -> Value {
    let mut members = vec![("t".into(), Value::Date(draw.time(precision)))];
    let mut add = |name: &str, value: Value, draw: &mut Draw| {
        if at == 0 || draw.below(6) > 0 {
            members.push((name.into(), value));
        }
    };
    let meta = Value::String(["a", "it's", "ä,\"b\""][draw.below(3)].to_owned());
    add("m", meta, draw);
    let value = Value::Int(draw.int());
    add("i", value, draw);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let value = Value::Double(if draw.below(8) == 0 { special[draw.below(3)] } else { draw.double() });
    add("d", value, draw);
    let value = Value::Double(draw.double());
    add("f", value, draw);
    let value = Value::Bool(draw.below(2) == 0);
    add("b", value, draw);
    let value = Value::String(format!("<{}>", draw.text()));
    add("x", value, draw);
    let value = Value::String(draw.text());
    add("z", value, draw);
    let value = Value::Date(draw.time(precision));
    add("u", value, draw);
    let value = Value::Array((0..usize::from(at == 0) + draw.below(3)).map(|_| Value::Int(draw.int())).collect());
    add("l", value, draw);
    let inner = Value::Object(vec![("q".into(), Value::Double(draw.double())), ("r".into(), Value::Int(draw.int()))]);
    let value = Value::Object(vec![("p".into(), inner), ("s".into(), Value::String(draw.text()))]);
    add("o", value, draw);
    let value = Value::Binary((0..draw.below(5)).map(|_| draw.next() as u8).collect());
    add("y", value, draw);
    Value::Object(members)
}

/// A value in a form that shows every bit.
fn exact(value: &Value) -> String {
    match value {
        Value::Double(d) if d.is_nan() => "NaN".to_owned(),
        Value::Double(d) => format!("{d:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(exact).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let mut members: Vec<String> = members.iter().map(|(name, v)| format!("{name}: {}", exact(v))).collect();
            members.sort();
            format!("{{{}}}", members.join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// The fields of documents as lines, sorted.
fn lines(documents: &[Value], fields: &[&str]) -> Vec<String> {
    let field = |document: &Value, name: &str| exact(document.get(name).unwrap_or(&Value::Null));
    let line = |document: &Value| fields.iter().map(|name| field(document, name)).collect::<Vec<_>>().join(" | ");
    let mut lines: Vec<String> = documents.iter().map(line).collect();
    lines.sort();
    lines
}

/// The contents of a collection, read through the library.
fn stored(collection: &Collection) -> Vec<Value> {
    let mut documents = Vec::new();
    for unit in collection.snapshot().unwrap().scan(&ScanRequest::default()).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            let schema = batch.schema();
            let members = |row: usize| {
                let fields = schema.fields().iter().zip(batch.columns());
                Value::Object(fields.map(|(f, column)| (f.name().as_str().into(), value_at(column, row))).collect())
            };
            documents.extend((0..batch.num_rows()).map(members));
        }
    }
    documents
}

#[track_caller]
fn same(given: &[Value], found: &[Value], fields: &[&str], door: &str) {
    let (given, found) = (lines(given, fields), lines(found, fields));
    assert_eq!(given.len(), found.len(), "{door}");
    for (given, found) in given.iter().zip(&found) {
        assert_eq!(given, found, "{door}");
    }
}

fn options(precision: Precision) -> CollectionOptions {
    CollectionOptions::new("t").meta_field("m").precision(precision)
}

fn create(path: &Path, precision: Precision) -> (Database, Collection) {
    let db = Database::open(path).unwrap();
    let collection = db.create_collection("c", options(precision)).unwrap();
    (db, collection)
}

fn opened(path: &Path) -> (Database, Collection) {
    let db = Database::open(path).unwrap();
    let collection = db.collection("c").unwrap();
    (db, collection)
}

fn good(folder: &Path, args: &[&str]) -> String {
    let output = inside(folder, args, "");
    assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    output.stdout
}

/// A value as an SQL literal.
fn literal(value: &Value) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Double(d) => format!("CAST('{d:?}' AS DOUBLE)"),
        Value::String(text) => quoted(text),
        Value::Date(time) => format!("TIMESTAMP {}", quoted(&time.to_string())),
        Value::Binary(bytes) => format!("X'{}'", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        Value::Array(items) if items.is_empty() => "arrow_cast(make_array(), 'List(Int64)')".to_owned(),
        Value::Array(items) => format!("make_array({})", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> = members.iter().map(|(n, v)| format!("'{n}', {}", literal(v))).collect();
            format!("named_struct({})", members.join(", "))
        }
    }
}

fn documents(seed: u64, precision: Precision) -> Vec<Value> {
    let mut draw = Draw(seed);
    (0..ROWS).map(|at| document(at, precision, &mut draw)).collect()
}

const PRECISIONS: [(u64, Precision); 3] = [(1, Precision::Ms), (2, Precision::Us), (3, Precision::Ns)];

#[test]
fn files_and_dumps_give_back_what_was_stored() {
    for (seed, precision) in PRECISIONS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let given = documents(seed, precision);
        let (db, collection) = create(&path.join("a"), precision);
        collection.insert_documents(&given[..100]).unwrap();
        db.flush().unwrap();
        collection.insert_documents(&given[100..]).unwrap();
        same(&given, &stored(&collection), &ALL, "documents");
        drop((db, collection));

        for (form, fields) in [("csv", &PLAIN[..]), ("ndjson", &JSON), ("parquet", &ALL), ("arrow", &ALL)] {
            let (file, to) = (format!("out.{form}"), format!("from-{form}"));
            let query = format!("SELECT {} FROM c", fields.join(", "));
            good(path, &["--db", "a", "export", "-o", &file, &query]);
            drop(create(&path.join(&to), precision));
            good(path, &["--db", &to, "import", "-c", "c", &file]);
            same(&given, &stored(&opened(&path.join(&to)).1), fields, &format!("{form}, seed {seed}"));
        }
        good(path, &["--db", "a", "dump", "dumped"]);
        good(path, &["--db", "restored", "restore", "dumped"]);
        same(&given, &stored(&opened(&path.join("restored")).1), &ALL, &format!("dump, seed {seed}"));
    }
}

#[test]
fn commands_sql_batches_and_serde_store_what_was_given() {
    #[derive(serde::Serialize)]
    struct Item {
        #[serde(serialize_with = "json::date::serialize")]
        t: Timestamp,
        m: Option<String>,
        i: Option<i64>,
        d: Option<f64>,
        b: Option<bool>,
        z: Option<String>,
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (seed, precision) in PRECISIONS {
        let folder = tempfile::tempdir().unwrap();
        let given = documents(seed + 10, precision);
        let (_db, collection) = create(&folder.path().join("batches"), precision);
        collection.insert_documents(&given).unwrap();
        let (_other, copy) = create(&folder.path().join("copy"), precision);
        for unit in collection.snapshot().unwrap().scan(&ScanRequest::default()).unwrap() {
            for batch in unit.read().unwrap() {
                copy.insert(&batch.unwrap()).unwrap();
            }
        }
        same(&given, &stored(&copy), &ALL, "batches");

        let (db, commands) = create(&folder.path().join("commands"), precision);
        let all: Vec<serde_json::Value> = given.iter().map(json::json_of).collect();
        // As text: what a program reads from a file or a socket.
        let text = serde_json::json!({ "insert": "c", "documents": all }).to_string();
        db.run_command(&serde_json::from_str(&text).unwrap()).unwrap();
        same(&given, &stored(&commands), &ALL, "commands");
        let reply = db.run_command(&serde_json::json!({ "find": "c" })).unwrap();
        let found = reply["cursor"]["firstBatch"].as_array().unwrap();
        let found: Vec<Value> = found.iter().map(|document| json::value_of(document).unwrap()).collect();
        same(&given, &found, &ALL, "find");

        let (_db, serialized) = create(&folder.path().join("serde"), precision);
        let text = |document: &Value, name: &str| match document.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        let item = |d: &Value| Item {
            t: if let Some(Value::Date(t)) = d.get("t") { *t } else { Timestamp::EPOCH },
            m: text(d, "m"),
            i: if let Some(Value::Int(i)) = d.get("i") { Some(*i) } else { None },
            d: if let Some(Value::Double(d)) = d.get("d") { Some(*d) } else { None },
            b: if let Some(Value::Bool(b)) = d.get("b") { Some(*b) } else { None },
            z: text(d, "z"),
        };
        let items: Vec<Item> = given.iter().map(item).collect();
        serialized.insert_serialized(&items).unwrap();
        same(&given, &stored(&serialized), &["t", "m", "i", "d", "b", "z"], "serde");

        let (db, sql) = create(&folder.path().join("sql"), precision);
        let session = Session::new(db).unwrap();
        let run = |statement: &str| {
            runtime.block_on(session.execute(statement)).unwrap_or_else(|e| panic!("{statement}: {e}"));
        };
        let fields = ALL.join(", ");
        let values = |document: &Value| -> Vec<String> {
            ALL.iter().map(|name| literal(document.get(name).unwrap_or(&Value::Null))).collect()
        };
        // One row per statement: SQL gives a column of several rows one type.
        for document in &given[..20] {
            run(&format!("INSERT INTO c ({fields}) VALUES ({})", values(document).join(", ")));
        }
        let places: Vec<String> = (1..=ALL.len()).map(|at| format!("${at}")).collect();
        run(&format!("PREPARE p AS INSERT INTO c ({fields}) VALUES ({})", places.join(", ")));
        for document in &given[20..40] {
            run(&format!("EXECUTE p({})", values(document).join(", ")));
        }
        same(&given[..40], &stored(&sql), &ALL, "SQL");
    }
}

#[test]
fn line_protocol_stores_what_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let mut given = documents(30, Precision::Ns);
    // Each point is one line.
    for document in &mut given {
        let Value::Object(members) = document else { continue };
        for (_, value) in members {
            if let Value::String(text) = value {
                *text = text.replace('\n', " ");
            }
        }
    }
    let mut text = String::new();
    for document in &given {
        let mut fields = Vec::new();
        for (name, value) in
            [("i", document.get("i")), ("f", document.get("f")), ("b", document.get("b")), ("x", document.get("x"))]
        {
            match value {
                Some(Value::Int(i)) => fields.push(format!("{name}={i}i")),
                Some(Value::Double(d)) => fields.push(format!("{name}={d:?}")),
                Some(Value::Bool(b)) => fields.push(format!("{name}={b}")),
                Some(Value::String(t)) => {
                    fields.push(format!("{name}=\"{}\"", t.replace('\\', "\\\\").replace('"', "\\\"")));
                }
                _ => {}
            }
        }
        let Some(Value::Date(time)) = document.get("t") else { panic!("{document:?}") };
        // A point has at least one field.
        fields.push("k=1i".to_owned());
        text.push_str(&format!("c {} {}\n", fields.join(","), time.nanos()));
    }
    write(folder.path(), "points.lp", &text);
    let db = Database::open(folder.path().join("db")).unwrap();
    drop((db.create_collection("c", options(Precision::Ns)).unwrap(), db));
    good(folder.path(), &["--db", "db", "import", "-c", "c", "points.lp"]);
    same(&given, &stored(&opened(&folder.path().join("db")).1), &["t", "i", "f", "b", "x"], "line protocol");
}
