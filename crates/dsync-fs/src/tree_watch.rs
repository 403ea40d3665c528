//! Watches what runs read of a source, by inotify.
//!
//! The law: a walk watches before it looks. Each directory gets its watch before it is listed, and
//! each name on the way of an operand, of a line of a list, or of a link that is followed gets one
//! before it is looked up (module `way`). So a change of anything that a walk has met is seen by a
//! later [`TreeWatch::take`], and rules, links and filesystems decide here what they decide there: a
//! directory that the walk leaves out takes no watch.
//!
//! A watch is of an inode and not of a path: a directory that is moved keeps it, and one that several
//! links lead to has one. [`TreeWatch::settle`] ends the watches that the last run did not ask for.
//!
//! It tells that something has changed, and not what: whoever asks compares the trees. A mount says
//! nothing to inotify, so the identities of the operands are compared as well.
//!
//! An event of a name that rules leave out in a directory that is listed (module `left_out`) tells
//! nothing: no copy depends on it.

mod left_out;
mod way;

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{
        CWD,
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    },
    io::Errno,
};

pub(crate) use self::{left_out::LeftOut, way::Steps};
use crate::{
    dir::{Dir, Target},
    own_names::is_own_name,
    sys::proc_link,
};

/// The watches on what the runs of a source read. Cheap to clone; all clones are one.
///
/// Cost: a watch of the user's for each directory that a run lists, and one for each directory on the
/// way of an operand and of a link that is followed.
#[derive(Debug, Clone)]
pub struct TreeWatch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    inotify: OwnedFd,
    watches: Mutex<Watches>,
}

#[derive(Debug, Default)]
struct Watches {
    /// Runs that have settled.
    round: u64,
    /// The directories by their watches.
    directories: HashMap<i32, Watched>,
    /// The operands by their text: a slash at the end makes another one, which a `Path` would not.
    operands: HashMap<OsString, Operand>,
    /// The last watch that failed, and in which round.
    lacking: Option<(u64, Errno)>,
    /// The last round in which rules stood in files of any name, so that every name counts.
    all_count: Option<u64>,
    /// The last look at the operands.
    looked: Option<Instant>,
}

/// A directory that has a watch.
#[derive(Debug)]
struct Watched {
    round: u64,
    /// The names that count, whatever rules say of them.
    names: HashSet<Box<[u8]>>,
    /// The times that the directory was listed: if any, all names count but for those left out each time.
    listings: usize,
    /// The names that the listings leave out, as far as they have said so.
    left_out: Vec<LeftOut>,
}

/// The number of a directory's watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchNumber(i32);

/// The entry that an operand led to.
#[derive(Debug)]
struct Operand {
    round: u64,
    /// Whether a link in its place is followed.
    follows: bool,
    /// `None` if nothing was there.
    found: Option<Target>,
}

/// The changes since the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Seen {
    /// None.
    Nothing,
    /// Something.
    Changed,
    /// An operand has gone, has come back, or is another directory now: one that was mounted there or
    /// unmounted, too.
    Replaced,
}

