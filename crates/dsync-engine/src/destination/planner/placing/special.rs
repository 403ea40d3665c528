//! Entries that are whole in their listing: links, devices, fifos and sockets.

use dsync_fs::{Component, Kind};
use dsync_wire::{
    event::Action,
    message::{EntryId, EntryKind, Operation},
};

use super::{super::Planner, Old, Place, Placed};
use crate::{
    SyncError,
    destination::secure,
    plan::{Decision, file_type},
};

impl Planner<'_> {
    /// Makes, replaces or retags a link, device, fifo or socket. True when it is there.
    pub(super) fn other(
        &self,
        id: EntryId,
        place: &Place<'_>,
        kind: &EntryKind,
        decision: &Decision,
        old: &Old<'_>,
    ) -> Result<Placed, SyncError> {
        let Some(dir) = place.directory.dir.as_ref().filter(|_| !self.site.policy.options.dry_run) else {
            return Ok(Placed::Open);
        };
        if decision.action == Action::Link
            && let Some(placed) = self.link(id, place, old.alternate.as_ref())?
        {
            return Ok(placed);
        }
        match decision.action {
            Action::Retag => return self.retag(place, kind_of(kind), decision),
            Action::Create | Action::Update | Action::Reuse | Action::Link => {}
            _ => return Ok(old.kept(decision)),
        }
        let delayed = self.site.delayed.get().is_some();
        if place.displaced.is_none()
            && !delayed
            && let Err(error) = secure::keep(self.site, place.directory, place.name)?
        {
            self.report(Operation::Commit, place, Err(error))?;
            return Ok(Placed::Failed);
        }
        let operation = match kind {
            EntryKind::Symlink { .. } => Operation::CreateLink,
            _ => Operation::CreateSpecial,
        };
        let make = |name: &Component| match (kind, special(kind)) {
            (EntryKind::Symlink { target }, _) => dir.make_symlink(name, target, &decision.wanted),
            (_, Some(special)) => dir.make_special(name, special, &decision.wanted),
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        };
        let make = |name: &Component| make(name).map(|withheld| self.site.withheld(withheld));
        let made = match file_type(kind).filter(|_| delayed) {
            Some(kind) => {
                let made = self.make_late(id, place, kind, make)?;
                self.done(operation, place, made)?
            }
            None => self.make(operation, place, dir, make)?,
        };
        Ok(if made { self.placed() } else { Placed::Failed })
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

fn kind_of(kind: &EntryKind) -> Kind {
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
