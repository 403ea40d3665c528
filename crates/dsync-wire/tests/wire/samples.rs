//! One message of each kind and of each shape of a kind, with the name of its golden file.

use std::{
    num::{NonZeroU16, NonZeroU32, NonZeroU64},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use dsync_delta::{BlockLen, SumsFormat};
use dsync_wire::{
    bootstrap::{
        BootstrapMessage, ClientBootstrap, ClientChoice, Fingerprint, LinkTerms, PortRange, Refusal,
        ServerBootstrap, Token, Transports, VersionRange,
    },
    compress::{Codec, Packed},
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, Facts, FileType, LeftAlone, Planned, Present,
        Progress, Report, TypeCounts, WhyLeft,
    },
    message::{
        Acl, Asked, Attributes, Cause, ControlMessage, DataMessage, DeviceNumber, Entry, EntryId, EntryKind,
        Extended, Fatal, FileEnd, FileKey, FileState, HardLink, Hello, IdName, Landed, ListPlace, Listing,
        ListingEnd, Names, NeedDelta, NeedTail, Operation, PeerRole, Problem, Reason, Record, Refine, Rest,
        Same, Segment, Span, SpanAnswer, Start, Sums, Timestamp, Tops, Xattr,
    },
    name::Name,
    options::{
        AlternateUse, Alternates, Append, Backup, Compression, DeleteLimit, DeleteTiming, Durability,
        EventLevel, FilterRule, SyncOptions, WritePolicy,
    },
    ruling::{RulePlace, Ruled, Ruling},
};

pub(crate) fn control() -> Vec<(&'static str, ControlMessage)> {
    use ControlMessage as M;
    let mut all = vec![
        ("hello", M::Hello(Hello { version: 1, features: 0, key_share: [7; 32] })),
        ("start-source", M::Start(Box::new(start_source()))),
        ("start-part", M::StartPart { last: true, bytes: vec![0, 1] }),
        ("start-relative", M::Start(Box::new(start_relative()))),
        ("listing-on-the-way", M::Listing(listing_on_the_way())),
        ("missing-path", M::Missing(vec![Name::new(b"a").unwrap(), Name::new(b"b c").unwrap()])),
        ("start-destination", M::Start(Box::new(start_destination()))),
        ("ready", M::Ready { lacks: Vec::new() }),
        ("ready-lacking", M::Ready { lacks: b"there is no Landlock".to_vec() }),
        ("start-list-sent", M::Start(Box::new(Start { list: ListPlace::Sent, ..start_source() }))),
        ("start-list-file", M::Start(Box::new(Start { list: list_file(), ..start_destination() }))),
        ("names", M::Names(names())),
        ("fatal", M::Fatal(fatal(None))),
        ("fatal-reason", M::Fatal(fatal(Some(Reason::NoSpace)))),
        (
            "tops-root",
            M::Tops(Tops { root: Some(attributes(0o755, -1, 999_999_999)), named: 3, single_file: false }),
        ),
        ("tops-file", M::Tops(Tops { root: None, named: 1, single_file: true })),
        ("id-name-user", M::IdName(IdName { group: false, id: 1000, name: b"alice".to_vec() })),
        ("id-name-group", M::IdName(IdName { group: true, id: u32::MAX, name: b"staff".to_vec() })),
        ("listing", M::Listing(listing())),
        ("listing-part", M::Listing(no_entries(EntryId(300)))),
        ("listing-end", M::ListingEnd(ListingEnd { entries: 1_000_000, bytes: 1 << 40 })),
        ("problem", M::Problem(problem(Cause::Os(13)))),
        ("need", M::Need { entry: EntryId(127), attempt: 1 }),
        ("need-delta", M::NeedDelta(need_delta())),
        ("need-delta-keyed", M::NeedDelta(NeedDelta { key: Some(FileKey([8; 32])), ..need_delta() })),
        ("need-tail", M::NeedTail(need_tail(None))),
        ("need-tail-compared", M::NeedTail(need_tail(Some([7; 32])))),
        ("rest", M::Rest(rest())),
        ("sums", M::Sums(Sums { entry: EntryId(128), bytes: (0..24).collect(), last: false })),
        ("sums-last", M::Sums(Sums { entry: EntryId(128), bytes: vec![], last: true })),
        ("listing-done", M::ListingDone { part: 70_000 }),
        ("needs-end", M::NeedsEnd),
        ("ruling-file", M::Ruling(ruling(Ruled::Hidden(rule_file())))),
        ("ruling-partial-dir", M::Ruling(ruling(Ruled::Shown(RulePlace::PartialDir)))),
        ("ruling-pruned", M::Ruling(ruling(Ruled::Pruned))),
        ("progress", M::Progress(progress())),
        ("report", M::Report(Box::new(report()))),
        ("alive", M::Alive),
        ("bye", M::Bye),
        ("refine", M::Refine(refine(SumsFormat::StrongAndWeak, 4096, vec![2, 7, 1]))),
        ("missing", M::Missing(vec![Name::new(b"gone").unwrap()])),
        ("landed", M::Landed(landed())),
        ("removed-path", M::RemovedPath(b"a/b".to_vec())),
        ("removed", M::Removed { entries: 300 }),
        ("refine-weak", M::Refine(refine(SumsFormat::WeakOnly, 32 << 10, vec![]))),
    ];
    all.extend(of_spans());
    all.extend(CAUSES.map(|(name, cause)| (name, M::Problem(problem(cause)))));
    all.extend(events().map(|(name, event)| (name, M::Event(event))));
    all
}

