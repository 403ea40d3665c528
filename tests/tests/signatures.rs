//! `--state` without `-c`: a large old file that this end wrote in an earlier run is not read to be
//! signed. Whatever happens to it, or to what is kept, costs time only.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Tree, assert_same,
    mount::Mount,
    needs_dsync, program, remote_shell,
    run::{until_met, wait_for},
    scratch::slash,
    strace::whole_calls,
};

/// Long enough that strong sums go first, and the others when they are asked for.
const LEN: u64 = 96 << 20;
const BLOCK: u64 = 16 << 10;

/// Two trees with one image, a state, and a remote end that is a child of the run.
struct Place {
    scratch: Scratch,
    pulls: bool,
}

impl Place {
    fn new(pulls: bool) -> Self {
        let scratch = Scratch::new();
        Tree::of([Node::file("image", 1, LEN)]).plant(&scratch.src());
        remote_shell::write(scratch.at("shell"), remote_shell::PLAIN);
        Self { scratch, pulls }
    }

    fn image(&self) -> PathBuf {
        self.scratch.dst().join("image")
    }

    fn state_dir(&self) -> PathBuf {
        self.scratch.at("states").join("dsync")
    }

    fn kept(&self) -> Vec<PathBuf> {
        let Ok(found) = fs::read_dir(self.state_dir()) else { return Vec::new() };
        found.map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns the file with the sums of the image.
    fn sums(&self) -> PathBuf {
        let mut kept = self.kept();
        assert_eq!(kept.len(), 1, "{kept:?}");
        kept.remove(0)
    }

    /// Writes into every hundredth block of the source's image, to give it another content for each
    /// `seed`. Returns the number of blocks.
    fn edit_source(&self, seed: u8) -> u64 {
        let image = fs::File::options().write(true).open(self.scratch.src().join("image")).unwrap();
        let places: Vec<u64> = (0..LEN).step_by(usize::try_from(100 * BLOCK).unwrap()).collect();
        for at in &places {
            image.write_all_at(&[seed; 4000], at + 4096).unwrap();
        }
        places.len() as u64
    }

    /// Makes a run of these options.
    fn run(&self, options: &[&str]) -> Run {
        let run =
            Run::dsync().args(["-a", "-v", "--stats", "--transport=ssh", "-e"]).arg(self.scratch.at("shell"));
        let run = run.arg("--dsync-path").arg(program()).args(options);
        let run = run.env("XDG_STATE_HOME", self.scratch.at("states"));
        let (from, to) = (slash(&self.scratch.src()), self.scratch.dst());
        let remote = |path: &Path| format!("host:{}", path.display());
        match self.pulls {
            true => run.arg(remote(from.as_ref())).arg(to),
            false => run.arg(from).arg(remote(&to)),
        }
    }

    /// Copies; the trees are equal then.
    fn copy(&self, options: &[&str]) -> Outcome {
        let outcome = self.run(options).run().expect_code(0);
        assert_same(&self.scratch.src(), &self.scratch.dst(), Scope::full());
        outcome
    }

    /// Copies as [`copy`](Self::copy) does. Returns the bytes that were read of the old image as well.
    fn copy_traced(&self, options: &[&str]) -> (Outcome, u64) {
        let log = self.scratch.at("trace");
        let run = self.run(options).behind([
            "strace",
            "-f",
            "-qq",
            "-y",
            "-s",
            "0",
            "-e",
            "trace=read,pread64,copy_file_range",
            "-o",
            log.to_str().unwrap(),
        ]);
        let outcome = run.run().expect_code(0);
        assert_same(&self.scratch.src(), &self.scratch.dst(), Scope::full());
        let of_image = format!("<{}", self.image().display());
        let trace = fs::read_to_string(&log).unwrap();
        let reads = whole_calls(&trace).into_iter().filter_map(|call| {
            let (call, result) = call.rsplit_once(" = ")?;
            // strace says of a file that was replaced meanwhile that it is deleted.
            call.split_once(',')?.0.contains(&of_image).then(|| result.parse().unwrap_or(0))
        });
        (outcome, reads.sum())
    }
}

/// Returns whether a pull took the sums of an earlier run.
fn took(outcome: &Outcome) -> bool {
    outcome
        .all_text()
        .contains("dsync: old files not read here, as their sums were known of earlier runs: 1 (")
}

#[test]
fn an_image_that_was_written_by_a_run_is_not_read_by_the_next_but_where_it_copies() {
    needs_dsync!();
    for pulls in [false, true] {
        let place = Place::new(pulls);
        let _ = place.copy(&["--state"]);
        assert_eq!(place.kept().len(), 1);

        // Each run leaves the sums of what it has written.
        for seed in [1, 2] {
            let changed = place.edit_source(seed);
            let (outcome, read) = place.copy_traced(&["--state"]);
            let copied = outcome.stat("Matched data");
            assert!(copied > LEN / 10 * 9, "{copied}");
            let beyond = read.saturating_sub(copied);
            assert!(beyond <= LEN / 20, "{beyond} bytes read beyond what was copied\n{}", outcome.account());
            let literal = outcome.stat("Literal data");
            assert!(literal <= changed * BLOCK / 2, "{literal} literal bytes for {changed} blocks");
            assert_eq!(took(&outcome), pulls, "{}", outcome.account());
            assert_eq!(place.kept().len(), 1, "those of the replaced file are gone");
        }

        // Shifted data needs the weak sums.
        let image = place.scratch.src().join("image");
        let content = fs::read(&image).unwrap();
        fs::write(&image, [&[9; 1000][..], &content].concat()).unwrap();
        let (outcome, read) = place.copy_traced(&["--state"]);
        let beyond = read.saturating_sub(outcome.stat("Matched data"));
        assert!(beyond <= LEN / 20, "{beyond} bytes read beyond what was copied\n{}", outcome.account());
        let literal = outcome.stat("Literal data");
        assert!(literal < 100_000, "{literal}");

        place.edit_source(3);
        let (outcome, read) = place.copy_traced(&[]);
        assert!(read >= LEN + outcome.stat("Matched data"), "without --state it is read to be signed");
    }
}

#[test]
fn a_file_that_is_written_in_place_keeps_its_sums_too() {
    needs_dsync!();
    let place = Place::new(true);
    let _ = place.copy(&["--state", "--inplace"]);
    for seed in [1, 2] {
        place.edit_source(seed);
        let outcome = place.copy(&["--state", "--inplace"]);
        assert!(took(&outcome), "{}", outcome.account());
        assert!(outcome.stat("Literal data") < LEN / 50, "{}", outcome.account());
    }
}

#[test]
fn a_file_that_gets_its_name_or_a_further_one_at_the_end_keeps_its_sums() {
    needs_dsync!();
    for options in
        [&["--state", "--delay-updates"][..], &["--state", "-H"], &["--state", "-H", "--delay-updates"]]
    {
        let place = Place::new(true);
        fs::hard_link(place.scratch.src().join("image"), place.scratch.src().join("further")).unwrap();
        let _ = place.copy(options);
        for seed in [1, 2] {
            place.edit_source(seed);
            let outcome = place.copy(options);
            assert!(
                outcome.all_text().contains("as their sums were known of earlier runs: "),
                "{options:?}: {}",
                outcome.account()
            );
            assert!(outcome.stat("Literal data") < LEN / 20, "{}", outcome.account());
        }

        // A further name or another mode of what is up to date changes nothing of it.
        let third = place.scratch.src().join("third");
        fs::hard_link(place.scratch.src().join("image"), &third).unwrap();
        fs::set_permissions(third, fs::Permissions::from_mode(0o600)).unwrap();
        let _ = place.copy(options);
        place.edit_source(3);
        let outcome = place.copy(options);
        assert!(
            outcome.all_text().contains("as their sums were known of earlier runs: "),
            "{options:?}: {}",
            outcome.account()
        );
    }
}

#[test]
fn no_more_is_sent_than_without_a_state() {
    needs_dsync!();
    let sent = |options: &[&str]| {
        let place = Place::new(true);
        let _ = place.copy(options);
        place.edit_source(1);
        let outcome = place.copy(options);
        (outcome.stat("Total bytes sent"), outcome.stat("Total bytes received"))
    };
    let (with, without) = (sent(&["--state", "--no-compress"]), sent(&["--no-compress"]));
    // The key and the option.
    assert!(with.0 <= without.0 + 100 && with.1 <= without.1 + 100, "{with:?} {without:?}");
}

#[test]
fn a_run_that_finds_nothing_to_do_opens_and_writes_nothing_of_it() {
    needs_dsync!();
    let place = Place::new(true);
    let _ = place.copy(&["--state"]);
    let written =
        || fs::metadata(place.sums()).map(|found| (found.ino(), found.mtime(), found.mtime_nsec())).unwrap();
    let before = written();
    let log = place.scratch.at("trace");
    let run = place.run(&["--state"]).behind([
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=openat,openat2",
        "-o",
        log.to_str().unwrap(),
    ]);
    let _ = run.run().expect_code(0);
    assert_eq!(written(), before);
    let name = place.sums().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(!fs::read_to_string(&log).unwrap().contains(&name));
}

#[test]
fn a_local_run_and_the_source_of_a_push_keep_nothing_without_comparing() {
    needs_dsync!();
    let place = Place::new(false);
    let run = Run::dsync().args(["-a", "--state"]).env("XDG_STATE_HOME", place.scratch.at("states"));
    let _ = run.arg(slash(&place.scratch.src())).arg(place.scratch.dst()).run().expect_quiet_success();
    assert!(!place.scratch.at("states").exists());
}

/// Changes the image at the destination in some way that keeps its size.
type Change = fn(&Place);

#[test]
fn the_sums_of_an_old_file_that_is_no_longer_the_same_are_not_taken() {
    needs_dsync!();
    let cases: &[(&str, Change)] = &[
        ("edited, with its time restored", |place| {
            let before = fs::metadata(place.image()).unwrap().modified().unwrap();
            let image = fs::File::options().write(true).open(place.image()).unwrap();
            image.write_all_at(b"edited", LEN / 2).unwrap();
            image.set_modified(before).unwrap();
        }),
        ("a snapshot that was rolled back", |place| {
            let old = place.scratch.at("old");
            let _ = Run::of("cp").args(["-a"]).arg(place.scratch.dst()).arg(&old).run().expect_code(0);
            fs::remove_dir_all(place.scratch.dst()).unwrap();
            fs::rename(&old, place.scratch.dst()).unwrap();
        }),
        ("another file moved to its name", |place| {
            let other = place.scratch.at("other");
            let _ = Run::of("cp").args(["-a"]).arg(place.image()).arg(&other).run().expect_code(0);
            let file = fs::File::options().write(true).open(&other).unwrap();
            file.write_all_at(b"other", 5000).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            fs::rename(&other, place.image()).unwrap();
        }),
    ];
    for (name, change) in cases {
        let place = Place::new(true);
        let _ = place.copy(&["--state"]);
        change(&place);
        place.edit_source(1);
        let outcome = place.copy(&["--state"]);
        assert!(!took(&outcome), "{name}: {}", outcome.account());
        assert!(outcome.stat("Literal data") < LEN / 50, "{name}: {}", outcome.account());
        place.edit_source(2);
        assert!(took(&place.copy(&["--state"])), "{name}");
    }
}

#[test]
fn another_filesystem_at_the_same_path_has_no_known_sums() {
    needs_dsync!();
    let place = Place::new(true);
    let _ = fs::remove_dir_all(place.scratch.dst());
    for seed in [1, 2] {
        let Some(_disk) = Mount::of_type("ext4", &place.scratch.dst()) else { return };
        let outcome = place.run(&["--state"]).run().expect_code(0);
        assert!(!took(&outcome), "{}", outcome.account());
        place.edit_source(seed);
        assert!(took(&place.run(&["--state"]).run().expect_code(0)));
        drop(_disk);
        fs::remove_dir_all(place.scratch.dst()).unwrap();
        let _ = fs::remove_file(place.scratch.dst().with_extension("img"));
    }
}

/// Returns whether a process has the file open.
fn is_open(path: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let descriptors = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok()).flatten();
    descriptors.flatten().any(|one| fs::read_link(one.path()).is_ok_and(|open| open == path))
}

