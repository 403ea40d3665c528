//! Generates the manual page, shell completions and `docs/cli.md` from the one clap command.

use clap::Command;
use clap_complete::Shell;

use crate::{bash, flags};

/// Renders the manual page in roff.
pub(crate) fn manual() -> Vec<u8> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(flags::command()).title("DSYNC").section("1").manual("dsync manual");

    // Memory takes whatever is written to it.
    let _ = man
        .render_title(&mut page)
        .and_then(|()| man.render_name_section(&mut page))
        .and_then(|()| man.render_synopsis_section(&mut page))
        .and_then(|()| man.render_options_section(&mut page));

    page.extend_from_slice(MANUAL_END.as_bytes());
    page
}

/// Generates a script that completes options in a shell.
pub(crate) fn completion(shell: Shell) -> Vec<u8> {
    if shell == Shell::Bash {
        return bash::script().into_bytes();
    }
    let mut script = Vec::new();
    let mut command = visible(&flags::command());
    clap_complete::generate(shell, &mut command, "dsync", &mut script);
    script
}

/// Returns the command without its hidden options: the many `--no-OPTION` would drown the others.
fn visible(command: &Command) -> Command {
    let shown: Vec<_> = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect();
    Command::new("dsync").disable_help_flag(true).disable_version_flag(true).args(shown)
}

