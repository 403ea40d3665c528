//! A job for some of the entries of another one: those that failed.
//!
//! The entries are named as operands of their own, whose paths begin where the job's operands do
//! ([`SyncOptions::relative`]), so everything lands where it would have landed.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use dsync_fs::{FileList, FileListError, FileListWriter, NamedPath};
use dsync_wire::{options::SyncOptions, path::EntryPath};

use crate::{Destination, RelativePaths, Source};

/// Rewrites a job's source, destination and options for the entries at these paths. `None` if only
/// the whole job does them all: the root is among them, one belongs to no operand, the destination may be
/// a file's new name, the operands have wildcards, or a batch stands for them.
pub(crate) fn narrowed(
    source: &Source,
    destination: &Destination,
    options: &SyncOptions,
    entries: &[EntryPath],
) -> Option<(Source, Destination, SyncOptions)> {
    if let Source::Files { root, .. } = source {
        let (root, relative) = (root.clone(), named(root, entries)?);
        let options = options.clone().ignore_missing_args(true);
        return Some((Source::Files { root, relative }, destination.clone(), options));
    }

    let operands = operands(source);
    let may_rename = matches!(&operands[..], [only] if !Place::of(only, options.relative).contents);
    if options.wildcards || matches!(source, Source::Batch(_)) {
        return None;
    }
    if entries.iter().any(EntryPath::is_root)
        || may_rename && entries.iter().any(|entry| !entry.contains(&b'/'))
    {
        return None;
    }

    let mut chosen = Vec::new();
    for entry in entries {
        let before = chosen.len();
        for operand in &operands {
            let place = Place::of(operand, options.relative);
            chosen.extend(place.operand(entry));
            // An operand that was missing failed by its own text.
            chosen.extend((entry.as_bytes() == operand).then(|| place.whole()));
        }
        if chosen.len() == before {
            return None;
        }
    }
    chosen.sort();
    chosen.dedup();

    // An entry may be in any of several operands, and may be gone by now.
    let options = options
        .clone()
        .relative(true)
        .no_implied_dirs(options.relative && options.no_implied_dirs)
        .ignore_missing_args(true);
    Some((with_operands(source, chosen), as_directory(destination), options))
}

/// Rewrites a job's list of paths, and its options, for the entries at these paths. `None` if only the
/// whole job does them all: the root is among them, or the list has none of them.
///
/// # Errors
/// [`FileListError`] of the new list.
pub(crate) fn narrowed_list(
    root: &OsStr,
    (list, mut narrow): (&FileList, FileListWriter),
    options: &SyncOptions,
    entries: &[EntryPath],
) -> Result<Option<(FileList, SyncOptions)>, FileListError> {
    let wanted: BTreeSet<&[u8]> = entries.iter().map(EntryPath::as_bytes).collect();
    if wanted.contains(&b""[..]) {
        return Ok(None);
    }

    let mut is_empty = true;
    let contents = list.first_of_each().filter(|line| line.path.is_empty());
    for line in contents.chain(list.named()) {
        for entry in of_line(root, line, &wanted) {
            let between: &[u8] = if line.base.is_empty() { b"" } else { b"/./" };
            narrow.push(&[line.base, between, &entry].concat())?;
            is_empty = false;
        }
    }
    if is_empty {
        return Ok(None);
    }

    let options = options.clone().ignore_missing_args(true);
    let no_implied_dirs = options.relative && options.no_implied_dirs;
    Ok(Some((narrow.finish()?, options.relative(true).no_implied_dirs(no_implied_dirs))))
}

