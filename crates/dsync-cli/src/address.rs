//! Operands that name a share of a server that stands: `host::share/dir/` and
//! `dsync://host:port/share/dir/`.
//!
//! A run reaches such a server by `dsync serve --dial` in place of ssh, and otherwise as every
//! host. So each of these operands becomes one of the form `HOST:PATH`, and the share and the port
//! become words of the remote shell.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dsync_engine::{
    AddressFamily, ConnectError, ConnectOptions, Operand, RemoteHost, ShellStatus, SyncError,
    TransportChoice, exit_code,
};

use crate::usage::UsageError;

/// A share, and the server that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShareAddress {
    pub(crate) host: RemoteHost,
    pub(crate) port: u16,
    /// Its name; empty for all shares.
    pub(crate) share: String,
}

impl ShareAddress {
    /// Returns the address of all that its server offers.
    fn server(&self) -> String {
        let host = &self.host.host;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if self.port == PORT { format!("{host}::") } else { format!("dsync://{host}:{}/", self.port) }
    }

    /// Returns the address of the share itself.
    fn address(&self) -> String {
        self.server() + &self.share
    }

    /// Returns the address of the share at another port.
    pub(crate) fn at_port(&self, port: u16) -> String {
        let share = if self.share.is_empty() { String::new() } else { format!("{}/", self.share) };
        Self { port, ..self.clone() }.server() + &share
    }
}

/// Returns the address of all that the server offers whose share an operand names; `None` if it names no
/// share.
pub(crate) fn server_of(word: &OsStr) -> Option<String> {
    read(word)?.ok().map(|(address, _)| address.server())
}

/// The port of a server that no address names.
pub(crate) const PORT: u16 = 8730;

/// The beginning of an address with a port, in letters of either case (RFC 3986, section 3.1).
const SCHEME: &[u8] = b"dsync://";

/// Reads one operand; `None` if it names no share. The path is one in the share.
fn read(word: &OsStr) -> Option<Result<(ShareAddress, Vec<u8>), UsageError>> {
    let bytes = word.as_bytes();

    let is_scheme = bytes.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME));
    let (place, port, rest) = match bytes.get(SCHEME.len()..) {
        Some(rest) if is_scheme => {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (place, path) = rest.split_at(end);
            let (place, port) = split_port(place);
            (place, port, path.strip_prefix(b"/").unwrap_or(path))
        }
        _ => {
            let end = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
            let at = first_colon(&bytes[..end])?;
            // Behind a single colon, two are part of a path: `host:File::Copy.3pm`.
            if bytes.get(at + 1) != Some(&b':') {
                return None;
            }
            (&bytes[..at], Some(PORT), &bytes[at + 2..])
        }
    };

    if place.is_empty() && is_scheme {
        return Some(Err(wrong(word, "names no host: write dsync://HOST/SHARE/PATH")));
    }
    // rsync's daemon has users; here a key stands for whoever has it.
    if place.contains(&b'@') {
        return Some(Err(UsageError::UserOfShare { operand: word.to_owned() }));
    }
    (!place.is_empty()).then(|| parts(word, place, port, rest))
}

/// Returns the place of the first colon that does not belong to an IPv6 address in brackets, which stands
/// first or behind a user's name.
fn first_colon(place: &[u8]) -> Option<usize> {
    let is_open = |at: usize| place.get(at) == Some(&b'[');
    let behind_user = || place.iter().position(|byte| *byte == b'@').map(|at| at + 1);
    let address = Some(0).filter(|at| is_open(*at)).or_else(|| behind_user().filter(|at| is_open(*at)));
    let start = match address {
        Some(open) => open + place[open..].iter().position(|byte| *byte == b']')?,
        None => 0,
    };
    Some(start + place[start..].iter().position(|byte| *byte == b':')?)
}

/// Reads one operand; behind one that names a share, `::SHARE/PATH` is on the same server, as with rsync.
fn read_behind(
    before: Option<&ShareAddress>,
    word: &OsStr,
) -> Option<Result<(ShareAddress, Vec<u8>), UsageError>> {
    match (before, word.as_bytes().strip_prefix(b"::")) {
        (Some(before), Some(rest)) => Some(share_and_path(word, rest).map(|(share, path)| {
            let address = ShareAddress { share, ..before.clone() };
            (address, path)
        })),
        _ => read(word),
    }
}

