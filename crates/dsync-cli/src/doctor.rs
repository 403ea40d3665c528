//! `dsync doctor [HOST:]DIR`: what a run to or from there would meet, each line with what to do.
//!
//! For a remote directory the host's own `dsync doctor --json -` examines it, over the same remote
//! shell as a run; the command is constant and the path travels on its standard input, so no shell
//! reads it. The ports are tried with a dry run that asks for nothing. Nothing is kept: the trials
//! happen in a directory that is removed again.

mod examine;
mod report;

use std::{
    ffi::{OsStr, OsString},
    io::{Cursor, Read as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use dsync_engine::{
    CancelToken, ConnectError, ConnectOptions, Destination, HostAnswer, Job, Operand, RemoteHost,
    ShellStatus, Silent, Source, SyncError, SyncOptions, TransportChoice, ask_host, exit_code,
};

use self::report::{Finding, Report};
use crate::{
    address,
    bar::{Bar, Shown},
    closing::{self, show},
    console::{blame, print},
    escape::escape_text,
    flags, messages, resolve,
    rules::Rules,
    signals,
    usage::UsageError,
    words,
};

/// The text of `dsync doctor --help`.
const HELP: &str = "\
dsync doctor [OPTIONS] DIR
dsync doctor [OPTIONS] [USER@]HOST:DIR

Says what a run to or from DIR would meet, each line with what to do about it. What is tried out leaves nothing behind.
OPTIONS are those of a run that lead to the host, as -e, --dsync-path, --transport and --port.

--json prints one document for programs.
The exit code is 0, also where there are warnings, and 1 if something would not work.
";

/// Exit code when something would not work.
const FAILED: u8 = 1;

/// Carries the command out and returns the exit code: 0 also where there are warnings only.
pub(crate) fn run(words: &[OsString]) -> u8 {
    if flags::ask_for_help(words) {
        return show(HELP.as_bytes());
    }
    let json = words.iter().any(|word| word == "--json");
    let rest: Vec<OsString> = words.iter().filter(|word| *word != "--json").cloned().collect();
    if rest == ["-"] {
        return answer(json);
    }

    // An interrupted doctor still removes what it made.
    let cancel = CancelToken::new();
    let bar = Arc::new(Bar::new(Shown::Nothing));
    if let Err(error) = signals::watch(cancel.clone(), bar) {
        blame(&format!("cannot watch for signals: {}", words::system_words(&error)));
        return exit_code::START;
    }
    let report = match examine(rest, &cancel) {
        Ok(report) => report,
        Err(error) => {
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };

    let text = if json { report.to_json() } else { report.to_text() };
    let printed = print(text.as_bytes());
    let code = match (cancel.is_cancelled(), report.has_failures()) {
        (true, _) => exit_code::INTERRUPTED,
        (false, true) => FAILED,
        (false, false) => exit_code::OK,
    };
    closing::printed(printed, code)
}

/// Examines the directory whose path comes on standard input, for a doctor at the other end.
fn answer(json: bool) -> u8 {
    let mut path = Vec::new();
    if std::io::stdin().lock().take(LONGEST_PATH).read_to_end(&mut path).is_err() {
        return exit_code::FILE_IO;
    }
    let report = Report::of(examine::directory(Path::new(OsStr::from_bytes(&path))));
    let text = if json { report.to_json() } else { report.to_text() };
    show(text.as_bytes())
}

/// Bytes of a path that are read: far more than a system opens.
const LONGEST_PATH: u64 = 65_536;

fn examine(words: Vec<OsString>, cancel: &CancelToken) -> Result<Report, UsageError> {
    let flags = flags::parse(words)?;
    let [operand] = &flags.operands[..] else {
        return Err(UsageError::CommandWords {
            command: "doctor",
            wanted: "takes one directory, here or as HOST:DIR, and the options that reach the host"
                .to_owned(),
            file: false,
        });
    };

    if let Some(server) = address::server_of(operand) {
        let text = format!(
            "the command 'doctor' examines directories here and on hosts that ssh reaches; 'dsync {server}' shows whether that server answers, and what your key may use"
        );
        return Err(UsageError::Other { text });
    }
    let parsed = Operand::parse(operand).map_err(|error| UsageError::Operand {
        role: crate::usage::Role::Destination,
        operand: operand.clone(),
        error,
    })?;
    Ok(match parsed {
        Operand::Local(path) => Report::of(examine::directory(&path)),
        Operand::Remote { host, path } => {
            let connect = resolve::connect_options(&flags, &|name| std::env::var_os(name))?;
            remote(&host, &path, &connect, cancel)
        }
    })
}

/// Examines a host and a directory on it.
fn remote(host: &RemoteHost, path: &OsStr, connect: &ConnectOptions, cancel: &CancelToken) -> Report {
    let began = Instant::now();
    let answer = match ask(host, path, connect, cancel) {
        Ok(answer) => answer,
        Err(finding) => return Report::of(vec![finding]),
    };
    let now = SystemTime::now();
    let took = began.elapsed();

    let mut findings = Vec::new();
    let Some(theirs) = Report::from_json(&answer.output) else {
        findings.push(no_answer(host, connect, last_line(&answer)));
        return Report::of(findings);
    };

    findings.push(Finding::ok("login", format!("'{}' answered in {:.1} s", host.host, took.as_secs_f64())));
    findings.push(program(&theirs));
    findings.push(clock(&theirs, now, took.as_secs()));
    for (name, transport) in [("quic", TransportChoice::Quic), ("tls", TransportChoice::Tls)] {
        if !cancel.is_cancelled() {
            findings.push(carrier(name, transport, host, connect, cancel));
        }
    }
    findings.extend(theirs.findings);
    Report::of(findings)
}

/// Runs the host's own doctor.
fn ask(
    host: &RemoteHost,
    path: &OsStr,
    connect: &ConnectOptions,
    cancel: &CancelToken,
) -> Result<HostAnswer, Finding> {
    let command = format!("{} doctor --json -", connect.remote_program);
    let path = Cursor::new(path.as_bytes().to_vec());
    let unreached = |why: String| Finding::fail("login", why, "try the same with ssh by hand");
    match ask_host((host, connect), &command, path, connect.connect_timeout, cancel) {
        Ok(answer) if answer.status == ShellStatus::Exited(255) => {
            Err(unreached(format!("'{}' cannot be reached: {}", escape_text(&host.host), last_line(&answer))))
        }
        Ok(answer) => Ok(answer),
        Err(error @ ConnectError::LongAnswer { .. }) => Err(no_answer(host, connect, &error.to_string())),
        Err(error) => Err(unreached(messages::caused(&error))),
    }
}

fn last_line(answer: &HostAnswer) -> &str {
    answer.stderr.last().map_or("it said nothing", String::as_str)
}

/// Says why a host whose shell answered has no doctor.
fn no_answer(host: &RemoteHost, connect: &ConnectOptions, why: &str) -> Finding {
    let (program, host) = (&connect.remote_program, escape_text(&host.host));
    Finding::fail(
        "program",
        format!("'{program} doctor' did not answer on '{host}': {why}"),
        "install dsync there, or name it with --dsync-path; a shell without a terminal may have another PATH",
    )
}

fn program(theirs: &Report) -> Finding {
    let ours = Report::of(Vec::new());
    let text = format!("dsync {} (protocol {})", theirs.program, theirs.protocol);
    if theirs.protocol == ours.protocol {
        Finding::ok("program", text)
    } else {
        let why = format!("{text}, here {} (protocol {})", ours.program, ours.protocol);
        Finding::fail("program", why, "install the same version at both ends")
    }
}

/// Compares the clocks; the way there and back is the error of that.
fn clock(theirs: &Report, now: SystemTime, took_seconds: u64) -> Finding {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let apart = now.abs_diff(theirs.seconds);
    if apart <= took_seconds + 2 {
        Finding::ok("clock", format!("at most {} s apart", apart + took_seconds))
    } else {
        Finding::warn(
            "clock",
            format!("{apart} s apart"),
            "-u and --modify-window compare times of two clocks: set both by NTP",
        )
    }
}

/// Tries whether a carrier gets through: a dry run that asks for nothing.
fn carrier(
    name: &'static str,
    transport: TransportChoice,
    host: &RemoteHost,
    connect: &ConnectOptions,
    cancel: &CancelToken,
) -> Finding {
    let source = Source::Remote { host: host.clone(), paths: vec![OsString::from_vec(b".".to_vec())] };
    let destination = Destination::Local { path: PathBuf::from("/") };
    let options = SyncOptions::default().dry_run(true);
    let connect = connect.clone().transport(transport).retries(0);

    match Job::new(source, destination).options(options).connect(connect).run(&Silent, cancel) {
        Ok(_) => Finding::ok(name, format!("{} gets through", carrier_words(name))),
        Err(SyncError::Connect(error @ ConnectError::OnlyPipe { .. })) => Finding::warn(
            name,
            messages::caused(&error),
            "runs use the pipe of the remote shell, which needs no open port",
        ),
        Err(error) => Finding::warn(
            name,
            messages::failure(&error, &Rules::default()),
            "runs use another carrier; open the ports in the firewall (--port=FROM-TO says which) for speed",
        ),
    }
}

fn carrier_words(name: &str) -> &'static str {
    if name == "quic" { "QUIC over UDP" } else { "TLS over TCP" }
}
