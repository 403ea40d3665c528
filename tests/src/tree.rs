//! Source trees: described, generated, planted, edited.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::FileExt,
    },
    path::{Path, PathBuf},
};

use proptest::{collection::vec, prelude::*, sample};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, chownat, makedev, mknodat, utimensat,
};

/// A tree to plant; parents precede their entries.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Its entries, by path relative to the root.
    pub nodes: Vec<Node>,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct Node {
    /// Path relative to the root.
    pub path: Vec<u8>,
    /// The type with its content.
    pub kind: Kind,
    /// Permission bits (not of links).
    pub mode: u32,
    /// Seconds since 1970, which may be negative, and nanoseconds.
    pub mtime: (i64, i64),
    /// Owner and group; used only if the process is root.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes by name; access control lists in the kernel's form, see [`acl`].
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// The type of an entry.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Directory.
    Dir,
    /// Regular file.
    File(Content),
    /// Regular file of several consecutive pieces, which a shell can make as well.
    Spliced(Vec<Piece>),
    /// Symbolic link with its text.
    Symlink(Vec<u8>),
    /// Named pipe.
    Fifo,
    /// Socket that nobody listens on.
    Socket,
    /// Character device; planted only if the process is root.
    CharDevice(u32, u32),
    /// Block device; planted only if the process is root.
    BlockDevice(u32, u32),
    /// Another name of an earlier entry.
    HardLink(Vec<u8>),
}

/// The content of a file: always the same bytes for the same values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Seed of the bytes.
    pub seed: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind of the bytes.
    pub style: Style,
}

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// `len` bytes, from the byte `from` on, of the endless output of `seq FIRST`.
    Lines {
        /// The first number.
        first: u64,
        /// Number of bytes skipped before.
        from: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Zeros that are written.
    Zeros(u64),
    /// Zeros that are left a hole.
    Hole(u64),
    /// These bytes.
    Text(&'static str),
}

/// The kind of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Incompressible.
    Random,
    /// Words of a small alphabet.
    Text,
    /// Data in every eighth 64 KiB, holes between.
    Holes,
}

/// A change to a tree, made in place.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Index of the affected file, modulo the number of files.
    pub pick: usize,
    /// The change to it.
    pub change: Change,
}

/// A change to a file.
#[derive(Debug, Clone)]
pub enum Change {
    /// New bytes over old ones.
    Overwrite(Span),
    /// New bytes between old ones.
    Insert(Span),
    /// Some bytes removed.
    Cut(Span),
    /// New bytes at the end.
    Append(Span),
    /// Truncated to this length.
    Truncate(u64),
    /// Other permission bits.
    Chmod(u32),
    /// Another modification time.
    Touch((i64, i64)),
    /// Removed.
    Remove,
    /// Removed and replaced by a directory.
    BecomeDirectory,
    /// Removed and replaced by a link.
    BecomeSymlink,
}

/// Some bytes of a file; anything beyond its end does not count.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Offset of the bytes.
    pub at: u64,
    /// Number of bytes.
    pub len: usize,
    /// Seed of the new bytes.
    pub seed: u64,
}

impl Content {
    /// Makes incompressible content.
    pub fn random(seed: u64, len: u64) -> Self {
        Self { seed, len, style: Style::Random }
    }

    /// Writes it to a new file, or over an old one's content.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, path: &Path) {
        let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let piece = 64 << 10;
        for (index, at) in (0..self.len).step_by(piece).enumerate() {
            if self.style == Style::Holes && index % 8 != 0 {
                continue;
            }
            let len = usize::try_from((self.len - at).min(piece as u64)).expect("a small length");
            let mut bytes = noise(mixed(self.seed.wrapping_add(mixed(index as u64 + 1))), len);
            if self.style == Style::Text {
                bytes.iter_mut().for_each(|byte| *byte = b"etaoin shrdlu\n  "[usize::from(*byte & 15)]);
            }
            file.write_all_at(&bytes, at).expect("content");
        }
        file.set_len(self.len).expect("a length");
    }
}

