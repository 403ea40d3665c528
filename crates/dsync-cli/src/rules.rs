//! Filter rules in the order in which they were typed, each with its origin.
//!
//! rsync's notation: a pattern that starts with `- ` or `+ ` itself determines whether it excludes
//! or includes, `!` alone drops the rules before it, and in a file empty lines and comments (`#`,
//! `;`) are skipped. The patterns themselves are not checked here: the engine compiles them, and
//! [`Rules::place_of`] traces its complaint back to the file and line.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use dsync_engine::{FilterRule, Links, open_operator_file};

use crate::{
    escape::Escaped,
    flags::{RuleOption, Selection},
    usage::UsageError,
};

/// The rules of a run.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    list: Vec<FilterRule>,
    places: Vec<Place>,
}

/// The origin of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    CommandLine,
    File { name: OsString, line: usize },
}

impl Rules {
    /// Collects the rules of the command line, and reads the files that it names; follows `links`
    /// on the way to them.
    ///
    /// # Errors
    /// [`UsageError::PatternFile`] and [`UsageError::PatternFileTooLong`].
    pub(crate) fn collect(selection: &Selection, links: Links) -> Result<Self, UsageError> {
        let mut rules = Self::default();
        for (option, value) in selection.rules() {
            match option {
                RuleOption::Exclude => rules.add(false, value.as_bytes(), Place::CommandLine),
                RuleOption::Include => rules.add(true, value.as_bytes(), Place::CommandLine),
                RuleOption::ExcludeFrom => rules.add_file(false, value, links)?,
                RuleOption::IncludeFrom => rules.add_file(true, value, links)?,
            }
        }
        Ok(rules)
    }

    /// Returns the rules for the engine.
    pub(crate) fn list(&self) -> &[FilterRule] {
        &self.list
    }

    /// Returns the origin of the first rule with this pattern, lossily decoded: `FILE:LINE`, or the
    /// quoted pattern for one of the command line. The text of a line in a file is never repeated,
    /// because the file may not have been meant as a pattern file.
    pub(crate) fn place_of(&self, pattern: &str) -> String {
        let same = |rule: &FilterRule| String::from_utf8_lossy(&rule.pattern) == pattern;
        match self.list.iter().position(same).and_then(|at| self.places.get(at)) {
            Some(Place::File { name, line }) => format!("{}:{line}", Escaped(name.as_bytes())),
            _ => format!("'{}'", Escaped(pattern.as_bytes())),
        }
    }

    fn add(&mut self, include: bool, text: &[u8], place: Place) {
        if text == b"!" {
            *self = Self::default();
            return;
        }
        let (include, pattern) = match text {
            [b'+', b' ', pattern @ ..] => (true, pattern),
            [b'-', b' ', pattern @ ..] => (false, pattern),
            pattern => (include, pattern),
        };
        if !pattern.is_empty() {
            self.list.push(FilterRule { include, pattern: pattern.to_vec() });
            self.places.push(place);
        }
    }

    fn add_file(&mut self, include: bool, name: &OsStr, links: Links) -> Result<(), UsageError> {
        let bytes = read_pattern_file(name, links)?;
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !matches!(line.first(), None | Some(b'#' | b';')) {
                self.add(include, line, Place::File { name: name.to_owned(), line: index + 1 });
            }
        }
        Ok(())
    }
}

/// Longest pattern file in bytes: a hundred thousand patterns, and a stop for `/dev/zero`.
const MAX_PATTERN_FILE_BYTES: u64 = 16 << 20;

fn read_pattern_file(name: &OsStr, links: Links) -> Result<Vec<u8>, UsageError> {
    let path = Path::new(name);
    let failed = |source| UsageError::PatternFile { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let limit = MAX_PATTERN_FILE_BYTES + 1;
    if name == "-" {
        io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let file = open_operator_file(path, links).map_err(failed)?;
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > MAX_PATTERN_FILE_BYTES {
        return Err(UsageError::PatternFileTooLong {
            path: path.to_owned(),
            limit_bytes: MAX_PATTERN_FILE_BYTES,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::flags;

    fn collect(words: &[&str]) -> Result<Rules, UsageError> {
        Rules::collect(&flags::parse(words.iter().map(OsString::from)).unwrap().selection, Links::Trusted)
    }

    fn shown(rules: &Rules) -> Vec<String> {
        rules
            .list()
            .iter()
            .map(|rule| {
                format!("{}{}", if rule.include { '+' } else { '-' }, String::from_utf8_lossy(&rule.pattern))
            })
            .collect()
    }

    #[test]
    fn order_on_the_command_line_is_kept_across_kinds() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        std::fs::write(&file, "one\n\n# no\n; no\n+ two\r\n- three\n #four\n").unwrap();
        let from = format!("--include-from={}", file.display());
        let rules =
            collect(&["--exclude=a", "--include", "b", &from, "-a", "--exclude", "--delete", "--include=c"]);
        assert_eq!(
            shown(&rules.unwrap()),
            ["-a", "+b", "+one", "+two", "-three", "+ #four", "---delete", "+c"]
        );
    }

    #[test]
    fn prefix_states_the_kind_and_bang_clears() {
        assert_eq!(
            shown(&collect(&["--exclude=+ f", "--include=- g", "--exclude=-x"]).unwrap()),
            ["+f", "-g", "--x"]
        );
        assert_eq!(shown(&collect(&["--exclude=a", "--include=!", "--exclude=b"]).unwrap()), ["-b"]);
        assert_eq!(shown(&collect(&["--exclude=!a", "--exclude="]).unwrap()), ["-!a"]);
    }

    #[test]
    fn complaint_names_file_and_line_but_never_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        std::fs::write(&file, "ok\n# comment\n[secret\n").unwrap();
        let from = format!("--exclude-from={}", file.display());
        let rules = collect(&["--exclude=[x", &from]).unwrap();
        assert_eq!(rules.place_of("[x"), "'[x'");
        assert_eq!(rules.place_of("[secret"), format!("{}:3", file.display()));
    }

    #[test]
    fn file_that_cannot_be_read_is_named() {
        let error = collect(&["--exclude-from=/nonexistent/list"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read pattern file '/nonexistent/list': No such file or directory"
        );
        assert_eq!(error.exit_code(), 11);
    }

    #[test]
    fn endless_file_is_refused() {
        let error = collect(&["--exclude-from=/dev/zero"]).unwrap_err();
        assert!(matches!(error, UsageError::PatternFileTooLong { .. }), "{error}");
    }
}
