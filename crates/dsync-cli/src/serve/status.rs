//! `dsync serve --status`: the sessions of the server that stands, and what passed through it.
//!
//! Sessions report to their parent, a line each second in which something passed; the parent answers
//! who asks at an abstract socket named by the server's key and its configuration's path. The law: only
//! root and the server's own user get an answer, and only theirs is believed. A report is bounded, and
//! a session speaks for itself alone: one that was taken over can lie about its own line and no other.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{SHA256, digest};
use dsync_engine::{exit_code, standing::hexadecimal};
use rustix::{
    net::sockopt::socket_peercred,
    process::{Signal, kill_process},
};
use serde::{Deserialize, Serialize};

use super::{
    config::Config,
    field::value,
    metrics::{Figures, ShareFigures},
};
use crate::{
    closing,
    console::{blame, print, say},
    escape::escape_text,
    keys,
    numbers::{counted, with_commas},
    words::system_words,
};

/// A session's report to its parent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) key: String,
    /// The fingerprint of the authority that let the key in; empty for a pinned key.
    pub(super) authority: String,
    pub(super) share: String,
    pub(super) role: String,
    #[serde(flatten)]
    pub(super) passed: Passed,
}

/// The counts of what passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Passed {
    /// Entries that were listed or compared.
    pub(super) entries: u64,
    /// Files of which content was asked for.
    pub(super) files: u64,
    /// Bytes to the client.
    pub(super) sent: u64,
    /// Bytes of the client.
    pub(super) received: u64,
    /// Connections that the session has had.
    pub(super) connections: u64,
}

impl Passed {
    fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_add(other.entries),
            files: self.files.saturating_add(other.files),
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            connections: self.connections.saturating_add(other.connections),
        }
    }

    fn bytes(self) -> u64 {
        self.sent.saturating_add(self.received)
    }

    /// Describes the counts, with commas for people.
    fn describe(self) -> String {
        let Self { entries, files, sent, received, connections } = self;
        let [entries, files, sent, received] = [entries, files, sent, received].map(with_commas);
        format!("entries={entries} files={files} sent={sent} received={received} connections={connections}")
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, files, sent, received, connections } = self;
        write!(f, "entries={entries} files={files} sent={sent} received={received}")?;
        write!(f, " connections={connections}")
    }
}

impl Report {
    /// Returns the line of a session that has ended with a code, and perhaps for a reason.
    pub(super) fn line(&self, peer: &str, began: Instant, (code, why): (String, Option<&str>)) -> String {
        let seconds = began.elapsed().as_secs_f64();
        let Self { key, authority, share, role, passed } = self;
        let authority = match authority.as_str() {
            "" => String::new(),
            authority => format!(" authority={}", value(authority)),
        };
        let (key, share, role) = (value(key), value(share), value(role));
        let why = why.map_or_else(String::new, |why| format!(" why={}", value(why)));
        format!(
            "session peer={peer} key={key}{authority} share={share} role={role} {passed} seconds={seconds:.3} code={code}{why}"
        )
    }

    /// Sends the report. A parent that has gone hears nothing.
    pub(super) fn send(&self, parent: &mut UnixStream) {
        if let Ok(mut line) = serde_json::to_vec(self) {
            line.push(b'\n');
            let _ = parent.write_all(&line);
        }
    }
}

/// Calls `each` with every report of a session until it ends, or says what is none.
pub(super) fn hear(control: UnixStream, mut each: impl FnMut(Report)) {
    let mut control = BufReader::new(control);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut control).take(LONGEST_REPORT).read_until(b'\n', &mut line);
        if read.is_err() || line.last() != Some(&b'\n') {
            return;
        }
        match serde_json::from_slice(&line) {
            Ok(report) => each(report),
            Err(_) => return,
        }
    }
}

/// The state of a server apart from its sessions.
pub(super) struct Now {
    /// Connections whose client has proved no key yet.
    pub(super) strangers: usize,
    /// The sum of the text of the configuration that new sessions get.
    pub(super) configuration: String,
}

/// The sessions of a server.
#[derive(Default)]
pub(super) struct Board(Mutex<Noted>);

/// The sessions that last, and the sums of those that have ended.
#[derive(Default)]
struct Noted {
    sessions: BTreeMap<u32, Present>,
    totals: BTreeMap<String, Total>,
    refused: Refused,
}

/// Connections that got no session since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Refused {
    /// Their clients proved no key.
    pub(super) handshakes: u64,
    /// There were too many without a key.
    pub(super) crowd: u64,
}

