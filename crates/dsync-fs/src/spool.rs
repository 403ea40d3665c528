//! Byte records that need not stay in memory.

use std::io;

use crate::dir::Dir;

/// Records being collected.
#[derive(Debug)]
pub struct Spool {}

/// Collected records.
#[derive(Debug)]
pub struct SealedSpool {}

/// Why a record could not be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The file could not be written or mapped.
    #[error("cannot keep records in a temporary file")]
    Io {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The bytes are not those that were written.
    #[error("record {index} of the temporary file is damaged")]
    Damaged {
        /// Position of the record, 0-based.
        index: u64,
    },
}

impl Spool {
    /// An empty spool; once it outgrows memory it goes to an unnamed file in `dir`.
    pub fn new(dir: Option<&Dir>) -> io::Result<Self> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Appends a record.
    ///
    /// # Errors
    /// What the system says.
    pub fn push(&mut self, record: &[u8]) -> io::Result<()> {
        let _ = record;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends writing.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn seal(self) -> Result<SealedSpool, SpoolError> {
        Ok(SealedSpool {})
    }
}

impl SealedSpool {
    /// Number of records.
    pub fn len(&self) -> u64 {
        0
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// The records in the order of writing.
    pub fn iter(&self) -> impl Iterator<Item = Result<&[u8], SpoolError>> {
        std::iter::empty()
    }
}
