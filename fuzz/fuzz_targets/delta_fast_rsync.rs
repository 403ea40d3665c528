//! Differential: on the same edit and at the same block length, fast_rsync's delta and ours both
//! rebuild the new file, and ours has no more literal bytes than its delta has bytes.
#![no_main]

mod delta_edits;

use dsync_delta::{
    BlockLen, IndexedSignature, Key, Layout, Rolling, Segments, SumsFormat, Token, TokenSink, search_segment,
    signature_parallel,
};
use fast_rsync::{Signature, SignatureOptions, apply, diff};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&log2, rest)) = data.split_first() else { return };
    let (basis, new) = delta_edits::edited_files(rest);
    let Ok(block_len) = BlockLen::new(1 << (10 + log2 % 4)) else { return };
    let theirs = their_delta_len(&basis, &new, block_len);
    let layout = Layout::new(basis.len() as u64, block_len);
    let key = Key::derive(&[b"fuzz"]);
    let signature = signature_parallel(&key, layout, SumsFormat::default(), &basis).unwrap();
    let index = IndexedSignature::new(signature, &key);
    let segments = Segments::new(new.len() as u64, 20).unwrap();
    let (mut literal, mut slack, rolling) = (0, 0, Rolling::new());
    for segment in 0..segments.count() {
        let outcome = search_segment(&index, &new, &segments, segment, &rolling, &mut Nowhere).unwrap();
        literal += outcome.literal_bytes;
        // Where data repeats itself, look-ahead and borders may take another of several matches.
        slack += (outcome.counters.look_aheads + 4) * u64::from(block_len.get());
    }
    let rolls = layout.full_block_count() > 0;
    assert!(!rolls || literal <= theirs + slack, "{literal} {theirs}");
});

fn their_delta_len(basis: &[u8], new: &[u8], block_len: BlockLen) -> u64 {
    let options = SignatureOptions { block_size: block_len.get(), crypto_hash_size: 8 };
    let signature = Signature::calculate(basis, options);
    let (mut delta, mut rebuilt) = (Vec::new(), Vec::new());
    diff(&signature.index(), new, &mut delta).unwrap();
    apply(basis, &delta, &mut rebuilt).unwrap();
    assert!(rebuilt == new);
    delta.len() as u64
}

struct Nowhere;

impl TokenSink for Nowhere {
    type Error = std::convert::Infallible;

    fn start(&mut self, _lead: u32) -> Result<(), Self::Error> {
        Ok(())
    }

    fn token(&mut self, _token: Token<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}
