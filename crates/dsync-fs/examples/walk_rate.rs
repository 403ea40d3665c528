//! Walks the given operands and prints how many entries per second one thread lists.

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use dsync_fs::{Walk, WalkOptions};

fn main() -> ExitCode {
    let operands: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let operands: Vec<_> = operands.iter().map(PathBuf::as_path).collect();
    let start = Instant::now();
    let walk = match Walk::open(&operands, WalkOptions { recursive: true, ..WalkOptions::default() }) {
        Ok(walk) => walk,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut directories, mut entries, mut problems) = (0u64, 0u64, walk.operand_problems().len());
    for dir in walk {
        directories += 1;
        entries += dir.entries.len() as u64;
        problems += dir.problems.len();
    }
    let elapsed = start.elapsed();
    println!("{entries} entries in {directories} directories, {problems} problems, {elapsed:.3?}");
    ExitCode::SUCCESS
}
