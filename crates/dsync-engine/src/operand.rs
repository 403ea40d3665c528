//! One operand of the command line, or of a job description: a local path or `[user@]host:path`.
//!
//! The rule is rsync's: a `:` before any `/` makes an operand remote, so `./a:b` and `/a:b` are
//! local whatever they contain. An IPv6 address stands in brackets: `user@[2001:db8::1]:path`.
//!
//! The law kept here: a [`RemoteHost`] that this module makes can be handed to a remote shell as
//! one argument without being read as an option, split, or expanded. That is an allow list, not a
//! list of known bad characters (CVE-2017-1000117 and its relatives in other tools were missing
//! entries of such a list). Nothing here looks at the disk or at the network: an operand means the
//! same everywhere.

use std::{
    ffi::{OsStr, OsString},
    net::Ipv6Addr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    str::FromStr,
};

use crate::{RemoteHost, exit_code};

/// A source or a destination as it is written.
///
/// ```
/// use dsync_engine::{Operand, RemoteHost};
/// let operand = Operand::parse("alice@backup:photos/".as_ref())?;
/// let host = RemoteHost::new(Some("alice"), "backup")?;
/// assert_eq!(operand, Operand::Remote { host, path: "photos/".into() });
/// assert_eq!(Operand::parse("./a:b".as_ref())?, Operand::Local("./a:b".into()));
/// # Ok::<(), dsync_engine::OperandError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// A path on this machine, as it was written.
    Local(PathBuf),
    /// A path on another host.
    Remote {
        /// The host.
        host: RemoteHost,
        /// The path; a relative one starts where the remote shell does, which over ssh is the home
        /// directory. Never empty: `host:` is `.`. The remote end knows its homes: `host:~/x` is `~/./x`, and
        /// `host:~user/x` is `~user/./x`, which needs
        /// [`SyncOptions::other_homes`](crate::SyncOptions::other_homes).
        path: OsString,
    },
}

impl Operand {
    /// Reads an operand.
    ///
    /// # Errors
    /// [`OperandError`], one variant for each way in which it can be wrong.
    ///
    /// # Security
    /// Operands come from scripts and their variables. No accepted host or user starts with `-` or
    /// holds a control character, white space or a character that a shell would act on.
    pub fn parse(text: &OsStr) -> Result<Self, OperandError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(OperandError::EmptyPath);
        }
        if bytes.contains(&0) {
            return Err(OperandError::Nul);
        }
        if starts_with_ignore_case(bytes, DAEMON_SCHEME) {
            return Err(OperandError::Daemon { operand: text.to_owned() });
        }

        if URL_SCHEMES.iter().any(|scheme| starts_with_ignore_case(bytes, scheme)) {
            return Err(OperandError::Url { operand: text.to_owned() });
        }

        let Some((place, path)) = split_place(bytes) else {
            return Ok(Self::Local(text.into()));
        };
        let Some(path) = path else {
            return Err(OperandError::BadAddress { operand: text.to_owned() });
        };
        if path.starts_with(b":") && !place.is_empty() {
            return Err(OperandError::Daemon { operand: text.to_owned() });
        }

        let (user, host) = split_user(place);
        if host.is_empty() {
            return Err(OperandError::EmptyHost { operand: text.to_owned() });
        }
        let host = match host.strip_prefix(b"[") {
            Some(rest) => {
                bracketed(rest).ok_or_else(|| OperandError::BadAddress { operand: text.to_owned() })?
            }
            None => as_utf8(host, Part::Host)?,
        };
        let user = user.map(|user| as_utf8(user, Part::User)).transpose()?;
        Ok(Self::Remote { host: RemoteHost::new(user, host)?, path: remote_path(path)? })
    }

    /// Reads an operand that comes after one on `host`: rsync's short form `:path` means the same
    /// host again. Everything else is as for [`parse`](Self::parse).
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    ///
    /// ```
    /// use dsync_engine::Operand;
    ///
    /// // Several sources of one host: `vault:photos :films`.
    /// let Operand::Remote { host, .. } = Operand::parse("vault:photos".as_ref())? else {
    ///     return Ok(());
    /// };
    /// let films = Operand::parse_after(&host, ":films".as_ref())?;
    /// assert_eq!(films, Operand::Remote { host, path: "films".into() });
    /// # Ok::<(), dsync_engine::OperandError>(())
    /// ```
    pub fn parse_after(host: &RemoteHost, text: &OsStr) -> Result<Self, OperandError> {
        match text.as_bytes().strip_prefix(b":") {
            Some(path) if path.contains(&0) => Err(OperandError::Nul),
            Some(path) if !path.starts_with(b":") => {
                Ok(Self::Remote { host: host.clone(), path: remote_path(path)? })
            }
            _ => Self::parse(text),
        }
    }
}

