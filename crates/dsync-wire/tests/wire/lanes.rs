//! Lanes in memory, cut into reads of chosen sizes.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dsync_wire::link::{LaneRead, LaneWrite, LinkError};

/// Makes a lane whose reads return at most `step` bytes.
pub(crate) fn reader(bytes: &[u8], step: usize) -> Box<dyn LaneRead> {
    Box::new(Reader { bytes: Bytes::copy_from_slice(bytes), step, broken: false })
}

/// Makes a lane that breaks after its bytes instead of ending.
pub(crate) fn broken_reader(bytes: &[u8]) -> Box<dyn LaneRead> {
    Box::new(Reader { bytes: Bytes::copy_from_slice(bytes), step: usize::MAX, broken: true })
}

/// Makes a lane that keeps whatever is written, one item per write.
pub(crate) fn writer() -> (Box<dyn LaneWrite>, Written) {
    let written = Written::default();
    (Box::new(Writer(written.clone())), written)
}

#[derive(Clone, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<Bytes>>>);

impl Written {
    pub(crate) fn writes(&self) -> Vec<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn concat(&self) -> Vec<u8> {
        self.writes().concat()
    }
}

struct Reader {
    bytes: Bytes,
    step: usize,
    broken: bool,
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let len = self.bytes.len().min(buf.len()).min(self.step);
        if len == 0 && self.broken {
            return Err(LinkError::Lost);
        }
        buf[..len].copy_from_slice(&self.bytes.split_to(len));
        Ok(len)
    }
}

struct Writer(Written);

impl LaneWrite for Writer {
    fn write(&mut self, data: Bytes) -> Result<(), LinkError> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).push(data);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        Ok(())
    }
}
