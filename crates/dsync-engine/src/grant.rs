//! The rights of a client whom an administrator has let in for one purpose: a directory, and an
//! [`Access`] to it.
//!
//! Takes the client's requests ([`PeerRole`] and [`SyncOptions`]) as a list of [`Demand`]s and
//! decides each by the table in [`Access::allows`]. The law: the client's words narrow the run,
//! never widen it. Other means, which ask nobody, keep the rest: paths start at the grant's
//! directory and end below it ([`Dir::confining`]), and where only additions are allowed the
//! destination's directories refuse everything else ([`Dir::adding_only`]).
//!
//! It does not know how the client was let in: `dsync --server --restrict` makes a grant from its
//! own command line, a server that stands makes one for each of its users.

mod limits;
mod owners;
mod start;

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Instant,
};

use dsync_fs::{Dir, Meter, Usage};
use dsync_wire::{
    message::{ListPlace, Operation, PeerRole},
    options::{Append, DetectRenamed, SyncOptions},
    path::EntryPath,
    setters,
};

pub(crate) use self::start::Start;
pub use self::{
    limits::{Excess, Limits, OptionRules, Request},
    owners::{OwnerRule, OwnerRules},
};
use crate::{SyncError, Tally, keep::Keep};
pub use dsync_fs::Quota;

/// The operations that are allowed in a directory.
///
/// ```
/// use dsync_engine::{Access, grant::Demand};
///
/// // A settings page: what each access allows, in the words of the configuration.
/// for access in Access::EACH {
///     let removes = access.allows(Demand::Delete);
///     println!("{} ({}): {}, removes: {removes}", access.role(), access.word(), access.purpose());
/// }
/// assert!(!Access::Append.allows(Demand::Delete) && Access::Append.allows(Demand::Write));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Everything that stays in it: `rw`.
    ReadWrite,
    /// It may be copied from: `ro`.
    ReadOnly,
    /// It may be copied to, also over existing files, and deleted from: `wo`. Existing files cannot
    /// be copied, but a client learns their names and attributes, and whether they, or blocks of
    /// them, equal its own.
    WriteOnly,
    /// It may be copied from, and new entries may be added: `append`. Nothing that exists is
    /// changed, replaced or removed.
    Append,
    /// It may be copied from and to, also over existing files, but nothing is removed: `write`.
    Write,
    /// It may be copied from and to, also over existing files, and deleted from; what is replaced
    /// or removed moves to a place beyond the client's reach: `keep`. Only a
    /// [`Share`](crate::Share) has such a place.
    Keep,
}

impl Access {
    /// Each that a directory is enough for: all but [`Keep`](Self::Keep).
    pub const EACH: [Self; 5] = [Self::ReadWrite, Self::ReadOnly, Self::WriteOnly, Self::Append, Self::Write];

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
            Self::WriteOnly => "wo",
            Self::Append => "append",
            Self::Write => "write",
            Self::Keep => "keep",
        }
    }

    /// Returns the word for it as the role of a key in a share, and in `--restrict` where it is no
    /// role.
    pub fn role(self) -> &'static str {
        match self {
            Self::ReadWrite => "full",
            Self::ReadOnly => "read",
            other => other.word(),
        }
    }

    /// Returns whether something may be done.
    pub fn allows(self, demand: Demand) -> bool {
        let [rw, ro, wo, append, write, keep] = match demand {
            Demand::Read => [true, true, false, true, true, true],
            Demand::Write | Demand::MakePath | Demand::TempDir | Demand::Alternates => {
                [true, false, true, true, true, true]
            }
            // Without a path it tells whether a file of some content is there.
            Demand::DetectRenamed => [true, false, false, true, true, true],
            // A kept entry may be another name of the file that would be written into.
            Demand::InPlace => [true, false, true, false, true, false],
            Demand::Delete | Demand::Force => [true, false, true, false, false, true],
            // A backup takes the place of an older one, which may be a directory. The last two
            // remove a directory that may hold files of others.
            Demand::Backup | Demand::DelayUpdates | Demand::PartialDir => {
                [true, false, true, false, false, false]
            }
            Demand::RemoveSource => [true, false, false, false, false, false],
            // They give the client a say in where paths lead or whose rights count, or lead to what is
            // no file.
            Demand::KeepDirlinks
            | Demand::ImpliedDirs
            | Demand::InsecureLinks
            | Demand::CopyDevices
            | Demand::WriteDevices
            | Demand::CopyAs => [false; 6],
        };

        match self {
            Self::ReadWrite => rw,
            Self::ReadOnly => ro,
            Self::WriteOnly => wo,
            Self::Append => append,
            Self::Write => write,
            Self::Keep => keep,
        }
    }

    /// Returns the words for it in a message.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::ReadWrite => "copying to and from it",
            Self::ReadOnly => "copying from it",
            Self::WriteOnly => "copying to it",
            Self::Append => "copying from it and adding to it",
            Self::Write => "copying to and from it, without removing anything,",
            Self::Keep => "copying to and from it, while what is replaced or removed is kept,",
        }
    }
}

