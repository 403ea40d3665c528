//! Include and exclude rules in rsync's pattern language.
//!
//! Rules are tried in order, and the first match decides. Takes paths relative to the transfer's
//! root. Both ends of a run apply the same set: the source to leave entries out, the destination to
//! protect them from deletion; a rule may be for one of them only. Any pattern takes time linear in
//! the path, and bounded memory. [`syntax`] reads rules as text, [`Scope`] adds the rules of files
//! in the tree, those of `.gitignore` in git's language. The command line reads files of rules that
//! it names itself.

mod fault;
mod git;
mod order;
mod pattern;
mod scope;
mod syntax;

use std::sync::Arc;

pub(crate) use self::pattern::Wildcards;
pub use self::{
    fault::{FilterError, FilterReason},
    scope::{RuleFileError, RuleFileFault, RuleOrigin, Scope, Subject, Verdict},
    syntax::{CVS_PATTERNS, Ends, ParsedRule, RuleFault, RuleFile, RuleLines, RuleSpec},
};
use self::{
    order::Order,
    pattern::{Build, Pattern},
    scope::Above,
};
use crate::{
    component::{Component, RelPath},
    xattr_rules::{JudgesXattrs, XattrRules},
};

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
    rules: Arc<Rules>,
    /// The rules about names of extended attributes.
    xattrs: Arc<[Rule]>,
    /// The files that are looked for in each directory.
    merges: Arc<[Arc<RuleSpec>]>,
    /// The rules of those files above the roots of transfers.
    above: Arc<[Above]>,
    /// Whether a rule is for absolute paths.
    is_absolute: bool,
    /// The end that the rules are asked at.
    at_destination: bool,
    /// Whether rules that state no end are for the source alone.
    deletes_excluded: bool,
    /// The name of directories that are excluded if no rule decides.
    own_directories: Option<Component>,
}

#[derive(Debug)]
struct Rule {
    include: bool,
    ends: Ends,
    negated: bool,
    absolute: bool,
    perishable: bool,
    what: What,
    /// File and line; none for one of the command.
    origin: Option<(Arc<[u8]>, u32)>,
}

/// Compiled rules, the first one first.
#[derive(Debug, Default)]
struct Rules {
    all: Vec<Rule>,
    order: Order,
}

impl Rules {
    /// Returns the rules that may match a path, with their numbers, in order. No other one does.
    fn that_may_match(&self, path: &[u8]) -> impl Iterator<Item = (usize, &Rule)> {
        self.order.that_may_match(path).filter_map(|at| Some((at, self.all.get(at)?)))
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(all: Vec<Rule>) -> Self {
        let order = Order::new(all.iter().map(Rule::only_name));
        Self { all, order }
    }
}

/// The things that a rule speaks of.
#[derive(Debug)]
enum What {
    /// A file that another rule names already, or names of extended attributes.
    Nothing,
    Pattern(Pattern),
    /// The rules of a file in each directory, by its number.
    Files(usize),
}

impl FilterSet {
    /// Compiles rules: include (true) or exclude (false), and the pattern without prefix.
    ///
    /// # Errors
    /// [`FilterError`] for the first pattern that is malformed, also where it only matches nothing.
    pub fn compile(rules: &[(bool, &[u8])]) -> Result<Self, FilterError> {
        let specs: Vec<_> = rules.iter().map(|&(include, text)| RuleSpec::new(include, text)).collect();
        match specs.iter().find_map(RuleSpec::unmatched) {
            Some(error) => Err(error),
            None => Self::of(&specs),
        }
    }

    /// Compiles rules, for the source's end. Of files that are looked for in each directory, those
    /// with the name of an earlier one say nothing. As with rsync, a pattern matches nothing if it has
    /// a `[` without its `]`, an unknown class, or a backslash at its end.
    ///
    /// # Errors
    /// [`FilterError`] for the first pattern that is malformed in another way.
    pub fn of(specs: &[RuleSpec]) -> Result<Self, FilterError> {
        let mut merges: Vec<Arc<RuleSpec>> = Vec::new();
        let mut rules = Vec::with_capacity(specs.len());
        let mut xattrs = Vec::new();
        // A long list may not take gigabytes.
        let build = if specs.len() > MAX_FAST_RULES { Build::Lean } else { Build::Fast };

        for spec in specs {
            let what = if spec.rule_file.is_none() {
                match Pattern::of_rule(&spec.pattern, build) {
                    Ok(pattern) if spec.xattrs => {
                        xattrs.push(Rule::of(spec, What::Pattern(pattern), None));
                        // Keeps the numbers of the others.
                        What::Nothing
                    }
                    Ok(pattern) => What::Pattern(pattern),
                    Err((column, reason)) => {
                        return Err(FilterError { pattern: spec.pattern.clone(), column, reason });
                    }
                }
            } else if merges.iter().any(|known| known.file_name() == spec.file_name()) {
                What::Nothing
            } else {
                merges.push(Arc::new(spec.clone()));
                What::Files(merges.len() - 1)
            };
            rules.push(Rule::of(spec, what, None));
        }

        let is_absolute = specs.iter().any(|spec| spec.absolute && !spec.xattrs);
        let (rules, xattrs) = (Arc::new(Rules::from(rules)), xattrs.into());
        Ok(Self { rules, xattrs, merges: merges.into(), is_absolute, ..Self::default() })
    }

