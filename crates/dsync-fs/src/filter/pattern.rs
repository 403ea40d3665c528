//! Compiles an rsync pattern into a matcher.
//!
//! The language, as described by rsync(1) "PATTERN MATCHING RULES" and checked by tests against the
//! program itself:
//!
//! | in the pattern | meaning |
//! |---|---|
//! | leading `/` | only from the transfer's root |
//! | trailing `/` | directories only |
//! | none of `*` `?` `[` | compared byte by byte, backslashes included |
//! | `*`, `?` | any run of bytes, any byte, but no `/` |
//! | `**` | any run of bytes |
//! | trailing `***` | as `**`, and a directory counts as if its name ended in `/`: `dir/***` is `dir` and all in it |
//! | `[a-z]` `[!a]` `[^a]` `[[:alpha:]]` | one byte of a set, never `/` |
//! | `\x` | the byte `x` |
//! | an open `[`, an unknown class, or with wildcards a `\` at the end | matches nothing |
//!
//! Without an inner `/` and `**` a pattern is matched against the last component; with an inner `/`
//! or `**` against the end of the path, from a component's start; one that begins with `**` against
//! the path with a `/` before it.

mod glob;

use regex::bytes::{Regex, RegexBuilder};

use self::glob::{Glob, Token};
use super::fault::FilterReason;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) directories_only: bool,
    /// Whether it begins with a slash.
    pub(super) anchored: bool,
    matcher: Matcher,
}

/// The trade of speed for memory of a compiled pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Build {
    /// Fast, at some kilobytes: for the rules of a command, which meet every entry.
    Fast,
    /// A few bytes for each byte of text: for the files of a tree, of which there are many.
    Lean,
}

/// A compiled text with wildcards.
#[derive(Debug, Clone)]
enum Wild {
    Fast(Regex),
    Lean(Glob),
}

#[derive(Debug, Clone)]
enum Matcher {
    /// No path matches.
    Nothing,
    /// The last component is this.
    Name(Vec<u8>),
    /// The path is this.
    Path(Vec<u8>),
    /// The path is this or ends in it after a `/`.
    Tail(Vec<u8>),
    /// The last components, as many as the pattern has slashes and one more, match.
    TailLike { wild: Wild, slashes: usize },
    /// The path matches.
    PathLike {
        wild: Wild,
        /// The text is the path with a `/` before it.
        slash_before: bool,
        /// The text of a directory ends in a `/`.
        slash_after: bool,
    },
}

impl Pattern {
    /// Compiles a pattern. An error has the 1-based column and the fault.
    pub(super) fn parse(text: &[u8], build: Build) -> Result<Self, (usize, FilterReason)> {
        if text.is_empty() {
            return Err((1, FilterReason::Empty));
        }
        if text.len() > MAX_PATTERN_LEN {
            return Err((MAX_PATTERN_LEN + 1, FilterReason::TooLong));
        }
        if let Some(nul) = text.iter().position(|&byte| byte == 0) {
            return Err((nul + 1, FilterReason::Nul));
        }

        let (body, directories_only) = match text {
            [body @ .., b'/'] if !body.is_empty() => (body, true),
            _ => (text, false),
        };
        let (rest, anchored) = match body {
            [b'/', rest @ ..] => (rest, true),
            _ => (body, false),
        };
        let matcher = if body.iter().any(|byte| b"*?[".contains(byte)) {
            wild(rest, anchored, build)?
        } else if anchored {
            Matcher::Path(rest.to_vec())
        } else if rest.contains(&b'/') {
            Matcher::Tail(rest.to_vec())
        } else {
            Matcher::Name(rest.to_vec())
        };

        Ok(Self { directories_only, anchored, matcher })
    }

    /// Compiles the pattern of a rule. As with rsync, one that no name can match is no error: a
    /// `.cvsignore` that another program reads would cost its directory.
    pub(super) fn of_rule(text: &[u8], build: Build) -> Result<Self, (usize, FilterReason)> {
        match Self::parse(text, build) {
            Err((_, reason)) if reason.matches_nothing() => {
                Ok(Self { directories_only: false, anchored: false, matcher: Matcher::Nothing })
            }
            parsed => parsed,
        }
    }

    /// Returns the last component of every path that it matches, if it is one.
    pub(super) fn only_name(&self) -> Option<&[u8]> {
        match &self.matcher {
            Matcher::Name(text) | Matcher::Path(text) | Matcher::Tail(text) => Some(last(text)),
            Matcher::Nothing | Matcher::TailLike { .. } | Matcher::PathLike { .. } => None,
        }
    }

