//! Frames and integers, and messages in the wrong state: rows B38 to B42.

use dsync_tests::{
    hostile::{
        Item, Message, Session,
        bytes::{entries, listing_part},
        frame, listing, raw_listing,
    },
    needs_dsync,
};

use super::{Case, after_tops, destination_breaks, list_new, source_breaks, tokens};

#[test]
fn frames_that_break_the_format_end_the_run() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("frame of 4294967295 bytes exceeds the limit 1114112", |s| {
            s.control(&[0xff, 0xff, 0xff, 0xff, 5]);
        }),
        ("frame of 1114113 bytes exceeds the limit 1114112", |s| {
            s.control(&[&1_114_113_u32.to_le_bytes()[..], &[7]].concat());
        }),
        ("frame without content", |s| s.control(&[0; 4])),
        ("connection ended inside a frame (got 6 of 104 bytes)", |s| {
            s.control(&[100, 0, 0, 0, 5, 0]);
            s.finish_control();
        }),
        ("connection ended inside a frame (got 2 of 4 bytes)", |s| {
            s.control(&[100, 0]);
            s.finish_control();
        }),
        ("malformed integer at offset", |s| s.control(&frame(&[5, 0, 0x81, 0x00]))),
        ("malformed integer at offset", |s| s.control(&frame(&[&[5, 0][..], &[0xff; 10], &[1]].concat()))),
        ("malformed integer at offset", |s| s.control(&frame(&[5, 0, 0xff, 0xff, 0xff, 0xff, 0x7f]))),
        ("unexpected message", |s| s.control(&frame(&[200]))),
        ("unexpected message", |s| s.control(&frame(&[0]))),
        ("unexpected message", |s| s.control(&Message::new(65).raw(b"x").frame())),
        ("1 unread bytes after message", |s| s.control(&Message::new(5).byte(0).int(1).byte(0).frame())),
        ("ends inside its", |s| s.control(&Message::new(5).byte(1).int(1).frame())),
        ("has no meaning for value", |s| s.control(&Message::new(5).byte(128).int(1).frame())),
        ("1 unread bytes after message", |s| {
            after_tops(s, &raw_listing(0, 3, &[&entries(&[Item::dir("sub")])[..], &[0]].concat()));
        }),
    ];
    source_breaks(cases);
}

#[test]
fn messages_of_a_source_in_the_wrong_state_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("while in state 'waiting for Tops'", |s| s.control(&listing(0, &[]))),
        ("while in state 'waiting for Tops'", |s| s.control(&Message::new(8).int(0).int(0).frame())),
        ("while in state 'waiting for Tops'", |s| s.control(&Message::new(19).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(5).byte(0).int(1).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(3).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(14).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(10).int(1).byte(0).frame())),
        ("while in state 'inside a directory's listing'", |s| {
            after_tops(s, &listing_part(0, 2, &[]));
            s.control(&Message::new(8).int(0).int(0).frame());
        }),
        ("the source sent the absence of 'kept'", |s| {
            after_tops(s, &Message::new(22).text(b"kept").frame());
            s.control(&listing(0, &[]));
        }),
        ("while in state 'inside a directory's listing'", |s| {
            after_tops(s, &listing_part(0, 0, &[]));
            s.control(&Message::new(22).text(b"kept").frame());
        }),
        ("while in state 'receiving files'", |s| {
            list_new(s);
            s.control(&Message::new(8).int(2).int(5).frame());
            s.control(&Message::new(19).frame());
        }),
        ("while in state 'waiting for LaneStart'", |s| {
            let lane = s.bare_lane();
            s.lanes.send(lane, &Session::batch(&[0; 32], &Session::record(1, 0, b"x")));
        }),
        ("while in state 'between files'", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &tokens(b"\x04x"));
        }),
        ("while in state 'between files'", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &Message::new(64).byte(1).frame());
        }),
        ("while in state 'lane over'", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &Message::new(70).frame());
            s.lanes.send(lane, &Message::new(70).frame());
        }),
        ("lane number 4 exceeds the limit 3", |s| {
            s.lane(4);
        }),
        ("on a data lane", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &Message::new(18).frame());
        }),
        ("a data lane ended without its last message", |s| {
            let lane = s.lane(0);
            s.lanes.finish(lane);
        }),
        ("connection ended inside a frame", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &[9, 0, 0, 0, 65]);
            s.lanes.finish(lane);
        }),
    ]);
}

#[test]
fn messages_of_a_destination_in_the_wrong_state_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("while in state 'serving requests'", |s| s.control(&Message::new(17).bytes(&[0; 30]).frame())),
        ("while in state 'serving requests'", |s| s.control(&Message::new(5).byte(0).int(1).frame())),
        ("while in state 'serving requests'", |s| s.control(&Message::new(19).frame())),
        ("while in state 'waiting for Report'", |s| {
            s.control(&Message::new(14).frame());
            s.control(&Message::new(10).int(1).byte(0).frame());
        }),
        ("while in state 'waiting for Report'", |s| {
            s.control(&Message::new(14).frame());
            s.control(&Message::new(14).frame());
        }),
    ]);
}