/// Makes the kept sums those of the image as it is, whatever it contains: its stamp is put into them,
/// and the hash over all is made right.
fn plant_stamp(sums: &Path, image: &Path) {
    // A test beside this one that starts a program has for a moment a child with all descriptors of this
    // process, so the image may still be open for writing, and a file that is has no sums.
    let image = &image.canonicalize().unwrap();
    wait_for(|| !is_open(image));
    let now = fs::metadata(image).unwrap();
    let mut bytes = fs::read(sums).unwrap();
    bytes.truncate(bytes.len() - 32);
    // The first line, the filesystem's number, the inode's and the size; then the times.
    let times = b"dsync-sums 1\n".len() + 24;
    let stamp = [(now.mtime(), now.mtime_nsec()), (now.ctime(), now.ctime_nsec())];
    for (at, (seconds, nanoseconds)) in [times, times + 12].into_iter().zip(stamp) {
        bytes[at..at + 8].copy_from_slice(&seconds.to_le_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&u32::try_from(nanoseconds).unwrap().to_le_bytes());
    }
    bytes.extend(blake3::hash(&bytes).as_bytes());
    fs::write(sums, bytes).unwrap();
}

#[test]
fn wrong_sums_cost_a_second_request_and_never_a_wrong_file() {
    needs_dsync!();
    for options in [&["--state"][..], &["--state", "--inplace"]] {
        let place = Place::new(true);
        let _ = place.copy(options);
        let sums = place.sums();
        // The sums say that the image is still the source's, everywhere but where that was edited.
        let image = fs::File::options().write(true).open(place.image()).unwrap();
        for at in [LEN / 3, LEN - 10] {
            image.write_all_at(b"rotten", at).unwrap();
        }
        // Of no time that the source's image has.
        image.set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5)).unwrap();
        drop(image);
        plant_stamp(&sums, &place.image());
        place.edit_source(1);
        let outcome = place.copy(options);
        assert!(took(&outcome), "the sums were believed: {}", outcome.account());
        assert!(outcome.stat("Literal data") >= LEN, "it was asked for again: {}", outcome.account());

        // The signature that is kept then is right again.
        place.edit_source(2);
        let outcome = place.copy(options);
        assert!(took(&outcome) && outcome.stat("Literal data") < LEN / 50, "{}", outcome.account());
    }
}

