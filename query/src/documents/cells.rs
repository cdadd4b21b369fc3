//! Documents as rows: the columns of a table, and their values.

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringViewArray, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::documents_model::json::{relaxed_text, relaxed_value_text};
use ebbtide::{ColumnKind, Document, DocumentsSnapshot};
use ebbtide_buckets::{FieldType, timestamp_type, timestamps};
use ebbtide_ttl::Precision;
use std::collections::HashMap;
use std::sync::Arc;

/// The column with the instant of a document's last write.
pub(crate) const WRITTEN: &str = "_ts";
/// The column with the whole document.
pub(crate) const DOCUMENT: &str = "document";
/// The column with the key.
pub(crate) const ID: &str = "_id";

/// What a column shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    Written,
    Whole,
    Field(ColumnKind),
}

/// The columns of an ordinary collection, as they were when a statement was planned.
#[derive(Debug, Clone)]
pub(crate) struct PlannedDocuments {
    pub(crate) name: String,
    columns: Arc<Vec<(String, Shown)>>,
    /// The paths by which documents are found: `_id`, and the leading fields of indexes.
    looked_up: Arc<Vec<String>>,
    pub(crate) arrow: SchemaRef,
}

impl PlannedDocuments {
    pub(crate) fn new(snapshot: &DocumentsSnapshot) -> Self {
        let known = || snapshot.columns().iter();
        let id = known().find(|column| column.name == ID).map_or(ColumnKind::Unknown, |column| column.kind.clone());
        let mut columns = vec![(ID.to_owned(), Shown::Field(id)), (WRITTEN.to_owned(), Shown::Written)];
        let others = known().filter(|column| column.name != ID);
        columns.extend(others.map(|column| (column.name.clone(), Shown::Field(column.kind.clone()))));
        columns.push((DOCUMENT.to_owned(), Shown::Whole));
        let indexes = snapshot.options().indexes.iter();
        let leading = indexes.filter_map(|index| Some(index.key.first()?.0.clone()));
        let looked_up = std::iter::once(ID.to_owned()).chain(leading).collect();
        let fields: Vec<Field> = columns.iter().map(|(name, shown)| Field::new(name, type_of(shown), true)).collect();
        PlannedDocuments {
            name: snapshot.name().to_owned(),
            columns: Arc::new(columns),
            looked_up: Arc::new(looked_up),
            arrow: Arc::new(Schema::new(fields)),
        }
    }

    /// The paths by which documents are found.
    pub(crate) fn looked_up(&self) -> &[String] {
        &self.looked_up
    }

    /// Whether a column shows values of several types, or whole documents: each as Extended JSON.
    pub(crate) fn is_json(&self, at: usize) -> bool {
        matches!(self.columns.get(at), Some((_, Shown::Whole | Shown::Field(ColumnKind::Json))))
    }

    /// Whether a column shows what documents hold.
    pub(crate) fn is_stored(&self, name: &str) -> bool {
        self.columns.iter().any(|(known, shown)| known == name && *shown != Shown::Written)
    }

    /// What the values of a column are, or of a member of it, which further names lead to.
    pub(crate) fn kind_of(&self, names: &[&str]) -> Option<ColumnKind> {
        let (column, members) = names.split_first()?;
        let (_, shown) = self.columns.iter().find(|(name, _)| name == column)?;
        let Shown::Field(kind) = shown else { return None };
        let mut kind = kind.clone();
        for name in members {
            let ColumnKind::Of(FieldType::Object(known)) = &kind else { return None };
            kind = ColumnKind::Of(known.iter().find(|(known, _)| known == name)?.1.clone());
        }
        Some(kind)
    }