    /// Returns whether the pattern matches this path. The caller must check `directories_only`.
    pub(super) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        match &self.matcher {
            Matcher::Nothing => false,
            Matcher::Name(name) => last(path) == name.as_slice(),
            Matcher::Path(whole) => path == whole.as_slice(),
            Matcher::Tail(tail) => {
                path.strip_suffix(tail.as_slice()).is_some_and(|head| matches!(head, [] | [.., b'/']))
            }
            Matcher::TailLike { wild, slashes } => {
                tail(path, *slashes).is_some_and(|tail| wild.is_match(tail))
            }
            Matcher::PathLike { wild, slash_before, slash_after } => {
                let slash_after = *slash_after && is_dir;
                if !slash_before && !slash_after {
                    return wild.is_match(path);
                }
                let mut text = Vec::with_capacity(path.len() + 2);
                text.extend_from_slice(if *slash_before { b"/" } else { b"" });
                text.extend_from_slice(path);
                text.extend_from_slice(if slash_after { b"/" } else { b"" });
                wild.is_match(&text)
            }
        }
    }
}

/// Returns the last component of a path.
pub(super) fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Returns the end of the path that has this many slashes inside; `None` if the path has fewer.
fn tail(path: &[u8], slashes: usize) -> Option<&[u8]> {
    let mut borders = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    match borders.nth(slashes) {
        Some((border, _)) => path.get(border + 1..),
        None => (path.iter().filter(|byte| **byte == b'/').count() == slashes).then_some(path),
    }
}

impl Wild {
    fn is_match(&self, text: &[u8]) -> bool {
        match self {
            Self::Fast(regex) => regex.is_match(text),
            Self::Lean(glob) => glob.is_match(text),
        }
    }
}

/// A pattern for one name.
#[derive(Debug, Clone)]
pub(crate) struct Wildcards(Glob);

impl Wildcards {
    /// Compiles a pattern; `None` if it is none, as `[a`.
    pub(crate) fn compile(text: &[u8]) -> Option<Self> {
        let mut tokens = Vec::with_capacity(text.len());
        translate(text, &mut tokens).ok()?;
        Some(Self(Glob::new(tokens)))
    }

    /// Returns the name, if it is only one, that the pattern matches.
    pub(crate) fn only(&self) -> Option<Vec<u8>> {
        self.0.only()
    }

    /// Returns whether the pattern matches all of a name.
    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        self.0.is_match(name)
    }
}

/// Compiles a pattern with wildcards, without its leading slash.
fn wild(body: &[u8], anchored: bool, build: Build) -> Result<Matcher, (usize, FilterReason)> {
    let crosses = body.windows(2).any(|pair| pair == b"**");
    let slash_before = !anchored && body.starts_with(b"**");
    let slash_after = body.ends_with(b"***");
    let is_tail = !anchored && !crosses;

    let mut tokens = Vec::with_capacity(body.len() + 1);
    if !anchored && !slash_before && !is_tail {
        tokens.push(Token::Directories);
    }
    let removed = usize::from(anchored);
    translate(body, &mut tokens).map_err(|(column, reason)| (column + removed, reason))?;

    let wild = match build {
        Build::Fast => Wild::Fast(regex(&tokens)?),
        Build::Lean => Wild::Lean(Glob::new(tokens)),
    };
    Ok(if is_tail {
        // Count those inside a class as well, though no class ever matches a slash.
        let slashes = body.iter().filter(|byte| **byte == b'/').count();
        Matcher::TailLike { wild, slashes }
    } else {
        Matcher::PathLike { wild, slash_before, slash_after }
    })
}

fn regex(tokens: &[Token]) -> Result<Regex, (usize, FilterReason)> {
    let mut source = String::with_capacity(tokens.len() * 4 + 16);
    source.push('^');
    for token in tokens {
        match token {
            Token::Byte(byte) => literal(*byte, &mut source),
            Token::Any => source.push_str("[^/]"),
            Token::Run => source.push_str("[^/]*"),
            Token::LongRun => source.push_str(".*"),
            Token::Directories => source.push_str("(?:.*/)?"),
            Token::Class(set) => push_set(set, &mut source),
        }
    }
    source.push('$');
    RegexBuilder::new(&source)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(MAX_PROGRAM_BYTES)
        .build()
        .map_err(|_| (1, FilterReason::TooComplex))
}

fn translate(body: &[u8], tokens: &mut Vec<Token>) -> Result<(), (usize, FilterReason)> {
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        at += 1;
        match byte {
            b'*' => {
                let more =
                    body.get(at..).unwrap_or_default().iter().take_while(|&&next| next == b'*').count();
                tokens.push(if more == 0 { Token::Run } else { Token::LongRun });
                at += more;
            }
            b'?' => tokens.push(Token::Any),
            b'[' => {
                let (set, after) = class(body, at)?;
                tokens.push(Token::Class(Box::new(set)));
                at = after;
            }
            b'\\' => {
                let Some(&escaped) = body.get(at) else {
                    return Err((at, FilterReason::TrailingBackslash));
                };
                tokens.push(Token::Byte(escaped));
                at += 1;
            }
            byte => tokens.push(Token::Byte(byte)),
        }
    }

    Ok(())
}

