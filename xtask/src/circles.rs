//! Circles of imports between the files of one crate.
//!
//! A file imports another one if a path in it leads there: in a `use`, a signature, a body or a
//! macro's arguments. A re-export is followed to the file that defines the name, so a crate may
//! give its items short names. A module's `mod` items are no imports; methods are not looked at, as
//! syntax alone does not tell whose they are.
//!
//! The law: files of one circle can only be understood together, so no circle has more than
//! [`MAX_FILES`].

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Item, UseTree,
    visit::{self, Visit},
};

use crate::{
    error::TaskError,
    sources::{self, ModulePath, Source, attributes, by_module, is_for_tests},
};

/// Files of the largest circle that is allowed: a module, its parts, and what both speak of.
const MAX_FILES: usize = 3;
/// Words of the longest path that is followed.
const MAX_WORDS: usize = 10;

/// Files that import each other, in the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// The files, sorted.
    files: Vec<String>,
    /// One line for each import among them: from, to, names.
    ties: Vec<String>,
}

/// Prints the circles of all crates.
///
/// # Errors
/// [`TaskError::Circles`] names each that is too large.
pub(crate) fn check(crates: &[&str]) -> Result<(), TaskError> {
    let mut large = Vec::new();

    for name in crates {
        let circles = circles(&sources::of_crate(name)?);
        let largest = circles.iter().map(|circle| circle.files.len()).max().unwrap_or(0);
        println!("circles: {name}: {}, the largest of {largest} files", circles.len());
        for circle in circles {
            println!("  {}\n    {}", circle.files.join(", "), circle.ties.join("\n    "));
            if circle.files.len() > MAX_FILES {
                large.push(format!("{} files: {}", circle.files.len(), circle.files.join(", ")));
            }
        }
    }
    if large.is_empty() { Ok(()) } else { Err(TaskError::Circles { most: MAX_FILES, circles: large }) }
}

/// Imports of each file: the other file, and the names.
type Imports = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// Finds the circles of a crate's files.
fn circles(sources: &[Source]) -> Vec<Circle> {
    let imports = imports(sources);
    let reach: Vec<BTreeSet<usize>> = (0..sources.len()).map(|at| reached(&imports, at)).collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();

    for at in 0..sources.len() {
        if !reach[at].contains(&at) || !seen.insert(at) {
            continue;
        }
        let members: BTreeSet<usize> =
            reach[at].iter().copied().filter(|&to| reach[to].contains(&at)).collect();
        seen.extend(&members);
        found.push(circle(sources, &imports, &members));
    }
    found.sort_by_key(|circle| (std::cmp::Reverse(circle.files.len()), circle.files.clone()));
    found
}

fn circle(sources: &[Source], imports: &Imports, members: &BTreeSet<usize>) -> Circle {
    let mut files: Vec<String> = members.iter().map(|&at| sources[at].path.clone()).collect();
    let mut ties = Vec::new();

    for from in members {
        for (to, names) in imports.get(from).into_iter().flatten().filter(|(to, _)| members.contains(to)) {
            let names = Vec::from_iter(names.iter().map(String::as_str)).join(", ");
            ties.push(format!("{} -> {}: {names}", sources[*from].path, sources[*to].path));
        }
    }
    files.sort();
    ties.sort();
    Circle { files, ties }
}

/// Returns every file that can be reached from one by its imports.
fn reached(imports: &Imports, from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut pending = vec![from];

    while let Some(at) = pending.pop() {
        pending.extend(imports.get(&at).into_iter().flat_map(BTreeMap::keys).filter(|&&to| found.insert(to)));
    }
    found
}

fn imports(sources: &[Source]) -> Imports {
    let names = Names::new(sources);
    let mut imports = Imports::new();

    for (at, source) in sources.iter().enumerate() {
        let mut paths = Paths { module: source.module.clone(), found: Vec::new() };
        paths.visit_file(&source.syntax);
        for (module, path) in paths.found {
            let Some(to) = names.file_of(&module, &path).filter(|&to| to != at) else { continue };
            let name = path.last().cloned().unwrap_or_default();
            imports.entry(at).or_default().entry(to).or_default().insert(name);
        }
    }
    imports
}

