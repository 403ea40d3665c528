//! The search of a stream whose length is not known, part by part as its bytes arrive.
//!
//! The caller holds the bytes from [`StreamSearch::needed_from`] on. Each call searches all windows
//! that they contain and stops so early that no decision depends on bytes which have not arrived. The
//! prediction, the position and the state of the file's root pass from one call to the next, so a
//! match is found wherever the parts are cut.

use std::convert::Infallible;

use super::{Outcome, Search};
use crate::{
    block::BlockIndex,
    emit::{Emitted, Emitter},
    index::IndexedSignature,
    key::Key,
    num::len_u64,
    outcome::TokenSink,
    read::Window,
    root::FileRoot,
    search::{Rolling, SearchCounters, SearchError},
    segment::SegmentError,
    subtree::SegmentTree,
};

/// The state of a stream's search between two parts.
#[derive(Debug)]
pub(crate) struct StreamSearch {
    at: u64,
    predicted: BlockIndex,
    rolling: Rolling,
    /// `None` only after a part's search has failed.
    tree: Option<SegmentTree>,
}

/// The bytes of a stream that a caller holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Offset in the stream of the first byte.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether the stream ends behind them.
    pub(crate) is_last: bool,
}

impl StreamSearch {
    /// Starts at the beginning of a stream.
    pub(crate) fn new(key: &Key) -> Self {
        let tree = Some(SegmentTree::open_ended(key));
        Self { at: 0, predicted: BlockIndex(0), rolling: Rolling::new(), tree }
    }

    /// Returns the offset of the first byte that later searches read.
    pub(crate) fn needed_from(&self) -> u64 {
        self.tree.as_ref().map_or(self.at, |tree| tree.position().min(self.at))
    }

    /// Searches as much of a part as can be decided, all of it if it is the last.
    pub(crate) fn search<S: TokenSink + ?Sized>(
        &mut self,
        index: &IndexedSignature,
        part: Part<'_>,
        sink: &mut S,
    ) -> Result<(Emitted, SearchCounters), SearchError<Infallible, S::Error>> {
        let limit = part.offset + len_u64(part.bytes.len());
        let block_len = index.layout().block_len().bytes();
        // A copy may end up to a block behind the last window that was looked at.
        let end = if part.is_last { limit } else { (limit / block_len).saturating_sub(1) * block_len };
        let mut emitter = Emitter::new(sink, 0..u64::MAX);

        let window = Window::over(part.bytes, part.offset, part.bytes);
        let stretch = self.at..end.max(self.at);
        let mut search = Search::over(index, &self.rolling, window, limit, &stretch, limit, &mut emitter);
        search.predicted = self.predicted;
        search.zeros_until = limit;
        search.tree = self.tree.take();
        if part.is_last {
            search.tree.iter_mut().for_each(|tree| tree.end_at(limit));
            search.run()?;
        } else {
            search.run_part()?;
        }

        (self.at, self.predicted, self.tree) = (search.at, search.predicted, search.tree.take());
        let counters = search.counters;
        let emitted = emitter.close().map_err(SearchError::Sink)?;
        Ok((emitted, counters))
    }

    /// Returns the stream's root once its last part was searched.
    pub(crate) fn finish(self) -> Result<FileRoot, SegmentError> {
        let unfinished = SegmentError::WrongLength { expected: self.at, got: 0 };
        let value = self.tree.ok_or(unfinished)?.finish()?;
        Ok(FileRoot::from_bytes(value.to_bytes()))
    }
}

impl<S: TokenSink + ?Sized> Search<'_, '_, [u8], S> {
    /// Searches to where a decision could depend on bytes behind the part: a position, the look-ahead
    /// over a block and over a shift need two blocks.
    fn run_part(&mut self) -> Outcome<(), [u8], S> {
        while self.at + 2 * self.block_len < self.end {
            self.step()?;
        }

        self.flush_literal(self.at)?;
        self.hash_to(self.at);
        Ok(())
    }
}