impl Piece {
    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Lines { len, .. } | Self::Zeros(len) | Self::Hole(len) => *len,
            Self::Text(text) => text.len() as u64,
        }
    }

    /// Returns its bytes; none of a hole.
    fn bytes(&self) -> Vec<u8> {
        match *self {
            Self::Hole(_) => Vec::new(),
            Self::Text(text) => text.into(),
            Self::Zeros(len) => vec![0; whole(len)],
            Self::Lines { first, from, len } => {
                let end = whole(from + len);
                let mut bytes = Vec::with_capacity(end + 20);
                let mut number = first;
                while bytes.len() < end {
                    bytes.extend_from_slice(format!("{number}\n").as_bytes());
                    number += 1;
                }
                bytes[whole(from)..end].to_vec()
            }
        }
    }
}

fn whole(len: u64) -> usize {
    usize::try_from(len).expect("a length that fits into memory")
}

/// Writes pieces one after another to a new file.
fn splice(pieces: &[Piece], path: &Path) {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut at = 0;
    for piece in pieces {
        file.write_all_at(&piece.bytes(), at).expect("content");
        at += piece.length();
    }
    file.set_len(at).expect("a length");
}

impl Node {
    /// Makes a plain entry of mode 0644, or 0755 for a directory, from the year 2001.
    pub fn new(path: impl AsRef<[u8]>, kind: Kind) -> Self {
        let mode = if matches!(kind, Kind::Dir) { 0o755 } else { 0o644 };
        Self {
            path: path.as_ref().to_vec(),
            kind,
            mode,
            mtime: (1_000_000_000, 123_456_789),
            owner: None,
            xattrs: Vec::new(),
        }
    }

    /// Makes a file of incompressible bytes.
    pub fn file(path: impl AsRef<[u8]>, seed: u64, len: u64) -> Self {
        Self::new(path, Kind::File(Content::random(seed, len)))
    }

    /// Makes a directory.
    pub fn dir(path: impl AsRef<[u8]>) -> Self {
        Self::new(path, Kind::Dir)
    }

    /// Makes another name of an earlier entry.
    pub fn hard_link(path: impl AsRef<[u8]>, first: impl AsRef<[u8]>) -> Self {
        Self::new(path, Kind::HardLink(first.as_ref().to_vec()))
    }

    /// Adds one more extended attribute.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.xattrs.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Makes a symbolic link.
    pub fn symlink(path: impl AsRef<[u8]>, text: impl AsRef<[u8]>) -> Self {
        Self::new(path, Kind::Symlink(text.as_ref().to_vec()))
    }
}

impl Tree {
    /// Makes a tree of these entries.
    pub fn of(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self { nodes: nodes.into_iter().collect() }
    }

    /// Makes a small tree with one of everything that needs no privileges: what most tests copy.
    pub fn sample() -> Self {
        Self::of([
            Node::file("plain", 1, 10_000),
            Node { mode: 0o600, ..Node::file("empty", 2, 0) },
            Node { mode: 0o4755, ..Node::file("setuid", 3, 77) },
            Node { mode: 0o444, ..Node::file("read only", 4, 70_000) },
            Node { mtime: (-12_345_678, 987_654_321), ..Node::file("before 1970", 5, 5) },
            Node { mtime: (4_000_000_000, 1), ..Node::file("after 2038", 5, 5) },
            Node::new("holes", Kind::File(Content { seed: 6, len: 3 << 20, style: Style::Holes })),
            Node::new("text", Kind::File(Content { seed: 7, len: 300_000, style: Style::Text })),
            Node::symlink("link", "dir/inner"),
            Node::symlink("dangling", "no/such\nthing"),
            Node { mode: 0o2750, ..Node::dir("dir") },
            Node::file("dir/inner", 8, 1),
            Node { mode: 0o700, ..Node::dir("dir/deep") },
            Node::file("dir/deep/er", 9, 131_072),
            Node { mode: 0o500, ..Node::dir("dir/closed") },
            Node::file("dir/closed/in it", 10, 12),
            Node::dir("empty dir"),
            Node::new("fifo", Kind::Fifo),
            Node::file(b"b\xff\xfeytes\n\x1b[31m", 11, 3),
            Node::file("-n", 12, 4),
            Node::file([b'L'; 255], 13, 6),
        ])
    }

    /// Plants it in the directory `root`, which is made if it does not exist. The root gets a fixed
    /// time.
    ///
    /// # Panics
    /// If an entry cannot be made.
    pub fn plant(&self, root: &Path) {
        fs::create_dir_all(root).expect("the root");
        for node in &self.nodes {
            make(root, &at(root, &node.path), &node.kind);
        }
        // Children before parents, because making an entry changes its directory's time.
        for node in self.nodes.iter().rev() {
            dress(&at(root, &node.path), node);
        }
        set_mtime(root, (1_100_000_000, 5));
    }
}

