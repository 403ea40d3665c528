//! Keys of dsync's own: the file of a private key, `dsync key`, and the servers that are known.
//!
//! The law: a private key is read from a file that nobody else can read or could have written, and
//! the key of a server that is known is never replaced here. A server that is not known is asked
//! about on the terminal; without one it stays unknown.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions, Permissions},
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Seek as _, Write as _},
    net::IpAddr,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use clap::Parser;
use dsync_engine::{
    Links, OperatorFiles, append_operator_file, exit_code,
    standing::{CertificateKind, PrivateKey, PublicKey, from_hexadecimal, hexadecimal, host_fits},
};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{
    certificates::{self, Wanted},
    closing::show,
    console::{blame, say},
    escape::escape_text,
    here::is_here,
    usage::UsageError,
    words::system_words,
};

/// Returns the command's words as clap knows them.
pub(crate) fn command() -> clap::Command {
    <Words as clap::CommandFactory>::command()
}

#[derive(Debug, Parser)]
#[command(name = "dsync key", disable_version_flag = true, max_term_width = 100)]
/// Make a key if there is none, and print its public line
///
/// The administrator of a server takes the line into the server's configuration.
struct Words {
    /// The private key's file; by default the one that runs use
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The words at the end of the line
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
    /// Sign a certificate for this public line with the private key, as an authority; the line stands in quotes
    #[arg(long, value_name = "KEY", requires_all = ["kind", "name", "expires"])]
    certify: Option<String>,
    /// With --certify: the end that the key is of
    #[arg(long = "as", value_name = "END", value_parser = ["client", "server"], requires = "certify")]
    kind: Option<String>,
    /// With --certify: the key's name in servers' configurations, or the server's host, or *.DOMAIN
    #[arg(long, value_name = "NAME", requires = "certify")]
    name: Option<String>,
    /// With --certify: the first day, in UTC, on which the certificate is no longer valid
    #[arg(long, value_name = "DATE", requires = "certify")]
    expires: Option<String>,
}

impl Words {
    /// Returns the certificate that is asked for.
    fn wanted(&self) -> Option<Wanted<'_>> {
        let kind = match self.kind.as_deref()? {
            "server" => CertificateKind::Server,
            _ => CertificateKind::Client,
        };
        let (name, expires) = (self.name.as_deref()?, self.expires.as_deref()?);
        Some(Wanted { public: self.certify.as_deref()?, kind, name, expires })
    }
}

/// Carries `dsync key` out and returns the exit code.
pub(crate) fn run(words: &[OsString]) -> u8 {
    let dashes = |word: &OsString, text: &[u8]| word.as_bytes().starts_with(text);
    if words.iter().any(|word| !dashes(word, b"-")) && !words.iter().any(|word| dashes(word, b"--")) {
        let wanted = "takes --file FILE and --comment TEXT, or --certify KEY".to_owned();
        let error = UsageError::CommandWords { command: "key", wanted, file: is_here(OsStr::new("key")) };
        blame(&escape_text(&error.to_string()));
        return error.exit_code();
    }
    let words = std::iter::once(OsString::from("dsync key")).chain(words.iter().cloned());
    let words = match Words::try_parse_from(words) {
        Ok(words) => words,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return shown(&error.to_string());
        }
        Err(error) => {
            let error = UsageError::from_clap(&error);
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };

    let path = words.file.clone().map_or_else(own_path, Ok);
    if let Some(wanted) = words.wanted() {
        let signed = path.and_then(|authority| certificates::certify(&authority, &wanted));
        return match signed {
            Ok(certificate) => {
                say(&format!("dsync: {}", certificates::describe(&certificate)));
                let comment = escape_text(&words.comment).into_owned();
                shown(format!("{certificate} {comment}").trim_end())
            }
            Err(why) => {
                blame(&escape_text(&why));
                exit_code::USAGE
            }
        };
    }
    match path.and_then(|path| read_or_make(&path)) {
        Ok(key) => {
            say(&format!("dsync: fingerprint {}\n{}", key.public().fingerprint(), key.public().drawing()));
            let comment = escape_text(&words.comment).into_owned();
            shown(format!("{} {comment}", key.public()).trim_end())
        }
        Err(why) => {
            blame(&escape_text(&why));
            exit_code::FILE_IO
        }
    }
}

fn shown(text: &str) -> u8 {
    let text = format!("{}\n", text.trim_end());
    show(text.as_bytes())
}

/// Returns the path of the key that runs use.
///
/// # Errors
/// There is no home directory.
pub(crate) fn own_path() -> Result<PathBuf, String> {
    Ok(own_dir()?.join("key"))
}