impl RemoteHost {
    /// Makes a host from its parts, which are checked as [`Operand::parse`] checks them. `host` is
    /// a name, an ssh alias or an address; an IPv6 address has no brackets.
    ///
    /// # Errors
    /// [`OperandError`] when a part is empty, too long, starts with `-` or holds a character that
    /// is not allowed.
    pub fn new(user: Option<&str>, host: &str) -> Result<Self, OperandError> {
        let made = Self { user: user.map(str::to_owned), host: host.to_owned() };
        made.check()?;
        Ok(made)
    }

    /// Checks parts that were set directly.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(&self) -> Result<(), OperandError> {
        if let Some(user) = &self.user {
            check_part(user, Part::User)?;
        }
        if is_ipv6(&self.host) { Ok(()) } else { check_part(&self.host, Part::Host) }
    }
}

/// The reason why an operand cannot be used. The command's caller is at fault in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperandError {
    /// The operand is the empty string.
    #[error("path is empty (unset variable in a script?)")]
    EmptyPath,
    /// The operand holds a NUL byte, which no path can.
    #[error("path contains a NUL byte")]
    Nul,
    /// There is nothing where the host should be.
    #[error("empty host in '{}' (for a local file write './{}')", operand.display(), operand.display())]
    EmptyHost {
        /// The operand as given.
        operand: OsString,
    },
    /// A host or user starts with `-` and could be read as an option.
    #[error("{part} may not start with '-'")]
    LeadingDash {
        /// The part with the fault.
        part: Part,
    },
    /// A host or user holds a character outside the allow list.
    #[error("{part} contains characters that are not allowed: '{}'", shown(*character))]
    ForbiddenCharacter {
        /// The part with the character.
        part: Part,
        /// The first such character; U+FFFD for bytes that are not UTF-8.
        character: char,
    },
    /// There is an `@` with no user before it.
    #[error("empty user before '@'")]
    EmptyUser,
    /// A host or user is longer than [`MAX_PART_BYTES`].
    #[error("{part} is longer than {MAX_PART_BYTES} bytes")]
    TooLong {
        /// The part with the fault.
        part: Part,
    },
    /// A bracket does not hold an IPv6 address that is followed by `:`.
    #[error(
        "bad address in '{}': write [IPV6-ADDRESS]:PATH (for a local file write './{}')",
        operand.display(),
        operand.display()
    )]
    BadAddress {
        /// The operand as given.
        operand: OsString,
    },
    /// The address of a remote place in another program's form.
    #[error("'{}' is a URL: write [USER@]HOST:PATH, and a port as -e 'ssh -p PORT'", operand.display())]
    Url {
        /// The operand as given.
        operand: OsString,
    },
    /// rsync's daemon syntax, `host::module` or `rsync://host/module`.
    #[error("'{}': rsync's daemon syntax is not supported by dsync; write HOST:PATH", operand.display())]
    Daemon {
        /// The operand as given.
        operand: OsString,
    },
}

impl OperandError {
    /// Returns the exit code that a command should end with: 4 for what rsync has and dsync does
    /// not, else 1.
    ///
    /// ```
    /// use dsync_engine::{Operand, OperandError};
    ///
    /// let error = Operand::parse("rsync://host/module".as_ref()).err();
    /// assert!(matches!(error, Some(OperandError::Daemon { .. })));
    /// assert!(error.is_some_and(|error| error.exit_code() != 0));
    /// ```
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon { .. } => exit_code::UNSUPPORTED,
            _ => exit_code::USAGE,
        }
    }
}

