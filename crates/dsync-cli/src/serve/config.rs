//! The configuration of `dsync serve`: who has which key, and what each key may do in which share.
//!
//! Takes a TOML file and returns a checked [`Config`] or the place of the first mistake. The law: a
//! word that this version does not know is an error, never ignored, and so is a file that somebody
//! else could have written: whoever writes it decides who may read every share.
//!
//! Nothing here looks at a share. A server reads its configuration before it may open one.

mod adding;
mod hands;
mod keys;
mod limits;
mod mistake;
mod tables;

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read as _},
    net::{Ipv6Addr, SocketAddr},
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use dsync_engine::{Access, Share, standing::hexadecimal};
use jiff::{civil::Date, tz::TimeZone};
use toml::Spanned;

pub(crate) use self::{
    adding::{NotAdded, add_lines},
    keys::{Key, Keys},
};
use self::{
    hands::{foreign_directory, foreign_hand},
    keys::check_name,
    mistake::{Mistake, line_of, meant, nearest},
    tables::{File, Role, ServerTable, ShareTable},
};
use super::limits::KeyLimits;
use crate::{address::PORT, cage::Shown, keys::open_regular, words::system_words};

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The text that this was read from.
    pub(crate) text: String,
    /// A session in whose cage a layer is missing serves nobody.
    pub(crate) require_cage: bool,
    /// The listening server; `None` if the configuration is for `--stdio` only.
    pub(crate) server: Option<Server>,
    pub(crate) keys: Keys,
    pub(crate) shares: BTreeMap<String, Offer>,
}

/// A server with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The addresses that it listens on.
    pub(crate) listen: Vec<SocketAddr>,
    /// The file of its private key.
    pub(crate) identity: PathBuf,
    /// The file of the certificate that it shows.
    pub(crate) certificate: Option<PathBuf>,
    /// The sessions of all keys over its port at once.
    pub(crate) sessions: Option<u32>,
    /// The loopback address of its metrics.
    pub(crate) metrics: Option<SocketAddr>,
    /// Whether its port takes QUIC.
    pub(crate) quic: bool,
    /// The time in which sessions have to end once the server stops; `None` for all that they need.
    pub(crate) stop_timeout: Option<Duration>,
}

/// A share, and the keys that may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) share: Share,
    /// The user that sessions become.
    pub(crate) user: Option<String>,
    /// The directory in the share of what keys of the role `keep` replaced and removed, with one for each
    /// key in it.
    pub(crate) kept: PathBuf,
    /// The days that it is kept there; `None` if no key has that role.
    pub(crate) keep_days: Option<u32>,
    pub(crate) keys: BTreeMap<String, Part>,
}

impl Offer {
    /// Returns what a cage has to know of the share.
    pub(super) fn shown(&self) -> Shown {
        let Share { path, mounted, .. } = &self.share;
        Shown { path: path.clone(), mounted: *mounted, user: self.user.clone() }
    }
}

/// The part of a share that a key may use, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) role: Access,
    /// The directory in the share; `None` for all of it.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) limits: KeyLimits,
}

/// Returns today's date in UTC, in which keys expire.
pub(crate) fn today() -> Date {
    jiff::Timestamp::now().to_zoned(TimeZone::UTC).date()
}

/// Returns the sum by which the text of a configuration is known again.
pub(crate) fn sum(text: &str) -> String {
    hexadecimal(digest(&SHA256, text.as_bytes()).as_ref())
}

/// A mistake in a configuration, or the reason why there is none.
#[derive(Debug)]
pub(crate) struct ConfigError {
    path: PathBuf,
    line: Option<usize>,
    text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path.display(), self.text),
            None => write!(f, "configuration '{}': {}", self.path.display(), self.text),
        }
    }
}

