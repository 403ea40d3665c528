//! The zeros of a new file that are holes.
//!
//! The source says where its own file has them (`Holes`), or the run wants one wherever zeros fill
//! a block (`-S`). The law: only zeros become holes. If a source sends other bytes for a place that
//! it called a hole, the bytes count.

use std::{io, ops::Range};

use dsync_fs::blank;

/// The holes of one segment.
pub(super) enum Holes {
    /// All zeros.
    AllZeros,
    /// In these ranges of the file, which are in order and apart.
    Given(Vec<Range<u64>>),
}

impl Holes {
    /// Returns the holes that are known before the source has said anything.
    pub(super) fn unsaid(sparse: bool) -> Self {
        if sparse { Self::AllZeros } else { Self::Given(Vec::new()) }
    }

    /// Takes the source's holes of the segment that begins at `start`.
    pub(super) fn say(&mut self, start: u64, holes: &[Range<u32>]) {
        let place = |at: u32| start.saturating_add(at.into());
        if let Self::Given(given) = self {
            *given = holes.iter().map(|hole| place(hole.start)..place(hole.end)).collect();
        }
    }

    /// Calls back with the parts of a range of zeros, in order, and whether they are holes.
    pub(super) fn for_zeros(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self::Given(given) = self else { return each(range, true) };
        let mut at = range.start;
        let first = given.partition_point(|hole| hole.end <= at);
        for hole in given[first..].iter().take_while(|hole| hole.start < range.end) {
            let (start, end) = (hole.start.max(at), hole.end.min(range.end));
            if at < start {
                each(at..start, false)?;
            }
            each(start..end, true)?;
            at = end;
        }
        if at < range.end { each(at..range.end, false) } else { Ok(()) }
    }

    /// Calls back with the parts of content that lies at `offset`, in order, and whether they are
    /// holes.
    pub(super) fn for_content(
        &self,
        offset: u64,
        bytes: &[u8],
        mut each: impl FnMut(Range<usize>, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::AllZeros => blank::for_runs(offset, bytes, |_| true, each),
            Self::Given(given) if given.is_empty() => each(0..bytes.len(), false),
            Self::Given(_) => blank::for_runs(offset, bytes, |unit| self.has(&unit), each),
        }
    }

    /// Returns whether the whole range is in a hole.
    fn has(&self, range: &Range<u64>) -> bool {
        let Self::Given(given) = self else { return true };
        let hole = given.get(given.partition_point(|hole| hole.end <= range.start));
        hole.is_some_and(|hole| hole.start <= range.start && range.end <= hole.end)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parts(holes: &Holes, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts = Vec::new();
        let each = |part, hole| {
            parts.push((part, hole));
            Ok(())
        };
        holes.for_zeros(range, each).unwrap();
        parts
    }

    #[test]
    fn zeros_are_cut_at_the_borders_of_holes() {
        let mut holes = Holes::unsaid(false);
        assert_eq!(parts(&holes, 5..9), [(5..9, false)]);
        holes.say(1000, &[0..10, 10..20, 50..60]);
        assert_eq!(parts(&holes, 1015..1055), [(1015..1020, true), (1020..1050, false), (1050..1055, true)]);
        assert_eq!(parts(&holes, 1002..1004), [(1002..1004, true)]);
        assert_eq!(parts(&holes, 1060..1070), [(1060..1070, false)]);
        assert_eq!(parts(&Holes::AllZeros, 5..9), [(5..9, true)]);
    }

    #[test]
    fn only_zeros_inside_a_hole_stay_blank() {
        let mut holes = Holes::unsaid(false);
        holes.say(0, &[4096..12288, 20480..20481]);
        let mut content = vec![0; 16384];
        content[8192] = 1;
        let mut parts = Vec::new();
        let each = |part, hole| {
            parts.push((part, hole));
            Ok(())
        };
        holes.for_content(0, &content, each).unwrap();
        assert_eq!(parts, [(0..4096, false), (4096..8192, true), (8192..16384, false)]);
    }
}
