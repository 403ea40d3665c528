//! Errors of a command line, in one line of words each.
//!
//! Nothing here prints: `Display` is the message, still without escaping (operands and values come
//! from scripts), and [`UsageError::exit_code`] the code. The texts are part of the interface; the
//! transcripts under `tests/cmd` fix them.

use std::{
    error::Error as _,
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use dsync_engine::{
    FileListError, MAX_FILTERS, MAX_PATTERN, MAX_PATTERN_BYTES, OperandError, SyncError, exit_code,
};

use crate::{address::Form, flags::unsupported::Foreign, refused::Refused};

/// The reason why a command line cannot be performed.
#[derive(Debug)]
pub(crate) enum UsageError {
    /// There are no operands at all.
    NoOperands,
    /// An option of rsync that dsync does not have.
    Unsupported(Foreign),
    /// A value that rsync accepts for an option and dsync does not.
    UnsupportedValue { option: String, value: String, known: String },
    /// A use of an option that rsync supports and dsync does not.
    UnsupportedUse { text: &'static str },
    /// A command that this version does not have.
    CommandMissing { command: &'static str, file: bool },
    /// A command with words that it does not take.
    CommandWords { command: &'static str, wanted: String, file: bool },
    /// A format asks for hashes that the run does not compute.
    HashesWithoutChecksum { option: &'static str },
    /// `--server` with other words, as rsync would start it.
    NotForRsync,
    /// An option before the `--server` of a client of dsync, which its `--dsync-path` has, and whether `-M`
    /// passes it.
    NotInPath { option: String, is_remote: bool },
    /// No program has such an option.
    Unknown { option: String, suggestion: Option<String> },
    /// An option that needs a value has none.
    ValueMissing { option: String },
    /// A switch has a value.
    ValueUnwanted { option: String },
    /// A value that the option does not accept.
    ValueUnknown { option: String, value: String, known: String },
    /// A value that cannot be parsed.
    ValueInvalid { option: String, reason: String },
    /// Two options that cannot be given together.
    Conflict { one: &'static str, other: &'static str },
    /// A run that `--watch` cannot make again.
    NotWatched { with: &'static str, why: &'static str },
    /// An option that needs another one.
    Needs { option: &'static str, needed: &'static str },
    /// An operand cannot be read.
    Operand { role: Role, operand: OsString, error: OperandError },
    /// A list of paths, and not one directory in which they begin.
    ListNeedsOneSource,
    /// A list on another host than the run's, or on a host where the run has none.
    ListElsewhere { list: OsString, remote: bool },
    /// A list of paths that cannot be read.
    ListUnreadable { list: OsString, source: FileListError },
    /// The address of a share that is none.
    ShareAddress { operand: OsString },
    /// The address of a share with a user, as a daemon of rsync has them.
    UserOfShare { operand: OsString },
    /// An option about ssh or another kind of connection, in a run that uses none, and the reason or the cure.
    NotForShare { option: &'static str, why: String },
    /// An operand that is not in the share that the others are in.
    OutsideShare { operand: OsString, share: String, form: Form },
    /// A batch file that cannot be used.
    Batch {
        /// The exit code.
        exit_code: u8,
        /// The fault, with what to do.
        text: String,
    },
    /// Both ends are remote.
    BothRemote,
    /// Operands that are not all on one host: the one that is not where the first is.
    SeveralHosts { operand: OsString, is_here: bool },
    /// `-e` with an unclosed quote, or empty.
    Shell { origin: &'static str, command: OsString },
    /// A pattern file that cannot be read.
    PatternFile { path: PathBuf, source: io::Error },
    /// A filter rule cannot be read, or not by dsync.
    FilterRule { rule: String, why: Refused },
    /// Files of rules that name each other.
    PatternFilesTooDeep { path: PathBuf, limit: u32 },
    /// A file of patterns is longer than dsync reads.
    PatternFileTooLong { path: PathBuf, limit_bytes: u64 },
    /// Another error from clap; its first line.
    Other { text: String },
}

/// The purpose of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Source,
    Destination,
    List,
}

impl UsageError {
    /// Translates clap's error.
    pub(crate) fn from_clap(error: &clap::Error) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
            _ => None,
        };
        let option = text(ContextKind::InvalidArg).map_or_else(String::new, |shown| option_name(&shown));
        let value = text(ContextKind::InvalidValue).unwrap_or_default();

        match error.kind() {
            ErrorKind::UnknownArgument => match Foreign::find(&option) {
                Some(foreign) => Self::Unsupported(foreign),
                None => Self::Unknown { option, suggestion: text(ContextKind::SuggestedArg) },
            },
            ErrorKind::InvalidValue => {
                let known = text(ContextKind::ValidValue).unwrap_or_default();
                if value.is_empty() {
                    Self::ValueMissing { option }
                } else {
                    Self::ValueUnknown { option, value, known }
                }
            }
            ErrorKind::ValueValidation => {
                let reason = error.source().map_or_else(String::new, ToString::to_string);
                if let Some(known) = reason.strip_prefix("use ") {
                    return Self::ValueUnknown { option, value, known: known.to_owned() };
                }
                // Some say what the value is not, and leave it out.
                let reason = if reason.starts_with("is ") { format!("'{value}' {reason}") } else { reason };
                Self::ValueInvalid { option, reason }
            }
            ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues | ErrorKind::NoEquals => {
                Self::ValueMissing { option }
            }
            ErrorKind::MissingRequiredArgument => {
                let option = option.trim_matches(['<', '>']).to_owned();
                Self::Other { text: format!("{option} is missing, which the other options need") }
            }
            ErrorKind::TooManyValues => Self::ValueUnwanted { option },
            ErrorKind::InvalidUtf8 => {
                Self::Other { text: "a value of an option is not UTF-8 where it has to be".into() }
            }

            _ => Self::Other { text: first_line(&error.to_string()) },
        }
    }

    /// Names rsync's name of the remote program's option where that is the one that was typed.
    pub(crate) fn in_words_of(mut self, words: &[OsString]) -> Self {
        let begins = |name: &str| words.iter().any(|word| word.as_bytes().starts_with(name.as_bytes()));
        if let Self::ValueInvalid { option, .. } | Self::ValueMissing { option } = &mut self
            && option == OWN_PATH
            && begins(RSYNC_PATH)
            && !begins(OWN_PATH)
        {
            *option = RSYNC_PATH.to_owned();
        }
        self
    }

    /// Returns dsync's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unsupported(_)
            | Self::UnsupportedValue { .. }
            | Self::UnsupportedUse { .. }
            | Self::CommandMissing { .. }
            | Self::UserOfShare { .. } => exit_code::UNSUPPORTED,
            Self::NotForRsync => exit_code::INCOMPATIBLE,
            Self::Operand { error, .. } => error.exit_code(),
            Self::Batch { exit_code, .. } => *exit_code,
            Self::FilterRule { why: Refused::Unsupported, .. } => exit_code::UNSUPPORTED,
            Self::PatternFile { .. } | Self::PatternFilesTooDeep { .. } => exit_code::FILE_IO,
            _ => exit_code::USAGE,
        }
    }

    /// Returns whether the words are right, and a file that they name cannot be used.
    pub(crate) fn is_of_files(&self) -> bool {
        matches!(
            self,
            Self::Batch { .. }
                | Self::ListUnreadable { .. }
                | Self::PatternFile { .. }
                | Self::PatternFilesTooDeep { .. }
                | Self::PatternFileTooLong { .. }
        )
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOperands => f.write_str("usage: dsync [OPTIONS] SRC... DST (see --help)"),
            Self::Unsupported(option) => {
                write!(f, "{option} is not supported by dsync")?;
                option.advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
            }
            Self::UnsupportedValue { option, value, known } => {
                write!(f, "{option}={value} is not supported by dsync; use {known}")
            }
            Self::HashesWithoutChecksum { option } => {
                write!(f, "{option}: %C needs -c (--checksum), with which it is each file's BLAKE3 hash")
            }
            Self::UnsupportedUse { text } => write!(f, "{text} is not supported by dsync"),
            Self::NotForRsync => f.write_str(
                "--server takes no other word than --restrict: dsync's remote end does not speak to rsync",
            ),
            Self::NotInPath { option, is_remote } => write_not_in_path(f, option, *is_remote),
            Self::Unknown { option, suggestion } => write_unknown(f, option, suggestion.as_deref()),
            Self::ValueMissing { option } => write!(f, "{option}: a value is missing"),
            Self::ValueUnwanted { option } => write!(f, "{option} takes no value"),
            Self::ValueUnknown { option, value, known } => {
                write!(f, "{option}: unknown value '{value}' (use {known})")
            }
            Self::ValueInvalid { option, reason } => write!(f, "{option}: {reason}"),
            Self::Conflict { one, other } => write!(f, "'{one}' cannot be combined with '{other}'"),
            Self::NotWatched { with, why } => write!(f, "--watch does not work with {with}: {why}"),
            Self::Needs { option, needed } => write!(f, "{option} does not work without {needed}"),
            Self::CommandMissing { command, file } => {
                write!(f, "'{command}' is the name of a command that this version does not have; ")?;
                write_as_file(f, command, *file)
            }
            Self::CommandWords { command, wanted, file } => {
                write!(f, "the command '{command}' {wanted}; ")?;
                write_as_file(f, command, *file)
            }
            Self::Operand { role, operand, error } => write_operand(f, *role, operand, error),
            Self::ListNeedsOneSource | Self::ListElsewhere { .. } | Self::ListUnreadable { .. } => {
                self.write_of_list(f)
            }
            Self::ShareAddress { .. }
            | Self::UserOfShare { .. }
            | Self::NotForShare { .. }
            | Self::OutsideShare { .. } => self.write_of_share(f),
            Self::Batch { text, .. } | Self::Other { text } => f.write_str(text),
            Self::BothRemote => SyncError::BothRemote.fmt(f),
            Self::SeveralHosts { operand, is_here } => write_elsewhere(f, operand, *is_here),
            Self::Shell { origin, command } => {
                write!(f, "{origin}: not a command, or a quote is not closed: '{}'", command.display())
            }

            _ => self.write_of_rules(f),
        }
    }
}

impl UsageError {
    /// Writes an error about a share of a server.
    fn write_of_share(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShareAddress { operand } => write!(
                f,
                "'{}' names no share: write HOST::SHARE/PATH or dsync://HOST:PORT/SHARE/PATH, and HOST:: alone for a list",
                operand.display()
            ),
            Self::UserOfShare { operand } => write!(
                f,
                "'{}' names a user, as for rsync's daemon, which is not supported by dsync; 'dsync serve' knows its \
                 clients by their keys: write HOST::SHARE/PATH, or USER@HOST:PATH for ssh",
                operand.display()
            ),
            Self::NotForShare { option, why } => {
                write!(f, "{option} is not for a share of 'dsync serve', {why}")
            }

            Self::OutsideShare { operand, share, form } => {
                let operand = operand.display();
                write!(
                    f,
                    "all sources must be in one share, and '{operand}' is not in '{share}', where the others are; "
                )?;
                let name = share.rsplit([':', '/']).next().unwrap_or_default();
                match form {
                    Form::Share => f.write_str("copy from each share by itself"),
                    Form::Remote => write!(f, "a file here whose name has a colon is written './{operand}'"),
                    Form::Local => write!(f, "a path there is written '::{name}/{operand}'"),
                }
            }
            _ => Ok(()),
        }
    }
}