fn events() -> [(&'static str, Event); 13] {
    [
        ("event-planned", Event::Planned(planned())),
        ("event-facts", Event::Planned(planned().facts(Some(facts())))),
        ("event-contents", Event::Planned(planned().facts(Some(facts().content(Some([7; 32])))))),
        ("event-left-alone", Event::LeftAlone(left_alone())),
        ("event-backed-up", Event::BackedUp(backed_up())),
        ("event-removed", Event::Removed("a/b".into())),
        ("event-ruling", Event::Ruling(ruling(Ruled::Protected(RulePlace::Command(300))))),
        ("event-ended", Event::Ended(ended())),
        ("event-done", Event::Done(done())),
        ("event-done-contents", Event::Done(done().content(Some([7; 32])).linked(false).cloned(true))),
        ("event-failed", Event::Failed(problem(Cause::Vanished))),
        ("event-present", Event::Present(present().kind(FileType::CharDevice).text(b"1,3".to_vec()))),
        ("event-present-contents", Event::Present(present().facts(facts().number(0).content(Some([7; 32]))))),
    ]
}

fn present() -> Present {
    Present::new(FileType::File, "a/b").size(300).facts(facts().number(0))
}

pub(crate) fn data() -> Vec<(&'static str, DataMessage)> {
    use DataMessage as M;
    let complete = Ok(Timestamp { seconds: 1_700_000_000, nanoseconds: 5 });
    vec![
        ("lane-start", M::LaneStart { lane: 15 }),
        ("batch-raw", M::Batch { value: [5; 32], files: packed(Codec::Raw, 3, b"abc") }),
        ("tokens-zero", M::Tokens(packed(Codec::Zero, 1 << 20, b""))),
        // An LZ4 block and a zstd frame of 32 times the letter a.
        (
            "tokens-lz4",
            M::Tokens(packed(Codec::Lz4, 32, &[0x1f, b'a', 1, 0, 7, 0x50, b'a', b'a', b'a', b'a', b'a'])),
        ),
        ("tokens-zstd", M::Tokens(packed(Codec::Zstd, 32, &ZSTD_OF_32_A))),
        ("segment", M::Segment(segment())),
        ("holes", M::Holes(vec![0..4096, 5000..6000, 6000..1 << 26])),
        ("segment-end", M::SegmentEnd { value: Some([4; 32]) }),
        ("segment-end-unread", M::SegmentEnd { value: None }),
        ("file-end", M::FileEnd(FileEnd { entry: EntryId(9), attempt: 1, outcome: complete })),
        (
            "file-end-failed",
            M::FileEnd(FileEnd { entry: EntryId(9), attempt: 0, outcome: Err(Cause::Changed) }),
        ),
        ("lane-end", M::LaneEnd),
    ]
}

pub(crate) fn records() -> Vec<Record> {
    let read = |seconds| Ok(Timestamp { seconds, nanoseconds: 1 });
    vec![
        Record { entry: EntryId(1), attempt: 0, outcome: read(0), content: Bytes::from_static(b"small") },
        Record { entry: EntryId(2), attempt: 1, outcome: Err(Cause::Os(2)), content: Bytes::new() },
        Record { entry: EntryId(300), attempt: 0, outcome: read(-9), content: Bytes::new() },
    ]
}

pub(crate) fn bootstrap() -> Vec<(&'static str, BootstrapMessage)> {
    use BootstrapMessage as M;
    vec![
        ("bootstrap-client", M::Client(client_bootstrap())),
        ("bootstrap-server", M::Server(server_bootstrap())),
        (
            "bootstrap-refusal-version",
            M::Refusal(Refusal::Versions { supported: VersionRange::new(3, 4).unwrap() }),
        ),
        ("bootstrap-refusal-feature", M::Refusal(Refusal::Features { missing: 32, at_client: true })),
        ("bootstrap-refusal-other", M::Refusal(Refusal::Other { exit_code: 42, text: b"not here".to_vec() })),
        ("bootstrap-choice-quic", M::Choice(ClientChoice::Quic)),
        ("bootstrap-choice-ssh", M::Choice(ClientChoice::Ssh)),
        ("bootstrap-choice-tls", M::Choice(ClientChoice::Tls)),
        ("bootstrap-go", M::Go),
    ]
}

pub(crate) fn client_bootstrap() -> ClientBootstrap {
    ClientBootstrap {
        versions: VersionRange::new(1, 1).unwrap(),
        features: 0b11,
        required: 0b01,
        transports: Transports { quic: true, ssh: true, tls: true },
        terms: LinkTerms {
            idle_seconds: NonZeroU32::new(60).unwrap(),
            bytes_per_second: NonZeroU64::new(1 << 20),
            ports: PortRange::new(NonZeroU16::new(5000).unwrap(), NonZeroU16::new(5010).unwrap()),
        },
        fingerprint: Fingerprint([0xab; 32]),
        token: Token([0x55; 32]),
    }
}

pub(crate) fn server_bootstrap() -> ServerBootstrap {
    ServerBootstrap {
        version: 1,
        features: 0b01,
        fingerprint: Fingerprint([0xcd; 32]),
        udp_port: NonZeroU16::new(4433),
        tcp_port: NonZeroU16::new(4434),
        addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
    }
}

pub(crate) fn attributes(mode: u16, seconds: i64, nanoseconds: u32) -> Attributes {
    Attributes {
        mode,
        mtime: Timestamp { seconds, nanoseconds },
        atime: None,
        uid: 1000,
        gid: 100,
        extended: None,
    }
}

pub(crate) fn entry(name: &[u8], kind: EntryKind) -> Entry {
    let attributes = attributes(0o644, 1_700_000_000, 123_456_789);
    Entry { name: Name::new(name).unwrap(), kind, attributes, hard_link: None, implied: false }
}

pub(crate) fn file(name: &[u8], size: u64) -> Entry {
    entry(name, EntryKind::File { size, content: None })
}

pub(crate) fn directory(name: &[u8]) -> Entry {
    entry(name, EntryKind::Directory)
}

/// Makes a part of a listing without entries, which is not the last.
fn no_entries(dir: EntryId) -> Listing {
    Listing { dir, last: false, complete: false, left_out: false, entries: Vec::new() }
}

/// Makes entries of every type, with and without what the entry before shares.
pub(crate) fn listing() -> Listing {
    let device = DeviceNumber { major: 8, minor: 1_048_575 };
    let mut entries = vec![
        entry(b"alpha", EntryKind::BlockDevice { device }),
        entry(b"alphabet", EntryKind::CharDevice { device }),
        directory(b"beta"),
        entry(b"fifo", EntryKind::Fifo),
        file(b"file", 0),
        entry(b"file.hashed", EntryKind::File { size: 1 << 33, content: Some([0x11; 32]) }),
        entry(b"link", EntryKind::Symlink { target: b"../elsewhere".to_vec() }),
        entry(b"socket", EntryKind::Socket),
        file(b"\xff", i64::MAX as u64),
    ];
    entries[4].attributes = Attributes::default();
    entries[8].attributes.mode = 0o7777;
    for (index, set) in [(2, extended()), (5, Extended::default()), (8, extended())] {
        entries[index].attributes.extended = Some(Arc::new(set));
    }
    entries[8].attributes.atime = Some(Timestamp { seconds: -1, nanoseconds: 999_999_999 });
    entries[4].hard_link = Some(HardLink::First);
    entries[8].hard_link = Some(HardLink::To(EntryId(300)));
    Listing { dir: EntryId(0), last: true, complete: true, left_out: false, entries }
}

/// Makes lists of both kinds and two attributes.
fn extended() -> Extended {
    let named = vec![(0, 7), (1000, 4)];
    let access = Acl { user: 7, group: 5, mask: Some(6), other: 0, users: named.clone(), groups: vec![] };
    let default = Acl { user: 7, group: 5, mask: None, other: 1, users: vec![], groups: named };
    let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.to_vec(), value: value.to_vec() };
    let xattrs = vec![xattr(b"security.capability", &[1, 0, 0, 2]), xattr(b"user.empty", b"")];
    Extended { access: Some(access), default: Some(default), xattrs }
}

