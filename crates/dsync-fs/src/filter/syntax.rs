//! Reads filter rules as rsync(1) describes them under "FILTER RULES".
//!
//! A rule is a sign or a word, modifiers, and after one space or `_` a pattern or the name of a
//! file. Files of rules have one on each line, or with `w` one in each word. What rsync refuses is
//! refused here, never read as another rule. The patterns themselves are not judged.

/// A rule as it is written, with all that it states.
///
/// ```
/// use dsync_fs::{Ends, ParsedRule, RuleFault, RuleFile, RuleLines, RuleSpec};
///
/// // The lines of a file that has nothing but patterns to exclude, with comments.
/// let ParsedRule::Merge(file) = ParsedRule::read(b"merge,- exclude-list")? else {
///     return Err(RuleFault::Malformed);
/// };
/// assert_eq!(file.file_name(), b"exclude-list");
/// let how: RuleFile = file.rule_file.unwrap_or_default();
/// assert_eq!(how.lines, RuleLines::Patterns);
///
/// let text = b"# caches\n*.tmp\n";
/// let rules: Result<Vec<_>, _> =
///     how.lines_of(text).map(|(_, line)| ParsedRule::read_in(line, &file)).collect();
/// assert_eq!(rules?, [ParsedRule::Rule(RuleSpec::new(false, b"*.tmp"))]);
///
/// // What a run is given of a rule: its pattern, and its modifiers as letters.
/// let ParsedRule::Rule(spec) = ParsedRule::read(b"-s! *.jpg")? else {
///     return Err(RuleFault::Malformed);
/// };
/// assert_eq!((spec.ends, spec.negated, spec.modifiers().as_str()), (Ends::Source, true, "!s"));
/// // A pattern that matches nothing is worth a warning.
/// let fault = RuleSpec::new(false, b"*.[o").unmatched().map(|fault| fault.reason.as_str());
/// assert_eq!(fault, Some("'[' without ']'"));
/// // As git does it, in every directory:
/// assert_eq!(RuleSpec::gitignore().file_name(), b".gitignore");
/// # Ok::<(), RuleFault>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleSpec {
    /// Whether it includes; otherwise it excludes.
    pub include: bool,
    /// The pattern. Of a file for each directory: its name.
    pub pattern: Vec<u8>,
    /// The ends that it is for.
    pub ends: Ends,
    /// Whether it matches what the pattern does not (`!`).
    pub negated: bool,
    /// Whether the pattern is compared with the absolute path (`/`).
    pub absolute: bool,
    /// Whether it protects nothing in a directory that is removed (`p`).
    pub perishable: bool,
    /// Whether it is about names of extended attributes, not of entries (`x`).
    pub xattrs: bool,
    /// Set for a file that is looked for in each directory; the other fields are then the defaults
    /// of its rules.
    pub rule_file: Option<RuleFile>,
}

/// The ends of a run that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ends {
    /// Not stated: both, or the source alone where excluded entries are to be deleted.
    #[default]
    Unstated,
    /// Both, and it says so.
    Both,
    /// It leaves out of the listing.
    Source,
    /// It protects from deletion.
    Destination,
}

/// The way in which a file of rules is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RuleFile {
    /// The meaning of a line.
    pub lines: RuleLines,
    /// Whether each word is a line (`w`).
    pub words: bool,
    /// Whether the rules are for its own directory only, not for those below (`n`).
    pub own_only: bool,
    /// Whether lines end with a zero byte (`--from0`).
    pub nul: bool,
}

/// The meaning of a line in a file of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RuleLines {
    /// A rule with its sign or word.
    #[default]
    Rules,
    /// A pattern and nothing else (`-`, `+`).
    Patterns,
    /// A pattern, or `!` to drop those before (`C`).
    CvsPatterns,
    /// A line of a `.gitignore` file, whose last match decides (`G`). Of all files in a directory and
    /// above, up to the top of its repository, the nearest comes first, `.git/info/exclude` last.
    GitPatterns,
}

/// A rule that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParsedRule {
    /// Drops the rules before it.
    Clear,
    /// A pattern, or a file for each directory.
    Rule(RuleSpec),
    /// A file to read now: its name is the pattern.
    Merge(RuleSpec),
    /// The patterns that CVS ignores; the pattern means nothing.
    Cvs(RuleSpec),
    /// A file whose name is excluded as well (`e`): the exclude comes first.
    ExcludedFile(RuleSpec, Box<Self>),
}

