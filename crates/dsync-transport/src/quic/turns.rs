//! The runtime that quinn's tasks run on: that of the link, with longer turns.
//!
//! A connection's task hands over twenty packets and then lets others run. Here it gets several turns in a row
//! while it has more, and at the end of them the socket sends what they left in its batch. So a batch never
//! waits for anything, and a thread that sends at full rate makes a fourth of the system calls.

use std::{
    future::{Future, poll_fn},
    io,
    net::UdpSocket,
    pin::Pin,
    sync::Arc,
    time::Instant,
};

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime};

use super::steady::Steady;
use crate::reactor::ForQuinn;

/// A runtime for the endpoint of one socket.
#[derive(Debug)]
pub(super) struct Turns {
    socket: Arc<Steady>,
    runtime: Arc<ForQuinn>,
}

impl Turns {
    pub(super) fn new(socket: Arc<Steady>, runtime: Arc<ForQuinn>) -> Arc<Self> {
        Arc::new(Self { socket, runtime })
    }
}

impl Runtime for Turns {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        self.runtime.new_timer(at)
    }

    fn spawn(&self, mut task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let socket = Arc::clone(&self.socket);
        self.runtime.spawn(Box::pin(poll_fn(move |context| {
            let mut turns = MOST_TURNS;
            let polled = loop {
                let before = socket.handed();
                let polled = Steady::turn(|| task.as_mut().poll(context));
                turns -= 1;
                if polled.is_ready() || turns == 0 || socket.handed() - before < FULL_TURN {
                    break polled;
                }
            };
            socket.flush(context);
            polled
        })));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        self.runtime.wrap_udp_socket(socket)
    }
}

/// Most turns in a row: with twenty packets each they fill one system call.
const MOST_TURNS: usize = 3;
/// Packets of a turn after which the task probably has more.
const FULL_TURN: usize = 20;
