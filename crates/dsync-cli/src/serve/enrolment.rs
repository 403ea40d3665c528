//! `dsync enroll --answer`: the server's end of `dsync enroll`, in the administrator's own login.
//!
//! Reads a request, and answers with the lines that would be added to the configuration; a second
//! request with the sum of them and of the text that they are for adds them. The law: lines are only added at
//! the end, and only if the configuration then means what it meant before and this key's part of
//! this share, which is compared. Whatever else would be needed is refused with what to do.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use dsync_engine::{Access, exit_code, standing::PublicKey};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::{
    DEFAULT,
    config::{self, Config, Key, NotAdded, Offer, Part, add_lines, today},
    limits::KeyLimits,
    status,
};
use crate::{closing, console::print, keys, words::system_words};

/// A client that wants to be known.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The configuration's path; `None` for the usual one.
    pub(crate) config: Option<String>,
    /// The client's public line.
    pub(crate) public: String,
    /// The key's name in the configuration, if one is asked for.
    pub(crate) key: Option<String>,
    /// The name that it gets otherwise.
    pub(crate) host: String,
    /// The share; `None` for the only one.
    pub(crate) share: Option<String>,
    /// The role, if one is asked for.
    pub(crate) role: Option<String>,
    /// The directory in the share, if one is asked for.
    pub(crate) directory: Option<Directory>,
    /// The sum of what was shown; only those lines are added, and to that text only.
    pub(crate) shown: Option<String>,
}

/// The directory of a key in a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Directory {
    /// All of the share.
    Whole,
    /// A directory in it; `{key}` is the key's name.
    Named(String),
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Nothing was written, with the exit code and the reason.
    Refused(u8, String),
    Known(Known),
}

/// A key's part of a share, and what makes it known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The configuration's path.
    pub(crate) config: String,
    /// The lines that it lacks; none if the key is known.
    pub(crate) lines: String,
    /// The sum of the text that they are for, and of them.
    pub(crate) sum: String,
    pub(crate) share: String,
    pub(crate) key: String,
    /// The role and the place, in words.
    pub(crate) purpose: String,
    /// The server's public key.
    pub(crate) server: String,
    /// The port that the configuration names; `None` if the system chooses it.
    pub(crate) port: Option<u16>,
    /// The lines were added.
    pub(crate) added: bool,
    /// A server stands, and has read the configuration anew.
    pub(crate) told: bool,
}

type Refusal = (u8, String);

/// Answers the request on standard input; returns the exit code.
pub(crate) fn run() -> u8 {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(LONGEST_REQUEST).read_to_end(&mut text);
    let request = read.ok().and_then(|_| serde_json::from_slice::<Request>(&text).ok());
    let answer = match request {
        None => Err((exit_code::INCOMPATIBLE, "the request is of another version of dsync".to_owned())),
        Some(request) => answer(&request),
    };
    let (code, answer) = match answer {
        Ok(known) => (exit_code::OK, Answer::Known(known)),
        Err((code, why)) => (code, Answer::Refused(code, why)),
    };
    let text = serde_json::to_vec(&answer).unwrap_or_default();
    closing::printed(print(&text), code)
}

fn answer(request: &Request) -> Result<Known, Refusal> {
    let path = PathBuf::from(request.config.as_deref().unwrap_or(DEFAULT));
    let config = read(&path)?;
    let server = config.server.as_ref().ok_or_else(|| {
        let why =
            "has no [server], so no server with a port reads it; for keys of ssh see 'dsync serve --stdio'";
        usage(format!("{} {why}", path.display()))
    })?;
    let (identity, owner) = keys::read_public(&server.identity).map_err(|why| {
        let make = format!("'dsync key --file {}' there makes one", server.identity.display());
        (exit_code::AUTHENTICATION, format!("the server has no key of its own: {why}; {make}"))
    })?;

    let mut known = plan(&config, request, today())?;
    known.config = path.display().to_string();
    known.sum = sum(&config.text, &known.lines);
    known.server = identity.to_string();
    known.port = server.listen.first().map(std::net::SocketAddr::port).filter(|port| *port != 0);
    let Some(shown) = &request.shown else { return Ok(known) };

    if *shown != known.sum {
        return Err(changed(&path));
    }
    if !known.lines.is_empty() {
        add_lines(&path, &config.text, &known.lines).map_err(|error| not_added(&path, error))?;
        known.added = true;
    }
    let name = status::name(&identity.fingerprint(), &path);
    known.told = status::tell_to_reload(&name, owner, &known.sum);
    Ok(known)
}

