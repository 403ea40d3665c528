//! Failures of single entries, which do not end a run.

use std::{fmt, io};

use crate::{path::EntryPath, setters};

/// A failure at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The operation that failed.
    pub operation: Operation,
    /// Path relative to the transfer's root, or the operand as typed.
    pub path: EntryPath,
    /// The cause of the failure.
    pub cause: Cause,
}

impl Problem {
    /// Makes the account of a failure.
    pub fn new(operation: Operation, path: impl Into<EntryPath>, cause: Cause) -> Self {
        Self { operation, path: path.into(), cause }
    }
}

setters!(Problem { operation: Operation, path: EntryPath, cause: Cause });

/// The operation during which a problem arose. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Operation {
    /// Opening or listing a directory of the source.
    ReadDirectory = 0,
    /// Reading attributes.
    Stat = 1,
    /// Opening or reading a file of the source.
    ReadFile = 2,
    /// Reading a symbolic link.
    ReadLink = 3,
    /// Reading the old file at the destination.
    ReadBasis = 4,
    /// Creating a directory.
    CreateDirectory = 5,
    /// Creating or writing the new file's temporary.
    WriteFile = 6,
    /// Setting attributes.
    SetAttributes = 7,
    /// Making a written file permanent (sync, rename).
    Commit = 8,
    /// Creating a symbolic link.
    CreateLink = 9,
    /// Creating a device, fifo or socket.
    CreateSpecial = 10,
    /// Removing an entry.
    Delete = 11,
    /// Listing a directory of the destination.
    ReadDestination = 12,
    /// Reading access control lists or extended attributes.
    ReadAttributes = 13,
    /// Making a hard link to an entry.
    HardLink = 14,
    /// Removing an entry of the source after it was copied.
    RemoveSource = 15,
    /// Finding what a symbolic link of the source leads to.
    FollowLink = 16,
    /// Reading a file of filter rules.
    ReadRules = 17,
}

impl Operation {
    /// Returns the operation in the words of a message: "cannot ... 'path'".
    pub fn words(self) -> &'static str {
        match self {
            Self::ReadDirectory => "read directory",
            Self::Stat => "read the attributes of",
            Self::ReadFile => "read",
            Self::ReadLink => "read the link",
            Self::ReadBasis => "read the old copy of",
            Self::CreateDirectory => "create directory",
            // Whoever reads of the second one knows no stages: what was written does not get its name.
            Self::WriteFile | Self::Commit => "write",
            Self::SetAttributes => "set attributes of",
            Self::CreateLink => "create the link",
            Self::CreateSpecial => "create the device or fifo",
            Self::HardLink => "make the hard link",
            Self::RemoveSource => "remove the source's",
            Self::FollowLink => "follow the link",
            Self::Delete => "delete",
            Self::ReadDestination => "read destination directory",
            Self::ReadRules => "follow the filter rules of",
            Self::ReadAttributes => "read the ACL or the extended attributes of",
        }
    }
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The system's error number (Linux numbering).
    Os(i32),
    /// The entry was listed but has vanished.
    Vanished,
    /// The file changed while it was read, at every attempt.
    Changed,
    /// The file root differed after the retry as well; the old file was kept.
    ContentMismatch,
    /// A directory stands in the way and may not be removed without `delete`.
    DirectoryInTheWay,
    /// The run's options do not copy this type (a symlink without `-l`, ...). With
    /// [`Operation::FollowLink`] only the link is left out: what it leads to is copied.
    Skipped,
    /// The entry's path is too deep, or its name is not valid here.
    Unrepresentable,
    /// The entry's type changed between listing and opening.
    TypeChanged,
    /// The entry is another name of one that could not be copied.
    FirstNameFailed,
    /// Source and destination are the same file.
    SameFile,
    /// The attributes that `--fake-super` keeps of the entry cannot be read.
    FakeSuperDamaged,
    /// A line of a file of filter rules is none, by its number.
    BadRule(u32),
    /// A file of filter rules has more than is taken, or there are too many.
    TooManyRules,
    /// A link leads out of the directory that the source is confined to, or a file of filter rules
    /// out of the tree, as a link or by what it names.
    LeadsOut,
    /// A device at the destination has fewer bytes than the source's file.
    DeviceTooShort {
        /// Bytes of the device.
        device: u64,
        /// Bytes of the file.
        file: u64,
    },
    /// The source's file no longer has the content that the run was told of.
    OtherContent,
    /// The source's directory has no entry, which is more often a disk that is not mounted: what the
    /// destination has in it stays.
    EmptySource,
    /// The entry is in place, but lacks attributes that could not be set. It does not count as failed.
    Lacking {
        /// Whether the owner or the group is another.
        owner: bool,
        /// Whether some access control lists or extended attributes are missing.
        extended: bool,
        /// The system's error number (Linux numbering) of the first of them.
        number: i32,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Os(number) => return io::Error::from_raw_os_error(*number).fmt(f),
            Self::Lacking { owner, extended, number } => {
                let what = match (owner, extended) {
                    (true, true) => "owner or group, and some ACLs or extended attributes",
                    (true, false) => "owner or group",
                    _ => "some ACLs or extended attributes",
                };
                let error = io::Error::from_raw_os_error(*number);
                return write!(f, "it is there without the source's {what}: {error}");
            }

            Self::BadRule(line) => {
                return write!(
                    f,
                    "line {line} is no filter rule, names a file that is not there, or is for one side where \
                     all of the file is"
                );
            }
            Self::DeviceTooShort { device, file } => {
                return write!(f, "the device has {device} bytes and the file {file}; nothing was written");
            }
            Self::Vanished => "it has vanished",
            Self::Changed => "it changed during the run, at every attempt",
            Self::ContentMismatch => {
                "its content was not the source's, at every attempt; the old copy is untouched"
            }
            Self::DirectoryInTheWay => "a directory that is not empty is in the way",
            Self::Skipped => "the options do not copy its type",
            Self::Unrepresentable => "its name or depth is not possible here",
            Self::TypeChanged => "it became another type of file",
            Self::FirstNameFailed => "it is another name of a file that could not be copied",
            Self::SameFile => "it is the same file as its copy",
            Self::FakeSuperDamaged => "its user.rsync.%stat cannot be read: correct or remove it",
            Self::TooManyRules => "it, or they, have more rules than are taken",
            Self::EmptySource => {
                "the source's is empty, and may be a disk that is not mounted; its entries stay"
            }
            Self::OtherContent => "its content is not the one that was asked for; nothing was replaced",
            Self::LeadsOut => "it leads out of the copied tree, as a link or by a name in it",
        })
    }
}
