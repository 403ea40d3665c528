//! The names of one directory in byte order, however many there are.
//!
//! Takes names as the kernel lists them, from all layers of a merged directory. Up to [`MAX_FEW`]
//! are simply sorted. More are sorted in runs, which go to a [`Spool`] and are merged from there
//! into chunks of some [`CHUNK`] names. Chunks can be read in any order and by any thread. So a
//! directory of ten million names takes the memory of one run ([`RUN_BYTES`]), or of the heads of
//! [`MAX_RUNS`] that are merged, and a few bytes for each name on the spool.
//!
//! Law: the chunks, one after the other, are all names in order of (name, layer). Names that differ
//! only in their layer are in one chunk.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    mem,
};

use crate::{
    component::Component,
    listed_name::Name,
    spool::{RecordAt, SealedSpool, Spool, SpoolError, SpoolHome},
};

/// All names of a directory.
#[derive(Debug)]
pub(crate) enum Names {
    /// Sorted names.
    Few(Vec<Name>),
    Many(SpooledNames),
}

/// Names that are too many to keep in memory.
#[derive(Debug)]
pub(crate) struct SpooledNames {
    spool: SealedSpool,
    chunks: Vec<RecordAt>,
}

/// Collects and sorts names.
#[derive(Debug, Default)]
pub(crate) struct NameSorter {
    few: Vec<Name>,
    run: Run,
    runs: Vec<SpooledNames>,
    home: SpoolHome,
}

impl NameSorter {
    /// Makes a sorter that spools very many names to `home`.
    pub(crate) fn new(home: &SpoolHome) -> Self {
        Self { home: home.clone(), ..Self::default() }
    }

    /// Adds a name.
    ///
    /// # Errors
    /// [`SpoolError`] if there are many names and they cannot be kept.
    pub(crate) fn push(&mut self, name: Name) -> Result<(), SpoolError> {
        if self.few.len() < MAX_FEW && self.run.is_empty() && self.runs.is_empty() {
            self.few.push(name);
            return Ok(());
        }
        for few in mem::take(&mut self.few) {
            self.run.push(few.name.as_bytes(), few.layer);
        }
        self.run.push(name.name.as_bytes(), name.layer);
        if self.run.records.len() >= RUN_BYTES {
            let run = mem::take(&mut self.run).spool(&self.home)?;
            self.runs.push(run);
            if self.runs.len() >= MAX_RUNS {
                let merged = merge(&mem::take(&mut self.runs), &self.home)?;
                self.runs.push(merged);
            }
        }
        Ok(())
    }

    /// Sorts the remaining names.
    ///
    /// # Errors
    /// [`SpoolError`] if there are many names and they cannot be kept.
    pub(crate) fn finish(mut self) -> Result<Names, SpoolError> {
        if self.run.is_empty() && self.runs.is_empty() {
            self.few.sort_unstable();
            return Ok(Names::Few(self.few));
        }
        let last = self.run.spool(&self.home)?;
        if self.runs.is_empty() {
            return Ok(Names::Many(last));
        }
        self.runs.push(last);
        merge(&self.runs, &self.home).map(Names::Many)
    }
}

impl SpooledNames {
    /// Returns the number of chunks.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the names of a chunk.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] if they are not the names that were written.
    pub(crate) fn chunk(&self, index: usize) -> Result<Vec<Name>, SpoolError> {
        let damaged = || SpoolError::Damaged { index: index as u64 };
        let place = self.chunks.get(index).ok_or_else(damaged)?;
        let chunk = self.spool.get(place)?;
        let mut rest = &*chunk;
        let mut names = Vec::with_capacity(CHUNK);
        let mut name = Vec::new();
        while !rest.is_empty() {
            let layer = decode(&mut rest, &mut name).ok_or_else(damaged)?;
            let name = Component::new(&name).map_err(|_| damaged())?;
            names.push(Name { name, layer, ino: 0 });
        }
        Ok(names)
    }
}

/// Names that are sorted together: consecutive records, and the start of each.
#[derive(Debug, Default)]
struct Run {
    records: Vec<u8>,
    starts: Vec<u32>,
}

impl Run {
    fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    fn push(&mut self, name: &[u8], layer: u32) {
        // A run ends at RUN_BYTES, far below 4 GiB; a name has at most 255 bytes.
        self.starts.push(u32::try_from(self.records.len()).unwrap_or(u32::MAX));
        self.records.extend_from_slice(&layer.to_le_bytes());
        self.records.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        self.records.extend_from_slice(name);
    }

