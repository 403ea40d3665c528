//! `--chmod`: rsync's notation for changed permissions, under the umask of this process.

use dsync_engine::{ModeRule, notation};

use super::id_rules::in_words;

/// The rules of one `--chmod`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModeRules(pub(crate) Vec<ModeRule>);

/// Parses the value of a `--chmod`.
///
/// # Errors
/// The fault, for people.
pub(super) fn parse(text: &str) -> Result<ModeRules, String> {
    let rules = notation::mode_rules(text, dsync_engine::file_creation_mask());
    rules.map(ModeRules).map_err(|error| in_words(&error))
}