impl Edit {
    /// Makes the change; does nothing if no file is left.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn apply(&self, root: &Path) {
        let files = files_under(root);
        if files.is_empty() {
            return;
        }
        let path = &files[self.pick % files.len()];
        match &self.change {
            Change::Chmod(mode) => set_mode(path, *mode),
            Change::Touch(mtime) => set_mtime(path, *mtime),
            Change::Remove => fs::remove_file(path).expect("a file to remove"),
            Change::BecomeDirectory => {
                fs::remove_file(path).expect("a file to remove");
                fs::create_dir(path).expect("a directory");
                fs::write(path.join("inside"), b"new").expect("a file");
            }
            Change::BecomeSymlink => {
                fs::remove_file(path).expect("a file to remove");
                std::os::unix::fs::symlink("somewhere", path).expect("a link");
            }
            change => rewrite(path, change),
        }
    }
}

/// Generates trees for property tests: names of any bytes, some depth, every type, sizes up to
/// `max_len`.
pub fn trees(max_nodes: usize, max_len: u64) -> impl Strategy<Value = Tree> {
    let node = (any::<sample::Index>(), names(), kinds(max_len), modes(), mtimes(), owners());
    vec(node, 1..max_nodes).prop_map(|drafts| {
        let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
        let mut taken = std::collections::BTreeSet::new();
        let mut nodes = Vec::new();
        for (parent, name, kind, mode, mtime, owner) in drafts {
            let parent = parent.get(&dirs);
            let path = if parent.is_empty() { name } else { [&parent[..], b"/", &name[..]].concat() };
            if path.len() > 2000 || !taken.insert(path.clone()) {
                continue;
            }
            if matches!(kind, Kind::Dir) {
                dirs.push(path.clone());
            }
            nodes.push(Node { path, kind, mode, mtime, owner, xattrs: Vec::new() });
        }
        Tree { nodes }
    })
}

/// Generates trees with hard links, access control lists and extended attributes of every name
/// space; for root.
pub fn rich_trees(max_nodes: usize, max_len: u64) -> impl Strategy<Value = Tree> {
    let links = vec((any::<sample::Index>(), any::<sample::Index>(), names()), 0..max_nodes / 4);
    let xattrs = vec((any::<sample::Index>(), xattrs()), 0..max_nodes);
    (trees(max_nodes, max_len), xattrs, links).prop_map(|(mut tree, xattrs, links)| {
        for (at, (name, value)) in xattrs {
            let node = at.get(&tree.nodes);
            let (is_dir, is_link) = (matches!(node.kind, Kind::Dir), matches!(node.kind, Kind::Symlink(_)));
            let is_plain = is_dir || matches!(node.kind, Kind::File(_));
            let fits = match name.as_str() {
                "system.posix_acl_default" => is_dir,
                "security.capability" => matches!(node.kind, Kind::File(_)),
                name if name.starts_with("system.") => !is_link,
                name if name.starts_with("user.") => is_plain,
                _ => true,
            };
            let place = at.index(tree.nodes.len());
            if fits && tree.nodes[place].xattrs.iter().all(|(other, _)| *other != name) {
                tree.nodes[place].xattrs.push((name, value));
            }
        }
        for (parent, first, name) in links {
            let parent = match &parent.get(&tree.nodes).kind {
                Kind::Dir => parent.get(&tree.nodes).path.clone(),
                _ => Vec::new(),
            };
            let path = if parent.is_empty() { name } else { [&parent[..], b"/", &name[..]].concat() };
            let first = first.get(&tree.nodes);
            let is_linkable = !matches!(first.kind, Kind::Dir | Kind::HardLink(_));
            if is_linkable && path.len() < 2000 && tree.nodes.iter().all(|node| node.path != path) {
                let first = first.path.clone();
                tree.nodes.push(Node::hard_link(path, first));
            }
        }
        tree
    })
}

fn xattrs() -> impl Strategy<Value = (String, Vec<u8>)> {
    let name = sample::select(vec!["user.a", "user.b", "user.long name", "trusted.t", "security.s"]);
    let value = prop_oneof![4 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 300..2000)];
    let named = || vec((0..5_u32, 0..8_u16), 0..3);
    let lists = (sample::select(vec!["access", "default"]), 0..8_u16, named(), named());
    prop_oneof![
        4 => (name, value).prop_map(|(name, value)| (name.to_owned(), value)),
        3 => lists.prop_map(|(which, group, users, groups)| {
            (format!("system.posix_acl_{which}"), acl(group, &users, &groups))
        }),
        1 => Just(("security.capability".to_owned(), CAPABILITY.to_vec())),
    ]
}

