//! Skips: tests that cannot run on a machine say so and are counted.

use std::{env, fs::OpenOptions, io::Write};

/// The reason why a test cannot run. `cargo xtask test` accepts a skip only if its reason really
/// holds there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It changes owners, makes devices or drops privileges.
    NeedsRoot,
    /// It needs a network namespace of its own.
    NeedsNamespace,
    /// It needs a TUN device.
    NeedsTun,
    /// It needs the IPv6 loopback address.
    NeedsIpv6,
    /// It mounts an image file.
    NeedsLoop,
    /// It serves a filesystem of its own.
    NeedsFuse,
    /// It makes a file immutable.
    NeedsImmutable,
    /// It checks a promise that only dsync makes, and rsync stands in.
    StandIn,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::NeedsRoot => "needs-root",
            Self::NeedsNamespace => "needs-namespace",
            Self::NeedsTun => "needs-tun",
            Self::NeedsIpv6 => "needs-ipv6",
            Self::NeedsLoop => "needs-loop",
            Self::NeedsFuse => "needs-fuse",
            Self::NeedsImmutable => "needs-immutable",
            Self::StandIn => "stand-in",
        }
    }
}

/// Records that the running test is skipped: on stderr, and in the file `$DSYNC_SKIP_LOG` if that
/// is set.
///
/// # Panics
/// If the file cannot be written.
pub fn record(reason: Reason) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    eprintln!("SKIPPED {test}: {}", reason.word());
    if let Some(path) = env::var_os("DSYNC_SKIP_LOG") {
        let mut log = OpenOptions::new().create(true).append(true).open(path).expect("the skip log");
        let line = format!("{} {test}\n", reason.word());
        log.write_all(line.as_bytes()).expect("a line of the skip log");
    }
}

/// Leaves the test, recorded as skipped, unless the process is root.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !$crate::skip::is_root() {
            $crate::skip::record($crate::skip::Reason::NeedsRoot);
            return;
        }
    };
}

/// Leaves the test, recorded as skipped, if rsync stands in for dsync.
#[macro_export]
macro_rules! needs_dsync {
    () => {
        if $crate::is_stand_in() {
            $crate::skip::record($crate::skip::Reason::StandIn);
            return;
        }
    };
}

/// Makes a fresh network namespace, or leaves the test, recorded as skipped.
#[macro_export]
macro_rules! needs_namespace {
    () => {
        match $crate::Namespace::create() {
            Some(namespace) => namespace,
            None => {
                $crate::skip::record($crate::skip::Reason::NeedsNamespace);
                return;
            }
        }
    };
}

/// Makes a fresh lab of this path, or leaves the test, recorded as skipped.
#[macro_export]
macro_rules! needs_lab {
    ($path:expr) => {
        match $crate::Lab::create(&$path) {
            Some(lab) => lab,
            None => {
                $crate::skip::record($crate::skip::Reason::NeedsTun);
                return;
            }
        }
    };
}

/// Returns whether the process has root's rights.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
