//! The cage of the end that faces a peer. Once the end knows the files that it works on, it gives
//! up all others, new privileges, system calls that it does not use, and core dumps.
//!
//! There are three independent layers. Landlock limits the run to its [`Footprint`] and to the
//! files that a C library reads. A seccomp list permits only the calls that a run makes, so nothing
//! can be executed, traced, mounted or loaded. Limits and `dumpable` keep memory from the disk and
//! from other processes of the user. The law: a layer that the kernel lacks costs a note and never
//! the run.
//!
//! A session of a server has a mount namespace ([`mounts`]) where the kernel has no Landlock at all.
//! It replaces the limit on files, and less of the rest, so the missing layer is noted all the same.
//!
//! A cage of a thread ([`Inmates::Thread`]) holds that thread and those that it starts. Before
//! Linux 7.0 even Landlock for a process holds only those, and the threads that carry bytes were
//! started before. They touch no files, and the seccomp list holds for them as well.
//!
//! The cage does not keep the run from anything that its own rights permit below the footprint. Nor
//! does it keep it from changing or reading the attributes of files that it can name elsewhere,
//! because Landlock has no such rights.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
    time::Instant,
};

use dsync_engine::{Footprint, Inmates, Touch, exit_code};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, RestrictSelfAttr as _, RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::{
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::secure_computing_mode,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

mod calls;
mod limits;
mod mounts;

use self::mounts::Use;
pub(crate) use self::mounts::{Reach, Shown};
use crate::{console::say, escape::escape_text};

/// The cage of this process, and the layers that it lacks.
#[derive(Debug, Default)]
pub(crate) struct Cage {
    notes: Mutex<Vec<String>>,
    /// A layer that is missing ends the process.
    is_required: bool,
    /// The process knows the names of owners, and needs no file of them any more.
    knows_names: bool,
    /// The shares of a mount namespace, if there is one.
    shown: OnceLock<Vec<PathBuf>>,
}

impl Cage {
    /// Returns a cage all of whose layers hold, or no run begins: the process ends where one is missing.
    pub(crate) fn required(is_required: bool) -> Self {
        Self { is_required, ..Self::default() }
    }

    /// Makes the cage that of a client's session: reads the names of owners and the mark of its own
    /// temporaries now, so that they need not be looked up in it, and limits the process. To be called
    /// before the client's first byte.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of_session(mut self) -> std::io::Result<Self> {
        dsync_engine::preload_names()?;
        dsync_engine::preload_owner();
        self.knows_names = true;
        limits::limit_session()?;
        Ok(self)
    }

    /// Returns the layers that the kernel lacks, one sentence each; none if all layers hold.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves the calling thread, and those that it starts, the directories of these shares and
    /// what the C library reads, and the calls of a run and of becoming another user; nothing can be
    /// executed, and only this process gets its signals. For a session whose client has proved
    /// nothing yet. Of a share that must be mounted the directory above it is listed as well. Where
    /// there is no Landlock, a mount namespace has those directories that `reach` opens.
    pub(crate) fn enter_shares(&self, shares: &[Shown], reach: Reach<'_>) {
        if let Err(error) = withhold_memory() {
            self.note(format!("strangers are met without limits on core dumps: {error}"));
        }

        let (is_enforced, note) = match confine_to_shares(shares, self.system()) {
            Ok(found) => found,
            Err(error) => (false, Some(format!("strangers are met without Landlock: {error}"))),
        };
        if let Some(note) = note {
            self.note(note);
        }
        if !is_enforced {
            self.enter_namespace(shares, reach);
        }

        if is_interposed() {
            self.note("strangers are met without a seccomp list: LD_PRELOAD may need any call".to_owned());
        } else if let Err(error) =
            confine_strangers(self.sockets(Sockets::Unconnected), self.shown.get().is_some())
        {
            self.note(format!("strangers are met without a seccomp list: {error}"));
        }
    }

    /// Enters a mount namespace, if this process is root.
    fn enter_namespace(&self, shares: &[Shown], reach: Reach<'_>) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        match mounts::enter(shares, reach, &uses(surroundings(self.system()))) {
            Ok(shown) => {
                let _ = self.shown.set(shown);
            }
            Err(error) => {
                self.note(format!(
                    "strangers are met without a mount namespace in place of Landlock: {error}"
                ));
            }
        }
    }

    /// Hides the shares but the one with this directory, where there is a mount namespace. To be
    /// called before the session becomes the share's user, who may not.
    pub(crate) fn show_only(&self, wanted: Option<&Path>) {
        let Some(shown) = self.shown.get() else { return };
        if let Err(error) = mounts::hide_others(shown, wanted) {
            self.note(format!("the session sees other shares: {error}"));
        }
    }

    /// Returns what is only read of the system.
    fn system(&self) -> System {
        let names = if self.knows_names { &[][..] } else { READ_FOR_NAMES };
        let paths = READ.iter().chain(names);
        paths.map(|path| (PathBuf::from(path), AccessFs::ReadFile | AccessFs::ReadDir)).collect()
    }

    /// Returns the sockets of this process: those of name services, or these if it needs no names.
    fn sockets(&self, without_names: Sockets) -> Sockets {
        if self.knows_names { without_names } else { Sockets::Local }
    }

    /// Ends the process if a layer is missing that must not be.
    fn hold_to(&self) {
        let notes = self.notes();
        if self.is_required && !notes.is_empty() {
            for note in notes {
                say(&escape_text(&format!("dsync: require-cage: {note}")));
            }
            std::process::exit(i32::from(exit_code::START));
        }
    }

    fn note(&self, note: String) {
        tracing::info!("{note}");
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        // A new session after a broken connection has nothing new to report.
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

impl dsync_engine::Cage for Cage {
    fn enter_carrier(&self) {
        match confine_carrier(self.system()) {
            // The kernel's gaps are reported once the rest is caged.
            Ok(()) => {}
            Err(error) => self.note(format!("what carries the data is caged without Landlock: {error}")),
        }
    }

    fn lacks(&self) -> Vec<String> {
        self.notes()
    }

    fn enter(&self, footprint: &Footprint, inmates: Inmates) {
        let started = Instant::now();
        if let Err(error) = withhold_memory() {
            self.note(format!("the run is caged without limits on core dumps: {error}"));
        }

        if footprint.is_unbounded() {
            self.note(
                "the run is caged without Landlock: --insecure-links lets --keep-dirlinks lead it anywhere"
                    .to_owned(),
            );
        } else {
            match confine_files(footprint, inmates, self.system()) {
                Ok(None) => {}
                Ok(Some(note)) => self.note(note),
                Err(error) => self.note(format!("the run is caged without Landlock: {error}")),
            }
        }

        if is_interposed() {
            self.note("the run is caged without a seccomp list: LD_PRELOAD may need any call".to_owned());
        } else if let Err(error) = confine_calls(inmates, self.sockets(Sockets::None)) {
            self.note(format!("the run is caged without a seccomp list: {error}"));
        }

        self.hold_to();
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        tracing::debug!(target: "dsync::connection", "this end is caged, in {ms:.2} ms");
    }
}

/// Keeps memory from core files and from other processes of the same user.
fn withhold_memory() -> std::io::Result<()> {
    limits::leave_no_dumps()?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Leaves the calling thread, and those that it starts, what the C library reads, the ports that it opens and
/// who comes there. They read all that the network sends, and Landlock for the process does not reach them.
fn confine_carrier(system: System) -> Result<(), RulesetError> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(FILES_ABI))?
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::AbstractUnixSocket)?
        .scope(Scope::Signal)?;
    with_rules(rules.create()?, system)?.restrict_self().map(|_| ())
}

