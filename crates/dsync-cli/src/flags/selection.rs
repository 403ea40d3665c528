//! The entries of the source that take part.

use std::ffi::{OsStr, OsString};

use clap::{ArgAction, Args};

use super::{Group, name};
use crate::numbers::{NotASize, Size};

/// Filters and boundaries.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct Selection {
    /// Leave out what matches PATTERN
    ///
    /// rsync's patterns: '*' stops at '/', '**' does not, a leading '/' anchors at the top of the
    /// transfer, a trailing '/' matches directories only. Of all include and exclude rules, in the
    /// order in which they are given, the first that matches decides. A pattern that starts with '-
    /// ' or '+ ' states its own kind, and '!' alone drops the rules before it.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) exclude: Vec<OsString>,
    /// Do not leave out what matches PATTERN
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) include: Vec<OsString>,
    /// Read exclude patterns from FILE, one on each line
    ///
    /// Empty lines and lines that start with '#' or ';' are skipped. FILE may be '-' for standard
    /// input.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) exclude_from: Vec<OsString>,
    /// Read include patterns from FILE, one on each line
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) include_from: Vec<OsString>,
    /// Add a filter rule: '- PATTERN', '+ PATTERN', '. FILE', ': NAME', 'P PATTERN' and so on
    ///
    /// rsync's rules, as signs or words: exclude (-), include (+), hide (H) and show (S) for the
    /// source alone, protect (P) and risk (R) for what may be deleted, merge (.) to read rules from
    /// a file, dir-merge (:) to read them from the file of that name in each directory, clear (!).
    /// After the sign modifiers: '!', '/', 's', 'r', 'p', 'x', and for files '-', '+', 'C', 'e', 'n',
    /// 'w'. A '_' may stand for the space. With --delete the destination's own files of rules
    /// protect there, as they are when everything has arrived (with --delete-before and
    /// --delete-during: as they were).
    #[arg(short = 'f', long, value_name = "RULE", allow_hyphen_values = true)]
    pub(crate) filter: Vec<OsString>,
    /// Read rules from '.rsync-filter' in each directory: --filter=': /.rsync-filter'
    ///
    /// Given twice, the files themselves are left out as well: --filter='- .rsync-filter'.
    #[arg(short = 'F', action = ArgAction::Count)]
    pub(crate) rule_files: u8,
    /// Leave out what CVS ignores: objects, backups, what .cvsignore files list
    ///
    /// rsync's list of patterns, those of ~/.cvsignore, of CVSIGNORE in the environment, and of
    /// .cvsignore in each directory, after all other rules: --filter=:C and --filter=-C.
    #[arg(short = 'C', long)]
    pub(crate) cvs_exclude: bool,
    /// Leave out what git ignores: .gitignore files and .git/info/exclude
    ///
    /// In git's own language, unlike --filter=':- .gitignore': a pattern without a slash matches at
    /// any depth, with one it is relative to its file, '!' takes back, the last line that matches
    /// decides, and the nearest file comes first. A directory with a '.git' begins a repository of
    /// its own. After all other rules; what git does not ignore is left to them. '.git' itself is
    /// copied unless --exclude=.git. With --delete the destination's own .gitignore files protect
    /// what they ignore there, unless --delete-excluded.
    #[arg(long)]
    pub(crate) gitignore: bool,
    /// Copy the paths that FILE lists, one on each line
    ///
    /// They are below the one source, a directory. FILE may be '-' for standard input, and ':FILE' or
    /// 'HOST:FILE' for a file of the remote end. Empty lines and lines that start with '#' or ';' are
    /// skipped ('./#name' is such a name), a leading '/' counts for nothing, '..' never leads out of
    /// the source. -R and -d are implied, and take --no-R and --no-d; the -r in -a has no effect: a
    /// directory is copied with what is in it only under a -r of its own, and one whose line ends in
    /// '/' with its entries. What does not exist is an error (23) and the rest is copied. The list may
    /// have any length.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) files_from: Option<OsString>,
    /// Lines of files end with a zero byte: those of --files-from, and of patterns and rules that later words name
    #[arg(short = '0', long)]
    pub(crate) from0: bool,
    /// Convert names between two character sets: this end's, and the other end's
    ///
    /// Of a local run the second is the destination's. Converted are the names of entries and the
    /// texts of symbolic links; content never is. What you type is in the first set, rules and
    /// --files-from among it, and means characters at both ends; paths of this machine are opened
    /// as they are typed. The other end needs no part in it. What a set cannot spell is left out
    /// and told, nothing is deleted then, and the run ends with 23. '.' is the set of the locale
    /// here, '-' stands for --no-iconv. Known are UTF-8, US-ASCII, ISO-8859-1 to -8, -10, -13 to
    /// -16, KOI8-R, CP866, CP874, CP1250 to CP1254, CP1256 and CP1257.
    #[arg(long, value_name = "LOCAL,REMOTE", allow_hyphen_values = true)]
    pub(crate) iconv: Option<String>,
    /// Skip files with more than SIZE bytes
    ///
    /// A number with an optional unit: K, M, G, T or P for powers of 1024, KB and so on for powers
    /// of 1000, and
    /// +1 or -1 after it. Files that are there already stay.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// Skip files with fewer than SIZE bytes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) min_size: Option<u64>,
    /// Give entries the path that their source has
    ///
    /// 'dsync -R a/b/c host:d' makes 'd/a/b/c', with the directories on the way and their attributes.
    /// The path begins after a '/./': 'a/./b/c' makes 'd/b/c'. Directories that a symbolic link leads
    /// to on the way arrive as directories. No path may have '..' in it there. With --delete, entries
    /// go only from directories that are copied with what is in them.
    #[arg(short = 'R', long)]
    pub(crate) relative: bool,
    /// With --relative, copy the directories on the way with their attributes
    ///
    /// The default. With --no-implied-dirs they are made where they are missing, with the default
    /// permissions, and left as they are where they exist; a link to a directory in the destination
    /// is followed as with -K.
    #[arg(long, alias = "i-d")]
    pub(crate) implied_dirs: bool,
    /// Leave out directories that hold nothing but directories
    ///
    /// After the rules have left out what they exclude. With --delete such directories go at the
    /// destination. What --max-size, --min-size or the lack of -l or -D leaves out counts as there,
    /// and so does a directory that cannot be read. A rule that protects a directory keeps it and
    /// those above it: --filter='P NAME/'.
    #[arg(short = 'm', long)]
    pub(crate) prune_empty_dirs: bool,
    /// Skip symbolic links that lead out of the copied tree
    ///
    /// Judged by the text of the link alone: absolute ones, and those with more '..' than
    /// directories above.
    #[arg(long)]
    pub(crate) safe_links: bool,
    /// A source that does not exist is no error
    #[arg(long)]
    pub(crate) ignore_missing_args: bool,
    /// Do not cross into other file systems
    #[arg(short = 'x', long, action = ArgAction::Count)]
    pub(crate) one_file_system: u8,
    /// Whether --no-implied-dirs is the last word on it.
    #[arg(skip)]
    pub(crate) no_implied_dirs: bool,
    /// The kinds of rule options by position on the command line.
    #[arg(skip)]
    pub(crate) order: Vec<(usize, RuleOption)>,
    /// Position of --from0.
    #[arg(skip)]
    pub(crate) from0_at: Option<usize>,
}

