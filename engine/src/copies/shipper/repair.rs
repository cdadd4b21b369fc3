//! Finds out what a copy has lost, because somebody has removed objects or a rule of the store has, and ships it again.

use super::{SHIPPED_AGAIN, Shipper};
use crate::copies::epochs::{self, Claim};
use crate::copies::load::{self, Position};
use crate::copies::lost;
use crate::copies::piece::{piece_name, pieces_folder};
use crate::copies::store::unreachable;
use crate::copies::writer::Writer;
use crate::error::{Error, Result};
use crate::identity::{hex, new_identity};
use ebbtide_ttl::Code;

/// How often the shipper checks that the copy still has what it needs.
const CHECK_SECONDS: i64 = 60;

impl Shipper {
    /// Checks, at most once in [`CHECK_SECONDS`], that the copy can be restored as far as it was shipped. Somebody may have removed
    /// objects: a claim that is gone is put back, files are uploaded again, and without a piece that is needed another epoch begins.
    pub(super) fn check_copy(&mut self) -> Result<()> {
        let now = self.clock.now();
        let Some((epoch, last)) = self.epoch.as_ref().and_then(|epoch| Some((epoch, epoch.last?))) else {
            return Ok(());
        };
        // A clock that was set back has not checked later.
        if now >= epoch.checked_at && now < epoch.checked_at.plus_seconds(CHECK_SECONDS) {
            return Ok(());
        }
        let (store, url) = (self.store.clone(), self.status.url.clone());
        let store = store.as_ref();
        let claim = epoch.claim.clone();
        self.check_claim(&claim)?;
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let listed = epoch.unlisted.is_empty().then(|| epoch.listed.clone());
        let pieces = [epoch.records_from, epoch.last_base, last.number].map(|number| piece_name(epoch.number, number));
        if let Some(object) = lost::first_lost(store, pieces.into_iter().chain(listed))? {
            if let Some(claim) = epochs::claim_of(store, epoch.number + 1)? {
                return Err(self.supersede(&claim));
            }
            tracing::warn!(url, object, "{SHIPPED_AGAIN}");
            (self.epoch, self.unsent, self.lost) = (None, None, Some(last));
            self.status.shipped_until = None;
            // The next epoch is another one's.
            self.process = hex(new_identity(self.clock.as_ref(), &self.dir));
            return Ok(());
        }
        // One file each time; all of them whenever a base is made.
        let file = epoch.copied.values().nth(epoch.checks.checked_rem(epoch.copied.len()).unwrap_or(0));
        let has_file = file.map_or(Ok(true), |file| store.exists(&file.object())).map_err(unreachable)?;
        epoch.checks = epoch.checks.wrapping_add(1);
        if !has_file {
            self.replace_lost_files()?;
        }
        if let Some(epoch) = &mut self.epoch {
            epoch.checked_at = now;
        }
        Ok(())
    }

    /// Uploads the files again that the store had and has no longer, each under its name. One that is not as it was shipped, or is
    /// no longer there, is forgotten; the next piece gets a base, so that a restore does not need it.
    pub(super) fn replace_lost_files(&mut self) -> Result<()> {
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        let lost = lost::lost_files(self.store.as_ref(), epoch.copied.values())?;
        if let Some(first) = lost.first() {
            let (url, object, files) = (&self.status.url, first.object(), lost.len());
            tracing::warn!(url, object, files, "the copy has lost segment files, which are uploaded again");
        }
        for file in lost {
            match self.source.content(&file.path)?.filter(|content| file.check(content).is_ok()) {
                Some(content) => {
                    self.store.put(&file.object(), content).map_err(unreachable)?;
                    self.status.bytes += file.bytes;
                }
                None => {
                    epoch.wants_base = true;
                    epoch.copied.remove(&file.path);
                }
            }
        }
        Ok(())
    }

    /// Checks that the copy has this claim, which this process has taken. One that is gone is put back, but not where another writer
    /// has begun a copy since: that one stays, and nothing more is shipped here.
    pub(super) fn check_claim(&mut self, claim: &Claim) -> Result<()> {
        let store = self.store.clone();
        let store = store.as_ref();
        match epochs::claim_of(store, claim.epoch)? {
            // Another process of the folder may have put it back.
            Some(found) if found.is_same(claim) => return Ok(()),
            Some(other) => return Err(self.supersede(&other)),
            None => {}
        }
        if let Some(newest) = epochs::newest(store)? {
            // The epochs before this one were taken before it, unless everything was removed and a copy was begun after that. Times of two
            // machines do not show which.
            let is_removed = !self.has_own_base()?;
            let is_later = newest.writer != claim.writer || newest.at > claim.at;
            let is_begun_since = newest.database != claim.database || (is_removed && is_later);
            if newest.epoch > claim.epoch || (newest.epoch < claim.epoch && is_begun_since) {
                return Err(self.supersede(&newest));
            }
        }
        // Claims of the other one may be gone too.
        if let Some(piece) =
            load::newest_base(store, claim.epoch)?.filter(|piece| hex(piece.head.identity) != claim.database)
        {
            let (epoch, database, at) = (piece.head.epoch, hex(piece.head.identity), piece.head.at);
            return Err(self.supersede(&Claim { epoch, database, at, ..claim.clone() }));
        }
        if !epochs::take(store, claim)? {
            let other = epochs::claim_of(store, claim.epoch)?.unwrap_or_else(|| claim.clone());
            return Err(self.supersede(&other));
        }
        tracing::warn!(url = self.status.url, epoch = claim.epoch, "the copy has lost its epoch, which is put back");
        Ok(())
    }

