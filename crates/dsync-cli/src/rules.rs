//! Filter rules in the order in which they were typed, each with its origin.
//!
//! rsync's notation: a pattern that starts with `- ` or `+ ` says itself whether it excludes or
//! includes, `!` alone drops what came before, and in a file empty lines and comments (`#`, `;`)
//! are skipped. The `--filter` has rules of its own kind: a word or a sign, a space or `_`, and a
//! pattern or the name of a file with more rules. Kinds and modifiers that dsync does not have are
//! refused, never read as another rule. The patterns themselves are not judged here: the engine
//! compiles them, and its complaint is traced back to the file and line by [`Rules::place_of`].

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
    refused::Refused,
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
        for (option, value, from0) in selection.rules() {
            let files = Files { links, end: if from0 { 0 } else { b'\n' } };
            match option {
                RuleOption::Exclude => rules.add(false, value.as_bytes(), Place::CommandLine),
                RuleOption::Include => rules.add(true, value.as_bytes(), Place::CommandLine),
                RuleOption::ExcludeFrom => {
                    rules.add_file(Lines::Patterns { include: false }, value, files, 0)?;
                }
                RuleOption::IncludeFrom => {
                    rules.add_file(Lines::Patterns { include: true }, value, files, 0)?;
                }
                RuleOption::Filter => rules.add_rule(value.as_bytes(), Place::CommandLine, files, 0)?,
            }
        }
        Ok(rules)
    }

    /// Adds a rule after all others that leaves out what matches a pattern.
    pub(crate) fn exclude(&mut self, pattern: &[u8]) {
        self.add(false, pattern, Place::CommandLine);
    }

    /// Adds a rule of `--filter`, or of a file that such a rule names.
    fn add_rule(&mut self, text: &[u8], place: Place, files: Files, depth: u32) -> Result<(), UsageError> {
        let refuse = |what| Err(place.refusal(text, what));
        let Some(Rule { kind, modifiers, rest }) = Rule::read(text) else {
            return refuse(Refused::Malformed);
        };
        let wrong = modifiers.iter().find(|letter| !MODIFIERS.contains(letter));

        match (kind, modifiers) {
            _ if wrong.is_some() => refuse(Refused::Malformed),
            (Kind::Clear, []) if rest.is_none_or(<[u8]>::is_empty) => {
                *self = Self::default();
                Ok(())
            }
            (Kind::Clear, _) => refuse(Refused::Malformed),
            (Kind::Other, _) => refuse(Refused::Unsupported),
            _ if rest.is_none_or(<[u8]>::is_empty) => refuse(Refused::Malformed),
            (Kind::Exclude | Kind::Include, []) => {
                let pattern = rest.unwrap_or_default().to_vec();
                self.list.push(FilterRule { include: kind == Kind::Include, pattern });
                self.places.push(place);
                Ok(())
            }
            (Kind::Merge, [] | [b'-' | b'+']) => {
                let lines = match modifiers {
                    [sign] => Lines::Patterns { include: *sign == b'+' },
                    _ => Lines::Rules,
                };
                self.add_file(lines, OsStr::from_bytes(rest.unwrap_or_default()), files, depth + 1)
            }
            _ => refuse(Refused::Unsupported),
        }
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

    fn add_file(&mut self, lines: Lines, name: &OsStr, files: Files, depth: u32) -> Result<(), UsageError> {
        if depth > MAX_DEPTH {
            return Err(UsageError::PatternFilesTooDeep { path: name.into(), limit: MAX_DEPTH });
        }
        let bytes = read_pattern_file(name, files.links)?;

        for (index, line) in bytes.split(|&byte| byte == files.end).enumerate() {
            let line = if files.end == b'\n' { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
            if matches!(line.first(), None | Some(b'#' | b';')) {
                continue;
            }
            let place = Place::File { name: name.to_owned(), line: index + 1 };
            match lines {
                Lines::Patterns { include } => self.add(include, line, place),
                Lines::Rules => self.add_rule(line, place, files, depth)?,
            }
        }
        Ok(())
    }
}

/// The way in which files of rules are read.
#[derive(Debug, Clone, Copy)]
struct Files {
    /// Links that their paths may pass through.
    links: Links,
    /// The byte that ends a line: 0 with `--from0`.
    end: u8,
}

/// The meaning of a file's lines.
#[derive(Debug, Clone, Copy)]
enum Lines {
    Patterns { include: bool },
    Rules,
}

/// The effect of a rule of `--filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exclude,
    Include,
    Merge,
    Clear,
    /// rsync has it, dsync does not.
    Other,
}

impl Place {
    /// Returns the error for a rule that was written here. A file's text is not repeated: it may
    /// not have been meant as a file of rules.
    fn refusal(&self, text: &[u8], why: Refused) -> UsageError {
        let rule = match self {
            Self::CommandLine => format!("'{}'", Escaped(text)),
            Self::File { name, line } => format!("at {}:{line}", Escaped(name.as_bytes())),
        };
        UsageError::FilterRule { rule, why }
    }
}

/// A rule of `--filter` in its parts.
struct Rule<'a> {
    kind: Kind,
    modifiers: &'a [u8],
    /// The text after the space or `_`, if one is there.
    rest: Option<&'a [u8]>,
}

