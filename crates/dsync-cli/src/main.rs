//! The dsync command.
fn main() {}
