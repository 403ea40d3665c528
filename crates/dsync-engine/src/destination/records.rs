//! Records of postponed work, on spools that never leave the process: their parts, and the errors
//! of their failures. Integers are in this machine's byte order.

use dsync_fs::{Component, Kind, SpoolError, Timestamp};
use dsync_wire::message::Operation;

use crate::SyncError;

/// Takes bytes from the front of a record.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Appends a time for [`take_time`].
pub(super) fn push_time(bytes: &mut Vec<u8>, time: Timestamp) {
    bytes.extend(time.seconds.to_ne_bytes());
    bytes.extend(time.nanoseconds.to_ne_bytes());
}

/// Takes a time from the front of a record.
pub(super) fn take_time(rest: &mut &[u8]) -> Option<Timestamp> {
    let (seconds, nanoseconds) = (i64::from_ne_bytes(take(rest)?), u32::from_ne_bytes(take(rest)?));
    Some(Timestamp { seconds, nanoseconds })
}

/// Appends bytes for [`take_counted`].
pub(super) fn push_counted(bytes: &mut Vec<u8>, counted: &[u8]) {
    bytes.extend((counted.len() as u64).to_ne_bytes());
    bytes.extend(counted);
}

/// Takes bytes from the front of a record, which begins with their number.
pub(super) fn take_counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(u64::from_ne_bytes(take(rest)?)).ok()?;
    let (counted, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(counted)
}

/// Takes a name from the front of a record, which begins with its length in one byte.
pub(super) fn take_name(rest: &mut &[u8]) -> Option<Component> {
    let [len] = take(rest)?;
    let (name, tail) = rest.split_at_checked(usize::from(len))?;
    *rest = tail;
    Component::new(name).ok()
}

/// Appends a name for [`take_name`].
pub(super) fn push_name(bytes: &mut Vec<u8>, name: &Component) {
    let name = name.as_bytes();
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    bytes.extend(name);
}

/// Returns the error of a run whose list of such records, called `list`, cannot be kept.
pub(super) fn failed(operation: Operation, list: &'static str, error: SpoolError) -> SyncError {
    SyncError::of_list(operation, list, error)
}

/// Types in the order of their wire values.
pub(super) const KINDS: [Kind; 7] =
    [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
