//! Holds that any options are an error before anything starts, or a run, in every direction.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{fs, os::unix::net::UnixStream, path::Path, thread};

use dsync_engine::{
    AlternateUse, Alternates, Append, Backup, CancelToken, Compression, DeleteLimit, DeleteTiming,
    Destination, EventLevel, FilterRule, Job, KeepPartial, ModeRule, Server, Silent, Source, Stream,
    SyncError, SyncOptions, WritePolicy,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// Paths and names, some of them invalid in some option.
fn word() -> impl Strategy<Value = Vec<u8>> {
    select(vec!["", ".", "..", "a", "old", "a/b", "~", "../old", "a\0b", "/no/such/directory"])
        .prop_map(|word| word.as_bytes().to_vec())
}

fn writing() -> impl Strategy<Value = WritePolicy> {
    let backup = (word(), option::of(word())).prop_map(|(suffix, dir)| Backup::new(suffix).dir(dir));
    let way = select(vec![AlternateUse::Compare, AlternateUse::Copy, AlternateUse::Link]);
    let alternates = (way, vec(word(), 0..3)).prop_map(|(way, dirs)| Alternates::new(way, dirs));
    let append =
        select(vec![Append::No, Append::No, Append::No, Append::No, Append::Believing, Append::Verifying]);
    let rare = |value| prop::bool::weighted(0.2).prop_map(move |on| on && value);
    let switches = (rare(true), rare(true), any::<bool>(), any::<bool>(), append);
    let places = [0; 2].map(|_| option::weighted(0.2, word()));
    let kept = (option::weighted(0.3, backup), option::weighted(0.3, alternates));
    (switches, places, kept).prop_map(|(switches, [temp_dir, partial_dir], (backup, alternates))| {
        let (inplace, delay_updates, preallocate, sparse, append) = switches;
        WritePolicy::default()
            .inplace(inplace)
            .delay_updates(delay_updates)
            .preallocate(preallocate)
            .sparse(sparse)
            .append(append)
            .temp_dir(temp_dir)
            .partial_dir(partial_dir)
            .backup(backup)
            .alternates(alternates)
    })
}

/// Makes options with the chosen switches on, whichever switches there are.
fn switches(on: u64) -> SyncOptions {
    let mut options = serde_json::to_value(SyncOptions::default()).unwrap();
    let switches = options.as_object_mut().unwrap().values_mut().filter(|value| value.is_boolean());
    for (bit, switch) in switches.enumerate() {
        *switch = (on >> (bit % 64) & 1 == 1).into();
    }
    serde_json::from_value(options).unwrap()
}

/// Leaves out the switches that most others contradict.
fn sensibly(options: SyncOptions) -> SyncOptions {
    options
        .remove_source_files(false)
        .remove_sent_only(false)
        .event_removals(false)
        .event_done(false)
        .event_contents(false)
        .no_super(false)
}

fn options() -> impl Strategy<Value = SyncOptions> {
    let limit =
        prop_oneof![any::<u8>().prop_map(DeleteLimit::Percent), (0..3_u64).prop_map(DeleteLimit::Entries),];
    let timing = select(vec![
        DeleteTiming::After,
        DeleteTiming::During,
        DeleteTiming::Before,
        DeleteTiming::AfterArrival,
    ]);
    let compression =
        prop_oneof![Just(Compression::Auto), Just(Compression::Lz4), (0..25_u8).prop_map(Compression::Zstd)];
    let partial = select(vec![KeepPartial::OnLostConnection, KeepPartial::Always, KeepPartial::Never]);
    let rules = (
        vec((any::<bool>(), word(), select(vec!["", "!", "/", "s", "r", "p", "x"])), 0..3),
        vec((0..0o10100_u16, 0..0o10100_u16), 0..2),
    );
    let choices = (option::weighted(0.3, limit), timing, compression, partial);
    let sizes = (0..200_u64, option::of(0..200_u64));
    // Each switch is on in every fourth case: else no case would get past the first mistake.
    let on = (any::<u64>(), any::<u64>()).prop_map(|(one, other)| one & other);
    let on = (on, prop::bool::weighted(0.75)).prop_map(|(on, sensible)| {
        let options = switches(on);
        if sensible { sensibly(options) } else { options }
    });
    (on, choices, sizes, rules, writing()).prop_map(|(on, choices, (min_size, max_size), rules, writing)| {
        let (max_delete, timing, compression, partial) = choices;
        let filters = rules.0.into_iter().map(|(include, pattern, modifiers)| {
            FilterRule::default().include(include).pattern(pattern).modifiers(modifiers.to_owned())
        });
        on.max_delete(max_delete)
            .delete_timing(timing)
            .compression(compression)
            .keep_partial(partial)
            .min_size(min_size)
            .max_size(max_size)
            .filters(filters.collect())
            .mode_rules(rules.1.into_iter().map(|(keep, set)| ModeRule::new(keep, set)).collect())
            .events(EventLevel::All)
            .writing(writing)
    })
}

fn plant(scratch: &Path) {
    for dir in ["src/sub", "dst/sub", "dst/old", "old"] {
        fs::create_dir_all(scratch.join(dir)).unwrap();
    }
    for (file, bytes) in [("src/a", 100), ("src/sub/b", 5000), ("dst/sub/b", 4000), ("dst/old/c", 10)] {
        fs::write(scratch.join(file), vec![7; bytes]).unwrap();
    }
    std::os::unix::fs::symlink("sub", scratch.join("src/link")).unwrap();
}

/// Runs a job over a connection within the process.
fn run(job: Job) -> Result<(), SyncError> {
    let connect = |_: &CancelToken| {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = Stream::from_socket(theirs)?;
        thread::spawn(move || Server::new(theirs).serve(&Silent, &CancelToken::new()));
        Stream::from_socket(ours)
    };
    job.run_over(&connect, &Silent, &CancelToken::new()).map(drop)
}

/// The end of a run.
#[derive(Debug)]
enum Verdict {
    Ran,
    /// This option was refused.
    Refused(&'static str),
    /// A directory or a pattern of an option cannot be used.
    Unusable,
}

impl Verdict {
    fn refused(&self) -> Option<&'static str> {
        match self {
            Self::Refused(option) => Some(option),
            Self::Ran | Self::Unusable => None,
        }
    }
}

/// Returns the verdict; without a run the trees are as they were.
fn verdict(scratch: &Path, outcome: Result<(), SyncError>) -> Verdict {
    let Err(error) = outcome else { return Verdict::Ran };
    assert!(!error.is_retryable(), "the next try ends no better: {error:?}");
    assert_eq!(fs::read(scratch.join("dst/sub/b")).unwrap(), vec![7; 4000], "{error:?}");
    assert!(!scratch.join("dst/a").exists() && scratch.join("dst/old/c").exists(), "{error:?}");
    match error {
        SyncError::InvalidOption { option, why } => {
            assert!(!why.is_empty());
            Verdict::Refused(option)
        }
        _ => Verdict::Unusable,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_options_are_refused_before_anything_starts_or_run(options in options()) {
        let mut verdicts = Vec::new();
        for direction in ["local", "push", "pull"] {
            let scratch = tempfile::tempdir().unwrap();
            plant(scratch.path());
            let (from, to) = (scratch.path().join("src").join(""), scratch.path().join("dst"));
            let here = Source::Local { paths: vec![from.clone()] };
            let there = Source::Peer { paths: vec![from.into()] };
            let outcome = match direction {
                "local" => {
                    let job = Job::new(here, Destination::Local { path: to });
                    job.options(options.clone()).run(&Silent, &CancelToken::new()).map(drop)
                }
                "push" => run(Job::new(here, Destination::Peer { path: to.into() }).options(options.clone())),
                _ => run(Job::new(there, Destination::Local { path: to }).options(options.clone())),
            };
            verdicts.push(verdict(scratch.path(), outcome));
        }
        // A mistake is one whatever the ends are. A local run does without some directories.
        let refused: Vec<_> = verdicts.iter().map(Verdict::refused).collect();
        prop_assert!(refused.iter().all(|option| *option == refused[0]), "{verdicts:?}");
    }
}