/// Allows access to those of these paths that exist: a missing one needs no rule.
fn with_rules(
    mut rules: RulesetCreated,
    paths: impl IntoIterator<Item = (PathBuf, BitFlags<AccessFs>)>,
) -> Result<RulesetCreated, RulesetError> {
    for (path, rights) in paths {
        let Ok(fd) = PathFd::new(&path) else { continue };
        rules = rules.add_rule(PathBeneath::new(fd, rights))?;
    }
    Ok(rules)
}

/// Limits file access to the footprint and to the C library's files; returns a note if the kernel
/// lacks something.
fn confine_files(
    footprint: &Footprint,
    inmates: Inmates,
    system: System,
) -> Result<Option<String>, RulesetError> {
    let mut rules =
        Ruleset::default().handle_access(AccessFs::from_all(FILES_ABI))?.scope(Scope::AbstractUnixSocket)?;
    if inmates == Inmates::Process {
        // The server's ports are already open. A client opens more connections, from other threads.
        rules = rules.handle_access(AccessNet::BindTcp)?.scope(Scope::Signal)?;
    }

    let mut rules = rules.create()?;
    for (dir, touch) in footprint.places() {
        rules = rules.add_rule(PathBeneath::new(dir, rights(touch)))?;
    }
    let rules = with_rules(rules, surroundings(system))?;
    let whole = inmates == Inmates::Process;
    Ok(lacking(&rules.all_threads(whole)?.restrict_self()?))
}

