//! The public API of each library crate, as a file that a change must touch: `docs/api/CRATE.txt`.
//!
//! Every item that is `pub` counts, since the lint `unreachable_pub` refuses those that nobody
//! outside can name. Bodies, docs and values are left out; the lines are sorted. Of macros only
//! `setters!` is looked into.
//! `DSYNC_BLESS=1 cargo test -p xtask api` writes the files again.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Fields, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, ItemTrait, TraitItem, UseTree,
    Visibility,
};

use crate::{
    semver::CRATES,
    sources::{attributes, is_for_tests, of_crate},
    step::root,
};

/// The lines of one crate.
#[derive(Default)]
struct Listing {
    lines: BTreeSet<String>,
    /// Names of public types and traits.
    types: BTreeSet<String>,
    /// Traits of each type, public or not.
    implemented: BTreeMap<String, BTreeSet<String>>,
}

impl Listing {
    /// Adds the items of a module.
    fn add(&mut self, module: &str, items: &[Item]) {
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            let kept = kept_attributes(attributes(item));
            match item {
                Item::Struct(item) if is_public(&item.vis) => self.add_struct(&(module, &kept), item),
                Item::Enum(item) if is_public(&item.vis) => self.add_enum(&(module, &kept), item),
                Item::Trait(item) if is_public(&item.vis) => self.add_trait(&(module, &kept), item),
                Item::Fn(item) if is_public(&item.vis) => self.say(module, &kept, &item.sig, "pub"),
                Item::Const(item) if is_public(&item.vis) => {
                    let (name, of) = (&item.ident, text(&item.ty));
                    self.lines.insert(format!("{module}: {kept}pub const {name}: {of}"));
                }
                Item::Use(item) if is_public(&item.vis) => {
                    let found = &mut self.lines;
                    used("", &item.tree, &mut |name| found.insert(format!("{module}: {kept}pub use {name}")));
                }
                Item::Mod(item) if is_public(&item.vis) => self.say(module, &kept, &item.ident, "pub mod"),
                Item::Type(item) if is_public(&item.vis) => self.say(module, &kept, &item.ident, "pub type"),
                Item::Impl(item) => self.add_impl(&(module, &kept), item),
                Item::Macro(item) if item.mac.path.is_ident("setters") => {
                    let (name, fields) = setters(&item.mac.tokens);
                    let setters = fields.iter().map(|field| format!("{module}: {name}: setter {field}"));
                    self.lines.extend(setters);
                }
                _ => {}
            }
            if let Item::Mod(item) = item
                && let Some((_, items)) = &item.content
            {
                self.add(&format!("{module}::{}", item.ident), items);
            }
        }
    }

    fn say(&mut self, module: &str, kept: &str, item: &(impl ToTokens + ?Sized), word: &str) {
        self.lines.insert(format!("{module}: {kept}{word} {}", text(item)));
    }

    fn add_struct(&mut self, (module, kept): &(&str, &String), item: &ItemStruct) {
        let name = &item.ident;
        self.types.insert(name.to_string());
        self.lines.insert(format!("{module}: {kept}pub struct {name}{}", text(&item.generics)));
        for (at, field) in item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
            let field_name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            self.lines.insert(format!("{module}: {name}.{field_name}: {}", text(&field.ty)));
        }
    }

    fn add_enum(&mut self, (module, kept): &(&str, &String), item: &ItemEnum) {
        let name = &item.ident;
        self.types.insert(name.to_string());
        self.lines.insert(format!("{module}: {kept}pub enum {name}{}", text(&item.generics)));
        for variant in &item.variants {
            let fields: Vec<String> = variant
                .fields
                .iter()
                .map(|field| {
                    let name = field.ident.as_ref().map_or_else(String::new, |name| format!("{name}: "));
                    format!("{name}{}", text(&field.ty))
                })
                .collect();
            let fields = match variant.fields {
                Fields::Unit => String::new(),
                Fields::Named(_) => format!(" {{ {} }}", fields.join(", ")),
                Fields::Unnamed(_) => format!("({})", fields.join(", ")),
            };
            self.lines.insert(format!("{module}: {name}::{}{fields}", variant.ident));
        }
    }

    fn add_trait(&mut self, (module, kept): &(&str, &String), item: &ItemTrait) {
        let name = &item.ident;
        self.types.insert(name.to_string());
        let above = text(&item.supertraits);
        self.lines.insert(format!("{module}: {kept}pub trait {name}{}: {above}", text(&item.generics)));
        for part in &item.items {
            match part {
                TraitItem::Fn(part) => {
                    let provided = if part.default.is_some() { " (provided)" } else { "" };
                    self.lines.insert(format!("{module}: {name}: {}{provided}", text(&part.sig)));
                }
                TraitItem::Const(part) => self.say(module, "", &part.ident, &format!("{name}: const")),
                TraitItem::Type(part) => self.say(module, "", &part.ident, &format!("{name}: type")),
                _ => {}
            }
        }
    }

    fn add_impl(&mut self, (module, kept): &(&str, &String), item: &ItemImpl) {
        let of = text(&item.self_ty);
        if let Some((_, implemented, _)) = &item.trait_ {
            let bare = of.trim_start_matches('&').split(['<', ' ']).next().unwrap_or_default().to_owned();
            let line = format!("{module}: {kept}impl {} for {of}", text(implemented));
            self.implemented.entry(bare).or_default().insert(line);
            return;
        }
        for part in &item.items {
            match part {
                ImplItem::Fn(part) if is_public(&part.vis) && !is_for_tests(&part.attrs) => {
                    let word = format!("{}{of}: pub", kept_attributes(&part.attrs));
                    self.say(module, kept, &part.sig, &word);
                }
                ImplItem::Const(part) if is_public(&part.vis) => {
                    self.say(module, kept, &part.ident, &format!("{of}: pub const"));
                }
                _ => {}
            }
        }
    }

    /// Returns the file.
    fn finish(mut self) -> String {
        for (name, lines) in self.implemented {
            if self.types.contains(&name) {
                self.lines.extend(lines);
            }
        }
        self.lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// Passes on each name of a `use`, with its path.
fn used(path: &str, tree: &UseTree, found: &mut dyn FnMut(String) -> bool) {
    match tree {
        UseTree::Path(tree) => used(&format!("{path}{}::", tree.ident), &tree.tree, found),
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| used(path, tree, found)),
        tree => _ = found(format!("{path}{}", text(tree))),
    }
}

