//! The start of a session, equal for both roles: the first messages, the session key, signs of
//! life.
//!
//! The controller opens the control lane and sends [`Hello`] and [`Start`], and as the source goes
//! on with its listing. The peer answers with its own hello and, once it has opened its operands,
//! with `Ready`. Both hellos carry 32 random bytes; the session key is derived from both, so
//! neither end can choose it alone, and no content can be prepared to collide under it.

mod beginning;
mod life;

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use dsync_delta::Key;
use dsync_fs::{FileList, Timestamp, filesystem_time};
use dsync_transport::Throttle;
use dsync_wire::{
    budget::{Budget, Held, Share},
    codec::decode_start,
    error::DecodeError,
    event::Report,
    frame::{ControlReceiver, ControlSender, RecvError},
    limits::{MAX_READY_TEXT, MAX_START},
    link::{CloseReason, Link, LinkError},
    message::{ControlMessage, Fatal, Hello, ListPlace, PeerRole, Reason, Start},
    options::SyncOptions,
    state::{DestinationInbox, PeerInbox, SourceInbox},
    version::{FEATURES, REASONS, SPANS, VERSION},
};

pub(crate) use self::beginning::NO_TIMEOUT;
use self::{
    beginning::{Patience, watched},
    life::Life,
};
use crate::{
    CancelToken, Grant, State, SyncError, Tally, Workers,
    batch::Recording,
    clock::Beating,
    content::Contents,
    error::Wording,
    exit_code,
    halt::{Halt, lock},
    misbehaved::{PeerMisbehaved, misbehaved},
    names,
    resources::Allowance,
    schedule::{Point, point},
    span::SpanKey,
    workers::Extra,
};

/// Interval of progress messages and signs of life.
pub(crate) const PULSE: Duration = Duration::from_millis(250);

/// Bytes per second at which a file is read at least.
const SLOWEST_READ: u64 = 8 << 20;

/// Time that a source may hash files before it lists the next one.
const UNSEEN_HASHING: Duration = Duration::from_secs(24 * 3600);

/// Time that messages wait for others of a busy thread, in microseconds: some hundred entries are
/// listed or planned meanwhile, and no path is so short that it matters.
const NOW_AND_THEN_US: u64 = 1000;

/// The sending half of the control lane, shared by an end's threads.
pub(crate) struct ControlOut {
    /// `None` after this end's last message: signs of life that come later are not sent.
    sender: Mutex<Option<ControlSender>>,
    /// Time when queued messages last went, in microseconds since `opened`.
    flushed_us: AtomicU64,
    opened: Instant,
    /// The batch that the listing is recorded in.
    recording: OnceLock<Recording>,
    /// Set by each message but signs of life, and by all other progress; the watch clears it.
    moved: AtomicBool,
}

impl ControlOut {
    /// Shares the sending half of the control lane.
    pub(crate) fn new(sender: ControlSender) -> Self {
        let (flushed_us, opened) = (AtomicU64::new(0), Instant::now());
        let (moved, recording) = (AtomicBool::new(true), OnceLock::new());
        Self { sender: Mutex::new(Some(sender)), flushed_us, opened, recording, moved }
    }

    /// Records the listing that is sent from here on.
    pub(crate) fn record(&self, recording: Recording) {
        let _ = self.recording.set(recording);
    }

    /// Notes that the run makes progress.
    pub(crate) fn note_progress(&self) {
        self.moved.store(true, Ordering::Relaxed);
    }

    fn note_sent(&self, message: &ControlMessage) -> Result<(), SyncError> {
        if !matches!(message, ControlMessage::Alive | ControlMessage::Progress(_)) {
            self.note_progress();
        }
        self.recording.get().map_or(Ok(()), |recording| recording.message(message))
    }

    /// Sends one message.
    pub(crate) fn send(&self, message: &ControlMessage) -> Result<(), SyncError> {
        self.note_sent(message)?;
        match lock(&self.sender).as_mut() {
            Some(sender) => Ok(sender.send(message)?),
            None => Ok(()),
        }
    }

