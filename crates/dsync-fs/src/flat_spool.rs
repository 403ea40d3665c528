//! Bytes that need not stay in memory and are read as one slice.
//!
//! Written once front to back. Up to 1 MiB stays in memory; beyond it the bytes go to a file
//! without a name in a [`SpoolHome`], which is mapped when it is sealed. The kernel can drop the
//! pages of the map at any time and read them again, so they are no memory of the process. The file
//! is private to this process, so nobody can truncate it under the map.
//!
//! Unlike the records of a [`Spool`](crate::Spool) the bytes carry no sums: a reader gets whatever
//! the disk returns, and must bear it.

use std::{fmt, io, mem, ops::Deref, os::fd::OwnedFd};

use memmap2::Mmap;

use crate::{
    dir::retry,
    spool::{Room, SpoolError, SpoolHome},
    sys,
};

/// Bytes that are being collected.
#[derive(Debug)]
pub(crate) struct FlatSpool {
    home: SpoolHome,
    buffer: Vec<u8>,
    file: Option<(OwnedFd, Option<Room>)>,
    /// Bytes in the file.
    written: u64,
}

/// Collected bytes.
#[derive(Default)]
pub(crate) enum FlatBytes {
    #[default]
    None,
    Memory(Vec<u8>),
    Mapped {
        map: Mmap,
        _room: Option<Room>,
    },
}

impl FlatSpool {
    /// Makes an empty spool that grows into `home`.
    pub(crate) fn new(home: &SpoolHome) -> Self {
        Self { home: home.clone(), buffer: Vec::new(), file: None, written: 0 }
    }

    /// Returns the number of bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`SpoolError::Io`], e.g. if the disk is full; [`SpoolError::NoPlace`].
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        if !self.buffer.is_empty() && self.buffer.len() + bytes.len() > MAX_IN_MEMORY {
            self.write_out()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends writing.
    ///
    /// # Errors
    /// [`SpoolError::Io`].
    pub(crate) fn seal(mut self) -> Result<FlatBytes, SpoolError> {
        if self.file.is_some() {
            self.write_out()?;
        }
        Ok(match self.file {
            None => FlatBytes::Memory(self.buffer),
            Some((file, room)) => {
                FlatBytes::Mapped { map: sys::map_own_file(&file, 0, self.written)?, _room: room }
            }
        })
    }

    fn write_out(&mut self) -> Result<(), SpoolError> {
        let (file, room) = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.home.file()?),
        };
        if room.as_mut().is_some_and(|room| !room.grow(self.buffer.len() as u64)) {
            return Err(SpoolError::NoPlace);
        }

        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            let written = retry(|| rustix::io::write(&*file, rest))?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            rest = rest.get(written..).unwrap_or_default();
        }
        self.written += self.buffer.len() as u64;
        let mut emptied = mem::take(&mut self.buffer);
        emptied.clear();
        self.buffer = emptied;
        Ok(())
    }
}

impl Deref for FlatBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Memory(bytes) => bytes,
            Self::Mapped { map, .. } => map,
        }
    }
}

impl fmt::Debug for FlatBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlatBytes").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Bytes that stay in memory (1 MiB): as of other spools.
const MAX_IN_MEMORY: usize = 1 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_one_slice_in_memory_and_beyond_it() {
        for (pieces, mapped) in [(0, false), (3, false), (3000, true)] {
            let mut spool = FlatSpool::new(&SpoolHome::default());
            let mut expected = Vec::new();
            for piece in 0..pieces {
                let bytes = format!("{piece:01000}").into_bytes();
                spool.push(&bytes).unwrap();
                expected.extend(bytes);
            }
            assert_eq!(spool.len(), expected.len() as u64);
            let sealed = spool.seal().unwrap();
            assert_eq!(matches!(sealed, FlatBytes::Mapped { .. }), mapped);
            assert!(*sealed == *expected);
        }
    }
}
