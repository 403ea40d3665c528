//! Owners of temporaries: a temporary's name identifies the process that made it, so that a later
//! run removes only dead ones.
//!
//! Several runs may work below one directory at once: one on `d`, another on `d/sub`. Each holds
//! only the lock of its own root. The law: a run removes another's temporary only if the process
//! that made it has ended, or, if that cannot be known, if nothing has changed it for
//! [`UNKNOWN_AGE`].
//!
//! A process is identified by the start of its system, its process namespace, its number and its
//! own start, because numbers are reused. It cannot be checked from another host or from another
//! container.

use std::{
    os::fd::OwnedFd,
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open, test_kill_process},
    time::Timespec,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    component::Component,
    dir::Dir,
    dir::retry,
    own_names::{HEX_DIGITS, OWNER_BYTES, TEMP_DIGITS, TEMP_PREFIX, is_temp_name},
    source_file::read_full_at,
};

/// The process that made a temporary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The start of the system and the process namespace, as one number.
    system: u64,
    pid: u32,
    /// Start time of the process, in ticks since the system's start; 0 if that is hidden. The
    /// lowest bits suffice.
    started: u32,
}

impl Owner {
    /// Length as a part of a name, in bytes.
    pub(crate) const BYTES: usize = OWNER_BYTES;

    /// Returns the owner for this process.
    pub(crate) fn this() -> Self {
        static THIS: OnceLock<Owner> = OnceLock::new();
        *THIS.get_or_init(|| {
            let pid = rustix::process::getpid().as_raw_pid().unsigned_abs();
            let started = Process::read(pid).map_or(0, |process| process.started);
            Self { system: system(), pid, started }
        })
    }

    /// Encodes the owner for a name.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.system.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_be_bytes());
        bytes[12..].copy_from_slice(&self.started.to_be_bytes());
        bytes
    }

    /// Decodes what [`to_bytes`](Self::to_bytes) encoded.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            system: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            pid: u32::from_be_bytes([i, j, k, l]),
            started: u32::from_be_bytes([m, n, o, p]),
        }
    }

    /// Returns whether the process still runs; `None` if that cannot be known from here.
    fn is_alive(self) -> Option<bool> {
        if self.system == 0 || self.system != Self::this().system {
            return None;
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw)?;
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Some(false);
        }
        // Where processes are hidden, as in a cage, the number of one that runs does not tell: a later process
        // may have it.
        let Some(process) = Process::read(self.pid) else { return has_ended(pid).then_some(false) };
        Some(!process.has_ended && (self.started == 0 || process.started == self.started))
    }
}

/// Reads what marks this process's temporaries as its own, for one that may not or cannot read it later.
/// Temporaries without the mark are taken for an unknown process's: if this one is killed, they stay for a day.
///
/// ```
/// // In a process that serves one session, before it gives up all files.
/// dsync_fs::preload_owner();
/// ```
pub fn preload_owner() {
    let _ = Owner::this();
}

