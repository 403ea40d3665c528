//! Handing tokens to a sink: runs of copies joined, zeros cut out of literals, bytes counted.

use std::ops::Range;

use crate::{
    block::{BlockIndex, BlockRun},
    num::{len_u64, saturating_usize},
    search::TokenSink,
    token::{MAX_LITERAL, Token},
};

/// The tokens of one segment on their way to a sink.
#[derive(Debug)]
pub(crate) struct Emitter<'s, S: ?Sized> {
    sink: &'s mut S,
    segment: Range<u64>,
    run: Option<BlockRun>,
    pub(crate) literal_bytes: u64,
    pub(crate) matched_bytes: u64,
    pub(crate) zero_bytes: u64,
}

impl<'s, S: TokenSink + ?Sized> Emitter<'s, S> {
    pub(crate) fn new(sink: &'s mut S, segment: Range<u64>) -> Self {
        Self { sink, segment, run: None, literal_bytes: 0, matched_bytes: 0, zero_bytes: 0 }
    }

    /// Starts the segment with its first token `lead` bytes before it.
    pub(crate) fn start(&mut self, lead: u32) -> Result<(), S::Error> {
        self.sink.start(lead)
    }

    /// Emits new bytes that lie at `offset` in the file. Stretches of zeros that fill an aligned
    /// unit become zero runs: the destination leaves holes there.
    pub(crate) fn literal(&mut self, offset: u64, bytes: &[u8]) -> Result<(), S::Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.flush()?;
        let (mut sent, mut at) = (0, 0);
        while at < bytes.len() {
            let place = offset.saturating_add(len_u64(at));
            let piece = saturating_usize(ZERO_UNIT - place % ZERO_UNIT).min(bytes.len() - at);
            if len_u64(piece) < ZERO_UNIT || !is_zero(&bytes[at..at + piece]) {
                at += piece;
                continue;
            }
            let zeros = |bytes: &mut dyn Iterator<Item = &u8>| bytes.take_while(|&&byte| byte == 0).count();
            let from = at - zeros(&mut bytes[sent..at].iter().rev());
            let mut end = at + piece;
            while let Some(next) = bytes.get(end..end + piece).filter(|next| is_zero(next)) {
                end += next.len();
            }
            end += zeros(&mut bytes[end..].iter());
            self.pieces(&bytes[sent..from])?;
            self.zero(len_u64(end - from))?;
            (sent, at) = (end, end);
        }
        self.pieces(&bytes[sent..])
    }

    /// Emits `len` zero bytes.
    pub(crate) fn zero(&mut self, len: u64) -> Result<(), S::Error> {
        self.flush()?;
        self.zero_bytes += len;
        self.sink.token(Token::Zero(len))
    }

    /// Emits one block that lies at `range` in the new file.
    pub(crate) fn copy(&mut self, block: BlockIndex, range: &Range<u64>) -> Result<(), S::Error> {
        let inside = range.end.min(self.segment.end).saturating_sub(range.start.max(self.segment.start));
        self.matched_bytes += inside;
        let Some(next) = BlockRun::new(block, 1) else {
            return Ok(());
        };
        if let Some(joined) = self.run.and_then(|run| run.joined(next)) {
            self.run = Some(joined);
            return Ok(());
        }
        self.flush()?;
        self.run = Some(next);
        Ok(())
    }

    /// Emits what was held back to be joined.
    pub(crate) fn flush(&mut self) -> Result<(), S::Error> {
        match self.run.take() {
            Some(run) => self.sink.token(Token::Copy(run)),
            None => Ok(()),
        }
    }

    fn pieces(&mut self, bytes: &[u8]) -> Result<(), S::Error> {
        self.literal_bytes += len_u64(bytes.len());
        bytes.chunks(MAX_LITERAL).try_for_each(|piece| self.sink.token(Token::Literal(piece)))
    }
}

/// True when all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Ordinary data differs in its first bytes: look there before starting the wide loop.
    let (head, rest) = bytes.split_at(bytes.len().min(16));
    if head.iter().any(|&byte| byte != 0) {
        return false;
    }
    let mut pieces = rest.chunks_exact(64);
    pieces.all(|piece| piece.iter().fold(0, |any, &byte| any | byte) == 0)
        && rest.chunks_exact(64).remainder().iter().all(|&byte| byte == 0)
}

/// Literals are looked through for zeros in units of this many bytes, aligned in the file: 4 KiB, the
/// unit in which filesystems keep holes.
const ZERO_UNIT: u64 = 4 << 10;
