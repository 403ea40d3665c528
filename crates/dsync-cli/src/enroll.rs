//! `dsync enroll HOST`: makes a client's key known to a server, and the server to the client, over
//! the ssh login that the person has there.
//!
//! The server's own `dsync enroll --answer` ([`enrolment`](crate::serve::enrolment)) says which lines its configuration
//! lacks and which key it has, over the same remote shell as a run; the command is constant and the
//! request travels on its standard input. The law: all that would be written at either end is shown
//! before it is, and nothing that is known already is replaced.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
    io::{Cursor, Read as _},
    path::Path,
};

use clap::Parser;
use dsync_engine::{
    CancelToken, ConnectOptions, HostAnswer, Links, Operand, RemoteHost, ShellStatus, SyncError, ask_host,
    exit_code, open_operator_file,
    standing::{PrivateKey, PublicKey},
};

use crate::{
    address::{self, PORT},
    closing,
    console::{blame, print, say},
    escape::escape_text,
    flags,
    here::is_here,
    keys::{self, Known as KnownHere, KnownHosts},
    messages, resolve,
    rules::Rules,
    serve::enrolment::{Answer, Directory, Known, Request},
    usage::UsageError,
    words::system_words,
};

/// Returns the command's words as clap knows them.
pub(crate) fn command() -> clap::Command {
    <Words as clap::CommandFactory>::command()
}

#[derive(Debug, Parser)]
#[command(name = "dsync enroll", disable_version_flag = true, max_term_width = 100)]
/// Make this user's key known to a server, and the server known here, over ssh
///
/// HOST is where ssh logs in, as a user who may write the server's configuration. Shows first what
/// would be written, and asks.
struct Words {
    /// Show what would be written, and end
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Write without asking
    #[arg(short = 'y', long)]
    yes: bool,
    /// The share; not needed where the server has one only
    #[arg(long, value_name = "NAME")]
    share: Option<String>,
    /// The key's role there; read where neither this nor the server says more
    #[arg(long, value_name = "ROLE", value_parser = ["read", "append", "keep", "write", "full"])]
    role: Option<String>,
    /// The key's directory in the share; {key} is the key's name, and the default
    #[arg(long, value_name = "DIR")]
    directory: Option<String>,
    /// Give the key all of the share
    #[arg(long, conflicts_with = "directory")]
    whole_share: bool,
    /// The key's name in the server's configuration; this host's name by default
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// The server's address for runs; by default HOST, and the port of the server's configuration
    #[arg(long, value_name = "HOST[:PORT]", value_parser = flags::name())]
    address: Option<OsString>,
    /// The server's configuration, if it is not /etc/dsync/serve.toml
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// The remote shell
    #[arg(short = 'e', long, value_name = "COMMAND")]
    rsh: Option<OsString>,
    /// The program at HOST
    #[arg(long, value_name = "PROGRAM", value_parser = flags::name())]
    dsync_path: Option<OsString>,
    #[arg(value_name = "[USER@]HOST")]
    host: OsString,
}

/// The reason why nothing, or not all, was written: the exit code, and words.
struct Failure(u8, String);

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Self(error.exit_code(), error.to_string())
    }
}

/// Carries the command out and returns the exit code.
pub(crate) fn run(words: &[OsString]) -> u8 {
    if words == ["--answer"] {
        return crate::serve::enrolment::run();
    }

    let words = std::iter::once(OsString::from("dsync enroll")).chain(words.iter().cloned());
    let outcome = match Words::try_parse_from(words) {
        Ok(words) => conduct(&words),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return closing::show(error.to_string().as_bytes());
        }
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => {
            let wanted = "takes [USER@]HOST, where ssh logs in to the server".to_owned();
            let file = is_here(OsStr::new("enroll"));
            Err(UsageError::CommandWords { command: "enroll", wanted, file }.into())
        }
        Err(error) => Err(UsageError::from_clap(&error).into()),
    };

    match outcome {
        Ok(()) => exit_code::OK,
        Err(Failure(code, why)) => {
            blame(&escape_text(&why));
            code
        }
    }
}

