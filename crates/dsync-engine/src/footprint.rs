//! The directories that one end of a run touches, as far as its operands and options name them, and
//! the means to confine it to them: a [`Cage`].
//!
//! The engine knows the directories, and when its threads have not begun yet. The program decides
//! what a cage is made of (and whether a process may be caged at all), so the library only calls.
//! The law: a footprint is opened in the same way as the run opens its directories, so it never
//! holds a directory that the run would refuse. For a directory that does not exist yet it holds
//! the nearest one that does.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component as Step, Path, PathBuf},
};

use dsync_fs::{Dir, Kind, Links, OperandForm};
use dsync_wire::options::{AlternateUse, SyncOptions};

use crate::{State, grant::Start};

/// The operations of a run below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch {
    /// It lists and reads.
    Read,
    /// It adds entries there, moved from elsewhere, and neither reads nor removes any.
    Add,
    /// It also removes files (`--remove-source-files`).
    Take,
    /// It makes, changes and removes whatever it likes.
    Write,
}

/// The threads that a cage is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inmates {
    /// All of the process, which is there for this run only.
    Process,
    /// The calling one and those that it starts.
    Thread,
}

/// The confinement of an end that faces a peer.
///
/// ```
/// use dsync_engine::{Cage, Footprint, Inmates, Touch};
///
/// /// Confines a process that serves one session, by Landlock for instance.
/// #[derive(Debug)]
/// struct Confined;
///
/// impl Cage for Confined {
///     fn enter(&self, footprint: &Footprint, inmates: Inmates) {
///         if footprint.is_unbounded() || inmates == Inmates::Thread {
///             return;
///         }
///         for (directory, touch) in footprint.places() {
///             let may_write = touch != Touch::Read;
///             // Add a rule for `directory` here.
/// # let _ = (directory, may_write);
///         }
///     }
///
///     fn enter_carrier(&self) {
///         // Threads that only carry bytes need no file at all.
///     }
///
///     fn lacks(&self) -> Vec<String> {
///         vec!["this system has no Landlock".into()]
///     }
/// }
/// # assert_eq!(Confined.lacks().len(), 1);
/// ```
pub trait Cage: fmt::Debug + Send + Sync {
    /// Takes away from the inmates all that a run with this footprint does not need. Called once
    /// for each session, before the session's threads start. If something cannot be taken away, the
    /// cage reports that: the run goes on.
    fn enter(&self, footprint: &Footprint, inmates: Inmates);

    /// Takes all files from the calling thread and those that it starts, which carry bytes and do
    /// nothing else. Called before the operands are known.
    fn enter_carrier(&self) {}

    /// Returns what could not be taken away so far because the system lacks the means, a sentence
    /// each: the other end hears of it.
    fn lacks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The directories of one end of a run.
///
/// ```
/// use dsync_engine::Footprint;
///
/// /// Counts the directories of a session for a log.
/// fn logged(footprint: &Footprint) -> String {
///     let bounds =
///         if footprint.is_unbounded() { "and wherever links lead" } else { "and no others" };
///     format!("{} directories {bounds}", footprint.places().count())
/// }
/// # assert_eq!(logged(&Footprint::default()), "0 directories and no others");
/// ```
#[derive(Debug, Default)]
pub struct Footprint {
    places: Vec<(Dir, Touch)>,
    unbounded: bool,
}

impl Footprint {
    /// Returns the directories, open, and the operations below each.
    pub fn places(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Touch)> {
        self.places.iter().map(|(dir, touch)| (dir.as_fd(), *touch))
    }

    /// Returns whether the run may go elsewhere as well: with `keep_dirlinks` and `insecure_links`
    /// the links that it meets on the way decide where.
    pub fn is_unbounded(&self) -> bool {
        self.unbounded
    }

