//! A throwaway sshd with keys of its own, on a loopback address and a port chosen by the system.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Read, Write as _},
    net::TcpListener,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use tempfile::TempDir;

use crate::{
    namespace::Namespace,
    program::{is_stand_in, program},
    run::{Run, is_alive, wait_for},
};

/// The name under which the ssh configuration knows the host.
pub const ALIAS: &str = "dsync-test";

/// The carrier that a run must use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// None given: dsync decides.
    Auto,
    /// QUIC or nothing.
    Quic,
    /// TLS over TCP or nothing.
    Tls,
    /// The ssh pipe.
    Ssh,
}

impl Via {
    /// Every carrier, each by its name.
    pub const EACH: [Self; 3] = [Self::Quic, Self::Tls, Self::Ssh];

    fn word(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Quic => Some("quic"),
            Self::Tls => Some("tls"),
            Self::Ssh => Some("ssh"),
        }
    }
}

/// A running sshd and the client configuration that reaches it.
#[derive(Debug)]
pub struct Sshd {
    dir: TempDir,
    watcher: Child,
    daemon: u32,
    port: u16,
    wrappers: AtomicU32,
}

impl Sshd {
    /// Returns the one on 127.0.0.1 that the tests of this process share.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Sshd> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("127.0.0.1", None))
    }

    /// Starts one of its own on a loopback address, possibly inside a network namespace.
    ///
    /// # Panics
    /// If it cannot be started: openssh-server or the address is missing.
    pub fn start(address: &str, namespace: Option<&Namespace>) -> Self {
        Self::start_with(address, namespace, true)
    }

    /// Starts one on 127.0.0.1 on which no shell finds the program.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn without_program() -> Self {
        Self::start_with("127.0.0.1", None, false)
    }

    fn start_with(address: &str, namespace: Option<&Namespace>, has_program: bool) -> Self {
        let dir = tempfile::Builder::new().prefix("dsync-sshd-").tempdir().expect("sshd's directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("sshd's directory");
        for key in ["host_key", "user_key"] {
            make_key(&dir.path().join(key));
        }
        fs::copy(dir.path().join("user_key.pub"), dir.path().join("authorized_keys"))
            .expect("authorized_keys");
        if crate::skip::is_root() {
            // Debian's start script makes it; sshd requires it even if it is not a service.
            fs::create_dir_all("/run/sshd").expect("the privilege separation directory");
        }
        for _ in 0..5 {
            // Another process may take the port between here and sshd's start: then try the next
            // one.
            let port = free_port(address, namespace);
            write_configs(dir.path(), address, port, has_program);
            if let Some((watcher, daemon)) = start_daemon(dir.path(), namespace) {
                return Self { dir, watcher, daemon, port, wrappers: AtomicU32::new(0) };
            }
        }
        let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        panic!("sshd did not start on {address} (is openssh-server installed?):\n{log}");
    }

    /// Returns the process id of the daemon, the ancestor of every session.
    pub fn daemon_id(&self) -> u32 {
        self.daemon
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the home directory of its sessions.
    pub fn home_of_sessions(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Returns the remote shell for `-e`.
    pub fn shell(&self) -> OsString {
        let mut shell = OsString::from("ssh -F ");
        shell.push(self.dir.path().join("ssh_config"));
        shell
    }

    /// Returns the client's configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("ssh_config")
    }

    /// Returns the operand `dsync-test:path`.
    pub fn operand(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut operand = OsString::from(format!("{ALIAS}:"));
        operand.push(path);
        operand
    }

    /// Makes a run of the program that reaches this host over a carrier, without operands.
    pub fn run(&self, via: Via) -> Run {
        self.run_serving(via, program())
    }

    /// Makes the same with another program at the remote end.
    pub fn run_serving(&self, via: Via, remote_program: &Path) -> Run {
        let run = Run::dsync().arg("-e").arg(self.shell());
        if is_stand_in() {
            return run.arg("--rsync-path").arg(remote_program);
        }
        let run = run.arg("--dsync-path").arg(remote_program);
        match via.word() {
            Some(word) => run.arg(format!("--transport={word}")),
            None => run,
        }
    }

    /// Makes a remote end whose process can be found: it records its id before it becomes the
    /// program.
    ///
    /// # Panics
    /// If its script cannot be written.
    pub fn remote(&self) -> Remote {
        let number = self.wrappers.fetch_add(1, Ordering::Relaxed);
        let script = self.dir.path().join(format!("remote-{number}"));
        let pid_file = self.dir.path().join(format!("remote-{number}.pids"));
        let text =
            format!("#!/bin/sh\necho $$ >>{}\nexec {} \"$@\"\n", pid_file.display(), program().display());
        fs::write(&script, text).expect("the remote script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("the remote script's mode");
        Remote { script, pid_file }
    }

    /// Makes a key whose sessions run this command, with further options of `authorized_keys`. Returns the
    /// client's configuration that logs in with it, under any name of a host.
    ///
    /// # Panics
    /// If its files cannot be written.
    pub fn force(&self, command: &str, options: &[&str]) -> PathBuf {
        let number = self.wrappers.fetch_add(1, Ordering::Relaxed);
        let at = |name: &str| self.dir.path().join(name);
        let key = at(&format!("forced_key-{number}"));
        make_key(&key);
        let public = fs::read_to_string(key.with_extension("pub")).expect("the public key");
        let command = format!("command=\"{}\"", command.replace('"', "\\\""));
        let options = [&[command.as_str()], options].concat().join(",");
        let line = format!("{options} {public}");
        // Other tests add theirs: one call writes it at the end.
        let known = OpenOptions::new().append(true).open(at("authorized_keys"));
        known.and_then(|mut file| file.write_all(line.as_bytes())).expect("authorized_keys");

        let config = fs::read_to_string(self.config()).expect("ssh_config");
        let own = at("user_key").display().to_string();
        let config = config.replace(&own, &key.display().to_string());
        let config = config.replacen(&format!("Host {ALIAS}\n"), "Host *\n", 1);
        let path = at(&format!("forced_config-{number}"));
        fs::write(&path, config).expect("the client's configuration");
        path
    }

    /// Returns sshd's log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // The watcher kills sshd when its stdin ends.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// A remote end that records the ids of its processes.
#[derive(Debug)]
pub struct Remote {
    /// The command to run there instead of the program.
    pub script: PathBuf,
    /// File with the ids, one a line.
    pub pid_file: PathBuf,
}

impl Remote {
    /// Waits until the remote end of a run has started and returns its process id.
    ///
    /// # Panics
    /// If it does not start.
    pub fn wait_for_id(&self) -> u32 {
        let mut found = None;
        wait_for(|| {
            let text = fs::read_to_string(&self.pid_file).unwrap_or_default();
            // A line without its end may lack digits.
            let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            found = whole.lines().last().and_then(|line| line.trim().parse().ok());
            found.is_some()
        });
        found.expect("what was waited for")
    }

    /// Waits until no remote end is left: one whose peer died notices, ends, and releases the
    /// destination.
    ///
    /// # Panics
    /// If one lives on.
    pub fn wait_until_gone(&self) {
        wait_for(|| self.alive().is_empty());
    }

    /// Returns the processes that are still there.
    pub fn alive(&self) -> Vec<u32> {
        let text = fs::read_to_string(&self.pid_file).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| is_alive(pid)).collect()
    }
}

/// Returns the remote home directory as this user's sessions see it.
///
/// # Panics
/// If the user database does not have it.
pub fn home() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let passwd = fs::read("/etc/passwd").expect("/etc/passwd");
    let line = passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
        let matches = fields.len() >= 6 && fields[2] == uid.to_string().as_bytes();
        matches.then(|| fields[5].to_vec())
    });
    OsString::from_vec(line.expect("this user's line in /etc/passwd")).into()
}