    /// Sends one message together with others: at the latest when the next one is
    /// [sent](Self::send). Between two processes the pulse does that several times a second; the source
    /// of a local run has none, and flushes what must not wait.
    pub(crate) fn queue(&self, message: &ControlMessage) -> Result<(), SyncError> {
        self.note_sent(message)?;
        match lock(&self.sender).as_mut() {
            Some(sender) => Ok(sender.queue(message)?),
            None => Ok(()),
        }
    }

    /// Sends the queued messages.
    pub(crate) fn flush(&self) -> Result<(), SyncError> {
        match lock(&self.sender).as_mut() {
            Some(sender) => Ok(sender.flush()?),
            None => Ok(()),
        }
    }

    /// Sends the queued messages unless that was done a moment ago, for a caller that comes again
    /// soon: many small pieces of work cost one call, and one wake-up there, and a slow one goes at
    /// once.
    pub(crate) fn flush_now_and_then(&self) -> Result<(), SyncError> {
        let now = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        if now.saturating_sub(self.flushed_us.load(Ordering::Relaxed)) < NOW_AND_THEN_US {
            return Ok(());
        }
        self.flushed_us.store(now, Ordering::Relaxed);
        self.flush()
    }

    /// Sends this end's last message.
    pub(crate) fn send_last(&self, message: &ControlMessage) -> Result<(), SyncError> {
        if let Some(mut sender) = lock(&self.sender).take() {
            sender.send(message)?;
            // The peer may hang up as soon as it has read the message.
            let _ = sender.finish();
        }
        Ok(())
    }
}

/// A session whose two ends know each other; shared by an end's threads.
pub(crate) struct Session {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) options: SyncOptions,
    pub(crate) data_lanes: usize,
    /// The time when the run began, by this end's filesystems, if an earlier session of it broke: the far
    /// end of that one may not have noticed yet.
    pub(crate) begun: Option<Timestamp>,
    pub(crate) control: Arc<ControlOut>,
    pub(crate) halt: Arc<Halt>,
    /// The account of what the peer makes this end hold.
    pub(crate) budget: Arc<Budget>,
    /// The bytes of a long task that the controller sent.
    #[expect(dead_code, reason = "held for the session, and dropped with it")]
    task: Option<Held>,
    /// The places of this end's lanes beyond the first one.
    #[expect(dead_code, reason = "held for the session, and dropped with it")]
    further_lanes: Vec<Extra>,
    /// The threads for sums and details, and for what sessions do now and then.
    pub(crate) workers: Workers,
    /// The speed of what is copied without a link.
    pub(crate) throttle: Option<Throttle>,
    /// The contents that are known of earlier runs.
    pub(crate) state: Option<State>,
    /// The rights of the peer where it is a stranger.
    pub(crate) grant: Option<Arc<Grant>>,
    /// The session's counts.
    pub(crate) tally: Tally,
    /// Sentences of the peer on what its system lacks to confine it.
    peer_lacks: Mutex<Vec<String>>,
    /// The token that ends the session before its watch begins.
    cancel: CancelToken,
    vitals: Arc<Vitals>,
}

/// The peer's signs of life and its progress.
struct Vitals {
    life: Arc<Life>,
    /// Whether the caller's observer keeps this end from listening.
    aside: AtomicBool,
    timeout: Duration,
    /// Longest time without progress at either end, by this end's own measure.
    stall: Duration,
    /// The longest file that this end may have to read at once, in bytes.
    longest: AtomicU64,
    /// The work that the peer's last progress message counted.
    told: AtomicU64,
}

/// The terms of a session, besides its link.
pub(crate) struct Terms {
    /// The peer's role.
    pub(crate) role: PeerRole,
    /// The run's policy.
    pub(crate) options: SyncOptions,
    /// Longest silence of the peer.
    pub(crate) timeout: Duration,
    /// The age of the run if an earlier session of it broke.
    pub(crate) again: Option<Duration>,
    /// The session's share of this machine.
    pub(crate) allowance: Allowance,
    /// The place of the list of the paths to copy.
    pub(crate) list: ListPlace,
    /// Whether the peer's listing is recorded, so that nothing may stand for a stretch of it.
    pub(crate) is_recorded: bool,
    /// The token that ends the session before its watch begins.
    pub(crate) cancel: CancelToken,
}