fn start_source() -> Start {
    Start {
        role: PeerRole::Source { paths: vec![b"docs/".to_vec(), b"".to_vec(), b"-odd\n".to_vec()] },
        options: SyncOptions::default()
            .recursive(true)
            .one_file_system(true)
            .max_delete(Some(DeleteLimit::Percent(100)))
            .delete_timing(DeleteTiming::During)
            .min_size(1)
            .max_size(Some(1 << 40))
            .modify_window(Some(u32::MAX))
            .durability(Durability::None)
            .compression(Compression::Zstd(19))
            .filters(vec![
                FilterRule::default().include(true).pattern(b"*.rs".to_vec()),
                FilterRule::default().pattern(b"/target/".to_vec()),
            ])
            .events(EventLevel::All)
            .writing(
                WritePolicy::default()
                    .inplace(true)
                    .devices(true)
                    .delay_updates(true)
                    .append(Append::Verifying)
                    .preallocate(true)
                    .sparse(true)
                    .temp_dir(Some(b"../scratch".to_vec()))
                    .partial_dir(Some(b"/var/parts".to_vec()))
                    .backup(Some(Backup::new(Vec::new()).dir(Some(b"../old".to_vec()))))
                    .alternates(Some(Alternates::new(
                        AlternateUse::Link,
                        vec![b"../yesterday".to_vec(), b"/mnt/b".to_vec()],
                    ))),
            ),
        data_lanes: 16,
        again: Some(Duration::from_millis(61_500)),
        list: ListPlace::None,
    }
}