/// The fault in the notation of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFault {
    /// It is none of the rules.
    #[error("it is not a filter rule")]
    Malformed,
    /// It begins like a rule and has a modifier that this kind of rule does not know.
    #[error("this kind of rule has no such modifier")]
    UnknownModifier,
    /// It ends where a pattern or the name of a file belongs.
    #[error("it has no pattern")]
    NoPattern,
    /// It makes a whole file of rules one about names of extended attributes, or of what CVS ignores.
    #[error("a rule about the names of extended attributes is one of its own")]
    Xattrs,
    /// It states its ends in a file whose rule has stated them.
    #[error("the rule of its file has stated the side already")]
    SideStatedTwice,
}

impl RuleSpec {
    /// Returns the rule by which `.gitignore` files exclude as they do for git.
    pub fn gitignore() -> Self {
        let file = RuleFile { lines: RuleLines::GitPatterns, ..RuleFile::default() };
        Self { rule_file: Some(file), ..Self::new(false, b".gitignore") }
    }

    /// Returns whether this is such a rule.
    pub(super) fn is_git(&self) -> bool {
        self.rule_file.is_some_and(|file| file.lines == RuleLines::GitPatterns)
    }

    /// Returns a rule without modifiers.
    pub fn new(include: bool, pattern: &[u8]) -> Self {
        Self { include, pattern: pattern.to_vec(), ..Self::default() }
    }

    /// Returns the modifiers as text: rsync's letters, for a file in each directory after `:`, with
    /// `0` for lines that end with a zero byte.
    pub fn modifiers(&self) -> String {
        let mut text = String::new();
        let mut put = |condition: bool, letter| text.extend(condition.then_some(letter));
        if let Some(RuleFile { lines, words, own_only, nul }) = self.rule_file {
            put(true, ':');
            put(lines == RuleLines::Patterns && !self.include, '-');
            put(lines == RuleLines::Patterns && self.include, '+');
            put(lines == RuleLines::CvsPatterns, 'C');
            put(lines == RuleLines::GitPatterns, 'G');
            put(words, 'w');
            put(own_only, 'n');
            put(nul, '0');
        }
        put(self.negated, '!');
        put(self.absolute, '/');
        put(matches!(self.ends, Ends::Source | Ends::Both), 's');
        put(matches!(self.ends, Ends::Destination | Ends::Both), 'r');
        put(self.perishable, 'p');
        put(self.xattrs, 'x');
        text
    }

    /// Returns the rule of this text of [`modifiers`](Self::modifiers); `None` for any other text.
    pub fn from_modifiers(include: bool, modifiers: &str, pattern: &[u8]) -> Option<Self> {
        let mut spec = Self::new(include, pattern);
        let letters = match modifiers.strip_prefix(':') {
            Some(letters) => {
                spec.rule_file = Some(RuleFile::default());
                letters
            }
            None => modifiers,
        };

        for letter in letters.chars() {
            match (letter, &mut spec.rule_file) {
                ('!', None) => spec.negated = true,
                ('/', _) => spec.absolute = true,
                ('s', _) => spec.ends = spec.ends.and(Ends::Source),
                ('r', _) => spec.ends = spec.ends.and(Ends::Destination),
                ('p', _) => spec.perishable = true,
                ('x', None) => spec.xattrs = true,
                ('-', Some(file)) => (spec.include, file.lines) = (false, RuleLines::Patterns),
                ('+', Some(file)) => (spec.include, file.lines) = (true, RuleLines::Patterns),
                ('C', Some(file)) => file.lines = RuleLines::CvsPatterns,
                ('G', Some(file)) => file.lines = RuleLines::GitPatterns,
                ('w', Some(file)) => file.words = true,
                ('n', Some(file)) => file.own_only = true,
                ('0', Some(file)) => file.nul = true,
                _ => return None,
            }
        }
        // One text for each rule, so that none has two meanings.
        (spec.modifiers() == modifiers).then_some(spec)
    }

