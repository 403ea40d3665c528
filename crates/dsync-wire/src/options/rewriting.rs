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
    /// Permissions of one class that others get or lose, as with `g=u`. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<CopiedBits>,
}

/// Permissions that are taken from one class of a mode, as it is before the rule.
///
/// ```
/// use dsync_wire::options::{CopiedBits, ModeRule};
///
/// // The group may do what the owner may: `g=u`.
/// let rule = ModeRule::new(!0o2070, 0).copied(Some(CopiedBits::new(6, 0o070)));
/// assert_eq!(ModeRule::apply(&[rule], 0o640, false), 0o660);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct CopiedBits {
    /// Position of the class whose permissions they are: 6 for the owner, 3 for the group, 0 for others.
    pub from: u8,
    /// Bits that may be set or removed, 0 to 0o777.
    pub to: u16,
    /// Whether they are removed, and not set.
    pub removed: bool,
}

impl CopiedBits {
    /// Makes permissions that are set.
    pub fn new(from: u8, to: u16) -> Self {
        Self { from, to, removed: false }
    }

    /// Returns the bits that a mode has of them.
    fn of(self, mode: u16) -> u16 {
        let class = mode >> self.from.min(6) & 7;
        (class * 0o111) & self.to
    }
}

setters!(CopiedBits { from: u8, to: u16, removed: bool });

impl ModeRule {
    /// Makes a rule for all entries.
    pub fn new(keep: u16, set: u16) -> Self {
        Self { files: true, directories: true, if_executable: false, keep, set, copied: None }
    }

    /// Returns the permission bits that a mode gets.
    fn change(&self, mode: u16) -> u16 {
        let changed = mode & self.keep | self.set;
        match self.copied {
            Some(copied) if copied.removed => changed & !copied.of(mode),
            Some(copied) => changed | copied.of(mode),
            None => changed,
        }
    }
}

setters!(ModeRule {
    files: bool,
    directories: bool,
    if_executable: bool,
    keep: u16,
    set: u16,
    copied: Option<CopiedBits>,
});

impl ModeRule {
    /// Applies all rules and returns the resulting permission bits.
    pub fn apply(rules: &[Self], mode: u16, is_dir: bool) -> u16 {
        let executable = is_dir || mode & 0o111 != 0;
        let applies = |rule: &&Self| {
            (if is_dir { rule.directories } else { rule.files }) && (executable || !rule.if_executable)
        };
        rules.iter().filter(applies).fold(mode, |mode, rule| rule.change(mode))
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
