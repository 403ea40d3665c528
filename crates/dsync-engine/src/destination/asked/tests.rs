//! The bounds against walks of real trees: whatever the operands and rules, the destination takes
//! exactly what an honest source lists.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
};

use dsync_fs::{FollowLinks, Kind, Metadata, Origin, Walk, WalkOptions, WalkedEntry};
use dsync_wire::{
    message::{Acl, Xattr},
    options::WritePolicy,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::source::listed_entry;

#[path = "relative_tests.rs"]
mod relative_tests;

/// A tree that a source would list: names with their nodes.
type Tree = BTreeMap<&'static [u8], Node>;

#[derive(Debug, Clone)]
enum Node {
    File,
    Link,
    Dir(Tree),
}

/// An operand, in a directory of its own.
#[derive(Debug, Clone)]
enum Form {
    /// The content of the directory, written like this behind its path.
    Contents(&'static str),
    Entry(&'static [u8]),
}

const OWN: &[u8] = b".dsync-tmp-0123456789abcdef0123456789abcdef";

const NAMES: &[&[u8]] = &[b"a", b"b", b"a.o", b".ssh", b"\xff\n", b".parts", OWN];

const PATTERNS: &[(bool, &[u8])] = &[
    (false, b".ssh"),
    (false, b"*.o"),
    (false, b"/a"),
    (false, b"b/"),
    (false, b"a/b"),
    (false, b"/*/a"),
    (false, b"**/a.o"),
    (false, b"*"),
    (true, b"*/"),
    (true, b"/b/***"),
    (true, b"a"),
    (true, b".parts"),
];

fn tree(depth: u32) -> BoxedStrategy<Tree> {
    let node = match depth {
        0 => select(vec![Node::File, Node::Link]).boxed(),
        _ => prop_oneof![
            2 => select(vec![Node::File, Node::Link]),
            3 => tree(depth - 1).prop_map(Node::Dir),
        ]
        .boxed(),
    };
    vec((select(NAMES), node), 0..4).prop_map(|nodes| nodes.into_iter().collect()).boxed()
}

fn operands() -> impl Strategy<Value = Vec<Form>> {
    let form = prop_oneof![
        1 => select(vec!["/", "/.", "/./", "//"]).prop_map(Form::Contents),
        2 => select(NAMES).prop_map(Form::Entry),
    ];
    vec(form, 1..4)
}

fn options() -> impl Strategy<Value = SyncOptions> {
    let bit = || prop::bool::weighted(0.3);
    (prop::bool::weighted(0.7), bit(), option::weighted(0.3, Just(b".parts".to_vec()))).prop_map(
        |(recursive, dirs, partial_dir)| {
            SyncOptions::default()
                .recursive(recursive)
                .dirs(dirs)
                .writing(WritePolicy::default().partial_dir(partial_dir))
        },
    )
}

/// Makes a tree.
fn plant(at: &Path, tree: &Tree) {
    fs::create_dir_all(at).unwrap();
    for (name, node) in tree {
        let path = at.join(OsStr::from_bytes(name));
        match node {
            Node::File => fs::write(path, "x").unwrap(),
            Node::Link => symlink("target", path).unwrap(),
            Node::Dir(tree) => plant(&path, tree),
        }
    }
}

/// Collects all paths of a tree with their types.
fn paths(of: &RelPath, tree: &Tree, found: &mut BTreeMap<Vec<u8>, Kind>) {
    for (name, node) in tree {
        let path = of.join(&Component::new(name).unwrap());
        let kind = match node {
            Node::File => Kind::File,
            Node::Link => Kind::Symlink,
            Node::Dir(_) => Kind::Dir,
        };
        found.insert(path.as_bytes().to_vec(), kind);
        if let Node::Dir(tree) = node {
            paths(&path, tree, found);
        }
    }
}

fn entry(name: &[u8], node: &Node) -> Entry {
    let kind = match node {
        Node::File => EntryKind::File { size: 1, content: None },
        // None of the runs copies links.
        Node::Link => EntryKind::Symlink { target: Vec::new() },
        Node::Dir(_) => EntryKind::Directory,
    };
    Entry {
        name: Name::new(name).unwrap(),
        kind,
        attributes: Attributes::default(),
        hard_link: None,
        implied: false,
    }
}

/// Judges a tree as a source would list it, with its word on which directories are complete.
fn judge(
    bounds: &mut Bounds<'_>,
    id: u64,
    path: &RelPath,
    tree: &Tree,
    is_whole: &dyn Fn(&RelPath) -> bool,
) -> Result<(), Unasked> {
    let mut judged = bounds.directory(EntryId(id), path)?;
    if is_whole(path) {
        bounds.whole(&judged)?;
    }
    tree.iter().try_for_each(|(name, node)| bounds.entry(&mut judged, &entry(name, node)))?;
    for (name, node) in tree {
        let Node::Dir(below) = node else { continue };
        // Of a run that is not recursive an honest source lists the root alone.
        if !bounds.options.recursive && below.is_empty() {
            continue;
        }
        judge(bounds, id + 1, &path.join(&Component::new(name).unwrap()), below, is_whole)?;
    }
    Ok(())
}

/// The result of a walk: the source's words on its operands, its entries, and which directories are
/// complete.
struct Honest {
    tops: Tops,
    entries: BTreeMap<Vec<u8>, Kind>,
    whole: BTreeMap<Vec<u8>, bool>,
}

/// Walks a tree that is at each operand's place.
fn walk(operands: &[PathBuf], filter: &FilterSet, options: &SyncOptions) -> Honest {
    let operands: Vec<&Path> = operands.iter().map(PathBuf::as_path).collect();
    let filter = listed_by(filter.clone(), options);
    let follow = FollowLinks {
        all: options.copy_links,
        leading_out: options.copy_unsafe_links,
        ..FollowLinks::default()
    };
    let walk_options = WalkOptions {
        recursive: options.recursive,
        dirs: options.dirs,
        follow,
        filter,
        ..WalkOptions::default()
    };
    let walk = Walk::open(&operands, walk_options).unwrap();
    let root = walk.root().map(|_| Attributes::default());
    let tops = Tops { root, named: walk.named(), single_file: walk.single_file() };
    let mut honest = Honest { tops, entries: BTreeMap::new(), whole: BTreeMap::new() };
    for dir in walk {
        assert!(dir.problems.is_empty(), "{:?}", dir.problems);
        honest.whole.insert(dir.path.as_bytes().to_vec(), dir.complete);
        for entry in &dir.entries {
            honest.entries.insert(dir.path.join(&entry.name).as_bytes().to_vec(), entry.metadata.kind);
        }
    }
    honest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 400 }))]

    #[test]
    fn a_destination_takes_exactly_what_an_honest_source_lists(
        tree in tree(2),
        forms in operands(),
        rules in vec(select(PATTERNS), 0..4),
        options in options(),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let mut operands = Vec::new();
        for (number, form) in forms.iter().enumerate() {
            let at = scratch.path().join(number.to_string());
            plant(&at, &tree);
            operands.push(match form {
                Form::Contents(end) => PathBuf::from(format!("{}{end}", at.display())),
                Form::Entry(name) => at.join(OsStr::from_bytes(name)),
            });
        }
        let filter = FilterSet::compile(&rules).unwrap();
        let honest = walk(&operands, &filter, &options);
        let mut listed = BTreeMap::new();
        paths(&RelPath::root(), &tree, &mut listed);
        let bounds = || Bounds::new(of_operands(&operands, &options).unwrap().as_sent(), &filter, &options);
        let judged = |is_whole: &dyn Fn(&RelPath) -> bool| {
            let mut bounds = bounds();
            bounds.tops(&honest.tops)?;
            judge(&mut bounds, 0, &RelPath::root(), &tree, is_whole)
        };

        // Each operand's place has all of the tree: no honest source would have listed an entry
        // that the walk lacks.
        let verdict = judged(&|path| honest.whole.get(path.as_bytes()) == Some(&true));
        prop_assert_eq!(verdict.is_ok(), listed == honest.entries, "{:?}: {:?}", verdict, honest.entries);

        // The source has no say in the completeness of a directory that no operand stands for.
        let claimed = judged(&|_| true);
        let contents = forms.iter().any(|form| matches!(form, Form::Contents(_)));
        if verdict.is_ok() {
            prop_assert_eq!(claimed.is_ok(), contents && options.takes_directories());
        } else {
            prop_assert!(claimed.is_err());
        }
    }

    #[test]
    fn words_on_the_operands_are_those_of_an_honest_source(
        forms in operands(),
        root in any::<bool>(),
        named in 0..5_u32,
        single_file in any::<bool>(),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let options = SyncOptions::default().recursive(true);
        let operands: Vec<_> = forms.iter().map(|form| match form {
            Form::Contents(end) => PathBuf::from(format!("{}{end}", scratch.path().display())),
            Form::Entry(name) => scratch.path().join(OsStr::from_bytes(name)),
        }).collect();
        let filter = FilterSet::default();
        let mut names: Vec<_> =
            forms.iter().filter_map(|form| if let Form::Entry(name) = form { Some(name) } else { None }).collect();
        names.sort_unstable();
        names.dedup();
        let contents = forms.iter().any(|form| matches!(form, Form::Contents(_)));
        let tops = Tops { root: root.then(Attributes::default), named, single_file };
        let could_be = (contents || !root)
            && named as usize <= names.len()
            && (!single_file || forms.len() == 1 && !contents);
        let mut bounds = Bounds::new(of_operands(&operands, &options).unwrap(), &filter, &options);
        prop_assert_eq!(bounds.tops(&tops).is_ok(), could_be);
    }

    #[test]
    fn permissions_are_judged_by_what_the_rules_give(mode in 0..=MAX_MODE, keep in 0..=MAX_MODE, set in 0..=MAX_MODE) {
        let rule = ModeRule::new(keep, set).directories(false).if_executable(true);
        let modes = Modes::of(&[rule]).unwrap();
        prop_assert!(modes.has(ModeRule::apply(&[rule], mode, false), false));
        let found = (0..=MAX_MODE).any(|before| ModeRule::apply(&[rule], before, false) == mode);
        prop_assert_eq!(modes.has(mode, false), found);
        prop_assert!(modes.has(mode, true));
    }
}

