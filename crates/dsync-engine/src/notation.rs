//! rsync's little languages for options: changes of permissions, other owners, and one owner for all.
//!
//! Text is a person's; results are the typed rules of [`SyncOptions`](crate::SyncOptions). Nothing is
//! looked up: names of users and groups are the destination's affair. Filter rules have a language of their
//! own: [`RuleLines`](crate::RuleLines) and [`ParsedRule`](crate::ParsedRule).

mod id_rules;
mod mode_rules;

use std::fmt;

pub use self::{
    id_rules::{Owner, id_rules},
    mode_rules::mode_rules,
};

/// The language that a text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notation {
    /// Changes of permissions: `Dg+s,F644`.
    ModeRules,
    /// Rules for other owners: `FROM:TO,...`.
    IdRules,
    /// One owner: `USER:GROUP`.
    Owner,
}

impl fmt::Display for Notation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ModeRules => "is no change of permissions",
            Self::IdRules => "is not FROM:TO",
            Self::Owner => "is too large",
        })
    }
}

/// A word that is none of its language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' in '{text}' {notation}")]
#[non_exhaustive]
pub struct NotationError {
    /// The language.
    pub notation: Notation,
    /// The word.
    pub word: String,
    /// The text that it is in.
    pub text: String,
}

impl NotationError {
    fn new(notation: Notation, word: &str, text: &str) -> Self {
        Self { notation, word: word.to_owned(), text: text.to_owned() }
    }
}
