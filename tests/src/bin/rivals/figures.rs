//! Measures the requirements (`cargo xtask figures [--rounds N] [--dir DIR] [--write] [NAMES]`).
//!
//! A row is a race beside others, or a figure of one flow. It says something about dsync only if
//! nothing else keeps the machine busy: both ends and the emulated path share its cores. A row
//! therefore reports how many packets the emulator never took.

use std::{
    path::{Path as FilePath, PathBuf},
    process::ExitCode,
};

use dsync_tests::{Lab, lab::Path};

use crate::{
    Place as At,
    disk::Disk,
    flows::{self, Figure, middle},
    meter::{Measure, median},
    page, race,
    report::{Race, Row},
    requirements::{ALL, Cpu, Faster, Limit, Requirement, What},
    tool,
};

/// The command line.
struct Options {
    names: Vec<String>,
    rounds: usize,
    dir: PathBuf,
    write: bool,
}

/// The cells of a row that a measurement fills.
#[derive(Default)]
pub(crate) struct Cells {
    pub(crate) ours: String,
    pub(crate) best: String,
    pub(crate) ratio: String,
    pub(crate) cpu: String,
    pub(crate) limit: String,
    /// Whether the row is on the right side of each of its bars.
    pub(crate) holds: bool,
}

/// Measures the rows of these names, or all of them; fails if one misses its bar.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some(options) = parse(args) else {
        let names: Vec<_> = ALL.iter().map(|row| row.name).collect();
        eprintln!(
            "usage: cargo xtask figures [--rounds N] [--dir DIR (of memory)] [--write (to docs/)] [NAMES]\n  {}",
            names.join("\n  ")
        );
        return ExitCode::from(2);
    };

    println!("{}", page::HEAD);
    let today = page::today();
    let mut lines = Vec::new();
    let mut missed = false;
    for row in
        ALL.iter().filter(|row| options.names.is_empty() || options.names.iter().any(|n| n == row.name))
    {
        let path = row.place.path();
        let Some(lab) = Lab::create(&path) else {
            eprintln!("figures: namespaces and TUN devices need root, and /dev/net/tun");
            return ExitCode::FAILURE;
        };
        let cells = measured(row, &lab, &path, &options);
        missed |= !cells.holds;
        let line = page::line(row, &cells, &format!("{today}, {}", options.rounds));
        println!("{line}");
        lines.push(line);
        if options.write {
            page::write(&lines);
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn parse(args: &[String]) -> Option<Options> {
    let mut options = Options { names: Vec::new(), rounds: 3, dir: "/dev/shm".into(), write: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => options.rounds = args.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
            "--dir" => options.dir = args.next()?.into(),
            "--write" => options.write = true,
            name if ALL.iter().any(|row| row.name == name) => options.names.push(name.to_owned()),
            _ => return None,
        }
    }
    Some(options)
}

fn measured(row: &Requirement, lab: &Lab, path: &Path, options: &Options) -> Cells {
    let disk = row.place.disk().map(|kind| Disk::create(kind, &std::env::temp_dir()));
    let dir = disk.as_ref().map_or(options.dir.as_path(), Disk::path);
    let scratch = tempfile::Builder::new().prefix("dsync-figures-").tempdir_in(dir).expect("a directory");
    let at = At { dir: scratch.path(), disk: disk.as_ref() };
    let result = match row.what {
        What::Faster(faster) => beside_others(&faster, row, lab, path, at, options.rounds),
        what => flow(what, lab, path, scratch.path(), options.rounds).map(|(figure, text)| Cells {
            ours: text,
            holds: row.bar.holds(figure),
            ..Cells::default()
        }),
    };
    let mut cells = result.unwrap_or_else(|why| Cells { ours: why, ..Cells::default() });
    let overrun: u64 = lab.counts().iter().map(|counts| counts.overrun).sum();
    if overrun > 0 {
        cells.ours.push_str(&format!("; {overrun} packets never taken"));
    }
    cells
}

fn flow(what: What, lab: &Lab, path: &Path, dir: &FilePath, rounds: usize) -> Figure {
    middle(rounds, |_| match what {
        What::RunShare { mib } => flows::run_share(lab, path, dir, mib),
        What::LateShare { mib } => flows::late_share(lab, path, dir, mib),
        What::Pump => flows::pump(lab),
        What::Sharing { transport, seconds, ours_first } => {
            flows::sharing_of(lab, transport, seconds, ours_first)
        }
        What::BandwidthLimit { via, mib_per_second } => flows::deviation(lab, dir, via, mib_per_second << 20),
        What::Faster(_) => Err("a race is no flow".into()),
    })
}

/// Races one of ours beside the others and the limit, in turns.
fn beside_others(
    faster: &Faster,
    row: &Requirement,
    lab: &Lab,
    path: &Path,
    at: At<'_>,
    rounds: usize,
) -> Result<Cells, String> {
    faster.input.plant(at.dir, faster.mib);
    let limiter = if let Limit::Tool(name) = faster.limit { Some(name) } else { None };
    let takes_part =
        |name: &str| name == faster.ours || faster.others.contains(&name) || limiter == Some(name);
    let tools: Vec<_> = tool::ALL.iter().filter(|tool| takes_part(tool.name)).collect();
    let race = race(faster.input, at, &tools, lab, rounds);

    let ours = Times::of(&race, faster.ours)?;
    let (best, absent): (Vec<_>, Vec<_>) =
        faster.others.iter().map(|name| Times::of(&race, name)).partition(Result::is_ok);
    let absent: Vec<_> = absent.into_iter().filter_map(Result::err).collect();
    let best = best.into_iter().flatten().min_by(|one, other| one.wall.total_cmp(&other.wall));
    let best = best.ok_or_else(|| absent.join("; "))?;
    let limit = match faster.limit {
        Limit::Unknown => None,
        Limit::Line => Some(("the line", race.bytes as f64 / flows::bytes_per_second(path))),
        Limit::Tool(name) => Some((name, Times::of(&race, name)?.wall)),
    };

    let (ratio, share) = (best.wall / ours.wall, ours.cpu / best.cpu);
    let (cpu_holds, cpu_bar) = match faster.cpu {
        Cpu::Any => (true, String::new()),
        Cpu::Share(most) => (share <= most, format!(" = {share:.2} (<= {most:.2})")),
        Cpu::Seconds(most) => (ours.cpu <= most, format!(" (<= {most:.2} s)")),
    };
    Ok(Cells {
        ours: format!("{:.2} ({})", ours.wall, ours.range),
        best: absent.iter().fold(format!("{} {:.2}", best.tool, best.wall), |text, why| text + "; " + why),
        ratio: format!("{ratio:.2}"),
        cpu: format!("{:.2} : {:.2}{cpu_bar}{}", ours.cpu, best.cpu, page::verdict(cpu_holds)),
        limit: limit.map_or_else(String::new, |(name, wall)| {
            format!("{:.2} of {name}, {wall:.2} s", wall / ours.wall)
        }),
        holds: row.bar.holds(ratio) && cpu_holds,
    })
}

/// Time and processor time of one tool.
struct Times {
    tool: &'static str,
    wall: f64,
    range: String,
    cpu: f64,
}

impl Times {
    fn of(race: &Race, name: &str) -> Result<Self, String> {
        let row: &Row = race.rows.iter().find(|row| row.tool == name).expect("a tool that takes part");
        let measures = row.result.as_ref().map_err(|why| format!("{name}: {why}"))?;
        let of = |get: fn(&Measure) -> f64| measures.iter().map(get).collect::<Vec<_>>();
        let walls = of(|measure| measure.wall.as_secs_f64());
        let (best, worst) =
            walls.iter().fold((f64::MAX, 0.0_f64), |(a, b), wall| (a.min(*wall), b.max(*wall)));
        Ok(Self {
            tool: row.tool,
            wall: median(walls),
            range: format!("{best:.2}-{worst:.2}"),
            cpu: median(of(|measure| measure.cpu_here + measure.cpu_there)),
        })
    }
}