/// A part of `user@host`.
///
/// ```
/// use dsync_engine::{OperandError, RemoteHost, operand::Part};
///
/// // A form marks the field that is wrong.
/// let error = RemoteHost::new(Some("two words"), "vault").err();
/// assert!(matches!(
///     error,
///     Some(OperandError::ForbiddenCharacter { part: Part::User, character: ' ' })
/// ));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the `@`.
    User,
    /// After it.
    Host,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Host => "host",
        })
    }
}

/// Longest host or user, in bytes: that of a DNS name.
pub const MAX_PART_BYTES: usize = 255;

const DAEMON_SCHEME: &[u8] = b"rsync://";

/// Schemes of programs that copy over ssh; no host is called so.
const URL_SCHEMES: [&[u8]; 3] = [b"ssh://", b"sftp://", b"scp://"];

/// Splits at the `:` that makes an operand remote; `None` when it is local. There is no path when a
/// bracket is not closed or no `:` follows it.
fn split_place(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let end = bytes.iter().position(|&byte| byte == b'/').unwrap_or(bytes.len());
    let colon = match bracket_start(&bytes[..end]) {
        // Within a bracket colons belong to the address.
        Some(open) => {
            let first_colon = bytes[..end].iter().position(|&byte| byte == b':')?;
            match bytes[open..end].iter().position(|&byte| byte == b']') {
                Some(close) if bytes.get(open + close + 1) == Some(&b':') => open + close + 1,
                _ if first_colon < open => first_colon,
                _ => return Some((&bytes[..end], None)),
            }
        }
        None => bytes[..end].iter().position(|&byte| byte == b':')?,
    };
    Some((&bytes[..colon], Some(&bytes[colon + 1..])))
}

/// Returns the start of a bracket that opens the host: first, or right after the first `@`.
fn bracket_start(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&b'[') {
        return Some(0);
    }
    let open = bytes.windows(2).position(|pair| pair == b"@[")? + 1;
    Some(open)
}

/// Splits at the last `@`, as ssh does: a user may be `name@domain`.
fn split_user(place: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match place.iter().rposition(|&byte| byte == b'@') {
        Some(at) => (Some(&place[..at]), &place[at + 1..]),
        None => (None, place),
    }
}

/// Returns the address of `addr]`, or the name, which needs no brackets: scripts that always write them are
/// rsync's as well.
fn bracketed(rest: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(rest.strip_suffix(b"]")?).ok()?;
    let is_name = !host.is_empty() && !host.contains([':', '%', '[', ']']);
    (is_ipv6(host) || is_name).then_some(host)
}

/// Returns whether this is an IPv6 address with an optional `%zone` of letters, digits, `.`, `_`
/// and `-`.
fn is_ipv6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    Ipv6Addr::from_str(address).is_ok()
        && zone.is_none_or(|zone| {
            (1..=MAX_ZONE_BYTES).contains(&zone.len())
                && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        })
}

/// Longest zone: twice Linux's longest interface name, in bytes.
const MAX_ZONE_BYTES: usize = 32;

fn as_utf8(bytes: &[u8], part: Part) -> Result<&str, OperandError> {
    std::str::from_utf8(bytes)
        .map_err(|_| OperandError::ForbiddenCharacter { part, character: char::REPLACEMENT_CHARACTER })
}

fn check_part(text: &str, part: Part) -> Result<(), OperandError> {
    match text.chars().next() {
        None if part == Part::User => return Err(OperandError::EmptyUser),
        None => return Err(OperandError::EmptyHost { operand: OsString::from(":") }),
        Some('-') => return Err(OperandError::LeadingDash { part }),
        Some(_) => {}
    }
    let is_last = |at: usize| at + 1 == text.len();
    let is_wrong = |&(at, character): &(usize, char)| {
        !is_allowed(character, part) || character == '\\' && is_last(at) || character == '#' && at == 0
    };
    if let Some((_, character)) = text.char_indices().find(is_wrong) {
        return Err(OperandError::ForbiddenCharacter { part, character });
    }
    if text.len() > MAX_PART_BYTES { Err(OperandError::TooLong { part }) } else { Ok(()) }
}

/// Returns a character as a message shows it.
fn shown(character: char) -> String {
    if character == '\\' { character.into() } else { character.escape_debug().to_string() }
}

