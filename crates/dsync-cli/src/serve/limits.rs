//! The limits of a key in a share, besides its role.

use std::{num::NonZeroU64, sync::Arc, time::Instant};

use dsync_engine::{
    IdTarget, Limits,
    grant::{OptionRules, OwnerRules, Quota},
};

use super::{hours::Hours, refuse::Refused};
use crate::{
    flags::{id_rules, id_rules::IdRules},
    numbers::with_commas,
};

/// The limits that a configuration sets for a key; the default has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeyLimits {
    /// Bytes of the longest file that the key may write.
    pub(crate) largest_file: Option<u64>,
    /// The most that may lie in the key's directory.
    pub(crate) quota: Quota,
    /// Bytes per second of each session, in each direction.
    pub(crate) rate: Option<NonZeroU64>,
    /// Sessions at once.
    pub(crate) sessions: Option<u32>,
    pub(crate) refused: Refused,
    /// The hours of the day in which sessions begin and end.
    pub(crate) hours: Hours,
    /// Attributes that only root may set are kept in `user.rsync.*`.
    pub(crate) fake_super: bool,
    /// The owners of what the key writes.
    pub(crate) usermap: Option<IdMap>,
    /// Its groups.
    pub(crate) groupmap: Option<IdMap>,
}

/// Owners or groups in place of the source's, as `--usermap` has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdMap {
    text: String,
    rules: IdRules,
}

impl IdMap {
    /// Parses the notation of `--usermap`.
    ///
    /// # Errors
    /// The fault, for people.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), rules: id_rules::parse(text)? })
    }

    /// Returns the names that things get.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.rules.of_users().filter_map(|rule| match rule.to {
            IdTarget::Name(name) => Some(String::from_utf8_lossy(&name).into_owned()),
            IdTarget::Number(_) => None,
        })
    }
}

impl KeyLimits {
    /// Returns those that the engine keeps in a session that has to end then.
    pub(crate) fn of_a_run(&self, ends: Option<Instant>) -> Limits {
        let refused = (!self.refused.is_empty()).then(|| Arc::new(self.refused.clone()));
        Limits::default()
            .largest_file(self.largest_file)
            .quota(self.quota)
            .bytes_per_second(self.rate)
            .ends(ends)
            .owners(self.owners())
            .options(refused.map(|refused| refused as Arc<dyn OptionRules>))
    }

    /// Returns the rules for owners.
    fn owners(&self) -> OwnerRules {
        let users = self.usermap.iter().flat_map(|map| map.rules.of_users());
        let groups = self.groupmap.iter().flat_map(|map| map.rules.of_groups());
        OwnerRules::default().fake_super(self.fake_super).map(users.chain(groups).collect())
    }

    /// Returns the number of sessions at once. With a quota it is one, as each counts for itself.
    pub(crate) fn sessions_at_once(&self) -> Option<u32> {
        if self.quota.is_endless() { self.sessions } else { Some(1) }
    }

    /// Describes each limit in a few words.
    pub(crate) fn describe(&self) -> Vec<String> {
        let largest = self.largest_file.map(|most| format!("files of {} bytes at most", with_commas(most)));
        let bytes = self.quota.max_bytes.map(|most| format!("{} bytes in all its files", with_commas(most)));
        let files = self.quota.max_files.map(|most| format!("{} entries in all", with_commas(most)));
        let rate = self.rate.map(|rate| format!("{} bytes/s each way in a session", with_commas(rate.get())));
        let sessions = self.sessions_at_once().map(|most| match most {
            1 => "one session at a time".to_owned(),
            most => format!("{most} sessions at once"),
        });
        let names = self.refused.names();
        let refused = (!names.is_empty()).then(|| format!("without --{}", names.join(", --")));
        let hours = (!self.hours.is_all()).then(|| format!("only at {}", self.hours));
        let fake = self.fake_super.then(|| "what only root may set is noted, not set".to_owned());
        let users = self.usermap.as_ref().map(|map| format!("owners by the map '{}'", map.text));
        let groups = self.groupmap.as_ref().map(|map| format!("groups by the map '{}'", map.text));
        let limits = [largest, bytes, files, rate, sessions, hours, refused, fake, users, groups];
        limits.into_iter().flatten().collect()
    }
}
