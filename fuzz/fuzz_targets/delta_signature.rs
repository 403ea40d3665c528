//! Sums and requests from a peer: decoding ends within bounded memory, decoded ones encode to the
//! same bytes, and an index of any sums searches any file.
#![no_main]

use dsync_delta::{
    ArrivingSignature, BlockLen, IndexedSignature, Key, Layout, RefineRequest, Rolling, Segments,
    SignatureDecoder, SumsFormat, Token, TokenSink, search_segment,
};
use dsync_fuzz::within_memory;
use libfuzzer_sys::fuzz_target;

const MAX_BLOCKS: u64 = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let Some((&[log2, format, split, ..], _)) = data.split_first_chunk::<11>() else { return };
    let (len, rest) = data[3..].split_at(8);
    let file_len = len.iter().fold(0, |len, &byte| len << 8 | u64::from(byte));
    let Ok(block_len) = BlockLen::new(1 << (10 + log2 % 13)) else { return };
    // Lengths that fit the input as well as absurd ones.
    let file_len = if log2 < 128 { file_len % (rest.len() as u64 * 1024 + 1) } else { file_len };
    let layout = Layout::new(file_len, block_len);
    let formats = [SumsFormat::StrongAndWeak, SumsFormat::StrongOnly, SumsFormat::WeakOnly];
    let format = formats[usize::from(format) % formats.len()];
    request(layout, format, rest);
    within_memory(1 << 20, rest.len(), || arriving(layout, usize::from(split) + 1, rest));
    within_memory(1 << 20, rest.len(), || {
        let Ok(mut decoder) = SignatureDecoder::new(layout, format, MAX_BLOCKS) else { return };
        for piece in rest.chunks(usize::from(split) + 1) {
            if decoder.push(piece).is_err() {
                return;
            }
        }
        let Ok(signature) = decoder.finish() else { return };
        assert_eq!(signature.encode(), rest);
        let index = IndexedSignature::new(signature.clone(), &Key::derive(&[]));
        assert!(index.add_weak(signature).is_err());
        search(&index, rest);
    });
});

/// Feeds the same bytes into an index that is searched before it is whole. The verdict on them is that
/// on a whole signature.
fn arriving(layout: Layout, piece_len: usize, bytes: &[u8]) {
    let whole = SignatureDecoder::new(layout, SumsFormat::StrongOnly, MAX_BLOCKS)
        .and_then(|mut whole| whole.push(bytes).and_then(|()| whole.finish()).map(drop));
    let arriving = ArrivingSignature::new(layout, &Key::derive(&[]), MAX_BLOCKS);
    let arrived = arriving.and_then(|mut arriving| {
        let pushed = bytes.chunks(piece_len).try_for_each(|piece| arriving.push(piece));
        search(arriving.index(), bytes);
        pushed.and_then(|()| arriving.finish())
    });
    assert_eq!(arrived, whole);
}

/// Decodes the same bytes as a request to refine.
fn request(layout: Layout, format: SumsFormat, bytes: &[u8]) {
    let decode = |bytes: &[u8]| RefineRequest::decode(layout, format, BlockLen::MIN, bytes, MAX_BLOCKS);
    if let Ok(request) = within_memory(1 << 10, 16 * bytes.len(), || decode(bytes)) {
        assert!(request.block_count() <= MAX_BLOCKS || format == SumsFormat::WeakOnly);
        assert_eq!(decode(&request.encode()), Ok(request));
    }
}

fn search(index: &IndexedSignature, new: &[u8]) {
    let Ok(segments) = Segments::new(new.len() as u64, 20) else { return };
    let outcome = search_segment(index, new, &segments, 0, &Rolling::new(), &mut Nowhere);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    let bytes = outcome.literal_bytes + outcome.matched_bytes + outcome.zero_bytes;
    assert_eq!(bytes, new.len() as u64);
    assert!(outcome.counters.compared_bytes <= 10 * bytes + (1 << 22));
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