/// All paths of a file, each with the module that it is written in.
struct Paths {
    module: ModulePath,
    found: Vec<(ModulePath, Vec<String>)>,
}

impl Paths {
    fn note(&mut self, path: Vec<String>) {
        self.found.push((self.module.clone(), path));
    }

    /// Notes paths among the arguments of a macro, as far as they name where they begin.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut joined = false;

        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if !joined {
                        self.end(&mut path);
                    }
                    path.push(word.to_string());
                    joined = false;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => joined = true,
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                }
                _ => self.end(&mut path),
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if matches!(path.first().map(String::as_str), Some("crate" | "super" | "self")) && path.len() > 1 {
            self.note(path);
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.content.is_some() {
            self.module.push(module.ident.to_string());
            visit::visit_item_mod(self, module);
            self.module.pop();
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A re-export only names items for others.
        let is_private = matches!(item.vis, syn::Visibility::Inherited);
        for (_, path) in bindings(&item.tree).into_iter().filter(|_| is_private) {
            self.note(path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if words.len() > 1 {
            self.note(words);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
    }

    // `pub(in crate::x)` is not an import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Returns the names that a `use` binds, each with the path that it stands for; a glob binds `*`.
fn bindings(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            collect(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, before, found)),
        UseTree::Glob(_) => found.push(("*".to_owned(), before.clone())),
        UseTree::Name(name) if name.ident == "self" => {
            found.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push((name.clone(), [&before[..], &[name]].concat()));
        }
        UseTree::Rename(renamed) => {
            let path = if renamed.ident == "self" {
                before.clone()
            } else {
                [&before[..], &[renamed.ident.to_string()]].concat()
            };
            found.push((renamed.rename.to_string(), path));
        }
    }
}

/// The names known in each module of a crate.
struct Names<'a> {
    files: BTreeMap<&'a [String], usize>,
    /// Modules inside a file, by the file.
    inner: BTreeMap<ModulePath, usize>,
    scopes: BTreeMap<ModulePath, Scope>,
}

#[derive(Default)]
struct Scope {
    defined: BTreeSet<String>,
    used: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl<'a> Names<'a> {
    fn new(sources: &'a [Source]) -> Self {
        let mut names = Self { files: by_module(sources), inner: BTreeMap::new(), scopes: BTreeMap::new() };
        for (at, source) in sources.iter().enumerate() {
            names.learn(at, &source.module, &source.syntax.items);
        }
        names
    }

    fn learn(&mut self, file: usize, module: &[String], items: &[Item]) {
        let mut scope = Scope::default();

        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Use(item) => {
                    for (name, path) in bindings(&item.tree) {
                        if name == "*" {
                            scope.globs.push(path);
                        } else {
                            scope.used.insert(name, path);
                        }
                    }
                }
                Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        let path = [module, &[inner.ident.to_string()]].concat();
                        self.inner.insert(path.clone(), file);
                        self.learn(file, &path, items);
                    }
                }
                other => scope.defined.extend(name_of(other)),
            }
        }
        self.scopes.insert(module.to_vec(), scope);
    }

    fn file(&self, module: &[String]) -> Option<usize> {
        self.files.get(module).or_else(|| self.inner.get(module)).copied()
    }

    /// Returns the file that a path leads to from a module; `None` when it leads out of the crate.
    fn file_of(&self, module: &[String], path: &[String]) -> Option<usize> {
        self.resolve(module, path, &mut BTreeSet::new())
    }

    fn resolve(
        &self,
        module: &[String],
        path: &[String],
        seen: &mut BTreeSet<(ModulePath, Vec<String>)>,
    ) -> Option<usize> {
        // `use x::x` of another crate would lead to itself, one word longer each time.
        if path.len() > MAX_WORDS || !seen.insert((module.to_vec(), path.to_vec())) {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let parent = || module.split_last().map(|(_, parent)| parent);

        match &first[..] {
            "crate" => self.within(&[], rest, seen),
            "self" => self.within(module, rest, seen),
            "super" if rest.first().is_some_and(|word| word == "super") => {
                self.resolve(parent()?, rest, seen)
            }
            "super" => self.within(parent()?, rest, seen),
            _ => self.within(module, path, seen),
        }
    }

    /// Resolves a path that begins inside a module.
    fn within(
        &self,
        module: &[String],
        path: &[String],
        seen: &mut BTreeSet<(ModulePath, Vec<String>)>,
    ) -> Option<usize> {
        let Some((first, rest)) = path.split_first() else { return self.file(module) };
        let child = [module, std::slice::from_ref(first)].concat();
        if self.file(&child).is_some() {
            return self.within(&child, rest, seen);
        }
        let scope = self.scopes.get(module)?;

        if scope.defined.contains(first) {
            return self.file(module);
        }
        if let Some(used) = scope.used.get(first) {
            return self.resolve(module, &[used, rest].concat(), seen);
        }
        scope.globs.iter().find_map(|glob| self.resolve(module, &[glob, path].concat(), seen))
    }
}

