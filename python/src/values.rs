//! Values between Python and the database: documents and commands as Extended JSON, which the engine reads and writes,
//! and parameters of statements.
//!
//! A dict like `{"$oid": "..."}` is Extended JSON in both directions; dates, bytes, decimals and ObjectIds of the package
//! `bson` go in as they are.

use crate::errors;
use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeDelta, TimeZone, Utc};
use ebbtide::documents_model::bson::error::Result as BsonResult;
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::documents_model::bson::{Bson, RawDocument};
use ebbtide::documents_model::json::{from_json, to_relaxed_value};
use ebbtide::json::json_of;
use ebbtide_query::ScalarValue;
use ebbtide_ttl::{Timestamp, Value};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateTime, PyDelta, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString,
    PyTuple,
};
use serde_json::{Map, Value as Json};

/// Nesting beyond this is refused here; the engine's own limit is lower.
const DEPTH_MAX: usize = 100;

/// An instant: a datetime, of which one without a time zone is in UTC, a date, or a text.
///
/// # Errors
/// TypeError for anything else, InvalidError for a text that is no time, and for NaT.
pub(crate) fn instant_of(object: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    let refused = || format!("expected a datetime, a date or a text that is a time, not {}", kind(object));
    if is_missing(object)? {
        return Err(errors::invalid(object.py(), refused()));
    }
    if object.cast::<PyDateTime>().is_ok() {
        let utc = match object.extract::<NaiveDateTime>() {
            Ok(local) => local.and_utc(),
            Err(_) => {
                let zone = object.py().import("datetime")?.getattr("timezone")?.getattr("utc")?;
                object.call_method1("astimezone", (zone,))?.extract::<DateTime<Utc>>()?
            }
        };
        // A pandas Timestamp is a datetime, and has nanoseconds besides.
        let finer: i128 = object.getattr("nanosecond").and_then(|finer| finer.extract()).unwrap_or(0);
        let nanos = i128::from(utc.timestamp()) * 1_000_000_000 + i128::from(utc.timestamp_subsec_nanos());
        return Ok(Timestamp::from_nanos(nanos + finer));
    }
    if object.cast::<PyDate>().is_ok() {
        let midnight = object.extract::<NaiveDate>()?.and_time(chrono::NaiveTime::MIN).and_utc();
        return Ok(Timestamp::from_nanos(i128::from(midnight.timestamp()) * 1_000_000_000));
    }
    let parse = |text: &Bound<'_, PyString>| {
        Timestamp::parse(text.to_str()?).map_err(|error| errors::invalid(object.py(), error))
    };
    match object.cast::<PyString>() {
        Ok(text) => parse(text),
        // Of numpy; whole hours, months and years are not written as times.
        Err(_) if kind(object) == "datetime64" => parse(&object.str()?).or_else(|_| {
            let seconds = object.call_method1("astype", ("datetime64[s]",))?;
            parse(&seconds.str()?)
        }),
        Err(_) => Err(PyTypeError::new_err(refused())),
    }
}

/// Whether it is one of the times and durations of pandas and numpy that stand for none.
fn is_missing(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(match kind(object).as_str() {
        "NaTType" => true,
        "datetime64" | "timedelta64" => object.str()?.to_str()? == "NaT",
        _ => false,
    })
}

