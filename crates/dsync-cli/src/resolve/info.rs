//! `--info=FLAGS`: which lines a run prints, kind by kind.
//!
//! Each flag is a word with a level behind it, `name2`; without one it is 1, and 0 turns the kind
//! off. Kinds that tell of rsync's own working have no lines here whatever the level.

use crate::usage::UsageError;

/// Levels that were asked for; `None` leaves it to `-v`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Info {
    /// Names of what is changed; 2 of what is up to date as well.
    pub(super) name: Option<u8>,
    /// Names of what is deleted.
    pub(super) del: Option<u8>,
    /// The paragraph at the end; 2 the statistics too.
    pub(super) stats: Option<u8>,
    /// Entries of types that are not copied.
    pub(super) nonreg: Option<u8>,
    /// Links that `--safe-links` leaves out.
    pub(super) symsafe: Option<u8>,
    /// Entries that an option leaves alone.
    pub(super) skip: Option<u8>,
    /// Backups.
    pub(super) backup: Option<u8>,
    /// Entries that leave the source.
    pub(super) remove: Option<u8>,
    /// Beginning of a list.
    pub(super) flist: Option<u8>,
}

impl Info {
    /// Returns every kind at one level.
    fn all(level: u8) -> Self {
        let level = Some(level);
        Self {
            name: level,
            del: level,
            stats: level,
            nonreg: level,
            symsafe: level,
            skip: level,
            backup: level,
            remove: level,
            flist: level,
        }
    }
}

/// The text of `--info=help`.
pub(crate) const HELP: &str = "\
--info=FLAGS chooses the lines that are printed, kind by kind. FLAGS are words with commas between them; a
digit behind a word is its level, 1 without one, 0 is off.

BACKUP      backups, but in a dry run
DEL         deletions
FLIST       rsync's first line: sending (or receiving) incremental file list
NAME        1) what is changed, and links that --safe-links leaves out, 2) what is up to date, too
NONREG      entries of types that are not copied (on by default)
PROGRESS    the progress bar, as PROGRESS2
REMOVE      what leaves the source with --remove-source-files
SKIP        entries that an option leaves alone: --update, --existing, --ignore-existing, limits of size
STATS       1) the paragraph at the end, 2) the statistics before it
SYMSAFE     links that --copy-unsafe-links replaces
ALL, NONE   all of them at a level, none of them
HELP        this text

COPY, MISC, MOUNT and OWNER are taken and have no lines.
-v is DEL, NAME, STATS and SYMSAFE; -vv is BACKUP, NAME2, REMOVE and SKIP, too.
";

/// Reads the flags, the last of each counts.
///
/// # Errors
/// [`UsageError`] for a word that neither program knows.
pub(super) fn read(words: &[String]) -> Result<Info, UsageError> {
    let mut info = Info::default();
    for word in words {
        let (name, level) = split(word);
        let level = level.ok_or_else(|| unknown(word))?;

        match name.as_str() {
            "name" => info.name = Some(level),
            "del" => info.del = Some(level),
            "stats" => info.stats = Some(level),
            "nonreg" => info.nonreg = Some(level),
            "symsafe" => info.symsafe = Some(level),
            "skip" => info.skip = Some(level),
            "backup" => info.backup = Some(level),
            "remove" => info.remove = Some(level),
            "flist" => info.flist = Some(level),
            "none" => info = Info::all(0),
            "all" => info = Info::all(level),
            // Progress is the bar's; the others are about lists and copies that dsync makes in
            // another way.
            "progress" | "copy" | "misc" | "mount" | "owner" => {}
            _ => return Err(unknown(word)),
        }
    }

    Ok(info)
}

/// Splits `name2` into the word in small letters and its level; no level for one that is no number.
pub(super) fn split(word: &str) -> (String, Option<u8>) {
    let name = word.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let level = match &word[name.len()..] {
        "" => Some(1),
        digits => digits.parse().ok(),
    };
    (name.to_ascii_lowercase(), level)
}

fn unknown(word: &str) -> UsageError {
    UsageError::ValueUnknown { option: "--info".to_owned(), value: word.to_owned(), known: KNOWN.to_owned() }
}

const KNOWN: &str = "progress, name, backup, del, remove, skip, stats, nonreg, symsafe, flist, copy, misc, mount, owner, all, none, help";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Info, u8> {
        let words: Vec<String> = line.split(',').map(str::to_owned).collect();
        read(&words).map_err(|error| error.exit_code())
    }

    #[test]
    fn last_level_of_each_flag_counts() {
        let info = of("name,DEL0,stats2,name2,flist2,progress2,skip0,BACKUP,remove0").unwrap();
        assert_eq!((info.backup, info.remove), (Some(1), Some(0)));
        assert_eq!((info.name, info.del, info.stats, info.nonreg), (Some(2), Some(0), Some(2), None));
        let all = of("all2,name0").unwrap();
        assert_eq!((all.name, all.skip, all.stats), (Some(0), Some(2), Some(2)));
        let none = of("none,stats").unwrap();
        assert_eq!((none.name, none.stats, none.symsafe), (Some(0), Some(1), Some(0)));
    }

    #[test]
    fn words_that_rsync_does_not_know_are_refused() {
        for word in ["nonsense", "name9999", "2"] {
            assert_eq!(of(word), Err(1), "{word}");
        }
    }
}
