//! What is copied.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use dsync_tests::{Content, Kind, Node, Run, Tree, survey, tree::noise};

/// One input: a source, and for some a destination that is there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// One large incompressible file.
    One,
    /// Many files of 1 MiB.
    Many,
    /// A tree of small files.
    Small,
    /// The same tree, already there.
    Unchanged,
    /// One large file of which 1 % of the 4 KiB blocks was overwritten since.
    Delta,
}

impl Input {
    /// All of them, in the order of the race.
    pub(crate) const ALL: [Self; 5] = [Self::One, Self::Many, Self::Small, Self::Unchanged, Self::Delta];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
            Self::Small => "small",
            Self::Unchanged => "unchanged",
            Self::Delta => "delta",
        }
    }

    /// Its name in the table.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::One => "first copy of one incompressible file",
            Self::Many => "first copy of files of 1 MiB, incompressible",
            Self::Small => "first copy of a tree of small files",
            Self::Unchanged => "second run on a tree of small files",
            Self::Delta => "one file, 1 % of its 4 KiB blocks overwritten",
        }
    }

    /// True when the tools that know no basis are out of place.
    pub(crate) fn needs_basis(self) -> bool {
        matches!(self, Self::Unchanged | Self::Delta)
    }

    /// Makes `src`, and `old` where there is an old state.
    pub(crate) fn plant(self, dir: &Path, mib: u64) {
        let source = dir.join("src");
        let large = |mtime| Node {
            mtime: (mtime, 0),
            ..Node::new("large", Kind::File(Content::random(1, mib << 20)))
        };
        match self {
            Self::One => Tree::of([large(1_000_000_000)]).plant(&source),
            Self::Many => {
                let files = (0..mib).map(|index| {
                    Node::new(format!("f{index:05}"), Kind::File(Content::random(index, 1 << 20)))
                });
                Tree::of(files).plant(&source);
            }
            Self::Small | Self::Unchanged => {
                copy(&small_tree(dir), &source);
                if self == Self::Unchanged {
                    copy(&source, &dir.join("old"));
                }
            }
            Self::Delta => {
                Tree::of([large(1_000_000_000)]).plant(&dir.join("old"));
                Tree::of([large(1_000_000_001)]).plant(&source);
                overwrite_one_percent(&source.join("large"));
            }
        }
    }

    /// Puts the destination back to where every tool starts from, and empties the write queues.
    pub(crate) fn reset(self, dir: &Path) {
        let destination = dir.join("dst");
        let keep = self == Self::Unchanged && destination.exists();
        if !keep {
            let _ = fs::remove_dir_all(&destination);
            if self.needs_basis() {
                copy(&dir.join("old"), &destination);
            } else {
                fs::create_dir(&destination).expect("the destination");
            }
        }
        let _ = Run::of("sync").run();
    }
}

/// Bytes of all files of a tree.
pub(crate) fn total_bytes(root: &Path) -> u64 {
    survey(root).values().map(|facts| facts.size).sum()
}

/// The machine's documents where there are enough of them, else the toolchain's, else made ones.
fn small_tree(dir: &Path) -> PathBuf {
    let rustc = Run::of("rustc").args(["--print", "sysroot"]).run();
    let candidates = [PathBuf::from("/usr/share"), PathBuf::from(rustc.stdout_text().trim()).join("share")];
    let found = candidates
        .into_iter()
        .find(|path| path.is_absolute() && path.is_dir() && survey(path).len() >= 50_000);
    found.unwrap_or_else(|| {
        let dirs = (0..500).map(|index| Node::dir(format!("d{index}")));
        let files = (0..55_000_u64)
            .map(|index| Node::file(format!("d{}/f{index}", index % 500), index, index * 31 % 12_000));
        Tree::of(dirs.chain(files)).plant(&dir.join("made"));
        dir.join("made")
    })
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
