//! A bound on what lies below a directory: bytes of files, and the number of entries.
//!
//! A [`Meter`] belongs to a directory ([`Dir::metered`](crate::Dir::metered)) and to all that are opened through it.
//! Whatever makes, lengthens or removes an entry there tells the meter. The law: the count never
//! falls short of what lies there, and an operation that would take it beyond the bound fails before
//! it begins. A file's bytes are its length, holes included; an entry with several names is one. Of
//! several writers only those of one process are counted: callers keep others out.
//!
//! A staged file that replaces another takes the difference only ([`Charge`]): what it replaces goes
//! when it has its name. Attributes, lists and the names of directories are not counted.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    metadata::{Kind, Metadata},
    source_file::stat_fd,
};

/// The most that may lie below a directory. The default is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Quota {
    /// Bytes of all files.
    pub max_bytes: Option<u64>,
    /// Number of entries of all kinds.
    pub max_files: Option<u64>,
}

impl Quota {
    /// Makes a quota of so many bytes of all files and so many entries; `None` is no bound.
    pub const fn new(max_bytes: Option<u64>, max_files: Option<u64>) -> Self {
        Self { max_bytes, max_files }
    }

    /// Returns whether there is no bound.
    pub fn is_endless(&self) -> bool {
        *self == Self::default()
    }
}

/// Bytes and entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of entries of all kinds.
    pub files: u64,
}

impl Usage {
    /// One entry without content.
    const ENTRY: Self = Self { bytes: 0, files: 1 };

    /// Returns the usage of an inode.
    pub(crate) fn of(found: &Metadata) -> Self {
        Self { bytes: if found.kind == Kind::File { found.size } else { 0 }, files: 1 }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(more.bytes), files: self.files.saturating_add(more.files) }
    }

    fn less(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), files: self.files.saturating_sub(less.files) }
    }
}

/// The refusal of an operation that would exceed a [`Quota`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit '{limit}' allows {most} {}; {used} {} used, and this needs {needed} more",
    in_number(*most, unit),
    if *used == 1 { "is" } else { "are" }
)]
pub struct QuotaReached {
    /// The name of the limit in the configuration of `dsync serve`.
    pub limit: &'static str,
    /// The unit of the numbers.
    pub unit: &'static str,
    /// The count before the operation.
    pub used: u64,
    /// The bound.
    pub most: u64,
    /// The amount that the operation would add.
    pub needed: u64,
}

/// Returns the unit of a number.
fn in_number(number: u64, unit: &'static str) -> &'static str {
    match (number, unit) {
        (1, "bytes") => "byte",
        (1, "entries") => "entry",
        _ => unit,
    }
}

impl QuotaReached {
    /// Returns the refusal, if that was the reason for the error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

impl From<QuotaReached> for io::Error {
    fn from(refusal: QuotaReached) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, refusal)
    }
}

/// The count of what lies below a directory.
#[derive(Debug)]
pub struct Meter {
    quota: Quota,
    /// Whether what is replaced stays under another name.
    replaced_stay: bool,
    used: Mutex<Usage>,
    /// Held while names come and go, so that the last name of an entry is known to be the last.
    turn: Mutex<()>,
}

impl Meter {
    /// Begins with what lies there already.
    pub fn new(quota: Quota, used: Usage) -> Self {
        Self { quota, replaced_stay: false, used: Mutex::new(used), turn: Mutex::default() }
    }

    /// Sets whether what is replaced stays below the directory under another name, so that a new file
    /// needs room beside it. Default: no; a run that keeps it all the same may fail late.
    #[must_use]
    pub fn replaced_stay(mut self, replaced_stay: bool) -> Self {
        self.replaced_stay = replaced_stay;
        self
    }

    /// Returns the present count.
    pub fn used(&self) -> Usage {
        *lock(&self.used)
    }

    /// Returns whether what is replaced makes no room.
    pub(crate) fn keeps_replaced(&self) -> bool {
        self.replaced_stay
    }

    /// Carries out a change of names while no other is under way.
    pub(crate) fn in_turn<T>(&self, change: impl FnOnce() -> T) -> T {
        let _turn = lock(&self.turn);
        change()
    }

    /// Adds and subtracts in one step.
    ///
    /// # Errors
    /// [`QuotaReached`] if that raises the count beyond the bound; nothing has changed then.
    fn change(&self, more: Usage, less: Usage) -> io::Result<()> {
        let mut used = lock(&self.used);
        let new = used.plus(more).less(less);
        let bounds = [
            ("max-bytes", "bytes", used.bytes, new.bytes, self.quota.max_bytes),
            ("max-files", "entries", used.files, new.files, self.quota.max_files),
        ];
        for (limit, unit, used, new, most) in bounds {
            if let Some(most) = most.filter(|&most| new > used && new > most) {
                return Err(QuotaReached { limit, unit, used, most, needed: new - used }.into());
            }
        }
        *used = new;
        Ok(())
    }

    /// Subtracts what is gone.
    pub(crate) fn give_back(&self, less: Usage) {
        let mut used = lock(&self.used);
        *used = used.less(less);
    }

    /// Adds what is there whatever the bound.
    pub(crate) fn add(&self, more: Usage) {
        let mut used = lock(&self.used);
        *used = used.plus(more);
    }

