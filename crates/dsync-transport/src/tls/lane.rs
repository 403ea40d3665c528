//! The two halves of a lane: a connection that carries only content.

use std::{
    net::Shutdown,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use dsync_wire::link::{Lane, LaneRead, LaneWrite, LinkError};

use super::{
    registry::{Arrival, Half, Line, Registry, Word},
    signal::Signal,
    stream::{Opener, Sealer},
};

/// Makes a lane from a connection.
pub(super) fn lane(registry: &Arc<Registry>, (line, opener): Arrival) -> Lane {
    let (here, there) = (Arc::clone(&line), line);
    Lane {
        tx: Box::new(Writer {
            registry: Arc::clone(registry),
            line: here,
            sealer: Sealer::default(),
            finished: false,
        }),
        rx: Box::new(Reader { registry: Arc::clone(registry), line: there, opener }),
    }
}

struct Writer {
    registry: Arc<Registry>,
    line: Arc<Line>,
    sealer: Sealer,
    finished: bool,
}

impl LaneWrite for Writer {
    fn write(&mut self, data: Bytes) -> Result<(), LinkError> {
        self.write_both(Bytes::new(), data)
    }

    fn write_both(&mut self, head: Bytes, body: Bytes) -> Result<(), LinkError> {
        self.registry.check()?;
        if self.finished {
            return Err(LinkError::Closed);
        }
        self.sealer
            .write_both(&self.line.stream, &head, &body)
            .map_err(|error| self.registry.explain(&self.line, Half::Sending, error))?;
        self.registry.counters.add_sent(head.len() + body.len());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        self.registry.check()?;
        if !self.finished {
            self.finished = true;
            self.sealer
                .finish(&self.line.stream)
                .map_err(|error| self.registry.explain(&self.line, Half::Sending, error))?;
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // Sent first, because a peer that finds the connection ended waits for this signal.
            self.registry.signal(Signal::Told(self.line.id, Word::Reset));
            self.line.stream.shut(Shutdown::Write);
        }
        self.registry.release(&self.line);
    }
}

struct Reader {
    registry: Arc<Registry>,
    line: Arc<Line>,
    opener: Opener,
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        self.registry.check()?;
        self.opener.widen();
        let count = self.opener.read(&self.line.stream, buf).map_err(|error| {
            self.line.drained.store(true, Ordering::Release);
            self.registry.explain(&self.line, Half::Receiving, error)
        })?;
        if self.opener.is_ended() {
            self.line.drained.store(true, Ordering::Release);
        }
        self.registry.counters.add_received(count);
        Ok(count)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.line.drained.load(Ordering::Acquire) {
            self.registry.signal(Signal::Told(self.line.id, Word::Stop));
        }
        self.registry.release(&self.line);
    }
}
