//! A list of the paths to copy, below one directory.
//!
//! A [`FileListWriter`] takes lines, in any order and any number, from a caller or from a file in
//! rsync's format; a [`FileList`] has them in the order of a walk. It is cheap to clone.
//!
//! Laws: no path of a list leads out of its directory: `..` is resolved in the text, and at the top
//! it stays there. A line that cannot be a path is kept as [unusable](FileList::unusable), for the
//! run to report. Of paths that would have one name at the destination, that counts whose directory
//! a line named first. [`lines`](FileList::lines) makes an equal list again, at another end.
//!
//! Cost: as of [`PathSorter`]. What comes before `/./` in lines, and without `relative` the
//! directories that lines name, stay in memory, each with its first path: together at most
//! [`MAX_BASE_BYTES`].

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
};

use crate::{
    component::{Component, RelPath},
    operand_paths::{Naming, OperandPaths, PathSorter},
    spool::{SpoolError, SpoolHome},
};

/// The paths to copy.
#[derive(Debug, Clone, Default)]
pub struct FileList(Arc<Kept>);

#[derive(Debug, Default)]
struct Kept {
    relative: bool,
    /// The directories in which paths begin, in the order of their first lines; the layer of a path
    /// is its index.
    bases: Vec<Base>,
    /// The first line whose path begins with `./`, without that.
    from_root: Option<FromRoot>,
    paths: OperandPaths,
    unusable: Vec<Vec<u8>>,
}

/// A directory in which paths begin.
#[derive(Debug)]
struct Base {
    path: Vec<u8>,
    /// The path of the first line, and whether it ends with a slash; empty where the lines stand for
    /// the directory's content.
    first: (RelPath, bool),
}

/// A line whose path begins with `./`.
#[derive(Debug)]
struct FromRoot {
    base: u32,
    path: RelPath,
    contents: bool,
}

/// A path of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedPath<'a> {
    /// The directory in which it begins, below that of the list; empty for that directory itself.
    pub base: &'a [u8],
    /// The path from there on, which the destination gets; empty for the base itself.
    pub path: &'a [u8],
    /// Whether the line stands for what is in the directory.
    pub contents: bool,
}

/// The reason why there is no list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileListError {
    /// The text could not be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The paths could not be kept.
    #[error(transparent)]
    Keep(#[from] SpoolError),
    /// The paths begin in too many directories.
    #[error("the paths begin in too many directories (more than {} MiB of names)", MAX_BASE_BYTES >> 20)]
    TooManyBases,
    /// Too many lines cannot be paths.
    #[error("more than {MAX_UNUSABLE} lines are no paths: it is no list of names")]
    NoNames,
    /// The list is longer than its [bound](FileListWriter::bounded).
    #[error(
        "it is longer than the {} MiB that are kept of a client's list: copy the directory, with filters", most >> 20
    )]
    TooLong {
        /// The bound, in bytes.
        most: u64,
    },
    /// A line has a zero byte, which no name has.
    #[error("a line has a NUL byte, which no name has")]
    ZeroByte,
}

/// Collects the lines of a list.
#[derive(Debug)]
pub struct FileListWriter {
    relative: bool,
    sorter: PathSorter,
    bases: Vec<Base>,
    /// The numbers of the bases, those of contents apart.
    numbers: HashMap<(Vec<u8>, bool), u32>,
    base_bytes: usize,
    from_root: Option<FromRoot>,
    unusable: Vec<Vec<u8>>,
    /// Bytes of the lines so far, and the most that they may have.
    bytes: u64,
    most: Option<u64>,
}

impl FileListWriter {
    /// Makes an empty list. With `relative` an entry gets the path that its line has, from a `/./`
    /// on; else only the last name of it.
    pub fn new(relative: bool, home: &SpoolHome) -> Self {
        let (bases, numbers, from_root, unusable) = Default::default();
        let sorter = PathSorter::new(home);
        let (base_bytes, bytes, most) = (0, 0, None);
        Self { relative, sorter, bases, numbers, base_bytes, from_root, unusable, bytes, most }
    }

