//! `dsync serve --dial`: the way of a run to a server that stands, in place of a remote shell.
//!
//! The run starts this process as it starts ssh, and talks to it by the same pipes. So the client's
//! private key is never in the process that reads what a server says of its tree.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{
    exit_code,
    standing::{
        Address, CertificateError, Channel, ChannelError, ClientEnd, Expected, PrivateKey, PublicKey, copy,
        dial, refusal_of,
    },
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{
    address::LOST,
    certificates::{CertificateFile, day},
    closing::show,
    console::{blame, print, say},
    escape::escape_text,
    json::{self, Opening},
    keys::{self, Known, KnownHosts},
    words::system_words,
};

/// The reason why there is no channel: the exit code, and words.
struct Failure(u8, String);

/// This user's own key, and its certificate.
struct Own {
    key: PrivateKey,
    certificate: Option<CertificateFile>,
}

/// Connects standard input and output to a share; returns the exit code.
/// Without a limit each step of the connection has [`LIMIT`].
pub(super) fn run(share: &str, address: &Address, limit: Option<Duration>) -> u8 {
    let carried = connect(share, address, limit).and_then(|(channel, own)| carry(channel, address, &own));
    match carried {
        Ok(()) => exit_code::OK,
        Err(Failure(code, why)) => {
            if !why.is_empty() {
                say(&escape_text(&why));
            }
            code
        }
    }
}

/// Copies both ways until the server's direction ends, or the run has gone and all that it said is sent.
fn carry(channel: Channel, address: &Address, own: &Own) -> Result<(), Failure> {
    // The run sees that a direction ended.
    let lost = |_: io::Error| Failure(LOST, String::new());
    // The standard library's streams would keep a line that has not ended.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(lost)?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(lost)?);

    // Where the handshake told what the server will answer, the run does not wait for it.
    let ahead = channel.answer_ahead();
    let is_ahead = ahead.is_some();
    let first = [channel.reached(), ahead.unwrap_or_default()].concat();
    output.write_all(&first).map_err(lost)?;
    let (mut reader, mut writer) = channel.split();
    let is_heard = Arc::new(AtomicBool::new(false));
    let (heard, watched) = (Arc::clone(&is_heard), output.try_clone().map_err(lost)?);
    let (sent, is_sent) = mpsc::channel();
    let sending = thread::spawn(move || {
        // The run sees the end of the other direction.
        let _ = sent.send(copy(&mut input, &mut writer));
    });
    thread::spawn(move || {
        if !is_unread(&watched) {
            return;
        }
        // A server that stops reading must not keep this process once the run has gone.
        let is_over = !matches!(is_sent.recv_timeout(LAST_WORD), Ok(Err(_)));
        // The server's end of the connection is a round trip away, and nobody would read what it says.
        if is_over && heard.load(Ordering::Acquire) {
            std::process::exit(exit_code::OK.into());
        }
    });

    let explain = |error| explain(&error, address, own);
    reader.hear_welcome().map_err(explain)?;
    if is_ahead {
        let first = reader.hear_go().map_err(explain)?;
        output.write_all(&first).map_err(lost)?;
    }
    is_heard.store(true, Ordering::Release);
    match io::copy(&mut reader, &mut output) {
        // The run has gone, and its last words may not be sent.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            let _ = sending.join();
            Ok(())
        }
        copied => copied.map(drop).map_err(lost),
    }
}

/// Waits until nobody reads a pipe any more; returns `false` if that cannot be known.
fn is_unread(pipe: &File) -> bool {
    loop {
        // Of a pipe without a reader the error is told unasked.
        match poll(&mut [PollFd::new(pipe, PollFlags::empty())], None) {
            Err(Errno::INTR) => {}
            polled => return polled.is_ok(),
        }
    }
}

/// Prints the shares that this user's key may use, as events if there is an opening for them; returns the exit
/// code.
pub(super) fn list(address: &Address, limit: Option<Duration>, events: Option<&Opening>) -> u8 {
    let (text, failure) = match shares(address, limit) {
        Ok(text) => (text, None),
        Err(Failure(code, why)) => {
            let code = if code == LOST { exit_code::SOCKET } else { code };
            (String::new(), Some((code, escape_text(&why).into_owned())))
        }
    };

    let told = match events {
        Some(opening) => {
            let failure = failure.as_ref().map(|(code, why)| (*code, why.as_str()));
            json::shares(opening, &text, failure)
        }
        None => text.lines().map(|line| format!("{}\n", escape_text(line))).collect(),
    };
    match failure {
        None => show(told.as_bytes()),
        Some((code, why)) => {
            // The error and its exit code say more than a lost reader.
            let _ = print(told.as_bytes());
            blame(&why);
            code
        }
    }
}

/// Asks a server for the shares that this user's key may use: a line for each, with its name and role.
fn shares(address: &Address, limit: Option<Duration>) -> Result<String, Failure> {
    let (channel, own) = connect("", address, limit)?;
    let mut reader = channel.split().0;
    let answer = reader.hear_welcome().and_then(|()| reader.read_all(LONGEST_LIST, limit.unwrap_or(LIMIT)));
    let answer = answer.map_err(|error| explain(&error, address, &own))?;
    if let Some((code, why)) = refusal_of(&answer) {
        // A server may give any code, but a refusal is never a success.
        let code = if code == exit_code::OK { exit_code::STREAM } else { code };
        return Err(Failure(code, format!("'{}' port {}: {why}", address.host, address.port)));
    }
    let unreadable = |_| Failure(exit_code::STREAM, "the server's list of shares is no text".to_owned());
    String::from_utf8(answer).map_err(unreadable)
}

