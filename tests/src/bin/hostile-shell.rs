//! The remote shell of the hostile peer's tests: joins its standard streams to a socket.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread,
};

use dsync_tests::hostile::shell::SOCKET;

fn main() -> io::Result<()> {
    let path = std::env::var_os(SOCKET).ok_or(io::ErrorKind::NotFound)?;
    let mut incoming = UnixStream::connect(path)?;
    let outgoing = incoming.try_clone()?;
    thread::spawn(move || {
        copy(&mut io::stdin().lock(), &mut &outgoing);
        let _ = outgoing.shutdown(Shutdown::Write);
    });
    copy(&mut incoming, &mut io::stdout().lock());
    Ok(())
}

/// Copies bytes as they arrive, until either side ends.
fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}
