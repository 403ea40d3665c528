//! CPU time of the delta core on a 1 GiB pair of files in memory, one thread and two, beside other
//! programs: the table of `docs/performance.md`. It measures CPU time, so that a busy machine does
//! not matter, and wall time only for the gain of a second thread.
//!
//! `cargo bench -p dsync-benches --bench delta_cpu`; `DSYNC_BENCH_MIB` sets another length. It
//! names rivals that are not installed.
#![allow(clippy::disallowed_methods, reason = "the rivals read files of this bench's own")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use dsync_benches::delta_cases::{
    BLOCK_LEN, Cached, Case, Delta, NAMES, case, index, noise, search, sign, sum_and_search,
};
use dsync_delta::SumsFormat;
use rustix::time::{ClockId, clock_gettime};

/// Number of runs, of which the best counts. Rivals run once: some take half a minute.
const RUNS: usize = 3;

fn main() {
    let mib = env::var("DSYNC_BENCH_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(1024_usize);
    let basis = noise(1, mib << 20);
    println!("{mib} MiB, blocks of {BLOCK_LEN} bytes; CPU seconds, best of {RUNS}");
    // The machine's speed today: everything below contains one or more passes of this.
    let (_, cpu, _) = best(|| blake3::hash(&basis));
    println!("one pass of BLAKE3, one thread: {cpu:.3}");
    parts(&basis);
    for name in NAMES {
        let case = case(name, &basis);
        dsync(&basis, &case);
        fast_rsync(&basis, &case);
        if let Err(error) = files(&basis, &case) {
            println!("  rivals that need files: {error}");
        }
    }
    println!("the crate librsync is not run: its C sources are LGPL, and rdiff is the same library");
}

/// Measures the parts.
fn parts(basis: &[u8]) {
    let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(1).build() else { return };
    for format in [SumsFormat::StrongOnly, SumsFormat::StrongAndWeak, SumsFormat::WeakOnly] {
        let (_, cpu, _) = best(|| pool.install(|| sign(basis, format)));
        println!("signature {format:?}: {cpu:.3}");
    }
    let index = pool.install(|| index(basis, SumsFormat::StrongOnly));
    let (_, cpu, _) = best(|| pool.install(|| search(index.as_ref(), &Cached(basis), basis.len())));
    println!("search of the same file, read through a window: {cpu:.3}");
}

/// Measures sums, searches and root as the program makes them, on one thread and on two.
fn dsync(basis: &[u8], (name, new): &Case) {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok()?;
        let (delta, cpu, wall) = best(|| pool.install(|| sum_and_search(basis, new, cpu_seconds)));
        Some((delta?, cpu, wall))
    };
    let (Some((delta, one_cpu, one_wall)), Some((_, two_cpu, two_wall))) = (run(1), run(2)) else {
        println!("{name}: dsync failed");
        return;
    };
    let Delta { destination, source, sum_bytes, literal_bytes } = delta;
    println!("{name}");
    println!(
        "  dsync: {one_cpu:.3} = destination {destination:.3} + source {source:.3}, sums {sum_bytes}, literal bytes {literal_bytes}"
    );
    println!(
        "  two threads: {two_cpu:.3}, wall time {one_wall:.3} to {two_wall:.3} = {:.2}x",
        one_wall / two_wall
    );
}

/// Measures fast_rsync on at most 64 MiB, one thread: it is too slow for the whole file.
fn fast_rsync(basis: &[u8], (_, new): &Case) {
    let basis = &basis[..basis.len().min(64 << 20)];
    let new = &new[..new.len().min(basis.len())];
    let options = fast_rsync::SignatureOptions { block_size: BLOCK_LEN, crypto_hash_size: 8 };
    let (bytes, cpu, _) = best(|| {
        let signature = fast_rsync::Signature::calculate(basis, options);
        let mut delta = Vec::new();
        fast_rsync::diff(&signature.index(), new, &mut delta).map(|()| delta.len())
    });
    println!("  fast_rsync, {} MiB: {cpu:.3}, delta bytes {}", basis.len() >> 20, bytes.unwrap_or(0));
}

/// Measures the rivals that work on files: user CPU of all their processes.
fn files(basis: &[u8], (_, new): &Case) -> io::Result<()> {
    let scratch = Scratch::new()?;
    let dir = scratch.0.as_path();
    fs::write(dir.join("new"), new)?;
    fs::write(dir.join("basis"), basis)?;
    let block_len = BLOCK_LEN.to_string();
    if let Some(version) = version(&["rdiff", "--version"]) {
        let sign = ["rdiff", "-b", &block_len, "-S", "8", "signature", "basis", "sums"];
        let (signature, _) = user_seconds(dir, &sign)?;
        let (delta, _) = user_seconds(dir, &["rdiff", "delta", "sums", "new", "delta"])?;
        let bytes = fs::metadata(dir.join("delta"))?.len();
        println!("  {version}: {:.2}, delta bytes {bytes}", signature + delta);
        fs::remove_file(dir.join("delta"))?;
    } else {
        println!("  rdiff: not installed");
    }
    let Some(version) = version(&["rsync", "--version"]) else {
        println!("  rsync: not installed");
        return Ok(());
    };
    let command = ["rsync", "--no-whole-file", "-I", "-B", &block_len, "--stats", "new", "basis"];
    let (seconds, out) = user_seconds(dir, &command)?;
    let literal = out.lines().find_map(|line| line.strip_prefix("Literal data: ")).unwrap_or("?");
    println!("  {version}: {seconds:.2}, literal data {literal}");
    Ok(())
}

/// Returns the first line of a program's version text; `None` if it is not installed.
fn version(command: &[&str]) -> Option<String> {
    let out = Command::new(command[0]).args(&command[1..]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}

/// Runs a command; returns the user CPU time of all its processes, and its output.
fn user_seconds(dir: &Path, command: &[&str]) -> io::Result<(f64, String)> {
    // `times` prints the shell's times, then those of all its children that have ended.
    let out =
        Command::new("sh").args(["-c", "\"$@\" && times", "sh"]).args(command).current_dir(dir).output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let seconds = text.lines().last().and_then(|line| {
        let (minutes, seconds) = line.split_whitespace().next()?.trim_end_matches('s').split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    });
    let error = || io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned());
    Ok((seconds.ok_or_else(error)?, text))
}

/// A directory of the bench's own, in memory if possible.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let shm = PathBuf::from("/dev/shm");
        let base = if shm.is_dir() { shm } else { env::temp_dir() };
        let dir = base.join(format!("delta-cpu-{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure cannot be handled here.
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `work` several times. Returns the result and CPU seconds of the run that took the fewest,
/// and the shortest wall time.
fn best<T>(mut work: impl FnMut() -> T) -> (T, f64, f64) {
    let mut run = || {
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let result = work();
        (result, cpu_seconds() - cpu, wall.elapsed().as_secs_f64())
    };
    let mut fastest = run();
    for _ in 1..RUNS {
        let next = run();
        let wall = next.2.min(fastest.2);
        if next.1 < fastest.1 {
            fastest = next;
        }
        fastest.2 = wall;
    }
    fastest
}

/// Returns the CPU time of all threads of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss)]
    // Seconds of CPU time and nanoseconds are far below 2^53.
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}