/// A session that has not ended.
struct Present {
    peer: String,
    began: Instant,
    report: Report,
    heard: Instant,
    bytes_per_second: u64,
}

/// A share's sessions that have ended since the server started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Total {
    sessions: u64,
    /// By exit code; `signal` of those that were killed.
    #[serde(default)]
    codes: BTreeMap<String, u64>,
    #[serde(flatten)]
    passed: Passed,
}

/// The answer of a server.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    version: String,
    /// The sum of the text of the configuration that new sessions get.
    #[serde(default)]
    configuration: String,
    sessions: Vec<Shown>,
    /// Connections whose client has proved no key yet.
    strangers: usize,
    #[serde(default)]
    refused: Refused,
    /// By share, of sessions that have ended.
    totals: BTreeMap<String, Total>,
}

/// A session in an answer.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    process: u32,
    peer: String,
    seconds: u64,
    #[serde(flatten)]
    report: Report,
    /// Bytes of both directions in the last second in which some passed, if that was just now.
    bytes_per_second: u64,
}

impl Board {
    /// Takes a report of a session.
    pub(super) fn note(&self, process: u32, peer: &str, report: Report) {
        let now = Instant::now();
        let mut noted = lock(&self.0);
        let present = noted.sessions.entry(process).or_insert_with(|| Present {
            peer: peer.to_owned(),
            began: now,
            report: Report::default(),
            heard: now,
            bytes_per_second: 0,
        });

        let passed = report.passed.bytes().saturating_sub(present.report.passed.bytes());
        let millis = now.duration_since(present.heard).as_millis().max(1);
        let rate = u128::from(passed) * 1000 / millis;
        present.bytes_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
        (present.report, present.heard) = (report, now);
    }

    /// Counts a connection that got no session.
    pub(super) fn refuse(&self, count: impl FnOnce(&mut Refused) -> &mut u64) {
        *count(&mut lock(&self.0).refused) += 1;
    }

    /// Takes the end of a session, with its exit code; `None` if it was killed. Returns its last
    /// report, if it made one.
    pub(super) fn end(&self, process: u32, code: Option<i32>) -> Option<Report> {
        let mut noted = lock(&self.0);
        let Noted { sessions, totals, .. } = &mut *noted;
        let Present { report, .. } = sessions.remove(&process)?;
        if report.share.is_empty() || report.role.is_empty() {
            return Some(report);
        }

        // The names are the sessions' word.
        if totals.len() < MOST_TOTALS || totals.contains_key(&report.share) {
            let total = totals.entry(report.share.clone()).or_default();
            total.sessions += 1;
            let code = code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
            *total.codes.entry(code).or_default() += 1;
            total.passed = total.passed.plus(report.passed);
        }
        Some(report)
    }

    /// Returns the answer to who asks.
    fn status(&self, Now { strangers, configuration }: Now) -> Status {
        let now = Instant::now();
        let shown = |(process, present): (&u32, &Present)| Shown {
            process: *process,
            peer: present.peer.clone(),
            seconds: now.duration_since(present.began).as_secs(),
            report: present.report.clone(),
            bytes_per_second: if now.duration_since(present.heard) > STALE {
                0
            } else {
                present.bytes_per_second
            },
        };
        let noted = lock(&self.0);
        let sessions = noted.sessions.iter().map(shown).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (refused, totals) = (noted.refused, noted.totals.clone());
        Status { version, configuration, sessions, strangers, refused, totals }
    }

    /// Returns the figures for metrics: unlike the totals, they grow while sessions last.
    pub(super) fn figures(&self, strangers: usize) -> Figures {
        let noted = lock(&self.0);
        let mut figures = Figures { strangers, refused: noted.refused, ..Figures::default() };
        for (share, Total { codes, passed, .. }) in &noted.totals {
            let ended = ShareFigures { present: 0, ended: codes.clone(), passed: *passed };
            figures.shares.insert(share.clone(), ended);
        }
        for Present { report, .. } in noted.sessions.values() {
            let is_admitted = !report.share.is_empty() && !report.role.is_empty();
            let room = figures.shares.len() < MOST_TOTALS || figures.shares.contains_key(&report.share);
            if is_admitted && room {
                let share = figures.shares.entry(report.share.clone()).or_default();
                share.present += 1;
                share.passed = share.passed.plus(report.passed);
            }
        }
        figures
    }

