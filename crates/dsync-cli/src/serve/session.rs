//! `dsync serve --session`: one connection, from its first byte on.
//!
//! Standard input is the connection, standard output the parent's socket, by which the parent hands
//! over further connections of the client. The session gives up all
//! files but the shares' before it reads a byte, lets the client prove its key, becomes the share's
//! user, and enters the same cage as `dsync --server` once the operands are known. A client that
//! has proved a key is told why it gets no session; a stranger is not.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::{fd::AsFd as _, unix::net::UnixStream},
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{
    Entrance, Resources, Tally, Verdict, exit_code, serve,
    standing::{
        Arrival, Certificate, Channel, ChannelError, Copying, Count, Handed, PrivateKey, PublicKey,
        ServerEnd, SessionNumber, answer,
    },
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    admission::{Admitted, admit, expired},
    config::{Config, Offer, today},
    field::value,
    silent::PATIENCE,
    status::{Passed, Report},
    user::Users,
};
use crate::{
    cage::Cage, console::say, debug::start_log, escape::escape_text, messages, rules::Rules, server::WORDING,
    words::system_words,
};

/// The terms that the parent hands to a session: a length and JSON, then a length and the server's key.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The text of the configuration, which the parent has checked.
    pub(super) config: String,
    /// The document of the server's private key. It never passes through the JSON, whose parser would
    /// leave copies in memory.
    #[serde(skip)]
    pub(super) identity: Zeroizing<Vec<u8>>,
    /// The server's certificate.
    pub(super) certificate: Option<String>,
    /// The client's address.
    pub(super) peer: String,
    /// The session's number, which further connections name, as its bytes.
    pub(super) number: [u8; 16],
    /// Whether the port that the client has reached takes datagrams.
    pub(super) takes_quic: bool,
    /// The time since the connection was accepted.
    pub(super) waited: Duration,
}

impl Terms {
    /// Sends them to the session. What follows are connections.
    pub(super) fn send(&self, session: &mut UnixStream) -> io::Result<()> {
        for part in [&serde_json::to_vec(self)?[..], &self.identity] {
            session.write_all(&(part.len() as u64).to_le_bytes())?;
            session.write_all(part)?;
        }
        Ok(())
    }

    /// Takes them from the parent.
    fn receive(parent: &mut UnixStream) -> io::Result<Self> {
        let len = receive_len(parent)?;
        let mut text = Vec::new();
        if parent.take(len).read_to_end(&mut text)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let terms: Self = serde_json::from_slice(&text)?;

        // A buffer that grew would leave its first pieces behind.
        let len = usize::try_from(receive_len(parent)?).ok().filter(|len| *len <= LONGEST_KEY);
        let mut identity = Zeroizing::new(vec![0; len.ok_or(io::ErrorKind::InvalidData)?]);
        parent.read_exact(&mut identity)?;
        Ok(Self { identity, ..terms })
    }
}

fn receive_len(parent: &mut UnixStream) -> io::Result<u64> {
    let mut len = [0; 8];
    parent.read_exact(&mut len)?;
    Ok(u64::from_le_bytes(len))
}

/// A session that has ended, for its line in the log.
#[derive(Default)]
pub(super) struct Record {
    pub(super) key: String,
    /// The fingerprint of the authority that let the key in; empty for a pinned key.
    pub(super) authority: String,
    pub(super) share: String,
    pub(super) role: &'static str,
    pub(super) passed: Passed,
}

/// The outcome of a session: the exit code of what it did; the exit code and words if it failed.
pub(super) type Outcome = Result<u8, (u8, String)>;

impl Record {
    /// Returns the session's line, and its exit code.
    pub(super) fn line(&self, peer: &str, began: Instant, outcome: &Outcome) -> (String, u8) {
        let (code, why) = match outcome {
            Ok(code) => (*code, None),
            Err((code, why)) => (*code, Some(why.as_str())),
        };
        let line = self.report().line(peer, began, (code.to_string(), why));
        (line, code)
    }

    /// Returns what the parent may show of the session.
    fn report(&self) -> Report {
        let Self { key, authority, share, role, passed } = self;
        let (key, authority, share) = (key.clone(), authority.clone(), share.clone());
        Report { key, authority, share, role: (*role).to_owned(), passed: *passed }
    }
}

