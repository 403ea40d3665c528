//! Round trips, counted: the messages of an end before it has an answer.

use std::time::Duration;

use dsync_fs::{FilterSet, SpoolHome};
use dsync_wire::{
    event::Report,
    frame::{ControlReceiver, ControlSender},
    message::{self, Asked, ControlMessage, Hello},
    version::{FEATURES, VERSION},
};

use super::*;
use crate::{Access, Excess, Grant, GrantTerms, Limits, Silent, resources::Allowance, session::NO_TIMEOUT};

/// Runs a controller and source over `link`.
fn source(link: &Arc<dyn Link>) -> Result<Report, SyncError> {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancelToken::new();
    let run = |attempt: &Attempt<'_>| {
        let role = PeerRole::Destination { path: b"there".to_vec(), asked: Asked::default() };
        let terms = session::Terms {
            role,
            options: options(),
            timeout: LIMIT,
            again: None,
            list: ListPlace::None,
            is_recorded: false,
            cancel: cancel.clone(),
            allowance: Allowance { stall: NO_TIMEOUT, ..Resources::default().allowance(Arc::default()) },
        };
        let (session, mail) = Session::start_source(Arc::clone(link), terms)?;
        let (files, spools) = (ListedFiles::default(), SpoolHome::default());
        let terms = (&options(), FilterSet::default());
        let tree =
            open_tree((&[dir.path().to_owned()], None), terms, (files, None), spools, Place::default())?;
        source::run(session, mail, tree, Some(attempt), &cancel)
    };
    reconnect::run(0, &Silent, &cancel, &SystemClock, run).map(|(report, _)| report)
}

/// Runs a controller and destination over `link`.
fn destination(link: &Arc<dyn Link>, observer: &dyn Observer) -> Result<Report, SyncError> {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancelToken::new();
    let run = |attempt: &Attempt<'_>| {
        let terms = session::Terms {
            role: PeerRole::Source { paths: vec![b"there/".to_vec()] },
            options: options(),
            timeout: NO_TIMEOUT,
            again: None,
            list: ListPlace::None,
            is_recorded: false,
            cancel: cancel.clone(),
            allowance: Allowance { stall: NO_TIMEOUT, ..Resources::default().allowance(Arc::default()) },
        };
        let (session, mail) = Session::start_destination(Arc::clone(link), terms, None)?;
        let terms = destination::Terms {
            operand: dir.path().to_owned(),
            filters: filters(&options(), dir.path(), true, None)?,
            asked: AskedFor::of(&[PathBuf::from("there/")], None, &options())?,
            observer: Some(attempt),
            listener: None,
            files: None,
            spools: SpoolHome::default(),
            start: Start::default(),
            recording: None,
            own: OwnEntries::default(),
        };
        destination::run(session, mail, terms, &cancel)
    };
    reconnect::run(0, observer, &cancel, &SystemClock, run).map(|(report, _)| report)
}

/// Receives messages until one of this name. Returns the names of all.
fn hear(receiver: &mut ControlReceiver, last: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    while names.last() != Some(&last) {
        names.push(receiver.recv().unwrap().unwrap().name());
    }
    names
}

#[test]
fn a_source_lists_everything_before_it_is_answered_and_is_done_with_the_report() {
    let (here, there) = dsync_transport::memory::pair();
    std::thread::scope(|scope| {
        let here: Arc<dyn Link> = Arc::new(here);
        let running = scope.spawn(move || source(&here));
        let lane = there.accept_lane().unwrap();
        let (mut sender, mut receiver) = (ControlSender::new(lane.tx), ControlReceiver::new(lane.rx));
        let mut heard = hear(&mut receiver, "ListingEnd");
        heard.retain(|name| !matches!(*name, "Alive" | "IdName"));
        // The operand's own listing is a second one.
        heard.dedup();
        assert_eq!(heard, ["Hello", "Start", "Tops", "Listing", "ListingEnd"]);
        for message in [
            hello(),
            ControlMessage::Ready { lacks: Vec::new() },
            ControlMessage::NeedsEnd,
            ControlMessage::Report(Box::default()),
        ] {
            sender.send(&message).unwrap();
        }
        // Nothing of this end's is waited for: its lane and its link stay as they are.
        assert!(running.join().unwrap().is_ok());
        drop((sender, receiver, there));
    });
}