fn write_not_in_path(f: &mut fmt::Formatter<'_>, option: &str, is_remote: bool) -> fmt::Result {
    if is_remote {
        write!(f, "'{option}' is given to the other end with -M{option}, not in --dsync-path (--rsync-path)")
    } else {
        write!(f, "'{option}' is of no use in --dsync-path (--rsync-path): give it to the command itself")
    }
}

fn write_unknown(f: &mut fmt::Formatter<'_>, word: &str, suggestion: Option<&str>) -> fmt::Result {
    match suggestion {
        Some(suggestion) => write!(f, "unknown option '{word}'; did you mean '{suggestion}'?"),
        None if !word.starts_with('-') => write!(f, "'{word}' is one word too many (see --help)"),
        None => write!(f, "unknown option '{word}' (see --help)"),
    }
}

impl UsageError {
    /// Says what is wrong with a list of paths.
    fn write_of_list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListElsewhere { list, remote: true } => write!(
                f,
                "--files-from: '{}' is not on the host of the other operand (write ':FILE' for a file there)",
                list.display()
            ),
            Self::ListElsewhere { list, .. } => write!(
                f,
                "--files-from: '{0}' is on a host, and the run has no remote end (for a local file write './{0}')",
                list.display()
            ),
            Self::ListUnreadable { list, source } => {
                let why = match source {
                    FileListError::Read(error) => crate::words::system_words(error),
                    FileListError::ZeroByte => format!("{source}; -0 is for lists whose names end with one"),
                    other => other.to_string(),
                };
                write!(f, "cannot read the list of files '{}': {why}", list.display())
            }
            _ => f.write_str("--files-from takes one source: the directory in which its paths begin"),
        }
    }

    /// Says what is wrong with filter rules and their files.
    fn write_of_rules(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatternFile { path, source } => {
                write!(
                    f,
                    "cannot read pattern file '{}': {}",
                    path.display(),
                    crate::words::system_words(source)
                )
            }
            Self::FilterRule { rule, why } => write!(f, "filter rule {rule}: {}", refusal(*why)),
            Self::PatternFilesTooDeep { path, limit } => {
                write!(f, "files of rules name each other more than {limit} deep, up to '{}'", path.display())
            }
            Self::PatternFileTooLong { path, limit_bytes } => {
                write!(f, "pattern file '{}' is longer than {limit_bytes} bytes", path.display())
            }

            _ => Ok(()),
        }
    }
}

