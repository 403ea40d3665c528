//! `--usermap`, `--groupmap`, `--chown`: rsync's notation for other owners.

use dsync_engine::{
    IdRule,
    notation::{self, Notation, NotationError, Owner},
};

/// The rules of one `--usermap` or `--groupmap`, for users until [`IdRules::of_groups`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdRules(Vec<IdRule>);

impl IdRules {
    /// Returns the rules for users.
    pub(crate) fn of_users(&self) -> impl Iterator<Item = IdRule> {
        self.0.iter().cloned()
    }

    /// Returns the rules for groups.
    pub(crate) fn of_groups(&self) -> impl Iterator<Item = IdRule> {
        self.0.iter().map(|rule| rule.clone().group(true))
    }
}

/// Parses the value of a `--usermap` or `--groupmap`.
///
/// # Errors
/// The fault, for people.
pub(crate) fn parse(text: &str) -> Result<IdRules, String> {
    notation::id_rules(text).map(IdRules).map_err(|error| in_words(&error))
}

/// Parses the value of a `--chown`.
///
/// # Errors
/// The fault, for people.
pub(super) fn parse_owner(text: &str) -> Result<Owner, String> {
    Owner::parse(text).map_err(|error| in_words(&error))
}

/// Returns a fault with a word about the help, where that tells more.
pub(super) fn in_words(error: &NotationError) -> String {
    match error.notation {
        Notation::Owner => error.to_string(),
        _ => format!("{error} (see --help)"),
    }
}
