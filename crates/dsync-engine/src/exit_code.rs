//! Exit codes: rsync's numbers where the meaning is the same, 40 and up where rsync has none.
//!
//! They live in the library so that every program that embeds it, and both ends of a session,
//! agree.

/// Success.
pub const OK: u8 = 0;
/// The command line or an option is wrong.
pub const USAGE: u8 = 1;
/// The two ends have no protocol version or feature in common.
pub const INCOMPATIBLE: u8 = 2;
/// A destination, or a tree to verify, cannot be used: it is missing or of the wrong type.
pub const FILE_SELECTION: u8 = 3;
/// An option of rsync that dsync does not have.
pub const UNSUPPORTED: u8 = 4;
/// A server, or a copy of the program at a host, could not be started.
pub const START: u8 = 5;
/// The connection failed or was lost.
pub const SOCKET: u8 = 10;
/// A file could not be read or written and the run could not go on.
pub const FILE_IO: u8 = 11;
/// The peer sent something that the protocol forbids, or ended before it said anything.
pub const STREAM: u8 = 12;
/// The remote shell's program could not be started.
pub const SHELL: u8 = 14;
/// Stopped by a signal or by the caller.
pub const INTERRUPTED: u8 = 20;
/// Out of memory, or of threads.
pub const MEMORY: u8 = 22;
/// Some entries could not be transferred, or none because every source is missing.
pub const PARTIAL: u8 = 23;
/// Some entries vanished or kept changing before they could be read.
pub const VANISHED: u8 = 24;
/// The limit on deletions was reached.
pub const MAX_DELETE: u8 = 25;
/// Nothing was heard from the peer in time.
pub const TIMEOUT: u8 = 30;
/// No connection to the peer could be made in time.
pub const CONNECT_TIMEOUT: u8 = 35;
/// The peer or this end could not be authenticated.
pub const AUTHENTICATION: u8 = 40;
/// Another run holds the destination.
pub const LOCKED: u8 = 41;
/// Refused by a safety rule.
pub const POLICY: u8 = 42;
/// The remote host could not run the program.
pub const REMOTE_COMMAND: u8 = 126;
/// The remote host does not have the program.
pub const REMOTE_MISSING: u8 = 127;
/// The remote shell failed, as ssh does that reaches no host or is not let in.
pub const SHELL_FAILED: u8 = 255;
