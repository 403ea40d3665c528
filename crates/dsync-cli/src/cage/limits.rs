//! The limits of a caged process, which it cannot raise again: its list of calls lets limits be read
//! only.
//!
//! Those of a session hold whatever runs in it, and are far above the needs of an honest one, whose
//! own bounds end a run with a reason. Beyond them memory is refused, which ends the process.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Keeps memory from core files, and messages from queues.
pub(super) fn leave_no_dumps() -> io::Result<()> {
    lower(&[(Resource::RLIMIT_CORE, 0), (Resource::RLIMIT_MSGQUEUE, 0)])
}

/// Limits the process of a session.
pub(super) fn limit_session() -> io::Result<()> {
    lower(&[
        (Resource::RLIMIT_DATA, MEMORY),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS),
        (Resource::RLIMIT_NPROC, THREADS),
    ])
}

/// Lowers limits; one that is lower already stays.
fn lower(limits: &[(Resource, u64)]) -> io::Result<()> {
    for &(resource, limit) in limits {
        let (current, maximum) = getrlimit(resource)?;
        let lowered = (current.min(limit), maximum.min(limit));
        // In a cage limits cannot be set any more, and are what they should be.
        if (current, maximum) != lowered {
            setrlimit(resource, lowered.0, lowered.1)?;
        }
    }
    Ok(())
}

/// Bytes of memory of its own that a process may have. A client can fill 256 MiB; where a run needs
/// its whole listing at once, a session holds about 200 bytes for each entry of the share as well.
const MEMORY: u64 = 4 << 30;
/// Open files. A run with fewer keeps fewer directories open.
const DESCRIPTORS: u64 = 4096;
/// Threads of the share's user, of all its processes: the kernel has no such limit for one process,
/// and the list of calls lets a session start no process.
const THREADS: u64 = 16_384;
