//! The way through a remote shell.

use std::{
    ffi::OsString,
    io::Read,
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use dsync_transport::{
    Carriers, ConnectError, Connected, HostAnswer, RemoteShell, Throttle, TransportChoice,
};
use dsync_wire::budget::Budget;

use crate::{CancelToken, ConnectOptions, Observer, RemoteHost, SyncError, halt::POLL, threads};

/// Connects to a host.
pub(super) fn connect(
    host: &RemoteHost,
    options: &ConnectOptions,
    (budget, throttle, carriers): (&Arc<Budget>, Option<&Throttle>, &Carriers),
    (observer, cancel): (&dyn Observer, &CancelToken),
) -> Result<Connected, SyncError> {
    let carrier = dsync_transport::ConnectOptions {
        throttle: throttle.cloned(),
        carriers: carriers.clone(),
        ..carrier_options(options, budget)
    };
    connect_or_cancel(&remote_shell(host, options), &carrier, (observer, cancel))
}

/// Runs a command at a host through the remote shell of `options`, with `input` as its standard input.
///
/// For what surrounds a run: whether a host has the program, and which. The host's login shell reads
/// `command`, so quote whatever is not constant. The answer is bounded ([`MAX_ANSWER`](crate::MAX_ANSWER)), and `time`
/// and `cancel` end the wait.
///
/// # Errors
/// [`ConnectError`]; a command that fails is none, but a [`HostAnswer::status`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use dsync_engine::{
///     CancelToken, ConnectError, ConnectOptions, HostAnswer, RemoteHost, ShellStatus,
/// };
/// use dsync_engine::{ask_host, host_command_line};
///
/// /// Asks a host for its version before the first backup.
/// fn version(host: &RemoteHost) -> Result<Option<String>, ConnectError> {
///     let (at, cancel) = ((host, &ConnectOptions::default()), CancelToken::new());
///     println!("running {:?}", host_command_line(at, "dsync --version")?);
///     let asked =
///         ask_host(at, "dsync --version", std::io::empty(), Duration::from_secs(30), &cancel);
///     let HostAnswer { status, output, .. } = asked.inspect_err(|error| {
///         println!(
///             "{error}: {} (again: {})",
///             error.shell_stderr().join(" "),
///             error.is_retryable()
///         );
///         println!("a command would end with {}", error.exit_code());
///     })?;
///     Ok((status == ShellStatus::Exited(0))
///         .then(|| String::from_utf8_lossy(&output).into_owned()))
/// }
/// ```
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

fn carrier_options(options: &ConnectOptions, budget: &Arc<Budget>) -> dsync_transport::ConnectOptions {
    dsync_transport::ConnectOptions {
        transport: options.transport,
        further: options.further,
        idle_timeout: options.timeout,
        port_wait: port_wait(options.transport),
        greeting_timeout: options.connect_timeout,
        ports: options.ports,
        bytes_per_second: options.bytes_per_second,
        budget: Arc::clone(budget),
        ..dsync_transport::ConnectOptions::default()
    }
}

/// Connects on a thread of its own, because a remote shell may ask for a password or hang for as
/// long as it likes: a cancelled run gives it up, and what it writes is told. The thread and the shell have
/// ended on return.
fn connect_or_cancel(
    shell: &RemoteShell,
    options: &dsync_transport::ConnectOptions,
    (observer, cancel): (&dyn Observer, &CancelToken),
) -> Result<Connected, SyncError> {
    let slow = Instant::now() + QUICK_LOGIN;
    std::thread::scope(|scope| {
        let (done_tx, done) = bounded::<()>(0);
        let connect = move || {
            let _done = done_tx;
            dsync_transport::connect(shell, options)
        };
        let thread = threads::spawn_scoped(scope, "connect", connect)?;
        while done.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            if cancel.is_cancelled() {
                options.abandon.abandon();
            } else if Instant::now() >= slow {
                let lines = options.shell_lines.take();
                if !lines.is_empty() {
                    observer.shell_says(&lines);
                }
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

/// Time for a login that needs nobody. What the remote shell says meanwhile (a banner, debugging) is told only
/// if the login fails.
const QUICK_LOGIN: Duration = Duration::from_secs(3);
/// The most that [`dsync_transport::ConnectOptions::port_wait`] may be.
const LONGEST_PORT_WAIT: Duration = Duration::from_secs(10);
