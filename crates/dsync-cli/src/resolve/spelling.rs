//! The character sets of names: `--iconv`.

use std::ffi::OsString;

use dsync_engine::{Charset, Destination, Source, Spelling};

use crate::{flags::Flags, usage::UsageError};

/// Returns the character sets of a run's names, if they are converted.
///
/// # Errors
/// [`UsageError`] for a set that is not known, and for the locale's set of another host.
pub(super) fn spelling(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
    ends: (&Source, &Destination),
) -> Result<Option<Spelling>, UsageError> {
    let Some(sets) = flags.selection.iconv.as_deref().filter(|sets| *sets != "-") else { return Ok(None) };
    let is_remote = matches!(ends.0, Source::Remote { .. }) || matches!(ends.1, Destination::Remote { .. });
    let (here, there) = sets.split_once(',').unwrap_or((sets, sets));
    if there == LOCALE && is_remote {
        return Err(UsageError::UnsupportedValue {
            option: "--iconv".to_owned(),
            value: sets.to_owned(),
            known: "the name of the other end's character set, as in --iconv=.,UTF-8: dsync does not ask for the \
                    locale there"
                .to_owned(),
        });
    }

    let set = |name| match name {
        LOCALE => of_locale(environment),
        name => known(name),
    };
    Ok(Some(Spelling::new(set(here)?, set(there)?)))
}

fn known(name: &str) -> Result<Charset, UsageError> {
    if name.is_empty() {
        return Err(UsageError::ValueInvalid {
            option: "--iconv".to_owned(),
            reason: "the name of a character set is empty (unset variable in a script?)".to_owned(),
        });
    }
    Charset::named(name).ok_or_else(|| UsageError::UnsupportedValue {
        option: "--iconv".to_owned(),
        value: name.to_owned(),
        known: Charset::all().map(Charset::name).collect::<Vec<_>>().join(", "),
    })
}

/// Returns the set that the environment's locale names.
fn of_locale(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Charset, UsageError> {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(environment);
    let locale = locale.map(|value| value.to_string_lossy().into_owned()).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_else(|| "C".to_owned());
    let name = locale.split('@').next().unwrap_or_default();
    match (name, name.split_once('.')) {
        (_, Some((_, set))) => known(set),
        ("C" | "POSIX", None) => known("US-ASCII"),
        _ => Err(UsageError::UnsupportedValue {
            option: "--iconv".to_owned(),
            value: LOCALE.to_owned(),
            known: format!(
                "the name of a set: the locale '{locale}' of the environment names no character set"
            ),
        }),
    }
}

/// The name that stands for the set of an end's locale.
const LOCALE: &str = ".";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(words: &[&str], locale: &[(&str, &str)]) -> Result<Option<Spelling>, String> {
        let flags = crate::flags::parse(words.iter().map(OsString::from)).unwrap();
        let environment = |name: &str| {
            locale.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let (source, destination) = super::super::ends(&flags.operands, false).unwrap();
        spelling(&flags, &environment, (&source, &destination)).map_err(|error| error.to_string())
    }

    fn sets(here: &str, there: &str) -> Option<Spelling> {
        Some(Spelling::new(Charset::named(here).unwrap(), Charset::named(there).unwrap()))
    }

    #[test]
    fn the_last_word_on_sets_counts() {
        for (words, expected) in [
            (&["a", "b"][..], None),
            (&["--iconv=utf8,latin1", "a", "b"], sets("utf8", "latin1")),
            (&["--iconv=utf8,latin1", "--no-iconv", "a", "b"], None),
            (&["--no-iconv", "--iconv=utf8,latin1", "a", "b"], sets("utf8", "latin1")),
            (&["--iconv=utf8,latin1", "--iconv=-", "a", "b"], None),
            (&["--iconv=koi8-r", "a", "b"], sets("koi8-r", "koi8-r")),
            (&["--iconv=utf8,latin1", "a", "h:b"], sets("utf8", "latin1")),
            (&["--iconv=.,latin1", "h:a", "b"], sets("utf8", "latin1")),
            (&["--iconv=.", "a", "b"], sets("utf8", "utf8")),
        ] {
            assert_eq!(of(words, &[("LANG", "de_DE.UTF-8")]).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn the_locale_is_that_of_characters() {
        let words = ["--iconv=.,utf8", "a", "b"];
        for (locale, set) in [
            (&[][..], "US-ASCII"),
            (&[("LANG", "C")], "US-ASCII"),
            (&[("LANG", "C.UTF-8")], "UTF-8"),
            (&[("LANG", "C.UTF-8"), ("LC_ALL", "ru_RU.KOI8-R")], "KOI8-R"),
            (&[("LC_ALL", ""), ("LC_CTYPE", "de_DE.ISO-8859-15@euro")], "ISO-8859-15"),
        ] {
            assert_eq!(of(&words, locale).unwrap(), sets(set, "utf8"), "{locale:?}");
        }
        assert!(of(&words, &[("LANG", "de_DE")]).unwrap_err().contains("names no character set"));
    }

    #[test]
    fn sets_that_cannot_be_had_are_refused_by_name() {
        for (words, message) in [
            (["--iconv=utf8,shift_jis", "a", "b"], "shift_jis"),
            (["--iconv=,", "a", "b"], "--iconv: the name of a character set is empty"),
            (["--iconv=", "a", "b"], "--iconv: the name of a character set is empty"),
            (["--iconv=utf8,", "a", "b"], "--iconv: the name of a character set is empty"),
            (
                ["--iconv=utf8,.", "a", "h:b"],
                "--iconv=utf8,. is not supported by dsync; use the name of the other end's character set",
            ),
            (["--iconv=.", "h:a", "b"], "--iconv=. is not supported by dsync; use the name of"),
        ] {
            let error = of(&words, &[]).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