fn conduct(words: &Words) -> Result<(), Failure> {
    let (host, connect) = way(words)?;
    let (key, is_made) = own_key()?;
    let request = request(words, &key);

    let asked = ask((&host, &connect), &request)?;
    let server = Server::of(words, &host, &asked)?;
    let pins = server.pins()?;
    show(&request, &asked, &server, &Unwritten { pins, key: !is_made, dry_run: words.dry_run })?;
    if asked.lines.is_empty() && !pins {
        return Ok(());
    }
    if words.dry_run {
        say("dsync: nothing was written (-n)");
        return Ok(());
    }
    consent(words.yes)?;

    // The server is to know no key that nobody has.
    if !is_made {
        keep_own_key(&key)?;
    }
    // The server's end before the pin: after its refusal nothing more is written here.
    if !asked.lines.is_empty() {
        let added = ask((&host, &connect), &Request { shown: Some(asked.sum.clone()), ..request })?;
        if !added.added {
            let why = format!("'{}' did not add the lines; nothing was written here", host.host);
            return Err(Failure(exit_code::STREAM, why));
        }
        tell(&host.host, &added);
    }
    if pins {
        let known = KnownHosts::own().and_then(|known| known.add(&server.host, server.port, &server.key));
        known.map_err(|why| Failure(exit_code::FILE_IO, format!("{why}; run the same again")))?;
    }
    say(&escape_text(&format!("dsync: done; 'dsync {}' lists what this key may use", server.operand())));
    Ok(())
}

/// Returns where ssh logs in, and how.
fn way(words: &Words) -> Result<(RemoteHost, ConnectOptions), Failure> {
    let mut operand = words.host.clone();
    operand.push(":");
    let wrong = || Failure(exit_code::USAGE, format!("'{}' is no [USER@]HOST", words.host.display()));
    let Ok(Operand::Remote { host, path }) = Operand::parse(&operand) else { return Err(wrong()) };
    // Without a path it is the home directory.
    if path != "." {
        return Err(wrong());
    }

    let options = [("--rsh", &words.rsh), ("--dsync-path", &words.dsync_path)];
    let given = options.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let options = given.map(|(name, value)| [OsStr::new(name), OsStr::new("="), value].into_iter().collect());
    let flags = flags::parse(options.chain([operand]))?;
    Ok((host, resolve::connect_options(&flags, &|name| std::env::var_os(name))?))
}

/// Returns this user's key, and whether its file has it. If there is none it is made, in memory only:
/// nobody has agreed yet.
fn own_key() -> Result<(PrivateKey, bool), Failure> {
    let path = keys::own_path().map_err(|why| Failure(exit_code::FILE_IO, why))?;
    keys::read_or_draft(&path).map_err(|why| Failure(exit_code::AUTHENTICATION, why))
}

/// Writes the key that was shown to this user's file.
fn keep_own_key(key: &PrivateKey) -> Result<(), Failure> {
    let kept = keys::own_path().and_then(|path| keys::keep(&path, key));
    kept.map_err(|why| {
        Failure(exit_code::FILE_IO, format!("{why}; nothing was enrolled: run the same again"))
    })
}

fn request(words: &Words, key: &PrivateKey) -> Request {
    let directory = words.directory.clone().map(Directory::Named);
    Request {
        config: words.config.clone(),
        public: key.public().to_string(),
        key: words.key.clone(),
        host: own_name(),
        share: words.share.clone(),
        role: words.role.clone(),
        directory: if words.whole_share { Some(Directory::Whole) } else { directory },
        shown: None,
    }
}

/// Returns this host's name as the name of a key.
fn own_name() -> String {
    let mut name = String::new();
    if let Ok(file) = open_operator_file(Path::new("/proc/sys/kernel/hostname"), Links::Trusted) {
        // Without a name, or with one that is no text, the key gets the name of its purpose.
        let _ = file.take(LONGEST_NAME).read_to_string(&mut name);
    }
    let label = name.split('.').next().unwrap_or_default();
    let allowed = |letter: &char| letter.is_ascii_alphanumeric() || "_-".contains(*letter);
    let plain: String = label.chars().filter(allowed).collect();
    let plain = plain.trim_start_matches(['_', '-']);
    if plain.is_empty() { "client".to_owned() } else { plain.to_owned() }
}