/// Options that decide which parts of an entry are sent.
fn details() -> impl Strategy<Value = SyncOptions> {
    any::<[bool; 9]>().prop_map(
        |[owner, group, atimes, acls, xattrs, hard_links, checksum, links, devices]| {
            SyncOptions::default()
                .owner(owner)
                .group(group)
                .atimes(atimes)
                .acls(acls)
                .xattrs(xattrs)
                .hard_links(hard_links)
                .checksum(checksum)
                .links(links)
                .devices(devices)
                .recursive(true)
        },
    )
}

/// The source's knowledge of an entry.
#[derive(Debug, Clone)]
struct Known {
    walked: WalkedEntry,
    content: Option<[u8; 32]>,
    extended: Option<Extended>,
    hard_link: Option<HardLink>,
}

const KINDS: &[Kind] =
    &[Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::CharDevice, Kind::BlockDevice];

fn known() -> impl Strategy<Value = Known> {
    let numbers = (0..3_u32, 0..3_u32, 0..3_u32);
    let acl =
        || option::of(Just(Acl { user: 7, group: 5, mask: None, other: 0, users: vec![], groups: vec![] }));
    let xattr = select(vec![b"user.a".to_vec(), b"security.b".to_vec()]);
    let xattrs = vec(xattr.prop_map(|name| Xattr { name, value: vec![1] }), 0..2);
    let set =
        (acl(), acl(), xattrs).prop_map(|(access, default, xattrs)| Extended { access, default, xattrs });
    let extras = (any::<bool>(), option::of(set), any::<bool>());
    (select(KINDS), numbers, extras).prop_map(|(kind, (uid, gid, major), (content, extended, linked))| {
        let time = dsync_fs::Timestamp { seconds: 5, nanoseconds: 0 };
        let metadata = Metadata {
            kind,
            mode: 0o644,
            size: 1,
            mtime: time,
            ctime: time,
            atime: time,
            born: None,
            uid,
            gid,
            dev: 1,
            ino: 1,
            nlink: 2,
            rdev: dsync_fs::DeviceNumber { major, minor: 0 },
            blocks: 0,
            origin: Origin::Inode,
        };
        let link_target = (kind == Kind::Symlink).then(|| b"t".to_vec());
        Known {
            walked: WalkedEntry {
                name: Component::new(b"x").unwrap(),
                metadata,
                link_target,
                followed: None,
                is_walked: false,
                is_implied: false,
                choice: dsync_fs::Choice::Copy,
            },
            content: (content && kind == Kind::File).then_some([7; 32]),
            extended,
            hard_link: (linked && kind != Kind::Dir).then_some(HardLink::First),
        }
    })
}

