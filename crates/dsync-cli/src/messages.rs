//! Problems in words: the operation, the path, the reason, and the next step.
//!
//! Everything here returns plain text, one line, already escaped. Each cause of an error appears
//! once, system errors in the system's own words without their number.

use std::{error::Error, ffi::OsStr, io, os::unix::ffi::OsStrExt as _};

use dsync_engine::{
    BackedUp, Cause, FileType, LeftAlone, LinkError, Operation, Problem, Reconnect, Ruled, Ruling, SyncError,
    WhyLeft, error::operation_words, exit_code,
};

use crate::{
    address, advice,
    escape::{Escaped, escape_text},
    rules::Rules,
    words::{system_words, without_number},
};

/// Describes a problem with one entry; the run continues.
pub(crate) fn problem(problem: &Problem) -> String {
    let path = if problem.path.is_empty() { b"." } else { problem.path.as_bytes() };
    let (what, name) = (operation_words(problem.operation), Escaped(path));

    match problem.cause {
        // rsync's words, which wrappers look for.
        Cause::Os(FILE_EXISTS) if problem.operation == Operation::Commit => {
            format!(
                "'{name}': it is there already and differs, and nothing there may be replaced; it stays as it is"
            )
        }
        Cause::Skipped => skipped(problem.operation, &name),
        Cause::Os(ENODATA) if problem.operation == Operation::ReadFile => format!(
            "cannot {what} '{name}': the batch does not have its content, as the recorded run did not transfer it; \
             what has the name stays as it is"
        ),
        // rsync's words.
        Cause::Os(ENOENT) if problem.operation == Operation::FollowLink => {
            format!("symlink has no referent: \"{name}\"")
        }
        Cause::Os(ELOOP) if problem.operation == Operation::FollowLink => {
            format!("cannot {what} '{name}': it leads in a circle")
        }
        Cause::Os(ELOOP) if problem.operation == Operation::Stat => format!(
            "cannot {what} '{name}': a link on the way belongs to another user and leads out of the source, \
             or leads in a circle"
        ),
        Cause::Os(E2BIG) => format!("cannot {what} '{name}': {}", too_many_attributes(problem.operation)),
        Cause::ContentMismatch => {
            format!("'{name}': content check failed three times; what had the name stays as it was")
        }
        Cause::Lacking { owner, extended, number } => {
            let why = match number {
                // That is how a filesystem says so of an attribute.
                ENOSPC if extended => "too large for this filesystem, or the disk is full".to_owned(),
                number => system_words(&io::Error::from_raw_os_error(number)),
            };
            format!("cannot set {} of '{name}': {why}; the rest of it is there", lacking(owner, extended))
        }
        // Owners, lists and extended attributes have a cause of their own.
        Cause::Os(EPERM) if problem.operation == Operation::SetAttributes => format!(
            "cannot {what} '{name}', its permissions or times: {}; --no-p and --no-t leave them as they are",
            cause_words(problem.cause)
        ),
        Cause::Changed => changed(problem.operation, what, &name),
        Cause::LeadsOut if problem.operation == Operation::RemoveSource => format!(
            "cannot {what} '{name}': it is behind a link that leads out of the source; it was copied and stays"
        ),

        // Only a directory causes it, in a link's place.
        Cause::Os(number) if problem.operation == Operation::CreateDirectory && number == ELOOP => {
            format!(
                "cannot {what} '{name}': a link has its name that leads out of the destination or is new; -K follows \
                 such a link only with --insecure-links, at a remote end with -M--insecure-links"
            )
        }

        cause => format!("cannot {what} '{name}': {}", cause_words(cause)),
    }
}

/// Says what an entry that another program changed meanwhile costs.
fn changed(operation: Operation, what: &str, name: &Escaped<'_>) -> String {
    let why = match operation {
        Operation::RemoveSource => "it has changed since it was listed; it stays",
        Operation::Commit => {
            "another program changed it at the destination meanwhile; what it has is left to it"
        }
        Operation::HardLink => "another program replaced the file's first name at the destination meanwhile",
        _ => return format!("cannot {what} '{name}': {}", cause_words(Cause::Changed)),
    };
    format!("cannot {what} '{name}': {why}")
}

