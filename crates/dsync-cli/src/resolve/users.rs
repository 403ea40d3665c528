//! `--copy-as`: the users whose rights the ends work with.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use dsync_engine::{ActAs, CopyAs, Destination, Source};

use crate::{flags::Flags, usage::UsageError};

/// The option.
const OPTION: &str = "--copy-as";

/// Returns whether `-M` passes the option with this word.
pub(super) fn is_copy_as(word: &str) -> bool {
    value(word).is_some()
}

fn value(word: &str) -> Option<&str> {
    word.strip_prefix(OPTION)?.strip_prefix('=')
}

/// Returns the user of each end. As with rsync the option applies to the local end, and that of `-M`
/// to the remote end, which of a local run is the destination; of several the last counts.
///
/// # Errors
/// [`UsageError::ValueInvalid`].
pub(super) fn copy_as(
    flags: &Flags,
    source: &Source,
    destination: &Destination,
) -> Result<CopyAs, UsageError> {
    let here = flags.attributes.copy_as.as_deref().map(act_as).transpose()?;
    let there = flags.remote.remote_option.iter().rev().find_map(|word| value(word));
    let there = there.map(|word| act_as(OsStr::new(word))).transpose()?;

    let (from, to) = match (source, destination) {
        (Source::Remote { .. }, _) => (there, here),
        (_, Destination::Remote { .. }) => (here, there),
        _ => (here.clone(), there.or(here)),
    };
    Ok(CopyAs::default().source(from).destination(to))
}

/// Reads `USER[:GROUP]`.
fn act_as(word: &OsStr) -> Result<ActAs, UsageError> {
    let bytes = word.as_bytes();
    let (user, group) = match bytes.iter().position(|&byte| byte == b':') {
        Some(colon) => (&bytes[..colon], Some(&bytes[colon + 1..])),
        None => (bytes, None),
    };
    let missing = |what: &str| UsageError::ValueInvalid {
        option: OPTION.to_owned(),
        reason: format!("names no {what}: it is USER or USER:GROUP"),
    };
    if user.is_empty() {
        return Err(missing("user"));
    }
    if group.is_some_and(<[u8]>::is_empty) {
        return Err(missing("group"));
    }
    Ok(ActAs::new(user.to_vec()).group(group.map(<[u8]>::to_vec)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        super::tests::{ends_of, parsed},
        *,
    };

    /// Returns the users of source and destination, with their groups.
    fn users(line: &str) -> Result<[String; 2], u8> {
        let (line, direction) = line.rsplit_once(' ').unwrap();
        let (source, destination) = ends_of(direction);
        let users = copy_as(&parsed(line), &source, &destination).map_err(|error| error.exit_code())?;
        let shown = |who: Option<ActAs>| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            who.map_or_else(String::new, |who| {
                text(&who.user) + &who.group.map_or_else(String::new, |group| format!(":{}", text(&group)))
            })
        };
        Ok([shown(users.source), shown(users.destination)])
    }

    #[test]
    fn users_count_for_the_local_end_and_with_m_for_the_remote_one() {
        for (line, expected) in [
            ("--copy-as=joe local", ["joe", "joe"]),
            ("--copy-as=joe push", ["joe", ""]),
            ("--copy-as=joe pull", ["", "joe"]),
            ("-M--copy-as=joe local", ["", "joe"]),
            ("-M--copy-as=joe push", ["", "joe"]),
            ("-M--copy-as=joe pull", ["joe", ""]),
            ("--copy-as=a:b -M--copy-as=1:2 push", ["a:b", "1:2"]),
            ("--copy-as=a -M--copy-as=b -M--copy-as=c local", ["a", "c"]),
            ("-a local", ["", ""]),
        ] {
            assert_eq!(users(line), Ok(expected.map(str::to_owned)), "{line}");
        }
        for line in ["--copy-as= local", "--copy-as=:g local", "--copy-as=u: local", "-M--copy-as= push"] {
            assert_eq!(users(line), Err(1), "{line}");
        }
    }
}
