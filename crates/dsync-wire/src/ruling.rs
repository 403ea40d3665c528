//! Rulings: why an entry takes part in a run, or does not, before it is compared.
//!
//! Both ends decide by rules that the other may not know: those of files in their own trees. A
//! ruling names the rule by its place, never by its text. The source's rulings cross to the
//! destination, which tells the controller.

use crate::{path::EntryPath, setters};

/// The reason why an entry of one end takes part or not.
///
/// ```
/// use dsync_wire::ruling::{RulePlace, Ruled, Ruling};
///
/// fn sentence(ruling: &Ruling) -> String {
///     match ruling.why.place() {
///         Some(RulePlace::Command(number)) => {
///             format!("rule {} of the settings decides", number + 1)
///         }
///         Some(RulePlace::File { line, .. }) => format!("line {line} of a file of rules decides"),
///         _ if ruling.why.is_of_source() => "the source leaves it out".into(),
///         _ => "it stays at the destination".into(),
///     }
/// }
/// let hidden = Ruling::new("x.tmp", false, Ruled::Hidden(RulePlace::Command(0)));
/// assert_eq!(sentence(&hidden), "rule 1 of the settings decides");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ruling {
    /// Path relative to the transfer's root.
    pub path: EntryPath,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The reason.
    pub why: Ruled,
}

impl Ruling {
    /// Makes a ruling.
    pub fn new(path: impl Into<EntryPath>, is_dir: bool, why: Ruled) -> Self {
        Self { path: path.into(), is_dir, why }
    }
}

setters!(Ruling { path: EntryPath, is_dir: bool, why: Ruled });

/// The reason of a ruling.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ruled {
    /// The source leaves it out: a rule excludes it.
    Hidden(RulePlace),
    /// The source lists it: a rule includes it.
    Shown(RulePlace),
    /// The source does not descend into it: it is on another filesystem (`one_file_system`).
    OtherFilesystem,
    /// The source does not descend into it: the run is not recursive.
    NotRecursive,
    /// The source leaves it out: it holds nothing but directories (`prune_empty_dirs`).
    Pruned,
    /// Only the destination has it, and a rule protects it from deletion.
    Protected(RulePlace),
    /// Only the destination has it, and the run deletes nothing.
    NotDeleted,
    /// Only the destination has it, and it stays: it is dsync's own, a backup or a mount point, something in
    /// it stays, it is outside of what the operand stands for, or a limit or a problem withholds the
    /// deletion.
    Spared,
}

/// The place of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulePlace {
    /// One of [`SyncOptions::filters`](crate::options::SyncOptions::filters), by position.
    Command(u32),
    /// A line of a file at the end that rules; its path is relative to the transfer's root there
    /// unless it begins with `/`.
    File {
        /// Path of the file.
        path: EntryPath,
        /// Number of the line, 1-based.
        line: u32,
    },
    /// The name of directories for unfinished files (`partial_dir`).
    PartialDir,
}

impl Ruled {
    /// Returns the place of the rule that decides; `None` if another reason does.
    pub fn place(&self) -> Option<&RulePlace> {
        match self {
            Self::Hidden(place) | Self::Shown(place) | Self::Protected(place) => Some(place),
            _ => None,
        }
    }

    /// Returns whether the source rules this.
    pub fn is_of_source(&self) -> bool {
        !matches!(self, Self::Protected(_) | Self::NotDeleted | Self::Spared)
    }
}
