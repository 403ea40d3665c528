//! Spans: what goes as digests has the result of what goes as it is, and costs next to nothing where
//! nothing changed.
//!
//! A local run has no spans, so it is what a run over a link is compared with.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, Run, Scope, Scratch, Sshd, Via, assert_same, differences, needs_dsync, program, scratch::slash,
    strace::watch, tree::set_mtime,
};

/// Numbers that are the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Plants directories of files, links and empty directories. Some directories have very many entries, and
/// names repeat from one to the next.
fn plant(root: &Path, dice: &mut Dice, directories: usize) {
    let mut all = vec![root.to_path_buf()];
    fs::create_dir_all(root).unwrap();
    for number in 0..directories {
        let directory = dice.one(&all).join(format!("d{number}"));
        fs::create_dir(&directory).unwrap();
        let files = if number % 7 == 3 { 200 + dice.below(300) } else { dice.below(20) };
        for file in 0..files {
            write(&directory.join(format!("file{file}.{}", dice.one(&["c", "o", "txt"]))), dice);
        }
        if dice.below(3) == 0 {
            symlink(format!("../target{}", dice.below(5)), directory.join("link")).unwrap();
        }
        all.push(directory);
    }
}

fn write(path: &Path, dice: &mut Dice) {
    fs::write(path, vec![b'x'; dice.below(50)]).unwrap();
    set_mtime(path, (1_600_000_000 + dice.below(1000) as i64, dice.below(1_000_000_000) as i64));
}

/// Returns all entries below a directory, in order.
fn entries(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        // The types come with the names: this walks the tree once for each change.
        let entry = |entry: std::io::Result<fs::DirEntry>| entry.and_then(|e| Ok((e.path(), e.file_type()?)));
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|read| entry(read).unwrap()).collect();
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        left.extend(names.iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path.clone()));
        found.extend(names.into_iter().map(|(path, _)| path));
    }
    found
}

/// Changes some entries in every way.
fn change(root: &Path, dice: &mut Dice, changes: usize) {
    for number in 0..changes {
        let all = entries(root);
        if all.is_empty() {
            return plant(&root.join("again"), dice, 3);
        }
        let path = dice.one(&all).clone();
        let is_directory = path.is_dir() && !path.is_symlink();
        match dice.below(9) {
            0 if is_directory => fs::remove_dir_all(&path).unwrap(),
            0 | 1 if !is_directory => fs::remove_file(&path).unwrap(),
            2 if !path.is_symlink() => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700 + dice.below(8) as u32)).unwrap();
            }
            3 if !path.is_symlink() => set_mtime(&path, (1_500_000_000 + dice.below(99) as i64, 0)),
            4 if is_directory => {
                let new = path.with_file_name(format!("moved{number}-{}", dice.below(99)));
                fs::rename(&path, new).unwrap();
            }
            5 if !is_directory => {
                fs::remove_file(&path).unwrap();
                plant(&path, dice, 2);
            }
            6 => symlink("elsewhere", path.with_file_name(format!("new-link{number}"))).unwrap(),
            7 => plant(&path.with_file_name(format!("new{number}")), dice, 4),
            _ if !is_directory && !path.is_symlink() => write(&path, dice),
            _ => {}
        }
    }
}

/// Copies with the system's own means.
fn copy(from: &Path, to: &Path) {
    let _ = Run::of("cp").arg("-a").arg(from).arg(to).run().expect_code(0);
}

fn lines(outcome: &Outcome) -> Vec<String> {
    // Sent or received, as the direction has it.
    let line = |line: &str| line.strip_prefix('<').map_or_else(|| line.to_owned(), |rest| format!(">{rest}"));
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(line).collect();
    lines.sort();
    lines
}

/// Options of runs with spans, and of some without.
const ROWS: [&[&str]; 16] = [
    &["-ai"],
    &["-ai", "--delete"],
    &["-ain", "--delete"],
    &["-rlti"],
    &["-ri"],
    &["-aii", "--delete"],
    &["-ai", "--delete", "--exclude=*.o"],
    &["-ai", "--delete", "--exclude=*.o", "--delete-excluded"],
    &["-ai", "--delete", "--exclude=/d1/", "--include=*.c", "--exclude=file1*"],
    &["-aiu", "--existing"],
    &["-ai", "--ignore-existing"],
    &["-ai", "--no-times", "--chmod=g+w"],
    &["-ai", "-O", "--delete-before"],
    &["-ai", "--backup", "--suffix=.old"],
    &["-aiH", "--delete"],
    &["-aiI", "--max-size=40"],
];

