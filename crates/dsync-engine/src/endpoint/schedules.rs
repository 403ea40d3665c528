//! Whole runs under many schedules: whatever the order of the threads' steps, the result is the
//! source.
//!
//! Each run has a seed, which chooses direction, options and delays; a failure names it.
//! `DSYNC_SCHEDULES=N` tries more of them, `DSYNC_SCHEDULE=SEED` one alone.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    time::Duration,
};

use dsync_fs::SpoolHome;
use dsync_wire::{
    link::CloseReason,
    options::{AlternateUse, Alternates, Backup, DeleteTiming},
};

use super::*;
use crate::{
    Silent,
    own_entries::OwnEntries,
    resources::Allowance,
    schedule,
    session::{NO_TIMEOUT, SourceMail},
    source::Tree,
};

/// The end that controls, and the data that crosses a link.
#[derive(Debug, Clone, Copy)]
enum Direction {
    Local,
    Push,
    Pull,
}

/// The trees that a run finds beside the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// Old files of each kind, at the destination and in the alternate directory.
    Mixed,
    /// An empty destination; the alternate directory has everything.
    Elsewhere,
    /// A destination that lacks nothing.
    Same,
}

/// A name, and options that make a run do more than copy.
type Setting = (&'static str, fn(&mut SyncOptions));

const DIRECTIONS: [Direction; 3] = [Direction::Local, Direction::Push, Direction::Pull];

const BEGINNINGS: [Beginning; 4] =
    [Beginning::Mixed, Beginning::Elsewhere, Beginning::Mixed, Beginning::Same];

const SETTINGS: &[Setting] = &[
    ("plain", |_| {}),
    ("copy-dest", |options| alternates(options, AlternateUse::Copy)),
    ("link-dest", |options| alternates(options, AlternateUse::Link)),
    ("delay-updates", |options| options.writing.delay_updates = true),
    ("delete", |options| delete(options, DeleteTiming::After)),
    ("delete-during", |options| delete(options, DeleteTiming::During)),
    ("delete-before", |options| delete(options, DeleteTiming::Before)),
    ("delay-updates and delete", |options| {
        options.writing.delay_updates = true;
        delete(options, DeleteTiming::After);
    }),
    ("copy-dest and delay-updates", |options| {
        options.writing.delay_updates = true;
        alternates(options, AlternateUse::Copy);
    }),
    ("remove-source-files", |options| options.remove_source_files = true),
    ("backup", |options| {
        options.writing.backup = Some(Backup::new(Vec::new()).dir(Some(b"../kept".to_vec())));
    }),
    ("inplace", |options| options.writing.inplace = true),
    ("checksum", |options| options.checksum = true),
];

fn alternates(options: &mut SyncOptions, way: AlternateUse) {
    options.writing.alternates = Some(Alternates::new(way, vec![b"../other".to_vec()]));
}

fn delete(options: &mut SyncOptions, timing: DeleteTiming) {
    options.delete = true;
    options.delete_timing = timing;
}

/// A run and the trees that it finds.
struct Case {
    seed: u64,
    direction: Direction,
    beginning: Beginning,
    setting: &'static Setting,
    scratch: tempfile::TempDir,
}

impl Case {
    /// Returns what a seed chooses besides delays.
    fn choices(seed: u64) -> (Direction, &'static Setting, Beginning) {
        let mut rest = usize::try_from(seed).unwrap();
        let mut pick = |choices: usize| {
            let choice = rest % choices;
            rest /= choices;
            choice
        };
        let direction = DIRECTIONS[pick(DIRECTIONS.len())];
        let setting = &SETTINGS[pick(SETTINGS.len())];
        (direction, setting, BEGINNINGS[pick(BEGINNINGS.len())])
    }

    fn new(seed: u64) -> Self {
        let (direction, setting, beginning) = Self::choices(seed);
        let case = Self { seed, direction, beginning, setting, scratch: tempfile::tempdir().unwrap() };
        case.plant();
        case
    }

    fn at(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path)
    }

    /// Files of every way through the engine: new, changed, equal, larger than a batch takes, with
    /// several names.
    fn plant(&self) {
        let text = |number: usize, len: usize| vec![u8::try_from(number % 251).unwrap(); len];
        let ages = match self.beginning {
            Beginning::Mixed => [("src", 3), ("dst", 1), ("other", 2)],
            Beginning::Elsewhere => [("src", 3), ("dst", 0), ("other", 3)],
            Beginning::Same => [("src", 3), ("dst", 3), ("other", 2)],
        };
        for (tree, age) in ages {
            fs::create_dir_all(self.at(tree).join("sub/deep")).unwrap();
            for number in 0..12 {
                let (dir, len) = (["", "sub", "sub/deep"][number % 3], 700 * number);
                let path = self.at(tree).join(dir).join(format!("f{number}"));
                match (tree, age, number % 4) {
                    ("dst", 0, _) | ("dst", 1, 0 | 3) => {}
                    ("dst", 1, 1) | ("other", 2, 3) => plant_file(&path, &text(number + age, len), age),
                    _ => plant_file(&path, &text(number, len), 3),
                }
            }
            let mut long = text(7, 300_000);
            long[age] = 0;
            if age > 0 {
                plant_file(&self.at(tree).join("sub/long"), &long, age);
            }
            fs::set_permissions(self.at(tree).join("sub"), fs::Permissions::from_mode(0o750)).unwrap();
        }
        if self.beginning != Beginning::Elsewhere {
            plant_file(&self.at("src/first"), b"of two names", 3);
            fs::hard_link(self.at("src/first"), self.at("src/sub/second")).unwrap();
        }
        plant_file(&self.at("dst/extraneous"), b"old", 1);
        plant_file(&self.at("dst/sub/deep/extraneous"), b"old", 1);
    }

    fn options(&self) -> SyncOptions {
        let mut options = SyncOptions::archive().hard_links(true);
        (self.setting.1)(&mut options);
        options
    }

    fn run(&self) -> Result<Report, SyncError> {
        let (source, target) = (self.at("src/"), self.at("dst"));
        let cancel = CancelToken::new();
        let options = self.options();
        let asked = AskedFor::of(std::slice::from_ref(&source), None, &options)?;
        match self.direction {
            Direction::Local => {
                let (connect, resources) = (ConnectOptions::default(), Resources::default());
                let remote = Remote {
                    connect: &connect,
                    resources: &resources,
                    cage: None,
                    throttle: None,
                    files_from: None,
                    spelling: None,
                    chooser: None,
                    watch: None,
                    manifest: None,
                    recording: None,
                    own: &OwnEntries::default(),
                };
                local::run(super::Files::Paths(&[source]), &target, options, remote, &Silent, &cancel)
                    .map(|outcome| outcome.report)
            }
            Direction::Push => over_a_link(|link| {
                let path = target.as_os_str().as_bytes().to_vec();
                let role = PeerRole::Destination { path, asked: asked.clone().into_sent() };
                let tree = open_tree(
                    (std::slice::from_ref(&source), None),
                    (&options, rules::compile(&options)?),
                    (ListedFiles::default(), None),
                    SpoolHome::default(),
                    Place::default(),
                )?;
                let (session, mail) = Session::start_source(link, self.terms(role))?;
                with_attempt(&cancel, session, mail, tree)
            }),
            Direction::Pull => over_a_link(|link| {
                let role = PeerRole::Source { paths: vec![source.as_os_str().as_bytes().to_vec()] };
                let (session, mail) = Session::start_destination(link, self.terms(role), None)?;
                let filters = Filters::of(&options, &target, asked.contents(), (None, None))?;
                let terms = destination::Terms {
                    operand: target.clone(),
                    filters,
                    asked: asked.clone(),
                    observer: Some(&Silent),
                    listener: None,
                    files: None,
                    recording: None,
                    own: OwnEntries::default(),
                    spools: SpoolHome::default(),
                    start: Start::default(),
                };
                destination::run(session, mail, terms, &cancel)
            }),
        }
    }

    fn terms(&self, role: PeerRole) -> session::Terms {
        session::Terms {
            role,
            options: self.options(),
            timeout: NO_TIMEOUT,
            again: None,
            allowance: patient(),
            list: ListPlace::None,
            is_recorded: false,
            cancel: CancelToken::new(),
        }
    }

    /// Runs under the schedule, and checks that the destination is the source.
    fn check(&self) {
        let wanted = survey(&self.at("src"));
        let result = schedule::run_with(self.seed, || self.run());
        let (direction, beginning) = (self.direction, self.beginning);
        let named = format!("DSYNC_SCHEDULE={}: {direction:?}, {}, {beginning:?}", self.seed, self.setting.0);
        let report = result.unwrap_or_else(|error| panic!("{named}: {error}"));
        assert_eq!((report.failed, report.vanished), (0, 0), "{named}");
        let mut here = survey(&self.at("dst"));
        if !self.options().delete {
            here.retain(|path, _| !path.ends_with("extraneous"));
        }
        let missing: Vec<_> = wanted.iter().filter(|&(path, fact)| here.get(path) != Some(fact)).collect();
        let unwanted: Vec<_> = here.keys().filter(|path| !wanted.contains_key(*path)).collect();
        assert!(missing.is_empty() && unwanted.is_empty(), "{named}: {missing:?} {unwanted:?}");
        if self.options().remove_source_files {
            let left = survey(&self.at("src"));
            assert!(left.values().all(|(_, _, content)| content.is_none()), "{named}: {left:?}");
        }
    }
}