/// Limits file access to the shares and to the C library's files. Returns whether Landlock holds, if
/// only an early one, and a note if the kernel lacks something.
fn confine_to_shares(shares: &[Shown], system: System) -> Result<(bool, Option<String>), RulesetError> {
    let paths = shares.iter().flat_map(|share| {
        let above = share.mounted.then(|| (share.path.join(".."), AccessFs::ReadDir.into()));
        [(share.path.clone(), rights(Touch::Write))].into_iter().chain(above)
    });
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(FILES_ABI))?
        // A connection that is there could be led elsewhere.
        .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
        .scope(Scope::AbstractUnixSocket)?
        .scope(Scope::Signal)?;
    let rules = with_rules(rules.create()?, surroundings(system).into_iter().chain(paths))?;
    let status = rules.restrict_self()?;
    Ok((status.ruleset != RulesetStatus::NotEnforced, lacking(&status)))
}

/// Returns a note if the kernel lacks something of Landlock.
fn lacking(status: &RestrictionStatus) -> Option<String> {
    match (&status.ruleset, &status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => Some(
            "the run is caged without Landlock: it is not enabled (the kernel's lsm= parameter)".to_owned(),
        ),
        (RulesetStatus::NotEnforced, _) => Some(
            "the run is caged without Landlock: the kernel is older than Linux 5.13 or built without"
                .to_owned(),
        ),
        (_, LandlockStatus::Available { effective_abi, .. }) => early(*effective_abi),
        _ => None,
    }
}

/// Returns a note if this version of Landlock lacks something that is used.
fn early(version: ABI) -> Option<String> {
    (version < ALL_ABI).then(|| {
        format!("the run is caged by an early Landlock, {version:?} (Linux 6.12 has all that is used)")
    })
}

/// Returns the layers that the kernel lacks, a sentence each, without entering a cage.
pub(crate) fn missing_layers() -> Vec<String> {
    let landlock = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILES_ABI))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(ALL_ABI)))
        .and_then(|rules| rules.scope(Scope::from_all(ALL_ABI)))
        .and_then(|rules| rules.create())
        .err()
        .map(|error| format!("Landlock as of Linux 6.12 is missing: {error}{}", in_its_place()));
    let seccomp = secure_computing_mode().err();
    let seccomp = seccomp.map(|error| format!("seccomp is missing: {error}"));
    landlock.into_iter().chain(seccomp).collect()
}

/// Returns words on the mount namespace of a server's sessions, where there is no Landlock at all and
/// this process is root.
fn in_its_place() -> String {
    let first = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(|rules| rules.create());
    if first.is_ok() || !rustix::process::geteuid().is_root() {
        return String::new();
    }
    match mounts::attempt(&uses(surroundings(Cage::default().system()))) {
        Ok(()) => {
            "; sessions over the port see only their shares, by a mount namespace in its place".to_owned()
        }
        Err(error) => format!("; sessions have no mount namespace in its place either: {error}"),
    }
}

/// Returns the rights of a run below a directory of its footprint.
fn rights(touch: Touch) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match touch {
        Touch::Read => read,
        Touch::Add => {
            AccessFs::ReadDir
                | AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::MakeSym
                | AccessFs::MakeFifo
                | AccessFs::MakeSock
                | AccessFs::MakeChar
                | AccessFs::MakeBlock
                | AccessFs::Refer
        }
        Touch::Take => read | AccessFs::RemoveFile,
        Touch::Write => AccessFs::from_all(FILES_ABI) & !(AccessFs::Execute | AccessFs::IoctlDev),
    }
}

/// Paths of the system, with what may be done there.
type System = Vec<(PathBuf, BitFlags<AccessFs>)>;

