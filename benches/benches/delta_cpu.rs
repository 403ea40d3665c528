//! CPU time of the delta core on a 1 GiB pair of files in memory, one thread and two: the table of
//! `docs/performance.md`. CPU time, not wall time, so that a busy machine does not show.
//!
//! `cargo bench -p dsync-benches --bench delta_cpu`; `DSYNC_BENCH_MIB` sets another length.

use std::{env, time::Instant};

use dsync_benches::delta_cases::{BLOCK_LEN, Cached, cases, index, noise, search};
use dsync_delta::SumsFormat;
use rustix::time::{ClockId, clock_gettime};

/// Best of this many runs.
const RUNS: usize = 3;

fn main() {
    let mib = env::var("DSYNC_BENCH_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(1024_usize);
    let basis = noise(1, mib << 20);
    println!("{mib} MiB, blocks of {BLOCK_LEN} bytes; CPU seconds (wall seconds), best of {RUNS}");
    // How fast the machine is today: everything below contains one or more passes of this.
    let hashed = best(|| blake3::hash(&basis));
    println!("one pass of BLAKE3, one thread: {}", hashed.1);
    for threads in [1, 2] {
        let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() else { continue };
        let sign = |format| best(|| pool.install(|| index(&basis, format)));
        let strong = sign(SumsFormat::StrongOnly);
        let both = sign(SumsFormat::StrongAndWeak);
        println!("{threads} thread(s): signature {} strong only, {} strong and weak", strong.1, both.1);
        let copied = best(|| pool.install(|| search(both.0.as_ref(), &Cached(&basis), basis.len())));
        println!("  identical    search {}  read through a window", copied.1);
        for (case, new) in cases(&basis) {
            let found = best(|| pool.install(|| search(both.0.as_ref(), &new, new.len())));
            println!("  {case:12} search {}  literal bytes {}", found.1, found.0.unwrap_or(0));
        }
    }
    rival(&basis[..basis.len().min(64 << 20)]);
}

/// fast_rsync, one thread, on a shorter file: it is too slow for the whole one.
fn rival(basis: &[u8]) {
    let options = fast_rsync::SignatureOptions { block_size: BLOCK_LEN, crypto_hash_size: 8 };
    let (signature, time) = best(|| fast_rsync::Signature::calculate(basis, options));
    println!("fast_rsync, {} MiB: signature {time}", basis.len() >> 20);
    for (case, new) in cases(basis) {
        let found = best(|| {
            let mut delta = Vec::new();
            fast_rsync::diff(&signature.index(), &new, &mut delta).map(|()| delta.len())
        });
        println!("  {case:12} search {}  delta bytes {}", found.1, found.0.unwrap_or(0));
    }
}

/// Runs `work` and shows its smallest CPU time and the wall time of that run.
fn best<T>(mut work: impl FnMut() -> T) -> (T, String) {
    let mut run = || {
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let result = work();
        (result, cpu_seconds() - cpu, wall.elapsed().as_secs_f64())
    };
    let mut fastest = run();
    for _ in 1..RUNS {
        let next = run();
        if next.1 < fastest.1 {
            fastest = next;
        }
    }
    (fastest.0, format!("{:.3} ({:.3})", fastest.1, fastest.2))
}

/// CPU time of all threads of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss)]
    // Seconds of CPU time and nanoseconds are far below 2^53.
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}