/// Serves the connection; returns the exit code.
pub(super) fn run() -> u8 {
    start_log(None);
    let began = Instant::now();
    let (tcp, mut parent, terms) = match inherited() {
        Ok(inherited) => inherited,
        Err(error) => {
            say(&format!("dsync: a session is started by 'dsync serve' only: {}", system_words(&error)));
            return exit_code::START;
        }
    };
    let peer = terms.peer.clone();

    let mut record = Record::default();
    let outcome = hold(tcp, &mut parent, terms, &mut record);
    let (line, code) = record.line(&peer, began, &outcome);
    let line = match (&outcome, record.key.is_empty()) {
        // Fail2ban bans by this word, so it is never for a fault of the server's own.
        (Err((exit_code::AUTHENTICATION, why)), true) => {
            format!("dsync: refused peer={peer} why={}", value(why))
        }
        (Err((_, why)), true) => format!("dsync: no session for {peer}: {}", value(why)),
        _ => format!("dsync: {line}"),
    };
    // Its fields are escaped each.
    say(&line);
    code
}

/// Returns the time that a client has left to prove its key and to name a share.
fn time_left(waited: Duration) -> Duration {
    // No time at all would be none of the system's limits.
    PATIENCE.saturating_sub(waited).max(Duration::from_millis(1))
}

/// Takes what the parent handed over.
fn inherited() -> io::Result<(TcpStream, UnixStream, Terms)> {
    let tcp = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut parent = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let terms = Terms::receive(&mut parent)?;
    Ok((tcp, parent, terms))
}

/// Serves the connection to its end. The error is an exit code and words.
fn hold(tcp: TcpStream, parent: &mut UnixStream, terms: Terms, record: &mut Record) -> Outcome {
    let broken = |why: &str| (exit_code::START, why.to_owned());
    let config = Config::parse_again(&terms.config).ok_or_else(|| broken("the configuration is none"))?;
    let identity = PrivateKey::from_pkcs8(&terms.identity);
    let identity = identity.map_err(|_| broken("the server's key is none"))?;
    let certificate = terms.certificate.as_deref().and_then(|text| text.parse::<Certificate>().ok());
    let own_key = identity.public().fingerprint();
    let numbered = (SessionNumber(terms.number), terms.takes_quic);
    let left = time_left(terms.waited);
    drop(terms);
    let users = Users::of(&config);
    let unready =
        |error: io::Error| broken(&format!("a session cannot be prepared: {}", system_words(&error)));
    let cage = Cage::required(config.require_cage).of_session().map_err(unready)?;
    let shown: Vec<_> = config.shares.values().map(Offer::shown).collect();
    cage.enter_shares(&shown, &|user, path| users.reach(user, path));
    if let Some(lack) = cage.notes().first().filter(|_| config.require_cage) {
        return Err(broken(&format!("require-cage: {lack}")));
    }

    let (arrival, key) = meet(tcp, (&identity, certificate), &config, left)?;
    // Whoever takes the session over from here on must not find it in memory.
    drop(identity);
    let Arrival { channel, certificate, share: wanted, .. } = arrival;

    // The parent counts strangers; who has a key is none, even if the key has expired.
    (record.key, record.share) = (key.clone(), wanted.clone());
    record.authority = certificate.map(|shown| shown.authority().fingerprint()).unwrap_or_default();
    let mut first = record.report();
    if !config.shares.contains_key(&wanted) {
        // Reports are bounded, and this name may be as long as its client likes.
        first.share.clear();
    }
    first.send(parent);
    if config.keys.get(&key).is_some_and(|known| known.is_expired(today())) {
        let (code, why) = expired(&key);
        channel.refuse(code, &why);
        return Err((code, why));
    }
    if wanted.is_empty() {
        record.role = "list";
        let listed = channel.say(&shares_of(&config, &key)).map(|()| exit_code::OK);
        return listed.map_err(|error| (exit_code::SOCKET, system_words(&error)));
    }

    cage.show_only(config.shares.get(&wanted).map(|offer| offer.share.path.as_path()));
    let log = |why: &str| say(&escape_text(&format!("dsync: {why}")));
    match admit((&config, &users), (&wanted, &key), Some(&own_key), &mut record.role, &log) {
        Ok(admitted) => converse((channel, numbered), admitted, &cage, (record, parent)),
        Err((code, why)) => {
            channel.refuse(code, &why);
            Err((code, why))
        }
    }
}

