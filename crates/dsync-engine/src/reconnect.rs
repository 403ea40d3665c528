//! A run over a connection that may break: whole sessions, one after the other, until one ends
//! well.
//!
//! A new session is a new plan. Files that earlier ones finished are found equal and skipped,
//! unfinished files are taken up where they stood, so no state has to outlive a connection but the
//! parts beside the files, and the time when the run began. What a run does once, its sessions do once
//! together: a backup that is as young as the run stays, also of a file that is never found equal, and
//! under a limit, of which nobody knows how much is used up, nothing more is removed.
//!
//! The law: nothing is tried again before a session has begun (a wrong password is asked for once), nor
//! after an error that a new connection cannot mend ([`SyncError::may_reconnect`]), nor without end:
//! failures in a row are counted, and only a session that made progress for a minute ends the row. One
//! that broke after a minute of silence does not.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use dsync_wire::{
    event::{Event, Progress},
    link::Traffic,
    options::{DeleteLimit, SyncOptions},
};

use crate::{
    CancelToken, Fault, Observer, SyncError,
    halt::{POLL, lock},
    observe::{Connection, FileProgress, Reconnect},
};

/// The sum of the sessions that broke.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Earlier {
    /// Number of these sessions.
    pub(crate) sessions: u32,
    /// Files that they had finished by their last progress.
    pub(crate) files_done: u64,
    /// Bytes that they carried.
    pub(crate) traffic: Traffic,
}

/// One session of a run, and where it tells how it fares.
pub(crate) struct Attempt<'a> {
    observer: &'a dyn Observer,
    clock: &'a dyn Clock,
    /// Time when the run began, if an earlier session of it broke.
    began: Option<Instant>,
    traffic: Mutex<Traffic>,
    life: Mutex<Life>,
}

/// The course of a session.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    begun: Option<Instant>,
    /// Time when something was last finished or carried.
    advanced: Option<Instant>,
    progress: Progress,
}

impl Life {
    /// Returns whether it made progress for so long that its end is the first failure of a new row.
    fn was_steady(&self) -> bool {
        let lasted = self.begun.zip(self.advanced).map(|(from, to)| to.saturating_duration_since(from));
        lasted.is_some_and(|lasted| lasted >= STEADY)
    }
}

/// Time, so that tests need none.
pub(crate) trait Clock: Sync {
    fn now(&self) -> Instant;

    /// Waits; shorter when the run is cancelled.
    fn sleep(&self, time: Duration, cancel: &CancelToken);
}

/// The system's clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration, cancel: &CancelToken) {
        let until = Instant::now() + time;
        while Instant::now() < until && !cancel.is_cancelled() {
            std::thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
    }
}

impl Attempt<'_> {
    /// Returns the age of the run if an earlier session of it broke.
    pub(crate) fn again(&self) -> Option<Duration> {
        self.began.map(|began| self.clock.now().saturating_duration_since(began))
    }

    /// Returns the options of this session. Nobody knows how many deletions the sessions that broke have
    /// made, so no more are made under a limit. Else a source that breaks connections could have as many
    /// removed by each.
    pub(crate) fn options(&self, run: &SyncOptions) -> SyncOptions {
        let mut options = run.clone();
        if self.began.is_some() && options.max_delete.is_some() && !options.dry_run {
            options.max_delete = Some(DeleteLimit::Entries(0));
        }
        options
    }

    /// Notes that the peer is ready: from here on a lost connection is worth another one.
    pub(crate) fn note_begun(&self, peer_lacks: &[String]) {
        self.begin();
        if !peer_lacks.is_empty() {
            self.observer.peer_lacks(peer_lacks);
        }
    }

    /// Returns whether the peer was ready.
    pub(crate) fn has_begun(&self) -> bool {
        lock(&self.life).begun.is_some()
    }

    fn begin(&self) {
        lock(&self.life).begun = Some(self.clock.now());
    }

    /// Notes the bytes that the link has carried.
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

    fn file(&self, file: &FileProgress) {
        self.observer.file(file);
    }

    fn progress(&self, progress: &Progress) {
        let mut life = lock(&self.life);
        // Comparisons do not count: the next session compares everything again.
        let reached = |progress: &Progress| (progress.files_done, progress.bytes_done);
        if reached(progress) != reached(&life.progress) {
            life.advanced = Some(self.clock.now());
        }
        life.progress = *progress;
        drop(life);
        self.observer.progress(progress);
    }
}

