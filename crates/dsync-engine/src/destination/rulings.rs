//! The reasons why entries that only the destination has stay, for whoever asks; and the source's rulings,
//! which pass through here.
//!
//! The law: a source rules on its own entries only, and only on those that the run asks about.

use dsync_fs::{Component, Kind, RelPath};
use dsync_wire::{
    event::{Action, Planned},
    ruling::{Ruled, Ruling},
};

use super::{Site, directory::Directory, protection::Protection};
use crate::{SyncError, plan::file_type_of};

impl Site<'_> {
    /// Passes a ruling of the source on.
    ///
    /// # Errors
    /// [`SyncError::NotAskedFor`] for one that is not the source's to give, or that nobody wants.
    pub(super) fn source_rules(&self, ruling: Ruling) -> Result<(), SyncError> {
        if !ruling.why.is_of_source() || !self.rulings.wants(&ruling.path, &ruling.why) {
            let what = "a ruling".to_owned();
            return Err(SyncError::NotAskedFor { what, rule: "the run does not ask why" });
        }
        self.account.ruling(ruling)
    }

    /// Tells why an entry stays that only the destination has, if that is wanted.
    pub(super) fn tell_stays(
        &self,
        (directory, name): (&Directory, &Component),
        kind: Kind,
        protection: &Protection,
    ) -> Result<(), SyncError> {
        let path = directory.path.join(name);
        let (deletes, explains) = (self.policy.options.delete, self.rulings.explains(path.as_bytes()));
        match protection.place_of(&path, kind, false).filter(|_| deletes) {
            Some(place) => self.tell_ruling(&path, kind, Ruled::Protected(place)),
            None if !explains => Ok(()),
            None if deletes => self.tell_ruling(&path, kind, Ruled::Spared),
            None => self.tell_ruling(&path, kind, Ruled::NotDeleted),
        }
    }

    /// Tells that a rule protects an entry, if that is wanted.
    pub(super) fn tell_protected(
        &self,
        path: &RelPath,
        (kind, perishing): (Kind, bool),
        protection: &Protection,
    ) -> Result<(), SyncError> {
        let place = self.asks_why().then(|| protection.place_of(path, kind, perishing)).flatten();
        place.map_or(Ok(()), |place| self.tell_ruling(path, kind, Ruled::Protected(place)))
    }

    /// Tells that an entry stays for another reason than a rule, if that is wanted.
    pub(super) fn tell_spared(&self, path: &RelPath, kind: Kind) -> Result<(), SyncError> {
        self.tell_ruling(path, kind, Ruled::Spared)
    }

    /// Tells that an entry of this type goes for that of the source, or for one of an alternate directory, if
    /// the path is explained. It is no deletion that counts: the name is not extraneous.
    pub(super) fn tell_gives_way(&self, path: Vec<u8>, kind: Kind) -> Result<(), SyncError> {
        if !self.rulings.explains(&path) {
            return Ok(());
        }
        self.account.carried_out(Planned::new(Action::Delete, file_type_of(kind), path))
    }

    /// Returns whether the run asks for any rulings.
    pub(super) fn asks_why(&self) -> bool {
        self.rulings.any()
    }

    fn tell_ruling(&self, path: &RelPath, kind: Kind, why: Ruled) -> Result<(), SyncError> {
        let path = path.as_bytes().to_vec();
        if !self.rulings.wants(&path, &why) {
            return Ok(());
        }
        self.account.ruling(Ruling::new(path, kind == Kind::Dir, why))
    }
}