/// Makes an address of its parts.
fn parts(
    word: &OsStr,
    place: &[u8],
    port: Option<u16>,
    rest: &[u8],
) -> Result<(ShareAddress, Vec<u8>), UsageError> {
    let (share, path) = share_and_path(word, rest)?;
    let as_remote = [place, b":"].concat();
    match Operand::parse(OsStr::from_bytes(&as_remote)) {
        Ok(Operand::Remote { host, .. }) => {
            let no_port = || wrong(word, "has no port from 1 to 65535 behind the host");
            let port = port.ok_or_else(no_port)?;
            Ok((ShareAddress { host, port, share }, path))
        }
        _ => Err(UsageError::ShareAddress { operand: word.to_owned() }),
    }
}

/// Splits the name of a share from the path in it.
fn share_and_path(word: &OsStr, rest: &[u8]) -> Result<(String, Vec<u8>), UsageError> {
    let no_share = || UsageError::ShareAddress { operand: word.to_owned() };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let share = std::str::from_utf8(&rest[..end]).map_err(|_| no_share())?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if share.starts_with('-') || !share.bytes().all(plain) || share.len() > LONGEST_SHARE {
        return Err(no_share());
    }
    let path = rest[end..].strip_prefix(b"/").unwrap_or_default();
    Ok((share.to_owned(), path.to_vec()))
}

/// Refuses an address for what is wrong with its host or port.
fn wrong(word: &OsStr, why: &str) -> UsageError {
    UsageError::Other { text: format!("'{}' {why}", word.display()) }
}

/// Reads `HOST`, `HOST:PORT` and the same with an IPv6 address in brackets, as in addresses of shares;
/// there is a port only where one is written.
pub(crate) fn host_and_port(word: &OsStr) -> Option<(String, Option<u16>)> {
    let (place, port) = split_port(word.as_bytes());
    let written = place.len() < word.len();
    match Operand::parse(OsStr::from_bytes(&[place, b":"].concat())) {
        Ok(Operand::Remote { host, path }) if path == "." && host.user.is_none() && port.is_some() => {
            Some((host.host, port.filter(|_| written)))
        }
        _ => None,
    }
}

/// Splits `host:port` and `[address]:port`; there is no port where it is none.
fn split_port(place: &[u8]) -> (&[u8], Option<u16>) {
    let bracket = place.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    match place[bracket..].iter().position(|byte| *byte == b':') {
        None => (place, Some(PORT)),
        Some(at) => {
            let port =
                std::str::from_utf8(&place[bracket + at + 1..]).ok().and_then(|port| port.parse().ok());
            (&place[..bracket + at], port.filter(|port| *port != 0))
        }
    }
}

/// Returns the server whose shares are asked for, if the only operand does.
///
/// # Errors
/// [`UsageError::ShareAddress`].
pub(crate) fn whole_server(operands: &[OsString]) -> Result<Option<ShareAddress>, UsageError> {
    let [word] = operands else { return Ok(None) };
    match read(word).transpose()? {
        Some((address, path)) if address.share.is_empty() => {
            // `HOST::/PATH` is no list: the name is missing.
            let is_whole = path.iter().all(|byte| *byte == b'/');
            if is_whole { Ok(Some(address)) } else { Err(UsageError::ShareAddress { operand: word.clone() }) }
        }
        _ => Ok(None),
    }
}

