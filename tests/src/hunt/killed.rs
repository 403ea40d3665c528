//! Runs that are killed at any step: made again, they leave what an undisturbed run leaves, backups
//! included.

use super::{
    case::Case,
    dice::mixed,
    judge::{Class, Finding},
    world::{Survey, World},
};
use crate::compare::{Scope, compare};

/// Returns the breaches of a case in whose run dsync made `ours`, and after which it had nothing more to
/// do. Runs are surveyed as of `since`.
pub(super) fn breaches(case: &Case, world: &World, ours: &Survey, since: i64) -> Vec<Finding> {
    if !is_killed(case) {
        return Vec::new();
    }
    // The call of some thread that is its last.
    let step = 1 + mixed(case.seed ^ STEPS) % MOST_STEPS;
    world.plant(case);
    let killed = world.killed(case, step);
    let again = world.dsync(case, &[]);
    let mut lines = Vec::new();
    if again.code() != Some(0) {
        lines.push(format!("a run after a killed one fails: {}{}", killed.account(), again.account()));
    }
    let changed = compare(ours, &world.survey(since), Scope::EVERYTHING).into_iter();
    // Only a run that ends gives a directory that it does not copy its time back.
    let changed = changed.filter(|line| !line.starts_with("'w/d': mtime is "));
    lines.extend(changed.map(|line| format!("otherwise after a kill: {line}")));
    lines.into_iter().map(|line| Finding { class: Class::Law, line }).collect()
}

/// Returns whether a case is killed: one of those of which a second run finds done what the first one did.
fn is_killed(case: &Case) -> bool {
    // Each run may remove as many, and what left the source changes the time of its directory.
    const COUNTED: &[&str] = &["--max-delete", "--remove-source-files", "--remove-sent-files"];
    mixed(case.seed ^ KILLS).is_multiple_of(4) && case.has_letter('t') && !case.has(COUNTED)
}

/// Most calls of a thread before its process is killed: few do more in trees of this size.
const MOST_STEPS: u64 = 12;

/// Make the draws others than that of the case.
const KILLS: u64 = 0x6b69_6c6c_6564_2121;
const STEPS: u64 = 0x7374_6570_7321_2121;