/// The receiving half of the control lane of a source.
pub(crate) struct SourceMail {
    pub(crate) receiver: ControlReceiver,
    pub(crate) order: SourceInbox,
    pub(crate) keying: Keying,
    /// Present where both ends know spans.
    pub(crate) spans: Option<SpanKey>,
    /// The destination's feature bits, as far as they are known before it says anything.
    pub(crate) features: u64,
}

/// The state of the agreement on the session's key.
pub(crate) enum Keying {
    /// Both hellos were said.
    Agreed(Key),
    /// This end is the controller, has said this, and waits for the peer's.
    Offered(Hello),
}

/// The receiving half of the control lane of a destination.
pub(crate) struct DestinationMail {
    pub(crate) receiver: ControlReceiver,
    pub(crate) order: DestinationInbox,
    pub(crate) key: Key,
    /// Present where both ends know spans.
    pub(crate) spans: Option<SpanKey>,
    /// The source's feature bits.
    pub(crate) features: u64,
}

/// A peer that has received its task and has not answered yet.
pub(crate) struct Invitation {
    /// The session to be.
    pub(crate) session: Session,
    /// Its control messages.
    pub(crate) receiver: ControlReceiver,
    /// The session's key.
    pub(crate) key: Key,
    /// The controller's hello, and this end's.
    pub(crate) hellos: (Hello, Hello),
    /// This end's role.
    pub(crate) role: PeerRole,
    /// The place of the list of the paths to copy.
    pub(crate) list: ListPlace,
}

impl Session {
    /// Starts a session as its controller and source. Does not wait for the peer, which may hear
    /// the listing as soon as it knows its task: on a long path that saves a round trip.
    pub(crate) fn start_source(link: Arc<dyn Link>, terms: Terms) -> Result<(Self, SourceMail), SyncError> {
        let (session, receiver, ours) = Self::start(link, terms)?;
        // The peer's hello has not come.
        let features = session.link.features();
        let (order, spans) = (SourceInbox::controller(), span_key(features, &ours));
        let mail = SourceMail { receiver, order, keying: Keying::Offered(ours), spans, features };
        Ok((session, mail))
    }

    /// Starts a session as its controller and destination; sends a list of the paths to copy, if
    /// there is one. Returns when the peer is ready.
    pub(crate) fn start_destination(
        link: Arc<dyn Link>,
        terms: Terms,
        list: Option<&FileList>,
    ) -> Result<(Self, DestinationMail), SyncError> {
        let is_recorded = terms.is_recorded;
        let (session, mut receiver, ours) = Self::start(link, terms)?;
        // A source that refuses the run says why before it hangs up.
        let sent = list.map_or(Ok(()), |list| names::send(&session, list));

        let mut order = DestinationInbox::controller();
        let (mut spans, mut features) = (None, 0);
        let mut hear = || {
            session.hear_ready(&mut receiver, &ours, |message| {
                if let ControlMessage::Hello(theirs) = message {
                    spans = span_key(theirs.features, theirs).filter(|_| !is_recorded);
                    features = theirs.features;
                }
                Ok(order.check(message)?)
            })
        };
        let key = match session.while_hearing(&mut hear) {
            Err(SyncError::Link(_)) if sent.is_err() => {
                return Err(sent.err().unwrap_or(SyncError::Link(LinkError::Closed)));
            }
            key => key?,
        };

        Ok((session, DestinationMail { receiver, order, key, spans, features }))
    }

    /// Sends, as the controller, the task of the session. Returns the hello that this end has sent.
    fn start(link: Arc<dyn Link>, terms: Terms) -> Result<(Self, ControlReceiver, Hello), SyncError> {
        let lane = link.open_lane()?;
        let life = Life::new();
        let (mut sender, receiver) = (ControlSender::new(lane.tx), life.receiver(lane.rx));
        let mut ours = new_hello()?;
        if terms.is_recorded {
            ours.features &= !SPANS;
        }
        let (data_lanes, further_lanes) = lanes(link.as_ref(), &terms.allowance.workers);
        let start = Start {
            role: terms.role.clone(),
            options: terms.options.clone(),
            data_lanes: u8::try_from(data_lanes).unwrap_or(u8::MAX),
            again: terms.again,
            list: terms.list.clone(),
        };
        sender.send(&ControlMessage::Hello(ours.clone()))?;
        sender.send_start(start)?;
        let session = Self::assemble((link, life), data_lanes, sender, terms);
        Ok((Self { further_lanes, ..session }, receiver, ours))
    }