    /// Answers who asks by this name, for as long as the process lives.
    pub(super) fn answer(&self, server: &str, now: impl Fn() -> Now) {
        let Ok(address) = address(server) else { return };
        let mut is_said = false;

        loop {
            // A server that lets its sessions end has the name until the last one has.
            let listener = match UnixListener::bind_addr(&address) {
                Ok(listener) => listener,
                Err(error) => {
                    if !std::mem::replace(&mut is_said, true) {
                        say(&format!("dsync: {}", unnamed(&error)));
                    }
                    thread::sleep(AGAIN);
                    continue;
                }
            };

            for asking in listener.incoming() {
                match asking {
                    Ok(asking) if is_trusted(&asking) => {
                        let _ = tell(asking, &self.status(now()));
                    }
                    Ok(_) => {}
                    // Most likely out of descriptors.
                    Err(_) => thread::sleep(AGAIN),
                }
            }
        }
    }
}

/// Says why nobody is answered yet.
fn unnamed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another server with this configuration still stands: until it has ended it answers \
             'dsync serve --status' and 'dsync enroll' in this one's place"
                .to_owned()
        }
        _ => format!("'dsync serve --status' gets no answer: {}", system_words(error)),
    }
}

/// Sends the answer; who does not read it keeps nobody waiting for long.
fn tell(mut asking: UnixStream, status: &Status) -> io::Result<()> {
    asking.set_write_timeout(Some(PATIENCE))?;
    asking.write_all(&serde_json::to_vec(status)?)
}

/// Asks the server of a configuration and prints its answer; returns the exit code.
pub(super) fn run(path: &Path, config: &Config, as_json: bool) -> u8 {
    let Some(server) = &config.server else {
        blame("the configuration has no [server], so none stands");
        return exit_code::USAGE;
    };
    let asked = keys::read_public(&server.identity).and_then(|(key, owner)| {
        ask(&name(&key.fingerprint(), path), owner).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "no server with this configuration stands on this machine".to_owned()
            }
            _ => format!("the server does not answer: {}", system_words(&error)),
        })
    });

    let shown = match asked {
        Ok(text) if as_json => print(&[text.as_slice(), b"\n"].concat()),
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(status) => print(describe(&status).as_bytes()),
            Err(_) => {
                blame("the server is of another version; --json prints its answer");
                return exit_code::INCOMPATIBLE;
            }
        },
        Err(why) => {
            blame(&escape_text(&why));
            return exit_code::SOCKET;
        }
    };
    closing::printed(shown, exit_code::OK)
}

