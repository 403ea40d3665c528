//! Entries that are whole in their listing: links, devices, fifos and sockets.

use std::{cell::Cell, io};

use dsync_fs::{Component, Kind, Withheld};
use dsync_wire::{
    event::Action,
    message::{EntryKind, Operation},
};

use super::{
    super::{landed::brings, secure},
    place::{FILE_EXISTS, Place, Placed},
};
use crate::{
    SyncError,
    plan::{Decision, file_type},
};

impl Place<'_> {
    /// Makes or replaces a link, device, fifo or socket, now or at the end of the run.
    pub(super) fn make_special(&self, kind: &EntryKind, decision: &Decision) -> Result<Placed, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(Placed::Open) };
        let delayed = self.site.delayed.get().is_some();
        if self.displaced.is_none()
            && !delayed
            && let Err(error) = secure::keep(self.site, self.directory, self.name)?
        {
            self.report(Operation::Commit, Err(error))?;
            return Ok(Placed::Failed);
        }

        let operation = match kind {
            EntryKind::Symlink { .. } => Operation::CreateLink,
            _ => Operation::CreateSpecial,
        };
        let is_new = decision.action == Action::Create && self.displaced.is_none();
        if is_new && self.is_taken(dir) {
            self.report(operation, Err(io::Error::from_raw_os_error(FILE_EXISTS)))?;
            return Ok(Placed::Failed);
        }

        let hands = &self.site.hands;
        let make = |name: &Component| match (kind, special(kind)) {
            (EntryKind::Symlink { target }, _) => hands.make_symlink(dir, name, target, &decision.wanted),
            (_, Some(special)) => hands.make_special(dir, name, special, &decision.wanted),
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        };
        let withheld = Cell::<Withheld>::default();
        let make = |name: &Component| make(name).map(|lacks| withheld.set(lacks));

        let sent = brings(kind, decision.action);
        let made = match file_type(kind).filter(|_| delayed) {
            Some(kind) => {
                let made = self.make_late(kind, sent, make)?;
                self.done(operation, made)?
            }
            None => self.make(operation, dir, make)?,
        };
        if !made {
            return Ok(Placed::Failed);
        }
        self.site.withheld(self.path, withheld.get())?;
        Ok(self.made())
    }
}

fn special(kind: &EntryKind) -> Option<dsync_fs::Special> {
    let number = |device: &dsync_wire::message::DeviceNumber| dsync_fs::DeviceNumber {
        major: device.major,
        minor: device.minor,
    };
    Some(match kind {
        EntryKind::Fifo => dsync_fs::Special::Fifo,
        EntryKind::Socket => dsync_fs::Special::Socket,
        EntryKind::CharDevice { device } => dsync_fs::Special::CharDevice(number(device)),
        EntryKind::BlockDevice { device } => dsync_fs::Special::BlockDevice(number(device)),
        _ => return None,
    })
}

/// Returns the type of an entry at the destination.
pub(super) fn kind_of(kind: &EntryKind) -> Kind {
    match kind {
        EntryKind::Symlink { .. } => Kind::Symlink,
        EntryKind::Fifo => Kind::Fifo,
        EntryKind::Socket => Kind::Socket,
        EntryKind::CharDevice { .. } => Kind::CharDevice,
        EntryKind::BlockDevice { .. } => Kind::BlockDevice,
        EntryKind::Directory => Kind::Dir,
        _ => Kind::File,
    }
}
