//! A differential tester: random cases, each run with rsync and with dsync on the same trees.
//!
//! A case is made from a seed alone (`case`), planted and run twice (`world`) and judged (`judge`):
//! the trees, the exit code, the dry run, leftovers, a second run. Intended differences are in one
//! table (`known`), and laws hold without exception (`laws`). A failing case is made smaller (`reduce`) and written as a shell script
//! (`script`).

mod areas;
mod batch;
mod case;
pub mod dice;
mod disturbed;
mod filesystems;
mod judge;
mod known;
mod laws;
mod lists;
mod live;
mod model;
mod options;
mod reduce;
mod rsync;
mod script;
mod states;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use case::{Carrier, Case};
use filesystems::Filesystem;
use judge::{Class, Finding, Verdict};
use world::World;

/// Name of the variable that is set when the process has mounts of its own.
pub const INSIDE: &str = "DSYNC_HUNT_INSIDE";

/// Number of findings after which a hunt ends: they are work enough.
const ENOUGH: usize = 25;

/// Number of cases of one kind that are made smaller; the others are only counted.
const OF_A_KIND: usize = 4;

/// Time after the hunt's own during which cases are still made smaller, so that a hunt ends about
/// when it was told to, whatever it finds.
const REST: Duration = Duration::from_secs(15);

/// Number of findings that the last lines name, so that they fit in what is kept of a log.
const LAST_LINES: usize = 40;

/// Number of threads that run cases.
const WORKERS: usize = 2;

/// The plan of a hunt.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of all cases.
    pub seed: u64,
    /// Time during which new cases begin; at least one of each carrier is run.
    pub time: Duration,
    /// Runs as many cases instead, whatever time that takes: the same ones for the same seed.
    pub cases: Option<u64>,
    /// Names of filesystems.
    pub on: Vec<String>,
    /// The only case to run, with its whole output.
    pub case: Option<u64>,
    /// Names of options that no case has, to look past known differences.
    pub without: Vec<String>,
    /// Directory for scripts of failing cases.
    pub scripts: PathBuf,
}

impl Plan {
    /// Returns when a reduction that begins now ends at the latest, in a hunt until `until`.
    fn end_of_reduction(&self, until: Instant) -> Instant {
        let limit = Instant::now() + reduce::LIMIT;
        if self.cases.is_some() || self.case.is_some() { limit } else { limit.min(until + REST) }
    }
}

/// The counts of a hunt so far.
#[derive(Debug, Default)]
struct Tally {
    /// Number of cases of each filesystem in which the programs were compared.
    compared: BTreeMap<String, usize>,
    /// Number of cases that were passed over, by reason.
    passed_over: BTreeMap<&'static str, usize>,
    /// Number of filesystems that stayed full and were made anew.
    made_anew: usize,
    carriers: BTreeMap<Carrier, usize>,
    refused: BTreeMap<String, usize>,
    excused: BTreeMap<&'static str, usize>,
    pairs: BTreeSet<(String, String)>,
    /// Number of findings of each kind.
    kinds: BTreeMap<(Class, String), usize>,
    /// Findings made smaller: class, kind, remaining options.
    found: BTreeMap<(Class, String, String), usize>,
    /// A line for each finding: its case and its command.
    last: Vec<String>,
}

/// Hunts; returns whether there were no findings.
///
/// # Panics
/// If the working directory cannot be made.
pub fn hunt(plan: &Plan) -> bool {
    // The programs' results are compared, not those of the caller's mask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o22));
    let base = filesystems::place();
    if let filesystems::Place::Temporary(base) = &base {
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).expect("a place for every user");
    }
    let filesystems = filesystems::prepare(&base, &plan.on);
    let (major, minor, patch) = rsync::version();
    let filesystems_named = names(&filesystems);
    println!("hunt: seed {}, on {filesystems_named}, rsync {major}.{minor}.{patch}", plan.seed);
    if let Some(seed) = plan.case {
        return one(plan, seed, &filesystems[0], &filesystems);
    }
    let tally = Mutex::new(Tally::default());
    let next = AtomicU64::new(0);
    let ground = RwLock::new(());
    let until = Instant::now() + plan.time;
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (tally, next, filesystems, ground) = (&tally, &next, &filesystems, &ground);
            scope.spawn(move || work(plan, worker, until, next, tally, filesystems, ground));
        }
    });
    let tally = tally.into_inner().expect("no worker panics");
    report(&tally);
    tally.found.is_empty()
}

