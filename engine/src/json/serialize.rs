//! From anything that can be serialized to JSON, as serde_json does it, except for NaN and the infinities: these become
//! `$numberDouble` instead of null.

use super::json_of;
use ebbtide_ttl::Value;
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};
use serde_json::value::Serializer as Plain;
use serde_json::{Error, Map, Value as Json};

type Result<T, E = Error> = std::result::Result<T, E>;

/// What serde_json calls the member of a value that is JSON text already.
const RAW: &str = "$serde_json::private::RawValue";

#[derive(Clone, Copy)]
pub(super) struct ToJson;

macro_rules! plain {
    ($($method:ident($ty:ty))*) => {
        $(fn $method(self, value: $ty) -> Result<Json> {
            Plain.$method(value)
        })*
    };
}

impl Serializer for ToJson {
    type Ok = Json;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Members;
    type SerializeStruct = Members;
    type SerializeStructVariant = Members;

    plain! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
        serialize_char(char) serialize_str(&str) serialize_bytes(&[u8]) serialize_unit_struct(&'static str)
    }

    fn serialize_f32(self, value: f32) -> Result<Json> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<Json> {
        Ok(json_of(&Value::Double(value)))
    }

    fn serialize_none(self) -> Result<Json> {
        Ok(Json::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Json> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Json> {
        Ok(Json::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Json> {
        Ok(Json::from(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Json> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Json> {
        Ok(of_variant(Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Items> {
        Ok(Items { variant: None, items: Vec::with_capacity(len.unwrap_or(0).min(1024)) })
    }

    fn serialize_tuple(self, len: usize) -> Result<Items> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Items> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, variant: &'static str, len: usize) -> Result<Items> {
        self.serialize_seq(Some(len)).map(|items| Items { variant: Some(variant), ..items })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members> {
        Ok(Members::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members> {
        Ok(Members::default())
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, variant: &'static str, _: usize) -> Result<Members> {
        Ok(Members { variant: Some(variant), ..Members::default() })
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<Json> {
        Ok(Json::String(value.to_string()))
    }
}

/// A value, or an object with it under the name of its variant.
fn of_variant(variant: Option<&str>, value: Json) -> Json {
    match variant {
        Some(variant) => Json::Object(Map::from_iter([(variant.to_owned(), value)])),
        None => value,
    }
}

/// A list that is being written.
pub(super) struct Items {
    variant: Option<&'static str>,
    items: Vec<Json>,
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.items.push(value.serialize(ToJson)?);
        Ok(())
    }

    fn ended(self) -> Json {
        of_variant(self.variant, Json::Array(self.items))
    }
}

macro_rules! items {
    ($($kind:ident $method:ident)*) => {
        $(impl $kind for Items {
            type Ok = Json;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.push(value)
            }

            fn end(self) -> Result<Json> {
                Ok(self.ended())
            }
        })*
    };
}

items! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

/// An object that is being written.
#[derive(Default)]
pub(super) struct Members {
    variant: Option<&'static str>,
    key: String,
    members: Map<String, Json>,
}

impl Members {
    fn put<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<()> {
        self.members.insert(key.to_owned(), value.serialize(ToJson)?);
        Ok(())
    }

    fn ended(self) -> Result<Json> {
        match self.members.get(RAW) {
            Some(Json::String(text)) => serde_json::from_str(text),
            _ => Ok(of_variant(self.variant, Json::Object(self.members))),
        }
    }
}

impl SerializeMap for Members {
    type Ok = Json;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        let one = Plain.collect_map([(key, ())])?;
        self.key = one.as_object().and_then(|one| one.keys().next().cloned()).unwrap_or_default();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let key = std::mem::take(&mut self.key);
        self.put(&key, value)
    }

    fn end(self) -> Result<Json> {
        self.ended()
    }
}

macro_rules! members {
    ($($kind:ident)*) => {
        $(impl $kind for Members {
            type Ok = Json;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
                self.put(key, value)
            }

            fn end(self) -> Result<Json> {
                self.ended()
            }
        })*
    };
}

members! { SerializeStruct SerializeStructVariant }
