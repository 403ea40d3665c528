//! The inputs of the race.

use std::{
    fs,
    io::{BufWriter, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use dsync_tests::{Content, Kind, Node, Run, Tree, survey, tree::noise};

/// One input: a source, and for some an earlier state of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// One large incompressible file.
    One,
    /// Many files of 1 MiB.
    Many,
    /// A tree of small files.
    Small,
    /// 3,000 small files in 30 directories, 16 kB each on average.
    Few,
    /// The same tree, already copied.
    FewSame,
    /// 78,000 small files in 780 directories, 7 kB each on average.
    Files,
    /// The same tree, already copied.
    FilesSame,
    /// The tree of [`Input::Small`], already copied.
    Unchanged,
    /// 68,000 small files in 68 directories, already copied.
    Archive,
    /// A million empty files in 1,000 directories, already copied.
    MillionSame,
    /// Log text in one file, which lz4 shrinks to about a third.
    Log,
    /// Preallocated database logs: a third of each is written, the rest are holes.
    Holes,
    /// A dump of a database as text, after 2000 lines were inserted.
    Dump,
    /// One large file after 1 % of its 4 KiB blocks was overwritten.
    Delta,
    /// The tree of sparsync's own benchmark: 1,000 files of 4 KiB and eight of 2 MiB.
    Mixed,
    /// The same tree, copied before by the same tool through the same server.
    MixedSame,
    /// The same, after a line was appended to 100 files.
    MixedChanged,
}

impl Input {
    /// All inputs, in the order of the race.
    pub(crate) const ALL: [Self; 17] = [
        Self::One,
        Self::Many,
        Self::Log,
        Self::Holes,
        Self::Few,
        Self::FewSame,
        Self::Files,
        Self::FilesSame,
        Self::Small,
        Self::Unchanged,
        Self::Archive,
        Self::MillionSame,
        Self::Dump,
        Self::Delta,
        Self::Mixed,
        Self::MixedSame,
        Self::MixedChanged,
    ];

    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
            Self::Small => "small",
            Self::Few => "few",
            Self::FewSame => "few-same",
            Self::Files => "files",
            Self::FilesSame => "files-same",
            Self::Unchanged => "unchanged",
            Self::Archive => "archive",
            Self::MillionSame => "million-same",
            Self::Log => "log",
            Self::Holes => "holes",
            Self::Dump => "dump",
            Self::Delta => "delta",
            Self::Mixed => "mixed",
            Self::MixedSame => "mixed-same",
            Self::MixedChanged => "mixed-changed",
        }
    }

    /// Returns its name in the table.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::One => "first copy of one incompressible file",
            Self::Many => "first copy of files of 1 MiB, incompressible",
            Self::Small => "first copy of a tree of small files",
            Self::Few => "first copy of 3,000 small files, incompressible",
            Self::FewSame => "second run on 3,000 small files",
            Self::Files => "first copy of 78,000 small files in 780 directories",
            Self::FilesSame => "second run on 78,000 small files in 780 directories",
            Self::Unchanged => "second run on a tree of small files",
            Self::Archive => "second run on 68,000 small files in 68 directories",
            Self::MillionSame => "second run on a million empty files in 1,000 directories",
            Self::Log => "first copy of log text in one file",
            Self::Holes => "first copy of database logs, two thirds of them holes",
            Self::Dump => "a text dump, 2000 lines inserted",
            Self::Delta => "one file, 1 % of its 4 KiB blocks overwritten",
            Self::Mixed => "first copy of 1,000 files of 4 KiB and 8 of 2 MiB",
            Self::MixedSame => "second run on 1,000 files of 4 KiB and 8 of 2 MiB",
            Self::MixedChanged => "the same files, a line appended to 100 of them",
        }
    }

    /// Returns the MiB that it has if it is made with this size.
    pub(crate) fn mebibytes(self, mib: u64) -> u64 {
        if self == Self::Dump { mib / 2 } else { mib }
    }

    /// Returns whether it excludes tools that know no basis.
    pub(crate) fn needs_basis(self) -> bool {
        self.is_unchanged() || matches!(self, Self::Dump | Self::Delta) || self.follows_a_run()
    }

    /// Returns whether the destination is what the source is.
    fn is_unchanged(self) -> bool {
        matches!(self, Self::Unchanged | Self::Archive | Self::FewSame | Self::FilesSame | Self::MillionSame)
    }

    /// Returns whether a run of the same tool comes first, which is not measured: what the tool knows of
    /// it may be in its own files, or in a server.
    pub(crate) fn follows_a_run(self) -> bool {
        matches!(self, Self::MixedSame | Self::MixedChanged)
    }

    /// Returns whether it is a tree of small files to copy for the first time.
    pub(crate) fn is_small(self) -> bool {
        matches!(self, Self::Small | Self::Few | Self::Files)
    }

    /// Returns whether it is one of sparsync's benchmark.
    pub(crate) fn is_mixed(self) -> bool {
        self == Self::Mixed || self.follows_a_run()
    }

    /// Changes the source between the first run and the measured one.
    pub(crate) fn change(self, dir: &Path) {
        if self == Self::MixedChanged {
            for name in changed_files() {
                let mut file =
                    fs::OpenOptions::new().append(true).open(dir.join("src").join(name)).expect("a file");
                file.write_all(b"a line of text\n").expect("a line");
            }
        }
    }

    /// Returns whether it has holes, which must not become bytes.
    pub(crate) fn has_holes(self) -> bool {
        self == Self::Holes
    }

    /// Makes `src`, and `old` if the input has an earlier state.
    pub(crate) fn plant(self, dir: &Path, mib: u64) {
        let (root, source) = (dir, dir.join("src"));
        let large = |mtime| Node {
            mtime: (mtime, 0),
            ..Node::new("large", Kind::File(Content::random(figures(u64::MAX)[0], mib << 20)))
        };
        match self {
            Self::One => Tree::of([large(1_000_000_000)]).plant(&source),
            Self::Many => {
                let files = (0..mib).map(|index| {
                    Node::new(format!("f{index:05}"), Kind::File(Content::random(figures(index)[0], 1 << 20)))
                });
                Tree::of(files).plant(&source);
            }
            Self::Small | Self::Unchanged => copy(&small_tree(dir), &source),
            Self::Archive => made_tree(68, 68_000, 8000).plant(&source),
            Self::MillionSame => made_tree(1000, 1_000_000, 1).plant(&source),
            Self::Few | Self::FewSame => made_tree(30, 3000, 32_000).plant(&source),
            Self::Files | Self::FilesSame => made_tree(780, 78_000, 14_200).plant(&source),
            Self::Mixed | Self::MixedSame | Self::MixedChanged => mixed_tree().plant(&source),
            Self::Log => {
                fs::create_dir(&source).expect("the source");
                write_text(&source.join("large"), mib << 20, &log_line, None);
            }
            Self::Holes => {
                fs::create_dir(&source).expect("the source");
                for index in 0..(mib / 16).max(1) {
                    let path = source.join(format!("wal{index:04}"));
                    write_text(&path, (16 << 20) / 3, &log_line, None);
                    let file = fs::OpenOptions::new().write(true).open(&path).expect("a log");
                    file.set_len(16 << 20).expect("its length");
                }
            }
            Self::Dump => {
                for (dir, inserted) in [("old", None), ("src", Some(2000))] {
                    fs::create_dir(root.join(dir)).expect("a directory");
                    write_text(
                        &root.join(dir).join("large"),
                        self.mebibytes(mib) << 20,
                        &dump_line,
                        inserted,
                    );
                }
                dsync_tests::tree::set_mtime(&source.join("large"), (1_000_000_001, 0));
            }
            Self::Delta => {
                Tree::of([large(1_000_000_000)]).plant(&dir.join("old"));
                Tree::of([large(1_000_000_001)]).plant(&source);
                overwrite_one_percent(&source.join("large"));
            }
        }
        if self.is_unchanged() {
            copy(&source, &dir.join("old"));
        }
    }

    /// Resets the destination to the state from which every tool starts, and empties the write
    /// queues.
    pub(crate) fn reset(self, dir: &Path) {
        let destination = dir.join("dst");
        let keep = self.is_unchanged() && destination.exists();
        if self == Self::MixedChanged {
            changed_files().for_each(|name| shorten(&dir.join("src").join(name)));
        }
        if !keep {
            let _ = fs::remove_dir_all(&destination);
            if self.needs_basis() && !self.follows_a_run() {
                copy(&dir.join("old"), &destination);
            } else {
                fs::create_dir(&destination).expect("the destination");
            }
        }
        let _ = Run::of("sync").run();
    }
}