/// Rewrites operands that name shares; returns them, and the one share that they name.
///
/// # Errors
/// [`UsageError`] for an address that is none, and for operands on several servers or shares.
pub(crate) fn rewrite(operands: &[OsString]) -> Result<(Vec<OsString>, Option<ShareAddress>), UsageError> {
    let mut named: Option<ShareAddress> = None;
    let mut rewritten = Vec::with_capacity(operands.len());
    for word in operands {
        let Some((address, path)) = read_behind(named.as_ref(), word).transpose()? else {
            rewritten.push(word.clone());
            continue;
        };
        if address.share.is_empty() {
            return Err(UsageError::ShareAddress { operand: word.clone() });
        }
        if let Some(named) = named.as_ref().filter(|named| **named != address) {
            return Err(apart(operands, word, named));
        }

        // A leading `./` keeps a path from being read as a home directory. A second one would be the place
        // at which -R cuts.
        let dot: &[u8] = if path.starts_with(b"./") { b"" } else { b"./" };
        let host = &address.host.host;
        let host = if host.contains(':') { format!("[{host}]:") } else { format!("{host}:") };
        rewritten.push(OsString::from_vec([host.as_bytes(), dot, &path].concat()));
        named = Some(address);
    }

    if let Some(named) = &named {
        check_company(operands, named)?;
    }
    Ok((rewritten, named))
}

/// Refuses operands beside a share that are neither in it nor the other end.
fn check_company(operands: &[OsString], named: &ShareAddress) -> Result<(), UsageError> {
    let Some((last, sources)) = operands.split_last() else { return Ok(()) };
    let is_share = |word: &OsString| read_behind(Some(named), word).is_some();
    let is_elsewhere = |word: &OsString| is_remote(word) && read(word).is_none();
    if is_elsewhere(last) {
        return Err(UsageError::BothRemote);
    }

    let first_is_share = sources.first().is_some_and(is_share);
    // rsync's short form of the same host is a path in the share.
    let is_there = |word: &OsString| is_share(word) || word.as_bytes().starts_with(b":");
    let stray = |word: &&OsString| if first_is_share { !is_there(word) } else { is_share(word) };
    match sources.iter().find(stray) {
        Some(operand) if first_is_share => Err(apart(operands, operand, named)),
        Some(operand) => Err(UsageError::SeveralHosts { operand: operand.clone(), is_here: false }),
        None if sources.iter().any(is_elsewhere) => Err(UsageError::BothRemote),
        None => Ok(()),
    }
}

/// Returns the error for an operand that is not in the share that was named before it.
fn apart(operands: &[OsString], word: &OsString, named: &ShareAddress) -> UsageError {
    let is_destination = operands.last().is_some_and(|last| std::ptr::eq(last, word));
    if is_destination {
        return UsageError::BothRemote;
    }
    let form = match (is_remote(word), read_behind(Some(named), word)) {
        (_, Some(_)) => Form::Share,
        (true, None) => Form::Remote,
        (false, None) => Form::Local,
    };
    UsageError::OutsideShare { operand: word.clone(), share: named.address(), form }
}

/// The form of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Share,
    Remote,
    Local,
}

/// Returns whether an operand names another host, in either form.
fn is_remote(word: &OsString) -> bool {
    read(word).is_some() || matches!(Operand::parse(word), Ok(Operand::Remote { .. }))
}

/// Sets the way of a run to a share, with the limit that was asked for, if one was.
pub(crate) fn lead(connect: &mut ConnectOptions, address: &ShareAddress, limit: Option<Duration>) {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let ShareAddress { port, share, .. } = address;
    let family = match connect.family {
        AddressFamily::V4 => "v4",
        AddressFamily::V6 => "v6",
        _ => "any",
    };
    let words = [format!("--dial={share}"), format!("--port={port}"), format!("--family={family}")];
    // The dialler ends before the run gives it up, so that its words are heard.
    let limit = limit.map(|limit| limit.saturating_sub(BEFORE_THE_LIMIT).max(BEFORE_THE_LIMIT));
    let limit = limit.map(|limit| format!("--limit={}", limit.as_millis()));
    connect.shell = [program.into_os_string(), "serve".into()]
        .into_iter()
        .chain(words.into_iter().chain(limit).map(Into::into))
        .collect();
    // Every run begins with the dialler's connection.
    connect.further = connect.transport;
    connect.transport = TransportChoice::Ssh;
    connect.pipe = dsync_engine::Carrier::Tls;
    DIALS.store(true, Ordering::Release);
}

