//! Watches directory trees for changes, by inotify.
//!
//! The law: a change that happens after [`TreeWatch::new`] has returned is seen by a later
//! [`TreeWatch::take`], or that says [`Seen::Lost`]. Each directory gets its watch before it is
//! listed, so a directory that is made meanwhile is in the list, or its making is an event.
//!
//! It tells that something has changed, and not what: whoever asks compares the trees. Changes
//! behind symbolic links and below mounts that come later are not seen.

use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

use crate::{component::Component, dir::Dir, metadata::Kind, shared_path::SharedPath};

/// Watches on all directories of some trees.
#[derive(Debug)]
pub struct TreeWatch {
    inotify: OwnedFd,
    roots: Vec<Arc<Dir>>,
    /// The directories by their watches.
    watched: HashMap<i32, Watched>,
    lacking: Option<io::Error>,
}

/// A directory that has a watch.
#[derive(Debug, Clone)]
struct Watched {
    root: usize,
    path: SharedPath,
}

/// The changes since the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Seen {
    /// None.
    Nothing,
    /// Something.
    Changed,
    /// Something, and further changes may be missed: there were too many, or a directory was moved.
    /// Another [`TreeWatch`] sees them.
    Lost,
}

impl TreeWatch {
    /// Watches trees. Where a directory could not get a watch, [`lacking`](Self::lacking) says why.
    ///
    /// # Errors
    /// The system's error when there can be no watches at all.
    pub fn new(roots: Vec<Arc<Dir>>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut watch = Self { inotify, roots, watched: HashMap::new(), lacking: None };
        for root in 0..watch.roots.len() {
            watch.add(Watched { root, path: SharedPath::root() });
        }
        Ok(watch)
    }

    /// Returns why some directories are not watched: the user has as many watches as
    /// `fs.inotify.max_user_watches` allows (`ENOSPC`), or something else failed.
    pub fn lacking(&self) -> Option<&io::Error> {
        self.lacking.as_ref()
    }

    /// Waits for a change, at most so long, and takes all that are known.
    ///
    /// # Errors
    /// The system's error.
    pub fn take(&mut self, most: Duration) -> io::Result<Seen> {
        let timeout = Timespec::try_from(most).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }

        let mut seen = Seen::Nothing;
        for event in self.events()? {
            seen = seen.max(self.see(event));
        }
        Ok(seen)
    }

    /// Reads all events that wait.
    fn events(&self) -> io::Result<Vec<Event>> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        while events.len() < MOST_EVENTS {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: event.wd(),
                    what: event.events(),
                    name: event.file_name().and_then(|name| Component::new(name.to_bytes()).ok()),
                }),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(events)
    }

    fn see(&mut self, Event { watch, what, name }: Event) -> Seen {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Seen::Lost;
        }
        if what.contains(ReadFlags::IGNORED) {
            // Of a directory that was removed, which was an event of its parent's.
            let was_root = self.watched.remove(&watch).is_some_and(|watched| watched.path.is_root());
            return if was_root { Seen::Lost } else { Seen::Nothing };
        }
        let Some(watched) = self.watched.get(&watch).cloned() else { return Seen::Nothing };

        let is_dir = what.contains(ReadFlags::ISDIR);
        match name {
            // Its watches have paths that are others now.
            _ if is_dir && what.contains(ReadFlags::MOVED_FROM) => Seen::Lost,
            _ if what.contains(ReadFlags::MOVE_SELF) && watched.path.is_root() => Seen::Lost,
            Some(name) if is_dir && what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) => {
                self.add(Watched { root: watched.root, path: watched.path.join(&name) });
                Seen::Changed
            }
            _ => Seen::Changed,
        }
    }

    /// Watches a directory and all below it.
    fn add(&mut self, first: Watched) {
        let mut next = vec![first];
        while let Some(directory) = next.pop() {
            match self.add_one(&directory) {
                Ok(children) => next.extend(children),
                // It has gone again, or the source cannot read it either.
                Err(error) if is_no_loss(&error) => {}
                Err(error) => {
                    let is_full = Errno::from_io_error(&error) == Some(Errno::NOSPC);
                    self.lacking = Some(error);
                    // Each further one would fail as well.
                    if is_full {
                        return;
                    }
                }
            }
        }
    }

    /// Watches a directory. Returns the directories in it.
    fn add_one(&mut self, directory: &Watched) -> io::Result<Vec<Watched>> {
        let Some(root) = self.roots.get(directory.root) else { return Ok(Vec::new()) };
        let opened = if directory.path.is_root() {
            Arc::clone(root)
        } else {
            Arc::new(root.open_beneath(&directory.path.to_path())?)
        };
        // inotify takes no descriptor of a directory, but a path to one.
        let place = format!("/proc/self/fd/{}", std::os::fd::AsFd::as_fd(&*opened).as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, place, EVENTS)?;
        self.watched.insert(watch, directory.clone());

        let mut children = Vec::new();
        let listing = opened.list();
        for (name, metadata) in listing.entries {
            if metadata.is_ok_and(|metadata| metadata.kind == Kind::Dir) {
                children.push(Watched { root: directory.root, path: directory.path.join(&name) });
            }
        }
        listing.error.map_or(Ok(children), Err)
    }
}

