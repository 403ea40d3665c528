//! The only crate that touches a tree: walk, metadata, staged writes, commit.
