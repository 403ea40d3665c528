//! Holes: kept if the source has them, made of zeros with `-S`; the result of `rsync -S` is the
//! reference.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Run, Scope, Scratch, Sshd, Via, assert_same,
    compare::{allocated, data_map},
    mount::Mount,
    needs_dsync,
    power::{Disk, Format},
    rsync,
    scratch::slash,
    tree::{noise, set_mtime},
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Tolerances in the comparison of files: the unit in which data is compared, and bytes of space.
struct Slack {
    unit: u64,
    bytes: u64,
}

/// The unit in which zeros are detected, and a filesystem's overhead for a file's blocks.
const BLOCKS: Slack = Slack { unit: 4 * KIB, bytes: 8 * KIB };
/// XFS reserves 128 KiB around each write to a shared extent, for some minutes, and reports that as
/// data and as space.
const SHARED: Slack = Slack { unit: 128 * KIB, bytes: u64::MAX };

/// A part of a file.
#[derive(Clone, Copy)]
enum Part {
    Data(u64),
    Zeros(u64),
    Hole(u64),
}

use Part::{Data, Hole, Zeros};

impl Part {
    fn len(&self) -> u64 {
        let (Data(len) | Zeros(len) | Hole(len)) = *self;
        len
    }
}

/// Files with holes and zeros at their ends and in between, short and of several segments.
const FILES: &[(&str, &[Part])] = &[
    ("data", &[Data(MIB)]),
    ("all hole", &[Hole(3 * MIB)]),
    ("short hole", &[Hole(40 * KIB)]),
    ("hole at the end", &[Data(100 * KIB), Hole(2 * MIB)]),
    ("hole at the start", &[Hole(MIB), Data(100)]),
    ("zeros", &[Zeros(MIB)]),
    ("short zeros", &[Zeros(40 * KIB)]),
    ("zeros at the end", &[Data(64 * KIB), Zeros(10_000)]),
    (
        "mixed",
        &[Data(64 * KIB), Zeros(256 * KIB), Hole(512 * KIB), Data(64 * KIB), Hole(64 * KIB), Zeros(64 * KIB)],
    ),
    ("short and mixed", &[Data(4 * KIB), Hole(16 * KIB), Zeros(8 * KIB), Data(5000)]),
    ("long", &[Data(5 * MIB), Hole(3 * MIB), Zeros(MIB), Data(100_000), Hole(9 * MIB), Data(1)]),
];

fn write(path: &Path, parts: &[Part]) {
    let file = File::create(path).unwrap();
    let mut at = 0;
    // Set the length first: XFS reserves space ahead of a file that grows.
    file.set_len(parts.iter().map(Part::len).sum()).unwrap();
    for (seed, part) in parts.iter().enumerate() {
        let len = usize::try_from(part.len()).unwrap();
        match part {
            Hole(_) => {}
            Zeros(_) => file.write_all_at(&vec![0; len], at).unwrap(),
            Data(_) => file.write_all_at(&noise(seed as u64, len), at).unwrap(),
        }
        at += part.len();
    }
    file.sync_all().unwrap();
}

fn plant(at: &Path) {
    fs::create_dir_all(at).unwrap();
    for (name, parts) in FILES {
        write(&at.join(name), parts);
    }
}

/// Returns the ranges with data of a directory's files, in units of `unit` bytes, and the space
/// that they occupy.
fn space(at: &Path, unit: u64) -> BTreeMap<String, (Vec<(u64, u64)>, u64)> {
    let names = FILES.iter().map(|(name, _)| (*name).to_owned());
    let look = |name: &String| {
        let path = at.join(name);
        // Data that is not on the disk yet may be reserved or not.
        File::open(&path).unwrap().sync_all().unwrap();
        let mut map: Vec<(u64, u64)> = Vec::new();
        for (start, end) in data_map(&path) {
            let (start, end) = (start / unit * unit, end.next_multiple_of(unit));
            match map.last_mut() {
                Some(last) if last.1 >= start => last.1 = end,
                _ => map.push((start, end)),
            }
        }
        (map, allocated(&path))
    };
    names.map(|name| (name.clone(), look(&name))).collect()
}

