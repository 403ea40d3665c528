//! `--no-OPTION` for every switch, and the rule for several occurrences.
//!
//! rsync's rule: words take effect from left to right. `-a --no-g` copies no groups, `--no-g -a`
//! does, and `-a --no-D --devices` copies devices but no fifos. Each switch gets a hidden opposite
//! under its long and its short name (`--no-perms`, `--no-p`). The state of a switch is then a
//! comparison of positions on the command line. Options that rsync has, dsync lacks and a script
//! may turn off (`--no-inplace`) are accepted as well: dsync already behaves as they request.

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use dsync_engine::notation::Owner;

use super::{accepted, unsupported};

/// Adds the opposite of every switch.
pub(super) fn with_negations(command: Command) -> Command {
    let opposites: Vec<Arg> = command.get_arguments().filter(|arg| has_opposite(arg)).map(opposite).collect();
    let command = command.args(opposites).args(accepted::args());
    command.args(unsupported::harmless_negations().map(|(long, short)| {
        let arg = hidden_switch(format!("no_{long}"), format!("no-{long}"));
        match short {
            Some(short) => arg.alias(format!("no-{short}")),
            None => arg,
        }
    }))
}

/// Returns whether the switch is on after all words.
pub(super) fn is_on(matches: &ArgMatches, id: &str) -> bool {
    last_on(matches, id) > last_off(matches, id)
}

/// Returns whether the switch is on by its own word, not by one that implies it.
pub(super) fn is_on_itself(matches: &ArgMatches, id: &str) -> bool {
    last(matches, id) > last_off(matches, id)
}

/// Returns whether the switch was turned off after every word that turns it on.
pub(super) fn is_off(matches: &ArgMatches, id: &str) -> bool {
    last_off(matches, id) > last_on(matches, id)
}

/// Returns whether `one` was typed, and not before `other`.
pub(super) fn is_after(matches: &ArgMatches, one: &str, other: &str) -> bool {
    last(matches, one) > last(matches, other)
}

fn last_on(matches: &ArgMatches, id: &str) -> Option<usize> {
    let implying = IMPLIED.iter().filter(|(_, implied)| implied.contains(&id)).map(|&(by, _)| by);
    let implying = implying.filter(|&by| {
        by != "chown"
            || matches.get_one::<Owner>(by).is_some_and(|owner| match id {
                "owner" => owner.user.is_some(),
                _ => owner.group.is_some(),
            })
    });
    implying.chain([id]).filter_map(|id| last(matches, id)).max()
}

fn last_off(matches: &ArgMatches, id: &str) -> Option<usize> {
    let shorthand = IMPLIED
        .iter()
        .filter(|(by, implied)| SHORTHANDS.contains(by) && implied.contains(&id))
        .map(|&(by, _)| by);
    let opposite = shorthand.chain([id]).filter_map(|id| last(matches, &format!("no_{id}"))).max();
    let taken_back = TAKEN_BACK.iter().filter(|(option, _)| *option == id);
    let taken_back = taken_back.filter_map(|(_, by)| last(matches, by)).max();
    opposite.max(taken_back)
}

/// Returns the position of the last occurrence on the command line.
fn last(matches: &ArgMatches, id: &str) -> Option<usize> {
    if matches.value_source(id) != Some(ValueSource::CommandLine) {
        return None;
    }
    matches.indices_of(id)?.max()
}

fn has_opposite(arg: &Arg) -> bool {
    is_switch(arg) || VALUES_WITH_OPPOSITE.contains(&arg.get_id().as_str())
}

fn is_switch(arg: &Arg) -> bool {
    let takes_no_value = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count);
    takes_no_value && !WITHOUT_OPPOSITE.contains(&arg.get_id().as_str())
}

