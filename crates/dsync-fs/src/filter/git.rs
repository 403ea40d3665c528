//! The meaning of `.gitignore` files: which names a line matches, and that the last line decides.
//!
//! Lines are read as git reads them (comments, `!`, trailing spaces, a missing class) and matched by
//! the crate `ignore`. Its globs have braces and no escapes in classes; git's have it the other way
//! round, so each line is first written as such a glob. Nesting is the concern of
//! [`Scope`](super::Scope).
//!
//! Laws: a line that git cannot match matches nothing. A line that cannot be read as UTF-8 is an
//! error, never a rule less. Matching takes time linear in the path.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// The lines of one file.
#[derive(Debug)]
pub(super) struct GitLines(Gitignore);

/// The reason why a file has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitFault {
    /// The line of this number, 1-based, cannot be read.
    Line(u32),
    /// The file is too complex to match in bounded memory.
    TooComplex,
}

/// A statement of a file about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ignored {
    /// The line of this number excludes it.
    Yes(u32),
    /// A line with `!` matches, so no file above has a say.
    No,
    /// No line matches.
    Unstated,
}

impl GitLines {
    /// Reads the text of a file.
    pub(super) fn read(text: &[u8]) -> Result<Self, GitFault> {
        let mut builder = GitignoreBuilder::new("");
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            let fault = |_| GitFault::Line(number);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.starts_with(b"#") {
                continue;
            }
            let line = std::str::from_utf8(line).map_err(|_| GitFault::Line(number))?;
            if let Some(glob) = glob_of(trimmed(line)) {
                // The crate keeps one text for each glob that it does not read: the line's number.
                let from = Some(PathBuf::from(number.to_string()));
                builder.add_line(from, &glob).map_err(fault)?;
            }
        }
        builder.build().map(Self).map_err(|_| GitFault::TooComplex)
    }

    /// Returns what the file states about an entry at this path below its directory.
    pub(super) fn judge(&self, path: &[u8], is_dir: bool) -> Ignored {
        match self.0.matched(OsStr::from_bytes(path), is_dir) {
            Match::Ignore(glob) => {
                let number = glob.from().and_then(Path::to_str).and_then(|number| number.parse().ok());
                Ignored::Yes(number.unwrap_or_default())
            }
            Match::Whitelist(_) => Ignored::No,
            Match::None => Ignored::Unstated,
        }
    }
}

/// Returns a line without the spaces at its end, except one after a backslash.
fn trimmed(line: &str) -> &str {
    let bare = line.trim_end_matches(' ');
    let escapes = bare.len() - bare.trim_end_matches('\\').len();
    if bare.len() < line.len() && escapes % 2 == 1 { &line[..=bare.len()] } else { bare }
}

/// Returns the crate's glob for a line; `None` for one that matches nothing.
fn glob_of(line: &str) -> Option<String> {
    let bare = line.strip_prefix('!').unwrap_or(line);
    if bare.is_empty() || bare == "/" {
        return None;
    }

    let mut glob = String::new();
    if bare.len() < line.len() {
        glob.push('!');
    }
    // A slash that is added to a class below must not anchor the pattern.
    if !bare.strip_suffix('/').unwrap_or(bare).contains('/') {
        glob.push_str("**/");
    }
    let mut rest = bare.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => glob.extend(['\\', rest.next()?]),
            '{' | '}' => glob.extend(['\\', letter]),
            '[' => Class::take(&mut rest)?.write(&mut glob)?,
            _ => glob.push(letter),
        }
    }
    // The crate would cut off a tab.
    if let Some(last) = glob.chars().last().filter(|&last| last.is_whitespace() && last != ' ') {
        glob.truncate(glob.len() - last.len_utf8());
        if !glob.ends_with('\\') {
            glob.extend(['[', last, ']']);
        }
    }
    Some(glob)
}