/// Says what is left out, or done in another way.
fn skipped(operation: Operation, name: &Escaped<'_>) -> String {
    match operation {
        Operation::ReadDirectory => format!("skipping directory {name}"),
        Operation::CreateLink => format!("ignoring unsafe symlink \"{name}\""),
        Operation::FollowLink => format!("copying unsafe symlink \"{name}\""),
        Operation::ReadBasis => format!(
            "alternate directory '{name}' does not exist (a relative one starts at the destination): nothing is taken from it"
        ),
        _ => format!("skipping non-regular file \"{name}\""),
    }
}

/// Says what `E2BIG` means, with which no other call of a run answers than those for attributes.
fn too_many_attributes(operation: Operation) -> &'static str {
    if operation == Operation::ReadAttributes {
        "together they have more than 512 KiB; it is copied without them, and is not removed from the source"
    } else {
        "it has too many extended attributes, or too long ones"
    }
}

/// Says which attributes an entry lacks.
fn lacking(owner: bool, extended: bool) -> &'static str {
    match (owner, extended) {
        (true, true) => "the owner or group, and some ACLs or extended attributes,",
        (true, false) => "the owner or group",
        _ => "some ACLs or extended attributes",
    }
}

/// Returns whether a problem only tells that what a link leads to is copied in its place.
pub(crate) fn is_replaced_link(problem: &Problem) -> bool {
    problem.cause == Cause::Skipped && problem.operation == Operation::FollowLink
}

/// Says in rsync's words why an entry is left alone.
pub(crate) fn left_alone(left: &LeftAlone) -> String {
    let name = Escaped(&left.path);
    let kind = if left.kind == FileType::Directory { "directory" } else { "file" };
    match left.why {
        WhyLeft::Newer => format!("{name} is newer"),
        WhyLeft::Exists => format!("{name} exists"),
        WhyLeft::New => format!("not creating new {kind} \"{name}\""),
        WhyLeft::TooLong => format!("{name} is over max-size"),
        WhyLeft::TooShort => format!("{name} is under min-size"),
        _ => format!("{name} is left alone"),
    }
}

/// Says in rsync's words which backup was made.
pub(crate) fn backed_up(made: &BackedUp) -> String {
    format!("backed up {} to {}", Escaped(&made.path), Escaped(&made.backup))
}

/// Says in rsync's words what has left the source.
pub(crate) fn removed(path: &[u8]) -> String {
    format!("sender removed {}", Escaped(path))
}

/// Says in rsync's words which rule hides or protects an entry; `None` for any other ruling.
pub(crate) fn ruling(ruling: &Ruling, rules: &Rules) -> Option<String> {
    let (end, does) = match ruling.why {
        Ruled::Hidden(_) => ("sender", "hiding"),
        Ruled::Protected(_) => ("generator", "protecting"),
        _ => return None,
    };
    let kind = if ruling.is_dir { "directory" } else { "file" };
    let pattern = rules.pattern_at(ruling.why.place()?);
    Some(format!("[{end}] {does} {kind} {} because of pattern {pattern}", Escaped(&ruling.path)))
}

/// Linux' number for a link that may not be followed.
const ELOOP: i32 = 40;

/// Linux' number with which a batch says that it lacks a content.
const ENODATA: i32 = 61;

/// Linux' number for what does not exist.
const ENOENT: i32 = 2;
/// Linux' number for what a user, or a filesystem, does not allow.
const EPERM: i32 = 1;
/// No room, or none for an attribute.
const ENOSPC: i32 = 28;
/// The answer to more attributes than can be listed, or than are taken.
const E2BIG: i32 = 7;

/// Describes an error that ended the run, with its causes and advice, if there is any.
pub(crate) fn failure(error: &SyncError, rules: &Rules) -> String {
    if let SyncError::BadPattern { pattern, column, reason } = error {
        let advice =
            if pattern.contains('\0') { "; -0 is for files whose patterns end with one" } else { "" };
        return format!("bad pattern at {} column {column}: {reason}{advice}", rules.place_of(pattern));
    }
    // The dialler's words are escaped, and say what to do.
    if let Some((_, why)) = address::undialled(error) {
        return why;
    }
    escape_text(&unescaped_failure(error)).into_owned()
}