fn opposite(arg: &Arg) -> Arg {
    let id = arg.get_id().as_str();
    let short = arg.get_short().map(|short| format!("no-{short}"));
    let long = arg.get_long().map(|long| format!("no-{long}")).or_else(|| short.clone());
    let mut made = hidden_switch(format!("no_{id}"), long.unwrap_or_else(|| format!("no-{id}")));
    if arg.get_long().is_some() {
        made = made.aliases(short);
    }
    if let Some(aliases) = arg.get_all_aliases() {
        made = made.aliases(aliases.into_iter().map(|alias| format!("no-{alias}")));
    }
    // A count starts from 0 again: `-vv --no-v -v` is `-v`.
    if matches!(arg.get_action(), ArgAction::Count) { made.overrides_with(id.to_owned()) } else { made }
}

fn hidden_switch(id: String, long: String) -> Arg {
    Arg::new(id).long(long).action(ArgAction::SetTrue).hide(true)
}

/// Options that turn others on.
const IMPLIED: &[(&str, &[&str])] = &[
    // Not that it makes anybody root, but it takes back --no-super.
    ("fake_super", &["super"]),
    ("archive", &["recursive", "links", "perms", "times", "group", "owner", "devices", "specials"]),
    ("old_dirs", &["recursive"]),
    ("acls", &["perms"]),
    ("chown", &["owner", "group"]),
    ("usermap", &["owner"]),
    ("groupmap", &["group"]),
    ("devices_specials", &["devices", "specials"]),
    ("partial_progress", &["progress", "partial"]),
    ("delete_during", &["delete"]),
    ("delete_after", &["delete"]),
    ("delete_before", &["delete"]),
    ("delete_delay", &["delete"]),
    ("delete_excluded", &["delete"]),
    ("compress_choice", &["compress"]),
    ("compress_level", &["compress"]),
];

/// The options among them whose negation also turns the others off.
const SHORTHANDS: &[&str] = &["archive", "devices_specials", "partial_progress"];

/// Options that others take back, as rsync has one variable for both.
const TAKEN_BACK: &[(&str, &str)] = &[
    ("fake_super", "super"),
    ("fake_super", "no_super"),
    ("remove_source_files", "remove_sent_files"),
    ("remove_sent_files", "remove_source_files"),
];

/// Options with a value that rsync lets be taken back.
const VALUES_WITH_OPPOSITE: &[&str] = &["bwlimit", "timeout", "contimeout", "progress", "iconv"];