    /// Bounds the list to so many bytes, about as many as it takes in files: each line counts with 24
    /// bytes besides its own.
    #[must_use]
    pub fn bounded(self, most: Option<u64>) -> Self {
        Self { most, ..self }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// [`FileListError`], but not for a line that cannot be a path.
    pub fn push(&mut self, line: &[u8]) -> Result<(), FileListError> {
        self.bytes = self.bytes.saturating_add(LINE_BYTES + line.len() as u64);
        if let Some(most) = self.most.filter(|&most| self.bytes > most) {
            return Err(FileListError::TooLong { most });
        }
        let Some(Parsed { base, path, contents, from_root }) = Parsed::of(line, self.relative) else {
            if self.unusable.len() >= MAX_UNUSABLE {
                return Err(FileListError::NoNames);
            }
            self.unusable.push(line.get(..=MAX_LINE).unwrap_or(line).to_vec());
            return Ok(());
        };

        let base = self.base(base, (&path, contents))?;
        if path.is_root() {
            return Ok(());
        }
        let naming = if contents { Naming::Contents } else { Naming::Entry };
        self.sorter.push(&path, base, naming)?;
        if from_root && self.from_root.is_none() {
            self.from_root = Some(FromRoot { base, path, contents });
        }
        Ok(())
    }

    /// Adds the lines of a text as rsync reads it: they end with a newline, a carriage return or
    /// both, or with `nul` with a zero byte; empty ones and those that begin with `#` or `;` are
    /// skipped.
    ///
    /// # Errors
    /// [`FileListError`].
    pub fn read(&mut self, mut text: impl Read, nul: bool) -> Result<(), FileListError> {
        let is_end = |byte: &u8| if nul { *byte == 0 } else { matches!(byte, b'\n' | b'\r') };
        let mut buffer = vec![0; 64 << 10];
        let mut line = Vec::new();

        loop {
            let read = match text.read(&mut buffer) {
                Ok(0) => return self.text_line(&line, nul),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let mut rest = buffer.get(..read).unwrap_or_default();
            while let Some(end) = rest.iter().position(is_end) {
                append(&mut line, rest.get(..end).unwrap_or_default());
                self.text_line(&line, nul)?;
                line.clear();
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            append(&mut line, rest);
        }
    }

    fn text_line(&mut self, line: &[u8], nul: bool) -> Result<(), FileListError> {
        match line.first() {
            None | Some(b'#' | b';') => Ok(()),
            Some(_) if !nul && line.contains(&0) => Err(FileListError::ZeroByte),
            Some(_) => self.push(line),
        }
    }

    /// Ends the list.
    ///
    /// # Errors
    /// [`FileListError::Keep`].
    pub fn finish(self) -> Result<FileList, FileListError> {
        let Self { relative, sorter, bases, from_root, unusable, .. } = self;
        let paths = sorter.seal()?;
        Ok(FileList(Arc::new(Kept { relative, bases, from_root, paths, unusable })))
    }

    /// Returns the number of a base, in which this path may be the first that begins.
    fn base(&mut self, base: Vec<u8>, (path, contents): (&RelPath, bool)) -> Result<u32, FileListError> {
        let key = (base, path.is_root());
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        self.base_bytes += 2 * key.0.len() + path.as_bytes().len() + BASE_BYTES;
        let number = u32::try_from(self.bases.len()).unwrap_or(u32::MAX);
        if self.base_bytes > MAX_BASE_BYTES {
            return Err(FileListError::TooManyBases);
        }
        self.bases.push(Base { path: key.0.clone(), first: (path.clone(), contents) });
        self.numbers.insert(key, number);
        Ok(number)
    }
}

impl FileList {
    /// Returns whether entries get the paths of their lines, not only the last name.
    pub fn is_relative(&self) -> bool {
        self.0.relative
    }

    /// Returns whether a line stands for the content of the directory in which its path begins.
    pub fn is_contents(&self) -> bool {
        self.0.bases.iter().any(Base::is_contents)
    }

    /// Returns whether a line stands for the content of a directory that `path`, below that of the list, is in or
    /// below of.
    pub fn is_contents_on_the_way(&self, path: &Path) -> bool {
        let holds = |base: &Base| path.starts_with(OsStr::from_bytes(&base.path));
        self.0.bases.iter().any(|base| base.is_contents() && holds(base))
    }

    /// Returns the paths that the destination gets, without those of
    /// [`is_contents`](Self::is_contents).
    pub fn paths(&self) -> &OperandPaths {
        &self.0.paths
    }

    /// Returns the first path of each directory in which paths begin, in the order of the lines. The
    /// path is empty where lines stand for the directory's content.
    pub fn first_of_each(&self) -> impl Iterator<Item = NamedPath<'_>> {
        self.0.bases.iter().map(|base| {
            let (path, contents) = &base.first;
            NamedPath { base: &base.path, path: path.as_bytes(), contents: *contents }
        })
    }

    /// Returns the paths that are not empty, in the order of a walk.
    pub fn named(&self) -> impl Iterator<Item = NamedPath<'_>> {
        self.paths().paths(0..self.paths().len()).map(|item| NamedPath {
            base: self.base(item.layer),
            path: item.path,
            contents: item.naming == Naming::Contents,
        })
    }

    /// Returns the directory, below that of the list, that is on the way to what is in it: the one
    /// in which the first path starts that begins with `./`.
    pub fn root_on_the_way(&self) -> Option<&[u8]> {
        self.0.from_root.as_ref().map(|line| self.base(line.base))
    }

    fn base(&self, number: u32) -> &[u8] {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        self.0.bases.get(index).map_or(&[], |base| base.path.as_slice())
    }

    /// Returns the lines that cannot be paths, cut to [`MAX_LINE`] bytes and one.
    pub fn unusable(&self) -> &[Vec<u8>] {
        &self.0.unusable
    }

    /// Returns lines that make an equal list, of at most [`MAX_LINE`] bytes and one.
    pub fn lines(&self) -> impl Iterator<Item = Vec<u8>> {
        let line = |(NamedPath { base, path, contents }, from_root): (NamedPath<'_>, bool)| {
            let mut line = base.to_vec();
            match (base.is_empty(), self.is_relative()) {
                (true, _) if path.is_empty() => line.push(b'.'),
                (true, _) => {}
                (false, true) => line.extend_from_slice(b"/./"),
                (false, false) => line.push(b'/'),
            }
            line.extend_from_slice(if from_root { b"./" } else { b"" });
            line.extend_from_slice(path);
            line.extend((contents && !path.is_empty()).then_some(b'/'));
            line
        };
        let from_root = self.0.from_root.as_ref().map(|FromRoot { base, path, contents }| {
            let named = NamedPath { base: self.base(*base), path: path.as_bytes(), contents: *contents };
            (named, true)
        });
        // Those of each directory first, whose order counts.
        let first = self.first_of_each().map(|named| (named, false));
        let named = self.named().map(|named| (named, false));
        self.unusable().iter().cloned().chain(first.chain(from_root).chain(named).map(line))
    }
}

impl Base {
    /// Returns whether lines stand for what is in the directory.
    fn is_contents(&self) -> bool {
        self.first.0.is_root()
    }
}

/// A line as a path.
struct Parsed {
    base: Vec<u8>,
    path: RelPath,
    contents: bool,
    from_root: bool,
}

impl Parsed {
    fn of(line: &[u8], relative: bool) -> Option<Self> {
        if line.len() > MAX_LINE {
            return None;
        }
        // Those in front count for nothing, also where `./` follows.
        let slashes = line.iter().take_while(|&&byte| byte == b'/').count();
        let line = &line[slashes..];
        let cut = line.windows(3).position(|three| three == b"/./").filter(|_| relative);
        let (before, rest) = cut.map_or((&[][..], line), |cut| (&line[..cut], &line[cut + 3..]));
        let (base, path) = (clean(before)?, clean(rest)?);
        let contents = path.is_root() || [&b"/"[..], b"/.", b"/.."].iter().any(|end| rest.ends_with(end));
        if relative || path.is_root() {
            let from_root = relative && rest.starts_with(b"./") && !path.is_root();
            return Some(Self { base: base.as_bytes().to_vec(), path, contents, from_root });
        }

        let (base, path) = match (contents, path.parent(), path.file_name()) {
            (false, Some(above), Some(name)) => (above, name.into()),
            _ => (path, RelPath::root()),
        };
        Some(Self { base: base.as_bytes().to_vec(), path, contents, from_root: false })
    }
}

/// Returns a path without `.`, `..` and double slashes.
fn clean(text: &[u8]) -> Option<RelPath> {
    let mut path = RelPath::root();
    for name in text.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => _ = path.pop(),
            name => path.push(&Component::new(name).ok()?),
        }
    }
    Some(path)
}

