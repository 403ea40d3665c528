//! A year of daily runs with `-c --state`: a tree that changes, runs that are killed, full disks, power
//! cuts, times of the past and the future, and states that are damaged, stale or of another pair. After
//! each run that ends well the destination is the model, and a state has at most 200 bytes for a file.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, Run, Scope, Scratch, Sshd, Via, assert_same,
    hunt::dice::Dice,
    needs_dsync,
    power::{Disk, Format},
    scratch::slash,
    strace,
    tree::{noise, set_mtime},
};

const DAYS: usize = 365;

/// Most bytes of a state for a file, and of its head.
const STATE_BYTES: (u64, u64) = (200, 4096);

/// Bytes of the disk that a full one has left.
const ROOM: u64 = 40 << 10;

/// A source, a destination on a disk of its own, and what both should have.
struct Year {
    /// Before the directory in which it is mounted: fields are dropped in this order.
    disk: Disk,
    scratch: Scratch,
    dice: Dice,
    /// Contents by path.
    model: BTreeMap<String, Vec<u8>>,
    /// States of earlier days.
    states: Vec<Vec<u8>>,
    /// Contents that runs knew by a state.
    known: u64,
    /// Whether the destination was copied to `snapshot` once.
    has_snapshot: bool,
    /// The day, and its events, for a message.
    diary: Vec<String>,
}

/// A way of a run from the source to the destination.
#[derive(Debug, Clone, Copy)]
enum Way {
    Local,
    Push,
    Pull,
}

impl Year {
    fn new(seed: u64) -> Option<Self> {
        let scratch = Scratch::new();
        let disk = Disk::create(scratch.path(), Format::Ext4, 64)?;
        fs::create_dir_all(scratch.src()).unwrap();
        Some(Self {
            disk,
            scratch,
            dice: Dice::new(seed),
            model: BTreeMap::new(),
            states: Vec::new(),
            known: 0,
            has_snapshot: false,
            diary: Vec::new(),
        })
    }

    fn dst(&self) -> PathBuf {
        self.disk.path().join("dst")
    }

    fn state_dir(&self) -> PathBuf {
        self.scratch.at("state")
    }

    fn note(&mut self, event: impl Into<String>) {
        self.diary.push(event.into());
    }

    /// Returns one of the model's paths.
    fn some_path(&mut self) -> Option<String> {
        let count = self.model.len();
        (count > 0).then(|| self.dice.below(count)).and_then(|at| self.model.keys().nth(at).cloned())
    }

