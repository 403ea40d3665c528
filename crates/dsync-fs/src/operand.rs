//! rsync's interpretation of a source operand: its contents, or the entry itself.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
    component::{Component, InvalidComponent},
    spelling::Spelling,
};

/// The meaning of a source operand, determined by its spelling alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperandForm {
    /// `dir/`, `.`, `..`, `dir/.`, `dir/..`: the contents of the directory, without the directory
    /// itself. Symbolic links on the way are followed, as the operator wrote them.
    Contents(PathBuf),
    /// Anything else: the entry of this name. A symbolic link is the entry itself, not its target.
    Entry {
        /// The parent directory, `.` if the operand has no slash.
        parent: PathBuf,
        /// The entry's name.
        name: Component,
    },
}

impl OperandForm {
    /// Interprets an operand.
    ///
    /// # Errors
    /// [`InvalidComponent`] if the operand is empty, has a NUL byte or an overlong last name.
    pub fn of(operand: &Path) -> Result<Self, InvalidComponent> {
        let bytes = operand.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(InvalidComponent::Empty);
        }
        if bytes.contains(&0) {
            return Err(InvalidComponent::Nul);
        }
        let (parent, last) = match bytes.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => bytes.split_at(slash + 1),
            None => (&b"."[..], bytes),
        };
        if matches!(last, b"" | b"." | b"..") {
            return Ok(Self::Contents(operand.to_path_buf()));
        }
        let parent = PathBuf::from(OsStr::from_bytes(parent));
        Ok(Self::Entry { parent, name: Component::new(last)? })
    }

    /// Returns the form with its name as the tree has it; the path stays as it was written.
    ///
    /// # Errors
    /// [`InvalidComponent`] for a name that is too long in that spelling.
    pub fn spelled(self, spelling: Option<&Spelling>) -> Result<Self, InvalidComponent> {
        match (self, spelling) {
            (Self::Entry { parent, name }, Some(spelling)) => {
                Ok(Self::Entry { parent, name: Component::new(&spelling.to_there(name.as_bytes()))? })
            }
            (form, _) => Ok(form),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slash_and_dots_mean_contents() {
        for contents in ["a/", ".", "..", "a/.", "a/..", "/", "./", "../", "a//", "/.", "//"] {
            let form = OperandForm::of(Path::new(contents)).unwrap();
            assert_eq!(form, OperandForm::Contents(contents.into()), "{contents}");
        }
    }

    #[test]
    fn other_operands_mean_the_entry() {
        for (operand, parent, name) in [
            ("a", ".", "a"),
            ("./a", "./", "a"),
            ("/a", "/", "a"),
            ("x/y/.a", "x/y/", ".a"),
            ("..a", ".", "..a"),
        ] {
            let name = Component::new(name.as_bytes()).unwrap();
            let form = OperandForm::of(Path::new(operand)).unwrap();
            assert_eq!(form, OperandForm::Entry { parent: parent.into(), name }, "{operand}");
        }
        assert_eq!(OperandForm::of(Path::new("")), Err(InvalidComponent::Empty));
        assert_eq!(OperandForm::of(Path::new("a\0b")), Err(InvalidComponent::Nul));
    }
}