/// Returns an entry as an honest source sends it: the lister's reading under these options, in its
/// form.
fn sent(known: &Known, options: &SyncOptions) -> Entry {
    let content = known.content.filter(|_| options.checksum);
    let extended = known.extended.clone().filter(|_| options.acls || options.xattrs).map(|mut set| {
        set.access = set.access.filter(|_| options.acls);
        set.default = set.default.filter(|_| options.acls);
        set.xattrs.retain(|_| options.xattrs);
        Arc::new(set)
    });
    let mut entry = listed_entry(&known.walked, content, extended, options).unwrap();
    entry.hard_link = known.hard_link.filter(|_| options.hard_links);
    entry
}

/// Returns a source's knowledge from which it would have sent this, if it is true.
fn back(entry: &Entry, known: &Known) -> Known {
    let mut back = known.clone();
    let metadata = &mut back.walked.metadata;
    (metadata.uid, metadata.gid) = (entry.attributes.uid, entry.attributes.gid);
    // A time that cannot travel is left out.
    metadata.atime.nanoseconds = if entry.attributes.atime.is_some() { 0 } else { u32::MAX };
    match &entry.kind {
        EntryKind::File { content, .. } => back.content = *content,
        EntryKind::Symlink { target } => back.walked.link_target = Some(target.clone()),
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
            metadata.rdev = dsync_fs::DeviceNumber { major: device.major, minor: device.minor };
        }
        _ => {}
    }
    back.extended = entry.attributes.extended.as_deref().cloned();
    back.hard_link = entry.hard_link;
    back
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn attributes_are_taken_if_and_only_if_they_would_have_been_sent(
        known in known(),
        theirs in details(),
        ours in details(),
    ) {
        let entry = sent(&known, &theirs);
        let textless = matches!(&entry.kind, EntryKind::Symlink { target } if target.is_empty());
        let could_be = sent(&back(&entry, &known), &ours) == entry && !(ours.links && textless);
        let asked = Asked { contents: true, names: Some(Vec::new()), paths: Vec::new() };
        let mut bounds = Bounds::new(asked, &FilterSet::default(), &ours);
        bounds.tops(&Tops { root: Some(Attributes::default()), named: 0, single_file: false }).unwrap();
        let mut root = bounds.directory(EntryId(0), &RelPath::root()).unwrap();
        let verdict = bounds.entry(&mut root, &entry);
        prop_assert_eq!(verdict.is_ok(), could_be, "{:?}", verdict);
        prop_assert!(bounds.entry(&mut root, &sent(&known, &ours)).is_ok());
    }
}

