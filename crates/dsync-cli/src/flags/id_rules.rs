//! `--usermap`, `--groupmap`, `--chown`: rsync's notation for other owners.
//!
//! A comma separates rules of the form `FROM:TO`. `FROM` is a number, a range of them
//! (`1000-1999`), a name in which `*`, `?` and `[` are wildcards, or empty for numbers without a
//! name. `TO` is a number or a name.

use dsync_engine::{IdMatch, IdRule, IdTarget};

/// The rules of one `--usermap` or `--groupmap`, for users until [`IdRules::of_groups`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdRules(Vec<IdRule>);

impl IdRules {
    /// Returns the rules for users.
    pub(crate) fn of_users(&self) -> impl Iterator<Item = IdRule> {
        self.0.iter().cloned()
    }

    /// Returns the rules for groups.
    pub(crate) fn of_groups(&self) -> impl Iterator<Item = IdRule> {
        self.0.iter().map(|rule| rule.clone().group(true))
    }
}

/// The value of `--chown`: `USER`, `USER:`, `USER:GROUP` or `:GROUP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: Option<IdTarget>,
    pub(crate) group: Option<IdTarget>,
}

impl Owner {
    /// Returns the rules that give everything to this owner.
    pub(crate) fn rules(&self) -> impl Iterator<Item = IdRule> {
        let all = |group, to: &Option<IdTarget>| {
            to.clone().map(|to| IdRule::new(IdMatch::Name(b"*".to_vec()), to).group(group))
        };
        all(false, &self.user).into_iter().chain(all(true, &self.group))
    }
}

/// Parses the value of a `--usermap` or `--groupmap`.
///
/// # Errors
/// The fault, for people.
pub(crate) fn parse(text: &str) -> Result<IdRules, String> {
    let rules = text
        .split(',')
        .map(|word| rule(word).ok_or_else(|| format!("'{word}' in '{text}' is not FROM:TO (see --help)")));
    rules.collect::<Result<_, _>>().map(IdRules)
}

/// Parses the value of a `--chown`.
///
/// # Errors
/// The fault, for people.
pub(super) fn parse_owner(text: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let one = |word: &str| match word {
        "" => Ok(None),
        word => target(word).map(Some).ok_or_else(|| format!("'{word}' in '{text}' is too large")),
    };
    Ok(Owner { user: one(user)?, group: one(group)? })
}

fn rule(word: &str) -> Option<IdRule> {
    let (from, to) = word.split_once(':')?;
    Some(IdRule::new(matching(from)?, target(to)?))
}

fn matching(word: &str) -> Option<IdMatch> {
    if !word.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Some(IdMatch::Name(word.as_bytes().to_vec()));
    }
    let (low, high) = word.split_once('-').unwrap_or((word, word));
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some(IdMatch::Numbers(low, high))
}

fn target(word: &str) -> Option<IdTarget> {
    match word.as_bytes() {
        [] => None,
        [b'0'..=b'9', ..] => number(word).filter(|&id| id != u32::MAX).map(IdTarget::Number),
        name => Some(IdTarget::Name(name.to_vec())),
    }
}

fn number(word: &str) -> Option<u32> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(text: &str) -> IdTarget {
        IdTarget::Name(text.as_bytes().to_vec())
    }

    #[test]
    fn rules_are_read_in_order() {
        let rules: Vec<_> = parse("0:me,5-7:8,b*:9,:www-data").unwrap().of_groups().collect();
        let pattern = |text: &str| IdMatch::Name(text.as_bytes().to_vec());
        let rule = |from, to| IdRule::new(from, to).group(true);
        assert_eq!(
            rules,
            [
                rule(IdMatch::Numbers(0, 0), name("me")),
                rule(IdMatch::Numbers(5, 7), IdTarget::Number(8)),
                rule(pattern("b*"), IdTarget::Number(9)),
                rule(pattern(""), name("www-data")),
            ]
        );
    }

    #[test]
    fn owners_are_users_and_groups() {
        for (text, user, group) in [
            ("me", Some(name("me")), None),
            ("5:", Some(IdTarget::Number(5)), None),
            (":us", None, Some(name("us"))),
            ("me:7", Some(name("me")), Some(IdTarget::Number(7))),
            ("", None, None),
        ] {
            let owner = parse_owner(text).unwrap();
            assert_eq!(owner.rules().count(), usize::from(user.is_some()) + usize::from(group.is_some()));
            assert_eq!(owner, Owner { user, group }, "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "x", "1:", "1:2,", "7-5:1", "1-x:3", "1:99999999999", "1:4294967295", "1x:2", "1:2x"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["4294967295", ":99999999999"] {
            assert!(parse_owner(text).is_err(), "{text}");
        }
    }
}