const MANUAL_END: &str = r#".SH NEGATIONS
Each switch has an opposite under its long and its short name: \-\-no\-perms, \-\-no\-p.
The last one on the command line wins.
.SH COMMANDS
.TP
dsync completions SHELL
Prints a script that completes options in bash, elvish, fish, powershell or zsh.
.TP
dsync doctor [HOST:]DIR
Says what a run to or from DIR would meet, and what to do about it; \-\-json for programs.
.TP
dsync enroll [\-n] [\-y] [\-\-share NAME] [\-\-role ROLE] [\-\-directory DIR] [USER@]HOST
Makes this user's key known to the server at HOST, and the server here, over ssh; shows first what would be written.
.TP
dsync explain [OPTIONS] SRC DST PATH...
Says what dsync [OPTIONS] SRC DST would do with each PATH, and why; nothing is written.
.TP
dsync help [COMMAND]
Prints the help of a run or of a command, where no file here is called help.
.TP
dsync key [\-\-file FILE] [\-\-comment TEXT]
Makes a key for servers that need no ssh if there is none, and prints its public line. With \-\-certify it signs a certificate for another key.
.TP
dsync verify [HOST:]DIR
Compares DIR with its manifest and tells rot from edits; \-\-record writes the manifest, \-\-help has its options.
.TP
dsync state [\-\-state\-dir DIR] [\-\-clear]
Lists what runs with \-\-state have kept, or removes it.
.TP
dsync man
Prints this page. A local file of a command's name is written ./NAME where it is the first word.
.TP
dsync serve [\-\-config FILE]
Offers shares to keys on a port, 8730 where the configuration names no other.
.TP
dsync serve \-\-stdio \-\-share NAME \-\-key NAME [\-\-log] [\-\-config FILE]
As the command of a key in authorized_keys: lets that key use a share in its role, read, append, keep, write or full.
.TP
dsync serve \-\-check [\-\-config FILE]
Says what each key of the configuration may do; /etc/dsync/serve.toml where no other is named.
.TP
dsync serve \-\-clean [\-\-config FILE]
Removes what the role keep has kept for longer than keep\-days; a server does so every hour by itself.
.SH "KEYS FOR ONE PURPOSE"
In authorized_keys, command="dsync \-\-server \-\-restrict /srv/backups,append",restrict before a key lets it be used
for that directory only: rw, both ways; ro, copying from it; wo, copying to it; append, copying from it and adding to it,
while nothing that is there is changed, replaced or removed; write, both ways, while nothing is removed. All paths of the client start there and end there.
.SH "EXIT STATUS"
0 done; 1 wrong command line; 2 incompatible peer; 3 a directory that an operand or option names cannot be used; 4 not supported;
5 a server could not be started; 10 connection failed; 11 file could not be read or written; 12 protocol
error; 13 standard output could not be written; 14 the remote shell could not be started; 20 interrupted; 23 some entries could not be copied; 24 some
entries vanished or kept changing; 25 limit on deletions reached; 30 timeout; 35 no connection in time; 40
authentication failed; 41 destination in use; 42 refused for safety; 126 the remote host could not run dsync; 127 it
has none; 255 the remote shell failed.
.SH ENVIRONMENT
.TP
DSYNC_RSH, RSYNC_RSH
The remote shell where \-e is not given.
.TP
RSYNC_PARTIAL_DIR
The directory of unfinished files where \-\-partial is given and \-\-partial\-dir is not.
.TP
DSYNC_LOG
What is logged on standard error, as in DSYNC_LOG=debug; nothing without it.
.TP
XDG_STATE_HOME
The directory in which dsync/ has what \-\-state keeps, if \-\-state\-dir names no other; ~/.local/state without it.
.TP
XDG_CONFIG_HOME
The directory in which dsync/ has the key and the known servers for HOST::SHARE; ~/.config without it.
.SH "SEE ALSO"
rsync(1), ssh(1)
"#;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fmt::Write as _, path::Path};

    use clap::Arg;
    use dsync_engine::{Access, exit_code, grant::Demand};

    use super::*;
    use crate::{
        advice::demand_options,
        flags::{accepted::Accepted, unsupported::Foreign},
        messages,
    };

    /// Compares a generated document with the one in the repository; `DSYNC_BLESS=1` rewrites it.
    fn hold(name: &str, made: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        if std::env::var_os("DSYNC_BLESS").is_some() {
            std::fs::write(&path, made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "docs/{name} is out of date: run the tests of dsync-cli with DSYNC_BLESS=1");
    }

    fn heading(arg: &Arg) -> String {
        let letter = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        let mut names: Vec<String> = letter.into_iter().chain(long).collect();
        names.extend(arg.get_visible_aliases().unwrap_or_default().iter().map(|alias| format!("--{alias}")));
        let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
        let value = value.map_or_else(String::new, |names| format!(" {}", names.join(" ")));
        format!("`{}{value}`", names.join(", "))
    }

    fn markdown() -> String {
        let command = flags::command();
        let mut page = format!("# The dsync command\n\n{INTRODUCTION}\n");
        let mut group = None;
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional()) {
            if group != arg.get_help_heading() {
                group = arg.get_help_heading();
                write!(page, "\n## {}\n\n", group.unwrap_or("Options")).unwrap();
            }
            let short = arg.get_help().map(ToString::to_string).unwrap_or_default();
            write!(page, "- {}: {short}", heading(arg)).unwrap();
            let long = arg.get_long_help().map(ToString::to_string).unwrap_or_default();
            let rest = long
                .strip_prefix(&short)
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            page.push_str(&if rest.is_empty() { ".\n".to_owned() } else { format!(". {rest}\n") });
        }
        page.push_str(&keys());
        page.push_str(&exit_codes());
        page.push_str(&accepted());
        page.push_str(&missing());
        page
    }

    #[test]
    fn manual_has_every_command_and_form_of_a_run() {
        let manual = String::from_utf8(manual()).unwrap();
        for command in crate::commands::HELPED {
            assert!(manual.contains(&format!("\ndsync {command}")), "{command}");
        }
        let usage = flags::command().render_usage().to_string();
        assert!(manual.contains("HOST::SHARE/DST\n") && usage.contains("HOST::SHARE/SRC... DST"));
        assert!(manual.contains("\nXDG_STATE_HOME\n"));
    }

    fn exit_codes() -> String {
        let codes = [
            exit_code::OK,
            exit_code::USAGE,
            exit_code::INCOMPATIBLE,
            exit_code::FILE_SELECTION,
            exit_code::UNSUPPORTED,
            exit_code::START,
            exit_code::SOCKET,
            exit_code::FILE_IO,
            exit_code::STREAM,
            messages::OUTPUT,
            exit_code::SHELL,
            exit_code::INTERRUPTED,
            exit_code::MEMORY,
            exit_code::PARTIAL,
            exit_code::VANISHED,
            exit_code::MAX_DELETE,
            exit_code::TIMEOUT,
            exit_code::CONNECT_TIMEOUT,
            exit_code::AUTHENTICATION,
            exit_code::LOCKED,
            exit_code::POLICY,
            exit_code::REMOTE_COMMAND,
            exit_code::REMOTE_MISSING,
            exit_code::SHELL_FAILED,
        ];
        let rows = codes.map(|code| format!("| {code} | {} |\n", messages::meaning(code))).concat();
        format!(
            "\n## Exit codes\n\nrsync's numbers where the meaning is the same.\n\n| code | meaning |\n|---|---|\n{rows}"
        )
    }

    /// Writes a table of what each access of `--restrict` permits, from the decisions themselves.
    fn keys() -> String {
        let header = Access::EACH.map(|access| format!(" {} |", access.word())).concat();
        let row = |demand: Demand| {
            let cells = Access::EACH.map(|access| if access.allows(demand) { " yes |" } else { " no |" });
            format!("| {} |{}\n", demand_options(demand), cells.concat())
        };
        let rows = Demand::EACH.map(row).concat();
        format!(
            "\n## Keys for one purpose\n\n{KEYS}\n\n| what a client asks for |{header}\n|---|---|---|---|---|---|\n{rows}\n{KEYS_END}\n"
        )
    }

    /// Writes the options that have no effect, and why.
    fn accepted() -> String {
        let row = |option: &Accepted| format!("| `{option}` | {} |\n", option.reason);
        let rows: String = Accepted::all().iter().map(row).collect();
        format!(
            "\n## Options of rsync that change nothing\n\n{ACCEPTED}\n\n| option | why nothing follows from it |\n|---|---|\n{rows}"
        )
    }

    fn missing() -> String {
        let rows: String = Foreign::all()
            .iter()
            .map(|option| format!("| `{option}` | {} |\n", option.advice.unwrap_or_default()))
            .collect();
        format!(
            "\n## Options of rsync that dsync does not have\n\n{MISSING}\n\n| option | instead |\n|---|---|\n{rows}"
        )
    }

    const INTRODUCTION: &str = "\
<!-- Made from the options themselves: run the tests of dsync-cli with DSYNC_BLESS=1 after a change. -->

    dsync [OPTIONS] SRC... DST
    dsync [OPTIONS] SRC... [USER@]HOST:DST
    dsync [OPTIONS] [USER@]HOST:SRC... DST
    dsync completions SHELL
    dsync doctor [HOST:]DIR
    dsync explain [OPTIONS] SRC DST PATH...
    dsync help [COMMAND]
    dsync verify [HOST:]DIR [--against SRC] [--state]
    dsync state [--state-dir DIR] [--clear]
    dsync man
    dsync [OPTIONS] SRC... HOST::SHARE/DST
    dsync [OPTIONS] HOST::SHARE/SRC... DST
    dsync HOST::
    dsync enroll [-n] [-y] [--share NAME] [--role ROLE] [--directory DIR] [USER@]HOST
    dsync key [--file FILE] [--comment TEXT]
    dsync key --certify KEY --as client|server --name NAME --expires DATE [--file FILE]
    dsync serve [--config FILE]
    dsync serve --stdio --share NAME --key NAME [--log] [--config FILE]
    dsync serve --check [--config FILE]
    dsync serve --clean [--config FILE]
    dsync serve --status [--json] [--config FILE]