/// `cap_net_raw+ep`, as the kernel keeps it.
pub const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes an access control list in the kernel's form: the owning group's permissions, named users,
/// named groups.
pub fn acl(group: u16, users: &[(u32, u16)], groups: &[(u32, u16)]) -> Vec<u8> {
    let sorted = |named: &[(u32, u16)]| {
        let mut named = named.to_vec();
        named.sort_unstable();
        named.dedup_by_key(|(id, _)| *id);
        named
    };
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, bits: u16, id: u32| {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    };
    entry(1, 7, u32::MAX);
    sorted(users).into_iter().for_each(|(id, bits)| entry(2, bits, id));
    entry(4, group, u32::MAX);
    sorted(groups).into_iter().for_each(|(id, bits)| entry(8, bits, id));
    entry(0x10, 7, u32::MAX);
    entry(0x20, 4, u32::MAX);
    bytes
}

/// Generates edits for property tests.
pub fn edits(max: usize) -> impl Strategy<Value = Vec<Edit>> {
    // Positions at powers of two and their neighbours hit block borders.
    let border = (9..18_u32, 0..3_u64).prop_map(|(bits, off)| (1_u64 << bits) + off - 1);
    let place = prop_oneof![0..200_000_u64, border].boxed();
    let span = || {
        let len = prop_oneof![1..5_usize, 1..20_000_usize];
        (place.clone(), len, any::<u64>()).prop_map(|(at, len, seed)| Span { at, len, seed })
    };
    let change = prop_oneof![
        4 => span().prop_map(Change::Overwrite),
        4 => span().prop_map(Change::Insert),
        3 => span().prop_map(Change::Cut),
        3 => span().prop_map(Change::Append),
        2 => place.clone().prop_map(Change::Truncate),
        2 => modes().prop_map(Change::Chmod),
        2 => mtimes().prop_map(Change::Touch),
        2 => Just(Change::Remove),
        1 => Just(Change::BecomeDirectory),
        1 => Just(Change::BecomeSymlink),
    ];
    vec((any::<usize>(), change).prop_map(|(pick, change)| Edit { pick, change }), 1..max)
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("not in names", |byte| !matches!(byte, 0 | b'/'));
    let ascii = sample::select(&b"abcxyzABC0189._-~:#%@ \\*?[]{}\"'$&;|<>()!\n\t"[..]);
    prop_oneof![
        6 => vec(ascii, 1..12),
        3 => vec(byte, 1..40),
        1 => (any::<u8>(), 200..=255_usize).prop_map(|(byte, len)| vec![byte.max(b'0'); len]),
        1 => sample::select(vec!["...", "..a", "a:b", "~", "-", "--delete", "*", "\u{feff}x", "é", "e\u{301}"])
            .prop_map(|name| name.as_bytes().to_vec()),
    ]
    .prop_filter("reserved", |name| !matches!(&name[..], b"." | b"..") && !name.starts_with(b".dsync-"))
}

fn kinds(max_len: u64) -> impl Strategy<Value = Kind> {
    let len = prop_oneof![
        1 => Just(0),
        6 => 1..5_000_u64,
        3 => 5_000..200_000_u64,
        1 => (9..17_u32, 0..3_u64).prop_map(|(bits, off)| (1 << bits) + off - 1),
        1 => 200_000..=max_len.max(200_001),
    ];
    let style = sample::select(vec![Style::Random, Style::Random, Style::Text, Style::Holes]);
    prop_oneof![
        10 => (any::<u64>(), len, style).prop_map(|(seed, len, style)| Kind::File(Content { seed, len, style })),
        5 => Just(Kind::Dir),
        2 => vec(any::<u8>().prop_filter("not in links", |byte| *byte != 0), 1..60).prop_map(Kind::Symlink),
        1 => Just(Kind::Fifo),
        1 => (0..200_u32, 0..200_u32).prop_map(|(major, minor)| Kind::CharDevice(major, minor)),
    ]
}

fn modes() -> impl Strategy<Value = u32> {
    prop_oneof![4 => sample::select(vec![0o644, 0o755, 0o600, 0o444]), 2 => 0..0o1000_u32, 1 => 0..0o10000_u32]
        // Without root's rights, the planter must be able to enter again.
        .prop_map(|mode| if crate::skip::is_root() { mode } else { mode | 0o700 })
}

