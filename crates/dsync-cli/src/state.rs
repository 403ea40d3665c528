//! `--state`: what earlier runs of a pair of trees have read, where it is kept, and what is said of
//! it; and `dsync state`, which lists and clears it.
//!
//! The law: a state that cannot be used or kept is one line, and the run goes on without it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use clap::{Args as _, Command, FromArgMatches as _};
use dsync_engine::{Operand, SignatureUse, State, StateError, StateUse, States, UntrustedLink, exit_code};

use crate::{
    closing::show,
    console::{Console, blame},
    escape::{Escaped, escape_text},
    flags::Flags,
    here,
    numbers::{Number, Style, counted},
    usage::UsageError,
    words,
};

/// A run's use of a state.
pub(crate) struct InUse {
    state: State,
    dir: PathBuf,
    /// The run compares contents.
    compares: bool,
}

/// Opens the state of a run's operands, if the run is to have one.
pub(crate) fn open(flags: &Flags, console: &Console) -> Option<InUse> {
    let compares = flags.comparison.checksum;
    if !flags.comparison.state || !compares && !is_pull(&flags.operands) {
        return None;
    }
    let unused = |why: &str| {
        console.talk(&escape_text(&format!(
            "dsync: {why}; the run goes on without what earlier ones have read"
        )));
    };
    if flags.attributes.copy_as.is_some() {
        unused("--state is left alone with --copy-as, whose user may not read all that it knows");
        return None;
    }
    let dir = match directory(flags.comparison.state_dir.as_deref()) {
        Ok(dir) => dir,
        Err(why) => {
            unused(&why);
            return None;
        }
    };

    let pair = compares.then(|| pair(&flags.operands));
    match State::open(&dir, pair.as_deref()) {
        Ok((state, trouble)) => {
            match trouble {
                // Nothing is wrong, and after each start of the system it is so.
                Some(StateError::Restarted) => tracing::info!("{}", StateError::Restarted),
                Some(trouble) => unused(&reason(&dir, &trouble)),
                None => {}
            }
            Some(InUse { state, dir, compares })
        }
        Err(error) => {
            unused(&reason(&dir, &error));
            None
        }
    }
}

impl InUse {
    pub(crate) fn state(&self) -> State {
        self.state.clone()
    }

    /// Keeps what the run has read, and says of how much that was if it is asked for. What a `whole`
    /// run met no more is forgotten.
    pub(crate) fn close(self, whole: bool, is_told: bool, console: &Console) {
        if let Err(error) = self.state.save(whole) {
            let why = format!("dsync: {}; what this run has read is not kept", reason(&self.dir, &error));
            console.talk(&escape_text(&why));
        }
        if let Some(error) = self.state.unused_signature() {
            let why = reason(&self.dir, &error);
            console.talk(&escape_text(&format!("dsync: {why}; the run has read an old file to sign it")));
        }
        let (used, signed) = (self.state.used(), self.state.signatures_used());
        if self.compares {
            console.compared(used);
        }
        if is_told && self.compares {
            console.talk(&used_text(&used));
        }
        if is_told && signed.files > 0 {
            console.talk(&signed_text(&signed));
        }
    }
}

/// The states of a remote end, in the directory of whoever it runs as.
#[derive(Debug)]
pub(crate) struct AtRemoteEnd;

impl States for AtRemoteEnd {
    fn open(&self, pair: Option<&[u8]>, lacks: &mut Vec<String>) -> Option<State> {
        let mut unused =
            |why: String| lacks.push(format!("{why}; the run goes on without what earlier ones have read"));
        let dir = directory(None).map_err(&mut unused).ok()?;
        let opened = State::open(&dir, pair).map_err(|error| unused(reason(&dir, &error)));
        let (state, trouble) = opened.ok()?;
        if let Some(trouble) = trouble {
            unused(reason(&dir, &trouble));
        }
        Some(state)
    }

    /// Keeps it. Logs what goes wrong, as the client has gone by then.
    fn close(&self, state: &State, whole: bool) {
        if let Err(error) = state.save(whole) {
            tracing::warn!("{}; what this run has read is not kept", error);
        }
        if let Some(error) = state.unused_signature() {
            tracing::warn!("{}; the run has read an old file to sign it", error);
        }
    }
}

fn used_text(used: &StateUse) -> String {
    let StateUse { known_files, known_bytes, read_files, read_bytes, .. } = *used;
    let [known_files, known_bytes, read_files, read_bytes] =
        [known_files, known_bytes, read_files, read_bytes].map(|value| Number(value, Style::Commas));
    format!(
        "dsync: contents compared here: {known_files} known of earlier runs ({known_bytes} bytes), {read_files} \
         read ({read_bytes} bytes)"
    )
}

fn signed_text(signed: &SignatureUse) -> String {
    let [files, bytes] = [signed.files, signed.bytes].map(|value| Number(value, Style::Commas));
    format!(
        "dsync: old files not read here, as their sums were known of earlier runs: {files} ({bytes} bytes)"
    )
}

/// Returns whether the destination of these operands is here and the source is not.
fn is_pull(operands: &[OsString]) -> bool {
    let is_here = |word: &OsString| matches!(Operand::parse(word), Ok(Operand::Local(_)));
    operands.split_last().is_some_and(|(last, sources)| is_here(last) && !sources.iter().all(is_here))
}

