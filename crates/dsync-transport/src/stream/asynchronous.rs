//! A stream of the caller's runtime, copied to and from the link's socket.
//!
//! The law: what the link has written before its end reaches the stream, as far as the peer takes it within
//! [`GRACE`], and after that the stream is dropped, whatever the peer does. So a peer that stays connected
//! keeps nothing of a service whose session is over.

use std::{io, pin::pin, time::Duration};

use rustix::net::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest, split},
    net::UnixStream,
    time::{sleep, timeout},
};

use super::bytes::PUMP_BYTES;

/// Time for what was written to reach the peer after the link has ended, and for what the peer has sent to
/// reach the link after the stream takes nothing more. The last message of a session is small and has been
/// answered by then; this is for farewells on a slow path.
const GRACE: Duration = Duration::from_secs(3);

/// Interval of looking for the link's end while the peer takes nothing.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Copies both directions until the link or the stream has ended.
pub(super) async fn copy(stream: impl AsyncRead + AsyncWrite, link: UnixStream) {
    let (from_peer, to_peer) = split(stream);
    let (mut outward, mut inward) = (pin!(outward(&link, to_peer)), pin!(inward(from_peer, &link)));

    let both = async {
        tokio::select! {
            () = &mut outward => {
                // A socket that is closed with bytes that nobody has read may lose those on their way out.
                let _ = timeout(GRACE, &mut inward).await;
            }
            () = &mut inward => (&mut outward).await,
        }
    };
    let late = async {
        until_gone(&link).await;
        sleep(GRACE).await;
    };
    tokio::select! {
        () = both => {}
        () = late => {}
    }
}

/// Copies what the link writes, and shows the peer its end.
async fn outward(link: &UnixStream, mut to_peer: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        match link.async_io(Interest::READABLE, || link.try_read(&mut buffer)).await {
            // A link that ends with unread bytes shows a reset behind what it wrote.
            Ok(0) | Err(_) => break,
            Ok(read) => {
                if to_peer.write_all(&buffer[..read]).await.is_err() || to_peer.flush().await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = to_peer.shutdown().await;
}

/// Copies what the peer sends until its end, and shows the link that. After the link's own end it is read
/// and dropped.
async fn inward(mut from_peer: impl AsyncRead + Unpin, link: &UnixStream) {
    let mut buffer = vec![0; PUMP_BYTES];
    let mut takes = true;
    while let Ok(read @ 1..) = from_peer.read(&mut buffer).await {
        takes = takes && write_all(link, &buffer[..read]).await.is_ok();
    }
    let _ = rustix::net::shutdown(link, Shutdown::Write);
}

async fn write_all(link: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = link.async_io(Interest::WRITABLE, || link.try_write(bytes)).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Waits until the link has ended, though there may be bytes of it that nobody has read.
async fn until_gone(link: &UnixStream) {
    while link.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        os::unix::net::UnixStream as Socket,
        sync::mpsc,
        task::{Context, Poll},
        thread,
    };

    use tokio::io::ReadBuf;

    use super::*;

    /// Longest time for anything; only a hang takes it.
    const HANGS: Duration = Duration::from_secs(120);

    /// A stream that tells when it is dropped.
    struct Told(tokio::net::TcpStream, mpsc::Sender<()>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.1.send(());
        }
    }

    impl AsyncRead for Told {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            pin!(&mut self.0).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Told {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            pin!(&mut self.0).poll_write(context, bytes)
        }

        fn poll_flush(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            pin!(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            pin!(&mut self.0).poll_shutdown(context)
        }
    }

    /// Returns a link's socket, the peer's, and the word that the stream between them is dropped.
    fn copied() -> (Socket, TcpStream, mpsc::Receiver<()>) {
        let (ours, link) = Socket::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let (dropped, is_dropped) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                near.set_nonblocking(true).unwrap();
                ours.set_nonblocking(true).unwrap();
                let near = Told(tokio::net::TcpStream::from_std(near).unwrap(), dropped);
                copy(near, UnixStream::from_std(ours).unwrap()).await;
            });
        });
        (link, peer, is_dropped)
    }

    #[test]
    fn a_peer_that_stays_connected_hears_all_and_keeps_nothing() {
        let (mut link, mut peer, is_dropped) = copied();
        // Nobody reads this at the link.
        peer.write_all(b"unread").unwrap();
        let sent: Vec<u8> = (0..150_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        link.write_all(&sent).unwrap();
        drop(link);

        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).unwrap();
        assert!(heard == sent);
        is_dropped.recv_timeout(HANGS).unwrap();
    }

    #[test]
    fn a_peer_that_takes_nothing_keeps_nothing_either() {
        let (mut link, _peer, is_dropped) = copied();
        link.set_nonblocking(true).unwrap();
        // As much as fits anywhere, twice over: the copy is blocked then.
        for _ in 0..2 {
            while link.write(&[1; 4096]).is_ok() {}
            thread::sleep(Duration::from_millis(50));
        }
        drop(link);
        is_dropped.recv_timeout(HANGS).unwrap();
    }

    #[test]
    fn the_link_hears_all_that_a_peer_sent_before_it_went() {
        let (mut link, mut peer, is_dropped) = copied();
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        peer.write_all(&sent).unwrap();
        drop(peer);
        let mut heard = Vec::new();
        link.read_to_end(&mut heard).unwrap();
        assert!(heard == sent);
        drop(link);
        is_dropped.recv_timeout(HANGS).unwrap();
    }
}
