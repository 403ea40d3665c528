//! Findings of a verification, who hears them, and their sum.

use std::io;

use dsync_wire::{
    event::{Changes, Progress},
    path::EntryPath,
};

use super::AgesProblem;
use crate::exit_code;

/// The difference between an entry and its record.
#[derive(Debug)]
#[non_exhaustive]
pub enum Difference {
    /// The content differs, and size and modification time do not: nobody edited the file.
    Rot,
    /// Content, size, link text or type differ as an edit leaves them.
    Edited(Changes),
    /// The content is right or was not read; the time, permissions, owner or group differ.
    Attributes(Changes),
    /// The manifest has it, the tree has not.
    Missing,
    /// The tree has it, the manifest has not.
    New,
    /// It could not be read: content that a disk cannot return is lost like content that is wrong.
    Unreadable(io::Error),
    /// It changed while it was read, so nothing is known of it.
    Busy,
    /// No run has recorded the file's content ([`verify_recorded`](super::verify_recorded) only): it is not read.
    Unrecorded,
    /// The file has changed since a run recorded its content ([`verify_recorded`](super::verify_recorded) only), so it is not read:
    /// size or time differ, or without changes here only the change time.
    EditedSince(Changes),
}

/// A difference of one entry.
///
/// ```
/// use dsync_engine::verify::{Difference, Finding};
///
/// let finding = Finding::new("docs/report", Difference::Busy);
/// assert_eq!(finding.path.to_string(), "docs/report");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Path below the root of the tree; empty for the root itself.
    pub path: EntryPath,
    /// The difference.
    pub difference: Difference,
}

impl Finding {
    /// Describes a difference of one entry.
    pub fn new(path: impl Into<EntryPath>, difference: Difference) -> Self {
        Self { path: path.into(), difference }
    }
}

/// Listens to a verification. Called from one thread at a time for findings, from several for
/// progress; a slow listener slows the reading. A panic in it ends the verification with
/// [`VerifyError::Aborted`](super::VerifyError::Aborted), and nothing is reported after it.
///
/// ```
/// use dsync_engine::{
///     Progress,
///     verify::{AgesProblem, Difference, Finding, VerifyObserver},
/// };
///
/// struct Log;
///
/// impl VerifyObserver for Log {
///     fn finding(&self, finding: &Finding) {
///         println!("{}: {:?}", finding.path, finding.difference);
///     }
///
///     fn progress(&self, progress: &Progress) {
///         println!("{} bytes", progress.bytes_done);
///     }
///
///     fn ages(&self, problem: &AgesProblem) {
///         println!("more is read than was asked for: {problem:?}");
///     }
/// }
/// // It is tested without a tree.
/// Log.finding(&Finding::new("photos/one", Difference::Missing));
/// # Log.progress(&Progress::default());
/// ```
pub trait VerifyObserver: Send + Sync {
    /// Reports a difference, in the manifest's order.
    fn finding(&self, _finding: &Finding) {}

    /// Reports progress, a few times a second.
    fn progress(&self, _progress: &Progress) {}

    /// Reports a fault of the file that keeps the times of reading.
    fn ages(&self, _problem: &AgesProblem) {}
}

impl VerifyObserver for crate::Silent {}

/// The result of a verification.
///
/// ```
/// use dsync_engine::verify::Verified;
///
/// fn line(verified: &Verified) -> String {
///     match verified.findings() {
///         0 => format!("{} files are sound", verified.sound),
///         found => format!("{found} entries differ, {} of them by rot", verified.rotten),
///     }
/// }
/// # assert_eq!(line(&Verified::default()), "0 files are sound");
/// # assert_eq!(Verified::default().exit_code(), 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Verified {
    /// Entries of the tree and of the manifest that were compared.
    pub entries: u64,
    /// Files whose content was read, and which are in all what their records say.
    pub sound: u64,
    /// Bytes of content that were read.
    pub bytes_read: u64,
    /// Files that were compared by size and time only: their record has no content, or
    /// [`Reading::percent`](super::Reading::percent) or [`Reading::max_age`](super::Reading::max_age) left them out.
    pub unread: u64,
    /// Findings of [`Difference::Rot`].
    #[cfg_attr(feature = "serde", serde(rename = "rot"))]
    pub rotten: u64,
    /// Findings of [`Difference::Edited`].
    pub edited: u64,
    /// Findings of [`Difference::Attributes`].
    pub attributes: u64,
    /// Findings of [`Difference::Missing`].
    pub missing: u64,
    /// Findings of [`Difference::New`].
    pub new: u64,
    /// Findings of [`Difference::Unreadable`].
    pub unreadable: u64,
    /// Findings of [`Difference::Busy`].
    pub busy: u64,
    /// Files of [`Difference::Unrecorded`], which is nothing wrong.
    pub unrecorded: u64,
    /// Files of [`Difference::EditedSince`], which is nothing wrong.
    pub edited_since: u64,
}

impl Verified {
    /// Returns the number of findings, without the files of which nothing is recorded.
    pub fn findings(&self) -> u64 {
        let Self { rotten, edited, attributes, missing, new, unreadable, busy, .. } = *self;
        rotten + edited + attributes + missing + new + unreadable + busy
    }

    /// Returns the exit code that a command should end with: 0 if nothing is found, else 23.
    pub fn exit_code(&self) -> u8 {
        if self.findings() == 0 { exit_code::OK } else { exit_code::PARTIAL }
    }

    pub(super) fn count(&mut self, difference: &Difference) {
        *match difference {
            Difference::Rot => &mut self.rotten,
            Difference::Edited(_) => &mut self.edited,
            Difference::Attributes(_) => &mut self.attributes,
            Difference::Missing => &mut self.missing,
            Difference::New => &mut self.new,
            Difference::Unreadable(_) => &mut self.unreadable,
            Difference::Busy => &mut self.busy,
            Difference::Unrecorded => &mut self.unrecorded,
            Difference::EditedSince(_) => &mut self.edited_since,
        } += 1;
    }
}
