//! Advice on errors: maps the facts of the library to the options of the command.
//!
//! The library's errors name no option. This module names the option that an error is about, or the
//! one that helps.

use std::{io, path::Path};

use dsync_engine::{
    Access, ActingUserError, AlternateUse, BatchError, BatchFault, ConnectError, FileListError, Operation,
    PathRole, PeerMisbehaved, ShellStatus, SyncError, exit_code,
    grant::{Demand, Excess, OwnerRule},
};

use crate::messages;

/// Returns an error's sentence in terms of options, if it needs one.
pub(crate) fn in_options(error: &SyncError) -> Option<String> {
    match error {
        SyncError::DirectoryUnusable { role, path, .. } => {
            Some(format!("cannot use '{}' as {}", path.display(), role_option(*role)))
        }
        SyncError::AlternatesMissing { way, .. } => Some(format!(
            "{error} ({option}; a relative one starts at the destination). Correct it, or leave {option} out for a first copy",
            option = role_option(PathRole::Alternate(*way)),
        )),
        SyncError::UntrustedLink { role, path, link } => Some(format!(
            "refusing {} '{}': {link}, and could lead anywhere",
            role_option(*role),
            path.display()
        )),
        SyncError::LeadsOut { role, path, step } => Some(format!(
            "refusing {} '{}': {step}; all paths start at the directory that the key is for (--restrict, or its share)",
            role_option(*role),
            path.display()
        )),

        SyncError::Connect(ConnectError::ShellFailed { stderr, .. }) if is_rsync(stderr) => {
            Some("the program at the other end is rsync, not dsync".to_owned())
        }
        SyncError::NotGranted { demand, terms } if is_for_nobody(*demand) => {
            let whose = if terms.share.is_some() {
                "no share of a server allows it, whatever the key's role"
            } else {
                "no key that is for one directory (--restrict) allows it"
            };
            Some(format!("{}: {whose}", demand_options(*demand)))
        }
        SyncError::NotGranted { demand, terms } if terms.share.is_some() => Some(format!(
            "{}: not allowed in {}: your key has the role '{}' there, for {} only",
            demand_options(*demand),
            terms.place(),
            terms.access.role(),
            terms.access.purpose(),
        )),
        SyncError::NotGranted { demand, terms } => Some(format!(
            "{}: not allowed in '{}': the key that you logged in with is for {} only (--restrict {terms})",
            demand_options(*demand),
            terms.path.display(),
            terms.access.purpose(),
        )),
        SyncError::InvalidOption { option, why } => {
            as_typed(option).map(|typed| format!("{typed}: {why}"))
        }
        SyncError::BatchOptions { path, lacking, beyond, other } => {
            Some(fitting(path, lacking, beyond, other))
        }
        SyncError::Peer { text, .. } => unknown_field(text).map(|field| {
            let option = if field == "other-homes" { "~USER in its path" } else { field };
            format!("the other end has an older dsync, which lacks what this run asks it for ({option}): upgrade it there")
        }),
        _ => None,
    }
}

/// Describes a batch file that cannot be used, with what to do.
pub(crate) fn of_batch(error: &BatchError) -> String {
    let advice = of_batch_fault(&error.source).map_or_else(String::new, |advice| format!(". {advice}"));
    format!("{}{advice}", messages::caused(error))
}

/// Returns the next step after a fault of a batch file.
fn of_batch_fault(fault: &BatchFault) -> Option<&'static str> {
    Some(match fault {
        BatchFault::NotRegular => "Name a regular file, or - to read one from standard input.",
        BatchFault::Foreign => "--write-batch makes one.",
        BatchFault::OfRsync => "Apply it with rsync, or record the run anew with --write-batch.",
        BatchFault::Newer { .. } | BatchFault::OtherMessages { .. } => {
            "Read it with the version of dsync that wrote it."
        }
        BatchFault::Truncated | BatchFault::Damaged | BatchFault::Malformed { .. } => {
            "Nothing was changed. Copy it again from where it was made, or record the run anew."
        }
        _ => return None,
    })
}

