//! Emitter: joins runs of copies, cuts zeros out of literals, counts bytes, and hands tokens to a
//! sink.

use std::ops::Range;

use crate::{
    block::{BlockIndex, BlockRun, Layout},
    num::{len_u64, saturating_usize},
    outcome::{SearchCounters, SegmentOutcome, TokenSink},
    segment::SegmentValue,
    token::{MAX_LITERAL, Token},
};

/// The tokens of one segment on their way to a sink.
#[derive(Debug)]
pub(crate) struct Emitter<'s, S: ?Sized> {
    sink: &'s mut S,
    segment: Range<u64>,
    run: Option<BlockRun>,
    literal_bytes: u64,
    matched_bytes: u64,
    zero_bytes: u64,
}

/// Numbers of bytes that went out as tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Emitted {
    pub(crate) literal_bytes: u64,
    pub(crate) matched_bytes: u64,
    pub(crate) zero_bytes: u64,
}

impl<'s, S: TokenSink + ?Sized> Emitter<'s, S> {
    pub(crate) fn new(sink: &'s mut S, segment: Range<u64>) -> Self {
        Self { sink, segment, run: None, literal_bytes: 0, matched_bytes: 0, zero_bytes: 0 }
    }

    /// Returns the segment's range in the new file.
    pub(crate) fn segment(&self) -> Range<u64> {
        self.segment.clone()
    }

    /// Starts the segment with its first token `lead` bytes before it.
    pub(crate) fn start(&mut self, lead: u32) -> Result<(), S::Error> {
        self.sink.start(lead)
    }

    /// Emits new bytes that lie at `offset` in the file. Zeros that fill an aligned unit become
    /// zero runs: they are not sent, and the destination may leave holes there.
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
        self.count_matched(range);
        match BlockRun::new(block, 1) {
            Some(run) => self.join(run),
            None => Ok(()),
        }
    }

    /// Emits a run of blocks that starts at `at` in the new file.
    pub(crate) fn copy_run(
        &mut self,
        run: Option<BlockRun>,
        layout: Layout,
        at: u64,
    ) -> Result<(), S::Error> {
        let Some((run, source)) = run.and_then(|run| Some((run, layout.run_range(run)?))) else {
            return Ok(());
        };
        self.count_matched(&(at..at + (source.end - source.start)));
        // The blocks may be shorter than when the run was found, so some may now lie outside the
        // segment.
        let block_len = layout.block_len().bytes();
        let before = self.segment.start.saturating_sub(at) / block_len;
        let count = self.segment.end.saturating_sub(at).div_ceil(block_len).min(run.count());
        let first = BlockIndex(run.first().0 + before);
        match count.checked_sub(before).and_then(|count| BlockRun::new(first, count)) {
            Some(run) => self.join(run),
            None => Ok(()),
        }
    }

    /// Ends the segment.
    pub(crate) fn finish(
        self,
        value: SegmentValue,
        counters: SearchCounters,
    ) -> Result<SegmentOutcome, S::Error> {
        let Emitted { literal_bytes, matched_bytes, zero_bytes } = self.close()?;
        Ok(SegmentOutcome { value, literal_bytes, matched_bytes, zero_bytes, counters })
    }

    /// Emits what was held back and returns the number of bytes of each kind.
    pub(crate) fn close(mut self) -> Result<Emitted, S::Error> {
        self.flush()?;
        let Self { literal_bytes, matched_bytes, zero_bytes, .. } = self;
        Ok(Emitted { literal_bytes, matched_bytes, zero_bytes })
    }

    fn count_matched(&mut self, range: &Range<u64>) {
        let (start, end) = (range.start.max(self.segment.start), range.end.min(self.segment.end));
        self.matched_bytes += end.saturating_sub(start);
    }

    fn join(&mut self, next: BlockRun) -> Result<(), S::Error> {
        if let Some(joined) = self.run.and_then(|run| run.joined(next)) {
            self.run = Some(joined);
            return Ok(());
        }
        self.flush()?;
        self.run = Some(next);
        Ok(())
    }

    /// Emits the run of copies that was held back for joining.
    fn flush(&mut self) -> Result<(), S::Error> {
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

/// Returns whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Ordinary data differs in its first bytes, so check those before the wide loop.
    let (head, rest) = bytes.split_at(bytes.len().min(16));
    if head.iter().any(|&byte| byte != 0) {
        return false;
    }
    let mut pieces = rest.chunks_exact(64);
    pieces.all(|piece| piece.iter().fold(0, |any, &byte| any | byte) == 0)
        && rest.chunks_exact(64).remainder().iter().all(|&byte| byte == 0)
}

/// Unit in which zeros are cut out of literals, aligned in the file: 4 KiB, the unit in which
/// filesystems keep holes.
const ZERO_UNIT: u64 = 4 << 10;