/// Returns the other files that are read or written: by the C library for names of users, by the
/// standard library for the number of processors, by dsync for its own program and for lists that
/// outgrow memory.
fn surroundings(mut found: System) -> System {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let spool = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    let spools = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
    found.push((PathBuf::from("/dev/null"), read | AccessFs::WriteFile));
    // The same as [`dsync_engine::Resources::spool_dir`].
    let spools =
        spools.map_or_else(|| vec!["/var/tmp".into(), "/tmp".into()], |dir| vec![PathBuf::from(dir)]);
    found.extend(spools.into_iter().map(|dir| (dir, spool)));
    found
}

/// Returns the same paths with the use of each.
fn uses(system: System) -> Vec<(PathBuf, Use)> {
    let of = |rights: BitFlags<AccessFs>| match rights {
        rights if rights.contains(AccessFs::MakeReg) => Use::Spool,
        rights if rights.contains(AccessFs::WriteFile) => Use::Device,
        _ => Use::Read,
    };
    system.into_iter().map(|(path, rights)| (path, of(rights))).collect()
}

/// Permits only the calls that a run makes. Others fail as on a kernel without them, which
/// libraries are prepared for.
fn confine_calls(inmates: Inmates, of_process: Sockets) -> Result<(), seccompiler::Error> {
    match inmates {
        // A server's carriers have their sockets already.
        Inmates::Process => seccompiler::apply_filter_all_threads(&program(&[], of_process)?),
        Inmates::Thread => seccompiler::apply_filter(&program(&[], Sockets::All)?),
    }
}

/// Permits the calls of a run and those by which a session becomes a user and enters a smaller cage;
/// with a mount namespace also that which hides shares.
fn confine_strangers(sockets: Sockets, has_namespace: bool) -> Result<(), seccompiler::Error> {
    let hiding = if has_namespace { calls::HIDING } else { &[] };
    seccompiler::apply_filter_all_threads(&program(&[calls::BEFORE_A_RUN, hiding].concat(), sockets)?)
}

/// The sockets that may be made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sockets {
    All,
    /// Those of this system only: name services have some.
    Local,
    /// Those of this system, and none is led anywhere: a session's place is the name of one.
    Unconnected,
    /// Those that are there. A service of this system would hear a session in the server's name.
    None,
}

fn program(more: &[i64], sockets: Sockets) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls::ALLOWED.iter().chain(more).map(|&call| (call, Vec::new())).collect();
    rules.extend(conditions()?);

    if sockets != Sockets::All {
        rules.insert(libc::SYS_socket, vec![when([argument(0, SeccompCmpOp::Eq, AF_UNIX)])?]);
    }
    let denied: &[i64] = match sockets {
        Sockets::All | Sockets::Local => &[],
        Sockets::Unconnected => &[libc::SYS_connect],
        Sockets::None => &[libc::SYS_socket, libc::SYS_connect],
    };
    for call in denied {
        rules.remove(call);
    }

    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter =
        SeccompFilter::new(rules, missing, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

/// Returns the calls that are permitted with some arguments only.
fn conditions() -> Result<[(i64, Vec<SeccompRule>); 5], seccompiler::Error> {
    // Permit threads, never processes. clone3's request is in memory, where no filter can look;
    // without clone3 the C library uses clone.
    let starts_thread = argument(0, SeccompCmpOp::MaskedEq(CLONE_THREAD.into()), CLONE_THREAD);

    // Limits may be read and never changed. The two calls for that are one in the kernel.
    let reads = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0);

    // A command that is typed into a terminal here would run in the person's shell, outside of every
    // cage.
    let types_nothing = TYPING.map(|request| argument(1, SeccompCmpOp::Ne, request));

    // A datagram socket of a pair can still send to every path that has a service.
    let is_stream = argument(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE.into()), SOCK_STREAM);

    // Memory that was withheld stays so.
    let sets_another = argument(0, SeccompCmpOp::Ne, PR_SET_DUMPABLE);
    let withholds = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0);

    Ok([
        (libc::SYS_clone, vec![when([starts_thread])?]),
        (libc::SYS_prlimit64, vec![when([reads])?]),
        (libc::SYS_ioctl, vec![when(types_nothing)?]),
        (libc::SYS_socketpair, vec![when([is_stream])?]),
        (libc::SYS_prctl, vec![when([sets_another])?, when([withholds])?]),
    ])
}