    /// Makes an entry that has no content; it is counted if `make` succeeds.
    pub(crate) fn count_entry<T>(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.change(Usage::ENTRY, Usage::default())?;
        make().inspect_err(|_| self.give_back(Usage::ENTRY))
    }
}

/// The part of a [`Meter`]'s count that belongs to a file being written. Dropped, it gives that back:
/// the file has gone. A file written in place keeps what it has grown by.
#[derive(Debug)]
pub(crate) struct Charge {
    meter: Arc<Meter>,
    held: Mutex<Held>,
    /// A handle of the file, if it stays when this is dropped.
    in_place: Option<OwnedFd>,
}

/// The state of a charge: of `own`, all but `replaced` is in the meter's count.
#[derive(Debug, Clone, Copy)]
struct Held {
    own: Usage,
    replaced: Usage,
    /// The file is lent its bytes: it is about to go, and another grows by them.
    lent: bool,
}

impl Held {
    fn net(self) -> Usage {
        self.own.less(self.replaced)
    }
}

impl Charge {
    /// Charges for a new, empty file that makes room for itself by so much when it has its name.
    ///
    /// # Errors
    /// [`QuotaReached`].
    pub(crate) fn of_new(meter: &Arc<Meter>, replaced: Usage) -> io::Result<Box<Self>> {
        let held = Held { own: Usage::ENTRY, replaced, lent: false };
        meter.change(held.net(), Usage::default())?;
        Ok(Self::holding(meter, held))
    }

    /// Takes over the count of a file that is there and makes room for itself by so much when it has
    /// its name.
    pub(crate) fn of_kept(meter: &Arc<Meter>, own: Usage, replaced: Usage) -> Box<Self> {
        let held = Held { own, replaced, lent: false };
        meter.give_back(own.less(held.net()));
        Self::holding(meter, held)
    }

    /// Takes over the count of a file that is open as `handle` and is written in place.
    pub(crate) fn in_place(meter: &Arc<Meter>, own: Usage, handle: OwnedFd) -> Box<Self> {
        let mut charge = Self::of_kept(meter, own, Usage::default());
        charge.in_place = Some(handle);
        charge
    }

    /// Counts no notes about an unfinished file until they are to stay, and no longer what an earlier
    /// session left of them: a file must fit that fills the quota.
    pub(crate) fn of_notes(meter: &Arc<Meter>, left: Usage) -> Box<Self> {
        meter.give_back(left);
        Self::holding(meter, Held { own: Usage::default(), replaced: Usage::default(), lent: true })
    }

    fn holding(meter: &Arc<Meter>, held: Held) -> Box<Self> {
        Box::new(Self { meter: Arc::clone(meter), held: Mutex::new(held), in_place: None })
    }

    /// Charges for notes that are to stay, with so many bytes.
    ///
    /// # Errors
    /// [`QuotaReached`].
    pub(crate) fn claim(&self, bytes: u64) -> io::Result<()> {
        let mut held = lock(&self.held);
        let own = Usage { bytes, ..Usage::ENTRY };
        self.meter.change(own, held.net())?;
        *held = Held { own, lent: false, ..*held };
        Ok(())
    }

    /// Charges for content up to `end`, before it is written.
    ///
    /// # Errors
    /// [`QuotaReached`].
    pub(crate) fn cover(&self, end: u64) -> io::Result<()> {
        let mut held = lock(&self.held);
        if end <= held.own.bytes || held.lent {
            return Ok(());
        }
        let grown = Held { own: Usage { bytes: end, ..held.own }, ..*held };
        self.meter.change(grown.net(), held.net())?;
        *held = grown;
        Ok(())
    }

    /// Returns to the meter what a file lost that was cut to `len`.
    pub(crate) fn cut(&self, len: u64) {
        let mut held = lock(&self.held);
        if len < held.own.bytes && !held.lent {
            let cut = Held { own: Usage { bytes: len, ..held.own }, ..*held };
            self.meter.give_back(held.net().less(cut.net()));
            *held = cut;
        }
    }

    /// Returns all bytes to the meter of a file whose content moves into another and that goes then.
    pub(crate) fn lend(&self) {
        let mut held = lock(&self.held);
        let lent = Held { own: Usage { bytes: 0, ..held.own }, lent: true, ..*held };
        self.meter.give_back(held.net().less(lent.net()));
        *held = lent;
    }

    /// Counts the file wholly, and no longer what its name frees.
    ///
    /// # Errors
    /// [`QuotaReached`] if what it was to replace stays, and there is no room for both.
    pub(crate) fn settle(&self, freed: Usage) -> io::Result<()> {
        let mut held = lock(&self.held);
        self.meter.change(held.own, held.net().plus(freed))?;
        held.replaced = Usage::default();
        Ok(())
    }

    /// Counts the file beside what it was to replace.
    ///
    /// # Errors
    /// [`QuotaReached`] if there is no room for both.
    pub(crate) fn stay(&self) -> io::Result<()> {
        self.settle(Usage::default())
    }

    /// Leaves the count as it is.
    pub(crate) fn forget(self) {
        lock(&self.held).own = Usage::default();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let held = *lock(&self.held);
        match &self.in_place {
            None => self.meter.give_back(held.net()),
            Some(fd) => {
                // Without an answer it has all that it was granted.
                let now = stat_fd(fd.as_fd()).map_or(held.own, |now| Usage::of(&now));
                self.meter.give_back(held.own.less(now));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
