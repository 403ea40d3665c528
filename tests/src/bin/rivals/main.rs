//! The race: dsync beside rsync, scp, tar and others, on the same input, in turns.
//!
//! `cargo xtask rivals [--lab NAME [PATH OPTIONS]] [--dir DIR] [--rounds N] [--mib N] [--inputs
//! a,b] [--tools a,b] [--disk NAME] [--write] [--draw] [--install]`
//!
//! Every tool pushes the same input to the far host of a lab, round after round, so that a change
//! of the machine affects all of them. A row has the median wall time of the rounds, the processor
//! time of each end (ssh and sshd included), the bytes that crossed the path, headers included, and
//! the largest process of each end other than ssh. Results are checked. A tool that is missing or
//! fails has a row that says so. With `--disk` the trees are on a disk whose caches are emptied before each
//! run, and a run includes the sync of that disk.
//!
//! `--figures` (`cargo xtask figures`) measures the requirements instead, and `--scaling` (`cargo xtask
//! scaling`) what each thread does: see `figures.rs` and `scaling.rs`.

mod disk;
mod figures;
mod flows;
mod input;
mod meter;
mod page;
mod plot;
mod race;
mod report;
mod requirements;
mod scaling;
mod tool;

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use disk::Disk;
use dsync_tests::{
    Lab, Run, Scope, differences,
    lab::{Medium, Path, flags},
    program,
    sshd::ALIAS,
};
use input::Input;
use meter::{Measure, Meter, Words};
use report::{Race, Row};
use tool::Tool;

struct Options {
    lab: String,
    path: Path,
    dir: PathBuf,
    disk: Option<&'static disk::Kind>,
    rounds: usize,
    mib: u64,
    inputs: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    write: bool,
    install: bool,
    draw: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((flag, rest)) if flag == "--figures" => return figures::run(rest),
        Some((flag, rest)) if flag == "--scaling" => return scaling::run(rest),
        _ => {}
    }
    let Some(options) = parse(args.into_iter()) else {
        eprintln!(
            "usage: cargo xtask rivals [--lab NAME [PATH OPTIONS]] [--dir DIR] [--rounds N] [--mib N] [--inputs NAMES]\n  \
             [--tools NAMES] [--disk NAME] [--write (to docs/)] [--draw (docs/race.svg, then end)]\n  \
             [--install (what is missing, then end)]"
        );
        eprintln!("  inputs: {}", Input::ALL.map(Input::name).join(","));
        eprintln!("  tools:  {}", tool::ALL.iter().map(|tool| tool.name).collect::<Vec<_>>().join(","));
        eprintln!("  disks:  {}", disk::KINDS.iter().map(disk::Kind::name).collect::<Vec<_>>().join(","));
        eprintln!("  labs:   {}\n{}", Path::NAMES.join(","), flags::HELP);
        return ExitCode::FAILURE;
    };
    if options.install {
        return install();
    }
    if options.draw {
        report::draw();
        return ExitCode::SUCCESS;
    }
    let Some(lab) = Lab::create(&options.path) else {
        eprintln!("rivals: namespaces and TUN devices need root, and /dev/net/tun");
        return ExitCode::FAILURE;
    };
    let setting = setting(&options);
    println!("{setting}");
    let disk = options.disk.map(|kind| Disk::create(kind, &options.dir));
    let dir = disk.as_ref().map_or(options.dir.as_path(), Disk::path);
    let scratch = tempfile::Builder::new().prefix("dsync-rivals-").tempdir_in(dir).expect("a directory");
    let chosen = |name: &str, list: &Option<Vec<String>>| {
        list.as_ref().is_none_or(|list| list.iter().any(|n| n == name))
    };
    let mut races = Vec::new();
    for input in Input::ALL.into_iter().filter(|input| chosen(input.name(), &options.inputs)) {
        let dir = scratch.path().join(input.name());
        std::fs::create_dir(&dir).expect("the input's directory");
        input.plant(&dir, options.mib);
        let near = !matches!(options.path.medium, Medium::Link(_));
        let tools =
            tool::ALL.iter().filter(|tool| chosen(tool.name, &options.tools) && tool.fits(input, near));
        let place = Place { dir: &dir, disk: disk.as_ref() };
        let race = race(input, place, &tools.collect::<Vec<_>>(), &lab, options.rounds);
        print!("{}", race.table());
        races.push(race);
        std::fs::remove_dir_all(&dir).expect("the input's directory");
    }
    if options.write {
        report::write(&options.lab, &setting, &races);
    }
    ExitCode::SUCCESS
}

/// The directory of an input, and the disk that it is on if that has to be cold.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: &'a std::path::Path,
    disk: Option<&'a Disk>,
}

/// Runs all rounds on one input.
fn race(input: Input, Place { dir, disk }: Place<'_>, tools: &[&Tool], lab: &Lab, rounds: usize) -> Race {
    let meter = Meter { lab, syncs: disk.is_some() };
    let (source, destination) = (dir.join("src"), dir.join("dst"));
    let words = words(input, dir, lab);
    let mut results: Vec<Result<Vec<Measure>, String>> = vec![Ok(Vec::new()); tools.len()];
    for round in 0..rounds {
        for (tool, result) in tools.iter().zip(&mut results) {
            let Ok(measures) = result else { continue };
            let missing = tool.missing();
            if !missing.is_empty() {
                *result = Err(format!("missing: {}", missing.join(", ")));
                continue;
            }
            input.reset(dir);
            if let Some(disk) = disk {
                disk.cool();
            }
            let change = || input.change(dir);
            let change: Option<&dyn Fn()> = if input.follows_a_run() { Some(&change) } else { None };
            match meter.measure(tool, &words, change) {
                Ok(measure) => measures.push(measure),
                Err(account) => {
                    eprintln!("{}: {account}", tool.name);
                    *result = Err("failed".into());
                    continue;
                }
            }
            let mut found = if round == 0 && tool.copies() {
                differences(&source, &destination, Scope::CONTENT)
            } else {
                Vec::new()
            };
            found.retain(|line| !line.contains(tool::KNOWN_EXTRA));
            if !found.is_empty() {
                eprintln!("{}: wrong result: {:?}", tool.name, &found[..found.len().min(3)]);
                *result = Err("the result differs from the source".into());
            }
        }
    }
    let rows = tools.iter().zip(results).map(|(tool, result)| Row { tool: tool.name, result });
    Race { input, bytes: input::total_bytes(&source), rows: rows.collect() }
}

