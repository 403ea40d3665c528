//! `walk_rate READERS OPERAND...`: walks the operands, with READERS threads that read ahead besides
//! the main one, and prints the elapsed time.

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use dsync_fs::{Walk, WalkOptions};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let readers = arguments.next().and_then(|readers| readers.to_str()?.parse().ok());
    let Some(readers) = readers else {
        eprintln!("usage: walk_rate READERS OPERAND...");
        return ExitCode::FAILURE;
    };
    let operands: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let operands: Vec<_> = operands.iter().map(PathBuf::as_path).collect();
    let start = Instant::now();
    let walk = match Walk::open(&operands, WalkOptions { recursive: true, readers, ..WalkOptions::default() })
    {
        Ok(walk) => walk,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut directories, mut entries, mut problems) = (0u64, 0u64, walk.operand_problems().len());
    for dir in walk {
        directories += u64::from(dir.last);
        entries += dir.entries.len() as u64;
        problems += dir.problems.len();
    }
    let elapsed = start.elapsed();
    println!("{entries} entries in {directories} directories, {problems} problems, {elapsed:.3?}");
    ExitCode::SUCCESS
}