fn mtimes() -> impl Strategy<Value = (i64, i64)> {
    let seconds = prop_oneof![4 => 0..2_000_000_000_i64, 1 => -2_000_000_000..0_i64, 1 => 4_000_000_000..8_000_000_000_i64];
    let nanoseconds = prop_oneof![Just(0), 0..1_000_000_000_i64, Just(999_999_999)];
    (seconds, nanoseconds)
}

fn owners() -> impl Strategy<Value = Option<(u32, u32)>> {
    prop_oneof![3 => Just(None), 1 => (0..3_u32, 0..3_u32).prop_map(Some), 1 => (70_000..70_010_u32, 70_000..70_010_u32).prop_map(Some)]
}

/// Returns a path under a root, from bytes.
pub fn at(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

/// Returns pseudo-random bytes, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bytes.extend_from_slice(&mixed(state).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Mixes a number, so that the results for close numbers say nothing about each other. If the seeds
/// of two pieces were a few steps of [`noise`] apart, one would repeat the other's bytes a few
/// places later, and a delta would find them there.
fn mixed(number: u64) -> u64 {
    let mut mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Sets a modification time, of a link itself if it is one.
///
/// # Panics
/// If it cannot be set.
pub fn set_mtime(path: &Path, (tv_sec, tv_nsec): (i64, i64)) {
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Sets permission bits.
///
/// # Panics
/// If they cannot be set.
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn make(root: &Path, path: &Path, kind: &Kind) {
    match kind {
        Kind::HardLink(first) => fs::hard_link(at(root, first), path).expect("a hard link"),
        Kind::Dir => fs::create_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        Kind::File(content) => content.write(path),
        Kind::Spliced(pieces) => splice(pieces, path),
        Kind::Symlink(text) => std::os::unix::fs::symlink(OsStr::from_bytes(text), path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        Kind::Fifo => special(path, FileType::Fifo, 0),
        Kind::Socket => special(path, FileType::Socket, 0),
        Kind::CharDevice(major, minor) => special(path, FileType::CharacterDevice, makedev(*major, *minor)),
        Kind::BlockDevice(major, minor) => special(path, FileType::BlockDevice, makedev(*major, *minor)),
    }
}

fn special(path: &Path, kind: FileType, device: u64) {
    let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
    if is_device && !crate::skip::is_root() {
        fs::write(path, b"no device without root").expect("a file");
        return;
    }
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn dress(path: &Path, node: &Node) {
    if matches!(node.kind, Kind::HardLink(_)) {
        return;
    }
    if let (Some((uid, gid)), true) = (node.owner, crate::skip::is_root()) {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).expect("an owner");
    }
    for (name, value) in &node.xattrs {
        rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())
            .unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
    }
    if !matches!(node.kind, Kind::Symlink(_)) {
        set_mode(path, node.mode);
    }
    set_mtime(path, node.mtime);
}

fn files_under(root: &Path) -> Vec<PathBuf> {
    let survey = crate::compare::survey(root);
    let files = survey.into_iter().filter(|(_, facts)| facts.kind == "file" && facts.size < (65 << 20));
    files.map(|(path, _)| root.join(OsString::from_vec(path))).collect()
}

fn within(at: u64, len: usize) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX).min(len)
}

/// Applies a change of content; leaves a file that may not be written as it is.
fn rewrite(path: &Path, change: &Change) {
    let mut content = fs::read(path).expect("content");
    let range = |span: &Span, len: usize| {
        let at = within(span.at, len);
        at..(at + span.len).min(len)
    };
    match change {
        Change::Overwrite(span) => {
            let range = range(span, content.len());
            let new = noise(span.seed, range.len());
            content[range].copy_from_slice(&new);
        }
        Change::Insert(span) => {
            let at = within(span.at, content.len());
            content.splice(at..at, noise(span.seed, span.len));
        }
        Change::Cut(span) => drop(content.drain(range(span, content.len()))),
        Change::Append(span) => content.extend(noise(span.seed, span.len)),
        Change::Truncate(keep) => content.truncate(within(*keep, content.len())),
        _ => return,
    }
    if let Ok(file) = OpenOptions::new().write(true).truncate(true).open(path) {
        file.write_all_at(&content, 0).expect("content");
    }
}
