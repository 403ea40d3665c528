//! Test support: files, edits, and a naive twin of the search.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::{
    Applier, BlockLen, FileRoot, IndexedSignature, Key, Layout, ReadAt, Rolling, RootBuilder, SegmentOutcome,
    Segments, Signature, SignatureBuilder, Step, SumsFormat, Token, TokenEncoder, TokenSink, search_segment,
};

/// Returns a fixed key.
pub(crate) fn key() -> Key {
    Key::derive(&[b"source share", b"destination share"])
}

/// Returns random-looking bytes (xorshift), the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns text of few words with many repetitions.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    let words: [&[u8]; 8] = [b"the ", b"file ", b"is ", b"new\n", b"old\n", b"and ", b"block ", b"aaaaaaaa"];
    let mut bytes = Vec::with_capacity(len + 8);
    for byte in noise(seed, len) {
        if bytes.len() >= len {
            break;
        }
        bytes.extend_from_slice(words[usize::from(byte % 8)]);
    }
    bytes.truncate(len);
    bytes
}

/// The content of a basis.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    Noise,
    Text,
    Zeros,
    /// Two values only, in long runs.
    Runs,
    /// One block over and over.
    Repeated,
    /// Noise with stretches of zeros.
    Sparse,
}

impl Content {
    pub(crate) fn bytes(self, seed: u64, len: usize) -> Vec<u8> {
        match self {
            Self::Noise => noise(seed, len),
            Self::Text => text(seed, len),
            Self::Zeros => vec![0; len],
            Self::Runs => {
                let mut runs = Vec::with_capacity(len);
                for (turn, byte) in noise(seed, len).into_iter().enumerate() {
                    let run = usize::from(byte) * 11;
                    runs.resize((runs.len() + run).min(len), u8::from(turn % 2 == 0) * 7);
                    if runs.len() == len {
                        break;
                    }
                }
                runs.resize(len, 7);
                runs
            }
            Self::Repeated => noise(seed, 1024).into_iter().cycle().take(len).collect(),
            Self::Sparse => {
                let mut bytes = noise(seed, len);
                for (turn, piece) in bytes.chunks_mut(3000).enumerate() {
                    if turn % 3 == 1 {
                        piece.fill(0);
                    }
                }
                bytes
            }
        }
    }

    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            3 => Just(Self::Noise),
            2 => Just(Self::Text),
            1 => Just(Self::Zeros),
            2 => Just(Self::Runs),
            1 => Just(Self::Repeated),
            2 => Just(Self::Sparse),
        ]
    }
}

/// One change to a file. Offsets are taken modulo its length.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Overwrite { at: usize, len: usize, seed: u64 },
    Insert { at: usize, len: usize, seed: u64 },
    Delete { at: usize, len: usize },
    Copy { from: usize, to: usize, len: usize },
    Move { from: usize, to: usize, len: usize },
    Append { len: usize, seed: u64 },
    Truncate { to: usize },
    Zero { at: usize, len: usize },
}

impl Edit {
    /// Generates edits whose places and lengths prefer block borders plus or minus one.
    pub(crate) fn any(block_len: usize) -> impl Strategy<Value = Self> {
        let place = move || {
            let near =
                (0_usize..64, 0_usize..3).prop_map(move |(n, d)| (n * block_len + d).saturating_sub(1));
            prop_oneof![near, 0_usize..64 * block_len]
        };
        let len = move || {
            let near = (0_usize..5, 0_usize..3).prop_map(move |(n, d)| (n * block_len + d).saturating_sub(1));
            prop_oneof![2 => 1_usize..64, 1 => near]
        };
        prop_oneof![
            (place(), len(), any::<u64>()).prop_map(|(at, len, seed)| Self::Overwrite { at, len, seed }),
            (place(), len(), any::<u64>()).prop_map(|(at, len, seed)| Self::Insert { at, len, seed }),
            (place(), len()).prop_map(|(at, len)| Self::Delete { at, len }),
            (place(), place(), len()).prop_map(|(from, to, len)| Self::Copy { from, to, len }),
            (place(), place(), len()).prop_map(|(from, to, len)| Self::Move { from, to, len }),
            (len(), any::<u64>()).prop_map(|(len, seed)| Self::Append { len, seed }),
            place().prop_map(|to| Self::Truncate { to }),
            (place(), len()).prop_map(|(at, len)| Self::Zero { at, len }),
        ]
    }

