use std::sync::Arc;

use dsync_wire::{
    message::{DeviceNumber, EntryId, Extended, HardLink},
    name::Name,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

/// An item with the path of its directory.
type Told = (Vec<u8>, Result<Entry, bool>);

fn digests(items: &[Told], end: End) -> Digests {
    let key = SpanKey::of(&[3; 32]);
    let mut digester = Digester::new(&key, end);
    for (directory, item) in items {
        let item = match item {
            Ok(entry) => Item::Entry(entry),
            Err(complete) => Item::End { complete: *complete },
        };
        digester.push(directory, item);
    }
    digester.finish()
}

fn name() -> impl Strategy<Value = Name> {
    "[ab]{1,3}".prop_map(|name| Name::new(name.as_bytes()).unwrap())
}

/// Returns values from few, so that two entries often have the same.
fn few() -> impl Strategy<Value = u32> {
    0..3_u32
}

fn kind() -> impl Strategy<Value = EntryKind> {
    let device = || (few(), few()).prop_map(|(major, minor)| DeviceNumber { major, minor });
    prop_oneof![
        few().prop_map(|size| EntryKind::File { size: size.into(), content: None }),
        Just(EntryKind::Directory),
        "[ab]{0,2}".prop_map(|target| EntryKind::Symlink { target: target.into_bytes() }),
        select(vec![EntryKind::Fifo, EntryKind::Socket]),
        device().prop_map(|device| EntryKind::CharDevice { device }),
        device().prop_map(|device| EntryKind::BlockDevice { device }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let times = (few(), few());
    (name(), kind(), (few(), few(), few()), times, any::<bool>()).prop_map(
        |(name, kind, (mode, uid, gid), (seconds, nanoseconds), implied)| {
            let mtime = Timestamp { seconds: seconds.into(), nanoseconds };
            let mode = u16::try_from(mode).unwrap();
            let attributes = Attributes { mode, mtime, atime: None, uid, gid, extended: None };
            Entry { name, kind, attributes, hard_link: None, implied }
        },
    )
}

fn items() -> impl Strategy<Value = Vec<Told>> {
    let item = prop_oneof![4 => entry().prop_map(Ok), 1 => any::<bool>().prop_map(Err)];
    vec((select(vec![b"".to_vec(), b"a".to_vec(), b"a/b".to_vec()]), item), 0..4)
}

proptest! {
    #[test]
    fn digests_are_equal_where_all_items_are_and_nowhere_else(a in items(), b in items()) {
        let (ours, theirs) = (digests(&a, End::Source), digests(&b, End::Destination));
        prop_assert_eq!(a == b, ours.whole == theirs.whole);
        prop_assert_eq!(a == b, ours == theirs);
    }

    #[test]
    fn one_difference_shows(before in items(), after in items(), a in entry(), b in entry()) {
        let with = |entry: &Entry| {
            let middle = [(b"a".to_vec(), Ok(entry.clone()))];
            [&before[..], &middle, &after].concat()
        };
        let (ours, theirs) = (digests(&with(&a), End::Source), digests(&with(&b), End::Destination));
        prop_assert_eq!(a == b, ours.whole == theirs.whole);
    }

    #[test]
    fn what_has_no_record_is_equal_to_nothing(
        entry in entry(),
        part in 0..4_usize,
        atime in option::of(few()),
    ) {
        let mut entry = entry;
        match part {
            0 => entry.attributes.extended = Some(Arc::new(Extended::default())),
            1 => entry.hard_link = Some(HardLink::To(EntryId(1))),
            2 => entry.kind = EntryKind::File { size: 1, content: Some([1; 32]) },
            _ => {
                let seconds = atime.unwrap_or(0).into();
                entry.attributes.atime = Some(Timestamp { seconds, nanoseconds: 0 });
            }
        }
        let items = [(Vec::new(), Ok(entry))];
        prop_assert_ne!(digests(&items, End::Source).whole, digests(&items, End::Destination).whole);
    }
}

/// Returns many files of one directory.
fn files(numbers: impl Iterator<Item = u32>) -> Vec<Told> {
    let entry = |number: u32| Entry {
        name: Name::new(format!("file{number:06}").as_bytes()).unwrap(),
        kind: EntryKind::File { size: number.into(), content: None },
        attributes: Attributes { mode: 0o644, ..Attributes::default() },
        hard_link: None,
        implied: false,
    };
    numbers.map(|number| (b"d".to_vec(), Ok(entry(number)))).collect()
}

#[test]
fn an_item_that_one_end_lacks_changes_few_pieces() {
    let all = digests(&files(0..16_384), End::Source);
    let count = all.pieces.len();
    assert!((128..=512).contains(&count), "{count} pieces");
    assert_eq!(all.pieces.iter().map(|(_, len)| len).sum::<usize>(), 16_384);
    for missing in [0, 777, 9000, 16_383] {
        let fewer = digests(&files((0..16_384).filter(|number| *number != missing)), End::Destination);
        assert_ne!(fewer.whole, all.whole);
        let changed = all.pieces.iter().filter(|piece| !fewer.pieces.contains(piece)).count();
        assert!((1..=2).contains(&changed), "{changed} pieces without {missing}");
    }
}

#[test]
fn another_session_has_other_digests() {
    let items = files(0..100);
    let of = |share| {
        let key = SpanKey::of(&[share; 32]);
        let mut digester = Digester::new(&key, End::Source);
        for (directory, item) in &items {
            digester.push(directory, Item::Entry(item.as_ref().unwrap()));
        }
        digester.finish()
    };
    assert_eq!(of(1), of(1));
    assert!(of(1).pieces.iter().all(|piece| !of(2).pieces.contains(piece)));
}