/// Returns the exit code and the words of a dial that failed, escaped, if that is the reason.
pub(crate) fn undialled(error: &SyncError) -> Option<(u8, String)> {
    let SyncError::Connect(ConnectError::ShellFailed { status: ShellStatus::Exited(code), stderr, .. }) =
        error
    else {
        return None;
    };
    if !DIALS.load(Ordering::Acquire) {
        return None;
    }

    // A dialler without words was there, and lost its connection before the session began.
    let why = stderr.last().map_or("the connection was lost", String::as_str).to_owned();
    let code = u8::try_from(*code).ok().filter(|code| *code != LOST);
    Some((code.unwrap_or(exit_code::SOCKET), why))
}

/// Time by which a dialler ends before the run would give it up.
const BEFORE_THE_LIMIT: Duration = Duration::from_millis(250);

/// The dialler's exit code for what may be better later, as ssh's.
pub(crate) const LOST: u8 = 255;

/// The words of a process name one way, which all of its runs take.
static DIALS: AtomicBool = AtomicBool::new(false);

/// Bytes of the longest name of a share.
const LONGEST_SHARE: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(word: &str) -> Option<(String, u16, String, String)> {
        let (address, path) = read(OsStr::new(word))?.ok()?;
        Some((address.host.host, address.port, address.share, String::from_utf8(path).unwrap()))
    }

    fn is(host: &str, port: u16, share: &str, path: &str) -> Option<(String, u16, String, String)> {
        Some((host.to_owned(), port, share.to_owned(), path.to_owned()))
    }

    #[test]
    fn both_forms_name_host_port_share_and_path() {
        assert_eq!(found("nas::backups/dir/"), is("nas", PORT, "backups", "dir/"));
        assert_eq!(found("nas::backups"), is("nas", PORT, "backups", ""));
        assert_eq!(found("nas::"), is("nas", PORT, "", ""));
        assert_eq!(found("dsync://nas:99/b/d"), is("nas", 99, "b", "d"));
        assert_eq!(found("dsync://nas/b//x"), is("nas", PORT, "b", "/x"));
        assert_eq!(found("[::1]::b/d"), is("::1", PORT, "b", "d"));
        assert_eq!(found("dsync://[2001:db8::1]:99/b"), is("2001:db8::1", 99, "b", ""));
        for other in ["nas:dir", "dir/a::b", "./a::b", "::b", "[::1]:dir", "rsync://h/m", "a"] {
            assert!(read(OsStr::new(other)).is_none(), "{other}");
        }
        for other in ["u@[::1]:dir", "u@[fe80::1%eth0]:/d", "nas:File::Copy.3pm", "u@nas:a::b", "u@[::1"] {
            assert!(read(OsStr::new(other)).is_none(), "{other}");
        }
        assert_eq!(found("DSync://nas:99/b/d"), is("nas", 99, "b", "d"));
        for user in ["u@nas::b", "dsync://u@nas/b", "u@::b", "u@[::1]::b"] {
            assert!(matches!(read(OsStr::new(user)), Some(Err(UsageError::UserOfShare { .. }))), "{user}");
        }
        for (wrong, words) in [
            ("dsync:///s/", "names no host"),
            ("dsync://", "names no host"),
            ("dsync://:99/s", "names no host"),
            ("dsync://nas:99999/s/", "no port from 1 to 65535"),
            ("dsync://nas:/s/", "no port from 1 to 65535"),
            ("dsync://nas:abc/s/", "no port from 1 to 65535"),
            ("dsync://na s/s/", "names no share"),
        ] {
            let said = read(OsStr::new(wrong)).unwrap().unwrap_err().to_string();
            assert!(said.contains(words), "{wrong}: {said}");
        }
        for wrong in ["nas::a b", "nas::-x/", "dsync://nas:0/b", "dsync://nas:x/b", "-x::b", "na$s::b"] {
            assert!(read(OsStr::new(wrong)).unwrap().is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_read_with_and_without_a_port() {
        let found = |word: &str| host_and_port(OsStr::new(word));
        assert_eq!(found("nas"), Some(("nas".to_owned(), None)));
        assert_eq!(found("nas:99"), Some(("nas".to_owned(), Some(99))));
        assert_eq!(found("[::1]:99"), Some(("::1".to_owned(), Some(99))));
        assert_eq!(found("[::1]"), Some(("::1".to_owned(), None)));
        for wrong in ["", "nas:0", "nas:x", "u@nas", "na s", "nas:1:2", "a/b"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn operands_of_one_share_become_those_of_a_host() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let (rewritten, named) = rewrite(&words("nas::b/~x nas::b dst")).unwrap();
        assert_eq!(rewritten, words("nas:./~x nas:./ dst"));
        assert_eq!(named.unwrap().share, "b");
        assert_eq!(rewrite(&words("a b:c")).unwrap(), (words("a b:c"), None));
        for line in ["nas::b nas::c dst", "nas::b other::b dst", "nas::b nas:x dst", "nas:: dst"] {
            assert!(rewrite(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn a_path_that_begins_with_a_dot_gets_no_second_one() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (typed, rewritten) in [
            ("nas::b/./src/./dir", "nas:./src/./dir"),
            ("nas::b/././src", "nas:././src"),
            ("nas::b/src/./dir", "nas:./src/./dir"),
            ("nas::b/.", "nas:./."),
            ("nas::b/./", "nas:./"),
            ("nas::b/.x", "nas:./.x"),
            ("dsync://[::1]:9/b/./src", "[::1]:./src"),
        ] {
            assert_eq!(rewrite(&words(typed)).unwrap().0, words(rewritten), "{typed}");
        }
    }

    #[test]
    fn two_colons_behind_a_share_are_its_server() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["nas::b/x ::b/y dst", "dsync://nas:9/b/x ::b/y dst"] {
            let (rewritten, named) = rewrite(&words(line)).unwrap();
            assert_eq!(rewritten, words("nas:./x nas:./y dst"), "{line}");
            assert_eq!(named.unwrap().share, "b", "{line}");
        }
        for (line, said) in [
            ("nas::b/x ::c/y dst", "'::c/y' is not in 'nas::b'"),
            ("nas::b/x :: dst", "names no share"),
            ("nas::b/x ::/y dst", "names no share"),
        ] {
            let error = rewrite(&words(line)).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
        // Without a share before it there is no server that it could be of.
        assert_eq!(rewrite(&words("::b/y dst")).unwrap().1, None);
    }

    #[test]
    fn what_is_not_in_the_share_is_named_as_it_was_typed() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (line, said) in [
            ("nas::b/x nas::c/y dst", "all sources must be in one share, and 'nas::c/y' is not in 'nas::b'"),
            ("dsync://nas:9/b dsync://nas:8/b dst", "'dsync://nas:8/b' is not in 'dsync://nas:9/b'"),
            (
                "nas::b/x nas:y dst",
                "'nas:y' is not in 'nas::b', where the others are; a file here whose name",
            ),
            (
                "nas::b/x y dst",
                "'y' is not in 'nas::b', where the others are; a path there is written '::b/y'",
            ),
            ("x nas::b/y dst", "'nas::b/y' is not where the others are"),
            ("nas::b/x nas::c/y", "both"),
            ("nas:x nas::b/y", "both"),
            ("nas::b/x nas:y", "both"),
        ] {
            let error = rewrite(&words(line)).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
        for line in ["x y nas::b", "nas::b :y dst", "nas::b dst", "nas::b nas::b/x"] {
            assert!(rewrite(&words(line)).is_ok(), "{line}");
        }
    }

    #[test]
    fn only_a_whole_server_is_listed() {
        let asked = |word: &str| whole_server(&[OsString::from(word)]);
        for word in ["nas::", "dsync://nas:9/", "dsync://nas:9", "dsync://nas:9//"] {
            assert!(asked(word).unwrap().is_some(), "{word}");
        }
        for word in ["nas::b", "nas:x", "x"] {
            assert!(asked(word).unwrap().is_none(), "{word}");
        }
        for word in ["dsync://nas:9//b/", "nas::/b"] {
            let said = asked(word).unwrap_err().to_string();
            assert!(said.contains(&format!("'{word}' names no share")), "{said}");
        }
    }
}
