//! Requirements on the paths of the lab, each with its bar (`cargo xtask lab-figures [NAMES]`).
//!
//! A row is a figure of whole runs, or of
//! [`pump`](../../../../crates/dsync-transport/examples/pump.rs), memory to memory. A figure
//! describes dsync only if nothing else keeps the machine busy: both ends and the emulated path
//! share its cores. A row therefore reports how many packets the emulator never took.

use std::{
    env, fs,
    path::Path as FilePath,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use dsync_tests::{
    Lab, Run, Via,
    lab::{Conditions, Path},
    scratch::slash,
};

use crate::{Place, input::Input, meter::median, race, report::Row, tool};

/// One requirement.
struct Bar {
    name: &'static str,
    path: fn() -> Path,
    what: What,
    /// The bar that the figure must reach or may not exceed.
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// The figure to measure.
#[derive(Clone, Copy)]
enum What {
    /// Speed relative to the fastest of the others.
    Faster { input: Input, mib: u64, ours: &'static str, others: &'static [&'static str] },
    /// The payload of a whole run, login included, as a share of the path's rate.
    RunShare { mib: u64 },
    /// The same, between the arrival of the first half of the bytes and of the last.
    LateShare { mib: u64 },
    /// Mbit/s from memory to memory in six seconds, including the start.
    Pump,
    /// The smaller share of the path, in per cent, of two flows: ours and one of TCP CUBIC.
    Sharing { transport: &'static str, seconds: u64, ours_first: bool },
    /// Deviation of ten seconds of a limited run from the limit, in per cent.
    BandwidthLimit { via: Via, mib_per_second: u64 },
}

fn named(name: &str) -> Path {
    Path::named(name).expect("a named path")
}

fn over(megabits: u64, milliseconds: u64, loss: f64) -> Path {
    Path::over(Conditions { loss, ..Conditions::of(megabits, Duration::from_millis(milliseconds)) })
}

const ALL: &[Bar] = &[
    Bar {
        name: "pump-100ms-0",
        path: || over(1000, 100, 0.0),
        what: What::Pump,
        limit: Limit::AtLeast(700.0),
    },
    Bar {
        name: "pump-100ms-0.1",
        path: || over(1000, 100, 0.001),
        what: What::Pump,
        limit: Limit::AtLeast(700.0),
    },
    Bar {
        name: "pump-100ms-1",
        path: || over(1000, 100, 0.01),
        what: What::Pump,
        limit: Limit::AtLeast(700.0),
    },
    Bar {
        name: "pump-20ms-1",
        path: || over(1000, 20, 0.01),
        what: What::Pump,
        limit: Limit::AtLeast(850.0),
    },
    sharing("cubic-20s-ours-first", "quic", 20, true),
    sharing("cubic-20s-tcp-first", "quic", 20, false),
    sharing("cubic-60s-ours-first", "quic", 60, true),
    sharing("cubic-60s-tcp-first", "quic", 60, false),
    sharing("cubic-20s-tls-first", "tls", 20, true),
    sharing("cubic-20s-tls-later", "tls", 20, false),
    Bar {
        name: "lan-one",
        path: || named("lan"),
        what: What::Faster { input: Input::One, mib: 1024, ours: "dsync-auto", others: &["tar-nc"] },
        limit: Limit::AtLeast(0.97),
    },
    Bar {
        name: "lan-log",
        path: || named("lan"),
        what: What::Faster {
            input: Input::Log,
            mib: 1024,
            ours: "dsync-auto",
            others: &["rsync-ssh-zstd", "tar-lz4-ssh", "tar-zstd-ssh"],
        },
        limit: Limit::AtLeast(1.5),
    },
    Bar {
        name: "wan-one",
        path: || named("wan"),
        what: What::Faster { input: Input::One, mib: 64, ours: "dsync-auto", others: &["rsync-ssh"] },
        limit: Limit::AtLeast(10.0),
    },
    Bar {
        name: "wan-rate",
        path: || named("wan"),
        what: What::RunShare { mib: 64 },
        limit: Limit::AtLeast(0.7),
    },
    Bar {
        name: "wan-few",
        path: || named("wan"),
        what: What::Faster { input: Input::Few, mib: 0, ours: "dsync-auto", others: &["rsync-ssh"] },
        limit: Limit::AtLeast(10.0),
    },
    Bar {
        name: "sat-rate",
        path: || named("sat"),
        what: What::LateShare { mib: 64 },
        limit: Limit::AtLeast(0.6),
    },
    Bar {
        name: "hotel",
        path: || named("hotel"),
        what: What::Faster { input: Input::One, mib: 16, ours: "dsync-auto", others: &["dsync-tls"] },
        limit: Limit::AtLeast(1.0 / 1.1),
    },
    limited("bwlimit-quic", Via::Quic),
    limited("bwlimit-tls", Via::Tls),
    limited("bwlimit-ssh", Via::Ssh),
];

const fn sharing(name: &'static str, transport: &'static str, seconds: u64, ours_first: bool) -> Bar {
    let path = || over(100, 40, 0.0);
    let what = What::Sharing { transport, seconds, ours_first };
    Bar { name, path, what, limit: Limit::AtLeast(25.0) }
}

const fn limited(name: &'static str, via: Via) -> Bar {
    let what = What::BandwidthLimit { via, mib_per_second: 16 };
    Bar { name, path: || named("veth"), what, limit: Limit::AtMost(5.0) }
}

/// Runs the rows of these names, or all of them; fails if one misses its bar.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let (mut names, mut rounds) = (Vec::new(), 3);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => rounds = args.next().and_then(|text| text.parse().ok()).unwrap_or(0),
            name => names.push(name),
        }
    }
    let known: Vec<_> = ALL.iter().map(|bar| bar.name).collect();
    if rounds == 0 || names.iter().any(|name| !known.contains(name)) {
        eprintln!("usage: cargo xtask lab-figures [--rounds N] [NAMES]\n  {}", known.join("\n  "));
        return ExitCode::from(2);
    }
    println!("| row | path | measured | bar | |\n|---|---|---|---|---|");
    let mut missed = false;
    for bar in ALL.iter().filter(|bar| names.is_empty() || names.contains(&bar.name)) {
        let path = (bar.path)();
        let Some(lab) = Lab::create(&path) else {
            eprintln!("lab-figures: namespaces and TUN devices need root, and /dev/net/tun");
            return ExitCode::FAILURE;
        };
        let (verdict, text) = match measure(bar.what, &lab, &path, rounds) {
            Ok((figure, text)) => (bar.limit.holds(figure), text),
            Err(why) => (false, why),
        };
        missed |= !verdict;
        let overrun: u64 = lab.counts().iter().map(|counts| counts.overrun).sum();
        let slow = if overrun > 0 { format!("; {overrun} packets never taken") } else { String::new() };
        let verdict = if verdict { "holds" } else { "**missed**" };
        println!("| {} | {path} | {text}{slow} | {} | {verdict} |", bar.name, bar.limit.text());
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Limit {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least:.2}"),
            Self::AtMost(most) => format!("<= {most:.2}"),
        }
    }
}

/// The figure to compare with the bar, and words for the row.
type Figure = Result<(f64, String), String>;

fn measure(what: What, lab: &Lab, path: &Path, rounds: usize) -> Figure {
    let scratch = tempfile::Builder::new().prefix("dsync-bars-").tempdir().expect("a directory");
    let dir = scratch.path();
    match what {
        What::Faster { input, mib, ours, others } => faster(lab, dir, (input, mib), (ours, others), rounds),
        What::RunShare { mib } => middle(rounds, |_| run_share(lab, path, dir, mib)),
        What::LateShare { mib } => middle(rounds, |_| late_share(lab, path, dir, mib)),
        What::Pump => middle(rounds, |_| pump(lab)),
        What::Sharing { transport, seconds, ours_first } => {
            middle(rounds, |_| sharing_of(lab, transport, seconds, ours_first))
        }
        What::BandwidthLimit { via, mib_per_second } => {
            middle(rounds, |_| deviation(lab, dir, via, mib_per_second << 20))
        }
    }
}

/// Returns the median of some rounds, with all of them as text.
fn middle(rounds: usize, mut round: impl FnMut(usize) -> Figure) -> Figure {
    let mut figures = Vec::new();
    let mut texts = Vec::new();
    for number in 0..rounds {
        let (figure, text) = round(number)?;
        figures.push(figure);
        texts.push(text);
    }
    Ok((median(figures), texts.join(", ")))
}

fn faster(
    lab: &Lab,
    dir: &FilePath,
    (input, mib): (Input, u64),
    (ours, others): (&str, &[&str]),
    rounds: usize,
) -> Figure {
    input.plant(dir, mib);
    let chosen = |name: &str| name == ours || others.contains(&name);
    let tools: Vec<_> = tool::ALL.iter().filter(|tool| chosen(tool.name)).collect();
    let race = race(input, Place { dir, disk: None }, &tools, lab, rounds);
    let seconds = |row: &Row| {
        let walls = row.result.as_ref().map_err(|why| format!("{}: {why}", row.tool))?;
        Ok::<_, String>(median(walls.iter().map(|measure| measure.wall.as_secs_f64()).collect()))
    };
    let (mut mine, mut best, mut text) = (f64::MAX, f64::MAX, Vec::new());
    for row in &race.rows {
        let wall = seconds(row)?;
        if row.tool == ours {
            mine = wall;
        } else {
            best = best.min(wall);
        }
        text.push(format!("{} {wall:.2} s", row.tool));
    }
    Ok((best / mine, format!("{:.2} times as fast: {}", best / mine, text.join(", "))))
}

/// Makes a run of dsync with a fresh destination.
fn push(lab: &Lab, dir: &FilePath, via: Via, options: &[&str]) -> Run {
    let destination = dir.join("dst");
    let _ = fs::remove_dir_all(&destination);
    let run = lab.sshd().run(via).within(lab.near()).args(["-a", "--stats"]).args(options);
    run.arg(slash(&dir.join("src"))).arg(lab.sshd().operand(destination))
}

fn bytes_per_second(path: &Path) -> f64 {
    match path.medium {
        dsync_tests::lab::Medium::Link(conditions) => conditions.bits_per_second as f64 / 8.0,
        _ => f64::INFINITY,
    }
}

fn run_share(lab: &Lab, path: &Path, dir: &FilePath, mib: u64) -> Figure {
    plant_once(dir, mib);
    let outcome = push(lab, dir, Via::Auto, &[]).run();
    if outcome.code() != Some(0) {
        return Err(outcome.account());
    }
    let share = (mib << 20) as f64 / outcome.elapsed.as_secs_f64() / bytes_per_second(path);
    Ok((share, format!("{share:.2} of the rate, {:.2} s", outcome.elapsed.as_secs_f64())))
}

fn late_share(lab: &Lab, path: &Path, dir: &FilePath, mib: u64) -> Figure {
    plant_once(dir, mib);
    let before = arrived(lab);
    let over = AtomicBool::new(false);
    let (outcome, seen) = thread::scope(|scope| {
        let sampler = scope.spawn(|| samples(lab, before, &over));
        let outcome = push(lab, dir, Via::Auto, &[]).run();
        over.store(true, Ordering::Release);
        (outcome, sampler.join().expect("the sampler"))
    });
    if outcome.code() != Some(0) || outcome.stdout_text().contains("connection was lost") {
        return Err(outcome.account());
    }
    let total = seen.last().map_or(0, |&(_, bytes)| bytes);
    let reached = |bytes: u64| seen.iter().find(|&&(_, at)| at >= bytes).copied().unwrap_or_default();
    // Not to the last byte: that is the end of the session.
    let ((from, first), (to, last)) = (reached(total / 2), reached(total / 100 * 98));
    let share = (last - first) as f64 / (to - from) / bytes_per_second(path);
    Ok((
        share,
        format!("{share:.2} of the rate in the second half, {:.1} s in all", outcome.elapsed.as_secs_f64()),
    ))
}

/// Returns the bytes that arrived at the far host.
fn arrived(lab: &Lab) -> u64 {
    lab.counts()[0].delivered_bytes
}

/// Samples the time and the number of bytes that had arrived, until `over`.
fn samples(lab: &Lab, before: u64, over: &AtomicBool) -> Vec<(f64, u64)> {
    let since = Instant::now();
    let mut seen = Vec::new();
    while !over.load(Ordering::Acquire) {
        seen.push((since.elapsed().as_secs_f64(), arrived(lab) - before));
        thread::sleep(Duration::from_millis(20));
    }
    seen
}

fn plant_once(dir: &FilePath, mib: u64) {
    if !dir.join("src").exists() {
        Input::One.plant(dir, mib);
    }
}

/// Returns the measuring program; `cargo xtask lab-figures` builds it and sets its path.
fn pump_program() -> Result<String, String> {
    env::var("LAB_PUMP").map_err(|_| "LAB_PUMP does not say where the example pump is".to_owned())
}

fn our_pump(lab: &Lab, transport: &str, seconds: u64) -> Result<Run, String> {
    let run = Run::of(pump_program()?).within(lab.near()).args(["--transport", transport, "--seconds"]);
    Ok(run.arg(seconds.to_string()).arg(lab.sshd().shell()).arg(lab.host()))
}

fn pump(lab: &Lab) -> Figure {
    let outcome = our_pump(lab, "quic", 6)?.run();
    let rates = rates(&outcome.stdout_text());
    if outcome.code() != Some(0) || rates.len() < 6 {
        return Err(outcome.account());
    }
    let rate = mean(&rates);
    Ok((rate, format!("{rate:.0} ({:.0}) Mbit/s", mean(&rates[3..]))))
}

/// Returns the rates per second that a pump has printed.
fn rates(text: &str) -> Vec<f64> {
    let second = |line: &str| line.split_once(" s ").and_then(|(_, rate)| rate.trim().parse().ok());
    text.lines().filter_map(second).collect()
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// Measures how two flows share the path. The second starts five seconds after the first; the time
/// from a second later on counts.
fn sharing_of(lab: &Lab, transport: &str, seconds: u64, ours_first: bool) -> Figure {
    let program = pump_program()?;
    let address = format!("{}:7000", lab.host());
    let server = Run::of(&program).args(["--tcp-server", &address]).within(lab.far()).start();
    let tcp = |seconds: u64| {
        Run::of(&program).within(lab.near()).args(["--tcp", &address, "--seconds", &seconds.to_string()])
    };
    let late = seconds + 1;
    let early = late + 8;
    let first = if ours_first { our_pump(lab, transport, early)? } else { tcp(early) }.start();
    let since = Instant::now();
    thread::sleep(Duration::from_secs(5));
    let offset = since.elapsed().as_secs() as usize;
    let second = if ours_first { tcp(late) } else { our_pump(lab, transport, late)? }.run();
    let first = first.wait();
    let _ = server.wait();
    let (early, late) = (rates(&first.stdout_text()), rates(&second.stdout_text()));
    let seconds = seconds as usize;
    if early.len() < offset + 1 + seconds || late.len() < 1 + seconds {
        return Err(format!("{}\n{}", first.account(), second.account()));
    }
    let (early, late) = (mean(&early[offset + 1..offset + 1 + seconds]), mean(&late[1..=seconds]));
    let (ours, theirs) = if ours_first { (early, late) } else { (late, early) };
    let least = 100.0 * ours.min(theirs) / (ours + theirs);
    Ok((least, format!("{ours:.0} : {theirs:.0} Mbit/s, {least:.0} %")))
}

/// Returns the deviation from the limit, in per cent, of ten seconds from the middle of a run.
fn deviation(lab: &Lab, dir: &FilePath, via: Via, limit: u64) -> Figure {
    plant_once(dir, (limit >> 20) * 14);
    let before = arrived(lab);
    let running = push(lab, dir, via, &[&format!("--bwlimit={}", limit >> 10)]).start();
    while arrived(lab) - before < limit {
        thread::sleep(Duration::from_millis(5));
    }
    let (since, from) = (Instant::now(), arrived(lab));
    thread::sleep(Duration::from_secs(10));
    let rate = (arrived(lab) - from) as f64 / since.elapsed().as_secs_f64();
    let outcome = running.wait();
    if outcome.code() != Some(0) {
        return Err(outcome.account());
    }
    // The limit applies to payload; the path carries headers too.
    let payload = outcome.stat("Total bytes sent") as f64 / (arrived(lab) - before) as f64;
    let percent = 100.0 * (rate * payload / limit as f64 - 1.0);
    Ok((percent.abs(), format!("{percent:+.2} %")))
}