/// Listens with all the time of the world.
struct Slow(crossbeam_channel::Receiver<()>);

impl Observer for Slow {
    fn progress(&self, _: &dsync_wire::event::Progress) {
        let _ = self.0.recv();
    }
}

#[test]
fn a_controller_that_receives_shows_signs_of_life_whatever_it_asks_for_and_whoever_listens() {
    let (here, there) = dsync_transport::memory::pair();
    let (released, wait) = crossbeam_channel::bounded::<()>(0);
    std::thread::scope(|scope| {
        let here: Arc<dyn Link> = Arc::new(here);
        let running = scope.spawn(move || destination(&here, &Slow(wait)));
        let lane = there.accept_lane().unwrap();
        let (mut sender, mut receiver) = (ControlSender::new(lane.tx), ControlReceiver::new(lane.rx));
        assert_eq!(hear(&mut receiver, "Start"), ["Hello", "Start"]);
        sender.send(&hello()).unwrap();
        sender.send(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
        // The source lists nothing yet, as one that reads a slow disk, and the observer does not return.
        for _ in 0..3 {
            assert_eq!(hear(&mut receiver, "Progress"), ["Progress"]);
        }
        drop((sender, receiver, released));
        there.close(dsync_wire::link::CloseReason::Done);
        assert!(running.join().unwrap().is_err());
    });
}

#[test]
fn the_hours_of_a_client_end_while_its_list_is_heard() {
    let (here, there) = dsync_transport::memory::pair();
    let dir = tempfile::tempdir().unwrap();
    let ends = std::time::Instant::now() + Duration::from_millis(300);
    let terms = GrantTerms::new(dir.path().to_owned(), Access::ReadOnly);
    let grant = Grant::open(terms).unwrap().limited(Limits::default().ends(Some(ends)));
    let means = || {
        let allowance = Allowance { stall: NO_TIMEOUT, ..Resources::default().allowance(Arc::default()) };
        Means { start: Start::of(Some(grant), None), ..Means::new(allowance, SpoolHome::default()) }
    };
    let (over_tx, over) = crossbeam_channel::bounded::<()>(0);
    std::thread::scope(|scope| {
        let here: Arc<dyn Link> = Arc::new(here);
        let served = Arc::clone(&here);
        let cancel = CancelToken::new();
        let serve = move || serve_link(served, NO_TIMEOUT, &cancel, ListedFiles::default(), means());
        let serving = scope.spawn(serve);
        scope.spawn(move || {
            let _ = over.recv_timeout(Duration::from_secs(600));
            here.close(dsync_wire::link::CloseReason::Failed);
        });

        let lane = there.open_lane().unwrap();
        let (mut sender, mut receiver) = (ControlSender::new(lane.tx), ControlReceiver::new(lane.rx));
        sender.send(&hello()).unwrap();
        let role = PeerRole::Source { paths: vec![b"./".to_vec()] };
        let start =
            message::Start { role, options: options(), data_lanes: 1, again: None, list: ListPlace::Sent };
        sender.send_start(start).unwrap();
        // The list never ends.
        let names = message::Names { last: false, lines: vec![b"a".to_vec()] };
        sender.send(&ControlMessage::Names(names)).unwrap();
        assert_eq!(hear(&mut receiver, "Fatal").last(), Some(&"Fatal"));
        drop((sender, receiver, there, over_tx));
        let ended = serving.join().unwrap();
        assert!(matches!(ended, Err(SyncError::LimitExceeded { excess: Excess::Hours, .. })), "{ended:?}");
    });
}

fn options() -> SyncOptions {
    SyncOptions::default().recursive(true)
}

fn hello() -> ControlMessage {
    ControlMessage::Hello(Hello { version: VERSION, features: FEATURES, key_share: [7; 32] })
}

const LIMIT: Duration = Duration::from_secs(60);
