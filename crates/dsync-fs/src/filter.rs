//! Include and exclude rules in rsync's pattern language.
//!
//! Rules are tried in order, and the first match decides. Takes paths relative to the transfer's
//! root. Both ends of a run apply the same set: the source to leave entries out, the destination to
//! protect them from deletion. Any pattern takes time linear in the path, and bounded memory. The
//! command line handles rule prefixes (`+ `, `- `, `!`) and rule files.

mod pattern;

use std::sync::Arc;

use self::pattern::Pattern;
use crate::component::{Component, RelPath};

/// Compiled rules. Cheap to clone.
///
/// ```
/// use dsync_fs::FilterSet;
/// let set = FilterSet::compile(&[(true, b"/keep.o"), (false, b"*.o"), (false, b"target/")])?;
/// assert_eq!(set.check(b"keep.o", false), Some(true));
/// assert_eq!(set.check(b"a/b.o", false), Some(false));
/// assert_eq!(set.check(b"a/target", true), Some(false));
/// assert_eq!(set.check(b"a/b.c", false), None);
/// # Ok::<(), dsync_fs::FilterError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct FilterSet {
    rules: Arc<[Rule]>,
    /// The name of directories that are excluded if no rule decides.
    own_directories: Option<Component>,
}

#[derive(Debug)]
struct Rule {
    include: bool,
    pattern: Pattern,
}

impl FilterSet {
    /// Compiles rules: include (true) or exclude (false), and the pattern without prefix.
    ///
    /// # Errors
    /// [`FilterError`] for the first pattern that is malformed.
    pub fn compile(rules: &[(bool, &[u8])]) -> Result<Self, FilterError> {
        let compile = |&(include, text): &(bool, &[u8])| match Pattern::parse(text) {
            Ok(pattern) => Ok(Rule { include, pattern }),
            Err((column, reason)) => Err(FilterError { pattern: text.to_vec(), column, reason }),
        };
        Ok(Self { rules: rules.iter().map(compile).collect::<Result<_, _>>()?, own_directories: None })
    }

    /// Excludes directories of this name, wherever they are, unless a rule matches.
    #[must_use]
    pub fn without_directories(mut self, name: Component) -> Self {
        self.own_directories = Some(name);
        self
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.own_directories.is_none()
    }

    /// Returns the verdict of the first rule that matches: `true` to include, `None` if none
    /// matches.
    ///
    /// `path` is relative to the transfer's root, without a leading or trailing slash. The root
    /// itself (an empty path) is never matched. Cost: rules x path length, at worst.
    pub fn check(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        if path.is_empty() {
            return None;
        }
        let decides =
            |rule: &&Rule| (is_dir || !rule.pattern.directories_only) && rule.pattern.matches(path, is_dir);
        let decided = self.rules.iter().find(decides).map(|rule| rule.include);
        let is_own =
            |own: &Component| is_dir && path.rsplit(|&byte| byte == b'/').next() == Some(own.as_bytes());
        decided.or_else(|| self.own_directories.as_ref().is_some_and(is_own).then_some(false))
    }

    /// Returns whether the first rule that matches is an exclude.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.check(path, is_dir) == Some(false)
    }
}

/// The entries of one directory as seen by the rules: a name becomes a path without a new buffer
/// for each.
#[derive(Debug, Clone, Default)]
pub struct Within {
    /// Path of an entry. The first `prefix` bytes are the directory's, with a slash at their end.
    path: Vec<u8>,
    prefix: usize,
}

impl Within {
    /// Begins a directory at this path below the transfer's root. If the set has no rules, this
    /// takes no memory and drops the path.
    pub fn new(filter: &FilterSet, directory: &RelPath) -> Self {
        let mut path = Vec::new();
        if !filter.is_empty() && !directory.is_root() {
            path.extend_from_slice(directory.as_bytes());
            path.push(b'/');
        }
        let prefix = path.len();
        Self { path, prefix }
    }

    /// Returns whether the set that this was made for excludes the entry of this name.
    pub fn excludes(&mut self, filter: &FilterSet, name: &[u8], is_dir: bool) -> bool {
        !filter.is_empty() && filter.excludes(self.path_of(name), is_dir)
    }

    /// Returns the path of the directory; an empty one without rules.
    pub fn directory(&self) -> &[u8] {
        self.path.get(..self.prefix.saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the path of the entry of this name; its name alone without rules.
    pub fn path_of(&mut self, name: &[u8]) -> &[u8] {
        self.path.truncate(self.prefix);
        self.path.extend_from_slice(name);
        &self.path
    }
}

/// A malformed pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad pattern '{}' at column {column}: {reason}", pattern.escape_ascii())]
pub struct FilterError {
    /// The pattern.
    pub pattern: Vec<u8>,
    /// Byte position of the fault, 1-based.
    pub column: usize,
    /// The fault.
    pub reason: FilterReason,
}

/// The fault in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterReason {
    /// The pattern is empty.
    #[error("{}", self.as_str())]
    Empty,
    /// The pattern is too long.
    #[error("{}", self.as_str())]
    TooLong,
    /// The pattern contains a NUL byte.
    #[error("{}", self.as_str())]
    Nul,
    /// A `[` without its `]`.
    #[error("{}", self.as_str())]
    OpenClass,
    /// A `[:name:]` that is not a POSIX class.
    #[error("{}", self.as_str())]
    UnknownClass,
    /// A backslash at the end.
    #[error("{}", self.as_str())]
    TrailingBackslash,
    /// The pattern is too complex to match in bounded memory.
    #[error("{}", self.as_str())]
    TooComplex,
}

impl FilterReason {
    /// Returns the same text as `Display`, for errors with static fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "the pattern is empty",
            Self::TooLong => "the pattern is too long",
            Self::Nul => "a NUL byte cannot be part of a name",
            Self::OpenClass => "'[' without ']'",
            Self::UnknownClass => "unknown character class",
            Self::TrailingBackslash => "a backslash at the end escapes nothing",
            Self::TooComplex => "the pattern is too complex",
        }
    }
}