/// An instant as a datetime in UTC, rounded down to microseconds.
///
/// # Errors
/// OverflowError outside of the years 1 to 9999.
pub(crate) fn datetime_of(py: Python<'_>, instant: Timestamp) -> PyResult<Bound<'_, PyAny>> {
    let micros = i64::try_from(instant.nanos().div_euclid(1_000)).ok();
    let utc = micros.and_then(|micros| Utc.timestamp_micros(micros).single());
    let far = || format!("{instant} is outside of the years that datetime has, 1 to 9999: read it as Arrow");
    let made = utc.and_then(|utc| utc.into_bound_py_any(py).ok());
    made.ok_or_else(|| PyOverflowError::new_err(far()))
}

/// The name of an object's class.
pub(crate) fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// An object as Extended JSON.
///
/// # Errors
/// TypeError for what no document holds, naming its class; OverflowError for an int beyond 64 bits.
pub(crate) fn json_of_py(object: &Bound<'_, PyAny>) -> PyResult<Json> {
    json_at(object, 0)
}

fn json_at(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Json> {
    if depth > DEPTH_MAX {
        return Err(errors::invalid(object.py(), format!("nested deeper than {DEPTH_MAX} levels")));
    }
    if object.is_none() {
        return Ok(Json::Null);
    }
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(Json::Bool(flag.is_true()));
    }
    if object.cast::<PyInt>().is_ok() {
        return Ok(Json::from(object.extract::<i64>()?));
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(json_of(&Value::Double(number.value())));
    }
    if let Ok(text) = object.cast::<PyString>() {
        let json = Json::from(text.to_str()?);
        return if object.cast_exact::<PyString>().is_err() && kind(object) == "Code" && object.hasattr("scope")? {
            code(object, json, depth)
        } else {
            Ok(json)
        };
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return members(dict, depth).map(Json::Object);
    }
    if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let items = object.try_iter()?.map(|item| json_at(&item?, depth + 1));
        return items.collect::<PyResult<Vec<_>>>().map(Json::Array);
    }
    if object.cast::<PyBytes>().is_ok() || object.cast::<PyByteArray>().is_ok() {
        let mut json = json_of(&Value::Binary(object.extract::<Vec<u8>>()?));
        if kind(object) == "Binary" && object.hasattr("subtype")? {
            json["$binary"]["subType"] = format!("{:02x}", object.getattr("subtype")?.extract::<u8>()?).into();
        }
        return Ok(json);
    }
    if object.cast::<PyDate>().is_ok() || kind(object) == "datetime64" {
        if is_missing(object)? {
            return Ok(Json::Null);
        }
        return Ok(json_of(&Value::Date(instant_of(object)?)));
    }
    other(object, depth)
}

/// JavaScript of the package `bson`, perhaps with the variables that it sees.
fn code(object: &Bound<'_, PyAny>, text: Json, depth: usize) -> PyResult<Json> {
    let mut json = Map::from_iter([("$code".to_owned(), text)]);
    let scope = object.getattr("scope")?;
    if !scope.is_none() {
        json.insert("$scope".to_owned(), json_at(&scope, depth + 1)?);
    }
    Ok(Json::Object(json))
}

fn members(dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<Map<String, Json>> {
    let mut members = Map::new();
    for (name, value) in dict {
        let Ok(name) = name.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!("the name of a field is a str, not {}", kind(&name))));
        };
        members.insert(name.to_str()?.to_owned(), json_at(&value, depth + 1)?);
    }
    Ok(members)
}

/// Objects of other packages: decimals, ObjectIds, numbers of numpy, mappings.
fn other(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Json> {
    let py = object.py();
    let wrapped = |key: &str, object: &Bound<'_, PyAny>| -> PyResult<Json> {
        let text = Json::from(object.str()?.to_str()?);
        Ok(Json::Object(std::iter::once((key.to_owned(), text)).collect()))
    };
    let refused = || PyTypeError::new_err(format!("a document cannot hold an object of type {}", kind(object)));
    match kind(object).as_str() {
        "timedelta64" if is_missing(object)? => return Ok(Json::Null),
        "ObjectId" => return wrapped("$oid", object),
        "Decimal" => return wrapped("$numberDecimal", object),
        _ => {}
    }
    if let Ok(mapping) = object.cast::<PyMapping>() {
        let dict = PyDict::new(py);
        dict.call_method1("update", (mapping,))?;
        return members(&dict, depth).map(Json::Object);
    }
    if object.hasattr("dtype")? && object.hasattr("tolist")? {
        let class = object.getattr("dtype")?.getattr("kind").and_then(|class| class.extract::<String>());
        return match class.as_deref() {
            Ok("m") if kind(object) == "timedelta64" => Err(refused()),
            // An array without dimensions is one value.
            Ok("M" | "m") if object.getattr("ndim")?.extract::<usize>()? == 0 => {
                json_at(&object.get_item(PyTuple::empty(object.py()))?, depth)
            }
            // Of these `tolist` has plain numbers in the place of nanoseconds.
            Ok("M" | "m") => {
                let items = object.try_iter()?.map(|item| json_at(&item?, depth + 1));
                items.collect::<PyResult<Vec<_>>>().map(Json::Array)
            }
            _ => json_at(&object.call_method0("tolist")?, depth + 1),
        };
    }
    Err(refused())
}

