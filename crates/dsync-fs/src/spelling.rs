//! Names in the character set of one end, for the end that has another.
//!
//! A [`Spelling`] belongs to this end's directories ([`Dir::with_spelling`](crate::Dir::with_spelling)).
//! On the disk a name has the bytes of the set *here*; everywhere else in this process it has those
//! of the set *there*, as at the other end, which needs no conversion and knows of none.
//!
//! Laws: the map is a bijection, so two names never become one. A name of the disk that has no
//! spelling there keeps its bytes behind [`MARK`]; [`is_unspelled`] recognizes it. A name of the
//! other end reaches the disk only if reading it back returns it. ASCII stays as it is in every set.

use std::{borrow::Cow, io};

use encoding_rs::Encoding;
use rustix::io::Errno;

use crate::component::Component;

/// A character set in which names can be written: a superset of ASCII without state, in which no
/// byte of another character is an ASCII one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset(&'static Set);

#[derive(Debug, PartialEq, Eq)]
struct Set {
    name: &'static str,
    /// Further names, without punctuation, in lower case.
    also: &'static [&'static str],
    map: Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Map {
    Utf8,
    Ascii,
    Latin1,
    /// As in the Encoding Standard.
    Table(&'static Encoding),
    /// As in the Encoding Standard, without the control characters that it has for bytes without a
    /// meaning.
    Printable(&'static Encoding),
}

impl Charset {
    /// Returns the set of a name, in which case, `-`, `_` and the like do not matter.
    pub fn named(name: &str) -> Option<Self> {
        let plain = |name: &str| -> String {
            let kept = name.chars().filter(char::is_ascii_alphanumeric);
            kept.map(|letter| letter.to_ascii_lowercase()).collect()
        };
        let wanted = plain(name);
        SETS.iter().find(|set| plain(set.name) == wanted || set.also.contains(&wanted.as_str())).map(Self)
    }

    /// Returns all sets, in the order of their names' numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        SETS.iter().map(Self)
    }

    /// Returns the set's name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    fn decode(self, text: &[u8]) -> Option<Cow<'_, str>> {
        match self.0.map {
            Map::Utf8 => std::str::from_utf8(text).ok().map(Cow::Borrowed),
            Map::Ascii => None,
            Map::Latin1 => Some(text.iter().map(|&byte| char::from(byte)).collect()),
            Map::Table(set) => set.decode_without_bom_handling_and_without_replacement(text),
            Map::Printable(set) => {
                set.decode_without_bom_handling_and_without_replacement(text).filter(|text| has_no_c1(text))
            }
        }
    }

    fn encode(self, text: &str) -> Option<Vec<u8>> {
        let by = |set: &'static Encoding| {
            let (bytes, _, is_lossy) = set.encode(text);
            (!is_lossy).then(|| bytes.into_owned())
        };
        match self.0.map {
            Map::Utf8 => Some(text.as_bytes().to_vec()),
            Map::Ascii => None,
            Map::Latin1 => text.chars().map(|letter| u8::try_from(letter).ok()).collect(),
            Map::Table(set) => by(set),
            Map::Printable(set) => by(set).filter(|_| has_no_c1(text)),
        }
    }
}

fn has_no_c1(text: &str) -> bool {
    !text.chars().any(|letter| matches!(letter, '\u{80}'..='\u{9f}'))
}

/// The character sets of this end's names and of the other end's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spelling {
    here: Charset,
    there: Charset,
}

impl Spelling {
    /// Makes the map between two sets.
    pub fn new(here: Charset, there: Charset) -> Self {
        Self { here, there }
    }

    /// Returns the spelling there of a name, of a link's text or of a line; what has none keeps its
    /// bytes, behind a mark ([`is_unspelled`]).
    pub fn to_there<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        match self.spelled_there(text) {
            Some(spelled) => spelled,
            None => [MARK, text].concat().into(),
        }
    }

    /// Returns the spelling there of a text, or the text itself if it has none.
    pub fn to_there_or_same<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        self.spelled_there(text).unwrap_or(Cow::Borrowed(text))
    }

    fn spelled_there<'a>(&self, text: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if text.is_ascii() {
            return Some(Cow::Borrowed(text));
        }
        convert(text, self.here, self.there).filter(|spelled| !spelled.starts_with(MARK)).map(Cow::Owned)
    }

    /// Returns the spelling here of what [`to_there`](Self::to_there) returns; `None` for anything
    /// else.
    pub fn to_here<'a>(&self, text: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if text.is_ascii() {
            return Some(Cow::Borrowed(text));
        }
        let spelled = match text.strip_prefix(MARK) {
            Some(raw) => Cow::Borrowed(raw),
            None => Cow::Owned(convert(text, self.there, self.here)?),
        };
        (*self.to_there(&spelled) == *text).then_some(spelled)
    }

    /// Checks that the disk can have an entry of this name.
    ///
    /// # Errors
    /// `EILSEQ`.
    pub fn check_name(&self, name: &Component) -> io::Result<()> {
        name.on_disk(Some(self)).map(drop)
    }

    /// Checks that a link on the disk can have this text.
    ///
    /// # Errors
    /// `EILSEQ`.
    pub fn check_text(&self, text: &[u8]) -> io::Result<()> {
        self.to_here(text).map(drop).ok_or_else(unspellable)
    }

    /// Returns the spelling there of each name of a path.
    pub fn path_to_there(&self, path: &[u8]) -> Vec<u8> {
        by_name(path, |name| self.to_there(name))
    }

    /// Returns the spelling here of each name of a path; of one that has none, its bytes.
    pub fn path_to_here(&self, path: &[u8]) -> Vec<u8> {
        by_name(path, |name| self.to_here(name).unwrap_or(Cow::Borrowed(name)))
    }

    /// Returns the spelling there of a filter's pattern. One that has none fits the names of the disk
    /// that have none.
    pub fn pattern_to_there(&self, pattern: &[u8]) -> Vec<u8> {
        by_name(pattern, |name| match name {
            // These fit the mark as well.
            [b'*', ..] => self.to_there_or_same(name),
            _ => self.to_there(name),
        })
    }

    /// Returns the spelling there of the lines of a file of rules. Lines that have none stay as they
    /// are.
    pub fn lines_to_there(&self, text: &[u8]) -> Vec<u8> {
        let lines: Vec<_> =
            text.split(|&byte| byte == b'\n').map(|line| self.to_there_or_same(line)).collect();
        lines.join(&b'\n')
    }
}