/// Runs sessions until one ends well, with at most `retries` tries in a row after the first.
pub(crate) fn run<T>(
    retries: u32,
    observer: &dyn Observer,
    cancel: &CancelToken,
    clock: &dyn Clock,
    mut session: impl FnMut(&Attempt<'_>) -> Result<T, SyncError>,
) -> Result<(T, Earlier), SyncError> {
    let (began, mut earlier) = (clock.now(), Earlier::default());
    let mut broke: Option<SyncError> = None;
    let (mut failures, mut tries) = (0, 0);
    let mut broke_at = began;

    loop {
        let attempt = Attempt {
            observer,
            clock,
            began: broke.is_some().then_some(began),
            traffic: Mutex::default(),
            life: Mutex::default(),
        };
        let error = match session(&attempt) {
            Ok(outcome) => return Ok((outcome, earlier)),
            Err(error) => error,
        };
        let life = *lock(&attempt.life);
        let begun = life.begun.is_some();
        // A terminal's Ctrl-C ends the remote shell as well, so the connection with it.
        if cancel.is_cancelled() && error.fault() == Fault::Connection {
            return Err(SyncError::Cancelled);
        }
        if cancel.is_cancelled() || !error.may_reconnect() || !(begun || broke.is_some()) {
            return Err(error);
        }

        if life.was_steady() {
            (failures, tries) = (0, 0);
        }
        if begun {
            broke_at = clock.now();
        }
        earlier.add(&life.progress, *lock(&attempt.traffic), begun);

        // The session that broke holds the place of this one until the other end misses its signs of life: that
        // is no failure of the network's.
        let holds_place = matches!(&error, SyncError::Connect(error) if error.is_busy())
            && clock.now().saturating_duration_since(broke_at) < MISSED;
        if failures >= retries && !holds_place {
            return Err(give_up(error, broke.as_ref(), retries));
        }
        failures += u32::from(!holds_place);
        tries += 1;
        let wait = pause(tries)?;
        observer.reconnecting(&Reconnect { cause: &error, number: failures, limit: retries, wait });
        if begun || broke.is_none() {
            broke = Some(error);
        }

        clock.sleep(wait, cancel);
        if cancel.is_cancelled() {
            return Err(SyncError::Cancelled);
        }
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

/// Returns the error of a run that did not end well. The error that broke the last session decides
/// the exit code; the words say why no other session followed.
fn give_up(last: SyncError, broke: Option<&SyncError>, retries: u32) -> SyncError {
    if retries == 0 {
        return last;
    }
    let exit_code = broke.unwrap_or(&last).exit_code();
    SyncError::GaveUp { retries, exit_code, source: Box::new(last) }
}

/// Returns the time to wait before the `number`th try in a row: doubling, and up to a quarter more
/// or less, so that many runs that lost one server do not come back as one.
fn pause(number: u32) -> Result<Duration, SyncError> {
    let random = getrandom::u32().map_err(|error| SyncError::Random { source: error.into() })?;
    Ok(pause_for(number, random))
}

fn pause_for(number: u32, random: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << number.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
    let quarter = doubled / 4;
    doubled - quarter + (2 * quarter) * (random >> 16) / (1 << 16)
}

/// A killed process is back at once; a network is not.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// With five tries the pauses add up to half a minute, besides the time that connecting takes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time after which the other end has missed a session that broke, by its default timeout, and has ended it.
const MISSED: Duration = Duration::from_secs(63);
/// A session that got ahead for so long was none of the failures in a row.
const STEADY: Duration = Duration::from_secs(60);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use dsync_wire::{link::LinkError, message::Reason};

    use super::*;
    use crate::Silent;

    /// A clock that moves only when somebody waits.
    struct FakeClock {
        start: Instant,
        passed: Mutex<Duration>,
    }

    impl FakeClock {
        fn new() -> Self {
            Self { start: Instant::now(), passed: Mutex::default() }
        }

        fn pass(&self, time: Duration) {
            *lock(&self.passed) += time;
        }
    }

    impl Clock for FakeClock {
        fn now(&self) -> Instant {
            self.start + *lock(&self.passed)
        }

        fn sleep(&self, time: Duration, _cancel: &CancelToken) {
            self.pass(time);
        }
    }

    fn run<T>(
        retries: u32,
        session: impl FnMut(&Attempt<'_>) -> Result<T, SyncError>,
    ) -> Result<(T, Earlier), SyncError> {
        super::run(retries, &Silent, &CancelToken::new(), &FakeClock::new(), session)
    }

    fn lost() -> SyncError {
        SyncError::Link(LinkError::Lost)
    }

    #[test]
    fn nothing_is_tried_again_before_a_session_has_begun() {
        let tries = Cell::new(0);
        let result = run(5, |_| {
            tries.set(tries.get() + 1);
            Err::<(), _>(lost())
        });
        assert!(matches!(result, Err(SyncError::Link(LinkError::Lost))));
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn a_place_that_the_broken_session_holds_is_waited_for_and_no_failure() {
        let clock = FakeClock::new();
        let sessions = |free_after: u64| {
            super::run(1, &Silent, &CancelToken::new(), &clock, |attempt| {
                if attempt.again().is_none() {
                    attempt.begin();
                    return Err(lost());
                }
                if attempt.again() >= Some(Duration::from_secs(free_after)) {
                    return Ok(());
                }
                clock.pass(Duration::from_secs(2));
                let (program, status) = ("dsync".to_owned(), dsync_transport::ShellStatus::Exited(41));
                let busy = dsync_transport::ConnectError::ShellFailed { program, status, stderr: Vec::new() };
                Err(SyncError::Connect(busy))
            })
        };
        assert!(sessions(60).is_ok());
        // Another client has it.
        assert!(matches!(sessions(600), Err(SyncError::GaveUp { .. })));
    }

    #[test]
    fn what_a_new_connection_cannot_mend_is_not_tried_again() {
        let tries = Cell::new(0);
        let result = run(5, |attempt| {
            attempt.begin();
            tries.set(tries.get() + 1);
            Err::<(), _>(SyncError::Peer {
                exit_code: 11,
                text: "the disk is full".into(),
                reason: Reason::NoSpace,
            })
        });
        assert_eq!(result.unwrap_err().exit_code(), 11);
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn a_broken_session_is_followed_by_another_and_both_are_counted() {
        let outcome = run(1, |attempt| {
            attempt.begin();
            attempt.note_traffic(Traffic::new(7, 5));
            attempt.progress(&Progress::default().files_done(3));
            if attempt.again().is_some() { Ok("done") } else { Err(lost()) }
        });
        let (outcome, earlier) = outcome.unwrap();
        assert_eq!((outcome, earlier.sessions, earlier.files_done), ("done", 1, 3));
        assert_eq!(earlier.traffic, Traffic::new(7, 5));
    }

    #[test]
    fn a_limit_of_deletions_is_used_up_when_a_session_broke() {
        let ten = SyncOptions::default().max_delete(Some(DeleteLimit::Entries(10)));
        let share = SyncOptions::default().max_delete(Some(DeleteLimit::Percent(50)));
        let whole = ten.clone().delete_all_or_nothing(true);
        let dry = ten.clone().dry_run(true);
        let outcome = run(1, |attempt| {
            let limits = [&ten, &share, &whole, &dry].map(|options| attempt.options(options).max_delete);
            attempt.begin();
            if attempt.again().is_some() { Ok(limits) } else { Err(lost()) }
        });
        let [used_up, ten] = [0, 10].map(|limit| Some(DeleteLimit::Entries(limit)));
        assert_eq!(outcome.unwrap().0, [used_up, used_up, used_up, ten]);
    }

    #[test]
    fn the_age_of_a_run_counts_from_its_first_session() {
        let ages = Mutex::new(Vec::new());
        let clock = FakeClock::new();
        let session = |attempt: &Attempt<'_>| {
            lock(&ages).push(attempt.again());
            attempt.begin();
            clock.pass(Duration::from_secs(10));
            if lock(&ages).len() == 3 { Ok(()) } else { Err(lost()) }
        };
        super::run(5, &Silent, &CancelToken::new(), &clock, session).unwrap();
        let ages = ages.into_inner().unwrap();
        assert_eq!(ages[0], None);
        // Ten seconds each, and the pauses between them.
        assert!(
            ages[1] > Some(Duration::from_secs(10)) && ages[1] < Some(Duration::from_secs(12)),
            "{ages:?}"
        );
        assert!(
            ages[2] > Some(Duration::from_secs(21)) && ages[2] < Some(Duration::from_secs(25)),
            "{ages:?}"
        );
    }

    #[test]
    fn giving_up_keeps_the_exit_code_of_what_broke() {
        let result = run(1, |attempt| {
            if attempt.again().is_some() {
                return Err::<(), _>(lost());
            }
            attempt.begin();
            Err(SyncError::Timeout { after: Duration::from_secs(60) })
        });
        assert_eq!(result.unwrap_err().exit_code(), crate::exit_code::TIMEOUT);
    }

    /// Sessions that all break, each after `seconds` in which every one brings `bytes`; how many it
    /// took to give up with two retries, or a hundred.
    fn sessions_until_given_up(seconds: u64, bytes: u64) -> u32 {
        let clock = FakeClock::new();
        let tries = Cell::new(0);
        let result = super::run(2, &Silent, &CancelToken::new(), &clock, |attempt| {
            attempt.begin();
            tries.set(tries.get() + 1);
            for second in 1..=seconds {
                clock.pass(Duration::from_secs(1));
                let progress = Progress::default().entries_checked(second).bytes_done(second * bytes);
                attempt.progress(&progress);
            }
            if tries.get() == 100 { Ok(()) } else { Err(lost()) }
        });
        assert_eq!(result.is_ok(), tries.get() == 100);
        tries.get()
    }

    #[test]
    fn a_session_that_got_ahead_for_a_minute_begins_a_new_row_of_failures() {
        assert_eq!(sessions_until_given_up(60, 1), 100);
        assert_eq!(sessions_until_given_up(59, 1), 3);
    }

    #[test]
    fn a_session_that_lasted_without_getting_ahead_is_one_more_failure() {
        assert_eq!(sessions_until_given_up(600, 0), 3);
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
