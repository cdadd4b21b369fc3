//! The fields of a collection as Delta Lake writes them.

use ebbtide::buckets::{FieldType, Schema};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The fields of a table after files with these fields were added to it. `known` is the text of the schema before.
///
/// # Errors
/// A field that had another type, or that differs only in case from another one, in words for people.
pub(crate) fn joined(known: Option<&str>, schema: &Schema) -> Result<String, String> {
    text(known, with(known, schema)?)
}

/// Whether fields of a table that these are too have the same types.
pub(crate) fn has_types_of(known: Option<&str>, schema: &Schema) -> bool {
    with(known, schema).is_ok()
}

fn with(known: Option<&str>, schema: &Schema) -> Result<Vec<Value>, String> {
    let mut fields: Vec<Value> = match known.map(serde_json::from_str::<Value>) {
        Some(Ok(mut known)) => match known["fields"].take() {
            Value::Array(fields) => fields,
            _ => return Err("the log of the archive has no fields".to_owned()),
        },
        Some(Err(error)) => return Err(format!("the fields in the log of the archive cannot be read: {error}")),
        None => Vec::new(),
    };
    join(&mut fields, fields_of(schema), "")?;
    Ok(fields)
}

/// The fields of a table whose files all have these or fewer. `known` are those that it has.
///
/// # Errors
/// Fields that differ only in case, in words for people.
pub(crate) fn text_of(known: Option<&str>, schema: &Schema) -> Result<String, String> {
    text(known, fields_of(schema))
}

fn text(known: Option<&str>, fields: Vec<Value>) -> Result<String, String> {
    let ty = json!({"type": "struct", "fields": fields});
    // A table of an earlier build that has such fields goes on.
    let known = known.and_then(|known| serde_json::from_str(known).ok());
    match one_but_for_case(&ty, "").filter(|_| known.is_none_or(|known| one_but_for_case(&known, "").is_none())) {
        Some((one, other)) => Err(format!(
            "the fields '{one}' and '{other}' differ only in case, and programs that read a table take them for one: copy the \
             measurements to a collection in which one of them has another name"
        )),
        None => Ok(ty.to_string()),
    }
}

/// Two fields of a type whose names differ only in case.
fn one_but_for_case(ty: &Value, path: &str) -> Option<(String, String)> {
    let mut names: HashMap<String, String> = HashMap::new();
    ty["fields"].as_array()?.iter().find_map(|field| {
        let name = format!("{path}{}", field["name"].as_str()?);
        match names.insert(name.to_lowercase(), name.clone()) {
            Some(other) => Some((other, name)),
            None => one_but_for_case(&field["type"], &format!("{name}.")),
        }
    })
}

fn join(known: &mut Vec<Value>, added: Vec<Value>, path: &str) -> Result<(), String> {
    for mut field in added {
        let name = field["name"].clone();
        let Some(old) = known.iter_mut().find(|old| old["name"] == name) else {
            known.push(field);
            continue;
        };
        let path = format!("{path}{}", name.as_str().unwrap_or_default());
        let is_object = |ty: &Value| ty["type"] == "struct";
        if is_object(&old["type"]) && is_object(&field["type"]) {
            let (Value::Array(known), Value::Array(added)) =
                (&mut old["type"]["fields"], field["type"]["fields"].take())
            else {
                return Err(format!("field '{path}' cannot be read in the log of the archive"));
            };
            join(known, added, &format!("{path}."))?;
        } else if old["type"] != field["type"] {
            return Err(format!(
                "field '{path}' is {} now, and the archive has it as {}: a table has one type a field, so name a new place \
                 with ALTER COLLECTION ... INTO",
                in_words(&field["type"]),
                in_words(&old["type"])
            ));
        }
    }
    Ok(())
}

/// A type of a table, for people.
fn in_words(ty: &Value) -> String {
    match (ty.as_str(), ty["type"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some("array")) => format!("a list of {}", in_words(&ty["elementType"])),
        _ => "an object".to_owned(),
    }
}

/// The first object without members in a meta.
fn without_members(name: &str, ty: &FieldType) -> Option<String> {
    match ty {
        FieldType::Object(members) if members.is_empty() => Some(name.to_owned()),
        FieldType::Object(members) => {
            members.iter().find_map(|(member, ty)| without_members(&format!("{name}.{member}"), ty))
        }
        _ => None,
    }
}

/// Whether a file can have the metas of this schema: Parquet has no column for an object without members. Fields that are such objects
/// are left out of files, but metas without them would be others.
///
/// # Errors
/// The first object without members, in words for people.
pub(crate) fn check(schema: &Schema) -> Result<(), String> {
    match schema.meta.iter().zip(&schema.meta_type).find_map(|(name, ty)| without_members(name, ty)) {
        Some(path) => Err(format!(
            "'{path}' in the meta is an object without members, which a table cannot have: it can once a measurement has a \
             member there"
        )),
        None => Ok(()),
    }
}

fn fields_of(schema: &Schema) -> Vec<Value> {
    let meta = schema.meta.iter().zip(&schema.meta_type);
    let others = meta.chain(schema.fields.iter().map(|(name, ty)| (name, ty)));
    let others = others.filter_map(|(name, ty)| Some(field(name, type_of(ty)?)));
    std::iter::once(field(&schema.time, json!("timestamp"))).chain(others).collect()
}

fn field(name: &str, ty: Value) -> Value {
    json!({"name": name, "type": ty, "nullable": true, "metadata": {}})
}

/// A type without objects that have no members; `None` if nothing is left.
fn type_of(ty: &FieldType) -> Option<Value> {
    Some(match ty {
        FieldType::Unknown | FieldType::Bool => json!("boolean"),
        FieldType::Int64 => json!("long"),
        FieldType::Double => json!("double"),
        FieldType::String => json!("string"),
        FieldType::Timestamp => json!("timestamp"),
        FieldType::Binary => json!("binary"),
        FieldType::List(item) => json!({"type": "array", "elementType": type_of(item)?, "containsNull": true}),
        FieldType::Object(members) => {
            let members = members.iter().filter_map(|(name, ty)| Some(field(name, type_of(ty)?)));
            let fields: Vec<Value> = members.collect();
            if fields.is_empty() {
                return None;
            }
            json!({"type": "struct", "fields": fields})
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::ttl::Precision;

    #[test]
    fn a_field_of_another_type_is_named_with_both() {
        let with = |ty: FieldType| {
            let mut schema = Schema::new("t", None, Precision::Ms);
            schema.fields.push(("f".to_owned(), ty));
            schema
        };
        let list = |item| FieldType::List(Box::new(item));
        let object = FieldType::Object(vec![("x".to_owned(), FieldType::Int64)]);
        for (before, after, told) in [
            (FieldType::Int64, FieldType::Double, "field 'f' is double now, and the archive has it as long"),
            (
                list(FieldType::Int64),
                list(FieldType::Double),
                "is a list of double now, and the archive has it as a list of long",
            ),
            (object, FieldType::String, "is string now, and the archive has it as an object"),
        ] {
            let known = joined(None, &with(before)).unwrap();
            let error = joined(Some(&known), &with(after)).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
