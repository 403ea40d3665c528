//! Filter rules in the order in which they were typed, each with its origin.
//!
//! rsync's notation: a pattern that starts with `- ` or `+ ` says itself whether it excludes or
//! includes, `!` alone drops what came before, and in a file empty lines and comments (`#`, `;`)
//! are skipped. The rules of `--filter` are read as [`ParsedRule`] reads them; files that a `.` rule
//! names are read here, those of `:` rules by the two ends. The patterns themselves are not judged,
//! but for a warning of those that match nothing: the engine compiles them, and its complaint is
//! traced back to the file and line by [`Rules::place_of`].

use std::{
    ffi::{OsStr, OsString},
    io::Read as _,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use dsync_engine::{
    CVS_PATTERNS, FilterRule, MAX_FILTERS, MAX_PATTERN, MAX_PATTERN_BYTES, OperatorFiles, ParsedRule,
    RuleFault, RuleFile, RulePlace, RuleSpec,
};

use crate::{
    escape::Escaped,
    flags::{RuleOption, Selection},
    refused::Refused,
    streams::Input,
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
    /// A `--filter` with these words.
    Filter(Vec<u8>),
    File {
        name: OsString,
        line: u32,
    },
}

impl Rules {
    /// Collects the rules of the command line, and reads the files that it names by the rules of
    /// `files`. What CVS ignores besides its own list is in `cvs`.
    ///
    /// # Errors
    /// [`UsageError::PatternFile`], [`UsageError::PatternFileTooLong`] and [`UsageError::FilterRule`].
    pub(crate) fn collect(
        selection: &Selection,
        files: &OperatorFiles,
        cvs: &CvsNames,
    ) -> Result<Self, UsageError> {
        let mut rules = Self::default();
        let zero_ends = selection.from0;
        for (option, value, from0) in selection.rules() {
            let reader = Reader { files, from0, zero_ends, cvs };
            match option {
                RuleOption::Exclude => rules.add(false, value.as_bytes(), &Place::CommandLine)?,
                RuleOption::Include => rules.add(true, value.as_bytes(), &Place::CommandLine)?,
                RuleOption::ExcludeFrom => rules.add_patterns(false, value, reader)?,
                RuleOption::IncludeFrom => rules.add_patterns(true, value, reader)?,
                RuleOption::Filter | RuleOption::RuleFiles => rules.add_filter(value.as_bytes(), reader)?,
            }
        }
        if selection.cvs_exclude {
            let reader = Reader { files, from0: false, zero_ends, cvs };
            let names: &[u8] = if cvs.protect { b"-Csr" } else { b"-C" };
            for text in [b":C", names] {
                let rule = ParsedRule::read(text).map_err(|fault| Place::CommandLine.refusal(text, fault))?;
                rules.add_parsed(rule, &Place::CommandLine, reader, 0)?;
            }
        }

        if selection.gitignore {
            rules.push(RuleSpec::gitignore(), &Place::CommandLine);
        }
        rules.check_bounds()?;
        Ok(rules)
    }

    /// Refuses the first rule that is beyond what both ends of a run take, by its place: lists of paths that
    /// programs write can be that long.
    fn check_bounds(&self) -> Result<(), UsageError> {
        let mut bytes = 0;
        for (at, (rule, place)) in self.list.iter().zip(&self.places).enumerate() {
            bytes += rule.pattern.len();
            let why = match () {
                () if rule.pattern.len() > MAX_PATTERN => Refused::TooLong,
                () if at >= MAX_FILTERS => Refused::TooMany,
                () if bytes > MAX_PATTERN_BYTES => Refused::TooMuch,
                () => continue,
            };
            let begin = &rule.pattern[..rule.pattern.len().min(SHOWN_BYTES)];
            return Err(UsageError::FilterRule { rule: place.named(begin), why });
        }
        Ok(())
    }

    /// Returns the warning of patterns that match nothing: one line, as a list that was made for
    /// another program may have thousands.
    pub(crate) fn unmatched(&self) -> Option<String> {
        let fault = |rule: &FilterRule| {
            RuleSpec::from_modifiers(rule.include, &rule.modifiers, &rule.pattern)?.unmatched()
        };
        let mut faults =
            self.list.iter().zip(&self.places).filter_map(|(rule, place)| Some((fault(rule)?, place)));
        let (fault, place) = faults.next()?;

        let which = match place {
            Place::File { name, line } => format!("at {}:{line}", Escaped(name.as_bytes())),
            Place::CommandLine | Place::Filter(_) => format!("'{}'", Escaped(&fault.pattern)),
        };
        let more = match faults.count() {
            0 => String::new(),
            count => format!("; the same holds for {count} more"),
        };
        Some(format!("dsync: the pattern {which} matches nothing: {}{more}", fault.reason))
    }

    /// Adds a rule after all others that leaves out what matches a pattern.
    pub(crate) fn exclude(&mut self, pattern: &[u8]) {
        self.push(RuleSpec::new(false, pattern), &Place::CommandLine);
    }

    fn add_filter(&mut self, text: &[u8], reader: Reader<'_>) -> Result<(), UsageError> {
        // As with rsync, no text is no rule: a script may pass on a variable that is empty.
        if text.is_empty() {
            return Ok(());
        }
        let place = Place::Filter(text.to_vec());
        let rule = ParsedRule::read(text).map_err(|fault| place.refusal(text, fault))?;
        self.add_parsed(rule, &place, reader, 0)
    }

    /// Adds a rule of `--filter`, or of a file that such a rule names.
    fn add_parsed(
        &mut self,
        rule: ParsedRule,
        place: &Place,
        reader: Reader<'_>,
        depth: u32,
    ) -> Result<(), UsageError> {
        match rule {
            ParsedRule::Clear => *self = Self::default(),
            ParsedRule::Rule(mut spec) => {
                if let Some(file) = &mut spec.rule_file {
                    file.nul |= reader.zero_ends;
                }
                self.push(spec, place);
            }
            ParsedRule::ExcludedFile(exclude, rule) => {
                self.push(exclude, place);
                self.add_parsed(*rule, place, reader, depth)?;
            }
            ParsedRule::Merge(file) => self.add_file(&file, reader, depth + 1)?,
            // One word stands for many rules: each is shown by its pattern.
            ParsedRule::Cvs(template) if matches!(place, Place::Filter(_)) => {
                self.add_cvs(&template, &Place::CommandLine, reader.cvs);
            }
            ParsedRule::Cvs(template) => self.add_cvs(&template, place, reader.cvs),
            _ => {}
        }

        Ok(())
    }

    /// Adds what CVS ignores: its own list, which keeps no removed directory alive, the user's file
    /// and the environment's.
    fn add_cvs(&mut self, template: &RuleSpec, place: &Place, cvs: &CvsNames) {
        let mut specs = Vec::new();
        let own = CVS_PATTERNS.split(' ').map(|word| (word.as_bytes(), true));
        let others = [&cvs.file, &cvs.variable];
        let words = others.into_iter().flat_map(|text| {
            let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.map(|word| (word, false))
        });
        for (word, perishable) in own.chain(words) {
            if word == b"!" {
                specs.clear();
                continue;
            }
            let mut spec = template.clone();
            spec.pattern = word.to_vec();
            spec.perishable |= perishable;
            specs.push(spec);
        }
        specs.into_iter().for_each(|spec| self.push(spec, place));
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

    /// Returns the place of a rule of a run, escaped: its words on the command line, or file and line
    /// at one end.
    pub(crate) fn shown(&self, place: &RulePlace, end: &str) -> String {
        match place {
            RulePlace::File { path, line } => format!("{}:{line} at the {end}", Escaped(path)),
            RulePlace::PartialDir => "of --partial-dir".to_owned(),
            RulePlace::Command(at) => match self.at(*at) {
                Some((_, Place::File { name, line })) => format!("{}:{line}", Escaped(name.as_bytes())),
                Some((_, Place::Filter(words))) => format!("'{}' of the command line", Escaped(words)),
                Some((rule, Place::CommandLine)) => {
                    let sign = if rule.include { '+' } else { '-' };
                    let comma = if rule.modifiers.is_empty() { "" } else { "," };
                    format!(
                        "'{sign}{comma}{} {}' of the command line",
                        rule.modifiers,
                        Escaped(&rule.pattern)
                    )
                }
                None => "of the command line".to_owned(),
            },
            _ => "of a later version".to_owned(),
        }
    }

    /// Returns the pattern of a rule as rsync's lines show it, escaped; of one in a file that an end
    /// has read, its file and line.
    pub(crate) fn pattern_at(&self, place: &RulePlace) -> String {
        match place {
            RulePlace::Command(at) => {
                let rule = self.at(*at).map(|(rule, _)| rule);
                rule.map_or_else(String::new, |rule| Escaped(&rule.pattern).to_string())
            }
            RulePlace::File { path, line } => format!("{}:{line}", Escaped(path)),
            _ => "--partial-dir".to_owned(),
        }
    }

    /// Returns a rule and its place by its position, which a peer may have made up.
    fn at(&self, at: u32) -> Option<(&FilterRule, &Place)> {
        let at = usize::try_from(at).ok()?;
        self.list.get(at).zip(self.places.get(at))
    }

    fn push(&mut self, spec: RuleSpec, place: &Place) {
        let modifiers = spec.modifiers();
        self.list
            .push(FilterRule::default().include(spec.include).pattern(spec.pattern).modifiers(modifiers));
        self.places.push(place.clone());
    }

    fn add(&mut self, include: bool, text: &[u8], place: &Place) -> Result<(), UsageError> {
        let (include, pattern) = match text {
            b"!" => {
                *self = Self::default();
                return Ok(());
            }
            // A rule that is cut off is a mistake.
            b"+ " | b"- " => return Err(place.refusal(text, RuleFault::NoPattern)),
            [b'+', b' ', pattern @ ..] => (true, pattern),
            [b'-', b' ', pattern @ ..] => (false, pattern),
            pattern => (include, pattern),
        };
        if !pattern.is_empty() {
            self.push(RuleSpec::new(include, pattern), place);
        }
        Ok(())
    }

    /// Adds the lines of `--exclude-from` or `--include-from`.
    fn add_patterns(&mut self, include: bool, name: &OsStr, reader: Reader<'_>) -> Result<(), UsageError> {
        let bytes = read_pattern_file(name, reader.files)?;
        let mut file = RuleFile::default();
        file.nul = reader.from0;
        for (line, text) in file.lines_of(&bytes) {
            self.add(include, text, &Place::File { name: name.to_owned(), line })?;
        }
        Ok(())
    }

    /// Adds the rules of a file that a rule names.
    fn add_file(&mut self, spec: &RuleSpec, reader: Reader<'_>, depth: u32) -> Result<(), UsageError> {
        let name = OsStr::from_bytes(&spec.pattern);
        if depth > MAX_DEPTH {
            return Err(UsageError::PatternFilesTooDeep { path: name.into(), limit: MAX_DEPTH });
        }
        let bytes = read_pattern_file(name, reader.files)?;
        let mut file = spec.rule_file.unwrap_or_default();
        file.nul = reader.from0;
        for (line, text) in file.lines_of(&bytes) {
            let place = Place::File { name: name.to_owned(), line };
            let rule = ParsedRule::read_in(text, spec).map_err(|fault| place.refusal(text, fault))?;
            self.add_parsed(rule, &place, reader, depth)?;
        }
        Ok(())
    }
}

/// The means to read files of rules.
#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    /// The rules for opening them.
    files: &'a OperatorFiles,
    /// Whether lines of the files that are read now end with a zero byte.
    from0: bool,
    /// Whether those of files in each directory do.
    zero_ends: bool,
    cvs: &'a CvsNames,
}

/// The user's words for CVS to ignore, besides its own list.
#[derive(Debug, Default)]
pub(crate) struct CvsNames {
    /// The words of `~/.cvsignore`.
    pub(crate) file: Vec<u8>,
    /// The words of `$CVSIGNORE`.
    pub(crate) variable: Vec<u8>,
    /// Whether `-C` protects what it leaves out, also under `--delete-excluded`: with rsync it does where
    /// the destination is the operator's own end, though in no other direction. Whoever relied on that
    /// loses no `.git`.
    pub(crate) protect: bool,
}

impl CvsNames {
    /// Reads the user's own.
    pub(crate) fn of_user() -> Self {
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cvsignore"));
        let file = home.and_then(|path| read_pattern_file(path.as_os_str(), &OperatorFiles::default()).ok());
        let variable = std::env::var_os("CVSIGNORE").map(|value| value.as_bytes().to_vec());
        Self { file: file.unwrap_or_default(), variable: variable.unwrap_or_default(), protect: false }
    }
}

impl Place {
    /// Names a rule with this text. That of a file is not shown: the file may be one that only this program
    /// may read.
    fn named(&self, text: &[u8]) -> String {
        match self {
            Self::CommandLine | Self::Filter(_) => format!("'{}'", String::from_utf8_lossy(text)),
            Self::File { name, line } => format!("at {}:{line}", name.to_string_lossy()),
        }
    }

    /// Returns the error for a rule that was written here. A file's text is not repeated: it may
    /// not have been meant as a file of rules.
    fn refusal(&self, text: &[u8], fault: RuleFault) -> UsageError {
        let rule = self.named(text);
        let why = match fault {
            RuleFault::Xattrs => Refused::Unsupported,
            _ if text.contains(&0) => Refused::Nul,
            RuleFault::UnknownModifier => Refused::UnknownModifier,
            RuleFault::NoPattern => Refused::NoPattern,
            RuleFault::SideStatedTwice => Refused::SideStatedTwice,
            _ => Refused::Malformed,
        };
        UsageError::FilterRule { rule, why }
    }
}

/// Most files that name each other, as in rsync.
const MAX_DEPTH: u32 = 32;

/// Bytes of a pattern of the command line that a message about bounds shows.
const SHOWN_BYTES: usize = 60;

/// Longest pattern file in bytes: a hundred thousand patterns, and a stop for `/dev/zero`.
const MAX_PATTERN_FILE_BYTES: u64 = 16 << 20;

fn read_pattern_file(name: &OsStr, files: &OperatorFiles) -> Result<Vec<u8>, UsageError> {
    let path = Path::new(name);
    let failed = |source| UsageError::PatternFile { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let limit = MAX_PATTERN_FILE_BYTES + 1;
    if name == "-" {
        Input.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let file = files.open(path).map_err(failed)?;
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
        Rules::collect(
            &flags::parse(words.iter().map(OsString::from)).unwrap().selection,
            &OperatorFiles::default(),
            &CvsNames::default(),
        )
    }

    fn shown(rules: &Rules) -> Vec<String> {
        rules
            .list()
            .iter()
            .map(|rule| {
                let sign = if rule.include { '+' } else { '-' };
                let space = if rule.modifiers.is_empty() { "" } else { " " };
                format!("{sign}{}{space}{}", String::from_utf8_lossy(&rule.pattern), rule.modifiers)
            })
            .collect()
    }

    #[test]
    fn rules_beyond_the_bounds_of_a_run_are_refused_by_file_and_line() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("rules");
        let path = file.display();
        let refused = |text: String| {
            std::fs::write(&file, text).unwrap();
            let error = collect(&[&format!("--exclude-from={path}")]).err()?;
            assert_eq!(error.exit_code(), 1);
            Some(error.to_string())
        };

        let lines = |count: usize, len: usize| format!("{:x<len$}\n", "/").repeat(count);
        assert_eq!(refused(lines(MAX_FILTERS, 3)), None);
        assert_eq!(refused(lines(1, MAX_PATTERN)), None);
        let cases = [
            (
                format!("# comment\n{}", lines(MAX_FILTERS + 1, 3)),
                MAX_FILTERS + 2,
                "a run takes at most 65536 rules",
            ),
            (format!("a\n\n{}", lines(1, MAX_PATTERN + 1)), 3, "the pattern has more than 4096 bytes"),
            (lines(3000, 1000), MAX_PATTERN_BYTES / 1000 + 1, "have at most 2097152 bytes together"),
        ];
        for (text, line, why) in cases {
            let said = refused(text).unwrap();
            assert!(
                said.starts_with(&format!("filter rule at {path}:{line}: ")) && said.contains(why),
                "{said}"
            );
        }
        // A '!' drops the rules before it, and these count for nothing.
        assert_eq!(refused(format!("{}!\nlast\n", lines(MAX_FILTERS + 1, 3))), None);
        let long = collect(&[&format!("--exclude={}", "y".repeat(5000))]).unwrap_err().to_string();
        assert!(long.contains("'yyy") && long.len() < 200, "{long}");
    }

    #[test]
    fn rules_of_filter_are_those_of_rsync() {
        let list = |rules: &[&str]| {
            let words: Vec<String> = rules.iter().map(|rule| format!("--filter={rule}")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            collect(&words).map_err(|error| error.exit_code()).map(|rules| shown(&rules))
        };
        // Each as rsync 3.5.0 read it; modifiers after the pattern.
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
            (&["! "], Err(1)),
            (&["clear "], Err(1)),
            (&["!_"], Err(1)),
            (&["-"], Err(1)),
            (&[" - x"], Err(1)),
            (&["x foo"], Err(1)),
            (&[""], Ok(&[])),
            (&["- a", "", "- b"], Ok(&["-a", "-b"])),
            (&[" "], Err(1)),
            (&["-e x"], Err(1)),
            (&["-! *.o", "-s x", "hide,p x"], Ok(&["-*.o !", "-x s", "-x sp"])),
            (&["P x", "R y", "-/rp /z"], Ok(&["-x r", "+y r", "-/z /rp"])),
            (&[": .f", "dir-merge,n- .g"], Ok(&["-.f :", "-.g :-n"])),
            (&[":e a/.f"], Ok(&["-.f", "-a/.f :"])),
            (&[":C"], Ok(&["-.cvsignore :Cwn"])),
            (&["hide,r x"], Err(1)),
            (&["-x user.*", "-x! user.a", "Px z"], Ok(&["-user.* x", "-user.a !x", "-z rx"])),
            (&[":x .f"], Err(4)),
        ] {
            let expected =
                expected.map(|rules| rules.iter().map(|&rule| rule.to_owned()).collect::<Vec<_>>());
            assert_eq!(list(rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn a_rule_is_shown_by_its_words_on_the_command_line() {
        let words =
            ["--exclude=*.o", "-f", "P extra", "--filter=hide,p_x y", "-FF", "-f", "-C", "--include=+ k"];
        let rules = collect(&words).unwrap();
        let last = u32::try_from(rules.list().len() - 1).unwrap();
        for (at, shown) in [
            (0, "- *.o"),
            (1, "P extra"),
            (2, "hide,p_x y"),
            (3, ": /.rsync-filter"),
            (5, "-,p RCS"),
            (last, "+ k"),
        ] {
            let expected = format!("'{shown}' of the command line");
            assert_eq!(rules.shown(&RulePlace::Command(at), "source"), expected);
        }
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_refused_with_its_fault() {
        for (rule, fault) in [
            ("x foo", "no rule begins like this"),
            ("-z a", "this kind of rule has no such modifier"),
            ("-*.o", "this kind of rule has no such modifier"),
            ("-", "the pattern or name is missing"),
            ("protect", "the pattern or name is missing"),
            (":", "the pattern or name is missing"),
        ] {
            let error = collect(&[&format!("--filter={rule}")]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("filter rule '{rule}': {fault}")), "{error}");
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
        assert_eq!(shown, [(false, &b"x"[..]), (false, b"a"), (false, b"+ b"), (true, b"y")]);
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
    fn short_options_stand_for_rules_in_their_places() {
        let words = ["-aF", "--include=a", "-C", "-F", "--exclude=b"];
        let rules = shown(&collect(&words).unwrap());
        assert_eq!(rules[..5], ["-/.rsync-filter :", "+a", "-.rsync-filter", "-b", "-.cvsignore :Cwn"]);
        assert_eq!(rules[5], "-RCS p");
        assert_eq!(shown(&collect(&["-FFF"]).unwrap()), ["-/.rsync-filter :", "-.rsync-filter"]);
        assert_eq!(shown(&collect(&["-F", "-0"]).unwrap()), ["-/.rsync-filter :0"]);
        assert_eq!(shown(&collect(&["--exclude", "-F", "-FF"]).unwrap()).len(), 3);
        for (words, expected) in [
            (&["-F", "--no-F", "--exclude=a"][..], &["-a"][..]),
            (
                &["--exclude=a", "-F", "--exclude=b", "-F", "--exclude", "-Fx"],
                &["-a", "-/.rsync-filter :", "-b", "-.rsync-filter", "--Fx"],
            ),
            (&["-FF", "--no-F", "--exclude=a", "-F"], &["-a", "-/.rsync-filter :"]),
            (
                &["-F", "--no-F", "--exclude=a", "-F", "--exclude=b", "-F"],
                &["-a", "-/.rsync-filter :", "-b", "-.rsync-filter"],
            ),
        ] {
            assert_eq!(shown(&collect(words).unwrap()), expected, "{words:?}");
        }
        let cvs = CvsNames { file: b"q  w\n! z".to_vec(), variable: b"v".to_vec(), protect: true };
        let flags = flags::parse(["-f", "-Cs"].iter().map(OsString::from)).unwrap();
        let rules = Rules::collect(&flags.selection, &OperatorFiles::default(), &cvs).unwrap();
        assert_eq!(shown(&rules), ["-z s", "-v s"]);
        let flags = flags::parse(["-C"].iter().map(OsString::from)).unwrap();
        let rules = Rules::collect(&flags.selection, &OperatorFiles::default(), &cvs).unwrap();
        assert_eq!(shown(&rules), ["-.cvsignore :Cwn", "-z sr", "-v sr"]);
    }

    #[test]
    fn prefix_states_the_kind_and_bang_clears() {
        assert_eq!(
            shown(&collect(&["--exclude=+ f", "--include=- g", "--exclude=-x"]).unwrap()),
            ["+f", "-g", "--x"]
        );
        assert_eq!(shown(&collect(&["--exclude=a", "--include=!", "--exclude=b"]).unwrap()), ["-b"]);
        assert_eq!(shown(&collect(&["--exclude=!a", "--exclude="]).unwrap()), ["-!a"]);
        for cut in ["--exclude=- ", "--include=+ ", "--exclude=+ "] {
            assert_eq!(collect(&[cut]).unwrap_err().exit_code(), 1, "{cut}");
        }
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
