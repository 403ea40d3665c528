use std::fmt::Debug;

use proptest::{collection::vec, prelude::*, sample::select};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;
use crate::event::{Progress, Report, TypeCounts};

const KINDS: [FileType; 7] = [
    FileType::File,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

const ACTIONS: [Action; 7] = [
    Action::Keep,
    Action::Create,
    Action::Update,
    Action::Retag,
    Action::Delete,
    Action::Reuse,
    Action::Link,
];

fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn hash() -> impl Strategy<Value = Option<[u8; 32]>> {
    any::<Option<[u8; 32]>>()
}

/// Paths of entries, some of them no text, some that of the root.
fn path() -> impl Strategy<Value = EntryPath> {
    vec(select(vec![0xff_u8, b'a', b'/', 0xc3, b'"', b'\n', 7]), 0..6).prop_map(EntryPath::from)
}

fn facts() -> impl Strategy<Value = Option<Facts>> {
    let numbers =
        (any::<u64>(), any::<u16>(), any::<i64>(), 0..1_000_000_000_u32, any::<u32>(), any::<u32>());
    proptest::option::of((numbers, hash()).prop_map(
        |((number, mode, seconds, nanoseconds, uid, gid), content)| Facts {
            number,
            mode,
            mtime: Timestamp { seconds, nanoseconds },
            uid,
            gid,
            content,
        },
    ))
}

fn planned() -> impl Strategy<Value = Event> {
    let words = (select(ACTIONS.to_vec()), select(KINDS.to_vec()), 0..=0x7ff_u16);
    (words, path(), path(), any::<u64>(), facts()).prop_map(
        |((action, kind, bits), path, target, size, facts)| {
            let changes = Changes::from_bits(bits).unwrap();
            Event::Planned(Planned { action, kind, changes, path, target: target.into_bytes(), size, facts })
        },
    )
}

fn present() -> impl Strategy<Value = Event> {
    let facts = facts().prop_map(|facts| Facts { number: 0, ..facts.unwrap_or_default() });
    (path(), select(KINDS.to_vec()), any::<u64>(), path(), facts).prop_map(
        |(path, kind, size, text, facts)| {
            let text = text.into_bytes();
            Event::Present(Present { path, kind, size, text, facts })
        },
    )
}

fn done() -> impl Strategy<Value = Event> {
    let words = (select(ACTIONS.to_vec()), select(KINDS.to_vec()));
    (words, path(), any::<u64>(), hash(), any::<[bool; 3]>()).prop_map(
        |((action, kind), path, bytes, content, [durable, linked, cloned])| {
            Event::Done(Done { path, kind, action, bytes, content, durable, linked, cloned })
        },
    )
}

fn causes() -> Vec<Cause> {
    vec![
        Cause::Os(13),
        Cause::Os(-1),
        Cause::Vanished,
        Cause::Changed,
        Cause::ContentMismatch,
        Cause::DirectoryInTheWay,
        Cause::Skipped,
        Cause::Unrepresentable,
        Cause::TypeChanged,
        Cause::FirstNameFailed,
        Cause::SameFile,
        Cause::OtherContent,
        Cause::EmptySource,
        Cause::FakeSuperDamaged,
        Cause::BadRule(7),
        Cause::TooManyRules,
        Cause::LeadsOut,
        Cause::DeviceTooShort { device: 1, file: u64::MAX },
        Cause::Lacking { owner: true, extended: false, number: 1 },
    ]
}

fn rulings() -> Vec<Ruled> {
    let file = RulePlace::File { path: b"d\xff/.rules".into(), line: 3 };
    vec![
        Ruled::Hidden(RulePlace::Command(2)),
        Ruled::Shown(file),
        Ruled::OtherFilesystem,
        Ruled::NotRecursive,
        Ruled::Pruned,
        Ruled::Protected(RulePlace::PartialDir),
        Ruled::NotDeleted,
        Ruled::Spared,
    ]
}

fn others() -> impl Strategy<Value = Event> {
    let failed = (path(), select(causes()))
        .prop_map(|(path, cause)| Event::Failed(Problem::new(Operation::RemoveSource, path, cause)));
    let why =
        select(vec![WhyLeft::Newer, WhyLeft::Exists, WhyLeft::New, WhyLeft::TooLong, WhyLeft::TooShort]);
    let left = (select(KINDS.to_vec()), path(), why)
        .prop_map(|(kind, path, why)| Event::LeftAlone(LeftAlone { kind, path, why }));
    let backed_up = (path(), path()).prop_map(|(path, backup)| Event::BackedUp(BackedUp { path, backup }));
    let ruling = (path(), any::<bool>(), select(rulings()))
        .prop_map(|(path, is_dir, why)| Event::Ruling(Ruling { path, is_dir, why }));
    let ended =
        (any::<[u64; 3]>(), any::<bool>()).prop_map(|([number, literal_bytes, signature_bytes], done)| {
            Event::Ended(Ended { number, done, literal_bytes, signature_bytes })
        });
    prop_oneof![failed, left, backed_up, ruling, ended, path().prop_map(Event::Removed)]
}

fn assert_read_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    assert_eq!(again(value), *value);
}

