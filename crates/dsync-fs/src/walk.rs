//! One or several operands read as one tree, directory by directory.

use std::{io, path::Path};

use crate::{
    component::{Component, InvalidComponent, RelPath},
    filter::FilterSet,
    metadata::Metadata,
    source_file::SourceFile,
};

/// How a tree is walked.
#[derive(Debug, Clone, Default)]
pub struct WalkOptions {
    /// Descend into directories.
    pub recursive: bool,
    /// Do not descend into directories on another filesystem than their operand.
    pub one_file_system: bool,
    /// What is left out.
    pub filter: FilterSet,
}

/// Why a walk could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// An operand cannot be a path.
    #[error("operand {index} cannot be a path")]
    InvalidOperand {
        /// Its position, 0-based.
        index: usize,
        /// Why.
        #[source]
        source: InvalidComponent,
    },
}

/// An operand that could not be opened; the others are walked.
#[derive(Debug)]
pub struct OperandProblem {
    /// Its position, 0-based.
    pub index: usize,
    /// Why, e.g. [`NotFound`](io::ErrorKind::NotFound).
    pub error: io::Error,
}

/// A walk in progress.
#[derive(Debug)]
pub struct Walk {}

/// One directory.
#[derive(Debug)]
pub struct WalkedDir {
    /// Its path below the transfer's root; empty for the root.
    pub path: RelPath,
    /// For opening its entries later.
    pub handle: DirRef,
    /// What is in it and not left out, in byte order of the names.
    pub entries: Vec<WalkedEntry>,
    /// True when everything that is there and not left out is in `entries`: only then does the absence
    /// of a name mean anything. False without a problem where the listing is not meant to be whole:
    /// the root when no operand stands for its contents, any directory of a walk that is not recursive,
    /// and another filesystem's root under `one_file_system`.
    pub complete: bool,
    /// What could not be read.
    pub problems: Vec<WalkProblem>,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct WalkedEntry {
    /// Its name.
    pub name: Component,
    /// What the kernel says of it.
    pub metadata: Metadata,
    /// The text of a symbolic link.
    pub link_target: Option<Vec<u8>>,
}

/// Something that could not be read.
#[derive(Debug)]
pub struct WalkProblem {
    /// Its path below the transfer's root.
    pub path: RelPath,
    /// What was being done.
    pub step: WalkStep,
    /// Why; [`NotFound`](io::ErrorKind::NotFound) means that it vanished since it was listed.
    pub error: io::Error,
}

/// What was being done when a walk met a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WalkStep {
    /// Opening or listing a directory.
    ReadDirectory,
    /// Reading attributes.
    Stat,
    /// Reading a symbolic link.
    ReadLink,
}

/// A directory of the walk that can be reached again later; cheap to clone and to keep.
#[derive(Debug, Clone)]
pub struct DirRef {}

impl DirRef {
    /// Opens a regular file of the directory.
    ///
    /// # Errors
    /// As [`Dir::open_source`](crate::Dir::open_source).
    pub fn open_source(&self, name: &Component) -> io::Result<SourceFile> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads a symbolic link of the directory.
    ///
    /// # Errors
    /// As [`Dir::read_link`](crate::Dir::read_link).
    pub fn read_link(&self, name: &Component) -> io::Result<Vec<u8>> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Walk {
    /// Opens the operands.
    ///
    /// # Errors
    /// [`WalkError`].
    pub fn open(operands: &[&Path], options: WalkOptions) -> Result<Self, WalkError> {
        let _ = (operands, options);
        Ok(Self {})
    }

    /// Attributes of the transfer's root: those of the first operand that stands for its contents.
    pub fn root(&self) -> Option<&Metadata> {
        None
    }

    /// Number of entries of the root that operands name themselves.
    pub fn named(&self) -> u32 {
        0
    }

    /// True when there is one operand and it is no directory.
    pub fn single_file(&self) -> bool {
        false
    }

    /// Operands that could not be opened.
    pub fn operand_problems(&self) -> &[OperandProblem] {
        &[]
    }
}

impl Iterator for Walk {
    type Item = WalkedDir;

    fn next(&mut self) -> Option<WalkedDir> {
        None
    }
}
