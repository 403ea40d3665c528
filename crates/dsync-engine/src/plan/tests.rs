use dsync_wire::name::Name;
use proptest::prelude::*;

use super::{
    times::{FIRST_SIGNED, LAST_SIGNED},
    *,
};

fn policy(options: SyncOptions) -> Policy {
    Policy { options, privileged: true, umask: 0o022, adds_only: false, may_remove: true }
}

fn file(size: u64, mode: u16, seconds: i64, nanoseconds: u32) -> Entry {
    Entry {
        name: Name::try_from(b"f".as_slice()).unwrap(),
        kind: EntryKind::File { size, content: None },
        attributes: Attributes {
            mode,
            mtime: Timestamp { seconds, nanoseconds },
            atime: None,
            uid: 7,
            gid: 8,
            extended: None,
        },
        hard_link: None,
        implied: false,
    }
}

/// Returns the metadata of the entry once it was made.
fn as_made(entry: &Entry, wanted: &Wanted) -> Metadata {
    let time = wanted.mtime.unwrap_or_default();
    Metadata {
        kind: Kind::File,
        mode: wanted.mode.unwrap_or(0o600),
        size: match entry.kind {
            EntryKind::File { size, .. } => size,
            _ => 0,
        },
        mtime: time,
        ctime: time,
        atime: wanted.atime.unwrap_or_default(),
        born: None,
        uid: wanted.uid.unwrap_or(0),
        gid: wanted.gid.unwrap_or(0),
        dev: 1,
        ino: 1,
        nlink: 1,
        rdev: dsync_fs::DeviceNumber::default(),
        blocks: 0,
        origin: Origin::Inode,
    }
}

fn decide(policy: &Policy, entry: &Entry, existing: Option<&Metadata>) -> Decision {
    let (uid, gid) = (Some(entry.attributes.uid), Some(entry.attributes.gid));
    policy.decide(
        entry,
        &Mapped { uid, gid, extended: None, kept_owner: uid, kept_group: gid },
        existing,
        &SameLink,
    )
}

/// The same link text, other content.
struct SameLink;

impl Standing for SameLink {
    fn link_equals(&self, _: &[u8]) -> bool {
        true
    }

    fn content_equals(&self, _: &[u8; 32], _: Stamp) -> bool {
        false
    }

    fn extended(&self, _: ExtendedScope) -> Option<Extended> {
        None
    }

    fn allowed_mode(&self) -> Option<u16> {
        None
    }

    fn inherited_mode(&self) -> u16 {
        0
    }
}

#[test]
fn a_missing_file_is_created_unless_only_existing_ones_are_wanted() {
    let entry = file(5, 0o640, 100, 5);
    let decision = decide(&policy(SyncOptions::archive()), &entry, None);
    assert_eq!(decision.action, Action::Create);
    assert_eq!(decision.wanted.mode, Some(0o640));
    let only_existing = SyncOptions::archive().existing(true);
    assert_eq!(decide(&policy(only_existing), &entry, None).action, Action::Keep);
}

#[test]
fn without_perms_a_new_file_gets_the_umask_and_an_old_one_keeps_its_bits() {
    let plain = policy(SyncOptions::default().times(true));
    let entry = file(5, 0o6777, 100, 5);
    assert_eq!(decide(&plain, &entry, None).wanted.mode, Some(0o755));
    let mut old = as_made(&entry, &decide(&plain, &entry, None).wanted);
    old.mode = 0o600;
    old.size = 4;
    let decision = decide(&plain, &entry, Some(&old));
    assert_eq!((decision.action, decision.wanted.mode), (Action::Update, Some(0o600)));
}

#[test]
fn a_newer_file_is_left_alone_under_update() {
    let newer = policy(SyncOptions::archive().update(true));
    let entry = file(5, 0o600, 100, 0);
    let mut old = as_made(&entry, &decide(&newer, &entry, None).wanted);
    old.size = 9;
    old.mtime.seconds = 101;
    assert_eq!(decide(&newer, &entry, Some(&old)).action, Action::Keep);
    old.mtime.seconds = 99;
    assert_eq!(decide(&newer, &entry, Some(&old)).action, Action::Update);
}

#[test]
fn another_type_is_in_the_way() {
    let entry = file(5, 0o600, 100, 0);
    let mut old = as_made(&entry, &Wanted::default());
    old.kind = Kind::Dir;
    let decision = decide(&policy(SyncOptions::archive()), &entry, Some(&old));
    assert_eq!((decision.action, decision.in_the_way), (Action::Create, Some(Kind::Dir)));
}