/// Returns the type and the fields of a call of `setters!`.
fn setters(tokens: &TokenStream) -> (String, Vec<String>) {
    let (mut name, mut fields) = (TokenStream::new(), String::new());
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => fields = text(&group.stream()),
            token => name.extend([token]),
        }
    }
    let fields = fields.split(',').map(|field| field.trim().to_owned()).filter(|field| !field.is_empty());
    (text(&name), fields.collect())
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the attributes that a caller can notice.
fn kept_attributes(attributes: &[Attribute]) -> String {
    let noticed = ["non_exhaustive", "derive", "cfg", "must_use", "deprecated"];
    let kept = attributes.iter().filter(|one| noticed.iter().any(|name| one.path().is_ident(name)));
    kept.map(|one| format!("#[{}] ", text(&one.meta))).collect()
}

/// Returns tokens as text, in one line and with the usual spaces.
fn text(item: &(impl ToTokens + ?Sized)) -> String {
    let mut text = item.to_token_stream().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let tight = [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        (" > ", "> "),
        (" >", ">"),
        ("> >", ">>"),
        ("< ", "<"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ,", ","),
        (",)", ")"),
        (" : ", ": "),
        (" :", ":"),
        ("& ", "&"),
        (" ;", ";"),
        ("[ ", "["),
        (" ]", "]"),
        ("' ", "'"),
    ];
    for (loose, close) in tight {
        text = text.replace(loose, close);
    }
    text.replace("->", " -> ").replace("  ", " ").replace("> (", ">(").trim().to_owned()
}

/// Returns the lines of one crate.
fn listing(name: &str) -> String {
    let mut listing = Listing::default();
    for source in of_crate(name).unwrap_or_default() {
        let module = [&["crate".to_owned()], &source.module[..]].concat().join("::");
        listing.add(&module, &source.syntax.items);
    }
    listing.finish()
}

#[test]
fn the_public_api_of_each_crate_is_the_one_in_its_file() {
    let folder = root().join("docs/api");
    let bless = env::var_os("DSYNC_BLESS").is_some();
    let mut wrong = Vec::new();
    for name in CRATES {
        let (file, made) = (folder.join(format!("{name}.txt")), listing(name));
        assert!(made.lines().count() > 50, "{name}: nothing was found");
        if bless {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &made).unwrap();
        }
        let kept = fs::read_to_string(&file).unwrap_or_default();
        let (kept, made): (BTreeSet<_>, BTreeSet<_>) = (kept.lines().collect(), made.lines().collect());
        wrong.extend(kept.difference(&made).map(|line| format!("{name} - {line}")));
        wrong.extend(made.difference(&kept).map(|line| format!("{name} + {line}")));
    }
    assert!(
        wrong.is_empty(),
        "the public API has changed; if that is meant, `DSYNC_BLESS=1 cargo test -p xtask api` writes docs/api again:\n{}",
        wrong.join("\n")
    );
}