    fn spool(mut self, home: &SpoolHome) -> Result<SpooledNames, SpoolError> {
        let records = mem::take(&mut self.records);
        self.starts.sort_unstable_by_key(|&start| record(&records, start));
        let mut writer = ChunkWriter::new(home);
        for &start in &self.starts {
            let (name, layer) = record(&records, start);
            writer.push(name, layer)?;
        }
        writer.finish()
    }
}

/// Returns the record at `start`. The order of these pairs is the order of a directory.
fn record(records: &[u8], start: u32) -> (&[u8], u32) {
    let rest = usize::try_from(start).ok().and_then(|start| records.get(start..)).unwrap_or_default();
    match rest {
        [a, b, c, d, len, tail @ ..] => {
            let name = tail.get(..usize::from(*len)).unwrap_or_default();
            (name, u32::from_le_bytes([*a, *b, *c, *d]))
        }
        _ => (&[], 0),
    }
}

/// Merges sorted runs.
fn merge(runs: &[SpooledNames], home: &SpoolHome) -> Result<SpooledNames, SpoolError> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    for run in runs {
        let mut cursor = Cursor { run, chunk: 0, bytes: Cow::Borrowed(&[]), at: 0 };
        let mut name = Vec::new();
        if let Some(layer) = cursor.next(&mut name)? {
            heads.push(Reverse(Head { name, layer, cursor }));
        }
    }
    let mut writer = ChunkWriter::new(home);
    while let Some(mut first) = heads.peek_mut() {
        let Reverse(head) = &mut *first;
        writer.push(&head.name, head.layer)?;
        match head.cursor.next(&mut head.name)? {
            Some(layer) => head.layer = layer,
            None => drop(PeekMut::pop(first)),
        }
    }
    writer.finish()
}

/// The next name of a run.
struct Head<'a> {
    name: Vec<u8>,
    layer: u32,
    cursor: Cursor<'a>,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.name, self.layer).cmp(&(&other.name, other.layer))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

/// A position in a run.
struct Cursor<'a> {
    run: &'a SpooledNames,
    chunk: usize,
    /// The current chunk; `at` counts the bytes read.
    bytes: Cow<'a, [u8]>,
    at: usize,
}

impl Cursor<'_> {
    /// Advances to the next name; returns its layer. `name` holds the previous one.
    fn next(&mut self, name: &mut Vec<u8>) -> Result<Option<u32>, SpoolError> {
        if self.at >= self.bytes.len() {
            let Some(place) = self.run.chunks.get(self.chunk) else { return Ok(None) };
            self.bytes = self.run.spool.get(place)?;
            self.at = 0;
            self.chunk += 1;
            name.clear();
        }
        let damaged = SpoolError::Damaged { index: self.chunk as u64 };
        let mut rest = self.bytes.get(self.at..).unwrap_or_default();
        let layer = decode(&mut rest, name).ok_or(damaged)?;
        self.at = self.bytes.len() - rest.len();
        Ok(Some(layer))
    }
}

/// Writes sorted names in chunks.
struct ChunkWriter {
    spool: Spool,
    chunks: Vec<RecordAt>,
    chunk: Vec<u8>,
    count: usize,
    last: Vec<u8>,
}

impl ChunkWriter {
    fn new(home: &SpoolHome) -> Self {
        let (chunks, chunk, last) = (Vec::new(), Vec::new(), Vec::new());
        Self { spool: Spool::new(home), chunks, chunk, count: 0, last }
    }

