//! Deletions: noted while planning, and made when all content has arrived or, if so wished, with
//! each directory.
//!
//! Nothing is removed when something of the source could not be read (unless `ignore_errors`), when
//! the run did not end well, or, with `delete_all_or_nothing`, when there are more deletions than
//! allowed (invariants S5, D13). Without it a limit ends the deletions ([`Allowance`]).
//! With [`DeleteTiming::During`] this holds for the state when the directory was compared, with
//! [`DeleteTiming::Before`] for the state when everything was listed. The list is kept out of
//! memory.

use std::{io, sync::Arc};

use dsync_fs::{Component, Dir, Kind, RelPath, SealedSpool, Spool, SpoolError, SpoolHome};
use dsync_wire::{
    budget::OverBudget,
    message::Operation,
    options::{DeleteLimit, DeleteTiming, SyncOptions},
};

use super::{
    Site,
    allowance::Allowance,
    begun::reap_untrue,
    directory::{Deferred, Directory, settle},
    protection::Protection,
    records::{self, KINDS, push_name, take, take_name},
    removal::{self, Doomed, remove_within},
};
use crate::{SyncError, plan::file_type_of};

/// Deletions by directory.
pub(super) struct Deletions {
    spool: Spool,
    /// Number of noted extraneous entries, without those in them.
    entries: u64,
    /// Number of entries that would be extraneous, in directories that were not listed completely.
    unsure: u64,
    /// Entries of the destination that were compared.
    compared: u64,
    protection: Protection,
    allowance: Allowance,
}

/// The extraneous entries of one directory.
struct Record {
    directory: Deferred,
    entries: Vec<(Component, Kind)>,
}

impl Deletions {
    pub(super) fn new(protection: Protection, options: &SyncOptions, spools: &SpoolHome) -> Self {
        let allowance = Allowance::of(match options.max_delete {
            // A share of what is known: `within_limit` sets it once all is counted.
            None | Some(DeleteLimit::Percent(_)) => None,
            Some(DeleteLimit::Entries(most)) => Some(most),
            // A limit that this version does not know permits nothing.
            Some(_) => Some(0),
        });
        Self { spool: Spool::new(spools), entries: 0, unsure: 0, compared: 0, protection, allowance }
    }

    /// Returns the rules for entries that stay.
    pub(super) fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Returns whether a directory may give way to an entry of the source: nothing in it must be
    /// kept, and no more is in it than may still be removed.
    ///
    /// # Errors
    /// The system's, when that is not known.
    pub(super) fn permit_way(&self, site: &Site<'_>, dir: &Dir, doomed: Doomed<'_>) -> io::Result<bool> {
        let contents = removal::contents(site, dir, doomed, &self.protection)?;
        Ok(contents.is_some_and(|contents| self.allowance.take(contents)))
    }

