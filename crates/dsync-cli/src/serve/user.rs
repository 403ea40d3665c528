//! The user of a share's sessions.

use nix::unistd::{User, initgroups, setgid, setuid};

/// Drops root's rights for good. Without root there is nothing to give up, and nobody else to
/// become.
pub(super) fn become_user(name: Option<&str>) -> Result<(), String> {
    let Some(name) = name else { return Ok(()) };
    let fail = |errno: nix::Error| format!("cannot become user '{name}': {}", errno.desc());
    let user = User::from_name(name).map_err(fail)?.ok_or_else(|| format!("there is no user '{name}'"))?;
    let now = rustix::process::geteuid();
    if now.as_raw() == user.uid.as_raw() {
        return Ok(());
    }
    if !now.is_root() {
        return Err(format!("cannot become user '{name}': the server does not run as root"));
    }
    let text = std::ffi::CString::new(name).map_err(|_| format!("there is no user '{name}'"))?;
    initgroups(&text, user.gid).map_err(fail)?;
    setgid(user.gid).map_err(fail)?;
    setuid(user.uid).map_err(fail)
}