/// Asserts that the files of two directories have data in the same places and occupy the same
/// space, except for the blocks that the filesystem itself needs.
fn assert_same_space(wanted: &Path, got: &Path, slack: &Slack, what: &str) {
    let (wanted, got) = (space(wanted, slack.unit), space(got, slack.unit));
    for (name, (map, bytes)) in &wanted {
        let (got_map, got_bytes) = &got[name];
        assert_eq!(got_map, map, "{what}: data of '{name}'");
        assert!(
            got_bytes.abs_diff(*bytes) <= slack.bytes,
            "{what}: '{name}' takes {got_bytes}, should {bytes}"
        );
    }
}

/// Asserts that files made with `-S` occupy no more space than rsync's, which misses a block here
/// and there, plus XFS's reservation for growing files, and that their space is data.
fn assert_sparse_as(theirs: &Path, got: &Path, slack: &Slack, what: &str) {
    let (theirs, got) = (space(theirs, slack.unit), space(got, slack.unit));
    for (name, parts) in FILES {
        let ((map, bytes), (_, most)) = (&got[*name], &theirs[*name]);
        assert!(*bytes <= most.saturating_add(slack.bytes), "{what}: '{name}' takes {bytes}, rsync's {most}");
        let data: u64 =
            parts.iter().map(|part| if matches!(part, Data(len) if *len > 0) { part.len() } else { 0 }).sum();
        let mapped: u64 = map.iter().map(|(start, end)| end - start).sum();
        assert!(
            mapped.abs_diff(data) <= 3 * slack.unit,
            "{what}: '{name}' has {data} bytes of data, in {map:?}"
        );
    }
}

/// Returns a place on each filesystem that keeps holes in its own way, with the guard that holds
/// it.
fn places(scratch: &Scratch) -> Vec<(&'static str, PathBuf, Box<dyn std::any::Any>)> {
    let mut places: Vec<(_, _, Box<dyn std::any::Any>)> = Vec::new();
    let dir = |name: &str| {
        let dir = scratch.at(name);
        fs::create_dir(&dir).unwrap();
        dir
    };
    let memory = dir("tmpfs");
    if let Some(mount) = Mount::tmpfs(&memory, "size=200m") {
        places.push(("tmpfs", memory, Box::new(mount)));
    }
    for (name, format) in [("ext4", Format::Ext4), ("xfs", Format::Xfs)] {
        if let Some(disk) = Disk::create(&dir(name), format, 300) {
            places.push((name, disk.path().to_owned(), Box::new(disk)));
        }
    }
    if places.len() < 3 {
        places.clear();
    }
    places
}

/// Copies from one directory to another with these options.
type Way = Box<dyn Fn(&[&str], &Path, &Path)>;