/// The characters between `[` and `]`.
#[derive(Debug, Default)]
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    /// Takes a class after its `[`; `None` for one that git matches with nothing.
    fn take(rest: &mut std::str::Chars<'_>) -> Option<Self> {
        let mut class = Self::default();
        let mut letter = rest.next()?;
        if matches!(letter, '!' | '^') {
            class.negated = true;
            letter = rest.next()?;
        }

        let mut before = None;
        loop {
            let next = rest.clone().next();
            before = match letter {
                '-' if before.is_some() && next.is_some_and(|next| next != ']') => {
                    let low = before.take()?;
                    let high = match rest.next()? {
                        '\\' => rest.next()?,
                        high => high,
                    };
                    class.ranges.push((low, high));
                    None
                }
                '[' if next == Some(':') && rest.as_str().contains(']') => class.named(rest)?,
                '\\' => class.add(rest.next()?),
                letter => class.add(letter),
            };
            letter = rest.next()?;
            if letter == ']' {
                return Some(class);
            }
        }
    }

    fn add(&mut self, letter: char) -> Option<char> {
        self.ranges.push((letter, letter));
        Some(letter)
    }

    /// Takes `:name:]`, or else the `[` before it as a letter.
    fn named(&mut self, rest: &mut std::str::Chars<'_>) -> Option<Option<char>> {
        let text = rest.as_str();
        let end = text.find(']')?;
        let Some(name) = text.get(1..end).and_then(|name| name.strip_suffix(':')) else {
            return Some(self.add('['));
        };

        let ranges: &[(char, char)] = match name {
            "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
            "alpha" => &[('a', 'z'), ('A', 'Z')],
            "blank" => &[(' ', ' '), ('\t', '\t')],
            "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
            "digit" => &[('0', '9')],
            "graph" => &[('!', '~')],
            "lower" => &[('a', 'z')],
            "print" => &[(' ', '~')],
            "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
            "space" => &[('\t', '\r'), (' ', ' ')],
            "upper" => &[('A', 'Z')],
            "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
            _ => return None,
        };

        self.ranges.extend(ranges);
        *rest = text[end + 1..].chars();
        Some(None)
    }

    /// Writes the class as one of the crate's; `None` if nothing matches it.
    ///
    /// There `]` is a member in the first place only, `-` in the last one, and `!` and `^` in any
    /// but the first one. No class matches a slash.
    fn write(&self, glob: &mut String) -> Option<()> {
        let has = |letter| self.ranges.iter().any(|&(low, high)| (low..=high).contains(&letter));
        let mut plain = Vec::new();
        for &(low, high) in &self.ranges {
            split(low, high, &mut plain);
        }
        let marks: Vec<char> = ['!', '^'].into_iter().filter(|&mark| has(mark)).collect();
        let (bracket, dash) = (has(']'), has('-'));

        if self.negated {
            glob.push_str("[!");
        } else if plain.is_empty() && !bracket {
            // One of the marks would begin the class.
            match (marks.as_slice(), dash) {
                ([], false) => return None,
                ([], true) => glob.push_str("\\-"),
                ([mark], false) => glob.extend(['\\', *mark]),
                ([mark], true) => glob.extend(['{', '\\', *mark, ',', '\\', '-', '}']),
                (_, false) => glob.push_str("{\\!,\\^}"),
                (_, true) => glob.push_str("{\\!,\\^,\\-}"),
            }
            return Some(());
        } else {
            glob.push('[');
        }

        glob.extend(bracket.then_some(']'));
        for (low, high) in plain {
            glob.extend([low, '-', high]);
        }
        if self.negated {
            glob.push_str("/-/");
        }
        glob.extend(marks);
        glob.extend(dash.then_some('-'));
        glob.push(']');
        Some(())
    }
}

/// Adds a range without the letters that need a place of their own; a reversed one is empty.
fn split(low: char, high: char, ranges: &mut Vec<(char, char)>) {
    let mut from = Some(low);
    for special in ['!', '-', '/', ']', '^'] {
        let Some(start) = from.filter(|&start| (start..=high).contains(&special)) else { continue };
        if start < special {
            ranges.extend(before(special).map(|end| (start, end)));
        }
        from = char::from_u32(u32::from(special) + 1);
    }
    ranges.extend(from.filter(|&start| start <= high).map(|start| (start, high)));
}

fn before(letter: char) -> Option<char> {
    char::from_u32(u32::from(letter).checked_sub(1)?)
}

/// The mark that some editors put at the start of a file; git reads over it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn judge(text: &str, path: &str) -> Ignored {
        let (path, is_dir) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
        GitLines::read(text.as_bytes()).unwrap().judge(path.as_bytes(), is_dir)
    }

    #[test]
    fn last_line_that_matches_decides_and_is_named() {
        let text = "# a comment\n*.o\n!keep.o\n/top\nout/\n";
        assert_eq!(judge(text, "d/a.o"), Ignored::Yes(2));
        assert_eq!(judge(text, "d/keep.o"), Ignored::No);
        assert_eq!(judge(text, "top"), Ignored::Yes(4));
        assert_eq!(judge(text, "d/top"), Ignored::Unstated);
        assert_eq!(judge(text, "d/out/"), Ignored::Yes(5));
        assert_eq!(judge(text, "d/out"), Ignored::Unstated);
    }

    #[test]
    fn line_that_is_no_text_is_a_fault_and_a_comment_is_not() {
        let fault = |text: &[u8]| GitLines::read(text).err();
        assert_eq!(fault(b"a\n\xff\n"), Some(GitFault::Line(2)));
        assert_eq!(fault(b"# \xff\na\n"), None);
    }

    #[test]
    fn spaces_at_the_end_count_after_a_backslash_only() {
        assert_eq!(trimmed("a  "), "a");
        assert_eq!(trimmed("a\\  "), "a\\ ");
        assert_eq!(trimmed("a\\\\  "), "a\\\\");
        assert_eq!(judge("a\\ ", "a "), Ignored::Yes(1));
        assert_eq!(judge("a\t", "a\t"), Ignored::Yes(1));
        assert_eq!(judge("a\t", "a"), Ignored::Unstated);
    }
}