fn list_file() -> ListPlace {
    ListPlace::File { path: b"lists/today".to_vec(), nul: true }
}

fn fatal(reason: Option<Reason>) -> Fatal {
    Fatal { exit_code: 11, text: b"the disk is full".to_vec(), reason }
}

fn names() -> Names {
    let lines = ["a/b/c", "a/b/dd", "a/b", "z"].map(|line| line.as_bytes().to_vec());
    Names { last: true, lines: lines.to_vec() }
}

fn start_relative() -> Start {
    let paths = vec![b"home/me/docs/".to_vec(), b"etc/fstab".to_vec()];
    let asked = Asked { contents: false, names: Some(Vec::new()), paths };
    Start {
        role: PeerRole::Destination { path: b"backup".to_vec(), asked },
        options: SyncOptions::archive().relative(true).no_implied_dirs(true),
        data_lanes: 2,
        again: None,
        list: ListPlace::None,
    }
}

fn listing_on_the_way() -> Listing {
    let home = Entry { implied: true, ..entry(b"home", EntryKind::Directory) };
    Listing { dir: EntryId(0), last: true, complete: false, left_out: false, entries: vec![home] }
}

fn start_destination() -> Start {
    Start {
        role: PeerRole::Destination {
            path: b"/srv/mirror/".to_vec(),
            asked: Asked {
                contents: true,
                names: Some(vec![Name::new(b"docs").unwrap(), Name::new(b"-odd\n").unwrap()]),
                paths: Vec::new(),
            },
        },
        options: SyncOptions::default().max_delete(Some(DeleteLimit::Entries(0))),
        data_lanes: 1,
        again: None,
        list: ListPlace::None,
    }
}

pub(crate) fn need_delta() -> NeedDelta {
    NeedDelta {
        entry: EntryId(128),
        attempt: 0,
        basis_len: 1 << 30,
        block_len: BlockLen::new(8192).unwrap(),
        format: SumsFormat::StrongOnly,
        key: None,
    }
}

fn refine(format: SumsFormat, block_len: u32, runs: Vec<u8>) -> Refine {
    let attempt = u8::from(runs.is_empty());
    Refine { entry: EntryId(128), attempt, block_len: BlockLen::new(block_len).unwrap(), format, runs }
}

fn need_tail(content: Option<[u8; 32]>) -> NeedTail {
    NeedTail { entry: EntryId(130), attempt: 2, from: 1 << 33, content }
}

fn rest() -> Rest {
    let runs = vec![3..4, 300..1000];
    Rest { entry: EntryId(128), attempt: 0, state: FileState([6; 16]), length_log2: 22, runs }
}

pub(crate) fn segment() -> Segment {
    Segment {
        entry: EntryId(9),
        attempt: 0,
        state: FileState([6; 16]),
        file_len: 100 << 20,
        length_log2: 24,
        index: 6,
        lead: 8191,
    }
}

fn problem(cause: Cause) -> Problem {
    Problem::new(Operation::ReadDirectory, "secret/\x1b[2J", cause)
}

