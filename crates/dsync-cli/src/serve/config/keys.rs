//! The keys of a configuration, by name.
//!
//! A client may have several at a time, of one name: a new one takes over from an old one in the same
//! directory, with the same quota. The law: no public key is there twice, so each has one name.

use std::{collections::BTreeMap, ops::Range};

use dsync_engine::standing::PublicKey;
use jiff::civil::Date;
use toml::Spanned;

use super::{
    mistake::Mistake,
    tables::{KeyTable, Lines},
};

/// A client's key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Key {
    /// The day since which it is known.
    pub(crate) since: Option<Date>,
    /// The first day on which it is no longer let in.
    pub(crate) expires: Option<Date>,
    /// The key itself; `None` for one that only sshd knows, or an authority.
    pub(crate) public: Option<PublicKey>,
    /// The authorities that may certify a key of this name.
    pub(crate) authorities: Vec<PublicKey>,
}

impl Key {
    /// Returns whether the key is no longer let in on a day.
    pub(crate) fn is_expired(&self, today: Date) -> bool {
        self.expires.is_some_and(|day| day <= today)
    }
}

/// The keys by name; a client that changes its key has several of one name, with the same days.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Keys(BTreeMap<String, Vec<Key>>);

impl Keys {
    /// Reads the tables of keys.
    pub(super) fn of(tables: BTreeMap<String, Spanned<KeyTable>>) -> Result<Self, Mistake> {
        let mut keys = Self::default();
        for (name, table) in tables {
            let (at, table) = (table.span(), table.into_inner());
            check_name("key", &name, &at)?;
            let since = table.since.map(|day| read_day(&day)).transpose()?;
            let expires = table.expires.map(|day| read_day(&day)).transpose()?;
            let authorities = table.authority.map(|lines| read_authorities(&name, lines)).transpose()?;
            let authorities = authorities.unwrap_or_default();
            let Some(public) = table.public else {
                keys.add(name, Key { since, expires, public: None, authorities });
                continue;
            };

            let lines_at = public.span();
            let lines = public.into_inner().0;
            if lines.is_empty() {
                let text = format!("key '{name}' has no line in 'public': leave it out for --stdio only");
                return Err(Mistake::at(&lines_at, text));
            }
            for (text, at) in lines {
                let at = at.unwrap_or_else(|| lines_at.clone());
                let wrong = |error| Mistake::at(&at, format!("'{text}' {error}"));
                let public: PublicKey = text.parse().map_err(wrong)?;
                if let Some(other) = keys.name_of(public) {
                    let text = if *other == name {
                        format!("this key is there twice for '{name}'")
                    } else {
                        format!("this key is there for '{other}' and for '{name}': one key has one name")
                    };
                    return Err(Mistake::at(&at, text));
                }
                let authorities = authorities.clone();
                keys.add(name.clone(), Key { since, expires, public: Some(public), authorities });
            }
        }
        Ok(keys)
    }

    /// Adds a key; one that has the same name stays beside it.
    pub(crate) fn add(&mut self, name: String, key: Key) {
        self.0.entry(name).or_default().push(key);
    }

    /// Returns the first key of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Key> {
        self.0.get(name)?.first()
    }

    /// Returns the name of a key.
    pub(crate) fn name_of(&self, public: PublicKey) -> Option<&String> {
        self.iter().find(|(_, key)| key.public == Some(public)).map(|(name, _)| name)
    }

    /// Returns each authority with the name that it may certify.
    pub(crate) fn authorities(&self) -> Vec<(String, PublicKey)> {
        let of_name = |name: &String| {
            let authorities = self.get(name).map(|key| key.authorities.clone()).unwrap_or_default();
            authorities.into_iter().map(|authority| (name.clone(), authority)).collect::<Vec<_>>()
        };
        self.names().flat_map(of_name).collect()
    }

    /// Returns each name once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Returns each key with its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Key)> {
        self.0.iter().flat_map(|(name, keys)| keys.iter().map(move |key| (name, key)))
    }

    /// Returns each key.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Key> {
        self.0.values().flatten()
    }
}

/// Reads the authorities of a name.
fn read_authorities(name: &str, written: Spanned<Lines>) -> Result<Vec<PublicKey>, Mistake> {
    let lines_at = written.span();
    let lines = written.into_inner().0;
    if lines.is_empty() {
        return Err(Mistake::at(&lines_at, format!("key '{name}' has no line in 'authority'")));
    }
    let mut authorities = Vec::new();
    for (text, at) in lines {
        let at = at.unwrap_or_else(|| lines_at.clone());
        let authority = text.parse().map_err(|error| Mistake::at(&at, format!("'{text}' {error}")))?;
        if authorities.contains(&authority) {
            return Err(Mistake::at(&at, format!("this authority is there twice for '{name}'")));
        }
        authorities.push(authority);
    }
    Ok(authorities)
}

fn read_day(written: &Spanned<toml::value::Datetime>) -> Result<Date, Mistake> {
    let datetime = written.get_ref();
    let date = datetime.date.filter(|_| datetime.time.is_none());
    date.and_then(|date| {
        let year = i16::try_from(date.year).ok()?;
        Date::new(year, i8::try_from(date.month).ok()?, i8::try_from(date.day).ok()?).ok()
    })
    .ok_or_else(|| Mistake::at(&written.span(), format!("'{datetime}' is no day like 2027-12-31")))
}

/// Refuses a name that could be taken for an option, a path or an expansion.
pub(super) fn check_name(what: &str, name: &str, at: &Range<usize>) -> Result<(), Mistake> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(allowed)
    {
        return Ok(());
    }
    let rule = format!("letters, digits, '.', '_' and '-', a letter or digit first, at most {LONGEST_NAME}");
    Err(Mistake::at(at, format!("'{name}' is no name of a {what}: {rule}")))
}

/// Bytes of the longest name of a key or share.
const LONGEST_NAME: usize = 64;