    /// Hears what a step of the session's beginning waits for, unless the run is cancelled meanwhile:
    /// the peer may not be silent for long, and may not be busy without an end.
    pub(crate) fn while_hearing<T>(
        &self,
        step: impl FnOnce() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        self.with_patience(Patience { step: self.vitals.stall, silence: Some(self.timeout()) }, step)
    }

    /// Sends a message of the session's beginning, unless the run is cancelled meanwhile. A message
    /// may take long at a low rate, and a peer that listens says nothing.
    pub(crate) fn while_sending<T>(
        &self,
        step: impl FnOnce() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        self.with_patience(Patience { step: self.vitals.stall, silence: None }, step)
    }

    fn with_patience<T>(
        &self,
        patience: Patience,
        step: impl FnOnce() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        if patience.is_endless() && self.grant.is_none() {
            return step();
        }
        let began = Instant::now();
        let check = || {
            self.check_hours()?;
            patience.check(began, &self.vitals.life, &self.cancel)
        };
        watched(check, |error| self.cut(error), step)
    }

    /// Does this end's own work before the watch begins. Once the hours of the peer's grant are over
    /// it is told, and hears nothing of what the work ends with.
    pub(crate) fn in_hours<T>(&self, work: impl FnOnce() -> Result<T, SyncError>) -> Result<T, SyncError> {
        match self.grant {
            Some(_) => watched(|| self.check_hours(), |error| self.cut(error), work),
            None => work(),
        }
    }

    /// Checks that the hours of the peer's grant are not over.
    fn check_hours(&self) -> Result<(), SyncError> {
        self.grant.as_ref().map_or(Ok(()), |grant| grant.check_time())
    }

    /// Closes the link for this error; a peer whose hours are over hears of it first.
    fn cut(&self, error: &SyncError) {
        match self.check_hours() {
            Err(over) if matches!(error, SyncError::LimitExceeded { .. }) => self.halt.fail(over),
            _ => self.link.close(cut_for(error)),
        }
    }

    /// Waits, as the controller, for the peer to be ready. Returns the session's key. Whoever calls
    /// this [watches](Self::while_hearing) over the time.
    pub(crate) fn hear_ready(
        &self,
        receiver: &mut ControlReceiver,
        ours: &Hello,
        mut check: impl FnMut(&ControlMessage) -> Result<(), SyncError>,
    ) -> Result<Key, SyncError> {
        let mut key = None;
        loop {
            let message = self.hear(receiver)?;
            check(&message)?;

            match message {
                ControlMessage::Hello(theirs) => {
                    check_version(&theirs)?;
                    self.halt.know_peer(theirs.features);
                    key = Some(Key::derive(&[&ours.key_share, &theirs.key_share]));
                }
                // The order of messages has no Ready without a Hello.
                ControlMessage::Ready { ref lacks } => {
                    *lock(&self.peer_lacks) = sentences(lacks);
                    return key.ok_or_else(|| unexpected(&message));
                }
                _ => {}
            }
        }
    }

