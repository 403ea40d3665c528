//! A real tree of 50,000 files and more, both directions, both carriers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Outcome, Scope, Scratch, Sshd, Tree, Via, assert_rsync_agrees, compare, is_stand_in,
    run::{MemoryWatch, until_met},
    scratch::slash,
    survey,
};

/// Fewest entries of a real tree.
const ENTRIES: usize = 50_000;

/// Most memory that either end may hold when it is not kept from reading.
const MEMORY: u64 = 100 << 20;
/// Bytes that wait unread in a connection over QUIC, beside that, where the machine is too busy to read them:
/// its window, and one and a half times as much of the datagrams that they came in, which quinn-proto 0.11 lets
/// them keep (`Assembler::insert`).
const UNREAD: u64 = (31 << 20) * 5 / 2;

/// Returns the number of entries under a directory, up to a sufficient number.
fn entries(root: &Path) -> usize {
    let (mut found, mut pending) = (0, vec![root.to_owned()]);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            found += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
        if found > ENTRIES * 2 {
            break;
        }
    }
    found
}

/// Returns the machine's own documents if there are enough, else the toolchain's, else generated
/// files.
fn real_tree(scratch: &Scratch) -> PathBuf {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot =
        sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let candidates = [PathBuf::from("/usr/share"), PathBuf::from(sysroot).join("share")];
    if let Some(found) = candidates.into_iter().find(|path| path.is_absolute() && entries(path) >= ENTRIES) {
        return found;
    }
    let dirs = (0..500).map(|dir| Node::dir(format!("d{dir}")));
    let files =
        (0..50_000_u64).map(|file| Node::file(format!("d{}/f{file}", file % 500), file, file * 31 % 6000));
    Tree::of(dirs.chain(files)).plant(&scratch.at("generated"));
    scratch.at("generated")
}

struct Case {
    scratch: Scratch,
    source: PathBuf,
    before: std::collections::BTreeMap<Vec<u8>, compare::Facts>,
}

impl Case {
    /// Copies; returns the outcome and the more memory of the two ends.
    fn copy(&self, via: Via, push: bool) -> (Outcome, u64) {
        let sshd = Sshd::shared();
        let remote = sshd.remote();
        let watch = MemoryWatch::start(&remote.pid_file);
        let run = sshd.run_serving(via, &remote.script).args(["-a", "--stats"]);
        let run = if push {
            run.arg(slash(&self.source)).arg(sshd.operand(self.scratch.dst()))
        } else {
            run.arg(sshd.operand(slash(&self.source))).arg(self.scratch.dst())
        };
        let outcome = run.run().expect_code(0);
        let (here, there) = (outcome.peak_memory, watch.stop());
        eprintln!("{via:?} push={push}: {:?}, peak memory here {here}, there {there}", outcome.elapsed);
        if is_stand_in() {
            return (outcome, 0);
        }
        let most = MEMORY + if via == Via::Quic { UNREAD } else { 0 };
        assert!(here < most, "the local end took {here} bytes\n{}", outcome.account());
        assert!(there < most && there > 0, "the remote end took {there} bytes\n{}", outcome.account());
        (outcome, here.max(there))
    }

    fn check(&self, via: Via, push: bool) {
        let first = until_met(|| {
            let _ = fs::remove_dir_all(self.scratch.dst());
            let (first, memory) = self.copy(via, push);
            (memory < MEMORY).then_some(first)
        });
        assert!(first.stat("Number of regular files transferred") > 1000, "{}", first.account());
        let found = compare::compare(&self.before, &survey(&self.scratch.dst()), Scope::full());
        assert!(found.is_empty(), "{} differences: {}", found.len(), found[..found.len().min(10)].join("\n"));
        assert_rsync_agrees(&self.source, &self.scratch.dst());
        let (second, memory) = self.copy(via, push);
        assert!(memory < MEMORY, "{memory} bytes\n{}", second.account());
        assert_eq!(second.stat("Number of regular files transferred"), 0, "{}", second.account());
        assert_eq!(second.stat("Literal data"), 0, "{}", second.account());
        fs::remove_dir_all(self.scratch.dst()).unwrap();
    }
}

#[test]
fn real_tree_goes_both_ways_over_both_carriers_in_little_memory() {
    let scratch = Scratch::new();
    let source = real_tree(&scratch);
    let before = survey(&source);
    assert!(before.len() >= ENTRIES);
    let case = Case { scratch, source, before };
    for (via, push) in [(Via::Quic, true), (Via::Ssh, false), (Via::Ssh, true), (Via::Quic, false)] {
        case.check(via, push);
    }
}
