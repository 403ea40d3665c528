//! `dsync verify PATH` without a manifest: are the files still what runs with `--state` have read?
//!
//! The law: whatever is wrong with a state is one line, and what it has counts as not recorded. Where nothing can be
//! compared the command fails: it never calls a tree sound of which nothing is known.

use std::{io, path::Path};

use dsync_engine::{
    CancelToken, ManifestError, State, StateError, UntrustedLink, exit_code,
    verify::{self, MaxAge, Verified, VerifyError},
};

use super::{Teller, beside, failure, flags::Flags, reading, verified_json};
use crate::{
    console::say,
    escape::{Escaped, escape_text},
    here::is_here,
    numbers::counted,
    state, words,
};

/// Returns whether the words ask for what runs have recorded.
pub(super) fn is_asked(flags: &Flags) -> bool {
    flags.state || flags.state_dir.is_some()
}

/// Returns whether the words mean it all the same, as there is no manifest that they could mean. One
/// that cannot be read is no reason to do without it.
pub(super) fn is_left(flags: &Flags, error: &VerifyError) -> bool {
    let is_missing = matches!(
        error,
        VerifyError::Manifest(ManifestError::Io { source }) if source.kind() == io::ErrorKind::NotFound
    );
    is_missing && flags.manifest.is_none() && !flags.record
}

/// Verifies the tree by what runs have recorded, and returns the exit code: 23 where something is wrong.
pub(super) fn run(flags: &Flags, teller: &Teller, cancel: &CancelToken) -> u8 {
    let dir = match state::directory(flags.state_dir.as_deref()) {
        Ok(dir) => dir,
        Err(why) => {
            return teller.fail(&escape_text(&why), exit_code::FILE_IO);
        }
    };

    announce(flags);
    let (recorded, unusable) = State::recorded(&dir);
    for error in &unusable {
        let why = reason(&dir, error);
        say(&escape_text(&format!("dsync: {why}; what it has counts as not recorded")));
    }
    let times = dir.join(TIMES);
    let reading = reading(flags).max_age(flags.max_age.map(|age| MaxAge::new(age, &times)));
    let outcome = verify::verify_recorded(&flags.path, &recorded, &reading, teller, cancel);

    teller.bar.clear();
    match outcome {
        Ok(verified) => {
            teller.end(flags.quiet, &verified_json(&verified), &text(&verified));
            verified.exit_code()
        }
        Err(error) => {
            let why = match error {
                VerifyError::NothingRecorded { edited_since } => nothing(flags, &dir, edited_since),
                VerifyError::Ages { ref source } => format!(
                    "cannot use '{}' for --max-age: {}; move away what is there",
                    Escaped(times.as_os_str().as_encoded_bytes()),
                    words::system_words(source)
                ),
                ref error => failure(error, flags),
            };
            teller.fail(&why, error.exit_code())
        }
    }
}

/// Says what is compared if the words do not: whoever misses a manifest has to hear of it.
fn announce(flags: &Flags) {
    if !is_asked(flags) && is_here(flags.path.as_os_str()) {
        say(&escape_text(&format!(
            "dsync: there is no manifest '{}': verifying by what runs with --state have kept",
            beside(&flags.path).display()
        )));
    }
}

fn text(verified: &Verified) -> String {
    let Verified { entries, sound, bytes_read, unread, rotten, .. } = *verified;
    let Verified { edited_since, unrecorded, unreadable, busy, .. } = *verified;
    let mut text = format!(
        "{} found, {} read: {} as recorded",
        counted(entries, "file", "files"),
        counted(bytes_read, "byte", "bytes"),
        counted(sound, "file is", "files are")
    );
    let counts = [
        (unread, "compared by size and times only"),
        (rotten, "rotten"),
        (edited_since, "edited since"),
        (unrecorded, "not recorded"),
        (unreadable, "unreadable"),
        (busy, "changed meanwhile"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {} {what}", super::Number(count, super::Style::Commas)));
    }
    text
}

/// Returns why nothing can be compared, with what to do.
fn nothing(flags: &Flags, dir: &Path, edited_since: u64) -> String {
    let [tree, dir] = [&flags.path, dir].map(|path| Escaped(path.as_os_str().as_encoded_bytes()));
    let why = match edited_since {
        0 => format!("no run with --state has kept contents of '{tree}' in '{dir}'"),
        _ => format!(
            "all files of '{tree}' that runs with --state have kept in '{dir}' were edited since ({})",
            counted(edited_since, "file", "files")
        ),
    };
    format!(
        "{why}, so nothing is verified; on ext4, xfs and btrfs `dsync -ac --state` to or from there keeps them, and \
         `dsync verify --record` writes a manifest anywhere"
    )
}

/// Returns why a state is left out, in words.
fn reason(dir: &Path, error: &StateError) -> String {
    let dir = dir.display();
    match error {
        StateError::Io { source } if UntrustedLink::of(source).is_some() => {
            format!("cannot read the state in '{dir}': {source}")
        }
        StateError::Io { source } => {
            format!("cannot read the state in '{dir}': {}", words::system_words(source))
        }
        StateError::Shared => format!("the state in '{dir}' is not used: another user can write to it"),
        StateError::Damaged => format!("a state in '{dir}' is damaged"),
        StateError::Newer => format!("a state in '{dir}' is of a newer version"),
        StateError::ClockWentBack => format!("the clock is behind a state in '{dir}'"),
        StateError::TooMuch => {
            format!("'{dir}' has more records than fit in memory, and a state is left out")
        }
        other => format!("a state in '{dir}' is not used: {other}"),
    }
}

/// The file of --max-age in the directory of states.
const TIMES: &str = "verified";
