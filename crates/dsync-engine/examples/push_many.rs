//! Many pushes at once, as a service makes them: `push_many JOBS DIRECTORY HOST:DIRECTORY`. Job N
//! pushes DIRECTORY to DIRECTORY/N of the host.
//!
//! Shows that jobs which are given clones of one [`Resources`] share its threads and its memory,
//! and prints the most threads that the process had. `DSYNC_SHELL`, `DSYNC_PROGRAM` and
//! `DSYNC_TRANSPORT` name another ssh, remote program or carrier.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use dsync_engine::{
    CancelToken, ConnectOptions, Destination, Event, EventLevel, Job, Observer, Operand, Resources, Source,
    SyncOptions, TransportChoice,
};

/// Keeps the most threads that this process had whenever a job told of anything.
#[derive(Default)]
struct MostThreads(AtomicUsize);

#[expect(clippy::disallowed_methods, reason = "the system's own directory has no links of others")]
impl Observer for MostThreads {
    fn event(&self, _: &Event) {
        let now = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
        self.0.fetch_max(now, Ordering::Relaxed);
    }
}

fn main() -> ExitCode {
    let [jobs, directory, target] = env::args_os().skip(1).collect::<Vec<_>>().try_into().unwrap_or_default();
    let jobs = jobs.to_str().and_then(|jobs| jobs.parse().ok()).unwrap_or(0);
    let (most, resources) = (MostThreads::default(), Resources::default());
    let push = |number| {
        let job = job(number, &directory, &target)?.resources(resources.clone());
        job.run(&most, &CancelToken::new()).map_err(|error| error.to_string())
    };

    let failed = thread::scope(|scope| {
        let push = &push;
        let running: Vec<_> = (0..jobs).map(|number| scope.spawn(move || push(number))).collect();
        let ended = running.into_iter().map(|job| job.join().unwrap_or_else(|_| Err("a panic".to_owned())));
        ended.filter(|outcome| !matches!(outcome, Ok(summary) if summary.exit_code() == 0)).count()
    });
    println!("{} threads at most, {failed} of {jobs} jobs failed", most.0.into_inner());
    ExitCode::from(u8::from(jobs == 0 || failed > 0))
}

/// Describes one job.
fn job(number: usize, directory: &OsStr, target: &OsStr) -> Result<Job, String> {
    let Operand::Remote { host, mut path } = Operand::parse(target).map_err(|error| error.to_string())?
    else {
        return Err(format!("'{}' names no host", target.display()));
    };
    path.push(format!("/{number}"));

    let mut connect = ConnectOptions::default();
    if let Ok(shell) = env::var("DSYNC_SHELL") {
        connect.shell = shell.split_whitespace().map(OsString::from).collect();
    }
    if let Ok(program) = env::var("DSYNC_PROGRAM") {
        connect.remote_program = program;
    }
    connect.transport = match env::var("DSYNC_TRANSPORT").as_deref() {
        Ok("quic") => TransportChoice::Quic,
        Ok("tls") => TransportChoice::Tls,
        Ok("ssh") => TransportChoice::Ssh,
        _ => TransportChoice::Auto,
    };
    let source = Source::Local { paths: vec![PathBuf::from(directory).join("")] };
    let destination = Destination::Remote { host, path };
    Ok(Job::new(source, destination)
        .options(SyncOptions::archive().mkpath(true).events(EventLevel::All))
        .connect(connect))
}