/// Returns what is the same whenever a run is made.
fn scope(options: &[&str]) -> Scope {
    let times = options[0].contains(['a', 't']) && !options.contains(&"--no-times");
    // Directories that only the destination has keep the time of a change in them.
    let changes_others = options.contains(&"-O") || options.contains(&"--backup");
    Scope { times, dir_times: times && !changes_others, ..Scope::full() }
}

#[test]
fn runs_with_spans_are_runs_without() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (row, options) in ROWS.iter().enumerate() {
        let mut dice = Dice(row as u64 * 77 + 1);
        let scratch = Scratch::new();
        let (source, old) = (scratch.src(), scratch.at("old"));
        plant(&source, &mut dice, 60);
        copy(&source, &old);
        // Few changes as a rule, and sometimes nothing but changes.
        let changes = [0, 1, 5, 60][row % 4];
        change(&source, &mut dice, changes);
        change(&old, &mut dice, changes / 4);

        let [plain, spans] = ["plain", "spans"].map(|name| scratch.at(name));
        [&plain, &spans].into_iter().for_each(|to| copy(&old, to));
        let operand = slash(&source);
        for again in [false, true] {
            let what = format!("{options:?}, again: {again}");
            let expected = Run::dsync().args(*options).arg(&operand).arg(&plain).run();
            let run = sshd.run(Via::Ssh).args(*options);
            let outcome = match row % 2 {
                0 => run.arg(&operand).arg(sshd.operand(&spans)).run(),
                _ => run.arg(sshd.operand(&operand)).arg(&spans).run(),
            };
            assert_eq!(outcome.code(), expected.code(), "{what}\n{}", outcome.account());
            let (found, expected) = (lines(&outcome), lines(&expected));
            let other = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!((other, found.len()), (None, expected.len()), "{what}");
            let found = differences(&plain, &spans, scope(options));
            assert!(found.is_empty(), "{what}: {found:?}");
        }
    }
}

#[test]
fn a_directory_by_its_name_goes_as_spans_too() {
    needs_dsync!();
    let (scratch, sshd, mut dice) = (Scratch::new(), Sshd::shared(), Dice(5));
    plant(&scratch.src(), &mut dice, 60);
    fs::create_dir(scratch.dst()).unwrap();
    // Names beside the source's are none of the run's.
    plant(&scratch.dst().join("beside"), &mut dice, 40);
    copy(&scratch.src(), &scratch.dst());
    let run =
        || sshd.run(Via::Ssh).args(["-ai", "--stats"]).arg(scratch.src()).arg(sshd.operand(scratch.dst()));
    let outcome = run().run().expect_code(0);
    let entries = entries(&scratch.src()).len() as u64;
    assert!(bytes(&outcome) < 8 * entries, "{entries} entries\n{}", outcome.account());
    change(&scratch.src(), &mut dice, 8);
    let _ = run().run().expect_code(0);
    change(&scratch.dst().join("beside"), &mut dice, 8);
    let outcome = run().run().expect_code(0);
    assert!(!outcome.stdout_text().contains("+++"), "{}", outcome.account());
}

/// Returns the bytes of both directions.
fn bytes(outcome: &Outcome) -> u64 {
    outcome.stat("Total bytes sent") + outcome.stat("Total bytes received")
}

/// Bytes that signs of life may add on a slow machine, in several minutes.
const SIGNS_OF_LIFE: u64 = 30_000;