    /// Reports, as the peer, that this end is ready, and what its system lacks to confine it.
    pub(crate) fn say_ready(&self, lacks: &[String]) -> Result<(), SyncError> {
        let mut text = lacks.join("\n");
        let end = (0..=MAX_READY_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
        self.control.send(&ControlMessage::Ready { lacks: text.into_bytes() })
    }

    /// Returns the peer's sentences on what its system lacks to confine it.
    pub(crate) fn peer_lacks(&self) -> Vec<String> {
        lock(&self.peer_lacks).clone()
    }

    /// Receives, as the peer, the task of the session.
    pub(crate) fn accept(
        link: Arc<dyn Link>,
        timeout: Duration,
        allowance: Allowance,
        cancel: &CancelToken,
    ) -> Result<Invitation, SyncError> {
        let (life, began) = (Life::new(), Instant::now());
        let opening = || {
            let lane = link.accept_lane()?;
            let mut receiver = life.receiver(lane.rx);
            match hear_start(&mut receiver, &allowance.budget) {
                Ok((theirs, start, held)) => Ok((ControlSender::new(lane.tx), receiver, theirs, start, held)),
                Err(error) => Err(tell(&link, ControlSender::new(lane.tx), error)),
            }
        };

        // A client that shows signs of life gets no further with a long silence that it asks for
        // itself.
        let patience = Patience { step: allowance.stall, silence: Some(timeout.min(allowance.stall)) };
        let check = || patience.check(began, &life, cancel);
        let (mut sender, receiver, theirs, start, held) =
            watched(check, |error| link.close(cut_for(error)), opening)?;

        let ours = new_hello()?;
        sender.send(&ControlMessage::Hello(ours.clone()))?;
        let key = Key::derive(&[&theirs.key_share, &ours.key_share]);
        let lanes = usize::from(start.data_lanes);
        let Start { role, options, again, list, .. } = start;
        let (task, list_place, is_recorded) = (role.clone(), list.clone(), false);
        let cancel = cancel.clone();
        let terms =
            Terms { role: task, options, timeout, again, allowance, list: list_place, is_recorded, cancel };
        let session = Self { task: Some(held), ..Self::assemble((link, life), lanes, sender, terms) };
        session.halt.know_peer(theirs.features);
        Ok(Invitation { session, receiver, key, hellos: (theirs, ours), role, list })
    }

    fn assemble(
        (link, life): (Arc<dyn Link>, Arc<Life>),
        data_lanes: usize,
        sender: ControlSender,
        terms: Terms,
    ) -> Self {
        let Terms {
            options,
            cancel,
            timeout,
            again,
            allowance: Allowance { budget, stall, workers, throttle, state },
            ..
        } = terms;
        let control = Arc::new(ControlOut::new(sender));

        Self {
            halt: Arc::new(Halt::new(Arc::clone(&link), Arc::clone(&control))),
            link,
            budget,
            task: None,
            further_lanes: Vec::new(),
            workers,
            throttle,
            state,
            options,
            data_lanes,
            begun: again.map(|age| filesystem_time().earlier_by(age)),
            control,
            grant: None,
            tally: Tally::default(),
            peer_lacks: Mutex::default(),
            cancel,
            vitals: Arc::new(Vitals {
                life,
                aside: AtomicBool::new(false),
                timeout,
                stall,
                longest: AtomicU64::new(0),
                told: AtomicU64::new(0),
            }),
        }
    }

    /// Receives the next control message; notes that the peer is alive. A fatal message of the peer
    /// is an error here.
    pub(crate) fn hear(&self, inbox: &mut ControlReceiver) -> Result<ControlMessage, SyncError> {
        let message = next(inbox)?;
        point(Point::Receive);
        self.note_alive();
        match &message {
            ControlMessage::Alive => {}
            // Sent several times a second, with or without progress.
            ControlMessage::Progress(progress) => {
                let told = progress.work();
                if self.vitals.told.swap(told, Ordering::Relaxed) != told {
                    self.note_progress();
                }
            }
            _ => self.note_progress(),
        }
        Ok(message)
    }

    /// Notes that the run makes progress.
    pub(crate) fn note_progress(&self) {
        self.control.note_progress();
    }

    /// Notes a file that may have to be read from end to end before any message about it.
    pub(crate) fn note_length(&self, bytes: u64) {
        self.vitals.longest.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Returns the contents of this end's files.
    pub(crate) fn contents(&self) -> Contents<'_> {
        let from_disk = self.options.contents_from_disk;
        Contents { state: self.state.as_ref(), from_disk, stopped: self.halt.stop_flag() }
    }

    /// Returns the longest silence of the peer.
    pub(crate) fn timeout(&self) -> Duration {
        self.vitals.timeout
    }

    /// Notes that something came from the peer.
    pub(crate) fn note_alive(&self) {
        self.vitals.life.note();
    }

    /// Calls the observer on the thread that listens to the peer: however long it takes, that is no
    /// silence of the peer.
    pub(crate) fn aside<T>(&self, tell: impl FnOnce() -> T) -> T {
        self.vitals.aside.store(true, Ordering::Relaxed);
        let told = tell();
        self.note_alive();
        self.vitals.aside.store(false, Ordering::Release);
        told
    }

    /// Watches until the guard is dropped: ends the run when it is cancelled, the peer is silent, or
    /// neither end makes progress though the peer shows signs of life.
    ///
    /// # Errors
    /// [`SyncError::Thread`].
    pub(crate) fn watch(&self, cancel: &CancelToken) -> Result<Beating, SyncError> {
        let mut watch = self.watcher(cancel);
        self.every(crate::halt::POLL, move || watch.look())
    }

    /// Begins to watch. Nobody may have listened before.
    fn watcher(&self, cancel: &CancelToken) -> Watch {
        self.note_alive();
        // The files that a source hashes before it lists them are not known yet.
        let hashing = if self.options.checksum { UNSEEN_HASHING } else { Duration::ZERO };
        Watch {
            control: Arc::clone(&self.control),
            vitals: Arc::clone(&self.vitals),
            grant: self.grant.clone(),
            cancel: cancel.clone(),
            hashing,
            moved: Instant::now(),
        }
    }

    /// Calls `pulse` at every [`PULSE`] until the guard is dropped; an error ends the run.
    ///
    /// # Errors
    /// [`SyncError::Thread`].
    pub(crate) fn beat(
        &self,
        pulse: impl FnMut() -> Result<(), SyncError> + Send + 'static,
    ) -> Result<Beating, SyncError> {
        self.every(PULSE, pulse)
    }

    fn every(
        &self,
        interval: Duration,
        mut work: impl FnMut() -> Result<(), SyncError> + Send + 'static,
    ) -> Result<Beating, SyncError> {
        let halt = Arc::clone(&self.halt);
        self.workers.clock().start(interval, move || !halt.stopped() && halt.guard(&mut work).is_some())
    }

    /// Calls `tell` on this thread at every [`PULSE`] until `over` disconnects.
    pub(crate) fn tell_until(&self, over: &Receiver<()>, mut tell: impl FnMut()) {
        while !self.halt.stopped() && over.recv_timeout(PULSE) != Err(RecvTimeoutError::Disconnected) {
            tell();
        }
    }

    /// Ends the session: the destination's report if there is one, else the error that ended the run.
    pub(crate) fn conclude(self, report: Option<Report>) -> Result<Report, SyncError> {
        match report {
            Some(report) => {
                self.tally.note_report(&report);
                self.link.close(CloseReason::Done);
                Ok(report)
            }
            None => {
                self.halt.result()?;
                Err(SyncError::Link(LinkError::Closed))
            }
        }
    }

    /// Ends the session before it began.
    pub(crate) fn refuse(self, error: SyncError) -> SyncError {
        self.halt.fail(error);
        match self.halt.result() {
            Err(error) => error,
            Ok(()) => SyncError::Link(LinkError::Closed),
        }
    }
}

/// Returns the number of data lanes of a session, and the places of those beyond the first one.
///
/// More lanes keep more threads busy and fill a path that loses something, which many sessions at once do by
/// themselves.
fn lanes(link: &dyn Link, workers: &Workers) -> (usize, Vec<Extra>) {
    let most = link.data_lanes().clamp(1, dsync_wire::limits::MAX_DATA_LANES);
    let further: Vec<_> = (1..most).map_while(|_| workers.extra()).collect();
    (1 + further.len(), further)
}

/// The watch over a session.
struct Watch {
    control: Arc<ControlOut>,
    vitals: Arc<Vitals>,
    grant: Option<Arc<Grant>>,
    cancel: CancelToken,
    /// Time that the source may hash before anything of it is heard.
    hashing: Duration,
    /// The time of the last progress.
    moved: Instant,
}

impl Watch {
    /// Looks whether the session may go on.
    fn look(&mut self) -> Result<(), SyncError> {
        let Self { vitals, .. } = self;
        if self.cancel.is_cancelled() {
            return Err(self.cancel.reason());
        }
        self.grant.as_ref().map_or(Ok(()), |grant| grant.check_time())?;

        // Read before the time, which is set before this is.
        let aside = vitals.aside.load(Ordering::Acquire);
        if vitals.life.silence() > vitals.timeout && !aside {
            return Err(SyncError::Timeout { after: vitals.timeout });
        }
        if self.control.moved.swap(false, Ordering::Relaxed) {
            self.moved = Instant::now();
        }
        if self.moved.elapsed() > self.patience() {
            return Err(SyncError::Stalled { after: self.moved.elapsed() });
        }
        Ok(())
    }