impl TreeWatch {
    /// Makes a watch on nothing: the runs that have it add what they read.
    ///
    /// # Errors
    /// The system's error when there can be no watches at all: `EMFILE` for more watching programs
    /// than `fs.inotify.max_user_instances` allows.
    pub fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Inner { inotify, watches: Mutex::default() })))
    }

    /// Watches a file, or whatever else a path leads to, for the next run: one that the run depends on
    /// beside its source. The file itself, a rename over it, and the directories and links on its way
    /// count.
    pub fn file(&self, path: &Path) {
        self.way(CWD, path.as_os_str().as_bytes(), Steps { follow_last: true, all: false });
    }

    /// Returns why some directories are not watched: the user has as many watches as
    /// `fs.inotify.max_user_watches` allows (`ENOSPC`), or something else failed.
    pub fn lacking(&self) -> Option<io::Error> {
        let watches = self.lock();
        // The round of the last run counts until another has settled.
        let is_recent = |&(round, _): &(u64, Errno)| round + 1 >= watches.round;
        watches.lacking.filter(is_recent).map(|(_, error)| error.into())
    }

    /// Ends the watches on what the run that is over did not read. To be called when a run has come to
    /// its end: one that broke off has not asked for all that matters.
    pub fn settle(&self) {
        let mut watches = self.lock();
        let round = watches.round;
        watches.operands.retain(|_, operand| operand.round == round);
        watches.directories.retain(|&number, watched| {
            let stays = watched.round == round;
            if !stays {
                // A directory that has gone has lost its watch already.
                let _ = inotify::remove_watch(&self.0.inotify, number);
            }
            stays
        });
        watches.round += 1;
    }

    /// Waits for a change, at most so long, and takes all that are known. A duration that no clock of the
    /// system holds is no limit.
    ///
    /// # Errors
    /// The system's error.
    pub fn take(&self, most: Duration) -> io::Result<Seen> {
        let timeout = Timespec::try_from(most).ok();
        match poll(&mut [PollFd::new(&self.0.inotify, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }

        let events = self.events()?;
        let mut watches = self.lock();
        let mut seen = watches.look_at_operands();
        for event in events {
            seen = seen.max(watches.see(&event));
        }
        Ok(seen)
    }

    /// Watches a directory that is about to be listed.
    pub(crate) fn directory(&self, dir: &Dir) -> Option<WatchNumber> {
        self.add(dir.as_fd(), EVENTS, None)
    }

    /// Adds what a listing leaves out of a directory that it has a watch of, once its rules are known.
    pub(crate) fn leave_out(&self, number: Option<WatchNumber>, left_out: LeftOut) {
        let Some(WatchNumber(number)) = number else { return };
        let mut watches = self.lock();
        let round = watches.round;
        if left_out.depends_on_any_name() {
            watches.all_count = Some(round);
        }
        if let Some(watched) = watches.directories.get_mut(&number)
            && watched.round == round
            && watched.left_out.len() < MOST_LISTINGS
        {
            watched.left_out.push(left_out);
        }
    }

    /// Watches the way of an operand, and notes what is at its end.
    pub(crate) fn operand(&self, path: &Path, steps: Steps) {
        self.way(CWD, path.as_os_str().as_bytes(), steps);
        let found = way::end(path, steps.follow_last);
        let mut watches = self.lock();
        let operand = Operand { round: watches.round, follows: steps.follow_last, found };
        watches.operands.insert(path.into(), operand);
    }

    /// Watches a directory for some events, of one name or of all. Returns the watch if there is one.
    fn add(&self, dir: BorrowedFd<'_>, events: WatchFlags, name: Option<&[u8]>) -> Option<WatchNumber> {
        // inotify takes no descriptor of a directory, but a path to one.
        let place = proc_link(dir);
        let events = events | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD;
        let mut watches = self.lock();
        match inotify::add_watch(&self.0.inotify, place, events) {
            Ok(number) => {
                watches.note(number, name);
                return Some(WatchNumber(number));
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // The source cannot read it either, but it passes through one that may only be searched.
            Err(Errno::ACCESS) if name.is_none() => {}
            Err(error) => watches.lacking = Some((watches.round, error)),
        }
        None
    }

    /// Reads all events that wait.
    fn events(&self) -> io::Result<Vec<Event>> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.0.inotify, &mut buffer);
        let mut events = Vec::new();
        while events.len() < MOST_EVENTS {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: event.wd(),
                    what: event.events(),
                    name: event.file_name().map(|name| name.to_bytes().into()),
                }),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(events)
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.0.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    /// Records what a directory is watched for. A directory's first watch of a round begins anew.
    fn note(&mut self, number: i32, name: Option<&[u8]>) {
        let round = self.round;
        let fresh = || Watched { round, names: HashSet::new(), listings: 0, left_out: Vec::new() };
        let watched = self.directories.entry(number).or_insert_with(fresh);
        if watched.round != round {
            *watched = fresh();
        }
        match name {
            None => watched.listings += 1,
            Some(name) => {
                watched.names.insert(name.into());
            }
        }
    }

    fn see(&mut self, Event { watch, what, name }: &Event) -> Seen {
        // All watches are still there, and the next run looks at everything.
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Seen::Changed;
        }
        if what.contains(ReadFlags::IGNORED) {
            // A directory was removed, or its filesystem unmounted.
            return self.directories.remove(watch).map_or(Seen::Nothing, |_| Seen::Changed);
        }

        // The round of the last run counts until another has settled.
        let all_count = self.all_count.is_some_and(|round| round + 1 >= self.round);
        let Some(watched) = self.directories.get_mut(watch) else { return Seen::Nothing };
        let counts = match name {
            // The directory itself.
            None => watched.listings > 0,
            Some(name) => {
                watched.names.contains(name)
                    || watched.listings > 0 && (all_count || !watched.leaves_out(name, *what))
            }
        };
        if counts { Seen::Changed } else { Seen::Nothing }
    }

    /// Compares what the operands lead to with what they led to before, now and then.
    fn look_at_operands(&mut self) -> Seen {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + LOOK_EVERY) {
            return Seen::Nothing;
        }
        self.looked = Some(now);

        let mut seen = Seen::Nothing;
        for (path, operand) in &mut self.operands {
            let found = way::end(Path::new(path), operand.follows);
            if found != operand.found {
                operand.found = found;
                seen = Seen::Replaced;
            }
        }
        seen
    }
}