    /// Returns the last component of a file's name, by which it is looked for in each directory.
    pub fn file_name(&self) -> &[u8] {
        self.pattern.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// Returns whether the rules of such a file can only exclude.
    pub(super) fn only_excludes(&self) -> bool {
        match self.rule_file.unwrap_or_default().lines {
            RuleLines::Rules => false,
            RuleLines::Patterns => !self.include,
            // What git does not ignore is left to the other rules.
            RuleLines::CvsPatterns | RuleLines::GitPatterns => true,
        }
    }

    /// Takes over what the rule of the file states for all rules in it.
    fn within(mut self, file: &Self) -> Result<Self, RuleFault> {
        if file.ends != Ends::Unstated {
            if self.ends != Ends::Unstated {
                return Err(RuleFault::SideStatedTwice);
            }
            self.ends = file.ends;
        }
        self.absolute |= file.absolute;
        self.perishable |= file.perishable;
        Ok(self)
    }
}

impl Ends {
    fn and(self, other: Self) -> Self {
        if self == Self::Unstated || self == other { other } else { Self::Both }
    }
}

impl ParsedRule {
    /// Reads a rule of `--filter`.
    ///
    /// # Errors
    /// [`RuleFault`].
    pub fn read(text: &[u8]) -> Result<Self, RuleFault> {
        let (kind, rest) = Kind::split(text).ok_or(RuleFault::Malformed)?;
        let end = rest.iter().position(|byte| matches!(byte, b' ' | b'_')).unwrap_or(rest.len());
        let (whole, modifiers, rest) = (rest, &rest[..end], rest.get(end + 1..).unwrap_or_default());
        if kind == Kind::Clear {
            let bare = modifiers.is_empty() && end == whole.len();
            return if bare { Ok(Self::Clear) } else { Err(RuleFault::Malformed) };
        }

        let (mut spec, said) = kind.modified(modifiers)?;
        let is_cvs = spec.rule_file.is_some_and(|file| file.lines == RuleLines::CvsPatterns);
        spec.pattern = match rest {
            [] if is_cvs => b".cvsignore".to_vec(),
            [] if !said.cvs => return Err(RuleFault::NoPattern),
            rest => rest.to_vec(),
        };
        let excluded = said.excluded.then(|| RuleSpec::new(false, spec.file_name()));
        let rule = match kind {
            _ if said.cvs => Self::Cvs(spec),
            Kind::Merge => Self::Merge(spec),
            _ => Self::Rule(spec),
        };
        Ok(match excluded {
            Some(exclude) => Self::ExcludedFile(exclude, Box::new(rule)),
            None => rule,
        })
    }

    /// Reads a line of a file that is read as `file` states.
    ///
    /// # Errors
    /// [`RuleFault`].
    pub fn read_in(text: &[u8], file: &RuleSpec) -> Result<Self, RuleFault> {
        match file.rule_file.unwrap_or_default().lines {
            RuleLines::CvsPatterns if text == b"!" => Ok(Self::Clear),
            // The whole file has one meaning, which [`super::git`] reads.
            RuleLines::GitPatterns => Err(RuleFault::Malformed),
            RuleLines::Patterns | RuleLines::CvsPatterns => {
                RuleSpec::new(file.include, text).within(file).map(Self::Rule)
            }
            RuleLines::Rules => Self::read(text)?.within(file),
        }
    }

    fn within(self, file: &RuleSpec) -> Result<Self, RuleFault> {
        Ok(match self {
            Self::Clear => Self::Clear,
            Self::Rule(spec) => Self::Rule(spec.within(file)?),
            Self::Merge(spec) => Self::Merge(spec.within(file)?),
            Self::Cvs(spec) => Self::Cvs(spec.within(file)?),
            Self::ExcludedFile(exclude, rule) => {
                // As with rsync, it has none of the modifiers of the two rules.
                Self::ExcludedFile(exclude, Box::new(rule.within(file)?))
            }
        })
    }
}

impl RuleFile {
    /// Returns the lines of a file that state something, each with its number.
    pub fn lines_of<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let Self { words, nul, .. } = *self;
        let mut number = 1;
        // Words end at whitespace whatever ends a line: `--from0` leaves a `.cvsignore` what it is.
        let ends_line = move |byte: u8| if nul { byte == 0 } else { matches!(byte, b'\n' | b'\r') };
        let ends = move |byte: u8| ends_line(byte) || words && byte.is_ascii_whitespace();
        let comment = move |line: &[u8]| !words && matches!(line.first(), Some(b'#' | b';'));
        let pieces = text.split_inclusive(move |&byte| ends(byte)).map(move |piece| {
            let at = number;
            number += u32::from(piece.last().is_some_and(|&last| last == if nul { 0 } else { b'\n' }));
            let line = piece.split_last().filter(|(last, _)| ends(**last)).map_or(piece, |(_, line)| line);
            (at, line)
        });
        pieces.filter(move |(_, line)| !line.is_empty() && !comment(line))
    }
}

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exclude,
    Include,
    Hide,
    Show,
    Protect,
    Risk,
    Merge,
    DirMerge,
    Clear,
}

/// Words of modifiers that are no part of the rule itself.
#[derive(Default)]
struct Said {
    cvs: bool,
    excluded: bool,
}