    /// Returns the longest time without progress at either end: longer if long files are read at a
    /// go.
    fn patience(&self) -> Duration {
        let reading = Duration::from_secs(self.vitals.longest.load(Ordering::Relaxed) / SLOWEST_READ);
        self.vitals.stall.saturating_add(reading).saturating_add(self.hashing)
    }
}

/// Returns the reason for which a link is closed whose session has not begun.
fn cut_for(error: &SyncError) -> CloseReason {
    match error {
        SyncError::Cancelled | SyncError::Aborted { .. } => CloseReason::Cancelled,
        _ => CloseReason::Failed,
    }
}

/// Returns the message that tells the peer why this end gives up.
pub(crate) fn fatal(error: &SyncError, wording: Wording, peer_features: u64) -> ControlMessage {
    let mut text = wording.phrase(error);
    if let Some((end, _)) = text.char_indices().nth(MAX_FATAL_CHARS) {
        text.truncate(end);
    }
    let reason = (peer_features & REASONS != 0).then(|| error.reason());
    ControlMessage::Fatal(Fatal { exit_code: error.exit_code(), text: text.into_bytes(), reason })
}

/// Returns the error of a message that does not belong here.
pub(crate) fn unexpected(message: &ControlMessage) -> SyncError {
    misbehaved(PeerMisbehaved::UnexpectedMessage { name: message.name() })
}

/// Receives the controller's hello and the task of the session, with the bytes that a task in parts
/// takes.
fn hear_start(
    receiver: &mut ControlReceiver,
    budget: &Arc<Budget>,
) -> Result<(Hello, Start, Held), SyncError> {
    let mut order = PeerInbox::new();
    let mut theirs = None;
    let (mut payload, mut held) = (Vec::new(), budget.nothing(Share::Paths));

    loop {
        let message = next(receiver)?;
        order.check(&message)?;

        match (message, theirs.take()) {
            (ControlMessage::Hello(hello), _) => {
                check_version(&hello)?;
                theirs = Some(hello);
            }
            (ControlMessage::Start(start), Some(theirs)) => return Ok((theirs, *start, held)),
            (ControlMessage::StartPart { last, bytes }, Some(hello)) => {
                let size = payload.len().saturating_add(bytes.len());
                if size > MAX_START {
                    return Err(misbehaved(PeerMisbehaved::LongStart { size }));
                }
                held.grow(START_WEIGHT * bytes.len() as u64)?;
                payload.extend(bytes);
                if last {
                    return Ok((hello, decode_start(&payload)?, held));
                }
                theirs = Some(hello);
            }
            (other, _) => return Err(unexpected(&other)),
        }
    }
}

/// Ends a link whose session has not begun, and tells the peer why.
fn tell(link: &Arc<dyn Link>, sender: ControlSender, error: SyncError) -> SyncError {
    let halt = Halt::new(Arc::clone(link), Arc::new(ControlOut::new(sender)));
    halt.fail(error);
    match halt.result() {
        Err(error) => error,
        Ok(()) => SyncError::Link(LinkError::Closed),
    }
}

/// Receives the next control message; the end of the lane and a fatal message are errors.
fn next(inbox: &mut ControlReceiver) -> Result<ControlMessage, SyncError> {
    match inbox.recv()? {
        Some(ControlMessage::Fatal(fatal)) => Err(SyncError::Peer {
            exit_code: fatal.exit_code,
            text: String::from_utf8_lossy(&fatal.text).into_owned(),
            reason: fatal.reason.unwrap_or_else(|| reason_of_code(fatal.exit_code)),
        }),
        Some(message) => Ok(message),
        None => Err(SyncError::Link(LinkError::Lost)),
    }
}

/// Returns the reason that an older peer's exit code stands for.
fn reason_of_code(code: u8) -> Reason {
    match code {
        exit_code::INCOMPATIBLE => Reason::Version,
        exit_code::SOCKET => Reason::Connection,
        exit_code::INTERRUPTED => Reason::Cancelled,
        exit_code::TIMEOUT => Reason::Timeout,
        exit_code::LOCKED => Reason::Busy,
        _ => Reason::Other,
    }
}

/// Reads the sentences of a peer, for people.
fn sentences(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect()
}

/// Returns the key of spans where both ends know them: of the hello that the source said.
pub(crate) fn span_key(theirs: u64, of_source: &Hello) -> Option<SpanKey> {
    (theirs & FEATURES & SPANS != 0).then(|| SpanKey::of(&of_source.key_share))
}

fn check_version(hello: &Hello) -> Result<(), SyncError> {
    if hello.version == VERSION {
        return Ok(());
    }
    Err(misbehaved(PeerMisbehaved::OtherVersion { theirs: hello.version, agreed: VERSION }))
}

fn new_hello() -> Result<Hello, SyncError> {
    let mut key_share = [0; 32];
    getrandom::fill(&mut key_share).map_err(|error| SyncError::Random { source: error.into() })?;
    Ok(Hello { version: VERSION, features: FEATURES, key_share })
}

impl From<DecodeError> for SyncError {
    fn from(error: DecodeError) -> Self {
        misbehaved(error)
    }
}

impl From<RecvError> for SyncError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Link(error) => Self::Link(error),
            RecvError::Decode(error) => misbehaved(error),
        }
    }
}

