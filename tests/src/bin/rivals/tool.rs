//! Who takes part.

use std::{ffi::OsString, path::Path};

use dsync_tests::{Sshd, program, sshd::ALIAS};

use crate::input::Input;

/// One way to copy.
pub(crate) struct Tool {
    /// Its name in the table and on the command line.
    pub(crate) name: &'static str,
    how: How,
}

enum How {
    /// dsync with these options.
    Dsync(&'static [&'static str]),
    /// rsync over ssh with these options of ssh; `sync` makes it as durable as dsync's default.
    Rsync { ssh: &'static str, sync: bool },
    /// scp.
    Scp,
    /// tar at both ends of ssh.
    Tar,
}

/// The cipher that is fastest where the processor has instructions for it.
const FAST_CIPHER: &str = "-c aes128-gcm@openssh.com";

/// All tools, in the order of the race.
pub(crate) fn all() -> Vec<Tool> {
    let tool = |name, how| Tool { name, how };
    vec![
        tool("dsync-auto", How::Dsync(&[])),
        tool("dsync-quic", How::Dsync(&["--transport=quic"])),
        tool("dsync-ssh", How::Dsync(&["--transport=ssh"])),
        tool("dsync-auto-not-durable", How::Dsync(&["--durability=none"])),
        tool("dsync-ssh-not-durable", How::Dsync(&["--transport=ssh", "--durability=none"])),
        tool("rsync-ssh", How::Rsync { ssh: "", sync: false }),
        tool("rsync-ssh-aes128gcm", How::Rsync { ssh: FAST_CIPHER, sync: false }),
        tool("rsync-ssh-aes128gcm-sync", How::Rsync { ssh: FAST_CIPHER, sync: true }),
        tool("scp", How::Scp),
        tool("tar-ssh", How::Tar),
    ]
}

impl Tool {
    /// True when it can do what the input asks: only dsync and rsync use what is there already, and
    /// scp gives up on the symbolic links of a real tree.
    pub(crate) fn fits(&self, input: Input) -> bool {
        match self.how {
            How::Dsync(_) | How::Rsync { .. } => true,
            How::Tar => !input.needs_basis(),
            How::Scp => matches!(input, Input::One | Input::Many),
        }
    }

    /// The command that copies what is in `source` to `destination` at the other end.
    pub(crate) fn command(&self, sshd: &Sshd, source: &Path, destination: &Path) -> Vec<OsString> {
        let config = sshd.config();
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let (source, destination) = (source.display(), destination.display());
        let shell =
            |options: &str| OsString::from(format!("ssh -F {} {options}", config.display()).trim_end());
        match &self.how {
            How::Dsync(options) => {
                let mut argv = vec![program().into(), "-a".into(), "-e".into(), shell("")];
                argv.extend(["--dsync-path".into(), program().into()]);
                argv.extend(options.iter().map(OsString::from));
                argv.extend(words(&format!("{source}/ {ALIAS}:{destination}/")));
                argv
            }
            How::Rsync { ssh, sync } => {
                let mut argv = words("rsync -a -e");
                argv.push(shell(ssh));
                argv.extend(words(&format!("{source}/ {ALIAS}:{destination}/")));
                if !sync {
                    return argv;
                }
                let sync = format!("\"$@\" && ssh -F {} {ALIAS} sync -f {destination}", config.display());
                [words("sh -c"), vec![sync.into(), "rsync-and-sync".into()], argv].concat()
            }
            How::Scp => {
                let mut argv = words("sh -c");
                argv.push(
                    format!("scp -q -r -p -F {} {source}/* {ALIAS}:{destination}/", config.display()).into(),
                );
                argv
            }
            How::Tar => {
                let mut argv = words("sh -c");
                let far = format!("ssh -F {} {ALIAS} tar -xf - -C {destination}", config.display());
                argv.push(format!("tar -cf - -C {source} . | {far}").into());
                argv
            }
        }
    }
}
