//! Errors of tasks.

use std::{io, process::ExitStatus};

/// The reason why a task failed; printed once, by `main`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// A program could not be started.
    #[error("cannot start '{program}': {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program ended badly.
    #[error("'{command}' failed: {status}")]
    Failed {
        /// Its command line.
        command: String,
        /// The exit status.
        status: ExitStatus,
    },
    /// Programs are missing and may not be installed from here.
    #[error("missing: {}\nInstall what is missing and run again", list.join(", "))]
    Missing {
        /// The programs, each with its package.
        list: Vec<String>,
    },
    /// A tool that is only in the registry, without access to a registry: its check is left out by
    /// name.
    #[error("{package} is not installed and the registry does not answer")]
    Unreachable {
        /// The package that cargo was to install.
        package: String,
    },
    /// The toolchain of the promised version is not here: its check is left out by name.
    #[error("there is no toolchain {version}")]
    NoToolchain {
        /// The version.
        version: String,
    },
    /// The public API has nothing to be compared with, or by: its check is left out by name.
    #[error("the API is not compared: there is no {lacking}")]
    NoBaseline {
        /// The thing that is missing.
        lacking: &'static str,
    },
    /// A file of the checkout could not be read.
    #[error("cannot read '{path}': {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// `cargo metadata` failed.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] cargo_metadata::Error),
    /// Dependencies that the layers forbid.
    #[error("forbidden dependencies:\n  {}", breaches.join("\n  "))]
    Layers {
        /// One line each.
        breaches: Vec<String>,
    },
    /// Crates that a build of fewer features should not contain.
    #[error("features that bring too much:\n  {}", faults.join("\n  "))]
    Features {
        /// One line each.
        faults: Vec<String>,
    },
    /// Guards whose tests do not notice their absence, or that are not where the table says.
    #[error("guards and their tests:\n  {}", wrong.join("\n  "))]
    Mutants {
        /// One line each.
        wrong: Vec<String>,
    },
    /// A file of the checkout is not valid Rust.
    #[error("cannot parse '{path}': {source}")]
    Parse {
        /// The file.
        path: String,
        /// The parser's error.
        source: syn::Error,
    },
    /// Circles of imports with too many files.
    #[error("circles of imports of more than {most} files:\n  {}", circles.join("\n  "))]
    Circles {
        /// Number of files in the largest allowed circle.
        most: usize,
        /// One line each.
        circles: Vec<String>,
    },
    /// Options of the command in strings of the libraries.
    #[error("strings of libraries that name an option (its place is dsync-cli's advice.rs):\n  {}", found.join("\n  "))]
    OptionWords {
        /// File and string of each.
        found: Vec<String>,
    },
    /// Packages that could not be published, or would not build for who downloads them.
    #[error("packages:\n  {}", faults.join("\n  "))]
    Packages {
        /// One line each.
        faults: Vec<String>,
    },
    /// Functions that are too long, or have no blank line.
    #[error("functions out of shape:\n  {}", breaches.join("\n  "))]
    Shape {
        /// One line each.
        breaches: Vec<String>,
    },
    /// Programs with tests that failed.
    #[error("tests failed; again with:\n  {}", failed.join("\n  "))]
    Tests {
        /// The command for each.
        failed: Vec<String>,
    },
    /// Tests that were skipped without permission.
    #[error("tests were left out that tests/skips.txt does not allow here:\n  {}", tests.join("\n  "))]
    Skipped {
        /// Reason and name of each.
        tests: Vec<String>,
    },
    /// Steps that failed.
    #[error("failed steps: {}", names.join(", "))]
    Steps {
        /// Their names.
        names: Vec<String>,
    },
    /// An argument that the verb does not know.
    #[error("unknown argument '{0}'")]
    Argument(String),
}
