//! A filesystem that takes names for one which differ in the case of their letters only, as FAT does: no
//! file replaces another one of the source's, and the run says which had no name.

use std::{collections::BTreeMap, fs, path::Path};

use dsync_tests::{Node, Scratch, Stingy, Tree, every_way, needs_dsync};

/// Returns the files below a directory, with their contents.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for path in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn names_that_a_filesystem_takes_for_one_are_told_and_none_replaces_another() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([
        Node::file("File", 1, 5000),
        Node::file("file", 2, 7000),
        Node::file("alone", 3, 100),
        Node::dir("Dir"),
        Node::file("Dir/x", 4, 10),
        Node::dir("dir"),
        Node::file("dir/x", 5, 20),
    ])
    .plant(&scratch.src());
    let source = files(&scratch.src());

    for options in [&["-rt"][..], &["-rt", "--delete"], &["-rt", "--delay-updates"], &["-rt", "--inplace"]] {
        every_way(&scratch, options, |copy, to| {
            let behind = scratch.at("behind");
            [to, &behind].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
            let Some(disk) = Stingy::mount_without_case(&behind, to) else { return };
            for _ in 0..2 {
                let outcome = copy().run().expect_code(23);
                let said = outcome.stderr_text();
                assert!(said.contains("'dir'") || said.contains("'Dir'"), "{said}");
                assert!(said.contains("'file'") || said.contains("'File'"), "{said}");
                let there = files(&behind);
                assert_eq!(there.len(), 3, "{:?}", there.keys());
                assert!(there.iter().all(|(name, content)| source[name] == *content), "{options:?}");
            }
            drop(disk);
            [to, &behind].into_iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
        });
    }
}

#[test]
fn a_name_whose_case_has_changed_is_never_lost_without_a_word() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("photo.jpg", 1, 5000)]).plant(&scratch.src());
    let source = files(&scratch.src());

    for delete in ["--delete", "--delete-before", "--delete-during", "--delete-after"] {
        every_way(&scratch, &["-rt", delete], |copy, to| {
            let behind = scratch.at("behind");
            [to, &behind].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
            fs::write(behind.join("Photo.JPG"), "an older one").unwrap();
            let Some(disk) = Stingy::mount_without_case(&behind, to) else { return };
            // The old name goes, at the latest at the end of the first run.
            let outcome = copy().run();
            let is_there = files(&behind) == source;
            assert!(outcome.code() == Some(if is_there { 0 } else { 23 }), "{delete}: {}", outcome.account());
            let _ = copy().run().expect_code(0);
            assert_eq!(files(&behind), source, "{delete}");
            drop(disk);
            [to, &behind].into_iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
        });
    }
}
