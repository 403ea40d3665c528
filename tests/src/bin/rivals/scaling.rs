//! The share of each workload that one thread does alone (`cargo xtask scaling`).
//!
//! More processors help only with what several threads share (Amdahl, 1967). While a run goes on, the
//! kernel's account of each of its threads is read: processor time, and bytes read and written. A
//! thread that does nearly all that the threads of its name do in a process works alone, whatever the
//! machine; the busiest of these bounds the run. Processor time hardly depends on what else the machine
//! does. Bytes of sockets count only where they are read and written, not where they are sent as messages.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use dsync_tests::{Run, program, scratch::slash};

use crate::{input::Input, meter::descendants};

/// The inputs of the table; the large ones have [`Options::mib`] MiB.
const INPUTS: &[Input] = &[Input::One, Input::Many, Input::Log, Input::Few, Input::Unchanged, Input::Delta];
/// The ways that join the two ends: within one process, or a carrier between two.
const WAYS: &[&str] = &["local", "tls", "quic", "ssh"];

struct Options {
    dir: PathBuf,
    mib: u64,
    inputs: Option<Vec<String>>,
    /// Whether each row is followed by all threads of the run.
    threads: bool,
}

/// Measures all workloads and prints the table.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some(options) = parse(args) else {
        eprintln!("usage: cargo xtask scaling [--dir DIR] [--mib N] [--inputs NAMES] [--threads]");
        eprintln!("  inputs: {}", INPUTS.iter().map(|input| input.name()).collect::<Vec<_>>().join(","));
        return ExitCode::FAILURE;
    };
    let scratch =
        tempfile::Builder::new().prefix("dsync-scaling-").tempdir_in(&options.dir).expect("a directory");
    let shell = plant_shell(scratch.path());

    println!("{HEAD}");
    let chosen = |input: &&Input| {
        options.inputs.as_ref().is_none_or(|names| names.iter().any(|name| name == input.name()))
    };
    for input in INPUTS.iter().filter(chosen) {
        let dir = scratch.path().join(input.name());
        fs::create_dir(&dir).expect("the input's directory");
        input.plant(&dir, options.mib);
        for way in WAYS {
            input.reset(&dir);
            match measure(&dir, way, &shell) {
                Ok(threads) => {
                    println!("{}", row(input.name(), way, &threads));
                    if options.threads {
                        threads.by_name().iter().for_each(|line| println!("{line}"));
                    }
                }
                Err(why) => println!("| {} | {way} | {why} |", input.name()),
            }
        }
        fs::remove_dir_all(&dir).expect("the input's directory");
    }
    ExitCode::SUCCESS
}

fn parse(args: &[String]) -> Option<Options> {
    let mut options = Options { dir: env::temp_dir(), mib: 256, inputs: None, threads: false };
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--dir" => options.dir = args.next()?.into(),
            "--mib" => options.mib = args.next()?.parse().ok().filter(|mib| *mib > 0)?,
            "--inputs" => options.inputs = Some(args.next()?.split(',').map(str::to_owned).collect()),
            "--threads" => options.threads = true,
            _ => return None,
        }
    }
    Some(options)
}