/// Returns the allowance of a session that may take as long as it likes.
fn patient() -> Allowance {
    Allowance { stall: NO_TIMEOUT, ..Resources::default().allowance(Arc::default()) }
}

/// Pushes as a controller that is not interested in what happens.
fn with_attempt(
    cancel: &CancelToken,
    session: Session,
    mail: SourceMail,
    tree: Tree,
) -> Result<Report, SyncError> {
    let mut parts = Some((session, mail, tree));
    let run = |attempt: &Attempt<'_>| {
        let (session, mail, tree) = parts.take().unwrap();
        source::run(session, mail, tree, Some(attempt), cancel)
    };
    reconnect::run(0, &Silent, cancel, &SystemClock, run).map(|(report, _)| report)
}

/// Runs a controller against a server in this process; nothing is shared but the link.
fn over_a_link(
    controller: impl FnOnce(Arc<dyn Link>) -> Result<Report, SyncError>,
) -> Result<Report, SyncError> {
    let (here, there) = dsync_transport::memory::pair();
    let (here, there): (Arc<dyn Link>, Arc<dyn Link>) = (Arc::new(here), Arc::new(there));
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let means = Means::new(patient(), SpoolHome::default());
        let peer = scope.spawn(|| serve_link(there, NO_TIMEOUT, &cancel, ListedFiles::default(), means));
        let result = controller(Arc::clone(&here));
        here.close(CloseReason::Done);
        let served = peer.join().unwrap();
        // The one that failed first knows why.
        result.map_err(|error| served.err().unwrap_or(error))
    })
}