/// Returns a rule that permits a call if all of these conditions hold.
fn when<const N: usize>(
    conditions: [Result<SeccompCondition, seccompiler::BackendError>; N],
) -> Result<SeccompRule, seccompiler::Error> {
    let conditions = conditions.into_iter().collect::<Result<_, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

/// Returns a condition on the lower half of a call's argument, which is all that the kernel looks at.
fn argument(
    index: u8,
    compared: SeccompCmpOp,
    value: u32,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, compared, value.into())
}

/// Returns whether a library stands before the C library's functions.
fn is_interposed() -> bool {
    std::env::var_os("LD_PRELOAD").is_some_and(|libraries| !libraries.is_empty())
}

/// The version of Landlock whose rights on files are handled: all up to Linux 6.10.
const FILES_ABI: ABI = ABI::V5;

/// The version of Landlock that has all that is used: signals and sockets have a scope since Linux 6.12.
const ALL_ABI: ABI = ABI::V6;

/// `AF_UNIX` in the type of the call's first argument.
const AF_UNIX: u32 = libc::AF_UNIX.unsigned_abs();

/// `CLONE_THREAD` in the type of the call's first argument.
const CLONE_THREAD: u32 = libc::CLONE_THREAD.unsigned_abs();

/// Requests that put input into a terminal: `TIOCSTI`, and `TIOCLINUX`, which pastes. The same numbers on
/// all architectures that have a seccomp list here.
const TYPING: [u32; 2] = [0x5412, 0x541c];

/// `SOCK_STREAM` in the type of the call's second argument, and the bits of a socket's type there.
const SOCK_STREAM: u32 = libc::SOCK_STREAM.unsigned_abs();
const SOCKET_TYPE: u32 = 0xf;

/// `PR_SET_DUMPABLE` in the type of the call's first argument.
const PR_SET_DUMPABLE: u32 = libc::PR_SET_DUMPABLE.unsigned_abs();

/// Files that are only read. Of `/etc` only what a C library needs, because it holds other users'
/// secrets, too.
const READ: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld-musl-x86_64.path",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/host.conf",
    "/etc/services",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/gnu/store",
    "/dev/urandom",
    "/proc/self",
    "/proc/sys/kernel/random",
    "/proc/sys/vm",
    "/proc/meminfo",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
];

