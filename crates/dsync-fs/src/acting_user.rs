//! The user whose rights a thread works with: `--copy-as`.
//!
//! On Linux each thread has user and group numbers of its own, and the threads that it starts have
//! the same. The C library's functions change those of all threads at once; the calls here change
//! the calling thread only, for good. The law: a thread gives up all that it had as root, groups and
//! capabilities among it, or has an error and does no work.

use std::{ffi::CString, io};

use nix::unistd::{Group, User, getgrouplist};
use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

use crate::attributes::Privileges;

/// A user to work as, with a group and further groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActingUser {
    uid: u32,
    gid: u32,
    /// Supplementary groups, `gid` among them.
    groups: Vec<u32>,
}

/// The reason why nobody can work as a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActingUserError {
    /// The system does not know the user; a number without an account needs a group.
    #[error("there is no such user")]
    NoUser,
    /// The system does not know the group.
    #[error("there is no such group")]
    NoGroup,
    /// The thread may not take another user's rights.
    #[error("only root may work as another user")]
    NotRoot,
    /// The system refused it.
    #[error("the system refused the change of user")]
    Refused(#[source] io::Error),
}

impl ActingUser {
    /// Looks up a user, and a group if one is named, both by name or by number. With a group that is
    /// the only one; else the user has those of his account.
    ///
    /// # Errors
    /// [`ActingUserError::NoUser`], [`ActingUserError::NoGroup`], or
    /// [`ActingUserError::Refused`] if the name service fails.
    pub fn find(user: &[u8], group: Option<&[u8]>) -> Result<Self, ActingUserError> {
        let account = account(user)?;
        let number = number(user);

        if let Some(group) = group {
            let uid = account.map(|account| account.uid.as_raw()).or(number);
            let (uid, gid) = (uid.ok_or(ActingUserError::NoUser)?, group_number(group)?);
            return Ok(Self { uid, gid, groups: vec![gid] });
        }
        let account = account.ok_or(ActingUserError::NoUser)?;
        let name = CString::new(account.name).map_err(|_| ActingUserError::NoUser)?;
        let groups = getgrouplist(&name, account.gid).map_err(refused)?;
        let groups = groups.into_iter().map(|group| group.as_raw()).collect();
        Ok(Self { uid: account.uid.as_raw(), gid: account.gid.as_raw(), groups })
    }

    /// Makes the calling thread, and those that it starts from now on, work as this user.
    ///
    /// # Errors
    /// [`ActingUserError::NotRoot`] or [`ActingUserError::Refused`]. The thread may have lost some of
    /// its rights by then.
    pub fn become_on_this_thread(&self) -> Result<(), ActingUserError> {
        let Self { uid, gid, groups } = self;
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();

        // Groups first: without root's number they could not be changed.
        set_thread_groups(&groups).map_err(|error| match error {
            Errno::PERM => ActingUserError::NotRoot,
            other => refused(other),
        })?;
        set_thread_res_gid(gid, gid, gid).map_err(refused)?;
        set_thread_res_uid(uid, uid, uid).map_err(refused)?;
        if !uid.is_root() {
            // The kernel does this with the number, unless the process was told to keep them.
            let nothing = CapabilitySet::empty();
            let none = CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
            set_capabilities(None, none).map_err(refused)?;
        }
        Privileges::forget();
        Ok(())
    }
}

fn refused(error: impl Into<io::Error>) -> ActingUserError {
    ActingUserError::Refused(error.into())
}

/// Returns the account of this name, or else of this number.
fn account(word: &[u8]) -> Result<Option<User>, ActingUserError> {
    let Some(name) = as_name(word) else { return Ok(None) };
    match (User::from_name(name).map_err(refused)?, number(word)) {
        (None, Some(id)) => User::from_uid(id.into()).map_err(refused),
        (found, _) => Ok(found),
    }
}

fn group_number(word: &[u8]) -> Result<u32, ActingUserError> {
    let name = as_name(word).ok_or(ActingUserError::NoGroup)?;
    let named = Group::from_name(name).map_err(refused)?.map(|group| group.gid.as_raw());
    named.or_else(|| number(word)).ok_or(ActingUserError::NoGroup)
}

/// Returns a name in the form of the C library; an empty one must not be looked up.
fn as_name(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok().filter(|name| !name.is_empty() && !name.contains('\0'))
}

/// Reads a number. To the kernel the highest one means that nothing is to change.
fn number(word: &[u8]) -> Option<u32> {
    let digits = as_name(word).filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|&number| number != u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::process::{getegid, geteuid, getgroups};

    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_by_number() {
        let root = ActingUser::find(b"root", None).unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(ActingUser::find(b"0", None).unwrap(), root);
        let numbers = ActingUser { uid: 4_000_000_001, gid: 7, groups: vec![7] };
        assert_eq!(ActingUser::find(b"4000000001", Some(b"7")).unwrap(), numbers);

        for user in [&b""[..], b"no such user, surely", b"ro\0ot", b"4000000001", b"4294967295", b"-1", b"+0"]
        {
            let error = ActingUser::find(user, None).unwrap_err();
            assert!(matches!(error, ActingUserError::NoUser), "{error}");
        }
        for group in [&b""[..], b"no such group, surely", b"4294967295"] {
            let error = ActingUser::find(b"root", Some(group)).unwrap_err();
            assert!(matches!(error, ActingUserError::NoGroup), "{error}");
        }
    }

    #[test]
    fn a_thread_gives_up_all_of_root_and_the_process_keeps_it() {
        let before = (geteuid(), getegid(), getgroups().unwrap());
        let user = ActingUser { uid: 4_000_000_001, gid: 4_000_000_002, groups: vec![4_000_000_003] };
        let became = std::thread::spawn(move || {
            let privileged = Privileges::current().is_root();
            let result = user.become_on_this_thread();
            if !privileged {
                assert!(matches!(result, Err(ActingUserError::NotRoot)));
                return;
            }
            result.unwrap();
            // A thread that it starts is the same user.
            let heir = std::thread::spawn(|| {
                assert!(
                    !Privileges::current().is_root() && Privileges::current().may_set_group(4_000_000_003)
                );
                assert!(rustix::thread::capabilities(None).unwrap().permitted.is_empty());
                assert_eq!(geteuid().as_raw(), 4_000_000_001);
                assert!(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err());
            });
            assert!(!Privileges::current().is_root() && Privileges::current().is_user(4_000_000_001));
            heir.join().unwrap();
        });
        became.join().unwrap();
        assert_eq!((geteuid(), getegid(), getgroups().unwrap()), before);
    }
}