/// Returns the directory of this user's keys and known servers.
fn own_dir() -> Result<PathBuf, String> {
    // Relative ones are to be ignored (XDG Base Directory Specification).
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    dir.map(|dir| dir.join("dsync"))
        .ok_or_else(|| "neither XDG_CONFIG_HOME nor HOME names a directory".to_owned())
}

/// Opens a file that has keys, or what they may do. Only a regular one: no fifo is waited for.
///
/// # Errors
/// As [`OperatorFiles::open_regular`].
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    OperatorFiles::new(Links::Trusted).open_regular(path)
}

/// Reads a private key.
///
/// # Errors
/// The reason in words.
pub(crate) fn read(path: &Path) -> Result<PrivateKey, String> {
    from_file(open(path)?, path)
}

/// Reads the public half of a server's key, and its owner, who is root or the server's user. Root, who is to
/// find every server, may do so whoever the owner is.
///
/// # Errors
/// The reason in words.
pub(crate) fn read_public(path: &Path) -> Result<(PublicKey, u32), String> {
    let file = open(path)?;
    let fail = |error: io::Error| format!("key '{}' {}", path.display(), system_words(&error));
    let owner = file.metadata().map_err(fail)?.uid();
    let key = if rustix::process::geteuid().is_root() { parse(file, path) } else { from_file(file, path) };
    Ok((key?.public(), owner))
}

fn open(path: &Path) -> Result<File, String> {
    open_regular(path).map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::NotFound { "; 'dsync key' makes one" } else { "" };
        format!("cannot read the key '{}': {}{advice}", path.display(), system_words(&error))
    })
}

/// Reads a private key that nobody but root and this user could have made.
fn from_file(file: File, path: &Path) -> Result<PrivateKey, String> {
    let fail = |why: &str| format!("key '{}' {why}", path.display());
    let found = file.metadata().map_err(|error| fail(&system_words(&error)))?;
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return Err(fail("belongs to another user"));
    }
    parse(file, path)
}

fn parse(file: File, path: &Path) -> Result<PrivateKey, String> {
    let fail = |why: &str| format!("key '{}' {why}", path.display());
    let found = file.metadata().map_err(|error| fail(&system_words(&error)))?;
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(fail(&format!(
            "can be read by others (mode {mode:04o}): chmod 600 it, or make a new one"
        )));
    }

    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| fail(&system_words(&error)))?;
    let document = text.trim().strip_prefix(PRIVATE).and_then(|digits| from_hexadecimal(digits.trim()));
    let key = document.and_then(|document| PrivateKey::from_pkcs8(&document).ok());
    key.ok_or_else(|| fail("is no private key of dsync's"))
}

/// Reads a private key, or generates one in memory where there is none; says whether a file has it.
///
/// # Errors
/// The reason in words.
pub(crate) fn read_or_draft(path: &Path) -> Result<(PrivateKey, bool), String> {
    if let Some(key) = read_if_there(path)? {
        return Ok((key, true));
    }
    let key = PrivateKey::generate();
    let fail = |error| format!("cannot make a key: {}", system_words(&error));
    key.map(|key| (key, false)).map_err(fail)
}

/// Reads a private key; `None` if there is no file.
fn read_if_there(path: &Path) -> Result<Option<PrivateKey>, String> {
    match open_regular(path) {
        Ok(file) => from_file(file, path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(_) => read(path).map(Some),
    }
}

/// Reads a private key, or makes one where there is none.
///
/// # Errors
/// The reason in words.
pub(crate) fn read_or_make(path: &Path) -> Result<PrivateKey, String> {
    if let Some(key) = read_if_there(path)? {
        return Ok(key);
    }
    let fail = |error| not_made(path, &error);
    let key = PrivateKey::generate().map_err(fail)?;
    match write_new(path, &key) {
        // Somebody else has made one meanwhile, and nobody replaces a key.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        written => written.map(|()| key).map_err(fail),
    }
}

/// Writes a private key to a file that is not there yet.
///
/// # Errors
/// The reason in words; somebody may have made one meanwhile.
pub(crate) fn keep(path: &Path, key: &PrivateKey) -> Result<(), String> {
    write_new(path, key).map_err(|error| not_made(path, &error))
}

fn not_made(path: &Path, error: &io::Error) -> String {
    format!("cannot make the key '{}': {}", path.display(), system_words(error))
}

/// Writes a private key to a new file, which has its name only with all of its content. Makes the
/// directory.
#[expect(clippy::disallowed_methods, reason = "the user's own file, in the user's own directory")]
fn write_new(path: &Path, key: &PrivateKey) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Another key has another name here, so that nobody else writes to this file.
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.new", key.public().fingerprint().replace('/', "_")));
    let beside = dir.join(beside);

    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let text = format!("{PRIVATE} {}\n", hexadecimal(key.pkcs8()));
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let named = written.and_then(|()| name_it(&beside, path));
    // Its second name by now, or a part of a key, which is none.
    let _ = std::fs::remove_file(&beside);
    named?;
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

/// Sets the name of a file, unless another file has it.
#[expect(clippy::disallowed_methods, reason = "the user's own file, in the user's own directory")]
fn name_it(beside: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(beside, path) {
        // A filesystem without hard links. Others, of networks, have these and no such renames.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::OPNOTSUPP)) => {
            Ok(renameat_with(CWD, beside, CWD, path, RenameFlags::NOREPLACE)?)
        }
        named => named,
    }
}

