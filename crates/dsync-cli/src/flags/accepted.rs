//! Options of rsync that dsync takes and need not act on: what they ask for it does anyway, or they
//! are about a part of rsync that it does not have.
//!
//! The law: an option is in this table only if every tree, list and exit code is the same with it
//! and without it. One that would change a result is in [`unsupported`](super::unsupported) and
//! ends the run. Values are checked as rsync checks them.

use std::fmt;

use clap::{Arg, ArgAction, ArgMatches, builder::ValueParser};

use super::number::whole_number;
use crate::numbers::Size;

/// An option of rsync that has no effect here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    /// Long name without dashes.
    pub(crate) long: &'static str,
    /// Letter.
    pub(crate) short: Option<char>,
    /// Other long names, opposites among them.
    pub(crate) aliases: &'static [&'static str],
    /// Why nothing follows from it.
    pub(crate) reason: &'static str,
    /// How a value is read; `None` for a switch.
    value: Option<fn() -> ValueParser>,
}

impl Accepted {
    /// All of them, in alphabetical order of their long names.
    pub(crate) fn all() -> &'static [Self] {
        TABLE
    }

    /// Returns the help's text on them: scripts look there for what they may use.
    pub(crate) fn summary() -> String {
        let names: Vec<_> = TABLE.iter().map(|option| format!("--{}", option.long)).collect();
        format!("Options of rsync that are taken and change nothing here: {}.", names.join(", "))
    }

    /// Finds the option that a word like `--fsync`, `--outbuf=L` or `-s` names.
    pub(crate) fn find(word: &str) -> Option<&'static Self> {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        match name.strip_prefix("--") {
            Some(long) => TABLE.iter().find(|option| option.long == long || option.aliases.contains(&long)),
            None => {
                let letter = name.strip_prefix('-')?;
                TABLE.iter().find(|option| option.short.is_some_and(|short| letter == short.to_string()))
            }
        }
    }

    /// Position of the last occurrence on the command line.
    pub(super) fn last(&self, matches: &ArgMatches) -> Option<usize> {
        if matches.value_source(self.long) != Some(clap::parser::ValueSource::CommandLine) {
            return None;
        }
        matches.indices_of(self.long)?.max()
    }

    fn arg(&self) -> Arg {
        let arg = Arg::new(self.long).long(self.long).aliases(self.aliases.iter().copied()).hide(true);
        let arg = match self.short {
            Some(short) => arg.short(short),
            None => arg,
        };
        match self.value {
            Some(parser) => arg.action(ArgAction::Set).allow_hyphen_values(true).value_parser(parser()),
            None => arg.action(ArgAction::SetTrue),
        }
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}", self.long)?;
        self.short.map_or(Ok(()), |short| write!(f, " (-{short})"))?;
        self.aliases.iter().try_for_each(|alias| write!(f, ", --{alias}"))
    }
}

/// The clap arguments of the table.
pub(super) fn args() -> impl Iterator<Item = Arg> {
    TABLE.iter().map(Accepted::arg)
}

const fn switch(long: &'static str, aliases: &'static [&'static str], reason: &'static str) -> Accepted {
    Accepted { long, short: None, aliases, reason, value: None }
}

impl Accepted {
    const fn letter(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    const fn value(mut self, parser: fn() -> ValueParser) -> Self {
        self.value = Some(parser);
        self
    }
}

fn text() -> ValueParser {
    ValueParser::os_string()
}

/// Protocol numbers that rsync 3.5.0 speaks.
fn protocol() -> ValueParser {
    ValueParser::from(|word: &str| whole_number(word, 20, 32))
}

fn size() -> ValueParser {
    ValueParser::from(|word: &str| match Size::parse(word, 'B') {
        Ok(Size(..=LONGEST_BLOCK)) => Ok(()),
        _ => Err(NotABlockSize),
    })
}

/// The checksums that rsync 3.5.0 knows, one or a pair.
fn checksum() -> ValueParser {
    ValueParser::from(|word: &str| {
        let is_known = |name: &str| CHECKSUMS.contains(&name);
        let (transfer, before) = word.split_once(',').unwrap_or((word, "auto"));
        if is_known(transfer) && is_known(before) { Ok(()) } else { Err(NotAChecksum(word.to_owned())) }
    })
}

const CHECKSUMS: &[&str] = &["auto", "xxh128", "xxh3", "xxh64", "xxhash", "md5", "md4", "sha1", "none"];

/// rsync's longest block, in bytes.
const LONGEST_BLOCK: u64 = 128 << 10;

/// The error for a block size that rsync does not take.
#[derive(Debug, Clone, Copy)]
struct NotABlockSize;

impl fmt::Display for NotABlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is no size of at most 128K")
    }
}