/// One thing that a client can ask for.
///
/// ```
/// use dsync_engine::{Access, grant::Demand};
///
/// // A share for archives: of all that clients ask for, what can take a file away is refused.
/// let mut refused = Demand::EACH.into_iter().filter(|demand| !Access::Append.allows(*demand));
/// assert!(refused.any(|demand| demand == Demand::Delete));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Demand {
    /// The client is the destination: a pull, or the list that a dry run of a pull prints.
    Read,
    /// The client is the source: a push.
    Write,
    /// Entries that the source does not have are removed.
    Delete,
    /// A directory that is not empty is replaced by an entry of another type.
    Force,
    /// Files are rewritten in place or added to.
    InPlace,
    /// Replaced and removed entries get another name.
    Backup,
    /// Arrived files wait for their names under other ones, also for a later run.
    DelayUpdates,
    /// Unfinished files have a directory that is made and removed.
    PartialDir,
    /// Content is written in another directory first.
    TempDir,
    /// Files of other directories are used.
    Alternates,
    /// Files of the destination are looked for by size, time and name.
    DetectRenamed,
    /// Missing parents of the destination are made.
    MakePath,
    /// Copied files are removed from here.
    RemoveSource,
    /// The content of devices is copied from here.
    CopyDevices,
    /// Content is written into devices here.
    WriteDevices,
    /// Links to directories are followed in the destination.
    KeepDirlinks,
    /// Links to directories are followed on the way to relative paths, whose parents stay as they are.
    ImpliedDirs,
    /// Links of other users are followed on the way to the destination.
    InsecureLinks,
    /// The work is done as another user.
    CopyAs,
}

impl Demand {
    /// All of them.
    pub const EACH: [Self; 19] = [
        Self::Read,
        Self::Write,
        Self::Delete,
        Self::Force,
        Self::InPlace,
        Self::Backup,
        Self::DelayUpdates,
        Self::PartialDir,
        Self::TempDir,
        Self::Alternates,
        Self::DetectRenamed,
        Self::MakePath,
        Self::RemoveSource,
        Self::CopyDevices,
        Self::WriteDevices,
        Self::KeepDirlinks,
        Self::ImpliedDirs,
        Self::InsecureLinks,
        Self::CopyAs,
    ];

