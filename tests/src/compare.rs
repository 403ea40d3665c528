//! An independent checker: walks two trees by plain paths and compares everything that `-a`
//! promises.
//!
//! It deliberately shares no code with dsync: neither the walker nor the metadata type. BLAKE3 only
//! serves to represent a file's content in 32 bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File, Metadata},
    io::Read,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

/// The known facts about one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `file`, `dir`, `symlink`, `fifo`, `socket`, `char` or `block`.
    pub kind: &'static str,
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Modification time: seconds since 1970 and nanoseconds.
    pub mtime: (i64, i64),
    /// Access time in seconds, before this survey read the entry; not of directories and links. Not
    /// of an entry with several names either, of which the survey has already read another.
    pub atime: Option<i64>,
    /// Length of a regular file.
    pub size: u64,
    /// Device number of a device.
    pub device: u64,
    /// Content of a regular file (its BLAKE3 sum) or text of a link.
    pub content: Vec<u8>,
    /// Extended attributes by name; access control lists are `system.posix_acl_*` among them.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Filesystem and inode of an entry that has several names (but is not a directory).
    pub inode: Option<(u64, u64)>,
}

/// The facts that a comparison includes.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Owners and groups.
    pub owners: bool,
    /// Permission bits.
    pub modes: bool,
    /// Modification times of non-directories.
    pub times: bool,
    /// Modification times of directories.
    pub dir_times: bool,
    /// The two directories themselves, not only their entries.
    pub root: bool,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
    /// The groups of names that are one file.
    pub links: bool,
    /// Access times, in whole seconds as rsync keeps them; only of trees that nothing else has read
    /// since.
    pub atimes: bool,
}

impl Scope {
    /// Everything that `-a` keeps, as root.
    pub const ALL: Self = Self {
        owners: true,
        modes: true,
        times: true,
        dir_times: true,
        root: true,
        xattrs: false,
        links: false,
        atimes: false,
    };
    /// Everything that `-aHAX` keeps, as root.
    pub const EVERYTHING: Self = Self { xattrs: true, links: true, ..Self::ALL };
    /// Everything except owners: a run without privileges cannot set them.
    pub const NO_OWNERS: Self = Self { owners: false, ..Self::ALL };
    /// Names, types and content only.
    pub const CONTENT: Self =
        Self { owners: false, modes: false, times: false, dir_times: false, root: false, ..Self::ALL };
    /// Everything below the two directories, but not the directories themselves.
    pub const BELOW: Self = Self { root: false, ..Self::ALL };

    /// Returns [`Scope::ALL`] as far as this process's privileges permit.
    pub fn full() -> Self {
        if crate::skip::is_root() { Self::ALL } else { Self::NO_OWNERS }
    }
}

/// Asserts that two trees are equal in the given scope.
///
/// # Panics
/// If they differ, with the first differences.
pub fn assert_same(source: &Path, destination: &Path, scope: Scope) {
    assert_none(&differences(source, destination, scope));
}

/// Asserts that a tree is as it was when surveyed. Reads since then, such as those of the survey,
/// are no change.
///
/// # Panics
/// If it differs, with the first differences.
pub fn assert_unchanged(before: &BTreeMap<Vec<u8>, Facts>, root: &Path) {
    assert_none(&compare(before, &survey(root), Scope::EVERYTHING));
}

fn assert_none(found: &[String]) {
    let head: Vec<&str> = found.iter().take(20).map(String::as_str).collect();
    assert!(found.is_empty(), "{} differences, first:\n{}", found.len(), head.join("\n"));
}

/// Returns the differences between two trees, one line each.
pub fn differences(source: &Path, destination: &Path, scope: Scope) -> Vec<String> {
    compare(&survey(source), &survey(destination), scope)
}

/// Returns the differences between two surveys, one line each.
pub fn compare(
    source: &BTreeMap<Vec<u8>, Facts>,
    destination: &BTreeMap<Vec<u8>, Facts>,
    scope: Scope,
) -> Vec<String> {
    let mut found = Vec::new();
    for (path, wanted) in source {
        if path.is_empty() && !scope.root {
            continue;
        }
        match destination.get(path) {
            None => found.push(format!("missing: {}", show(path))),
            Some(got) => {
                found.extend(differ(wanted, got, scope).map(|what| format!("{}: {what}", show(path))));
            }
        }
    }
    if scope.links {
        found.extend(link_differences(source, destination));
    }
    let extra = destination.keys().filter(|path| !source.contains_key(*path));
    found.extend(extra.map(|path| format!("extra: {}", show(path))));
    found
}

/// Returns the names that are one file on one side and not on the other.
fn link_differences(
    source: &BTreeMap<Vec<u8>, Facts>,
    destination: &BTreeMap<Vec<u8>, Facts>,
) -> Vec<String> {
    let groups = |survey: &BTreeMap<Vec<u8>, Facts>| {
        let mut groups: BTreeMap<(u64, u64), Vec<Vec<u8>>> = BTreeMap::new();
        for (path, facts) in survey {
            if let Some(inode) = facts.inode {
                groups.entry(inode).or_default().push(path.clone());
            }
        }
        // Names outside the tree do not count.
        groups.into_values().filter(|names| names.len() > 1).collect::<BTreeSet<_>>()
    };
    let (wanted, got) = (groups(source), groups(destination));
    let tell = |what: &str, names: &Vec<Vec<u8>>| {
        format!("{what}: {}", names.iter().map(|name| show(name)).collect::<Vec<_>>().join(", "))
    };
    let missing = wanted.difference(&got).map(|names| tell("not one file", names));
    missing.chain(got.difference(&wanted).map(|names| tell("should not be one file", names))).collect()
}

