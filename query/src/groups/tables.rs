//! The hash tables, and what a thread collects for them.

use super::keys::{Key, KnownTexts, Layout, Rows, Texts};
use datafusion::arrow::array::ArrayRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of tables for each combination of null columns. The highest bits of a hash choose one.
const TABLES: usize = 256;
/// A thread collects at least this many rows of a table before it looks them up, and more if the table is large.
const COLLECTED: usize = 512;
/// The initial capacity for collected rows.
const FIRST_COLLECTED: usize = 32;
/// The number of recent keys that a thread keeps, one for each value of the lowest bits of their hashes.
const RECENT: usize = 512;
/// This many slots are loaded before the first is compared, so that cache misses overlap.
const AHEAD: usize = 64;
/// The slots of the smallest table.
const FIRST_SLOTS: usize = 2 * AHEAD;

/// Which columns are null in the rows of a table.
pub(super) fn nulls_of(table: usize) -> u8 {
    (table / TABLES) as u8
}

/// What collected rows take in memory.
pub(super) fn bytes_of<E>(entries: &Vec<E>) -> usize {
    entries.capacity() * size_of::<E>()
}

/// A key, and perhaps how many rows have it.
pub(super) trait Entry: Copy + fmt::Debug + Send + Sync + 'static {
    type Key: Key;
    const COUNTED: bool;

    fn new(key: Self::Key, rows: u64) -> Self;

    fn key(self) -> Self::Key;

    /// 1 if rows are not counted.
    fn rows(self) -> u64;

    fn add(&mut self, rows: u64);
}

/// A key whose rows are not counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Distinct<K>(K);

impl<K: Key> Entry for Distinct<K> {
    type Key = K;
    const COUNTED: bool = false;

    fn new(key: K, _: u64) -> Self {
        Distinct(key)
    }

    fn key(self) -> K {
        self.0
    }

    fn rows(self) -> u64 {
        1
    }

    fn add(&mut self, _: u64) {}
}

/// A key with the number of its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted<K>(K, u64);

impl<K: Key> Entry for Counted<K> {
    type Key = K;
    const COUNTED: bool = true;

    fn new(key: K, rows: u64) -> Self {
        Counted(key, rows)
    }

    fn key(self) -> K {
        self.0
    }

    fn rows(self) -> u64 {
        self.1
    }

    fn add(&mut self, rows: u64) {
        self.1 += rows;
    }
}

/// A hash table with linear probing, at most three quarters full.
#[derive(Debug)]
pub(super) struct Table<E> {
    /// With the key `K::MAX` where there is none.
    slots: Vec<E>,
    len: usize,
    /// The rows with the key `K::MAX`.
    max: Option<E>,
}

impl<E> Default for Table<E> {
    fn default() -> Self {
        Table { slots: Vec::new(), len: 0, max: None }
    }
}

