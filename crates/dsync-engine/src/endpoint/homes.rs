//! Paths of a client that begin at a user's home directory, as a login shell expands them.

use std::os::unix::ffi::OsStrExt as _;

use dsync_fs::{home_directory, home_directory_of};
use dsync_wire::{
    message::{ListPlace, PeerRole},
    options::SyncOptions,
};

use crate::{SyncError, grant::Start};

/// Returns what the client asks for, with the home directories of users in place of their names.
///
/// # Errors
/// As [`at_home`].
pub(super) fn at_homes(
    role: PeerRole,
    list: ListPlace,
    options: &SyncOptions,
    start: &Start,
) -> Result<(PeerRole, ListPlace), SyncError> {
    let role = match role {
        PeerRole::Source { paths } => {
            let paths = paths.into_iter().map(|path| at_home(path, options, start));
            PeerRole::Source { paths: paths.collect::<Result<_, _>>()? }
        }
        PeerRole::Destination { path, asked } => {
            PeerRole::Destination { path: at_home(path, options, start)?, asked }
        }
    };
    let list = match list {
        ListPlace::File { path, nul } => ListPlace::File { path: at_home(path, options, start)?, nul },
        other => other,
    };
    Ok((role, list))
}

/// Returns a path of the client with the home directory of a user in place of `~USER`, and that of this
/// end's user in place of `~`. Under a grant, whose directory is all that its client knows of, `~` is that
/// directory.
///
/// # Errors
/// [`SyncError::UnknownHome`]; [`SyncError::InvalidOption`] for another user's under a grant.
fn at_home(path: Vec<u8>, options: &SyncOptions, start: &Start) -> Result<Vec<u8>, SyncError> {
    let is_meant = |rest: &&[u8]| options.other_homes || matches!(rest, [] | [b'/', ..]);
    let Some(rest) = path.strip_prefix(b"~").filter(is_meant) else { return Ok(path) };
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (user, below) = rest.split_at(end);
    if start.grant.is_some() {
        if user.is_empty() {
            return Ok([b".", below].concat());
        }
        let why = "begins at a home directory, and this key has one directory only: write a path in that";
        return Err(SyncError::InvalidOption { option: "path", why: why.to_owned() });
    }

    let own = || start.home.clone().or_else(home_directory);
    let home = if user.is_empty() { own() } else { home_directory_of(user) };
    let unknown = || SyncError::UnknownHome { user: String::from_utf8_lossy(user).into_owned() };
    Ok([home.ok_or_else(unknown)?.as_os_str().as_bytes(), below].concat())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn only_the_name_of_a_user_is_replaced_and_only_where_it_is_asked_for() {
        let asked = SyncOptions::default().other_homes(true);
        let of = |path: &[u8], options: &SyncOptions| at_home(path.to_vec(), options, &Start::default());
        let home = home_directory_of(b"root").unwrap().into_os_string().into_vec();
        assert_eq!(of(b"~root/./x/~y", &asked).unwrap(), [&home, &b"/./x/~y"[..]].concat());
        assert_eq!(of(b"~root/", &asked).unwrap(), [&home, &b"/"[..]].concat());
        for literal in [&b"x/~root"[..], b"/~root", b"./~root", b"./~/x"] {
            assert_eq!(of(literal, &asked).unwrap(), literal);
        }
        assert_eq!(of(b"~root/x", &SyncOptions::default()).unwrap(), b"~root/x");
        for nobody in [&b"~no-such-user/x"[..], b"~\xff/x", b"~a\0/x"] {
            assert!(matches!(of(nobody, &asked), Err(SyncError::UnknownHome { .. })));
        }
    }

    #[test]
    fn the_own_home_is_the_one_that_the_caller_names() {
        let asked = SyncOptions::default();
        let named = Start::of(None, Some("/srv/app".into()));
        assert_eq!(at_home(b"~/./x".to_vec(), &asked, &named).unwrap(), b"/srv/app/./x");
        let own = home_directory().unwrap().into_os_string().into_vec();
        assert_eq!(at_home(b"~/".to_vec(), &asked, &Start::default()).unwrap(), [&own, &b"/"[..]].concat());
    }
}