impl Config {
    /// Reads a file that nobody but its owner, root or this user, can have written.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let fail = |text: String| ConfigError { path: path.to_owned(), line: None, text };
        let unreadable = |error: io::Error| fail(format!("cannot be read: {}", system_words(&error)));
        let file = open_regular(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
                fail("is no regular file".to_owned())
            }
            _ => unreadable(error),
        })?;

        let found = file.metadata().map_err(unreadable)?;
        if let Some(why) = foreign_hand(found.uid(), found.mode()) {
            return Err(fail(format!("{why}: whoever writes it decides who may read every share")));
        }
        if let Some((dir, why)) = foreign_directory(path).map_err(unreadable)? {
            return Err(fail(format!("its directory '{}' {why}", dir.display())));
        }

        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > LONGEST {
            return Err(fail(format!("is longer than {LONGEST} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
            let line = bytes.iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
            let text =
                format!("the byte 0x{:02x} is no UTF-8, which a configuration is written in", bytes[at]);
            ConfigError { line: Some(line), ..fail(text) }
        })?;
        Self::parse(&text).map_err(|mistake| ConfigError {
            path: path.to_owned(),
            line: mistake.at.map(|at| line_of(&text, at)),
            text: mistake.text,
        })
    }

    /// Parses a text that was checked before.
    pub(crate) fn parse_again(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    /// Parses a text that no file has yet; the error is in words.
    pub(crate) fn parse_named(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|mistake| mistake.text)
    }

    /// Checks the name of a key that a text does not have yet; the error is in words.
    pub(crate) fn check_key_name(name: &str) -> Result<(), String> {
        check_name("key", name, &(0..0)).map_err(|mistake| mistake.text)
    }

    /// Checks the directory of such a key; the error is in words.
    pub(crate) fn check_key_directory(directory: &str, key: &str) -> Result<(), String> {
        let written = Spanned::new(0..0, directory.to_owned());
        read_directory(&written, key).map(drop).map_err(|mistake| mistake.text)
    }

    /// Parses the text of a file.
    fn parse(text: &str) -> Result<Self, Mistake> {
        let file: File = toml::from_str(text).map_err(|error| Mistake::of_toml(&error, text))?;
        let server = file.server.map(listening).transpose()?;
        let keys = Keys::of(file.keys)?;

        let mut shares = BTreeMap::new();
        for (name, table) in file.shares {
            let (at, table) = (table.span(), table.into_inner());
            check_name("share", &name, &at)?;
            shares.insert(name.clone(), offer((name, &at), table, &keys)?);
        }
        Ok(Self { text: text.to_owned(), require_cage: file.require_cage, server, keys, shares })
    }
}

/// Reads the table of the server.
fn listening(table: ServerTable) -> Result<Server, Mistake> {
    let every = || vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))];
    let listen = table.listen.as_ref().map(read_addresses).transpose()?.unwrap_or_else(every);
    let sessions = table.sessions.map(|most| limits::sessions(&most)).transpose()?;
    let metrics = table.metrics.map(|address| read_metrics(&address, &listen)).transpose()?;
    let identity = table.identity.map_or_else(|| Ok(IDENTITY.into()), absolute)?;
    let stop_timeout = table.stop_timeout.map(|limit| limits::stop_timeout(&limit)).transpose()?;
    let quic = table.quic.unwrap_or(true);
    let certificate = table.certificate.map(absolute).transpose()?;
    Ok(Server { listen, identity, certificate, sessions, metrics, quic, stop_timeout })
}

/// Reads the addresses of a list, which names one at least: who empties it does not mean all.
fn read_addresses(written: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<SocketAddr>, Mistake> {
    if written.get_ref().is_empty() {
        let text =
            format!("no address is named: leave it out for all addresses, or write one like [::]:{PORT}");
        return Err(Mistake::at(&written.span(), text));
    }
    let mut read: Vec<SocketAddr> = Vec::new();
    for written in written.get_ref() {
        let address = read_address(written)?;
        if let Some(other) = read.iter().find(|other| overlap(address, **other)) {
            let text = if *other == address {
                format!("'{address}' is named twice")
            } else {
                format!("'{address}' and '{other}' are one port: the address of all stands for each of them")
            };
            return Err(Mistake::at(&written.span(), text));
        }
        read.push(address);
    }
    Ok(read)
}

/// Returns whether the system would refuse to listen on both addresses. For port 0 it chooses a free one.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_whole = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_same = one == other || is_whole && one.is_ipv4() == other.is_ipv4();
    is_same && one.port() == other.port() && one.port() != 0
}

fn read_address(written: &Spanned<String>) -> Result<SocketAddr, Mistake> {
    let wrong =
        |_| Mistake::at(&written.span(), format!("'{}' is no address like [::]:{PORT}", written.get_ref()));
    written.get_ref().parse().map_err(wrong)
}