    /// Asks the rules at the destination's end: those that protect from deletion.
    #[must_use]
    pub fn at_destination(mut self) -> Self {
        self.at_destination = true;
        self
    }

    /// Makes rules that state no end be for the source alone.
    #[must_use]
    pub fn deleting_excluded(mut self, deletes: bool) -> Self {
        self.deletes_excluded = deletes;
        self
    }

    /// Returns whether a rule for these ends counts at the end that is asked.
    fn applies(&self, ends: Ends) -> bool {
        self.applies_at(self.at_destination, ends)
    }

    fn applies_at(&self, destination: bool, ends: Ends) -> bool {
        match ends {
            Ends::Unstated => !(destination && self.deletes_excluded),
            Ends::Both => true,
            Ends::Source => !destination,
            Ends::Destination => destination,
        }
    }

    /// Returns the rules without those of files in each directory: for entries that operands name.
    #[must_use]
    pub fn without_files(&self) -> Self {
        Self { merges: Arc::default(), above: Arc::default(), ..self.clone() }
    }

    /// Returns whether files of rules are looked for in each directory.
    pub fn has_files(&self) -> bool {
        !self.merges.is_empty()
    }

    /// Returns whether some entries are judged by absolute paths or by files of their directories,
    /// which the other end may not know.
    pub fn is_local(&self) -> bool {
        self.has_files() || self.is_absolute
    }

    /// Returns whether the rules exclude the entry whatever files of rules say and whatever the
    /// absolute path of the transfer's root is.
    pub fn surely_excludes(&self, path: &[u8], is_dir: bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let subject = Subject { path, is_dir, perishing: false };
        for (_, rule) in self.rules.that_may_match(path).filter(|(_, rule)| self.applies(rule.ends)) {
            match &rule.what {
                What::Nothing => {}
                What::Pattern(_) if rule.absolute && rule.include => return false,
                What::Pattern(_) if rule.absolute => {}
                What::Pattern(pattern) if rule.matches(pattern, subject) => return !rule.include,
                What::Pattern(_) => {}
                What::Files(number) => match self.merges.get(*number) {
                    Some(spec) if spec.only_excludes() => {}
                    _ => return false,
                },
            }
        }
        self.is_own_directory(path, is_dir)
    }

    /// Excludes directories of this name, wherever they are, unless a rule matches.
    #[must_use]
    pub fn without_directories(mut self, name: Component) -> Self {
        self.own_directories = Some(name);
        self
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.all.is_empty() && self.own_directories.is_none()
    }

    /// Returns the verdict of the first rule that matches: `true` to include, `None` if none
    /// matches.
    ///
    /// `path` is relative to the transfer's root, without a leading or trailing slash. The root
    /// itself (an empty path) is never matched. Files of rules say nothing here, and absolute paths
    /// are taken to start at the root: see [`Scope`]. Cost: rules x path length, at worst; of a long
    /// list of names without wildcards, a search for the last one of the path.
    pub fn check(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        if path.is_empty() {
            return None;
        }
        let subject = Subject { path, is_dir, perishing: false };
        let decides = |(_, rule): &(usize, &Rule)| {
            let What::Pattern(pattern) = &rule.what else { return false };
            self.applies(rule.ends) && rule.matches(pattern, subject)
        };
        let decided = self.rules.that_may_match(path).find(decides).map(|(_, rule)| rule.include);
        decided.or_else(|| self.is_own_directory(path, is_dir).then_some(false))
    }

    /// Returns whether the first rule that matches a directory at the destination protects it,
    /// whichever end is asked. As [`check`](Self::check).
    pub(crate) fn protects_directory(&self, path: &[u8]) -> bool {
        let subject = Subject { path, is_dir: true, perishing: false };
        let decides = |(_, rule): &(usize, &Rule)| {
            let What::Pattern(pattern) = &rule.what else { return false };
            self.applies_at(true, rule.ends) && rule.matches(pattern, subject)
        };
        self.rules.that_may_match(path).find(decides).is_some_and(|(_, rule)| !rule.include)
    }

