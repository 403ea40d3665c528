//! rsync's little languages for options: changes of permissions, other owners, and one owner for all.
//!
//! Text is a person's; results are the typed rules of [`SyncOptions`](crate::SyncOptions). Nothing is
//! looked up: names of users and groups are the destination's affair. Filter rules have a language of their
//! own: [`RuleLines`](crate::RuleLines) and [`ParsedRule`](crate::ParsedRule).
//!
//! ```
//! use dsync_engine::{FilterRule, ParsedRule, RuleFault, SyncOptions};
//!
//! // Lines of the product's settings, as in `dsync --filter`.
//! let mut filters = Vec::new();
//! for line in ["- *.tmp", "+ /keep/"] {
//!     let ParsedRule::Rule(spec) = ParsedRule::read(line.as_bytes())? else { continue };
//!     let rule = FilterRule::default().include(spec.include).modifiers(spec.modifiers());
//!     filters.push(rule.pattern(spec.pattern));
//! }
//! let options = SyncOptions::archive().filters(filters);
//! # assert_eq!(options.filters.len(), 2);
//! # Ok::<(), RuleFault>(())
//! ```

mod id_rules;
mod mode_rules;

use std::fmt;

pub use self::{
    id_rules::{Owner, id_rules},
    mode_rules::mode_rules,
};

/// The language that a text is in.
///
/// ```
/// use dsync_engine::notation::{Notation, mode_rules};
///
/// // A form marks the field and the word that is wrong.
/// let error = mode_rules("u+w,g+q", 0o022).err().ok_or("a rule")?;
/// assert_eq!((error.notation, error.word.as_str()), (Notation::ModeRules, "g+q"));
/// # Ok::<(), &str>(())
/// ```
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
#[error("'{word}'{} {notation}", if word == text { String::new() } else { format!(" in '{text}'") })]
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
