//! The options that a key may not use, in the language of `refuse options` of rsync's daemon.
//!
//! A rule is the long name of an option, its letter, or a pattern in which `*` and `?` are
//! wildcards; with `!` before it, it accepts. The last rule that matches an option decides. The law:
//! a rule judges what the client's options make the server do ([`SyncOptions`]), not the words that
//! the client says it was given, so no spelling and no client gets around it. An option that
//! concerns only the other end is never refused.

use clap::Command;
use dsync_engine::{
    AlternateUse, Append, Backup, Compression, DeleteTiming, DetectRenamed, Durability, KeepPartial,
    SyncOptions,
    grant::{OptionRules, Request},
};

use crate::flags;

/// The refused options of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Refused {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    accepts: bool,
    pattern: String,
}

impl Rule {
    fn matches(&self, option: &Opt) -> bool {
        let pattern = self.pattern.as_str();
        let letter = option.short.is_some_and(|short| pattern.chars().eq([short]));
        match pattern {
            "a" | "archive" => ARCHIVE.contains(&option.long),
            "D" => ["devices", "specials"].contains(&option.long),
            _ => letter || option.names().any(|name| self.is_for(name)),
        }
    }

    /// Returns whether the rule is for a long name.
    fn is_for(&self, name: &str) -> bool {
        let pattern = self.pattern.as_str();
        pattern == name || is_wild(pattern) && !VITAL.contains(&name) && is_match(pattern, name)
    }
}

impl Refused {
    /// Reads rules.
    ///
    /// # Errors
    /// The position of a rule that is none, and words for it; an option that was probably meant is
    /// found among the candidates.
    pub(crate) fn parse<'a>(rules: impl Iterator<Item = &'a str>) -> Result<Self, (usize, Fault)> {
        let command = flags::command();
        let mut parsed = Vec::new();
        for (at, text) in rules.enumerate() {
            let (accepts, pattern) = match text.strip_prefix('!') {
                Some(pattern) => (true, pattern),
                None => (false, text),
            };
            let pattern = pattern.strip_prefix("--").unwrap_or(pattern).to_owned();
            let rule = Rule { accepts, pattern };
            check(&rule, &command).map_err(|fault| (at, fault))?;
            parsed.push(rule);
        }
        Ok(Self { rules: parsed })
    }

    /// Returns whether nothing is refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the long names of the refused options.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let every = OPTIONS.iter().chain([&LIST]);
        every.filter(|option| self.refuses(option)).map(|option| option.long).collect()
    }

    fn refuses(&self, option: &Opt) -> bool {
        let decides = self.rules.iter().rev().find(|rule| rule.matches(option));
        decides.is_some_and(|rule| !rule.accepts)
    }
}

impl OptionRules for Refused {
    fn refused(&self, request: &Request<'_>) -> Option<String> {
        let here = if request.writes { End::Destination } else { End::Source };
        let asked = |option: &&Opt| {
            (option.end == End::Either || option.end == here) && (option.is_asked)(request.options, here)
        };
        if request.reads_list && self.refuses(&LIST) {
            return Some(LIST.typed());
        }
        let refused = OPTIONS.iter().filter(asked).find(|option| self.refuses(option))?;
        // `delete` stands for all that removes something: whoever gave another one hears of that.
        let is_other = refused.long == "delete" && !request.options.delete;
        let given = |option: &&Opt| is_other && REMOVING.contains(&option.long);
        Some(OPTIONS.iter().filter(asked).find(given).unwrap_or(refused).typed())
    }
}

/// The fault of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No option of dsync is meant.
    Unknown(String),
    /// The option does nothing at a server.
    ClientOnly(String),
}

/// Returns the names of all options that can be refused.
pub(crate) fn candidates() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().chain([&LIST]).map(|option| option.long)
}

fn check(rule: &Rule, command: &Command) -> Result<(), Fault> {
    if OPTIONS.iter().chain([&LIST]).any(|option| rule.matches(option)) {
        return Ok(());
    }
    let pattern = &rule.pattern;
    let names = |arg: &clap::Arg| {
        arg.get_long().is_some_and(|long| long == pattern || is_wild(pattern) && is_match(pattern, long))
            || arg.get_short().is_some_and(|short| pattern.chars().eq([short]))
    };
    match command.get_arguments().any(names) {
        // Lists that were written for rsync's daemon accept such options.
        true if rule.accepts => Ok(()),
        true => Err(Fault::ClientOnly(pattern.clone())),
        false => Err(Fault::Unknown(pattern.clone())),
    }
}