/// Returns those of the entries that a line stands for, by their paths from its base on.
fn of_line(root: &OsStr, line: NamedPath<'_>, wanted: &BTreeSet<&[u8]>) -> Vec<Vec<u8>> {
    let NamedPath { base, path, contents } = line;
    if path.is_empty() {
        return wanted.iter().map(|entry| entry.to_vec()).collect();
    }

    let below = [path, b"/"].concat();
    let (here, from) = (wanted.get(path), wanted.range(below.as_slice()..));
    let from = from.take_while(|entry| entry.starts_with(&below));
    let mut found: Vec<_> = here.into_iter().chain(from).map(|entry| entry.to_vec()).collect();

    // A path that is missing failed as the run looked for it.
    let looked_for = Path::new(root).join(OsStr::from_bytes(base)).join(OsStr::from_bytes(path));
    let looked_for = looked_for.strip_prefix(".").unwrap_or(&looked_for);
    if wanted.contains(looked_for.as_os_str().as_bytes()) {
        found.push(if contents { below } else { path.to_vec() });
    }
    found
}

/// Returns the paths of entries below a root; `None` if the root is among them.
pub(crate) fn named(root: &Path, entries: &[EntryPath]) -> Option<RelativePaths> {
    let paths = entries.iter().map(|entry| {
        let path = Path::new(OsStr::from_bytes(entry));
        // A path that is missing failed as the run looked for it. No entry of a tree is absolute.
        let below = if root.is_absolute() { path.strip_prefix(root).ok() } else { None };
        let path = below.unwrap_or(path);
        (!path.as_os_str().is_empty()).then(|| path.to_owned())
    });
    paths.collect::<Option<Vec<_>>>().map(RelativePaths::new)
}

/// The place where an operand's entries begin.
struct Place {
    /// The directory that their paths start at, without a slash at its end.
    base: Vec<u8>,
    /// The path below it that the operand has; empty if it stands for all in the directory.
    path: Vec<u8>,
    contents: bool,
}

impl Place {
    fn of(operand: &[u8], relative: bool) -> Self {
        let (start, rest): (&[u8], &[u8]) = match operand.windows(3).position(|three| three == b"/./") {
            Some(cut) if relative => (&operand[..cut], &operand[cut + 3..]),
            _ if relative && !operand.starts_with(b"/") => (b".", operand),
            _ => (b"", operand),
        };
        let is_absolute = operand.starts_with(b"/");
        let mut steps: Vec<&[u8]> =
            rest.split(|&byte| byte == b'/').filter(|step| !matches!(*step, b"" | b".")).collect();
        let contents = rest.is_empty()
            || [&b"/"[..], b"/.", b"/.."].iter().any(|end| rest.ends_with(end))
            || matches!(rest, b"." | b"..");
        if relative {
            return Self { base: start.to_vec(), path: steps.join(&b'/'), contents };
        }

        let name = if contents { None } else { steps.pop() };
        let mut base = steps.join(&b'/');
        if is_absolute {
            base.insert(0, b'/');
        } else if base.is_empty() {
            base.push(b'.');
        }
        while base.ends_with(b"/") {
            base.pop();
        }
        Self { base, path: name.map(<[u8]>::to_vec).unwrap_or_default(), contents }
    }

    /// Returns the operand of an entry; `None` if the entry cannot be here.
    fn operand(&self, entry: &[u8]) -> Option<Vec<u8>> {
        let rest = entry.strip_prefix(self.path.as_slice())?;
        let is_here = self.path.is_empty() || rest.is_empty() || rest.starts_with(b"/");
        is_here.then(|| [&self.base, &b"/./"[..], entry].concat())
    }

    /// Returns the operand of all that is here.
    fn whole(&self) -> Vec<u8> {
        let end: &[u8] = if self.contents && !self.path.is_empty() { b"/" } else { b"" };
        [&self.base, &b"/./"[..], &self.path, end].concat()
    }
}

fn operands(source: &Source) -> Vec<Vec<u8>> {
    match source {
        Source::Local { paths } => paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
        Source::Remote { paths, .. } | Source::Peer { paths } => {
            paths.iter().map(|path| path.as_bytes().to_vec()).collect()
        }
        Source::Files { .. } | Source::Manifest { .. } | Source::Batch(_) => Vec::new(),
    }
}

