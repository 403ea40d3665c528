//! Runs whose words are right, and that cannot begin as a file that they name cannot be used.

use crate::{console::print, escape::escape_text, flags::Flags, json, resolve, usage::UsageError};

/// Prints the whole stream of events of such a run, if events are wanted, and returns its error, which is
/// still to be told. A wrong command line has no events, as there is no run of it.
pub(crate) fn tell<'a>(flags: &Flags, error: &'a UsageError) -> &'a UsageError {
    if flags.output.json && error.is_of_files() {
        let text = format!("dsync: error: {error}");
        let lines = json::unbegun(&resolve::unbegun(flags), error.exit_code(), &escape_text(&text));
        // The error and its exit code say more than a lost reader.
        let _ = print(&lines.map(|line| [line, vec![b'\n']].concat()).concat());
    }
    error
}
