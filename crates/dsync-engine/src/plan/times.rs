//! Times as the two ends keep them: in two forms, and in filesystems that round.

use dsync_wire::message::Timestamp;

/// Returns whether two modification times are the same: equal, or as far as the filesystem of one side keeps
/// them.
pub(crate) fn same_time(a: Timestamp, b: Timestamp) -> bool {
    let (nanoseconds, others) = (a.nanoseconds, b.nanoseconds);
    let is_one = nanoseconds == others || is_cut(nanoseconds, others) || is_cut(others, nanoseconds);
    a.seconds == b.seconds && is_one
}

/// Returns whether a fraction of a second is another one without what a filesystem does not keep.
fn is_cut(kept: u32, whole: u32) -> bool {
    STEPS.iter().any(|step| kept.is_multiple_of(*step) && whole - whole % step == kept)
}

/// Steps in which filesystems keep times, in nanoseconds: NTFS and SMB, those of microseconds and of
/// milliseconds, exFAT, and those of whole seconds.
const STEPS: [u32; 5] = [100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];

/// Returns whether `kept` is `wanted` as a filesystem keeps it that has times in steps of two
/// seconds (FAT), or whose last time is before `wanted`.
pub(super) fn looks_rounded(kept: Timestamp, wanted: Timestamp) -> bool {
    let in_steps = kept.seconds % 2 == 0 && kept.seconds.abs_diff(wanted.seconds) == 1;
    let cut_off = match kept.seconds {
        LAST_SIGNED | LAST_UNSIGNED => wanted.seconds > kept.seconds,
        FIRST_SIGNED | 0 => wanted.seconds < kept.seconds,
        _ => false,
    };
    kept.nanoseconds == 0 && (in_steps || cut_off)
}

/// The last and first seconds of filesystems that keep them in 32 bits: 2038, 2106 and 1901.
pub(super) const LAST_SIGNED: i64 = i32::MAX as i64;
const LAST_UNSIGNED: i64 = u32::MAX as i64;
pub(super) const FIRST_SIGNED: i64 = i32::MIN as i64;

/// Returns the wire's form of a filesystem's time.
pub(crate) fn timestamp(time: dsync_fs::Timestamp) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// Returns the filesystem's form of a wire time.
pub(crate) fn fs_timestamp(time: Timestamp) -> dsync_fs::Timestamp {
    dsync_fs::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