/// Reads the configuration.
fn read(path: &Path) -> Result<Config, Refusal> {
    // Its own reasons name these as well, without what to do.
    if let Err(error) = keys::open_regular(path) {
        let cure = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "the server's administrator makes it (docs/server.md), or --config names another"
            }
            _ => LOGIN,
        };
        let why = format!(
            "the configuration '{}' cannot be read: {}; {cure}",
            path.display(),
            system_words(&error)
        );
        return Err((exit_code::FILE_IO, why));
    }
    Config::read(path).map_err(|error| usage(error.to_string()))
}

fn usage(why: String) -> Refusal {
    (exit_code::USAGE, why)
}

fn changed(path: &Path) -> Refusal {
    let why = format!("'{}' was changed meanwhile: run the same again", path.display());
    (exit_code::LOCKED, why)
}

fn not_added(path: &Path, error: NotAdded) -> Refusal {
    match error {
        NotAdded::Changed => changed(path),
        NotAdded::Busy => {
            let why = format!(
                "'{}' is being written by another 'dsync enroll'; it is what it was: run the same again",
                path.display()
            );
            (exit_code::LOCKED, why)
        }
        NotAdded::Config(error) => usage(error.to_string()),
        NotAdded::Written(why) => {
            let why = format!("'{}' cannot be written: {why}; it is what it was; {LOGIN}", path.display());
            (exit_code::FILE_IO, why)
        }
    }
}

/// Returns the lines that make a key known today, checked against what they are to mean.
fn plan(config: &Config, request: &Request, today: Date) -> Result<Known, Refusal> {
    let public: PublicKey =
        request.public.parse().map_err(|error| usage(format!("'{}' {error}", request.public)))?;
    let (share, offer) = share_of(config, request.share.as_deref())?;
    let (key, is_new) = name_of(config, request, public, today)?;

    let found = offer.keys.get(&key);
    let role = request.role.as_deref().or_else(|| found.map(|part| part.role.role())).unwrap_or(LEAST);
    let directory = match (&request.directory, found) {
        (Some(directory), _) => directory.clone(),
        (None, Some(part)) => part
            .directory
            .as_ref()
            .map_or(Directory::Whole, |directory| Directory::Named(directory.display().to_string())),
        (None, None) => Directory::Named("{key}".to_owned()),
    };
    let place = match &directory {
        Directory::Whole => None,
        Directory::Named(named) => {
            Config::check_key_directory(named, &key)
                .map_err(|why| usage(format!("{why}; --directory names another")))?;
            Some(PathBuf::from(named.replace("{key}", &key)))
        }
    };
    let known = Known {
        share: share.to_owned(),
        key: key.clone(),
        purpose: format!("{role}, {}", in_words(place.as_deref())),
        ..Known::default()
    };

    if let Some(part) = found {
        if part.role.role() == role && part.directory == place {
            return Ok(known);
        }
        return Err(other_part(share, &key, part, &known.purpose));
    }
    let new = is_new.then_some((public, today));
    let lines = lines(config, (share, &key), new, (role, &directory));
    check(config, &lines, (share, &key), new, (role, place))?;
    Ok(Known { lines, ..known })
}

/// Describes a key's place in a share.
fn in_words(directory: Option<&Path>) -> String {
    match directory {
        Some(directory) => format!("'{}' in it", directory.display()),
        None => "all of it".to_owned(),
    }
}

/// Finds the share that is meant.
fn share_of<'a>(config: &'a Config, named: Option<&str>) -> Result<(&'a str, &'a Offer), Refusal> {
    let all: Vec<&str> = config.shares.keys().map(String::as_str).collect();
    let found = match (named, &all[..]) {
        (Some(named), _) => config.shares.get_key_value(named),
        (None, [_]) => config.shares.iter().next(),
        (None, []) => return Err(usage("the server's configuration has no share yet".to_owned())),
        (None, _) => {
            return Err(usage(format!(
                "the server has several shares: --share names one of {}",
                all.join(", ")
            )));
        }
    };
    found.map(|(name, offer)| (name.as_str(), offer)).ok_or_else(|| {
        usage(format!("the server has no share '{}', only {}", named.unwrap_or_default(), all.join(", ")))
    })
}

