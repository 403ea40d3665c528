//! The paths to explain, as they are below the root of the transfer.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use dsync_engine::Operand;

/// The place where the names of a transfer begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// At the source, or in it if its words end with a slash.
    Operand,
    /// In the source, as a list names them.
    Listed,
    /// At the operand's part that `-R` begins with.
    Relative,
}

/// Returns a path below the root of the transfer between two ends.
///
/// # Errors
/// Why it is none, in words.
pub(super) fn below(path: &OsStr, ends: (&OsStr, &OsStr), names: Names) -> Result<Vec<u8>, &'static str> {
    let mut path = Path::new(path).to_path_buf();
    if path.is_absolute() {
        path = from_an_end(&path, ends, names).ok_or("it is not below SRC or DST")?;
    }

    let mut steps: Vec<&[u8]> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => steps.push(name.as_bytes()),
            Component::ParentDir => return Err("it has '..' in it"),
            _ => {}
        }
    }
    if steps.is_empty() { Err("it is the root of the transfer itself") } else { Ok(steps.join(&b'/')) }
}

/// Returns an absolute path of one end as it is below the root of the transfer. If both ends have it, the
/// inner one counts.
fn from_an_end(path: &Path, (source, destination): (&OsStr, &OsStr), names: Names) -> Option<PathBuf> {
    let of_source = source_of(source, names).and_then(|(operand, root)| {
        // -R also has the directories above the operand.
        let is_above = names == Names::Relative && operand.starts_with(path);
        let is_of_it = is_above || path.starts_with(&operand);
        let below = path.strip_prefix(root).ok().filter(|_| is_of_it)?;
        Some((operand, below))
    });
    let of_destination =
        absolute(destination).and_then(|root| Some((root.clone(), path.strip_prefix(root).ok()?)));

    let found = of_source.into_iter().chain(of_destination);
    let inner = found.max_by_key(|(end, _)| end.components().count());
    inner.map(|(_, below)| below.to_path_buf())
}

/// Returns the path of a local source, and of the directory in which names of the transfer begin there.
fn source_of(source: &OsStr, names: Names) -> Option<(PathBuf, PathBuf)> {
    let (path, bytes) = (absolute(source)?, source.as_bytes());
    let last = bytes.rsplit(|&byte| byte == b'/').next();
    let is_contents = matches!(last, Some(b"" | b"." | b".."));

    let root = match names {
        Names::Relative => root_of_relative(source)?,
        Names::Operand if !is_contents => path.parent()?.to_path_buf(),
        _ => path.clone(),
    };
    Some((path, root))
}

/// Returns the directory in which the names of `-R` begin: the part before `/./`, else `/` or the working
/// directory.
fn root_of_relative(source: &OsStr) -> Option<PathBuf> {
    let bytes = source.as_bytes();
    if let Some(at) = bytes.windows(3).position(|three| three == b"/./") {
        return absolute(OsStr::from_bytes(&bytes[..=at]));
    }
    if bytes.starts_with(b"/") { Some(PathBuf::from("/")) } else { std::path::absolute(".").ok() }
}

/// Returns the absolute path of a local operand, as its words say.
fn absolute(operand: &OsStr) -> Option<PathBuf> {
    match Operand::parse(operand) {
        Ok(Operand::Local(path)) => std::path::absolute(path).ok(),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(path: &str, source: &str, destination: &str) -> Result<String, &'static str> {
        let ends = (OsStr::new(source), OsStr::new(destination));
        below(OsStr::new(path), ends, Names::Operand).map(|path| String::from_utf8_lossy(&path).into_owned())
    }

    #[test]
    fn paths_are_those_of_the_list_or_absolute() {
        assert_eq!(of("./a//b/", "src", "dst"), Ok("a/b".to_owned()));
        assert_eq!(of("/x/src/a", "/x/src/", "h:d"), Ok("a".to_owned()));
        assert_eq!(of("/x/src/a", "/x/src", "h:d"), Ok("src/a".to_owned()));
        assert_eq!(of("/x/src/a", "/x/src/.", "h:d"), Ok("a".to_owned()));
        assert_eq!(of("/y/d/a", "h:src", "/y/d"), Ok("a".to_owned()));
        assert!(of("/z/a", "h:src", "/y/d").is_err());
        assert!(
            of("a/../b", "s", "d").is_err()
                && of(".", "s", "d").is_err()
                && of("/y/d", "h:s", "/y/d").is_err()
        );
    }

    #[test]
    fn an_absolute_path_is_of_the_end_that_it_lies_in() {
        // The source's parent holds the destination.
        assert_eq!(of("/x/dst/src/only", "/x/src", "/x/dst"), Ok("src/only".to_owned()));
        assert_eq!(of("/x/src/in/a", "/x/src/", "/x/src/in"), Ok("a".to_owned()));
        assert!(of("/x/other", "/x/src", "/x/dst").is_err());
        let ends = (OsStr::new("/x/src"), OsStr::new("d"));
        assert_eq!(below(OsStr::new("/x/src/a"), ends, Names::Listed).as_deref(), Ok(&b"a"[..]));
    }

    #[test]
    fn an_absolute_path_with_relative_begins_where_the_names_do() {
        let of = |path: &Path, source: &str| {
            let found = below(path.as_os_str(), (OsStr::new(source), OsStr::new("d")), Names::Relative);
            found.map(|path| String::from_utf8_lossy(&path).into_owned())
        };
        let here = std::path::absolute(".").unwrap();
        assert_eq!(of(Path::new("/x/a"), "/x"), Ok("x/a".to_owned()));
        assert_eq!(of(Path::new("/x/y/z/a"), "/x/./y/z"), Ok("y/z/a".to_owned()));
        assert_eq!(of(&here.join("s/d1"), "s/d1"), Ok("s/d1".to_owned()));
        assert_eq!(of(&here.join("d/s/d1"), "s/d1"), Ok("s/d1".to_owned()));
        assert_eq!(of(Path::new("/x"), "/x/y"), Ok("x".to_owned()));
        assert!(of(Path::new("/z/a"), "/x").is_err());
    }
}