/// Tells the server of this name, whose key belongs to `owner`, to read its configuration anew; returns
/// whether one stands and then has the text of this `sum`.
pub(super) fn tell_to_reload(server: &str, owner: u32, sum: &str) -> bool {
    let stream = address(server).and_then(|address| UnixStream::connect_addr(&address));
    let trusted = stream.ok().filter(|stream| is_server(stream, owner));
    // The process that listens has the socket that was just connected to, so its number is its own.
    let process = trusted.and_then(|stream| socket_peercred(&stream).ok()).map(|peer| peer.pid);
    // A server of another process namespace has no number here, and 0 would be this process's group.
    let process = process.filter(|process| process.as_raw_nonzero().get() > 1);
    let is_told = process.is_some_and(|process| kill_process(process, Signal::HUP).is_ok());

    let until = Instant::now() + PATIENCE;
    while is_told && Instant::now() < until {
        let answer = ask(server, owner).ok();
        let status = answer.and_then(|text| serde_json::from_slice::<Status>(&text).ok());
        if status.is_some_and(|status| status.configuration == sum) {
            return true;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    false
}

/// Returns the name by which a server is found: of its key and of its configuration's path, so that two
/// servers with one key have two.
#[expect(clippy::disallowed_methods, reason = "the operator's own path, by which nothing is opened")]
pub(super) fn name(fingerprint: &str, config: &Path) -> String {
    let real = config.canonicalize().unwrap_or_else(|_| config.to_owned());
    let path = hexadecimal(digest(&SHA256, real.as_os_str().as_bytes()).as_ref());
    format!("{fingerprint}/{}", path.get(..PATH_DIGITS).unwrap_or_default())
}

/// Returns the answer of the server of this name, whose key belongs to `owner`.
fn ask(server: &str, owner: u32) -> io::Result<Vec<u8>> {
    let stream = UnixStream::connect_addr(&address(server)?)?;
    if !is_server(&stream, owner) {
        let text = "another user has the server's name";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut text)?;
    if text.is_empty() {
        let text = "it answers root and its own user only";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(text)
}

fn describe(status: &Status) -> String {
    let sessions = counted(status.sessions.len() as u64, "session", "sessions");
    let strangers = counted(status.strangers as u64, "connection", "connections");
    let mut lines = vec![format!("{sessions}, {strangers} without a key")];
    for Shown { process, peer, seconds, report, bytes_per_second } in &status.sessions {
        let Report { key, share, role, passed, .. } = report;
        let (key, share, role) = (value(key), value(share), value(role));
        let (passed, rate) = (passed.describe(), with_commas(*bytes_per_second));
        lines.push(format!(
            "  key={key} share={share} role={role} peer={peer} process={process} seconds={seconds} {passed} \
             rate={rate}/s"
        ));
    }
    for (share, Total { sessions, passed, .. }) in &status.totals {
        let sessions = counted(*sessions, "session", "sessions");
        let share = value(share);
        lines.push(format!("ended in share {share}: {sessions} {}", passed.describe()));
    }
    lines.iter().map(|line| format!("{}\n", escape_text(line))).collect()
}

/// Returns whether the process at the other end is root's or this user's.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// Returns whether the process at the other end is the server of a user who is believed: root, this user, or
/// the `owner` of the server's key, whose server root asks.
fn is_server(stream: &UnixStream, owner: u32) -> bool {
    is_trusted(stream) || socket_peercred(stream).is_ok_and(|peer| peer.uid.as_raw() == owner)
}

fn address(server: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("dsync/{server}/status"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of the longest report: keys and shares of a configuration have names of at most 64 bytes.
const LONGEST_REPORT: u64 = 1024;
/// Bytes of the longest answer: more sessions than a server can have.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Shares that totals are kept of.
const MOST_TOTALS: usize = 4096;
/// Age of a report from which on its rate is no longer the present one.
const STALE: Duration = Duration::from_secs(3);
/// Time for the other end to answer, or to read.
const PATIENCE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(1);
/// Time between two looks whether a server has read its configuration.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Digits of a path's sum in a name: no two paths of a machine share them.
const PATH_DIGITS: usize = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn report(share: &str, sent: u64) -> Report {
        let passed = Passed { entries: sent / 5, sent, ..Passed::default() };
        let (key, role) = ("web1".into(), "append".into());
        Report { key, authority: String::new(), share: share.into(), role, passed }
    }

    #[test]
    fn a_session_that_says_what_is_no_report_is_heard_no_more() {
        for (said, heard) in [
            (b"{\"key\":\"a\"}\n{\"key\":\"b\",\"new\":1}\n".to_vec(), 2),
            (b"{\"key\":\"a\"}\nk\n{\"key\":\"b\"}\n".to_vec(), 1),
            (b"{\"key\":\"a\"}".to_vec(), 0),
            ([b"{\"key\":\"".as_slice(), &[b'a'; 2000], b"\"}\n{\"key\":\"b\"}\n"].concat(), 0),
        ] {
            let (mut theirs, ours) = UnixStream::pair().unwrap();
            theirs.write_all(&said).unwrap();
            drop(theirs);
            let mut reports = 0;
            hear(ours, |_| reports += 1);
            assert_eq!(reports, heard, "{}", String::from_utf8_lossy(&said));
        }
    }

    #[test]
    fn ended_sessions_count_for_their_share() {
        let board = Board::default();
        for (process, share, sent) in [(1, "a", 10), (2, "a", 5), (3, "b", 20), (4, "", 0)] {
            board.note(process, "peer", report(share, 0));
            board.note(process, "peer", report(share, sent));
        }
        let status = |strangers| board.status(Now { strangers, configuration: String::new() });
        assert_eq!(status(2).sessions.len(), 4);
        let shares = board.figures(0).shares;
        assert_eq!((shares["a"].present, shares["a"].passed.sent), (2, 15));
        for process in 1..=3 {
            let last = board.end(process, Some(0)).unwrap();
            assert_eq!((last.key.as_str(), last.passed.sent), ("web1", [10, 5, 20][process as usize - 1]));
        }
        assert_eq!(board.end(3, None), None);
        let status = status(0);
        assert_eq!(status.sessions.iter().map(|shown| shown.process).collect::<Vec<_>>(), [4]);
        let codes = |sessions| BTreeMap::from([("0".to_owned(), sessions)]);
        let total =
            |sessions, sent| Total { sessions, codes: codes(sessions), passed: report("", sent).passed };
        assert_eq!(status.totals, BTreeMap::from([("a".into(), total(2, 15)), ("b".into(), total(1, 20))]));
        let shares = board.figures(0).shares;
        assert_eq!((shares["a"].present, shares["a"].passed.sent), (0, 15));
        assert_eq!(shares["a"].ended, codes(2));
        let read: Status = serde_json::from_slice(&serde_json::to_vec(&status).unwrap()).unwrap();
        assert_eq!(read, status);
    }
}