    /// Lists a client's demands in the request that assigns this end its role.
    pub(crate) fn of((role, list): (&PeerRole, &ListPlace), options: &SyncOptions) -> Vec<Self> {
        // Its lines are sent to the client.
        let lists = matches!(list, ListPlace::File { .. });
        let writing = &options.writing;

        let asked: &[(Self, bool)] = match role {
            PeerRole::Source { .. } => &[
                (Self::Read, true),
                (Self::RemoveSource, options.remove_source_files),
                (Self::CopyDevices, options.copy_devices),
                (Self::CopyAs, options.copy_as.source.is_some()),
            ],
            PeerRole::Destination { .. } => &[
                (Self::Write, true),
                // The whole tree, with the hashes of what was written.
                (Self::Read, lists || options.event_tree),
                (Self::Delete, options.delete || options.delete_excluded || options.delete_missing_args),
                (Self::Force, options.force),
                // Before what it implies, so that the message names it.
                (Self::WriteDevices, writing.devices),
                (Self::InPlace, writing.inplace || writing.append != Append::No),
                (Self::Backup, writing.backup.is_some()),
                (Self::DelayUpdates, writing.delay_updates),
                (Self::PartialDir, writing.partial_dir.is_some()),
                (Self::TempDir, writing.temp_dir.is_some()),
                (Self::Alternates, writing.alternates.is_some()),
                (Self::DetectRenamed, options.detect_renamed == DetectRenamed::Always),
                (Self::MakePath, options.mkpath),
                (Self::KeepDirlinks, options.keep_dirlinks),
                (Self::ImpliedDirs, options.follows_dirlinks() && !options.keep_dirlinks),
                (Self::InsecureLinks, options.insecure_links),
                (Self::CopyAs, options.copy_as.destination.is_some()),
            ],
        };

        asked.iter().filter(|(_, asked)| *asked).map(|(demand, _)| *demand).collect()
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Delete => "deleting",
            Self::Force => "removing directories by force",
            Self::InPlace => "rewriting files in place",
            Self::Backup => "making backups",
            Self::DelayUpdates => "delaying updates",
            Self::PartialDir => "a directory for partial files",
            Self::TempDir => "a directory for temporary files",
            Self::Alternates => "the use of alternate directories",
            Self::DetectRenamed => "looking for moved files",
            Self::MakePath => "making the destination's parents",
            Self::RemoveSource => "removing source files",
            Self::WriteDevices => "writing into devices",
            Self::CopyDevices => "copying the content of devices",
            Self::KeepDirlinks => "following links to directories",
            Self::ImpliedDirs => "following links on the way to relative paths",
            Self::InsecureLinks => "following the links of others",
            Self::CopyAs => "working as another user",
        })
    }
}

/// A directory and what a client may do in it.
///
/// ```
/// use dsync_engine::{Access, Grant, GrantTerms, Limits};
///
/// # let home = tempfile::tempdir()?;
/// let terms = GrantTerms::new(home.path().into(), Access::ReadWrite);
/// let grant = Grant::open(terms)?.limited(Limits::default().largest_file(Some(1 << 30)));
///
/// // A status page keeps this while a `Server` has the grant. Of one directory there is one identity.
/// let (tally, directory) = (grant.tally(), grant.identity()?);
/// assert_eq!((tally.files(), tally.entries(), tally.traffic().sent_bytes), (0, 0, 0));
/// # let _ = directory;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Grant {
    terms: GrantTerms,
    floor: Arc<Dir>,
    keep: Option<Arc<Keep>>,
    limits: Limits,
    /// Counts what a client with a quota writes, once it does.
    meter: OnceLock<Arc<Meter>>,
    tally: Tally,
    holder: Vec<u8>,
}

/// The terms that an administrator wrote.
///
/// ```
/// use dsync_engine::{Access, GrantTerms, GrantTermsError};
///
/// let terms = GrantTerms::parse("/srv/photos,append".as_ref())?;
/// assert_eq!((terms.access, terms.path.to_str()), (Access::Append, Some("/srv/photos")));
/// // Clients hear of a share by its name, if it has one.
/// assert!(terms.share(Some("photos".into())).place().contains("photos"));
/// # Ok::<(), GrantTermsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantTerms {
    /// The directory.
    pub path: PathBuf,
    /// The operations that are allowed there.
    pub access: Access,
    /// The name under which a server's configuration has it.
    pub share: Option<String>,
}

impl GrantTerms {
    /// Makes the terms for a directory.
    pub fn new(path: PathBuf, access: Access) -> Self {
        Self { path, access, share: None }
    }
}