fn make_key(path: &Path) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "dsync-test", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .status()
        .expect("ssh-keygen (is openssh-client installed?)");
    assert!(status.success(), "ssh-keygen failed");
}

/// Returns a port that nothing listens on: any that is free here, ssh's own inside a namespace.
fn free_port(address: &str, namespace: Option<&Namespace>) -> u16 {
    if namespace.is_some() {
        return 22;
    }
    let listener =
        TcpListener::bind((address, 0)).unwrap_or_else(|error| panic!("cannot bind {address}: {error}"));
    listener.local_addr().expect("the address of a listener").port()
}

/// Starts sshd under a shell that kills it and removes its directory when this process ends, in
/// whatever way. Returns `None` if sshd ended at once.
fn start_daemon(dir: &Path, namespace: Option<&Namespace>) -> Option<(Child, u32)> {
    let script = r#"
        dir=$1
        sshd=$(command -v sshd || echo /usr/sbin/sshd)
        "$sshd" -D -E "$dir/log" -f "$dir/sshd_config" </dev/null >/dev/null 2>&1 &
        pid=$!
        for _ in $(seq 15000); do
            grep -q 'Server listening' "$dir/log" 2>/dev/null && break
            kill -0 $pid 2>/dev/null || { echo failed; exit 1; }
            sleep 0.02
        done
        echo "ready $pid"
        cat >/dev/null
        # Its sessions do not end with it, and one whose client is out of reach for a quarter of an hour not at all.
        pkill -P $pid
        kill $pid
        wait $pid 2>/dev/null
        # The shared daemon lives in a static, which nobody drops: its directory goes with it.
        rm -rf "$dir"
    "#;
    let mut argv: Vec<OsString> = namespace.map(Namespace::enter).unwrap_or_default();
    argv.extend(["sh", "-c", script, "sshd-watcher"].map(OsString::from));
    let _ = fs::remove_file(dir.join("log"));
    let mut watcher = Command::new(&argv[0])
        .args(&argv[1..])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the watcher of sshd");
    let mut line = String::new();
    let stdout = watcher.stdout.take().expect("stdout is piped");
    let read = BufReader::new(stdout.take(64)).read_line(&mut line);
    let daemon = line.trim().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    if let (Ok(_), Some(daemon)) = (read, daemon) {
        return Some((watcher, daemon));
    }
    let _ = watcher.wait();
    None
}

