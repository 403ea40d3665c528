//! Walks one or several operands as one tree, directory by directory.
//!
//! Takes the operator's source operands and yields [`WalkedDir`]s in depth-first order: a
//! directory's own entry is always in an earlier listing. Entries are sorted by the bytes of their
//! names, the one order that both ends of a run share.
//!
//! Operands are merged as rsync merges them. If two bring the same name, the first wins;
//! directories of one name are joined and win over non-directories. Filters apply to named operands
//! as to everything else.
//!
//! Laws: the walk never leaves an operand: below it a link is followed only if it is one of
//! [`WalkOptions::follow`] (module `following`). Whatever cannot be read
//! is a [`WalkProblem`], never silence. An incomplete [`WalkedDir`] is marked as such. Any number
//! of read-ahead threads yields the same as none. Memory is bounded by the names of the pending
//! directories of the open levels and by the read-ahead, not by the size of a directory;
//! descriptors by a small constant and one per distinct operand directory.

mod candidate;
mod choice;
mod dir_ref;
mod entry;
mod following;
mod opening;
mod prune;
mod reading;
mod rulings;
mod terms;

use std::{
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    sync::Arc,
};

use rustix::{io::Errno, thread::sched_getaffinity};

pub use self::{
    choice::{Choice, Chooser},
    dir_ref::DirRef,
    entry::WalkedEntry,
    following::leads_out,
    rulings::{WalkRuled, WalkRuling, WantedRulings},
    terms::{FollowLinks, WalkOperation, WalkOptions},
};
use self::{
    opening::{Opening, Unopened},
    reading::{Child, WalkJob},
};
use crate::{
    component::{InvalidComponent, RelPath},
    dir::{Dir, LeadsOut},
    extended::{Extended, ExtendedScope},
    file_list::{FileList, NamedPath},
    filter::{RuleFileError, RuleFileFault},
    metadata::{Kind, Metadata},
    operand_paths::{PathSorter, RelativeForm},
    read_ahead::ReadAhead,
    spool::{SealedSpool, Spool, SpoolError},
};

/// Returns the useful number of [`readers`](WalkOptions::readers) of a machine: one per processor,
/// so that a cold disk gets more than one request at a time, but not so many that a spinning one
/// suffers.
///
/// A quota of processor time does not count, as readers wait for the disk. The standard library's
/// look at it takes a dozen system calls, as many as a small directory.
pub fn default_readers() -> usize {
    processors().clamp(2, 8)
}

/// Returns the number of processors that this thread may run on; 2 if the system does not tell.
pub fn processors() -> usize {
    sched_getaffinity(None).map_or(2, |set| usize::try_from(set.count()).unwrap_or(2))
}

