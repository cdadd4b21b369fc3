//! Renaming and dropping fields.
//!
//! Other programs read the segments of a collection by the names of their columns, and a name that has become free may come
//! back with another type. So all segments are rewritten, and one edit replaces them together with the fields. Inserts go on
//! meanwhile; they wait only while what has come since is sealed and the edit is made durable. An insert that was checked
//! before against the old fields is checked again.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::{LadderRecord, clash};
use crate::manifest::Op;
use crate::memtable::Memtable;
use crate::options::check_field_name;
use crate::seal::{self, SealInput};
use crate::state::CollectionState;
use ebbtide_buckets::{FieldType, FileTypes, Schema};
use ebbtide_ttl::Code;
use std::path::PathBuf;
use std::sync::Arc;

/// A change of one field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldChange<'a> {
    Rename { from: &'a str, to: &'a str },
    Drop { field: &'a str },
}

impl<'a> FieldChange<'a> {
    /// The field as it is called before.
    fn field(self) -> &'a str {
        match self {
            FieldChange::Rename { from, .. } => from,
            FieldChange::Drop { field } => field,
        }
    }

    fn schema(self, schema: &Schema) -> Schema {
        match self {
            FieldChange::Rename { from, to } => schema.with_field_renamed(from, to),
            FieldChange::Drop { field } => schema.without_field(field),
        }
    }

    fn types(self, types: &FileTypes) -> FileTypes {
        match self {
            FieldChange::Rename { from, to } => types.with_column_renamed(from, to),
            FieldChange::Drop { field } => types.without_column(field),
        }
    }

    fn ladder(self, ladder: &LadderRecord) -> LadderRecord {
        match self {
            FieldChange::Rename { from, to } => ladder.with_field_renamed(from, to),
            FieldChange::Drop { field } => ladder.without_field(field),
        }
    }

    /// What a column was called before.
    pub(crate) fn source<'b>(&'b self, column: &'b str) -> &'b str {
        match self {
            FieldChange::Rename { from, to } if column == *to => from,
            _ => column,
        }
    }

    /// Whether a collection has the field, and the new name is free.
    fn check(self, collection: &CollectionState) -> Result<()> {
        let (schema, of, field) = (&collection.schema, &collection.name, self.field());
        let role = match field {
            _ if field == schema.time => Some("timeField"),
            _ if schema.meta.as_deref() == Some(field) => Some("metaField"),
            _ => None,
        };
        if let Some(role) = role {
            let what = format!(
                "'{field}' is the {role} of '{of}', which never changes: copy the collection under other options, \
                 CREATE COLLECTION new WITH ({role} = 'other') AS SELECT {field} AS other, ... FROM {of}"
            );
            return Err(Error::new(Code::InvalidOptions, what));
        }
        if !schema.fields.iter().any(|(name, _)| name == field) {
            return Err(unknown_field(collection, field));
        }
        let FieldChange::Rename { to, .. } = self else { return Ok(()) };
        check_field_name("field", to)?;
        if schema.time == to || schema.meta.as_deref() == Some(to) || schema.field_type(to).is_some() {
            let what = format!("'{to}' is a field of '{of}' already: drop it first, or choose another name");
            return Err(Error::new(Code::BadValue, what));
        }
        let has_bins = collection.ladder.as_ref().is_some_and(|ladder| ladder.definition().has_field(field));
        match clash(schema, to).filter(|_| has_bins) {
            Some(taken) => {
                let what = format!("bins of '{to}' would have a column '{taken}', which is the time or the meta field");
                Err(Error::new(Code::InvalidOptions, what))
            }
            None => Ok(()),
        }
    }
}

fn unknown_field(collection: &CollectionState, field: &str) -> Error {
    let (schema, of) = (&collection.schema, &collection.name);
    let is_object = |name: &str| matches!(schema.field_type(name), Some(FieldType::Object(_)));
    if let Some((object, _)) = field.split_once('.').filter(|(object, _)| is_object(object)) {
        let what = format!(
            "'{field}' is a member of the object '{object}': only whole fields are renamed and dropped; copy the \
             collection with a query that builds the object anew, CREATE COLLECTION new AS SELECT ... FROM {of}"
        );
        return Error::new(Code::InvalidOptions, what);
    }
    let hint = match crate::suggest::nearest(field, schema.fields.iter().map(|(name, _)| name.as_str())) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => String::new(),
    };
    let shown: String = field.chars().take(80).collect();
    Error::new(Code::BadValue, format!("collection '{of}' has no field '{}'{hint}", shown.escape_debug()))
}