/// Says which options would fit a batch.
fn fitting(path: &Path, lacking: &[&str], beyond: &[&str], other: &[&str]) -> String {
    let spelled = |names: &[&str]| names.iter().map(|name| batch_option(name)).collect::<Vec<_>>().join(" ");
    let parts = [("add", lacking), ("leave out", beyond), ("give as it was then:", other)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let todo: Vec<_> = parts.map(|(what, names)| format!("{what} {}", spelled(names))).collect();
    format!("the batch file '{}' was recorded with other options: {}", path.display(), todo.join(", "))
}

/// Returns the option of a name that a batch and a run may differ in.
fn batch_option(name: &str) -> &str {
    BATCH_OPTIONS.iter().find(|(field, _)| *field == name).map_or(name, |(_, option)| option)
}

/// The fields that may differ, with their options.
const BATCH_OPTIONS: &[(&str, &str)] = &[
    ("recursive", "-r"),
    ("dirs", "-d"),
    ("relative", "-R"),
    ("links", "-l"),
    ("copy_links", "-L"),
    ("copy_dirlinks", "-k"),
    ("owner", "-o"),
    ("group", "-g"),
    ("acls", "-A"),
    ("xattrs", "-X"),
    ("atimes", "-U"),
    ("hard_links", "-H"),
    ("checksum", "-c"),
    ("prune_empty_dirs", "-m"),
    ("devices", "--devices"),
    ("specials", "--specials"),
    ("copy_devices", "--copy-devices"),
    ("numeric_ids", "--numeric-ids"),
    ("no_implied_dirs", "--no-implied-dirs"),
    ("copy_unsafe_links", "--copy-unsafe-links"),
    ("delete_missing_args", "--delete-missing-args"),
    ("munge_links", "--munge-links"),
    ("mode_rules", "--chmod"),
    ("filters", "the filter rules (or none)"),
];

/// Returns the option of a run that an older end does not know, in its words.
fn unknown_field(text: &str) -> Option<&str> {
    let (_, named) = text.split_once("its options are not understood: unknown field `")?;
    named.split_once('`').map(|(field, _)| field)
}

/// Returns the next step after an error, in sentences of its own.
pub(crate) fn on(error: &SyncError) -> Option<&'static str> {
    Some(match error {
        SyncError::DestinationParentMissing { .. } => "--mkpath makes it.",
        SyncError::UntrustedLink { .. } => {
            "Remove the link or take it over. If everybody who may write on the way is trusted, --insecure-links \
             follows it, at a remote end -M--insecure-links."
        }
        SyncError::LimitExceeded { excess: Excess::LongFile { .. }, .. } => {
            "Leave it out (--max-size), or have the administrator there raise the limit."
        }
        SyncError::LimitExceeded { excess: Excess::Hours, .. } => {
            "What was finished is kept; run the same command again when the hours begin."
        }
        SyncError::LimitExceeded { excess: Excess::Owners { rule }, .. } => on_owners(*rule),
        SyncError::LimitExceeded { .. } => "Leave it out, or have the administrator there change the limit.",
        SyncError::NotGranted { demand, .. } if is_for_nobody(*demand) => "Leave it out.",
        SyncError::NotGranted { terms, .. } => on_role(terms.share.is_some()),
        SyncError::ActingUser { source, .. } => return on_acting(source),
        SyncError::SourceInsideDestination { .. } => "Exclude it, or leave --delete out.",
        SyncError::DestinationIsSource { .. } => "Name another directory.",
        SyncError::DestinationInsideSource { .. } => "Exclude it (--exclude=/NAME/), or name one elsewhere.",
        SyncError::EmptySource { .. } => EMPTY_SOURCE,
        SyncError::FileList { source: FileListError::ZeroByte, .. } => ZERO_BYTES,
        SyncError::DestinationPrecious { .. } => "--force-root deletes there.",
        SyncError::Filesystem { operation, source, .. }
            if writes(*operation) && source.kind() == io::ErrorKind::QuotaExceeded =>
        {
            "The old copy is untouched, unless --inplace was rewriting it. Remove something there or have the \
             administrator there raise the limit, then run the same command again."
        }
        SyncError::Filesystem { operation, source, .. } if writes(*operation) && is_full(source) => {
            "The old copy is untouched, unless --inplace was rewriting it. Free some space and run the same \
             command again."
        }
        SyncError::DestinationUnusable { source, .. } => return on_destination(source),
        SyncError::Thread { .. } => "Raise the limit on memory (ulimit -v) or on processes (ulimit -u).",
        SyncError::NoSpool { .. } => "Set TMPDIR or --temp-dir to a directory on a disk.",
        SyncError::OverBudget(_) => MORE_MEMORY,
        SyncError::Link(_) | SyncError::GaveUp { .. } => {
            "What was finished is kept; run the same command again."
        }
        SyncError::Timeout { .. } => {
            "What was finished is kept; run the same command again, or with a longer --timeout."
        }
        SyncError::Stalled { .. } => {
            "What was finished is kept; run the same command again, or with a longer --max-stall."
        }
        SyncError::Locked { .. } => {
            "--lock-wait waits until it has ended. If there is none, another user's that was killed has left its .dsync-lock-* there."
        }
        SyncError::PeerMisbehaved(PeerMisbehaved::TooManyOwners { .. }) => {
            "With --numeric-ids no names are needed."
        }
        SyncError::Aborted { .. } => "This is an error in dsync; please report it.",
        SyncError::Batch(error) => return of_batch_fault(&error.source),
        SyncError::Connect(error) => return on_connecting(error),

        _ => return None,
    })
}