#[test]
fn more_operands_than_can_be_sent_bound_no_names() {
    let operands: Vec<PathBuf> = (0..5000).map(|number| PathBuf::from(format!("d/{number}"))).collect();
    let options = SyncOptions::default();
    let file = |name: &[u8]| entry(name, &Node::File);
    let tops = Tops { root: None, named: 5000, single_file: false };
    for (asked, takes) in [
        (of_operands(&operands, &options).unwrap(), false),
        (of_operands(&operands, &options).unwrap().as_sent(), true),
    ] {
        let mut bounds = Bounds::new(asked, &FilterSet::default(), &options);
        bounds.tops(&tops).unwrap();
        let mut root = bounds.directory(EntryId(0), &RelPath::root()).unwrap();
        assert!(bounds.entry(&mut root, &file(b"4999")).is_ok());
        assert_eq!(bounds.entry(&mut root, &file(b"5000")).is_ok(), takes);
        assert!(bounds.whole(&root).is_err());
    }
}

#[test]
fn no_link_comes_where_it_would_have_been_followed() {
    let filter = FilterSet::default();
    let link = |text: &str| {
        let kind = EntryKind::Symlink { target: text.into() };
        let name = Name::new(b"link").unwrap();
        Entry { name, kind, attributes: Attributes::default(), hard_link: None, implied: false }
    };
    let takes = |options: &SyncOptions, path: &[u8], text: &str| {
        let asked = Asked { contents: true, names: Some(Vec::new()), paths: Vec::new() };
        let mut bounds = Bounds::new(asked, &filter, options);
        let tops = Tops { root: Some(Attributes::default()), named: 0, single_file: false };
        bounds.tops(&tops).unwrap();
        let mut judged = bounds.directory(EntryId(7), &RelPath::parse(path).unwrap()).unwrap();
        bounds.entry(&mut judged, &link(text)).is_ok()
    };
    let plain = SyncOptions::default().links(true).recursive(true);
    let all = plain.clone().copy_links(true);
    let leading_out = plain.clone().copy_unsafe_links(true);
    let to_directories = plain.clone().copy_dirlinks(true);
    for (path, text, leads_out) in [
        (&b"a"[..], "x", false),
        (b"a", "../x", false),
        (b"a/b", "../../x", false),
        (b"a", "../../x", true),
        (b"a", "/x", true),
    ] {
        assert!(takes(&plain, path, text) && takes(&to_directories, path, text));
        assert!(!takes(&all, path, text));
        assert_eq!(takes(&leading_out, path, text), !leads_out, "{text}");
    }
}