/// The option that names the remote program, and rsync's name of it.
const OWN_PATH: &str = "--dsync-path";
pub(crate) const RSYNC_PATH: &str = "--rsync-path";

/// Says why a filter rule is not taken.
fn refusal(why: Refused) -> String {
    match why {
        Refused::Malformed => {
            "no rule begins like this; '- PATTERN' excludes and '+ PATTERN' includes".to_owned()
        }
        Refused::UnknownModifier => {
            "this kind of rule has no such modifier; a space or '_' ends the modifiers, as in '- PATTERN'"
                .to_owned()
        }
        Refused::NoPattern => "the pattern or name is missing, as in '- PATTERN' or ': NAME'".to_owned(),
        Refused::SideStatedTwice => {
            "the rule of its file has stated the side already; leave it out here".to_owned()
        }
        Refused::Nul => {
            "a NUL byte cannot be part of a rule; -0 is for files whose rules end with one".to_owned()
        }
        Refused::Unsupported => {
            "modifier 'x' is not supported by dsync for a file of rules, nor with 'C'".to_owned()
        }

        Refused::TooLong => format!("the pattern has more than {MAX_PATTERN} bytes"),
        Refused::TooMany => {
            format!("a run takes at most {MAX_FILTERS} rules; one with wildcards may stand for many")
        }
        Refused::TooMuch => format!(
            "the patterns of a run have at most {MAX_PATTERN_BYTES} bytes together; one with wildcards may stand \
             for many"
        ),
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::List => "--files-from",
        })
    }
}