    /// Names of the columns that an INSERT fills which names none.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        let fields = self.columns.iter().filter(|(_, shown)| matches!(shown, Shown::Field(_)));
        fields.map(|(name, _)| name.as_str())
    }

    /// The columns with their types, for DESCRIBE.
    pub(crate) fn described(&self) -> Vec<(String, String, &'static str)> {
        let describe = |(name, shown): &(String, Shown)| {
            let (ty, role) = match shown {
                Shown::Written => ("timestamp(ms)".to_owned(), "last write"),
                Shown::Whole => ("json".to_owned(), "document"),
                Shown::Field(ColumnKind::Unknown) => ("not known yet".to_owned(), role_of(name)),
                Shown::Field(ColumnKind::Json) => ("json".to_owned(), role_of(name)),
                Shown::Field(ColumnKind::Of(ty)) => (ty.name(), role_of(name)),
            };
            (name.clone(), ty, role)
        };
        self.columns.iter().map(describe).collect()
    }

    /// The rows of documents, in the columns of a projection.
    pub(crate) fn batch(
        &self,
        documents: &[Document],
        projection: &[usize],
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let mut slots: HashMap<&str, usize> = HashMap::new();
        let mut cells: Vec<Vec<Option<RawBsonRef<'_>>>> = Vec::new();
        for column in projection {
            let (name, shown) = &self.columns[*column];
            if matches!(shown, Shown::Field(_)) {
                slots.insert(name, cells.len());
                cells.push(vec![None; documents.len()]);
            }
        }
        for (row, document) in documents.iter().enumerate() {
            for (name, value) in document.document.iter().flatten() {
                if let Some(slot) = slots.get(name.as_str()) {
                    let cell = &mut cells[*slot][row];
                    if cell.is_none() && !is_null(value) {
                        *cell = Some(value);
                    }
                }
            }
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(projection.len());
        for column in projection {
            let (name, shown) = &self.columns[*column];
            columns.push(match shown {
                Shown::Written => {
                    let units = documents.iter().map(|document| document.written.to_units(Precision::Ms));
                    timestamps(units.collect(), Precision::Ms)
                }
                Shown::Whole => {
                    let texts = documents.iter().map(|document| Some(relaxed_text(&document.document)));
                    Arc::new(texts.collect::<StringViewArray>())
                }
                Shown::Field(kind) => array_of_kind(kind, &cells[slots[name.as_str()]]).ok_or_else(|| {
                    exec_datafusion_err!(
                        "column '{name}' has got values of another type since the statement was prepared: prepare the statement or create \
                         its view again; if there is no such statement or view, an older program has lost types of the column: dump the database and restore the dump"
                    )
                })?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(documents.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    /// The positions of columns.
    pub(crate) fn positions(&self, names: &[&str]) -> Result<Vec<usize>> {
        let position = |name: &&str| match self.columns.iter().position(|(known, _)| known == name) {
            Some(at) => Ok(at),
            None => exec_err!("there is no column '{name}'"),
        };
        names.iter().map(position).collect()
    }
}

fn role_of(name: &str) -> &'static str {
    if name == ID { "key" } else { "field" }
}

fn type_of(shown: &Shown) -> DataType {
    match shown {
        Shown::Written => timestamp_type(Precision::Ms),
        Shown::Field(ColumnKind::Of(ty)) => ty.arrow(Precision::Ms),
        Shown::Whole | Shown::Field(ColumnKind::Json | ColumnKind::Unknown) => DataType::Utf8View,
    }
}

fn is_null(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Null | RawBsonRef::Undefined)
}

fn array_of_kind(kind: &ColumnKind, values: &[Option<RawBsonRef<'_>>]) -> Option<ArrayRef> {
    match kind {
        ColumnKind::Json => {
            let texts = values.iter().map(|value| value.map(relaxed_value_text));
            Some(Arc::new(texts.collect::<StringViewArray>()))
        }
        ColumnKind::Unknown => {
            let all_null = values.iter().all(Option::is_none);
            all_null.then(|| Arc::new(StringViewArray::new_null(values.len())) as ArrayRef)
        }
        ColumnKind::Of(ty) => array_of(ty, values),
    }
}

/// Values as an array of a type; `None` if one of them does not fit.
fn array_of(ty: &FieldType, values: &[Option<RawBsonRef<'_>>]) -> Option<ArrayRef> {
    macro_rules! scalars {
        ($array:ty, $($pattern:pat => $value:expr),+) => {{
            let mut fitting = Vec::with_capacity(values.len());
            for value in values {
                fitting.push(match value {
                    None => None,
                    $(Some($pattern) => Some($value),)+
                    Some(_) => return None,
                });
            }
            Arc::new(<$array>::from_iter(fitting)) as ArrayRef
        }};
    }
    #[expect(clippy::cast_precision_loss, reason = "only whole numbers that a double holds are in such a column")]
    Some(match ty {
        FieldType::Unknown => {
            let all_null = values.iter().all(Option::is_none);
            all_null.then(|| Arc::new(BooleanArray::new_null(values.len())))?
        }
        FieldType::Bool => scalars!(BooleanArray, RawBsonRef::Boolean(value) => *value),
        FieldType::Int64 => {
            scalars!(Int64Array, RawBsonRef::Int32(value) => i64::from(*value), RawBsonRef::Int64(value) => *value)
        }
        FieldType::Double => scalars!(Float64Array, RawBsonRef::Double(value) => *value,
            RawBsonRef::Int32(value) => f64::from(*value), RawBsonRef::Int64(value) => *value as f64),
        FieldType::String => scalars!(StringViewArray, RawBsonRef::String(value) => *value),
        FieldType::Binary => scalars!(BinaryArray, RawBsonRef::Binary(value) => value.bytes),
        FieldType::Timestamp => {
            let mut units = Vec::with_capacity(values.len());
            for value in values {
                units.push(match value {
                    None => None,
                    Some(RawBsonRef::DateTime(value)) => Some(value.timestamp_millis()),
                    Some(_) => return None,
                });
            }
            timestamps(units, Precision::Ms)
        }
        FieldType::List(item) => list_of(item, values)?,
        FieldType::Object(members) => object_of(members, values)?,
    })
}

fn list_of(item: &FieldType, values: &[Option<RawBsonRef<'_>>]) -> Option<ArrayRef> {
    let (mut items, mut lengths, mut valid) = (Vec::new(), Vec::with_capacity(values.len()), Vec::new());
    for value in values {
        let before = items.len();
        match value {
            None => {}
            Some(RawBsonRef::Array(list)) => {
                items.extend(list.into_iter().flatten().map(|v| (!is_null(v)).then_some(v)))
            }
            Some(_) => return None,
        }
        lengths.push(items.len() - before);
        valid.push(value.is_some());
    }
    let field = Arc::new(Field::new("item", item.arrow(Precision::Ms), true));
    let items = array_of(item, &items)?;
    let list = ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), items, Some(NullBuffer::from(valid)));
    list.ok().map(|list| Arc::new(list) as ArrayRef)
}

fn object_of(members: &[(String, FieldType)], values: &[Option<RawBsonRef<'_>>]) -> Option<ArrayRef> {
    let slots: HashMap<&str, usize> = members.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
    let mut cells: Vec<Vec<Option<RawBsonRef<'_>>>> = vec![vec![None; values.len()]; members.len()];
    let mut valid = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        valid.push(value.is_some());
        match value {
            None => {}
            Some(RawBsonRef::Document(object)) => {
                for (name, value) in object.iter().flatten().filter(|(_, value)| !is_null(*value)) {
                    cells[*slots.get(name.as_str())?][row] = Some(value);
                }
            }
            Some(_) => return None,
        }
    }
    let nulls = Some(NullBuffer::from(valid));
    if members.is_empty() {
        return Some(Arc::new(StructArray::new_empty_fields(values.len(), nulls)));
    }
    let columns = members.iter().zip(&cells).map(|((_, ty), cells)| array_of(ty, cells)).collect::<Option<Vec<_>>>()?;
    let field = |(name, ty): &(String, FieldType)| Field::new(name, ty.arrow(Precision::Ms), true);
    let fields = members.iter().map(field).collect::<Vec<_>>().into();
    StructArray::try_new(fields, columns, nulls).ok().map(|object| Arc::new(object) as ArrayRef)
}