/// Reads an address that only this machine reaches: whoever asks there is not asked for a key.
fn read_loopback(written: &Spanned<String>) -> Result<SocketAddr, Mistake> {
    let address = read_address(written)?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    let text =
        format!("'{address}' is no loopback address, and there is no key for metrics: 127.0.0.1 or [::1]");
    Err(Mistake::at(&written.span(), text))
}

/// Reads the address of metrics, which has to be another one than those of sessions.
fn read_metrics(written: &Spanned<String>, listen: &[SocketAddr]) -> Result<SocketAddr, Mistake> {
    let address = read_loopback(written)?;
    // `[::]` is every address of IPv4 as well, unless one is named.
    let has_ipv4 = listen.iter().any(|other| other.is_ipv4() && other.port() == address.port());
    let whole = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    let is_in_whole = address.is_ipv4() && !has_ipv4 && address.port() != 0 && listen.contains(&whole);
    if is_in_whole || listen.iter().any(|other| overlap(address, *other)) {
        let text = format!("'{address}' is one of 'listen', where sessions are: choose another port");
        return Err(Mistake::at(&written.span(), text));
    }
    Ok(address)
}

/// Reads a path that means the same wherever the program starts.
fn absolute(written: Spanned<PathBuf>) -> Result<PathBuf, Mistake> {
    let at = written.span();
    let path = written.into_inner();
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Mistake::at(&at, format!("'{}' is no absolute path", path.display())))
}

/// Makes an offer of its table.
fn offer((name, at): (String, &Range<usize>), table: ShareTable, keys: &Keys) -> Result<Offer, Mistake> {
    let no_path = || Mistake::at(at, format!("share '{name}' has no 'path': the directory that it offers"));
    let path = absolute(table.path.ok_or_else(no_path)?)?;
    if let Some(marker) = &table.marker
        && (marker.get_ref().contains('/') || ["", ".", ".."].contains(&marker.get_ref().as_str()))
    {
        let text = format!("'{}' is not the name of one entry of the share", marker.get_ref());
        return Err(Mistake::at(&marker.span(), text));
    }

    let kept = table.kept.map_or_else(|| Ok(KEPT.into()), |kept| read_kept(&kept))?;
    let keep_days = table.keep_days.map(|days| read_days(&days)).transpose()?;
    let mut parts = BTreeMap::new();
    for (key, part) in table.keys {
        let (at, part) = (part.span(), part.into_inner());
        if keys.get(&key).is_none() {
            let near = nearest(&key, keys.names().map(String::as_str));
            let text = format!("there is no key '{key}' in [keys]{}", meant(near));
            return Err(Mistake::at(&at, text));
        }
        let limits = limits::read(&part)?;
        let directory = part.directory.map(|directory| read_directory(&directory, &key)).transpose()?;
        let no_role = || {
            let text = format!("key '{key}' has no 'role' in share '{name}': {}", Role::NAMES);
            Mistake::at(&at, text)
        };
        let role = part.role.ok_or_else(no_role)?.access();
        let part = Part { role, directory, limits };
        check_keeping(&part, (&kept, keep_days), &at)?;
        parts.insert(key, part);
    }

    let marker = table.marker.map(|marker| marker.into_inner().into());
    let share = Share::new(name, path).marker(marker).mounted(table.mounted);
    Ok(Offer { share, user: table.user, kept, keep_days, keys: parts })
}

/// Refuses the role `keep` where a client could reach what is kept, or nobody would remove it.
fn check_keeping(part: &Part, (kept, days): (&Path, Option<u32>), at: &Range<usize>) -> Result<(), Mistake> {
    if part.role != Access::Keep {
        return Ok(());
    }
    if days.is_none() {
        let text = "the role 'keep' needs 'keep-days' of the share: the days after which what was kept goes";
        return Err(Mistake::at(at, text.to_owned()));
    }
    let Some(directory) = &part.directory else {
        let text = format!(
            "the role 'keep' needs a 'directory': what is kept is beside it, in '{}'",
            kept.display()
        );
        return Err(Mistake::at(at, text));
    };
    if directory.starts_with(kept) || kept.starts_with(directory) {
        let (directory, kept) = (directory.display(), kept.display());
        let text = format!("with the directory '{directory}' the key would reach what is kept in '{kept}'");
        return Err(Mistake::at(at, text));
    }
    Ok(())
}

