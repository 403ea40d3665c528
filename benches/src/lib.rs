//! Code that the benches share.

pub mod delta_cases;