/// Returns whether a process has ended and only waits for its parent, as far as that can be known.
fn has_ended(pid: Pid) -> bool {
    let Ok(handle) = pidfd_open(pid, PidfdFlags::NONBLOCK) else { return false };
    let mut ends = [PollFd::new(&handle, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Returns whether an entry with a temporary's name belongs to no run any more, so that it may be
/// removed.
pub fn is_abandoned(dir: &Dir, name: &Component) -> bool {
    if !is_temp_name(name.as_bytes()) {
        return false;
    }
    let alive = owner_of(name.as_bytes()).and_then(Owner::is_alive);
    alive.map_or_else(|| is_old(dir, name), |alive| !alive)
}

/// Removes the temporaries in a directory that belong to no run any more. Reads all names in it.
pub fn reap_abandoned(dir: &Dir) {
    let Ok(entries) = rustix::fs::Dir::read_from(dir) else { return };
    for entry in entries.flatten() {
        let name = Component::new(entry.file_name().to_bytes());
        if let Some(name) = name.ok().filter(|name| is_abandoned(dir, name)) {
            let _ = dir.remove_file(&name);
        }
    }
}

fn is_old(dir: &Dir, name: &Component) -> bool {
    let Ok(found) = dir.stat(name) else { return false };
    let changed = u64::try_from(found.stamp().ctime.seconds).map_or(UNIX_EPOCH, |seconds| {
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
    });
    SystemTime::now().duration_since(changed).is_ok_and(|age| age >= UNKNOWN_AGE)
}

/// The system's information about a process.
struct Process {
    started: u32,
    /// Whether it has ended and only waits for its parent.
    has_ended: bool,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let text = read_line(&format!("/proc/{pid}/stat"))?;
        // The program's name, in parentheses, may hold anything.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        // proc(5): the state is field 3, the start field 22.
        let started: u64 = fields.nth(18)?.parse().ok()?;
        let [.., a, b, c, d] = started.to_be_bytes();
        Some(Self { started: u32::from_be_bytes([a, b, c, d]), has_ended })
    }
}

/// Returns a number for the system's start, which no other one has but by chance and which is never 0;
/// `None` if it is unknown. Containers have that of their host.
pub fn boot_number() -> Option<u64> {
    read_line(BOOT_ID).map(|boot| xxh3_64(boot.trim().as_bytes()).max(1))
}

/// Returns a number for this system since its start and this process namespace; 0 if they are
/// unknown.
fn system() -> u64 {
    let namespace = rustix::fs::stat(c"/proc/self/ns/pid").map(|found| found.st_ino);
    match (read_line(BOOT_ID), namespace) {
        (Some(boot), Ok(namespace)) => xxh3_64(format!("{boot} {namespace}").as_bytes()).max(1),
        _ => 0,
    }
}

fn read_line(path: &str) -> Option<String> {
    let open = || rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let fd: OwnedFd = retry(open).ok()?;
    let mut bytes = vec![0; 1024];
    let len = read_full_at(std::os::fd::AsFd::as_fd(&fd), 0, &mut bytes).ok()?;
    bytes.truncate(len);
    String::from_utf8(bytes).ok()
}

/// The number of the system's start, in text (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Age without a change after which a temporary of an unknown process may be removed: longer than a
/// run leaves one alone.
pub(crate) const UNKNOWN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Returns the process that made a temporary; `None` if the name does not identify it.
pub(crate) fn owner_of(name: &[u8]) -> Option<Owner> {
    let digits = name.strip_prefix(TEMP_PREFIX).filter(|digits| digits.len() == TEMP_DIGITS)?;
    let mut bytes = [0; Owner::BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.get(HEX_DIGITS..)?.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Owner::from_bytes(bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_owner_comes_back_as_it_was_encoded() {
        let owner = Owner { system: u64::MAX - 5, pid: 77, started: 0x0102_0304 };
        assert_eq!(Owner::from_bytes(owner.to_bytes()), owner);
        assert_eq!(Owner::from_bytes(Owner::this().to_bytes()), Owner::this());
    }

    #[test]
    fn a_process_is_alive_until_it_has_ended_even_when_nobody_has_waited_for_it() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let started = Process::read(child.id()).unwrap().started;
        let owner = Owner { pid: child.id(), started, ..Owner::this() };
        assert_eq!(owner.is_alive(), Some(true));
        assert!(!has_ended(Pid::from_raw(child.id().cast_signed()).unwrap()));
        child.kill().unwrap();
        while !Process::read(child.id()).is_none_or(|process| process.has_ended) {
            std::thread::yield_now();
        }
        assert_eq!(owner.is_alive(), Some(false));
        // In a cage only this tells.
        assert!(has_ended(Pid::from_raw(child.id().cast_signed()).unwrap()));
        child.wait().unwrap();
        assert_eq!(owner.is_alive(), Some(false));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let this = Owner::this();
        assert_eq!(this.is_alive(), Some(true));
        assert_eq!(Owner { started: this.started.wrapping_add(1), ..this }.is_alive(), Some(false));
        assert_eq!(Owner { system: this.system ^ 1, ..this }.is_alive(), None, "another host");
    }

    #[test]
    fn only_what_no_run_has_any_more_is_abandoned() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let plant = |owner: Owner| {
            let name = crate::staged::temp_name_of(owner).unwrap();
            std::fs::write(scratch.path().join(std::str::from_utf8(name.as_bytes()).unwrap()), "").unwrap();
            name
        };
        let this = Owner::this();
        assert!(!is_abandoned(&dir, &plant(this)));
        assert!(is_abandoned(&dir, &plant(Owner { started: this.started.wrapping_add(1), ..this })));
        assert!(!is_abandoned(&dir, &plant(Owner { system: 1, ..this })), "too young to tell");
        assert!(!is_abandoned(&dir, &Component::new(b"anything else").unwrap()));
    }
}
