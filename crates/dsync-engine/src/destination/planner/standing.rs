//! Entries of the destination, as decisions ask for them.

use dsync_fs::{Component, Dir, Extended, ExtendedScope, Stamp};

use super::super::{begun::left_by, directory::Directory};
use crate::{
    content::Contents,
    plan::{Interrupted, SETGID, Standing},
};

/// An entry of the destination; without a name, the directory itself.
pub(in super::super) struct Here<'a> {
    pub(in super::super) dir: Option<&'a Dir>,
    pub(in super::super) name: Option<&'a Component>,
    /// The directory where it is planned, if it may be made there.
    pub(in super::super) within: Option<&'a Directory>,
    /// The text of a symbolic link, if it is known already.
    pub(in super::super) link_text: Option<&'a [u8]>,
    /// The contents of this end's files.
    pub(in super::super) contents: Contents<'a>,
}

impl Standing for Here<'_> {
    fn link_equals(&self, target: &[u8]) -> bool {
        if let Some(here) = self.link_text {
            return here == target;
        }
        let (Some(dir), Some(name)) = (self.dir, self.name) else { return false };
        dir.read_link(name).is_ok_and(|here| here == target)
    }

    fn left_by(&self) -> Option<Interrupted> {
        // Each look is a failed open of a name that is not there.
        let may_be = self.within.is_none_or(Directory::may_have_notes);
        left_by(self.dir.filter(|_| may_be)?, self.name?)
    }

    fn content_equals(&self, content: &[u8; 32], stamp: Stamp) -> bool {
        let (Some(dir), Some(name)) = (self.dir, self.name) else { return false };
        // Looking at a copy is no access that should show in its access time.
        let open = || dir.open_source_noatime(name);
        let hash = self.contents.hash(|| Some(stamp), open);
        hash.is_ok_and(|here| here == *content)
    }

    fn extended(&self, scope: ExtendedScope) -> Option<Extended> {
        match self.name {
            Some(name) => self.dir?.extended(name, scope).ok(),
            None => self.dir?.own_extended(scope).ok(),
        }
    }

    fn allowed_mode(&self) -> Option<u16> {
        self.within?.allowed_mode()
    }

    fn inherited_mode(&self) -> u16 {
        self.within.map_or(0, Directory::inherited_mode)
    }
}

/// A root that the run has made, with all permissions that the system set: those that its parent's
/// default list or the mask left, and those that it took over. `None` if the run makes no root.
pub(super) struct Made(pub(super) Option<u16>);

impl Standing for Made {
    fn link_equals(&self, _: &[u8]) -> bool {
        false
    }

    fn content_equals(&self, _: &[u8; 32], _: Stamp) -> bool {
        false
    }

    fn extended(&self, _: ExtendedScope) -> Option<Extended> {
        None
    }

    fn allowed_mode(&self) -> Option<u16> {
        self.0.map(|mode| mode & 0o777)
    }

    fn inherited_mode(&self) -> u16 {
        self.0.map_or(0, |mode| mode & SETGID)
    }
}