/// Returns the exit code of an error that ended the run: to a share that of the dialler, whose codes are
/// dsync's.
pub(crate) fn code_of(error: &SyncError) -> u8 {
    address::undialled(error).map_or_else(|| error.exit_code(), |(code, _)| code)
}

/// Describes an error like [`failure`], for a peer that escapes the text.
pub(crate) fn unescaped_failure(error: &SyncError) -> String {
    let text = match error {
        SyncError::Link(LinkError::Lost) => "the connection was lost".to_owned(),
        _ => with_causes(error),
    };
    match advice::on(error) {
        Some(advice) => format!("{}. {advice}", text.trim_end_matches('.')),
        None => text,
    }
}

/// Returns the hint that an operand with a colon is also the name of a file here.
pub(crate) fn also_here(operand: &OsStr) -> String {
    let name = Escaped(operand.as_bytes());
    format!("There is a file '{name}' here: for that write './{name}'.")
}

/// Returns an error and its causes, each once.
fn with_causes(error: &SyncError) -> String {
    if let Some((_, why)) = address::undialled(error) {
        return why;
    }
    with_causes_from(advice::in_options(error).unwrap_or_else(|| error.to_string()), error)
}

/// Returns an error that is none of a run, and its causes, each once.
pub(crate) fn caused(error: &dyn Error) -> String {
    with_causes_from(error.to_string(), error)
}

/// Appends the causes of an error to its text, each once.
fn with_causes_from(mut text: String, error: &dyn Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        // That of a run which was given up is in a box.
        let undialled = error.downcast_ref::<Box<SyncError>>().and_then(|error| address::undialled(error));
        let words = match (error.downcast_ref::<io::Error>(), undialled) {
            (Some(error), _) => system_words(error),
            (None, Some((_, why))) => why,
            (None, None) => without_number(&error.to_string()).to_owned(),
        };
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

/// Describes a broken connection that is made again.
pub(crate) fn reconnecting(reconnect: &Reconnect<'_>) -> String {
    let Reconnect { cause, number, limit, wait, .. } = *reconnect;
    let lost = match cause {
        SyncError::Connect(_) => format!("no connection yet: {}", with_causes(cause)),
        // Its own words say no more than that.
        SyncError::Link(LinkError::Lost) => "the connection was lost".to_owned(),
        SyncError::Link(link) => {
            format!("the connection was lost: {}", with_causes_from(link.to_string(), link))
        }
        _ => format!("the connection was lost: {}", with_causes(cause)),
    };
    let seconds = wait.as_millis().div_ceil(1000);
    escape_text(&format!("{lost}; reconnecting ({number} of {limit}) in {seconds} s")).into_owned()
}

/// Returns the meaning of an exit code, for the last line of a run.
pub(crate) fn meaning(code: u8) -> &'static str {
    match code {
        exit_code::OK => "done",
        exit_code::USAGE => "the command line is wrong",
        exit_code::INCOMPATIBLE => "the two ends do not understand each other",
        exit_code::FILE_SELECTION => {
            "a destination, the directory of --files-from, the alternate ones or a tree to verify cannot be used"
        }
        exit_code::UNSUPPORTED => "not supported by dsync",
        exit_code::START => "a server, or a copy of this program at a host, could not be started",
        exit_code::SOCKET => "the connection failed",
        exit_code::FILE_IO => "a file could not be read or written",
        exit_code::STREAM => "the peer broke the protocol, or ended before it said anything",
        OUTPUT => "standard output could not be written",
        exit_code::SHELL => "the remote shell could not be started",
        exit_code::INTERRUPTED => "interrupted",
        exit_code::MEMORY => "out of memory or threads",
        exit_code::PARTIAL => "some entries, or all sources, could not be copied",
        exit_code::VANISHED => "some entries vanished or kept changing",
        exit_code::MAX_DELETE => "the limit on deletions was reached",
        exit_code::TIMEOUT => "the peer was silent for too long",
        exit_code::CONNECT_TIMEOUT => "no connection in time",
        exit_code::AUTHENTICATION => "the peer could not be authenticated",
        exit_code::LOCKED => "the destination is in use",
        exit_code::POLICY => "refused for safety",
        exit_code::REMOTE_COMMAND => "the remote host could not run dsync",
        exit_code::REMOTE_MISSING => "the remote host has no dsync",
        exit_code::SHELL_FAILED => "the remote shell failed",

        _ => "failed",
    }
}

