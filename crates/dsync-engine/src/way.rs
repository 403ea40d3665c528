//! The way to the other end of a run: a remote shell, or a connection of the caller's own.

use std::{
    ffi::OsString,
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use dsync_transport::{
    Abandon, ConnectError, Connected, HostAnswer, RemoteShell, Sides, Stream, StreamEnd, Throttle,
    TransportChoice, paced, throttled,
};
use dsync_wire::{budget::Budget, link::Link};

use crate::{
    CancelToken, ConnectOptions, RemoteHost, SyncError,
    halt::{POLL, panic_text},
    observe::Connection,
};

/// Makes the connections of a run whose other end is a [`Server`](crate::Server) of the same
/// program's making: the first one, and another one whenever one broke. A closure is one.
///
/// A stream that others can reach must be authenticated and encrypted: the engine trusts it as it
/// trusts the pipe to ssh.
pub trait Connector: Sync {
    /// Connects. `cancel` is the run's: a call that may take long looks at it.
    ///
    /// # Errors
    /// The reason; the run ends with [`SyncError::Connector`], or tries again if a session had
    /// begun and [`ConnectOptions::retries`] are left.
    fn connect(&self, cancel: &CancelToken) -> io::Result<Stream>;
}

impl<F> Connector for F
where
    F: Fn(&CancelToken) -> io::Result<Stream> + Sync,
{
    fn connect(&self, cancel: &CancelToken) -> io::Result<Stream> {
        self(cancel)
    }
}

/// The way that a run takes.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// The remote shell to a host, and the carrier that it leads to.
    Shell(&'a RemoteHost),
    /// A connection of the caller's.
    Own(&'a dyn Connector),
}

impl Way<'_> {
    /// Connects; data of the peer that waits for a reader is taken from `budget`.
    pub(crate) fn connect(
        self,
        options: &ConnectOptions,
        (budget, throttle): (&Arc<Budget>, Option<&Throttle>),
        cancel: &CancelToken,
    ) -> Result<(Arc<dyn Link>, Connection), SyncError> {
        let (link, reason) = match self {
            Self::Shell(host) => {
                let Connected { link, reason, .. } = connect_or_cancel(
                    &remote_shell(host, options),
                    &carrier_options(options, budget, throttle),
                    cancel,
                )?;
                (link, reason)
            }
            Self::Own(connector) => {
                let link = own(connector, options, budget, cancel)?;
                let link = match throttle {
                    Some(throttle) => throttled(link, throttle, Sides::Both),
                    None => paced(link, options.bytes_per_second),
                };
                (link, None)
            }
        };

        let connection = Connection { carrier: link.carrier(), reason };
        Ok((link, connection))
    }
}

/// Runs a command at a host through the remote shell of `options`, with `input` as its standard input.
///
/// For what surrounds a run: whether a host has the program, and which. The host's login shell reads
/// `command`, so quote whatever is not constant. The answer is bounded ([`MAX_ANSWER`](crate::MAX_ANSWER)), and `time`
/// and `cancel` end the wait.
///
/// # Errors
/// [`ConnectError`]; a command that fails is none, but a [`HostAnswer::status`].
pub fn ask_host(
    (host, options): (&RemoteHost, &ConnectOptions),
    command: &str,
    input: impl Read + Send + 'static,
    time: Duration,
    cancel: &CancelToken,
) -> Result<HostAnswer, ConnectError> {
    remote_shell(host, options).ask(command, input, time, &|| cancel.is_cancelled())
}

/// Returns the line, program first, with which [`ask_host`] runs a command: to be shown to a person.
///
/// # Errors
/// [`ConnectError::UnsafeName`] and [`ConnectError::ShellNotFound`].
pub fn host_command_line(
    (host, options): (&RemoteHost, &ConnectOptions),
    command: &str,
) -> Result<Vec<OsString>, ConnectError> {
    remote_shell(host, options).command_line(command)
}

/// Asks the caller for a connection.
fn own(
    connector: &dyn Connector,
    options: &ConnectOptions,
    budget: &Arc<Budget>,
    cancel: &CancelToken,
) -> Result<Arc<dyn Link>, SyncError> {
    let connect = || {
        let stream = connector.connect(cancel)?;
        stream.into_link(StreamEnd::Controller, options.timeout, Arc::clone(budget))
    };
    let connected = catch_unwind(AssertUnwindSafe(connect));
    let connected = connected.map_err(|panic| SyncError::Aborted { message: panic_text(panic.as_ref()) })?;
    if cancel.is_cancelled() {
        return Err(SyncError::Cancelled);
    }
    connected.map_err(|source| SyncError::Connector { source })
}

fn remote_shell(host: &RemoteHost, options: &ConnectOptions) -> RemoteShell {
    RemoteShell {
        command: options.shell.clone(),
        user: host.user.clone(),
        host: host.host.clone(),
        family: options.family,
        remote_program: options.remote_program.clone(),
        pipe: options.pipe,
    }
}

fn carrier_options(
    options: &ConnectOptions,
    budget: &Arc<Budget>,
    throttle: Option<&Throttle>,
) -> dsync_transport::ConnectOptions {
    dsync_transport::ConnectOptions {
        transport: options.transport,
        idle_timeout: options.timeout,
        port_wait: port_wait(options.transport),
        greeting_timeout: options.connect_timeout,
        ports: options.ports,
        bytes_per_second: options.bytes_per_second,
        budget: Arc::clone(budget),
        throttle: throttle.cloned(),
        abandon: Abandon::default(),
    }
}

/// Connects on a thread of its own, because a remote shell may ask for a password or hang for as
/// long as it likes: a cancelled run gives it up. The thread and the shell have ended on return.
fn connect_or_cancel(
    shell: &RemoteShell,
    options: &dsync_transport::ConnectOptions,
    cancel: &CancelToken,
) -> Result<Connected, SyncError> {
    std::thread::scope(|scope| {
        let (done_tx, done) = bounded::<()>(0);
        let connect = move || {
            let _done = done_tx;
            dsync_transport::connect(shell, options)
        };
        let thread = std::thread::Builder::new()
            .name("connect".into())
            .spawn_scoped(scope, connect)
            .map_err(|source| SyncError::Thread { source })?;
        while done.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            if cancel.is_cancelled() {
                options.abandon.abandon();
            }
        }

        let connected = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // An interrupt also ends the remote shell: report what the user did, not what followed.
        if cancel.is_cancelled() { Err(SyncError::Cancelled) } else { Ok(connected?) }
    })
}

/// Returns how long to wait for an answer from a port: long where the carrier was demanded, as a
/// remote end that is only busy is better than none, and short where another carrier takes the
/// session.
fn port_wait(transport: TransportChoice) -> Duration {
    match transport {
        TransportChoice::Quic | TransportChoice::Tls => LONGEST_PORT_WAIT,
        _ => dsync_transport::ConnectOptions::default().port_wait,
    }
}

/// The most that [`dsync_transport::ConnectOptions::port_wait`] may be.
const LONGEST_PORT_WAIT: Duration = Duration::from_secs(10);