/// Bytes that a byte of a task in parts takes: as it came, as a path or an option, and around it.
const START_WEIGHT: u64 = 3;

/// Longest text of a fatal message; four bytes a character stay within the wire's limit.
const MAX_FATAL_CHARS: usize = 500;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::limits::MAX_START_PART;

    use super::*;

    /// Makes a session whose peer may not be silent for any time at all.
    fn impatient() -> Session {
        let (here, _there) = dsync_transport::memory::pair();
        let here: Arc<dyn Link> = Arc::new(here);
        let sender = ControlSender::new(here.open_lane().unwrap().tx);
        let terms = Terms {
            role: PeerRole::Source { paths: Vec::new() },
            options: SyncOptions::default(),
            timeout: Duration::ZERO,
            again: None,
            allowance: Allowance {
                budget: Budget::unbounded(),
                stall: Duration::MAX,
                workers: Workers::default(),
                throttle: None,
                state: None,
            },
            list: ListPlace::None,
            is_recorded: false,
            cancel: CancelToken::new(),
        };
        Session::assemble((here, Life::new()), 1, sender, terms)
    }

    #[test]
    fn a_task_in_parts_stays_within_the_account() {
        for (bound, expected) in [(4 << 20, "of memory, of which paths"), (u64::MAX, "a Start of 25")] {
            let (here, there) = dsync_transport::memory::pair();
            let there: Arc<dyn Link> = Arc::new(there);
            let client = std::thread::spawn(move || {
                let mut sender = ControlSender::new(here.open_lane().unwrap().tx);
                sender.send(&ControlMessage::Hello(new_hello().unwrap())).unwrap();
                let part = ControlMessage::StartPart { last: false, bytes: vec![0; MAX_START_PART] };
                while sender.send(&part).is_ok() {}
            });
            let allowance = Allowance {
                budget: Budget::new(bound),
                stall: Duration::MAX,
                workers: Workers::default(),
                throttle: None,
                state: None,
            };
            let limit = Duration::from_secs(600);
            let error = Session::accept(there, limit, allowance, &CancelToken::new()).err().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
            client.join().unwrap();
        }
    }

    #[test]
    fn time_in_the_observer_is_no_silence_of_the_peer() {
        let session = impatient();
        let mut watch = session.watcher(&CancelToken::new());
        session.aside(|| {
            std::thread::sleep(Duration::from_millis(2));
            watch.look().unwrap();
        });
        std::thread::sleep(Duration::from_millis(2));
        let ended = watch.look();
        assert!(matches!(ended, Err(SyncError::Timeout { .. })), "{ended:?}");
    }
}