/// Returns the bytes of all files of a tree.
pub(crate) fn total_bytes(root: &Path) -> u64 {
    survey(root).values().map(|facts| facts.size).sum()
}

/// Returns the machine's documents if there are enough of them, else the toolchain's, else made
/// ones.
fn small_tree(dir: &Path) -> PathBuf {
    let rustc = Run::of("rustc").args(["--print", "sysroot"]).run();
    let candidates = [PathBuf::from("/usr/share"), PathBuf::from(rustc.stdout_text().trim()).join("share")];
    let found = candidates
        .into_iter()
        .find(|path| path.is_absolute() && path.is_dir() && survey(path).len() >= 50_000);
    found.unwrap_or_else(|| {
        made_tree(500, 55_000, 12_000).plant(&dir.join("made"));
        dir.join("made")
    })
}

/// Makes files of up to `longest` bytes, spread evenly over some directories.
fn made_tree(dirs: u64, files: u64, longest: u64) -> Tree {
    let nodes = (0..dirs).map(|index| Node::dir(format!("d{index}")));
    let files = (0..files).map(|index| {
        Node::file(format!("d{}/f{index}", index % dirs), figures(index)[0], index * 31 % longest)
    });
    Tree::of(nodes.chain(files))
}

/// Makes the tree of sparsync's benchmark.
fn mixed_tree() -> Tree {
    let small = (0..1000).map(|index| (format!("small/dir_{}/file_{}.bin", index / 100, index % 100), SMALL));
    let large = (0..8).map(|index| (format!("large/chunk_{index}.bin"), 2 << 20));
    let files = small
        .chain(large)
        .zip(0..)
        .map(|((path, len), index)| Node { mtime: PLANTED, ..Node::file(path, figures(index)[0], len) });
    let dirs = (0..10).map(|index| format!("small/dir_{index}"));
    let dirs = ["small".to_owned(), "large".to_owned()].into_iter().chain(dirs);
    Tree::of(dirs.map(Node::dir).chain(files))
}

