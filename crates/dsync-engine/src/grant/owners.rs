//! Owners of what a client writes, where an administrator decides them.
//!
//! The rules take the place of the client's own options for owners. The law: they hold whatever the
//! client asks for, and an option that contradicts one is refused, so that nobody takes for copied
//! what was not.

use std::fmt;

use dsync_wire::options::{IdRule, SyncOptions};

use super::{Excess, Request};

/// The rules for owners in a client's directory. The default leaves them to the client's options.
///
/// ```
/// use dsync_engine::{Limits, grant::OwnerRules, notation::id_rules};
///
/// // Whoever owned a file at the client, here it belongs to `backup`.
/// let owners = OwnerRules::default().map(id_rules("*:backup")?);
/// let limits = Limits::default().owners(owners);
/// # assert_eq!(limits.owners.map.len(), 1);
/// # Ok::<(), dsync_engine::notation::NotationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OwnerRules {
    /// Keep in `user.rsync.*` what only root may set, and read it from there, as
    /// [`SyncOptions::fake_super`] does.
    pub fake_super: bool,
    /// Other owners and groups than the source's, as [`SyncOptions::id_rules`]. A client keeps its
    /// own rules for groups where these have none for groups, and likewise for owners.
    pub map: Vec<IdRule>,
}

dsync_wire::setters!(OwnerRules { fake_super: bool, map: Vec<IdRule> });

/// A rule for owners that an option contradicts.
///
/// ```
/// use dsync_engine::{Excess, grant::OwnerRule};
///
/// let excess = Excess::Owners { rule: OwnerRule::Users };
/// assert!(excess.to_string().contains("map of owners"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerRule {
    /// Attributes that only root may set are noted, and not left out.
    FakeSuper,
    /// Owners go by the server's map.
    Users,
    /// Groups go by the server's map.
    Groups,
}

impl OwnerRule {
    /// Returns the name of the rule in the configuration of `dsync serve`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FakeSuper => "fake-super",
            Self::Users => "usermap",
            Self::Groups => "groupmap",
        }
    }
}

impl fmt::Display for OwnerRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FakeSuper => "the run would leave out what only root may set, which the server notes",
            Self::Users => "the run has a map of owners of its own, and the server has another",
            Self::Groups => "the run has a map of groups of its own, and the server has another",
        })
    }
}

impl OwnerRules {
    /// Returns the first option of a request that contradicts the rules.
    pub(super) fn contradiction(&self, request: &Request<'_>) -> Option<Excess> {
        if !request.writes {
            return None;
        }
        let both_map =
            |group| self.maps(group) && request.options.id_rules.iter().any(|rule| rule.group == group);
        let contradictions = [
            (self.fake_super && request.options.no_super, OwnerRule::FakeSuper),
            (both_map(false), OwnerRule::Users),
            (both_map(true), OwnerRule::Groups),
        ];
        let found = contradictions.into_iter().find(|(contradicts, _)| *contradicts);
        found.map(|(_, rule)| Excess::Owners { rule })
    }

    /// Writes the rules into the options of this end.
    pub(super) fn impose(&self, options: &mut SyncOptions, writes: bool) {
        if !writes {
            options.fake_super.source |= self.fake_super;
            return;
        }
        options.fake_super.destination |= self.fake_super;
        options.id_rules.retain(|rule| !self.maps(rule.group));
        options.id_rules.extend(self.map.iter().cloned());
    }

    fn maps(&self, group: bool) -> bool {
        self.map.iter().any(|rule| rule.group == group)
    }
}

#[cfg(test)]
mod tests {
    use dsync_wire::options::{IdMatch, IdTarget};

    use super::*;

    fn rule(group: bool, to: u32) -> IdRule {
        IdRule::new(IdMatch::Name(b"*".to_vec()), IdTarget::Number(to)).group(group)
    }

    #[test]
    fn each_option_contradicts_the_rule_of_its_kind_only() {
        let (fake, users, groups) = (
            OwnerRules::default().fake_super(true),
            OwnerRules::default().map(vec![rule(false, 1)]),
            OwnerRules::default().map(vec![rule(true, 1)]),
        );
        let plain = SyncOptions::archive();
        let no_super = plain.clone().no_super(true);
        let user = plain.clone().id_rules(vec![rule(false, 2)]);
        let group = plain.clone().id_rules(vec![rule(true, 2)]);
        for (rules, options, expected) in [
            (&fake, &plain, None),
            (&fake, &user, None),
            (&fake, &no_super, Some("fake-super")),
            (&users, &plain, None),
            (&users, &no_super, None),
            (&users, &group, None),
            (&users, &user, Some("usermap")),
            (&groups, &user, None),
            (&groups, &group, Some("groupmap")),
            (&OwnerRules::default(), &user, None),
        ] {
            let found = rules.contradiction(&Request::new(options, true));
            assert_eq!(found.as_ref().map(Excess::limit), expected, "{rules:?} {options:?}");
            // The client decides for its own end.
            assert_eq!(rules.contradiction(&Request::new(options, false)), None);
        }
    }

    #[test]
    fn rules_take_the_place_of_the_clients_of_their_kind() {
        let rules = OwnerRules::default().fake_super(true).map(vec![rule(false, 1)]);
        let asked = SyncOptions::archive().id_rules(vec![rule(false, 2), rule(true, 3)]);
        let imposed = |writes| {
            let mut options = asked.clone();
            rules.impose(&mut options, writes);
            options
        };
        let writing = imposed(true);
        assert_eq!(writing.id_rules, [rule(true, 3), rule(false, 1)]);
        assert!(writing.fake_super.destination && !writing.fake_super.source);
        let reading = imposed(false);
        assert_eq!(reading.id_rules, asked.id_rules);
        assert!(reading.fake_super.source && !reading.fake_super.destination);
    }
}