    fn push(&mut self, name: &[u8], layer: u32) -> Result<(), SpoolError> {
        if self.count >= CHUNK && name != self.last {
            self.end_chunk()?;
        }
        // Length of the prefix shared with the name before, length of the rest, the rest, the
        // layer.
        let shared = name.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        let rest = name.get(shared..).unwrap_or_default();
        self.chunk.push(u8::try_from(shared).unwrap_or(u8::MAX));
        self.chunk.push(u8::try_from(rest.len()).unwrap_or(u8::MAX));
        self.chunk.extend_from_slice(rest);
        let mut layer = layer;
        while let low @ 0x80.. = layer {
            self.chunk.push((low & 0x7f) as u8 | 0x80);
            layer >>= 7;
        }
        self.chunk.push((layer & 0x7f) as u8);
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
        self.count += 1;
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<(), SpoolError> {
        self.chunks.push(self.spool.push(&self.chunk)?);
        self.chunk.clear();
        self.last.clear();
        self.count = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<SpooledNames, SpoolError> {
        if self.count > 0 {
            self.end_chunk()?;
        }
        Ok(SpooledNames { spool: self.spool.seal()?, chunks: self.chunks })
    }
}

/// Decodes one name of a chunk after the one before it; returns its layer.
fn decode(rest: &mut &[u8], name: &mut Vec<u8>) -> Option<u32> {
    let [shared, len, tail @ ..] = *rest else { return None };
    let (new, mut tail) = tail.split_at_checked(usize::from(*len))?;
    name.truncate(usize::from(*shared));
    name.extend_from_slice(new);
    let mut layer = 0;
    for shift in (0..32).step_by(7) {
        let (byte, after) = tail.split_first()?;
        tail = after;
        layer |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    *rest = tail;
    Some(layer)
}

/// Most names that are kept as they are, which suffices for nearly every directory.
const MAX_FEW: usize = 8192;

/// Names in a chunk: one unit of work for a thread, one or two messages on the wire.
pub(crate) const CHUNK: usize = 4096;

/// Bytes of names that are sorted at once: at 20 bytes each, some 400,000. Both ends of a local run have one.
#[cfg(not(test))]
const RUN_BYTES: usize = 8 << 20;
#[cfg(test)]
const RUN_BYTES: usize = 64 << 10;

/// Sorted runs that are merged into one, each with a chunk in memory and a descriptor. Thirteen million names
/// are merged once, more of them again.
const MAX_RUNS: usize = 32;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sorted(names: &[Name]) -> (Vec<Name>, usize) {
        let mut sorter = NameSorter::default();
        for name in names {
            sorter.push(name.clone()).unwrap();
        }
        match sorter.finish().unwrap() {
            Names::Few(names) => (names, 0),
            Names::Many(many) => {
                let chunks: Vec<_> = (0..many.chunk_count()).map(|at| many.chunk(at).unwrap()).collect();
                for pair in chunks.windows(2) {
                    assert_ne!(pair[0].last().unwrap().name, pair[1][0].name, "equal names are together");
                }
                (chunks.concat(), chunks.len())
            }
        }
    }

    /// Law: any number of names returns in order. Tries names like those that people choose, and
    /// long random ones.
    #[test]
    fn names_come_back_in_order_from_every_form() {
        let mut state = 88_172_645_463_325_252_u64;
        for (count, chunks) in [(0, 0..1), (1, 0..1), (8192, 0..1), (8193, 2..4), (60_000, 10..20)] {
            let mut names: Vec<Name> = (0..count)
                .map(|number| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let name = match state % 3 {
                        0 => format!("IMG_{:05}.jpg", state % 100_000),
                        1 => format!("{state:016x}").repeat((state % 15) as usize + 1),
                        _ => format!("{number}"),
                    };
                    let layer = if number % 5 == 0 { 300_000 } else { number % 3 };
                    Name { name: Component::new(name.as_bytes()).unwrap(), layer, ino: 0 }
                })
                .collect();
            let (found, found_chunks) = sorted(&names);
            names.sort();
            assert_eq!(count > 8192, found_chunks > 0);
            assert!(found == names, "{count} names");
            assert!(chunks.contains(&found_chunks), "{count} names in {found_chunks} chunks");
        }
    }

    #[test]
    fn a_sorter_holds_one_run_and_few_others_however_many_names_there_are() {
        let mut sorter = NameSorter::default();
        for number in 0..200_000_u32 {
            // In an order that leaves each run names of the whole directory.
            let name = format!("{:08x}-of-many", number.wrapping_mul(2_654_435_761));
            let name = Component::new(name.as_bytes()).unwrap();
            sorter.push(Name { name, layer: 0, ino: 0 }).unwrap();
            assert!(sorter.run.records.len() < RUN_BYTES && sorter.runs.len() < MAX_RUNS, "{number}");
            assert!(sorter.few.len() <= MAX_FEW && (sorter.few.is_empty() || sorter.run.is_empty()));
        }
        let Names::Many(names) = sorter.finish().unwrap() else { panic!("they are many") };
        assert_eq!(names.chunk_count(), 200_000_usize.div_ceil(CHUNK));
    }
}