    /// Opens the directories that a source reads: below its operands, and wherever links lead that it
    /// follows. Those on the way to a listed name (`--files-from`) are followed whatever the options.
    pub(crate) fn of_source(
        (paths, is_listed): (&[PathBuf], bool),
        options: &SyncOptions,
        start: &Start,
    ) -> Self {
        let touch = if options.remove_source_files { Touch::Take } else { Touch::Read };
        let mut footprint = Self::default();
        let mut parents: HashMap<PathBuf, usize> = HashMap::new();
        if options.follows_links() || is_listed {
            // Links lead anywhere, except out of a grant's directory.
            let end = start.floor();
            footprint.add(
                end.map_or_else(|| Dir::open_operand(Path::new("/")), |floor| floor.duplicate()),
                Touch::Read,
            );
        }

        for path in paths {
            match OperandForm::of(path) {
                Ok(OperandForm::Contents(path)) => footprint.add(open_contents(start, &path, options), touch),
                Ok(OperandForm::Entry { parent, name }) => {
                    let entries = parents.entry(parent.clone()).or_default();
                    *entries += 1;
                    // Its directory has been added for all of them.
                    if *entries > MANY_ENTRIES {
                        continue;
                    }
                    let Ok(dir) = start.open_source(&parent) else { continue };
                    let own = dir.stat(&name).is_ok_and(|entry| entry.kind == Kind::Dir);
                    // A file may be replaced by a rename until it is opened: only its directory
                    // stands for it.
                    let own = own && touch == Touch::Read && *entries < MANY_ENTRIES;
                    footprint.add(if own { dir.open_child(&name) } else { Ok(dir) }, touch);
                }
                Err(_) => {}
            }
        }

        footprint
    }

    /// Opens the directories that a destination reads and writes. If it `may_be_file`, the operand
    /// may be the new name of the one file that is asked for: relative directories then start at the
    /// directory that it is in.
    pub(crate) fn of_destination(
        operand: &Path,
        may_be_file: bool,
        options: &SyncOptions,
        start: &Start,
    ) -> Self {
        let links = operator_links(options);
        let mut footprint =
            Self { unbounded: options.follows_dirlinks() && options.insecure_links, ..Self::default() };
        let Some((base, below)) = nearest(operand, |path| start.open(path, links)) else { return footprint };
        let writing = &options.writing;
        let partial = writing.partial_dir.as_ref().filter(|dir| dir.contains(&b'/'));
        let backup = writing.backup.as_ref().and_then(|backup| backup.dir.as_ref());
        let written = writing.temp_dir.iter().chain(partial).chain(backup).map(|dir| (dir, Touch::Write));
        let alternates = writing.alternates.iter().flat_map(|alternates| {
            // A link into the destination would give a file rights that it does not have where it
            // is.
            let touch = if alternates.way == AlternateUse::Link { Touch::Write } else { Touch::Read };
            alternates.dirs.iter().map(move |dir| (dir, touch))
        });

        let around = below.parent().filter(|_| may_be_file && !names_directory(operand));
        let roots: Vec<&Path> = [Some(below.as_path()), around].into_iter().flatten().collect();
        for (dir, touch) in written.chain(alternates) {
            let dir = Path::new(OsStr::from_bytes(dir));
            for &root in &roots {
                let open = |path: &Path| {
                    if root.as_os_str().is_empty() {
                        base.open_operand_here(path)
                    } else {
                        base.open_operand_above(path)
                    }
                };
                if let Some((dir, _)) = nearest(&from_missing(root, dir), open) {
                    footprint.add(Ok(dir), touch);
                }
                if dir.is_absolute() {
                    break;
                }
            }
        }

        if let Some(keep) = start.keep() {
            footprint.add(keep.duplicate(), Touch::Add);
        }
        footprint.add(Ok(base), Touch::Write);
        footprint
    }

    /// Adds the directory of a state, which is written when the run is over.
    pub(crate) fn with_state(mut self, state: Option<&State>) -> Self {
        if let Some(state) = state {
            self.add(state.directory(), Touch::Write);
        }
        self
    }