/// Renames or drops a field of a collection.
pub(crate) fn change(engine: &Engine, name: &str, change: FieldChange<'_>) -> Result<()> {
    let maintenance = engine.maintenance.lock();
    engine.check_writable()?;
    change.check(engine.state.read().collection(name)?)?;
    if let FieldChange::Drop { .. } = change {
        engine.snapshot().collection(name)?.check_unheld("the field is not dropped")?;
    }
    seal::flush(engine, &maintenance, Some(name))?;
    let collection = engine.state.read().collection(name)?.clone();
    // Until the old files are gone, every row is there twice.
    collection.folder.begin_rewrite()?;
    let mut written = Vec::new();
    let changed = rewrite(engine, &collection, change, &mut written);
    if changed.is_err() {
        seal::take_back(engine, &collection, &written);
    }
    if engine.poisoned().is_none() {
        collection.folder.end_rewrite();
    }
    changed?;
    seal::settle_types(engine, collection.id)?;
    engine.cut_log_if_room()
}

/// Writes all rows anew, and replaces the segments by these. `written` gets the new files.
fn rewrite(
    engine: &Engine,
    collection: &CollectionState,
    change: FieldChange<'_>,
    written: &mut Vec<PathBuf>,
) -> Result<()> {
    let mut target = Target {
        state: CollectionState {
            schema: Arc::new(change.schema(&collection.schema)),
            file_types: Arc::new(change.types(&collection.known_file_types()?)),
            segments: Arc::default(),
            memtable: Memtable::default(),
            ..collection.clone()
        },
        change,
        added: Vec::new(),
    };
    for segment in collection.segments.values() {
        let mut input = SealInput::default();
        input.add_segment(segment, &collection.schema)?;
        target.write(engine, input, written)?;
    }
    let mut queue = engine.inserts.lock();
    engine.inserts.wait_for_others(&mut queue);
    engine.inserts.wait_until_empty(&mut queue);
    engine.sync_log()?;
    let (chunks, seq, present) = seal::freeze(engine, &collection.name)?;
    // An insert may have brought a field of the new name.
    change.check(&present)?;
    target.state.schema = Arc::new(change.schema(&present.schema));
    if !chunks.is_empty() {
        let mut input = SealInput::default();
        chunks.iter().try_for_each(|chunk| input.add_chunk(chunk, &present.schema))?;
        target.write(engine, input, written)?;
    }
    let id = collection.id;
    let gone = collection.segments.keys().map(|segment| Op::RemoveSegment { collection: id, segment: *segment });
    let mut ops: Vec<Op> = gone.collect();
    let (schema, types) = ((*target.state.schema).clone(), (*target.state.file_types).clone());
    ops.push(Op::ReplaceFields { collection: id, schema, types });
    let ladder = present.ladder.as_ref().map(|ladder| Some(change.ladder(ladder)));
    ops.extend(ladder.map(|ladder| Op::SetLadder { collection: id, ladder }));
    ops.extend(target.added);
    ops.extend(present.sealed(seq));
    engine.commit(ops)?;
    queue.schemas.remove(&id);
    Ok(())
}

/// The collection after the change.
struct Target<'a> {
    /// Without segments and rows.
    state: CollectionState,
    change: FieldChange<'a>,
    added: Vec<Op>,
}

impl Target<'_> {
    /// Writes rows under the old fields as segments under the new ones.
    fn write(&mut self, engine: &Engine, input: SealInput, written: &mut Vec<PathBuf>) -> Result<()> {
        let input = input.with_columns(&self.state.schema, |column| self.change.source(column))?;
        let ops = seal::write_segments(engine, &self.state, input)?;
        written.extend(seal::added(&self.state, &ops));
        for op in ops {
            match op {
                Op::SetFileTypes { types, .. } => self.state.file_types = Arc::new(types),
                added => self.added.push(added),
            }
        }
        Ok(())
    }
}