/// Appends to a line, of which no more is kept than shows that it is too long.
fn append(line: &mut Vec<u8>, more: &[u8]) {
    let room = (MAX_LINE + 1).saturating_sub(line.len());
    line.extend_from_slice(more.get(..room).unwrap_or(more));
}

/// Bytes of the longest line that can be a path: the most that Linux opens, NUL excluded.
pub const MAX_LINE: usize = 4095;

/// Bytes of a line of a [bounded](FileListWriter::bounded) list besides its own: what is kept with it.
const LINE_BYTES: u64 = 24;
/// Bytes of all directories in which paths begin, with their bookkeeping (16 MiB).
const MAX_BASE_BYTES: usize = 16 << 20;

/// Bookkeeping of one of them, in bytes.
const BASE_BYTES: usize = 96;

/// Lines that cannot be paths and are reported one by one.
const MAX_UNUSABLE: usize = 1000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    fn list(text: &[u8], (relative, nul): (bool, bool)) -> FileList {
        let mut writer = FileListWriter::new(relative, &SpoolHome::default());
        writer.read(text, nul).unwrap();
        writer.finish().unwrap()
    }

    fn shown(list: &FileList) -> Vec<String> {
        list.lines().map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    #[test]
    fn lines_are_read_as_rsync_reads_them() {
        let text = b"b/c\n\n#note\n;note\n sp \r\na\ra/../t\n../up\n//x//y/\n./#h\nlast";
        let names = ["b/c", "./#h", " sp ", "#h", "a", "b/c", "last", "t", "up", "x/y/"];
        assert_eq!(shown(&list(text, (true, false))), names);
        assert_eq!(shown(&list(b"d\0#c\0\0a\nb", (true, true))), ["d", "a\nb", "d"]);
    }

    #[test]
    fn a_path_begins_after_a_dot() {
        assert_eq!(shown(&list(b"a/./b/c\nq/./\n.", (true, false))), ["a/./b/c", "q/./", ".", "a/./b/c"]);
        assert_eq!(shown(&list(b"a/./b/c\nd/e/\n./\nx/..", (false, false))), ["a/b/c", "d/e/", ".", "a/b/c"]);
    }

    #[test]
    fn directories_keep_the_order_of_their_first_lines() {
        for (relative, text) in
            [(false, "y/f\nx/f\nx/a\ny/\n.\na\ny/b\n"), (true, "y/./f\nx/./f\n./\nx/./\n./a\n")]
        {
            let made = list(text.as_bytes(), (relative, false));
            let bases = |list: &FileList| -> Vec<_> {
                list.first_of_each().map(|named| (named.base.to_vec(), named.path.is_empty())).collect()
            };
            let expected: &[(&[u8], bool)] = if relative {
                &[(b"y", false), (b"x", false), (b"", true), (b"x", true), (b"", false)]
            } else {
                &[(b"y", false), (b"x", false), (b"y", true), (b"", true), (b"", false)]
            };
            let told: Vec<_> = bases(&made);
            assert_eq!(
                told.iter().map(|(base, whole)| (base.as_slice(), *whole)).collect::<Vec<_>>(),
                expected
            );
            let mut again = FileListWriter::new(relative, &SpoolHome::default());
            made.lines().try_for_each(|line| again.push(&line)).unwrap();
            assert_eq!(bases(&again.finish().unwrap()), told);
        }
    }

    #[test]
    fn a_path_that_begins_with_a_dot_has_the_root_on_its_way() {
        for (text, root) in [
            ("a\nb/c", None),
            ("./a", Some("")),
            ("a\nx/././a\n./b", Some("x")),
            ("././a", None),
            ("/./a\n//./b", Some("")),
            ("/a", None),
            ("./\n.", None),
        ] {
            let made = list(text.as_bytes(), (true, false));
            assert_eq!(made.root_on_the_way(), root.map(str::as_bytes), "{text}");
            let plain = list(text.as_bytes(), (false, false));
            assert_eq!(plain.root_on_the_way(), None, "{text}");
        }
    }

    #[test]
    fn a_bounded_list_takes_no_more_than_its_bound() {
        let refused_at = |line: &[u8]| {
            let mut writer = FileListWriter::new(true, &SpoolHome::default()).bounded(Some(100));
            let refused = (0..100).position(|_| writer.push(line).is_err());
            refused.unwrap()
        };
        // Of three lines each with its 24 bytes, and of one.
        assert_eq!(refused_at(b"123456789"), 3);
        assert_eq!(refused_at(&[b'/'; 77]), 0);
        let mut free = FileListWriter::new(true, &SpoolHome::default()).bounded(None);
        (0..100).for_each(|_| free.push(b"a").unwrap());
    }

    #[test]
    fn what_cannot_be_a_path_is_kept_for_the_report() {
        let long = "n".repeat(256);
        let list = list(format!("a\n{long}\nb\n{}\n", "x/".repeat(3000)).as_bytes(), (true, false));
        assert_eq!(list.unusable().iter().map(Vec::len).collect::<Vec<_>>(), [256, 4096]);
        assert_eq!(list.paths().len(), 2);
        let refused = |text: &[u8], nul| {
            let mut writer = FileListWriter::new(true, &SpoolHome::default());
            writer.read(text, nul).unwrap_err()
        };
        let error = refused(format!("{long}\n").repeat(MAX_UNUSABLE + 1).as_bytes(), false);
        assert!(matches!(error, FileListError::NoNames), "{error}");
        let error = refused(b"a\0b\0", false);
        assert!(matches!(error, FileListError::ZeroByte), "{error}");
    }

    const PARTS: &[&str] = &["a", "b", "..", ".", "", "a.b", "\u{fffd}"];

    proptest! {
        #[test]
        fn lines_make_an_equal_list_and_never_lead_out(
            given in vec(vec(select(PARTS), 1..6), 0..8),
            relative in any::<bool>(),
        ) {
            let text: Vec<String> = given.iter().map(|parts| parts.join("/")).collect();
            let made = list(text.join("\n").as_bytes(), (relative, false));
            let mut again = FileListWriter::new(relative, &SpoolHome::default());
            made.lines().try_for_each(|line| again.push(&line)).unwrap();
            let again = again.finish().unwrap();
            let sorted = |list: &FileList| { let mut all = shown(list); all.sort(); all };
            prop_assert_eq!(sorted(&made), sorted(&again));
            prop_assert_eq!(made.root_on_the_way(), again.root_on_the_way());
            let bases = |list: &FileList| -> Vec<_> {
                list.first_of_each().map(|named| (named.base.to_vec(), named.path.is_empty())).collect()
            };
            prop_assert_eq!(bases(&made), bases(&again));
            for NamedPath { base, path, .. } in made.first_of_each().chain(made.named()) {
                for text in [base, path] {
                    prop_assert!(text.is_empty() || RelPath::parse(text).is_ok());
                }
            }
        }
    }
}