/// A server as a user knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// Not at all.
    Nothing,
    /// By its key.
    Key(PublicKey),
    /// By authorities that may certify it.
    Authorities(Vec<PublicKey>),
}

/// The servers that this user knows, by host and port.
pub(crate) struct KnownHosts {
    path: PathBuf,
}

impl KnownHosts {
    /// Returns this user's own.
    ///
    /// # Errors
    /// There is no home directory.
    pub(crate) fn own() -> Result<Self, String> {
        Ok(Self { path: own_dir()?.join("known-hosts") })
    }

    /// Returns the path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what is known of a server. Its own line wins over those of authorities.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it that is needed.
    pub(crate) fn find(&self, host: &str, port: u16) -> Result<Known, String> {
        let Some(file) = self.open()? else { return Ok(Known::Nothing) };

        let (mut own, mut authorities, mut fault) = (None, Vec::new(), None);
        for (number, line) in BufReader::new(file).split(b'\n').enumerate() {
            let at = Some(number + 1);
            let line = line.map_err(|error| self.fault(at, &system_words(&error)))?;
            // A comment may be in any character set.
            let line = String::from_utf8_lossy(&line);
            let line = line.trim();
            let (known, key) = line.split_once(BLANKS).unwrap_or((line, ""));
            let key = key.trim_start();

            // It may take back what another line says.
            if known.starts_with('@') && known != AUTHORITY {
                let why = format!("'{known}' is no word of this version's, which knows {AUTHORITY} only");
                return Err(self.fault(at, &why));
            }
            if own.is_none() && is_place(known, host, port) {
                own = Some(key_behind(known, key).map_err(|why| self.fault(at, &why)));
            }
            if known == AUTHORITY {
                match authority(key, host, port) {
                    Ok(found) => authorities.extend(found),
                    Err(why) => fault = fault.or_else(|| Some(self.fault(at, &why))),
                }
            }
        }

        match (own, fault) {
            (Some(own), _) => own.map(Known::Key),
            (None, Some(fault)) => Err(fault),
            (None, None) if authorities.is_empty() => Ok(Known::Nothing),
            (None, None) => Ok(Known::Authorities(authorities)),
        }
    }

