//! A destination: requests listed files, and others.

use std::collections::HashMap;

use dsync_delta::{BlockLen, SumsFormat};
use dsync_wire::{
    event::Progress,
    message::{
        Cause, ControlMessage, EntryId, FileKey, FileState, Landed, NeedDelta, NeedTail, Operation, Problem,
        Rest, SpanAnswer, Sums,
    },
};

use super::{PATIENCE, Peer, script::Script};

/// Plays the script to its end.
pub(super) fn play(peer: &mut Peer, script: &mut Script<'_>) {
    let mut attempts = HashMap::new();
    let mut parts = 0;
    while script.goes_on() {
        step(peer, script, &mut attempts, &mut parts);
    }
}

fn step(peer: &mut Peer, script: &mut Script<'_>, attempts: &mut HashMap<u64, u8>, parts: &mut u64) {
    // The tree has six entries.
    let entry = u64::from(script.byte() % 8);
    let next = attempts.entry(entry).or_default();
    let attempt = if script.rarely(16) { script.byte() % 4 } else { *next };
    let entry = EntryId(entry);
    let message = match script.below(16) {
        0..=2 => {
            *next += 1;
            ControlMessage::Need { entry, attempt }
        }
        3 | 4 => {
            *next += 1;
            return delta(peer, script, entry, attempt);
        }
        5 => {
            *next += 1;
            let content = script.rarely(2).then_some([7; 32]);
            ControlMessage::NeedTail(NeedTail { entry, attempt, from: script.byte().into(), content })
        }
        6 => {
            let start = u64::from(script.byte() % 4);
            let runs = vec![start..start + u64::from(script.byte() % 4)];
            let (state, length_log2) = (FileState([script.byte(); 16]), 18 + script.byte() % 10);
            ControlMessage::Rest(Rest { entry, attempt, state, length_log2, runs })
        }
        7 | 8 => {
            let part = if script.rarely(8) { script.byte().into() } else { *parts };
            *parts += 1;
            ControlMessage::ListingDone { part }
        }
        9 => ControlMessage::NeedsEnd,
        10 if script.rarely(2) => ControlMessage::Progress(Progress::default()),
        11 => {
            let stood = script.rarely(2).then_some(FileState([script.byte(); 16]));
            ControlMessage::Landed(vec![Landed { entry, stood }])
        }
        12 => {
            let (kind, bytes) = (script.byte(), script.bytes(64));
            let len = (bytes.len() as u32 + 1).to_le_bytes();
            return peer.say_raw([&len[..], &[kind], &bytes].concat());
        }
        13 => {
            while peer.hear(PATIENCE).is_some() {}
            return;
        }
        10 => ControlMessage::SpanAnswer(match script.below(3) {
            0 => SpanAnswer::Equal,
            1 => SpanAnswer::Nothing,
            _ => SpanAnswer::Pieces(vec![[script.byte(); 16]; script.below(4)]),
        }),
        14 if script.rarely(4) => ControlMessage::Report(Box::default()),
        14 => ControlMessage::Sums(Sums { entry, bytes: script.bytes(48), last: script.rarely(2) }),
        _ => ControlMessage::Problem(Problem::new(Operation::ReadFile, script.bytes(8), Cause::Changed)),
    };
    peer.say(&message, script.damage());
}

fn delta(peer: &mut Peer, script: &mut Script<'_>, entry: EntryId, attempt: u8) {
    let block_len = BlockLen::new(1024 << (script.byte() % 4)).unwrap_or(BlockLen::MIN);
    let format = script.pick(&[SumsFormat::StrongOnly, SumsFormat::StrongAndWeak, SumsFormat::WeakOnly]);
    let basis_len = script.pick(&[0, 1, 1024, 6000, 100_000, 1 << 40]);
    let key = script.rarely(4).then(|| FileKey([script.byte(); 32]));
    let need = NeedDelta { entry, attempt, basis_len, block_len, format, key };
    peer.say(&ControlMessage::NeedDelta(need), script.damage());
    let blocks = basis_len.div_ceil(block_len.get().into()).min(200);
    let per_block = format.bytes_per_block();
    let bytes = vec![script.byte(); blocks as usize * per_block];
    let sums = Sums { entry, bytes, last: !script.rarely(8) };
    peer.say(&ControlMessage::Sums(sums), script.damage());
}
