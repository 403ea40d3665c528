//! `--super`, `--no-super` and `--fake-super`: what each end does with the attributes that only root
//! may set. rsync has one setting for the three, and so the last of them counts.

use dsync_engine::{Destination, FakeSuper, Source, SyncOptions};

use crate::flags::Flags;

/// The options as `-M` passes them to the remote end.
pub(super) const FAKE: &str = "--fake-super";
pub(super) const REAL: &str = "--super";
pub(super) const WITHOUT: &str = "--no-super";

/// The use that an end makes of the attributes that only root may set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rights {
    /// It sets what it may.
    Real,
    /// It keeps them in extended attributes.
    Fake,
    /// It leaves them out.
    Without,
}

/// Sets what each end does with root's attributes. As with rsync the option applies to the local
/// end, and that of `-M` to the remote end, which of a local run is the destination; of several the
/// last counts.
pub(super) fn set_rights(
    options: &mut SyncOptions,
    flags: &Flags,
    source: &Source,
    destination: &Destination,
) {
    let here = match (flags.attributes.fake_super, flags.attributes.no_super) {
        (true, _) => Rights::Fake,
        (false, true) => Rights::Without,
        (false, false) => Rights::Real,
    };
    let there = flags.remote.remote_option.iter().rev().find_map(|word| match word.as_str() {
        FAKE => Some(Rights::Fake),
        REAL => Some(Rights::Real),
        WITHOUT => Some(Rights::Without),
        _ => None,
    });

    let remote = there.unwrap_or(Rights::Real);
    let (from, to) = match (source, destination) {
        (Source::Remote { .. }, _) => (remote, here),
        (_, Destination::Remote { .. }) => (here, remote),
        _ => (here, there.unwrap_or(here)),
    };
    options.fake_super = FakeSuper::default().source(from == Rights::Fake).destination(to == Rights::Fake);
    options.no_super = to == Rights::Without;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        super::tests::{ends_of, parsed},
        *,
    };

    /// Returns which end keeps root's attributes apart, source and destination, and whether the
    /// destination leaves them out.
    fn rights(line: &str) -> (bool, bool, bool) {
        let (line, direction) = line.rsplit_once(' ').unwrap();
        let (source, destination) = ends_of(direction);
        let mut options = SyncOptions::default();
        set_rights(&mut options, &parsed(line), &source, &destination);
        (options.fake_super.source, options.fake_super.destination, options.no_super)
    }

    #[test]
    fn options_count_for_the_local_end_and_with_m_for_the_remote_one() {
        for (line, expected) in [
            ("--no-super local", (false, false, true)),
            ("--no-super push", (false, false, false)),
            ("--no-super pull", (false, false, true)),
            ("-M--no-super local", (false, false, true)),
            ("-M--no-super push", (false, false, true)),
            ("-M--no-super pull", (false, false, false)),
            ("--no-super -M--super local", (false, false, false)),
            ("--fake-super -M--no-super local", (true, false, true)),
            ("--no-super -M--fake-super local", (false, true, false)),
            ("-M--no-super -M--fake-super push", (false, true, false)),
            ("-M--fake-super -M--super push", (false, false, false)),
            ("--fake-super push", (true, false, false)),
            ("-M--fake-super pull", (true, false, false)),
            ("--fake-super --no-super local", (false, false, true)),
            ("--fake-super local", (true, true, false)),
        ] {
            assert_eq!(rights(line), expected, "{line}");
        }
    }
}
