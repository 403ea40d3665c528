//! The place where a case is planted and run: the same paths for both programs, one after the
//! other.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    case::{Carrier, Case, NOBODY},
    filesystems::Room,
    model, options, rsync,
};
use crate::{
    compare::{Facts, survey},
    program::program,
    run::{Outcome, Run, Running},
    strace,
};

/// Two directories on two filesystems, planted anew for each run.
#[derive(Debug)]
pub(super) struct World {
    /// The root, `@`.
    pub root: PathBuf,
    /// The directory on the other filesystem, `%`.
    pub other: PathBuf,
    shell: PathBuf,
    /// The remote shell of a key that is bound to the root of the host.
    confined_shell: PathBuf,
    /// The directory where both ends keep their `--state`.
    state: PathBuf,
    /// The room of both at first.
    rooms: [Room; 2],
}

/// Time limit of a run; no case needs even a second.
const LIMIT: Duration = Duration::from_secs(150);

/// Time limit of a run of rsync; a case that takes it longer is passed over.
const RSYNC_LIMIT: Duration = Duration::from_secs(40);

/// Interval between looks at the room that a run of rsync leaves.
const LOOK: Duration = Duration::from_millis(20);

/// All entries by path; those of the other filesystem begin with `%`.
pub(super) type Survey = BTreeMap<Vec<u8>, Facts>;

impl World {
    /// Prepares two directories that are this world's alone.
    pub(super) fn new(root: PathBuf, other: PathBuf) -> Self {
        let confined = format!("#!/bin/sh\nexec '{}' {CONFINED}\n", program().display());
        let [shell, confined_shell] = [("shell", SHELL), ("confined", &confined)].map(|(name, text)| {
            let path = root.with_extension(name);
            fs::write(&path, text).expect("a remote shell");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a remote shell's mode");
            path
        });
        let state = root.with_extension("state");
        // The directories themselves do not exist yet.
        let rooms = [&root, &other].map(|root| Room::of(root.parent().expect("a directory above")));
        Self { root, other, shell, confined_shell, state, rooms }
    }

    /// Returns the directory of what both ends keep beside the trees; planting empties it.
    pub(super) fn kept(&self) -> &Path {
        &self.state
    }

    /// Returns whether a filesystem of this world lacks the room for a case.
    pub(super) fn is_full(&self) -> bool {
        self.rooms.iter().any(Room::is_used_up)
    }

    /// Plants the entries of the case.
    pub(super) fn plant(&self, case: &Case) {
        self.clear();
        let _ = fs::remove_dir_all(&self.state);
        fs::create_dir(&self.state).expect("a directory for the state");
        if case.is_nobody {
            std::os::unix::fs::chown(&self.state, Some(NOBODY), Some(NOBODY)).expect("an owner");
        }
        for (root, nodes) in [(&self.root, &case.world), (&self.other, &case.other)] {
            model::rooted(nodes, self.root.as_os_str().as_bytes()).plant(root);
            if case.is_nobody {
                std::os::unix::fs::chown(root, Some(NOBODY), Some(NOBODY)).expect("an owner");
            }
        }
    }

    /// Removes everything.
    fn clear(&self) {
        for (root, removed) in self.removed() {
            if let Err(error) = removed {
                let is_gone = error.kind() == std::io::ErrorKind::NotFound;
                assert!(is_gone, "{}: {error}", root.display());
            }
        }
    }

    /// Removes what it can and returns whether a filesystem still lacks the room for a case.
    pub(super) fn stays_full(&self) -> bool {
        self.removed().for_each(drop);
        self.is_full()
    }

    /// Removes the directories one after the other.
    fn removed(&self) -> impl Iterator<Item = (&Path, io::Result<()>)> {
        [&self.root, &self.other].into_iter().map(|root| (root.as_path(), fs::remove_dir_all(root)))
    }

    /// Runs rsync.
    ///
    /// # Panics
    /// If it fills the filesystem. It may copy a directory into itself by links that lead there, for
    /// ever, which would take the room of the cases beside it for a minute and more.
    pub(super) fn rsync(&self, case: &Case, more: &[&str]) -> Outcome {
        let program = rsync::program();
        let path = format!("--rsync-path={}", program.display());
        let mut run = self.command(case, program, &path, more).start();
        while run.is_running() && !run.is_late() {
            if self.is_full() {
                run.kill();
                panic!("{FILLS}");
            }
            thread::sleep(LOOK);
        }
        run.wait()
    }

    /// Runs dsync.
    pub(super) fn dsync(&self, case: &Case, more: &[&str]) -> Outcome {
        self.start(case, more).wait()
    }

    /// Starts dsync.
    pub(super) fn start(&self, case: &Case, more: &[&str]) -> Running {
        self.own_command(case, more).start()
    }

    /// Runs dsync; each thread of it and of its other end meets `what` at its `step`th call that
    /// changes a filesystem.
    pub(super) fn disturbed(&self, case: &Case, what: &str, step: usize) -> Outcome {
        strace::inject_into(self.own_command(case, &[]), CHANGING, &format!("{what}:when={step}")).run()
    }

    fn own_command(&self, case: &Case, more: &[&str]) -> Run {
        self.command(case, program(), &format!("--dsync-path={}", program().display()), more)
    }

