//! The dsync command: flags, progress, messages and exit codes around [`dsync_engine`].
//!
//! Parsing ([`mod@flags`]) is pure, and resolving ([`mod@resolve`]) examines files and the
//! environment. [`console`] reports a run while it goes on, [`closing`] and [`stats`] at its end.
//! No logic here would be useful to another program.

mod address;
mod advice;
mod bar;
mod bash;
mod cage;
mod catalogue;
mod certificates;
mod closing;
mod commands;
mod console;
mod debug;
mod deploy;
mod doctor;
mod documents;
mod enroll;
mod errno;
mod escape;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::disallowed_methods)]
mod every_option;
mod explain;
mod flags;
mod format;
mod here;
mod in_place_of_rsync;
mod json;
mod keys;
mod listing;
mod log;
mod manifest_names;
mod messages;
mod meter;
mod numbers;
mod refused;
mod resolve;
mod rules;
mod serve;
mod server;
mod signals;
mod state;
mod stats;
mod stop;
mod streams;
mod told;
mod unbegun;
mod usage;
mod verify;
mod version;
mod watch;
mod words;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use dsync_engine::{CancelToken, Job, Summary, SyncError, TreeWatch, TypeCounts, exit_code};

use crate::{
    address::ShareAddress,
    bar::{Bar, Shown},
    cage::Cage,
    closing::{Closing, show},
    console::{Console, Voice, blame, say},
    deploy::Bare,
    escape::{Escaped, escape_text},
    flags::{Flags, Stream, accepted::Accepted},
    log::Log,
    resolve::{Order, Reporting},
    rules::Rules,
    streams::Standard,
    usage::UsageError,
    watch::{Ran, Watch},
};

fn main() -> ExitCode {
    dsync_engine::raise_nofile_limit();
    dsync_engine::reserve_descriptors();
    signals::let_long_writes_fail();
    signals::hear_children();
    let mut words = std::env::args_os();
    in_place_of_rsync::begin(words.next().as_deref());
    let code = dispatch(words.collect());
    if let Some(line) = in_place_of_rsync::last_line(code, messages::meaning(code)) {
        say(&line);
    }
    ExitCode::from(code)
}

/// Performs the action of the words and returns the exit code.
fn dispatch(words: Vec<OsString>) -> u8 {
    if let Some(asked) = commands::help(&words) {
        return dispatch(asked);
    }
    if is_help_alone(&words) {
        return show(flags::command().render_help().to_string().as_bytes());
    }
    if let Some(found) = server::words(&words) {
        return begin_server(found);
    }
    if let Some(option) = server::misplaced(&words) {
        let is_remote = resolve::is_remote_option(&option);
        return refuse(&UsageError::NotInPath { option, is_remote });
    }
    if let Some((first, rest)) = words.split_first() {
        match first.to_str() {
            Some("doctor") => return doctor::run(rest),
            Some("enroll") => return enroll::run(rest),
            Some("explain") => return explain::run(rest),
            Some("key") => return keys::run(rest),
            Some("serve") => return serve::run(rest),
            Some("state") => return state::run(rest),
            Some("verify") => return verify::run(rest),
            _ => {}
        }
    }
    if let Some(done) = commands::dispatch(&words) {
        return done.map_or_else(|error| refuse(&error), |text| show(&text));
    }

    let mut flags = match flags::parse(words) {
        Ok(flags) => flags,
        Err(error) => return refuse(&error),
    };
    adapt(&mut flags);
    let program = &flags.program;

    if program.help {
        show(flags::command().render_long_help().to_string().as_bytes())
    } else if debug::asks_for_help(&flags.output.info) {
        show(resolve::INFO_HELP.as_bytes())
    } else if debug::asks_for_help(&flags.output.debug) {
        show(debug::HELP.as_bytes())
    } else if program.version {
        show(version::text().as_bytes())
    } else if program.server {
        refuse(&UsageError::NotForRsync)
    } else if program.restrict.is_some() {
        refuse(&UsageError::Needs { option: "--restrict", needed: "--server before it" })
    } else {
        run(&flags)
    }
}

