//! `cargo xtask shape`: how long and how deep functions are, crate by crate.
//!
//! A function's lines are those from `fn` to its last brace, without blank ones, so that blank
//! lines between steps cost nothing. Its depth is that of the braces in its body. Functions inside
//! functions also count by themselves.

use syn::{
    Block, Item, Signature,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::{
    error::TaskError,
    layers,
    sources::{self, Source, attributes, is_for_tests},
};

/// Most lines of a function.
const MAX_LINES: usize = 60;
/// Lines from which a function needs a blank one between its steps.
const MAX_BREATH: usize = 25;

/// One function.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    /// File, line and name.
    place: String,
    lines: usize,
    blank: usize,
    depth: usize,
}

/// Prints each crate's figures.
///
/// # Errors
/// [`TaskError::Shape`] with every function that is too long or has no blank line.
pub(crate) fn run(_args: &[String]) -> Result<(), TaskError> {
    let mut all = Vec::new();
    println!("{:<16} {:>9}  {:^17}  {:^17}", "crate", "functions", "lines 50/95/max", "depth 50/95/max");

    for name in layers::crates() {
        let mut functions = Vec::new();
        for source in sources::of_crate(name)? {
            functions.append(&mut of_source(&source));
        }
        println!("{}", row(name, &functions));
        all.append(&mut functions);
    }
    println!("{}", row("all", &all));

    let breaches = breaches(&all);
    if breaches.is_empty() { Ok(()) } else { Err(TaskError::Shape { breaches }) }
}

fn row(name: &str, functions: &[Function]) -> String {
    let lines = spread(functions.iter().map(|function| function.lines));
    let depth = spread(functions.iter().map(|function| function.depth));
    format!("{name:<16} {:>9}  {lines:^17}  {depth:^17}", functions.len())
}

/// Returns the median, 95th percentile and largest of some numbers.
fn spread(numbers: impl Iterator<Item = usize>) -> String {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    let at = |percent: usize| numbers.get(numbers.len().saturating_sub(1) * percent / 100).unwrap_or(&0);
    format!("{} / {} / {}", at(50), at(95), at(100))
}

fn breaches(functions: &[Function]) -> Vec<String> {
    let mut found = Vec::new();
    for Function { place, lines, blank, .. } in functions {
        if *lines > MAX_LINES {
            found.push(format!("{place}: {lines} lines, {MAX_LINES} at most"));
        }
        if *lines >= MAX_BREATH && *blank == 0 {
            found.push(format!("{place}: {lines} lines and no blank one between its steps"));
        }
    }
    found
}

fn of_source(source: &Source) -> Vec<Function> {
    let mut finder = Finder { source, found: Vec::new() };
    finder.visit_file(&source.syntax);
    finder.found
}

struct Finder<'a> {
    source: &'a Source,
    found: Vec<Function>,
}

impl Finder<'_> {
    fn note(&mut self, signature: &Signature, block: &Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        let lines = self.source.lines.get(first - 1..last).unwrap_or_default();
        let blank = lines.iter().filter(|line| line.trim().is_empty()).count();
        let mut depth = Depth::default();
        depth.visit_block(block);

        self.found.push(Function {
            place: format!("{}:{first} {}", self.source.path, signature.ident),
            lines: lines.len() - blank,
            blank,
            depth: depth.most,
        });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.note(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Nesting of blocks and `match` arms.
#[derive(Default)]
struct Depth {
    now: usize,
    most: usize,
}

impl Depth {
    fn deeper(&mut self, visit: impl FnOnce(&mut Self)) {
        self.now += 1;
        self.most = self.most.max(self.now);
        visit(self);
        self.now -= 1;
    }
}

impl<'ast> Visit<'ast> for Depth {
    fn visit_block(&mut self, block: &'ast Block) {
        self.deeper(|depth| visit::visit_block(depth, block));
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        self.deeper(|depth| visit::visit_expr_match(depth, expression));
    }

    // A function inside counts by itself.
    fn visit_item(&mut self, _: &'ast Item) {}
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn functions(text: &str) -> Vec<Function> {
        of_source(&Source {
            path: "f.rs".to_owned(),
            module: Vec::new(),
            syntax: syn::parse_file(text).unwrap(),
            lines: text.lines().map(str::to_owned).collect(),
        })
    }

    fn long(lines: usize, blank: &str) -> String {
        format!("fn f() {{\n{}{blank}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn lines_count_without_docs_and_blank_ones() {
        let found = functions("/// Doc.\n#[inline]\nfn f(\n) {\n    g();\n\n    g();\n}\n");
        assert_eq!(found, [Function { place: "f.rs:3 f".to_owned(), lines: 5, blank: 1, depth: 1 }]);
    }

    #[test]
    fn depth_is_that_of_blocks_and_matches() {
        let text = "fn f() { if a { match b { _ => { g() } } } }\nfn g() {}";
        let depths: Vec<usize> = functions(text).iter().map(|function| function.depth).collect();
        assert_eq!(depths, [4, 1]);
    }

    #[test]
    fn function_that_is_too_long_is_a_breach() {
        assert!(breaches(&functions(&long(60, "\n"))).is_empty());
        assert_eq!(breaches(&functions(&long(61, "\n"))), ["f.rs:1 f: 61 lines, 60 at most"]);
    }

    #[test]
    fn function_without_a_pause_is_a_breach_from_25_lines_on() {
        assert!(breaches(&functions(&long(24, ""))).is_empty());
        assert!(breaches(&functions(&long(25, "\n"))).is_empty());
        assert_eq!(
            breaches(&functions(&long(25, ""))),
            ["f.rs:1 f: 25 lines and no blank one between its steps"]
        );
    }

    #[test]
    fn tests_are_not_measured() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n#[test]\n{}", long(30, ""), long(30, ""));
        assert!(functions(&tests).is_empty());
    }

    #[test]
    fn spread_is_median_percentile_and_largest() {
        assert_eq!(spread((1..=100).rev()), "50 / 95 / 100");
        assert_eq!(spread(std::iter::empty()), "0 / 0 / 0");
    }
}
