//! A run over a connection that may break: whole sessions, one after the other, until one comes to its end.
//!
//! A new session is a new plan. What earlier ones finished is found equal and skipped, what they left
//! unfinished is taken up where it stood, so no state has to outlive a connection but what lies beside the
//! files. The law: nothing is tried again before a session has begun (a wrong password is asked for once), nor
//! what a new connection cannot mend ([`SyncError::is_retryable`]), nor without end.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dsync_wire::{
    event::{Event, Progress},
    link::Traffic,
};

use crate::{
    CancelToken, Observer, SyncError,
    halt::{POLL, lock},
    observe::{Connection, Reconnect},
};

/// What the sessions that broke came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Earlier {
    /// How many they were.
    pub(crate) sessions: u32,
    /// What they had finished when they were last heard of.
    pub(crate) files_done: u64,
    /// Bytes that they carried.
    pub(crate) traffic: Traffic,
}

/// One session of a run, and where it tells how it fares.
pub(crate) struct Attempt<'a> {
    observer: &'a dyn Observer,
    /// True when an earlier session broke.
    pub(crate) again: bool,
    begun: AtomicBool,
    traffic: Mutex<Traffic>,
    progress: Mutex<Progress>,
}

impl Attempt<'_> {
    /// Notes that the peer is ready: from here on a lost connection is worth another one.
    pub(crate) fn note_begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Notes what the link has carried.
    pub(crate) fn note_traffic(&self, traffic: Traffic) {
        *lock(&self.traffic) = traffic;
    }
}

impl Observer for Attempt<'_> {
    fn connected(&self, connection: &Connection) {
        self.observer.connected(connection);
    }

    fn event(&self, event: &Event) {
        self.observer.event(event);
    }

    fn progress(&self, progress: &Progress) {
        *lock(&self.progress) = *progress;
        self.observer.progress(progress);
    }
}

/// Carries out sessions until one comes to its end, `retries` times in a row at most after the first.
pub(crate) fn run<T>(
    retries: u32,
    observer: &dyn Observer,
    cancel: &CancelToken,
    mut session: impl FnMut(&Attempt<'_>) -> Result<T, SyncError>,
) -> Result<(T, Earlier), SyncError> {
    let mut earlier = Earlier::default();
    let mut broke: Option<SyncError> = None;
    let mut failures = 0;
    loop {
        let attempt = Attempt {
            observer,
            again: broke.is_some(),
            begun: AtomicBool::new(false),
            traffic: Mutex::default(),
            progress: Mutex::default(),
        };
        let started = Instant::now();
        let error = match session(&attempt) {
            Ok(outcome) => return Ok((outcome, earlier)),
            Err(error) => error,
        };
        let begun = attempt.begun.into_inner();
        if cancel.is_cancelled() || !error.is_retryable() || !(begun || broke.is_some()) {
            return Err(error);
        }
        if begun && started.elapsed() >= STEADY {
            failures = 0;
        }
        earlier.add(&lock(&attempt.progress), *lock(&attempt.traffic), begun);
        if failures >= retries {
            return Err(give_up(error, broke.as_ref(), retries));
        }
        failures += 1;
        let wait = pause(failures)?;
        observer.reconnecting(&Reconnect { cause: &error, number: failures, limit: retries, wait });
        if begun || broke.is_none() {
            broke = Some(error);
        }
        sleep(wait, cancel)?;
    }
}

impl Earlier {
    fn add(&mut self, progress: &Progress, traffic: Traffic, begun: bool) {
        self.sessions += u32::from(begun);
        self.files_done = self.files_done.saturating_add(progress.files_done);
        self.traffic = Traffic::new(
            self.traffic.sent_bytes.saturating_add(traffic.sent_bytes),
            self.traffic.received_bytes.saturating_add(traffic.received_bytes),
        );
    }
}

/// The error of a run that could not be brought to its end. What broke the last session decides the exit
/// code; why no other followed is in the words.
fn give_up(last: SyncError, broke: Option<&SyncError>, retries: u32) -> SyncError {
    if retries == 0 {
        return last;
    }
    let exit_code = broke.unwrap_or(&last).exit_code();
    SyncError::GaveUp { retries, exit_code, source: Box::new(last) }
}

/// How long to wait before the `number`th try in a row: doubling, and up to a quarter more or less, so that
/// many runs that lost one server do not come back as one.
fn pause(number: u32) -> Result<Duration, SyncError> {
    let random = getrandom::u32().map_err(|error| SyncError::Random { source: error.into() })?;
    Ok(pause_for(number, random))
}

fn pause_for(number: u32, random: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << number.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
    let quarter = doubled / 4;
    doubled - quarter + (2 * quarter) * (random >> 16) / (1 << 16)
}

fn sleep(time: Duration, cancel: &CancelToken) -> Result<(), SyncError> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if cancel.is_cancelled() {
            return Err(SyncError::Cancelled);
        }
        std::thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// A killed process is back at once; a network is not.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// With five tries the pauses come to half a minute, besides the time that connecting takes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A session that lasted so long was none of the failures in a row.
const STEADY: Duration = Duration::from_secs(60);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use dsync_wire::link::LinkError;

    use super::*;
    use crate::Silent;

    fn lost() -> SyncError {
        SyncError::Link(LinkError::Lost)
    }

    #[test]
    fn nothing_is_tried_again_before_a_session_has_begun() {
        let tries = Cell::new(0);
        let result = run(5, &Silent, &CancelToken::new(), |_| {
            tries.set(tries.get() + 1);
            Err::<(), _>(lost())
        });
        assert!(matches!(result, Err(SyncError::Link(LinkError::Lost))));
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn what_a_new_connection_cannot_mend_is_not_tried_again() {
        let tries = Cell::new(0);
        let result = run(5, &Silent, &CancelToken::new(), |attempt| {
            attempt.note_begun();
            tries.set(tries.get() + 1);
            Err::<(), _>(SyncError::Peer { exit_code: 11, text: "the disk is full".into() })
        });
        assert_eq!(result.unwrap_err().exit_code(), 11);
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn a_broken_session_is_followed_by_another_and_both_are_counted() {
        let outcome = run(1, &Silent, &CancelToken::new(), |attempt| {
            attempt.note_begun();
            attempt.note_traffic(Traffic::new(7, 5));
            attempt.progress(&Progress { files_done: 3, ..Progress::default() });
            if attempt.again { Ok("done") } else { Err(lost()) }
        });
        let (outcome, earlier) = outcome.unwrap();
        assert_eq!((outcome, earlier.sessions, earlier.files_done), ("done", 1, 3));
        assert_eq!(earlier.traffic, Traffic::new(7, 5));
    }

    #[test]
    fn giving_up_keeps_the_exit_code_of_what_broke() {
        let result = run(1, &Silent, &CancelToken::new(), |attempt| {
            if attempt.again {
                return Err::<(), _>(lost());
            }
            attempt.note_begun();
            Err(SyncError::Timeout { after: Duration::from_secs(60) })
        });
        assert_eq!(result.unwrap_err().exit_code(), crate::exit_code::TIMEOUT);
    }

    #[test]
    fn pauses_double_up_to_half_a_minute_give_or_take_a_quarter() {
        for number in 1..100 {
            let doubled = Duration::from_secs((1_u64 << (number - 1).min(5)).min(30));
            assert_eq!(pause_for(number, 0), doubled * 3 / 4);
            assert!(pause_for(number, u32::MAX) <= doubled * 5 / 4);
        }
    }
}
