//! A crate's source as files and modules: the shipped part, without items that are built for tests
//! only.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Item, ItemMod};

use crate::{error::TaskError, step::root};

/// A module's path from the crate's root; the root itself is empty.
pub(crate) type ModulePath = Vec<String>;

/// One file of a crate.
pub(crate) struct Source {
    /// Path from the root of the checkout.
    pub(crate) path: String,
    /// The module that the file is.
    pub(crate) module: ModulePath,
    /// The file's text as it was parsed, without items that only tests are built from.
    pub(crate) syntax: syn::File,
    /// The file's lines.
    pub(crate) lines: Vec<String>,
}

/// Reads a crate from its root file on, following its `mod` items.
///
/// # Errors
/// [`TaskError::Read`] and [`TaskError::Parse`] name the file.
pub(crate) fn of_crate(name: &str) -> Result<Vec<Source>, TaskError> {
    let folder = root().join("crates").join(name).join("src");
    let mut found = Vec::new();

    for start in ["lib.rs", "main.rs"] {
        let file = folder.join(start);
        if file.exists() {
            read(&file, &folder, Vec::new(), &mut found)?;
        }
    }
    Ok(found)
}

/// Reads one file, and those of its modules, which are in `folder`.
fn read(file: &Path, folder: &Path, module: ModulePath, found: &mut Vec<Source>) -> Result<(), TaskError> {
    let shown = file.strip_prefix(root()).unwrap_or(file).display().to_string();
    let text = fs::read_to_string(file).map_err(|source| TaskError::Read { path: shown.clone(), source })?;
    let mut syntax =
        syn::parse_file(&text).map_err(|source| TaskError::Parse { path: shown.clone(), source })?;

    syntax.items.retain(|item| !is_for_tests(attributes(item)));
    for declared in outer_modules(&syntax) {
        let name = declared.ident.to_string();
        let Some((file, folder)) = file_of(folder, &name) else { continue };
        let module = [&module[..], &[name]].concat();
        read(&file, &folder, module, found)?;
    }
    found.push(Source { path: shown, module, syntax, lines: text.lines().map(str::to_owned).collect() });
    Ok(())
}

/// Returns the `mod` items whose content is a file of its own.
fn outer_modules(syntax: &syn::File) -> impl Iterator<Item = &ItemMod> {
    syntax.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    })
}

/// Returns the file of a module that is declared in `folder`, and the folder of its own modules.
fn file_of(folder: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    let inner = folder.join(name);
    let files = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
    files.into_iter().find(|file| file.exists()).map(|file| (file, inner))
}

/// Returns whether an item is built for tests only.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let words = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            _ => return attribute.path().is_ident("test"),
        };
        let words: Vec<&str> = words.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        words.contains(&"test") && !words.contains(&"not")
    })
}

/// Returns an item's attributes.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns a crate's files by the module that each is.
pub(crate) fn by_module(sources: &[Source]) -> BTreeMap<&[String], usize> {
    sources.iter().enumerate().map(|(at, source)| (&source.module[..], at)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn is_left_out(attribute: &str) -> bool {
        let item: Item = syn::parse_str(&format!("{attribute} mod x;")).unwrap();
        is_for_tests(attributes(&item))
    }

    #[test]
    fn what_only_tests_are_built_from_is_left_out() {
        assert!(is_left_out("#[cfg(test)]") && is_left_out("#[cfg(all(test, unix))]"));
        assert!(!is_left_out("") && !is_left_out("#[cfg(unix)]") && !is_left_out("#[cfg(not(test))]"));
        assert!(!is_left_out("#[cfg(feature = \"testing\")]"));
    }

    #[test]
    fn every_file_of_a_crate_is_found_and_no_file_of_tests() {
        let sources = of_crate("dsync-engine").unwrap();
        let paths: Vec<&str> = sources.iter().map(|source| &source.path[..]).collect();
        let has = |path: &str| paths.contains(&format!("crates/dsync-engine/src/{path}").as_str());
        assert!(has("lib.rs") && has("destination/mod.rs") && has("destination/files.rs"));
        assert!(!has("destination/asked/tests.rs"));
    }
}