/// Files that are only read, for the names of owners.
const READ_FOR_NAMES: &[&str] = &[
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/sssd/conf.d",
    "/etc/nslcd.conf",
    "/etc/userdb",
    "/var/lib/sss",
    "/run/systemd/userdb",
    "/run/nscd",
    "/var/run/nscd",
];

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{
        fs, io,
        os::unix::net::{UnixDatagram, UnixStream},
        process::Command,
        thread,
    };

    use super::*;

    /// Runs a test in a thread that is caged with this footprint; a thread's cage ends with it.
    fn caged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    let cage = Cage::default();
                    dsync_engine::Cage::enter(&cage, &Footprint::default(), Inmates::Thread);
                    assert_eq!(cage.notes(), Vec::<String>::new());
                    work()
                })
                .join()
                .unwrap()
        })
    }

    /// Makes a directory that is not among the temporary files, which a run may need.
    fn outside() -> tempfile::TempDir {
        let temporary = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
        let checkout = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let home = std::env::home_dir().unwrap_or_else(|| "/".into());
        let is_outside = |dir: &PathBuf| !temporary.iter().any(|temporary| dir.starts_with(temporary));
        let places = [checkout, home, "/dev/shm".into()];
        tempfile::tempdir_in(places.into_iter().find(is_outside).unwrap()).unwrap()
    }

    fn code(result: io::Result<impl Sized>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn nothing_outside_is_opened_and_nothing_is_executed() {
        let scratch = outside();
        let secret = scratch.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        caged(|| {
            assert_eq!(code(fs::read(&secret)), Some(libc::EACCES));
            assert_eq!(code(fs::write(scratch.path().join("new"), "")), Some(libc::EACCES));
            assert_eq!(code(fs::read("/etc/shadow")), Some(libc::EACCES));
            assert!(code(Command::new("/bin/true").spawn()).is_some());
            // A run needs these: threads, and the names of users.
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            assert!(!fs::read("/etc/passwd").unwrap().is_empty());
        });
        assert_eq!(fs::read(&secret).unwrap(), b"secret", "the cage of a thread is that thread's");
    }

    #[test]
    fn no_datagram_socket_is_made_and_memory_stays_withheld() {
        caged(|| {
            let missing = Some(libc::ENOSYS);
            assert_eq!(code(UnixDatagram::pair()), missing);
            assert_eq!(code(set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Into::into)), missing);
            // Its own library has these calls as well.
            let (stream, _other) = UnixStream::pair().unwrap();
            assert_eq!(rustix::io::ioctl_fionread(&stream), Ok(0));
            assert!(set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok());
        });
    }

    #[test]
    fn a_kernel_without_scopes_for_signals_is_told() {
        assert!(early(ABI::V5).is_some_and(|note| note.contains("6.12")));
        assert_eq!(early(ABI::V6), None);
    }

    #[test]
    fn where_entries_are_only_added_none_is_read_changed_or_removed() {
        let scratch = outside();
        let at = |path: &str| scratch.path().join(path);
        for file in ["tree/a", "tree/b", "kept/older"] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), file).unwrap();
        }
        let session = || {
            let rules = Ruleset::default().handle_access(AccessFs::from_all(FILES_ABI)).unwrap();
            let places = [(at("tree"), rights(Touch::Write)), (at("kept"), rights(Touch::Add))];
            let rules = with_rules(rules.create().unwrap(), places).unwrap();
            let _ = rules.restrict_self().unwrap();

            fs::create_dir(at("kept/dir")).unwrap();
            fs::rename(at("tree/a"), at("kept/dir/a")).unwrap();
            fs::hard_link(at("tree/b"), at("kept/b")).unwrap();
            assert_eq!(code(fs::read(at("kept/older"))), Some(libc::EACCES));
            assert_eq!(code(fs::write(at("kept/older"), "")), Some(libc::EACCES));
            assert_eq!(code(fs::remove_file(at("kept/older"))), Some(libc::EACCES));
            assert_eq!(code(fs::remove_dir(at("kept/dir"))), Some(libc::EACCES));
            assert!(code(fs::rename(at("tree/b"), at("kept/older"))).is_some());
            assert!(code(fs::rename(at("kept/older"), at("tree/older"))).is_some());
            assert!(code(fs::hard_link(at("kept/older"), at("tree/older"))).is_some());
        };
        thread::scope(|scope| scope.spawn(session).join().unwrap());
        assert_eq!(fs::read(at("kept/older")).unwrap(), b"kept/older");
        assert_eq!(fs::read(at("kept/dir/a")).unwrap(), b"tree/a");
    }

    #[test]
    fn threads_that_a_carrier_starts_have_its_cage() {
        let scratch = outside();
        let file = scratch.path().join("file");
        fs::write(&file, "x").unwrap();
        let found = thread::scope(|scope| {
            let carrier = scope.spawn(|| {
                let cage = Cage::default();
                dsync_engine::Cage::enter_carrier(&cage);
                assert_eq!(cage.notes(), Vec::<String>::new());
                let file = file.clone();
                thread::spawn(move || {
                    (code(fs::read(&file)), code(fs::write(&file, "")), fs::read("/etc/passwd").is_ok())
                })
                .join()
                .unwrap()
            });
            carrier.join().unwrap()
        });
        assert_eq!(found, (Some(libc::EACCES), Some(libc::EACCES), true));
        assert_eq!(fs::read(&file).unwrap(), b"x", "this thread started neither");
    }

    #[test]
    fn the_list_has_each_call_once_and_none_that_starts_or_changes_programs() {
        let mut calls = calls::ALLOWED.to_vec();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), calls::ALLOWED.len());
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_bpf,
            libc::SYS_clone3,
            libc::SYS_io_uring_setup,
            libc::SYS_open_by_handle_at,
            libc::SYS_process_vm_writev,
            libc::SYS_setuid,
            libc::SYS_prlimit64,
        ] {
            assert!(!calls.contains(&call), "{call}");
        }
        for call in calls::BEFORE_A_RUN.iter().chain(calls::HIDING) {
            assert!(!calls.contains(call), "{call} is a run's as well");
        }
    }
}