    /// Goes on with the removals that another list has left.
    pub(super) fn go_on(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// Counts entries of a directory that stay, since it was not listed completely.
    pub(super) fn keep_unsure(&mut self, entries: usize) {
        self.unsure += entries as u64;
    }

    /// Counts entries of the destination that are compared with the source's.
    pub(super) fn compare(&mut self, entries: usize) {
        self.compared += entries as u64;
    }

    /// Removes the extraneous entries of a directory that was compared to its end, now or, as a
    /// rule, later; then its attributes are set after that.
    pub(super) fn note(
        &mut self,
        site: &Site<'_>,
        directory: &Directory,
        entries: Vec<(Component, Kind)>,
    ) -> Result<(), SyncError> {
        if entries.is_empty() {
            return Ok(());
        }
        if at_once(&site.policy.options)
            && let Some(dir) = &directory.dir
        {
            return self.remove_at_once(site, directory, dir, &entries);
        }
        self.entries += entries.len() as u64;
        let record = Record { directory: Deferred::new(directory), entries };
        self.spool.push(&record.encode()).map_err(spool_error)?;
        Ok(())
    }

    /// Sets a directory's attributes at the end of the run: until then backups may be put into it.
    pub(super) fn settle_last(&mut self, directory: &Directory) -> Result<(), SyncError> {
        let record = Record { directory: Deferred::new(directory), entries: Vec::new() };
        self.spool.push(&record.encode()).map(|_| ()).map_err(spool_error)
    }

    fn remove_at_once(
        &self,
        site: &Site<'_>,
        directory: &Directory,
        dir: &Arc<Dir>,
        entries: &[(Component, Kind)],
    ) -> Result<(), SyncError> {
        self.protection.enter(&directory.path);
        self.protection.tell(site)?;
        if withheld(site) {
            site.account.amend(|report| report.deletions_withheld += entries.len() as u64);
            return Ok(());
        }
        site.touched(dir);
        directory.touch();

        for (name, kind) in entries {
            if site.stopped() {
                return Ok(());
            }
            let doomed = Doomed { parent: &directory.path, name, now: name, kind: *kind };
            remove_within(site, dir, doomed, &self.protection, &self.allowance)?;
        }
        reap_untrue(site, dir);
        self.allowance.report(site);
        Ok(())
    }

    /// Makes the deletions and sets the directories' attributes; `changed` is called for each
    /// directory. Returns the removals that are left.
    pub(super) fn carry_out(
        self,
        site: &Site<'_>,
        root: Option<&Arc<Dir>>,
        changed: &mut dyn FnMut(&RelPath) -> Result<(), OverBudget>,
    ) -> Result<Allowance, SyncError> {
        let Self { spool, entries, unsure, compared, protection, allowance } = self;
        // Where nothing failed, an option leaves a part of the source out.
        if site.account.source_damaged() {
            site.account.amend(|report| report.deletions_withheld += unsure);
        }
        let Some(root) = root else { return Ok(allowance) };
        let spool = spool.seal().map_err(spool_error)?;
        protection.begin_removals();

        let allowed = if entries == 0 {
            true
        } else if withheld(site) {
            site.account.amend(|report| report.deletions_withheld += entries);
            false
        } else {
            within_limit(site, root, &spool, compared, (&protection, &allowance))?
        };

        for record in spool.iter() {
            if site.session.halt.stopped() {
                return Ok(allowance);
            }
            let Some(mut record) = Record::decode(&record.map_err(spool_error)?) else {
                return Err(spool_error(SpoolError::Damaged { index: 0 }));
            };
            let mut told = Ok(());
            protection.retain(&record.directory.path, &mut record.entries, &mut |path, kind| {
                if told.is_ok() {
                    told = site.tell_protected(path, (kind, false), &protection);
                }
            });
            told?;
            protection.tell(site)?;
            if directory(site, root, &record, allowed, (&protection, &allowance))? {
                changed(&record.directory.path)?;
            }
        }
        allowance.report(site);
        Ok(allowance)
    }
}

/// Returns whether a directory's deletions are made as soon as it was compared. Only at the end is
/// the number of all known, which a share and a limit of all or nothing need, and until then what
/// goes may be what a new file is made from.
fn at_once(options: &SyncOptions) -> bool {
    let is_counted = match options.max_delete {
        Some(DeleteLimit::Entries(_)) => options.delete_all_or_nothing,
        limit => limit.is_some(),
    };
    options.delete_timing == DeleteTiming::During && !is_counted && !options.detects_renamed()
}

/// Returns whether something of the source could not be read, so that nothing may be removed.
fn withheld(site: &Site<'_>) -> bool {
    site.account.source_damaged() && !site.policy.options.ignore_errors
}

/// Returns whether deletions are made, as far as the allowance reaches, which is set to the limit's
/// share. Of a limit of all or nothing it reports the number of deletions if there are more.
fn within_limit(
    site: &Site<'_>,
    root: &Dir,
    spool: &SealedSpool,
    compared: u64,
    (protection, allowance): (&Protection, &Allowance),
) -> Result<bool, SyncError> {
    let options = &site.policy.options;
    let limit = match options.max_delete {
        None => return Ok(true),
        Some(DeleteLimit::Entries(_)) if !options.delete_all_or_nothing => return Ok(true),
        Some(limit) => limit,
    };
    let Some((count, known)) = count(site, root, spool, compared, protection)? else { return Ok(false) };

    match limit {
        DeleteLimit::Entries(_) => {}
        DeleteLimit::Percent(percent) => {
            allowance.set(u64::try_from(u128::from(known) * u128::from(percent) / 100).unwrap_or(u64::MAX));
        }
        // A limit that this version does not know permits nothing.
        _ => allowance.set(0),
    }
    if !options.delete_all_or_nothing {
        return Ok(true);
    }
    let allowed = allowance.permits_all(count);
    if !allowed {
        site.account.amend(|report| report.deletions_over_limit += count);
    }
    Ok(allowed)
}

/// Returns the numbers of entries to delete and of all known entries; `None` if the run was stopped.
fn count(
    site: &Site<'_>,
    root: &Dir,
    spool: &SealedSpool,
    compared: u64,
    protection: &Protection,
) -> Result<Option<(u64, u64)>, SyncError> {
    // A removed directory holds entries that were not compared.
    let (mut count, mut known) = (0, compared);
    for record in spool.iter() {
        if site.stopped() {
            return Ok(None);
        }
        let Some(mut record) = Record::decode(&record.map_err(spool_error)?) else { continue };
        protection.retain(&record.directory.path, &mut record.entries, &mut |_, _| {});
        let Ok(dir) = root.open_beneath(&record.directory.path) else { continue };
        for (name, kind) in &record.entries {
            if *kind != Kind::Dir {
                count += 1;
                continue;
            }
            let mut within = 0_u64;
            let doomed = Doomed { parent: &record.directory.path, name, now: name, kind: *kind };
            let entries =
                |below: &RelPath, kind| protection.filters_out(&doomed.was(below), kind, below.depth() > 1);
            let spare = protection.spare(site, &entries);
            // A directory that cannot be listed fails when it is removed.
            let _ = dir.list_tree(name, spare, &mut |_, _| within += 1);
            count += within;
            known += within.saturating_sub(1);
        }
    }

    Ok(Some((count, known)))
}

/// Removes the extraneous entries of one directory, then sets its attributes. Returns whether any of
/// them went.
fn directory(
    site: &Site<'_>,
    root: &Dir,
    record: &Record,
    allowed: bool,
    (protection, allowance): (&Protection, &Allowance),
) -> Result<bool, SyncError> {
    site.session.note_progress();
    let Deferred { path, wanted } = &record.directory;
    if !allowed {
        let mut spared = record.entries.iter();
        spared.try_for_each(|(name, kind)| site.tell_spared(&path.join(name), *kind))?;
    }
    let dir = match root.open_beneath(path) {
        Ok(dir) => Arc::new(dir),
        Err(error) => {
            let cause = site.cause_or_fatal(Operation::Delete, path, error)?;
            return site.problem(Operation::Delete, path, cause).map(|()| false);
        }
    };

    let mut changed = false;
    if allowed {
        for (name, kind) in &record.entries {
            if site.stopped() {
                return Ok(changed);
            }
            let doomed = Doomed { parent: path, name, now: name, kind: *kind };
            changed |= remove_within(site, &dir, doomed, protection, allowance)?;
        }
        reap_untrue(site, &dir);
        site.touched(&dir);
    }
    settle(site, path, Some(&dir), wanted.as_ref()).map(|()| changed)
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::Delete, "the list of deletions", error)
}

