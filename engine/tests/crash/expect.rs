//! What a database may hold: the plain model that every disk image is compared with.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use crate::kept::{ExpectedDocuments, FoundDocuments};

/// A measurement. Its other fields follow from its id, so that a wrong one is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) id: i64,
    /// Milliseconds.
    pub(crate) t: i64,
    pub(crate) meta: String,
}

/// The rules of a collection: seconds of the collection's own, and of partial indexes by name, each for one meta.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub(crate) own: Option<i64>,
    pub(crate) partial: BTreeMap<String, (String, i64)>,
}

impl Rules {
    pub(crate) fn hides(&self, row: &Row, now: i64) -> bool {
        let partial = self.partial.values().filter(|(meta, _)| *meta == row.meta).map(|(_, seconds)| *seconds);
        partial.chain(self.own).min().is_some_and(|seconds| row.t <= now - seconds * 1000)
    }
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum There {
    Yes,
    No,
    /// It was asked for, and no answer came.
    Maybe,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExpectedCollection {
    pub(crate) there: There,
    /// Any of these.
    pub(crate) rules: BTreeSet<Rules>,
    pub(crate) rows: BTreeMap<i64, Row>,
    /// Ids that must be stored.
    pub(crate) sure: BTreeSet<i64>,
    /// Of each of these all ids are stored, or none.
    pub(crate) maybe: Vec<BTreeSet<i64>>,
    /// Whether the field `extra` is known.
    pub(crate) extra: There,
    /// Ids whose value must be in the field `y`, and those whose value must be in `x`.
    pub(crate) in_y: BTreeSet<i64>,
    pub(crate) in_x: BTreeSet<i64>,
    /// Of these ids, all have their values in `y` or none.
    pub(crate) moved: BTreeSet<i64>,
    /// Ids that have lost the field `extra`.
    pub(crate) without_extra: BTreeSet<i64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Expected {
    /// Milliseconds.
    pub(crate) now: i64,
    pub(crate) collections: BTreeMap<String, ExpectedCollection>,
    /// Ordinary collections.
    pub(crate) documents: BTreeMap<String, ExpectedDocuments>,
    /// Inserts into several collections in doubt: of each these rows are all there, or none.
    pub(crate) across: Vec<Vec<(String, i64)>>,
    /// A rename in doubt: the collection has one of the two names.
    pub(crate) renamed: Option<(String, String)>,
    /// A replacement in doubt: the collection has its own name, or that of the other, which is gone. What the new one holds.
    pub(crate) replaced: Option<(String, String, ExpectedDocuments)>,
    /// The statements that views may have, by name; `None` for no view.
    pub(crate) views: BTreeMap<String, BTreeSet<Option<String>>>,
}

/// What was found in a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) collections: BTreeMap<String, FoundCollection>,
    pub(crate) documents: BTreeMap<String, FoundDocuments>,
    pub(crate) views: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundCollection {
    pub(crate) rules: Rules,
    pub(crate) extra: bool,
    pub(crate) visible: Vec<i64>,
    /// With those which are expired, but not dropped yet.
    pub(crate) stored: Vec<i64>,
    /// Those whose value is in the field `y`.
    pub(crate) in_y: Vec<i64>,
    /// Those which have the field `extra`.
    pub(crate) with_extra: Vec<i64>,
    /// What is wrong with the rows themselves.
    pub(crate) wrong: Vec<String>,
}

impl Expected {
    pub(crate) fn check(&self, found: &Found) -> Result<(), String> {
        for (name, expected) in &self.collections {
            match (expected.there, found.collections.get(name)) {
                (There::Yes, None) => return Err(format!("collection {name} is lost")),
                (There::No, Some(_)) => return Err(format!("collection {name} came back")),
                (_, None) => {}
                (_, Some(found)) => expected.check(found, self.now).map_err(|what| format!("{name}: {what}"))?,
            }
        }
        for (name, expected) in &self.documents {
            let expected = match &self.replaced {
                Some((from, to, new)) if name == to && !found.documents.contains_key(from) => new,
                _ => expected,
            };
            match (expected.there, found.documents.get(name)) {
                (There::Yes, None) => return Err(format!("collection {name} is lost")),
                (There::No, Some(_)) => return Err(format!("collection {name} came back")),
                (_, None) => {}
                (_, Some(found)) => expected.check(found, self.now).map_err(|what| format!("{name}: {what}"))?,
            }
        }
        let mut names = found.collections.keys().filter(|name| !self.collections.contains_key(*name));
        let mut others = found.documents.keys().filter(|name| !self.documents.contains_key(*name));
        if let Some(name) = names.next().or_else(|| others.next()) {
            return Err(format!("collection {name} was never made"));
        }
        if let Some((from, to)) = &self.renamed {
            let has = [from, to].map(|name| found.collections.contains_key(name) || found.documents.contains_key(name));
            if has[0] == has[1] {
                return Err(format!("{from} was renamed {to}, and of each is there: {has:?}"));
            }
        }
        for rows in &self.across {
            let is_there = |(name, id): &(String, i64)| Some(found.collections.get(name)?.stored.contains(id));
            let there: Vec<bool> = rows.iter().filter_map(is_there).collect();
            if there.iter().any(|is| *is != there[0]) {
                return Err(format!("of the rows {rows:?}, which were inserted together, some are there: {there:?}"));
            }
        }
        self.check_views(found)
    }

    fn check_views(&self, found: &Found) -> Result<(), String> {
        let names: BTreeSet<&String> = self.views.keys().chain(found.views.keys()).collect();
        for name in names {
            let (is, none) = (found.views.get(name).cloned(), BTreeSet::from([None]));
            let allowed = self.views.get(name).unwrap_or(&none);
            if !allowed.contains(&is) {
                return Err(format!("view {name} is {is:?}, not one of {allowed:?}"));
            }
        }
        Ok(())
    }

    /// Takes note that a view has this statement, or may have it.
    pub(crate) fn view(&mut self, name: &str, text: Option<&str>, certain: bool) {
        let known = self.views.entry(name.to_owned()).or_insert_with(|| BTreeSet::from([None]));
        if certain {
            known.clear();
        }
        known.insert(text.map(str::to_owned));
    }

    /// Takes note that a collection has another name, or may have it.
    pub(crate) fn rename(&mut self, from: &str, to: &str, certain: bool) {
        let Some(mut collection) = self.collections.get(from).cloned() else {
            return self.rename_documents(from, to, certain);
        };
        if certain {
            self.collections.insert(from.to_owned(), ExpectedCollection::new(There::No, Rules::default()));
        } else {
            collection.there = There::Maybe;
            self.collections.insert(from.to_owned(), collection.clone());
            self.renamed = Some((from.to_owned(), to.to_owned()));
        }
        self.collections.insert(to.to_owned(), collection);
    }

    /// Takes note that an ordinary collection has replaced another one, or may have.
    pub(crate) fn replace(&mut self, from: &str, to: &str, certain: bool) {
        if certain {
            return self.rename_documents(from, to, certain);
        }
        let Some(new) = self.documents.get_mut(from) else { return };
        self.replaced = Some((from.to_owned(), to.to_owned(), new.clone()));
        new.there = There::Maybe;
        self.documents.entry(to.to_owned()).or_insert_with(|| ExpectedDocuments::new(There::No, None));
    }

    fn rename_documents(&mut self, from: &str, to: &str, certain: bool) {
        let Some(mut documents) = self.documents.get(from).cloned() else { return };
        let gone = ExpectedDocuments::new(There::No, None);
        if !certain {
            documents.there = There::Maybe;
            self.renamed = Some((from.to_owned(), to.to_owned()));
        }
        self.documents.insert(from.to_owned(), if certain { gone } else { documents.clone() });
        self.documents.insert(to.to_owned(), documents);
    }
}

impl Expected {
    /// Takes note of what an open database holds: nothing is in doubt any more.
    pub(crate) fn resolve(&mut self, found: &Found) {
        self.renamed = None;
        self.replaced = None;
        self.across.clear();
        for (name, known) in &mut self.views {
            *known = BTreeSet::from([found.views.get(name).cloned()]);
        }
        for (name, expected) in &mut self.documents {
            match found.documents.get(name) {
                Some(found) => expected.resolve(found),
                None => expected.there = There::No,
            }
        }
        for (name, expected) in &mut self.collections {
            let Some(found) = found.collections.get(name) else {
                expected.there = There::No;
                continue;
            };
            expected.there = There::Yes;
            expected.rules = BTreeSet::from([found.rules.clone()]);
            expected.extra = if found.extra { There::Yes } else { There::No };
            expected.sure = found.stored.iter().copied().collect();
            expected.maybe.clear();
            expected.in_y = found.in_y.iter().copied().collect();
            expected.in_x = expected.sure.difference(&expected.in_y).copied().collect();
            expected.moved.clear();
        }
    }
}

impl ExpectedCollection {
    pub(crate) fn new(there: There, rules: Rules) -> Self {
        ExpectedCollection {
            there,
            rules: BTreeSet::from([rules]),
            rows: BTreeMap::new(),
            sure: BTreeSet::new(),
            maybe: Vec::new(),
            extra: There::No,
            in_y: BTreeSet::new(),
            in_x: BTreeSet::new(),
            moved: BTreeSet::new(),
            without_extra: BTreeSet::new(),
        }
    }

    /// Takes note that the field `x` was named `y`, or may have been.
    pub(crate) fn rename_field(&mut self, certain: bool) {
        let x = std::mem::take(&mut self.in_x);
        if certain { self.in_y.extend(x) } else { self.moved = x }
    }

    /// Takes note that the field `extra` was dropped, or may have been.
    pub(crate) fn drop_field(&mut self, certain: bool) {
        self.extra = if certain { There::No } else { There::Maybe };
        if certain {
            self.without_extra = self.rows.keys().copied().collect();
        }
    }

    /// What a copy of this has. Rules and rows are certain when one is made.
    pub(crate) fn copy(&self, there: There, now: i64) -> Self {
        let hidden = |id: &i64| self.rules.iter().all(|rules| rules.hides(&self.rows[id], now));
        let sure = self.sure.iter().copied().filter(|id| !hidden(id)).collect();
        ExpectedCollection { there, sure, maybe: Vec::new(), ..self.clone() }
    }

    fn check_fields(&self, found: &FoundCollection) -> Result<(), String> {
        let in_y: BTreeSet<i64> = found.in_y.iter().copied().collect();
        let moved: Vec<bool> =
            found.stored.iter().filter(|id| self.moved.contains(id)).map(|id| in_y.contains(id)).collect();
        if moved.iter().any(|is| *is != moved[0]) {
            return Err("half a rename of a field".to_owned());
        }
        let with_extra = found.with_extra.iter().find(|id| self.without_extra.contains(id));
        let in_x = found.stored.iter().find(|id| self.in_y.contains(id) && !in_y.contains(id));
        let in_y = in_y.iter().find(|id| self.in_x.contains(id));
        match (with_extra, in_x, in_y) {
            (Some(id), ..) => Err(format!("row {id} has the dropped field extra again")),
            (_, Some(id), _) | (.., Some(id)) => Err(format!("the value of row {id} is in the other field")),
            _ => Ok(()),
        }
    }

    fn check(&self, found: &FoundCollection, now: i64) -> Result<(), String> {
        if let Some(wrong) = found.wrong.first() {
            return Err(format!("wrong row: {wrong}"));
        }
        if !self.rules.contains(&found.rules) {
            return Err(format!("rules found={:?} expected one of {:?}", found.rules, self.rules));
        }
        self.check_fields(found)?;
        match (self.extra, found.extra) {
            (There::Yes, false) => return Err("the field extra is lost".to_owned()),
            (There::No, true) => return Err("the field extra was never given".to_owned()),
            _ => {}
        }
        let stored = distinct(&found.stored)?;
        let visible = distinct(&found.visible)?;
        let mut allowed = self.sure.clone();
        for group in &self.maybe {
            allowed.extend(group);
            let (kept, lost): (Vec<i64>, Vec<i64>) = group.iter().partition(|id| stored.contains(id));
            // What expires may be swept in parts; an insert or a delete is whole.
            if let (Some(kept), Some(lost)) = (kept.first(), lost.first()) {
                return Err(format!("half a batch: row {kept} is there, row {lost} is not"));
            }
        }
        if let Some(id) = self.sure.difference(&stored).next() {
            return Err(format!("row {id} is lost: {:?}", self.rows.get(id)));
        }
        if let Some(id) = stored.difference(&allowed).next() {
            return Err(format!("row {id} came back or was never given: {:?}", self.rows.get(id)));
        }
        let hidden = |id: &i64| self.rows.get(id).is_none_or(|row| found.rules.hides(row, now));
        let due: BTreeSet<i64> = stored.iter().copied().filter(|id| !hidden(id)).collect();
        if let Some(id) = due.symmetric_difference(&visible).next() {
            let is = if visible.contains(id) { "visible, but expired" } else { "stored, but not visible" };
            return Err(format!("row {id} is {is} at {now}: {:?}", self.rows.get(id)));
        }
        Ok(())
    }

    /// Takes note of an insert.
    pub(crate) fn insert(&mut self, rows: &[Row], there: There) {
        let ids = rows.iter().map(|row| row.id);
        self.in_x.extend(ids.clone());
        match there {
            There::Yes => self.sure.extend(ids),
            There::Maybe => self.maybe.push(ids.collect()),
            There::No => {}
        }
        self.rows.extend(rows.iter().map(|row| (row.id, row.clone())));
    }

    /// Takes note of a delete: of one that was not answered, all or nothing happened.
    pub(crate) fn delete(&mut self, gone: &BTreeSet<i64>, certain: bool) {
        self.sure.retain(|id| !gone.contains(id));
        if !certain {
            self.maybe.push(gone.clone());
        }
    }

    /// Takes note of a sweep, by what is still stored after it. Only what is expired under every rule in question may
    /// be gone; one that was not answered may have dropped any of that.
    pub(crate) fn sweep(&mut self, now: i64, stored: Option<&BTreeSet<i64>>) {
        let rules = &self.rules;
        let rows = &self.rows;
        let expired = |id: &i64| rows.get(id).is_some_and(|row| rules.iter().all(|rules| rules.hides(row, now)));
        let due: Vec<i64> = self.sure.iter().copied().filter(expired).collect();
        for id in due {
            match stored {
                Some(stored) if stored.contains(&id) => {}
                Some(_) => {
                    self.sure.remove(&id);
                }
                None => {
                    self.sure.remove(&id);
                    self.maybe.push(BTreeSet::from([id]));
                }
            }
        }
    }
}

fn distinct(ids: &[i64]) -> Result<BTreeSet<i64>, String> {
    let mut seen = BTreeSet::new();
    match ids.iter().find(|id| !seen.insert(**id)) {
        Some(id) => Err(format!("row {id} is there twice")),
        None => Ok(seen),
    }
}