fn read_kept(written: &Spanned<String>) -> Result<PathBuf, Mistake> {
    let kept = PathBuf::from(written.get_ref());
    if Share::admits(&kept) {
        return Ok(kept);
    }
    let text = format!(
        "'{}' is not a directory in the share: plain names, without a leading '/' or '..'",
        kept.display()
    );
    Err(Mistake::at(&written.span(), text))
}

fn read_days(written: &Spanned<u32>) -> Result<u32, Mistake> {
    let days = *written.get_ref();
    if (1..=MOST_DAYS).contains(&days) {
        return Ok(days);
    }
    Err(Mistake::at(&written.span(), format!("{days} is no number of days from 1 to {MOST_DAYS}")))
}

/// Expands a key's directory.
fn read_directory(written: &Spanned<String>, key: &str) -> Result<PathBuf, Mistake> {
    let expanded = written.get_ref().replace("{key}", key);
    let directory = PathBuf::from(&expanded);
    if expanded.contains(['{', '}']) || !Share::admits(&directory) {
        let text = format!(
            "'{}' is not a directory in the share: plain names and {{key}}, without a leading '/' or '..'",
            written.get_ref()
        );
        return Err(Mistake::at(&written.span(), text));
    }
    Ok(directory)
}

/// The server's private key where no other is named.
const IDENTITY: &str = "/etc/dsync/server.key";
/// The directory of kept entries where no other is named.
const KEPT: &str = ".dsync-kept";
/// The most days: a hundred years.
const MOST_DAYS: u32 = 36_500;
/// Bytes of the longest configuration: thousands of keys.
const LONGEST: u64 = 4 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    const GOOD: &str = "\
[keys.web1]
expires = 2027-06-01

[keys.admin]

[shares.backups]
path = '/srv/backups'
marker = '.dsync-share'

[shares.backups.keys.web1]
role = 'append'
directory = 'laptops/{key}'