/// Says what is wrong with an operand.
fn write_operand(
    f: &mut fmt::Formatter<'_>,
    role: Role,
    operand: &OsStr,
    error: &OperandError,
) -> fmt::Result {
    match error {
        OperandError::EmptyPath => write!(f, "{role} {error}"),
        // A name with a colon that was meant for a local file.
        OperandError::LeadingDash { .. }
        | OperandError::ForbiddenCharacter { .. }
        | OperandError::EmptyUser
        | OperandError::TooLong { .. } => {
            write!(f, "{error}, in '{0}' (for a local file write './{0}')", operand.display())
        }
        _ => write!(f, "{error}"),
    }
}

/// Says which operand is on another host than those before it, or here.
fn write_elsewhere(f: &mut fmt::Formatter<'_>, operand: &OsStr, is_here: bool) -> fmt::Result {
    let operand = operand.display();
    write!(f, "all sources must be on the same host, and '{operand}' is not where the others are; ")?;
    if is_here {
        write!(f, "a path on the host before it is written ':{operand}'")
    } else {
        write!(f, "a file here whose name has a colon is written './{operand}'")
    }
}

/// Says how an entry that has the name of a command is written.
fn write_as_file(f: &mut fmt::Formatter<'_>, name: &str, is_there: bool) -> fmt::Result {
    if is_there {
        write!(f, "the '{name}' that is here is written './{name}'")
    } else {
        write!(f, "a file of that name is written './{name}'")
    }
}