/// Exit code of a run that succeeded but could not print its results (rsync's number).
pub(crate) const OUTPUT: u8 = 13;

fn cause_words(cause: Cause) -> String {
    match cause {
        // A backup stands before its original gives way, so the two fail alike.
        Cause::Os(IS_A_DIRECTORY) => "a directory has its name or the name of its backup".into(),
        Cause::LeadsOut => "it leads out of what the other end may use".into(),
        Cause::Os(CROSSES_DEVICES) => {
            "something is mounted there, it is a subvolume, or the way leads to another filesystem".into()
        },
        Cause::Os(number) => system_words(&io::Error::from_raw_os_error(number)),
        Cause::DirectoryInTheWay => {
            "a directory that is not empty is in the way (--delete or --force removes it, but for what a rule, a \
             backup beside it or --max-delete keeps)"
                .into()
        }
        other => other.to_string(),
    }
}

/// Linux's `EEXIST`, with which a destination refuses to replace anything (`--restrict
/// PATH,append`).
const FILE_EXISTS: i32 = 17;
/// Linux's `EXDEV`.
const CROSSES_DEVICES: i32 = 18;
/// Linux's `EISDIR`.
const IS_A_DIRECTORY: i32 = 21;

#[cfg(test)]
mod tests {
    use dsync_engine::Reason;

    use super::*;

    fn of(operation: Operation, path: &[u8], cause: Cause) -> String {
        problem(&Problem::new(operation, path.to_vec(), cause))
    }

    #[test]
    fn problem_says_what_where_and_why() {
        assert_eq!(of(Operation::ReadFile, b"x", Cause::Os(13)), "cannot read 'x': Permission denied");
        assert_eq!(
            of(Operation::ReadDirectory, b"", Cause::Os(5)),
            "cannot read directory '.': Input/output error"
        );
        assert_eq!(
            of(Operation::ReadFile, b"a\nb", Cause::Vanished),
            "cannot read 'a\\#012b': it has vanished"
        );
        assert_eq!(
            of(Operation::Commit, b"x", Cause::ContentMismatch),
            "'x': content check failed three times; what had the name stays as it was"
        );
    }

    #[test]
    fn failure_says_each_cause_once_and_what_to_do() {
        let full = SyncError::Filesystem {
            operation: Operation::Commit,
            path: "photos/a\x1b.raw".into(),
            source: io::Error::from_raw_os_error(28),
        };
        assert_eq!(
            failure(&full, &Rules::default()),
            "cannot write 'photos/a\\#033.raw': the disk is full (No space left on device). \
             The old copy is untouched, unless --inplace was rewriting it. Free some space and run the same \
             command again."
        );
        let missing = SyncError::SourceMissing { path: "X".into() };
        assert_eq!(failure(&missing, &Rules::default()), "source 'X': no such file or directory");
        let unreadable =
            SyncError::SourceUnreadable { path: "X".into(), source: io::Error::from_raw_os_error(13) };
        assert_eq!(failure(&unreadable, &Rules::default()), "cannot open source 'X': Permission denied");
        let peer = SyncError::Peer { exit_code: 3, text: "a\nb".into(), reason: Reason::Other };
        assert_eq!(failure(&peer, &Rules::default()), "a\\#012b");
    }

    #[test]
    fn every_exit_code_has_a_meaning() {
        for code in
            [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 20, 22, 23, 24, 25, 30, 35, 40, 41, 42, 126, 127, 255]
        {
            assert_ne!(meaning(code), "failed", "{code}");
        }
    }
}
