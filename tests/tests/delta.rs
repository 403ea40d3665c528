//! For a changed file with a basis, only the changes are sent.

use std::{fs, os::unix::fs::FileExt, path::Path};

use dsync_tests::{
    Content, Kind, Node, Outcome, Scope, Scratch, Sshd, Tree, Via, assert_same, scratch::slash, tree::noise,
};

const MIB: u64 = 1 << 20;

/// Copies `src/f` to `dst/f`, changes the source, copies again and returns the second run.
fn second_run(via: Via, push: bool, len: u64, change: impl Fn(&Path)) -> Outcome {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let node = || Node::new("f", Kind::File(Content::random(77, len)));
    Tree::of([node()]).plant(&scratch.dst());
    Tree::of([Node { mtime: (1_500_000_000, 0), ..node() }]).plant(&scratch.src());
    change(&scratch.src().join("f"));
    let run = sshd.run(via).args(["-a", "--stats"]);
    let run = if push {
        run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
    } else {
        run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
    };
    let outcome = run.run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    outcome
}

fn wire(outcome: &Outcome) -> u64 {
    outcome.stat("Total bytes sent") + outcome.stat("Total bytes received")
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

/// Overwrites every hundredth 4 KiB block of the file.
fn overwrite_one_percent(path: &Path) {
    let blocks = fs::metadata(path).unwrap().len() / 4096;
    for block in (0..blocks).step_by(100) {
        write_at(path, (block + block % 77).min(blocks - 1) * 4096, &noise(block + 1, 4096));
    }
}

#[test]
fn one_percent_of_overwritten_blocks_sends_under_four_percent() {
    for (via, push) in [(Via::Quic, true), (Via::Ssh, true), (Via::Quic, false), (Via::Ssh, false)] {
        let outcome = second_run(via, push, 64 * MIB, overwrite_one_percent);
        let sent = wire(&outcome);
        assert!(sent * 100 < 4 * 64 * MIB, "{sent} bytes crossed the wire ({via:?})\n{}", outcome.account());
        assert_eq!(outcome.stat("Literal data") + outcome.stat("Matched data"), 64 * MIB);
    }
}

#[test]
fn bytes_inserted_at_the_front_shift_nothing_else() {
    let outcome = second_run(Via::Auto, true, 16 * MIB, |path| {
        let old = fs::read(path).unwrap();
        fs::write(path, [&b"a few new bytes"[..], &old].concat()).unwrap();
    });
    assert!(wire(&outcome) < MIB / 2, "{}", outcome.account());
}

#[test]
fn bytes_cut_out_of_the_middle_shift_nothing_else() {
    let outcome = second_run(Via::Auto, false, 16 * MIB, |path| {
        let mut old = fs::read(path).unwrap();
        old.drain(5_000_000..5_001_234);
        fs::write(path, old).unwrap();
    });
    assert!(wire(&outcome) < MIB / 2, "{}", outcome.account());
}

#[test]
fn appended_bytes_are_all_that_is_sent() {
    let outcome = second_run(Via::Auto, true, 16 * MIB, |path| write_at(path, 16 * MIB, &noise(3, 100_000)));
    assert!(wire(&outcome) < MIB / 2, "{}", outcome.account());
    assert!(outcome.stat("Literal data") >= 100_000);
}

#[test]
fn truncated_file_sends_almost_nothing() {
    let outcome = second_run(Via::Auto, true, 16 * MIB, |path| {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(9 * MIB + 17).unwrap();
    });
    assert!(wire(&outcome) < MIB / 4, "{}", outcome.account());
}

#[test]
fn blocks_that_moved_are_found() {
    let outcome = second_run(Via::Auto, true, 16 * MIB, |path| {
        let old = fs::read(path).unwrap();
        let (front, back) = old.split_at(6_543_210);
        fs::write(path, [back, front].concat()).unwrap();
    });
    assert!(wire(&outcome) < MIB / 2, "{}", outcome.account());
}

#[test]
fn incompressible_first_copy_costs_little_more_than_itself() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("f", 5, 8 * MIB)]).plant(&scratch.src());
    let run = sshd.run(Via::Auto).args(["-a", "--stats"]);
    let outcome = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run().expect_code(0);
    assert!(wire(&outcome) < 8 * MIB + 8 * MIB / 50, "{}", outcome.account());
}

#[test]
fn compressible_first_copy_costs_less_than_itself_with_z() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let content = Content { seed: 5, len: 8 * MIB, style: dsync_tests::Style::Text };
    Tree::of([Node::new("f", Kind::File(content))]).plant(&scratch.src());
    let run = sshd.run(Via::Auto).args(["-az", "--stats"]);
    let outcome = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run().expect_code(0);
    assert!(wire(&outcome) < 6 * MIB, "{}", outcome.account());
}

#[test]
fn unchanged_blocks_of_a_long_file_cost_eight_bytes_of_sums_each() {
    let outcome = second_run(Via::Auto, true, 256 * MIB, |_| {});
    assert_eq!(outcome.stat("Signature data"), 256 * MIB / (32 << 10) * 8, "{}", outcome.account());
    assert_eq!((outcome.stat("Literal data"), outcome.stat("Matched data")), (0, 256 * MIB));
}

#[test]
fn short_files_are_signed_in_one_round() {
    let outcome = second_run(Via::Auto, false, 16 * MIB, |_| {});
    assert_eq!(outcome.stat("Signature data"), 16 * MIB / (8 << 10) * 12, "{}", outcome.account());
}

#[test]
fn weak_sums_cross_the_wire_only_when_data_has_shifted() {
    const BLOCKS: u64 = 96 * MIB / (16 << 10);
    let overwritten =
        second_run(Via::Quic, true, 96 * MIB, |path| write_at(path, 12_345_678, &noise(3, 5000)));
    let sums = overwritten.stat("Signature data");
    // Plus the sums of the short blocks in the two dirty ones.
    assert!((BLOCKS * 8..BLOCKS * 9).contains(&sums), "{}", overwritten.account());
    assert!(overwritten.stat("Literal data") <= 3 * 4096, "{}", overwritten.account());
    let shifted = second_run(Via::Ssh, false, 96 * MIB, |path| {
        let mut old = fs::read(path).unwrap();
        old.splice(40_000_000..40_000_100, *b"not as long as what it replaces");
        fs::write(path, old).unwrap();
    });
    let sums = shifted.stat("Signature data");
    assert!((BLOCKS * 12..BLOCKS * 13).contains(&sums), "{}", shifted.account());
    assert!(shifted.stat("Literal data") <= 3 * 4096, "{}", shifted.account());
}