impl std::error::Error for NotABlockSize {}

/// The error for the name of a checksum that rsync does not know.
#[derive(Debug, Clone)]
struct NotAChecksum(String);

impl fmt::Display for NotAChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = &self.0;
        write!(f, "'{word}' is none of rsync's checksums (auto, xxh128, xxh3, xxh64, md5, md4, sha1, none)")
    }
}

impl std::error::Error for NotAChecksum {}

fn number() -> ValueParser {
    ValueParser::from(|word: &str| whole_number(word, 0, u32::MAX.into()))
}

const OLD: &str = "it chooses a form of zlib, and dsync compresses with zstd or lz4 by itself";
const IN_BAND: &str = "paths travel inside the protocol, and no remote shell reads them";
const STREAMED: &str = "dsync compares while it lists, whatever is asked for";
const NO_MESSAGE: &str = "there is no daemon, and so no message of the day";
const DAEMON: &str = "it is about connections to a daemon, which dsync does not make";
const PIPES: &str = "dsync's pipes to the remote shell work either way";

#[rustfmt::skip]
static TABLE: &[Accepted] = &[
    switch("address", &[], "it is about connections to a daemon; refused with HOST::SHARE").value(text),
    switch("block-size", &[], "dsync chooses the block length for each file, and the result is the same").letter('B').value(size),
    switch("blocking-io", &["no-blocking-io"], PIPES),
    switch("checksum-choice", &["cc"], "dsync always checks with BLAKE3, which is stronger than all of them").value(checksum),
    switch("checksum-seed", &[], "every run has a random key of its own").value(number),
    switch("compress-threads", &["zt"], "dsync compresses on as many cores as are free").value(number),
    switch("early-input", &[], DAEMON).value(text),
    switch("fsync", &[], "dsync syncs by default; not together with --durability=none"),
    switch("inc-recursive", &["i-r", "no-inc-recursive", "no-i-r"], STREAMED),
    switch("motd", &["no-motd"], NO_MESSAGE),
    switch("new-compress", &[], OLD),
    switch("old-args", &["no-old-args"], "paths travel inside the protocol; refused where the remote shell would change one"),
    switch("old-compress", &[], OLD),
    switch("protocol", &[], "both ends agree on dsync's own protocol").value(protocol),
    switch("qsort", &[], "it chooses how rsync sorts its list, not the order"),
    switch("secluded-args", &["protect-args", "no-secluded-args", "no-protect-args", "no-s"], IN_BAND).letter('s'),
    switch("skip-compress", &[], "data that does not get smaller is sent as it is, whatever its name").value(text),
    switch("sockopts", &[], DAEMON).value(text),
    switch("trust-sender", &[], "what the source sends is checked all the same"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_alphabetical_order() {
        assert!(Accepted::all().iter().map(|option| option.long).is_sorted());
    }

    #[test]
    fn words_are_found_by_name_letter_alias_and_with_a_value() {
        assert_eq!(Accepted::find("-s").unwrap().long, "secluded-args");
        assert_eq!(Accepted::find("--no-i-r").unwrap().long, "inc-recursive");
        assert_eq!(Accepted::find("--protocol=31").unwrap().long, "protocol");
        for unknown in ["--perms", "-a", "-ss", "--", "-", "", "fsync"] {
            assert!(Accepted::find(unknown).is_none(), "{unknown}");
        }
    }
}