/// Returns why a state is not used, in words.
fn reason(dir: &Path, error: &StateError) -> String {
    let dir = dir.display();
    match error {
        StateError::Io { source } if UntrustedLink::of(source).is_some() => {
            format!("cannot use the state in '{dir}': {source}")
        }
        StateError::Io { source } => {
            format!("cannot use the state in '{dir}': {}", words::system_words(source))
        }
        StateError::Shared => format!("the state in '{dir}' is not used: another user can write to it"),
        StateError::Damaged => format!("the state in '{dir}' is damaged, and is made anew"),
        StateError::Newer => format!("the state in '{dir}' is of a newer version, and stays as it is"),
        StateError::ClockWentBack => format!("the clock is behind the state in '{dir}', which is made anew"),
        other => format!("the state in '{dir}' is not used: {other}"),
    }
}

/// Returns the directory of states: the one that is named, else this user's own.
pub(crate) fn directory(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(dir) = named {
        return Ok(dir.to_owned());
    }
    // Relative ones are to be ignored (XDG Base Directory Specification).
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    dir.map(|dir| dir.join("dsync"))
        .ok_or_else(|| "neither XDG_STATE_HOME nor HOME names a directory for --state".to_owned())
}

/// Returns the name of a pair of trees: the operands, paths of this machine from its root on.
fn pair(operands: &[OsString]) -> Vec<u8> {
    let name = |word: &OsString| match Operand::parse(word) {
        Ok(Operand::Local(path)) => std::path::absolute(&path).unwrap_or(path).into_os_string(),
        _ => word.clone(),
    };
    let names: Vec<_> = operands.iter().map(name).collect();
    let (sources, last) = match names.split_last() {
        Some((last, sources)) => (sources, last.as_os_str()),
        None => (&[][..], OsStr::new("")),
    };
    let mut pair = sources.join(OsStr::new(" ")).into_encoded_bytes();
    pair.extend_from_slice(b" -> ");
    pair.extend_from_slice(last.as_bytes());
    pair
}

/// The words behind `dsync state`.
#[derive(Debug, clap::Args)]
struct Words {
    /// The directory of --state-dir; $XDG_STATE_HOME/dsync where none is named
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Remove all that runs have kept there
    #[arg(long)]
    clear: bool,
}

/// Returns the command's words as clap knows them.
pub(crate) fn command() -> Command {
    Words::augment_args(Command::new("state"))
}

/// Lists or clears what runs have kept; returns the exit code.
pub(crate) fn run(typed: &[OsString]) -> u8 {
    let command = command()
        .bin_name("dsync state")
        .about("List what runs with --state have kept, or remove it")
        .no_binary_name(true)
        .max_term_width(100);
    let flags = match command.try_get_matches_from(typed) {
        Ok(matches) => Words::from_arg_matches(&matches),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return show(error.to_string().as_bytes());
        }
        Err(error) => Err(error),
    };
    let flags = match flags {
        Ok(flags) => flags,
        Err(error) => {
            // A word that is no option is meant as a file of this name to copy, most likely.
            let is_copy = typed.first().is_some_and(|word| !word.as_bytes().starts_with(b"-"));
            let error = if is_copy { wanted() } else { UsageError::from_clap(&error) };
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };

    let dir = match directory(flags.state_dir.as_deref()) {
        Ok(dir) => dir,
        Err(why) => {
            blame(&why);
            return exit_code::FILE_SELECTION;
        }
    };
    let done = if flags.clear { clear(&dir) } else { list(&dir) };
    match done {
        Ok(text) => show(text.as_bytes()),
        Err(error) => {
            let error = StateError::Io { source: error };
            blame(&escape_text(&reason(&dir, &error)));
            exit_code::FILE_IO
        }
    }
}

fn wanted() -> UsageError {
    let wanted = "takes no words: `dsync state [--state-dir DIR] [--clear]`".to_owned();
    UsageError::CommandWords { command: "state", wanted, file: here::is_here(OsStr::new("state")) }
}

fn clear(dir: &Path) -> io::Result<String> {
    let count = State::clear(dir)?;
    let place = Escaped(dir.as_os_str().as_bytes());
    Ok(format!("{} removed from '{place}'\n", Number(count, Style::Commas)))
}

fn list(dir: &Path) -> io::Result<String> {
    let mut lines: Vec<String> = State::list(dir)?
        .iter()
        .map(|kept| match kept {
            Ok(kept) => {
                let files = counted(kept.files, "file", "files");
                format!("{files} known  {}\n", Escaped(&kept.pair))
            }
            Err(error) => format!("unusable: {}\n", reason(dir, error)),
        })
        .collect();
    lines.sort();
    let (files, bytes) = State::signatures(dir)?;
    if files > 0 {
        let files = counted(files, "large file", "large files");
        lines.push(format!("{files} with sums ({})\n", counted(bytes, "byte", "bytes")));
    }
    if lines.is_empty() {
        lines.push(format!("nothing is kept in '{}'\n", Escaped(dir.as_os_str().as_bytes())));
    }
    Ok(lines.concat())
}
