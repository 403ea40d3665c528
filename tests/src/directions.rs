//! The three directions of a copy.

use std::{ffi::OsString, path::Path};

use crate::{
    run::Run,
    scratch::{Scratch, slash},
    sshd::{Sshd, Via},
};

/// Copies the source of `scratch` in every direction, each to a destination of its own that does
/// not exist yet: locally, to a host over QUIC, from a host over the ssh pipe. `each` gets a
/// function that makes such a run, as often as it is called, and the destination.
///
/// # Panics
/// If sshd cannot be started.
pub fn every_way(scratch: &Scratch, options: &[&str], each: impl Fn(&dyn Fn() -> Run, &Path)) {
    every_way_of(scratch, &[slash(&scratch.src())], options, each);
}

/// Copies operands of the caller's choice, as [`every_way`] does.
///
/// # Panics
/// If sshd cannot be started.
pub fn every_way_of(
    scratch: &Scratch,
    operands: &[OsString],
    options: &[&str],
    each: impl Fn(&dyn Fn() -> Run, &Path),
) {
    let sshd = Sshd::shared();
    let (local, push, pull) = (scratch.at("local"), scratch.at("push"), scratch.at("pull"));
    each(&|| Run::dsync().args(options).args(operands).arg(&local), &local);
    each(&|| sshd.run(Via::Quic).args(options).args(operands).arg(sshd.operand(&push)), &push);
    let remote = || operands.iter().map(|operand| sshd.operand(operand));
    each(&|| sshd.run(Via::Ssh).args(options).args(remote()).arg(&pull), &pull);
}