/// An option that brings one or more filter rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleOption {
    Exclude,
    Include,
    ExcludeFrom,
    IncludeFrom,
    Filter,
    RuleFiles,
}

impl RuleOption {
    pub(super) const ALL: [Self; 6] =
        [Self::Exclude, Self::Include, Self::ExcludeFrom, Self::IncludeFrom, Self::Filter, Self::RuleFiles];

    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Exclude => "exclude",
            Self::Include => "include",
            Self::ExcludeFrom => "exclude_from",
            Self::IncludeFrom => "include_from",
            Self::Filter => "filter",
            Self::RuleFiles => "rule_files",
        }
    }
}

impl Selection {
    /// The rule options with their values, in the order in which they were typed, and whether
    /// `--from0` stands before.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (RuleOption, &OsStr, bool)> {
        let mut excludes = self.exclude.iter();
        let mut includes = self.include.iter();
        let mut exclude_files = self.exclude_from.iter();
        let mut include_files = self.include_from.iter();
        let mut filters = self.filter.iter();
        let mut rule_files = [PER_DIRECTORY, NOT_ITSELF].iter().take(self.rule_files.into());
        self.order.iter().filter_map(move |&(index, option)| {
            let value = match option {
                RuleOption::Exclude => excludes.next(),
                RuleOption::Include => includes.next(),
                RuleOption::ExcludeFrom => exclude_files.next(),
                RuleOption::IncludeFrom => include_files.next(),
                RuleOption::Filter => filters.next(),
                RuleOption::RuleFiles => {
                    return rule_files.next().map(|rule| (RuleOption::Filter, OsStr::new(rule), false));
                }
            };
            value.map(|value| (option, value.as_os_str(), self.from0_at.is_some_and(|at| at < index)))
        })
    }
}

fn size(value: &str) -> Result<u64, NotASize> {
    Size::parse(value, 'B').map(|size| size.0)
}

/// The rule that `-F` stands for.
const PER_DIRECTORY: &str = ": /.rsync-filter";
/// The rule that a second `-F` adds.
const NOT_ITSELF: &str = "- .rsync-filter";

impl Group for Selection {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("relative", &mut self.relative),
            ("implied_dirs", &mut self.implied_dirs),
            ("prune_empty_dirs", &mut self.prune_empty_dirs),
            ("safe_links", &mut self.safe_links),
            ("ignore_missing_args", &mut self.ignore_missing_args),
            ("from0", &mut self.from0),
            ("cvs_exclude", &mut self.cvs_exclude),
            ("gitignore", &mut self.gitignore),
        ]
    }
}
