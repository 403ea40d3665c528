//! Batches: recording a run changes nothing of it, and what was recorded makes of the same old
//! destination the same new one.

use super::{
    case::{Carrier, Case},
    dice::mixed,
    judge::{Class, Finding},
    world::{HOST, Survey, World},
};
use crate::{
    compare::{Scope, compare},
    run::Outcome,
};

/// Returns the breaches of a case in whose run dsync made `ours`. Runs are surveyed as of `since`.
pub(super) fn breaches(
    case: &Case,
    world: &World,
    (dsync, ours): (&Outcome, &Survey),
    since: i64,
) -> Vec<Finding> {
    if dsync.code() != Some(0) || !is_recorded(case) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let file = world.kept().join("batch");
    world.plant(case);
    let recording = world.dsync(case, &[&format!("--write-batch={}", file.display())]);
    let refused = |outcome: &Outcome| matches!(outcome.code(), Some(1 | 4));
    if refused(&recording) {
        return Vec::new();
    }
    if recording.code() != Some(0) {
        lines.push(format!("a run that is recorded fails: {}", recording.account()));
    }
    let recorded = world.survey(since);
    let changed = compare(ours, &recorded, Scope::EVERYTHING);
    lines.extend(changed.into_iter().map(|line| format!("otherwise when recorded: {line}")));

    let batch = std::fs::read(&file);
    world.plant(case);
    if let Ok(batch) = batch {
        std::fs::write(&file, batch).expect("the batch");
        let applying = applying(case);
        let applied = world.dsync(&applying, &[&format!("--read-batch={}", file.display())]);
        if refused(&applied) {
            return findings(lines);
        }
        if applied.code() != Some(0) {
            lines.push(format!("a batch cannot be applied: {}", applied.account()));
        }
        let after = world.survey(since);
        let changed = compare(&destination(ours), &destination(&after), Scope::EVERYTHING);
        lines.extend(changed.into_iter().map(|line| format!("otherwise by the batch: {line}")));
    }
    findings(lines)
}

fn findings(lines: Vec<String>) -> Vec<Finding> {
    lines.into_iter().map(|line| Finding { class: Class::Law, line }).collect()
}

/// Returns whether a case is recorded: one of those whose every content a batch has.
fn is_recorded(case: &Case) -> bool {
    const ELSEWHERE: &[&str] = &[
        "-n",
        "-y",
        "--fuzzy",
        "--inplace",
        "--append",
        "--append-verify",
        "--link-dest",
        "--copy-dest",
        "--compare-dest",
        "--detect-renamed",
        "--remove-source-files",
        "--remove-sent-files",
    ];
    let is_one = mixed(case.seed ^ BATCHES).is_multiple_of(8);
    // `--fake-super` is about the end that has the option: in a push that is the source.
    let is_of_source = case.has(&["--fake-super"]) && matches!(case.carrier, Carrier::Push(_));
    // One match of a wildcard may get another name, which a batch does not know.
    let is_wild = |operand: &String| operand.starts_with(HOST) && operand.contains(['*', '?', '[']);
    let is_of_source = is_of_source || case.operands.iter().any(is_wild);
    // A local run has no parts, so it makes no directory for them.
    let is_of_parts = case.has(&["--partial-dir"]);
    is_one
        && !is_of_source
        && !is_of_parts
        && !case.has_letter('U')
        && !case.has_letter('y')
        && !case.has(ELSEWHERE)
}

/// Returns the case that applies a batch: the same destination, at this end, and the options that
/// are not the source's alone.
fn applying(case: &Case) -> Case {
    const OF_SOURCES: &[&str] = &["--files-from", "-0", "--from0", "--no-relative"];
    let mut applying = Case { carrier: Carrier::Local, is_confined: false, ..case.clone() };
    applying.options.retain(|option| !OF_SOURCES.contains(&super::options::name(option)));
    let last = applying.operands.pop().unwrap_or_default();
    let here = last.strip_prefix(HOST).and_then(|rest| rest.strip_prefix(':'));
    applying.operands = vec![here.unwrap_or(&last).to_owned()];
    applying
}

/// Returns the part of a survey that a destination is.
fn destination(survey: &Survey) -> Survey {
    let is_in = |path: &[u8]| path == b"w/d" || path.starts_with(b"w/d/");
    survey.iter().filter(|(path, _)| is_in(path)).map(|(path, facts)| (path.clone(), facts.clone())).collect()
}

/// Makes the draw another one than that of the case.
const BATCHES: u64 = 0x6261_7463_6865_7321;