    /// Whether the copy has the last base of this epoch.
    fn has_own_base(&self) -> Result<bool> {
        let Some(epoch) = self.epoch.as_ref().filter(|epoch| epoch.last_base > 0) else { return Ok(false) };
        self.store.exists(&piece_name(epoch.number, epoch.last_base)).map_err(unreachable)
    }

    /// Refuses to take an epoch that has pieces although nobody has taken it.
    pub(super) fn check_unclaimed(&self, epoch: u64) -> Result<()> {
        if self.store.list(&pieces_folder(epoch)).map_err(unreachable)?.is_empty() {
            return Ok(());
        }
        let what = format!(
            "{} has pieces of epoch {epoch}, and has lost the object in epochs/ that says whose they are: a database that ships there puts              it back within a minute; or ship to another place, or remove the copy if it is not needed",
            self.status.url
        );
        Err(Error::new(Code::LockBusy, what))
    }

    /// The newest claim of the copy. If that of the epoch that was shipped last from this folder is gone, and pieces of it are there, it is
    /// put back: the next epoch must not have the number of one that has pieces.
    pub(super) fn newest_claim(&self, writer: &Writer, identity: &str) -> Result<Option<Claim>> {
        let store = self.store.as_ref();
        let newest = epochs::newest(store)?;
        let sent = writer.sent_to(&self.status.url);
        let last = sent.map_or(0, |sent| sent.epoch);
        if newest.as_ref().is_some_and(|newest| newest.epoch >= last || newest.database != identity) {
            return Ok(newest);
        }
        let base = load::newest_base(store, last.max(1))?;
        if base.as_ref().is_some_and(|piece| hex(piece.head.identity) != identity) {
            return Err(self.of_another_database());
        }
        let Some(sent) = sent else { return Ok(newest) };
        // A primary before this one may have begun a copy again after everything was removed: that one has no base of a later epoch.
        let is_own = newest.as_ref().is_none_or(|newest| newest.writer == writer.id);
        let is_left = is_own || base.is_some_and(|piece| piece.head.epoch == sent.epoch);
        if !is_left || store.list(&pieces_folder(sent.epoch)).map_err(unreachable)?.is_empty() {
            return Ok(newest);
        }
        let claim = Claim {
            epoch: sent.epoch,
            database: identity.to_owned(),
            writer: writer.id.clone(),
            process: sent.process.clone(),
            at: self.clock.now(),
        };
        tracing::warn!(
            url = self.status.url,
            epoch = claim.epoch,
            "the copy has lost its newest epoch, which is put back"
        );
        match epochs::take(store, &claim)? {
            true => Ok(Some(claim)),
            false => epochs::claim_of(store, claim.epoch),
        }
    }

    /// The last piece of a copy that has lost what is needed to read it.
    pub(super) fn last_piece(&self) -> Result<Option<Position>> {
        if self.lost.is_some() {
            return Ok(self.lost);
        }
        let store = self.store.as_ref();
        let newest = epochs::newest(store)?.map_or(0, |newest| newest.epoch);
        for epoch in (1..=newest).rev() {
            let listed = store.list(&pieces_folder(epoch)).map_err(unreachable)?;
            let mut number = listed.iter().filter_map(|name| name.parse::<u64>().ok()).max().unwrap_or(0);
            // A listing may lack the newest.
            while store.exists(&piece_name(epoch, number + 1)).map_err(unreachable)? {
                number += 1;
            }
            if number > 0 {
                return Ok(Some(Position { epoch, number, crc: 0 }));
            }
        }
        Ok(None)
    }

    pub(super) fn of_another_database(&self) -> Error {
        let what = format!("{} has the copy of another database: choose another place", self.status.url);
        Error::new(Code::InvalidOptions, what)
    }
}

/// The error if the place of a copy has lost it, `taken` being the claim of its writer, and has another copy now.
pub(super) fn begun_by_another(url: &str, taken: &Claim, other: &Claim) -> Error {
    let who = match other.database == taken.database {
        true => "another process of this database",
        false => "another database",
    };
    let what = format!(
        "{url} has lost epoch {} of this database, and has a copy that {who} began there (epoch {}, {}): nothing more is shipped over it; \
         ship to another place, or, if that copy is not needed, remove it and ship again",
        taken.epoch, other.epoch, other.at
    );
    Error::new(Code::LockBusy, what)
}