#[test]
fn sums_that_cannot_be_used_or_kept_are_one_line() {
    needs_dsync!();
    let place = Place::new(true);
    let _ = place.copy(&["--state"]);
    let whole = fs::read(place.sums()).unwrap();
    let (mut damaged, mut newer) = (whole.clone(), whole.clone());
    damaged[whole.len() / 2] ^= 4;
    newer[11] = b'2';
    for (seed, (content, words)) in (1..).zip([
        (&damaged[..], "is damaged"),
        (&whole[..100], "is damaged"),
        (b"", "is damaged"),
        (&newer, "is of a newer version, and stays as it is"),
    ]) {
        let sums = place.sums();
        fs::write(&sums, content).unwrap();
        place.edit_source(seed);
        let outcome = place.copy(&["--state"]);
        let text = outcome.stderr_text();
        assert!(!took(&outcome) && text.contains(words), "{}", outcome.account());
        assert_eq!(text.lines().filter(|line| line.contains("the state")).count(), 1, "{text}");
    }

    assert!(place.kept().iter().any(|kept| fs::read(kept).unwrap() == newer));

    fs::remove_dir_all(place.state_dir()).unwrap();
    fs::create_dir(place.state_dir()).unwrap();
    let Some(full) = Mount::tmpfs(&place.state_dir(), "size=16k,mode=700") else { return };
    fs::write(full.path().join("filler"), [1; 8192]).unwrap();
    place.edit_source(9);
    let text = place.copy(&["--state"]).stderr_text();
    assert!(text.contains("what this run has read is not kept"), "{text}");
}

