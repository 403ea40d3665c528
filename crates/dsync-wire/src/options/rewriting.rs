//! The rules that change modes and owners on their way (`--chmod`, `--chown`, `--usermap`,
//! `--groupmap`).

use serde::{Deserialize, Serialize};

use crate::{byte_text, setters};

/// One change of permission bits.
///
/// ```
/// use dsync_wire::options::ModeRule;
///
/// // Nobody else may write, and directories keep their group.
/// let rules = [ModeRule::new(!0o022, 0), ModeRule::new(0o7777, 0o2000).files(false)];
/// assert_eq!(ModeRule::apply(&rules, 0o777, true), 0o2755);
/// assert_eq!(ModeRule::apply(&rules, 0o666, false), 0o644);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ModeRule {
    /// Whether it applies to non-directories.
    pub files: bool,
    /// Whether it applies to directories.
    pub directories: bool,
    /// Whether it applies only to directories and to files that anybody may execute before the
    /// first rule.
    pub if_executable: bool,
    /// Bits to keep, 0 to 0o7777.
    pub keep: u16,
    /// Bits to set, 0 to 0o7777.
    pub set: u16,
}

impl ModeRule {
    /// Makes a rule for all entries.
    pub fn new(keep: u16, set: u16) -> Self {
        Self { files: true, directories: true, if_executable: false, keep, set }
    }
}

setters!(ModeRule { files: bool, directories: bool, if_executable: bool, keep: u16, set: u16 });

impl ModeRule {
    /// Applies all rules and returns the resulting permission bits.
    pub fn apply(rules: &[Self], mode: u16, is_dir: bool) -> u16 {
        let executable = is_dir || mode & 0o111 != 0;
        let applies = |rule: &&Self| {
            (if is_dir { rule.directories } else { rule.files }) && (executable || !rule.if_executable)
        };
        rules.iter().filter(applies).fold(mode, |mode, rule| mode & rule.keep | rule.set)
    }
}

/// One change of owner or group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct IdRule {
    /// Whether it applies to groups.
    pub group: bool,
    /// Users or groups of the source that it matches.
    pub from: IdMatch,
    /// The user or group at the destination.
    pub to: IdTarget,
}

impl IdRule {
    /// Makes a rule for owners.
    pub fn new(from: IdMatch, to: IdTarget) -> Self {
        Self { group: false, from, to }
    }
}

setters!(IdRule { group: bool, from: IdMatch, to: IdTarget });

/// Users or groups of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdMatch {
    /// Numbers from the first to the second, both included.
    Numbers(u32, u32),
    /// A pattern for names, in which `*`, `?` and `[` are wildcards. The empty pattern and `*` also
    /// match numbers without a name.
    #[serde(with = "byte_text")]
    Name(Vec<u8>),
}

/// A user or group of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdTarget {
    /// By number.
    Number(u32),
    /// By name, which must exist there.
    #[serde(with = "byte_text")]
    Name(Vec<u8>),
}
