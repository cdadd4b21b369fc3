//! What an ordinary collection may hold: each of the states that the commands so far may have led to.

use std::collections::{BTreeMap, BTreeSet};

use ebbtide::documents_model::bson::Document;
use ebbtide::{Database, Error};
use serde::{Deserialize, Serialize};

use crate::documents::{Command, Kept, Model, rules, scanned, stored};
use crate::expect::There;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExpectedDocuments {
    pub(crate) there: There,
    /// It is in one of these states.
    states: Vec<State>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    model: Model,
    /// Expired documents that a sweep may have dropped.
    purged: BTreeSet<i64>,
}

/// What was found of an ordinary collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundDocuments {
    rules: (Option<i64>, Option<i64>),
    pub(crate) visible: BTreeMap<i64, Kept>,
    /// With those which are expired, but not dropped yet.
    pub(crate) stored: BTreeMap<i64, Kept>,
    /// What look-ups by `_id` found that scans did not, or the other way round.
    wrong: Vec<String>,
}

impl FoundDocuments {
    pub(crate) fn of(db: &Database, name: &str) -> Result<Self, Error> {
        let documents = db.documents(name)?;
        let snapshot = documents.snapshot()?;
        let (visible, stored) = (scanned(&snapshot)?, stored(db, name)?);
        let mut found = FoundDocuments { rules: rules(&snapshot), visible, stored, wrong: Vec::new() };
        for id in found.stored.keys().copied().chain([-1]) {
            let number = documents.get::<Document>(id)?.map(|document| document.get_i64("n").unwrap_or(-1));
            let scanned = found.visible.get(&id).map(|kept| kept.number);
            if number != scanned {
                found.wrong.push(format!("document {id} is {number:?} by its _id, {scanned:?} by a scan"));
            }
        }
        Ok(found)
    }
}

impl ExpectedDocuments {
    pub(crate) fn new(there: There, default_ttl: Option<i64>) -> Self {
        let model = Model { default_ttl, ..Model::default() };
        ExpectedDocuments { there, states: vec![State { model, purged: BTreeSet::new() }] }
    }

    /// Takes note that a command was done, or may have been.
    pub(crate) fn command(&mut self, command: &Command, now: i64, certain: bool) {
        let before = std::mem::take(&mut self.states);
        let after: Vec<State> = before.iter().flat_map(|state| state.after(command, now)).collect();
        let before = if certain { Vec::new() } else { before };
        before.into_iter().chain(after).for_each(|state| self.may_be(state));
    }

    fn may_be(&mut self, state: State) {
        if !self.states.contains(&state) {
            self.states.push(state);
        }
    }

    /// Takes note of a sweep, by what is stored after it. One that was not answered may have dropped any of what is due.
    pub(crate) fn sweep(&mut self, now: i64, found: Option<&FoundDocuments>) {
        for state in &mut self.states {
            for id in state.model.due(now) {
                match found {
                    Some(found) if found.stored.contains_key(&id) => {}
                    Some(_) => {
                        state.model.documents.remove(&id);
                    }
                    None => {
                        state.purged.insert(id);
                    }
                }
            }
        }
    }

    /// Takes note of what an open database holds: nothing is in doubt any more.
    pub(crate) fn resolve(&mut self, found: &FoundDocuments) {
        let (default_ttl, index) = found.rules;
        let model = Model { documents: found.stored.clone(), default_ttl, index };
        self.there = There::Yes;
        self.states = vec![State { model, purged: BTreeSet::new() }];
    }

    pub(crate) fn check(&self, found: &FoundDocuments, now: i64) -> Result<(), String> {
        if let Some(wrong) = found.wrong.first() {
            return Err(wrong.clone());
        }
        let mut differs = String::new();
        for state in &self.states {
            match state.check(found, now) {
                Ok(()) => return Ok(()),
                Err(what) => differs = what,
            }
        }
        Err(format!("none of {} states fits, of the last of which {differs}", self.states.len()))
    }
}

impl State {
    /// The states that a command leads to: two if it matters whether a sweep has dropped something.
    fn after(&self, command: &Command, now: i64) -> Vec<State> {
        let mut state = self.clone();
        state.model.run(command, now);
        match command {
            Command::Put(new) => state.purged.retain(|id| new.iter().all(|new| new.id != *id)),
            Command::Insert(new) if state.purged.remove(&new.id) => {
                let mut dropped = self.clone();
                dropped.purged.remove(&new.id);
                dropped.model.documents.remove(&new.id);
                dropped.model.run(command, now);
                return vec![state, dropped];
            }
            _ => {}
        }
        state.purged.retain(|id| state.model.documents.contains_key(id));
        vec![state]
    }

    fn check(&self, found: &FoundDocuments, now: i64) -> Result<(), String> {
        let model = &self.model;
        if found.rules != (model.default_ttl, model.index) {
            return Err(format!("the rules are {:?}, found {:?}", (model.default_ttl, model.index), found.rules));
        }
        let ids: BTreeSet<&i64> = model.documents.keys().chain(found.stored.keys()).collect();
        for id in ids {
            let (wanted, is) = (model.documents.get(id), found.stored.get(id));
            if wanted != is && !(is.is_none() && self.purged.contains(id)) {
                return Err(format!("document {id} is {wanted:?}, found {is:?}"));
            }
        }
        let stored = Model { documents: found.stored.clone(), ..model.clone() };
        if stored.visible(now) != found.visible {
            return Err(format!("visible at {now} are {:?}, found {:?}", stored.visible(now), found.visible));
        }
        Ok(())
    }
}
