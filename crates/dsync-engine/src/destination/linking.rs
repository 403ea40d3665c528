//! Makes the hard links that were noted, directory by directory; a copy where the filesystem has no
//! further name.

use std::{borrow::Cow, io, sync::Arc};

use dsync_fs::{
    BackupPlace, Component, CopyError, Dir, Durability, ExtendedScope, Kind, Metadata, RecordAt, RelPath,
    Sharing, Wanted, Withheld, cannot_link, leads_out,
};
use dsync_wire::{
    event::{FileType, Planned},
    message::{Cause, Landed, Operation},
};

use super::{
    Site,
    begun::reap_untrue,
    directory::{Deferred, LastOpened, settle},
    links::{Further, Links, Noted, Record, Told},
    overtaken,
    removal::{self, Doomed},
    secure,
    succession::Succession,
};
use crate::SyncError;

/// Makes the links and sets the directories' attributes. Returns the entries that the source may
/// remove then.
pub(super) fn carry_out(
    links: Links,
    (site, succession, sharing): (&Site<'_>, &Succession, &Sharing),
    root: Option<&Arc<Dir>>,
) -> Result<Vec<Landed>, SyncError> {
    let Some(root) = root else { return Ok(Vec::new()) };
    let noted = &links.seal()?;
    let (parent, landed) = (LastOpened::default(), Vec::new());
    let mut maker = Maker { site, succession, sharing, root, noted, parent, landed };

    for record in noted.records() {
        if site.stopped() {
            break;
        }
        maker.directory(&record?)?;
    }
    Ok(maker.landed)
}

/// A name that was made.
struct Made {
    /// Whether it is a hard link, and not a copy in its place.
    linked: bool,
    /// The name that a directory in its place has now.
    displaced: Option<Component>,
    /// The attributes that a copy lacks.
    withheld: Withheld,
}

/// The links of a run being made.
struct Maker<'a> {
    site: &'a Site<'a>,
    succession: &'a Succession,
    sharing: &'a Sharing,
    root: &'a Dir,
    noted: &'a Noted,
    /// The directories of first names.
    parent: LastOpened,
    /// Names that were made, for a source that removes the files that it copied.
    landed: Vec<Landed>,
}

