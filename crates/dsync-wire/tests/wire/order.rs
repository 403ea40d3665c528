//! Law S8: every message in every state is either allowed by the table below or a typed error that
//! names both.

use dsync_wire::{
    DecodeError,
    kind::Kind,
    message::{
        ControlMessage, DataMessage, EntryId, FileKey, Hello, Listing, ListingEnd, Names, NeedDelta, Sums,
        Tops,
    },
    state::{DestinationInbox, LaneInbox, ListingOrder, PeerInbox, SourceInbox, State},
    version::{FEATURES, FILE_KEYS, VERSION},
};

use crate::samples;

/// The messages allowed in a state.
type Allowed<'a> = &'a [Kind];

const ALWAYS: Allowed<'_> = &[Kind::FATAL];
const DESTINATION_ANY: Allowed<'_> = &[Kind::FATAL, Kind::ALIVE, Kind::PROBLEM];

#[test]
fn a_peer_hears_hello_then_start() {
    let mut inbox = PeerInbox::new();
    for (state, kinds, next) in
        [(State::Hello, &[Kind::HELLO][..], hello()), (State::Start, &STARTS[..], sample(Kind::START))]
    {
        matrix(&inbox, state, &[kinds, ALWAYS], PeerInbox::check);
        inbox.check(&next).unwrap();
    }
    matrix(&inbox, State::Over, &[], PeerInbox::check);
    fatal_is_last(PeerInbox::new(), PeerInbox::check);
}

/// The messages that a request may begin with.
const STARTS: [Kind; 2] = [Kind::START, Kind::START_PART];

#[test]
fn a_request_in_parts_ends_with_the_last_one() {
    let mut inbox = PeerInbox::new();
    inbox.check(&hello()).unwrap();
    let part = |last| ControlMessage::StartPart { last, bytes: vec![1] };
    for _ in 0..2 {
        inbox.check(&part(false)).unwrap();
        matrix(&inbox, State::StartParts, &[&[Kind::START_PART], ALWAYS], PeerInbox::check);
    }
    inbox.check(&part(true)).unwrap();
    matrix(&inbox, State::Over, &[], PeerInbox::check);
}

