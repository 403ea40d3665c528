//! Source operands with wildcards: which entries they name, and which names they could have named.
//!
//! The language is that of rsync's remote operands, which a shell expands there: `*`, `?` and
//! `[a-z]` stand for bytes of one name, a name that begins with a dot only matches a pattern that
//! does, a backslash takes the meaning from what follows it, and `{a,b}` stands for each of its
//! alternatives. No shell is involved. An operand without any of these is taken byte by byte,
//! backslashes included.
//!
//! The source [expands](expand) an operand; the destination, which has the same operand from the
//! person who started the run, holds what arrives against a [`PathPattern`] of it.

use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{component::Component, dir::Dir, filter::Wildcards};

/// Returns whether an operand has wildcards, or alternatives in braces.
///
/// ```
/// // A path from a file dialog means itself, whatever is in its name.
/// let operand = b"holiday [2024]";
/// let is_ambiguous = dsync_fs::has_wildcards(operand);
/// assert!(is_ambiguous && !dsync_fs::has_wildcards(b"holiday"));
/// ```
pub fn has_wildcards(operand: &[u8]) -> bool {
    operand.iter().any(|byte| b"*?[".contains(byte)) || first_group(operand).is_some()
}

/// The names that an operand has or stands for, or that have to be looked at, are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the wildcards of the operands stand for too many names")]
pub struct TooManyNames;

/// The most names, and bytes of them, that operands may stand for.
#[derive(Debug, Clone, Copy)]
pub struct MostNames {
    /// Number of names.
    pub count: usize,
    /// Bytes of all names.
    pub bytes: usize,
    /// Names of directories that are compared with a wildcard: `*/../*` reads one directory as often as
    /// it has others in it.
    pub looks: usize,
}

impl MostNames {
    /// Subtracts a name.
    fn take(&mut self, name: &[u8]) -> Result<(), TooManyNames> {
        self.count = self.count.checked_sub(1).ok_or(TooManyNames)?;
        self.bytes = self.bytes.checked_sub(name.len()).ok_or(TooManyNames)?;
        Ok(())
    }
}

/// Returns what the braces of an operand stand for: each alternative once, in order. An operand
/// without braces is its only alternative.
///
/// # Errors
/// [`TooManyNames`].
pub fn alternatives(operand: &[u8], mut most: MostNames) -> Result<Vec<Vec<u8>>, TooManyNames> {
    let mut done = Vec::new();
    let mut waiting = vec![operand.to_vec()];
    while let Some(text) = waiting.pop() {
        most.take(&text)?;
        match first_group(&text) {
            None => done.push(text),
            Some(group) => {
                let ends = group.commas.iter().copied().chain([group.close]);
                let mut from = group.open + 1;
                let mut parts = Vec::new();
                for end in ends {
                    let (before, after) = (text.get(..group.open), text.get(group.close + 1..));
                    let part = text.get(from..end);
                    parts.push([before, part, after].map(Option::unwrap_or_default).concat());
                    from = end + 1;
                }
                waiting.extend(parts.into_iter().rev());
            }
        }
    }
    Ok(done)
}

/// A brace, the commas of its alternatives, and its end.
struct Group {
    open: usize,
    commas: Vec<usize>,
    close: usize,
}

/// Returns the first brace that has a comma and an end.
fn first_group(text: &[u8]) -> Option<Group> {
    // Each brace that is open, with its commas.
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<Group> = None;
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'{' => open.push((at, Vec::new())),
            b',' => open.iter_mut().last().into_iter().for_each(|(_, commas)| commas.push(at)),
            b'}' => {
                let closed = open.pop().filter(|(_, commas)| !commas.is_empty());
                if let Some((start, commas)) = closed
                    && first.as_ref().is_none_or(|first| start < first.open)
                {
                    first = Some(Group { open: start, commas, close: at });
                }
            }
            _ => {}
        }
    }
    first
}

/// The names that one component of an operand stands for.
#[derive(Debug, Clone)]
struct NamePattern {
    /// The pattern; `None` for a component that stands for one name.
    wild: Option<Wildcards>,
    /// The one name, or the component as it is written.
    literal: Vec<u8>,
    /// Whether names that begin with a dot match.
    hidden: bool,
}

impl NamePattern {
    /// Compiles a component. One that is no pattern, as `[a`, stands for itself.
    fn of(text: &[u8]) -> Self {
        let hidden = matches!(text, [b'.', ..] | [b'\\', b'.', ..]);
        let wild = text.iter().any(|byte| b"*?[\\".contains(byte));
        let compiled = wild.then(|| Wildcards::compile(text)).flatten();
        match compiled.as_ref().and_then(Wildcards::only) {
            Some(only) => Self { wild: None, literal: only, hidden },
            None => Self { wild: compiled, literal: text.to_vec(), hidden },
        }
    }

    /// Returns whether the component stands for this name.
    fn matches(&self, name: &[u8]) -> bool {
        match &self.wild {
            Some(wild) => (self.hidden || !name.starts_with(b".")) && wild.is_match(name),
            None => name == self.literal,
        }
    }
}

/// The paths below the transfer's root that an operand stands for.
#[derive(Debug, Clone)]
pub struct PathPattern {
    names: Vec<NamePattern>,
    contents: bool,
}

/// The place of a path towards a [`PathPattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternPlace {
    /// The pattern stands for it.
    Named,
    /// The pattern may stand for something below it.
    Above,
    /// The pattern stands for a directory above it.
    Below,
    /// Nothing.
    Elsewhere,
}

