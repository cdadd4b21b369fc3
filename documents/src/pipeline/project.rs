//! $project, $addFields, $unset: which fields a document has afterwards.
//!
//! In two steps, as in MongoDB: first fields are kept or left out, in the order of the document; then what is computed is put in,
//! in the order in which it is written. A path goes into each element of a list.

use super::Result;
use crate::ExpressionError;
use crate::expression::{Expression, Scope, Value};
use crate::raw::owned;
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

/// What becomes of fields that are not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    Kept,
    LeftOut,
}

#[derive(Debug, Clone)]
pub(super) enum Field {
    Include,
    Exclude,
    Computed(Expression),
    Members(Tree),
}

/// Fields of one object, in the order in which they are written.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    fields: Vec<(String, Field)>,
    has_computed: bool,
}

/// What a stage makes of a document.
#[derive(Debug, Clone)]
pub(super) struct Projector {
    pub(super) tree: Tree,
    pub(super) others: Others,
}

type Members = Vec<(CString, RawBson)>;

impl Tree {
    fn get(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| field)
    }

    /// Adds the top-level fields that it needs; whether these are known.
    pub(super) fn add_fields(&self, fields: &mut Vec<String>) -> bool {
        self.fields.iter().all(|(name, field)| {
            fields.push(name.clone());
            match field {
                Field::Include | Field::Exclude => true,
                Field::Computed(expression) => expression.add_fields(fields),
                // Its names are members of this field.
                Field::Members(tree) => tree.add_computed_fields(fields),
            }
        })
    }

    pub(super) fn check_constants(&self) -> Result<()> {
        self.fields.iter().try_for_each(|(_, field)| match field {
            Field::Include | Field::Exclude => Ok(()),
            Field::Computed(expression) => expression.check_constants(),
            Field::Members(tree) => tree.check_constants(),
        })
    }

    fn add_computed_fields(&self, fields: &mut Vec<String>) -> bool {
        self.fields.iter().all(|(_, field)| match field {
            Field::Include | Field::Exclude => true,
            Field::Computed(expression) => expression.add_fields(fields),
            Field::Members(tree) => tree.add_computed_fields(fields),
        })
    }

    /// Adds what is said of a path.
    pub(super) fn add(&mut self, path: &[&str], field: Field) -> Result<()> {
        let collision = |code: i32, name: &str| ExpressionError::new(code, format!("Path collision at {name}"));
        self.has_computed |= matches!(field, Field::Computed(_));
        let Some((name, rest)) = path.split_first() else { return Ok(()) };
        let at = match self.fields.iter().position(|(known, _)| known == name) {
            Some(_) if rest.is_empty() => return Err(collision(31250, name)),
            Some(at) => at,
            None if rest.is_empty() => {
                self.fields.push(((*name).to_owned(), field));
                return Ok(());
            }
            None => {
                self.fields.push(((*name).to_owned(), Field::Members(Tree::default())));
                self.fields.len() - 1
            }
        };
        match &mut self.fields[at].1 {
            Field::Members(tree) => tree.add(rest, field),
            _ => Err(collision(31249, name)),
        }
    }

    /// The first step.
    fn keep(&self, document: &RawDocument, others: Others) -> RawDocumentBuf {
        let mut kept = RawDocumentBuf::new();
        for (name, value) in document.iter().map_while(std::result::Result::ok) {
            match (self.get(name.as_str()), others) {
                (None, Others::LeftOut) | (Some(Field::Exclude), _) | (Some(Field::Computed(_)), Others::LeftOut) => {}
                (None, Others::Kept) | (Some(Field::Include), _) | (Some(Field::Computed(_)), Others::Kept) => {
                    kept.append(name, value);
                }
                (Some(Field::Members(tree)), _) => {
                    if let Some(inner) = tree.keep_value(value, others) {
                        kept.append(name, inner);
                    }
                }
            }
        }
        kept
    }

    fn keep_value(&self, value: RawBsonRef<'_>, others: Others) -> Value {
        match value {
            RawBsonRef::Document(inner) => Some(RawBson::Document(self.keep(inner, others))),
            RawBsonRef::Array(list) => {
                let elements = list.into_iter().map_while(std::result::Result::ok);
                // An element that is no object becomes one where something is computed in it.
                let placeholder = || self.has_computed.then_some(RawBson::Null);
                Some(RawBson::Array(
                    elements.filter_map(|element| self.keep_value(element, others).or_else(placeholder)).collect(),
                ))
            }
            other => (others == Others::Kept).then(|| owned(other)),
        }
    }

    /// The second step.
    fn compute(&self, members: &mut Members, scope: &mut Scope<'_>) -> Result<()> {
        for (name, field) in &self.fields {
            let at = members.iter().position(|(known, _)| known.as_str() == name);
            let value = match field {
                Field::Computed(expression) => {
                    let value = expression.evaluate_in(scope)?;
                    scope.keep(&value)?;
                    value
                }
                Field::Members(tree) if tree.has_computed => {
                    let old = at.map(|at| members[at].1.clone());
                    Some(tree.compute_value(old, scope)?)
                }
                _ => continue,
            };
            put(members, name, at, value);
        }
        Ok(())
    }

    fn compute_value(&self, value: Value, scope: &mut Scope<'_>) -> Result<RawBson> {
        if let Some(RawBson::Array(list)) = &value {
            let mut computed = RawArrayBuf::new();
            for element in list.into_iter().map_while(std::result::Result::ok) {
                computed.push(self.compute_value(Some(owned(element)), scope)?);
            }
            return Ok(RawBson::Array(computed));
        }
        let mut members = match &value {
            Some(RawBson::Document(document)) => members_of(document),
            _ => Members::new(),
        };
        self.compute(&mut members, scope)?;
        Ok(RawBson::Document(document_of(members)))
    }
}