    fn is_own_directory(&self, path: &[u8], is_dir: bool) -> bool {
        let name = || path.rsplit(|&byte| byte == b'/').next();
        self.own_directories.as_ref().is_some_and(|own| is_dir && name() == Some(own.as_bytes()))
    }

    /// Returns the rules about names of extended attributes, at the end that is asked.
    pub fn xattr_rules(&self) -> XattrRules {
        if self.xattrs.is_empty() { XattrRules::default() } else { XattrRules::of(self.clone()) }
    }

    /// Returns whether the first rule that matches is an exclude. As [`check`](Self::check).
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.check(path, is_dir) == Some(false)
    }
}

impl RuleSpec {
    /// Returns the fault for which the pattern matches nothing, as [`FilterSet::of`] takes it.
    pub fn unmatched(&self) -> Option<FilterError> {
        // A file for each directory has a name.
        if self.rule_file.is_some() {
            return None;
        }
        let (column, reason) = Pattern::parse(&self.pattern, Build::Lean).err()?;
        reason.matches_nothing().then(|| FilterError { pattern: self.pattern.clone(), column, reason })
    }
}

impl JudgesXattrs for FilterSet {
    fn excludes_xattr(&self, name: &[u8]) -> bool {
        let subject = Subject { path: name, is_dir: false, perishing: false };
        let decides = |rule: &&Rule| {
            let What::Pattern(pattern) = &rule.what else { return false };
            self.applies(rule.ends) && rule.matches(pattern, subject)
        };
        self.xattrs.iter().find(decides).is_some_and(|rule| !rule.include)
    }
}

impl Rule {
    /// Returns the last name of every path that the rule matches, if it is one.
    fn only_name(&self) -> Option<&[u8]> {
        match &self.what {
            What::Pattern(pattern) if !self.negated && !self.absolute => pattern.only_name(),
            _ => None,
        }
    }

    /// Returns whether the rule matches a path that is no absolute one.
    fn matches(&self, pattern: &Pattern, Subject { path, is_dir, .. }: Subject<'_>) -> bool {
        let matched = (is_dir || !pattern.directories_only) && pattern.matches(path, is_dir);
        matched != self.negated
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

    /// Returns whether the set that this was made for excludes the entry of this name, whatever
    /// files of rules say.
    pub fn surely_excludes(&mut self, filter: &FilterSet, name: &[u8], is_dir: bool) -> bool {
        !filter.is_empty() && filter.surely_excludes(self.path_of(name), is_dir)
    }

    /// Returns whether a scope of that set excludes the entry of this name.
    pub fn excludes(&mut self, scope: &Scope, name: &[u8], is_dir: bool) -> bool {
        !scope.is_empty() && scope.excludes(Subject { path: self.path_of(name), is_dir, perishing: false })
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

/// Rules that are compiled for speed, as long as there are no more: some kilobytes each.
const MAX_FAST_RULES: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The naive twin: each rule is asked in turn.
        #[test]
        fn the_first_rule_that_matches_is_that_of_a_look_at_each(
            rules in prop::collection::vec((r"/?([ab]{1,2}|\*)(/([ab]{1,2}|\?))?/?", any::<[bool; 3]>()), 0..80),
            paths in prop::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,3}", 1..12),
            is_dir: bool,
        ) {
            let spec = |(text, [include, negated, absolute]): &(String, [bool; 3])| {
                RuleSpec { negated: *negated, absolute: *absolute, ..RuleSpec::new(*include, text.as_bytes()) }
            };
            let set = FilterSet::of(&rules.iter().map(spec).collect::<Vec<_>>()).unwrap();
            for path in &paths {
                let subject = Subject { path: path.as_bytes(), is_dir, perishing: false };
                let matches = |rule: &Rule| {
                    matches!(&rule.what, What::Pattern(pattern) if rule.matches(pattern, subject))
                };
                let naive = set.rules.all.iter().position(matches);
                let found = set.rules.that_may_match(path.as_bytes()).find(|(_, rule)| matches(rule));
                prop_assert_eq!(found.map(|(at, _)| at), naive, "{}", path);
            }
        }
    }

    #[test]
    fn a_long_list_of_names_costs_those_of_one_name() {
        let texts: Vec<_> =
            (0..65_000).map(|number| format!("/dir/{number}")).chain(["*.o".into()]).collect();
        let specs: Vec<_> = texts.iter().map(|text| RuleSpec::new(false, text.as_bytes())).collect();
        let set = FilterSet::of(&specs).unwrap();
        for (path, looks, excluded) in [("dir/7", 2, true), ("other/7", 2, false), ("dir/7x", 1, false)] {
            assert_eq!(set.rules.that_may_match(path.as_bytes()).count(), looks, "{path}");
            assert_eq!(set.excludes(path.as_bytes(), false), excluded, "{path}");
        }
    }
}