/// Returns the name that an item defines in its module.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<Source> {
        let source = |&(module, text): &(&str, &str)| Source {
            path: module.to_owned(),
            module: module.split("::").filter(|word| *word != "crate").map(str::to_owned).collect(),
            syntax: syn::parse_file(text).unwrap(),
            lines: Vec::new(),
        };
        files.iter().map(source).collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        circles(&crate_of(files)).into_iter().map(|circle| circle.files).collect()
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let files = [
            ("crate", "mod a; mod b;"),
            ("crate::a", "use crate::b::B; pub struct A;"),
            ("crate::b", "pub struct B; impl B { fn a() -> super::a::A { super::a::A } }"),
        ];
        assert_eq!(found(&files), [["crate::a", "crate::b"]]);
    }

    #[test]
    fn one_way_is_no_circle() {
        let files =
            [("crate", "mod a; mod b; use a::A;"), ("crate::a", "use super::b::B;"), ("crate::b", "")];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn reexport_is_followed_to_where_the_name_is_defined() {
        let short = [
            ("crate", "mod a; mod b; pub use a::A; pub use b::*;"),
            ("crate::a", "pub struct A;"),
            ("crate::b", "use crate::A; pub struct B;"),
        ];
        assert!(found(&short).is_empty());
        let mut back = short;
        back[1].1 = "use crate::B as C; pub struct A;";
        assert_eq!(found(&back), [["crate::a", "crate::b"]]);
    }

    #[test]
    fn child_that_takes_from_its_parent_which_calls_it_is_a_circle() {
        let files = [
            ("crate", "mod a; struct Shared; fn run() { a::run() }"),
            ("crate::a", "use super::Shared; pub fn run() {}"),
        ];
        assert_eq!(found(&files), [["crate", "crate::a"]]);
    }

    #[test]
    fn imports_inside_functions_macros_and_inner_modules_count() {
        for body in [
            "fn f() { use crate::a::A; }",
            "fn f() { assert!(crate::a::A); }",
            "mod inner { use super::super::a::A; }",
            "use crate::{a::{self}}; fn f() { a::g() }",
        ] {
            let files = [
                ("crate", ""),
                ("crate::a", "use crate::b; pub struct A; pub fn g() {}"),
                ("crate::b", body),
            ];
            assert_eq!(found(&files), [["crate::a", "crate::b"]], "{body}");
        }
    }

    #[test]
    fn name_of_another_crate_that_has_its_name_leads_nowhere() {
        assert!(found(&[("crate", "use x::x; use y::*; fn f() { x::g() }")]).is_empty());
    }

    #[test]
    fn what_only_tests_import_does_not_count() {
        for body in ["#[cfg(test)] use crate::a::A;", "#[cfg(test)] mod tests { use crate::a::A; }"] {
            let files = [("crate", ""), ("crate::a", "use crate::b::B; pub struct A;"), ("crate::b", body)];
            assert!(found(&files).is_empty(), "{body}");
        }
    }
}