/// Extended JSON as an object.
///
/// # Errors
/// OverflowError for a time that no datetime is.
pub(crate) fn py_of_json<'py>(py: Python<'py>, json: &Json) -> PyResult<Bound<'py, PyAny>> {
    match json {
        Json::Null => Ok(py.None().into_bound(py)),
        Json::Bool(flag) => flag.into_bound_py_any(py),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into_bound_py_any(py),
            None => number.as_f64().into_bound_py_any(py),
        },
        Json::String(text) => text.into_bound_py_any(py),
        Json::Array(items) => {
            let items = items.iter().map(|item| py_of_json(py, item)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
        Json::Object(members) => {
            if let Some(special) = extended(py, members)? {
                return Ok(special);
            }
            let dict = PyDict::new(py);
            for (name, value) in members {
                dict.set_item(name, py_of_json(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}

/// A document of BSON as a dict: what has no class in Python is Extended JSON.
///
/// # Errors
/// OverflowError for a time that no datetime is.
pub(crate) fn py_of_document<'py>(py: Python<'py>, document: &RawDocument) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    for member in document {
        let (name, value) = member.map_err(|error| errors::internal(py, &error.to_string()))?;
        dict.set_item(name.as_str(), py_of_bson(py, value)?)?;
    }
    Ok(dict.into_any())
}

fn py_of_bson<'py>(py: Python<'py>, value: RawBsonRef<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        RawBsonRef::Null => Ok(py.None().into_bound(py)),
        RawBsonRef::Boolean(flag) => flag.into_bound_py_any(py),
        RawBsonRef::Int32(number) => number.into_bound_py_any(py),
        RawBsonRef::Int64(number) => number.into_bound_py_any(py),
        RawBsonRef::Double(number) => number.into_bound_py_any(py),
        RawBsonRef::String(text) => text.into_bound_py_any(py),
        RawBsonRef::DateTime(date) => datetime_of(py, Timestamp::from_millis(date.timestamp_millis())),
        RawBsonRef::Binary(binary) => py_of_binary(py, binary.subtype.into(), binary.bytes),
        RawBsonRef::Decimal128(number) => py.import("decimal")?.call_method1("Decimal", (number.to_string(),)),
        RawBsonRef::ObjectId(id) => py.import("ebbtide._object_id")?.call_method1("ObjectId", (id.to_hex(),)),
        RawBsonRef::Document(document) => py_of_document(py, document),
        RawBsonRef::Array(list) => {
            let item = |item: BsonResult<RawBsonRef<'_>>| {
                py_of_bson(py, item.map_err(|error| errors::internal(py, &error.to_string()))?)
            };
            Ok(PyList::new(py, list.into_iter().map(item).collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
        other => py_of_json(py, &to_relaxed_value(other)),
    }
}

/// Bytes; with a subtype, what the package `bson` has for them, if it is there.
fn py_of_binary<'py>(py: Python<'py>, subtype: u8, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let plain = PyBytes::new(py, bytes).into_any();
    if subtype == 0 {
        return Ok(plain);
    }
    // Python looks for a package that is not there each time.
    static CLASS: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let class =
        CLASS.get_or_init(py, || py.import("bson").and_then(|bson| bson.getattr("Binary")).ok().map(Bound::unbind));
    match class {
        Some(class) => class.bind(py).call1((plain, subtype)),
        None => Ok(plain),
    }
}

/// What a JSON object of one member that begins with a dollar stands for; `None` for all that have no class in Python.
fn extended<'py>(py: Python<'py>, members: &Map<String, Json>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some((key, inner)) = members.iter().next().filter(|(key, _)| members.len() == 1 && key.starts_with('$')) else {
        return Ok(None);
    };
    if let ("$date", Json::String(text)) = (key.as_str(), inner) {
        let instant = Timestamp::parse(text).map_err(|error| errors::invalid(py, error))?;
        return datetime_of(py, instant).map(Some);
    }
    let Ok(value) = from_json(&Json::Object(members.clone())) else { return Ok(None) };
    Ok(Some(match value {
        Bson::Int32(number) => number.into_bound_py_any(py)?,
        Bson::Int64(number) => number.into_bound_py_any(py)?,
        Bson::Double(number) => number.into_bound_py_any(py)?,
        Bson::DateTime(date) => datetime_of(py, Timestamp::from_millis(date.timestamp_millis()))?,
        Bson::Binary(binary) => py_of_binary(py, binary.subtype.into(), &binary.bytes)?,
        Bson::Decimal128(number) => py.import("decimal")?.call_method1("Decimal", (number.to_string(),))?,
        Bson::ObjectId(id) => py.import("ebbtide._object_id")?.call_method1("ObjectId", (id.to_hex(),))?,
        _ => return Ok(None),
    }))
}

/// The value of a parameter of a statement.
///
/// # Errors
/// TypeError for what no parameter is.
pub(crate) fn scalar_of(object: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    if object.is_none() || is_missing(object)? {
        return Ok(ScalarValue::Null);
    }
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(ScalarValue::Boolean(Some(flag.is_true())));
    }
    if object.cast::<PyInt>().is_ok() {
        return Ok(ScalarValue::Int64(Some(object.extract()?)));
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(ScalarValue::Float64(Some(number.value())));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(ScalarValue::Utf8(Some(text.to_str()?.to_owned())));
    }
    if object.cast::<PyBytes>().is_ok() {
        return Ok(ScalarValue::Binary(Some(object.extract()?)));
    }
    let too_far = || errors::invalid(object.py(), format!("a parameter cannot be {object}: 64 bits do not hold it"));
    if object.cast::<PyDelta>().is_ok() {
        let micros = object.extract::<TimeDelta>()?.num_microseconds().ok_or_else(too_far)?;
        // A pandas Timedelta is a timedelta, and has nanoseconds besides.
        return match object.getattr("nanoseconds").and_then(|finer| finer.extract::<i64>()) {
            Ok(finer) if finer != 0 => {
                let nanos = micros.checked_mul(1_000).and_then(|nanos| nanos.checked_add(finer));
                Ok(ScalarValue::DurationNanosecond(Some(nanos.ok_or_else(too_far)?)))
            }
            _ => Ok(ScalarValue::DurationMicrosecond(Some(micros))),
        };
    }
    if kind(object) == "timedelta64" {
        let plain = object.call_method0("item")?;
        return match object.getattr("dtype")?.getattr("str")?.extract::<String>()?.as_str() {
            "<m8[ns]" => Ok(ScalarValue::DurationNanosecond(Some(plain.extract()?))),
            _ if plain.cast::<PyDelta>().is_ok() => scalar_of(&plain),
            unit => {
                let what =
                    format!("a parameter cannot be a timedelta64 of the type {unit}: cast it to timedelta64[us]");
                Err(errors::invalid(object.py(), what))
            }
        };
    }
    if object.cast::<PyDate>().is_ok() || kind(object) == "datetime64" {
        let instant = instant_of(object)?;
        let utc = Some("UTC".into());
        // Nanoseconds where there are any: microseconds reach further.
        if instant.nanos().rem_euclid(1_000) != 0
            && let Ok(nanos) = i64::try_from(instant.nanos())
        {
            return Ok(ScalarValue::TimestampNanosecond(Some(nanos), utc));
        }
        let micros = i64::try_from(instant.nanos().div_euclid(1_000)).map_err(|_| too_far())?;
        return Ok(ScalarValue::TimestampMicrosecond(Some(micros), utc));
    }
    if object.hasattr("dtype")? && object.hasattr("tolist")? {
        let plain = object.call_method0("tolist")?;
        if plain.cast::<PyList>().is_err() {
            return scalar_of(&plain);
        }
    }
    Err(PyTypeError::new_err(format!("a parameter cannot be an object of type {}", kind(object))))
}
