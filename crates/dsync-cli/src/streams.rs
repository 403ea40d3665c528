//! The standard streams of a process that shares them with others.
//!
//! A stream that is inherited may be set to fail in place of waiting (`O_NONBLOCK`), by a parent or a neighbour;
//! and its reader may stand still. The laws: what is printed waits for its reader, however the stream is set, and
//! so does what is read; but once the run was told to end ([`tell_to_end`]), a stream that takes nothing for a second is
//! given up. Nothing here changes the stream for others.

use std::{
    io::{self, Read, Write},
    os::fd::BorrowedFd,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    stdio,
};

/// Standard output, or standard error. Unbuffered; what one call writes stays together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standard {
    Output,
    Errors,
}

/// Standard input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input;

/// Lets streams that nobody reads be given up from now on.
pub(crate) fn tell_to_end() {
    ENDS.store(true, Ordering::Release);
}

/// Ends the waiting for streams as soon as one of these signals comes, also where whoever handles it waits for one.
///
/// # Errors
/// The system's, if it takes no handler.
pub(crate) fn end_at(signals: &[i32]) -> io::Result<()> {
    signals.iter().try_for_each(|&signal| signal_hook::flag::register(signal, Arc::clone(&ENDS)).map(drop))
}

static ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The streams that were given up; held while something is written.
static GIVEN_UP: [Mutex<bool>; 2] = [Mutex::new(false), Mutex::new(false)];

impl Standard {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Self::Output => stdio::stdout(),
            Self::Errors => stdio::stderr(),
        }
    }

    /// Writes all of it; fails once the stream is given up.
    fn write_whole(self, mut bytes: &[u8], is_given_up: &mut bool) -> io::Result<()> {
        while !bytes.is_empty() {
            if *is_given_up || !self.wait() {
                *is_given_up = true;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"));
            }

            let piece = &bytes[..bytes.len().min(PIECE)];
            match rustix::io::write(self.fd(), piece) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                // As with the standard library, one that was closed takes everything.
                Err(Errno::BADF) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until the stream takes a piece, or has an error to tell. Returns `false` if it is to be given up.
    fn wait(self) -> bool {
        let fd = self.fd();
        let mut full_since = None;
        loop {
            let ready = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&LOOK));
            if !matches!(ready, Ok(0) | Err(Errno::INTR)) {
                return true;
            }
            if ENDS.load(Ordering::Acquire)
                && full_since.get_or_insert_with(Instant::now).elapsed() >= STANDSTILL
            {
                return false;
            }
        }
    }
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut is_given_up = GIVEN_UP[*self as usize].lock().unwrap_or_else(PoisonError::into_inner);
        self.write_whole(bytes, &mut is_given_up).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(stdio::stdin(), &mut *bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let fd = stdio::stdin();
                    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
                }
                // As with the standard library, one that was closed has nothing.
                Err(Errno::BADF) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Bytes that a pipe takes at once when it takes any (`PIPE_BUF`): more could wait in the middle.
const PIECE: usize = 4096;
/// Time between two looks whether the run was told to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Time without a reader after which a run that was told to end goes on to its end: with what else ends a run, it
/// is over within two seconds.
const STANDSTILL: Duration = Duration::from_secs(1);