fn planned() -> Planned {
    let mut changes = Changes::SIZE;
    changes.insert(Changes::TIME);
    Planned::new(Action::Update, FileType::File, "a/b")
        .changes(changes)
        .target(Vec::new())
        .size(300)
        .facts(None)
}

fn facts() -> Facts {
    let mtime = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
    Facts::default().number(300).mode(0o4755).mtime(mtime).uid(u32::MAX).gid(34)
}

fn ruling(why: Ruled) -> Ruling {
    Ruling::new("a/b", true, why)
}

fn rule_file() -> RulePlace {
    RulePlace::File { path: "a/.rsync-filter".into(), line: 12 }
}

fn left_alone() -> LeftAlone {
    LeftAlone::new(FileType::Directory, "a/b", WhyLeft::TooShort)
}

fn backed_up() -> BackedUp {
    BackedUp::new("a/b", "../kept/a/b~")
}

fn done() -> Done {
    Done::new(Action::Update, FileType::File, "a/b").bytes(300).durable(true).linked(true)
}

fn ended() -> Ended {
    Ended::default().number(300).done(true).literal_bytes(1 << 40).signature_bytes(128)
}

fn progress() -> Progress {
    Progress::default()
        .entries_checked(1)
        .files_needed(200)
        .bytes_needed(1 << 20)
        .files_done(3)
        .bytes_done(4)
        .entries_listed(u64::MAX)
        .totals_final(true)
}

fn report() -> Report {
    let counts = |from| {
        TypeCounts::default()
            .files(from)
            .directories(from + 1)
            .symlinks(from + 2)
            .devices(from + 3)
            .specials(from + 4)
    };
    Report::default()
        .listed(counts(1000))
        .created(counts(10))
        .deleted(counts(20))
        .retagged(30)
        .files_transferred(31)
        .total_bytes(32)
        .transferred_bytes(33)
        .literal_bytes(34)
        .matched_bytes(35)
        .signature_bytes(36)
        .syncs(37)
        .vanished(38)
        .failed(39)
        .attributes_withheld(42)
        .links_copied(43)
        .rounded_times(44)
        .deletions_withheld(40)
        .deletions_over_limit(41)
}

fn landed() -> Vec<Landed> {
    let stood = [None, Some(FileState([6; 16]))];
    stood.into_iter().zip(299..).map(|(stood, entry)| Landed { entry: EntryId(entry), stood }).collect()
}

fn packed(codec: Codec, raw_len: u32, bytes: &'static [u8]) -> Packed {
    Packed { codec, raw_len, bytes: Bytes::from_static(bytes) }
}

const CAUSES: [(&str, Cause); 16] = [
    ("problem-changed", Cause::Changed),
    ("problem-mismatch", Cause::ContentMismatch),
    ("problem-in-the-way", Cause::DirectoryInTheWay),
    ("problem-skipped", Cause::Skipped),
    ("problem-unrepresentable", Cause::Unrepresentable),
    ("problem-type-changed", Cause::TypeChanged),
    ("problem-first-name", Cause::FirstNameFailed),
    ("problem-same-file", Cause::SameFile),
    ("problem-fake-super", Cause::FakeSuperDamaged),
    ("problem-bad-rule", Cause::BadRule(300)),
    ("problem-too-many-rules", Cause::TooManyRules),
    ("problem-leads-out", Cause::LeadsOut),
    ("problem-other-content", Cause::OtherContent),
    ("problem-device-too-short", Cause::DeviceTooShort { device: 512, file: 1 << 40 }),
    ("problem-empty-source", Cause::EmptySource),
    ("problem-lacking", Cause::Lacking { owner: true, extended: false, number: 22 }),
];

/// Single segment, one byte of content size, one RLE block, last.
const ZSTD_OF_32_A: [u8; 10] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 32, 0x03, 0x01, 0x00, b'a'];

/// Returns the messages of spans.
fn of_spans() -> [(&'static str, ControlMessage); 6] {
    use ControlMessage as M;
    [
        ("span", M::Span(span(Some(b"last")))),
        ("span-directory", M::Span(span(None))),
        ("span-equal", M::SpanAnswer(SpanAnswer::Equal)),
        ("span-pieces", M::SpanAnswer(SpanAnswer::Pieces(vec![[1; 16], [2; 16]]))),
        ("span-nothing", M::SpanAnswer(SpanAnswer::Nothing)),
        ("same", M::Same(Same { first: 3, count: 200 })),
    ]
}

/// Returns a span up to this name, or to the end of its directory.
fn span(name: Option<&[u8]>) -> Span {
    let name = name.map(|name| Name::new(name).unwrap());
    Span { items: 300, directory: b"a/b".to_vec(), name, digest: [9; 16] }
}
