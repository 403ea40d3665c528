//! Project tasks: `cargo xtask VERB`.
//!
//! Every check of the project is a verb here, so that a person and `.ci/run` run the same. A verb
//! prints what it does, and ends with 0 on success, otherwise with 1 and a reason.
#![allow(clippy::disallowed_methods, reason = "tasks read and write the checkout, not user trees")]

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod api;
mod binaries;
mod ci;
mod circles;
mod crash;
mod deb;
mod error;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod examples;
mod features;
mod flood;
mod fuzz;
mod hunt;
#[cfg(test)]
mod invariants;
mod lab;
mod layers;
mod links;
mod msrv;
mod mutants;
#[cfg(test)]
mod names;
mod option_words;
mod package;
mod rivals;
mod scratch;
mod semver;
mod shape;
mod sources;
mod step;
mod suite;
mod tools;
#[cfg(test)]
mod words;

use std::{env, process::ExitCode};

use error::TaskError;

/// A verb: its name, its description and its function.
struct Verb {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<(), TaskError>,
}

const VERBS: &[Verb] = &[
    Verb { name: "test", help: "install or name what the tests need, then run all of them", run: suite::run },
    Verb { name: "ci", help: "everything that .ci/run checks, timed", run: ci::run },
    Verb {
        name: "layers",
        help: "fail on a dependency that ARCHITECTURE.md does not allow, and on circles of files",
        run: layers::run,
    },
    Verb {
        name: "features",
        help: "the library with each of its features alone, and what it must not contain then; --cost [FEATURE...]: its build and size",
        run: features::run,
    },
    Verb {
        name: "msrv",
        help: "the shipped crates with the promised toolchain, where it is",
        run: msrv::run,
    },
    Verb {
        name: "semver",
        help: "the public API beside that of the last tag, where there is one and the tool",
        run: semver::run,
    },
    Verb {
        name: "shape",
        help: "how long and deep functions are; fail on those without shape",
        run: shape::run,
    },
    Verb { name: "deny", help: "bans, licences and sources of all dependencies, offline", run: ci::deny },
    Verb {
        name: "package",
        help: "the packages of the crates: metadata, licences, and that each builds without the checkout",
        run: package::run,
    },
    Verb {
        name: "deb",
        help: "a Debian package and a tarball in target/deb [--binary FILE] [--test: install, upgrade, remove]",
        run: deb::run,
    },
    Verb { name: "fuzz-smoke", help: "every fuzz target for some seconds [--seconds N]", run: fuzz::run },
    Verb {
        name: "lab",
        help: "run a command over an emulated path: lab NAME [OPTIONS] -- COMMAND",
        run: lab::run,
    },
    Verb {
        name: "crash",
        help: "kills, power cuts, failing disks and networks [--long: at every call]",
        run: crash::run,
    },
    Verb {
        name: "flood",
        help: "a standing server with 200 clients, 500 silent connections and 5,000 failed handshakes",
        run: flood::run,
    },
    Verb {
        name: "hunt",
        help: "random cases beside rsync [--minutes N] [--seed S] [--on FS,...] [--case SEED]",
        run: hunt::run,
    },
    Verb {
        name: "mutants",
        help: "disable each guard against a hostile end; its test must fail [NAMES]",
        run: mutants::run,
    },
    Verb {
        name: "rivals",
        help: "dsync beside rsync, scp, tar and others, in a lab [--help]",
        run: rivals::run,
    },
    Verb {
        name: "figures",
        help: "what has to hold on paths and disks, each row beside its bar and limit [--write] [NAMES]",
        run: rivals::figures,
    },
    Verb {
        name: "scaling",
        help: "the share of each workload that one thread does alone [--mib N] [--inputs NAMES] [--threads]",
        run: rivals::scaling,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else { return usage() };
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else { return usage() };
    match (verb.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo xtask VERB [OPTIONS]");
    for verb in VERBS {
        eprintln!("  {:<11} {}", verb.name, verb.help);
    }
    ExitCode::FAILURE
}
