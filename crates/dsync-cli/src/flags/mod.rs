//! The command line as clap knows it: one struct per group of options, rsync's letters and names.
//!
//! Everything here is pure: words in, [`Flags`] or a [`UsageError`] out. [`crate::resolve`]
//! determines the meaning of an option for a run, and examines files and the environment.
//!
//! Two laws. The last of several occurrences wins, also between `--perms` and `--no-perms` and
//! between `-a` and `--no-perms`, as in rsync; see [`negation`]. An option of rsync's that dsync
//! lacks is an error of its own kind, see [`unsupported`]; only one that could not change any
//! result is taken without effect, see [`accepted`].

pub(crate) mod accepted;
pub(crate) mod negation;
pub(crate) mod unsupported;

mod attributes;
mod batch;
mod comparison;
mod compression;
mod deletion;
pub(crate) mod id_rules;
mod links;
mod mode_rules;
mod number;
mod output;
mod program;
mod remote;
mod selection;
mod stopping;
mod writing;

use std::ffi::{OsStr, OsString};

use clap::{
    ArgMatches, Args as _, Command, FromArgMatches as _,
    builder::{OsStringValueParser, TypedValueParser},
};

use self::accepted::Accepted;
pub(crate) use self::{
    attributes::Attributes,
    batch::BatchFiles,
    comparison::Comparison,
    compression::{Choice, Compressing, DEFAULT_LEVEL},
    deletion::Deletion,
    id_rules::IdRules,
    links::FollowedLinks,
    number::{NotInRange, whole_number},
    output::{Buffering, Output, ProgressKind, Stream},
    program::Program,
    remote::{Carrier, Remote},
    selection::{RuleOption, Selection},
    stopping::Stopping,
    writing::{When, Writing},
};
use crate::usage::UsageError;

/// The whole command line, as typed and with negations applied.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) attributes: Attributes,
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) links: FollowedLinks,
    #[command(flatten)]
    pub(crate) comparison: Comparison,
    #[command(flatten)]
    pub(crate) deletion: Deletion,
    #[command(flatten)]
    pub(crate) writing: Writing,
    #[command(flatten)]
    pub(crate) batch: BatchFiles,
    #[command(flatten)]
    pub(crate) compressing: Compressing,
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(flatten)]
    pub(crate) stopping: Stopping,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) program: Program,
    // Not a doc comment: rustdoc would read the brackets as a link.
    #[arg(
        value_name = "SRC... DST",
        num_args = 0..,
        help = "Sources, then the destination: paths or [USER@]HOST:PATH",
        long_help = OPERANDS_HELP
    )]
    pub(crate) operands: Vec<OsString>,
    /// The options that are taken without effect.
    #[arg(skip)]
    pub(crate) accepted: Vec<&'static Accepted>,
    /// The paths that `dsync explain` is asked about, below the root of the transfer.
    #[arg(skip)]
    pub(crate) explain: Vec<Vec<u8>>,
}

const OPERANDS_HELP: &str = "Sources, then the destination: paths or [USER@]HOST:PATH

A ':' before any '/' makes an operand remote; write './a:b' for a local file of that name. A directory with a \
trailing '/' stands for what is in it, without one for itself. A remote path begins where the remote shell starts \
dsync, with ssh at the home directory there, HOST:~USER/PATH at that of another user.";

/// The help's text on the commands of this version.
pub(crate) const COMMANDS: &str = "Commands, as the first word:
  completions SHELL  Print a script that completes the options in bash, elvish, fish, powershell or zsh
  doctor [HOST:]DIR  Say what a run to or from DIR would meet, and what to do about it; --json for programs
  enroll [USER@]HOST  Make this user's key known to the server at HOST, and the server here, over ssh
  explain SRC DST PATH...  Say what a run of these options would do with each path, and which rule decides
  help [COMMAND]     Print this help, or a command's
  key                Make a key for servers that need no ssh, and print its public line
  man                Print the manual page, in roff
  serve              Offer shares to keys, each with a role; see dsync serve --help
  state              List what runs with --state have kept; --clear removes it
  verify [HOST:]DIR  Compare DIR with its manifest or what runs have kept, and tell rot from edits

fleet, history, job, run and status are kept for later versions. A local file that has one of
these names is written ./NAME where it is the first word.";

/// The forms of a run.
const USAGE: &str = "dsync [OPTIONS] SRC... DST
       dsync [OPTIONS] SRC... [USER@]HOST:DST
       dsync [OPTIONS] [USER@]HOST:SRC... DST
       dsync [OPTIONS] SRC... HOST::SHARE/DST
       dsync [OPTIONS] HOST::SHARE/SRC... DST";

/// A group of options with switches that can be negated.
trait Group {
    /// Returns each switch: its clap id and the field with its state.
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)>;
}

/// Parses the name of a file, directory or host, which is not empty.
pub(crate) fn name() -> impl TypedValueParser<Value = OsString> {
    full(OsStringValueParser::new())
}

/// Parses with `parser` what is not empty: a variable of a script that is not set makes an empty value.
fn full<P>(parser: P) -> impl TypedValueParser<Value = P::Value>
where
    P: TypedValueParser,
    P::Value: AsRef<OsStr>,
{
    parser.try_map(|value| {
        if value.as_ref().is_empty() {
            return Err(EMPTY);
        }
        Ok(value)
    })
}

/// The words for an empty value.
pub(crate) const EMPTY: &str = "the value is empty (unset variable in a script?)";