impl Maker<'_> {
    /// Makes the links of one directory, then sets its attributes.
    fn directory(&mut self, record: &Record) -> Result<(), SyncError> {
        let Deferred { path, wanted } = &record.directory;
        let dir = match self.root.open_beneath(path) {
            Ok(dir) => Arc::new(dir),
            Err(error) => {
                for (further, _) in &record.links {
                    self.site.account.link_failed(further.action, further.kind);
                }
                let cause = self.site.cause_or_fatal(Operation::HardLink, path, error)?;
                return self.site.problem(Operation::HardLink, path, cause);
            }
        };

        self.site.touched(&dir);
        for (further, first) in &record.links {
            if self.site.stopped() {
                break;
            }
            self.link(&dir, path, further, first)?;
        }

        // Of a half-written file whose names are links to another one now.
        reap_untrue(self.site, &dir);
        settle(self.site, path, Some(&dir), wanted.as_ref())
    }

    fn link(
        &mut self,
        dir: &Arc<Dir>,
        parent: &RelPath,
        further: &Further,
        first: &RecordAt,
    ) -> Result<(), SyncError> {
        let site = self.site;
        let path = parent.join(&further.name);
        // It came as a file, or failed as one.
        if self.succession.took_over(further.entry) {
            return Ok(());
        }
        if self.succession.is_lost(first.index()) {
            site.account.link_failed(further.action, further.kind);
            return site.problem(Operation::HardLink, &path, Cause::FirstNameFailed);
        }

        if let Some(why) = overtaken::why_left(site, dir, &further.name, further.keeps_newer) {
            site.account.link_failed(further.action, further.kind);
            return overtaken::tell(site, further.kind, &path, why);
        }

        let protection = further.displaces.then_some(&self.noted.protection);
        let secured = secure::secure(site, dir, parent, &further.name, protection)?;
        let made = secured.and_then(|()| self.make(dir, parent.depth(), further, first));
        let withheld = made.as_ref().map(|made| made.withheld).unwrap_or_default();
        let made = match made {
            Ok(Made { linked, displaced: Some(now), .. }) => {
                let doomed = Doomed { parent, name: &further.name, now: &now, kind: Kind::Dir };
                removal::make_way(site, dir, doomed, &self.noted.protection)?.map(|()| linked)
            }
            made => made.map(|made| made.linked),
        };
        if made.is_ok() && site.removes(false) {
            self.landed.push(Landed { entry: further.entry, stood: None });
        }

        match made {
            Ok(linked) => {
                site.account.link_made(linked);
                site.withheld(&path, withheld)?;
                further.told.map_or(Ok(()), |told| self.tell(&path, further, first, (told, linked)))
            }
            Err(error) => {
                site.account.link_failed(further.action, further.kind);
                let cause = match error.get_ref() {
                    Some(inner) if inner.is::<OtherFile>() => Cause::Changed,
                    _ => site.cause_or_fatal(Operation::HardLink, &path, error)?,
                };
                site.problem(Operation::HardLink, &path, cause)
            }
        }
    }

    /// Tells of a link, or a copy in its place, that was made.
    fn tell(
        &self,
        path: &RelPath,
        further: &Further,
        first: &RecordAt,
        (Told { changes, size, facts }, linked): (Told, bool),
    ) -> Result<(), SyncError> {
        let planned = Planned::new(further.action, further.kind, path.as_bytes().to_vec())
            .changes(changes)
            .target(self.first_name(first).unwrap_or_default().into_owned())
            .size(size)
            .facts(Some(facts));
        self.site.account.carried_out_by(planned, linked)
    }

    /// Returns the path of the name that is linked to.
    fn first_name(&self, first: &RecordAt) -> io::Result<Cow<'_, [u8]>> {
        match self.succession.successor(first.index()) {
            Some(successor) => Ok(Cow::Owned(successor.path)),
            None => self.noted.first_name(first),
        }
    }

    /// Makes one link, or a copy, in a directory with so many of the tree `above` its entries.
    fn make(
        &mut self,
        dir: &Arc<Dir>,
        above: usize,
        further: &Further,
        first: &RecordAt,
    ) -> io::Result<Made> {
        let (number, path) = (first.index(), self.first_name(first)?);
        let path = RelPath::parse(&path).map_err(io::Error::other)?;
        let (Some(parent), Some(first)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };

        let from = self.parent.open(self.root, &parent)?;
        self.check_text(above, further, &from, &first)?;
        let is_it = |now: &Metadata| self.succession.is_inode(number, now);
        let linked = self.site.carrying(&from, &first, || place(dir, further, (&from, &first), &is_it));
        match linked {
            Err(error) if cannot_link(&error) => {
                if !is_it(&from.stat(&first)?) {
                    return Err(OtherFile.into());
                }
                let (displaced, withheld) = match further.kind {
                    _ if self.is_copy(dir, &further.name, &from, &first) => Default::default(),
                    FileType::File => self.copy(dir, further, (&from, &first), &is_it)?,
                    // Of a link or a special file everything is in its attributes.
                    _ => {
                        let place = BackupPlace::new(Arc::clone(dir), further.name.clone());
                        (None, place.copy(&from, &first)?)
                    }
                };
                self.site.account.amend(|report| report.links_copied += 1);
                Ok(Made { linked: false, displaced, withheld })
            }
            result => {
                let withheld = Withheld::default();
                result.map(|displaced| Made { linked: true, displaced, withheld })
            }
        }
    }

    /// Refuses a further name of a symbolic link that would lead out from there. The name was judged
    /// by the text that the source listed for it, and gets that of the first one.
    fn check_text(&self, above: usize, further: &Further, from: &Dir, first: &Component) -> io::Result<()> {
        let options = &self.site.policy.options;
        let judged = options.safe_links || options.copy_unsafe_links;
        // A munged link leads nowhere.
        if further.kind != FileType::Symlink || !judged || options.munge_links.destination {
            return Ok(());
        }
        let leads_out = leads_out(above, &from.read_link(first)?);
        if leads_out { Err(io::Error::from_raw_os_error(NOT_PERMITTED)) } else { Ok(()) }
    }

    /// Returns whether the name is as a copy of the first would be: an earlier run may have made
    /// it.
    fn is_copy(&self, dir: &Dir, name: &Component, from: &Dir, first: &Component) -> bool {
        let (Ok(old), Ok(new)) = (dir.stat(name), from.stat(first)) else { return false };
        let facts = |entry: &Metadata| {
            (entry.kind, entry.size, entry.mtime, entry.mode, entry.uid, entry.gid, entry.rdev)
        };
        let options = &self.site.policy.options;
        let scope = ExtendedScope { acls: options.acls, xattrs: options.xattrs, users_only: false };
        let same_extended = || {
            scope.is_empty()
                || matches!((dir.extended(name, scope), from.extended(first, scope)), (Ok(a), Ok(b)) if a == b)
        };
        let same_text = || {
            old.kind != Kind::Symlink
                || matches!((dir.read_link(name), from.read_link(first)), (Ok(a), Ok(b)) if a == b)
        };
        // As everywhere, size and time stand for content unless the run is told not to believe
        // them.
        let believed = !options.checksum && !options.ignore_times;
        believed && facts(&old) == facts(&new) && same_text() && same_extended()
    }

    /// Copies the file that cannot have a further name. Returns the name of the directory that had its name,
    /// and what it lacks.
    fn copy(
        &self,
        dir: &Arc<Dir>,
        further: &Further,
        (from, first): (&Dir, &Component),
        is_it: &dyn Fn(&Metadata) -> bool,
    ) -> io::Result<(Option<Component>, Withheld)> {
        // Before it is read, which may change its access time.
        let Metadata { mode, mtime, atime, uid, gid, .. } = from.stat(first)?;
        let source = from.open_source_noatime(first)?;
        if !is_it(source.metadata()) {
            return Err(OtherFile.into());
        }
        let staged = self.site.homes.stage(dir, further.name.clone())?;
        let options = &self.site.policy.options;
        let copied = staged.copy_all(&source, self.sharing, options.writing.sparse);
        copied.map_err(CopyError::into_inner)?;

        let scope = ExtendedScope { acls: options.acls, xattrs: options.xattrs, users_only: false };
        let extended = if scope.is_empty() { None } else { Some(Arc::new(from.extended(first, scope)?)) };
        let wanted = Wanted {
            mode: Some(mode),
            mtime: Some(mtime),
            atime: options.atimes.then_some(atime),
            uid: Some(uid),
            gid: Some(gid),
            extended,
        };

        // Its name comes after the last group's: it is synced by itself.
        let durability = match self.site.durability() {
            Durability::None => Durability::None,
            _ => Durability::File,
        };
        let mut prepared = staged.prepare(&wanted, None, durability)?;
        let withheld = prepared.withheld();
        let displaced = further.displaces.then(|| prepared.displace()).flatten();
        prepared.commit().map_err(|error| {
            error.raw_os_error().map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
        })?;
        Ok((displaced, withheld))
    }
}

/// The error `EPERM`.
const NOT_PERMITTED: i32 = 1;

/// The error that a first name is no longer that of the file which the run gave it or found there.
#[derive(Debug, thiserror::Error)]
#[error("the first name is another file's now")]
struct OtherFile;

impl From<OtherFile> for io::Error {
    fn from(other: OtherFile) -> Self {
        Self::other(other)
    }
}

/// Links one name, if the first one is still what it was. Returns the name of the directory that had it.
fn place(
    dir: &Dir,
    further: &Further,
    (from, first): (&Dir, &Component),
    is_it: &dyn Fn(&Metadata) -> bool,
) -> io::Result<Option<Component>> {
    let link = |name: &Component| {
        let is_made = dir.make_hard_link_if(name, from, first, is_it)?;
        if is_made { Ok(()) } else { Err(OtherFile.into()) }
    };
    if !further.displaces {
        return link(&further.name).map(|()| None);
    }
    let temp = dsync_fs::temp_name()?;
    link(&temp)?;
    match dir.exchange(&temp, &further.name) {
        Ok(()) => Ok(Some(temp)),
        Err(error) => {
            // The next run removes its remains.
            let _ = dir.remove_file(&temp);
            Err(error)
        }
    }
}