    pub(crate) fn apply(&self, file: &mut Vec<u8>) {
        let place = |at: usize, file: &Vec<u8>| at % (file.len() + 1);
        match *self {
            Self::Overwrite { at, len, seed } => {
                let at = place(at, file);
                let end = (at + len).min(file.len());
                file[at..end].copy_from_slice(&noise(seed, end - at));
            }
            Self::Insert { at, len, seed } => {
                let at = place(at, file);
                file.splice(at..at, noise(seed, len));
            }
            Self::Delete { at, len } => {
                let at = place(at, file);
                let end = (at + len).min(file.len());
                file.drain(at..end);
            }
            Self::Copy { from, to, len } => {
                let from = place(from, file);
                let piece = file[from..(from + len).min(file.len())].to_vec();
                let to = place(to, file);
                file.splice(to..to, piece);
            }
            Self::Move { from, to, len } => {
                let from = place(from, file);
                let end = (from + len).min(file.len());
                let piece: Vec<u8> = file.drain(from..end).collect();
                let to = place(to, file);
                file.splice(to..to, piece);
            }
            Self::Append { len, seed } => file.extend(noise(seed, len)),
            Self::Truncate { to } => {
                let to = place(to, file);
                file.truncate(to);
            }
            Self::Zero { at, len } => {
                let at = place(at, file);
                let end = (at + len).min(file.len());
                file[at..end].fill(0);
            }
        }
    }
}

/// A basis and its edited version; `Debug` shows how to make them again.
pub(crate) struct Edited {
    pub(crate) basis: Vec<u8>,
    pub(crate) new: Vec<u8>,
    content: Content,
    recipe: String,
}

impl std::fmt::Debug for Edited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.recipe)
    }
}

impl Edited {
    pub(crate) fn new(content: Content, seed: u64, len: usize, edits: &[Edit]) -> Self {
        let basis = content.bytes(seed, len);
        let mut new = basis.clone();
        for edit in edits {
            edit.apply(&mut new);
        }
        let recipe = format!("Edited::new(Content::{content:?}, {seed}, {len}, &{edits:?})");
        Self { basis, new, content, recipe }
    }

    /// Returns whether blocks at different places may be equal or overlap.
    pub(crate) fn repeats_itself(&self) -> bool {
        !matches!(self.content, Content::Noise)
    }

    pub(crate) fn any(block_len: usize, max_len: usize) -> impl Strategy<Value = Self> {
        let edits = prop::collection::vec(Edit::any(block_len), 0..6);
        (Content::any(), any::<u64>(), 0..max_len, edits)
            .prop_map(|(content, seed, len, edits)| Self::new(content, seed, len, &edits))
    }
}

pub(crate) fn signature(basis: &[u8], block_len: u32, format: SumsFormat) -> Signature {
    let layout = Layout::new(basis.len() as u64, BlockLen::new(block_len).unwrap());
    let mut builder = SignatureBuilder::with_format(&key(), layout, format);
    builder.update(basis);
    builder.finish().unwrap()
}

/// Makes an indexed signature with both sums.
pub(crate) fn indexed(basis: &[u8], block_len: u32) -> IndexedSignature {
    IndexedSignature::new(signature(basis, block_len, SumsFormat::StrongAndWeak), &key())
}

/// A sink that encodes.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) lead: Option<u32>,
    pub(crate) encoder: TokenEncoder,
    pub(crate) payloads: Vec<Vec<u8>>,
}

impl TokenSink for Encoded {
    type Error = std::convert::Infallible;

    fn start(&mut self, lead: u32) -> Result<(), Self::Error> {
        assert_eq!(self.lead.replace(lead), None, "started twice");
        Ok(())
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error> {
        assert!(self.lead.is_some(), "token before start");
        self.encoder.push(token);
        if self.encoder.len() > 100_000 {
            self.payloads.push(self.encoder.take());
        }
        Ok(())
    }
}

/// Applies the tokens of one segment to `file`.
pub(crate) fn apply_segment(
    basis: &[u8],
    layout: Layout,
    segments: &Segments,
    index: u64,
    encoded: &mut Encoded,
    file: &mut [u8],
) {
    let mut applier = Applier::new(Some(layout), segments, index, encoded.lead.unwrap()).unwrap();
    encoded.payloads.push(encoded.encoder.take());
    let mut at = segments.range(index).start;
    for payload in &encoded.payloads {
        applier
            .push(payload, |step| {
                let (offset, bytes) = match step {
                    Step::Write { offset, bytes } => (offset, bytes.to_vec()),
                    Step::Copy { basis_offset, offset, len } => {
                        let from = usize::try_from(basis_offset).unwrap();
                        (offset, basis[from..from + usize::try_from(len).unwrap()].to_vec())
                    }
                    Step::Zero { offset, len } => (offset, vec![0; usize::try_from(len).unwrap()]),
                };
                assert_eq!(offset, at, "steps tile the segment in order");
                assert!(!bytes.is_empty());
                at += bytes.len() as u64;
                let offset = usize::try_from(offset).unwrap();
                file[offset..offset + bytes.len()].copy_from_slice(&bytes);
                Ok::<_, std::convert::Infallible>(())
            })
            .unwrap();
    }
    applier.finish().unwrap();
    assert_eq!(at, segments.range(index).end);
}

/// A file that must be read, as from a disk.
pub(crate) struct OnDisk<'f>(pub(crate) &'f [u8]);