/// Returns the name of an option: `--max-delete` from clap's `--max-delete <N>`, and `--zl` from
/// `--zl=3`, and `--progress` from `--progress[=<KIND>]`.
fn option_name(shown: &str) -> String {
    let end = shown.find([' ', '=', '[']).unwrap_or(shown.len());
    // Dots stand for an option that counts.
    shown[..end].trim_end_matches("...").to_owned()
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flags;

    fn refusal(words: &[&str]) -> (u8, String) {
        let error = flags::parse(words.iter().map(OsString::from)).unwrap_err();
        (error.exit_code(), error.to_string())
    }

    #[test]
    fn typing_error_gets_a_suggestion() {
        assert_eq!(refusal(&["--delte"]), (1, "unknown option '--delte'; did you mean '--delete'?".into()));
        assert_eq!(refusal(&["--qqqqq"]), (1, "unknown option '--qqqqq' (see --help)".into()));
        assert_eq!(refusal(&["-aQv"]), (1, "unknown option '-Q' (see --help)".into()));
    }

    #[test]
    fn empty_name_is_refused_by_each_option_that_takes_one() {
        let command = flags::command();
        let takes_name = |arg: &&clap::Arg| {
            let names = arg.get_value_names().unwrap_or_default();
            // An empty --partial-dir is none, as with rsync.
            arg.get_long() != Some("partial-dir")
                && names.iter().any(|name| ["FILE", "DIR", "PROGRAM"].contains(&name.as_str()))
        };
        let options: Vec<&str> =
            command.get_arguments().filter(takes_name).filter_map(clap::Arg::get_long).collect();
        assert!(options.contains(&"link-dest") && options.contains(&"dsync-path"), "{options:?}");
        for option in options {
            let refused = (1, format!("--{option}: the value is empty (unset variable in a script?)"));
            assert_eq!(refusal(&[&format!("--{option}="), "a", "b"]), refused);
            assert_eq!(refusal(&["a", "b", &format!("--{option}"), ""]), refused);
        }
    }

    #[test]
    fn the_remote_programs_option_is_named_as_it_was_typed() {
        let empty = "the value is empty (unset variable in a script?)";
        for option in ["--rsync-path", "--dsync-path"] {
            assert_eq!(refusal(&[&format!("{option}="), "a", "b"]), (1, format!("{option}: {empty}")));
            assert_eq!(refusal(&["a", "b", option, ""]), (1, format!("{option}: {empty}")));
            assert_eq!(refusal(&["a", "b", option]), (1, format!("{option}: a value is missing")));
        }
    }

    #[test]
    fn option_of_rsync_is_named_as_missing_wherever_it_stands() {
        let crtimes = (4, "--crtimes (-N) is not supported by dsync".to_owned());
        assert_eq!(refusal(&["-N"]), crtimes);
        assert_eq!(refusal(&["-avNz", "a", "b"]), crtimes);
        assert_eq!(refusal(&["--crtimes"]), crtimes);
        assert_eq!(
            refusal(&["a", "b", "--confine-root=x"]),
            (4, "--confine-root is not supported by dsync".into())
        );
        assert_eq!(
            refusal(&["--daemon"]),
            (4, "--daemon is not supported by dsync; the server of dsync is 'dsync serve'; without one its remote end is started through ssh".into())
        );
    }

    #[test]
    fn numbers_are_whole_and_in_range() {
        let max = u64::MAX;
        for value in ["abc", "--1", "-", "99999999999999999999", "+5", "", "1.5", "-1%"] {
            let text = format!(
                "--max-delete: '{value}' is not a whole number up to {max}, nor a share from 0% to 100%"
            );
            assert_eq!(refusal(&[&format!("--max-delete={value}")]), (1, text.clone()));
        }
        assert_eq!(refusal(&["--zl=x"]), (1, "--compress-level: 'x' is no whole number".into()));
        for (word, range) in [
            ("--checksum-seed=x", "0 to 4294967295"),
            ("--zt=-", "0 to 4294967295"),
            ("--protocol=19", "20 to 32"),
        ] {
            let (option, value) = word.split_once('=').unwrap();
            let option = if option == "--zt" { "--compress-threads" } else { option };
            let text = format!("{option}: '{value}' is not a whole number from {range}");
            assert_eq!(refusal(&[word]), (1, text));
        }
        assert_eq!(
            refusal(&["-@-2"]),
            (1, "--modify-window: '-2' is neither -1 nor a whole number from 0 to 4294967295".into())
        );
        assert_eq!(
            refusal(&["--port=0"]),
            (1, "--port: '0' is no port from 1 to 65535, nor two with a '-' between them, the lower one first".into())
        );
        assert_eq!(refusal(&["--stop-at=2-30"]), (1, "--stop-at: '2-30' is no day of the calendar".into()));
        assert_eq!(
            refusal(&["--max-stall=0"]),
            (1, "--max-stall: must be at least 1 s (0 would disable it)".into())
        );
        assert_eq!(
            refusal(&["--timeout=x"]),
            (1, "--timeout: 'x' is not a whole number from 0 to 31536000".into())
        );
    }

    #[test]
    fn values_are_known_present_and_wanted() {
        assert_eq!(
            refusal(&["--transport=tcp"]),
            (1, "--transport: unknown value 'tcp' (use auto, quic, tls, ssh)".into())
        );
        assert_eq!(
            refusal(&["--durability=x"]),
            (1, "--durability: unknown value 'x' (use batch, file, none)".into())
        );
        for (option, known) in [
            ("--progress", "bar, plain, json or none"),
            ("--stderr", "errors, all or client"),
            ("--outbuf", "N, L or B; the first letter counts"),
        ] {
            let text = format!("{option}: unknown value 'x' (use {known})");
            assert_eq!(refusal(&[&format!("{option}=x")]), (1, text));
        }
        assert_eq!(refusal(&["--timeout"]), (1, "--timeout: a value is missing".into()));
        assert_eq!(refusal(&["--transport="]), (1, "--transport: a value is missing".into()));
        assert_eq!(refusal(&["--perms=3"]), (1, "--perms takes no value".into()));
        for option in ["--verbose", "--atimes", "--fuzzy", "--one-file-system"] {
            assert_eq!(refusal(&[&format!("{option}=1")]), (1, format!("{option} takes no value")));
        }
        assert_eq!(refusal(&["-e"]), (1, "--rsh: a value is missing".into()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_words_are_read_or_refused_in_one_line(
            words in proptest::collection::vec(
                prop_oneof![
                    r"-{0,2}[a-zA-Z0-9=@]{0,4}",
                    r"--(no-)?(exclude|timeout|zl|zc|info|transport|perms|rsh|acls)=?(\PC|[\n\x1b\u{202e}]){0,4}",
                    r"[-a:@\[\]~/. ;\n]{0,8}",
                ],
                0..6,
            )
        ) {
            if let Err(error) = flags::parse(words.iter().map(OsString::from)) {
                let text = error.to_string();
                let line = crate::escape::escape_text(&text);
                prop_assert!(!line.is_empty() && !line.chars().any(char::is_control), "{line:?}");
                prop_assert!(matches!(error.exit_code(), 1 | 4), "{line:?}");
            }
        }
    }
}