impl Kind {
    /// Splits a rule after its sign or word; `None` for a text that starts like none.
    fn split(text: &[u8]) -> Option<(Self, &[u8])> {
        const WORDS: [(&str, Kind); 9] = [
            ("exclude", Kind::Exclude),
            ("include", Kind::Include),
            ("hide", Kind::Hide),
            ("show", Kind::Show),
            ("protect", Kind::Protect),
            ("risk", Kind::Risk),
            ("merge", Kind::Merge),
            ("dir-merge", Kind::DirMerge),
            ("clear", Kind::Clear),
        ];
        let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b' ' | b'_' | b','));
        let word = WORDS.iter().find_map(|(word, kind)| {
            text.strip_prefix(word.as_bytes()).filter(|rest| ends(rest)).map(|rest| (*kind, rest))
        });
        let (kind, rest) = match (word, text) {
            (Some(found), _) => found,
            (None, [sign, rest @ ..]) => (Self::of_sign(*sign)?, rest),
            (None, []) => return None,
        };
        Some((kind, rest.strip_prefix(b",").unwrap_or(rest)))
    }

    fn of_sign(sign: u8) -> Option<Self> {
        Some(match sign {
            b'-' => Self::Exclude,
            b'+' => Self::Include,
            b'H' => Self::Hide,
            b'S' => Self::Show,
            b'P' => Self::Protect,
            b'R' => Self::Risk,
            b'.' => Self::Merge,
            b':' => Self::DirMerge,
            b'!' => Self::Clear,
            _ => return None,
        })
    }

    /// Returns the rule of these modifiers, without its pattern.
    fn modified(self, modifiers: &[u8]) -> Result<(RuleSpec, Said), RuleFault> {
        let mut spec = RuleSpec {
            include: matches!(self, Self::Include | Self::Show | Self::Risk),
            ends: match self {
                Self::Hide | Self::Show => Ends::Source,
                Self::Protect | Self::Risk => Ends::Destination,
                _ => Ends::Unstated,
            },
            ..RuleSpec::default()
        };
        let has_side = spec.ends != Ends::Unstated;
        let is_file = matches!(self, Self::Merge | Self::DirMerge);
        let mut file = RuleFile::default();
        let mut said = Said::default();

        for letter in modifiers {
            let has_lines = file.lines != RuleLines::Rules;
            match letter {
                b'/' => spec.absolute = true,
                b'!' if !is_file => spec.negated = true,
                b's' if !has_side => spec.ends = spec.ends.and(Ends::Source),
                b'r' if !has_side => spec.ends = spec.ends.and(Ends::Destination),
                b'p' => spec.perishable = true,
                b'x' => spec.xattrs = true,
                b'C' if is_file && !has_lines => {
                    file = RuleFile { lines: RuleLines::CvsPatterns, words: true, own_only: true, ..file };
                }
                b'C' if self == Self::Exclude => said.cvs = true,
                b'-' | b'+' if is_file && !has_lines => {
                    (spec.include, file.lines) = (*letter == b'+', RuleLines::Patterns);
                }
                b'e' if is_file => said.excluded = true,
                b'n' if is_file => file.own_only = true,
                b'w' if is_file => file.words = true,
                _ => return Err(RuleFault::UnknownModifier),
            }
        }

        if spec.xattrs && (is_file || said.cvs) {
            return Err(RuleFault::Xattrs);
        }
        spec.rule_file = is_file.then_some(file);
        Ok((spec, said))
    }
}