fn is_wild(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Returns whether a pattern stands for all of a name.
fn is_match(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    match first {
        '*' => (0..=name.len()).any(|end| name.is_char_boundary(end) && is_match(rest, &name[end..])),
        _ => {
            let next = name.chars().next().filter(|next| first == '?' || first == *next);
            next.is_some_and(|next| is_match(rest, &name[next.len_utf8()..]))
        }
    }
}

/// The end that an option concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Either,
    Source,
    Destination,
}

/// An option that makes a server do something.
struct Opt {
    long: &'static str,
    short: Option<char>,
    end: End,
    /// Returns whether a run asks for it of this end.
    is_asked: fn(&SyncOptions, End) -> bool,
}

impl Opt {
    /// Returns its long name, and rsync's other ones for the same.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let long = self.long;
        let others = OTHER_NAMES.iter().filter(move |(_, of)| of.contains(&long));
        others.map(|(name, _)| *name).chain([long])
    }

    fn typed(&self) -> String {
        format!("--{}", self.long)
    }
}

const fn either(long: &'static str, short: char, is_asked: fn(&SyncOptions, End) -> bool) -> Opt {
    Opt { long, short: letter(short), end: End::Either, is_asked }
}

const fn source(long: &'static str, short: char, is_asked: fn(&SyncOptions, End) -> bool) -> Opt {
    Opt { long, short: letter(short), end: End::Source, is_asked }
}

const fn destination(long: &'static str, short: char, is_asked: fn(&SyncOptions, End) -> bool) -> Opt {
    Opt { long, short: letter(short), end: End::Destination, is_asked }
}

/// Returns the letter of an option; none for a blank.
const fn letter(short: char) -> Option<char> {
    if short == ' ' { None } else { Some(short) }
}

fn alternates(options: &SyncOptions, way: AlternateUse) -> bool {
    options.writing.alternates.as_ref().is_some_and(|alternates| alternates.way == way)
}

/// Returns whether the suffix of backups is not the one that they have without `--suffix`.
fn has_own_suffix(backup: &Backup) -> bool {
    let usual: &[u8] = if backup.dir.is_some() { b"" } else { b"~" };
    backup.suffix != usual
}

fn deletes(options: &SyncOptions, timing: DeleteTiming) -> bool {
    options.delete && options.delete_timing == timing
}

/// Names of rsync's that ask a server for what it knows by another name, or by two: lists that were
/// written for rsync's daemon have them.
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("del", &["delete-during"]),
    ("delete-delay", &["delete-after"]),
    ("chown", &["usermap", "groupmap"]),
    ("ignore-non-existing", &["existing"]),
    ("old-dirs", &["dirs"]),
    ("old-d", &["dirs"]),
    ("compress-choice", &["compress"]),
    ("compress-level", &["compress"]),
    ("zc", &["compress"]),
    ("zl", &["compress"]),
    ("new-compress", &["compress"]),
    ("old-compress", &["compress"]),
];

/// Options that remove something without `--delete`.
const REMOVING: &[&str] =
    &["delete-excluded", "delete-missing-args", "force", "remove-sent-files", "remove-source-files"];

/// A list of paths that the server reads.
const LIST: Opt = source("files-from", ' ', |_, _| false);

/// The options of `-a`.
const ARCHIVE: &[&str] = &["recursive", "links", "perms", "times", "group", "owner", "devices", "specials"];

/// Options that no wildcard refuses, as with rsync: a dry run does less than what it is a rehearsal of.
const VITAL: &[&str] = &["dry-run"];

