//! Whole sessions against dsync as the source: see `dsync_fuzz::session`.
#![no_main]

use dsync_fuzz::session::{Role, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| run(Role::Source, data));