fn literal(byte: u8, source: &mut String) {
    if byte.is_ascii_alphanumeric() || byte == b'/' {
        source.push(char::from(byte));
    } else {
        push_hex(byte, source);
    }
}

fn push_hex(byte: u8, source: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    source.push_str("\\x");
    source.push(char::from(DIGITS[usize::from(byte >> 4)]));
    source.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Reads a class from after its `[` on; returns its bytes and the position after its `]`.
fn class(body: &[u8], start: usize) -> Result<([bool; 256], usize), (usize, FilterReason)> {
    let open = (start, FilterReason::OpenClass);
    let mut set = [false; 256];
    let mut at = start;
    let negated = matches!(body.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut low: Option<u8> = None;
    loop {
        let &byte = body.get(at).ok_or(open)?;
        at += 1;
        match byte {
            b']' if at - 1 > first => break,
            b'-' if low.is_some() && body.get(at).is_some_and(|&next| next != b']') => {
                let (high, after) = unescaped(body, at).ok_or(open)?;
                at = after;
                for member in low.take().unwrap_or(high)..=high {
                    set[usize::from(member)] = true;
                }
            }
            b'[' if body.get(at) == Some(&b':') => {
                let rest = body.get(at + 1..).unwrap_or_default();
                let end = rest.iter().position(|&byte| byte == b']').ok_or(open)?;
                match rest.get(..end).and_then(|name| name.strip_suffix(b":")) {
                    Some(name) => {
                        let test = posix_class(name).ok_or((at, FilterReason::UnknownClass))?;
                        (0..=127u8).filter(test).for_each(|member| set[usize::from(member)] = true);
                        low = None;
                        at += 1 + end + 1;
                    }
                    None => {
                        set[usize::from(b'[')] = true;
                        low = Some(b'[');
                    }
                }
            }

            _ => {
                let (member, after) = unescaped(body, at - 1).ok_or(open)?;
                at = after;
                set[usize::from(member)] = true;
                low = Some(member);
            }
        }
    }

    if negated {
        set.iter_mut().for_each(|member| *member = !*member);
    }
    set[usize::from(b'/')] = false;
    Ok((set, at))
}

/// Returns the byte at `at` (after a backslash, the byte behind it) and the position that follows.
fn unescaped(body: &[u8], at: usize) -> Option<(u8, usize)> {
    match body.get(at)? {
        b'\\' => body.get(at + 1).map(|&byte| (byte, at + 2)),
        &byte => Some((byte, at + 1)),
    }
}

fn posix_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

fn push_set(set: &[bool; 256], source: &mut String) {
    source.push('[');
    let mut empty = true;
    let mut byte: u8 = 0;
    loop {
        if set[usize::from(byte)] {
            empty = false;
            let mut end = byte;
            while end < u8::MAX && set[usize::from(end) + 1] {
                end += 1;
            }
            push_hex(byte, source);
            source.push('-');
            push_hex(end, source);
            byte = end;
        }
        match byte.checked_add(1) {
            Some(next) => byte = next,
            None => break,
        }
    }
    // A class without any byte.
    source.push_str(if empty { "^\\x00-\\xFF]" } else { "]" });
}

/// Longest pattern in bytes. Longer ones cannot match a path that the kernel takes in one call.
const MAX_PATTERN_LEN: usize = 4096;

/// Most memory of one compiled pattern, in bytes.
const MAX_PROGRAM_BYTES: usize = 1 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Both builds of a pattern are the same rule.
        #[test]
        fn lean_pattern_matches_what_the_fast_one_matches(
            pattern in r"(/|\*\*)?([ab/]|\*{1,3}|\?|\[[ab!^-]{1,3}\]|\\[a*b/]){1,8}/?",
            paths in prop::collection::vec(r"[abc*]{1,3}(/[ab\n]{1,3}){0,3}", 1..12),
            is_dir: bool,
        ) {
            let fast = Pattern::parse(pattern.as_bytes(), Build::Fast);
            let lean = Pattern::parse(pattern.as_bytes(), Build::Lean);
            match (fast, lean) {
                (Ok(fast), Ok(lean)) => for path in paths {
                    let path = path.as_bytes();
                    prop_assert_eq!(fast.matches(path, is_dir), lean.matches(path, is_dir), "{:?}", path);
                },
                (fast, lean) => prop_assert_eq!(fast.err(), lean.err()),
            }
        }
    }
}