/// Returns the name of a key, and whether the configuration has to get it.
fn name_of(
    config: &Config,
    request: &Request,
    public: PublicKey,
    today: Date,
) -> Result<(String, bool), Refusal> {
    let same = config.keys.iter().find(|(_, key)| key.public == Some(public));
    let wanted = request.key.as_ref();
    if let Some((name, key)) = same {
        if wanted.is_some_and(|wanted| wanted != name) {
            return Err(usage(format!("this client's key is known there as '{name}': leave --key out")));
        }
        if key.is_expired(today) {
            let why = format!(
                "this client's key, '{name}', has expired there: its administrator decides, by 'expires' in the \
                 configuration"
            );
            return Err((exit_code::AUTHENTICATION, why));
        }
        return Ok((name.clone(), false));
    }

    let name = wanted.unwrap_or(&request.host);
    match config.keys.get(name) {
        None => {
            Config::check_key_name(name)
                .map_err(|why| usage(format!("{why}; --key gives this one another")))?;
            Ok((name.clone(), true))
        }
        Some(Key { public: Some(_), .. }) => Err(usage(format!(
            "another client has the name '{name}' there: --key gives this one a name of its own. If this client's \
             key is new, the administrator adds it to the old one's 'public'"
        ))),
        Some(Key { authorities, .. }) if !authorities.is_empty() => Err(usage(format!(
            "'{name}' is the name of keys that an authority certifies there: --key gives this one another, or the \
             authority certifies this client's key"
        ))),
        Some(_) => Err(usage(format!(
            "'{name}' is the name of a key for 'dsync serve --stdio' there: --key gives this one another"
        ))),
    }
}

/// Says that a key has another part of the share than the one that is asked for.
fn other_part(share: &str, key: &str, part: &Part, wanted: &str) -> Refusal {
    let place = in_words(part.directory.as_deref());
    let why = format!(
        "the key '{key}' is there already, for share '{share}' with another role or directory: {}, {place}; asked for \
         is {wanted}. Nothing is changed that is there: edit [shares.{share}.keys.{key}], or leave --role and \
         --directory out",
        part.role.role()
    );
    (exit_code::POLICY, why)
}

/// Writes the lines; a key that is `new` has its day beside it, by which `--check` knows its age.
fn lines(
    config: &Config,
    (share, key): (&str, &str),
    new: Option<(PublicKey, Date)>,
    (role, directory): (&str, &Directory),
) -> String {
    let mut lines = String::new();
    if !config.text.is_empty() && !config.text.ends_with('\n') {
        lines.push('\n');
    }
    if let Some((public, today)) = new {
        let public = quoted(&public.to_string());
        lines += &format!("\n[keys.{}]\npublic = {public}\nsince = {today}\n", bare(key));
    }
    lines += &format!("\n[shares.{}.keys.{}]\nrole = {}\n", bare(share), bare(key), quoted(role));
    if let Directory::Named(named) = directory {
        lines += &format!("directory = {}\n", quoted(named));
    }
    lines
}

