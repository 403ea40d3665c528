//! Whole sessions against dsync as the destination: see `dsync_fuzz::session`.
#![no_main]

use dsync_fuzz::session::{Role, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| run(Role::Destination, data));
