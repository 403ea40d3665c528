//! First words that are commands of dsync and no operands: `dsync completions bash`, `dsync man`.
//!
//! The whole list is reserved from the beginning, so that a script that copies `./fleet` today does
//! the same with every later version. Only the first word of a line is looked at: `dsync -a fleet
//! host:` copies what it names, as rsync does.

use std::ffi::OsString;

use clap::ValueEnum as _;
use clap_complete::Shell;

use crate::{documents, flags::ask_for_help, here::is_here, usage::UsageError};

const COMPLETIONS_HELP: &str = "\
dsync completions SHELL

Prints a script that completes options in SHELL: bash, elvish, fish, powershell or zsh. README.md says where each
shell looks for it.
";

const MAN_HELP: &str = "\
dsync man

Prints the manual page in roff: `dsync man | man -l -` shows it.
";

/// Commands of later versions.
const LATER: [&str; 5] = ["fleet", "history", "job", "run", "status"];

/// Commands of this version, each of which has a help.
pub(crate) const HELPED: [&str; 9] =
    ["completions", "doctor", "enroll", "explain", "key", "man", "serve", "state", "verify"];

/// Returns the words that `help` and `help COMMAND` stand for; `None` for other words, and where `help` is
/// an entry here, which the line then lists or copies.
pub(crate) fn help(words: &[OsString]) -> Option<Vec<OsString>> {
    let (first, rest) = words.split_first().filter(|(first, _)| *first == "help")?;
    let asked = match rest {
        [] => vec!["--help".into()],
        [command] if HELPED.iter().any(|name| command == name) => vec![command.clone(), "--help".into()],
        _ => return None,
    };
    (!is_here(first)).then_some(asked)
}

/// Carries out a command and returns what it prints; `None` where the first word is none.
///
/// # Errors
/// [`UsageError`] for words that the command does not take, and for a command of later versions.
pub(crate) fn dispatch(words: &[OsString]) -> Option<Result<Vec<u8>, UsageError>> {
    let (first, rest) = words.split_first()?;
    let name = first.to_str()?;
    Some(match name {
        "completions" if ask_for_help(rest) => Ok(COMPLETIONS_HELP.into()),
        "completions" => shell(rest).map(documents::completion),
        "man" if ask_for_help(rest) => Ok(MAN_HELP.into()),
        "man" if rest.is_empty() => Ok(documents::manual()),
        "man" => Err(UsageError::CommandWords {
            command: "man",
            wanted: "takes no words".to_owned(),
            file: is_here(first),
        }),
        _ => {
            let command = LATER.iter().find(|later| **later == name)?;
            Err(UsageError::CommandMissing { command, file: is_here(first) })
        }
    })
}

/// Reads the one word that `completions` takes.
fn shell(words: &[OsString]) -> Result<Shell, UsageError> {
    let known = || Shell::value_variants().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let wanted = || format!("takes the name of one shell: {}", known());
    match words {
        [word] => word.to_str().and_then(|word| Shell::from_str(word, false).ok()),
        _ => None,
    }
    .ok_or_else(|| UsageError::CommandWords {
        command: "completions",
        wanted: wanted(),
        file: is_here("completions".as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_word_is_a_command() {
        let is_command =
            |line: &str| dispatch(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>()).is_some();
        for name in LATER {
            assert!(is_command(name), "{name}");
            assert!(is_command(&format!("{name} host:dir")), "{name}");
        }
        assert!(LATER.iter().all(|name| crate::flags::COMMANDS.contains(name)));
        assert!(HELPED.iter().all(|name| crate::flags::COMMANDS.contains(&format!("\n  {name} "))));
        for line in ["", "-a fleet dst", "./fleet dst", "fleet/ dst", "fleets dst", "src fleet"] {
            assert!(!is_command(line), "{line}");
        }
    }

    #[test]
    fn help_stands_for_the_option_of_a_run_or_a_command() {
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let of = |line: &str| help(&words(line));
        assert_eq!(of("help"), Some(words("--help")));
        for name in HELPED {
            assert_eq!(of(&format!("help {name}")), Some(words(&format!("{name} --help"))));
        }
        for line in ["help fleet", "help dst", "help state dst", "-a help", "./help"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
