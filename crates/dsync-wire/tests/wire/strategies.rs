//! Strategies that generate any message, for property tests.

use std::{collections::BTreeSet, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use dsync_delta::{BlockLen, SumsFormat};
use dsync_wire::{
    compress::{Effort, Packed, Packer},
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, Facts, FileType, LeftAlone, Planned, Present,
        Progress, Report, TypeCounts, WhyLeft,
    },
    limits::{MAX_FILE_LEN, MAX_FILTERS, MAX_SEGMENT_LOG2, MAX_SPAN_ITEMS, MIN_SEGMENT_LOG2},
    message::{
        Acl, Asked, Attributes, Cause, ControlMessage, DataMessage, DeviceNumber, Entry, EntryId, EntryKind,
        Extended, Fatal, FileEnd, FileKey, FileState, HardLink, Hello, IdName, Landed, ListPlace, Listing,
        ListingEnd, Names, NeedDelta, NeedTail, Operation, PeerRole, Problem, Reason, Record, Refine, Rest,
        Same, Segment, Span, SpanAnswer, Start, Sums, Timestamp, Tops, Xattr,
    },
    name::Name,
    options::{
        AlternateUse, Alternates, Append, Backup, Compression, CopiedBits, DeleteLimit, DeleteTiming,
        Durability, EventLevel, FilterRule, IdMatch, IdRule, IdTarget, KeepPartial, ModeRule, SyncOptions,
        WritePolicy,
    },
    ruling::{RulePlace, Ruled, Ruling},
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

pub(crate) fn control_message() -> BoxedStrategy<ControlMessage> {
    use ControlMessage as M;
    prop_oneof![
        (any::<u16>(), any::<u64>(), any::<[u8; 32]>())
            .prop_map(|(version, features, key_share)| M::Hello(Hello { version, features, key_share })),
        start().prop_map(|start| M::Start(Box::new(start))),
        (any::<bool>(), vec(any::<u8>(), 0..100)).prop_map(|(last, bytes)| M::StartPart { last, bytes }),
        select(vec![M::NeedsEnd, M::Alive, M::Bye]),
        vec(any::<u8>(), 0..100).prop_map(|lacks| M::Ready { lacks }),
        fatal().prop_map(M::Fatal),
        (option::of(attributes()), any::<u32>(), any::<bool>())
            .prop_map(|(root, named, single_file)| M::Tops(Tops { root, named, single_file })),
        (any::<bool>(), any::<u32>(), vec(1..=255u8, 1..20))
            .prop_map(|(group, id, name)| M::IdName(IdName { group, id, name })),
        listing().prop_map(M::Listing),
        (number(), number()).prop_map(|(entries, bytes)| M::ListingEnd(ListingEnd { entries, bytes })),
        of_spans(),
        problem().prop_map(M::Problem),
        ruling().prop_map(M::Ruling),
        text().prop_map(M::RemovedPath),
        (entry_id(), any::<u8>()).prop_map(|(entry, attempt)| M::Need { entry, attempt }),
        (entry_id(), any::<u8>(), 0..=MAX_FILE_LEN, 10..=22u32, format(), option::of(any::<[u8; 32]>()))
            .prop_map(|(entry, attempt, basis_len, log2, format, key)| {
                let block_len = BlockLen::new(1 << log2).unwrap();
                let key = key.map(FileKey);
                M::NeedDelta(NeedDelta { entry, attempt, basis_len, block_len, format, key })
            }),
        (entry_id(), vec(any::<u8>(), 0..100), any::<bool>())
            .prop_map(|(entry, bytes, last)| M::Sums(Sums { entry, bytes, last })),
        names().prop_map(M::Names),
        number().prop_map(|part| M::ListingDone { part }),
        refine().prop_map(M::Refine),
        (entry_id(), any::<u8>(), 1..=MAX_FILE_LEN, option::of(any::<[u8; 32]>())).prop_map(
            |(entry, attempt, from, content)| M::NeedTail(NeedTail { entry, attempt, from, content })
        ),
        rest().prop_map(M::Rest),
        proptest::collection::vec("[^/\\x00.]{1,60}", 1..4).prop_map(|names| {
            M::Missing(names.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect())
        }),
        number().prop_map(|entries| M::Removed { entries }),
        vec((entry_id(), option::of(any::<[u8; 16]>())), 0..20).prop_map(|landed| {
            let landed =
                landed.into_iter().map(|(entry, state)| Landed { entry, stood: state.map(FileState) });
            M::Landed(landed.collect())
        }),
        event().prop_map(M::Event),
        (vec(number(), 6), any::<bool>()).prop_map(|(counts, totals_final)| {
            M::Progress(
                Progress::default()
                    .entries_checked(counts[0])
                    .files_needed(counts[1])
                    .bytes_needed(counts[2])
                    .files_done(counts[3])
                    .bytes_done(counts[4])
                    .entries_listed(counts[5])
                    .totals_final(totals_final),
            )
        }),
        report().prop_map(|report| M::Report(Box::new(report))),
    ]
    .boxed()
}

fn fatal() -> impl Strategy<Value = Fatal> {
    (any::<u8>(), text(), option::of(select(&Reason::ALL))).prop_map(|(exit_code, text, reason)| Fatal {
        exit_code,
        text,
        reason,
    })
}

pub(crate) fn data_message() -> BoxedStrategy<DataMessage> {
    use DataMessage as M;
    prop_oneof![
        (0..64u8).prop_map(|lane| M::LaneStart { lane }),
        (any::<[u8; 32]>(), packed()).prop_map(|(value, files)| M::Batch { value, files }),
        packed().prop_map(M::Tokens),
        segment().prop_map(M::Segment),
        holes().prop_map(M::Holes),
        any::<Option<[u8; 32]>>().prop_map(|value| M::SegmentEnd { value }),
        (entry_id(), any::<u8>(), ending()).prop_map(|(entry, attempt, outcome)| M::FileEnd(FileEnd {
            entry,
            attempt,
            outcome
        })),
        Just(M::LaneEnd),
    ]
    .boxed()
}

pub(crate) fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (entry_id(), any::<u8>(), ending(), vec(any::<u8>(), 0..200)).prop_map(
        |(entry, attempt, outcome, content)| {
            let content = if outcome.is_err() { Bytes::new() } else { content.into() };
            Record { entry, attempt, outcome, content }
        },
    );
    vec(record, 0..10)
}