/// Makes a remote shell that stays on this host, so that no login is in the account.
fn plant_shell(dir: &Path) -> PathBuf {
    let path = dir.join("shell");
    fs::write(&path, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").expect("a remote shell");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

/// Copies `src` to `dst` and returns the account of each thread.
fn measure(dir: &Path, way: &str, shell: &Path) -> Result<Threads, String> {
    let destination = dir.join("dst").display().to_string();
    let run = Run::dsync().arg("-a");
    let run = if way == "local" {
        run.arg(slash(&dir.join("src"))).arg(destination)
    } else {
        let [shell, program] = [shell, program()].map(|path| path.display().to_string());
        run.args([format!("--transport={way}"), format!("--rsh={shell}"), format!("--dsync-path={program}")])
            .arg(slash(&dir.join("src")))
            .arg(format!("127.0.0.1:{destination}"))
    };

    let mut running = run.limit(Duration::from_secs(600)).start();
    let mut threads = Threads::default();
    let (mut family, mut looks) = (Vec::new(), 0_u32);
    while running.is_running() {
        // Looking through all processes takes a millisecond or two of a processor.
        if looks.is_multiple_of(16) {
            let all = descendants(running.id());
            family =
                all.into_iter().filter(|(_, name)| name.starts_with("dsync")).map(|(pid, _)| pid).collect();
        }
        looks = looks.wrapping_add(1);
        family.iter().for_each(|pid| threads.look(*pid));
        thread::sleep(PAUSE);
    }
    let outcome = running.wait();
    let last = || outcome.stderr_text().lines().last().unwrap_or_default().to_owned();
    if outcome.code() == Some(0) { Ok(threads) } else { Err(last()) }
}

/// The last account of each thread, by the numbers of its process and its own.
#[derive(Default)]
struct Threads(BTreeMap<(u32, u32), Thread>);

#[derive(Default)]
struct Thread {
    name: String,
    /// Processor time.
    seconds: f64,
    /// Bytes that it has read and written, of files and sockets.
    bytes: u64,
}

impl Threads {
    /// Reads the accounts of a process's threads.
    fn look(&mut self, pid: u32) {
        for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
            let thread = self.0.entry((pid, id)).or_default();
            if let Some(name) = read("comm") {
                name.trim_end().clone_into(&mut thread.name);
            }
            let first = |text: String| text.split(' ').next()?.parse().ok();
            if let Some(nanoseconds) = read("schedstat").and_then(first) {
                thread.seconds = Duration::from_nanos(nanoseconds).as_secs_f64();
            }
            if let Some(account) = read("io") {
                thread.bytes = ["rchar: ", "wchar: "].iter().map(|name| field(&account, name)).sum();
            }
        }
    }

    /// Returns a line for all threads of a name in a process, as each name is a phase of the run.
    fn by_name(&self) -> Vec<String> {
        let mut groups: BTreeMap<(u32, &str), Vec<&Thread>> = BTreeMap::new();
        for ((process, _), thread) in &self.0 {
            groups.entry((*process, stem(&thread.name))).or_default().push(thread);
        }
        let line = |((process, name), threads): (&(u32, &str), &Vec<&Thread>)| {
            let seconds = threads.iter().map(|thread| thread.seconds).sum::<f64>();
            let mib = threads.iter().map(|thread| thread.bytes >> 20).sum::<u64>();
            format!("    {process:>8} {name:<16} x{:<3} {seconds:6.2} s {mib:>6} MiB", threads.len())
        };
        groups.iter().map(line).collect()
    }

    /// Returns the threads that share their work with no other.
    fn alone(&self) -> impl Iterator<Item = &Thread> {
        let of_name = |process: u32, name: &str| {
            let like =
                self.0.iter().filter(move |((other, _), one)| *other == process && stem(&one.name) == name);
            like.map(|(_, thread)| thread.seconds).sum::<f64>()
        };
        let is_alone = move |process: u32, thread: &Thread| {
            thread.seconds >= NEARLY_ALL * of_name(process, stem(&thread.name))
        };
        self.0.iter().filter(move |((process, _), one)| is_alone(*process, one)).map(|(_, thread)| thread)
    }
}

/// Returns a thread's name without its number in a pool.
fn stem(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit())
}

fn field(account: &str, name: &str) -> u64 {
    account.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or(0)
}

/// Returns a row of the table.
fn row(input: &str, way: &str, threads: &Threads) -> String {
    let all = || threads.0.values();
    let seconds: f64 = all().map(|thread| thread.seconds).sum();
    let bytes: u64 = all().map(|thread| thread.bytes).sum();
    let nothing = Thread::default();
    let busiest = threads.alone().max_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or(&nothing);
    let fullest = all().max_by_key(|thread| thread.bytes).unwrap_or(&nothing);
    let share = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };

    format!(
        "| {input} | {way} | {} | {seconds:.2} | {} {:.2} | {:.0} % | {:.1} | {} {:.0} % |",
        threads.0.len(),
        busiest.name,
        busiest.seconds,
        share(busiest.seconds, seconds),
        seconds / busiest.seconds.max(f64::EPSILON),
        fullest.name,
        share(fullest.bytes as f64, bytes as f64),
    )
}

const HEAD: &str = "| input | way | threads | CPU s | busiest thread that works alone | its share | at most x faster than one core | most bytes in one thread |\n\
                    |---|---|--:|--:|---|--:|--:|---|";
/// The share of what all threads of a name do that makes one of them work alone.
const NEARLY_ALL: f64 = 0.75;
/// Between two looks: a thread's last account may lack as much.
const PAUSE: Duration = Duration::from_millis(4);