/// Returns the next step where the destination itself cannot be made.
fn on_destination(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::QuotaExceeded => {
            "Remove something there or have the administrator there raise the limit, then run the same \
             command again."
        }
        io::ErrorKind::StorageFull => "Free some space and run the same command again.",
        _ => return None,
    })
}

/// Returns the next step where --copy-as cannot act for its user.
fn on_acting(error: &ActingUserError) -> Option<&'static str> {
    match error {
        ActingUserError::NotRoot => Some(
            "--copy-as needs root at its end: sudo dsync here; with -M--copy-as root@HOST, or --dsync-path='sudo dsync'.",
        ),
        ActingUserError::NoUser => Some(
            "--copy-as takes an account of its end, by name or number; a number without an account needs a group: NUMBER:GROUP.",
        ),
        _ => None,
    }
}

/// The cure of too little memory: a remote end's words are shown here, where its options are others.
const MORE_MEMORY: &str = "If that is meant, run this end with a higher --max-alloc (a remote end: \
    --dsync-path='dsync --max-alloc=2G').";
const ZERO_BYTES: &str = "-0 is for lists whose names end with one.";
const EMPTY_SOURCE: &str =
    "Is the source mounted, and do rules leave anything of it? --allow-empty-source deletes all the same.";

/// Returns the next step after an option that contradicts a key's rule for owners.
fn on_owners(rule: OwnerRule) -> &'static str {
    match rule {
        OwnerRule::FakeSuper => "Leave -M--no-super out, or have the administrator there change the rule.",
        OwnerRule::Groups => {
            "Leave --groupmap and --chown out, or have the administrator there change the rule."
        }
        _ => "Leave --usermap and --chown out, or have the administrator there change the rule.",
    }
}

/// Returns the option of the command line that sets an option of the library, where a run may find its value
/// wrong: all others are checked as they are read.
fn as_typed(option: &str) -> Option<&'static str> {
    Some(match option {
        "event_tree" => "--write-manifest",
        "spelling" => "--iconv",
        "id_rules" => "--usermap, --groupmap or --chown",
        "writing.alternates" => "--link-dest, --copy-dest or --compare-dest",
        "writing.backup" => "--backup-dir or --suffix",
        "writing.partial_dir" => "--partial-dir",
        "writing.temp_dir" => "--temp-dir",
        _ => return None,
    })
}