#[test]
fn a_destination_lists_each_directory_once() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let directories = 200;
    for directory in 0..directories {
        let directory = scratch.src().join(format!("directory{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..40).for_each(|file| fs::write(directory.join(format!("file{file}")), "").unwrap());
    }
    copy(&scratch.src(), &scratch.dst());

    // The client is the destination, and its own lists are all that it reads.
    let (outcome, calls) = watch("getdents64", &scratch.at("calls"), |run| {
        let run = run.args(["-a", "--stats", "--transport=ssh", "--dsync-path"]).arg(program());
        run.arg("-e").arg(sshd.shell()).arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
    });
    let outcome = outcome.expect_code(0);
    assert!(bytes(&outcome) < 8_000 + SIGNS_OF_LIFE, "{}", outcome.account());
    // One call for the names of a directory, and one for its end.
    assert!(calls.len() >= 2 * directories, "{} calls", calls.len());
    assert!(calls.len() < 3 * directories, "{} calls", calls.len());
}

#[test]
fn a_local_run_has_no_spans() {
    needs_dsync!();
    let (scratch, mut dice) = (Scratch::new(), Dice(9));
    plant_dense(&scratch.src(), &mut dice);
    copy(&scratch.src(), &scratch.dst());
    let listed = |options: &[&str]| {
        let run = Run::dsync().args(["-a", "--stats"]).args(options);
        bytes(&run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0))
    };
    // Spans do not go with this option.
    let (local, whole) = (listed(&[]), listed(&["--one-file-system"]));
    assert!(whole > 3 * SIGNS_OF_LIFE && local > whole / 2, "{local} of {whole}");
}

/// Plants entries whose names and times no compression makes small.
fn plant_dense(root: &Path, dice: &mut Dice) {
    for directory in 0..40 {
        let directory = root.join(format!("directory{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..400 {
            write(&directory.join(format!("{:x}-{file}", dice.below(1 << 30))), dice);
        }
    }
}

#[test]
fn a_run_without_changes_sends_digests() {
    needs_dsync!();
    let (scratch, sshd, mut dice) = (Scratch::new(), Sshd::shared(), Dice(9));
    plant_dense(&scratch.src(), &mut dice);
    copy(&scratch.src(), &scratch.dst());
    let run = |options: &[&str]| {
        let run = sshd.run(Via::Ssh).args(["-a", "--stats"]).args(options);
        run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run().expect_code(0)
    };

    // Under `-H` nothing is told by its digest. Here it changes nothing else.
    let plain = bytes(&run(&["-H"]));
    assert!(plain > 3 * SIGNS_OF_LIFE, "{plain}");
    let unchanged = bytes(&run(&[]));
    assert!(unchanged < 7_000 + SIGNS_OF_LIFE, "{unchanged} of {plain}");

    let all = entries(&scratch.src());
    all.iter().skip(777).step_by(1600).for_each(|path| set_mtime(path, (1_000_000_000, 0)));
    let changed = bytes(&run(&["-n"]));
    assert!(changed < 50_000 + SIGNS_OF_LIFE, "{changed} of {plain}");

    // Where everything differs, what was tried costs no more than a twentieth.
    all.iter().for_each(|path| set_mtime(path, (1_000_000_000, dice.below(1_000_000_000) as i64)));
    let (plain, tried) = (bytes(&run(&["-nH"])), bytes(&run(&["-n"])));
    assert!(tried < plain + plain / 20 + SIGNS_OF_LIFE, "{tried} of {plain}");
    let empty = scratch.at("empty");
    fs::create_dir(&empty).unwrap();
    for to in [empty, scratch.at("missing")] {
        let run = |options| {
            let run = sshd.run(Via::Ssh).args(["-an", "--stats", options]).arg(slash(&scratch.src()));
            bytes(&run.arg(sshd.operand(&to)).run().expect_code(0))
        };
        let (plain, tried) = (run("-H"), run("-a"));
        assert!(tried < plain + plain / 20 + SIGNS_OF_LIFE, "{tried} of {plain}");
    }
}

#[test]
fn owners_that_are_mapped_are_learnt() {
    needs_dsync!();
    dsync_tests::needs_root!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    fs::create_dir_all(scratch.src()).unwrap();
    (0..8000).for_each(|file| fs::write(scratch.src().join(format!("file{file}")), b"x").unwrap());
    let run = || {
        let run = sshd.run(Via::Ssh).args(["-ai", "--stats", "--usermap=0:4321", "--groupmap=*:1234"]);
        run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
    };
    let _ = run().run().expect_code(0);
    let again = run().run().expect_code(0);
    assert!(!again.stdout_text().contains("file1"), "{}", again.account());
    assert!(bytes(&again) < 12_000 + SIGNS_OF_LIFE, "{}", again.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope { owners: false, ..Scope::full() });
}