impl Record {
    /// Writes the directory, then names with their types.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.directory.encode(&mut bytes);
        for (name, kind) in &self.entries {
            push_name(&mut bytes, name);
            bytes.push(file_type_of(*kind) as u8);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let directory = Deferred::decode(&mut rest)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let name = take_name(&mut rest)?;
            let [kind] = take(&mut rest)?;
            entries.push((name, KINDS.get(usize::from(kind)).copied()?));
        }
        Some(Self { directory, entries })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_fs::{Extended, Timestamp, Wanted};

    use super::*;

    fn component(name: &[u8]) -> Component {
        Component::new(name).unwrap()
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let mut path = RelPath::root();
        path.push(&component(b"a b"));
        path.push(&component(&[0xff, b'\n']));
        let wanted = Wanted {
            mode: Some(0o755),
            mtime: Some(Timestamp { seconds: -5, nanoseconds: 7 }),
            atime: None,
            uid: None,
            gid: Some(u32::MAX),
            extended: Some(Arc::new(Extended::default())),
        };
        let entries = vec![(component(&[b'x'; 255]), Kind::Dir), (component(b"y"), Kind::BlockDevice)];
        let directory = Deferred { path, wanted: Some(wanted) };
        let record = Record { directory: directory.clone(), entries: entries.clone() };
        let bytes = record.encode();
        let back = Record::decode(&bytes).unwrap();
        assert_eq!((back.directory, back.entries), (directory, entries));
        for cut in 1..bytes.len() {
            // Damage is found or at least harmless: no panic, no name that was not written.
            let _ = Record::decode(&bytes[..cut]);
        }
    }

    #[test]
    fn types_are_numbered_as_on_the_wire() {
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(file_type_of(*kind) as usize, number);
        }
    }
}
