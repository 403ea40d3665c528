//! Whole local runs through the public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{fs, os::unix::fs::symlink, path::Path};

use dsync_engine::{CancelToken, Destination, Job, Silent, Source, Summary, SyncOptions};

fn sync(source: &str, destination: &Path, options: SyncOptions) -> Summary {
    let source = Source::Local { paths: vec![source.into()] };
    let destination = Destination::Local { path: destination.to_owned() };
    Job::new(source, destination).options(options).run(&Silent, &CancelToken::new()).unwrap()
}

#[test]
fn a_tree_arrives_whole_and_the_second_run_sends_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let (src, dst) = (scratch.path().join("src"), scratch.path().join("dst"));
    fs::create_dir_all(src.join("deep/er")).unwrap();
    fs::write(src.join("a"), "hello").unwrap();
    fs::write(src.join("deep/empty"), "").unwrap();
    let big: Vec<u8> = (0..9_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(src.join("deep/er/big"), &big).unwrap();
    symlink("../a", src.join("deep/link")).unwrap();
    let operand = format!("{}/", src.display());
    let first = sync(&operand, &dst, SyncOptions::archive());
    assert_eq!(first.exit_code(), 0, "{first:?}");
    assert_eq!(fs::read(dst.join("deep/er/big")).unwrap(), big);
    assert_eq!(fs::read(dst.join("a")).unwrap(), b"hello");
    assert_eq!(fs::read(dst.join("deep/empty")).unwrap(), b"");
    assert_eq!(fs::read_link(dst.join("deep/link")).unwrap(), Path::new("../a"));
    assert_eq!(first.report.files_transferred, 3);
    let second = sync(&operand, &dst, SyncOptions::archive());
    assert_eq!(second.report.files_transferred, 0);
    assert_eq!(second.report.literal_bytes, 0);
    assert_eq!(second.report.syncs, 0, "nothing changed, nothing to sync");
}
