//! Examines one directory with this machine's own means.

use std::{io, path::Path};

use dsync_engine::filesystem::{Features, Trials, probe};

use super::report::Finding;
use crate::{
    numbers::{Bytes, with_commas},
    words,
};

/// Examines a directory, or the one that it would be made in.
pub(super) fn directory(path: &Path) -> Vec<Finding> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let shown = path.display();
    let mut findings = Vec::new();
    let features = match probe(path) {
        Ok(features) => features,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            match probe(above.unwrap_or_else(|| Path::new("."))) {
                Ok(features) => {
                    let text = format!("'{shown}' does not exist; the directory above was examined");
                    findings.push(Finding::ok("directory", text));
                    features
                }
                Err(_) => return vec![missing(path, &error)],
            }
        }
        Err(error) => return vec![missing(path, &error)],
    };

    findings.push(user(features.trials));
    findings.extend(space(&features));
    match features.trials {
        Some(trials) => findings.extend(filesystem(trials)),
        None => {
            let error =
                features.unwritable.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error);
            let text = format!("nothing can be made in '{shown}': {}", words::system_words(&error));
            findings.push(Finding::fail(
                "write",
                text,
                "as a destination it needs another user or mode; reading is another matter",
            ));
        }
    }
    findings.extend(mtu());
    findings
}

fn missing(path: &Path, error: &io::Error) -> Finding {
    let text = format!("'{}' cannot be opened: {}", path.display(), words::system_words(error));
    let advice = match error.kind() {
        io::ErrorKind::NotADirectory => "name a directory: this one, or one on the way to it, is a file",
        io::ErrorKind::PermissionDenied => "run this as a user who may search it, or name another",
        _ => "make it, or name another; --mkpath makes all that is missing",
    };
    Finding::fail("directory", text, advice)
}

fn user(trials: Option<Trials>) -> Finding {
    let id = rustix::process::geteuid().as_raw();
    let text = match trials {
        Some(trials) if trials.chown => format!("user {id} may give files to others: owners are kept"),
        Some(_) => format!("user {id} may not give files to others: new files are that user's"),
        None => format!("user {id}"),
    };
    Finding::ok("user", text)
}

fn space(features: &Features) -> Vec<Finding> {
    let Features { free_bytes, total_bytes, free_inodes, .. } = *features;
    let text = format!("{} free of {}", Bytes(free_bytes), Bytes(total_bytes));
    let bytes = if free_bytes < total_bytes / 50 || free_bytes < LITTLE {
        Finding::warn("space", text, "a run that fills the disk ends with 11 and keeps the old files")
    } else {
        Finding::ok("space", text)
    };
    let inodes = free_inodes.map(|free| {
        let text = format!("{} more files", with_commas(free));
        if free < FEW {
            Finding::warn("inodes", text, "remove files, or make the filesystem anew with more inodes")
        } else {
            Finding::ok("inodes", text)
        }
    });
    std::iter::once(bytes).chain(inodes).collect()
}

/// Bytes below which space is short on a disk of any size.
const LITTLE: u64 = 100_000_000;
/// Inodes below which they are short.
const FEW: u64 = 10_000;

/// A feature: its name, whether its lack is no more than a fact, how it is known, what is said
/// where it is and where it is not, and what to do.
type Row = (&'static str, bool, fn(&Trials) -> bool, &'static str, &'static str, &'static str);

const FEATURES: [Row; 7] = [
    (
        "reflink",
        true,
        |trials| trials.reflinks,
        "extents can be shared",
        "extents cannot be shared: a changed file is written anew",
        "",
    ),
    (
        "xattr",
        false,
        |trials| trials.xattrs,
        "extended attributes are kept",
        "no extended attributes of users",
        "without -X and --fake-super nothing is lost by it",
    ),
    (
        "acl",
        false,
        |trials| trials.acls,
        "access control lists are kept",
        "no POSIX access control lists",
        "without -A nothing is lost by it",
    ),
    (
        "times",
        false,
        |trials| trials.nanoseconds,
        "times are kept to the nanosecond",
        "times are kept coarsely",
        "--modify-window=1 or 2 keeps unchanged files from being copied again",
    ),
    (
        "case",
        false,
        |trials| trials.case_sensitive,
        "names that differ in case are two files",
        "names that differ in case are one file",
        "rename such files at the source: one would replace the other",
    ),
    (
        "symlinks",
        false,
        |trials| trials.symlinks,
        "symbolic links can be made",
        "no symbolic links",
        "--no-links leaves them out, --copy-links copies what they lead to",
    ),
    (
        "hardlinks",
        false,
        |trials| trials.hard_links,
        "hard links can be made",
        "no hard links",
        "-H and --link-dest copy instead",
    ),
];

fn filesystem(trials: Trials) -> Vec<Finding> {
    FEATURES
        .into_iter()
        .map(|(name, optional, has, good, bad, advice)| {
            let has = has(&trials);
            if has || optional {
                Finding::ok(name, if has { good } else { bad }.to_owned())
            } else {
                Finding::warn(name, bad.to_owned(), advice)
            }
        })
        .collect()
}

/// Returns the largest packet of the interface that the default route takes, where Linux tells it.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files about this machine")]
fn mtu() -> Option<Finding> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let mut columns = routes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let interface = columns.find(|columns| columns.get(1) == Some(&"00000000"))?.first()?.to_string();
    if interface.contains('/') {
        return None;
    }
    let mtu: u32 =
        std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()?;
    let text = format!("{mtu} bytes on {interface}");
    Some(if mtu < 1280 {
        Finding::warn("mtu", text, "QUIC needs 1280; TLS and ssh still work")
    } else {
        Finding::ok("mtu", text)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::report::Verdict, *};

    #[test]
    fn each_lack_is_a_warning_with_advice_but_extents() {
        let lacking = filesystem(Trials::default());
        assert_eq!(lacking.iter().filter(|finding| finding.verdict == Verdict::Warn).count(), 6);
        assert!(lacking.iter().all(|finding| finding.verdict == Verdict::Ok || !finding.advice.is_empty()));
    }

    #[test]
    fn a_directory_that_cannot_be_opened_has_its_own_cure() {
        for (path, cure) in [
            ("/dev/null", "name a directory"),
            ("/dev/null/x", "name a directory"),
            ("/nonexistent/way/to/it", "--mkpath makes"),
        ] {
            let findings = directory(Path::new(path));
            assert!(matches!(findings.as_slice(), [one] if one.advice.contains(cure)), "{findings:?}");
        }
    }

    #[test]
    fn full_disk_is_a_warning() {
        let full =
            Features { free_bytes: 1000, total_bytes: 1 << 40, free_inodes: Some(3), ..Features::default() };
        assert!(space(&full).iter().all(|finding| finding.verdict == Verdict::Warn));
        let roomy = Features { free_bytes: 1 << 39, free_inodes: None, ..full };
        assert!(space(&roomy).iter().all(|finding| finding.verdict == Verdict::Ok));
    }
}