/// Returns the variables for the tools' scripts.
fn words(input: Input, dir: &std::path::Path, lab: &Lab) -> Words {
    let text = |path: &std::path::Path| path.display().to_string();
    let config = lab.sshd().config();
    vec![
        ("SRC", text(&dir.join("src"))),
        ("DST", text(&dir.join("dst"))),
        ("WORK", text(dir)),
        ("DSYNC", text(program())),
        ("SSH", lab.sshd().shell().to_string_lossy().into_owned()),
        ("KEY", text(&config.with_file_name("user_key"))),
        ("CONFIG", text(&config)),
        ("HOST", ALIAS.to_owned()),
        ("ADDRESS", lab.host().to_owned()),
        ("SPARSE", if input.has_holes() { "-S" } else { "" }.to_owned()),
    ]
}

/// Installs the tools' dependencies: Debian's packages at once, then those from the registry.
fn install() -> ExitCode {
    let needed: BTreeSet<&str> = tool::ALL.iter().flat_map(Tool::packages).collect();
    let (crates, packages): (Vec<&str>, Vec<&str>) =
        needed.into_iter().partition(|package| package.starts_with("cargo:"));
    let mut ok = true;
    if !packages.is_empty() {
        let script = r#"export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -q -y --no-install-recommends "$@""#;
        ok &= shown(Run::of("sh").args(["-c", script, "apt"]).args(packages));
    }
    for package in crates {
        let name = package.trim_start_matches("cargo:");
        // A directory on both hosts' path.
        ok &= shown(Run::of("cargo").args(["install", "--locked", "--root", "/usr/local", name]));
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn shown(run: Run) -> bool {
    let outcome = run.limit(std::time::Duration::from_secs(3600)).run();
    if outcome.code() != Some(0) {
        eprintln!("{}", outcome.account());
    }
    outcome.code() == Some(0)
}

/// Describes when, on what and with what the figures were measured: without it they mean nothing.
fn setting(options: &Options) -> String {
    let dir = options.dir.display().to_string();
    let [machine, programs @ ..] = machine_and_programs();
    let path = format!("path: {} ({})", options.lab, options.path);
    let disk = format!(
        "disk: {}{}",
        first_line(&["findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", &dir]),
        options.disk.map_or(String::new(), |kind| format!(", on it an image: {}", kind.name()))
    );
    let rounds = format!(
        "rounds: {}, in turns; caches {}; the disk synced before each run{}",
        options.rounds,
        if options.disk.is_some() { "cold" } else { "warm" },
        if options.disk.is_some() { " and by it" } else { "" },
    );
    let date = format!("date: {}", first_line(&["date", "+%Y-%m-%d"]));
    let lines = [date, machine, path, disk].into_iter().chain(programs).chain([rounds]);
    lines.collect::<Vec<_>>().join("\n")
}

/// Describes the machine, and the versions of the programs that are compared.
fn machine_and_programs() -> [String; 5] {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": ?");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let program = program().display().to_string();
    [
        format!("machine: {cores} x{}, {}", cpu.replace("\t:", ""), first_line(&["uname", "-sr"])),
        format!("dsync: {}", first_line(&[&program, "--version"])),
        format!("rsync: {}", first_line(&["rsync", "--version"])),
        format!("ssh: {}", first_line(&["ssh", "-V"])),
        format!("tar: {}", first_line(&["tar", "--version"])),
    ]
}

/// Returns the first line that a command prints.
fn first_line(argv: &[&str]) -> String {
    let outcome = Run::of(argv[0]).args(&argv[1..]).run();
    outcome.all_text().lines().next().unwrap_or("?").trim().to_owned()
}

fn parse(args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        lab: "lo".into(),
        path: Path::named("lo")?,
        dir: std::env::temp_dir(),
        disk: None,
        rounds: 5,
        mib: 1024,
        inputs: None,
        tools: None,
        write: false,
        install: false,
        draw: false,
    };
    let mut args = args;
    while let Some(flag) = args.next() {
        let list = |value: String| Some(value.split(',').map(str::to_owned).collect());
        match flag.as_str() {
            "--lab" => {
                options.lab = args.next()?;
                options.path = Path::named(&options.lab)?;
            }
            "--dir" => options.dir = args.next()?.into(),
            "--disk" => options.disk = Some(disk::Kind::named(&args.next()?)?),
            "--rounds" => options.rounds = args.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
            "--mib" => options.mib = args.next()?.parse().ok().filter(|mib| *mib > 0)?,
            "--inputs" => options.inputs = list(args.next()?),
            "--tools" => options.tools = list(args.next()?),
            "--write" => options.write = true,
            "--install" => options.install = true,
            "--draw" => options.draw = true,
            _ => flags::apply(&mut options.path, &flag, &mut args)?,
        }
    }
    Some(options)
}