impl<'a> Rule<'a> {
    /// Splits a rule; `None` for a text that starts like none.
    fn read(text: &'a [u8]) -> Option<Self> {
        let words: [(&[u8], Kind); 10] = [
            (b"exclude", Kind::Exclude),
            (b"include", Kind::Include),
            (b"merge", Kind::Merge),
            (b"clear", Kind::Clear),
            (b"dir-merge", Kind::Other),
            (b"hide", Kind::Other),
            (b"show", Kind::Other),
            (b"protect", Kind::Other),
            (b"risk", Kind::Other),
            (b"!", Kind::Clear),
        ];

        let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b' ' | b'_' | b','));
        let word = words.iter().find(|(word, _)| text.strip_prefix(*word).is_some_and(ends));
        let (kind, rest) = match (word, text) {
            (Some((word, kind)), _) => (*kind, &text[word.len()..]),
            (None, [b'-', rest @ ..]) => (Kind::Exclude, rest),
            (None, [b'+', rest @ ..]) => (Kind::Include, rest),
            (None, [b'.', rest @ ..]) => (Kind::Merge, rest),
            (None, [b':' | b'H' | b'S' | b'P' | b'R', rest @ ..]) => (Kind::Other, rest),
            _ => return None,
        };
        let rest = rest.strip_prefix(b",").unwrap_or(rest);

        Some(match rest.iter().position(|byte| matches!(byte, b' ' | b'_')) {
            Some(end) => Self { kind, modifiers: &rest[..end], rest: Some(&rest[end + 1..]) },
            None => Self { kind, modifiers: rest, rest: None },
        })
    }
}

/// Modifiers that rsync knows for one kind or another.
const MODIFIERS: &[u8] = b"/!Csrpxenw-+";

/// Most files that name each other, as in rsync.
const MAX_DEPTH: u32 = 32;

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
    fn rules_of_filter_are_those_of_rsync() {
        let list = |rules: &[&str]| {
            let words: Vec<String> = rules.iter().map(|rule| format!("--filter={rule}")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            collect(&words).map_err(|error| error.exit_code()).map(|rules| {
                let shown = |rule: &FilterRule| {
                    let sign = if rule.include { '+' } else { '-' };
                    format!("{sign}{}", String::from_utf8_lossy(&rule.pattern))
                };
                rules.list().iter().map(shown).collect::<Vec<_>>()
            })
        };
        // Each as rsync 3.5.0 read it.
        for (rules, expected) in [
            (&["- *.o"][..], Ok(&["-*.o"][..])),
            (&["-_*.o"], Ok(&["-*.o"])),
            (&["+ keep", "exclude *.o"], Ok(&["+keep", "-*.o"])),
            (&["-  *.o"], Ok(&["- *.o"])),
            (&["- a", "!"], Ok(&[])),
            (&["- a", "clear", "include_b"], Ok(&["+b"])),
            (&["-*.o"], Err(1)),
            (&["exclude,*.o"], Err(1)),
            (&["- "], Err(1)),
            (&["-"], Err(1)),
            (&[" - x"], Err(1)),
            (&["x foo"], Err(1)),
            (&[""], Err(1)),
            (&["-e x"], Err(4)),
            (&["-! *.o"], Err(4)),
            (&["-s x"], Err(4)),
            (&[": .rsync-filter"], Err(4)),
            (&["dir-merge .f"], Err(4)),
            (&["P x"], Err(4)),
            (&["hide,r x"], Err(4)),
            (&[".e file"], Err(4)),
        ] {
            let expected =
                expected.map(|rules| rules.iter().map(|&rule| rule.to_owned()).collect::<Vec<_>>());
            assert_eq!(list(rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn files_of_rules_may_name_others_and_are_read_to_a_depth() {
        let at = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = at.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let inner = file("inner", "a\n+ b\n");
        let outer = file("outer", &format!("# comment\n\n- x\n.- {inner}\n; more\n+ y\n"));
        let rules = collect(&["--filter", &format!("merge {outer}")]).unwrap();
        let shown: Vec<_> = rules.list().iter().map(|rule| (rule.include, rule.pattern.as_slice())).collect();
        assert_eq!(shown, [(false, &b"x"[..]), (false, b"a"), (true, b"b"), (true, b"y")]);
        let nul = file("nul", "- a\nb\0+ c\0");
        let rules = collect(&["-0", "-f", &format!(". {nul}")]).unwrap();
        assert_eq!(rules.list()[0].pattern, b"a\nb");
        assert_eq!(rules.list().len(), 2);
        let rules = collect(&["-f", &format!(". {outer}"), "-0"]).unwrap();
        assert_eq!(rules.list().len(), 4);
        let round = at.path().join("round");
        std::fs::write(&round, format!(". {}\n", round.display())).unwrap();
        let error = collect(&["-f", &format!(". {}", round.display())]).unwrap_err();
        assert_eq!(error.exit_code(), 11);
        // The secret of a file is not told.
        let secret = file("secret", "password\n");
        let error = collect(&["-f", &format!(". {secret}")]).unwrap_err();
        assert!(!error.to_string().contains("password") && error.to_string().contains("secret:1"), "{error}");
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