setters!(GrantTerms {
    path: PathBuf,
    access: Access,
    share: Option<String>,
});

/// The reason why a word is no [`GrantTerms`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantTermsError {
    /// There is no directory.
    #[error("names no directory")]
    NoPath,
    /// The text after the last comma is no access. A directory whose name has a comma needs one
    /// after it, too: a slip is never read as leave to do everything.
    #[error(
        "'{word}' after the last comma is none of rw, ro, wo, append and write (of a directory with a comma in its name, \
             say which of them: PATH,rw)"
    )]
    UnknownAccess {
        /// The text after the comma.
        word: String,
    },
}

impl GrantTerms {
    /// Reads `PATH[,rw|ro|wo|append|write]`; without a word it is [`Access::ReadWrite`].
    ///
    /// # Errors
    /// [`GrantTermsError`].
    pub fn parse(text: &OsStr) -> Result<Self, GrantTermsError> {
        let bytes = text.as_bytes();
        let (path, word) = match bytes.iter().rposition(|&byte| byte == b',') {
            Some(comma) => (&bytes[..comma], Some(&bytes[comma + 1..])),
            None => (bytes, None),
        };
        let access = match word {
            None => Access::ReadWrite,
            Some(word) => {
                Access::EACH.into_iter().find(|access| access.word().as_bytes() == word).ok_or_else(|| {
                    GrantTermsError::UnknownAccess { word: String::from_utf8_lossy(word).into_owned() }
                })?
            }
        };
        if path.is_empty() {
            return Err(GrantTermsError::NoPath);
        }
        Ok(Self { path: PathBuf::from(OsString::from_vec(path.to_vec())), access, share: None })
    }
}

impl GrantTerms {
    /// Returns the words for the directory in a message to the client, who knows a share by its
    /// name only.
    pub fn place(&self) -> String {
        match &self.share {
            Some(share) => format!("share '{share}'"),
            None => format!("'{}'", self.path.display()),
        }
    }
}

impl fmt::Display for GrantTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.path.display(), self.access.word())
    }
}

impl Grant {
    /// Opens the directory. Its path is the administrator's and may pass through any link.
    ///
    /// # Errors
    /// The system's error, e.g. when the directory does not exist; `InvalidInput` for
    /// [`Access::Keep`], as nothing would be kept.
    pub fn open(terms: GrantTerms) -> io::Result<Self> {
        let floor = Dir::open_operand(&terms.path)?;
        Self::at(terms, floor, None)
    }

