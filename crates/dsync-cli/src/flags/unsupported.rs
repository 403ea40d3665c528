//! Every option of rsync 3.5.0 that dsync does not have.
//!
//! An unknown option is a typing error (exit code 1); one of these is a script that relies on rsync
//! (exit code 4), and the message says what to write instead where there is something. The table
//! and dsync's own options, those that it takes without effect among them, are all of rsync's: a
//! test holds them against the list.

use std::fmt;

/// An option of rsync that dsync does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// Long name without dashes; empty if there is none.
    pub(crate) long: &'static str,
    /// Letter.
    pub(crate) short: Option<char>,
    /// Other long names.
    pub(crate) aliases: &'static [&'static str],
    /// The alternative.
    pub(crate) advice: Option<&'static str>,
    /// Whether rsync has the negation and dsync already behaves as it requests.
    negatable: bool,
}

impl Foreign {
    /// Finds the option named by a word like `--crtimes`, `-N` or `--no-motd`.
    pub(crate) fn find(word: &str) -> Option<Self> {
        let found = match word.strip_prefix("--") {
            Some(long) => TABLE.iter().find(|option| option.has_long(long)),
            None => {
                let mut letters = word.strip_prefix('-')?.chars();
                let letter = letters.next()?;
                TABLE.iter().find(|option| option.short == Some(letter) && letters.next().is_none())
            }
        };
        found.copied()
    }

    /// Returns all of them, in alphabetical order of their long names.
    #[cfg(test)]
    pub(crate) fn all() -> &'static [Self] {
        TABLE
    }

    fn has_long(&self, long: &str) -> bool {
        !long.is_empty() && (self.long == long || self.aliases.contains(&long))
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.long, self.short) {
            ("", Some(short)) => write!(f, "-{short}"),
            (long, Some(short)) => write!(f, "--{long} (-{short})"),
            (long, None) => write!(f, "--{long}"),
        }
    }
}

/// Returns the names (long, letter) of the options whose negation requests dsync's normal
/// behaviour.
pub(super) fn harmless_negations() -> impl Iterator<Item = (&'static str, Option<char>)> {
    TABLE.iter().filter(|option| option.negatable).map(|option| (option.long, option.short))
}

const fn option(long: &'static str) -> Foreign {
    Foreign { long, short: None, aliases: &[], advice: None, negatable: false }
}

impl Foreign {
    const fn letter(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn advice(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    const fn negatable(mut self) -> Self {
        self.negatable = true;
        self
    }
}

const NO_DAEMON: &str =
    "the server of dsync is 'dsync serve'; without one its remote end is started through ssh";

#[rustfmt::skip]
static TABLE: &[Foreign] = &[
    option("config").advice(NO_DAEMON),
    option("confine-root"),
    option("crtimes").letter('N').negatable(),
    option("daemon").advice(NO_DAEMON),
    option("detach").or(&["no-detach"]).advice(NO_DAEMON),
    option("dparam").advice(NO_DAEMON),
    option("msgs2stderr").negatable().advice("use --stderr=all"),
    option("password-file").advice("ssh logs in, or for HOST::SHARE a key: see 'dsync key'"),
    option("sender").advice(NO_DAEMON),
];

/// Long names in the help of rsync 3.5.0, of its client.
#[cfg(test)]
pub(crate) const RSYNC_LONG: &str = "8-bit-output acls address append append-verify archive atimes backup backup-dir \
    block-size blocking-io bwlimit checksum checksum-choice checksum-seed chmod chown compare-dest compress \
    compress-choice compress-level compress-threads confine-root contimeout copy-as copy-dest copy-devices \
    copy-dirlinks copy-links copy-unsafe-links crtimes cvs-exclude debug del delay-updates delete delete-after \
    delete-before delete-delay delete-during delete-excluded delete-missing-args devices dirs drop-D dry-run \
    early-input exclude exclude-from executability existing fake-super files-from filter force from0 fsync \
    fuzzy group groupmap hard-links help human-readable iconv ignore-errors ignore-existing \
    ignore-missing-args ignore-non-existing ignore-times inc-recursive include include-from info inplace \
    insecure-links ipv4 ipv6 itemize-changes keep-dirlinks link-dest links list-only log-file log-file-format \
    max-alloc max-delete max-size min-size mkpath modify-window munge-links no-i-r no-implied-dirs \
    no-inc-recursive no-motd no-W no-whole-file numeric-ids old-args old-d old-dirs omit-dir-times \
    omit-link-times one-file-system only-write-batch open-noatime out-format outbuf owner partial \
    partial-dir password-file perms port preallocate progress protocol prune-empty-dirs quiet read-batch \
    recursive relative remote-option remove-source-files rsh rsync-path safe-links secluded-args size-only \
    skip-compress sockopts sparse specials stats stderr stop-after stop-at suffix super temp-dir timeout \
    times trust-sender update usermap verbose version whole-file write-batch write-devices xattrs i-r cc zc \
    zl zt";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::flags::command;

    /// Letters in the same help.
    const RSYNC_SHORT: &str = "vqcarRbudlLkKHpEAXogDtUNOJSnWxBeImyCfF0sPiM8h46V@Tz";

    fn long_names() -> Vec<String> {
        let command = command();
        let own = command.get_arguments();
        own.flat_map(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
    }

    #[test]
    fn every_option_of_rsync_is_either_there_or_named_as_missing() {
        let own = long_names();
        for name in RSYNC_LONG.split_whitespace() {
            let has = own.iter().any(|long| long == name);
            let lacks = Foreign::find(&format!("--{name}")).is_some();
            assert!(has != lacks, "--{name}: has {has}, listed as missing {lacks}");
        }
        let command = command();
        let letters: Vec<char> = command.get_arguments().filter_map(clap::Arg::get_short).collect();
        for letter in RSYNC_SHORT.chars() {
            let lacks = Foreign::find(&format!("-{letter}")).is_some();
            assert!(letters.contains(&letter) != lacks, "-{letter}: listed as missing {lacks}");
        }
    }

    #[test]
    fn nothing_that_dsync_has_is_listed_as_missing() {
        let own = long_names();
        for option in Foreign::all() {
            for name in option.aliases.iter().chain([&option.long]) {
                assert!(!own.iter().any(|long| long == name), "--{name} is both");
            }
        }
    }

    #[test]
    fn table_is_in_alphabetical_order() {
        let names: Vec<_> =
            Foreign::all().iter().map(|option| option.long).filter(|long| !long.is_empty()).collect();
        assert!(names.is_sorted());
    }

    #[test]
    fn words_are_found_by_name_letter_and_alias() {
        assert_eq!(Foreign::find("--crtimes").unwrap().to_string(), "--crtimes (-N)");
        assert_eq!(Foreign::find("-N").unwrap().to_string(), "--crtimes (-N)");
        assert_eq!(Foreign::find("--no-detach").unwrap().to_string(), "--detach");
        for unknown in ["--crtimess", "-NX", "--", "-", "", "crtimes", "-Q"] {
            assert_eq!(Foreign::find(unknown), None, "{unknown}");
        }
    }
}