/// Returns whether the allow list has the character. It has letters and digits of any script, for
/// internationalised names, and for users what OpenSSH takes: `DOMAIN\user` of a Windows domain, and what
/// gateways write behind a name.
fn is_allowed(character: char, part: Part) -> bool {
    character.is_alphanumeric()
        || match part {
            Part::Host => matches!(character, '.' | '-' | '_'),
            Part::User => matches!(character, '.' | '-' | '_' | '+' | '@' | '\\' | '%' | '#' | '='),
        }
}

/// Returns a remote path; an empty one is the directory in which the remote end starts.
fn remote_path(path: &[u8]) -> Result<OsString, OperandError> {
    Ok(match path {
        b"" => OsString::from("."),
        [b'~', ..] => at_home(path),
        _ => OsStr::from_bytes(path).to_owned(),
    })
}

/// Returns a path that starts at a home, the own one (`~`) or another user's, as the peer takes it. It is
/// the content of the home, whose own name this end does not know, or a path that begins there under
/// `relative`. Only the remote end knows where its homes are: it may start in another directory (a
/// container, `sudo -i`, a `cd` in a script of the login shell).
fn at_home(path: &[u8]) -> OsString {
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    let (home, below) = path.split_at(end);
    let below = trim_slashes(below);
    let begins_later = below.windows(3).any(|three| three == b"/./") || below.starts_with(b"./");
    let between: &[u8] = if below.is_empty() || begins_later { b"/" } else { b"/./" };
    OsStr::from_bytes(&[home, between, below].concat()).to_owned()
}

/// Trims slashes at the start: `~//x` is below the home directory, not `/x`.
fn trim_slashes(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    &path[slashes..]
}

