//! The users of shares' sessions.

use std::{collections::BTreeMap, ffi::CString, io, os::fd::OwnedFd, path::Path, thread};

use nix::unistd::{Gid, Uid, User, getgrouplist, setgid, setgroups, setuid};
use rustix::{
    fs::{Mode, OFlags},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use super::config::{Config, Offer};

/// The users of a configuration's shares, which are looked up before a session hears its client: it
/// cannot read the system's names later.
pub(super) struct Users {
    accounts: BTreeMap<String, Result<Account, String>>,
}

/// Returns the words about a share that a server of root's may not serve, as it has no user. For a
/// configuration without a server nobody knows yet who runs the commands of its keys.
pub(super) fn ownerless(config: &Config) -> Option<String> {
    config.server.as_ref()?;
    config.shares.values().find_map(of_root)
}

/// Returns the words about a share without a user, whose sessions would be root's.
pub(super) fn of_root(offer: &Offer) -> Option<String> {
    let is_roots = rustix::process::geteuid().is_root() && offer.user.is_none();
    is_roots.then(|| {
        format!(
            "share '{}' has no user: the server runs as root, and its sessions must not, unless the share says \
             user = \"root\"",
            offer.share.name
        )
    })
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

    /// Returns what is wrong with the users of a configuration's shares: one line for each share whose user nobody
    /// is, or this process could not become for its server, and one for a share without a user that root would
    /// serve.
    pub(super) fn faults(config: &Config) -> Vec<String> {
        let users = Self::of(config);
        let fault = |offer: &Offer| {
            let user = offer.user.as_deref()?;
            let why = match users.accounts.get(user)? {
                Err(why) => why.clone(),
                // Who runs the command of a key of ssh is not known here.
                Ok(_) if config.server.is_none() || users.may_act_as(user) => return None,
                Ok(_) => not_root(user),
            };
            Some(format!("share '{}': {why}", offer.share.name))
        };

        ownerless(config).into_iter().chain(config.shares.values().filter_map(fault)).collect()
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
            return Err(not_root(name));
        }
        let fail = failure(name);
        setgroups(&account.groups).map_err(&fail)?;
        setgid(account.gid).map_err(&fail)?;
        setuid(account.uid).map_err(&fail)
    }

    /// Opens a directory with the rights of this user. The file descriptor is good for the directory's
    /// place, not for reading.
    ///
    /// # Errors
    /// As [`acting`](Self::acting), and the system's.
    pub(super) fn reach(&self, name: Option<&str>, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.acting(name, || Ok(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Returns whether this process can act as a user.
    pub(super) fn may_act_as(&self, name: &str) -> bool {
        let found = self.accounts.get(name).and_then(|account| account.as_ref().ok());
        let now = rustix::process::geteuid();
        found.is_some_and(|account| now.is_root() || now.as_raw() == account.uid.as_raw())
    }

    /// Opens something with the rights of this user, on a thread of its own: the process keeps its own
    /// ones. Without root it is opened with the rights that there are.
    ///
    /// # Errors
    /// Those of opening, the system's, and [`NotFound`](io::ErrorKind::NotFound) if there is no such user.
    pub(super) fn acting<T: Send>(
        &self,
        name: Option<&str>,
        open: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let Some(name) = name else { return open() };
        let found = self.accounts.get(name).and_then(|account| account.as_ref().ok());
        let account = found.ok_or(io::ErrorKind::NotFound)?;
        if account.uid.is_root() || !rustix::process::geteuid().is_root() {
            return open();
        }

        let done = thread::scope(|scope| {
            let work = || account.become_on_this_thread().and_then(|()| open());
            thread::Builder::new().spawn_scoped(scope, work).map(|thread| thread.join())
        });
        done?.unwrap_or_else(|_| Err(io::Error::other("the thread of another user failed")))
    }
}

impl Account {
    /// Makes the calling thread work as this user, for good.
    fn become_on_this_thread(&self) -> io::Result<()> {
        let group = |gid: Gid| rustix::fs::Gid::from_raw(gid.as_raw());
        let (uid, gid) = (rustix::fs::Uid::from_raw(self.uid.as_raw()), group(self.gid));
        // Groups first: without root's number they could not be changed.
        set_thread_groups(&self.groups.iter().copied().map(group).collect::<Vec<_>>())?;
        set_thread_res_gid(gid, gid, gid)?;
        Ok(set_thread_res_uid(uid, uid, uid)?)
    }

    fn find(name: &str) -> Result<Self, String> {
        let fail = failure(name);
        let user = User::from_name(name).map_err(&fail)?.ok_or_else(|| unknown(name))?;
        let text = CString::new(name).map_err(|_| unknown(name))?;
        let groups = getgrouplist(&text, user.gid).map_err(&fail)?;
        Ok(Self { uid: user.uid, gid: user.gid, groups })
    }
}

fn not_root(name: &str) -> String {
    format!("cannot become user '{name}': the server does not run as root")
}

fn unknown(name: &str) -> String {
    format!("there is no user '{name}'")
}

fn failure(name: &str) -> impl Fn(nix::Error) -> String {
    move |errno| format!("cannot become user '{name}': {}", errno.desc())
}
