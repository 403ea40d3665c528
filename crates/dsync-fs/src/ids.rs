//! Names of users and groups from the C library's name service; each is asked for once.
//!
//! A process that will not be able to ask ([`preload_names`]) knows those of `/etc/passwd` and
//! `/etc/group`, and no others.

use std::{
    collections::HashMap,
    ffi::OsString,
    hash::Hash,
    io::{self, Read as _},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use nix::unistd::{Gid, Group, Uid, User};

use crate::{Links, operator_files::open_operator_file};

/// The names that this process has read, once it may look up no others.
static READ: OnceLock<Accounts> = OnceLock::new();

/// Reads `/etc/passwd` and `/etc/group`. From then on this process looks up no name anywhere: for
/// one that gives up these files, and name services with them, before it hears a peer.
///
/// # Errors
/// The system's. A file that is not there has no names.
///
/// ```no_run
/// // In a process that serves one session, before it gives up all files.
/// dsync_fs::preload_names()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn preload_names() -> io::Result<()> {
    let read = Accounts { users: read_table("/etc/passwd")?, groups: read_table("/etc/group")? };
    // Those that were read first stay.
    let _ = READ.set(read);
    Ok(())
}

/// A cache of user and group names. A failed lookup counts as "no such name": owners then fall back
/// to numbers, never to root.
#[derive(Debug, Default)]
pub struct Names {
    users: Mutex<HashMap<u32, Option<Vec<u8>>>>,
    groups: Mutex<HashMap<u32, Option<Vec<u8>>>>,
    uids: Mutex<HashMap<Vec<u8>, Option<u32>>>,
    gids: Mutex<HashMap<Vec<u8>, Option<u32>>>,
}

impl Names {
    /// Makes an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the login name of a user.
    pub fn user_name(&self, uid: u32) -> Option<Vec<u8>> {
        if let Some(read) = READ.get() {
            return read.users.name_of(uid);
        }
        cached(&self.users, uid, |&uid| Some(User::from_uid(Uid::from_raw(uid)).ok()??.name.into_bytes()))
    }

    /// Returns the name of a group.
    pub fn group_name(&self, gid: u32) -> Option<Vec<u8>> {
        if let Some(read) = READ.get() {
            return read.groups.name_of(gid);
        }
        cached(&self.groups, gid, |&gid| Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name.into_bytes()))
    }

    /// Returns the number of the user with this login name.
    pub fn uid_of(&self, name: &[u8]) -> Option<u32> {
        if let Some(read) = READ.get() {
            return read.users.id_of(name);
        }
        cached(&self.uids, name.to_vec(), |name| Some(User::from_name(as_name(name)?).ok()??.uid.as_raw()))
    }

    /// Returns the number of the group with this name.
    pub fn gid_of(&self, name: &[u8]) -> Option<u32> {
        if let Some(read) = READ.get() {
            return read.groups.id_of(name);
        }
        cached(&self.gids, name.to_vec(), |name| Some(Group::from_name(as_name(name)?).ok()??.gid.as_raw()))
    }
}

/// Returns the home directory of the user that this process acts for, according to the name
/// service.
pub fn home_directory() -> Option<PathBuf> {
    if let Some(read) = READ.get() {
        return read.users.home_of(Uid::effective().as_raw());
    }
    Some(User::from_uid(Uid::effective()).ok()??.dir)
}

/// Returns the home directory of the user with this login name, according to the name service.
pub fn home_directory_of(name: &[u8]) -> Option<PathBuf> {
    if let Some(read) = READ.get() {
        return read.users.home_of(read.users.id_of(name)?);
    }
    Some(User::from_name(as_name(name)?).ok()??.dir)
}

#[derive(Debug)]
struct Accounts {
    users: Table,
    groups: Table,
}

/// The lines of a file of accounts: a name, a password, a number and more, with colons between them.
#[derive(Debug, Default)]
struct Table {
    names: HashMap<u32, Vec<u8>>,
    ids: HashMap<Vec<u8>, u32>,
    homes: HashMap<u32, Vec<u8>>,
}

