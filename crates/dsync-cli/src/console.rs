//! The two streams: results on standard output, messages on standard error, and the bar that
//! neither may tear.
//!
//! Writing can fail at any time (`dsync ... | head -1`, a full disk behind a redirection). A run is
//! worth more than its listing, so it continues; the failure is remembered and becomes exit code 13
//! at the end. Nothing here uses `println!`, which would panic.

use std::{
    io::{self, BufWriter, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use dsync_engine::{Cause, Connection, Event, Observer, Operation, Planned, Progress, Reconnect};

use crate::{
    bar::Bar,
    escape::Escaped,
    listing::{self, Listing},
    messages,
};

/// The console that reports a run.
pub(crate) struct Console {
    listing: Listing,
    quiet: bool,
    results: Mutex<Results>,
    /// Whether results are seen at once: flush each line, and move the bar away for it.
    interactive: bool,
    bar: Option<Bar>,
}

/// Standard output and its first error.
struct Results {
    out: BufWriter<Box<dyn Write + Send>>,
    failed: Option<io::Error>,
}

impl Console {
    /// Opens the console on the process's streams.
    pub(crate) fn new(listing: Listing, quiet: bool, interactive: bool, bar: Option<Bar>) -> Self {
        Self::on(Box::new(io::stdout()), listing, quiet, interactive, bar)
    }

    fn on(
        out: Box<dyn Write + Send>,
        listing: Listing,
        quiet: bool,
        interactive: bool,
        bar: Option<Bar>,
    ) -> Self {
        let results = Mutex::new(Results { out: BufWriter::new(out), failed: None });
        Self { listing, quiet, results, interactive, bar }
    }

    /// Prints a line of the result.
    pub(crate) fn result(&self, line: &str) {
        if self.quiet {
            return;
        }
        self.aside(self.interactive, || {
            let mut results = self.results();
            results.write(format_args!("{line}\n"));
            if self.interactive {
                results.flush();
            }
        });
    }

    /// Prints a message: a warning or an error.
    pub(crate) fn talk(&self, line: &str) {
        self.aside(true, || say(line));
    }

    /// Removes the bar and flushes the output.
    ///
    /// # Errors
    /// The first error of standard output during the run.
    pub(crate) fn close(&self) -> Result<(), io::Error> {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
        let mut results = self.results();
        results.flush();
        results.failed.take().map_or(Ok(()), Err)
    }

    fn aside(&self, needed: bool, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) if needed => bar.aside(print),
            _ => print(),
        }
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Console {
    fn connected(&self, connection: &Connection) {
        tracing::debug!(
            carrier = %connection.carrier,
            reason = connection.reason.as_deref().unwrap_or("no other was allowed"),
            "connected"
        );
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        self.talk(&format!("dsync: {}", messages::reconnecting(reconnect)));
    }

    fn event(&self, event: &Event) {
        match event {
            Event::Planned(planned) => {
                log_plan(planned);
                if let Some(line) = self.listing.line(planned) {
                    self.result(&line);
                }
            }
            // rsync reports links that it considers unsafe only when it lists its actions.
            Event::Failed(problem)
                if problem.cause == Cause::Skipped
                    && problem.operation == Operation::CreateLink
                    && self.listing.verbose == 0 => {}
            Event::Failed(problem) if problem.cause == Cause::Skipped => {
                self.result(&messages::problem(problem));
            }
            Event::Failed(problem) => self.talk(&format!("dsync: {}", messages::problem(problem))),
            _ => {}
        }
    }

    fn progress(&self, progress: &Progress) {
        // A reader at the other end of a pipe sees the list grow.
        self.results().flush();
        if let Some(bar) = &self.bar {
            bar.update(progress);
        }
    }
}

/// Writes to the log what is done with an entry and why.
fn log_plan(planned: &Planned) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let path: &[u8] = if planned.path.is_empty() { b"." } else { &planned.path };
        let why = listing::reasons(planned);
        tracing::debug!(path = %Escaped(path), action = ?planned.action, why, "plan");
    }
}

impl Results {
    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        if self.failed.is_none() {
            self.failed = self.out.write_fmt(text).err();
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
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints why the command ends without success; the program's name is in front for whoever reads it in a mail.
pub(crate) fn blame(text: &str) {
    say(&format!("dsync: error: {text}"));
}

/// Prints a text on standard output that is the only result of this call.
///
/// # Errors
/// The error of standard output.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use dsync_engine::{Action, Changes, FileType, Operation, Planned, Problem};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LISTING: Listing = Listing { verbose: 1, itemize: 0, sends: false };

    fn created(path: &str) -> Event {
        Event::Planned(Planned {
            action: Action::Create,
            kind: FileType::File,
            changes: Changes::NONE,
            path: path.into(),
            target: Vec::new(),
            size: 0,
        })
    }

    #[test]
    fn results_are_written_in_order_and_skipped_entries_among_them() {
        let page = Page::default();
        let console = Console::on(Box::new(page.clone()), LISTING, false, false, None);
        console.event(&created("a"));
        let problem = Problem { operation: Operation::Stat, path: b"l".to_vec(), cause: Cause::Skipped };
        console.event(&Event::Failed(problem));
        console.close().unwrap();
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "a\nskipping non-regular file \"l\"\n");
    }

    #[test]
    fn quiet_prints_no_results() {
        let page = Page::default();
        let console = Console::on(Box::new(page.clone()), LISTING, true, false, None);
        console.event(&created("a"));
        console.close().unwrap();
        assert!(page.0.lock().unwrap().is_empty());
    }

    #[test]
    fn closed_output_is_remembered_and_never_ends_the_run() {
        let console = Console::on(Box::new(Broken), LISTING, false, true, None);
        console.event(&created("a"));
        console.event(&created("b"));
        assert_eq!(console.close().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
