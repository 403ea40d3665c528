//! Figures of one flow over a path: its rate, its share beside another flow, and a limit that it keeps.

use std::{
    env, fs,
    path::Path as FilePath,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use dsync_tests::{Lab, Run, Via, lab::Path, scratch::slash};

use crate::{input::Input, meter::median};

/// The figure to compare with the bar, and words for the row.
pub(crate) type Figure = Result<(f64, String), String>;

/// Returns the median of some rounds, with all of them as text.
pub(crate) fn middle(rounds: usize, mut round: impl FnMut(usize) -> Figure) -> Figure {
    let mut figures = Vec::new();
    let mut texts = Vec::new();
    for number in 0..rounds {
        let (figure, text) = round(number)?;
        figures.push(figure);
        texts.push(text);
    }
    Ok((median(figures), texts.join(", ")))
}

/// Makes a run of dsync with a fresh destination.
fn push(lab: &Lab, dir: &FilePath, via: Via, options: &[&str]) -> Run {
    let destination = dir.join("dst");
    let _ = fs::remove_dir_all(&destination);
    let run = lab.sshd().run(via).within(lab.near()).args(["-a", "--stats"]).args(options);
    run.arg(slash(&dir.join("src"))).arg(lab.sshd().operand(destination))
}

pub(crate) fn bytes_per_second(path: &Path) -> f64 {
    match path.medium {
        dsync_tests::lab::Medium::Link(conditions) => conditions.bits_per_second as f64 / 8.0,
        _ => f64::INFINITY,
    }
}

pub(crate) fn run_share(lab: &Lab, path: &Path, dir: &FilePath, mib: u64) -> Figure {
    plant_once(dir, mib);
    let outcome = push(lab, dir, Via::Auto, &[]).run();
    if outcome.code() != Some(0) {
        return Err(outcome.account());
    }
    let share = (mib << 20) as f64 / outcome.elapsed.as_secs_f64() / bytes_per_second(path);
    Ok((share, format!("{share:.2} of the rate, {:.2} s", outcome.elapsed.as_secs_f64())))
}

pub(crate) fn late_share(lab: &Lab, path: &Path, dir: &FilePath, mib: u64) -> Figure {
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

/// Returns the measuring program; `cargo xtask figures` builds it and sets its path.
fn pump_program() -> Result<String, String> {
    env::var("LAB_PUMP").map_err(|_| "LAB_PUMP does not say where the example pump is".to_owned())
}

fn our_pump(lab: &Lab, transport: &str, seconds: u64) -> Result<Run, String> {
    let run = Run::of(pump_program()?).within(lab.near()).args(["--transport", transport, "--seconds"]);
    Ok(run.arg(seconds.to_string()).arg(lab.sshd().shell()).arg(lab.host()))
}

pub(crate) fn pump(lab: &Lab) -> Figure {
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
pub(crate) fn sharing_of(lab: &Lab, transport: &str, seconds: u64, ours_first: bool) -> Figure {
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
pub(crate) fn deviation(lab: &Lab, dir: &FilePath, via: Via, limit: u64) -> Figure {
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
