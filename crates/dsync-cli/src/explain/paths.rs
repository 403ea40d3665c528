//! The paths to explain, as they are below the root of the transfer.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use dsync_engine::Operand;

/// Returns a path below the root of the transfer between two ends.
///
/// # Errors
/// Why it is none, in words.
pub(super) fn below(
    path: &OsStr,
    (source, destination): (&OsStr, &OsStr),
    relative: bool,
) -> Result<Vec<u8>, &'static str> {
    let path = Path::new(path);
    let path = match path.is_absolute() {
        true if relative => path.strip_prefix("/").unwrap_or(path).to_path_buf(),
        true => {
            let roots = [root_of_source(source), absolute(destination)];
            let mut found = roots.iter().flatten().filter_map(|root| path.strip_prefix(root).ok());
            found.next().ok_or("it is not below SRC or DST")?.to_path_buf()
        }
        false => path.to_path_buf(),
    };

    let mut names: Vec<&[u8]> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.as_bytes()),
            Component::ParentDir => return Err("it has '..' in it"),
            _ => {}
        }
    }
    if names.is_empty() { Err("it is the root of the transfer itself") } else { Ok(names.join(&b'/')) }
}

/// Returns the local directory in which names of the transfer begin at the source.
fn root_of_source(source: &OsStr) -> Option<PathBuf> {
    let bytes = source.as_bytes();
    let is_contents =
        bytes.ends_with(b"/") || matches!(bytes.rsplit(|&byte| byte == b'/').next(), Some(b"." | b".."));
    let path = absolute(source)?;
    if is_contents { Some(path) } else { path.parent().map(Path::to_path_buf) }
}

/// Returns the absolute path of a local operand, as its words say.
fn absolute(operand: &OsStr) -> Option<PathBuf> {
    match Operand::parse(operand) {
        Ok(Operand::Local(path)) => std::path::absolute(path).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, source: &str, destination: &str) -> Result<String, &'static str> {
        let ends = (OsStr::new(source), OsStr::new(destination));
        below(OsStr::new(path), ends, false).map(|path| String::from_utf8_lossy(&path).into_owned())
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
        let relative = below(OsStr::new("/x/a"), (OsStr::new("/x"), OsStr::new("d")), true);
        assert_eq!(relative.as_deref(), Ok(&b"x/a"[..]));
    }
}