fn starts_with_ignore_case(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Operand, OperandError> {
        Operand::parse(OsStr::new(text))
    }

    fn remote(user: Option<&str>, host: &str, path: &str) -> Operand {
        Operand::Remote { host: RemoteHost::new(user, host).unwrap(), path: path.into() }
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn colon_before_slash_makes_an_operand_remote() {
        assert_eq!(parse("host:dst/"), Ok(remote(None, "host", "dst/")));
        assert_eq!(parse("host:/a:b"), Ok(remote(None, "host", "/a:b")));
        assert_eq!(parse("u@host:a"), Ok(remote(Some("u"), "host", "a")));
        assert_eq!(parse("u@corp@host:a"), Ok(remote(Some("u@corp"), "host", "a")));
        for local in ["./a:b", "/a:b", "a/b:c", "plain", "-a", "u@host", "[ab]", "~/x", "."] {
            assert_eq!(parse(local), Ok(Operand::Local(local.into())), "{local}");
        }
    }

    #[test]
    fn remote_path_starts_at_the_home_directory() {
        for (text, path) in [
            ("h:", "."),
            ("h:~", "~/"),
            ("h:~/", "~/"),
            ("h:~/x/", "~/./x/"),
            ("h:~//x", "~/./x"),
            ("h:~/x/./y", "~/x/./y"),
            ("h:./~", "./~"),
            ("h:~bob", "~bob/"),
            ("h:~bob//", "~bob/"),
            ("h:~bob/x/", "~bob/./x/"),
            ("h:~bob/x/./y", "~bob/x/./y"),
            ("h:~bob/./x", "~bob/./x"),
        ] {
            assert_eq!(parse(text), Ok(remote(None, "h", path)), "{text}");
        }
    }

    #[test]
    fn ipv6_address_stands_in_brackets() {
        assert_eq!(parse("[::1]:p"), Ok(remote(None, "::1", "p")));
        assert_eq!(parse("u@[fe80::1%eth0]:/p"), Ok(remote(Some("u"), "fe80::1%eth0", "/p")));
        assert_eq!(parse("[host]:p"), Ok(remote(None, "host", "p")));
        for bad in
            ["[::1", "[::1]", "[::1]x:y", "[]:p", "[-v]x:p", "u@[::1", "[::1%]:p", "[::1%a;b]:p", "[a:b]/c"]
        {
            assert_eq!(parse(bad), Err(OperandError::BadAddress { operand: bad.into() }), "{bad}");
        }
    }

    #[test]
    fn daemon_syntax_is_refused_as_unsupported() {
        for url in ["ssh://host/m", "SFTP://u@host:22/m", "scp://host/m"] {
            assert!(matches!(parse(url), Err(OperandError::Url { .. })), "{url}");
        }
        for daemon in ["host::module", "u@host::m/x", "rsync://host/m", "RSYNC://h/m", "[::1]::m"] {
            let error = parse(daemon).unwrap_err();
            assert!(matches!(error, OperandError::Daemon { .. }), "{daemon}: {error:?}");
            assert_eq!(error.exit_code(), exit_code::UNSUPPORTED);
        }
    }

    #[test]
    fn messages_are_those_of_the_bad_input_table() {
        assert_eq!(message("-oProxyCommand=x:p"), "host may not start with '-'");
        assert_eq!(message("u@-h:p"), "host may not start with '-'");
        assert_eq!(message("-u@h:p"), "user may not start with '-'");
        assert_eq!(message("a\nb:p"), "host contains characters that are not allowed: '\\n'");
        assert_eq!(message("a b:p"), "host contains characters that are not allowed: ' '");
        assert_eq!(message("a;b:p"), "host contains characters that are not allowed: ';'");
        assert_eq!(message("$(x):p"), "host contains characters that are not allowed: '$'");
        assert_eq!(message(":dst"), "empty host in ':dst' (for a local file write './:dst')");
        assert_eq!(message("user@:dst"), "empty host in 'user@:dst' (for a local file write './user@:dst')");
        assert_eq!(message("@h:p"), "empty user before '@'");
        assert_eq!(message(""), "path is empty (unset variable in a script?)");
        assert_eq!(message("a\0b"), "path contains a NUL byte");
        assert_eq!(message("h:\0"), "path contains a NUL byte");
        assert_eq!(message("::"), "empty host in '::' (for a local file write './::')");
        assert_eq!(message(&format!("{}:p", "h".repeat(256))), "host is longer than 255 bytes");
    }

    #[test]
    fn host_that_is_not_utf8_is_refused() {
        let error = Operand::parse(OsStr::from_bytes(b"h\xff:p")).unwrap_err();
        assert_eq!(error, OperandError::ForbiddenCharacter { part: Part::Host, character: '\u{fffd}' });
    }

    #[test]
    fn path_bytes_are_kept_whatever_they_are() {
        let operand = Operand::parse(OsStr::from_bytes(b"h:\xff\n$x")).unwrap();
        assert!(matches!(operand, Operand::Remote { path, .. } if path.as_bytes() == b"\xff\n$x"));
    }

    #[test]
    fn colon_alone_repeats_the_host_before() {
        let host = RemoteHost::new(Some("u"), "h").unwrap();
        let again = |text: &str| Operand::parse_after(&host, OsStr::new(text));
        assert_eq!(again(":b"), Ok(remote(Some("u"), "h", "b")));
        assert_eq!(again(":"), Ok(remote(Some("u"), "h", ".")));
        assert_eq!(again("h2:b"), Ok(remote(None, "h2", "b")));
        assert_eq!(again("::b"), parse("::b"));
        assert_eq!(again(":\0"), Err(OperandError::Nul));
    }

    /// Asserts the law of this module on an operand that it accepts.
    fn assert_safe(operand: &Operand) {
        let Operand::Remote { host, path } = operand else { return };
        assert!(!path.is_empty());
        for part in host.user.iter().chain([&host.host]) {
            assert!(!part.is_empty() && !part.starts_with('-'), "{part:?}");
            let bad = |c: char| c.is_control() || c.is_whitespace() || "'`\"$\\;&<>|(){}*?![]#~^".contains(c);
            assert!(!part.contains(bad), "{part:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn accepted_host_is_never_an_option_nor_shell_syntax(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(operand) = Operand::parse(OsStr::from_bytes(&bytes)) {
                assert_safe(&operand);
            }
        }

        #[test]
        fn accepted_host_is_safe_near_the_syntax(text in r"[-a@:\[\]%~/. ;$\n\u{202e}é1]{0,16}") {
            if let Ok(operand) = Operand::parse(OsStr::new(&text)) {
                assert_safe(&operand);
            }
        }

        #[test]
        fn operand_with_slash_first_is_local(text in r"(/|\./)[ -~]{0,16}") {
            prop_assert_eq!(parse(&text), Ok(Operand::Local(text.into())));
        }
    }
}