/// Returns everything at and under `root`, by path relative to it; the root itself has the empty
/// path.
///
/// # Panics
/// If anything cannot be read.
pub fn survey(root: &Path) -> BTreeMap<Vec<u8>, Facts> {
    let mut found = BTreeMap::new();
    found.insert(Vec::new(), facts(root));
    let mut pending = if root.is_dir() { vec![Vec::new()] } else { Vec::new() };
    while let Some(dir) = pending.pop() {
        let at = root.join(OsStr::from_bytes(&dir));
        for entry in fs::read_dir(&at).unwrap_or_else(|error| panic!("{}: {error}", at.display())) {
            let name = entry.expect("a directory entry").file_name().into_vec();
            let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name[..]].concat() };
            let facts = facts(&root.join(OsStr::from_bytes(&path)));
            if facts.kind == "dir" {
                pending.push(path.clone());
            }
            found.insert(path, facts);
        }
    }
    found
}

/// Returns the names of temporary files, dsync's or rsync's, under a directory.
///
/// # Panics
/// If anything cannot be read.
pub fn temporaries(root: &Path) -> Vec<String> {
    if !root.exists() {
        return Vec::new();
    }
    let is_temporary = |path: &[u8]| {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        name.starts_with(b".dsync-")
            || (name.starts_with(b".") && name.len() > 8 && name[name.len() - 7] == b'.')
    };
    names(root).iter().filter(|path| is_temporary(path)).map(|path| show(path)).collect()
}

/// Returns whether a run writes to a directory. It then has a temporary file besides the lock,
/// which is no proof: its file exists for a moment before it is locked.
///
/// # Panics
/// If anything cannot be read.
pub fn is_written_to(root: &Path) -> bool {
    temporaries(root).iter().any(|path| !path.contains(".dsync-lock-"))
}

/// Returns the paths of the entries of a tree, which may change meanwhile.
fn names(root: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            let path = entry.path();
            let below = path.strip_prefix(root).unwrap_or(&path);
            found.push(below.as_os_str().as_bytes().to_vec());
        }
    }
    found
}

/// Formats a path for people.
pub fn show(path: &[u8]) -> String {
    if path.is_empty() { "(root)".into() } else { format!("'{}'", path.escape_ascii()) }
}

fn differ(wanted: &Facts, got: &Facts, scope: Scope) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let mut check =
        |on: bool, what: &str, wanted: &dyn std::fmt::Debug, got: &dyn std::fmt::Debug, same: bool| {
            if on && !same {
                found.push(format!("{what} is {got:?}, should be {wanted:?}"));
            }
        };
    check(true, "type", &wanted.kind, &got.kind, wanted.kind == got.kind);
    if wanted.kind == got.kind {
        check(true, "size", &wanted.size, &got.size, wanted.size == got.size);
        check(true, "content", &"the source's", &"other", wanted.content == got.content);
        check(true, "device", &wanted.device, &got.device, wanted.device == got.device);
        let has_mode = wanted.kind != "symlink";
        check(scope.modes && has_mode, "mode", &wanted.mode, &got.mode, wanted.mode == got.mode);
        check(scope.owners, "owner", &wanted.owner, &got.owner, wanted.owner == got.owner);
        let times = if wanted.kind == "dir" { scope.dir_times } else { scope.times };
        check(times, "mtime", &wanted.mtime, &got.mtime, wanted.mtime == got.mtime);
        check(scope.atimes, "atime", &wanted.atime, &got.atime, wanted.atime == got.atime);
        let same = wanted.xattrs == got.xattrs;
        check(scope.xattrs, "extended attributes", &wanted.xattrs, &got.xattrs, same);
    }
    found.into_iter()
}

fn facts(path: &Path) -> Facts {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let kind = kind(&meta);
    let content = match kind {
        "file" => sum(path).to_vec(),
        "symlink" => fs::read_link(path).expect("a link's text").into_os_string().into_vec(),
        _ => Vec::new(),
    };
    Facts {
        kind,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        atime: (!matches!(kind, "dir" | "symlink") && meta.nlink() == 1).then(|| meta.atime()),
        size: if kind == "file" { meta.len() } else { 0 },
        device: if matches!(kind, "char" | "block") { meta.rdev() } else { 0 },
        content,
        xattrs: xattrs(path),
        inode: (kind != "dir" && meta.nlink() > 1).then(|| (meta.dev(), meta.ino())),
    }
}

/// Returns the extended attributes of an entry, a link's own.
fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let listed = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(listed) => listed,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let names = names[..listed].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = String::from_utf8_lossy(name).into_owned();
            let mut value = vec![0; 64 << 10];
            let len = rustix::fs::lgetxattr(path, &name, &mut value[..])
                .unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
            value.truncate(len);
            (name, value)
        })
        .collect()
}

fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "dir",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "char",
        () => "block",
    }
}

/// Returns the bytes that a file occupies on the disk.
///
/// # Panics
/// If its attributes cannot be read.
pub fn allocated(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).blocks() * 512
}

/// Returns the map of a file's data: the start and end of each part that is not a hole.
///
/// # Panics
/// If it cannot be read.
pub fn data_map(path: &Path) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut map = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).expect("the end of the file is a hole");
        map.push((start, at));
    }
    map
}

/// Returns the BLAKE3 hash of a file's content.
///
/// # Panics
/// If it cannot be read.
pub fn sum(path: &Path) -> [u8; 32] {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
            0 => return *hasher.finalize().as_bytes(),
            got => drop(hasher.update(&buffer[..got])),
        }
    }
}
