//! Tokens from a peer: any payload decodes or fails without allocating, decoded tokens encode to as
//! many bytes or fewer, and the steps of an applier tile the segment and stay in the basis.
#![no_main]

use std::convert::Infallible;

use dsync_delta::{Applier, BlockLen, Layout, Segments, Step, TokenDecoder, TokenEncoder};
use dsync_fuzz::within_memory;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[log2, index, lead, blocks], payload)) = data.split_first_chunk::<4>() else { return };
    within_memory(1 << 10, 0, || {
        let tokens = TokenDecoder::new(payload).take_while(Result::is_ok).count();
        assert!(tokens <= payload.len());
    });
    if let Ok(tokens) = TokenDecoder::new(payload).collect::<Result<Vec<_>, _>>() {
        let mut encoder = TokenEncoder::new();
        tokens.iter().for_each(|&token| encoder.push(token));
        assert!(encoder.take().len() <= payload.len());
    }
    let Ok(block_len) = BlockLen::new(1 << (10 + log2 % 13)) else { return };
    let layout = Layout::new(u64::from(blocks) * 1000, block_len);
    apply(Some(layout), u64::from(index % 4), u32::from(lead) * 97, payload);
    apply(None, u64::from(index % 4), u32::from(lead), payload);
});

fn apply(basis: Option<Layout>, index: u64, lead: u32, payload: &[u8]) {
    let Ok(segments) = Segments::new(3_000_000, 20) else { return };
    let Ok(mut applier) = Applier::new(basis, &segments, index, lead) else { return };
    let range = segments.range(index);
    let mut at = range.start;
    let pushed = applier.push(payload, |step| {
        let (offset, len) = match step {
            Step::Write { offset, bytes } => (offset, bytes.len() as u64),
            Step::Zero { offset, len } => (offset, len),
            Step::Copy { basis_offset, offset, len } => {
                let file_len = basis.map_or(0, Layout::file_len);
                assert!(basis_offset + len <= file_len);
                (offset, len)
            }
            _ => return Ok(()),
        };
        assert!(offset == at && len > 0);
        at += len;
        assert!(at <= range.end);
        Ok::<_, Infallible>(())
    });
    if pushed.is_ok() && applier.finish().is_ok() {
        assert_eq!(at, range.end);
    }
}