/// Returns a name as a part of a table's name.
fn bare(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// Returns a text as TOML's strings are written, which JSON's are as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Compares what the configuration would mean with what it is to mean.
fn check(
    config: &Config,
    lines: &str,
    (share, key): (&str, &str),
    new: Option<(PublicKey, Date)>,
    (role, directory): (&str, Option<PathBuf>),
) -> Result<(), Refusal> {
    let text = format!("{}{lines}", config.text);
    let by_hand = "the administrator adds the key by hand (docs/server.md)";
    let parsed = Config::parse_named(&text)
        .map_err(|why| usage(format!("the configuration cannot be added to: {why}; {by_hand}")))?;

    let mut meant = Config { text, ..config.clone() };
    if let Some((public, today)) = new {
        let known = Key { public: Some(public), since: Some(today), ..Key::default() };
        meant.keys.add(key.to_owned(), known);
    }
    let role = [Access::ReadOnly, Access::Append, Access::Keep, Access::Write, Access::ReadWrite]
        .into_iter()
        .find(|access| access.role() == role);
    if let (Some(offer), Some(role)) = (meant.shares.get_mut(share), role) {
        offer.keys.insert(key.to_owned(), Part { role, directory, limits: KeyLimits::default() });
    }
    if parsed == meant {
        return Ok(());
    }
    Err(usage(format!("the configuration would mean something else with these lines: {by_hand}")))
}

/// Returns the sum by which a text and the lines for it are known again: over midnight a new key's
/// lines are others than the person saw.
fn sum(text: &str, lines: &str) -> String {
    config::sum(&format!("{text}{lines}"))
}

/// The role of a key for which none is asked.
const LEAST: &str = "read";
/// The advice where the login may not.
const LOGIN: &str = "log in as who may (root@HOST), or name the program so: --dsync-path='sudo dsync'";
/// Bytes of the longest request: names and one key.
const LONGEST_REQUEST: u64 = 64 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::standing::PrivateKey;

    use super::*;

    const CONFIG: &str = "\
[server]
# Words of the administrator.
[keys.old]
[keys.gone]
public = 'dsync-ed25519 1111111111111111111111111111111111111111111111111111111111111111'
expires = 2020-01-01
[shares.a]
path = '/a'
[shares.'b.c']
path = '/b'";

    const TODAY: Date = Date::constant(2026, 11, 24);

    fn request(public: &str) -> Request {
        Request {
            config: None,
            public: public.to_owned(),
            key: None,
            host: "laptop".to_owned(),
            share: Some("a".to_owned()),
            role: None,
            directory: None,
            shown: None,
        }
    }

    #[test]
    fn lines_of_the_least_role_are_added_once() {
        let public = PrivateKey::generate().unwrap().public().to_string();
        let config = Config::parse_named(CONFIG).unwrap();
        let known = plan(&config, &request(&public), TODAY).unwrap();
        assert_eq!(
            known.lines,
            format!(
                "\n\n[keys.laptop]\npublic = \"{public}\"\nsince = 2026-11-24\n\n[shares.a.keys.laptop]\nrole = \"read\"\ndirectory = \
                 \"{{key}}\"\n"
            )
        );
        let after = Config::parse_named(&format!("{CONFIG}{}", known.lines)).unwrap();
        assert_eq!(plan(&after, &request(&public), TODAY.tomorrow().unwrap()).unwrap().lines, "");

        // A second share gets its own lines only, and a name with a dot is one name.
        let second =
            Request { share: Some("b.c".to_owned()), role: Some("append".to_owned()), ..request(&public) };
        let known = plan(&after, &Request { directory: Some(Directory::Whole), ..second }, TODAY).unwrap();
        assert_eq!(known.lines, "\n[shares.\"b.c\".keys.laptop]\nrole = \"append\"\n");
        assert_eq!((known.key.as_str(), known.purpose.as_str()), ("laptop", "append, all of it"));
    }

    #[test]
    fn what_would_change_or_cannot_be_checked_is_refused_with_what_to_do() {
        let public = PrivateKey::generate().unwrap().public().to_string();
        let other = PrivateKey::generate().unwrap().public().to_string();
        let config = Config::parse_named(CONFIG).unwrap();
        let lines = plan(&config, &request(&public), TODAY).unwrap().lines;
        let after = Config::parse_named(&format!("{CONFIG}{lines}")).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let named = |name: &str| Some(Directory::Named(name.to_owned()));
        let gone = "dsync-ed25519 1111111111111111111111111111111111111111111111111111111111111111";
        for (config, request, words) in [
            (&after, Request { role: text("full"), ..request(&public) }, "with another role"),
            (&after, Request { directory: named("x"), ..request(&public) }, "with another role or directory"),
            (&after, request(&other), "another client has the name 'laptop'"),
            (&after, Request { key: text("web"), ..request(&public) }, "known there as 'laptop'"),
            (&config, Request { key: text("old"), ..request(&public) }, "--stdio"),
            (&config, request(gone), "has expired"),
            (&config, Request { share: None, ..request(&public) }, "names one of a, b.c"),
            (&config, Request { share: text("x"), ..request(&public) }, "no share 'x'"),
            (&config, Request { role: text("keep"), ..request(&public) }, "needs 'keep-days'"),
            (&config, Request { role: text("root"), ..request(&public) }, "is none of"),
            (&config, request("ssh-ed25519 AAAA"), "is no key"),
        ] {
            let error = plan(config, &request, TODAY).unwrap_err().1;
            assert!(error.contains(words), "{words}: {error}");
        }

        // The cure is the option, and nothing is to be done by hand.
        let no_name = "at most 64; --key gives this one another";
        let no_directory = "without a leading '/' or '..'; --directory names another";
        for (request, words) in [
            (Request { key: text("a b"), ..request(&public) }, no_name),
            (Request { key: text("a]\nx"), ..request(&public) }, no_name),
            (Request { key: text(""), ..request(&public) }, no_name),
            (Request { host: "my laptop".to_owned(), ..request(&public) }, no_name),
            (Request { directory: named("../x"), ..request(&public) }, no_directory),
            (Request { directory: named("/x"), ..request(&public) }, no_directory),
            (Request { directory: named(""), ..request(&public) }, no_directory),
        ] {
            let error = plan(&config, &request, TODAY).unwrap_err().1;
            assert!(error.ends_with(words) && !error.contains("by hand"), "{words}: {error}");
        }

        // Tables that are written in one line take no more lines.
        let inline = "keys = {}\n[server]\n[shares.a]\npath = '/a'\n";
        let error = plan(&Config::parse_named(inline).unwrap(), &request(&public), TODAY).unwrap_err().1;
        assert!(error.contains("cannot be added to") && error.contains("by hand"), "{error}");
    }
}
