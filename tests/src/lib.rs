//! Harness of the end-to-end tests.
//!
//! A test plants a source [`tree`] and runs the [`program()`] through [`run`], here or against a
//! throwaway [`sshd`] (or in all [`directions`]), possibly inside a network [`namespace`] or over
//! the path of a [`lab`]. It judges the result twice: with [`compare`], a walker that shares no
//! code with dsync, and with [`oracle`], the answer and the result of rsync itself.
//!
//! The program under test is `$DSYNC_BIN`, else the `dsync` beside the test binaries. rsync may
//! stand in for it (`DSYNC_BIN=/usr/bin/rsync`): requirements on both programs are then checked
//! against rsync, which shows that a test demands neither too much nor nothing. Checks of promises
//! that only dsync makes are skipped.
//!
//! A test that cannot run on a machine says so with [`skip`]; `cargo xtask test` fails on a skip
//! that `tests/skips.txt` does not allow.

pub mod attack;
pub mod compare;
pub mod deeds;
pub mod delayed_image;
pub mod device;
pub mod directions;
pub mod hostile;
pub mod hunt;
pub mod lab;
pub mod mount;
pub mod namespace;
pub mod oracle;
pub mod power;
pub mod preload;
pub mod program;
pub mod remote_shell;
pub mod run;
pub mod schema;
pub mod scratch;
pub mod skip;
pub mod slow_disk;
pub mod sshd;
pub mod stingy;
pub mod strace;
pub mod tree;
pub mod unfinished;

pub use compare::{Facts, Scope, assert_same, assert_unchanged, differences, survey};
pub use directions::{every_way, every_way_of};
pub use lab::Lab;
pub use namespace::Namespace;
pub use oracle::{assert_rsync_agrees, rsync};
pub use program::{is_stand_in, program};
pub use run::{Outcome, Run, Running};
pub use scratch::Scratch;
pub use slow_disk::SlowDisk;
pub use sshd::{Remote, Sshd, Via};
pub use stingy::Stingy;
pub use tree::{Content, Edit, Kind, Node, Style, Tree};