fn names(filesystems: &[Filesystem]) -> String {
    filesystems.iter().map(|filesystem| filesystem.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Makes the world of a worker on one filesystem, with another one beside it.
fn world(worker: usize, at: usize, filesystems: &[Filesystem]) -> World {
    let Filesystem { root, beside, .. } = &filesystems[at];
    World::new(root.join(format!("{worker}")), beside.join(format!("{worker}-other")))
}

fn work(
    plan: &Plan,
    worker: usize,
    until: Instant,
    next: &AtomicU64,
    tally: &Mutex<Tally>,
    filesystems: &[Filesystem],
    ground: &RwLock<()>,
) {
    let worlds: Vec<World> = (0..filesystems.len()).map(|at| world(worker, at, filesystems)).collect();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(number).unwrap_or(0) % filesystems.len();
        let mut case = Case::of(dice::mixed(plan.seed ^ dice::mixed(number)), &plan.without);
        // The step that is the last one depends on the threads' turns: the same cases are to end alike.
        case.is_disturbed &= plan.cases.is_none();
        {
            let mut tally = tally.lock().expect("no worker panics");
            let has_all = tally.carriers.len() == Carrier::EACH.len();
            let ends = match plan.cases {
                Some(cases) => number >= cases,
                None => Instant::now() > until && has_all,
            };
            if tally.found.len() >= ENOUGH || ends {
                return;
            }
            tally.count(&case);
        }
        make_room(&worlds[at], ground, filesystems, tally);
        let _in_use = ground.read().expect("no worker panics");
        let verdict = judge::judge(&case, &worlds[at]);
        tally.lock().expect("no worker panics").note(&verdict, &filesystems[at].name);
        if let Some(finding) = verdict.first() {
            let name = &filesystems[at].name;
            let is_rare = tally.lock().expect("no worker panics").is_rare(finding);
            let line = if is_rare {
                pursue(plan, &case, finding, &worlds[at], name, plan.end_of_reduction(until), tally)
            } else {
                in_one_line(case.seed, name, &case, finding)
            };
            tally.lock().expect("no worker panics").last.push(line);
        }
    }
}

/// Makes the filesystems anew if one of this world stays full after what it had is removed, while no
/// worker uses them.
fn make_room(world: &World, ground: &RwLock<()>, filesystems: &[Filesystem], tally: &Mutex<Tally>) {
    if !world.is_full() {
        return;
    }
    let _alone = ground.write().expect("no worker panics");
    if !world.stays_full() {
        return;
    }

    let full = filesystems.iter().filter(|filesystem| filesystem.is_full());
    let made = full.filter(|filesystem| filesystem.make_anew()).count();
    tally.lock().expect("no worker panics").made_anew += made;
    // Their remote shells are there as well.
    for worker in 0..WORKERS {
        (0..filesystems.len()).for_each(|at| drop(self::world(worker, at, filesystems)));
    }
}

impl Tally {
    fn count(&mut self, case: &Case) {
        *self.carriers.entry(case.carrier).or_default() += 1;
        let names: Vec<&str> = case.options.iter().map(|option| options::name(option)).collect();
        for (at, one) in names.iter().enumerate() {
            for two in &names[at + 1..] {
                let (one, two) = if one < two { (one, two) } else { (two, one) };
                self.pairs.insert(((*one).to_owned(), (*two).to_owned()));
            }
        }
    }

    /// Counts a finding; returns whether there are few of its kind.
    fn is_rare(&mut self, finding: &Finding) -> bool {
        let count = self.kinds.entry(finding.key()).or_default();
        *count += 1;
        *count <= OF_A_KIND
    }

    fn note(&mut self, verdict: &Verdict, filesystem: &str) {
        match verdict.passed_over {
            Some(reason) => *self.passed_over.entry(reason).or_default() += 1,
            None => *self.compared.entry(filesystem.to_owned()).or_default() += 1,
        }
        if let Some(reason) = &verdict.refused {
            *self.refused.entry(reason.clone()).or_default() += 1;
        }
        for entry in &verdict.excused {
            *self.excused.entry(*entry).or_default() += 1;
        }
    }
}

/// Makes a failing case smaller and reports it, unless a similar one is already known. Returns its
/// line for the end.
fn pursue(
    plan: &Plan,
    case: &Case,
    finding: &Finding,
    world: &World,
    filesystem: &str,
    until: Instant,
    tally: &Mutex<Tally>,
) -> String {
    let (small, often) = reduce::reduce(case, finding.key(), world, until);
    let verdict = judge::judge(&small, world);
    let last = verdict.findings.iter().find(|other| other.key() == finding.key()).unwrap_or(finding);
    let in_one_line = in_one_line(case.seed, filesystem, &small, last);
    let mut words: Vec<&str> = small.options.iter().map(|option| options::name(option)).collect();
    words.sort_unstable();
    let key = (finding.class, finding.key().1, words.join(" "));
    let count = {
        let mut tally = tally.lock().expect("no worker panics");
        let count = tally.found.entry(key).or_default();
        *count += 1;
        *count
    };
    if count > 1 {
        return in_one_line;
    }
    let text = script::script(&small, filesystem, last, &often);
    let path = plan.scripts.join(format!("{}-{:?}.sh", case.seed, finding.class).to_lowercase());
    fs::create_dir_all(&plan.scripts).expect("the directory of scripts");
    fs::write(&path, &text).expect("a script");
    println!(
        "hunt: FOUND {:?} (case {} on {filesystem}, {}, {often}): {}\n  {} {}\n  {}",
        finding.class,
        case.seed,
        small.carrier.label(),
        last.line,
        small.options.join(" "),
        small.operands.join(" "),
        path.display()
    );
    in_one_line
}

/// Returns a finding and its command in one line; the seed is that of the whole case.
fn in_one_line(seed: u64, filesystem: &str, case: &Case, finding: &Finding) -> String {
    let (options, operands) = (case.options.join(" "), case.operands.join(" "));
    let (class, carrier) = (finding.class, case.carrier.label());
    let says = finding.line.replace('\n', " ");
    format!("{class:?}, --case {seed} --on {filesystem}, {carrier}: {options} {operands}: {says}")
}

/// Runs one case and prints everything that it did.
fn one(plan: &Plan, seed: u64, filesystem: &Filesystem, filesystems: &[Filesystem]) -> bool {
    let world = world(0, 0, filesystems);
    let case = Case::of(seed, &plan.without);
    println!(
        "{}{} {:?} {:?} nobody: {}, live: {}",
        case.carrier.label(),
        if case.is_confined { " confined" } else { "" },
        case.options,
        case.operands,
        case.is_nobody,
        case.is_live
    );
    let verdict = judge::judge(&case, &world);
    println!("{}", verdict.account);
    for finding in &verdict.findings {
        println!("{:?}: {}", finding.class, finding.line);
    }
    if let Some(finding) = verdict.first() {
        let tally = Mutex::new(Tally::default());
        let until = plan.end_of_reduction(Instant::now());
        pursue(plan, &case, finding, &world, &filesystem.name, until, &tally);
    }
    verdict.findings.is_empty()
}

fn report(tally: &Tally) {
    let (compared, passed_over) =
        (tally.compared.values().sum::<usize>(), tally.passed_over.values().sum::<usize>());
    let list = |counts: &BTreeMap<String, usize>| {
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let (on, made_anew) = (list(&tally.compared), tally.made_anew);
    println!("hunt: {compared} cases compared: {on}");
    println!("hunt: {passed_over} cases passed over, {made_anew} filesystems made anew");
    for (reason, count) in &tally.passed_over {
        println!("hunt: passed over {count} times: {reason}");
    }
    let carriers = tally.carriers.iter().map(|(carrier, count)| (carrier.label(), *count)).collect();
    println!("hunt: carriers: {}", list(&carriers));
    let names = options::all().len();
    println!("hunt: {} pairs of {names} options", tally.pairs.len());
    for (reason, count) in &tally.refused {
        println!("hunt: refused {count} times: {reason}");
    }
    for (says, count) in &tally.excused {
        println!("hunt: meant, {count} times: {says}");
    }
    for ((class, what), count) in &tally.kinds {
        println!("hunt: found {count} times: {class:?}, {what}");
    }
    for line in tally.last.iter().take(LAST_LINES) {
        println!("hunt: {line}");
    }
    if let Some(others) = tally.last.len().checked_sub(LAST_LINES).filter(|&others| others > 0) {
        println!("hunt: {others} further findings, told above");
    }
}
