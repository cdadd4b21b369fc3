//! Any bytes as the manifest, mostly under checksums that hold.

use super::{HOUR, NOON, ROOT, look, measurements, open, patch};
use arbitrary::{Result, Unstructured};
use ebbtide::CollectionOptions;
use ebbtide::fs::Fs;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Filter, RuleSpec, Value};
use std::path::PathBuf;
use std::sync::OnceLock;

const HEADER: usize = 36;
const FRAME: usize = 12;

struct Sample {
    fs: SimFs,
    path: PathBuf,
    bytes: Vec<u8>,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let fs = SimFs::new(ROOT);
        let db = open(&fs).expect("open");
        let options = CollectionOptions::new("t").meta_field("m").span_seconds(3600).expire_after_seconds(48 * 3600);
        let c = db.create_collection("c", options).expect("create");
        db.create_rules("c", vec![RuleSpec::new("r", 7200, Filter::eq("m", Value::from("d")))]).expect("rule");
        // Two segments, whose rows are interleaved.
        for (ids, start) in [(0..12, 0), (12..24, 30_000 - 12 * 60_000)] {
            c.insert_documents(&measurements(ids, NOON - 3 * HOUR + start)).expect("insert");
            db.flush().expect("flush");
        }
        c.delete(&Filter::eq("id", Value::Int(5))).expect("delete");
        db.sweep().expect("sweep");
        c.insert_documents(&measurements(30..32, NOON)).expect("insert");
        let fs = fs.fork();
        let is_manifest = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("MANIFEST-"));
        let path = fs.files().into_iter().find(is_manifest).expect("a manifest");
        let bytes = fs.read(&path).expect("read");
        Sample { fs, path, bytes }
    })
}

fn reseal(bytes: &mut [u8]) {
    let crc = |bytes: &[u8]| crc32fast::hash(bytes).to_le_bytes();
    if bytes.len() < HEADER {
        return;
    }
    let header = crc(&bytes[..32]);
    bytes[32..HEADER].copy_from_slice(&header);
    let mut at = HEADER;
    while at + FRAME <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let end = (at + FRAME).saturating_add(length as usize);
        if end > bytes.len() {
            return;
        }
        let payload = crc(&bytes[at + FRAME..end]);
        bytes[at + 4..at + 8].copy_from_slice(&payload);
        let place = (at as u64).to_le_bytes();
        let head = crc(&[&bytes[at..at + 8], &header[..], &place[..]].concat());
        bytes[at + 8..at + FRAME].copy_from_slice(&head);
        at = end;
    }
}

fn patched(sample: &Sample, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = sample.bytes.clone();
    patch(&mut bytes, u)?;
    reseal(&mut bytes);
    Ok(bytes)
}

/// Payloads are the pieces of the input between bytes of 255.
fn framed(sample: &Sample, rest: &[u8]) -> Vec<u8> {
    let mut bytes = sample.bytes[..HEADER].to_vec();
    for payload in rest.split(|byte| *byte == 255).filter(|payload| !payload.is_empty()) {
        bytes.extend(u32::try_from(payload.len()).expect("short").to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend_from_slice(payload);
    }
    reseal(&mut bytes);
    bytes
}

pub(super) fn run(data: &[u8]) {
    let sample = sample();
    let Some((mode, rest)) = data.split_first() else { return };
    let manifest = match mode % 3 {
        0 => rest.to_vec(),
        1 => match patched(sample, &mut Unstructured::new(rest)) {
            Ok(bytes) => bytes,
            Err(_) => return,
        },
        _ => framed(sample, rest),
    };
    let disk = sample.fs.fork();
    disk.tamper(&sample.path, |bytes| *bytes = manifest).expect("the manifest is there");
    look(&disk);
}