/// Returns whether no key may make a request, whatever its access.
fn is_for_nobody(demand: Demand) -> bool {
    !Access::EACH.into_iter().any(|access| access.allows(demand))
}

/// Returns the next step after a request that a key may not make: a server's share, or a command.
fn on_role(of_share: bool) -> &'static str {
    if of_share {
        "Leave it out, or have the administrator there give the key another role."
    } else {
        "Leave it out, or have the administrator there change the key's command in authorized_keys."
    }
}

/// Returns the next step after a failure to connect.
fn on_connecting(error: &ConnectError) -> Option<&'static str> {
    Some(match error {
        ConnectError::ShellNotFound { .. } => "Install it or choose another with -e.",
        ConnectError::RemoteProgramMissing { .. } => {
            "Install it there, set --dsync-path, or run `dsync --deploy SRC HOST:DST` once, which takes this program there."
        }

        // The words of another program.
        ConnectError::ShellFailed { stderr, .. } if is_rsync(stderr) => {
            "Install dsync there, and name it in rsync's place: --dsync-path=dsync, or --dsync-path='sudo dsync' (--rsync-path is the same)."
        }
        ConnectError::ShellFailed { stderr, .. } if is_dovecot(stderr) => {
            "The 'dsync' there belongs to Dovecot, a mail server: install this one at another path and name that with --dsync-path."
        }
        ConnectError::ShellFailed { status: ShellStatus::Exited(SSH_FAILED), .. } => {
            "dsync logs in as ssh does: when 'ssh HOST true' works, with the same user and -e, so does this."
        }
        ConnectError::NoGreeting { .. } => "See --dsync-path.",
        ConnectError::PortBlocked { .. } => "A firewall? Use --transport=auto or --transport=ssh.",
        ConnectError::OnlyPipe { .. } | ConnectError::PortUnavailable { .. } => {
            "Use --transport=auto or --transport=ssh."
        }
        // The other end refuses with this code only if none of the requested ports is free there.
        ConnectError::Refused { exit_code: exit_code::SOCKET, .. } => "Choose other ports with --port.",
        _ => return None,
    })
}

/// ssh's own exit code when it did not get as far as the command.
const SSH_FAILED: i32 = 255;

/// Returns whether these are the last words of rsync, given `--server` and nothing else. dsync under the name
/// `rsync` never says so.
pub(crate) fn is_rsync(stderr: &[String]) -> bool {
    stderr.iter().any(|line| line.starts_with("rsync error: syntax or usage error"))
}

/// Returns whether these are the last words of Dovecot's program of the same name, given `--server`.
fn is_dovecot(stderr: &[String]) -> bool {
    stderr.iter().any(|line| line.contains("Missing mirror or backup parameter"))
}

/// Returns the name that a path's use has on the command line.
fn role_option(role: PathRole) -> &'static str {
    match role {
        PathRole::Source => "source",
        PathRole::Temporaries => "--temp-dir",
        PathRole::Partials => "--partial-dir",
        PathRole::Backups => "--backup-dir",
        PathRole::Alternate(AlternateUse::Compare) => "--compare-dest",
        PathRole::Alternate(AlternateUse::Copy) => "--copy-dest",
        PathRole::Alternate(_) => "--link-dest",
        _ => "destination",
    }
}

