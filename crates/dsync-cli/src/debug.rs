//! `--debug=FLAGS`: rsync's words for parts of the log that `DSYNC_LOG` asks for in full.
//!
//! Every word of rsync's is taken, with any level. Those about the connection show ports, carrier
//! and why, those about files what is done with each and why; dsync has no finer grain.

use crate::{
    console::say,
    escape::{EscapedLines, escape_text},
    streams::Standard,
    usage::UsageError,
};

/// Words about the connection.
const CONNECTION: &[&str] = &["bind", "connect", "cmd", "io", "nstr", "proto", "exit"];

/// Words about files.
const FILES: &[&str] = &[
    "acl", "backup", "chdir", "del", "deltasum", "dup", "flist", "fuzzy", "genr", "hash", "hlink", "iconv",
    "own", "recv", "send", "time",
];

/// The targets of the log in which the connection is told.
const CONNECTION_LOG: &str = "dsync::connection=debug,dsync_transport=debug,dsync_engine::halt=debug";

/// The targets of the log in which files are told.
const FILES_LOG: &str = "dsync::plan=debug,dsync_engine::destination=debug";

/// The text of `--debug=help`.
pub(crate) const HELP: &str = "\
--debug=FLAGS writes to standard error why things are done. FLAGS are words of rsync's, with commas between
them; a digit behind a word is its level, 0 is off.

BIND, CONNECT, CMD, EXIT, IO, NSTR, PROTO      ports, addresses, the carrier and why
ACL, BACKUP, CHDIR, DEL, DELTASUM, DUP,
FLIST, FUZZY, GENR, HASH, HLINK, ICONV,
OWN, RECV, SEND, TIME                          each file: what is done with it, and why
FILTER                                         each entry that a rule hides or protects, and the rule; as with -vv
ALL, NONE                                      all of them, none of them
HELP                                           this text

DSYNC_LOG in the environment chooses by part of the program and level: DSYNC_LOG=dsync_transport=trace.
";

/// Returns the filter of the log that the flags ask for; `None` if they ask for none.
///
/// # Errors
/// [`UsageError`] for a word that rsync does not have.
pub(crate) fn filter(words: &[String]) -> Result<Option<String>, UsageError> {
    let (mut connection, mut files) = (false, false);
    for word in words {
        let name = word.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let level: Option<u8> = match &word[name.len()..] {
            "" => Some(1),
            digits => digits.parse().ok(),
        };
        let Some(on) = level.map(|level| level > 0) else { return Err(unknown(word)) };

        match name.to_ascii_lowercase().as_str() {
            "all" => (connection, files) = (on, on),
            "none" => (connection, files) = (false, false),
            name if CONNECTION.contains(&name) => connection |= on,
            name if FILES.contains(&name) => files |= on,
            // A line of the list, not of the log.
            "filter" => {}
            _ => return Err(unknown(word)),
        }
    }

    let parts: Vec<&str> = [(connection, CONNECTION_LOG), (files, FILES_LOG)]
        .into_iter()
        .filter_map(|(on, targets)| on.then_some(targets))
        .collect();
    Ok((!parts.is_empty()).then(|| parts.join(",")))
}

fn unknown(word: &str) -> UsageError {
    let known = "the words of --debug=help".to_owned();
    UsageError::ValueUnknown { option: "--debug".to_owned(), value: word.to_owned(), known }
}

/// Returns whether the flags ask for the rules that hide or protect entries; `None` if they leave it
/// to `-v`.
pub(crate) fn shows_rulings(words: &[String]) -> Option<bool> {
    let of = |word: &String| match word.to_ascii_lowercase().as_str() {
        "none" | "filter0" | "all0" => Some(false),
        word if word.starts_with("filter") || word.starts_with("all") => Some(true),
        _ => None,
    };
    words.iter().filter_map(of).next_back()
}

/// Returns whether one of the flags asks for the help.
pub(crate) fn asks_for_help(words: &[String]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case("help"))
}

/// Starts the log if `DSYNC_LOG` or else `--debug` requests one; returns whether it does.
pub(crate) fn start_log(flagged: Option<String>) -> bool {
    let named = std::env::var("DSYNC_LOG").ok().filter(|wanted| !wanted.is_empty());
    let Some(wanted) = named.or(flagged) else { return false };
    let filter = match tracing_subscriber::EnvFilter::try_new(&wanted) {
        Ok(filter) => filter,
        Err(error) => {
            say(&escape_text(&format!(
                "dsync: DSYNC_LOG='{wanted}' is not a filter, nothing is logged: {error}"
            )));
            return false;
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| EscapedLines(Standard::Errors))
        .with_ansi(false)
        // It would tell of a line that cannot be written where that cannot be told either, and panic.
        .log_internal_errors(false)
        .init();
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Option<String>, u8> {
        let words: Vec<String> = line.split(',').map(str::to_owned).collect();
        filter(&words).map_err(|error| error.exit_code())
    }

    #[test]
    fn words_of_rsync_choose_parts_of_the_log() {
        assert_eq!(of("CONNECT2,io").unwrap().unwrap(), CONNECTION_LOG);
        assert_eq!(of("flist4,recv0").unwrap().unwrap(), FILES_LOG);
        assert_eq!(of("all4").unwrap().unwrap(), format!("{CONNECTION_LOG},{FILES_LOG}"));
        assert_eq!(of("all,none").unwrap(), None);
        assert_eq!(of("hash0").unwrap(), None);
        for word in ["nonsense", "send999", "3", ""] {
            assert_eq!(of(word), Err(1), "{word}");
        }
    }

    #[test]
    fn help_names_every_word_and_filters_are_read() {
        for word in CONNECTION.iter().chain(FILES) {
            assert!(HELP.contains(&word.to_ascii_uppercase()), "{word}");
        }
        for targets in [CONNECTION_LOG, FILES_LOG] {
            assert!(tracing_subscriber::EnvFilter::try_new(targets).is_ok());
        }
    }
}
