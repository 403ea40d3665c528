//! A remote shell that is the test itself: the client starts a relay, which leads here.

use std::{
    io::ErrorKind,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{Carrier, lanes::Pipe};
use crate::{Run, run::PATIENCE};

/// Name of the variable with the relay's socket.
pub const SOCKET: &str = "DSYNC_TEST_SOCKET";

/// A listener for the relay of one client.
#[derive(Debug)]
pub struct Shell {
    listener: UnixListener,
    socket: PathBuf,
    relay: PathBuf,
}

impl Shell {
    /// Listens in `dir`; `relay` is the relay's program.
    ///
    /// # Panics
    /// If the socket cannot be made.
    pub fn new(dir: &Path, relay: &str) -> Self {
        let socket = dir.join("shell.socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that can be polled");
        Self { listener, socket, relay: relay.into() }
    }

    /// Makes a run of the client whose remote shell leads here. Hostile ends show no signs of life, and on a
    /// busy machine a sync alone may take longer than a run waits for one.
    pub fn client(&self, carrier: Carrier) -> Run {
        let run = Run::dsync().env(SOCKET, &self.socket).arg("-e").arg(&self.relay).arg("--timeout=3600");
        run.arg(format!("--transport={}", carrier.option())).limit(PATIENCE)
    }

    /// Makes a run of a command of the program, whose remote shell leads here.
    pub fn command(&self, command: &str) -> Run {
        let run = Run::dsync().arg(command).env(SOCKET, &self.socket);
        run.arg("-e").arg(&self.relay).limit(PATIENCE)
    }

    /// Returns the pipe to the client.
    ///
    /// # Panics
    /// If no client connects.
    pub fn accept(&self) -> Pipe {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < deadline, "the client starts no remote shell");
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("cannot accept: {error}"),
            }
        };
        stream.set_nonblocking(false).expect("a blocking stream");
        let reader = stream.try_clone().expect("a second handle");
        Pipe { reader: Box::new(reader), writer: Box::new(Ending(stream)) }
    }
}

/// A stream that ends for the other side when dropped, even if somebody still reads it here.
struct Ending(std::os::unix::net::UnixStream);

impl std::io::Write for Ending {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}