[shares.backups.keys.admin]
role = 'full'
";

    #[test]
    fn a_configuration_says_who_may_do_what_where() {
        let config = Config::parse(GOOD).unwrap();
        let backups = &config.shares["backups"];
        assert_eq!(backups.share.marker, Some(".dsync-share".into()));
        let web1 = &backups.keys["web1"];
        assert_eq!((web1.role, web1.directory.as_deref()), (Access::Append, Some("laptops/web1".as_ref())));
        assert_eq!(
            backups.keys["admin"],
            Part { role: Access::ReadWrite, directory: None, limits: KeyLimits::default() }
        );
        let key = config.keys.get("web1").unwrap();
        assert!(!key.is_expired(Date::constant(2027, 5, 31)) && key.is_expired(Date::constant(2027, 6, 1)));
    }

    const MISTAKES_ABOUT_AUTHORITIES: [(&str, &str, usize, &str); 2] = [
        ("[keys.admin]", "[keys.admin]\nauthority = 'ssh-ed25519 AAAA'", 5, "is no key like"),
        ("[keys.admin]", "[keys.admin]\nauthority = []", 5, "key 'admin' has no line in 'authority'"),
    ];

    #[test]
    fn every_mistake_has_its_line_and_words() {
        // What replaces what in the good one, the line, and words of the message.
        let mistakes = [
            ("expires", "expire", 2, "knows no key 'expire' here; did you mean 'expires'?"),
            ("role = 'append'", "quota = 5", 11, "knows no key 'quota' here"),
            ("'append'", "'apend'", 11, "'apend' is none of read, append, keep, write, full"),
            ("'append'", "'keep'", 10, "needs 'keep-days'"),
            ("marker", "keep-day = 3\nmarker", 8, "did you mean 'keep-days'?"),
            ("marker", "keep-days = 0\nmarker", 8, "0 is no number of days"),
            ("marker", "keep-days = 40000\nmarker", 8, "40000 is no number of days"),
            ("marker", "keep-days = -1\nmarker", 8, ""),
            ("marker", "kept = '/old'\nmarker", 8, "not a directory in the share"),
            ("marker", "kept = '../old'\nmarker", 8, "not a directory in the share"),
            ("[keys.admin]", "[server]\nquota = 5", 5, "'quota' here; the keys here are listen, "),
            ("[keys.admin]", "[server]\nlisten = ['nas']", 5, "no address like"),
            ("[keys.admin]", "[server]\nlisten = []", 5, "no address is named"),
            ("[keys.admin]", "[keys.admin]\npublic = 'ssh-ed25519 AAAA'", 5, "is no key like"),
            ("[keys.admin]", "[keys.admim]", 14, "no key 'admin' in [keys]; did you mean 'admim'?"),
            ("[keys.web1]", "[keys.'a/b']", 1, "no name of a key"),
            ("[keys.web1]", "[keys.'-rf']", 1, "no name of a key"),
            ("'/srv/backups'", "'srv/backups'", 7, "no absolute path"),
            ("'.dsync-share'", "'../x'", 8, "not the name of one entry"),
            ("laptops/{key}", "../{key}", 12, "not a directory in the share"),
            ("laptops/{key}", "{user}", 12, "not a directory in the share"),
            ("laptops/{key}", "/srv", 12, "not a directory in the share"),
            ("2027-06-01", "2027-06-01T10:00:00Z", 2, "'2027-06-01T10:00:00Z' is no day like 2027-12-31"),
            ("expires", "since = 2026-06-01T10:00:00\nexpires", 2, "no day like"),
            ("[keys.admin]", "[keys.admin", 4, ""),
            (
                "'append'",
                "'append'\nlargest = 5",
                12,
                "knows no key 'largest' here; did you mean 'largest-file'?",
            ),
            ("'append'", "'append'\nlargest-file = '5X'", 12, "'5X' is no size"),
            ("'append'", "'append'\nlargest-file = -5", 12, "-5 is no number of bytes"),
            ("'append'", "'append'\nlargest-file = true", 12, "a number of bytes like 5000"),
            ("'append'", "'append'\nrate = 0", 12, "'rate' is 0 bytes per second"),
            ("'append'", "'append'\nsessions = 0", 12, "0 is no number of sessions"),
            ("'append'", "'append'\nsessions = 5000", 12, "5000 is no number of sessions"),
            (
                "'append'",
                "'append'\nrefuse = ['c', 'delet']",
                12,
                "'delet' names no option that can be refused; did you mean 'delete'?",
            ),
            ("'append'", "'append'\nrefuse = ['progress']", 12, "'progress' is the client's own affair"),
            ("'append'", "'append'\nhours = ['22-06']", 12, "'22-06' is no stretch of hours like 22:"),
            ("'append'", "'append'\nhours = []", 12, "no hours are named"),
            ("[keys.admin]", "[server]\nsessions = 0", 5, "0 is no number of sessions"),
            ("[keys.admin]", "[server]\nsession = 1", 5, "did you mean 'sessions'?"),
        ];
        for (from, to, line, words) in mistakes.into_iter().chain(MISTAKES_ABOUT_AUTHORITIES) {
            assert_mistake((from, to), line, words);
        }
    }

    /// Checks the line and the words of a mistake that replaces a part of the good configuration.
    fn assert_mistake((from, to): (&str, &str), line: usize, words: &str) {
        let text = GOOD.replacen(from, to, 1);
        let mistake = Config::parse(&text).unwrap_err();
        let found = (mistake.at.map(|at| line_of(&text, at)), mistake.text);
        assert!(found.0 == Some(line) && found.1.contains(words), "{to}: {found:?}");
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_its_key_and_the_kind() {
        let list = "'listen' is '[::]:1', and should be a list: ['[::]:1']";
        let number = "and should be a whole number";
        for (from, to, line, words) in [
            ("[keys.admin]", "[server]\nlisten = '[::]:1'", 5, list),
            ("[keys.admin]", "[server]\nlisten = 5", 5, "'listen' is 5, and should be a list of texts"),
            ("[keys.admin]", "[server]\nstop-timeout = -1", 5, number),
            (
                "[keys.admin]",
                "[server]\nsessions = '5'",
                5,
                "'sessions' is '5', and should be a whole number",
            ),
            ("[keys.admin]", "[server]\nquic = 'no'", 5, "'quic' is 'no', and should be true or false"),
            (
                "[keys.admin]",
                "[server]\nmetrics = 9100",
                5,
                "'metrics' is 9100, and should be a text in quotes",
            ),
            ("'/srv/backups'", "5", 7, "'path' is 5, and should be a text in quotes"),
            ("2027-06-01", "'2027-06-01'", 2, "'expires' is '2027-06-01', and should be"),
            ("'append'", "'append'\nhours = '22:00-06:00'", 12, "should be a list: ['22:00-06:00']"),
            ("'append'", "'append'\nrefuse = \"delete\"", 12, "'refuse' is \"delete\", and should be a list"),
            (
                "'append'",
                "'append'\nmax-files = '2M'",
                12,
                "'max-files' is '2M', and should be a whole number",
            ),
            ("'append'", "'append'\nmax-files = -1", 12, number),
            ("'append'", "5", 11, "'role' is 5, and should be"),
            ("marker", "keep-days = -1\nmarker", 8, number),
        ] {
            assert_mistake((from, to), line, words);
        }
    }

    #[test]
    fn what_is_missing_or_there_twice_is_named() {
        let no_role = "key 'admin' has no 'role' in share 'backups': read, append, keep, write or full";
        for (from, to, line, words) in [
            ("role = 'full'", "", 14, no_role),
            ("path = '/srv/backups'", "", 6, "share 'backups' has no 'path'"),
            ("[keys.admin]", "[keys.web1]", 4, "'web1' is there twice"),
            ("marker", "path = '/'\nmarker", 8, "'path' is there twice"),
        ] {
            assert_mistake((from, to), line, words);
        }
    }

    #[test]
    fn a_server_that_could_not_start_is_a_mistake() {
        let listen = |list: &str| format!("[server]\nlisten = [{list}]");
        let twice = "'127.0.0.1:9' is named twice";
        let one = "'127.0.0.1:9' and '0.0.0.0:9' are one port";
        let metrics = "'127.0.0.1:9' is one of 'listen'";
        for (to, line, words) in [
            (listen("'127.0.0.1:9', '127.0.0.1:9'"), 5, twice),
            (listen("'0.0.0.0:9', '127.0.0.1:9'"), 5, one),
            (listen("'127.0.0.1:9']\nmetrics = '127.0.0.1:9'\n#"), 6, metrics),
            (listen("'[::]:9']\nmetrics = '127.0.0.1:9'\n#"), 6, metrics),
            ("[server]\nidentity = 's.key'".to_owned(), 5, "'s.key' is no absolute path"),
            ("[server]\ncertificate = './s.cert'".to_owned(), 5, "'./s.cert' is no absolute path"),
        ] {
            assert_mistake(("[keys.admin]", &to), line, words);
        }
        for list in ["'127.0.0.1:0', '127.0.0.1:0'", "'[::]:9', '0.0.0.0:9'", "'127.0.0.1:9', '127.0.0.1:8'"]
        {
            let text = GOOD.replacen("[keys.admin]", &format!("{}\n[keys.admin]", listen(list)), 1);
            assert!(Config::parse(&text).is_ok(), "{list}");
        }
    }

    #[test]
    fn a_client_may_have_two_keys_and_no_key_two_names() {
        let line = |digit: &str| format!("'dsync-ed25519 {} a comment'", digit.repeat(64));
        let (one, two) = (line("1"), line("2"));
        let with = |web1: &str, admin: &str| {
            let text = GOOD.replacen("[keys.web1]", &format!("[keys.web1]\npublic = {web1}"), 1);
            let text = text.replacen("[keys.admin]", &format!("[keys.admin]\npublic = {admin}"), 1);
            Config::parse(&text).map_err(|mistake| (mistake.at.map(|at| line_of(&text, at)), mistake.text))
        };

        let config = with(&format!("[\n{one},\n{two},\n]"), &line("3")).unwrap();
        let names: Vec<_> = config.keys.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["admin", "web1", "web1"]);
        let web1: Vec<_> = config.keys.iter().filter(|(name, _)| *name == "web1").collect();
        assert!(web1[0].1.public != web1[1].1.public && web1[0].1.expires == web1[1].1.expires);
        assert_eq!(config.keys.names().collect::<Vec<_>>(), ["admin", "web1"]);
        // A list of one is the line alone.
        assert_eq!(with(&format!("[{one}]"), &two).unwrap().keys, with(&one, &two).unwrap().keys);

        for (web1, admin, line, words) in [
            ("[]".to_owned(), two.clone(), 2, "key 'web1' has no line in 'public'"),
            ("5".to_owned(), two.clone(), 2, "a public line, or a list of them"),
            (format!("[\n{one},\n5]"), two.clone(), 4, ""),
            (format!("[\n{one},\n'ssh-ed25519 AAAA']"), two.clone(), 4, "is no key like"),
            (format!("[\n{one},\n{one},\n]"), two.clone(), 4, "this key is there twice for 'web1'"),
            // Keys are read by name, so the later one has the line.
            (format!("[\n{one},\n{two},\n]"), two.clone(), 4, "is there for 'admin' and for 'web1'"),
            (one.clone(), one.clone(), 2, "is there for 'admin' and for 'web1'"),
        ] {
            let (at, text) = with(&web1, &admin).unwrap_err();
            assert!(at == Some(line) && text.contains(words), "{at:?}: {text}");
        }
    }

    #[test]
    fn a_stop_timeout_is_a_number_of_seconds() {
        let with = |line: &str| GOOD.replacen("[keys.admin]", &format!("[server]\n{line}\n[keys.admin]"), 1);
        let server = Config::parse(&with("stop-timeout = 540")).unwrap().server.unwrap();
        assert_eq!(server.stop_timeout, Some(Duration::from_secs(540)));
        for (line, words) in [
            ("stop-timeout = 0", "0 is no number of seconds"),
            ("stop-timeout = 700000", "700000 is no number of seconds"),
            ("stop-timeout = '5m'", "'stop-timeout' is '5m', and should be a whole number"),
            ("stop-timeot = 5", "did you mean 'stop-timeout'?"),
        ] {
            let text = with(line);
            let mistake = Config::parse(&text).unwrap_err();
            let at = mistake.at.map(|at| line_of(&text, at));
            assert!(at == Some(5) && mistake.text.contains(words), "{line}: {}", mistake.text);
        }
    }

    #[test]
    fn no_key_reaches_what_is_kept_from_it() {
        let with = |kept: &str, directory: &str| {
            let role = format!("role = 'keep'{directory}");
            let text = GOOD.replacen("marker", &format!("keep-days = 30{kept}\nmarker"), 1);
            let text = text.replacen("role = 'append'\ndirectory = 'laptops/{key}'", &role, 1);
            Config::parse(&text).map_err(|mistake| mistake.text)
        };
        let good = with("", "\ndirectory = '{key}'").unwrap();
        let backups = &good.shares["backups"];
        assert_eq!((backups.keep_days, backups.kept.as_path()), (Some(30), Path::new(".dsync-kept")));
        assert_eq!(backups.keys["web1"].role, Access::Keep);
        let _ = with("\nkept = 'old/web'", "\ndirectory = 'old/web1'").unwrap();
        assert!(with("", "").unwrap_err().contains("needs a 'directory'"));
        for (kept, directory) in
            [("\nkept = 'web1'", "{key}"), ("\nkept = 'old'", "old/{key}"), ("\nkept = 'web1/old'", "{key}")]
        {
            let error = with(kept, &format!("\ndirectory = '{directory}'")).unwrap_err();
            assert!(error.contains("would reach"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, path) = (scratch.path().join("etc"), scratch.path().join("etc/serve.toml"));
        fs::create_dir(&dir).unwrap();
        fs::write(&path, GOOD).unwrap();
        let with = |dir_mode, mode| {
            fs::set_permissions(&dir, fs::Permissions::from_mode(dir_mode)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Config::read(&path).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with(0o755, 0o644), Ok(()));
        for mode in [0o664, 0o646, 0o666] {
            let error = with(0o755, mode).unwrap_err();
            assert!(error.contains("serve.toml") && error.contains("can be written by others"), "{error}");
        }
        let error = with(0o777, 0o600).unwrap_err();
        assert!(error.contains("its directory") && error.contains("etc'"), "{error}");
        assert_eq!(with(0o700, 0o600), Ok(()));
        fs::write(&path, b"[keys.web1]\n# Schl\xfcssel\n").unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.contains("serve.toml:2: the byte 0xfc is no UTF-8"), "{error}");
        let missing = Config::read(&scratch.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("No such file or directory"), "{missing}");
    }
}