/// Returns the clap command: the groups and the negations, without the parts that clap would print
/// by itself.
pub(crate) fn command() -> Command {
    let base = Command::new("dsync")
        .bin_name("dsync")
        .version(env!("CARGO_PKG_VERSION"))
        .override_usage(USAGE)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .after_help(format!("{COMMANDS}\n\n{}", accepted::Accepted::summary()))
        .max_term_width(100);
    // The groups' own comments do not describe the program.
    negation::with_negations(Flags::augment_args(base))
        .about("Make one directory tree like another, here or on another host")
        .long_about(None)
}

/// Returns whether the words of a command ask for its help.
pub(crate) fn ask_for_help(words: &[OsString]) -> bool {
    words.iter().any(|word| word == "--help" || word == "-h")
}

/// Parses the words after the program's name.
///
/// # Errors
/// [`UsageError`] for the first word that cannot be parsed.
pub(crate) fn parse<I>(words: I) -> Result<Flags, UsageError>
where
    I: IntoIterator<Item = OsString>,
{
    let words: Vec<_> = std::iter::once(OsString::from("dsync")).chain(words).collect();
    let matches = command()
        .try_get_matches_from(&words)
        .map_err(|error| UsageError::from_clap(&error).in_words_of(&words))?;
    let mut flags = Flags::from_arg_matches(&matches).map_err(|error| UsageError::from_clap(&error))?;
    flags.settle(&matches);
    if flags.selection.rule_files > 1
        && let Some(first) = first_rule_file(&words)
    {
        flags.selection.order.push((first, RuleOption::RuleFiles));
        flags.selection.order.sort_unstable_by_key(|&(index, _)| index);
    }
    Ok(flags)
}

impl Flags {
    /// Replaces each switch by its state after all words.
    fn settle(&mut self, matches: &ArgMatches) {
        let groups: [&mut dyn Group; 10] = [
            &mut self.attributes,
            &mut self.selection,
            &mut self.links,
            &mut self.comparison,
            &mut self.deletion,
            &mut self.writing,
            &mut self.compressing,
            &mut self.remote,
            &mut self.output,
            &mut self.stopping,
        ];

        for group in groups {
            for (id, state) in group.switches() {
                *state = negation::is_on(matches, id);
            }
        }
        if self.selection.files_from.is_some() {
            // As rsync: the paths are all that is wanted.
            self.attributes.recursive =
                negation::is_on_itself(matches, "recursive") || self.attributes.old_dirs;
            self.attributes.dirs = !negation::is_off(matches, "dirs");
            self.selection.relative = !negation::is_off(matches, "relative");
        }
        if negation::is_off(matches, "bwlimit") {
            self.remote.bwlimit = None;
        }
        if negation::is_off(matches, "iconv") {
            self.selection.iconv = None;
        }

        for (id, limit) in
            [("timeout", &mut self.remote.timeout), ("contimeout", &mut self.remote.contimeout)]
        {
            *limit = limit.filter(|limit| !limit.is_zero() && !negation::is_off(matches, id));
        }
        self.attributes.no_super = negation::is_off(matches, "super");
        self.comparison.no_detect_renamed = negation::is_off(matches, "detect_renamed");
        self.compressing.refused = negation::is_off(matches, "compress");
        self.selection.no_implied_dirs = negation::is_off(matches, "implied_dirs");
        self.output.no_progress = negation::is_off(matches, "progress");
        if self.output.progress_kind == Some(ProgressKind::None) {
            (self.output.progress, self.output.no_progress) = (false, true);
        }

        // The one kind of line that is a switch as well; the later word counts.
        let level = self.output.info.iter().rev().find_map(|flag| flag.strip_prefix("progress"));
        if let Some(level) = level.filter(|_| negation::is_after(matches, "info", "no_progress")) {
            (self.output.progress, self.output.no_progress) = (level != "0", level == "0");
        }
        self.writing.no_partial = negation::is_off(matches, "partial");
        self.output.plain_numbers = negation::is_off(matches, "human_readable");
        self.selection.order = rules_in_order(matches);
        let positions = matches.indices_of("from0").into_iter().flatten();
        self.selection.from0_at = positions.min().filter(|_| self.selection.from0);
        let given = Accepted::all().iter().filter(|option| option.last(matches).is_some());
        self.accepted = given.collect();
    }
}

/// Returns the position of the first `-F`, of those that no `--no-F` takes back; clap keeps that of the
/// last.
fn first_rule_file(words: &[OsString]) -> Option<usize> {
    let is_candidate = |word: &OsString| matches!(word.as_encoded_bytes(), [b'-', rest @ ..] if rest.contains(&b'F') && !rest.starts_with(b"-"));
    let ends = words.iter().enumerate().filter(|(_, word)| is_candidate(word)).map(|(at, _)| at + 1);
    let before = |end: usize| command().try_get_matches_from(words.get(..end)?).ok();
    let has_any = |matches: &ArgMatches| matches.get_count("rule_files") > 0;

    // The word may be a value of the one before it: then the words before it cannot be read alone.
    ends.filter(|end| before(end - 1).is_some_and(|matches| !has_any(&matches)))
        .filter_map(before)
        .rfind(has_any)
        .and_then(|matches| matches.indices_of("rule_files")?.max())
}

/// Returns the positions of the include and exclude options on the command line.
fn rules_in_order(matches: &ArgMatches) -> Vec<(usize, selection::RuleOption)> {
    let mut order: Vec<_> = selection::RuleOption::ALL
        .iter()
        .flat_map(|&option| {
            matches.indices_of(option.id()).into_iter().flatten().map(move |index| (index, option))
        })
        .collect();
    order.sort_unstable_by_key(|&(index, _)| index);
    order
}