A `:` before any `/` makes an operand remote; write `./a:b` for a local file of that name. An IPv6 address stands in
brackets. A remote path that does not start with `/` starts where the remote shell starts dsync, with ssh at the home
directory; one that starts with `~/` is in the home directory wherever that is. A second source on the same host may be written `:PATH`. A directory with a trailing `/` stands for what is in it, without one for itself.

Letters can be put together (`-avz`), values follow `=` or stand in the next word. Each switch has an opposite under
its long and its short name (`--no-perms`, `--no-p`); the last one wins, so `-a --no-owner` is `-a` without owners. Options
that exclude each other are refused, and say so. Older spellings that are taken as well are in [from-rsync.md](from-rsync.md#options).

Without `-v`, `-i`, `--stats` or a terminal a run that succeeds prints nothing, but for the lines `skipping non-regular file`
and `skipping directory` that rsync prints too, where an option like `-l`, `-D` or `-r` is missing; `-q` leaves both out, and
`--info=nonreg0` the former. Under `--watch` each run also prints
a summary, to standard error; with `-q` it does not. Results go to standard output, all else to standard error. Names are printed with `\\#ooo` (three octal digits) for each byte that a terminal or a script
could stumble over. DSYNC_LOG=debug in the environment logs to standard error: ports, the carrier and why it is that one, and of
each entry what is done and why; DSYNC_LOG=dsync=debug leaves the libraries out.

A first word may be a command: `completions SHELL` prints a script for bash, elvish, fish, powershell or zsh, `man` the manual
page, `doctor [HOST:]DIR` says of a host and a directory what a run would meet: login, program, clock, ports, space, what the
filesystem keeps; each line is `ok`, `warn` or `fail` with what to do, `--json` is for programs, and the exit code is 1 where
something fails. It takes the options that reach a host (`-e`, `--dsync-path`, `--port`). `serve` offers shares
to keys, each with a role, `key` makes a key, and
`enroll` makes a key and a server known to each other ([server.md](server.md)). `HOST::SHARE/PATH` and `dsync://HOST:PORT/SHARE/PATH` are paths in such a
share, `HOST::` alone lists them. `help [COMMAND]` prints the help where no file here is called `help`. `fleet`, `history`, `job`, `run` and `status` are kept for
later versions. A local file with one of these names is written `./status` where it is the first word.

`explain [OPTIONS] SRC DST PATH...` prints for each path what `dsync [OPTIONS] SRC DST` would do with it and why, and writes nothing:
what differs, the option that leaves it alone, or the rule that hides it or protects it from deletion, by the words of the command
line or by file and line, whichever end it stands at. PATH is written as `-v` lists it. `--json` prints an event `explained` for each;
the exit code is that of the run, as 25 where it would reach `--max-delete`, and else 23 where a path is at neither end. A remote end tells of no other path than these and the directories above them.

`verify DIR --record` reads a directory and writes its manifest ([manifest.md](manifest.md)): `DIR.dsync-manifest` beside it, or `--manifest FILE`.
`verify DIR` reads the directory again, from the disk even where memory has it ([limits.md](limits.md) says where not), and prints a line for each difference: `rot` (the content
differs, and size and time do not), `edited`, `attributes`, `missing`, `new`, `unreadable`, `busy` (it changed while it was read). The exit code is 23 where anything differs, 11 where the
manifest is damaged, cut short or of a later version. `--percent N` reads the content of that share of the files, others each time, and compares
all others by size and time. `--max-age 30d` reads the files that were not read and found sound within thirty days, so that a run each night reads what is due; a run that
was interrupted goes on with the rest. `MANIFEST.verified` keeps the times. `--json` prints an object for each difference (`kind`, `path`, `path_hex`, which is `null` where the path is UTF-8, `changes`, `why`) and
one with the counts, or `failed` with the `error` and the `exit_code`; a wrong command line has neither. `-x` stays on one filesystem, `-q` prints differences only.
`-n` reads no content at all.

`verify DIR --state`, and `verify DIR` where there is no manifest, compare the files with the hashes of contents that runs with `-c --state` have kept, of all pairs of trees in
`$XDG_STATE_HOME/dsync` or `--state-dir DIR`. No content is stored there. A file whose size, modification or change time is not the one that a run has seen is `edited`, one that no run has read is `unrecorded`: both are
told and not read, and nothing is wrong with them. The exit code is 23 for `rot`, `unreadable` and `busy`, and 11 where no file of DIR can be compared. A state that is damaged or of a newer version is one line, and
counts as not recorded, as do other filesystems than ext4, xfs and btrfs. `--percent`, `--max-age`, `-n`, `-x`, `-q` and `--json` (the counts `unrecorded` and `edited_since`) work as above; `verified` in the directory of states keeps the times.
A run with `-c --state` also keeps the hashes of most files that it writes ([limits.md](limits.md) has the others).

`verify HOST:DIR`, `verify HOST::SHARE/DIR` and `verify dsync://HOST:PORT/SHARE/DIR` verify a tree at another end by a manifest of this one: `--manifest FILE` names it, and
with `--record` writes it. The other end lists its tree and reads the files that are due, from its disk; only names, attributes and hashes are sent. Whoever may copy from there may
verify; a key that may only write is refused with 42. The exit code is 3 where there is no such directory. The findings are the other end's own word, and numbers of devices are not compared.

`verify DIR --against SRC` compares two trees and needs no manifest. One of the two may be `HOST:DIR` or `HOST::SHARE/DIR`; through a key that may
only read, SRC. Both ends read what they have, only hashes are sent, and nothing
is changed. `missing` and `new` are entries of SRC and of DIR only, `edited` files differ in size or time too, `differs` in content alone or because DIR's cannot be read.
An entry that is of another type in a DIR of this machine is `edited`, and both types are told; in a DIR of another host it is `missing`. Files of SRC that cannot be read are `unreadable`.
`-e` and `--dsync-path` reach the host, here as above. It is a dry run of `-ac --delete`: what that would not compare, such as ACLs, is not compared.

`state` lists what runs with `--state` have kept, a line for each pair of trees and one for the sums of large files; `state --clear` removes it, which costs the next run time and
nothing else. `--state-dir DIR` names another directory than `$XDG_STATE_HOME/dsync` (`~/.local/state/dsync`).";

    const KEYS: &str = "\
A line in authorized_keys decides what a key is for, whatever its owner asks for:

    command=\"dsync --server --restrict /srv/backups,append\",restrict ssh-ed25519 AAAA... web1

All paths of the client start at that directory: `host:web1`, `host:/web1` and `host:` are in it, and so are the
directories of its options. A `..` or a link that leads out of it is refused, an absolute link always; links of other users are,
whatever the client says. Who is refused gets exit code 42 and the rule's name. Without a word the access is `rw`; a directory
whose name has a comma needs the word. An end that another program starts takes the same option.";

    const KEYS_END: &str = "\
Under `append` an entry that is there and differs (in content, type or whatever the run compares) stays as it is and is
reported, exit code 23; with --ignore-existing nobody asks for it. Directories that are there keep their permissions, owners
and times. Two things are not kept from a client: with `wo` it learns the names of what is there, and whether size, time, permissions and content of a
file, or of a block of it, equal its own; and links with any text can be copied to the directory: other programs that follow them there are
led where they say.";

    const ACCEPTED: &str = "\
dsync takes them, as scripts have them: what they ask for is so anyway, or they are about a part of rsync that dsync does not
have. With -vv a run says so. The remote end may be given them too (`-M--fsync`); `-M--log-file=FILE` is taken and writes no
file there, as the log of this end has all of it.";

    const MISSING: &str = "\
None is ignored: each ends with exit code 4 and a line that names it. A word that neither program knows ends with
exit code 1 and, where there is one, the name that was probably meant.";

    #[test]
    fn page_in_the_repository_is_that_of_the_command() {
        hold("cli.md", &markdown());
    }

    #[test]
    fn manual_in_the_repository_is_that_of_the_command() {
        hold("dsync.1", &String::from_utf8(manual()).unwrap());
    }

    #[test]
    fn completions_know_the_options_and_not_their_negations() {
        for shell in [Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completion(shell)).unwrap();
            assert!(script.contains("numeric-ids") && !script.contains("no-numeric-ids"), "{shell}");
        }
    }
}