fn write_configs(dir: &Path, address: &str, port: u16, has_program: bool) {
    let here = dir.display();
    let path = program().parent().filter(|_| has_program).unwrap_or(Path::new("/usr/local/bin"));
    let path = path.display().to_string();
    let listen =
        if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    // `cargo xtask mutants` chooses a mutant by this variable, at the remote end as well.
    let mutant = std::env::var("DSYNC_MUTANT").map(|name| format!(" \"DSYNC_MUTANT={name}\""));
    let mutant = mutant.unwrap_or_default();
    // Scratch directories are not in TMPDIR, as in `Run::start`. The default agreement on keys, which
    // no test is about, takes ten times the processor time.
    let sshd = format!(
        "ListenAddress {listen}\n\
         HostKey {here}/host_key\n\
         AuthorizedKeysFile {here}/authorized_keys\n\
         PidFile none\n\
         StrictModes no\n\
         UsePAM no\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         PrintMotd no\n\
         LogLevel INFO\n\
         MaxStartups 200\n\
         MaxSessions 200\n\
         KexAlgorithms curve25519-sha256\n\
         AllowTcpForwarding yes\n\
         Subsystem sftp internal-sftp\n\
         SetEnv PATH={path}:/usr/local/bin:/usr/bin:/bin HOME={here}/home TMPDIR=/var/tmp{mutant}\n"
    );
    // Without the user's start-up files, which could put another dsync first on the path and take
    // time of their own.
    fs::create_dir_all(dir.join("home")).expect("the home directory");
    fs::write(dir.join("sshd_config"), sshd).expect("sshd_config");
    let key = fs::read_to_string(dir.join("host_key.pub")).expect("the host key");
    let key: Vec<&str> = key.split_whitespace().take(2).collect();
    fs::write(dir.join("known_hosts"), format!("[{address}]:{port},{address} {}\n", key.join(" ")))
        .expect("known_hosts");
    let user = rustix::process::getuid().as_raw();
    let common = format!(
        "  Port {port}\n\
         \x20 IdentityFile {here}/user_key\n\
         \x20 IdentitiesOnly yes\n\
         \x20 IdentityAgent none\n\
         \x20 UserKnownHostsFile {here}/known_hosts\n\
         \x20 GlobalKnownHostsFile /dev/null\n\
         \x20 StrictHostKeyChecking yes\n\
         \x20 BatchMode yes\n\
         \x20 ControlPath none\n\
         \x20 LogLevel ERROR\n"
    );
    let ssh = format!(
        "# for uid {user}\n\
         Host {ALIAS}\n  HostName {address}\n{common}\
         Host {ALIAS}-jumped\n  HostName {address}\n  ProxyJump {ALIAS}\n{common}\
         Host {address}\n{common}"
    );
    fs::write(dir.join("ssh_config"), ssh).expect("ssh_config");
}