/// Returns the exit code of a session whose client proved no key. One of another version is nobody to
/// ban: after an update it is a client like any other.
fn code_of(error: &ChannelError) -> u8 {
    match error {
        ChannelError::NoVersion { .. } => exit_code::INCOMPATIBLE,
        _ => exit_code::AUTHENTICATION,
    }
}

/// Lets the client prove its key; returns the key's name too.
fn meet(
    tcp: TcpStream,
    (key, certificate): (&PrivateKey, Option<Certificate>),
    config: &Config,
    limit: Duration,
) -> Result<(Arrival, String), (u8, String)> {
    let clients: Vec<PublicKey> = config.keys.values().filter_map(|key| key.public).collect();
    let authorities = config.keys.authorities();
    let end =
        ServerEnd { key, certificate: certificate.as_ref(), clients: &clients, authorities: &authorities };
    let arrival = answer(tcp, &end, limit).map_err(|error| (code_of(&error), error.to_string()))?;

    let name = match &arrival.certificate {
        Some(certificate) => Some(certificate.name().to_owned()),
        None => config.keys.name_of(arrival.key).cloned(),
    };
    let name = name.ok_or_else(|| (exit_code::START, "the key vanished".to_owned()))?;
    Ok((arrival, name))
}

/// Lists the shares that a key may use, with its role in each.
fn shares_of(config: &Config, key: &str) -> String {
    let offered = config.shares.iter().filter_map(|(name, offer)| Some((name, offer.keys.get(key)?)));
    offered.map(|(name, part)| format!("{name} {}\n", part.role.role())).collect()
}

/// Serves a session over the channel.
fn converse(
    (channel, (number, takes_quic)): (Channel, (SessionNumber, bool)),
    Admitted { grant, places }: Admitted,
    cage: &Cage,
    (record, parent): (&mut Record, &mut UnixStream),
) -> Outcome {
    let round_trip = channel.round_trip();
    let Copying { input, output, sending, sent, received } =
        channel.into_descriptors().map_err(|error| (exit_code::START, system_words(&error)))?;
    record.report().send(parent);
    let unready = |error: io::Error| (exit_code::START, system_words(&error));
    let handed = Handed {
        session: number,
        takes_quic,
        socket: parent.try_clone().map_err(unready)?,
        sent: sent.clone(),
        received: received.clone(),
        connections: Count::default(),
    };
    let (tally, further) = (grant.tally(), handed.connections.clone());
    let whole = tally.clone();
    let passed = move || Passed {
        entries: tally.entries(),
        files: tally.files(),
        sent: sent.count(),
        received: received.count(),
        connections: further.count() + 1,
    };
    tell_progress(record.report(), passed.clone(), parent).map_err(unready)?;
    let entrance = Entrance::new(input, output).handed(handed).round_trip(round_trip);
    let served = serve(entrance, &Resources::default(), Some(grant), Some(cage), WORDING);
    // Nothing of the share is open any more, and a client that does not read must not keep the next one out.
    drop(places);
    // The session's last words are under way.
    sending.finish();

    record.passed = passed();
    record.report().send(parent);
    match served {
        Ok(()) => Ok(code_of_run(&whole)),
        Err(error) => Err((error.exit_code(), messages::failure(&error, &Rules::default()))),
    }
}

/// Returns the exit code that the client of a finished session ends with.
pub(super) fn code_of_run(tally: &Tally) -> u8 {
    tally.verdict().map_or(exit_code::OK, Verdict::exit_code)
}

/// Reports to the parent, on a thread of its own, once a second if something has passed.
fn tell_progress(
    report: Report,
    passed: impl Fn() -> Passed + Send + 'static,
    parent: &UnixStream,
) -> io::Result<()> {
    let mut parent = parent.try_clone()?;
    let mut told = report;
    let work = move || {
        loop {
            thread::sleep(BETWEEN_REPORTS);
            let now = Report { passed: passed(), ..told.clone() };
            if now != told {
                now.send(&mut parent);
                told = now;
            }
        }
    };
    thread::Builder::new().name("report".into()).spawn(work).map(drop)
}

/// Bytes of the longest document of a key: an Ed25519 key pair has less than 100.
const LONGEST_KEY: usize = 1 << 10;
/// Time between two reports to the parent.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_ten_seconds_from_the_accept_on_and_not_twice() {
        for (waited, left) in [(0, 10_000), (4_000, 6_000), (9_990, 10), (10_000, 1), (60_000, 1)] {
            assert_eq!(time_left(Duration::from_millis(waited)), Duration::from_millis(left));
        }
    }
}