/// Returns whether the only word is `-h`, once or more: human-readable numbers of nothing, which is rsync's old
/// option for its help.
fn is_help_alone(words: &[OsString]) -> bool {
    let [word] = words else { return false };
    let letters = word.as_bytes().strip_prefix(b"-").unwrap_or_default();
    word == "--human-readable" || !letters.is_empty() && letters.iter().all(|letter| *letter == b'h')
}

/// Changes what programs that were written for rsync would not expect.
fn adapt(flags: &mut Flags) {
    if !in_place_of_rsync::is_called_rsync() {
        return;
    }
    flags.deletion.allow_empty_source = true;
    flags.stopping.lock_wait.get_or_insert(in_place_of_rsync::LOCK_WAIT);
    if flags.output.verbose > 0 {
        flags.output.info.insert(0, "flist1".to_owned());
    }
}

/// Starts the remote end if its words permit it.
fn begin_server((bounds, words): (Vec<OsString>, Vec<OsString>)) -> u8 {
    let begun = server::restriction(&words).and_then(|restriction| Ok((restriction, flags::parse(bounds)?)));
    match begun {
        Ok((restriction, flags)) => {
            let resources = resolve::resources(&flags, &|name| std::env::var_os(name));
            server::serve_peer(restriction, &resources)
        }
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &UsageError) -> u8 {
    let text = error.to_string();
    let text = escape_text(&text);
    // The usage line is not an error in words.
    let tell = if matches!(error, UsageError::NoOperands) { say } else { blame };
    tell(&text);
    error.exit_code()
}

/// Performs a run and reports it.
fn run(flags: &Flags) -> u8 {
    let logs = match debug::filter(&flags.output.debug) {
        Ok(flagged) => debug::start_log(flagged),
        Err(error) => return refuse(&error),
    };
    match address::whole_server(&flags.operands) {
        Ok(Some(server)) => return list_shares(flags, &server),
        Ok(None) => {}
        Err(error) => return refuse(&error),
    }
    let Order { job, rules, report, doubtful, share, is_watched } =
        match resolve::order(flags, &|name| std::env::var_os(name)) {
            Ok(order) => order,
            Err(error) => return refuse(unbegun::tell(flags, &error)),
        };
    let cancel = CancelToken::new();
    // A log and a bar would tear each other.
    let draws = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    // Nobody looks at the one of a watch for long.
    let shown = if is_watched { Shown::Nothing } else { report.bar(draws && !logs) };
    let bar = Arc::new(Bar::new(shown));
    let has_bar = bar.is_drawn();
    if let Err(error) = signals::watch(cancel.clone(), Arc::clone(&bar)) {
        blame(&format!("cannot watch for signals: {}", words::system_words(&error)));
        return exit_code::START;
    }

    let stop = report.stop.map(|time| stop::watch(time, cancel.clone())).transpose();
    let Ok(stop) = stop else {
        blame("cannot start the thread that watches the time");
        return exit_code::START;
    };

    let stopped = || stop.as_ref().is_some_and(|reached| reached.load(Ordering::Acquire));
    let delays = flags.writing.delay_updates;
    let sums_up = has_bar || is_watched && !report.voice.quiet;
    let once = |job: Job| {
        let console = open_console(&report, Arc::clone(&bar));
        let outcome = perform(flags, job, &report, (&console, &cancel));
        let (stopped, dialled) = (stopped(), share.is_some());
        let words = Words { rules: &rules, doubtful: &doubtful, stopped, delays, dialled };
        let code = finish(&outcome, &console, &words, &report, sums_up);
        let at_limit = outcome.as_ref().is_ok_and(|summary| summary.report.deletions_over_limit > 0);
        Ran { code, ended: outcome.is_ok(), at_limit }
    };

    if !is_watched {
        return once(job).code;
    }
    let again = |trees: Option<&TreeWatch>| {
        let job = trees.map_or_else(|| job.clone(), |trees| job.clone().watch(trees));
        match resolve::with_list(flags, &|name| std::env::var_os(name), job, trees) {
            Ok(job) => once(job),
            // It was read when the watch began: the next change of the list repairs it.
            Err(error) => Ran { code: refuse(unbegun::tell(flags, &error)), ended: true, at_limit: false },
        }
    };
    Watch::new(&cancel).go(again).unwrap_or_else(|| {
        let (code, line) = interrupted(stopped(), false);
        say(&line);
        code
    })
}

/// Lists the shares of a server, which is a run without a tree.
fn list_shares(flags: &Flags, server: &ShareAddress) -> u8 {
    if let Err(error) = resolve::check_for_share(flags, server) {
        return refuse(&error);
    }
    let events = flags.output.json.then(|| resolve::listed(flags));
    serve::list((server, resolve::family(flags)), flags.remote.contimeout, events.as_ref())
}

/// Carries a run out, with what is said before and in it.
fn perform(
    flags: &Flags,
    job: Job,
    report: &Reporting,
    (console, cancel): (&Console, &CancelToken),
) -> Result<Summary, SyncError> {
    if report.verbose > 1 {
        let reason = |option: &Accepted| format!("dsync: {option} changes nothing: {}", option.reason);
        flags.accepted.iter().for_each(|option| console.talk(&reason(option)));
    }
    tell_beginning(flags, report, console);
    console.note(if report.voice.listing.receives { "receiving file list" } else { "building file list" });

    let state = state::open(flags, console);
    let job = match &state {
        Some(used) => {
            let resources = resolve::resources(flags, &|name| std::env::var_os(name));
            job.resources(resources.state(Some(used.state())))
        }
        None => job,
    };

    let cage = Arc::new(Cage::default());
    let outcome = conduct(flags, &job.cage(Arc::clone(&cage) as _), console, cancel);
    console.end_list();
    if report.verbose > 0 {
        cage.notes().iter().for_each(|note| console.talk(&format!("dsync: {}", escape_text(note))));
    }
    if let Some(used) = state {
        let is_ok = outcome.as_ref().is_ok_and(|summary| summary.exit_code() == exit_code::OK);
        // Files that a list does not name are there all the same.
        let whole = is_ok && flags.selection.files_from.is_none();
        used.close(whole, report.verbose > 0 || report.stats, console);
    }
    outcome.map(|summary| if report.lists_only { looked_at(summary) } else { summary })
}

/// Carries the run out, once no other run has the destination, if that is to be waited for.
fn conduct(flags: &Flags, job: &Job, console: &Console, cancel: &CancelToken) -> Result<Summary, SyncError> {
    let (began, mut is_told) = (Instant::now(), false);
    // A batch records one run.
    let wait = flags.stopping.lock_wait.filter(|_| flags.batch.writing().is_none()).unwrap_or_default();
    loop {
        let outcome = attempt(flags, job.clone(), console, cancel);
        let is_locked = outcome.as_ref().is_err_and(|error| messages::code_of(error) == exit_code::LOCKED);
        if !is_locked || began.elapsed() >= Duration::from_secs(wait) {
            return outcome;
        }
        if !is_told {
            console.talk("dsync: another run has the destination; waiting for its end");
            is_told = true;
        }
        for _ in 0..LOCK_LOOKS {
            if cancel.is_cancelled() {
                return Err(SyncError::Cancelled);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Tenths of a second between two attempts, each of which waits for some seconds itself.
const LOCK_LOOKS: u32 = 10;

/// Carries the run out. Where the remote host lacks the program, and the person agrees, it gets a copy
/// first.
fn attempt(flags: &Flags, job: Job, console: &Console, cancel: &CancelToken) -> Result<Summary, SyncError> {
    let first = job.clone().run(console, cancel);
    let (Err(error), Ok(connect)) = (&first, resolve::connect_options(flags, &|name| std::env::var_os(name)))
    else {
        return first;
    };
    let Some(bare) = Bare::of(error, flags, &connect) else { return first };

    match bare.program(cancel, &|line| console.talk(line)) {
        _ if cancel.is_cancelled() => Err(SyncError::Cancelled),
        Ok(remote_program) => job.connect(connect.remote_program(remote_program)).run(console, cancel),
        Err(why) => {
            console.talk(&escape_text(&format!("dsync: {why}; {}", bare.instead(&why))));
            first
        }
    }
}

/// Says in rsync's words that a list is on its way, if that was asked for, and whether content may be
/// sent as differences, if the run lists all that it does.
fn tell_beginning(flags: &Flags, report: &Reporting, console: &Console) {
    let listing = &report.voice.listing;
    if report.tells_list && !report.lists_only {
        let does = if listing.receives { "receiving" } else { "sending" };
        console.result(&format!("{does} incremental file list"));
    }
    if report.verbose < 2 || report.lists_only {
        return;
    }
    let is_remote = listing.sends || listing.receives;
    console.result(if is_remote && !flags.comparison.whole_file {
        "delta-transmission enabled"
    } else {
        "delta-transmission disabled for local transfer or --whole-file"
    });
}

/// Returns the summary of a run that copied nothing, as it only looked at the source.
fn looked_at(mut summary: Summary) -> Summary {
    summary.report.created = TypeCounts::default();
    (summary.report.files_transferred, summary.report.transferred_bytes) = (0, 0);
    summary
}

/// Opens the streams and the log file of a run.
fn open_console(report: &Reporting, bar: Arc<Bar>) -> Console {
    let (out, terminal): (Box<dyn io::Write + Send>, bool) = match report.stream {
        Stream::Output => (Box::new(Standard::Output), io::stdout().is_terminal()),
        Stream::Errors => (Box::new(Standard::Errors), io::stderr().is_terminal()),
    };
    let voice = Voice { interactive: report.writes_lines(terminal), ..report.voice.clone() };
    let log = report.log.as_ref().and_then(|(path, listing, files)| {
        let opened = Log::open(path, files, listing.clone());
        opened.map_err(|error| warn_of_log(path, &error)).ok()
    });
    Console::on(out, voice, bar, log)
}

/// Says that a log file has not all of the run.
fn warn_of_log(path: &Path, error: &io::Error) {
    let (path, why) = (Escaped(path.as_os_str().as_bytes()), words::system_words(error));
    say(&format!("dsync: cannot write log file '{path}': {why}; the run goes on without it"));
}

/// The words of the command line that the end of a run may have to quote.
struct Words<'a> {
    rules: &'a Rules,
    doubtful: &'a [OsString],
    /// Whether the run stopped because its time was over.
    stopped: bool,
    /// Whether files get their names at the end.
    delays: bool,
    /// Whether the run went to a share, without ssh.
    dialled: bool,
}

/// Reports the end of the run and returns the exit code.
fn finish(
    outcome: &Result<Summary, SyncError>,
    console: &Console,
    words: &Words<'_>,
    report: &Reporting,
    has_bar: bool,
) -> u8 {
    let (code, last_words) = match outcome {
        Ok(summary) => conclude(summary, console, report, has_bar),
        Err(SyncError::Cancelled) => {
            let (code, line) = interrupted(words.stopped, words.delays);
            (code, Some(line))
        }
        Err(error) => {
            // ssh's words may hold the cure: all of them, as ssh wrote them. rsync's are pages of its options.
            let lines = error.shell_stderr();
            if !words.dialled && lines.len() > 1 && !advice::is_rsync(lines) {
                lines.iter().for_each(|line| console.talk(&escape_text(line)));
            }
            let mut text = messages::failure(error, words.rules);
            if let (SyncError::Connect(_), [operand, ..]) = (error, words.doubtful) {
                text = format!("{}. {}", text.trim_end_matches('.'), messages::also_here(operand));
            }
            (messages::code_of(error), Some(format!("dsync: error: {text}")))
        }
    };
    let code = in_place_of_rsync::known_code(code);

    console.end_stream(outcome, code, last_words.as_deref());
    let closed = console.close();
    if let Some(line) = last_words {
        console.talk(&line);
    }
    if let (Some(error), Some((path, ..))) = (console.log_failure(), &report.log) {
        warn_of_log(path, &error);
    }
    if let Some(line) = in_place_of_rsync::last_line(code, messages::meaning(code)) {
        console.talk(&line);
    }

    closing::printed(closed, code)
}

/// Returns the exit code and the last line of a run that was interrupted, or whose time was over.
fn interrupted(stopped: bool, delays: bool) -> (u8, String) {
    // rsync's words.
    let (code, what) = if stopped {
        (exit_code::TIMEOUT, "stopping at requested limit")
    } else {
        (exit_code::INTERRUPTED, "interrupted")
    };
    let rest = if delays {
        "with --delay-updates nothing was put in place, unless the run was at its end"
    } else {
        "what was finished is kept"
    };
    (code, format!("dsync: {what}; {rest} (exit code {code})"))
}

/// Prints statistics and summary; returns the exit code and the line that comes last.
fn conclude(summary: &Summary, console: &Console, report: &Reporting, has_bar: bool) -> (u8, Option<String>) {
    let code = summary.exit_code();
    let connection = summary.connection.as_ref();
    let closing = Closing {
        report: &summary.report,
        traffic: summary.traffic,
        connection: connection.map(|connection| (connection.carrier, connection.reason.as_deref())),
        moves: connection.map_or(&[], |connection| &connection.moves),
        reconnects: summary.reconnects,
        files_done_before: summary.files_done_before,
        elapsed: summary.elapsed,
        dry_run: summary.dry_run,
        recorded: report.recorded.as_deref().map(|file| (file, here::bytes_here(file))),
        lists_only: report.lists_only,
        recursive: report.recursive,
        durability: report.durability,
        exit_code: code,
    };

    if report.stats {
        let carrier = connection.map(|connection| connection.carrier);
        let block = stats::block(
            &summary.report,
            summary.traffic,
            carrier,
            (summary.elapsed, summary.dry_run),
            report.style,
        );
        console.result(&format!("\n{}", block.trim_end()));
        block.lines().for_each(|line| console.note(line));
    }

    // As rsync writes it: without commas, whatever -h says.
    console.note(&format!(
        "sent {} bytes  received {} bytes  total size {}",
        summary.traffic.sent_bytes, summary.traffic.received_bytes, summary.report.total_bytes
    ));
    if in_place_of_rsync::is_called_rsync() {
        // Those of the statistics are there already.
        if report.paragraph && !report.stats {
            let times = (summary.elapsed, summary.dry_run);
            let totals = stats::totals(&summary.report, summary.traffic, times, report.style);
            console.result(&format!("\n{totals}"));
        }
    } else if report.paragraph {
        console.result(&format!("\n{}", closing.paragraph()));
    } else if has_bar {
        console.talk(&closing.paragraph());
    }
    if let Some(advice) = closing.advice().filter(|_| !report.voice.quiet) {
        console.talk(&format!("dsync: {advice}"));
    }

    (code, closing.problems(report.max_delete, report.all_or_nothing).map(|line| format!("dsync: {line}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_readable_numbers_of_nothing_are_the_help() {
        let is_help = |words: &[&str]| is_help_alone(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for alone in ["-h", "-hh", "-hhh", "--human-readable"] {
            assert!(is_help(&[alone]), "{alone}");
        }
        for words in [&["-"][..], &["--"], &["-h", "-h"], &["-hh", "a"], &["-ha"], &["h"], &[]] {
            assert!(!is_help(words), "{words:?}");
        }
    }

    #[test]
    fn an_interrupted_run_tells_what_it_leaves() {
        let kept = "what was finished is kept";
        let delayed = "with --delay-updates nothing was put in place, unless the run was at its end";
        for (stopped, delays, code, line) in [
            (false, false, 20, format!("dsync: interrupted; {kept} (exit code 20)")),
            (false, true, 20, format!("dsync: interrupted; {delayed} (exit code 20)")),
            (true, true, 30, format!("dsync: stopping at requested limit; {delayed} (exit code 30)")),
        ] {
            assert_eq!(interrupted(stopped, delays), (code, line));
        }
    }
}