#[test]
fn sums_are_listed_and_cleared() {
    needs_dsync!();
    let place = Place::new(true);
    let _ = place.copy(&["--state"]);
    let state = |words: &[&str]| {
        Run::dsync().args(["state", "--state-dir"]).arg(place.state_dir()).args(words).run().expect_code(0)
    };
    let listed = state(&[]).stdout_text();
    let bytes = fs::metadata(place.sums()).unwrap().len().to_string();
    assert_eq!(listed.replace(',', ""), format!("1 large file with sums ({bytes} bytes)\n"));
    assert_eq!(fs::metadata(place.sums()).unwrap().mode() & 0o777, 0o600);
    assert!(state(&["--clear"]).stdout_text().starts_with("1 removed from '"));
    assert!(place.kept().is_empty());
    place.edit_source(1);
    assert!(!took(&place.copy(&["--state"])));
}

#[test]
fn a_file_that_somebody_has_open_for_writing_keeps_no_sums() {
    needs_dsync!();
    let place = Place::new(true);
    let _ = place.copy(&["--state", "--inplace"]);
    // A program that maps it would change it later than its time says.
    let writer = fs::File::options().write(true).open(place.image()).unwrap();
    place.edit_source(1);
    let _ = place.copy(&["--state", "--inplace"]);
    drop(writer);
    place.edit_source(2);
    assert!(!took(&place.copy(&["--state", "--inplace"])));
    until_met(|| {
        place.edit_source(3);
        let _ = place.copy(&["--state", "--inplace"]);
        place.edit_source(4);
        took(&place.copy(&["--state", "--inplace"])).then_some(())
    });
}