proptest! {
    #[test]
    fn every_event_is_read_back_equal(event in prop_oneof![planned(), present(), done(), others()]) {
        assert_read_back(&event);
    }

    #[test]
    fn names_lose_no_byte(bytes in vec(any::<u8>(), 0..16)) {
        prop_assert_eq!(again(&Name::of(&bytes)).to_bytes(), Some(bytes));
    }
}

proptest! {
    /// Law: a path alone has the fields that it has in an event, and loses no byte.
    #[test]
    fn a_path_alone_is_written_as_in_an_event(path in path()) {
        let removed = serde_json::to_value(Event::Removed(path.clone())).unwrap();
        let alone = serde_json::to_value(&path).unwrap();
        prop_assert_eq!((&alone["path"], alone.get("path_hex")), (&removed["path"], removed.get("path_hex")));
        prop_assert_eq!(again(&path), path);
    }
}

#[test]
fn a_path_whose_digits_are_no_bytes_is_refused() {
    let read = |hex: &str| serde_json::from_value::<EntryPath>(json!({ "path": "n", "path_hex": hex }));
    assert_eq!(read("6eff").unwrap(), b"n\xff");
    assert!(read("6ef").is_err() && read("no").is_err());
}

#[test]
fn reports_are_read_back_equal_and_by_older_programs_too() {
    let counts = TypeCounts { files: 1, directories: 2, symlinks: 3, devices: 4, specials: u64::MAX };
    let report = Report { listed: counts, linked: Some(5), total_bytes: 6, ..Report::default() };
    assert_read_back(&report);
    assert_read_back(&Progress { bytes_done: 7, totals_final: true, ..Progress::default() });
    let older: Report = serde_json::from_value(json!({ "total_bytes": 6, "of_a_later_version": 1 })).unwrap();
    assert_eq!(older, Report { total_bytes: 6, ..Report::default() });
}

#[test]
fn problems_have_the_words_of_the_program_that_tells_them() {
    let problem = Problem::new(Operation::ReadFile, "d/f", Cause::Os(13));
    let plain = serde_json::to_value(Event::Failed(problem.clone())).unwrap();
    let expected = json!({
        "event": "problem", "path": "d/f", "operation": "read_file", "cause": "system",
        "errno": { "number": 13, "name": "EACCES" },
        "text": "cannot read 'd/f': Permission denied (os error 13)",
    });
    assert_eq!(plain, expected);

    let told = serde_json::to_value(Told::problem(Worded::new(&problem, "no", Some("ask")))).unwrap();
    assert_eq!(
        (&told["text"], &told["cure"], &told["cause"]),
        (&"no".into(), &"ask".into(), &"system".into())
    );
}

#[test]
fn an_entry_that_is_told_with_its_end_has_no_number() {
    let planned = Planned::new(Action::Create, FileType::File, "");
    let planned = planned.facts(Some(Facts::default().number(9)));
    let value = |told| serde_json::to_value(told).unwrap();
    let plan = serde_json::to_value(Event::Planned(planned.clone())).unwrap();
    assert_eq!((&plan["path"], &plan["number"], &plan["done"]), (&".".into(), &9.into(), &false.into()));
    let ended = Ended::default().number(9).done(true).literal_bytes(4);
    let entry = value(Told::entry(&planned, &ended));
    assert_eq!((&entry["done"], &entry["literal_bytes"]), (&true.into(), &4.into()));
    assert!(entry.get("number").is_none());
    assert_eq!(value(Told::listed(&planned, &ended))["action"], "list");
}

#[test]
fn reports_that_are_damaged_are_refused() {
    for text in [
        r#"{"event":"removed","path":"a","path_hex":"6"}"#,
        r#"{"event":"removed","path":"a","path_hex":"zz"}"#,
        r#"{"event":"skipped","path":"a","text":""}"#,
        r#"{"event":"problem","path":"a","operation":"stat","cause":"system"}"#,
        r#"{"event":"problem","path":"a","operation":"sing","cause":"vanished"}"#,
        r#"{"event":"done","path":"a","kind":"file","action":"create","bytes":1,"content":"00",
            "durable":true,"linked":false,"cloned":false}"#,
        r#"{"event":"ruling","path":"a","directory":false,"why":"hidden"}"#,
    ] {
        assert!(serde_json::from_str::<Event>(text).is_err(), "{text}");
    }
}