    /// Adds a directory; one that cannot be opened fails when the run opens it.
    fn add(&mut self, dir: io::Result<Dir>, touch: Touch) {
        let Ok(dir) = dir else { return };
        self.places.push((dir, touch));
    }
}

/// Returns whose links the operator's paths at the destination may pass through.
pub(crate) fn operator_links(options: &SyncOptions) -> Links {
    if options.insecure_links { Links::Any } else { Links::Trusted }
}

/// Opens the directory of an operand that ends in a slash. With `-R` the slash counts for nothing
/// behind a file or a link to nowhere, for which its directory stands.
fn open_contents(start: &Start, path: &Path, options: &SyncOptions) -> io::Result<Dir> {
    start.open_source(path).or_else(|error| match path.parent() {
        Some(parent) if options.relative => start.open_source(&Path::new(".").join(parent)),
        _ => Err(error),
    })
}

/// Returns whether a destination's operand can only be a directory.
fn names_directory(operand: &Path) -> bool {
    operand.as_os_str().as_bytes().ends_with(b"/")
}

/// Opens the nearest directory on the way to a path, and returns the path that is missing below it.
fn nearest(path: &Path, open: impl Fn(&Path) -> io::Result<Dir>) -> Option<(Dir, PathBuf)> {
    let steps: Vec<_> = path.components().collect();
    (0..=steps.len()).rev().find_map(|there| {
        let above: PathBuf = steps[..there].iter().collect();
        let above = if there == 0 { PathBuf::from(".") } else { above };
        Some((open(&above).ok()?, steps[there..].iter().collect()))
    })
}

/// Returns a path that starts at a missing directory as one that starts above it: a missing
/// directory has no links.
pub(crate) fn from_missing(below: &Path, path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let mut from = below.to_owned();
    let mut steps = path.components();
    loop {
        let rest = steps.as_path();
        match steps.next() {
            Some(Step::ParentDir) if !from.as_os_str().is_empty() => _ = from.pop(),
            Some(Step::CurDir) => {}
            // Back into the missing part.
            Some(Step::Normal(name)) if below.starts_with(from.join(name)) => from.push(name),
            _ => return Path::new(".").join(from).join(rest),
        }
    }
}

/// Operands of one directory, as a shell's `*` makes them, from which on the directory stands for
/// all of them.
const MANY_ENTRIES: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use dsync_wire::options::{Alternates, Backup, WritePolicy};

    use super::*;

    #[test]
    fn a_path_from_a_missing_directory_leads_where_it_would_lead_from_it() {
        for (below, path, wanted) in [
            ("d", "../alt", "./alt"),
            ("d", "../d/../alt", "./alt"),
            ("d", "./../d/x/../alt", "./d/x/../alt"),
            ("new/d", "../alt", "./new/alt"),
            ("new/d", "../../new/../alt", "./alt"),
            ("new/d", "../../../alt", "./../alt"),
            ("d", "/alt", "/alt"),
            ("d", "alt", "./d/alt"),
        ] {
            assert_eq!(from_missing(Path::new(below), Path::new(path)), Path::new(wanted), "{below} {path}");
        }
    }

    /// Returns the directories of a footprint below `scratch`.
    fn places(footprint: &Footprint, scratch: &Path) -> Vec<(String, Touch)> {
        let mut places: Vec<_> = footprint
            .places
            .iter()
            .map(|(dir, touch)| {
                let path = dir.real_path().unwrap();
                (path.strip_prefix(scratch).unwrap().display().to_string(), *touch)
            })
            .collect();
        places.sort();
        places
    }

    fn names(places: &[(&str, Touch)]) -> Vec<(String, Touch)> {
        places.iter().map(|(name, touch)| ((*name).to_owned(), *touch)).collect()
    }

