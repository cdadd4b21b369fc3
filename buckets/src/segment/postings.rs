//! Which metas of a segment have which value in which member: bitmaps of meta ordinals.
//!
//! Only scalars are indexed, and the scalar items of lists, since a condition on a list holds if it holds for an item.
//! A member whose values are nearly all different has none: its bitmaps would be as long as the list of metas itself.

use super::varint::{self, Cursor};
use crate::meta::MetaKey;
use ebbtide_ttl::Value;
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet};

/// By path (names from the meta down), by key of the value.
#[derive(Debug, Default)]
pub(crate) struct Postings(BTreeMap<Vec<String>, BTreeMap<MetaKey, RoaringBitmap>>);

/// From this share of distinct values on, a path is not indexed.
const DISTINCT_SHARE: usize = 2;

impl Postings {
    /// The postings of metas in order of their ordinals.
    pub(crate) fn build(metas: &[MetaKey]) -> Postings {
        let mut all = Postings::default();
        let mut opaque = BTreeSet::new();
        for (ordinal, meta) in (0_u32..).zip(metas) {
            let value = meta.value();
            if let Value::Object(_) = value {
                let mut path = Vec::new();
                all.add(&value, ordinal, &mut path, &mut opaque);
            }
        }
        all.0.retain(|path, values| {
            let indexed = !(1..=path.len()).any(|depth| opaque.contains(&path[..depth]));
            indexed && values.len() * DISTINCT_SHARE <= metas.len()
        });
        all
    }

    fn add(&mut self, value: &Value, ordinal: u32, path: &mut Vec<String>, opaque: &mut BTreeSet<Vec<String>>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    path.push(name.to_string());
                    self.add(member, ordinal, path, opaque);
                    path.pop();
                }
            }
            Value::Array(items) => {
                // The filter decides what a condition means below a list of objects or lists.
                if items.iter().any(|item| matches!(item, Value::Object(_) | Value::Array(_))) {
                    opaque.insert(path.clone());
                } else {
                    items.iter().for_each(|item| self.add(item, ordinal, path, opaque));
                }
            }
            Value::Null => {}
            scalar => {
                let values = match self.0.get_mut(path.as_slice()) {
                    Some(values) => values,
                    None => self.0.entry(path.clone()).or_default(),
                };
                values.entry(MetaKey::of(scalar)).or_default().insert(ordinal);
            }
        }
    }

    /// The metas with this scalar at this path; `None` if the path is not indexed.
    pub(crate) fn get(&self, path: &[&str], value: &Value) -> Option<RoaringBitmap> {
        if matches!(value, Value::Null | Value::Object(_) | Value::Array(_)) {
            return None;
        }
        Some(self.values(path)?.get(&MetaKey::of(value)).cloned().unwrap_or_default())
    }

    /// The metas with each scalar at this path; `None` if the path is not indexed.
    pub(crate) fn values(&self, path: &[&str]) -> Option<&BTreeMap<MetaKey, RoaringBitmap>> {
        let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        self.0.get(&path)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put_u64(&mut out, self.0.len() as u64);
        for (path, values) in &self.0 {
            varint::put_u64(&mut out, path.len() as u64);
            path.iter().for_each(|name| varint::put_bytes(&mut out, name.as_bytes()));
            varint::put_u64(&mut out, values.len() as u64);
            for (key, ordinals) in values {
                varint::put_bytes(&mut out, key.as_bytes());
                let mut bitmap = Vec::with_capacity(ordinals.serialized_size());
                // Writing to memory does not fail; an empty bitmap would only fail to match.
                if ordinals.serialize_into(&mut bitmap).is_err() {
                    bitmap.clear();
                }
                varint::put_bytes(&mut out, &bitmap);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Postings, String> {
        let mut cursor = Cursor::new(bytes);
        let mut all = BTreeMap::new();
        for _ in 0..cursor.count()? {
            let names = cursor.count()?;
            let path = (0..names).map(|_| cursor.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
            let mut values = BTreeMap::new();
            for _ in 0..cursor.count()? {
                let key = MetaKey::from_bytes(cursor.bytes()?)?;
                let bitmap = RoaringBitmap::deserialize_from(cursor.bytes()?).map_err(|e| format!("postings: {e}"))?;
                values.insert(key, bitmap);
            }
            all.insert(path, values);
        }
        Ok(Postings(all))
    }
}