/// Sends a request to the server's end and returns what is, or will be, known there.
fn ask((host, connect): (&RemoteHost, &ConnectOptions), request: &Request) -> Result<Known, Failure> {
    let command = format!("{} enroll --answer", connect.remote_program);
    let text = serde_json::to_vec(request).map_err(|error| Failure(exit_code::USAGE, error.to_string()))?;
    let time = connect.connect_timeout;
    let answer = ask_host((host, connect), &command, Cursor::new(text), time, &CancelToken::new());
    let answer = answer.map_err(|error| {
        let error = SyncError::Connect(error);
        Failure(error.exit_code(), messages::failure(&error, &Rules::default()))
    })?;

    match serde_json::from_slice(&answer.output) {
        Ok(Answer::Known(known)) if is_plain(&known) => Ok(known),
        Ok(Answer::Known(_)) => {
            let why = format!("'{}' answered with a name of more than one line", host.host);
            Err(Failure(exit_code::STREAM, why))
        }
        Ok(Answer::Refused(code, why)) => {
            // A host may give any code, but a refusal is never a success.
            let code = if code == exit_code::OK { exit_code::STREAM } else { code };
            Err(Failure(code, format!("on '{}': {why}", host.host)))
        }
        Err(_) => Err(no_answer(&host.host, connect, &answer)),
    }
}

/// Returns whether each name in an answer stays on its line: a second line would look like one of
/// this program's own, and the person decides by what is shown.
fn is_plain(known: &Known) -> bool {
    let names = [&known.config, &known.share, &known.key, &known.purpose];
    !names.into_iter().any(|name| name.contains(char::is_control))
}

/// Says why a host gave no answer of dsync's.
fn no_answer(host: &str, connect: &ConnectOptions, answer: &HostAnswer) -> Failure {
    let last = answer.stderr.last().map_or("it said nothing", String::as_str);
    let program = &connect.remote_program;
    match answer.status {
        ShellStatus::Exited(255) => Failure(
            exit_code::SOCKET,
            format!("'{host}' cannot be reached: {last}; try the same with ssh by hand"),
        ),
        ShellStatus::Exited(126 | 127) => Failure(
            exit_code::START,
            format!(
                "'{program}' cannot be run on '{host}': {last}; install dsync there, or name it with --dsync-path"
            ),
        ),
        _ => Failure(
            exit_code::INCOMPATIBLE,
            format!(
                "'{program} enroll' on '{host}' did not answer: {last}; install this version of dsync there"
            ),
        ),
    }
}

/// The server as runs reach it.
struct Server {
    host: String,
    port: u16,
    key: PublicKey,
}

impl Server {
    fn of(words: &Words, host: &RemoteHost, asked: &Known) -> Result<Self, Failure> {
        let key = asked.server.parse().map_err(|error| {
            Failure(exit_code::STREAM, format!("the server's key '{}' {error}", asked.server))
        })?;
        let (host, port) = match &words.address {
            None => (host.host.clone(), asked.port),
            Some(address) => {
                let wrong = || {
                    let why = format!("--address: '{}' is no HOST or HOST:PORT", address.display());
                    Failure(exit_code::USAGE, why)
                };
                let (host, port) = address::host_and_port(address).ok_or_else(wrong)?;
                (host, port.or(asked.port))
            }
        };
        let port = port.ok_or_else(|| {
            let why = "the server's configuration names no port: --address=HOST:PORT does";
            Failure(exit_code::USAGE, why.to_owned())
        })?;
        Ok(Self { host, port, key })
    }

    /// Returns whether the server is to be pinned; it is not if it is known.
    fn pins(&self) -> Result<bool, Failure> {
        let unusable = |why| Failure(exit_code::AUTHENTICATION, why);
        let known = KnownHosts::own().map_err(unusable)?;
        match known.find(&self.host, self.port).map_err(unusable)? {
            // Over ssh the server's key is known for sure, whoever may certify it.
            KnownHere::Nothing | KnownHere::Authorities(_) => Ok(true),
            KnownHere::Key(pinned) if pinned == self.key => Ok(false),
            KnownHere::Key(pinned) => Err(unusable(format!(
                "'{}' port {} has another key than before: fingerprint {}, known was {}. If its administrator says \
                 that this one is right, remove the line of '{}:{}' from {} and run the same again",
                self.host,
                self.port,
                self.key.fingerprint(),
                pinned.fingerprint(),
                self.host,
                self.port,
                known.path().display()
            ))),
        }
    }

