//! Benches, and what they share.

pub mod delta_cases;
