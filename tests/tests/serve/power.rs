//! A share's disk that loses its power or is full, behind a push over the port: what the server
//! acknowledged is there, no name has a mix, and the next push ends right.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use dsync_tests::{
    Node, Run, Scope, Tree, assert_same,
    compare::temporaries,
    needs_dsync,
    power::{Disk, Format},
    run::{is_alive, send, until_met, wait_for},
    tree::noise,
};
use rustix::process::Signal;

use crate::{
    killed::{BIG, held_push, is_old, plant_old},
    nas::{Nas, children},
};

const ROLES: [&str; 4] = ["append", "keep", "write", "full"];

/// A server whose share is on a disk of its own.
struct Bench {
    /// Before the directory in which it is mounted: fields are dropped in this order.
    disk: Disk,
    nas: Nas,
    /// The server's key.
    key: String,
}

impl Bench {
    /// Starts the server; returns `None` with the test recorded as skipped.
    fn new(format: Format, role: &str) -> Option<Self> {
        let (nas, key) = Nas::offering(role);
        let disk = Disk::create(nas.scratch.path(), format, 64)?;
        fs::remove_dir_all(nas.scratch.at("share")).unwrap();
        symlink("disk", nas.scratch.at("share")).unwrap();
        fs::create_dir_all(nas.tree()).unwrap();
        let mut bench = Self { disk, nas, key };
        bench.start();
        Some(bench)
    }

    fn start(&mut self) {
        self.nas.stand();
        self.nas.know(&self.key);
    }

    fn sync(&self) {
        let _ = Run::of("sync").arg("-f").arg(self.disk.path()).run().expect_code(0);
    }

    /// Cuts the power of the server's machine, and starts the server again.
    fn cut_power(&mut self) {
        let server = self.nas.server.take().unwrap();
        let mut processes = children(server.process.id());
        processes.push(server.process.id());
        processes.iter().for_each(|process| send(*process, Signal::KILL));
        drop(server);
        wait_for(|| !processes.iter().any(|process| is_alive(*process)));

        self.disk.cut_power();
        self.start();
    }

    /// Returns the files below a directory of the share that have this content.
    fn holding(&self, dir: &str, content: &[u8]) -> Vec<PathBuf> {
        let found = Run::of("find").arg(self.nas.scratch.at(dir)).args(["-type", "f"]).run();
        let text = found.stdout_text();
        let paths = text.lines().map(PathBuf::from);
        paths.filter(|path| fs::read(path).unwrap() == content).collect()
    }
}

/// Makes a tree of small files, a large one, a link and an empty directory.
fn new_tree() -> Tree {
    let small = (0..40_u64).map(|index| Node::file(format!("d{}/f{index}", index % 3), index, 3000 + index));
    let others = [Node::file("large", 7, 9 << 20), Node::symlink("link", "large"), Node::dir("empty")];
    Tree::of((0..3).map(|dir| Node::dir(format!("d{dir}"))).chain(small).chain(others))
}

#[test]
fn what_the_server_acknowledged_survives_a_power_cut() {
    needs_dsync!();
    for (format, role) in
        [Format::Ext4, Format::Xfs].into_iter().flat_map(|format| ROLES.map(|role| (format, role)))
    {
        let Some(mut bench) = Bench::new(format, role) else { return };
        let replaces = role != "append";
        new_tree().plant(&bench.nas.scratch.src());
        if replaces {
            fs::write(bench.nas.there("large"), "old").unwrap();
        }
        bench.sync();

        let _ = bench.nas.push(&[]).expect_quiet_success();
        bench.cut_power();
        // A key that only adds does not change the directory that was there.
        let scope = Scope { root: replaces, ..Scope::full() };
        assert_same(&bench.nas.scratch.src(), &bench.nas.tree(), scope);
        assert_eq!(temporaries(&bench.nas.place()), Vec::<String>::new(), "{format:?} {role}");
        let kept = bench.holding("share/.dsync-kept", b"old");
        assert_eq!(kept.len(), usize::from(role == "keep"), "{format:?} {role}");

        let again = bench.nas.push(&["-i"]).expect_code(0);
        assert_eq!(again.stdout_text(), "", "{format:?} {role}: {}", again.account());
    }
}

#[test]
fn a_push_that_a_power_cut_ends_leaves_the_old_file_and_goes_on() {
    needs_dsync!();
    let new = noise(1, BIG);
    for (format, role) in
        [(Format::Ext4, "append"), (Format::Ext4, "keep"), (Format::Xfs, "full"), (Format::Xfs, "keep")]
    {
        let Some(mut bench) = Bench::new(format, role) else { return };
        fs::write(bench.nas.scratch.src().join("big"), &new).unwrap();
        let client = until_met(|| {
            plant_old(&bench.nas, role);
            bench.sync();
            held_push(&bench.nas, role)
        });
        bench.cut_power();
        client.signal(Signal::CONT);
        assert_ne!(client.wait().code(), Some(0), "{format:?} {role}");
        assert!(is_old(&bench.nas, role), "{format:?} {role}");

        let _ = bench.nas.push(&[]).expect_quiet_success();
        assert_eq!(fs::read(bench.nas.there("big")).unwrap(), new, "{format:?} {role}");
        let kept = bench.holding("share/.dsync-kept", b"old");
        assert_eq!(kept.len(), usize::from(role == "keep"), "{format:?} {role}");
        wait_for(|| temporaries(&bench.nas.place()).is_empty());
    }
}

#[test]
fn a_push_that_fills_the_shares_disk_leaves_the_old_files_and_ends_with_11() {
    needs_dsync!();
    for role in ["append", "keep", "full"] {
        let Some(bench) = Bench::new(Format::Ext4, role) else { return };
        let big = bench.nas.scratch.src().join("big");
        fs::write(&big, noise(1, 100 << 20)).unwrap();
        plant_old(&bench.nas, role);
        let full = bench.nas.push(&["--retries=0"]).expect_code(11);
        assert!(full.stderr_text().contains("No space left on device"), "{role}: {}", full.account());
        assert!(is_old(&bench.nas, role), "{role}: {}", full.account());

        // The client hears of the end before its session has cleaned up.
        wait_for(|| temporaries(&bench.nas.place()).is_empty());
        fs::write(&big, "it fits").unwrap();
        let _ = bench.nas.push(&[]).expect_quiet_success();
        assert_eq!(fs::read(bench.nas.there("big")).unwrap(), b"it fits", "{role}");
        wait_for(|| temporaries(&bench.nas.place()).is_empty());
    }
}
