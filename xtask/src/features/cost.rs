//! `cargo xtask features --cost [FEATURE...]`: what a program pays for the library with each of its
//! features alone: seconds of processor time to build it from nothing, and the size of the program.
//!
//! The program copies one directory to another. It is a package of its own, as one that depends on the
//! library from outside is, and each build has a folder of its own below `target/`, which is emptied
//! before. Takes minutes for each build, so it is no part of CI.

use std::{fs, io, path::Path, time::Duration};

use crate::{
    error::TaskError,
    step::{cargo, root, run as run_command},
};

/// The program: it uses the part of the library that every build has.
const PROGRAM: &str = r#"use dsync_engine::{CancelToken, Destination, Job, Silent, Source, SyncOptions};

fn main() {
    let mut paths = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (paths.next(), paths.next()) else { return };
    let source = Source::Local { paths: vec![from.into()] };
    let job = Job::new(source, Destination::Local { path: to.into() }).options(SyncOptions::archive());
    let summary = job.run(&Silent, &CancelToken::new());
    std::process::exit(summary.map_or_else(|error| error.exit_code().into(), |summary| summary.exit_code().into()));
}
"#;

/// Prints the cost of builds with these features, one a line.
///
/// # Errors
/// Those of cargo and of the disk.
pub(super) fn print<'a>(features: impl Iterator<Item = &'a str>) -> Result<(), TaskError> {
    println!("| feature | processor seconds | bytes of the program |\n|---|---|---|");
    for feature in features {
        let (time, bytes) = of_build(feature)?;
        println!("| {} | {:.0} | {bytes} |", super::named(feature), time.as_secs_f64());
    }
    Ok(())
}

/// Builds the program with a feature, from nothing. Returns the processor time and the program's size.
fn of_build(feature: &str) -> Result<(Duration, u64), TaskError> {
    let name = if feature.is_empty() { "none" } else { feature };
    let place = root().join("target/features").join(name);
    let failed =
        |path: &Path, source: io::Error| TaskError::Read { path: path.display().to_string(), source };
    if place.exists() {
        fs::remove_dir_all(&place).map_err(|error| failed(&place, error))?;
    }
    fs::create_dir_all(place.join("src")).map_err(|error| failed(&place, error))?;
    let write = |path: &str, text: &str| {
        let path = place.join(path);
        fs::write(&path, text).map_err(|error| failed(&path, error))
    };
    write("src/main.rs", PROGRAM)?;
    write("Cargo.toml", &manifest(feature))?;
    let lock = root().join("Cargo.lock");
    fs::copy(&lock, place.join("Cargo.lock")).map_err(|error| failed(&lock, error))?;

    let before = of_children()?;
    // The versions are those of the lock file; cargo drops those that this build has no use for.
    let build = ["build", "--offline", "--quiet", "--release"];
    run_command(cargo(&build).current_dir(&place).env("CARGO_TARGET_DIR", place.join("target")))?;
    let time = of_children()?.saturating_sub(before);
    let program = place.join("target/release/small");
    let bytes = fs::metadata(&program).map_err(|error| failed(&program, error))?.len();
    Ok((time, bytes))
}

fn manifest(feature: &str) -> String {
    let engine = root().join("crates/dsync-engine");
    let features = if feature.is_empty() { String::new() } else { format!("{feature:?}") };
    format!(
        "[package]\nname = \"small\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies.dsync-engine]\npath = {:?}\ndefault-features = false\nfeatures = [{features}]\n\n\
         [profile.release]\nstrip = \"symbols\"\n",
        engine.display().to_string()
    )
}

/// Returns the processor time of all programs that this one has started and that have ended.
fn of_children() -> Result<Duration, TaskError> {
    let path = "/proc/self/stat";
    let stat = fs::read_to_string(path).map_err(|source| TaskError::Read { path: path.into(), source })?;
    let ticks = ticks_of_children(&stat).unwrap_or(0);
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Reads `cutime` and `cstime` (proc_pid_stat(5)), the fourteenth and fifteenth field behind the name in
/// parentheses.
fn ticks_of_children(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(13);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Linux's unit of these fields on every machine (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_are_read_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 200 0 0 11 12 130 45 20 0 1 0 99 1000 5";
        assert_eq!(ticks_of_children(stat), Some(175));
        assert!(of_children().is_ok());
    }
}