    /// Opens the file, which nobody but root and this user may have written; `None` if there is none.
    fn open(&self) -> Result<Option<File>, String> {
        let failed = |error: io::Error| self.fault(None, &system_words(&error));
        let file = match open_regular(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };

        let found = file.metadata().map_err(failed)?;
        if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.distrusted("belongs to another user", "make it yours"));
        }
        if found.mode() & 0o022 != 0 {
            let mode = found.mode() & 0o7777;
            return Err(
                self.distrusted(&format!("can be written by others (mode {mode:04o})"), "chmod go-w it")
            );
        }
        Ok(Some(file))
    }

    fn distrusted(&self, why: &str, cure: &str) -> String {
        let path = self.path.display();
        format!("'{path}' {why}, and whoever writes it decides which servers are trusted: {cure}")
    }

    fn fault(&self, line: Option<usize>, why: &str) -> String {
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        format!("{}{line}: {why}", self.path.display())
    }

    /// Asks on the terminal whether a server's key is right and notes it then.
    ///
    /// # Errors
    /// The reason why the server stays unknown.
    pub(crate) fn ask(&self, host: &str, port: u16, shown: &PublicKey) -> Result<(), String> {
        let place = place(host, port);
        let unknown = format!(
            "the key of '{place}' is not known: fingerprint {}. If its administrator names the same one, add this \
             line to {}: {place} {shown}",
            shown.fingerprint(),
            self.path.display()
        );
        let question = format!(
            "The key of '{place}' is not known. Its fingerprint is\n  {}\n{}\nIs that what its administrator says \
             (yes/no)? ",
            shown.fingerprint(),
            shown.drawing()
        );
        if !agrees(&question).unwrap_or(false) {
            return Err(unknown);
        }
        self.add(host, port, shown)
    }

    /// Returns the line of a server.
    pub(crate) fn line(host: &str, port: u16, key: &PublicKey) -> String {
        format!("{} {key}", place(host, port))
    }

    /// Adds the line of a server that is not known.
    ///
    /// # Errors
    /// The reason in words.
    #[expect(clippy::disallowed_methods, reason = "the user's own directory")]
    pub(crate) fn add(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), String> {
        let fail =
            |error: io::Error| format!("cannot write '{}': {}", self.path.display(), system_words(&error));
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir).map_err(fail)?;
        }
        let mut file = append_operator_file(&self.path, Links::Trusted).map_err(fail)?;
        // A new one is this user's alone, whatever the umask is.
        if file.metadata().map_err(fail)?.len() == 0 {
            file.set_permissions(Permissions::from_mode(0o600)).map_err(fail)?;
        }
        // Whoever wrote the last line by hand may have left it without an end.
        let is_open = open_regular(&self.path).is_ok_and(|mut file| {
            let mut last = [0];
            file.seek(io::SeekFrom::End(-1)).is_ok() && file.read(&mut last).is_ok() && last != *b"\n"
        });
        let end = if is_open { "\n" } else { "" };
        let line = format!("{end}{}\n", Self::line(host, port, key));
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)
    }
}

/// Returns the authority of a line's words behind [`AUTHORITY`], if it is one for a server.
fn authority(words: &str, host: &str, port: u16) -> Result<Option<PublicKey>, String> {
    let (place, key) = words.split_once(BLANKS).unwrap_or((words, ""));
    let (pattern, of_port) = place.rsplit_once(':').unwrap_or((place, ""));
    let is_pattern = pattern == "*" || CertificateKind::Server.admits(pattern);
    let of_port = of_port.parse::<u16>().ok().filter(|_| is_pattern);
    let of_port = of_port.ok_or_else(|| format!("'{place}' is no HOST:PORT, *.DOMAIN:PORT or *:PORT"))?;
    let key = key_behind(place, key.trim_start())?;
    Ok((of_port == port && (pattern == "*" || host_fits(pattern, host))).then_some(key))
}

/// Reads the key behind the address of a line; a comment may follow it.
fn key_behind(address: &str, key: &str) -> Result<PublicKey, String> {
    if key.is_empty() {
        return Err(format!("no key stands behind '{address}'"));
    }
    key.parse().map_err(|error| format!("'{key}' behind '{address}' {error}"))
}

fn place(host: &str, port: u16) -> String {
    format!("{host}:{port}")
}

/// Returns whether the first word of a line is this host and port, in whatever spelling.
fn is_place(word: &str, host: &str, port: u16) -> bool {
    let plain = |host: &str| host.trim_start_matches('[').trim_end_matches(['.', ']']).to_ascii_lowercase();
    let Some((name, of_port)) = word.rsplit_once(':') else { return false };
    let (name, host) = (plain(name), plain(host));
    let is_one = match (name.parse::<IpAddr>(), host.parse::<IpAddr>()) {
        (Ok(name), Ok(host)) => name == host,
        _ => name == host,
    };
    is_one && of_port.parse() == Ok(port)
}

/// Asks a question on the terminal that is answered with yes or no; `None` without a terminal.
#[expect(clippy::disallowed_methods, reason = "the terminal of this process")]
pub(crate) fn agrees(question: &str) -> Option<bool> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    if !terminal.is_terminal() {
        return None;
    }
    let mut answer = String::new();
    (&terminal).write_all(question.as_bytes()).ok()?;
    BufReader::new(&terminal).read_line(&mut answer).ok()?;
    Some(answer.trim() == "yes")
}

/// Between the words of such a line.
const BLANKS: [char; 2] = [' ', '\t'];