    /// Makes a grant of a directory that is open.
    pub(crate) fn at(terms: GrantTerms, floor: Dir, keep: Option<Keep>) -> io::Result<Self> {
        if terms.access == Access::Keep && keep.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            terms,
            floor: Arc::new(floor.confining()?),
            keep: keep.map(Arc::new),
            limits: Limits::default(),
            meter: OnceLock::new(),
            tally: Tally::default(),
            holder: Vec::new(),
        })
    }

    /// Names the client. Unfinished files that it leaves are taken up by a later session of the same
    /// name only: to another client they would be content that nobody has verified. Default: all
    /// clients have one name, the empty one.
    #[must_use]
    pub fn held_by(mut self, holder: &str) -> Self {
        self.holder = holder.into();
        self
    }

    /// Sets limits beside the access. Default: none.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the counts of the session that has the grant.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Decides on all that a client asks for; the first thing that it may not is the error.
    pub(crate) fn check(
        &self,
        (role, list): (&PeerRole, &ListPlace),
        options: &SyncOptions,
    ) -> Result<(), SyncError> {
        let mut demands = Demand::of((role, list), options).into_iter();
        if let Some(demand) = demands.find(|demand| !self.terms.access.allows(*demand)) {
            return Err(SyncError::NotGranted { demand, terms: self.terms.clone() });
        }

        let writes = matches!(role, PeerRole::Destination { .. });
        let reads_list = matches!(list, ListPlace::File { .. });
        let request = Request { options, writes, reads_list };
        self.check_time()?;
        self.within(self.limits.excess_of_request(&request))
    }

    /// Writes the administrator's rules for owners into the options of this end. Moved files are not
    /// looked for unasked where the client may not ask for it.
    pub(crate) fn impose(&self, (role, list): (&PeerRole, &ListPlace), options: &mut SyncOptions) {
        self.limits.owners.impose(options, matches!(role, PeerRole::Destination { .. }));
        if options.detect_renamed == DetectRenamed::Auto {
            let asking = options.clone().detect_renamed(DetectRenamed::Always);
            if self.check((role, list), &asking).is_err() {
                options.detect_renamed = DetectRenamed::Never;
            }
        }
    }

    /// Counts what lies in the directory, for a client that is about to write there and has a quota.
    ///
    /// # Errors
    /// [`SyncError::Filesystem`] where something cannot be counted.
    pub(crate) fn begin_writing(&self, options: &SyncOptions) -> Result<(), SyncError> {
        let quota = self.limits.quota;
        if quota.is_endless() {
            return Ok(());
        }
        let kept = || self.keep.as_ref().map_or_else(|| Ok(Usage::default()), |keep| keep.usage());
        let used = self.floor.usage().and_then(|own| Ok(own.plus(kept()?)));
        let used = used.map_err(|source| SyncError::Filesystem {
            operation: Operation::ReadDestination,
            path: PathBuf::from(self.terms.place()),
            source,
        })?;
        let replaced_stay = self.keep.is_some() || options.writing.backup.is_some();
        let _ = self.meter.set(Arc::new(Meter::new(quota, used).replaced_stay(replaced_stay)));
        Ok(())
    }

    /// Opens the directory for writing, with its meter.
    fn writable(&self) -> io::Result<Dir> {
        Ok(self.floor.duplicate()?.metered(self.meter.get().cloned()))
    }

    /// Checks the length of a file that the client writes.
    fn check_length(&self, bytes: u64, path: impl FnOnce() -> EntryPath) -> Result<(), SyncError> {
        self.within(self.limits.excess_of_file(bytes, path))
    }

    /// Checks that the session may still go on.
    pub(crate) fn check_time(&self) -> Result<(), SyncError> {
        self.within(self.limits.excess_of_time(Instant::now()))
    }

    fn within(&self, excess: Option<Excess>) -> Result<(), SyncError> {
        match excess {
            None => Ok(()),
            Some(excess) => Err(SyncError::LimitExceeded { excess, terms: self.terms.clone() }),
        }
    }

    /// Returns the directory where the client's paths start and end.
    pub(crate) fn floor(&self) -> &Arc<Dir> {
        &self.floor
    }

    /// Returns the directory, and the operations that are allowed there.
    pub fn terms(&self) -> &GrantTerms {
        &self.terms
    }

    /// Returns the device and the inode of the directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let found = self.floor.metadata()?;
        Ok((found.dev, found.ino))
    }

    /// Returns whether an entry may go that nothing replaces.
    fn may_remove(&self, options: &SyncOptions) -> bool {
        let asking = options.clone().delete(true);
        let allows = self.terms.access.allows(Demand::Delete);
        allows && self.limits.excess_of_request(&Request::new(&asking, true)).is_none()
    }

    /// Returns whether nothing that exists may change.
    pub(crate) fn adds_only(&self) -> bool {
        self.terms.access == Access::Append
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::{
        message::Asked,
        options::{ActAs, AlternateUse, Alternates, Backup, CopyAs},
    };

    use super::*;

    const NO_LIST: ListPlace = ListPlace::None;

    fn source() -> PeerRole {
        PeerRole::Source { paths: vec![b"x".to_vec()] }
    }

    fn destination() -> PeerRole {
        PeerRole::Destination { path: b"x".to_vec(), asked: Asked::default() }
    }

    /// The table of docs/cli.md, cell by cell.
    #[test]
    fn each_access_allows_what_the_table_says() {
        use Access::{Append, ReadOnly, ReadWrite, Write, WriteOnly};
        for demand in Demand::EACH {
            let allowed: Vec<_> = Access::EACH.into_iter().filter(|access| access.allows(demand)).collect();
            let expected: &[Access] = match demand {
                Demand::Read => &[ReadWrite, ReadOnly, Append, Write],
                Demand::Write | Demand::TempDir | Demand::Alternates | Demand::MakePath => {
                    &[ReadWrite, WriteOnly, Append, Write]
                }
                Demand::DetectRenamed => &[ReadWrite, Append, Write],
                Demand::InPlace => &[ReadWrite, WriteOnly, Write],
                Demand::Delete
                | Demand::Force
                | Demand::Backup
                | Demand::DelayUpdates
                | Demand::PartialDir => &[ReadWrite, WriteOnly],
                Demand::RemoveSource => &[ReadWrite],
                Demand::KeepDirlinks
                | Demand::ImpliedDirs
                | Demand::InsecureLinks
                | Demand::CopyDevices
                | Demand::WriteDevices
                | Demand::CopyAs => &[],
            };
            assert_eq!(allowed, expected, "{demand:?}");
        }
    }

    /// Options of which each is one demand of a push.
    fn each_option() -> Vec<(Demand, SyncOptions)> {
        let plain = SyncOptions::default;
        let with = |change: &dyn Fn(&mut SyncOptions)| {
            let mut options = plain();
            change(&mut options);
            options
        };
        vec![
            (Demand::Delete, with(&|options| options.delete = true)),
            (Demand::Delete, with(&|options| options.delete_excluded = true)),
            (Demand::Delete, with(&|options| options.delete_missing_args = true)),
            (Demand::Force, with(&|options| options.force = true)),
            (Demand::DetectRenamed, with(&|options| options.detect_renamed = DetectRenamed::Always)),
            (Demand::InPlace, with(&|options| options.writing.inplace = true)),
            (Demand::WriteDevices, with(&|options| options.writing.devices = true)),
            (Demand::Backup, with(&|options| options.writing.backup = Some(Backup::new(b"~".to_vec())))),
            (Demand::DelayUpdates, with(&|options| options.writing.delay_updates = true)),
            (Demand::PartialDir, with(&|options| options.writing.partial_dir = Some(b"p".to_vec()))),
            (Demand::TempDir, with(&|options| options.writing.temp_dir = Some(b"t".to_vec()))),
            (
                Demand::Alternates,
                with(&|options| {
                    let alternates = Alternates::new(AlternateUse::Link, vec![b"a".to_vec()]);
                    options.writing.alternates = Some(alternates);
                }),
            ),
            (Demand::MakePath, with(&|options| options.mkpath = true)),
            (Demand::KeepDirlinks, with(&|options| options.keep_dirlinks = true)),
            (
                Demand::ImpliedDirs,
                with(&|options| (options.relative, options.no_implied_dirs) = (true, true)),
            ),
            (Demand::InsecureLinks, with(&|options| options.insecure_links = true)),
            (
                Demand::CopyAs,
                with(&|options| {
                    options.copy_as.destination = Some(ActAs::new(b"root".to_vec()));
                }),
            ),
        ]
    }

    #[test]
    fn every_option_of_a_push_is_the_demand_that_it_is() {
        let plain = SyncOptions::archive();
        assert_eq!(Demand::of((&destination(), &NO_LIST), &plain), [Demand::Write]);
        assert_eq!(Demand::of((&source(), &NO_LIST), &plain), [Demand::Read]);
        for (demand, options) in each_option() {
            assert_eq!(Demand::of((&destination(), &NO_LIST), &options), [Demand::Write, demand]);
            // Changes of the client to its own tree are its own affair.
            assert_eq!(Demand::of((&source(), &NO_LIST), &options), [Demand::Read]);
        }
        let opening = plain.clone().copy_devices(true);
        assert_eq!(Demand::of((&source(), &NO_LIST), &opening), [Demand::Read, Demand::CopyDevices]);
        assert_eq!(Demand::of((&destination(), &NO_LIST), &opening), [Demand::Write]);
        let other = CopyAs::default().source(Some(ActAs::new(b"root".to_vec())));
        let acting = plain.clone().copy_as(other);
        assert_eq!(Demand::of((&source(), &NO_LIST), &acting), [Demand::Read, Demand::CopyAs]);
        assert_eq!(Demand::of((&destination(), &NO_LIST), &acting), [Demand::Write]);
        let moving = plain.remove_source_files(true);
        assert_eq!(Demand::of((&source(), &NO_LIST), &moving), [Demand::Read, Demand::RemoveSource]);
        assert_eq!(Demand::of((&destination(), &NO_LIST), &moving), [Demand::Write]);
        let list = ListPlace::File { path: b"list".to_vec(), nul: false };
        assert_eq!(
            Demand::of((&destination(), &list), &SyncOptions::archive()),
            [Demand::Write, Demand::Read]
        );
    }

    #[test]
    fn a_grant_refuses_by_the_first_thing_that_it_does_not_allow() {
        let scratch = tempfile::tempdir().unwrap();
        for access in Access::EACH {
            let grant = Grant::open(GrantTerms { path: scratch.path().to_owned(), access, share: None });
            let grant = grant.unwrap();
            for (demand, options) in each_option() {
                let outcome = grant.check((&destination(), &NO_LIST), &options);
                let refused = [Demand::Write, demand].into_iter().find(|demand| !access.allows(*demand));
                match (outcome, refused) {
                    (Ok(()), None) => {}
                    (Err(error), Some(refused)) => {
                        assert_eq!(error.exit_code(), crate::exit_code::POLICY);
                        let text = error.to_string();
                        assert!(
                            text.starts_with(&refused.to_string()) && text.contains(access.purpose()),
                            "{text}"
                        );
                    }
                    other => panic!("{access:?} {demand:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn nothing_is_granted_that_would_be_kept_nowhere() {
        use Demand::{Alternates, Delete, DetectRenamed, Force, MakePath, Read, TempDir, Write};
        let scratch = tempfile::tempdir().unwrap();
        let terms = GrantTerms { path: scratch.path().to_owned(), access: Access::Keep, share: None };
        assert_eq!(Grant::open(terms).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(GrantTerms::parse(OsStr::new("/srv/b,keep")).is_err());
        let allowed: Vec<_> =
            Demand::EACH.into_iter().filter(|demand| Access::Keep.allows(*demand)).collect();
        assert_eq!(allowed, [Read, Write, Delete, Force, TempDir, Alternates, DetectRenamed, MakePath]);
    }

    #[test]
    fn a_word_that_is_no_access_is_never_read_as_a_path() {
        let parse = |text: &str| GrantTerms::parse(OsStr::new(text));
        let terms = |path: &str, access| Ok(GrantTerms { path: path.into(), access, share: None });
        assert_eq!(parse("/srv/b"), terms("/srv/b", Access::ReadWrite));
        assert_eq!(parse("/srv/b,append"), terms("/srv/b", Access::Append));
        assert_eq!(parse("/srv/a,b,ro"), terms("/srv/a,b", Access::ReadOnly));
        assert_eq!(parse("rel,wo"), terms("rel", Access::WriteOnly));
        assert_eq!(parse("/srv/b,write"), terms("/srv/b", Access::Write));
        for text in ["/srv/b,apend", "/srv/b,", "/srv/b,RO", "/srv/a,b", "/srv,ro "] {
            assert!(matches!(parse(text), Err(GrantTermsError::UnknownAccess { .. })), "{text}");
        }
        for text in ["", ",ro"] {
            assert_eq!(parse(text), Err(GrantTermsError::NoPath), "{text}");
        }
    }
}