/// Makes a channel to a server that this user knows, or gets to know. Returns the user's key
/// too.
fn connect(share: &str, address: &Address, limit: Option<Duration>) -> Result<(Channel, Own), Failure> {
    let unusable = |why| Failure(exit_code::AUTHENTICATION, why);
    let key = keys::own_path().and_then(|path| Ok((keys::read(&path)?, path)));
    let (key, path) = key.map_err(|why| {
        unusable(format!("HOST::SHARE is a share of a dsync server, which knows a key of yours: {why}"))
    })?;
    let certificate = CertificateFile::of_client(&path, &key).map_err(unusable)?;
    let own = Own { key, certificate };
    let known = KnownHosts::own().map_err(unusable)?;
    let (host, port) = (&address.host, address.port);

    let mut server = known.find(host, port).map_err(unusable)?;
    let flood_limit = limit.map_or(FLOOD_LIMIT, |limit| limit.min(FLOOD_LIMIT));
    let (until, mut pause) = (Instant::now() + flood_limit, SHORTEST_PAUSE);
    loop {
        let expected = match &server {
            Known::Nothing => Expected::Unknown,
            Known::Key(pinned) => Expected::Key(*pinned),
            Known::Authorities(authorities) => Expected::CertifiedBy(authorities),
        };
        let certificate = own.certificate.as_ref().map(|file| &file.certificate);
        let end = ClientEnd { key: &own.key, certificate, server: expected };
        let shown = match dial(address, &end, share, limit.unwrap_or(LIMIT)) {
            Err(ChannelError::ServerKey { shown }) => shown,
            // A server in a flood of strangers closes connections as they come: another one gets in.
            Err(ChannelError::Dropped) if Instant::now() + pause < until => {
                thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
            Err(ChannelError::ServerCertificate { shown, why }) => {
                return Err(unusable(uncertified(address, &known, &shown, &why)));
            }
            Err(error) => return Err(explain(&error, address, &own)),
            Ok(channel) => return Ok((channel, own)),
        };
        if server != Known::Nothing {
            return Err(unusable(format!(
                "'{host}' port {port} has another key than before: fingerprint {}. Somebody may be in its place. Ask \
                 its administrator; if the server has a new key, remove the line of '{host}:{port}' from {}",
                shown.fingerprint(),
                known.path().display()
            )));
        }
        known.ask(host, port, &shown).map_err(unusable)?;
        server = Known::Key(shown);
    }
}

/// Says what does not fit of a server that an authority was to certify, and what to do.
fn uncertified(address: &Address, known: &KnownHosts, shown: &PublicKey, why: &CertificateError) -> String {
    let Address { host, port, .. } = address;
    let known = known.path().display();
    let (what, cure) = match why {
        CertificateError::Missing => (
            "it shows no certificate".to_owned(),
            "its administrator names one as 'certificate' in [server]".to_owned(),
        ),
        CertificateError::Expired { until } => (
            format!("its certificate expired on {}", day(*until)),
            "its administrator renews it with 'dsync key --certify'".to_owned(),
        ),
        CertificateError::Early { from } => (
            format!("its certificate is not valid before {}", day(*from)),
            "compare this host's clock with that of its authority".to_owned(),
        ),
        CertificateError::Name { named } => (
            format!("its certificate is for '{named}'"),
            format!("name it so, or its administrator has it certified for '{host}'"),
        ),
        CertificateError::Authority { found } => (
            format!("its certificate is of another authority, with the fingerprint {}", found.fingerprint()),
            format!("if you trust that one, add this line to {known}: @authority {host}:{port} {found}"),
        ),
        other => (other.to_string(), "ask its administrator".to_owned()),
    };

    format!(
        "'{host}' port {port} is known by an authority in {known}, and {what}. Somebody may be in its place. If not, \
         {cure}. The key that it has proved has the fingerprint {}",
        shown.fingerprint()
    )
}

/// Says why there is no channel, and what to do.
fn explain(error: &ChannelError, address: &Address, own: &Own) -> Failure {
    let key = own.key.public();
    let place = format!("'{}' port {}", address.host, address.port);

    match error {
        ChannelError::Unreachable { source, .. } => {
            Failure(LOST, format!("no connection to {place}: {}", system_words(source)))
        }
        ChannelError::Refused => {
            let shown = own.certificate.as_ref();
            let shown = shown.map_or_else(String::new, |file| format!("; {}", file.refused()));
            let why = format!("{place} does not let this key in{shown}. Its administrator can: {key}");
            Failure(exit_code::AUTHENTICATION, why)
        }
        ChannelError::Told { exit_code, text } => {
            // A server may give any code, but a refusal is never a success.
            let code = if *exit_code == exit_code::OK { exit_code::STREAM } else { *exit_code };
            Failure(code, format!("{place} refused: {text}"))
        }
        ChannelError::Dropped => {
            let why = "closes every connection before it says anything: it may have too many, or be no server of dsync's";
            Failure(LOST, format!("{place} {why}"))
        }
        // Another attempt would find the same two programs.
        ChannelError::NoVersion { why } => Failure(exit_code::INCOMPATIBLE, format!("{place}: {why}")),
        ChannelError::TimedOut => {
            Failure(exit_code::CONNECT_TIMEOUT, format!("{place} did not answer in time"))
        }
        other => Failure(LOST, format!("{place}: {other}")),
    }
}

/// Time before the second connection to a server that closed the first one, and between later ones.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// Time for getting into a server that closes connections at once.
const FLOOD_LIMIT: Duration = Duration::from_secs(60);
/// Time for connecting, for a handshake, and for the list of shares.
const LIMIT: Duration = Duration::from_secs(20);
/// Time for the last words of a run that has gone.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Bytes of the longest list of shares.
const LONGEST_LIST: usize = 1 << 20;
