//! A nightly push as a backup product would embed it: `push_to_host DIRECTORY HOST:DIRECTORY`.
//!
//! Shows what such a product needs: a host checked before anything runs, typed options, a deadline
//! by cancellation, the failures of single files collected apart from the error of the run, and a
//! verdict that does not read any text. `DSYNC_SHELL` and `DSYNC_PROGRAM` name another ssh or
//! remote program.

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use dsync_engine::{
    CancelToken, Cause, ConnectOptions, Connection, DeleteLimit, Destination, Durability, Event, Job,
    Observer, Operand, Problem, Source, Summary, SyncError, SyncOptions,
};

/// The backup window: work that is not done by then is cancelled, and continued the next night.
const WINDOW: Duration = Duration::from_secs(6 * 60 * 60);

/// Keeps the facts for the report of the night.
#[derive(Default)]
struct Night {
    failed: Mutex<Vec<Problem>>,
    carrier: Mutex<Option<Connection>>,
}

impl Observer for Night {
    fn connected(&self, connection: &Connection) {
        *self.carrier.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
    }

    fn event(&self, event: &Event) {
        if let Event::Failed(problem) = event {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(problem.clone());
        }
    }
}

fn main() -> ExitCode {
    let [directory, target] = env::args_os().skip(1).collect::<Vec<_>>().try_into().unwrap_or_default();
    let job = match job(directory, &target) {
        Ok(job) => job,
        Err(reason) => {
            eprintln!("{reason}\nusage: push_to_host DIRECTORY [USER@]HOST:DIRECTORY");
            return ExitCode::from(1);
        }
    };
    let night = Night::default();
    let result = run_until(job, &night, WINDOW);
    report(&night, &result)
}

/// Describes the run; nothing is started yet.
fn job(directory: OsString, target: &OsString) -> Result<Job, String> {
    let Operand::Remote { host, path } = Operand::parse(target).map_err(|error| error.to_string())? else {
        return Err(format!("'{}' names no host", target.display()));
    };
    let options = SyncOptions::archive()
        .delete(true)
        // A backup that reports success must be on the disk.
        .durability(Durability::Batch)
        // A wrong source directory must not empty the backup.
        .max_delete(Some(DeleteLimit::Entries(10_000)));
    let mut connect = ConnectOptions::default().timeout(Duration::from_secs(120));
    if let Ok(shell) = env::var("DSYNC_SHELL") {
        connect.shell = shell.split_whitespace().map(OsString::from).collect();
    }
    if let Ok(program) = env::var("DSYNC_PROGRAM") {
        connect.remote_program = program;
    }
    let source = Source::Local { paths: vec![PathBuf::from(directory).join("")] };
    Ok(Job::new(source, Destination::Remote { host, path }).options(options).connect(connect))
}

/// Runs the job and cancels it at the end of the window.
fn run_until(job: Job, night: &Night, window: Duration) -> Result<Summary, SyncError> {
    let cancel = CancelToken::new();
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let token = cancel.clone();
        scope.spawn(move || {
            if over.recv_timeout(window) == Err(mpsc::RecvTimeoutError::Timeout) {
                token.cancel();
            }
        });
        let result = job.run(night, &cancel);
        drop(done);
        result
    })
}

/// Says how the night went; the exit code is the verdict.
fn report(night: &Night, result: &Result<Summary, SyncError>) -> ExitCode {
    if let Some(connection) = &*night.carrier.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("carried by {}", connection.carrier);
    }
    let failed = night.failed.lock().unwrap_or_else(PoisonError::into_inner);
    let lost =
        failed.iter().filter(|problem| !matches!(problem.cause, Cause::Vanished | Cause::Changed)).count();
    println!("{} files not saved, {} were changing or gone", lost, failed.len() - lost);
    match result {
        Ok(summary) => {
            println!(
                "{} files saved, {} bytes sent",
                summary.report.files_transferred, summary.traffic.sent_bytes
            );
            ExitCode::from(summary.exit_code())
        }
        Err(SyncError::Cancelled) => {
            println!("the window closed before the end");
            ExitCode::from(SyncError::Cancelled.exit_code())
        }
        Err(error) => {
            eprintln!("the run failed: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