fn with_operands(source: &Source, operands: Vec<Vec<u8>>) -> Source {
    let operands = operands.into_iter().map(OsString::from_vec);
    match source {
        Source::Local { .. } => Source::Local { paths: operands.map(PathBuf::from).collect() },
        Source::Remote { host, .. } => Source::Remote { host: host.clone(), paths: operands.collect() },
        Source::Peer { .. } => Source::Peer { paths: operands.collect() },
        Source::Files { .. } | Source::Manifest { .. } | Source::Batch(_) => source.clone(),
    }
}

/// Returns the destination as a directory, whatever is copied there.
fn as_directory(destination: &Destination) -> Destination {
    let with_slash = |path: &OsString| {
        let mut path = path.clone();
        path.push("/");
        path
    };
    match destination {
        Destination::Local { path } => {
            Destination::Local { path: with_slash(&path.as_os_str().to_owned()).into() }
        }
        Destination::Remote { host, path } => {
            Destination::Remote { host: host.clone(), path: with_slash(path) }
        }
        Destination::Peer { path } => Destination::Peer { path: with_slash(path) },
        Destination::Nowhere => Destination::Nowhere,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn narrow(operands: &[&str], relative: bool, entries: &[&str]) -> Option<Vec<String>> {
        let source = Source::Local { paths: operands.iter().map(PathBuf::from).collect() };
        let destination = Destination::Local { path: "dst".into() };
        let options = SyncOptions::archive().relative(relative);
        let entries: Vec<_> = entries.iter().map(|entry| EntryPath::from(*entry)).collect();
        let (source, destination, options) = narrowed(&source, &destination, &options, &entries)?;
        assert!(options.relative && options.recursive);
        assert_eq!(destination, Destination::Local { path: "dst/".into() });
        let Source::Local { paths } = source else { return None };
        Some(paths.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect())
    }

    #[test]
    fn entries_are_named_from_where_their_operands_begin() {
        for (operands, relative, entry, expected) in [
            (&["src/"][..], false, "a/b", &["src/./a/b"][..]),
            (&["/src/."], false, "a", &["/src/./a"]),
            (&["/"], false, "a", &["/./a"]),
            (&["."], false, "a", &["././a"]),
            (&["x/./y/dir", "other"], false, "dir/b", &["x/y/./dir/b"]),
            (&["dir", "di"], false, "dir/b", &["././dir/b"]),
            (&["one/", "two/", "three"], false, "a", &["one/./a", "two/./a"]),
            (&["/a/./b/c", "x"], true, "b/c/d", &["/a/./b/c/d"]),
            (&["b/c/"], true, "b/c/d", &["././b/c/d"]),
            (&["/b/c/"], true, "b/c/d", &["/./b/c/d"]),
        ] {
            let found = narrow(operands, relative, &[entry]).unwrap();
            assert_eq!(found, expected, "{operands:?} {entry}");
        }
    }

    #[test]
    fn an_operand_that_was_missing_is_named_again() {
        for (operands, relative, entry, expected) in [
            (&["src/", "/x/later"][..], false, "/x/later", "/x/./later"),
            (&["src/", "/x/later/"], false, "/x/later/", "/x/later/./"),
            (&["src/", "x/later"], true, "x/later", "././x/later"),
            (&["src/", "x/./a/later/"], true, "x/./a/later/", "x/./a/later/"),
        ] {
            let found = narrow(operands, relative, &[entry]).unwrap();
            assert!(found.iter().any(|found| found == expected), "{found:?} {entry}");
        }
    }

    #[test]
    fn what_is_no_entry_takes_the_whole_job() {
        assert_eq!(narrow(&["a/dir", "b/dir"], false, &["other/file"]), None);
        assert_eq!(narrow(&["a/dir", "b/dir"], false, &["dir/file", "/nowhere"]), None);
        assert_eq!(narrow(&["src/"], false, &["a", ""]), None);
        assert_eq!(narrow(&["file"], false, &["file"]), None);
        assert!(narrow(&["dir"], false, &["dir/file"]).is_some());
    }
}