/// An event of inotify.
struct Event {
    watch: i32,
    what: ReadFlags,
    name: Option<Component>,
}

fn is_no_loss(error: &io::Error) -> bool {
    let harmless = [Errno::NOENT, Errno::ACCESS, Errno::NOTDIR, Errno::LOOP];
    Errno::from_io_error(error).is_some_and(|error| harmless.contains(&error))
        || crate::dir::is_no_directory(error)
}

/// The changes of a directory that a copy of it may have to follow.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
const BUFFER_BYTES: usize = 64 << 10;
/// Events that are taken at a time, so that a tree that never rests does not hold a caller.
const MOST_EVENTS: usize = 1 << 16;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::fs;

    use super::*;

    fn watch(path: &std::path::Path) -> TreeWatch {
        TreeWatch::new(vec![Arc::new(Dir::open_operand(path).unwrap())]).unwrap()
    }

    /// Takes changes until there is one.
    fn next(watch: &mut TreeWatch) -> Seen {
        loop {
            let seen = watch.take(Duration::from_secs(1)).unwrap();
            if seen != Seen::Nothing {
                return seen;
            }
        }
    }

    #[test]
    fn each_kind_of_change_is_seen_also_in_a_directory_that_came_later() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "x").unwrap();
        let mut watch = watch(root);
        assert!(watch.lacking().is_none());
        assert_eq!(watch.take(Duration::ZERO).unwrap(), Seen::Nothing);

        let changes: [&dyn Fn(); 7] = [
            &|| fs::write(root.join("a/b/file"), "y").unwrap(),
            &|| {
                fs::set_permissions(root.join("a/b"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
                    .unwrap();
            },
            &|| fs::create_dir_all(root.join("new/deep/er")).unwrap(),
            &|| fs::write(root.join("new/deep/er/file"), "z").unwrap(),
            &|| fs::rename(root.join("new/deep/er/file"), root.join("file")).unwrap(),
            &|| fs::remove_file(root.join("file")).unwrap(),
            &|| std::os::unix::fs::symlink("x", root.join("a/link")).unwrap(),
        ];
        for change in changes {
            change();
            assert_eq!(next(&mut watch), Seen::Changed);
            while watch.take(Duration::ZERO).unwrap() != Seen::Nothing {}
        }
        fs::remove_dir_all(root.join("a")).unwrap();
        assert_eq!(next(&mut watch), Seen::Changed);
    }

    #[test]
    fn a_directory_that_was_moved_asks_for_new_watches() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        let mut first = watch(&root);
        fs::rename(root.join("a"), root.join("c")).unwrap();
        assert_eq!(next(&mut first), Seen::Lost);
        let mut second = watch(&root);
        fs::write(root.join("c/b/file"), "x").unwrap();
        assert_eq!(next(&mut second), Seen::Changed);
        fs::rename(&root, tree.path().join("elsewhere")).unwrap();
        while next(&mut second) != Seen::Lost {}
    }
}