/// The reason why a walk could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// An operand is not a valid path.
    #[error("operand {index} cannot be a path")]
    InvalidOperand {
        /// Position of the operand, 0-based.
        index: usize,
        /// The reason.
        #[source]
        source: InvalidComponent,
    },
    /// An operand of a relative walk goes upwards.
    #[error("operand {index} has '..' in it")]
    Upwards {
        /// Position of the operand, 0-based.
        index: usize,
    },
    /// The paths of a relative walk or of a list could not be kept.
    #[error("the paths to copy cannot be kept")]
    Keep(#[from] SpoolError),
    /// The directory of a list could not be opened.
    #[error("the directory of the list cannot be opened")]
    Root(#[source] io::Error),
    /// There are more operands than a walk supports.
    #[error("{count} operands are too many")]
    TooManyOperands {
        /// Number of operands.
        count: usize,
    },
}

/// An operand that could not be opened; the others are walked.
#[derive(Debug)]
pub struct OperandProblem {
    /// Position of the operand, 0-based.
    pub index: usize,
    /// The path below the transfer's root that is missing from where it begins, which exists.
    pub missing: Option<RelPath>,
    /// The operation that failed.
    pub operation: WalkOperation,
    /// The reason, e.g. [`NotFound`](io::ErrorKind::NotFound).
    pub error: io::Error,
}

impl OperandProblem {
    /// Returns whether nothing has that name. A link that leads nowhere has it.
    pub fn is_missing(&self) -> bool {
        self.operation != WalkOperation::FollowLink && is_missing(&self.error)
    }
}

/// A path of a list that is not walked.
#[derive(Debug)]
pub struct LostPath {
    /// The line as a path of the operator.
    pub path: Vec<u8>,
    /// The path below the transfer's root that is missing from where it begins, which exists.
    pub missing: Option<RelPath>,
    /// Whether it is a link that cannot be followed.
    pub is_link: bool,
    /// The reason: a number of the system, `EXDEV` for a way that leads out of a confining directory;
    /// `None` for a directory where none are copied.
    pub errno: Option<i32>,
}

impl LostPath {
    /// Returns whether nothing has that name. A link that leads nowhere has it.
    pub fn is_missing(&self) -> bool {
        !self.is_link && self.errno == Some(Errno::NOENT.raw_os_error())
    }

    /// Returns whether the way to it leads out of the directory that confines the walk.
    pub fn leads_out(&self) -> bool {
        self.errno == Some(Errno::XDEV.raw_os_error())
    }

    fn to_record(&self) -> Vec<u8> {
        let missing = self.missing.as_ref().map_or(&[][..], RelPath::as_bytes);
        let mut record = self.errno.unwrap_or(0).to_le_bytes().to_vec();
        record.push(u8::from(self.is_link));
        // Both are paths that a system call takes.
        record.extend_from_slice(&u32::try_from(missing.len()).unwrap_or(0).to_le_bytes());
        record.extend_from_slice(missing);
        record.extend_from_slice(&self.path);
        record
    }

    fn of_record(record: &[u8]) -> Option<Self> {
        let (errno, rest) = record.split_first_chunk()?;
        let (&is_link, rest) = rest.split_first()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (missing, path) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        let errno = Some(i32::from_le_bytes(*errno)).filter(|&errno| errno != 0);
        let missing = RelPath::parse(missing).ok().filter(|missing| !missing.is_root());
        Some(Self { path: path.to_vec(), missing, is_link: is_link != 0, errno })
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// A walk in progress: an iterator over [`WalkedDir`]s, the root first.
pub struct Walk {
    root: Option<(Metadata, Arc<Dir>)>,
    named_count: u32,
    single_file: bool,
    problems: Vec<OperandProblem>,
    skipped: Vec<RelPath>,
    rulings: Vec<WalkRuling>,
    lost: Option<SealedSpool>,
    ahead: ReadAhead<WalkJob>,
    /// Directories found in earlier parts of the current directory; they are walked after its last
    /// part.
    children: Vec<Child>,
    /// Whether no part of the current directory had a gap so far.
    complete: bool,
}

/// One directory, or a part of one that has very many names.
#[derive(Debug)]
pub struct WalkedDir {
    /// Path below the transfer's root; empty for the root.
    pub path: RelPath,
    /// Reference for opening its entries later.
    pub dir: DirRef,
    /// Its entries, without those left out, in byte order of the names.
    pub entries: Vec<WalkedEntry>,
    /// Whether this is the last part; the parts of a directory follow each other.
    pub last: bool,
    /// Of the last part: whether `entries` held everything that exists and was not left out. Only
    /// then does the absence of a name mean anything. Also false, without a problem, if the listing
    /// is not meant to be whole: the root if no operand stands for its contents, any directory of a
    /// walk that is not recursive, and another filesystem's root under `one_file_system`.
    pub complete: bool,
    /// Whether rules left out an entry of this part.
    pub left_out: bool,
    /// Entries that could not be read.
    pub problems: Vec<WalkProblem>,
    /// The reasons why entries take part or not, as far as [`WalkOptions::rulings`] wants that.
    pub rulings: Vec<WalkRuling>,
}

/// An entry that could not be read.
#[derive(Debug)]
pub struct WalkProblem {
    /// Path below the transfer's root.
    pub path: RelPath,
    /// The operation that failed.
    pub operation: WalkOperation,
    /// The reason; [`NotFound`](io::ErrorKind::NotFound) means that it vanished after it was
    /// listed.
    pub error: io::Error,
}

impl WalkProblem {
    /// Returns the problem of a file of rules, with its path as one below the root.
    fn of_rules(error: RuleFileError) -> Self {
        let path = RelPath::parse(error.path.strip_prefix(b"/").unwrap_or(&error.path)).unwrap_or_default();
        let error = match error.fault {
            RuleFileFault::Read(error) => error,
            fault => io::Error::new(io::ErrorKind::InvalidData, fault),
        };
        Self { path, operation: WalkOperation::ReadRules, error }
    }
}

impl Walk {
    /// Opens the operands. Nothing is listed yet.
    ///
    /// # Errors
    /// [`WalkError`] for operands that are not valid paths. An operand that is missing or cannot be
    /// opened is an [`OperandProblem`] instead: the others are walked, and the caller decides.
    pub fn open(operands: &[&Path], options: WalkOptions) -> Result<Self, WalkError> {
        if u32::try_from(operands.len()).is_err() {
            return Err(WalkError::TooManyOperands { count: operands.len() });
        }

        let mut opening = Opening { paths: PathSorter::new(&options.spools), ..Opening::default() };
        for (index, operand) in operands.iter().enumerate() {
            let opened = if options.relative {
                opening.relative(index, operand, &options)?
            } else {
                opening.plain(index, operand, &options)?
            };
            if let Err(Unopened { missing, operation, error }) = opened {
                opening.problems.push(OperandProblem { index, missing, operation, error });
            }
        }
        let single_file =
            operands.len() == 1 && matches!(opening.named.as_slice(), [only] if only.kind != Kind::Dir);
        let single_file = single_file || operands.len() == 1 && opening.single;
        Ok(Self { single_file, ..opening.walk(options)? })
    }

    /// Opens the contents of a directory that is open already. Nothing is listed yet.
    ///
    /// # Errors
    /// [`WalkError::Root`] for a directory that may not be read.
    pub fn beneath(root: &Dir, options: WalkOptions) -> Result<Self, WalkError> {
        let mut opening = Opening { paths: PathSorter::new(&options.spools), ..Opening::default() };
        let own = root.reopen().map_err(WalkError::Root)?;
        opening.contents_of(own, &options).map_err(WalkError::Root)?;
        opening.walk(options)
    }

    /// Opens the paths of a list below a directory. Each is looked at once; nothing is listed yet.
    /// Those that cannot be walked are [`lost`](Self::lost).
    ///
    /// # Errors
    /// [`WalkError::Root`]; [`WalkError::Keep`]; [`WalkError::InvalidOperand`] for a directory that
    /// cannot be a path.
    pub fn open_list(root: &Path, list: &FileList, options: WalkOptions) -> Result<Self, WalkError> {
        options.watch_operand(root, true);
        let dir = options.open(root).map_err(WalkError::Root)?;
        let paths = PathSorter::new(&options.spools);
        let mut opening = Opening { paths, list: Some((dir, root.to_owned())), ..Opening::default() };
        let mut lost = Spool::new(&options.spools);
        for line in list.unusable() {
            let errno = Some(rustix::io::Errno::NAMETOOLONG.raw_os_error());
            lost.push(&LostPath { path: line.clone(), missing: None, is_link: false, errno }.to_record())?;
        }

        let first = list.first_of_each().map(|named| (named, true));
        for (NamedPath { base, path, contents }, is_first) in
            first.chain(list.named().map(|named| (named, false)))
        {
            let invalid = |source| WalkError::InvalidOperand { index: 0, source };
            if let Some((dir, _)) = &opening.list {
                let names = [base, path].into_iter().filter(|names| !names.is_empty());
                options.watch_path(dir, &names.collect::<Vec<_>>().join(&b'/'), contents);
            }
            let base = root.join(OsStr::from_bytes(base));
            let named = {
                let path = base.join(OsStr::from_bytes(path));
                move || path.strip_prefix(".").unwrap_or(&path).as_os_str().as_bytes().to_vec()
            };
            let opened = if path.is_empty() {
                opening.contents(&base, &options).map_err(Unopened::from)
            } else if is_first {
                // Only its directory gets its place now; a failure is told with each path.
                let _ = opening.base_layer(&base, &options);
                continue;
            } else {
                let path = RelPath::parse(path).map_err(invalid)?;
                let base = base.into_os_string().into_vec();
                let form = RelativeForm { base, path, contents, from_root: false };
                opening.path(Path::new(OsStr::from_bytes(&form.base)), &form, &options)?
            };
            if let Err(Unopened { missing, operation, error }) = opened {
                let is_link = operation == WalkOperation::FollowLink;
                // The kernel's number for a path that leaves a directory (`RESOLVE_BENEATH`).
                let own = if LeadsOut::of(&error).is_some() { Errno::XDEV } else { Errno::IO };
                let errno = Some(error.raw_os_error().unwrap_or_else(|| own.raw_os_error()));
                lost.push(&LostPath { path: named(), missing, is_link, errno }.to_record())?;
            }
            if opening.skipped.pop().is_some() {
                let skipped = LostPath { path: named(), missing: None, is_link: false, errno: None };
                lost.push(&skipped.to_record())?;
            }
        }

        if let Some(base) = list.root_on_the_way() {
            opening.root_on_the_way(&root.join(OsStr::from_bytes(base)), &options);
        }

        Ok(Self { lost: Some(lost.seal()?), ..opening.walk(options)? })
    }

    /// Returns the attributes of the transfer's root: those of the first operand that stands for
    /// its contents, or has it on its way. Returns `None` if there is none: the root is then only
    /// the place where named entries meet.
    pub fn root(&self) -> Option<&Metadata> {
        self.root.as_ref().map(|(metadata, _)| metadata)
    }

    /// Returns the lists and attributes of the transfer's root; `None` if [`root`](Self::root) is
    /// `None`.
    ///
    /// # Errors
    /// As [`Dir::own_source_extended`].
    pub fn root_extended(&self, scope: ExtendedScope) -> io::Result<Option<Extended>> {
        self.root.as_ref().map(|(_, dir)| dir.own_source_extended(scope)).transpose()
    }

    /// Returns the number of entries of the root that operands themselves name.
    pub fn named(&self) -> u32 {
        self.named_count
    }

    /// Returns whether there is one operand and it is not a directory.
    pub fn single_file(&self) -> bool {
        self.single_file
    }

    /// Returns the paths of the directories that operands name and that the walk leaves out because
    /// it takes none.
    pub fn skipped(&self) -> &[RelPath] {
        &self.skipped
    }

    /// Returns why entries that operands name take part or not, as far as
    /// [`WalkOptions::rulings`] wants that.
    pub fn rulings(&self) -> &[WalkRuling] {
        &self.rulings
    }

    /// Returns the paths of a list that are not walked.
    ///
    /// Each item fails as those of [`SealedSpool::iter`].
    pub fn lost(&self) -> impl Iterator<Item = Result<LostPath, SpoolError>> {
        let records = self.lost.iter().flat_map(SealedSpool::iter);
        records.filter_map(|record| match record {
            Ok(record) => LostPath::of_record(&record).map(Ok),
            Err(error) => Some(Err(error)),
        })
    }

    /// Returns the operands that could not be opened.
    pub fn operand_problems(&self) -> &[OperandProblem] {
        &self.problems
    }
}

impl Iterator for Walk {
    type Item = WalkedDir;

    fn next(&mut self) -> Option<WalkedDir> {
        let part = self.ahead.next()?;
        let mut walked = part.walked;
        self.children.extend(part.children);
        self.complete &= walked.complete;
        walked.complete = self.complete;
        if walked.last {
            self.complete = true;
            let children = std::mem::take(&mut self.children);
            self.ahead.push(children.into_iter().map(WalkJob::Child));
        }
        Some(walked)
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("root", &self.root)
            .field("named", &self.named_count)
            .finish_non_exhaustive()
    }
}

/// Most directories that are read ahead: enough that a reader seldom sleeps.
const MAX_READY: usize = 256;
