//! The hand-written peer, keeping to the rules: dsync understands it.

use dsync_tests::{
    hostile::{Arena, Carrier, Item, Message, Session, session::COPY},
    needs_dsync,
};

use super::list;

#[test]
fn honest_source_written_by_hand_is_understood() {
    needs_dsync!();
    Carrier::ALL.into_iter().for_each(is_understood_as_a_source);
}

fn is_understood_as_a_source(carrier: Carrier) {
    let arena = Arena::new();
    let (mut server, mut session) = arena.destination_over(carrier, COPY);
    // An upper bound of what a handshake costs; `cage.rs` prints what the cage does.
    println!("{}: from greeting to go {:?}", carrier.option(), session.handshake.unwrap());
    list(&session, &[Item::file("new", 5)]);
    session.control(&Message::new(8).int(2).int(5).frame());
    assert_eq!(session.expect(10), [1, 0]);
    let hello = Session::record(1, 0, b"hello");
    let value = session.value(&hello);
    for number in 0..4 {
        let lane = session.lane(number);
        if number == 3 {
            session.lanes.send(lane, &Session::batch(&value, &hello));
            session.expect(14);
        }
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    session.control(&Message::new(19).frame());
    session.finish_control();
    assert_eq!(server.wait(), 0);
    assert_eq!(std::fs::read(arena.scratch().at("tree/new")).unwrap(), b"hello");
    arena.assert_unharmed(&["new"]);
}

#[test]
fn honest_destination_written_by_hand_is_understood() {
    needs_dsync!();
    Carrier::ALL.into_iter().for_each(is_understood_as_a_destination);
}

fn is_understood_as_a_destination(carrier: Carrier) {
    let arena = Arena::new();
    let (mut server, session) = arena.source_over(carrier, COPY);
    session.expect(5);
    // The root, and what is in `sub`: before that there is nothing to ask for.
    session.expect(7);
    session.expect(7);
    // The third in order: kept, out, peek, pipe, sub.
    session.control(&Message::new(10).int(5 + 1).byte(0).frame());
    while session.hear().0 != 8 {}
    let lanes = [2, 4, 6, 8];
    let mut contents = Vec::new();
    for part in 0..2 {
        session.control(&Message::new(13).int(part).frame());
    }
    session.control(&Message::new(14).frame());
    for lane in lanes {
        while let Some((number, payload)) = session.lanes.receive(lane) {
            if number == 65 {
                contents.push(payload);
            }
        }
    }
    assert_eq!(contents.len(), 1);
    assert!(contents[0].ends_with(b"\x05inner"), "{contents:?}");
    // The value, then a raw piece: its codec and its length of one byte.
    let (value, piece) = contents[0].split_at(32);
    assert_eq!(value, session.value(&piece[2..]));
    session.control(&Message::new(17).bytes(&[0; 30]).frame());
    session.expect(19);
    session.finish_control();
    assert_eq!(server.wait(), 0);
    arena.assert_unharmed(&[]);
}
