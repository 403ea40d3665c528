//! The remote end of a run: `dsync --server`, as the client's ssh or a forced command starts it.
//!
//! Its words come from the administrator or are the constant of the client's own dsync; no others
//! are allowed. The command that a client requested from sshd (`SSH_ORIGINAL_COMMAND`) is ignored.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _},
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    sync::Arc,
};

use dsync_engine::{Entrance, Grant, GrantTerms, Resources, Wording, exit_code, serve};

use crate::{
    cage::Cage,
    console::{blame, say},
    debug::start_log,
    escape::escape_text,
    messages,
    rules::Rules,
    state::AtRemoteEnd,
    usage::UsageError,
    words,
};

/// Returns the words of a remote end: those that bound its use of this machine, and the others.
/// Returns `None` if the words are a run's. A bound may stand before `--server`, so that the
/// client's `--dsync-path` can set it.
pub(crate) fn words(words: &[OsString]) -> Option<(Vec<OsString>, Vec<OsString>)> {
    let at = words.iter().position(|word| !is_bound(word)).filter(|at| words[*at] == "--server")?;
    Some(
        words
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .map(|(_, word)| word.clone())
            .partition(is_bound),
    )
}

/// Returns the first option that is no bound and stands before the last word, `--server`: a client of dsync
/// has put it into its `--dsync-path`. rsync has words of its own behind that one.
pub(crate) fn misplaced(words: &[OsString]) -> Option<String> {
    let (last, before) = words.split_last()?;
    let first = before.iter().find(|word| !is_bound(word)).filter(|_| last == "--server")?;
    first.as_bytes().starts_with(b"-").then(|| first.to_string_lossy().into_owned())
}

fn is_bound(word: &OsString) -> bool {
    BOUNDS.iter().any(|option| word.as_bytes().starts_with(option))
}

/// Parses the words after `--server`: none, or `--restrict PATH[,ACCESS]`.
pub(crate) fn restriction(words: &[OsString]) -> Result<Option<GrantTerms>, UsageError> {
    let value = match words {
        [] => return Ok(None),
        [option] if option == OPTION => return Err(UsageError::ValueMissing { option: OPTION.to_owned() }),
        [option, value] if option == OPTION => value.as_os_str(),
        [word] => match word.as_bytes().strip_prefix(b"--restrict=") {
            Some(value) => OsStr::from_bytes(value),
            None => return Err(UsageError::NotForRsync),
        },
        _ => return Err(UsageError::NotForRsync),
    };
    let terms = GrantTerms::parse(value);
    terms
        .map(Some)
        .map_err(|error| UsageError::ValueInvalid { option: OPTION.to_owned(), reason: error.to_string() })
}

/// Serves one run on standard input and output; returns the exit code.
///
/// Errors are reported to the peer, and once there is one only to the peer: this standard error is
/// shown to the same person.
pub(crate) fn serve_peer(restriction: Option<GrantTerms>, resources: &Resources) -> u8 {
    start_log(None);
    let grant = match restriction.map(|terms| (terms.path.clone(), Grant::open(terms))) {
        None => None,
        Some((_, Ok(grant))) => Some(grant),
        Some((path, Err(error))) => {
            let why = words::system_words(&error);
            let text = format!("dsync: cannot use the directory of --restrict '{}': {why}", path.display());
            say(&escape_text(&text));
            return exit_code::FILE_SELECTION;
        }
    };
    // Whoever has a key for one directory has no state: it would be of use for others.
    let resources = match grant {
        None => resources.clone().states(Some(Arc::new(AtRemoteEnd))),
        Some(_) => resources.clone(),
    };
    serve_session(grant, &resources, &Cage::default()).map_or_else(|(code, _)| code, |()| exit_code::OK)
}

/// Serves one run on standard input and output with what a grant allows.
///
/// # Errors
/// The exit code and the reason in words, which the client has been told.
pub(crate) fn serve_session(
    grant: Option<Grant>,
    resources: &Resources,
    cage: &Cage,
) -> Result<(), (u8, String)> {
    let connection = std::env::var("SSH_CONNECTION").ok();
    let streams = io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        Ok((input, output))
    });

    let (input, output) = match streams {
        Ok(streams) => streams,
        Err(error) => {
            let why = format!("cannot use the standard streams: {}", words::system_words(&error));
            say(&format!("dsync: {why}"));
            return Err((exit_code::START, why));
        }
    };

    let entrance = Entrance::new(input, output).ssh_connection(connection.as_deref());
    let served = serve(entrance, resources, grant, Some(cage), WORDING);
    served.map_err(|error| {
        let text = messages::failure(&error, &Rules::default());
        tracing::error!("{text}");
        if io::stdin().is_terminal() {
            blame(&text);
        }
        (error.exit_code(), text)
    })
}

/// Wording of errors that are sent to the client, which shows them unchanged.
pub(crate) const WORDING: Wording = Wording::new(messages::unescaped_failure);

/// Options that bound a remote end, with their value in the same word.
const BOUNDS: [&[u8]; 2] = [b"--max-alloc=", b"--max-stall="];

/// The only other option of the remote end.
const OPTION: &str = "--restrict";
