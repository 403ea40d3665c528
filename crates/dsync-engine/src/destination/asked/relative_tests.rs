//! The bounds of relative runs against walks of real trees: entry by entry, the destination takes
//! what an honest source lists and nothing besides.

use std::collections::BTreeSet;

use dsync_fs::{FileListWriter, SpoolHome};

use super::*;

/// Makes operands below the tree: a path, the place of its `./` and a slash at its end or none.
fn operands() -> impl Strategy<Value = Vec<String>> {
    let names = vec(select(&["a", "b", "a.o", ".ssh"][..]), 1..4);
    let operand = (names, 0..3_usize, any::<bool>()).prop_map(|(names, cut, slash)| {
        let mut path = names.clone();
        path.insert(cut.min(names.len() - 1), ".");
        format!("{}{}", path.join("/"), if slash { "/" } else { "" })
    });
    vec(operand, 1..4)
}

/// A walked directory: its entries, each with whether it is implied, and whether it is whole.
struct Listed {
    entries: BTreeMap<Vec<u8>, bool>,
    whole: bool,
}

fn listed(
    (operands, list): (&[PathBuf], Option<(&Path, &FileList)>),
    filter: &FilterSet,
    options: &SyncOptions,
) -> (Tops, BTreeMap<Vec<u8>, Listed>) {
    let operands: Vec<&Path> = operands.iter().map(PathBuf::as_path).collect();
    let walk_options = WalkOptions {
        recursive: options.recursive,
        dirs: options.dirs,
        relative: true,
        filter: listed_by(filter.clone(), options),
        ..WalkOptions::default()
    };
    let walk = match list {
        Some((root, list)) => Walk::open_list(root, list, walk_options).unwrap(),
        None => Walk::open(&operands, walk_options).unwrap(),
    };
    let root = walk.root().map(|_| Attributes::default());
    let tops = Tops {
        root: root.filter(|_| options.takes_directories()),
        named: walk.named(),
        single_file: walk.single_file(),
    };
    let directories = walk.map(|dir| {
        let entries = dir.entries.iter();
        let entries = entries.map(|entry| (entry.name.as_bytes().to_vec(), entry.is_implied)).collect();
        (dir.path.as_bytes().to_vec(), Listed { entries, whole: dir.complete })
    });
    let directories = directories.collect();
    (tops, directories)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 300 }))]

    #[test]
    fn a_relative_run_takes_exactly_what_an_honest_source_lists(
        tree in tree(3),
        texts in operands(),
        rules in vec(select(PATTERNS), 0..3),
        recursive in any::<bool>(),
        dirs in any::<bool>(),
        by_list in any::<bool>(),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        plant(scratch.path(), &tree);
        let options = SyncOptions::default().recursive(recursive).dirs(dirs).relative(true);
        let operand = |text: &String| PathBuf::from(format!("{}/{text}", scratch.path().display()));
        let operands: Vec<PathBuf> = texts.iter().map(operand).collect();
        let filter = FilterSet::compile(&rules).unwrap();
        let list = by_list.then(|| {
            let mut list = FileListWriter::new(true, &SpoolHome::default());
            texts.iter().try_for_each(|text| list.push(text.as_bytes())).unwrap();
            list.finish().unwrap()
        });
        let root = list.as_ref().map(|list| (scratch.path(), list));
        let (tops, honest) = listed((&operands, root), &filter, &options);
        let asked = match &list {
            Some(list) => AskedFor::in_list(list.clone()),
            None => of_operands(&operands, &options).unwrap().as_sent().into(),
        };
        let bounds = || {
            let mut bounds = Bounds::new(asked.clone(), &filter, &options);
            bounds.tops(&tops).map(|()| bounds)
        };
        prop_assert!(bounds().is_ok());

        let mut names: BTreeSet<Vec<u8>> = NAMES.iter().map(|name| name.to_vec()).collect();
        names.insert(b"never".to_vec());
        for (path, listed) in &honest {
            let path = RelPath::parse(path).unwrap();
            let id = EntryId(u64::from(!path.is_root()));
            let directory = bounds().unwrap().directory(id, &path);
            prop_assert!(directory.is_ok(), "{:?}", path);
            let whole = bounds().unwrap().whole(&directory.unwrap());
            // A missing operand makes the root's listing incomplete.
            prop_assert!(whole.is_ok() || !listed.whole, "{:?} {:?}", path, whole);
            for name in &names {
                let mut bounds = bounds().unwrap();
                let mut directory = bounds.directory(id, &path).unwrap();
                let below = path.join(&Component::new(name).unwrap());
                let is_dir = honest.contains_key(below.as_bytes());
                let node = if is_dir { Node::Dir(Tree::new()) } else { Node::File };
                let entry = |implied| Entry { implied, ..entry(name, &node) };
                match listed.entries.get(name) {
                    Some(&implied) => {
                        let verdict = bounds.entry(&mut directory, &entry(implied));
                        // An excluded directory and an included file of its name differ.
                        let excluded = verdict == Err(Unasked::entry("the filters exclude it"));
                        prop_assert!(verdict.is_ok() || excluded, "{:?} {:?}", below, verdict);
                    }
                    None => {
                        let named = texts.iter().any(|text| {
                            RelativeForm::of(text.as_bytes()).unwrap().path == below
                        });
                        let covered = listed.whole || directory.is_covered;
                        if !named && !covered {
                            prop_assert!(bounds.entry(&mut directory, &entry(false)).is_err(), "{:?}", below);
                        }
                        let on_the_way = texts.iter().any(|text| {
                            let path = RelativeForm::of(text.as_bytes()).unwrap().path;
                            path != below && path.below(&below).is_some()
                        });
                        let way = Entry { implied: true, ..super::entry(name, &Node::Dir(Tree::new())) };
                        if !on_the_way {
                            prop_assert!(bounds.entry(&mut directory, &way).is_err(), "{:?}", below);
                        }
                    }
                }
                // A directory is listed if an operand stands for it, or is below it.
                if !honest.contains_key(below.as_bytes()) {
                    let may = bounds.directory(EntryId(1), &below).is_ok();
                    let known = texts.iter().any(|text| {
                        let form = RelativeForm::of(text.as_bytes()).unwrap();
                        let above = below.below(&form.path).is_some();
                        form.path.below(&below).is_some() || recursive && above
                    });
                    prop_assert!(!may || known, "{:?}", below);
                }
            }
        }
    }
}