/// Generates content of the kinds that compressors meet: zeros, text, noise, runs.
pub(crate) fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0..200_000usize).prop_map(|len| vec![0; len]),
        vec(any::<u8>(), 0..2000),
        (vec(any::<u8>(), 1..40), 1..3000usize).prop_map(|(unit, times)| unit.repeat(times)),
        (any::<u64>(), 0..200_000usize).prop_map(|(seed, len)| noise(seed, len)),
    ]
}

/// Returns incompressible bytes.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        // xorshift64*: good enough to defeat LZ4 and Huffman.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..len).map(|_| step()).collect()
}

fn format() -> impl Strategy<Value = SumsFormat> {
    select(vec![SumsFormat::StrongOnly, SumsFormat::WeakOnly, SumsFormat::StrongAndWeak])
}

fn packed() -> impl Strategy<Value = Packed> {
    let effort = select(vec![Effort::Raw, Effort::Lz4, Effort::Zstd(1), Effort::Zstd(3)]);
    (content(), effort).prop_map(|(raw, effort)| Packer::new().pack(raw.into(), effort))
}

fn holes() -> impl Strategy<Value = Vec<Range<u32>>> {
    vec((0..2000_u32, 1..2000_u32), 1..20).prop_map(|runs| {
        let mut at = 0;
        let hole = |(gap, len)| {
            let start = at + gap;
            at = start + len;
            start..at
        };
        runs.into_iter().map(hole).collect()
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    (
        entry_id(),
        any::<u8>(),
        any::<[u8; 16]>(),
        0..=MAX_FILE_LEN,
        MIN_SEGMENT_LOG2..=MAX_SEGMENT_LOG2,
        any::<u64>(),
        0..1u32 << 22,
    )
        .prop_map(|(entry, attempt, state, file_len, length_log2, index, lead)| {
            let count = file_len.div_ceil(1 << length_log2).max(1);
            let index = index % count;
            let lead = if index == 0 { 0 } else { lead.min(1 << 20) };
            let state = FileState(state);
            Segment { entry, attempt, state, file_len, length_log2, index, lead }
        })
}

fn ending() -> impl Strategy<Value = Result<Timestamp, Cause>> {
    prop_oneof![timestamp().prop_map(Ok), cause().prop_map(Err)]
}

fn rest() -> impl Strategy<Value = Rest> {
    let runs = vec((0..1_u64 << 40, 1..1_u64 << 40), 1..20);
    (entry_id(), any::<u8>(), any::<[u8; 16]>(), MIN_SEGMENT_LOG2..=MAX_SEGMENT_LOG2, runs).prop_map(
        |(entry, attempt, state, length_log2, gaps)| {
            let runs = gaps.into_iter().scan(0, |at, (gap, len)| {
                let start = *at + gap;
                *at = start + len;
                Some(start..*at)
            });
            Rest { entry, attempt, state: FileState(state), length_log2, runs: runs.collect() }
        },
    )
}

fn refine() -> impl Strategy<Value = Refine> {
    (entry_id(), any::<u8>(), 10..=22u32, format(), vec(any::<u8>(), 0..100)).prop_map(
        |(entry, attempt, log2, format, runs)| {
            let block_len = BlockLen::new(1 << log2).unwrap();
            Refine { entry, attempt, block_len, format, runs }
        },
    )
}

fn names() -> impl Strategy<Value = Names> {
    let line = vec(select(b"ab/\n\xff".to_vec()), 1..8);
    (any::<bool>(), vec(line, 0..20)).prop_map(|(last, lines)| Names { last, lines })
}

fn asked() -> impl Strategy<Value = Asked> {
    let name = "[^/\\x00.]{1,60}".prop_map(|name| Name::new(name.as_bytes()).unwrap());
    let names = option::of(vec(name, 0..5));
    (any::<bool>(), names).prop_map(|(contents, names)| Asked { contents, names, paths: Vec::new() })
}

fn start() -> impl Strategy<Value = Start> {
    let operand = || vec(1..=255u8, 0..30);
    let role = prop_oneof![
        vec(operand(), 0..5).prop_map(|paths| PeerRole::Source { paths }),
        (operand(), asked()).prop_map(|(path, asked)| PeerRole::Destination { path, asked }),
    ];
    let file = (operand(), any::<bool>()).prop_map(|(path, nul)| ListPlace::File { path, nul });
    let list = prop_oneof![Just(ListPlace::None), Just(ListPlace::Sent), file];
    (role, options(), 1..=64u8, any::<Option<u32>>(), list).prop_map(
        |(role, options, data_lanes, again, list)| {
            let is_source = matches!(role, PeerRole::Source { .. });
            let list = if is_source || list != ListPlace::Sent { list } else { ListPlace::None };
            let again = again.map(|age| Duration::from_millis(age.into()));
            Start { role, options, data_lanes, again, list }
        },
    )
}

fn delete_limit() -> impl Strategy<Value = DeleteLimit> {
    prop_oneof![number().prop_map(DeleteLimit::Entries), (0..=100u8).prop_map(DeleteLimit::Percent)]
}

pub(crate) fn options() -> impl Strategy<Value = SyncOptions> {
    let filter = (any::<bool>(), text(), "[:!/srpwnCG0]{0,8}").prop_map(|(include, pattern, modifiers)| {
        FilterRule::default().include(include).pattern(pattern).modifiers(modifiers)
    });
    let compression = prop_oneof![
        select(vec![Compression::Auto, Compression::Off, Compression::Lz4]),
        (1..=19u8).prop_map(Compression::Zstd),
    ];
    let choices = (
        select(vec![
            DeleteTiming::After,
            DeleteTiming::During,
            DeleteTiming::Before,
            DeleteTiming::AfterArrival,
        ]),
        select(vec![KeepPartial::OnLostConnection, KeepPartial::Always, KeepPartial::Never]),
        select(vec![Durability::Batch, Durability::File, Durability::None]),
        select(vec![EventLevel::Problems, EventLevel::Changes, EventLevel::All]),
    );
    let sizes = (option::of(delete_limit()), number(), option::of(number()), option::of(any::<u32>()));
    let rules = (vec(filter, 0..5), vec(mode_rule(), 0..3), vec(id_rule(), 0..3));
    (any::<u64>(), choices, sizes, compression, rules, writing()).prop_map(
        |(on, choices, sizes, compression, rules, writing)| {
            let (delete_timing, keep_partial, durability, events) = choices;
            let (max_delete, min_size, max_size, modify_window) = sizes;
            let (filters, mode_rules, id_rules) = rules;
            switches(on)
                .delete_timing(delete_timing)
                .keep_partial(keep_partial)
                .durability(durability)
                .events(events)
                .max_delete(max_delete)
                .min_size(min_size)
                .max_size(max_size)
                .modify_window(modify_window)
                .compression(compression)
                .filters(filters)
                .mode_rules(mode_rules)
                .id_rules(id_rules)
                .writing(writing)
        },
    )
}

/// Makes options with the chosen switches on, whichever there are.
fn switches(on: u64) -> SyncOptions {
    let mut options = serde_json::to_value(SyncOptions::default()).unwrap();
    let switches = options.as_object_mut().unwrap().values_mut().filter(|value| value.is_boolean());
    for (bit, switch) in switches.enumerate() {
        *switch = (on >> (bit % 64) & 1 == 1).into();
    }
    let options: SyncOptions = serde_json::from_value(options).unwrap();
    let explain = if options.dry_run { vec!["a/b".into(), b"\xff".into()] } else { Vec::new() };
    options.explain(explain)
}

fn id_rule() -> impl Strategy<Value = IdRule> {
    let name = || vec(any::<u8>(), 0..6);
    let from = prop_oneof![
        name().prop_map(IdMatch::Name),
        any::<(u32, u32)>().prop_map(|(one, other)| IdMatch::Numbers(one.min(other), one.max(other))),
    ];
    let to = prop_oneof![name().prop_map(IdTarget::Name), any::<u32>().prop_map(IdTarget::Number)];
    (any::<bool>(), from, to).prop_map(|(group, from, to)| IdRule::new(from, to).group(group))
}

fn mode_rule() -> impl Strategy<Value = ModeRule> {
    let copied = (0..=6u8, 0..=0o777u16, any::<bool>())
        .prop_map(|(from, to, removed)| CopiedBits::new(from, to).removed(removed));
    (any::<[bool; 3]>(), 0..=0o7777u16, 0..=0o7777u16, proptest::option::of(copied)).prop_map(
        |([files, directories, if_executable], keep, set, copied)| {
            let rule = ModeRule::new(keep, set).files(files).directories(directories);
            rule.if_executable(if_executable).copied(copied)
        },
    )
}

fn writing() -> impl Strategy<Value = WritePolicy> {
    let operand = || "[a-z./]{1,20}".prop_map(String::into_bytes);
    let backup = (option::of(operand()), "[~.a-z]{1,9}")
        .prop_map(|(dir, suffix)| Backup::new(suffix.into_bytes()).dir(dir));
    let way = select(vec![AlternateUse::Compare, AlternateUse::Copy, AlternateUse::Link]);
    let alternates = (way, vec(operand(), 1..=20)).prop_map(|(way, dirs)| Alternates::new(way, dirs));
    let partial_dir = option::of("/?[.a-z]{3,20}".prop_map(String::into_bytes));
    let homes = (option::of(operand()), partial_dir);
    let append = select(vec![Append::No, Append::Believing, Append::Verifying]);
    ((any::<[bool; 5]>(), append), homes, option::of(backup), option::of(alternates)).prop_map(
        |(
            ([inplace, devices, delay_updates, preallocate, sparse], append),
            (temp_dir, partial_dir),
            backup,
            alternates,
        )| {
            WritePolicy::default()
                .append(if inplace { append } else { Append::No })
                .inplace(inplace)
                .devices(devices)
                .delay_updates(delay_updates)
                .preallocate(preallocate)
                .sparse(sparse)
                .temp_dir(temp_dir)
                .partial_dir(partial_dir)
                .backup(backup)
                .alternates(alternates)
        },
    )
}

fn listing() -> impl Strategy<Value = Listing> {
    let name = prop_oneof![
        "[a-c]{1,4}".prop_map(String::into_bytes),
        "prefix-[a-c]{1,4}".prop_map(String::into_bytes),
        vec(any::<u8>(), 1..=255),
    ];
    let names = vec(name, 0..80).prop_map(|names| {
        let names: BTreeSet<_> = names.into_iter().filter_map(|name| Name::try_from(name).ok()).collect();
        Vec::from_iter(names)
    });
    (entry_id(), any::<bool>(), any::<bool>(), names)
        .prop_flat_map(|(dir, last, complete, names)| {
            let count = names.len();
            (
                Just((dir, last, complete, names)),
                vec((entry_kind(), attributes(), hard_link(), option::weighted(0.3, timestamp())), count),
            )
        })
        .prop_map(|((dir, last, complete, names), rest)| {
            let entries = names
                .into_iter()
                .zip(rest)
                .map(|(name, (kind, mut attributes, hard_link, atime))| {
                    let hard_link = hard_link.filter(|_| kind != EntryKind::Directory);
                    attributes.atime = atime.filter(|_| kind != EntryKind::Directory);
                    let implied = kind == EntryKind::Directory && attributes.mode % 2 == 1;
                    match kind {
                        EntryKind::Hidden => hidden(name),
                        _ => Entry { name, kind, attributes, hard_link, implied },
                    }
                })
                .collect();
            let left_out = dir.0.is_multiple_of(2);
            Listing { dir, last, complete, left_out, entries }
        })
}

/// Returns an entry that has nothing but its name.
fn hidden(name: Name) -> Entry {
    let (kind, attributes) = (EntryKind::Hidden, Attributes::default());
    Entry { name, kind, attributes, hard_link: None, implied: false }
}

fn hard_link() -> impl Strategy<Value = Option<HardLink>> {
    option::of(prop_oneof![Just(HardLink::First), entry_id().prop_map(HardLink::To)])
}

fn entry_kind() -> impl Strategy<Value = EntryKind> {
    let device = || any::<(u32, u32)>().prop_map(|(major, minor)| DeviceNumber { major, minor });
    prop_oneof![
        4 => (0..=MAX_FILE_LEN, option::weighted(0.2, any::<[u8; 32]>()))
            .prop_map(|(size, content)| EntryKind::File { size, content }),
        2 => Just(EntryKind::Directory),
        1 => vec(1..=255u8, 1..100).prop_map(|target| EntryKind::Symlink { target }),
        1 => select(vec![EntryKind::Fifo, EntryKind::Socket]),
        1 => device().prop_map(|device| EntryKind::CharDevice { device }),
        1 => device().prop_map(|device| EntryKind::BlockDevice { device }),
        1 => Just(EntryKind::Hidden),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let id = || prop_oneof![Just(0u32), Just(1000), any::<u32>()];
    let mode = prop_oneof![Just(0o644u16), Just(0o755), 0..=0o7777u16];
    (mode, timestamp(), id(), id(), option::weighted(0.3, extended().prop_map(Arc::new))).prop_map(
        |(mode, mtime, uid, gid, extended)| Attributes { mode, mtime, atime: None, uid, gid, extended },
    )
}

fn extended() -> impl Strategy<Value = Extended> {
    let named = || btree_map(any::<u32>(), 0..8u8, 0..4).prop_map(Vec::from_iter);
    let acl = move || {
        (0..8u8, 0..8u8, option::of(0..8u8), 0..8u8, named(), named()).prop_map(
            |(user, group, mask, other, users, groups)| Acl { user, group, mask, other, users, groups },
        )
    };
    let xattrs = btree_map(vec(1..=255u8, 1..20), vec(any::<u8>(), 0..30), 0..4);
    (option::of(acl()), option::of(acl()), xattrs).prop_map(|(access, default, xattrs)| {
        let xattrs = xattrs.into_iter().map(|(name, value)| Xattr { name, value }).collect();
        Extended { access, default, xattrs }
    })
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    let seconds = prop_oneof![any::<i64>(), 1_600_000_000..1_800_000_000i64, Just(0)];
    (seconds, prop_oneof![Just(0), 0..1_000_000_000u32])
        .prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

fn facts() -> impl Strategy<Value = Facts> {
    let owners = (any::<u32>(), any::<u32>());
    let content = option::of(any::<[u8; 32]>());
    (number(), any::<u16>(), timestamp(), owners, content).prop_map(
        |(number, mode, mtime, (uid, gid), content)| {
            Facts::default().number(number).mode(mode).mtime(mtime).uid(uid).gid(gid).content(content)
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let action = select(vec![
        Action::Keep,
        Action::Create,
        Action::Update,
        Action::Retag,
        Action::Delete,
        Action::Reuse,
        Action::Link,
    ]);
    let kind = select(vec![
        FileType::File,
        FileType::Directory,
        FileType::Symlink,
        FileType::Fifo,
        FileType::Socket,
        FileType::CharDevice,
        FileType::BlockDevice,
    ]);
    let changes = (0..0x400u16).prop_map(|bits| Changes::from_bits(bits).unwrap());
    let present = (kind.clone(), text(), text(), 0..=MAX_FILE_LEN, facts());
    let done = (action.clone(), kind.clone(), text(), 0..=MAX_FILE_LEN, option::of(any::<[u8; 32]>()));
    prop_oneof![
        (done, any::<[bool; 3]>()).prop_map(
            |((action, kind, path, bytes, content), [durable, linked, cloned])| {
                let done = Done::new(action, kind, path).bytes(bytes).content(content);
                Event::Done(done.durable(durable).linked(linked).cloned(cloned))
            }
        ),
        (action, kind, changes, text(), text(), 0..=MAX_FILE_LEN, option::of(facts())).prop_map(
            |(action, kind, changes, path, target, size, facts)| {
                Event::Planned(
                    Planned::new(action, kind, path).changes(changes).target(target).size(size).facts(facts),
                )
            }
        ),
        present.prop_map(|(kind, path, text, size, facts)| {
            Event::Present(Present::new(kind, path).size(size).text(text).facts(facts))
        }),
        problem().prop_map(Event::Failed),
        (select(vec![WhyLeft::Newer, WhyLeft::Exists, WhyLeft::New, WhyLeft::TooLong]), text())
            .prop_map(|(why, path)| Event::LeftAlone(LeftAlone::new(FileType::File, path, why))),
        ruling().prop_map(Event::Ruling),
        text().prop_map(|path| Event::Removed(path.into())),
        (text(), text()).prop_map(|(path, backup)| Event::BackedUp(BackedUp::new(path, backup))),
        (number(), any::<bool>(), number(), number()).prop_map(
            |(number, done, literal_bytes, signature_bytes)| {
                Event::Ended(
                    Ended::default()
                        .number(number)
                        .done(done)
                        .literal_bytes(literal_bytes)
                        .signature_bytes(signature_bytes),
                )
            }
        ),
    ]
}

fn ruling() -> impl Strategy<Value = Ruling> {
    let place = prop_oneof![
        (0..=u32::try_from(MAX_FILTERS).unwrap()).prop_map(RulePlace::Command),
        (text(), any::<u32>()).prop_map(|(path, line)| RulePlace::File { path: path.into(), line }),
        Just(RulePlace::PartialDir),
    ];
    let why = prop_oneof![
        place.clone().prop_map(Ruled::Hidden),
        place.clone().prop_map(Ruled::Shown),
        place.prop_map(Ruled::Protected),
        select(vec![
            Ruled::OtherFilesystem,
            Ruled::NotRecursive,
            Ruled::Pruned,
            Ruled::NotDeleted,
            Ruled::Spared
        ]),
    ];
    (text(), any::<bool>(), why).prop_map(|(path, is_dir, why)| Ruling::new(path, is_dir, why))
}

fn problem() -> impl Strategy<Value = Problem> {
    let operation = select(vec![
        Operation::ReadDirectory,
        Operation::Stat,
        Operation::ReadFile,
        Operation::ReadLink,
        Operation::ReadBasis,
        Operation::CreateDirectory,
        Operation::WriteFile,
        Operation::SetAttributes,
        Operation::Commit,
        Operation::CreateLink,
        Operation::CreateSpecial,
        Operation::Delete,
        Operation::ReadDestination,
        Operation::ReadAttributes,
        Operation::HardLink,
        Operation::RemoveSource,
        Operation::FollowLink,
        Operation::ReadRules,
    ]);
    (operation, text(), cause()).prop_map(|(operation, path, cause)| Problem::new(operation, path, cause))
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        any::<i32>().prop_map(Cause::Os),
        select(vec![
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
            Cause::FakeSuperDamaged,
            Cause::TooManyRules,
            Cause::LeadsOut,
            Cause::EmptySource,
        ]),
        any::<u32>().prop_map(Cause::BadRule),
        any::<(u64, u64)>().prop_map(|(device, file)| Cause::DeviceTooShort { device, file }),
        any::<(bool, bool, i32)>().prop_map(|(owner, extended, number)| Cause::Lacking {
            owner,
            extended,
            number
        }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    vec(number(), 30).prop_map(|n| {
        let counts = |at: usize| {
            TypeCounts::default()
                .files(n[at])
                .directories(n[at + 1])
                .symlinks(n[at + 2])
                .devices(n[at + 3])
                .specials(n[at + 4])
        };
        Report::default()
            .listed(counts(0))
            .created(counts(5))
            .deleted(counts(10))
            .retagged(n[15])
            .files_transferred(n[16])
            .total_bytes(n[17])
            .transferred_bytes(n[18])
            .literal_bytes(n[19])
            .matched_bytes(n[20])
            .signature_bytes(n[21])
            .syncs(n[22])
            .vanished(n[23])
            .failed(n[24])
            .attributes_withheld(n[25])
            .links_copied(n[28])
            .rounded_times(n[29])
            .deletions_withheld(n[26])
            .deletions_over_limit(n[27])
    })
}

fn entry_id() -> impl Strategy<Value = EntryId> {
    number().prop_map(EntryId)
}

/// Generates numbers of every length.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift)
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..50)
}

fn span_name() -> impl Strategy<Value = Name> {
    "[a-z]{1,9}".prop_map(|name| Name::new(name.as_bytes()).unwrap())
}

fn of_spans() -> impl Strategy<Value = ControlMessage> {
    use ControlMessage as M;
    prop_oneof![
        (0..=MAX_SPAN_ITEMS, text(), option::of(span_name()), any::<[u8; 16]>())
            .prop_map(|(items, directory, name, digest)| M::Span(Span { items, directory, name, digest })),
        prop_oneof![
            select(vec![SpanAnswer::Equal, SpanAnswer::Nothing]),
            vec(any::<[u8; 16]>(), 0..20).prop_map(SpanAnswer::Pieces),
        ]
        .prop_map(M::SpanAnswer),
        (0..=1024u32, 1..=1024u32).prop_map(|(first, count)| M::Same(Same { first, count })),
    ]
}
