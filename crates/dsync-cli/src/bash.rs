//! Completion in bash: the first word, the options of a run and of each command, and their words.
//!
//! clap's own script offers every option in place of a first word, and knows neither commands nor
//! negations. The law: where a file can stand, files are offered, and a word that is offered is taken.

use std::fmt::Write as _;

use clap::{Arg, Command, ValueEnum as _};
use clap_complete::Shell;

use crate::{commands::HELPED, enroll, flags, keys, serve, state, verify};

/// Returns the script.
pub(crate) fn script() -> String {
    let run = flags::command();
    let shown = longs(&run, false);
    let negations: Vec<_> = longs(&run, true).into_iter().filter(|long| is_negation(long)).collect();

    let commands = commands(&shown);
    let names: Vec<&str> = commands.iter().map(|(name, _)| *name).collect();
    let cases: String =
        commands.iter().map(|(name, options)| format!("        {name}) options='{options}' ;;\n")).collect();

    SCRIPT
        .replace("@VALUES@", &values(&run))
        .replace("@CASES@", &cases)
        .replace("@OPTIONS@", &options(&run, &shown))
        .replace("@NEGATIONS@", &negations.join(" "))
        .replace("@COMMANDS@", &names.join(" "))
}

/// Returns the commands of this version with the words that each takes.
fn commands(run: &[String]) -> Vec<(&'static str, String)> {
    let own = |command: Command| options(&command, &longs(&command, false));
    let shells: Vec<_> = Shell::value_variants().iter().map(ToString::to_string).collect();
    let with_json = format!("--json {}", run.join(" "));
    vec![
        ("completions", shells.join(" ")),
        ("doctor", LEADING.to_owned()),
        ("enroll", own(enroll::command())),
        ("explain", with_json),
        ("help", HELPED.join(" ")),
        ("key", own(keys::command())),
        ("man", String::new()),
        ("serve", own(serve::command())),
        ("state", own(state::command())),
        ("verify", own(verify::command())),
    ]
}

/// Returns the long names of a command's options, and of those that its help leaves out if `all`.
fn longs(command: &Command, all: bool) -> Vec<String> {
    let arguments = command.get_arguments().filter(|argument| all || !argument.is_hide_set());
    arguments
        .flat_map(|argument| {
            argument.get_long().into_iter().chain(argument.get_visible_aliases().unwrap_or_default())
        })
        .map(|long| format!("--{long}"))
        .collect()
}

fn is_negation(long: &str) -> bool {
    long.starts_with("--no-")
}

/// Returns the letters of a command's options and these long names, in one line.
fn options(command: &Command, longs: &[String]) -> String {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let letters = shown.filter_map(Arg::get_short).map(|letter| format!("-{letter}"));
    letters.chain(longs.iter().cloned()).collect::<Vec<_>>().join(" ")
}

/// Returns the cases of options whose values are a few words.
fn values(run: &Command) -> String {
    let mut cases = String::new();
    for argument in run.get_arguments().filter(|argument| argument.get_action().takes_values()) {
        let Some(long) = argument.get_long().filter(|_| !argument.is_hide_set()) else { continue };
        let known = argument.get_possible_values();
        let known: Vec<_> = known.iter().map(|value| value.get_name()).collect();
        let told = TOLD.iter().find(|(option, _)| *option == long).map(|(_, words)| (*words).to_owned());
        let words = told.unwrap_or_else(|| known.join(" "));
        // A value that may be left out stands behind the sign only.
        let is_glued = argument.is_require_equals_set();
        let form = if is_glued { format!("--{long}=") } else { format!("--{long} | --{long}=") };
        if !words.is_empty() {
            let _ = writeln!(cases, "        {form}) values='{words}' ;;");
        }
    }
    cases
}

/// Words of values that have a parser of their own.
const TOLD: &[(&str, &str)] =
    &[("progress", "bar plain json none"), ("stderr", "errors all client"), ("outbuf", "None Line Block")];

/// Options that lead to a host, of `dsync doctor`.
const LEADING: &str = "--json -e --rsh --dsync-path --transport --port";

const SCRIPT: &str = r#"# Completion of dsync in bash, made by 'dsync completions bash'.
_dsync() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= options values=
    COMPREPLY=()

    # bash takes the sign between an option and its value for a word.
    if [[ $current == = ]]; then
        before+== current=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}=
    fi
    case $before in
@VALUES@    esac
    if [[ $values ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
        return
    fi

    (( COMP_CWORD > 1 )) && command=${COMP_WORDS[1]}
    case $command in
@CASES@        *)
            options='@OPTIONS@'
            [[ $current == --no-* ]] && options='@NEGATIONS@'
            ;;
    esac

    # Where this finds nothing, bash completes files.
    if [[ $current == -* || $command == completions ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    elif (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W '@COMMANDS@' -- "$current"))
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -o bashdefault -o default -o filenames -F _dsync dsync
"#;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Returns what bash offers for the last word of a line, in a directory with the entry `a file`.
    fn offered(words: &[&str]) -> Vec<String> {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a file"), "").unwrap();
        std::fs::write(scratch.path().join("script"), script()).unwrap();
        let call = "source ./script; rm script; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _dsync; \
                    printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", call, "bash", "dsync"]).args(words).current_dir(scratch.path());
        let told = bash.output().unwrap();
        assert!(told.stderr.is_empty(), "{}", String::from_utf8_lossy(&told.stderr));
        let told = String::from_utf8(told.stdout).unwrap();
        told.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn bash_offers_the_words_that_can_stand_there() {
        let first = offered(&[""]);
        assert!(first.iter().any(|word| word == "verify") && first.iter().any(|word| word == "a file"));
        assert!(!first.iter().any(|word| word.starts_with('-')), "{first:?}");
        assert_eq!(offered(&["ver"]), ["verify"]);
        assert_eq!(offered(&["-a", "a"]), Vec::<String>::new(), "bash completes the file");

        let run = offered(&["--"]);
        assert!(run.iter().any(|word| word == "--numeric-ids") && !run.iter().any(|word| is_negation(word)));
        assert!(offered(&["-a", "--no-pe"]).iter().any(|word| word == "--no-perms"));
        let verify = offered(&["verify", "--"]);
        assert!(
            verify.iter().any(|word| word == "--against") && !verify.iter().any(|word| word == "--delete")
        );
        assert!(offered(&["serve", "--ch"]).iter().any(|word| word == "--check"));
        assert!(offered(&["completions", ""]).iter().any(|word| word == "zsh"));

        assert_eq!(offered(&["--stderr", "a"]), ["all"]);
        assert_eq!(offered(&["--stderr", "=", "c"]), ["client"]);
        assert_eq!(offered(&["--progress", "="]), ["bar", "plain", "json", "none"]);
        // A file comes behind it.
        assert_eq!(offered(&["--progress", "a"]), Vec::<String>::new());
    }

    #[test]
    fn words_of_values_are_taken() {
        for (option, words) in TOLD {
            for word in words.split(' ') {
                assert!(flags::parse([format!("--{option}={word}").into()]).is_ok(), "--{option}={word}");
            }
        }
        for long in LEADING.split(' ').filter(|word| word.starts_with("--") && *word != "--json") {
            assert!(longs(&flags::command(), true).iter().any(|known| known == long), "{long}");
        }
    }
}
