//! The users of shares' sessions.

use std::{collections::BTreeMap, ffi::CString};

use nix::unistd::{Gid, Uid, User, getgrouplist, setgid, setgroups, setuid};

use super::config::Config;

/// The users of a configuration's shares, which are looked up before a session hears its client: it
/// cannot read the system's names later.
pub(super) struct Users {
    accounts: BTreeMap<String, Result<Account, String>>,
}

/// A user that a session can become.
struct Account {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Users {
    /// Looks the users up. One that is not there is an error of the session that needs it.
    pub(super) fn of(config: &Config) -> Self {
        let names = config.shares.values().filter_map(|offer| offer.user.clone());
        Self {
            accounts: names
                .map(|name| {
                    let account = Account::find(&name);
                    (name, account)
                })
                .collect(),
        }
    }

    /// Drops root's rights for good. Without root there is nothing to give up, and nobody else to
    /// become.
    pub(super) fn become_one(&self, name: Option<&str>) -> Result<(), String> {
        let Some(name) = name else { return Ok(()) };
        let found = self.accounts.get(name);
        let account = found.ok_or_else(|| unknown(name))?.as_ref().map_err(Clone::clone)?;

        let now = rustix::process::geteuid();
        if now.as_raw() == account.uid.as_raw() {
            return Ok(());
        }
        if !now.is_root() {
            return Err(format!("cannot become user '{name}': the server does not run as root"));
        }
        let fail = failure(name);
        setgroups(&account.groups).map_err(&fail)?;
        setgid(account.gid).map_err(&fail)?;
        setuid(account.uid).map_err(&fail)
    }
}

impl Account {
    fn find(name: &str) -> Result<Self, String> {
        let fail = failure(name);
        let user = User::from_name(name).map_err(&fail)?.ok_or_else(|| unknown(name))?;
        let text = CString::new(name).map_err(|_| unknown(name))?;
        let groups = getgrouplist(&text, user.gid).map_err(&fail)?;
        Ok(Self { uid: user.uid, gid: user.gid, groups })
    }
}

fn unknown(name: &str) -> String {
    format!("there is no user '{name}'")
}

fn failure(name: &str) -> impl Fn(nix::Error) -> String {
    move |errno| format!("cannot become user '{name}': {}", errno.desc())
}