impl ReadAt for OnDisk<'_> {
    type Error = std::convert::Infallible;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Self::Error> {
        self.0.read_at(offset, buf)
    }
}

/// Searches, applies, checks that the result is the new file, and returns the outcome of each
/// segment.
pub(crate) fn round_trip(index: &IndexedSignature, basis: &[u8], new: &[u8]) -> Vec<SegmentOutcome> {
    let segments = Segments::new(new.len() as u64, 20).unwrap();
    let mut root = RootBuilder::new(&key(), &segments);
    let mut rebuilt = vec![0xee; new.len()];
    let (mut outcomes, rollings) = (Vec::new(), [Rolling::new(), Rolling::new()]);
    for segment in 0..segments.count() {
        let mut encoded = Encoded::default();
        let outcome =
            search_segment(index, &OnDisk(new), &segments, segment, &rollings[0], &mut encoded).unwrap();
        let mut again = Encoded::default();
        let in_memory = search_segment(index, new, &segments, segment, &rollings[1], &mut again).unwrap();
        assert_eq!((in_memory, again.lead), (outcome, encoded.lead));
        let range = segments.range(segment);
        assert_eq!(
            outcome.literal_bytes + outcome.matched_bytes + outcome.zero_bytes,
            range.end - range.start
        );
        apply_segment(basis, index.layout(), &segments, segment, &mut encoded, &mut rebuilt);
        root.set(segment, outcome.value).unwrap();
        outcomes.push(outcome);
    }
    assert!(rebuilt == new, "the new file comes out");
    assert_eq!(root.finish().unwrap(), whole_root(new));
    outcomes
}

/// Returns the literal bytes of a search with both sums.
pub(crate) fn literal_bytes(basis: &[u8], new: &[u8], block_len: u32) -> u64 {
    literal_bytes_and_slack(basis, new, block_len).0
}

/// Returns the literal bytes, and how many of them look-ahead may have cost.
pub(crate) fn literal_bytes_and_slack(basis: &[u8], new: &[u8], block_len: u32) -> (u64, u64) {
    let outcomes = round_trip(&indexed(basis, block_len), basis, new);
    let literal = outcomes.iter().map(|outcome| outcome.literal_bytes).sum();
    let look_aheads: u64 = outcomes.iter().map(|outcome| outcome.counters.look_aheads).sum();
    (literal, look_aheads * u64::from(block_len))
}

pub(crate) fn whole_root(file: &[u8]) -> FileRoot {
    crate::file_root(&key(), file)
}

/// Returns the literal bytes of an exhaustive left-to-right search of the whole file. With
/// `zero_block`, the basis counts as having a block of zeros.
pub(crate) fn naive_literal_bytes(basis: &[u8], new: &[u8], block_len: usize, zero_block: bool) -> u64 {
    let sum = |window: &[u8]| window.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let zeros = vec![0; block_len];
    let tail = basis.chunks_exact(block_len).remainder();
    let mut blocks: HashMap<u32, Vec<&[u8]>> = HashMap::new();
    for block in basis.chunks_exact(block_len).chain(zero_block.then_some(&zeros[..])) {
        let class = blocks.entry(sum(block)).or_default();
        if !class.contains(&block) {
            class.push(block);
        }
    }
    let (mut at, mut literal) = (0, 0);
    let mut rolling = None;
    while at < new.len() {
        let rest = &new[at..];
        if rest.len() >= block_len {
            let now = rolling.unwrap_or_else(|| sum(&rest[..block_len]));
            if blocks.get(&now).is_some_and(|class| class.contains(&&rest[..block_len])) {
                at += block_len;
                rolling = None;
                continue;
            }
            rolling = rest.get(block_len).map(|&into| now + u32::from(into) - u32::from(rest[0]));
        } else if !tail.is_empty() && rest == tail {
            break;
        }
        at += 1;
        literal += 1;
    }
    literal
}