impl Table {
    /// Reads the lines. The first of several with one name or one number counts, as for the C
    /// library; a line that is none, or that stands for a name service (`+`), is left out.
    fn parse(text: &[u8]) -> Self {
        let mut table = Self::default();
        for line in text.split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b':');
            let (Some(name), Some(_), Some(id)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let Some(id) = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()) else { continue };
            if name.is_empty() || name.starts_with(b"+") || name.starts_with(b"-") || name.starts_with(b"#") {
                continue;
            }
            table.names.entry(id).or_insert_with(|| name.to_vec());
            table.ids.entry(name.to_vec()).or_insert(id);
            // Of a user the group and the full name stand between.
            if let Some(home) = fields.nth(2) {
                table.homes.entry(id).or_insert_with(|| home.to_vec());
            }
        }
        table
    }

    fn name_of(&self, id: u32) -> Option<Vec<u8>> {
        self.names.get(&id).cloned()
    }

    fn id_of(&self, name: &[u8]) -> Option<u32> {
        self.ids.get(name).copied()
    }

    fn home_of(&self, id: u32) -> Option<PathBuf> {
        self.homes.get(&id).map(|home| OsString::from_vec(home.clone()).into())
    }
}

fn read_table(path: &str) -> io::Result<Table> {
    let mut file = match open_operator_file(Path::new(path), Links::Any) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Table::default()),
        opened => opened?,
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(Table::parse(&text))
}

/// Returns a name in the form of the C library. An empty name must not be looked up (some services
/// answer root).
fn as_name(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    (!name.is_empty() && !name.contains('\0')).then_some(name)
}

fn cached<K: Hash + Eq, V: Clone>(cache: &Mutex<HashMap<K, V>>, key: K, find: impl FnOnce(&K) -> V) -> V {
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cache.get(&key) {
        return found.clone();
    }
    let found = find(&key);
    if cache.len() >= MAX_CACHED {
        cache.clear();
    }
    cache.insert(key, found.clone());
    found
}

/// Most names kept per direction, because a peer chooses the names to look up.
const MAX_CACHED: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_accounts_is_read_as_the_c_library_reads_it() {
        let users = Table::parse(
            b"root:x:0:0:root:/root:/bin/sh\n# a comment:x:7:7::/:\n+nis::8:8::/:\n\nbroken\nno-number:x:seven:7::/x:\n\
              b\xfcro:x:1000:100:Full, Name:/home/b:/bin/sh\nsecond:x:1000:100::/home/s:\nroot:x:9:9::/nine:\nlast:x:11:1::/l",
        );
        assert_eq!(users.name_of(0).as_deref(), Some(&b"root"[..]));
        assert_eq!((users.id_of(b"root"), users.home_of(0)), (Some(0), Some("/root".into())));
        assert_eq!(users.name_of(1000).as_deref(), Some(&b"b\xfcro"[..]));
        assert_eq!((users.id_of(b"second"), users.home_of(1000)), (Some(1000), Some("/home/b".into())));
        assert_eq!((users.id_of(b"last"), users.home_of(11)), (Some(11), Some("/l".into())));
        for id in [7, 8] {
            assert_eq!(users.name_of(id), None);
        }
        for name in [&b""[..], b"broken", b"no-number", b"+nis", b"0"] {
            assert_eq!(users.id_of(name), None);
        }

        let groups = Table::parse(b"wheel:x:10:alice,bob\n");
        assert_eq!((groups.id_of(b"wheel"), groups.home_of(10)), (Some(10), None));
    }

    #[test]
    fn root_is_known_both_ways_and_unknown_names_are_nobody() {
        let names = Names::new();
        for _ in 0..2 {
            assert_eq!(names.user_name(0).as_deref(), Some(&b"root"[..]));
            assert_eq!(names.group_name(0).as_deref(), Some(&b"root"[..]));
            assert_eq!(names.uid_of(b"root"), Some(0));
            assert_eq!(names.gid_of(b"root"), Some(0));
            assert_eq!(names.user_name(4_000_000_001), None);
            assert_eq!(names.group_name(4_000_000_001), None);
            for unknown in [&b""[..], b"no such user, surely", b"ro\0ot", b"\xff\xfe", b"0"] {
                assert_eq!(names.uid_of(unknown), None);
                assert_eq!(names.gid_of(unknown), None);
            }
        }
    }
}
