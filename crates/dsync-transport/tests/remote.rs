//! `connect` against remote shells: fake ones that show each way in which starting can fail, and a
//! real sshd on the loopback if there is one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, TcpListener},
    num::NonZeroU16,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_transport::{
    AddressFamily, ConnectError, ConnectOptions, Connected, RemoteShell, ShellStatus, TransportChoice,
    connect,
};
use dsync_wire::{
    bootstrap::{BootstrapMessage, Fingerprint, PortRange, Reached, ServerBootstrap},
    link::{Carrier, CloseReason, LinkError},
};
use tempfile::TempDir;

/// A remote shell made of a script, in a directory of its own.
struct FakeSsh {
    directory: TempDir,
    shell: RemoteShell,
}

impl FakeSsh {
    /// Writes the script, which sees the command line as ssh would; its last word is the remote
    /// command.
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssh");
        // Written by a child: another test's fork could hold a descriptor that is open for writing,
        // and executing the file would fail with "text file busy".
        let written = Command::new("sh")
            .args(["-c", "printf '%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .arg(format!("#!/bin/sh\n{script}"))
            .status();
        assert!(written.unwrap().success());
        let shell = RemoteShell {
            command: vec![path.into()],
            user: None,
            host: "127.0.0.1".into(),
            family: AddressFamily::Any,
            remote_program: echo_server().to_str().unwrap().into(),
            pipe: dsync_wire::link::Carrier::Ssh,
        };
        Self { directory, shell }
    }

    fn connect(&self, transport: TransportChoice) -> Result<Connected, ConnectError> {
        connect(&self.shell, &options(transport))
    }

    fn fails(script: &str) -> ConnectError {
        Self::new(script).connect(TransportChoice::Auto).unwrap_err()
    }
}

/// Returns options with the longest possible wait for a port, because the machine may be busy.
fn options(transport: TransportChoice) -> ConnectOptions {
    ConnectOptions { transport, port_wait: Duration::from_secs(10), ..ConnectOptions::default() }
}

/// Returns options with a short wait, for ports that do not answer.
fn impatient(transport: TransportChoice) -> ConnectOptions {
    ConnectOptions { port_wait: Duration::from_millis(1500), ..options(transport) }
}

/// Returns the example program, which `cargo test` builds before it runs this.
fn echo_server() -> PathBuf {
    let directory = std::env::current_exe().unwrap();
    let path = directory.ancestors().nth(2).unwrap().join("examples/echo_server");
    assert!(path.exists(), "run `cargo build -p dsync-transport --examples` first");
    path
}

/// Script that runs the remote command on this host, as sshd would.
const LOCAL: &str = r#"while [ $# -gt 2 ]; do shift; done; command=$*; exec sh -c "$command""#;

fn check_echo(connected: &Connected) {
    let data = Bytes::from((0..3_000_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    let lane = connected.link.open_lane().unwrap();
    let (mut tx, mut rx) = (lane.tx, lane.rx);
    thread::scope(|scope| {
        scope.spawn(|| {
            tx.write(data.clone()).unwrap();
            tx.finish().unwrap();
        });
        let mut back = Vec::new();
        let mut buf = vec![0; 100_000];
        loop {
            match rx.read(&mut buf).unwrap() {
                0 => break,
                count => back.extend_from_slice(&buf[..count]),
            }
        }
        assert!(back == data);
    });
}

#[test]
fn the_ssh_pipe_carries_a_session() {
    let ssh = FakeSsh::new(LOCAL);
    let connected = ssh.connect(TransportChoice::Ssh).unwrap();
    assert_eq!(connected.link.carrier(), Carrier::Ssh);
    assert_eq!(connected.reason, None);
    check_echo(&connected);
    connected.link.close(CloseReason::Done);
}

#[test]
fn quic_and_tls_carry_a_session_to_the_host_that_the_operator_named() {
    let ssh = FakeSsh::new(LOCAL);
    for (transport, carrier) in [(TransportChoice::Quic, Carrier::Quic), (TransportChoice::Tls, Carrier::Tls)]
    {
        let connected = ssh.connect(transport).unwrap();
        assert_eq!((connected.link.carrier(), &connected.reason), (carrier, &None));
        check_echo(&connected);
        connected.link.close(CloseReason::Done);
    }
}

#[test]
fn a_short_path_gets_tls_and_the_round_trip_is_said() {
    let ssh = FakeSsh::new(LOCAL);
    let connected = connected_over_tls(&ssh.shell);
    let reason = connected.reason.clone().unwrap();
    assert!(reason.starts_with("round trip ") && reason.ends_with(" ms"), "{reason}");
    check_echo(&connected);
}

/// Connects until a short path is recognised as one: on a busy machine it may look long, which is
/// reported.
fn connected_over_tls(shell: &RemoteShell) -> Connected {
    let since = Instant::now();
    loop {
        let connected = connect(shell, &options(TransportChoice::Auto)).unwrap();
        if connected.link.carrier() == Carrier::Tls {
            return connected;
        }
        assert!(since.elapsed() < PATIENCE, "{:?}", connected.reason);
    }
}

/// Returns a script that greets with these addresses and those of the ports that the client wants,
/// and then only listens.
fn greeting(
    wanted: TransportChoice,
    udp_port: Option<NonZeroU16>,
    tcp_port: Option<NonZeroU16>,
    addresses: Vec<std::net::IpAddr>,
) -> String {
    let greeting = ServerBootstrap {
        version: dsync_wire::version::VERSION,
        features: 0,
        fingerprint: Fingerprint([7; 32]),
        udp_port: udp_port.filter(|_| wanted != TransportChoice::Tls),
        tcp_port: tcp_port.filter(|_| wanted != TransportChoice::Quic),
        addresses,
    };
    says(&[BootstrapMessage::Server(greeting)])
}

/// Returns a script that says this and then only listens.
fn says(messages: &[BootstrapMessage]) -> String {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut bytes).unwrap());
    let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("printf '{octal}'; exec cat > /dev/null")
}

/// Connects through a program whose pipe counts as this, and which says this first.
fn through(pipe: Carrier, first: &[Duration]) -> Result<Connected, ConnectError> {
    let reached = |&round_trip: &Duration| {
        BootstrapMessage::Reached(Reached { address: (Ipv4Addr::LOCALHOST, 873).into(), round_trip })
    };
    let server = ServerBootstrap {
        version: dsync_wire::version::VERSION,
        features: 0,
        fingerprint: Fingerprint([7; 32]),
        udp_port: None,
        tcp_port: None,
        addresses: Vec::new(),
    };
    let answer = [BootstrapMessage::Server(server), BootstrapMessage::Go];
    let mut ssh = FakeSsh::new(&says(&first.iter().map(reached).chain(answer).collect::<Vec<_>>()));
    ssh.shell.pipe = pipe;
    ssh.connect(TransportChoice::Ssh)
}

#[test]
fn a_dialler_tells_whether_its_path_is_short() {
    let is_near = |first: &[Duration]| through(Carrier::Tls, first).unwrap().link.is_near();
    assert!(is_near(&[Duration::from_micros(50)]));
    assert!(!is_near(&[Duration::from_millis(80)]));
    assert!(!is_near(&[]));
}

#[test]
fn only_a_dialler_tells_where_a_connection_goes_and_only_once() {
    let short = Duration::from_micros(50);
    for (pipe, first) in [(Carrier::Ssh, &[short][..]), (Carrier::Tls, &[short, short])] {
        let refused = through(pipe, first).err();
        assert!(matches!(refused, Some(ConnectError::NotDsync { .. })), "{pipe:?}: {refused:?}");
    }
}

/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn ports_of_the_range_are_used_and_none_free_is_an_error() {
    let ssh = FakeSsh::new(LOCAL);
    let connected = (0..50).find_map(|_| {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = NonZeroU16::new(taken.local_addr().unwrap().port()).unwrap();
        let limited = |transport| ConnectOptions { ports: PortRange::new(port, port), ..options(transport) };
        let error = connect(&ssh.shell, &limited(TransportChoice::Tls)).unwrap_err();
        let text = format!("127.0.0.1 refused: no port in {port} is free on this host");
        assert_eq!((error.exit_code(), error.to_string()), (10, text.clone()));
        drop(taken);
        match connect(&ssh.shell, &limited(TransportChoice::Tls)) {
            Ok(connected) => Some(connected),
            // Somebody else on the machine took it meanwhile: try the next one.
            Err(error) => {
                assert_eq!(error.to_string(), text);
                None
            }
        }
    });
    let connected = connected.unwrap();
    assert_eq!(connected.link.carrier(), Carrier::Tls);
    check_echo(&connected);
}

#[test]
fn no_address_that_the_server_names_is_knocked_at() {
    let doors = ["127.0.0.5", "127.0.0.6", "127.0.0.7"].map(|door| TcpListener::bind((door, 0)).unwrap());
    for door in &doors {
        door.set_nonblocking(true).unwrap();
        let address = door.local_addr().unwrap();
        let udp = std::net::UdpSocket::bind(address).unwrap();
        udp.set_nonblocking(true).unwrap();
        let port = NonZeroU16::new(address.port());
        let addresses: Vec<_> = doors.iter().map(|door| door.local_addr().unwrap().ip()).collect();
        for transport in [TransportChoice::Auto, TransportChoice::Quic, TransportChoice::Tls] {
            let ssh = FakeSsh::new(&greeting(transport, port, port, addresses.clone()));
            let error = connect(&ssh.shell, &impatient(transport)).unwrap_err();
            // The greeting was believed: only the host that the operator named was tried, where nobody
            // answers, and then the pipe.
            match (transport, &error) {
                (TransportChoice::Auto, ConnectError::NoGreeting { .. }) => {}
                (_, ConnectError::PortBlocked { address, port: tried, .. }) => {
                    assert_eq!(
                        (*address, Some(*tried)),
                        (Some(Ipv4Addr::LOCALHOST.into()), port.map(Into::into))
                    );
                }
                (_, error) => panic!("{transport:?}: {error}"),
            }
            assert_eq!(door.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
            assert_eq!(udp.recv(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn quic_finds_the_host_by_name() {
    let mut ssh = FakeSsh::new(&format!("unset SSH_CONNECTION\n{LOCAL}"));
    ssh.shell.host = "localhost".into();
    let connected = ssh.connect(TransportChoice::Quic).unwrap();
    assert_eq!(connected.link.carrier(), Carrier::Quic);
}

#[test]
fn without_an_answer_the_carrier_that_was_demanded_fails() {
    // Both ports are there, and nobody reads what arrives. (`fallback` of the end-to-end tests drops
    // the packets themselves, for which it needs a network namespace.)
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |address: std::net::SocketAddr| NonZeroU16::new(address.port());
    let ports = (port(udp.local_addr().unwrap()), port(tcp.local_addr().unwrap()));
    for (transport, protocol) in [(TransportChoice::Quic, "UDP"), (TransportChoice::Tls, "TCP")] {
        let ssh = FakeSsh::new(&greeting(transport, ports.0, ports.1, Vec::new()));
        let error = connect(&ssh.shell, &impatient(transport)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.exit_code(), 35, "{text}");
        assert!(text.starts_with(&format!("no answer on {protocol} 127.0.0.1:")), "{text}");
        assert!(text.ends_with("within 1.5 s"), "{text}");
    }
}

#[test]
fn the_command_line_is_exact() {
    let mut ssh = FakeSsh::new("for word; do printf '%s\\n' \"$word\"; done > \"${0%/*}/argv\"; exit 3");
    ssh.shell.command.extend(["-p".into(), "2222".into(), "-o".into(), "A b=$(c)".into()]);
    ssh.shell.user = Some("me".into());
    ssh.shell.host = "2001:db8::1".into();
    ssh.shell.remote_program = "dsync".into();
    ssh.connect(TransportChoice::Auto).unwrap_err();
    let argv = fs::read_to_string(ssh.directory.path().join("argv")).unwrap();
    assert_eq!(argv, "-p\n2222\n-o\nA b=$(c)\n-l\nme\n--\n2001:db8::1\ndsync\n--server\n");
}

#[test]
fn a_shell_that_does_not_exist_is_named() {
    let mut ssh = FakeSsh::new("");
    ssh.shell.command = vec!["/nonexistent/ssh".into()];
    let error = ssh.connect(TransportChoice::Auto).unwrap_err();
    assert!(matches!(&error, ConnectError::ShellNotFound { program } if program == "/nonexistent/ssh"));
    assert_eq!(error.exit_code(), 14);
    ssh.shell.command = vec![ssh.directory.path().into()];
    let error = ssh.connect(TransportChoice::Auto).unwrap_err();
    assert!(matches!(error, ConnectError::ShellNotStarted { .. }), "{error}");
}

#[test]
fn a_shell_that_fails_is_quoted() {
    let error = FakeSsh::fails(
        "echo 'debug: x' >&2; printf 'me@testhost: Permission denied\\033[2J (publickey).\\r\\n' >&2; exit 255",
    );
    assert_eq!(error.exit_code(), 255);
    let text = error.to_string();
    let end = "ssh exited 255: me@testhost: Permission denied\\u{1b}[2J (publickey).";
    assert!(text.ends_with(end), "{text}");
    let error = FakeSsh::fails("kill -9 $$");
    assert!(matches!(error, ConnectError::ShellFailed { status: ShellStatus::Killed(9), .. }), "{error}");
    let error = FakeSsh::fails("exit 0");
    assert!(matches!(error, ConnectError::NoGreeting { .. }), "{error}");
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn a_missing_remote_program_is_named() {
    let mut ssh = FakeSsh::new(LOCAL);
    ssh.shell.remote_program = "dsync-not-installed".into();
    let error = ssh.connect(TransportChoice::Auto).unwrap_err();
    assert_eq!(error.exit_code(), 127);
    let expected = "'dsync-not-installed' not found on 127.0.0.1";
    assert_eq!(error.to_string(), expected);
    // csh and friends exit 1.
    let error = FakeSsh::fails("echo 'dsync: command not found' >&2; exit 1");
    assert!(matches!(error, ConnectError::RemoteProgramMissing { .. }), "{error}");
}

#[test]
fn text_before_the_greeting_is_shown() {
    let banner = FakeSsh::fails(&format!("printf 'Welcome to\\033]0;x\\007 host\\n'\n{LOCAL}"));
    assert_eq!(banner.exit_code(), 2);
    assert_eq!(
        banner.to_string(),
        "unexpected text from 127.0.0.1 before the greeting: 'Welcome to\\u{1b}]0;x\\u{7} host' \
         (check shell start-up files)"
    );
    let endless = FakeSsh::fails("exec yes 'some line'");
    let text = endless.to_string();
    assert!(text.contains("'some line\\nsome line") && text.len() < 400, "{text}");
    let short = FakeSsh::fails("printf hi");
    assert!(matches!(&short, ConnectError::Noise { text, .. } if text == "hi"), "{short}");
}

#[test]
fn another_protocol_is_told_from_text() {
    let error = FakeSsh::fails("printf '\\037\\000\\000\\000\\001\\002'; sleep 1");
    assert_eq!((error.exit_code(), error.to_string().as_str()), (12, "127.0.0.1 does not speak dsync"));
    // The right magic, then a message that does not exist.
    let error = FakeSsh::fails("printf '\\211dsync\\r\\n\\032\\n\\011\\000\\000'; sleep 1");
    assert!(matches!(&error, ConnectError::NotDsync { source: Some(_), .. }), "{error:?}");
    // A greeting that is not heard to its end, as the program ends, and says why.
    let error = FakeSsh::fails("printf '\\211dsync\\r\\n\\032\\n'; echo 'no such key' >&2; exit 40");
    let ConnectError::ShellFailed { status, stderr, .. } = &error else { panic!("{error:?}") };
    assert_eq!((status, &stderr[..]), (&ShellStatus::Exited(40), &["no such key".to_owned()][..]));
    // Cut off in the middle.
    let error = FakeSsh::fails("printf '\\211dsync\\r\\n'");
    assert_eq!(error.exit_code(), 12, "{error:?}");
}

#[test]
fn other_versions_and_refusals_are_told() {
    // Refusal (3), 5 bytes: versions (1) 3 to 4.
    let error =
        FakeSsh::fails("printf '\\211dsync\\r\\n\\032\\n\\003\\005\\000\\001\\003\\000\\004\\000'; sleep 1");
    assert_eq!(error.exit_code(), 2);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "peer speaks versions 3-4, this program version 1; upgrade this side");
    // Refusal, 6 bytes: other (3), exit code 42, "nope".
    let error = FakeSsh::fails("printf '\\211dsync\\r\\n\\032\\n\\003\\006\\000\\003\\052nope'; sleep 1");
    assert_eq!((error.exit_code(), error.to_string().as_str()), (42, "127.0.0.1 refused: nope"));
}

#[test]
fn a_remote_side_that_never_greets_is_given_up() {
    let ssh = FakeSsh::new("exec sleep 36000");
    let limits =
        ConnectOptions { greeting_timeout: Duration::from_millis(200), ..options(TransportChoice::Auto) };
    let error = connect(&ssh.shell, &limits).unwrap_err();
    assert!(matches!(error, ConnectError::GreetingTimeout { .. }), "{error}");
}

#[test]
fn what_the_remote_side_says_is_kept() {
    let ssh = FakeSsh::new(&format!("echo first >&2; printf 'a\\tb\\n' >&2\n{LOCAL}"));
    let connected = ssh.connect(TransportChoice::Ssh).unwrap();
    check_echo(&connected);
    assert_eq!(connected.remote_stderr(), ["first", "a\\tb"]);
}

/// A throwaway sshd on the loopback with keys of its own, or `None` if there is no sshd.
struct Sshd {
    directory: TempDir,
    process: Child,
    port: u16,
}

impl Sshd {
    fn start() -> Option<Self> {
        let program = Path::new("/usr/sbin/sshd");
        if !program.exists() || Command::new("ssh").arg("-V").output().is_err() {
            eprintln!("no sshd or ssh here: skipped");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(name))
                .status();
            assert!(made.unwrap().success());
        }
        fs::copy(path("user_key.pub"), path("authorized_keys")).unwrap();
        fs::set_permissions(path("authorized_keys"), fs::Permissions::from_mode(0o600)).unwrap();
        // If sshd separates privileges, it insists on this directory.
        let _ = fs::create_dir_all("/run/sshd");
        // Somebody else may take a port before sshd does: then try the next one.
        let started = (0..5).find_map(|_| Self::listen(&directory));
        if started.is_none() {
            eprintln!("sshd does not start here: skipped");
        }
        let (process, port) = started?;
        Some(Self { directory, process, port })
    }

    /// Starts it on a free port; returns `None` if it ended at once.
    fn listen(directory: &TempDir) -> Option<(Child, u16)> {
        let path = |name: &str| directory.path().join(name);
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             PasswordAuthentication no\nStrictModes no\nPermitRootLogin yes\n",
            path("host_key").display(),
            path("authorized_keys").display(),
        );
        fs::write(path("sshd_config"), config).unwrap();
        let log = path("log");
        let _ = fs::remove_file(&log);
        let mut process = Command::new("/usr/sbin/sshd")
            .args(["-D", "-E"])
            .arg(&log)
            .arg("-f")
            .arg(path("sshd_config"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while !fs::read_to_string(&log).is_ok_and(|said| said.contains("Server listening")) {
            if process.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(since.elapsed() < PATIENCE, "sshd neither listens nor ends");
            thread::sleep(Duration::from_millis(20));
        }
        Some((process, port))
    }

    fn shell(&self) -> RemoteShell {
        let mut command: Vec<OsString> = vec!["ssh".into(), "-F".into(), "none".into(), "-i".into()];
        command.push(self.directory.path().join("user_key").into());
        let port = self.port.to_string();
        for word in ["-p", &port, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"] {
            command.push(word.into());
        }
        command.extend(["-o".into(), "BatchMode=yes".into()]);
        RemoteShell {
            command,
            user: None,
            host: "127.0.0.1".into(),
            family: AddressFamily::Any,
            remote_program: echo_server().to_str().unwrap().into(),
            pipe: dsync_wire::link::Carrier::Ssh,
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_real_sshd_carries_every_kind_of_session() {
    let Some(sshd) = Sshd::start() else { return };
    let shell = sshd.shell();
    check_echo(&connected_over_tls(&shell));
    for (transport, carrier) in [(TransportChoice::Quic, Carrier::Quic), (TransportChoice::Ssh, Carrier::Ssh)]
    {
        let connected = connect(&shell, &options(transport)).unwrap();
        assert_eq!(connected.link.carrier(), carrier, "{:?}", connected.reason);
        check_echo(&connected);
        connected.link.close(CloseReason::Done);
    }
    let mut missing = shell.clone();
    missing.remote_program = "dsync-not-installed".into();
    let error = connect(&missing, &options(TransportChoice::Auto)).unwrap_err();
    assert!(matches!(error, ConnectError::RemoteProgramMissing { .. }), "{error}");
    let mut stranger = shell;
    stranger.command.retain(|word| !word.to_string_lossy().ends_with("user_key") && word != "-i");
    let error = connect(&stranger, &options(TransportChoice::Auto)).unwrap_err();
    assert!(matches!(error, ConnectError::ShellFailed { status: ShellStatus::Exited(255), .. }), "{error}");
}

#[test]
fn the_death_of_ssh_ends_every_kind_of_link() {
    let Some(sshd) = Sshd::start() else { return };
    let wrapper = FakeSsh::new("echo $$ > \"${0%/*}/pid\"; exec \"$@\"");
    let mut shell = sshd.shell();
    shell.command.splice(0..0, wrapper.shell.command.iter().cloned());
    for transport in [TransportChoice::Ssh, TransportChoice::Quic, TransportChoice::Tls] {
        let connected = connect(&shell, &options(transport)).unwrap();
        check_echo(&connected);
        let pid = fs::read_to_string(wrapper.directory.path().join("pid")).unwrap();
        assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
        let error = connected.link.accept_lane().unwrap_err();
        let lost = matches!(error, LinkError::Lost | LinkError::PeerClosed { reason: CloseReason::Failed });
        assert!(lost, "{transport:?}: {error:?}");
    }
}
