//! The wire format from outside: golden bytes, round trips, refusals, frames, order, documentation.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, on values and files that they chose"
)]

mod documentation;
mod frames;
mod golden;
mod lanes;
mod order;
mod refusals;
mod round_trip;
mod samples;
mod spans;
mod strategies;
