//! The race: dsync beside rsync, scp and tar over ssh, on the same input, in turns.
//!
//! `cargo xtask rivals [--dir DIR] [--rounds N] [--mib N] [--inputs a,b] [--tools a,b]`
//!
//! Every tool pushes the same input to the same throwaway sshd on the loopback, round after round, so
//! that a change of the machine hits all of them. A row gives the median wall time of the rounds, the
//! processor time of each end (ssh and sshd included), the bytes that crossed the loopback, headers
//! included, and the largest process of each end that is not ssh itself. Results are checked.

mod input;
mod meter;
mod tool;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use dsync_tests::{Run, Scope, Sshd, differences, program};
use input::Input;
use meter::{Measure, Meter, median};
use tool::Tool;

struct Options {
    dir: PathBuf,
    rounds: usize,
    mib: u64,
    inputs: Option<Vec<String>>,
    tools: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!(
            "usage: cargo xtask rivals [--dir DIR] [--rounds N] [--mib N] [--inputs NAMES] [--tools NAMES]"
        );
        eprintln!("  inputs: {}", Input::ALL.map(Input::name).join(","));
        eprintln!("  tools:  {}", tool::all().iter().map(|tool| tool.name).collect::<Vec<_>>().join(","));
        return ExitCode::FAILURE;
    };
    // In a namespace of its own the loopback is down at first; elsewhere this fails and need not work.
    let _ = Run::of("ip").args(["link", "set", "lo", "up"]).run();
    print_setting(&options);
    let scratch =
        tempfile::Builder::new().prefix("dsync-rivals-").tempdir_in(&options.dir).expect("a directory");
    let sshd = Sshd::start("127.0.0.1", None);
    let chosen = |name: &str, list: &Option<Vec<String>>| {
        list.as_ref().is_none_or(|list| list.iter().any(|n| n == name))
    };
    for input in Input::ALL.into_iter().filter(|input| chosen(input.name(), &options.inputs)) {
        let dir = scratch.path().join(input.name());
        std::fs::create_dir(&dir).expect("the input's directory");
        input.plant(&dir, options.mib);
        let tools =
            tool::all().into_iter().filter(|tool| chosen(tool.name, &options.tools) && tool.fits(input));
        race(input, &dir, &tools.collect::<Vec<_>>(), &sshd, options.rounds);
        std::fs::remove_dir_all(&dir).expect("the input's directory");
    }
    ExitCode::SUCCESS
}

/// Runs all rounds on one input and prints its table.
fn race(input: Input, dir: &Path, tools: &[Tool], sshd: &Sshd, rounds: usize) {
    let (source, destination) = (dir.join("src"), dir.join("dst"));
    let mut measures: Vec<Vec<Measure>> = vec![Vec::new(); tools.len()];
    for round in 0..rounds {
        for (tool, measures) in tools.iter().zip(&mut measures) {
            input.reset(dir);
            let argv = tool.command(sshd, &source, &destination);
            measures.push(Meter::new(sshd).measure(&argv));
            if round == 0 {
                let found = differences(&source, &destination, Scope::CONTENT);
                assert!(found.is_empty(), "{}: wrong result: {:?}", tool.name, &found[..found.len().min(3)]);
            }
        }
    }
    print_table(input, tools, &measures, input::total_bytes(&source));
}

fn print_table(input: Input, tools: &[Tool], measures: &[Vec<Measure>], bytes: u64) {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    println!("\n## {} ({:.0} MiB)\n", input.describe(), mib(bytes as f64));
    println!(
        "| tool | median s | MiB/s | best-worst s | cpu here s | cpu there s | wire MiB | peak MiB here | there |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (tool, all) in tools.iter().zip(measures) {
        let of = |get: fn(&Measure) -> f64| median(all.iter().map(get).collect());
        let wall = of(|measure| measure.wall.as_secs_f64());
        let walls = all.iter().map(|measure| measure.wall.as_secs_f64());
        let (best, worst) =
            walls.fold((f64::MAX, 0.0_f64), |(best, worst), wall| (best.min(wall), worst.max(wall)));
        println!(
            "| {} | {wall:.2} | {:.0} | {best:.2}-{worst:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0} |",
            tool.name,
            mib(bytes as f64) / wall,
            of(|measure| measure.cpu_here),
            of(|measure| measure.cpu_there),
            mib(of(|measure| measure.wire_bytes as f64)),
            mib(of(|measure| measure.peak_here as f64)),
            mib(of(|measure| measure.peak_there as f64)),
        );
    }
}

/// What the figures were measured on and with: without it they say nothing.
fn print_setting(options: &Options) {
    let first = |argv: &[&str]| {
        let outcome = Run::of(argv[0]).args(&argv[1..]).run();
        outcome.all_text().lines().next().unwrap_or("?").trim().to_owned()
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": ?");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("machine: {cores} x{}, {}", cpu.replace("\t:", ""), first(&["uname", "-sr"]));
    let dir = options.dir.display().to_string();
    println!("disk:    {}", first(&["findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", &dir]));
    let program = program().display().to_string();
    println!("dsync:   {}", first(&[&program, "--version"]));
    println!("rsync:   {}", first(&["rsync", "--version"]));
    println!("ssh:     {}", first(&["ssh", "-V"]));
    println!("tar:     {}", first(&["tar", "--version"]));
    println!("rounds:  {}, in turns; caches warm; the disk synced before each run", options.rounds);
}

fn parse(args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { dir: std::env::temp_dir(), rounds: 5, mib: 1024, inputs: None, tools: None };
    let mut args = args;
    while let Some(flag) = args.next() {
        let value = args.next()?;
        let list = || Some(value.split(',').map(str::to_owned).collect());
        match flag.as_str() {
            "--dir" => options.dir = value.into(),
            "--rounds" => options.rounds = value.parse().ok().filter(|rounds| *rounds > 0)?,
            "--mib" => options.mib = value.parse().ok().filter(|mib| *mib > 0)?,
            "--inputs" => options.inputs = list(),
            "--tools" => options.tools = list(),
            _ => return None,
        }
    }
    Some(options)
}
