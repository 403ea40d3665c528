//! The licences of all that is in the program, for who gets the program without its sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::{
    error::TaskError,
    step::{command, root},
};

/// Returns the project's own licences, and the names and texts of those of all crates that the
/// command is linked with. Each text is there once.
///
/// # Errors
/// [`TaskError::Metadata`], [`TaskError::Read`].
pub(super) fn text() -> Result<String, TaskError> {
    // Crates for other systems are neither linked nor, most likely, downloaded.
    let rustc = super::printed(&mut command("rustc", &["-vV"]))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
    let metadata = MetadataCommand::new()
        .current_dir(root())
        .other_options(["--locked".to_owned(), "--filter-platform".to_owned(), host])
        .exec()?;
    let mut text = "dsync is licensed as MIT OR Apache-2.0. It contains these crates:\n\n".to_owned();
    let linked = linked(&metadata);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in metadata.packages.iter().filter(|package| linked.contains(&package.id)) {
        let name = format!("{} {}", package.name, package.version);
        text += &format!("  {name}: {}\n", package.license.as_deref().unwrap_or("see below"));
        for found in texts_of(package) {
            texts.entry(found).or_default().push(name.clone());
        }
    }
    for own in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = root().join(own);
        let found = fs::read_to_string(&path);
        let found = found.map_err(|source| TaskError::Read { path: path.display().to_string(), source })?;
        texts.entry(found).or_default().insert(0, "dsync".to_owned());
    }
    for (found, names) in texts {
        text += &format!("\n{}\n{}:\n\n{}\n", "-".repeat(78), names.join(", "), found.trim_end());
    }
    Ok(text)
}

/// Returns the packages that the command is linked with: its own needs and theirs, without those
/// of builds and tests.
fn linked(metadata: &Metadata) -> BTreeSet<PackageId> {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<&PackageId, _> = nodes.map(|node| (&node.id, node)).collect();
    let command = metadata.packages.iter().find(|package| package.name.as_str() == "dsync-cli");
    let mut left: Vec<PackageId> = command.map(|package| package.id.clone()).into_iter().collect();
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        let needs = nodes.get(&id).map(|node| &node.deps).into_iter().flatten();
        let normal =
            needs.filter(|need| need.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        if found.insert(id.clone()) {
            left.extend(normal.map(|need| need.pkg.clone()));
        }
    }
    found
}

/// Returns the texts of licences and notices in a package.
fn texts_of(package: &Package) -> Vec<String> {
    let dir = package.manifest_path.parent();
    let entries = dir.map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let is_licence = |name: &str| {
        let name = name.to_ascii_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"].iter().any(|word| name.starts_with(word))
    };
    let files = entries.filter(|entry| is_licence(&entry.file_name().to_string_lossy()));
    let mut files: Vec<_> = files.map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

#[test]
fn every_crate_that_is_linked_is_named_and_no_other() -> Result<(), TaskError> {
    let text = text()?;
    for name in ["rustls ", "aws-lc-rs ", "dsync-engine ", "clap "] {
        assert!(text.contains(&format!("\n  {name}")), "{name}");
    }
    assert!(!text.contains("\n  proptest "));
    assert!(text.contains("Apache License") && text.contains("Permission is hereby granted"));
    Ok(())
}