/// Returns the error for a name or a link's text that one of the two character sets cannot spell:
/// `EILSEQ`, as of a filesystem with a set of its own.
pub(crate) fn unspellable() -> io::Error {
    Errno::ILSEQ.into()
}

/// Returns whether a name or a link's text has no spelling there: it is one of this end's disk only.
pub fn is_unspelled(name: &[u8]) -> bool {
    name.starts_with(MARK)
}

fn by_name<'a>(path: &'a [u8], spell: impl Fn(&'a [u8]) -> Cow<'a, [u8]>) -> Vec<u8> {
    let names: Vec<_> = path.split(|&byte| byte == b'/').map(spell).collect();
    names.join(&b'/')
}

/// Converts a text; `None` if that loses anything.
fn convert(text: &[u8], from: Charset, to: Charset) -> Option<Vec<u8>> {
    let letters = from.decode(text)?;
    let converted = to.encode(&letters)?;
    let is_same = to.decode(&converted)? == letters && from.encode(&letters)? == text;
    is_same.then_some(converted)
}

/// The bytes before a name that has no spelling there. UTF-8 has no such bytes; in other sets a
/// name that begins like this counts as one without a spelling.
pub(crate) const MARK: &[u8] = b"\x01\xff";

const fn set(name: &'static str, also: &'static [&'static str], map: Map) -> Set {
    Set { name, also, map }
}

/// The sets. Each is the same as in glibc, byte for byte, which `tests/iconv.rs` compares: KOI8-U is
/// not, as the Encoding Standard means KOI8-RU by it.
static SETS: [Set; 25] = [
    set("UTF-8", &[], Map::Utf8),
    set("US-ASCII", &["ascii", "ansix341968", "646", "c", "posix"], Map::Ascii),
    set("ISO-8859-1", &["88591", "latin1", "l1"], Map::Latin1),
    set("ISO-8859-2", &["88592", "latin2", "l2"], Map::Table(encoding_rs::ISO_8859_2)),
    set("ISO-8859-3", &["88593", "latin3", "l3"], Map::Table(encoding_rs::ISO_8859_3)),
    set("ISO-8859-4", &["88594", "latin4", "l4"], Map::Table(encoding_rs::ISO_8859_4)),
    set("ISO-8859-5", &["88595", "cyrillic"], Map::Table(encoding_rs::ISO_8859_5)),
    set("ISO-8859-6", &["88596", "arabic"], Map::Table(encoding_rs::ISO_8859_6)),
    set("ISO-8859-7", &["88597", "greek"], Map::Table(encoding_rs::ISO_8859_7)),
    set("ISO-8859-8", &["88598", "hebrew"], Map::Table(encoding_rs::ISO_8859_8)),
    set("ISO-8859-10", &["885910", "latin6", "l6"], Map::Table(encoding_rs::ISO_8859_10)),
    set("ISO-8859-13", &["885913", "latin7", "l7"], Map::Table(encoding_rs::ISO_8859_13)),
    set("ISO-8859-14", &["885914", "latin8", "l8"], Map::Table(encoding_rs::ISO_8859_14)),
    set("ISO-8859-15", &["885915", "latin9"], Map::Table(encoding_rs::ISO_8859_15)),
    set("ISO-8859-16", &["885916", "latin10", "l10"], Map::Table(encoding_rs::ISO_8859_16)),
    set("KOI8-R", &["koi8"], Map::Table(encoding_rs::KOI8_R)),
    set("CP866", &["ibm866", "866"], Map::Table(encoding_rs::IBM866)),
    set("CP874", &["windows874"], Map::Printable(encoding_rs::WINDOWS_874)),
    set("CP1250", &["windows1250"], Map::Printable(encoding_rs::WINDOWS_1250)),
    set("CP1251", &["windows1251"], Map::Printable(encoding_rs::WINDOWS_1251)),
    set("CP1252", &["windows1252"], Map::Printable(encoding_rs::WINDOWS_1252)),
    set("CP1253", &["windows1253"], Map::Printable(encoding_rs::WINDOWS_1253)),
    set("CP1254", &["windows1254"], Map::Printable(encoding_rs::WINDOWS_1254)),
    set("CP1256", &["windows1256"], Map::Printable(encoding_rs::WINDOWS_1256)),
    set("CP1257", &["windows1257"], Map::Printable(encoding_rs::WINDOWS_1257)),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelling(here: &str, there: &str) -> Spelling {
        Spelling::new(Charset::named(here).unwrap(), Charset::named(there).unwrap())
    }

    #[test]
    fn names_of_sets_are_read_as_people_write_them() {
        for (written, set) in [
            ("utf8", "UTF-8"),
            ("UTF_8", "UTF-8"),
            ("latin1", "ISO-8859-1"),
            ("iso8859-15", "ISO-8859-15"),
            ("ISO_8859-2", "ISO-8859-2"),
            ("windows-1252", "CP1252"),
            ("koi8r", "KOI8-R"),
            ("ANSI_X3.4-1968", "US-ASCII"),
        ] {
            assert_eq!(Charset::named(written).map(Charset::name), Some(set), "{written}");
        }
        for unknown in ["", "-", "utf-16", "iso-2022-jp", "utf-8-mac", "shift_jis", "latin"] {
            assert_eq!(Charset::named(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_name_without_a_spelling_keeps_its_bytes() {
        let map = spelling("utf8", "latin1");
        assert_eq!(*map.to_there("é".as_bytes()), *b"\xe9");
        assert_eq!(*map.to_here(b"\xe9").unwrap(), *"é".as_bytes());
        for lost in ["€".as_bytes(), b"\xe9", "\u{1}ÿ".as_bytes()] {
            let kept = map.to_there(lost);
            assert!(is_unspelled(&kept));
            assert_eq!(*map.to_here(&kept).unwrap(), *lost);
        }
        // Another spelling of a name that has one would be a second name for it.
        assert_eq!(map.to_here(&[MARK, "é".as_bytes()].concat()), None);
        assert_eq!(map.to_here(&[MARK, b"plain"].concat()), None);
        assert_eq!(spelling("latin1", "utf8").to_here(b"\xe9"), None);
        assert_eq!(spelling("latin1", "utf8").to_here("€".as_bytes()), None);
        assert!(is_unspelled(&spelling("ascii", "utf8").to_there("é".as_bytes())));
    }

    #[test]
    fn a_pattern_means_characters_and_reaches_names_without_a_spelling() {
        let map = spelling("utf8", "latin1");
        assert_eq!(map.pattern_to_there("/d/h\u{e9}*".as_bytes()), b"/d/h\xe9*");
        assert_eq!(map.pattern_to_there("*€*".as_bytes()), "*€*".as_bytes());
        assert_eq!(map.pattern_to_there("é/€uro".as_bytes()), [b"\xe9/", MARK, "€uro".as_bytes()].concat());
        assert_eq!(map.lines_to_there("- é\n- €\n".as_bytes()), [b"- \xe9\n", "- €\n".as_bytes()].concat());
        assert_eq!(map.path_to_here(b"a/\xe9/b"), "a/é/b".as_bytes());
    }

    fn any_set() -> impl Strategy<Value = Charset> {
        prop::sample::select(Charset::all().collect::<Vec<_>>())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

        /// Law: the map is a bijection between all names here and what it makes of them, whatever
        /// the sets are.
        #[test]
        fn every_name_comes_back(
            (here, there) in (any_set(), any_set()),
            (marked, rest) in (any::<bool>(), prop::collection::vec(any::<u8>(), 0..12)),
        ) {
            let name = [if marked { MARK } else { &[] }, &rest].concat();
            let map = Spelling::new(here, there);
            let spelled = map.to_there(&name);
            prop_assert_eq!(map.to_here(&spelled).map(Cow::into_owned), Some(name.clone()));
            if let Some(written) = map.to_here(&name) {
                prop_assert_eq!(&*map.to_there(&written), &*name);
            }
        }

        /// Law: a conversion makes no slash, no NUL and no dot, and drops none.
        #[test]
        fn ascii_stays(
            (here, there) in (any_set(), any_set()),
            (marked, rest) in (any::<bool>(), prop::collection::vec(any::<u8>(), 0..12)),
        ) {
            let name = [if marked { MARK } else { &[] }, &rest].concat();
            let map = Spelling::new(here, there);
            let ascii = |text: &[u8]| text.iter().copied().filter(u8::is_ascii).collect::<Vec<_>>();
            // The mark is no part of a name, also where the name begins with the mark's own bytes.
            let unmarked = |text: &[u8]| ascii(text.strip_prefix(MARK).unwrap_or(text));
            prop_assert_eq!(unmarked(&map.to_there(&name)), ascii(&name));
            if let Some(spelled) = map.to_here(&name) {
                prop_assert_eq!(ascii(&spelled), unmarked(&name));
            }
        }
    }
}