    /// Writes a file of the source and of the model.
    fn put(&mut self, path: &str, content: Vec<u8>) {
        let file = self.scratch.src().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &content).unwrap();
        self.model.insert(path.to_owned(), content);
    }

    /// Changes the source and the model.
    fn work(&mut self) {
        for _ in 0..self.dice.below(5) {
            let known = self.some_path();
            match (self.dice.below(8), known) {
                (0..=2, _) | (_, None) => {
                    let path = format!("d{}/f{}", self.dice.below(4), self.dice.below(12));
                    let (seed, len) = (self.dice.number(), *self.dice.pick(&[0, 1, 700, 5000, 40_000]));
                    let content = noise(seed, len);
                    self.put(&path, content);
                    self.note(format!("write {path}"));
                }
                (3, Some(path)) => self.edit_and_restore_time(&path),
                (4, Some(path)) => {
                    let content = [&self.model[&path][..], b"more"].concat();
                    self.put(&path, content);
                    self.note(format!("append to {path}"));
                }
                (5, Some(path)) => {
                    fs::remove_file(self.scratch.src().join(&path)).unwrap();
                    self.model.remove(&path);
                    self.note(format!("remove {path}"));
                }
                (6, Some(path)) => self.rename(&path),
                (_, Some(path)) => {
                    // The clock was wrong then, or it is now.
                    let seconds = *self.dice.pick(&[1, 1_000_000_000, 1_795_000_000, 4_000_000_000]);
                    set_mtime(&self.scratch.src().join(&path), (seconds, 5));
                    self.note(format!("touch {path} at {seconds}"));
                }
            }
        }
    }

    /// Changes a byte of a source's file, and gives it the time that it had.
    fn edit_and_restore_time(&mut self, path: &str) {
        let mut content = self.model[path].clone();
        if let Some(byte) = content.last_mut() {
            *byte ^= 0x55;
            overwrite(&self.scratch.src().join(path), &content);
            self.model.insert(path.to_owned(), content);
            self.note(format!("edit {path} and restore its time"));
        }
    }

    fn rename(&mut self, path: &str) {
        let to = format!("d{}/f{}", self.dice.below(4), self.dice.below(12));
        let (from, at) = (self.scratch.src().join(path), self.scratch.src().join(&to));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::rename(from, at).unwrap();
        let content = self.model.remove(path).unwrap();
        self.model.insert(to.clone(), content);
        self.note(format!("rename {path} to {to}"));
    }

    /// Returns the files of states.
    fn state_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state_dir()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Does something to a state.
    fn spoil_state(&mut self) {
        let Some(file) = self.state_files().into_iter().next() else { return };
        let mut bytes = fs::read(&file).unwrap();
        let spoilt = match self.dice.below(5) {
            0 => {
                let at = self.dice.below(bytes.len());
                bytes[at] ^= 1 << self.dice.below(8);
                bytes
            }
            1 => bytes[..self.dice.below(bytes.len())].to_vec(),
            2 if !self.states.is_empty() => self.dice.pick(&self.states).clone(),
            3 => noise(self.dice.number(), 3000),
            _ => {
                fs::remove_file(&file).unwrap();
                self.note("the state is removed");
                return;
            }
        };
        fs::write(file, spoilt).unwrap();
        self.note("the state is spoilt, or an older one");
    }

    /// Does something to the destination behind dsync's back.
    fn spoil_destination(&mut self) {
        let dst = self.dst();
        let path = self.some_path().map(|path| dst.join(path)).filter(|path| path.is_file());
        match (self.dice.below(5), path) {
            (0, _) => {
                let _ = fs::remove_dir_all(&dst);
                self.note("the destination is emptied");
            }
            (1, _) if self.has_snapshot => {
                let _ = fs::remove_dir_all(&dst);
                copy(&self.disk.path().join("snapshot"), &dst);
                self.note("the destination is rolled back");
            }
            (2, Some(path)) => {
                fs::remove_file(path).unwrap();
                self.note("a file of the destination is removed");
            }
            (_, Some(path)) => {
                let mut content = fs::read(&path).unwrap();
                content.iter_mut().for_each(|byte| *byte ^= 0x0f);
                overwrite(&path, &content);
                self.note(format!("{} is edited and its time restored", path.display()));
            }
            _ => {}
        }
    }

    fn program(&self, way: Way) -> Run {
        match way {
            Way::Local => Run::dsync(),
            Way::Push | Way::Pull => Sshd::shared().run(Via::Ssh),
        }
    }

    fn finish(&self, run: Run, way: Way) -> Outcome {
        let run = run.args(["-avc", "--delete", "--state", "--state-dir"]).arg(self.state_dir());
        let (from, to) = (slash(&self.scratch.src()), self.dst());
        let sshd = Sshd::shared();
        match way {
            Way::Local => run.arg(from).arg(to).run(),
            Way::Push => run.arg(from).arg(sshd.operand(to)).run(),
            Way::Pull => run.arg(sshd.operand(from)).arg(to).run(),
        }
    }

    /// Makes a run that is killed, or one on a full disk. It may end well all the same.
    fn run_in_trouble(&mut self, way: Way) {
        if self.dice.chance(60) {
            let call = *self.dice.pick(&[
                "pwrite64",
                "renameat,renameat2",
                "unlinkat",
                "syncfs",
                "fsync",
                "utimensat",
            ]);
            let count = 1 + self.dice.below(6);
            let run = strace::inject_into(self.program(way), call, &format!("signal=KILL:when={count}"));
            let outcome = self.finish(run, way);
            self.note(format!("killed at {call} number {count}: {:?}", outcome.code()));
            return;
        }

        let ballast = self.disk.path().join("ballast");
        let free = Run::of("stat").args(["-f", "-c", "%a %S"]).arg(self.disk.path()).run().stdout_text();
        let numbers: Vec<u64> = free.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let len = (numbers[0] * numbers[1]).saturating_sub(ROOM);
        let fill = Run::of("fallocate").args(["-l", &len.to_string()]).arg(&ballast).run();
        let outcome = self.finish(self.program(way), way);
        self.note(format!("full disk ({:?}): {:?}", fill.code(), outcome.code()));
        let _ = fs::remove_file(ballast);
    }

    /// Makes the day's run, and holds its result against the model.
    fn run(&mut self, way: Way) {
        let outcome = self.finish(self.program(way), way);
        assert_eq!(outcome.code(), Some(0), "{:#?} {}", self.diary, outcome.account());
        self.assert_model();
        self.known += known(&outcome);
        let states = self.state_files();
        for file in &states {
            let most = STATE_BYTES.1 + STATE_BYTES.0 * 2 * self.model.len() as u64;
            let len = fs::metadata(file).unwrap().len();
            assert!(len <= most, "{len} bytes for {} files at each end", self.model.len());
        }
        if self.dice.chance(20) {
            self.states.extend(states.iter().map(|file| fs::read(file).unwrap()));
        }
    }

    fn assert_model(&self) {
        for root in [self.scratch.src(), self.dst()] {
            let found = Run::of("find").args([".", "-type", "f", "-printf", "%P\\n"]).cwd(&root).run();
            let text = found.stdout_text();
            let mut paths: Vec<&str> = text.lines().collect();
            paths.sort_unstable();
            let expected: Vec<&str> = self.model.keys().map(String::as_str).collect();
            assert_eq!(paths, expected, "{:#?}", self.diary);
            for (path, content) in &self.model {
                assert!(fs::read(root.join(path)).unwrap() == *content, "{path}: {:#?}", self.diary);
            }
        }
        assert_same(&self.scratch.src(), &self.dst(), Scope::full());
    }

    fn day(&mut self, day: usize) {
        self.note(format!("day {day}"));
        self.work();
        if self.dice.chance(20) {
            self.spoil_state();
        }
        if self.dice.chance(20) {
            self.spoil_destination();
        }
        let way = *self.dice.pick(&[Way::Local, Way::Local, Way::Local, Way::Local, Way::Push, Way::Pull]);
        if self.dice.chance(10) {
            self.run_in_trouble(way);
        }
        self.run(way);
        self.note(format!("run: {way:?}"));

        if self.dice.chance(3) {
            self.disk.cut_power();
            self.note("power cut");
            self.assert_model();
        }
        if self.dice.chance(4) {
            let snapshot = self.disk.path().join("snapshot");
            let _ = fs::remove_dir_all(&snapshot);
            copy(&self.dst(), &snapshot);
            self.has_snapshot = true;
            self.note("snapshot");
        }
    }
}

/// Returns the number of contents that a run knew.
fn known(outcome: &Outcome) -> u64 {
    let text = outcome.stderr_text();
    let line = text.lines().find_map(|line| line.strip_prefix("dsync: contents compared here: "));
    let number = line.and_then(|line| line.split_once(" known of")?.0.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_default()
}

/// Writes a file's content in place, and gives it the modification time that it had.
fn overwrite(path: &Path, content: &[u8]) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.set_modified(before).unwrap();
}

fn copy(from: &Path, to: &Path) {
    let _ = Run::of("cp").arg("-a").arg(from).arg(to).run().expect_code(0);
}

#[test]
fn destination_equals_the_model_on_every_day_of_a_year() {
    needs_dsync!();
    let Some(mut year) = Year::new(365) else { return };
    for day in 1..=DAYS {
        year.day(day);
    }
    assert!(year.known > 1000, "the states were of no use: {}", year.known);
}