/// Types of the engine and the delta core that may not grow, each with the reason.
const CLOSED: [(&str, &str); 14] = [
    ("BasisCopy", "a stretch, and where it goes"),
    ("BlockIndex", "a number"),
    ("EntryId", "a number"),
    ("IdMatch", "the kernel knows users and groups by number, the system by name"),
    ("IdTarget", "as `IdMatch`"),
    ("Inmates", "a cage that takes a new kind for a known one confines too little"),
    ("Kind", "a number"),
    ("Lane", "a half for each direction, made by a program's own `Link`"),
    ("Operand", "a path is of this machine or of another"),
    ("Part", "as `Operand`"),
    ("StepError", "the delta is wrong, or the caller's sink has failed"),
    ("StreamEnd", "a stream has two ends"),
    ("Timestamp", "the two numbers that filesystems keep"),
    ("Touch", "as `Inmates`"),
];

/// Returns the types in these lines that a caller can build or match as a whole: whatever is added to
/// one breaks the caller's program.
fn open_types(lines: &str) -> BTreeSet<&str> {
    let with_fields: BTreeSet<&str> = lines
        .lines()
        .filter_map(|line| line.split_once(": ")?.1.split_once('.'))
        .map(|(name, _)| name)
        .collect();
    let types = lines.lines().filter(|line| !line.contains("#[non_exhaustive]")).filter_map(|line| {
        let (_, named) = line.split_once("pub enum ").or_else(|| {
            let found = line.split_once("pub struct ")?;
            with_fields.contains(name_of(found.1)).then_some(found)
        })?;
        Some(name_of(named))
    });
    types.collect()
}

fn name_of(named: &str) -> &str {
    named.split(['<', ' ']).next().unwrap_or_default()
}

#[test]
fn a_type_of_a_library_can_grow_unless_a_reason_is_given() {
    let engine = listing("dsync-engine");
    let delta = listing("dsync-delta");
    let own = open_types(&engine).into_iter().chain(open_types(&delta));
    let mut open: BTreeSet<String> = own.map(str::to_owned).collect();
    for name in ["dsync-fs", "dsync-transport", "dsync-wire"] {
        let (lines, path) = (listing(name), name.replace('-', "_"));
        let shown = |of: &&str| {
            let shown = format!("::{of}");
            engine.lines().any(|line| line.contains(&format!("pub use {path}::")) && line.ends_with(&shown))
        };
        open.extend(open_types(&lines).into_iter().filter(shown).map(str::to_owned));
    }
    let closed: BTreeSet<String> = CLOSED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(open, closed, "#[non_exhaustive] is missing, or a reason in `CLOSED`");
}

/// Returns the identifiers in a text that begin as types do.
fn type_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with(|letter: char| letter.is_ascii_uppercase()))
}

/// Returns the types that a listing's lines define.
fn defined(lines: &str) -> impl Iterator<Item = &str> {
    let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
    lines.lines().filter_map(move |line| {
        kinds.iter().find_map(|kind| line.split_once(kind)).map(|(_, named)| name_of(named))
    })
}

/// Splits a line that is about a type into the type, and what follows it and its field or variant.
/// `None` for any other line.
fn about(line: &str) -> Option<(&str, &str)> {
    let (_, said) = line.split_once(": ")?;
    let said = if said.starts_with("#[") { said.rsplit_once("] ")?.1 } else { said };
    let end = said.find(['.', ':', '<'])?;
    let (subject, rest) = said.split_at(end);
    let rest = rest.trim_start_matches(['.', ':']);
    let is_type = subject.starts_with(|letter: char| letter.is_ascii_uppercase());
    let rest = rest.find(|letter: char| !letter.is_alphanumeric()).map_or("", |end| &rest[end..]);
    is_type.then_some((subject, rest))
}