#[test]
fn a_source_hears_requests_then_the_report() {
    for controller in [true, false] {
        let mut inbox = if controller { SourceInbox::controller() } else { SourceInbox::peer() };
        let events: Allowed<'_> = if controller { &[Kind::EVENT] } else { &[] };
        let check = SourceInbox::check;
        if controller {
            matrix(&inbox, State::Hello, &[&[Kind::HELLO], ALWAYS], check);
            inbox.check(&hello()).unwrap();
            matrix(&inbox, State::Ready, &[&[Kind::READY, Kind::PROGRESS], ALWAYS], check);
            inbox.check(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
        }
        let requests = [
            Kind::NEED,
            Kind::NEED_DELTA,
            Kind::NEED_TAIL,
            Kind::REST,
            Kind::LISTING_DONE,
            Kind::LANDED,
            Kind::PROGRESS,
            Kind::SPAN_ANSWER,
        ];
        matrix(&inbox, State::Needs, &[&requests, &[Kind::NEEDS_END], events, ALWAYS], check);
        // While sums are missing, the requests cannot end.
        inbox.check(&ControlMessage::NeedDelta(samples::need_delta())).unwrap();
        let requests = [
            Kind::NEED,
            Kind::NEED_TAIL,
            Kind::REST,
            Kind::SUMS,
            Kind::LISTING_DONE,
            Kind::LANDED,
            Kind::PROGRESS,
            Kind::SPAN_ANSWER,
        ];
        matrix(&inbox, State::Needs, &[&requests, events, ALWAYS], check);
        inbox.check(&sums(128, true)).unwrap();
        inbox.check(&ControlMessage::NeedsEnd).unwrap();
        let report = [Kind::REPORT, Kind::LISTING_DONE, Kind::LANDED, Kind::PROGRESS];
        matrix(&inbox, State::Report, &[&report, events, ALWAYS], check);
        inbox.check(&sample(Kind::REPORT)).unwrap();
        matrix(&inbox, State::Over, &[], check);
        fatal_is_last(SourceInbox::controller(), check);
    }
}

#[test]
fn a_source_without_a_list_hears_it_before_requests() {
    for controller in [true, false] {
        let inbox = if controller { SourceInbox::controller() } else { SourceInbox::peer() };
        let (mut inbox, check) = (inbox.with_names(), SourceInbox::check);
        if controller {
            inbox.check(&hello()).unwrap();
            inbox.check(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
        }
        let names = |last| ControlMessage::Names(Names { last, lines: vec![b"a".to_vec()] });
        for _ in 0..2 {
            matrix(&inbox, State::Names, &[&[Kind::NAMES, Kind::PROGRESS], ALWAYS], check);
            inbox.check(&names(false)).unwrap();
        }
        inbox.check(&names(true)).unwrap();
        assert_eq!(inbox.state(), State::Needs);
        assert!(inbox.check(&names(true)).is_err(), "one list is enough");
    }
}

#[test]
fn a_destination_hears_tops_listings_and_bye() {
    for controller in [true, false] {
        let mut inbox = if controller { DestinationInbox::controller() } else { DestinationInbox::peer() };
        let check = DestinationInbox::check;
        if controller {
            matrix(&inbox, State::Hello, &[&[Kind::HELLO], ALWAYS], check);
            inbox.check(&hello()).unwrap();
            matrix(&inbox, State::Ready, &[&[Kind::READY, Kind::ALIVE], ALWAYS], check);
            inbox.check(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
        }
        matrix(&inbox, State::Tops, &[&[Kind::TOPS, Kind::ID_NAME], DESTINATION_ANY], check);
        inbox.check(&tops(false)).unwrap();
        let listing = [
            Kind::LISTING,
            Kind::LISTING_END,
            Kind::ID_NAME,
            Kind::REFINE,
            Kind::REMOVED,
            Kind::REMOVED_PATH,
        ];
        matrix(&inbox, State::Listing, &[&listing, &[Kind::MISSING, Kind::RULING], DESTINATION_ANY], check);
        inbox.check(&part(0, false, vec![])).unwrap();
        matrix(
            &inbox,
            State::ListingPart,
            &[
                &[
                    Kind::LISTING,
                    Kind::ID_NAME,
                    Kind::REFINE,
                    Kind::REMOVED,
                    Kind::REMOVED_PATH,
                    Kind::RULING,
                ],
                DESTINATION_ANY,
            ],
            check,
        );
        inbox.check(&part(0, true, vec![])).unwrap();
        assert!(inbox.clone().check(&sample(Kind::MISSING)).is_err(), "they come before the first listing");
        inbox.check(&listing_end(0, 0)).unwrap();
        matrix(
            &inbox,
            State::Files,
            &[&[Kind::REFINE, Kind::REMOVED, Kind::REMOVED_PATH], DESTINATION_ANY],
            check,
        );
        inbox.report_sent();
        matrix(&inbox, State::Bye, &[&[Kind::BYE], DESTINATION_ANY], check);
        inbox.check(&ControlMessage::Bye).unwrap();
        matrix(&inbox, State::Over, &[], check);
        fatal_is_last(DestinationInbox::controller(), check);
    }
}

#[test]
fn a_destination_hears_spans_only_where_they_were_agreed_on() {
    let mut inbox = DestinationInbox::peer();
    inbox.allow_spans();
    inbox.check(&tops(false)).unwrap();
    let listing =
        [Kind::LISTING, Kind::LISTING_END, Kind::ID_NAME, Kind::REFINE, Kind::REMOVED, Kind::REMOVED_PATH];
    let more = [Kind::RULING, Kind::SPAN, Kind::SAME];
    let mut between: Allowed<'_> = &[Kind::MISSING];
    for message in [sample(Kind::SPAN), sample(Kind::SAME), part(0, false, vec![])] {
        matrix(&inbox, State::Listing, &[&listing, &more, between, DESTINATION_ANY], DestinationInbox::check);
        inbox.check(&message).unwrap();
        between = &[];
    }
    matrix(&inbox, State::ListingPart, &[&listing, &more, DESTINATION_ANY], DestinationInbox::check);
    // This inbox cannot know which entries are missing between listings.
    inbox.check(&listing_end(9, 9)).unwrap();
    assert_eq!(inbox.state(), State::Files);
    let mut order = ListingOrder::new(false);
    let listing = |last| Listing { dir: EntryId(0), last, complete: last, left_out: false, entries: vec![] };
    order.check(&listing(false)).unwrap();
    let end = ListingEnd { entries: 0, bytes: 0 };
    let error = order.end(&end).unwrap_err();
    let expected = "unexpected message ListingEnd while in state 'inside a directory's listing'";
    assert_eq!(error.to_string(), expected);
    order.check(&listing(true)).unwrap();
    order.end(&end).unwrap();
}

#[test]
fn a_data_lane_begins_with_its_number_and_keeps_segments_whole() {
    let mut inbox = LaneInbox::new(16);
    data_matrix(&inbox, State::LaneStart, &[Kind::LANE_START]);
    inbox.check(&DataMessage::LaneStart { lane: 15 }).unwrap();
    data_matrix(&inbox, State::Lane, &[Kind::BATCH, Kind::SEGMENT, Kind::FILE_END, Kind::LANE_END]);
    inbox.check(&DataMessage::Segment(samples::segment())).unwrap();
    data_matrix(&inbox, State::SegmentStart, &[Kind::HOLES, Kind::TOKENS, Kind::SEGMENT_END]);
    inbox.check(&DataMessage::Holes(vec![0..4096, 8192..8193])).unwrap();
    data_matrix(&inbox, State::Segment, &[Kind::TOKENS, Kind::SEGMENT_END]);
    inbox.check(&DataMessage::SegmentEnd { value: None }).unwrap();
    assert!(!inbox.is_over());
    inbox.check(&DataMessage::LaneEnd).unwrap();
    data_matrix(&inbox, State::LaneOver, &[]);
    assert!(inbox.is_over());
    let error = LaneInbox::new(15).check(&DataMessage::LaneStart { lane: 15 }).unwrap_err();
    assert!(matches!(error, DecodeError::Limit { value: 15, limit: 14, .. }));
}

#[test]
fn errors_of_order_name_the_message_and_the_state() {
    let error = SourceInbox::peer().check(&ControlMessage::Bye).unwrap_err();
    assert_eq!(error.to_string(), "unexpected message Bye while in state 'serving requests'");
}

#[test]
fn listings_come_depth_first() {
    let mut inbox = listing_inbox();
    // Root 0 holds directories 1 and 2; 1 holds 3.
    inbox.check(&part(0, true, vec![samples::directory(b"a"), samples::directory(b"b")])).unwrap();
    assert_eq!(inbox.next_entry(), EntryId(3));
    inbox.check(&part(1, false, vec![samples::directory(b"x")])).unwrap();
    inbox.check(&part(1, true, vec![samples::file(b"y", 70)])).unwrap();
    let mut early = inbox.clone();
    inbox.check(&part(3, true, vec![])).unwrap();
    inbox.check(&part(2, true, vec![])).unwrap();
    inbox.check(&listing_end(5, 70)).unwrap();
    // Passing over 3 is allowed (a mount point that is not entered), returning to it is not.
    early.check(&part(2, true, vec![])).unwrap();
    let error = early.check(&part(3, true, vec![])).unwrap_err();
    assert_eq!(error.to_string(), "entry 5: parent 3 is not a directory that is due to be listed");
}

#[test]
fn listings_of_what_is_no_directory_are_refused() {
    for parent in [1, 2, 9, u64::MAX] {
        let mut inbox = listing_inbox();
        inbox.check(&part(0, true, vec![samples::file(b"file", 1)])).unwrap();
        let error = inbox.check(&part(parent, true, vec![])).unwrap_err();
        assert_eq!(error, DecodeError::Parent { entry: EntryId(2), parent: EntryId(parent) });
    }
    // The same directory twice, and a part of another directory inside one.
    let mut inbox = listing_inbox();
    inbox.check(&part(0, true, vec![])).unwrap();
    assert!(matches!(inbox.check(&part(0, true, vec![])), Err(DecodeError::Parent { .. })));
    let mut inbox = listing_inbox();
    inbox.check(&part(0, false, vec![samples::directory(b"a")])).unwrap();
    assert!(matches!(inbox.check(&part(1, true, vec![])), Err(DecodeError::Parent { .. })));
}

#[test]
fn names_ascend_over_the_parts_of_a_listing() {
    for second in [&b"b"[..], b"a"] {
        let mut inbox = listing_inbox();
        inbox.check(&part(0, false, vec![samples::file(b"b", 1)])).unwrap();
        inbox.check(&part(0, false, vec![])).unwrap();
        let error = inbox.check(&part(0, true, vec![samples::file(second, 1)])).unwrap_err();
        assert!(matches!(error, DecodeError::NameOrder { entry: EntryId(2), .. }), "{error}");
    }
}

#[test]
fn directories_end_at_the_depth_limit() {
    let mut inbox = listing_inbox();
    for depth in 0..4096 {
        inbox.check(&part(depth, true, vec![samples::directory(b"d")])).unwrap();
    }
    // The last may be listed, but only as empty.
    inbox.clone().check(&part(4096, true, vec![])).unwrap();
    let error = inbox.check(&part(4096, true, vec![samples::directory(b"d")])).unwrap_err();
    assert_eq!(error.to_string(), "depth 4097 exceeds the limit 4096");
}

#[test]
fn totals_must_be_those_of_the_listing() {
    for (root, entries, bytes, sentence) in [
        (false, 2, 5, Some("listing: got 1 entries, 2 declared")),
        (true, 1, 5, Some("listing: got 2 entries, 1 declared")),
        (false, 1, 6, Some("listing: got 5 bytes, 6 declared")),
        (false, 1, 5, None),
        (true, 2, 5, None),
    ] {
        let mut inbox = DestinationInbox::peer();
        inbox.check(&tops(root)).unwrap();
        inbox.check(&part(0, true, vec![samples::file(b"f", 5)])).unwrap();
        let error = inbox.check(&listing_end(entries, bytes)).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), sentence);
    }
}

#[test]
fn sums_belong_to_an_announced_signature() {
    let mut inbox = SourceInbox::peer();
    assert_eq!(inbox.check(&sums(128, false)), Err(DecodeError::Sums { entry: EntryId(128) }));
    inbox.check(&ControlMessage::NeedDelta(samples::need_delta())).unwrap();
    let again = inbox.clone().check(&ControlMessage::NeedDelta(samples::need_delta()));
    assert_eq!(again, Err(DecodeError::Asked { entry: EntryId(128) }));
    inbox.check(&sums(128, false)).unwrap();
    inbox.check(&sums(128, true)).unwrap();
    assert_eq!(inbox.check(&sums(128, true)), Err(DecodeError::Sums { entry: EntryId(128) }));
}

#[test]
fn a_key_of_a_file_comes_only_from_a_destination_that_knows_them() {
    let keyed = NeedDelta { key: Some(FileKey([1; 32])), ..samples::need_delta() };
    let keyed = ControlMessage::NeedDelta(keyed);
    for (features, knows) in [(FEATURES, true), (FEATURES & !FILE_KEYS, false), (0, false)] {
        let mut peer = SourceInbox::peer();
        peer.allow_file_keys(features);
        let mut controller = SourceInbox::controller();
        let hello = Hello { version: VERSION, features, key_share: [1; 32] };
        controller.check(&ControlMessage::Hello(hello)).unwrap();
        controller.check(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
        for mut inbox in [peer, controller] {
            assert_eq!(inbox.check(&keyed).is_ok(), knows, "{features:b}");
            inbox
                .check(&ControlMessage::NeedDelta(NeedDelta { entry: EntryId(9), ..samples::need_delta() }))
                .unwrap();
        }
    }
    assert!(SourceInbox::peer().check(&keyed).is_err());
}

#[test]
fn announced_signatures_are_bounded() {
    let mut inbox = SourceInbox::peer();
    let announce =
        |entry| ControlMessage::NeedDelta(NeedDelta { entry: EntryId(entry), ..samples::need_delta() });
    for entry in 0..1024 {
        inbox.check(&announce(entry)).unwrap();
    }
    assert!(matches!(inbox.check(&announce(1024)), Err(DecodeError::Limit { limit: 1024, .. })));
}

/// Tries one message of each kind in a copy of `inbox`.
fn matrix<I: Clone>(
    inbox: &I,
    state: State,
    allowed: &[Allowed<'_>],
    check: fn(&mut I, &ControlMessage) -> Result<(), DecodeError>,
) {
    for kind in Kind::control() {
        let result = check(&mut inbox.clone(), &sample(kind));
        if allowed.iter().any(|kinds| kinds.contains(&kind)) {
            assert_eq!(result, Ok(()), "{kind} in state '{state}'");
        } else {
            let error = result.expect_err(&format!("{kind} was allowed in state '{state}'"));
            let expected = DecodeError::Unexpected { kind, state };
            let specific = matches!(error, DecodeError::Sums { .. } | DecodeError::Asked { .. });
            assert!(specific || error == expected, "{kind} in state '{state}': {error}");
        }
    }
}

fn data_matrix(inbox: &LaneInbox, state: State, allowed: Allowed<'_>) {
    for (_, message) in samples::data() {
        let kind = message.kind();
        let expected =
            if allowed.contains(&kind) { Ok(()) } else { Err(DecodeError::Unexpected { kind, state }) };
        assert_eq!(inbox.clone().check(&message), expected, "{kind} in state '{state}'");
    }
}

fn fatal_is_last<I: Clone>(inbox: I, check: fn(&mut I, &ControlMessage) -> Result<(), DecodeError>) {
    let mut inbox = inbox;
    check(&mut inbox, &sample(Kind::FATAL)).unwrap();
    matrix(&inbox, State::Over, &[], check);
}

/// Returns a message of this kind that is valid where its kind is.
fn sample(kind: Kind) -> ControlMessage {
    match kind {
        Kind::LISTING => part(0, false, vec![]),
        Kind::LISTING_END => listing_end(0, 0),
        Kind::SUMS => sums(128, false),
        _ => {
            let mut all = samples::control().into_iter();
            all.find(|(_, message)| message.kind() == kind).map(|(_, message)| message).unwrap()
        }
    }
}

fn hello() -> ControlMessage {
    sample(Kind::HELLO)
}

fn listing_inbox() -> DestinationInbox {
    let mut inbox = DestinationInbox::peer();
    inbox.check(&tops(true)).unwrap();
    inbox
}

fn tops(root: bool) -> ControlMessage {
    let root = root.then(|| samples::attributes(0o755, 0, 0));
    ControlMessage::Tops(Tops { root, named: 1, single_file: false })
}

fn part(dir: u64, last: bool, entries: Vec<dsync_wire::message::Entry>) -> ControlMessage {
    ControlMessage::Listing(Listing { dir: EntryId(dir), last, complete: true, left_out: false, entries })
}

fn listing_end(entries: u64, bytes: u64) -> ControlMessage {
    ControlMessage::ListingEnd(ListingEnd { entries, bytes })
}

fn sums(entry: u64, last: bool) -> ControlMessage {
    ControlMessage::Sums(Sums { entry: EntryId(entry), bytes: vec![0; 12], last })
}