impl Watched {
    /// Returns whether no listing of the directory takes the entry of an event.
    fn leaves_out(&mut self, name: &[u8], what: ReadFlags) -> bool {
        let is_dir = what.contains(ReadFlags::ISDIR);
        is_own_name(name)
            || self.left_out.len() == self.listings
                && self.left_out.iter_mut().all(|listing| listing.has(name, is_dir))
    }
}

/// An event of inotify.
struct Event {
    watch: i32,
    what: ReadFlags,
    name: Option<Box<[u8]>>,
}

/// Events that come and go with a name.
const MOVES: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::DELETE).union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO);
/// The changes of a directory that a copy of it may have to follow. Of what is written through a mapping
/// the kernel tells nothing but the end, when the mapping goes.
const EVENTS: WatchFlags =
    MOVES.union(WatchFlags::MODIFY).union(WatchFlags::ATTRIB).union(WatchFlags::CLOSE_WRITE);
const BUFFER_BYTES: usize = 64 << 10;
/// Events that are taken at a time, so that a tree that never rests does not hold a caller.
const MOST_EVENTS: usize = 1 << 16;
/// Listings of a directory whose rules are remembered: one that many links lead to takes all names.
const MOST_LISTINGS: usize = 4;
/// Time between two looks at the operands: a question to the system for each.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;
    use crate::{FileListWriter, FilterSet, FollowLinks, RuleSpec, SpoolHome, Walk, WalkOptions};

    /// Walks operands as a run does, and ends the watches of earlier walks.
    fn walk(watch: &TreeWatch, operands: &[&Path], options: WalkOptions) {
        let watched = Some(watch.clone());
        let walk = Walk::open(operands, WalkOptions { recursive: true, watch: watched, ..options }).unwrap();
        walk.for_each(drop);
        watch.settle();
        assert!(watch.lacking().is_none());
        drain(watch);
    }

    fn walked(operand: &Path, options: WalkOptions) -> TreeWatch {
        let watch = TreeWatch::new().unwrap();
        walk(&watch, &[operand], options);
        watch
    }

    fn following() -> WalkOptions {
        WalkOptions { follow: FollowLinks { all: true, ..FollowLinks::default() }, ..WalkOptions::default() }
    }

    fn drain(watch: &TreeWatch) {
        while watch.take(Duration::ZERO).unwrap() != Seen::Nothing {}
    }

    /// Takes changes until there is one.
    fn next(watch: &TreeWatch) -> Seen {
        loop {
            let seen = watch.take(Duration::from_secs(1)).unwrap();
            if seen != Seen::Nothing {
                return seen;
            }
        }
    }

    /// Returns whether a change is seen at once: inotify's events are there when the call returns.
    fn sees(watch: &TreeWatch, change: impl FnOnce()) -> bool {
        drain(watch);
        change();
        watch.take(Duration::ZERO).unwrap() != Seen::Nothing
    }

    fn count(watch: &TreeWatch) -> usize {
        watch.lock().directories.len()
    }

    fn write(path: impl AsRef<Path>) {
        fs::write(path, "x").unwrap();
    }

    #[test]
    fn a_wait_longer_than_any_clock_ends_with_a_change() {
        let home = tempfile::tempdir().unwrap();
        let watch = walked(home.path(), WalkOptions::default());
        write(home.path().join("new"));
        assert_eq!(watch.take(Duration::MAX).unwrap(), Seen::Changed);
    }

    #[test]
    fn each_kind_of_change_is_seen_also_in_a_directory_that_came_later() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        write(root.join("a/b/file"));
        let watch = walked(&root.join(""), WalkOptions::default());

        let changes: [&dyn Fn(); 7] = [
            &|| write(root.join("a/b/file")),
            &|| fs::set_permissions(root.join("a/b"), PermissionsExt::from_mode(0o700)).unwrap(),
            &|| fs::create_dir_all(root.join("new/deep/er")).unwrap(),
            &|| write(root.join("new/deep/er/file")),
            &|| fs::rename(root.join("new/deep/er/file"), root.join("file")).unwrap(),
            &|| fs::remove_file(root.join("file")).unwrap(),
            &|| symlink("x", root.join("a/link")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            assert!(sees(&watch, change), "{number}");
            walk(&watch, &[&root.join("")], WalkOptions::default());
        }
        // The watches of what a moved directory holds are those that it had.
        fs::rename(root.join("a"), root.join("c")).unwrap();
        assert!(sees(&watch, || write(root.join("c/b/file"))));
        assert!(sees(&watch, || fs::remove_dir_all(root.join("c")).unwrap()));
    }

    #[test]
    fn a_directory_that_rules_leave_out_takes_no_watch_until_they_no_longer_do() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("kept/below")).unwrap();
        fs::create_dir_all(root.join("modules/a/b")).unwrap();
        fs::write(root.join(".rules"), "- /modules\n").unwrap();
        let options = || WalkOptions {
            filter: FilterSet::of(&[RuleSpec::from_modifiers(false, ":", b".rules").unwrap()]).unwrap(),
            ..WalkOptions::default()
        };
        let watch = walked(&root.join(""), options());
        assert!(!sees(&watch, || write(root.join("modules/a/file"))));
        assert!(sees(&watch, || write(root.join("kept/below/file"))));

        assert!(sees(&watch, || fs::write(root.join(".rules"), "- /nothing\n").unwrap()));
        walk(&watch, &[&root.join("")], options());
        assert!(sees(&watch, || write(root.join("modules/a/file"))));

        fs::write(root.join(".rules"), "- /modules\n").unwrap();
        walk(&watch, &[&root.join("")], options());
        assert!(!sees(&watch, || write(root.join("modules/a/file"))));
    }

    fn of_rules(rules: &[&str], options: WalkOptions) -> WalkOptions {
        let rules = rules.iter().map(|rule| match crate::ParsedRule::read(rule.as_bytes()).unwrap() {
            crate::ParsedRule::Rule(spec) => spec,
            other => panic!("{other:?}"),
        });
        WalkOptions { filter: FilterSet::of(&rules.collect::<Vec<_>>()).unwrap(), ..options }
    }

    #[test]
    fn names_that_rules_leave_out_are_not_seen_and_files_of_rules_always_are() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        fs::create_dir_all(at("a/cache")).unwrap();
        fs::create_dir(at("far")).unwrap();
        for file in ["a/old.log", "a/kept", "a/far.log", "far/far.log", "far/file"] {
            write(at(file));
        }
        fs::write(at("a/.rules"), "- *.tmp\n- .*\n").unwrap();
        let options = || of_rules(&[": .rules", "- *.log", "- cache/"], WalkOptions::default());
        let watch = walked(&at(""), options());
        let again = || walk(&watch, &[&at("")], options());

        let unseen: [&dyn Fn(); 8] = [
            &|| write(at("a/old.log")),
            &|| write(at("new.log")),
            &|| write(at("a/x.tmp")),
            &|| fs::rename(at("a/x.tmp"), at("a/y.tmp")).unwrap(),
            &|| fs::remove_file(at("a/y.tmp")).unwrap(),
            &|| fs::set_permissions(at("a/cache"), PermissionsExt::from_mode(0o700)).unwrap(),
            &|| write(at("a/.dsync-tmp-0123456789abcdef0123456789abcdef")),
            &|| symlink("kept", at("a/link.tmp")).unwrap(),
        ];
        for (number, change) in unseen.iter().enumerate() {
            assert!(!sees(&watch, change), "{number}");
        }
        // Rules count by what an entry is, in the directory of their file and below.
        let seen: [&dyn Fn(); 7] = [
            &|| write(at("x.tmp")),
            &|| fs::rename(at("a/old.log"), at("a/new")).unwrap(),
            &|| fs::rename(at("a/cache"), at("a/store")).unwrap(),
            &|| write(at("far/cache")),
            &|| fs::set_permissions(at("a"), PermissionsExt::from_mode(0o700)).unwrap(),
            &|| fs::write(at("a/.rules"), "- *.log\n").unwrap(),
            &|| fs::write(at("far/.rules"), "- none\n").unwrap(),
        ];
        for (number, change) in seen.iter().enumerate() {
            assert!(sees(&watch, change), "{number}");
        }
        again();
        assert!(sees(&watch, || write(at("a/x.tmp"))));

        // A link to a file of rules, and a file that another one names, have any name.
        write(at("rules.log"));
        assert!(!sees(&watch, || fs::write(at("rules.log"), "- 1\n").unwrap()));
        for rules in [("link", "rules.log"), ("text", ". ../rules.log\n")] {
            fs::remove_file(at("far/.rules")).unwrap();
            match rules {
                ("link", _) => symlink("../rules.log", at("far/.rules")).unwrap(),
                (_, text) => fs::write(at("far/.rules"), text).unwrap(),
            }
            again();
            assert!(sees(&watch, || fs::write(at("rules.log"), "- 2\n").unwrap()), "{rules:?}");
        }
        fs::remove_file(at("far/.rules")).unwrap();
        again();
        assert!(!sees(&watch, || fs::write(at("rules.log"), "- 3\n").unwrap()));
    }

    #[test]
    fn a_name_counts_if_one_of_several_ways_to_it_does_not_leave_it_out() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        fs::create_dir_all(at("a/sub")).unwrap();
        fs::create_dir_all(at("b")).unwrap();
        write(at("a/sub/x"));
        symlink("../a/sub", at("b/out")).unwrap();
        let options = || of_rules(&["- /sub/x", "- y"], following());
        let watch = TreeWatch::new().unwrap();
        walk(&watch, &[&at("a/"), &at("b/")], options());
        // 'out/x' takes part.
        assert!(sees(&watch, || write(at("a/sub/x"))));
        assert!(!sees(&watch, || write(at("a/sub/y"))));

        // The target of a link has a name of its own; a link that leads to a directory is judged as one.
        write(at("a/data.log"));
        symlink("data.log", at("a/current")).unwrap();
        let options = || of_rules(&["+ */", "+ current", "- *"], following());
        walk(&watch, &[&at("a/")], options());
        assert!(sees(&watch, || write(at("a/data.log"))));
        assert!(sees(&watch, || symlink("../b", at("a/directory")).unwrap()));
    }

    #[test]
    fn directories_that_a_pruning_walk_leaves_out_are_watched() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        let options = of_rules(&["- *.log"], WalkOptions { prune: true, ..WalkOptions::default() });
        let watch = walked(&root.join(""), options);
        assert!(!sees(&watch, || write(root.join("a/b/c/one.log"))));
        assert!(sees(&watch, || write(root.join("a/b/c/file"))));
    }

    #[test]
    fn what_links_lead_to_is_watched_once_however_they_lead_there() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        fs::create_dir_all(at("source/sub")).unwrap();
        fs::create_dir_all(at("far/deep")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        write(at("far/file"));
        write(at("far/unrelated"));
        symlink(at("far/deep"), at("source/one")).unwrap();
        let plain = walked(&at("source/"), WalkOptions::default());
        assert!(!sees(&plain, || write(at("far/deep/unseen"))));

        let watch = walked(&at("source/"), following());
        let watches = count(&watch);
        for link in ["two", "sub/three", "sub/four"] {
            symlink(at("far/deep"), at("source").join(link)).unwrap();
        }
        // Links that lead around, and to themselves.
        symlink("..", at("source/sub/up")).unwrap();
        symlink("self", at("source/self")).unwrap();
        walk(&watch, &[&at("source/")], following());
        assert_eq!(count(&watch), watches);
        assert!(sees(&watch, || write(at("far/deep/file"))));

        // A file takes a watch of its name in its directory.
        symlink("../far/file", at("source/file")).unwrap();
        walk(&watch, &[&at("source/")], following());
        assert!(!sees(&watch, || write(at("far/unrelated"))));
        assert!(sees(&watch, || write(at("far/file"))));
        write(at("far/fresh"));
        assert!(sees(&watch, || fs::rename(at("far/fresh"), at("far/file")).unwrap()));
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_seen_wherever_it_is_on_the_way() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        for directory in ["source", "releases/1/app", "releases/2/app"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        let lead = |text: &str, path: &str| {
            symlink(text, at("fresh")).unwrap();
            fs::rename(at("fresh"), at(path)).unwrap();
        };
        lead("1", "releases/current");
        lead("../releases/current/app", "source/app");
        lead("../late/file", "source/dangling");
        lead("source", "operand");
        let watch = walked(&at("operand/"), following());
        assert!(sees(&watch, || write(at("releases/1/app/file"))));
        assert!(sees(&watch, || lead("2", "releases/current")));
        walk(&watch, &[&at("operand/")], following());
        assert!(sees(&watch, || write(at("releases/2/app/file"))));
        assert!(!sees(&watch, || write(at("releases/1/app/file"))));

        // The steps that a dangling link waits for, one after the other.
        assert!(sees(&watch, || fs::create_dir(at("late")).unwrap()));
        walk(&watch, &[&at("operand/")], following());
        assert!(sees(&watch, || write(at("late/file"))));

        assert!(sees(&watch, || lead("releases", "operand")));
        walk(&watch, &[&at("operand/")], following());
        assert!(!sees(&watch, || write(at("source/file"))));
        assert!(sees(&watch, || write(at("releases/file"))));
    }

    #[test]
    fn operands_and_lines_of_a_list_are_watched_by_their_names() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        fs::create_dir_all(at("a/b")).unwrap();
        write(at("a/file"));
        write(at("a/b/deep"));
        let watch = walked(&at("a/file"), WalkOptions::default());
        assert!(!sees(&watch, || write(at("a/b/deep"))) && !sees(&watch, || write(at("a/other"))));
        assert!(sees(&watch, || write(at("a/file"))));
        write(at("a/fresh"));
        assert!(sees(&watch, || fs::rename(at("a/fresh"), at("a/file")).unwrap()));

        let mut list = FileListWriter::new(true, &SpoolHome::default());
        list.read(&b"b/deep\nlate/er\n"[..], false).unwrap();
        let list = list.finish().unwrap();
        let listed = TreeWatch::new().unwrap();
        let again = || {
            let options = WalkOptions { watch: Some(listed.clone()), ..WalkOptions::default() };
            Walk::open_list(&at("a"), &list, options).unwrap().for_each(drop);
            listed.settle();
        };
        again();
        assert!(!sees(&listed, || write(at("a/file"))) && !sees(&listed, || write(at("a/b/other"))));
        assert!(sees(&listed, || write(at("a/b/deep"))));
        assert!(sees(&listed, || fs::create_dir(at("a/late")).unwrap()));
        again();
        assert!(sees(&listed, || write(at("a/late/er"))));
    }

    #[test]
    fn a_link_and_what_it_leads_to_are_two_operands() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("directory")).unwrap();
        symlink("directory", tree.path().join("link")).unwrap();
        let (link, contents) = (tree.path().join("link"), tree.path().join("link/"));
        let watch = TreeWatch::new().unwrap();
        for operands in [[&*link, &*contents], [&*contents, &*link]] {
            walk(&watch, &operands, WalkOptions::default());
            watch.lock().looked = None;
            assert_eq!(watch.take(Duration::ZERO).unwrap(), Seen::Nothing);
        }
    }

    #[test]
    fn an_operand_that_goes_and_comes_back_is_replaced() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().join("root");
        fs::create_dir(&root).unwrap();
        let watch = walked(&root.join(""), WalkOptions::default());
        let replaced = || while next(&watch) != Seen::Replaced {};
        fs::rename(&root, tree.path().join("elsewhere")).unwrap();
        replaced();
        fs::create_dir(&root).unwrap();
        replaced();
    }
}