impl PathPattern {
    /// Compiles a path; `contents` where it stands for what is in a directory.
    pub fn of(path: &[u8], contents: bool) -> Self {
        Self { names: path.split(|&byte| byte == b'/').map(NamePattern::of).collect(), contents }
    }

    /// Returns whether the pattern stands for what is in directories.
    pub fn is_contents(&self) -> bool {
        self.contents
    }

    /// Returns the place of a path; the root's is the empty one.
    pub fn place(&self, path: &[u8]) -> PatternPlace {
        let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        for pattern in &self.names {
            match names.next() {
                None => return PatternPlace::Above,
                Some(name) if pattern.matches(name) => {}
                Some(_) => return PatternPlace::Elsewhere,
            }
        }
        if names.next().is_some() { PatternPlace::Below } else { PatternPlace::Named }
    }
}

/// Returns the paths of the entries that an operand names, in order, each operand that names none
/// as it is written: it is then missing like others. One whose literal path exists although it has
/// braces is that path.
///
/// `open` opens a directory that an operand names. What can be named below a directory that cannot
/// be opened is left to whoever opens the operand, for the error to be told.
///
/// Cost: reads each directory in which a wildcard stands, `most.looks` names at most.
///
/// # Errors
/// [`TooManyNames`].
pub fn expand(
    operand: &Path,
    most: &mut MostNames,
    open: &dyn Fn(&Path) -> io::Result<Dir>,
) -> Result<Vec<PathBuf>, TooManyNames> {
    let bytes = operand.as_os_str().as_bytes();
    let expansion = Expansion { open };
    if !has_wildcards(bytes) || first_group(bytes).is_some() && expansion.is_there(bytes) {
        most.take(bytes)?;
        return Ok(vec![operand.to_path_buf()]);
    }
    let mut paths = Vec::new();
    for text in alternatives(bytes, *most)? {
        let found = expansion.paths(&text, most)?;
        if found.is_empty() {
            most.take(&text)?;
            paths.push(text);
        }
        paths.extend(found);
    }
    Ok(paths.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect())
}

/// The directories of an expansion.
struct Expansion<'a> {
    open: &'a dyn Fn(&Path) -> io::Result<Dir>,
}

impl Expansion<'_> {
    /// Returns the paths that match one alternative.
    fn paths(&self, text: &[u8], most: &mut MostNames) -> Result<Vec<Vec<u8>>, TooManyNames> {
        let mut found = vec![Vec::new()];
        // Paths that are told as they are, for their error.
        let mut barred = Vec::new();
        let mut at = 0;
        let mut is_wild = false;

        for component in text.split_inclusive(|&byte| byte == b'/') {
            let (name, slash) = match component.strip_suffix(b"/") {
                Some(name) => (name, &b"/"[..]),
                None => (component, &b""[..]),
            };
            let pattern = NamePattern::of(name);
            if pattern.wild.is_none() {
                found.iter_mut().for_each(|path| path.extend_from_slice(&[&pattern.literal, slash].concat()));
            } else {
                let mut next = Vec::new();
                for path in found {
                    let names = self.names(&path, &pattern, &mut most.looks);
                    if most.looks == 0 {
                        return Err(TooManyNames);
                    }
                    match names {
                        Ok(names) => {
                            for name in names {
                                let path = [&path, name.as_bytes(), slash].concat();
                                most.take(&path)?;
                                next.push(path);
                            }
                        }
                        Err(error) if is_nothing(&error, is_wild) => {}
                        Err(_) => barred.push([&path, text.get(at..).unwrap_or_default()].concat()),
                    }
                }
                (found, is_wild) = (next, true);
            }
            at += component.len();
        }

        found.retain(|path| !is_wild || self.is_there(path));
        found.extend(barred);
        Ok(found)
    }

    /// Returns the names of a directory that match, in order. Subtracts all of its names from `looks`.
    fn names(
        &self,
        directory: &[u8],
        pattern: &NamePattern,
        looks: &mut usize,
    ) -> io::Result<Vec<Component>> {
        let directory = if directory.is_empty() { b"." } else { directory };
        let looked = Cell::new(1);
        let opened = (self.open)(Path::new(OsStr::from_bytes(directory)));
        let names = opened.and_then(|dir| {
            dir.names_where(|name| {
                looked.set(looked.get() + 1);
                pattern.matches(name.as_bytes())
            })
        });
        *looks = looks.saturating_sub(looked.get());

        let mut names = names?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Returns whether a path leads to something, or may: only what is known to be missing is not.
    fn is_there(&self, path: &[u8]) -> bool {
        let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => path.split_at(slash + 1),
            None => (&b"."[..], path),
        };
        let looked = (self.open)(Path::new(OsStr::from_bytes(above)));
        let looked = looked.and_then(|dir| match Component::new(name) {
            Ok(name) => dir.stat(&name).map(|_| ()),
            // `dir/`, `dir/.`, `dir/..`: the directory is open.
            Err(_) => Ok(()),
        });
        looked.map_or_else(|error| !is_nothing(&error, true), |()| true)
    }
}

/// Returns whether an error says that nothing is there. Of a path that came of a wildcard, what is
/// no directory, or a link that leads out of the permitted one, is nothing that it could name.
fn is_nothing(error: &io::Error, is_wild: bool) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        _ => is_wild && (crate::LeadsOut::of(error).is_some() || is_loop(error)),
    }
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests;
