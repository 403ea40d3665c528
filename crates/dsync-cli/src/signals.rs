//! SIGINT, SIGTERM and SIGHUP: the first cancels the run in order, another one ends the process at
//! once if it comes a second later or more: timeout(1) and a terminal that closes send two together.
//! SIGUSR1 prints the state of the run. SIGTSTP removes the bar before the process stops.
//!
//! The law: a signal that ends or stops the run is heard also while nobody reads standard error. So what
//! each signal does has a thread of its own: printing the state may take for ever.
//!
//! A signal that was ignored when dsync started stays ignored: `nohup dsync ...` must survive the
//! end of its terminal, and a background job of a shell without job control its keyboard.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{CancelToken, exit_code};
use rustix::process::Signal;
use signal_hook::{
    consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use crate::{bar::Bar, streams};

/// Makes a write beyond the limit on file sizes (`ulimit -f`) an error like others, in place of the end of
/// the process. What this process starts has the default.
pub(crate) fn let_long_writes_fail() {
    // The system has the signal, so this cannot fail.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
}

/// Lets the process hear how its children end. Whoever starts it may ignore that, as some supervisors do, and then
/// the system forgets how a remote shell ended. What this process starts has the default.
pub(crate) fn hear_children() {
    // The system has the signal, so this cannot fail.
    let _ = signal_hook::flag::register(Signal::CHILD.as_raw(), Arc::default());
}

/// Starts to watch; the threads live as long as the process.
///
/// # Errors
/// If the handlers cannot be installed or a thread cannot be started.
pub(crate) fn watch(cancel: CancelToken, bar: Arc<Bar>) -> io::Result<()> {
    let ignored = ignored_signals();
    let mut first = None;
    hear("signals", unless(ignored, [SIGINT, SIGTERM, SIGHUP]), move || {
        let since = *first.get_or_insert_with(Instant::now);
        if cancel.is_cancelled() && since.elapsed() >= TOGETHER {
            std::process::exit(i32::from(exit_code::INTERRUPTED));
        }
        streams::tell_to_end();
        cancel.cancel();
    })?;

    let shown = Arc::clone(&bar);
    hear("stop", unless(ignored, [SIGTSTP]), move || stop(&shown))?;
    hear("state", unless(ignored, [SIGUSR1]), move || bar.tell())
}

/// Returns those of these signals that are not ignored.
fn unless<const N: usize>(ignored: u64, signals: [i32; N]) -> Vec<i32> {
    signals.into_iter().filter(|&signal| !is_in(ignored, signal)).collect()
}

/// Calls `heard` on a thread of its own whenever one of these signals comes.
fn hear(name: &str, signals: Vec<i32>, mut heard: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(signals)?;
    let wait = move || signals.forever().for_each(|_| heard());
    thread::Builder::new().name(name.into()).spawn(wait).map(drop)
}

/// The time within which several signals are one wish.
const TOGETHER: Duration = Duration::from_secs(1);

/// Stops the process, as it would without a handler; returns when it goes on.
fn stop(bar: &Bar) {
    bar.pause();
    // Only a signal without a default fails here.
    let _ = emulate_default_handler(SIGTSTP);
    bar.resume();
}

/// Returns the process's set of ignored signals, bit 0 for signal 1; empty if the system does not
/// report it.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file about this process")]
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| parse_ignored(&status))
}

fn parse_ignored(status: &str) -> u64 {
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default()
}

fn is_in(set: u64, signal: i32) -> bool {
    u32::try_from(signal - 1).ok().and_then(|bit| set.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tdsync\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let set = parse_ignored(status);
        assert!(is_in(set, SIGHUP) && is_in(set, 13));
        assert!(!is_in(set, SIGINT) && !is_in(set, SIGTERM) && !is_in(set, 0) && !is_in(set, 65));
        assert_eq!(parse_ignored(""), 0);
        assert_eq!(parse_ignored("SigIgn:\tnonsense"), 0);
    }
}
