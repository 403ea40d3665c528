//! An example for everything that a program can call: the compiled examples in the docs of the crates
//! that programs depend on.
//!
//! The rule, for `dsync-delta` and `dsync-engine`, and for what the engine passes on of other crates:
//!
//! - A free function is called by an example of its crate.
//! - A type with functions of its own, and a trait, has an example on its page: at the type or at one
//!   of its functions.
//! - A type without functions is data: some example has its name. An error needs none: `?` passes it on,
//!   and its variants say the rest.
//! - A function of a type is called in an example that is about the type: one on its page, or one with the
//!   type's name. A function that only reads or sets a field needs none.
//! - Anything else has a reason in [`WITHOUT`].
//!
//! Examples are those that rustdoc compiles; of a README those that are marked `rust`.

use std::{collections::BTreeSet, fs};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Attribute, Expr, ImplItem, ImplItemFn, Item, ItemImpl, Lit, Meta, Stmt, TraitItem, Type, UseName,
    UseRename, UseTree, Visibility,
};

use crate::{
    sources::{attributes, is_for_tests, of_crate},
    step::root,
};

/// The code of one example.
#[derive(Debug, Default)]
struct Example {
    /// Type or function whose page has it; empty for a module's.
    page: String,
    /// Every identifier.
    names: BTreeSet<String>,
    /// Functions: `name` and `.name` where they are called, `fn name` where they are declared, and
    /// `Type::name` wherever that is written.
    calls: BTreeSet<String>,
}

impl Example {
    fn new(page: &str, code: &str) -> Self {
        let shown = |line: &str| line.trim_start().strip_prefix("# ").unwrap_or(line).to_owned();
        let code: Vec<String> = code.lines().map(shown).collect();
        let mut example = Self { page: page.to_owned(), ..Self::default() };
        if let Ok(tokens) = code.join("\n").parse() {
            example.read(tokens);
        }
        example
    }

    /// Adds the names and calls in some tokens.
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    match before(&tokens[..at]) {
                        Before::Type(of) => _ = self.calls.insert(format!("{of}::{name}")),
                        _ if !is_called(&tokens[at + 1..]) => {}
                        Before::Mark(mark) => _ = self.calls.insert(format!("{mark}{name}")),
                        Before::Nothing => _ = self.calls.insert(name.clone()),
                    }
                    self.names.insert(name);
                }
                _ => {}
            }
        }
    }

    fn is_about(&self, name: &str) -> bool {
        self.page == name || self.names.contains(name)
    }
}

/// The token before a name.
enum Before {
    /// `Type::`, also that of a module.
    Type(String),
    /// The dot of a method's call, or `fn`.
    Mark(&'static str),
    Nothing,
}

fn before(tokens: &[TokenTree]) -> Before {
    let is_mark =
        |token: &TokenTree, mark: char| matches!(token, TokenTree::Punct(one) if one.as_char() == mark);
    match tokens {
        [.., TokenTree::Ident(of), one, two] if is_mark(one, ':') && is_mark(two, ':') => {
            Before::Type(of.to_string())
        }
        [.., dot] if is_mark(dot, '.') => Before::Mark("."),
        [.., TokenTree::Ident(word)] if word == "fn" => Before::Mark("fn "),
        _ => Before::Nothing,
    }
}

/// Returns whether arguments follow a name, perhaps after `::<...>`.
fn is_called(behind: &[TokenTree]) -> bool {
    let is_argument = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
    let is_mark = |at: usize, mark: char| matches!(&behind.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark);

    let is_generic = is_mark(0, ':') && is_mark(1, ':') && is_mark(2, '<');
    behind.first().is_some_and(is_argument) || is_generic && behind.iter().take(12).any(is_argument)
}

/// Returns the code of the examples in a Markdown text that rustdoc compiles; in a README only those
/// that are marked.
fn compiled(text: &str, marked: bool) -> Vec<String> {
    let known = ["rust", "no_run", "should_panic", "edition2024"];
    let (mut found, mut open): (Vec<String>, Option<bool>) = (Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(words), None) => {
                let words: Vec<&str> = words.split([',', ' ']).filter(|word| !word.is_empty()).collect();
                let is_code = words.iter().all(|word| known.contains(word)) && !(marked && words.is_empty());
                open = Some(is_code);
                if is_code {
                    found.push(String::new());
                }
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(true)) => found.iter_mut().last().into_iter().for_each(|code| {
                code.push_str(line);
                code.push('\n');
            }),
            _ => {}
        }
    }
    found
}

