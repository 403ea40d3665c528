//! Names of users and groups from the C library's name service; each is asked for once.

use std::{
    collections::HashMap,
    hash::Hash,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use nix::unistd::{Gid, Group, Uid, User};

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
        cached(&self.users, uid, |&uid| Some(User::from_uid(Uid::from_raw(uid)).ok()??.name.into_bytes()))
    }

    /// Returns the name of a group.
    pub fn group_name(&self, gid: u32) -> Option<Vec<u8>> {
        cached(&self.groups, gid, |&gid| Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name.into_bytes()))
    }

    /// Returns the number of the user with this login name.
    pub fn uid_of(&self, name: &[u8]) -> Option<u32> {
        cached(&self.uids, name.to_vec(), |name| Some(User::from_name(as_name(name)?).ok()??.uid.as_raw()))
    }

    /// Returns the number of the group with this name.
    pub fn gid_of(&self, name: &[u8]) -> Option<u32> {
        cached(&self.gids, name.to_vec(), |name| Some(Group::from_name(as_name(name)?).ok()??.gid.as_raw()))
    }
}

/// Returns the home directory of the user that this process acts for, according to the name
/// service.
pub fn home_directory() -> Option<PathBuf> {
    Some(User::from_uid(Uid::effective()).ok()??.dir)
}

/// Returns the home directory of the user with this login name, according to the name service.
pub fn home_directory_of(name: &[u8]) -> Option<PathBuf> {
    Some(User::from_name(as_name(name)?).ok()??.dir)
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