#[test]
fn a_filesystem_without_fractions_does_not_make_every_file_old() {
    let whole = Timestamp { seconds: 5, nanoseconds: 0 };
    let fraction = Timestamp { seconds: 5, nanoseconds: 123 };
    assert!(same_time(whole, fraction) && same_time(fraction, whole));
    assert!(!same_time(fraction, Timestamp { seconds: 5, nanoseconds: 124 }));
    assert!(!same_time(whole, Timestamp { seconds: 6, nanoseconds: 0 }));
}

#[test]
fn a_time_is_the_same_as_far_as_a_filesystem_keeps_it() {
    let time = |nanoseconds| Timestamp { seconds: 5, nanoseconds };
    let whole = time(123_456_789);
    for kept in [123_456_700, 123_456_000, 123_000_000, 120_000_000, 0] {
        assert!(same_time(time(kept), whole) && same_time(whole, time(kept)), "{kept}");
    }
    for other in [123_456_780, 123_456_800, 123_450_000, 123_457_000, 124_000_000, 100_000_000] {
        assert!(!same_time(time(other), whole) && !same_time(whole, time(other)), "{other}");
    }
}

#[test]
fn a_filesystem_that_shows_fractions_is_not_taken_for_a_coarse_one() {
    let policy = policy(SyncOptions::archive());
    let entry = file(4, 0o644, 5, 0);
    let decision = decide(&policy, &entry, None);
    let mut existing = as_made(&entry, &decision.wanted);
    existing.mtime.seconds = 4;
    existing.ctime.nanoseconds = 0;
    let decision = decide(&policy, &entry, Some(&existing));
    assert!(policy.only_rounded(&entry, &existing, &decision));
    existing.ctime.nanoseconds = 1;
    assert!(!policy.only_rounded(&entry, &existing, &decision));
}

#[test]
fn time_that_a_filesystem_cannot_hold_is_told_from_another_one() {
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    for (kept, wanted) in [
        (time(4, 0), time(5, 0)),
        (time(4, 0), time(5, 999_999_999)),
        (time(6, 0), time(5, 7)),
        (time(LAST_SIGNED, 0), time(4_000_000_000, 5)),
        (time(FIRST_SIGNED, 0), time(-3_000_000_000, 0)),
        (time(0, 0), time(-77, 0)),
    ] {
        assert!(looks_rounded(kept, wanted), "{kept:?} {wanted:?}");
    }
    for (kept, wanted) in [
        (time(4, 1), time(5, 0)),
        (time(5, 0), time(6, 0)),
        (time(4, 0), time(6, 0)),
        (time(LAST_SIGNED, 0), time(1_000_000_000, 0)),
    ] {
        assert!(!looks_rounded(kept, wanted), "{kept:?} {wanted:?}");
    }
}

fn any_options() -> impl Strategy<Value = SyncOptions> {
    any::<[bool; 6]>().prop_map(|[perms, times, size_only, update, ignore_existing, existing]| {
        SyncOptions::default()
            .perms(perms)
            .times(times)
            .size_only(size_only)
            .update(update)
            .ignore_existing(ignore_existing)
            .existing(existing)
    })
}

proptest! {
    /// Law: an entry that a decision makes needs nothing the next time (a run converges),
    /// whatever the options, as long as times are preserved.
    #[test]
    fn what_was_made_is_kept(
        options in any_options(), size in 0..100_u64, mode in 0..=0o7777_u16,
        seconds in -10..10_i64, nanoseconds in 0..3_u32,
    ) {
        let policy = policy(options.times(true).existing(false));
        let entry = file(size, mode, seconds, nanoseconds);
        let first = decide(&policy, &entry, None);
        let made = as_made(&entry, &first.wanted);
        let second = decide(&policy, &entry, Some(&made));
        prop_assert_eq!(second.action, Action::Keep);
        prop_assert!(second.changes.is_empty());
    }

    /// Law: a kept entry has no differences in preserved attributes; any other has a reason.
    #[test]
    fn an_action_has_a_reason(
        options in any_options(), sizes in (0..3_u64, 0..3_u64), modes in (0..4_u16, 0..4_u16),
        times in (0..3_i64, 0..3_i64),
    ) {
        let policy = policy(options);
        let entry = file(sizes.0, modes.0, times.0, 1);
        let mut old = as_made(&file(sizes.1, modes.1, times.1, 1), &Wanted::default());
        old.mode = modes.1;
        old.mtime = dsync_fs::Timestamp { seconds: times.1, nanoseconds: 1 };
        (old.uid, old.gid) = (entry.attributes.uid, entry.attributes.gid);
        let decision = decide(&policy, &entry, Some(&old));
        match decision.action {
            Action::Retag => prop_assert!(!decision.changes.is_empty()),
            Action::Update => {
                prop_assert!(sizes.0 != sizes.1 || (!policy.options.size_only && times.0 != times.1));
            }
            _ => prop_assert!(decision.changes.is_empty()),
        }
    }
}