fn put(members: &mut Members, name: &str, at: Option<usize>, value: Value) {
    match (at, value) {
        (Some(at), Some(value)) => members[at].1 = value,
        (Some(at), None) => drop(members.remove(at)),
        (None, Some(value)) => {
            // Names of commands have no NUL.
            if let Ok(name) = CString::try_from(name) {
                members.push((name, value));
            }
        }
        (None, None) => {}
    }
}

fn members_of(document: &RawDocument) -> Members {
    let members = document.iter().map_while(std::result::Result::ok);
    members.map(|(name, value)| (name.to_owned(), owned(value))).collect()
}

fn document_of(members: Members) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    members.into_iter().for_each(|(name, value)| document.append(name, value));
    document
}

/// The document with a value at a path, or without one; objects on the way are made where they are missing.
pub(super) fn set(document: &RawDocument, path: &[String], value: Value) -> RawDocumentBuf {
    let mut members = members_of(document);
    let Some((name, rest)) = path.split_first() else { return document_of(members) };
    let at = members.iter().position(|(known, _)| known.as_str() == name);
    let value = if rest.is_empty() {
        value
    } else {
        match at.map(|at| &members[at].1) {
            Some(RawBson::Document(inner)) => Some(RawBson::Document(set(inner, rest, value))),
            Some(other) if value.is_none() => Some(other.clone()),
            _ => Some(RawBson::Document(set(&RawDocumentBuf::new(), rest, value))),
        }
    };
    put(&mut members, name, at, value);
    document_of(members)
}

impl Projector {
    pub(super) fn apply(&self, document: &RawDocument, scope: &mut Scope<'_>) -> Result<RawDocumentBuf> {
        let kept = self.tree.keep(document, self.others);
        if !self.tree.has_computed {
            return Ok(kept);
        }
        let mut members = members_of(&kept);
        self.tree.compute(&mut members, scope)?;
        Ok(document_of(members))
    }
}