/// The options that ask something of a server. The order is that in which messages name them.
const OPTIONS: &[Opt] = &[
    destination("delete-before", ' ', |o, _| deletes(o, DeleteTiming::Before)),
    destination("delete-during", ' ', |o, _| deletes(o, DeleteTiming::During)),
    destination("delete-after", ' ', |o, _| {
        deletes(o, DeleteTiming::After) || deletes(o, DeleteTiming::AfterArrival)
    }),
    destination("delete-excluded", ' ', |o, _| o.delete_excluded),
    destination("delete-missing-args", ' ', |o, _| o.delete_missing_args),
    destination("delete-all-or-nothing", ' ', |o, _| o.delete_all_or_nothing),
    // Named by all options that remove something, as with rsync.
    either("delete", ' ', |o, end| match end {
        End::Source => o.remove_source_files,
        _ => o.delete || o.delete_excluded || o.delete_missing_args || o.force,
    }),
    destination("max-delete", ' ', |o, _| o.max_delete.is_some()),
    destination("ignore-errors", ' ', |o, _| o.ignore_errors),
    destination("allow-empty-source", ' ', |o, _| o.allow_empty_source),
    destination("force-root", ' ', |o, _| o.force_root),
    destination("force", ' ', |o, _| o.force),
    source("remove-sent-files", ' ', |o, _| o.remove_sent_only),
    // Implied by the one above.
    source("remove-source-files", ' ', |o, _| o.remove_source_files),
    either("recursive", 'r', |o, _| o.recursive),
    either("dirs", 'd', |o, _| o.dirs),
    either("links", 'l', |o, _| o.links),
    either("perms", 'p', |o, _| o.perms),
    either("times", 't', |o, _| o.times),
    either("group", 'g', |o, _| o.group),
    either("owner", 'o', |o, _| o.owner),
    either("devices", ' ', |o, _| o.devices),
    either("specials", ' ', |o, _| o.specials),
    either("hard-links", 'H', |o, _| o.hard_links),
    either("acls", 'A', |o, _| o.acls),
    either("xattrs", 'X', |o, _| o.xattrs),
    either("atimes", 'U', |o, _| o.atimes),
    either("numeric-ids", ' ', |o, _| o.numeric_ids),
    either("copy-as", ' ', |o, end| match end {
        End::Source => o.copy_as.source.is_some(),
        _ => o.copy_as.destination.is_some(),
    }),
    either("fake-super", ' ', |o, end| match end {
        End::Source => o.fake_super.source,
        _ => o.fake_super.destination,
    }),
    either("munge-links", ' ', |o, end| match end {
        End::Source => o.munge_links.source,
        _ => o.munge_links.destination,
    }),
    destination("usermap", ' ', |o, _| o.id_rules.iter().any(|rule| !rule.group)),
    destination("groupmap", ' ', |o, _| o.id_rules.iter().any(|rule| rule.group)),
    destination("chmod", ' ', |o, _| !o.mode_rules.is_empty()),
    destination("omit-dir-times", 'O', |o, _| o.omit_dir_times),
    destination("omit-link-times", 'J', |o, _| o.omit_link_times),
    destination("executability", 'E', |o, _| o.executability),
    source("open-noatime", ' ', |o, _| o.open_noatime),
    source("copy-links", 'L', |o, _| o.copy_links),
    source("copy-dirlinks", 'k', |o, _| o.copy_dirlinks),
    source("copy-unsafe-links", ' ', |o, _| o.copy_unsafe_links),
    source("copy-devices", ' ', |o, _| o.copy_devices),
    either("safe-links", ' ', |o, _| o.safe_links),
    either("relative", 'R', |o, _| o.relative),
    source("ignore-missing-args", ' ', |o, _| o.ignore_missing_args),
    either("prune-empty-dirs", 'm', |o, _| o.prune_empty_dirs),
    either("one-file-system", 'x', |o, _| o.one_file_system),
    either("max-size", ' ', |o, _| o.max_size.is_some()),
    either("min-size", ' ', |o, _| o.min_size > 0),
    either("checksum", 'c', |o, _| o.checksum),
    destination("write-manifest", ' ', |o, _| o.event_tree),
    either("ignore-times", 'I', |o, _| o.ignore_times),
    destination("size-only", ' ', |o, _| o.size_only),
    destination("update", 'u', |o, _| o.update),
    destination("existing", ' ', |o, _| o.existing),
    destination("ignore-existing", ' ', |o, _| o.ignore_existing),
    destination("modify-window", '@', |o, _| o.modify_window.is_some()),
    either("whole-file", 'W', |o, _| o.whole_file),
    destination("fuzzy", 'y', |o, _| o.fuzzy),
    destination("detect-renamed", ' ', |o, _| o.detect_renamed == DetectRenamed::Always),
    destination("mkpath", ' ', |o, _| o.mkpath),
    destination("keep-dirlinks", 'K', |o, _| o.keep_dirlinks),
    destination("insecure-links", ' ', |o, _| o.insecure_links),
    // Before the one that they imply.
    destination("write-devices", ' ', |o, _| o.writing.devices),
    destination("append", ' ', |o, _| o.writing.append == Append::Believing),
    destination("append-verify", ' ', |o, _| o.writing.append == Append::Verifying),
    destination("inplace", ' ', |o, _| o.writing.inplace),
    destination("delay-updates", ' ', |o, _| o.writing.delay_updates),
    destination("sparse", 'S', |o, _| o.writing.sparse),
    destination("preallocate", ' ', |o, _| o.writing.preallocate),
    destination("temp-dir", 'T', |o, _| o.writing.temp_dir.is_some()),
    destination("backup-dir", ' ', |o, _| {
        o.writing.backup.as_ref().is_some_and(|backup| backup.dir.is_some())
    }),
    destination("suffix", ' ', |o, _| o.writing.backup.as_ref().is_some_and(has_own_suffix)),
    destination("backup", 'b', |o, _| o.writing.backup.is_some()),
    destination("compare-dest", ' ', |o, _| alternates(o, AlternateUse::Compare)),
    destination("copy-dest", ' ', |o, _| alternates(o, AlternateUse::Copy)),
    destination("link-dest", ' ', |o, _| alternates(o, AlternateUse::Link)),
    destination("partial-dir", ' ', |o, _| o.writing.partial_dir.is_some()),
    destination("partial", ' ', |o, _| o.keep_partial == KeepPartial::Always),
    destination("durability", ' ', |o, _| o.durability != Durability::default()),
    either("compress", 'z', |o, _| matches!(o.compression, Compression::Lz4 | Compression::Zstd(_))),
    either("dry-run", 'n', |o, _| o.dry_run),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::WritePolicy;

    use super::*;

    fn refused(rules: &[&str]) -> Refused {
        Refused::parse(rules.iter().copied()).unwrap()
    }

    /// Returns the option that the rules refuse to a push or a pull.
    fn judged(rules: &[&str], options: &SyncOptions, writes: bool) -> Option<String> {
        refused(rules).refused(&Request::new(options, writes))
    }

    #[test]
    fn the_last_rule_that_matches_decides() {
        let deleting = SyncOptions::archive().delete(true).delete_excluded(true);
        let push = |rules: &[&str]| judged(rules, &deleting, true);
        assert_eq!(push(&["c", "delete"]).as_deref(), Some("--delete"));
        assert_eq!(push(&["delete-*"]).as_deref(), Some("--delete-after"));
        assert_eq!(push(&["delete-*", "!delete-after"]).as_deref(), Some("--delete-excluded"));
        assert_eq!(push(&["delete-*", "!delete-after", "!delete-excluded"]), None);
        assert_eq!(push(&["!delete-after", "--delete-after"]).as_deref(), Some("--delete-after"));
        assert_eq!(push(&["del*", "!dele*"]), None);
        assert_eq!(push(&["p"]).as_deref(), Some("--perms"));
        assert_eq!(push(&["a"]).as_deref(), Some("--recursive"));
        assert_eq!(push(&["a*"]), None);
        assert_eq!(push(&["?erms"]).as_deref(), Some("--perms"));
        assert_eq!(judged(&["delete*", "force"], &deleting, false), None);

        let forcing = SyncOptions::archive().force(true);
        assert_eq!(judged(&["delete"], &forcing, true).as_deref(), Some("--force"));
        assert_eq!(judged(&["delete"], &forcing, false), None);
        let moving = SyncOptions::archive().remove_source_files(true);
        assert_eq!(judged(&["delete"], &moving, false).as_deref(), Some("--remove-source-files"));
    }

    #[test]
    fn rsyncs_other_names_refuse_what_they_ask_a_server_for() {
        let plain = SyncOptions::default;
        let backup =
            |suffix: &[u8]| plain().writing(WritePolicy::default().backup(Some(Backup::new(suffix.into()))));
        let in_dir = |suffix: &[u8]| {
            let backup = Backup::new(suffix.into()).dir(Some(b"old".to_vec()));
            plain().writing(WritePolicy::default().backup(Some(backup)))
        };
        let deleting = |timing| plain().delete(true).delete_timing(timing);
        let groups =
            dsync_engine::notation::id_rules("*:nobody").unwrap().into_iter().map(|rule| rule.group(true));
        let owned = plain().id_rules(groups.collect());
        for (rule, options, refused) in [
            ("suffix", backup(b".old"), Some("--suffix")),
            ("suffix", in_dir(b".old"), Some("--suffix")),
            ("suffix", backup(b"~"), None),
            ("suffix", in_dir(b""), None),
            ("suf*", in_dir(b"~"), Some("--suffix")),
            ("delete-delay", deleting(DeleteTiming::AfterArrival), Some("--delete-after")),
            ("delete-d*", deleting(DeleteTiming::AfterArrival), Some("--delete-after")),
            ("delete-delay", deleting(DeleteTiming::Before), None),
            ("chown", owned.clone(), Some("--groupmap")),
            ("cho*", owned, Some("--groupmap")),
            ("ignore-non-existing", plain().existing(true), Some("--existing")),
            ("old-d", plain().dirs(true), Some("--dirs")),
            ("zc", plain().compression(Compression::Lz4), Some("--compress")),
        ] {
            assert_eq!(judged(&[rule], &options, true).as_deref(), refused, "{rule}");
            let taken_back = format!("!{rule}");
            assert_eq!(judged(&[rule, &taken_back], &options, true), None, "{rule}");
        }
    }

    #[test]
    fn everything_but_an_archive_is_everything_but_an_archive() {
        assert_eq!(judged(&["*"], &SyncOptions::default(), true), None);
        for writes in [true, false] {
            let archive = SyncOptions::archive().dry_run(true);
            assert_eq!(judged(&["*", "!a", "!v", "!compress*"], &archive, writes), None);
            assert_eq!(judged(&["*"], &archive, writes).as_deref(), Some("--recursive"));
            assert_eq!(judged(&["dry-run"], &archive, writes).as_deref(), Some("--dry-run"));
        }
        let options = SyncOptions::default();
        let list = Request::new(&options, false).reads_list(true);
        assert_eq!(refused(&["files-from"]).refused(&list).as_deref(), Some("--files-from"));
        assert_eq!(refused(&["files-from"]).names(), ["files-from"]);
        assert_eq!(refused(&["*"]).refused(&list).as_deref(), Some("--files-from"));
    }

    #[test]
    fn every_option_that_reaches_a_server_can_be_refused_and_no_other() {
        let command = flags::command();
        // They concern only the client, are others by another name, or ask for nothing but the default.
        let local: Vec<&str> = LOCAL.split_whitespace().collect();
        let long: Vec<&str> = command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && arg.get_id() != "operands")
            .filter_map(clap::Arg::get_long)
            .collect();
        for name in &long {
            let known = candidates().filter(|candidate| candidate == name).count();
            assert_eq!(
                known + usize::from(local.contains(name)),
                1,
                "--{name} needs a row in OPTIONS, or a word in LOCAL"
            );
        }
        for name in candidates().chain(local) {
            assert!(long.contains(&name), "--{name} is no option");
        }
        for option in OPTIONS {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(option.long)).unwrap();
            assert_eq!(arg.get_short(), option.short, "--{}", option.long);
        }
    }

    const LOCAL: &str = "
        archive old-dirs chown drop-D exclude include exclude-from include-from filter cvs-exclude gitignore
        from0 iconv write-batch only-write-batch read-batch implied-dirs delete-delay compress-choice compress-level rsh dsync-path deploy
        remote-option super transport timeout retries contimeout port bwlimit max-alloc max-stall ipv4 ipv6
        state state-dir stop-after stop-at lock-wait watch verbose quiet itemize-changes stats human-readable progress list-only json info
        debug out-format log-file log-file-format 8-bit-output stderr outbuf help version restrict";
}