    #[test]
    fn a_source_touches_its_operands_and_the_directories_of_files() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::create_dir(at("c")).unwrap();
        std::fs::write(at("c/file"), "").unwrap();
        let operands = [at("a"), at("a/b/."), at("c/file"), at("missing"), at("none/x")];
        let read = SyncOptions::default();
        let found = Footprint::of_source((&operands, false), &read, &Start::default());
        let expected = [("", Touch::Read), ("a", Touch::Read), ("a/b", Touch::Read), ("c", Touch::Read)];
        assert_eq!(places(&found, &root), names(&expected));
        let follows = SyncOptions::default().copy_dirlinks(true);
        for (options, is_listed) in [(&follows, false), (&read, true)] {
            let found = Footprint::of_source((&[at("a")], is_listed), options, &Start::default());
            let real = found.places.iter().map(|(dir, _)| dir.real_path().unwrap()).collect::<Vec<_>>();
            assert_eq!(real, [PathBuf::from("/"), at("a")]);
        }
        std::os::unix::fs::symlink("nowhere", at("a/link")).unwrap();
        let slashes = [at("c/file/"), at("a/link/")];
        let found = Footprint::of_source((&slashes, false), &read, &Start::default());
        assert_eq!(places(&found, &root), []);
        let found = Footprint::of_source((&slashes, false), &read.clone().relative(true), &Start::default());
        assert_eq!(places(&found, &root), names(&[("a", Touch::Read), ("c", Touch::Read)]));
        let moves = read.remove_source_files(true);
        let found = Footprint::of_source((&[at("a")], false), &moves, &Start::default());
        assert_eq!(places(&found, &root), names(&[("", Touch::Take)]));
    }

    #[test]
    fn very_many_operands_of_one_directory_are_that_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let operands: Vec<_> = (0..1000).map(|number| root.join(number.to_string())).collect();
        operands.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let found = Footprint::of_source((&operands, false), &SyncOptions::default(), &Start::default());
        let places = places(&found, &root);
        assert!(places.len() <= MANY_ENTRIES && places[0].0.is_empty());
    }

    #[test]
    fn a_destination_touches_its_operand_and_the_directories_of_its_options() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for dir in ["dst", "temp", "old", "full"] {
            std::fs::create_dir(at(dir)).unwrap();
        }
        std::fs::write(at("dst/file"), "").unwrap();
        let of_one = |operand: &str, may_be_file: bool, writing: WritePolicy| {
            let options = SyncOptions::default().writing(writing);
            let start = Start::default();
            places(&Footprint::of_destination(&at(operand), may_be_file, &options, &start), &root)
        };
        let of = |operand: &str, writing: WritePolicy| of_one(operand, false, writing);
        let write =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Touch::Write)).collect::<Vec<_>>();
        for (operand, expected) in
            [("dst", "dst"), ("dst/", "dst"), ("dst/file", "dst"), ("new", ""), ("dst/x/y", "dst")]
        {
            assert_eq!(of(operand, WritePolicy::default()), write(&[expected]), "{operand}");
        }
        let writing = || {
            WritePolicy::default()
                .temp_dir(Some(b"../temp".to_vec()))
                .partial_dir(Some(at("parts").into_os_string().into_encoded_bytes()))
                .backup(Some(Backup::new(Vec::new()).dir(Some(b"../old/2/3".to_vec()))))
                .alternates(Some(Alternates::new(AlternateUse::Link, vec![b"../full".to_vec()])))
        };
        assert_eq!(of("dst", writing()), write(&["", "dst", "full", "old", "temp"]));
        assert_eq!(of("new", writing()), write(&["", "", "full", "old", "temp"]));
        // The directories of a file's new name are seen from the directory that it is in.
        let in_dst = ["", "dst", "dst", "dst", "dst", "full", "old", "temp"];
        for operand in ["dst/new", "dst/file"] {
            assert_eq!(of_one(operand, true, writing()), write(&in_dst), "{operand}");
            assert_eq!(of(operand, writing()), write(&["", "dst", "dst", "dst", "dst"]), "{operand}");
        }
        assert_eq!(of_one("dst/new/", true, writing()), write(&["", "dst", "dst", "dst", "dst"]));
        let compares = WritePolicy::default()
            .partial_dir(Some(b".part".to_vec()))
            .alternates(Some(Alternates::new(AlternateUse::Compare, vec![b"../full".to_vec()])));
        assert_eq!(of("dst", compares), names(&[("dst", Touch::Write), ("full", Touch::Read)]));
    }
}
