//! The two streams: results on standard output, messages on standard error, and the bar that
//! neither may tear.
//!
//! Writing can fail at any time (`dsync ... | head -1`, a full disk behind a redirection). A run is
//! worth more than its listing, so it continues; the failure is remembered and becomes exit code 13
//! at the end. Nothing here uses `println!`, which would panic.

use std::{
    io::{self, BufWriter, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dsync_engine::{
    Cause, Connection, Event, FileProgress, Observer, Operation, Planned, Problem, Progress, Reconnect,
    StateUse, Summary, SyncError,
};

use crate::{
    bar::Bar,
    escape::escape_text,
    in_place_of_rsync,
    json::{Opening, Stream},
    listing::{self, Listing},
    log::Log,
    messages,
    rules::Rules,
    streams::Standard,
    told::{Line, Told},
};

/// The console that reports a run.
pub(crate) struct Console {
    voice: Voice,
    results: Mutex<Results>,
    told: Mutex<Told>,
    /// `--json`, in the place of lists and sentences.
    json: Option<Stream>,
    bar: Arc<Bar>,
    log: Option<Log>,
    /// Entries that were told to lack attributes.
    lacking: AtomicU64,
}

/// The words and lists that a console prints.
#[derive(Debug, Clone, Default)]
pub(crate) struct Voice {
    pub(crate) listing: Listing,
    pub(crate) quiet: bool,
    /// Entries of types that are not copied are not named.
    pub(crate) hides_nonregular: bool,
    /// Entries that an option leaves alone are named.
    pub(crate) shows_left_alone: bool,
    /// Backups are named.
    pub(crate) shows_backups: bool,
    /// Entries that leave the source are named.
    pub(crate) shows_removals: bool,
    /// Entries that a rule hides or protects are named, with the rule.
    pub(crate) shows_rulings: bool,
    /// The rules of the run, for that.
    pub(crate) rules: Arc<Rules>,
    /// Links that are replaced as unsafe are named.
    pub(crate) shows_replaced_links: bool,
    /// `--json`.
    pub(crate) json: Option<Opening>,
    /// Whether a person may be watching: flush each line, and move the bar away for it.
    pub(crate) interactive: bool,
}

/// Most entries that are named on the screen as lacking attributes.
const MOST_LACKING: u64 = 10;

/// Standard output and its first error.
struct Results {
    out: BufWriter<Box<dyn Write + Send>>,
    failed: Option<io::Error>,
}

impl Console {
    /// Opens the console on `out`.
    pub(crate) fn on(out: Box<dyn Write + Send>, voice: Voice, bar: Arc<Bar>, log: Option<Log>) -> Self {
        let results = Mutex::new(Results { out: BufWriter::new(out), failed: None });
        let (json, start) = voice.json.as_ref().map(Stream::begin).unzip();
        let (told, lacking) = Default::default();
        let console = Self { voice, results, told, json, bar, log, lacking };
        if let Some(start) = start {
            console.print_line(&start);
        }
        console
    }

    /// Prints a line of the result.
    pub(crate) fn result(&self, line: &str) {
        if self.json.is_none() {
            self.print_line(line.as_bytes());
        }
    }

    /// Takes the contents that the run compared, for the end of the stream of events.
    pub(crate) fn compared(&self, contents: StateUse) {
        if let Some(json) = &self.json {
            json.compared(contents);
        }
    }

    /// Ends the stream of events, if there is one.
    pub(crate) fn end_stream(&self, outcome: &Result<Summary, SyncError>, code: u8, error: Option<&str>) {
        self.stream(|json| json.end(outcome, code, error));
    }

    /// Prints a line of the stream of events, if there is one.
    fn stream(&self, line: impl FnOnce(&Stream) -> Vec<u8>) {
        if let Some(json) = &self.json {
            self.print_line(&line(json));
        }
    }

    fn print_line(&self, line: &[u8]) {
        if self.voice.quiet {
            return;
        }
        self.aside(self.voice.interactive, || {
            let mut results = self.results();
            results.write(&[line, b"\n"].concat());
            if self.voice.interactive {
                results.flush();
            }
        });
    }

    /// Ends the list of entries: those that are not done yet never will be.
    pub(crate) fn end_list(&self) {
        self.list(|told, due| told.flush(due));
    }

    /// Changes the list, and prints the lines that are due then.
    fn list(&self, change: impl FnOnce(&mut Told, &mut dyn FnMut(Line))) {
        // Held while printing: the next line may be due in another thread.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut told, &mut |line| self.tell(&line));
    }

    fn tell(&self, line: &Line) {
        match line {
            Line::Entry(planned, ended) => {
                self.stream(|json| json.entry(planned, ended));
                if let Some(line) = self.voice.listing.line(planned, ended).filter(|_| self.json.is_none()) {
                    self.print_line(&line);
                }
                if let Some(log) = &self.log {
                    log.entry(planned, ended);
                }
            }
            Line::Text(text) => {
                self.note(text);
                self.result(text);
            }
        }
    }

    /// Writes a line to the log file alone.
    pub(crate) fn note(&self, line: &str) {
        if let Some(log) = &self.log {
            log.line(in_place_of_rsync::line(line).as_bytes());
        }
    }

    /// Returns why the log file could not be written, if that is so.
    pub(crate) fn log_failure(&self) -> Option<io::Error> {
        self.log.as_ref().and_then(Log::failure)
    }

    /// Prints a line of talk: a warning or an error.
    pub(crate) fn talk(&self, line: &str) {
        self.note(line);
        self.aside(true, || say(line));
    }

    /// Prints a failure. Of entries that lack attributes, which may be all, only the first are named on the
    /// screen without `-v`.
    fn failed(&self, problem: &Problem) {
        let line = format!("dsync: {}", messages::problem(problem));
        let is_lacking = matches!(problem.cause, Cause::Lacking { .. });
        if !is_lacking || self.voice.listing.verbose > 0 {
            return self.talk(&line);
        }
        match self.lacking.fetch_add(1, Ordering::Relaxed) {
            count if count < MOST_LACKING => self.talk(&line),
            MOST_LACKING => {
                self.note(&line);
                self.aside(true, || say("dsync: -v names the other entries that lack attributes, too"));
            }
            _ => self.note(&line),
        }
    }

    /// Removes the bar and flushes the output.
    ///
    /// # Errors
    /// The first error of standard output during the run.
    pub(crate) fn close(&self) -> Result<(), io::Error> {
        self.bar.clear();
        let mut results = self.results();
        results.flush();
        results.failed.take().map_or(Ok(()), Err)
    }

    fn aside(&self, needed: bool, print: impl FnOnce()) {
        if needed { self.bar.aside(print) } else { print() }
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Console {
    fn shell_says(&self, lines: &[String]) {
        lines.iter().for_each(|line| self.talk(&escape_text(line)));
    }

    fn peer_lacks(&self, lacks: &[String]) {
        if self.voice.listing.verbose > 0 {
            lacks
                .iter()
                .for_each(|note| self.talk(&format!("dsync: at the remote end {}", escape_text(note))));
        }
    }

    fn connected(&self, connection: &Connection) {
        self.stream(|json| json.connected(connection));
        tracing::debug!(
            target: "dsync::connection",
            carrier = %connection.carrier,
            reason = connection.reason.as_deref().unwrap_or("no other was allowed"),
            "connected"
        );
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        // The next session plans anew what this one has not done.
        self.end_list();
        self.stream(|json| json.retry(reconnect));
        self.bar.session_broke();
        self.talk(&format!("dsync: {}", messages::reconnecting(reconnect)));
    }

    fn event(&self, event: &Event) {
        match event {
            Event::Planned(planned) => {
                log_plan(planned);
                self.list(|told, due| told.plan(planned, due));
            }
            Event::LeftAlone(left) if self.json.is_some() => self.stream(|json| json.left_alone(left)),
            Event::LeftAlone(left) if self.voice.shows_left_alone => {
                self.list(|told, due| told.text(messages::left_alone(left), due));
            }
            Event::BackedUp(made) if self.json.is_some() => self.stream(|json| json.backed_up(made)),
            Event::BackedUp(made) if self.voice.shows_backups => {
                self.list(|told, due| told.text(messages::backed_up(made), due));
            }
            Event::Removed(path) if self.json.is_some() => self.stream(|json| json.removed(path)),
            Event::Removed(path) if self.voice.shows_removals => {
                self.list(|told, due| told.text(messages::removed(path), due));
            }
            Event::Ruling(ruling) if self.voice.shows_rulings => {
                let line = messages::ruling(ruling, &self.voice.rules);
                line.into_iter().for_each(|line| self.list(|told, due| told.text(line, due)));
            }
            Event::Ended(ended) => self.list(|told, due| told.end(*ended, due)),

            Event::Failed(problem) if self.json.is_some() && messages::is_replaced_link(problem) => {}
            Event::Failed(problem) if self.json.is_some() => {
                self.stream(|json| json.problem(problem));
                if problem.cause != Cause::Skipped {
                    self.failed(problem);
                }
            }
            // rsync tells of links that it leaves out as unsafe only when it lists names.
            Event::Failed(problem)
                if problem.cause == Cause::Skipped && problem.operation != Operation::ReadBasis =>
            {
                let hidden = match problem.operation {
                    Operation::CreateLink => self.voice.listing.verbose == 0,
                    Operation::FollowLink => !self.voice.shows_replaced_links,
                    Operation::ReadDirectory => false,
                    _ => self.voice.hides_nonregular,
                };
                if !hidden {
                    self.list(|told, due| told.text(messages::problem(problem), due));
                }
            }
            Event::Failed(problem) => self.failed(problem),

            _ => {}
        }
    }

    fn progress(&self, progress: &Progress) {
        self.stream(|json| json.progress(progress));
        // A reader at the other end of a pipe sees the list grow.
        self.results().flush();
        self.bar.update(progress);
    }

    fn file(&self, file: &FileProgress) {
        self.bar.file(file);
    }
}

/// Writes to the log what is done with an entry and why.
fn log_plan(planned: &Planned) {
    if tracing::enabled!(target: "dsync::plan", tracing::Level::DEBUG) {
        let path: &[u8] = if planned.path.is_empty() { b"." } else { &planned.path };
        let why = listing::reasons(planned);
        // The log's writer escapes.
        tracing::debug!(target: "dsync::plan", path = %String::from_utf8_lossy(path), action = ?planned.action, why, "plan");
    }
}

impl Results {
    fn write(&mut self, text: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text).err();
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
    }
}

/// Prints a line on standard error; if even that fails, there is nobody left to tell.
pub(crate) fn say(line: &str) {
    let whole = format!("{}\n", in_place_of_rsync::line(line));
    let _ = Standard::Errors.write_all(whole.as_bytes());
}

/// Prints why the command ends without success; the program's name is in front for whoever reads it
/// in a mail.
pub(crate) fn blame(text: &str) {
    say(&format!("dsync: error: {text}"));
}

/// Prints a text on standard output that is the only result of this call.
///
/// # Errors
/// The error of standard output.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    Standard::Output.write_all(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::{Action, Changes, FileType, Operation, Planned, Problem};

    use super::*;
    use crate::bar::{Shown, tests::Page};

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns a console that lists names.
    fn listing(out: Box<dyn Write + Send>, quiet: bool, interactive: bool) -> Console {
        let listing = Listing { verbose: 1, ..Listing::default() };
        let bar = Arc::new(Bar::new(Shown::Nothing));
        Console::on(out, Voice { listing, quiet, interactive, ..Voice::default() }, bar, None)
    }

    fn created(path: &str) -> Event {
        Event::Planned(
            Planned::new(Action::Create, FileType::File, path)
                .changes(Changes::NONE)
                .target(Vec::new())
                .size(0)
                .facts(None),
        )
    }

    #[test]
    fn results_are_written_in_order_and_skipped_entries_among_them() {
        let page = Page::default();
        let console = listing(Box::new(page.clone()), false, false);
        console.event(&created("a"));
        let problem = Problem::new(Operation::Stat, "l", Cause::Skipped);
        console.event(&Event::Failed(problem));
        console.close().unwrap();
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "a\nskipping non-regular file \"l\"\n");
    }

    #[test]
    fn quiet_prints_no_results() {
        let page = Page::default();
        let console = listing(Box::new(page.clone()), true, false);
        console.event(&created("a"));
        console.close().unwrap();
        assert!(page.0.lock().unwrap().is_empty());
    }

    #[test]
    fn closed_output_is_remembered_and_never_ends_the_run() {
        let console = listing(Box::new(Broken), false, true);
        console.event(&created("a"));
        console.event(&created("b"));
        assert_eq!(console.close().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
