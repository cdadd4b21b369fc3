//! All groups of an aggregation, in tables that several threads fill at the same time.

use super::groups::{Grid, Shape, Table};
use crate::error::Result;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use ebbtide_buckets::cores;

/// Number of tables. Threads merge into different tables at the same time.
const TABLES: usize = 64;
/// A table has at least this number of slots: merging fewer takes no longer than finding their tables.
const SLOTS_MIN: usize = 1 << 10;
/// Fewer groups are merged by one thread, since starting others takes as long.
const PARALLEL_GROUPS_MIN: usize = 1 << 15;

/// The table that a group is in.
#[derive(Clone, Copy)]
enum Division {
    /// Each table has this number of consecutive slots.
    Slots(Grid, usize),
    /// By a hash of the meta and of 64 consecutive groups in time, which are often merged one after the other.
    Hash,
}

impl Division {
    fn of(self, meta: u32, group: i64) -> usize {
        match self {
            Division::Slots(grid, each) => grid.slot(meta, group) / each,
            Division::Hash => {
                let mixed = u64::from(meta).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (group >> 6).cast_unsigned();
                let hash = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
                usize::try_from(hash >> 32).unwrap_or_default() % TABLES
            }
        }
    }
}

/// All groups. Each is in one table.
pub(super) struct Tables {
    division: Division,
    tables: Vec<Table>,
    /// Rows that were skipped because they are expired.
    pub(super) hidden: u64,
}

impl Tables {
    /// Tables for this number of metas and for times in this range, both ends included.
    pub(super) fn new(shape: &Shape, metas: usize, times: (i64, i64)) -> Self {
        let Some(grid) = Grid::new(shape, metas, times) else { return Tables::sparse(shape) };
        let each = grid.slots.div_ceil(TABLES).max(SLOTS_MIN);
        let starts = (0..grid.slots.max(1)).step_by(each);
        let tables = starts.map(|start| Table::dense(shape, grid, start..grid.slots.min(start + each))).collect();
        Tables { division: Division::Slots(grid, each), tables, hidden: 0 }
    }

    /// Tables for any metas and times.
    pub(super) fn sparse(shape: &Shape) -> Self {
        let tables = (0..TABLES).map(|_| Table::sparse(shape)).collect();
        Tables { division: Division::Hash, tables, hidden: 0 }
    }

    pub(super) fn all(&self) -> &[Table] {
        &self.tables
    }

    /// The table that a group is in.
    pub(super) fn of(&mut self, meta: u32, group: i64) -> &mut Table {
        &mut self.tables[self.division.of(meta, group)]
    }

    /// An estimate of the memory of their states, in bytes.
    pub(super) fn bytes(&self, shape: &Shape) -> usize {
        self.tables.iter().map(|table| table.bytes(shape)).sum()
    }

    /// Adds the groups of other tables. `metas` maps their numbers of metas to those of these tables; `None` if they are equal.
    pub(super) fn merge(&mut self, others: &Tables, metas: Option<&[u32]>) {
        self.hidden += others.hidden;
        let groups: usize = others.tables.iter().map(|table| table.rows.len()).sum();
        let threads = if groups < PARALLEL_GROUPS_MIN { 1 } else { cores().min(others.tables.len()) };
        let into = self.shared();
        let merged = each(threads, &others.tables, |part| {
            into.merge(part, metas);
            Ok(())
        });
        merged.expect("merging does not fail");
    }

    /// The same tables, for threads that merge into them at the same time.
    pub(super) fn shared(&mut self) -> SharedTables<'_> {
        SharedTables { division: self.division, tables: self.tables.iter_mut().map(Mutex::new).collect() }
    }
}

/// The tables of [`Tables`] with a lock each.
pub(super) struct SharedTables<'a> {
    division: Division,
    tables: Vec<Mutex<&'a mut Table>>,
}

impl SharedTables<'_> {
    /// Adds the groups of a table. `metas` maps its numbers of metas to those of these tables; `None` if they are equal. One lock
    /// is held at a time, for consecutive groups of one table.
    pub(super) fn merge(&self, part: &Table, metas: Option<&[u32]>) {
        let mut held: Option<(usize, MutexGuard<'_, &mut Table>)> = None;
        for from in (0..part.rows.len()).filter(|slot| part.rows[*slot] > 0) {
            let (meta, group) = part.key(from);
            let meta = metas.map_or(meta, |metas| metas[meta as usize]);
            let at = self.division.of(meta, group);
            if held.as_ref().is_none_or(|(table, _)| *table != at) {
                drop(held.take());
                held = Some((at, self.tables[at].lock()));
            }
            if let Some((_, table)) = &mut held {
                table.merge((meta, group), part, from);
            }
        }
    }
}

/// Does `work` for each item, on this number of threads, the caller's included.
pub(super) fn each<T: Sync>(threads: usize, items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicU64::new(0);
    let run = || -> Result<()> {
        let take = || usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|at| items.get(at));
        while let Some(item) = take() {
            work(item)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut outcome = run();
        for thread in others {
            let theirs = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and(theirs);
        }
        outcome
    })
}