/// Patterns that CVS ignores everywhere, as rsync has them.
pub const CVS_PATTERNS: &str = "RCS SCCS CVS CVS.adm RCSLOG cvslog.* tags TAGS .make.state .nse_depinfo *~ #* .#* \
     ,* _$* *$ *.old *.bak *.BAK *.orig *.rej .del-* *.a *.olb *.o *.obj *.so *.exe *.Z *.elc *.ln core .svn/ \
     .git/ .hg/ .bzr/";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether rsync 3.5.0 took the rule, by running it.
    const TRIED: [(&str, bool); 67] = [
        ("-x user.*", true),
        ("-x! user.*", true),
        ("Px user.a", true),
        ("exclude,xp user.a", true),
        ("-/x user.a", true),
        ("-n x", false),
        ("-e x", false),
        ("-w x", false),
        ("-C x", true),
        ("-C", true),
        ("!r", false),
        ("!,s", false),
        (":!x f", false),
        (":! f", false),
        ("H,r x", false),
        ("Hp x", true),
        ("H/ x", true),
        ("P! x", true),
        ("-sr x", true),
        ("-rs x", true),
        ("-pp x", true),
        ("-x", false),
        (":", false),
        (": ", false),
        (":C", true),
        (":C .f", true),
        (":+- f", false),
        (":-+ f", false),
        (":n- f", true),
        (":-n f", true),
        (":nwe- f", true),
        ("dir-merge,n f", true),
        ("dir-merge-n f", false),
        ("dir-merge,- f", true),
        ("merge,- f", true),
        ("merge- f", false),
        ("hide,! b", true),
        ("clear x", false),
        ("! x", false),
        ("!x", false),
        ("exclude/ x", false),
        ("protect b", true),
        ("risk_b", true),
        ("show,p b", true),
        (":s,r f", false),
        ("-,s b", true),
        ("-/,! b", false),
        ("P,s b", false),
        (": a/b", true),
        (": ../x", true),
        (": /x", true),
        (":e a/b", true),
        (": x/", true),
        (": /", true),
        ("-+ b", false),
        ("+- b", false),
        ("- *.o", true),
        ("-_*.o", true),
        ("exclude *.o", true),
        ("exclude,*.o", false),
        ("-*.o", false),
        ("- ", false),
        ("-", false),
        (" - x", false),
        ("x foo", false),
        ("", false),
        ("!", true),
    ];

    #[test]
    fn rules_are_taken_and_refused_as_rsync_does() {
        for (rule, taken) in TRIED {
            assert_eq!(ParsedRule::read(rule.as_bytes()).is_ok(), taken, "{rule:?}");
        }
        for rule in [&b":x .rules"[..], b".x rules", b"-Cx"] {
            assert_eq!(ParsedRule::read(rule), Err(RuleFault::Xattrs));
        }
    }

    #[test]
    fn lines_end_where_rsync_ends_them() {
        let lines = |file: RuleFile, text: &'static [u8]| file.lines_of(text).collect::<Vec<_>>();
        let plain = RuleFile::default();
        assert_eq!(
            lines(plain, b"- a\r\n# no\n\n; no\n- b\r- c\n - d"),
            [(1, &b"- a"[..]), (5, b"- b"), (5, b"- c"), (6, b" - d")]
        );
        let words = RuleFile { words: true, ..plain };
        assert_eq!(lines(words, b"a # b\n\tc"), [(1, &b"a"[..]), (1, b"#"), (1, b"b"), (2, b"c")]);
        let nul = RuleFile { nul: true, ..plain };
        assert_eq!(lines(nul, b"a\nb\0\0#\0c"), [(1, &b"a\nb"[..]), (4, b"c")]);
        let nul_words = RuleFile { words: true, ..nul };
        assert_eq!(lines(nul_words, b"a b\nc\0d"), [(1, &b"a"[..]), (1, b"b"), (1, b"c"), (2, b"d")]);
    }

    #[test]
    fn side_is_stated_once() {
        let Ok(ParsedRule::Rule(file)) = ParsedRule::read(b":s .f") else { panic!("a file") };
        assert_eq!(ParsedRule::read_in(b"-r a", &file), Err(RuleFault::SideStatedTwice));
        assert_eq!(ParsedRule::read_in(b"H a", &file), Err(RuleFault::SideStatedTwice));
        let Ok(ParsedRule::Rule(rule)) = ParsedRule::read_in(b"- a", &file) else { panic!("a rule") };
        assert_eq!(rule.ends, Ends::Source);
    }

    #[test]
    fn git_rule_crosses_the_wire_and_has_no_text() {
        let spec = RuleSpec::gitignore();
        assert_eq!(spec.modifiers(), ":G");
        assert_eq!(RuleSpec::from_modifiers(false, ":G", b".gitignore"), Some(spec));
        assert_eq!(ParsedRule::read(b":G .gitignore"), Err(RuleFault::UnknownModifier));
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = ParsedRule::read(&text);
            let file = RuleFile { words: text.len() % 2 == 0, ..RuleFile::default() };
            for (number, line) in file.lines_of(&text) {
                prop_assert!(number > 0 && !line.is_empty());
            }
        }

        #[test]
        fn modifiers_come_back_as_they_were(
            text in "([-+HSPR]|[:.])[-+CenwsrpxC/!]{0,4} [a-z/*]{1,4}",
        ) {
            if let Ok(ParsedRule::Rule(spec)) = ParsedRule::read(text.as_bytes()) {
                let back = RuleSpec::from_modifiers(spec.include, &spec.modifiers(), &spec.pattern);
                prop_assert_eq!(back, Some(spec));
            }
        }
    }
}
