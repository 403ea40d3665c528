//! A connected socket that no stranger's word ends.
//!
//! A connected socket hears of every message of the network that a port is closed (ICMP), which whoever
//! knows the addresses can forge, and quinn ends its endpoint on any error but a reset. What the path
//! carries shows by what arrives.

use std::{
    io::{self, ErrorKind, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use quinn::{
    AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};

/// A socket without refusals.
#[derive(Debug)]
pub(super) struct Steady(Arc<dyn AsyncUdpSocket>);

impl Steady {
    /// Takes a socket that does not block. Must be called on a runtime's thread.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(TokioRuntime.wrap_udp_socket(socket)?)))
    }
}

/// Most packets that the kernel joins (`UDP_GRO_CNT_MAX` of Linux).
const JOINED: usize = 64;

impl AsyncUdpSocket for Steady {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.0).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.0.try_send(transmit) {
            // As good as sent: a lost packet is sent again.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            sent => sent,
        }
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            match ready!(self.0.poll_recv(context, buffers, meta)) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        // Whether the kernel joins packets (GRO) is found out with a socket of its own, which a caged session
        // may not open. The answer is then 1, though this socket joins them, and what is longer than the
        // buffer would be cut off: lost packets, from the second of each burst on.
        self.0.max_receive_segments().max(JOINED)
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}
