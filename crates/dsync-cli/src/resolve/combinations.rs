//! Refuses options that conflict, that lack another one they need, or that dsync does not support
//! in this use.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::PathBuf};

use dsync_engine::{Operand, notation::Owner};

use crate::{
    flags::{Attributes, Flags, When},
    usage::UsageError,
};

/// Whether an option was given, and its name.
type Given = (bool, &'static str);

/// Refuses combinations that make no run.
///
/// # Errors
/// [`UsageError`] that names the options.
pub(super) fn check(flags: &Flags) -> Result<(), UsageError> {
    let (deletion, writing) = (&flags.deletion, &flags.writing);
    one_of(&[
        (deletion.delete_before, "--delete-before"),
        (deletion.delete_during, "--delete-during"),
        (deletion.delete_delay, "--delete-delay"),
        (deletion.delete_after, "--delete-after"),
    ])?;
    one_of(&[
        (!writing.compare_dest.is_empty(), "--compare-dest"),
        (!writing.copy_dest.is_empty(), "--copy-dest"),
        (!writing.link_dest.is_empty(), "--link-dest"),
    ])?;
    check_contraries(flags)?;

    check_batches(flags)?;
    check_own_files(flags)?;
    none_with(
        (flags.output.write_manifest.is_some(), "--write-manifest"),
        &[
            (flags.output.list_only, "--list-only"),
            (flags.selection.iconv.is_some(), "--iconv"),
            (flags.batch.only_write_batch.is_some(), "--only-write-batch"),
        ],
    )?;

    if deletion.delete && !flags.attributes.takes_directories() {
        return Err(UsageError::Needs { option: "--delete", needed: "--recursive (-r) or --dirs (-d)" });
    }
    if deletion.delete_all_or_nothing && deletion.max_delete.is_none() {
        return Err(UsageError::Needs { option: "--delete-all-or-nothing", needed: "--max-delete" });
    }
    check_watch(flags)?;
    none_with((flags.remote.deploy, "--deploy"), &[(flags.remote.dsync_path.is_some(), "--dsync-path")])?;
    none_with((flags.output.json, "--json"), &[(flags.output.quiet, "--quiet")])?;
    if flags.selection.one_file_system > 1 {
        return Err(UsageError::UnsupportedUse { text: "--one-file-system given twice (-xx)" });
    }
    check_accepted(flags)
}

/// Refuses one name for two files that the run writes: the one would replace the other.
fn check_own_files(flags: &Flags) -> Result<(), UsageError> {
    let Flags { batch, output, .. } = flags;
    let named = [
        ("--write-batch", &batch.write_batch),
        ("--only-write-batch", &batch.only_write_batch),
        ("--read-batch", &batch.read_batch),
        ("--write-manifest", &output.write_manifest),
        ("--log-file", &output.log_file),
    ];
    let absolute = |name: &OsString| std::path::absolute(name).ok();
    let named = named.map(|(option, file)| (option, file.as_ref().and_then(absolute)));
    for (index, (option, file)) in named.iter().enumerate() {
        let same = |(_, other): &&(&str, Option<PathBuf>)| file.is_some() && file == other;
        if let Some((other, Some(file))) = named[index + 1..].iter().find(same) {
            let text = format!("{option} and {other} name the same file, '{}'", file.display());
            return Err(UsageError::Other { text });
        }
    }
    Ok(())
}

/// Refuses options that make no sense for a run that is made again.
fn check_watch(flags: &Flags) -> Result<(), UsageError> {
    let Flags { batch, output, .. } = flags;
    let shows_progress = output.progress_kind.is_some() || output.partial_progress;
    let replaced = "each run would replace the batch of the one before; record a single run without --watch";
    let refused = [
        (
            flags.writing.dry_run,
            "--dry-run (-n)",
            "a run that changes nothing would be made again and again; for one look leave --watch out",
        ),
        (
            output.list_only,
            "--list-only",
            "there is nothing to copy when something changes; for one list leave --watch out",
        ),
        (
            shows_progress,
            "--progress (-P)",
            "nobody looks at a run that starts by itself; -v or --json tells what each one did",
        ),
        (
            batch.read_batch.is_some(),
            "--read-batch",
            "a batch file does not change; apply it without --watch",
        ),
        (batch.write_batch.is_some(), "--write-batch", replaced),
        (batch.only_write_batch.is_some(), "--only-write-batch", replaced),
    ];

    match refused.into_iter().find(|(given, ..)| flags.stopping.watch && *given) {
        Some((_, with, why)) => Err(UsageError::NotWatched { with, why }),
        None => Ok(()),
    }
}

/// Refuses options that are taken without effect where rsync would do something else.
fn check_accepted(flags: &Flags) -> Result<(), UsageError> {
    let given = |long| flags.accepted.iter().any(|option| option.long == long);
    none_with((given("fsync"), "--fsync"), &[(flags.writing.durability == When::None, "--durability=none")])?;
    let changed = |word: &OsString| {
        let path = matches!(Operand::parse(word), Ok(Operand::Remote { .. })).then(|| word.as_bytes());
        let path =
            path.and_then(|word| word.iter().position(|&byte| byte == b':').map(|colon| &word[colon..]));
        path.is_some_and(|path| path.iter().any(|byte| SHELL_BYTES.contains(byte)))
    };
    if given("old-args") && flags.operands.iter().any(changed) {
        Err(UsageError::UnsupportedUse {
            text: "--old-args with a remote path that the remote shell would change (no shell reads it with dsync)",
        })
    } else {
        Ok(())
    }
}

/// Bytes that a shell changes or acts on.
const SHELL_BYTES: &[u8] = b" \t\n*?[]{}$`\"'\\;&|<>()!#";

/// Options that each exclude others.
fn check_contraries(flags: &Flags) -> Result<(), UsageError> {
    let Flags { attributes, deletion, writing, .. } = flags;
    check_owners(attributes)?;
    none_with(
        (deletion.moving().is_some(), deletion.moving().unwrap_or_default()),
        &[
            (deletion.delete, "--delete"),
            (deletion.delete_missing_args, "--delete-missing-args"),
            (writing.durability == When::None, "--durability=none"),
            (attributes.copy_devices, "--copy-devices"),
        ],
    )?;
    none_with(
        (writing.write_devices, "--write-devices"),
        &[
            (writing.append, "--append"),
            (writing.append_verify, "--append-verify"),
            (writing.backup, "--backup"),
            (writing.backup_dir.is_some(), "--backup-dir"),
        ],
    )?;
    let in_place = writing.in_place();
    let keeps_beginning = writing.append || writing.append_verify;

    none_with(
        (in_place.is_some(), in_place.unwrap_or_default()),
        &[
            // With --inplace the whole new file replaces the old bytes; --append has a beginning to
            // keep.
            (flags.comparison.whole_file && keeps_beginning, "--whole-file"),
            (!writing.link_dest.is_empty(), "--link-dest"),
            (writing.delay_updates, "--delay-updates"),
            (writing.partial_dir.is_some(), "--partial-dir"),
        ],
    )
}

/// Refuses what makes no sense with a batch file.
fn check_batches(flags: &Flags) -> Result<(), UsageError> {
    let (batch, selection) = (&flags.batch, &flags.selection);
    let moving = (flags.deletion.moving().is_some(), flags.deletion.moving().unwrap_or_default());
    let lists_only = (flags.output.list_only, "--list-only");
    let iconv = (flags.selection.iconv.is_some(), "--iconv");
    let copy_as = (flags.attributes.copy_as.is_some(), "--copy-as");

    none_with(
        (batch.read_batch.is_some(), "--read-batch"),
        &[
            (batch.write_batch.is_some(), "--write-batch"),
            (batch.only_write_batch.is_some(), "--only-write-batch"),
            (selection.files_from.is_some(), "--files-from"),
            moving,
            lists_only,
            iconv,
        ],
    )?;
    none_with(
        (batch.write_batch.is_some(), "--write-batch"),
        &[(batch.only_write_batch.is_some(), "--only-write-batch"), moving, lists_only, iconv, copy_as],
    )?;
    none_with((batch.only_write_batch.is_some(), "--only-write-batch"), &[lists_only, iconv, copy_as])
}

/// Refuses more than one of these options.
fn one_of(options: &[Given]) -> Result<(), UsageError> {
    match options.split_first() {
        Some((first, others)) => none_with(*first, others).and_then(|()| one_of(others)),
        None => Ok(()),
    }
}

/// Refuses the first option together with any of the others.
/// Refuses owners that are given twice: nobody could tell which one counts.
fn check_owners(attributes: &Attributes) -> Result<(), UsageError> {
    let chowned = |part: fn(&Owner) -> bool| attributes.chown.iter().filter(|owner| part(owner)).count();
    let (users, groups) = (chowned(|owner| owner.user.is_some()), chowned(|owner| owner.group.is_some()));
    for (option, count, what) in [
        ("--chown", users, "a user is"),
        ("--chown", groups, "a group is"),
        ("--usermap", attributes.usermap.len(), "rules are"),
        ("--groupmap", attributes.groupmap.len(), "rules are"),
    ] {
        if count > 1 {
            let (option, reason) = (option.to_owned(), format!("{what} given more than once"));
            return Err(UsageError::ValueInvalid { option, reason });
        }
    }
    none_with((users > 0, "--chown"), &[(!attributes.usermap.is_empty(), "--usermap")])?;
    none_with((groups > 0, "--chown"), &[(!attributes.groupmap.is_empty(), "--groupmap")])
}

fn none_with((given, one): Given, others: &[Given]) -> Result<(), UsageError> {
    match others.iter().find(|(other, _)| given && *other) {
        Some(&(_, other)) => Err(UsageError::Conflict { one, other }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::refusal;

    #[test]
    fn options_that_need_others_or_are_half_known_are_refused() {
        assert_eq!(
            refusal("--delete a b"),
            (1, "--delete does not work without --recursive (-r) or --dirs (-d)".into())
        );
        assert_eq!(refusal("-a --no-r --delete a b").0, 1);
        assert_eq!(
            refusal("-axx a b"),
            (4, "--one-file-system given twice (-xx) is not supported by dsync".into())
        );
        assert_eq!(refusal("--info=nonsense a b").0, 1);
    }

    #[test]
    fn options_without_effect_are_refused_where_they_would_have_one() {
        let ordered = super::super::tests::ordered;
        for line in ["--old-args a h:b/c.d", "--fsync a b", "--fsync --durability=file a b", "-s a h:b"] {
            assert!(ordered(line).is_ok(), "{line}");
        }
        assert_eq!(refusal("--old-args a h:*.c").0, 4);
        assert_eq!(refusal("--old-args h:{a,b} c").0, 4);
        assert_eq!(refusal("--fsync --durability=none a b").0, 1);
        assert!(ordered("-M--log-file=/x -M--fsync -M--protocol=31 a h:b").is_ok());
        assert_eq!(refusal("-M--log-files a h:b").0, 4);
    }

    #[test]
    fn options_that_contradict_each_other_are_both_named() {
        for (one, other, more) in [
            ("--delete-before", "--delete-after", "-r"),
            ("--delete-during", "--delete-delay", "-r"),
            ("--copy-dest", "--link-dest", "--copy-dest=a --link-dest=b"),
            ("--compare-dest", "--link-dest", "--compare-dest=a --link-dest=b"),
            ("--chown", "--usermap", "--chown=1 --usermap=1:2"),
            ("--chown", "--groupmap", "--chown=:1 --groupmap=1:2"),
            ("--remove-source-files", "--delete", "-r"),
            ("--remove-source-files", "--delete-missing-args", ""),
            ("--remove-source-files", "--durability=none", ""),
            ("--remove-source-files", "--copy-devices", ""),
            ("--remove-sent-files", "--delete", "-r"),
            ("--remove-sent-files", "--durability=none", ""),
            ("--append", "--whole-file", ""),
            ("--inplace", "--link-dest", "--link-dest=a"),
            ("--deploy", "--dsync-path", "--dsync-path=x"),
            ("--write-devices", "--append", ""),
            ("--write-devices", "--backup", ""),
            ("--write-devices", "--delay-updates", ""),
            ("--append-verify", "--delay-updates", ""),
            ("--inplace", "--partial-dir", "--partial-dir=p"),
        ] {
            let given = |option: &str| if more.contains(option) { String::new() } else { option.to_owned() };
            let line = format!("{} {} {more} a b", given(one), given(other));
            let expected = format!("'{one}' cannot be combined with '{other}'");
            assert_eq!(refusal(&line), (1, expected), "{line}");
        }
        assert!(super::super::tests::ordered("--inplace -W --chown=1 --groupmap=1:2 a b").is_ok());
    }

    #[test]
    fn an_owner_may_be_given_in_two_parts_and_each_part_once() {
        let rules = |line: &str| super::super::tests::options(line).id_rules.len();
        assert_eq!((rules("-a --chown=1 --chown=:4 a b"), rules("-a --chown=1:4 a b")), (2, 2));
        for (line, told) in [
            ("--chown=1 --chown=2:3", "--chown: a user is given more than once"),
            ("--chown=:1 --chown=2:3", "--chown: a group is given more than once"),
            ("--usermap=0:5 --usermap=1:6", "--usermap: rules are given more than once"),
            ("--groupmap=0:5 --groupmap=0:5", "--groupmap: rules are given more than once"),
        ] {
            assert_eq!(refusal(&format!("{line} a b")), (1, told.to_owned()), "{line}");
        }
    }
}