/// Returns the types of another crate that the engine passes on, by themselves or with their module.
fn passed_on<'a>(engine: &'a str, crate_name: &str, lines: &'a str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let from = format!("pub use {}::", crate_name.replace('-', "_"));
    for path in engine.lines().filter_map(|line| Some(line.split_once(&from)?.1)) {
        let path = path.split(" as ").next().unwrap_or_default();
        let last = path.rsplit("::").next().unwrap_or_default();
        if type_names(last).next().is_some() {
            names.insert(last);
            continue;
        }
        let module = format!("crate::{path}");
        for line in lines.lines().filter(|line| line.starts_with(&module)) {
            names.extend(defined(line));
            names.extend(line.split_once("pub use ").and_then(|(_, used)| used.rsplit("::").next()));
        }
    }
    names
}

#[test]
fn every_type_in_the_data_of_the_engine_has_a_name_there() {
    let engine = listing("dsync-engine");
    let others =
        ["dsync-wire", "dsync-fs", "dsync-transport", "dsync-delta"].map(|name| (name, listing(name)));
    let foreign: Vec<_> =
        others.iter().map(|(name, lines)| (passed_on(&engine, name, lines), lines.as_str())).collect();
    let own: BTreeSet<&str> = defined(&engine).collect();
    let named: BTreeSet<&str> =
        own.iter().chain(foreign.iter().flat_map(|(names, _)| names)).copied().collect();
    let known: BTreeSet<&str> =
        own.iter().copied().chain(others.iter().flat_map(|(_, lines)| defined(lines))).collect();
    assert!(named.contains("Carrier") && named.contains("Address") && known.contains("Budget"));

    let mut lacking = BTreeSet::new();
    for (subjects, lines) in foreign.iter().map(|(names, lines)| (names, *lines)).chain([(&own, &*engine)]) {
        for line in lines.lines() {
            // A function of another crate's type may be for the engine alone.
            let is_theirs = !std::ptr::eq(lines, &*engine) && line.contains("pub fn ");
            let Some((subject, rest)) = about(line).filter(|(of, _)| !is_theirs && subjects.contains(of))
            else {
                continue;
            };
            let unnamed = type_names(rest).filter(|name| known.contains(name) && !named.contains(name));
            lacking.extend(unnamed.map(|name| format!("{name}: {subject}{rest}")));
        }
    }
    assert!(lacking.is_empty(), "a program cannot name these types; pass them on:\n{lacking:#?}");
}

#[test]
fn what_a_caller_cannot_notice_is_no_part_of_the_api() {
    let source = "
        /// Doc.
        #[derive(Debug)] #[non_exhaustive] pub struct Shown { pub seen: Vec<u8>, hidden: u8 }
        struct Hidden { pub seen: u8 }
        pub use inner::{First, second::Second as Other};
        setters!(Shown { seen: Vec<u8> });
        impl Shown { pub fn new(from: &[u8]) -> Option<Self> { None } fn own(&self) {} }
        impl Clone for Shown { fn clone(&self) -> Self { todo() } }
        impl Clone for Hidden { fn clone(&self) -> Self { todo() } }
        pub enum Kind { One, Two(u8), Three { of: u16 } }
        pub(crate) fn inner() {}
        #[cfg(test)] pub fn test_only() {}
    ";
    let mut listing = Listing::default();
    listing.add("crate", &syn::parse_file(source).unwrap().items);
    let wanted = [
        "crate: #[derive(Debug)] #[non_exhaustive] pub struct Shown",
        "crate: Kind::One",
        "crate: Kind::Three { of: u16 }",
        "crate: Kind::Two(u8)",
        "crate: Shown.seen: Vec<u8>",
        "crate: Shown: pub fn new(from: &[u8]) -> Option<Self>",
        "crate: Shown: setter seen: Vec<u8>",
        "crate: impl Clone for Shown",
        "crate: pub enum Kind",
        "crate: pub use inner::First",
        "crate: pub use inner::second::Second as Other",
    ];
    assert_eq!(listing.finish().lines().collect::<Vec<_>>(), wanted);
}
