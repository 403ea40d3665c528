//! Other owners, in the notation of rsync's `--usermap`, `--groupmap` and `--chown`.
//!
//! A comma separates rules of the form `FROM:TO`. `FROM` is a number, a range of them
//! (`1000-1999`), a name in which `*`, `?` and `[` are wildcards, or empty for numbers without a
//! name. `TO` is a number or a name.
//!
//! ```
//! use dsync_engine::{IdMatch, IdRule, IdTarget, notation::id_rules};
//!
//! // A program that knows numbers needs no notation.
//! let rule = IdRule::new(IdMatch::Numbers(1000, 1999), IdTarget::Number(1000));
//! assert_eq!(id_rules("1000-1999:1000")?, [rule]);
//! # Ok::<(), dsync_engine::notation::NotationError>(())
//! ```

use dsync_wire::options::{IdMatch, IdRule, IdTarget};

use super::{Notation, NotationError};

/// Parses rules for other owners, for [`SyncOptions::id_rules`](crate::SyncOptions::id_rules). They are for
/// users until [`IdRule::group`] says otherwise.
///
/// ```
/// use dsync_engine::notation::id_rules;
///
/// let users = id_rules("0:backup,1000-1999:1000")?;
/// let groups = id_rules("*:backup")?.into_iter().map(|rule| rule.group(true));
/// assert_eq!(users.into_iter().chain(groups).count(), 3);
/// # Ok::<(), dsync_engine::notation::NotationError>(())
/// ```
///
/// # Errors
/// [`NotationError`] names the first word that is no rule.
pub fn id_rules(text: &str) -> Result<Vec<IdRule>, NotationError> {
    let fault = |word| NotationError::new(Notation::IdRules, word, text);
    text.split(',').map(|word| rule(word).ok_or_else(|| fault(word))).collect()
}

/// One owner for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The user; `None` if users are left as they are.
    pub user: Option<IdTarget>,
    /// The group; `None` if groups are left as they are.
    pub group: Option<IdTarget>,
}

impl Owner {
    /// Parses `USER`, `USER:`, `USER:GROUP` or `:GROUP`, each a name or a number.
    ///
    /// ```
    /// use dsync_engine::notation::Owner;
    ///
    /// assert_eq!(Owner::parse("backup:100")?.rules().count(), 2);
    /// # Ok::<(), dsync_engine::notation::NotationError>(())
    /// ```
    ///
    /// # Errors
    /// [`NotationError`] for a number that is too large.
    pub fn parse(text: &str) -> Result<Self, NotationError> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let one = |word: &str| match word {
            "" => Ok(None),
            word => target(word).map(Some).ok_or_else(|| NotationError::new(Notation::Owner, word, text)),
        };
        Ok(Self { user: one(user)?, group: one(group)? })
    }

    /// Returns the rules that give everything to this owner.
    pub fn rules(&self) -> impl Iterator<Item = IdRule> {
        let all = |group, to: &Option<IdTarget>| {
            to.clone().map(|to| IdRule::new(IdMatch::Name(b"*".to_vec()), to).group(group))
        };
        all(false, &self.user).into_iter().chain(all(true, &self.group))
    }
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
        let rules = id_rules("0:me,5-7:8,b*:9,:www-data").unwrap();
        let pattern = |text: &str| IdMatch::Name(text.as_bytes().to_vec());
        let rule = IdRule::new;
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
            let owner = Owner::parse(text).unwrap();
            assert_eq!(owner.rules().count(), usize::from(user.is_some()) + usize::from(group.is_some()));
            assert_eq!(owner, Owner { user, group }, "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "x", "1:", "1:2,", "7-5:1", "1-x:3", "1:99999999999", "1:4294967295", "1x:2", "1:2x"]
        {
            assert!(id_rules(text).is_err(), "{text}");
        }
        for text in ["4294967295", ":99999999999"] {
            assert!(Owner::parse(text).is_err(), "{text}");
        }
    }
}
