//! The write policy, from the command line and the environment.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _};

use dsync_engine::{AlternateUse, Alternates, Backup, KeepPartial, SyncOptions, WritePolicy};

use crate::{flags::Writing, usage::UsageError};

/// Sets the write policy.
///
/// # Errors
/// [`UsageError`].
pub(super) fn write(
    options: &mut SyncOptions,
    writing: &Writing,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(), UsageError> {
    options.dry_run = writing.dry_run;
    options.mkpath = writing.mkpath;
    options.keep_dirlinks = writing.keep_dirlinks;
    options.keep_partial = match (writing.partial || writing.partial_dir.is_some(), writing.no_partial) {
        (true, _) => KeepPartial::Always,
        (false, true) => KeepPartial::Never,
        (false, false) => KeepPartial::OnLostConnection,
    };
    options.writing = write_policy(writing)?;
    options.writing.partial_dir = partial_dir(writing, environment)?;
    Ok(())
}

/// Returns the directory for unfinished files.
fn partial_dir(
    writing: &Writing,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<Vec<u8>>, UsageError> {
    // As in rsync, the environment determines the place, not whether to keep them.
    let wished = || {
        environment("RSYNC_PARTIAL_DIR")
            .filter(|_| writing.partial && writing.in_place().is_none() && !writing.delay_updates)
    };
    let (dir, refusal) = match (&writing.partial_dir, wished()) {
        (Some(dir), _) => (dir.clone(), "--partial-dir with a relative path of several names"),
        (None, Some(dir)) => {
            (dir, "RSYNC_PARTIAL_DIR in the environment, with a relative path of several names,")
        }
        (None, None) => return Ok(None),
    };

    let dir = dir.as_bytes();
    if dir.starts_with(b"/") {
        return Ok(Some(dir.to_vec()));
    }
    let mut steps = dir.split(|&byte| byte == b'/').filter(|step| ![&b""[..], b"."].contains(step));
    match (steps.next(), steps.next()) {
        (None, _) => Ok(None),
        (Some([b'.', b'.']), _) | (_, Some(_)) => Err(UsageError::UnsupportedUse { text: refusal }),
        (Some(name), None) => Ok(Some(name.to_vec())),
    }
}

/// Refuses paths for a remote end that begin with `~`: rsync has the remote shell expand it, and here it would
/// be a name in the destination.
pub(super) fn check_homes(writing: &Writing) -> Result<(), UsageError> {
    let one = |option, path: &Option<OsString>| path.iter().map(move |path| (option, path.clone())).collect();
    let each = |option, paths: &[OsString]| paths.iter().map(|path| (option, path.clone())).collect();
    let given: [Vec<(&str, OsString)>; 6] = [
        one("--backup-dir", &writing.backup_dir),
        one("--partial-dir", &writing.partial_dir),
        one("--temp-dir", &writing.temp_dir),
        each("--compare-dest", &writing.compare_dest),
        each("--copy-dest", &writing.copy_dest),
        each("--link-dest", &writing.link_dest),
    ];
    let at_home = given.into_iter().flatten().find(|(_, path)| path.as_bytes().starts_with(b"~"));
    let Some((option, path)) = at_home else { return Ok(()) };
    Err(UsageError::UnsupportedValue {
        option: option.to_owned(),
        value: path.to_string_lossy().into_owned(),
        known: "a path from / on, one that is relative to the destination, or ./~ for such a name".to_owned(),
    })
}

/// Applies rsync's rules for combinations of options.
fn write_policy(writing: &Writing) -> Result<WritePolicy, UsageError> {
    let bytes = |word: &OsString| word.as_bytes().to_vec();
    let dir = writing.backup_dir.as_ref().map(bytes);
    let suffix = match &writing.suffix {
        Some(suffix) => bytes(suffix),
        None if dir.is_some() => Vec::new(),
        None => b"~".to_vec(),
    };

    if suffix.contains(&b'/') {
        let value = writing.suffix.clone().unwrap_or_default().to_string_lossy().into_owned();
        return Err(UsageError::ValueUnknown {
            option: "--suffix".to_owned(),
            value,
            known: "a text without /".to_owned(),
        });
    }
    if suffix.is_empty() && dir.is_none() {
        return Err(UsageError::Needs { option: "--suffix without a text", needed: "--backup-dir" });
    }

    let backup = (writing.backup || dir.is_some()).then_some(Backup::new(suffix).dir(dir));
    let alternates = alternates(writing)?;
    let Writing { delay_updates, preallocate, sparse, .. } = *writing;
    let (inplace, append) = (writing.in_place().is_some(), writing.append());
    let temp_dir = writing.temp_dir.as_ref().map(bytes);

    Ok(WritePolicy::default()
        .inplace(inplace)
        .devices(writing.write_devices)
        .append(append)
        .delay_updates(delay_updates)
        .preallocate(preallocate)
        .sparse(sparse)
        .temp_dir(temp_dir)
        .partial_dir(None)
        .backup(backup)
        .alternates(alternates))
}

fn alternates(writing: &Writing) -> Result<Option<Alternates>, UsageError> {
    let kinds = [
        (AlternateUse::Compare, &writing.compare_dest),
        (AlternateUse::Copy, &writing.copy_dest),
        (AlternateUse::Link, &writing.link_dest),
    ];
    let Some((way, dirs)) = kinds.into_iter().find(|(_, dirs)| !dirs.is_empty()) else { return Ok(None) };
    if dirs.len() > dsync_engine::MAX_ALTERNATES {
        return Err(UsageError::UnsupportedUse {
            text: "one of --compare-dest, --copy-dest and --link-dest more than 20 times",
        });
    }
    Ok(Some(Alternates::new(way, dirs.iter().map(|dir| dir.as_bytes().to_vec()).collect())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        super::{
            sync_options,
            tests::local_report,
            tests::{parsed, refusal},
        },
        *,
    };
    use crate::rules::Rules;

    #[test]
    fn a_home_directory_is_not_looked_up_for_places_at_the_other_end() {
        for option in
            ["--backup-dir", "--partial-dir", "--temp-dir", "--copy-dest", "--compare-dest", "--link-dest"]
        {
            let of = |value: &str, operands: &str| {
                super::super::tests::ordered(&format!("-a {option}={value} {operands}"))
            };
            let (code, text) = refusal(&format!("-a {option}=~/x a h:b"));
            assert!(code == 4 && text.contains("relative to the destination"), "{code} {text}");
            assert!(of("~/x", "a b").is_ok() || option == "--partial-dir", "{option}: a name of this end");
            assert!(of("x", "a h:b").is_ok() && of("/x", "a h:b").is_ok(), "{option}");
        }
    }

    #[test]
    fn unfinished_files_go_where_the_option_or_else_the_environment_says() {
        let of = |line: &str| {
            let environment = |name: &str| (name == "RSYNC_PARTIAL_DIR").then(|| OsString::from("env"));
            let flags = parsed(line);
            let rules = Rules::collect(&flags.selection, &Default::default(), &Default::default()).unwrap();
            let options = sync_options(&flags, &environment, &rules, &local_report(&flags)).unwrap();
            (options.keep_partial, options.writing.partial_dir.map(|dir| String::from_utf8(dir).unwrap()))
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(of("-a"), (KeepPartial::OnLostConnection, None));
        assert_eq!(of("--partial"), (KeepPartial::Always, named("env")));
        assert_eq!(of("-P --inplace"), (KeepPartial::Always, None));
        assert_eq!(of("--no-partial --partial-dir=./p/"), (KeepPartial::Always, named("p")));
        assert_eq!(of("--partial-dir=p --no-partial"), (KeepPartial::Always, named("p")));
        assert_eq!(of("--partial-dir=/a/b"), (KeepPartial::Always, named("/a/b")));
        assert_eq!(of("--partial-dir=. -P"), (KeepPartial::Always, None));
        assert_eq!(refusal("--partial-dir=p --inplace a b").0, 1);
        assert_eq!(refusal("--partial-dir=p/q a b").0, 4);
        assert_eq!(refusal("--partial-dir=.. a b").0, 4);

        let environment = |name: &str| (name == "RSYNC_PARTIAL_DIR").then(|| OsString::from("p/q"));
        let refused = |line: &str| partial_dir(&parsed(line).writing, &environment).unwrap_err().to_string();
        assert!(refused("--partial").starts_with("RSYNC_PARTIAL_DIR in the environment"));
        assert!(refused("--partial-dir=r/s").starts_with("--partial-dir with a relative path"));
    }
}
