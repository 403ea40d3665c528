//! The names and paths that operands with wildcards could have, beside those that are typed.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use dsync_fs::{
    FileList, MostNames, OperandForm, OperandPaths, PathPattern, PatternPlace, RelPath, RelativeForm,
    Standing, alternatives, has_wildcards,
};
use dsync_wire::{
    limits::{MAX_OPERAND_BYTES, MAX_OPERANDS},
    message::Asked,
    name::Name,
    options::SyncOptions,
};

use super::of_operands;
use crate::SyncError;

/// The operands with wildcards.
#[derive(Debug, Clone, Default)]
pub(in crate::destination) struct Wild {
    /// Whether there is one operand and it has wildcards.
    pub(super) is_only: bool,
    /// The names, or with `relative` the paths, that they stand for.
    pub(super) patterns: Vec<PathPattern>,
}

/// Returns what operands stand for, of which some may have wildcards. What is written is asked for
/// as well: a source that finds no match looks for that.
pub(super) fn of_wild(paths: &[PathBuf], options: &SyncOptions) -> Result<(Asked, Wild), SyncError> {
    let is_wild = |path: &&PathBuf| options.wildcards && has_wildcards(path.as_os_str().as_bytes());
    let (wild, mut written): (Vec<_>, Vec<_>) = paths.iter().partition(is_wild);
    let mut all = Wild { is_only: paths.len() == 1 && wild.len() == 1, patterns: Vec::new() };

    let mut texts = Vec::new();
    for path in wild {
        let alternatives = alternatives(path.as_os_str().as_bytes(), MOST_NAMES).map_err(too_many)?;
        texts.push(path.clone());
        texts.extend(alternatives.iter().map(|text| PathBuf::from(std::ffi::OsStr::from_bytes(text))));
    }
    for text in &texts {
        all.patterns.extend(pattern(text, options.relative));
    }
    written.extend(&texts);
    let written: Vec<PathBuf> = written.into_iter().cloned().collect();
    Ok((of_operands(&written, options)?, all))
}

/// Returns the pattern of an operand for an entry; none if it stands for what is in the root.
fn pattern(text: &Path, relative: bool) -> Option<PathPattern> {
    if relative {
        let form = RelativeForm::of(text.as_os_str().as_bytes()).ok()?;
        return (!form.path.is_root()).then(|| PathPattern::of(form.path.as_bytes(), form.contents));
    }
    match OperandForm::of(text).ok()? {
        OperandForm::Contents(_) => None,
        OperandForm::Entry { name, .. } => Some(PathPattern::of(name.as_bytes(), false)),
    }
}

/// Returns the error of operands that stand for too many names.
pub(crate) fn too_many(_: dsync_fs::TooManyNames) -> SyncError {
    let why = format!("stand for more than {MAX_OPERANDS} names: copy the directory, with filters");
    SyncError::InvalidOption { option: "sources", why }
}

/// Bounds of what operands with wildcards stand for: those of operands that are typed.
pub(crate) const MOST_NAMES: MostNames =
    MostNames { count: MAX_OPERANDS, bytes: MAX_OPERAND_BYTES, looks: MAX_LOOKS };

/// Names that wildcards may be compared with, of all operands: some seconds of one core.
const MAX_LOOKS: usize = 64 << 20;

impl Wild {
    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty() && !self.is_only
    }

    /// Returns whether an operand could have this name.
    pub(super) fn names(&self, name: &Name) -> bool {
        self.patterns.iter().any(|pattern| pattern.place(name.as_bytes()) == PatternPlace::Named)
    }
}

/// The paths that a run asks for.
pub(super) enum Paths {
    /// Those of operands as they are typed, and of those with wildcards.
    Operands(OperandPaths, Vec<PathPattern>),
    /// Those of a list.
    List(FileList),
}

impl Paths {
    /// Returns the paths that are typed.
    pub(super) fn typed(&self) -> &OperandPaths {
        match self {
            Self::Operands(paths, _) => paths,
            Self::List(list) => list.paths(),
        }
    }

    fn patterns(&self) -> &[PathPattern] {
        match self {
            Self::Operands(_, patterns) => patterns,
            Self::List(_) => &[],
        }
    }

    /// Returns the place of a path.
    pub(super) fn standing(&self, path: &[u8]) -> Standing {
        let mut standing = self.typed().standing(path);
        for pattern in self.patterns() {
            match pattern.place(path) {
                PatternPlace::Named => {
                    standing.named = true;
                    standing.contents |= pattern.is_contents();
                }
                PatternPlace::Above => standing.on_the_way = true,
                _ => {}
            }
        }
        standing
    }

    /// Returns whether a path, or a directory on the way to it, is asked for.
    pub(super) fn covers(&self, path: &RelPath) -> bool {
        let is_below = |place: PatternPlace| matches!(place, PatternPlace::Named | PatternPlace::Below);
        self.typed().covers(path)
            || self.patterns().iter().any(|pattern| is_below(pattern.place(path.as_bytes())))
    }
}