    /// Returns the operand that names the server.
    fn operand(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == PORT { format!("{host}::") } else { format!("dsync://{host}:{}", self.port) }
    }
}

/// The parts of this end that are not written yet.
struct Unwritten {
    /// The server's line.
    pins: bool,
    /// This user's key, of which there is a draft.
    key: bool,
    /// Nobody keeps the draft.
    dry_run: bool,
}

impl Unwritten {
    /// Returns whether the key that is shown goes with this process.
    fn drops_key(&self) -> bool {
        self.key && self.dry_run
    }
}

/// Prints what would be written at both ends.
fn show(request: &Request, asked: &Known, server: &Server, unwritten: &Unwritten) -> Result<(), Failure> {
    let Known { config, share, key, purpose, .. } = asked;
    let mut text = format!("key '{key}' in share '{share}': {purpose}\n");
    let mut lines = asked.lines.clone();
    if unwritten.key {
        let path = keys::own_path().map_err(|why| Failure(exit_code::FILE_IO, why))?;
        let _ = writeln!(text, "here, {} gets a new key", path.display());
    }
    if unwritten.drops_key() {
        // Nobody is to copy its line.
        lines = lines.replace(&request.public, "(the new key's line)");
    }
    // Memory takes whatever is written to it.
    let _ = match lines.trim_start_matches('\n') {
        "" => writeln!(text, "there, {config} has this already"),
        lines => {
            let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
            write!(text, "there, {config} gets at its end:\n{}", lines.replace("    \n", "\n"))
        }
    };
    let known = KnownHosts::own().map_err(|why| Failure(exit_code::FILE_IO, why))?;
    let (path, line) = (known.path().display(), KnownHosts::line(&server.host, server.port, &server.key));
    let _ = if unwritten.pins {
        writeln!(text, "here, {path} gets at its end:\n    {line}")
    } else {
        writeln!(text, "here, {path} has this already")
    };
    let client = request.public.parse().ok().filter(|_| !unwritten.drops_key());
    text.push_str(&fingerprints(&server.key, client.as_ref()));

    let text: String = text.lines().map(|line| format!("{}\n", escape_text(line))).collect();
    let unprinted = |error| format!("cannot write to standard output: {}", system_words(&error));
    print(text.as_bytes()).map_err(|error| Failure(messages::OUTPUT, unprinted(error)))
}

/// Returns both ends' fingerprints, and their drawings side by side.
fn fingerprints(server: &PublicKey, client: Option<&PublicKey>) -> String {
    let named = client.map_or_else(|| "of the new key".to_owned(), PublicKey::fingerprint);
    let mut text = format!("fingerprints: server {}\n              client {named}\n", server.fingerprint());
    let (left, right) = (server.drawing(), client.map(PublicKey::drawing).unwrap_or_default());
    let _ = writeln!(text, "    {:<19}  client", "server");
    let mut right = right.lines();
    for line in left.lines() {
        let _ = writeln!(text, "    {line}  {}", right.next().unwrap_or_default());
    }
    text
}

/// Asks whether it is to be written, unless that was said.
fn consent(yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let unwritten = |why: &str| Err(Failure(exit_code::USAGE, format!("nothing was enrolled: {why}")));
    match keys::agrees("Write this at both ends (yes/no)? ") {
        Some(true) => Ok(()),
        Some(false) => unwritten("the answer was not yes"),
        None => unwritten("there is no terminal to ask on; --yes writes without asking"),
    }
}

/// Says what the server's end has done.
fn tell(host: &str, added: &Known) {
    let server = if added.told {
        "the server reads it anew"
    } else {
        "no server with this configuration has read it there: start it, or see the log of one that stands"
    };
    say(&escape_text(&format!("dsync: '{host}' has the key '{}' in {}; {server}", added.key, added.config)));
}

/// Bytes of the longest name of a host that becomes a key's.
const LONGEST_NAME: u64 = 64;