/// Returns the paths of the files of that tree that change.
fn changed_files() -> impl Iterator<Item = String> {
    (0..100).map(|index| format!("small/dir_0/file_{index}.bin"))
}

/// Undoes the change of a file.
fn shorten(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
    file.set_len(SMALL).expect("its length");
    drop(file);
    dsync_tests::tree::set_mtime(path, PLANTED);
}

/// Bytes of a small file of sparsync's tree.
const SMALL: u64 = 4096;
/// The time of its files.
const PLANTED: (i64, i64) = (1_000_000_000, 0);

/// Writes lines up to a length, and evenly between them that many inserted lines.
fn write_text(path: &Path, len: u64, line: &dyn Fn(u64) -> String, inserted: Option<u64>) {
    let mut file = BufWriter::new(fs::File::create(path).expect("a text"));
    let (mut written, mut inserts) = (0, 0);
    for number in 0_u64.. {
        if written >= len {
            break;
        }
        let text = line(number);
        written += text.len() as u64;
        file.write_all(text.as_bytes()).expect("a line");
        if inserted.is_some_and(|count| inserts < count && written * count > inserts * len) {
            inserts += 1;
            file.write_all(line(u64::MAX / 2 + inserts).as_bytes()).expect("a line");
        }
    }
    file.flush().expect("the text");
}

/// Returns large numbers, the same for the same line or file. Used as seeds, they keep contents
/// from repeating each other.
fn figures(number: u64) -> [u64; 3] {
    let bytes = noise(number, 24);
    [0, 8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

fn log_line(number: u64) -> String {
    let [a, b, c] = figures(number);
    let path = ["/api/v1/items", "/api/v1/users", "/health", "/static/app.js"][(a % 4) as usize];
    format!(
        "2026-03-{:02}T{:02}:{:02}:{:02}.{:03}Z INFO frontend[{}] request id={:08x} method=GET path={path}/{} status=200 bytes={} ms={}\n",
        1 + number / 40_000_000 % 28,
        number / 1_600_000 % 24,
        number / 27_000 % 60,
        number / 450 % 60,
        number / 2 % 1000,
        1000 + a % 8,
        b >> 32,
        c % 5000,
        (c >> 32) % 30_000,
        b % 90,
    )
}

fn dump_line(number: u64) -> String {
    let [a, b, c] = figures(number);
    format!(
        "INSERT INTO orders VALUES ({number}, '{:012x}', {}, 'open', '{:016x}');\n",
        a >> 16,
        b % 100_000,
        c
    )
}

fn copy(from: &Path, to: &Path) {
    let _ = Run::of("cp").arg("-a").arg(from).arg(to).run().expect_code(0);
}

fn overwrite_one_percent(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("the large file");
    let blocks = file.metadata().expect("its length").len() / 4096;
    for block in (0..blocks).step_by(100) {
        let block = (block + block % 97).min(blocks - 1);
        file.write_all_at(&noise(block + 7, 4096), block * 4096).expect("a block");
    }
    drop(file);
    dsync_tests::tree::set_mtime(path, (1_000_000_001, 0));
}
