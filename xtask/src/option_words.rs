//! Options of the command in the strings of the libraries.
//!
//! The rule: a library states facts, and the command turns them into advice
//! (`crates/dsync-cli/src/advice.rs`). Programs that embed the libraries have no such options.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use crate::{error::TaskError, sources};

/// Strings that start a command instead of talking to a user, with their file.
const COMMANDS: &[(&str, &str)] = &[("crates/dsync-transport/src/shell.rs", "--server")];

/// Looks for options in the strings of crates.
///
/// # Errors
/// [`TaskError::OptionWords`] lists each of them.
pub(crate) fn check(crates: &[&str]) -> Result<(), TaskError> {
    let mut found = Vec::new();

    for name in crates {
        for source in sources::of_crate(name)? {
            let texts = texts(source.syntax.into_token_stream());
            let told = texts.iter().filter(|text| names_an_option(text));
            let told = told.filter(|text| !COMMANDS.contains(&(&source.path[..], &text[..])));
            found.extend(told.map(|text| format!("{}: {text:?}", source.path)));
        }
    }
    if found.is_empty() { Ok(()) } else { Err(TaskError::OptionWords { found }) }
}

/// Returns the string literals among tokens, without those of documentation.
fn texts(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let mut after_hash = false;

    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if !(after_hash && is_documentation(&group.stream())) {
                    found.extend(texts(group.stream()));
                }
                after_hash = false;
            }
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    found.push(text.value());
                }
            }
            TokenTree::Punct(mark) => {
                after_hash = mark.as_char() == '#' || (after_hash && mark.as_char() == '!');
            }
            TokenTree::Ident(_) => after_hash = false,
        }
    }
    found
}

fn is_documentation(attribute: &TokenStream) -> bool {
    let first = attribute.clone().into_iter().next();
    matches!(first, Some(TokenTree::Ident(word)) if word == "doc")
}

/// Returns whether a word of the text begins with two dashes and a letter.
fn names_an_option(text: &str) -> bool {
    text.match_indices("--").any(|(at, _)| text[at + 2..].starts_with(|next: char| next.is_ascii_lowercase()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<String> {
        let texts = texts(code.parse().unwrap());
        texts.into_iter().filter(|text| names_an_option(text)).collect()
    }

    #[test]
    fn options_in_strings_are_found() {
        assert_eq!(found(r#"#[error("use --mkpath")] struct Missing;"#), ["use --mkpath"]);
        assert_eq!(found(r#"fn f() { format!("x {}", "-M--links"); }"#), ["-M--links"]);
    }

    #[test]
    fn documentation_and_dashes_are_none() {
        assert!(found("/// As --mkpath does.\nstruct A;\n//! --x\n").is_empty());
        assert!(found(r#"const A: [&str; 2] = ["--", "a -- b"];"#).is_empty());
    }

    #[test]
    fn libraries_name_no_option() {
        let libraries = ["dsync-delta", "dsync-wire", "dsync-fs", "dsync-transport", "dsync-engine"];
        check(&libraries).unwrap();
    }
}