/// Returns the three directions: local, push and pull.
fn ways() -> [(&'static str, Way); 3] {
    fn quiet(run: Run) {
        let _ = run.run().expect_quiet_success();
    }
    [
        ("local", Box::new(|options, from, to| quiet(Run::dsync().args(options).arg(slash(from)).arg(to)))),
        (
            "push",
            Box::new(|options, from, to| {
                let sshd = Sshd::shared();
                quiet(sshd.run(Via::Tls).args(options).arg(slash(from)).arg(sshd.operand(to)));
            }),
        ),
        (
            "pull",
            Box::new(|options, from, to| {
                let sshd = Sshd::shared();
                quiet(sshd.run(Via::Ssh).args(options).arg(sshd.operand(slash(from))).arg(to));
            }),
        ),
    ]
}

#[test]
fn holes_are_where_the_source_has_them() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (filesystem, at, _held) in places(&scratch) {
        let source = at.join("src");
        plant(&source);
        for (way, copy) in ways() {
            let to = at.join(way);
            copy(&["-a"], &source, &to);
            assert_same(&source, &to, Scope::full());
            assert_same_space(&source, &to, &BLOCKS, &format!("{way} on {filesystem}"));
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn sparse_files_take_the_space_that_rsync_gives_them() {
    let scratch = Scratch::new();
    for (filesystem, at, _held) in places(&scratch) {
        let (source, theirs) = (at.join("src"), at.join("theirs"));
        plant(&source);
        let _ = rsync(["-aS".as_ref(), slash(&source).as_os_str(), theirs.as_os_str()]).expect_code(0);
        for (way, copy) in ways() {
            let to = at.join(way);
            copy(&["-aS"], &source, &to);
            assert_same(&source, &to, Scope::full());
            assert_sparse_as(&theirs, &to, &BLOCKS, &format!("{way} on {filesystem}"));
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

/// Makes every file of a directory one of other bytes, without zeros, and older.
fn fill(at: &Path, from: &Path) {
    fs::create_dir_all(at).unwrap();
    for (name, _) in FILES {
        let len = usize::try_from(fs::metadata(from.join(name)).unwrap().len()).unwrap();
        let mut bytes = noise(99, len);
        // Keep some of the old file, in its place and elsewhere.
        let new = fs::read(from.join(name)).unwrap();
        for (index, piece) in new.chunks(64 << 10).enumerate().filter(|(index, _)| index % 3 > 0) {
            let place = if index % 3 == 1 { index } else { index - 2 } * (64 << 10);
            if place + piece.len() <= len && piece.iter().any(|&byte| byte != 0) {
                bytes[place..place + piece.len()].copy_from_slice(piece);
            }
        }
        fs::write(at.join(name), bytes).unwrap();
        File::open(at.join(name)).unwrap().sync_all().unwrap();
        set_mtime(&at.join(name), (1_000_000_000, 0));
    }
}

#[test]
fn holes_replace_old_data() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (filesystem, at, _held) in places(&scratch) {
        let (source, theirs) = (at.join("src"), at.join("theirs"));
        let slack = if filesystem == "xfs" { SHARED } else { BLOCKS };
        plant(&source);
        for options in [&["-a"][..], &["-a", "--inplace"], &["-aS"], &["-aS", "--inplace"]] {
            let sparse = options[0] == "-aS";
            if sparse {
                fill(&theirs, &source);
                let run = Run::of("rsync").args(options).arg(slash(&source)).arg(&theirs);
                let _ = run.run().expect_code(0);
            }
            for (way, copy) in ways() {
                let to = at.join(way);
                fill(&to, &source);
                let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
                let old = inode("long");
                copy(options, &source, &to);
                assert_same(&source, &to, Scope::full());
                assert_eq!(inode("long") == old, options.contains(&"--inplace"));
                let what = format!("{way} {options:?} on {filesystem}");
                if sparse {
                    assert_sparse_as(&theirs, &to, &slack, &what);
                } else {
                    assert_same_space(&source, &to, &slack, &what);
                }
                fs::remove_dir_all(&to).unwrap();
            }
        }
    }
}

#[test]
fn zeros_of_an_old_file_stay_as_they_are() {
    needs_dsync!();
    // Zeros are neither written, which would occupy space, nor deallocated.
    let scratch = Scratch::new();
    let source = scratch.src();
    write(&source.join("file"), &[Data(MIB), Zeros(4 * MIB)]);
    for (way, copy) in ways().into_iter().skip(1) {
        let at = scratch.at(way);
        fs::create_dir(&at).unwrap();
        write(&at.join("file"), &[Zeros(3 * MIB), Hole(2 * MIB)]);
        set_mtime(&at.join("file"), (1_000_000_000, 0));
        copy(&["-a", "--inplace"], &source, &at);
        assert_same(&source, &at, Scope::full());
        assert_eq!(data_map(&at.join("file")), [(0, 3 * MIB)], "{way}");
    }
}

#[test]
fn reserved_space_is_given_back_where_holes_go() {
    let scratch = Scratch::new();
    plant(&scratch.src());
    for options in [&["-a", "--preallocate"][..], &["-aS", "--preallocate"]] {
        let theirs = scratch.at("theirs");
        let run = Run::of("rsync").args(options).arg(slash(&scratch.src())).arg(&theirs);
        let _ = run.run().expect_code(0);
        for (way, copy) in ways() {
            let to = scratch.at(way);
            copy(options, &scratch.src(), &to);
            assert_same(&scratch.src(), &to, Scope::full());
            for (name, _) in FILES {
                let (wanted, got) = (allocated(&theirs.join(name)), allocated(&to.join(name)));
                let what = format!("{way} {options:?} '{name}': {got}, rsync's {wanted}");
                assert!(got <= wanted + 4 * KIB, "{what}");
                assert!(options[0] == "-aS" || got + 4 * KIB >= wanted, "{what}");
            }
            fs::remove_dir_all(&to).unwrap();
        }
        fs::remove_dir_all(&theirs).unwrap();
    }
}
