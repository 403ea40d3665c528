//! Known differences: files of rules.

use super::{Known, Seen};
use crate::{
    hunt::{
        case::{Carrier, Case},
        judge::Class,
        options,
    },
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A file that is no rule, or cannot be read, costs its directory only.",
        explains: |seen| {
            let ends = |code| seen.rsync.code() == Some(code);
            // In a pull it is the other end that gives up.
            let rsync_gives_up = (ends(1) || ends(12))
                && seen.rsync.stderr_text().contains("(code 1) at exclude.c")
                || ends(11) && seen.rsync.stderr_text().contains("(code 11) at exclude.c");
            let dsync_says = seen.dsync.stderr_text().contains("cannot follow the filter rules of '")
                // The first run copies the file, and the second goes by it.
                || seen.is(Class::Second) && seen.finding.line.contains("cannot follow the filter rules of '");
            reads_files(seen) && (rsync_gives_up || dsync_says)
        },
    },
    Known {
        says: "A pattern or rule with a NUL byte, in a file that the command line names, ends the run.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.is(Class::Exit)
                && seen.dsync.code() == Some(1)
                && says.contains(": a NUL byte cannot be part of a ")
        },
    },
    Known {
        says: "Files of rules are files of the tree.",
        explains: |seen| {
            let is_link = |node: &Node| matches!(node.kind, Kind::Symlink(_)) && is_of_rules(node);
            let dsync_says = seen.dsync.stderr_text().contains("cannot follow the filter rules of '");
            // The first run has changed what the link leads to.
            let went_later = seen.is(Class::Second) && seen.finding.line.contains("*deleting");
            reads_files(seen) && (dsync_says || went_later) && seen.case.world.iter().any(is_link)
        },
    },
    Known {
        says: "Each operand has its own files of rules.",
        explains: |seen| {
            let is_several = seen.case.operands.len() > 2;
            let of_tree = seen.is_presence()
                || seen.about(&["mtime", "size", "content", "type", "mode", "owner", "extended attributes"]);
            // A file that rsync left out is made anew each time, where times are not kept.
            let is_told = seen.finding.line.contains("skipping non-regular file");
            // So is the time of a directory that lost a file to the run.
            let is_made_again = !seen.case.has_letter('t')
                || seen.case.has_letter('I')
                || seen.case.has(&["--remove-source-files", "--remove-sent-files"]);
            let is_again = seen.is(Class::Second) && (is_made_again || is_told);
            // An entry that only rsync copies finds a directory in the way.
            let is_in_the_way = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && seen.rsync.all_text().contains("could not make way for new ");
            reads_files(seen) && is_several && (of_tree || is_again || is_in_the_way)
        },
    },
    Known {
        says: "`--delete` and `--delete-delay` keep what either copy of a file of rules protects",
        explains: |seen| {
            let either = seen.case.has(&["--delete", "--delete-delay", "--delete-excluded"]);
            let arrived = seen.case.has(&["--delete-after", "--delete-during", "--del"]);
            let line = &seen.finding.line;
            let listed = |who: &str| line.starts_with(&format!("only the {who} lists: '*deleting"));
            let dry_knew_less = seen.is(Class::DryRun)
                // In a directory that goes as a whole the arrived rules count.
                && (either || arrived)
                && (listed("dry run") || listed("run"));
            let went_later = seen.is(Class::Second) && either && line.contains("*deleting");
            let kept = either && (seen.is_presence() || seen.about(&["mtime"]));
            reads_files(seen) && (dry_knew_less || went_later || kept)
        },
    },
    Known {
        says: "An anchored rule counts in a directory whose name has wildcards.",
        explains: |seen| {
            let has_wildcards = |node: &&Node| {
                let parent = node.path.rsplitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default();
                is_of_rules(node) && parent.iter().any(|byte| b"*?[\\".contains(byte))
            };
            reads_files(seen)
                && seen.is(Class::Tree)
                && seen.case.world.iter().any(|node| has_wildcards(&node))
        },
    },
    Known {
        says: "With `--from0`, a file of rules in a tree is read alike at both ends.",
        explains: |seen| {
            let remote: &[u8] = match seen.case.carrier {
                Carrier::Local => return false,
                Carrier::Push(_) => b"w/d",
                Carrier::Pull(_) => b"w/s",
            };
            let is_there = |node: &Node| node.path.starts_with(remote) && is_of_rules(node);
            reads_files(seen)
                && seen.case.has(&["-0", "--from0"])
                && seen.is(Class::Tree)
                && seen.case.world.iter().any(is_there)
        },
    },
    Known {
        says: "A file that a rule in a removed directory names",
        explains: |seen| {
            let fails = seen.rsync.stderr_text().contains("(code 11) at exclude.c");
            reads_files(seen) && seen.case.deletes() && seen.rsync.code() == Some(11) && fails
        },
    },
];

fn reads_files(seen: &Seen<'_>) -> bool {
    of_case(seen.case)
}

/// Returns whether rules come from files in the trees.
pub(in crate::hunt) fn of_case(case: &Case) -> bool {
    let is_of_files = |option: &String| {
        ["-F", "-FF", "-C"].contains(&option.as_str())
            || options::name(option) == "--filter" && option.contains([':'])
            || option.starts_with("--filter=dir-merge")
    };
    case.options.iter().any(is_of_files)
}

/// Returns whether the entry has a name of the cases' files of rules.
fn is_of_rules(node: &Node) -> bool {
    let name = node.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    [&b"rules"[..], b".rsync-filter", b".cvsignore", b".more"].contains(&name)
}