/// Returns the options that make a demand.
pub(crate) fn demand_options(demand: Demand) -> &'static str {
    match demand {
        Demand::Read => "copying from there",
        Demand::Write => "copying to there",
        Demand::Delete => "--delete and its like",
        Demand::Force => "--force",
        Demand::InPlace => "--inplace and --append",
        Demand::Backup => "--backup",
        Demand::DelayUpdates => "--delay-updates",
        Demand::PartialDir => "--partial-dir",
        Demand::TempDir => "--temp-dir",
        Demand::DetectRenamed => "--detect-renamed",
        Demand::Alternates => "--compare-dest, --copy-dest and --link-dest",
        Demand::MakePath => "--mkpath",
        Demand::RemoveSource => "--remove-source-files",
        Demand::CopyDevices => "--copy-devices",
        Demand::WriteDevices => "--write-devices",
        Demand::KeepDirlinks => "--keep-dirlinks",
        Demand::ImpliedDirs => "--no-implied-dirs",
        Demand::InsecureLinks => "--insecure-links",
        Demand::CopyAs => "--copy-as",
        _ => "what was asked for",
    }
}

fn writes(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::ReadDirectory
            | Operation::Stat
            | Operation::ReadFile
            | Operation::ReadLink
            | Operation::FollowLink
    )
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
}

#[cfg(test)]
mod tests {
    use dsync_engine::{GrantTerms, Reason};

    use super::*;

    #[test]
    fn a_request_that_no_key_may_make_names_no_role_as_its_cure() {
        let refused = |demand, share: Option<&str>| {
            let terms = GrantTerms::new("/srv".into(), Access::ReadWrite).share(share.map(str::to_owned));
            messages::unescaped_failure(&SyncError::NotGranted { demand, terms })
        };
        for (demand, option) in [
            (Demand::KeepDirlinks, "--keep-dirlinks"),
            (Demand::ImpliedDirs, "--no-implied-dirs"),
            (Demand::CopyDevices, "--copy-devices"),
            (Demand::WriteDevices, "--write-devices"),
            (Demand::InsecureLinks, "--insecure-links"),
            (Demand::CopyAs, "--copy-as"),
        ] {
            let said = "no share of a server allows it, whatever the key's role. Leave it out.";
            assert_eq!(refused(demand, Some("m")), format!("{option}: {said}"));
            let said = "no key that is for one directory (--restrict) allows it. Leave it out.";
            assert_eq!(refused(demand, None), format!("{option}: {said}"));
        }
        // Another role may do the rest.
        assert!(refused(Demand::InPlace, Some("m")).contains("give the key another role"));
    }

    #[test]
    fn the_words_of_rsync_are_known_and_those_of_dsync_in_its_place_are_not() {
        let failed = |line: &str| {
            let (program, status) = ("ssh".to_owned(), ShellStatus::Exited(1));
            SyncError::Connect(ConnectError::ShellFailed {
                program,
                status,
                stderr: vec!["--help  show this help".to_owned(), line.to_owned()],
            })
        };
        let said = messages::unescaped_failure(&failed(
            "rsync error: syntax or usage error (code 1) at main.c(1941) [Receiver=3.5.0]",
        ));
        assert!(said.starts_with("the program at the other end is rsync, not dsync. Install"), "{said}");
        let said = messages::unescaped_failure(&failed(
            "rsync error: the command line is wrong (code 1) at main.c(0) [sender=3.2.7]",
        ));
        assert!(said.starts_with("ssh exited 1: rsync error"), "{said}");
    }

    #[test]
    fn an_option_that_an_older_end_lacks_is_named_with_the_end_to_upgrade() {
        let said = |text: &str| {
            in_options(&SyncError::Peer { exit_code: 12, text: text.to_owned(), reason: Reason::Other })
        };
        let refusal = |field: &str| {
            format!(
                "protocol error: message Start: its options are not understood: unknown field `{field}`, expected one of `a`"
            )
        };
        let home = said(&refusal("other-homes"));
        assert!(home.is_some_and(|text| text.contains("~USER") && text.ends_with("upgrade it there")));
        assert!(said(&refusal("event-backups")).is_some_and(|text| text.contains("(event-backups)")));
        assert_eq!(said("unknown field `x`"), None);
        assert_eq!(said("the disk is full"), None);
    }
}