/// The word before an authority in a file of known servers.
const AUTHORITY: &str = "@authority";
/// The word before a private key.
const PRIVATE: &str = "dsync-private-ed25519";
/// Bytes of the longest file of a private key.
const LONGEST: u64 = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_own_line_wins_over_its_authorities_and_faults_count_where_they_matter() {
        let scratch = tempfile::tempdir().unwrap();
        let known = KnownHosts { path: scratch.path().join("known-hosts") };
        let [own, one, two] = [(); 3].map(|()| PrivateKey::generate().unwrap().public());
        let cases = [
            (String::new(), Ok(Known::Nothing)),
            (format!("nas.lan:8730 {own}\n"), Ok(Known::Key(own))),
            (format!("@authority *:8730 {one}\n nas.lan:8730 {own}\n"), Ok(Known::Key(own))),
            (format!("@authority *:8730\nnas.lan:8730 {own}\n"), Ok(Known::Key(own))),
            (format!("@authority *:8731 {one}\n"), Ok(Known::Nothing)),
            (format!("@authority lan:8730 {one}\n"), Ok(Known::Nothing)),
            (
                format!("@authority *.lan:8730 {one}\n@authority nas.lan:8730 {two} of the office\n"),
                Ok(Known::Authorities(vec![one, two])),
            ),
            (format!("@authority *:8730 {one}\n"), Ok(Known::Authorities(vec![one]))),
            (format!("nas2:8730 {own}\n@authority nas.lan {one}\n"), Err(":2: 'nas.lan' is no HOST:PORT")),
            (format!("@authority n*s:8730 {one}\n"), Err(":1: 'n*s:8730' is no HOST:PORT")),
            (
                "@authority *:8730 ssh-ed25519 AAAA\n".to_owned(),
                Err(":1: 'ssh-ed25519 AAAA' behind '*:8730' is no key like"),
            ),
            ("nas.lan:8730 AAAA\n".to_owned(), Err(":1: 'AAAA' behind 'nas.lan:8730' is no key like")),
            ("@authority *:8730\n".to_owned(), Err(":1: no key stands behind '*:8730'")),
            ("nas.lan:8730\n".to_owned(), Err(":1: no key stands behind 'nas.lan:8730'")),
            (format!("nas.lan:8730 {own}\n@revoked *:8730 {one}\n"), Err(":2: '@revoked' is no word")),
            ("@cert-authority\n".to_owned(), Err(":1: '@cert-authority' is no word")),
            ("# @revoked\n".to_owned(), Ok(Known::Nothing)),
            (format!("NAS.lan.:8730\t \t{own}\r\n"), Ok(Known::Key(own))),
            (format!("@authority\t*.lan:8730 \t {one}\n"), Ok(Known::Authorities(vec![one]))),
            (format!("nas.lan:873 {one}\nnas.lan:08730 {own}\n"), Ok(Known::Key(own))),
        ];

        for (text, expected) in cases {
            let mut file = File::create(&known.path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            match (known.find("nas.lan", 8730), expected) {
                (Err(why), Err(words)) => assert!(why.contains(words), "{text}: {why}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{text}"),
            }
        }
    }

    #[test]
    fn known_servers_of_a_file_that_others_can_write_are_trusted_no_more() {
        let scratch = tempfile::tempdir().unwrap();
        let known = KnownHosts { path: scratch.path().join("known-hosts") };
        let own = PrivateKey::generate().unwrap().public();
        known.add("nas", 8730, &own).unwrap();
        for (mode, is_trusted) in
            [(0o600, true), (0o644, true), (0o666, false), (0o664, false), (0o602, false), (0o620, false)]
        {
            std::fs::set_permissions(&known.path, Permissions::from_mode(mode)).unwrap();
            match known.find("nas", 8730) {
                Ok(found) => assert!(is_trusted && found == Known::Key(own), "{mode:o}"),
                Err(why) => {
                    let words = format!("known-hosts' can be written by others (mode {mode:04o})");
                    assert!(!is_trusted && why.contains(&words), "{mode:o}: {why}");
                }
            }
        }
    }

    #[test]
    fn a_line_counts_whatever_its_comment_is_and_however_its_address_is_written() {
        let scratch = tempfile::tempdir().unwrap();
        let known = KnownHosts { path: scratch.path().join("known-hosts") };
        let own = PrivateKey::generate().unwrap().public();
        let line = [format!("2001:DB8:0::1:8730 {own} ").as_bytes(), b"M\xfcller\n"].concat();
        std::fs::write(&known.path, line).unwrap();
        for host in ["2001:db8::1", "2001:db8:0:0::1"] {
            assert_eq!(known.find(host, 8730), Ok(Known::Key(own)), "{host}");
        }
        assert_eq!(known.find("2001:db8::2", 8730), Ok(Known::Nothing));
        std::fs::write(&known.path, format!("[::1]:99 {own}")).unwrap();
        assert_eq!(known.find("::1", 99), Ok(Known::Key(own)));
    }
}