/// Switches that choose what the program is, not how a run goes.
const WITHOUT_OPPOSITE: &[&str] = &["help", "version", "server"];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::*, *};

    fn read(line: &str) -> Flags {
        parse(line.split_whitespace().map(OsString::from)).unwrap()
    }

    #[test]
    fn every_switch_has_an_opposite_and_is_settled() {
        let command = command();
        let mut flags = read("");
        let settled: Vec<&str> = [
            &mut flags.attributes as &mut dyn Group,
            &mut flags.selection,
            &mut flags.links,
            &mut flags.comparison,
            &mut flags.deletion,
            &mut flags.writing,
            &mut flags.compressing,
            &mut flags.remote,
            &mut flags.output,
            &mut flags.stopping,
        ]
        .into_iter()
        .flat_map(|group| group.switches().into_iter().map(|(id, _)| id))
        .collect();
        for arg in command.get_arguments().filter(|arg| is_switch(arg) && !arg.is_hide_set()) {
            let id = arg.get_id().as_str();
            let counts = matches!(arg.get_action(), ArgAction::Count);
            assert!(counts || id == "partial_progress" || settled.contains(&id), "{id} is never settled");
            for name in arg.get_long().map(str::to_owned).into_iter().chain(arg.get_short().map(String::from))
            {
                let opposite = format!("--no-{name}");
                assert!(parse([OsString::from(&opposite)]).is_ok(), "{opposite}");
            }
        }
    }

    #[test]
    fn archive_is_its_parts() {
        let all = read("-a").attributes;
        assert!(all.recursive && all.links && all.perms && all.times && all.group && all.owner);
        assert!(all.devices && all.specials && !all.numeric_ids && !all.omit_dir_times);
        let parts = read("-rlptgoD").attributes;
        assert!(parts.recursive && parts.links && parts.perms && parts.times && parts.group && parts.owner);
        assert!(parts.devices && parts.specials && !parts.archive);
    }

    #[test]
    fn last_of_a_switch_and_its_opposite_wins() {
        assert!(!read("-a --no-g").attributes.group);
        assert!(!read("-a --no-group").attributes.group);
        assert!(read("--no-g -a").attributes.group);
        assert!(read("-a --no-g -g").attributes.group);
        assert!(!read("-p --no-perms --perms --no-p").attributes.perms);
        assert!(!read("-W --no-W").comparison.whole_file);
        assert!(!read("--existing --no-ignore-non-existing").comparison.existing);
    }

    #[test]
    fn shorthand_is_negated_as_a_whole() {
        let none = read("-a --no-D").attributes;
        assert!(!none.devices && !none.specials && none.owner);
        assert!(read("--drop-D -a --devices").attributes.drop_specials);
        let some = read("-a --no-D --devices").attributes;
        assert!(some.devices && !some.specials);
        assert!(!read("-a --no-archive").attributes.recursive);
        assert!(!read("-P --no-P").output.progress);
        assert!(read("--delete-excluded").deletion.delete);
        assert!(!read("--delete-excluded --no-delete").deletion.delete);
        assert!(read("--delete --delete-excluded --no-delete-excluded").deletion.delete);
    }

    #[test]
    fn count_starts_again_after_its_opposite() {
        assert_eq!(read("-vv").output.verbose, 2);
        assert_eq!(read("-v -v --verbose").output.verbose, 3);
        assert_eq!(read("-vv --no-v").output.verbose, 0);
        assert_eq!(read("-vv --no-verbose -v").output.verbose, 1);
        assert_eq!(read("-ii --no-i").output.itemize_changes, 0);
    }

    #[test]
    fn compression_is_implied_by_its_choices_and_refused_by_name() {
        assert!(read("--zc=lz4").compressing.compress);
        assert!(read("--zl=9").compressing.compress);
        let off = read("-z --zl=9 --no-z").compressing;
        assert!(!off.compress && off.refused);
        assert!(!read("--no-z -z").compressing.refused);
    }

    #[test]
    fn progress_is_known_to_be_unspoken_of() {
        let silent = read("-a").output;
        assert!(!silent.progress && !silent.no_progress);
        assert!(read("-P").output.progress);
        assert!(read("--info=progress2").output.progress);
        assert!(
            !read("--info=name0").output.progress && !read("--info=progress2 --no-progress").output.progress
        );
        assert!(
            read("--no-progress --info=progress2").output.progress
                && read("-P --info=progress0").output.no_progress
        );
        assert!(read("-P --no-progress").output.no_progress);
        assert!(read("--no-progress --progress=plain").output.progress);
        assert!(read("-P --progress=none").output.no_progress);
        assert!(parse(["--progress=colourful".into()]).is_err());
    }

    #[test]
    fn super_takes_back_fake_super_and_no_limit_is_the_default() {
        assert!(!read("--fake-super --super").attributes.fake_super);
        assert!(read("--super --fake-super").attributes.fake_super);
        assert!(read("--fake-super --no-super").attributes.no_super);
        assert!(!read("--fake-super --no-super").attributes.fake_super);
        for line in ["--no-super --super", "--no-super --fake-super", "--super", "-a"] {
            assert!(!read(line).attributes.no_super, "{line}");
        }
        assert_eq!(read("--timeout=5 --no-timeout --contimeout=5 --no-contimeout").remote.timeout, None);
        assert_eq!(read("--timeout=0 --contimeout=0").remote.timeout, None);
    }

    #[test]
    fn later_of_the_two_ways_to_move_counts() {
        let moving = |line| read(line).deletion.moving();
        assert_eq!(moving("--remove-sent-files --remove-source-files"), Some("--remove-source-files"));
        assert_eq!(moving("--remove-source-files --remove-sent-files"), Some("--remove-sent-files"));
        assert_eq!(moving("--remove-sent-files --no-remove-sent-files"), None);
        assert_eq!(moving("-a"), None);
    }

    #[test]
    fn negation_of_what_dsync_never_does_is_taken() {
        read("-a --no-H --no-acls --no-X --no-inplace --no-relative");
    }
}