impl<E: Entry> Table<E> {
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.slots.as_slice())
    }

    /// Adds rows until there is no memory for more, and returns how many were added.
    fn add(&mut self, entries: &[E], shared: &Shared<E>) -> usize {
        let mut added = 0;
        let mut ahead = [(0, E::Key::MAX); AHEAD];
        for chunk in entries.chunks(AHEAD) {
            while 4 * (self.len + chunk.len()) > 3 * self.slots.len() {
                if !self.grow(shared) {
                    return added;
                }
            }
            for (entry, ahead) in chunk.iter().zip(&mut ahead) {
                let slot = self.slot(entry.key(), shared.seeds);
                *ahead = (slot, self.slots[slot].key());
            }
            for (entry, (slot, first)) in chunk.iter().zip(&ahead) {
                let key = entry.key();
                if key == E::Key::MAX {
                    match &mut self.max {
                        Some(max) => max.add(entry.rows()),
                        none => *none = Some(*entry),
                    }
                } else if *first == key {
                    self.slots[*slot].add(entry.rows());
                } else {
                    self.put(*entry, *slot);
                }
            }
            added += chunk.len();
        }
        added
    }

    fn slot(&self, key: E::Key, seeds: (u64, u64)) -> usize {
        key.hash(seeds) as usize & (self.slots.len() - 1)
    }

    /// Adds an entry whose key would be in this slot, or in one after it.
    fn put(&mut self, entry: E, mut slot: usize) {
        loop {
            let there = &mut self.slots[slot];
            if there.key() == entry.key() {
                return there.add(entry.rows());
            }
            if there.key() == E::Key::MAX {
                *there = entry;
                self.len += 1;
                return;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    fn grow(&mut self, shared: &Shared<E>) -> bool {
        let slots = (2 * self.slots.len()).max(FIRST_SLOTS);
        if shared.reservation.try_grow(slots * size_of::<E>()).is_err() {
            return false;
        }
        let none = E::new(E::Key::MAX, 0);
        let old = std::mem::replace(&mut self.slots, vec![none; slots]);
        self.len = 0;
        for entry in old.iter().filter(|entry| entry.key() != E::Key::MAX) {
            self.put(*entry, self.slot(entry.key(), shared.seeds));
        }
        shared.reservation.shrink(size_of_val(old.as_slice()));
        true
    }

    /// All entries, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = E> {
        self.max.into_iter().chain(self.slots.iter().copied().filter(|entry| entry.key() != E::Key::MAX))
    }
}

/// What all threads share.
#[derive(Debug)]
pub(super) struct Shared<E> {
    pub(super) layout: Arc<Layout>,
    pub(super) texts: Arc<Texts>,
    pub(super) reservation: MemoryReservation,
    /// Those of the rows without nulls first.
    tables: Vec<Mutex<Table<E>>>,
    threads: usize,
    seeds: (u64, u64),
    /// Whether there is no memory for more groups, or there are too many texts.
    full: AtomicBool,
}

impl<E: Entry> Shared<E> {
    pub(super) fn new(layout: Arc<Layout>, threads: usize, reservation: MemoryReservation) -> Self {
        let random = RandomState::new();
        let seeds = (random.hash_one(0), random.hash_one(1));
        let tables = (0..TABLES * layout.null_cases()).map(|_| Mutex::default()).collect();
        let texts = Arc::new(Texts::new(reservation.new_empty()));
        Shared { layout, texts, reservation, tables, threads, seeds, full: AtomicBool::new(false) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(super) fn set_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    fn table(&self, at: usize) -> MutexGuard<'_, Table<E>> {
        self.tables[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a table. Its bytes stay reserved.
    pub(super) fn take(&self, at: usize) -> Table<E> {
        std::mem::take(&mut *self.table(at))
    }

    /// The tables that one of several threads returns.
    pub(super) fn tables_of(&self, part: usize, parts: usize) -> impl Iterator<Item = usize> + use<E> {
        (0..self.tables.len()).filter(move |at| at % parts == part)
    }
}

/// What one thread collects.
pub(super) struct Collector<E: Entry> {
    shared: Arc<Shared<E>>,
    texts: KnownTexts,
    rows: Rows<E::Key>,
    recent: Vec<Recent<E::Key>>,
    /// For each table.
    collected: Vec<Vec<E>>,
    /// The bytes that were reserved for it.
    reserved: usize,
}

/// A key that was met lately, with its rows since then.
#[derive(Clone, Copy)]
struct Recent<K> {
    key: K,
    hash: u64,
    rows: u64,
    nulls: u8,
}

impl<E: Entry> Collector<E> {
    pub(super) fn new(shared: Arc<Shared<E>>) -> Self {
        let texts = KnownTexts::new(Arc::clone(&shared.texts));
        let recent = vec![Recent { key: E::Key::ZERO, hash: 0, rows: 0, nulls: 0 }; RECENT];
        let collected = shared.tables.iter().map(|_| Vec::new()).collect();
        Collector { shared, texts, rows: Rows::default(), recent, collected, reserved: 0 }
    }

    /// Adds rows; `false` if none was added, since they have too many different texts.
    pub(super) fn add(&mut self, columns: &[ArrayRef]) -> Result<bool> {
        let mut rows = std::mem::take(&mut self.rows);
        let fits = self.shared.layout.encode(columns, &mut self.texts, &mut rows)?;
        if fits {
            for (at, key) in rows.keys.iter().enumerate() {
                let (nulls, hash) = (rows.nulls.get(at).copied().unwrap_or_default(), key.hash(self.shared.seeds));
                let recent = &mut self.recent[hash as usize % RECENT];
                if recent.key == *key && recent.nulls == nulls && recent.rows > 0 {
                    recent.rows += 1;
                } else {
                    let older = std::mem::replace(recent, Recent { key: *key, hash, rows: 1, nulls });
                    self.collect(older);
                }
            }
        }
        self.rows = rows;
        Ok(fits)
    }

    fn collect(&mut self, older: Recent<E::Key>) {
        if older.rows == 0 {
            return;
        }
        let table = TABLES * usize::from(older.nulls) + (older.hash >> 56) as usize;
        if self.collected[table].len() == self.collected[table].capacity() {
            self.make_room(table);
        }
        self.collected[table].push(E::new(older.key, older.rows));
    }

    fn make_room(&mut self, table: usize) {
        let room = self.collected[table].capacity();
        if room < COLLECTED {
            if !self.expect(table, (4 * room).clamp(FIRST_COLLECTED, COLLECTED)) {
                self.shared.set_full();
            }
        } else if !self.shared.is_full() {
            self.look_up(table);
        }
    }

    /// Reserves memory for rows of a table; `false` if there is none.
    fn expect(&mut self, table: usize, rows: usize) -> bool {
        let collected = &mut self.collected[table];
        let bytes = rows.saturating_sub(collected.capacity()) * size_of::<E>();
        let fits = self.shared.reservation.try_grow(bytes).is_ok();
        if fits {
            self.reserved += bytes;
            collected.reserve_exact(rows - collected.len());
        }
        fits
    }

    fn collect_recent(&mut self) {
        for at in 0..RECENT {
            let older = self.recent[at];
            self.recent[at].rows = 0;
            self.collect(older);
        }
    }

    fn look_up(&mut self, table: usize) {
        let entries = &mut self.collected[table];
        let (added, slots) = {
            let mut table = self.shared.table(table);
            (table.add(entries, &self.shared), table.slots.len())
        };
        entries.drain(..added);
        if !entries.is_empty() {
            return self.shared.set_full();
        }
        // Then all threads together collect at most half as many rows as there are slots.
        let rows = slots / (2 * self.shared.threads);
        if rows > entries.capacity() {
            self.expect(table, rows);
        }
    }

    /// Looks up all rows for which there is memory.
    pub(super) fn finish(&mut self) {
        self.collect_recent();
        for table in 0..self.collected.len() {
            if !self.shared.is_full() && !self.collected[table].is_empty() {
                self.look_up(table);
            }
        }
    }

    /// The rows that are in no table, by their null columns. What they take stays reserved.
    pub(super) fn into_rest(mut self) -> Vec<(u8, Vec<E>)> {
        self.collect_recent();
        let rest = self.collected.into_iter().enumerate().filter(|(_, entries)| !entries.is_empty());
        let rest: Vec<(u8, Vec<E>)> = rest.map(|(table, entries)| (nulls_of(table), entries)).collect();
        let kept = rest.iter().map(|(_, entries)| bytes_of(entries)).sum::<usize>();
        match self.reserved.checked_sub(kept) {
            Some(free) => self.shared.reservation.shrink(free),
            None => self.shared.reservation.grow(kept - self.reserved),
        }
        rest
    }
}