    fn command(&self, case: &Case, program: &Path, path: &str, more: &[&str]) -> Run {
        let mask = format!("umask {:03o} && exec \"$@\"", case.umask);
        let mut run = Run::of("sh").args(["-c", &mask, "sh"]);
        if case.is_nobody {
            run = run.args(nobody());
        }
        run = run.arg(program).args(self.words(case, program)).args(more);
        if case.carrier != Carrier::Local {
            let is_bound = case.is_confined && !program.ends_with("rsync");
            run = run.arg("-e").arg(if is_bound { &self.confined_shell } else { &self.shell }).arg(path);
        }
        run = run.cwd(&self.root.join(case.cwd)).env("LC_ALL", "C").env("HOME", "/nonexistent");
        run = run.env("XDG_STATE_HOME", &self.state);
        // rsync may hang in a process that it started, e.g. where that opens a fifo as a basis. It would
        // keep the filesystem and what was removed there.
        run = run.in_own_group().limit(if program.ends_with("rsync") { RSYNC_LIMIT } else { LIMIT });
        run.args(case.operands.iter().map(|operand| self.expand(operand)))
    }

    /// Returns the options in the form for a program.
    fn words(&self, case: &Case, program: &Path) -> Vec<OsString> {
        let is_rsync = program.ends_with("rsync");
        let given = case.options.iter().filter(|option| !(is_rsync && options::is_own(option)));
        let mut words: Vec<OsString> = vec!["-i".into()];
        if is_rsync && !case.has(&["--modify-window"]) {
            words.push("--modify-window=-1".into());
        }
        for option in given {
            words.push(match option.strip_prefix("--temp-dir=") {
                // rsync 3.5.0 accepts no relative one that leaves the destination, and all
                // spellings mean the same.
                Some(dir) if is_rsync => {
                    let place = options::place(dir);
                    let root = if place.starts_with('%') { "" } else { "@/" };
                    self.expand(&format!("--temp-dir={root}{place}"))
                }
                _ => self.expand(option),
            });
        }
        if let (Carrier::Push(transport) | Carrier::Pull(transport), false) = (case.carrier, is_rsync) {
            words.push(format!("--transport={transport}").into());
        }
        words
    }

    /// Replaces `@` and `%` by the roots.
    fn expand(&self, word: &str) -> OsString {
        let mut expanded = OsString::new();
        for part in word.split_inclusive(['@', '%']) {
            let (text, root) = match (part.strip_suffix('@'), part.strip_suffix('%')) {
                (Some(text), _) => (text, Some(&self.root)),
                (_, Some(text)) => (text, Some(&self.other)),
                _ => (part, None),
            };
            expanded.push(text);
            if let Some(root) = root {
                expanded.push(root);
            }
        }
        expanded
    }

    /// Surveys everything; entries changed after `since` get the latest possible time.
    pub(super) fn survey(&self, since: i64) -> Survey {
        let now = seconds() + 1;
        let mut found = survey(&self.root);
        for (path, facts) in survey(&self.other) {
            found.insert([&b"%/"[..], &path].concat(), facts);
        }
        for facts in found.values_mut() {
            if (since..=now).contains(&facts.mtime.0) {
                facts.mtime = (i64::MAX, 0);
            }
            if facts.atime.is_some_and(|atime| (since..=now).contains(&atime)) {
                facts.atime = Some(i64::MAX);
            }
        }
        found
    }

    /// Returns a path in the world.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(OsStr::new(path))
    }
}

/// Returns the seconds since 1970.
pub(super) fn seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(now.as_secs()).expect("a time before the end of time")
}

/// Returns the words that start a program without privileges.
pub(super) fn nobody() -> [String; 4] {
    ["setpriv".into(), format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()]
}

/// Calls that change a filesystem.
const CHANGING: &str = "pwrite64,copy_file_range,ftruncate,fallocate,fsync,syncfs,renameat,renameat2,linkat,symlinkat,\
    unlinkat,mkdirat,mknodat,fchmod,fchmodat,fchownat,utimensat,fsetxattr,setxattr";

/// The message of a case in which rsync fills the filesystem.
pub(super) const FILLS: &str = "rsync fills the filesystem";

/// The remote host's name, which any remote shell other than ssh uses.
pub(super) const HOST: &str = "127.0.0.1";

/// The command that a bound key runs, whatever it is asked for.
pub(super) const CONFINED: &str = "--server --restrict /";

/// A remote shell that stays here: it drops its options and the host.
pub(super) const SHELL: &str = "#!/bin/sh\n\
    while [ \"$1\" != 127.0.0.1 ]; do shift; done\n\
    shift\n\
    exec sh -c \"$*\"\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hunt::judge::judge,
        mount::Mount,
        needs_root,
        tree::{Kind, Node},
    };

    #[test]
    fn a_case_in_which_rsync_fills_the_filesystem_is_passed_over_and_leaves_room() {
        needs_root!();
        let place = tempfile::tempdir().expect("a place");
        let Some(_mounted) = Mount::tmpfs(place.path(), "size=64m,nr_inodes=4k") else { return };
        let link = |name: &str, text: &str| Node::new(name, Kind::Symlink(text.into()));
        let case = Case {
            seed: 0,
            carrier: Carrier::Local,
            is_confined: false,
            is_nobody: false,
            umask: 0o22,
            options: ["-r", "-k"].map(String::from).into(),
            operands: ["s/", "d/"].map(String::from).into(),
            cwd: "w",
            world: vec![Node::dir("w"), Node::dir("w/s"), link("w/s/a", "."), link("w/s/b", "../s")],
            other: Vec::new(),
            is_live: false,
            is_disturbed: false,
        };
        let world = World::new(place.path().join("0"), place.path().join("0-other"));

        assert_eq!(judge(&case, &world).passed_over, Some(FILLS));
        assert!(!world.stays_full());
    }
}
