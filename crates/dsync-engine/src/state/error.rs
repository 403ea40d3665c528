//! Reasons not to use or keep a state.

use std::io;

/// The reason why a state cannot be used or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It could not be read or written.
    #[error("the state cannot be read or written")]
    Io {
        /// The reason.
        #[from]
        source: io::Error,
    },
    /// Another user owns the directory or the file, or can write to it.
    #[error("another user can write to it")]
    Shared,
    /// The file is no state, was cut short, or was changed since it was written.
    #[error("it is no state of dsync, or damaged")]
    Damaged,
    /// The file has a later version's format.
    #[error("a newer version of dsync wrote it")]
    Newer,
    /// The clock is behind the time when the file was written.
    #[error("the clock is behind the time when it was written")]
    ClockWentBack,
    /// The system has started anew since it was written, or that is unknown. In a power cut new content
    /// can be on the disk without the new times of its file, which then looks like the recorded one.
    #[error("the system has started anew since it was written")]
    Restarted,
    /// With it [`State::recorded`](super::State::recorded) would keep too many records in memory.
    #[error("more is recorded than is kept in memory")]
    TooMuch,
}