/// Returns the doc comment of an item.
fn doc_text(attributes: &[Attribute]) -> String {
    let lines =
        attributes.iter().filter(|one| one.path().is_ident("doc")).filter_map(|one| match &one.meta {
            Meta::NameValue(value) => match &value.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.value() + "\n"),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
    lines.collect()
}

/// Something that a program can name.
#[derive(Debug)]
struct Offered {
    /// `function`, `Type` or `Type::function`.
    name: String,
    module: Vec<String>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A free function.
    Function,
    /// A type with functions of its own, or a trait.
    Acting,
    /// A type without functions.
    Data,
    /// A function of a type that takes `self`, or one of a trait.
    Method,
    /// A function of a type without `self`.
    Associated,
}

/// Public items and examples of one crate.
#[derive(Debug, Default)]
struct Library {
    offered: Vec<Offered>,
    examples: Vec<Example>,
    /// Paths of the items and modules of other crates that this one passes on.
    passed_on: Vec<Vec<String>>,
    /// Types that need no example: they fail with `?`.
    errors: BTreeSet<String>,
}

impl Library {
    /// Reads a crate with its README.
    fn of(name: &str) -> Self {
        let mut library = Self::default();
        for source in of_crate(name).unwrap_or_default() {
            library.add_examples("", &source.syntax.attrs);
            library.add(&source.module, &source.syntax.items);
        }
        let readme =
            fs::read_to_string(root().join("crates").join(name).join("README.md")).unwrap_or_default();
        let shown = compiled(&readme, true);
        library.examples.extend(shown.iter().map(|code| Example::new("", code)));
        library.tell_apart();
        library
    }

    fn add(&mut self, module: &[String], items: &[Item]) {
        for item in
            items.iter().filter(|item| !is_for_tests(attributes(item)) && !is_hidden(attributes(item)))
        {
            match item {
                Item::Fn(item) if is_public(&item.vis) => {
                    self.offer(module, Kind::Function, &item.sig.ident.to_string(), &item.attrs);
                }
                Item::Struct(item) if is_public(&item.vis) => {
                    self.add_type(module, &item.ident.to_string(), &item.attrs);
                }
                Item::Enum(item) if is_public(&item.vis) => {
                    self.add_type(module, &item.ident.to_string(), &item.attrs);
                }
                Item::Trait(item) if is_public(&item.vis) => {
                    let name = item.ident.to_string();
                    self.offer(module, Kind::Acting, &name, &item.attrs);
                    let functions = item.items.iter().filter_map(|part| match part {
                        TraitItem::Fn(part) => Some(part),
                        _ => None,
                    });
                    for part in functions {
                        self.add_examples(&name, &part.attrs);
                        self.offer(module, Kind::Method, &format!("{name}::{}", part.sig.ident), &[]);
                    }
                }
                Item::Impl(item) if item.trait_.is_none() => self.add_impl(module, item),
                Item::Use(item) if is_public(&item.vis) => self.add_use(&item.tree, &[]),
                Item::Mod(item) => {
                    self.add_examples("", &item.attrs);
                    if let Some((_, items)) = &item.content {
                        self.add(&[module, &[item.ident.to_string()]].concat(), items);
                    }
                }
                _ => {}
            }
        }
    }

    fn add_type(&mut self, module: &[String], name: &str, attributes: &[Attribute]) {
        self.offer(module, Kind::Data, name, attributes);
        let derived = attributes.iter().filter(|one| one.path().is_ident("derive"));
        let is_error = |one: &Attribute| matches!(&one.meta, Meta::List(list) if list.tokens.to_string().contains("Error"));
        if derived.into_iter().any(is_error) {
            self.errors.insert(name.to_owned());
        }
    }

    fn add_impl(&mut self, module: &[String], item: &ItemImpl) {
        let Type::Path(of) = &*item.self_ty else { return };
        let Some(of) = of.path.segments.last().map(|last| last.ident.to_string()) else { return };
        let functions = item.items.iter().filter_map(|part| match part {
            ImplItem::Fn(part)
                if is_public(&part.vis) && !is_for_tests(&part.attrs) && !is_hidden(&part.attrs) =>
            {
                Some(part)
            }
            _ => None,
        });
        for part in functions {
            self.add_examples(&of, &part.attrs);
            if !is_plain(part) {
                let kind = if part.sig.receiver().is_some() { Kind::Method } else { Kind::Associated };
                self.offer(module, kind, &format!("{of}::{}", part.sig.ident), &[]);
            }
        }
    }

    fn add_use(&mut self, tree: &UseTree, from: &[String]) {
        match tree {
            UseTree::Path(tree) => self.add_use(&tree.tree, &[from, &[tree.ident.to_string()]].concat()),
            UseTree::Group(tree) => tree.items.iter().for_each(|tree| self.add_use(tree, from)),
            UseTree::Name(UseName { ident }) | UseTree::Rename(UseRename { ident, .. }) => {
                self.passed_on.push([from, &[ident.to_string()]].concat());
            }
            UseTree::Glob(_) => {}
        }
    }

    fn add_examples(&mut self, page: &str, attributes: &[Attribute]) {
        let shown = compiled(&doc_text(attributes), false);
        self.examples.extend(shown.iter().map(|code| Example::new(page, code)));
    }

    fn offer(&mut self, module: &[String], kind: Kind, name: &str, attributes: &[Attribute]) {
        self.add_examples(name, attributes);
        self.offered.push(Offered { name: name.to_owned(), module: module.to_vec(), kind });
    }

    /// Tells types with functions from data, and leaves out functions of types that are not public.
    fn tell_apart(&mut self) {
        let is_type = |kind: Kind| matches!(kind, Kind::Acting | Kind::Data);
        let types: BTreeSet<String> =
            self.offered.iter().filter(|one| is_type(one.kind)).map(|one| one.name.clone()).collect();
        let type_of = |name: &str| name.split_once("::").map(|(of, _)| of.to_owned());

        self.offered.retain(|one| type_of(&one.name).is_none_or(|of| types.contains(&of)));
        let acting: BTreeSet<String> = self.offered.iter().filter_map(|one| type_of(&one.name)).collect();
        for one in self.offered.iter_mut().filter(|one| acting.contains(&one.name)) {
            one.kind = Kind::Acting;
        }
    }

    /// Returns whether an item of another crate is passed on: by itself, or with its module.
    fn passes_on(&self, crate_name: &str, one: &Offered) -> bool {
        let name = one.name.split("::").next().unwrap_or_default();
        self.passed_on.iter().any(|path| match &path[..] {
            [of, module @ .., last] if of == crate_name => {
                let is_whole_module = one.module.starts_with(&path[1..]);
                is_whole_module || last == name && one.module.starts_with(module)
            }
            _ => false,
        })
    }

    /// Returns what lacks an example by the rule in this module's head.
    fn lacking(&self) -> BTreeSet<&str> {
        let lacks = |one: &&Offered| !self.is_error(one) && !self.is_shown(one);
        self.offered.iter().filter(lacks).map(|one| &one.name[..]).collect()
    }

    fn is_error(&self, one: &Offered) -> bool {
        self.errors.contains(&one.name)
    }

    fn is_shown(&self, one: &Offered) -> bool {
        let (of, function) = one.name.split_once("::").unwrap_or((&one.name, &one.name));
        let (called, declared) = (format!(".{function}"), format!("fn {function}"));
        let in_module = format!("::{function}");
        self.examples.iter().any(|example| match one.kind {
            Kind::Function => {
                example.calls.contains(function)
                    || example.calls.iter().any(|call| call.ends_with(&in_module))
            }
            Kind::Acting => example.page == of,
            Kind::Data => example.is_about(of),
            Kind::Associated => example.calls.contains(&one.name),
            Kind::Method => {
                let ways = [&called, &declared, &one.name];
                example.is_about(of) && ways.into_iter().any(|way| example.calls.contains(way))
            }
        })
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|one| matches!(&one.meta, Meta::List(list) if list.path.is_ident("doc") && list.tokens.to_string() == "hidden"))
}

/// Returns whether a function only reads or sets a field.
fn is_plain(function: &ImplItemFn) -> bool {
    match &function.block.stmts[..] {
        [Stmt::Expr(Expr::Struct(changed), None)] => {
            let is_taken_over = changed.fields.iter().all(|field| matches!(field.expr, Expr::Path(_)));
            is_taken_over
                && matches!(changed.rest.as_deref(), Some(Expr::Path(rest)) if rest.path.is_ident("self"))
        }
        [Stmt::Expr(read, None)] => function.sig.inputs.len() == 1 && is_field(read),
        [Stmt::Expr(Expr::Assign(set), Some(_)), Stmt::Expr(Expr::Path(returned), None)] => {
            is_field(&set.left) && returned.path.is_ident("self")
        }
        _ => false,
    }
}

/// Methods that read a value as another type.
const READERS: &[&str] = &["as_bytes", "as_deref", "as_ref", "as_slice", "clone", "get", "is_empty", "len"];

/// Returns whether an expression is a field of `self`, or reads one as another type.
fn is_field(expression: &Expr) -> bool {
    match expression {
        Expr::Field(field) => match &*field.base {
            Expr::Path(base) => base.path.is_ident("self"),
            base => is_field(base),
        },
        Expr::Reference(reference) => is_field(&reference.expr),
        Expr::MethodCall(call) => READERS.iter().any(|name| call.method == name) && is_field(&call.receiver),
        _ => false,
    }
}

/// Public items without an example, by the reason.
const WITHOUT: &[(&str, &[&str])] = &[
    (
        "the two halves of `dsync serve` and its clients; a program has `Server` over connections of its own",
        &[
            "Address",
            "Arrival",
            "Certificate",
            "Certificate::belongs_to",
            "Certificate::bytes",
            "Certificate::is_in_time",
            "Certificate::parse",
            "Certificate::sign",
            "CertificateKind",
            "CertificateKind::admits",
            "Channel",
            "Channel::answer_ahead",
            "Channel::into_descriptors",
            "Channel::reached",
            "Channel::refuse",
            "Channel::say",
            "Channel::split",
            "ChannelReader",
            "ChannelReader::hear_go",
            "ChannelReader::hear_welcome",
            "ChannelReader::read_all",
            "ChannelWriter",
            "ChannelWriter::finish",
            "ClientEnd",
            "Copying",
            "Count",
            "Count::count",
            "DatagramPort",
            "DatagramPort::address",
            "DatagramPort::adopt",
            "DatagramPort::bind",
            "DatagramPort::lead",
            "DatagramPort::next_preface",
            "Entrance::handed",
            "Expected",
            "Handed",
            "Prefaced",
            "PrivateKey",
            "PrivateKey::from_pkcs8",
            "PrivateKey::generate",
            "PublicKey",
            "PublicKey::drawing",
            "PublicKey::fingerprint",
            "Sending",
            "Sending::finish",
            "ServerEnd",
            "SessionNumber",
            "answer",
            "copy",
            "dial",
            "from_hexadecimal",
            "hexadecimal",
            "host_fits",
            "parse_preface",
            "preface",
            "refusal_of",
            "refuse",
        ],
    ),
    (
        "a run converts the names; a program says which two sets they are in",
        &[
            "Spelling::check_name",
            "Spelling::check_text",
            "Spelling::lines_to_there",
            "Spelling::path_to_here",
            "Spelling::path_to_there",
            "Spelling::pattern_to_there",
            "Spelling::to_here",
            "Spelling::to_there",
            "Spelling::to_there_or_same",
        ],
    ),
    (
        "a run reads the list; a program makes it with `Resources::file_list`",
        &[
            "FileList::first_of_each",
            "FileList::is_contents",
            "FileList::is_contents_on_the_way",
            "FileList::lines",
            "FileList::named",
            "FileList::root_on_the_way",
            "FileListWriter::new",
        ],
    ),
    (
        "a run asks its own options",
        &[
            "Explained",
            "Explained::concerns",
            "Explained::leads_on",
            "Explained::of",
            "SyncOptions::follows_dirlinks",
            "SyncOptions::follows_links",
            "SyncOptions::ignores_missing_args",
            "SyncOptions::needs_whole_listing",
            "SyncOptions::takes_directories",
            "UntrustedLink::is_in_a_directorys_place",
        ],
    ),
    (
        "a carrier of the program's own is as long as one of `dsync-transport`, which are the examples",
        &[
            "CloseReason",
            "CloseReason::code",
            "CloseReason::from_code",
            "Lane",
            "LaneRead",
            "LaneRead::fill",
            "LaneRead::read",
            "LaneWrite",
            "LaneWrite::finish",
            "LaneWrite::write",
            "LaneWrite::write_both",
            "Link::carrier",
            "Link::close",
            "Link::data_lanes",
            "Link::features",
            "Link::is_near",
            "Link::moves",
            "Link::sending_lanes",
            "Link::traffic",
            "LinkError::io",
            "Stream::from_link",
        ],
    ),
    (
        "needs a type of the crates below, for the engine",
        &["OperatorFiles::directory_of", "Stream::into_link", "StreamEnd"],
    ),
    (
        "a part of an error, which shows it",
        &[
            "AcceptError::exit_code",
            "Codec::from_code",
            "DecodeError::kind",
            "EntryId",
            "Kind",
            "Kind::control",
            "Kind::data",
            "Kind::name",
            "LeadsOut::is_own_name",
            "LeadsOut::of",
            "PeerText",
            "PeerText::new",
            "VersionRange",
            "VersionRange::agree",
            "VersionRange::contains",
            "VersionRange::new",
        ],
    ),
    ("`SyncError::is_retryable` asks it", &["LinkError::is_retryable"]),
    ("the engine and its tests make it", &["BatchError::new"]),
    ("a run that comes to its end calls it", &["TreeWatch::settle"]),
];

/// Returns the engine with what it passes on of other crates, whose pages are those of their own crates.
fn engine() -> Library {
    let mut engine = Library::of("dsync-engine");
    for name in ["dsync-fs", "dsync-transport", "dsync-wire"] {
        let other = Library::of(name);
        for mut one in other.offered {
            if engine.passes_on(&name.replace('-', "_"), &one) {
                one.kind = if one.kind == Kind::Acting { Kind::Data } else { one.kind };
                engine.offered.push(one);
            }
        }
        engine.errors.extend(other.errors);
        engine.examples.extend(other.examples);
    }
    engine
}

#[test]
fn every_public_item_has_an_example_unless_a_reason_is_given() {
    let (engine, delta) = (engine(), Library::of("dsync-delta"));
    let lacking: BTreeSet<&str> = engine.lacking().into_iter().chain(delta.lacking()).collect();
    let reasons: BTreeSet<&str> = WITHOUT.iter().flat_map(|(_, names)| *names).copied().collect();

    let without: Vec<_> = lacking.difference(&reasons).collect();
    let stale: Vec<_> = reasons.difference(&lacking).collect();
    let count = without.len();
    assert!(without.is_empty(), "{count} items lack an example, or a reason in `WITHOUT`:\n{without:#?}");
    assert!(
        stale.is_empty(),
        "these have an example, or are gone, and need no reason in `WITHOUT`:\n{stale:#?}"
    );
}

#[test]
fn a_call_on_the_page_of_another_type_is_no_example() {
    let source = r#"
        /// Sums.
        ///
        /// ```
        /// let sum = Sum::new().add(1);
        /// assert_eq!(sum.total(), 1);
        /// ```
        pub struct Sum { total: u64, unit: Unit }
        impl Sum {
            pub fn new() -> Self { todo() }
            pub fn add(self, one: u64) -> Self { Self { total: self.total + one, unit: self.unit.grown() } }
            pub fn unit(&self) -> &Unit { &self.unit }
            pub fn with_unit(self, unit: Unit) -> Self { Self { unit, ..self } }
            pub fn half(&self) -> u64 { self.total / 2 }
        }
        /// Only `text` shows `Unit::Byte` and `halve(2)`:
        ///
        /// ```text
        /// halve(2)
        /// ```
        pub enum Unit { Byte }
        pub struct Product(u64);
        impl Product {
            pub fn total(&self) -> u64 { self.0 * 2 }
        }
        pub fn halve(total: u64) -> u64 { total / 2 }
        #[derive(Debug, thiserror::Error)] pub enum SumError { Full }
        struct Hidden;
        impl Hidden { pub fn new() -> Self { Hidden } }
    "#;
    let mut library = Library::default();
    library.add(&[], &syn::parse_file(source).unwrap().items);
    library.tell_apart();
    let lacking: Vec<_> = library.lacking().into_iter().collect();
    assert_eq!(lacking, ["Product", "Product::total", "Sum::half", "Unit", "halve"]);
}