fn plant_file(path: &Path, content: &[u8], age: usize) {
    fs::write(path, content).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age as u64);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Path, and of each entry its mode, modification time (not of directories) and content.
type Survey = BTreeMap<PathBuf, (u32, Option<std::time::SystemTime>, Option<Vec<u8>>)>;

fn survey(root: &Path) -> Survey {
    let mut found = Survey::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let now = fs::symlink_metadata(root.join(&path)).unwrap();
            let mode = now.permissions().mode();
            if now.is_dir() {
                found.insert(path.clone(), (mode, None, None));
                dirs.push(path);
            } else {
                let content = fs::read(root.join(&path)).unwrap();
                found.insert(path, (mode, now.modified().ok(), Some(content)));
            }
        }
    }
    found
}

/// Seeds of the cases that begin and go like this.
fn seeds(beginning: Beginning, setting: &'static str) -> impl Iterator<Item = u64> {
    (1..).filter(move |&seed| {
        let (_, theirs, found) = Case::choices(seed);
        found == beginning && theirs.0 == setting
    })
}

#[test]
fn files_that_only_an_alternate_directory_has_are_all_there_in_the_end() {
    for setting in ["copy-dest", "link-dest", "copy-dest and delay-updates"] {
        seeds(Beginning::Elsewhere, setting).take(30).for_each(|seed| Case::new(seed).check());
    }
}

#[test]
fn whatever_the_order_of_the_threads_steps_the_result_is_the_source() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().unwrap());
    if let Some(seed) = number("DSYNC_SCHEDULE") {
        return Case::new(seed).check();
    }
    let first = number("DSYNC_FIRST_SCHEDULE").unwrap_or(1);
    for seed in first..first + number("DSYNC_SCHEDULES").unwrap_or(SCHEDULES) {
        Case::new(seed).check();
    }
}

/// Each direction with each setting a few times; `cargo xtask crash --long` tries ten thousand.
const SCHEDULES: u64 = 468;
