//! Signature and search of a pair of files in memory, beside fast_rsync.
//!
//! `cargo bench -p dsync-benches --bench delta`. Files of 256 MiB of random bytes, or of
//! `DSYNC_BENCH_MIB`. Blocks of 32 KiB, which is also rsync's choice for 1 GiB. `one` and `two` are
//! numbers of threads. A search includes the file root.

use std::{env, hint::black_box};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dsync_benches::delta_cases::{BLOCK_LEN, NAMES, case, index, noise, search};
use dsync_delta::{IndexedSignature, SumsFormat};

fn delta(criterion: &mut Criterion) {
    let mib = env::var("DSYNC_BENCH_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(256_usize);
    let basis = noise(1, mib << 20);
    let mut group = criterion.benchmark_group("delta");
    group.sample_size(10).throughput(Throughput::Bytes(basis.len() as u64));
    for (threads, name) in [(1, "one"), (2, "two")] {
        let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() else { continue };
        for format in [SumsFormat::StrongOnly, SumsFormat::StrongAndWeak] {
            let id = BenchmarkId::new(format!("signature {format:?}"), name);
            group.bench_function(id, |bench| {
                bench.iter(|| pool.install(|| black_box(index(&basis, format))));
            });
        }
        for (case, new) in NAMES.map(|name| case(name, &basis)) {
            group.bench_function(BenchmarkId::new(format!("search {case}"), name), |bench| {
                let make = || pool.install(|| index(&basis, SumsFormat::StrongAndWeak));
                let search = |index: Option<IndexedSignature>| {
                    pool.install(|| black_box(search(index.as_ref(), &new, new.len())))
                };
                bench.iter_batched(make, search, BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

fn rival(criterion: &mut Criterion) {
    let basis = noise(1, 32 << 20);
    let mut group = criterion.benchmark_group("fast_rsync");
    group.sample_size(10).throughput(Throughput::Bytes(basis.len() as u64));
    let options = fast_rsync::SignatureOptions { block_size: BLOCK_LEN, crypto_hash_size: 8 };
    let make = || fast_rsync::Signature::calculate(&basis, options);
    group.bench_function("signature", |bench| bench.iter(|| black_box(make())));
    let signature = make();
    for (case, new) in NAMES.map(|name| case(name, &basis)) {
        group.bench_function(format!("search {case}"), |bench| {
            bench.iter(|| {
                let mut delta = Vec::new();
                fast_rsync::diff(&signature.index(), &new, &mut delta).map(|()| delta.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, delta, rival);
criterion_main!(benches);
