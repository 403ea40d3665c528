//! A local mirror with a progress line: `mirror_with_progress SOURCE DESTINATION`.
//!
//! Makes DESTINATION like the content of SOURCE, deletes entries that are gone, and prints its
//! progress about four times a second. The engine prints nothing by itself: all output comes from
//! this file.

use std::{env, io::Write, path::PathBuf, process::ExitCode, sync::Mutex};

use dsync_engine::{
    CancelToken, Destination, Event, EventLevel, Job, Observer, Progress, Source, SyncOptions,
};

/// Prints progress on one line and problems on lines of their own.
struct Terminal {
    // The engine calls from several threads; a line must not be torn.
    stderr: Mutex<std::io::Stderr>,
}

impl Observer for Terminal {
    fn event(&self, event: &Event) {
        if let (Event::Failed(problem), Ok(mut stderr)) = (event, self.stderr.lock()) {
            let _ = writeln!(stderr, "\r{}: {:?}", problem.path, problem.cause);
        }
    }

    fn progress(&self, progress: &Progress) {
        // Totals grow until the listing is complete: a percentage before that would run backwards.
        let percent = match progress.bytes_needed {
            0 => 100,
            needed => progress.bytes_done.saturating_mul(100) / needed,
        };
        let known = if progress.totals_final { format!("{percent:>3} %") } else { "  ...".into() };
        if let Ok(mut stderr) = self.stderr.lock() {
            let _ = write!(stderr, "\r{known} {} of {} files", progress.files_done, progress.files_needed);
        }
    }
}

fn main() -> ExitCode {
    let [source, destination] =
        env::args_os().skip(1).map(PathBuf::from).collect::<Vec<_>>().try_into().unwrap_or_default();
    if destination.as_os_str().is_empty() {
        eprintln!("usage: mirror_with_progress SOURCE DESTINATION");
        return ExitCode::from(1);
    }
    // A slash at the end stands for what is in the directory, as on the command line.
    let source = Source::Local { paths: vec![source.join("")] };
    let destination = Destination::Local { path: destination };
    let options = SyncOptions::archive().delete(true).events(EventLevel::Problems);

    let observer = Terminal { stderr: Mutex::new(std::io::stderr()) };
    match Job::new(source, destination).options(options).run(&observer, &CancelToken::new()) {
        Ok(summary) => {
            eprintln!();
            println!(
                "{} files transferred, {} bytes new, {} entries deleted, in {:.1} s",
                summary.report.files_transferred,
                summary.report.literal_bytes,
                summary.report.deleted.total(),
                summary.elapsed.as_secs_f64()
            );
            ExitCode::from(summary.exit_code())
        }
        Err(error) => {
            eprintln!("\rcannot mirror: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
