//! The server as a service of systemd: the unit of docs/server.md, notifications, and a socket that
//! systemd hands over.

use std::{
    fs,
    io::Write as _,
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use dsync_tests::{
    Run, needs_dsync, needs_namespace, program,
    run::{send, until_met, wait_for},
    scratch::slash,
    tree::noise,
};
use rustix::process::Signal;

use crate::{
    killed::{BIG, held_push, plant_old},
    nas::{Nas, Server},
};

/// Returns a unit of docs/server.md: the indented lines from one on.
fn unit(first: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/server.md");
    let page = fs::read_to_string(page).unwrap();
    let from = page.find(&format!("    {first}")).unwrap_or_else(|| panic!("no unit with {first}"));
    let lines = page[from..].lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim_start())).collect()
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    needs_dsync!();
    if !Command::new("systemd-analyze").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return;
    }
    let nas = Nas::new("append");
    let place = nas.scratch.at("units");
    fs::create_dir(&place).unwrap();
    let service = unit("[Unit]\n    Description=dsync shares");
    // The program is elsewhere here, and nothing else may differ.
    let service = service.replace("/usr/bin/dsync", &program().display().to_string());
    fs::write(place.join("dsync.service"), &service).unwrap();
    fs::write(place.join("dsync.socket"), unit("[Unit]\n    Description=Port of the dsync shares")).unwrap();
    for name in ["dsync.service", "dsync.socket"] {
        let checked = Command::new("systemd-analyze").arg("verify").arg(place.join(name)).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        // Units of the machine itself are not this test's.
        let own: Vec<_> = said.lines().filter(|line| line.contains("units/dsync")).collect();
        assert!(own.is_empty(), "{said}");
    }
    // A word that systemd does not know is found by this: the check can fail.
    fs::write(place.join("dsync.service"), service.replace("ProtectHome", "ProtectHaus")).unwrap();
    let checked = Command::new("systemd-analyze").arg("verify").arg(place.join("dsync.service")).output();
    let said = String::from_utf8_lossy(&checked.unwrap().stderr).into_owned();
    assert!(said.contains("ProtectHaus"), "{said}");
}

/// Returns the rest of a line of the package's file that begins with a name.
fn value(file: &str, name: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    let text = fs::read_to_string(packaging.join(file)).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}")).to_owned()
}

#[test]
fn a_server_that_a_restart_does_not_mend_is_not_started_again() {
    needs_dsync!();
    let prevented = value("dsync.service", "RestartPreventExitStatus=");
    let (nas, _) = Nas::offering("full");
    let refuses = |why: &str| {
        let refused = Run::dsync().args(["serve", "--config"]).arg(nas.scratch.at("serve.toml")).run();
        let code = refused.code().unwrap_or_default().to_string();
        assert!(prevented.split(' ').any(|known| known == code), "{why}: {}", refused.account());
    };
    fs::remove_file(nas.scratch.at("server.key")).unwrap();
    refuses("no key");
    nas.configure("[server");
    refuses("no configuration");
}

#[test]
fn systemd_waits_longer_than_the_packages_server() {
    let minutes = value("dsync.service", "TimeoutStopSec=");
    let minutes: u64 = minutes.strip_suffix("min").unwrap().parse().unwrap();
    let seconds: u64 = value("serve.toml", "stop-timeout = ").parse().unwrap();
    // The server has 5 s for TERM and 5 s for KILL.
    assert!(minutes * 60 >= seconds + 10);
}

#[test]
fn what_takes_a_restart_is_said_when_the_configuration_is_read_anew() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    let told = |key: &str| {
        let line = format!("dsync: '{key}' has changed, which takes a restart of the server");
        nas.log().lines().filter(|said| **said == line).count()
    };
    // A change that counts at once is not told.
    nas.reconfigure(&text.replacen("[server]", "[server]\nsessions = 9\nstop-timeout = 9", 1));
    let changed = text.replacen("127.0.0.1:0", "127.0.0.1:1", 1);
    let changed = changed.replacen("[server]", "[server]\nquic = false\nmetrics = '127.0.0.1:0'", 1);
    nas.reconfigure(&changed);
    let keys = ["listen", "quic", "metrics"];
    wait_for(|| keys.map(told) == [1; 3]);
    // As long as the server runs with the old one, each reload says so.
    nas.reconfigure(&changed);
    wait_for(|| keys.map(told) == [2; 3]);
    nas.reconfigure(&text);
    nas.reconfigure(&text);
    assert_eq!(keys.map(told), [2; 3]);
}

#[test]
fn another_key_of_the_servers_counts_at_once_for_runs_and_for_its_status() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    let asked = || {
        let config = nas.scratch.at("serve.toml");
        Run::dsync().args(["serve", "--status", "--config"]).arg(config).run()
    };
    wait_for(|| asked().code() == Some(0));

    let key = nas.scratch.at("server.key");
    let old = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    let new = Nas::public(&key);
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.reconfigure(&text);
    assert_eq!(nas.log().matches("the server has another key from now on").count(), 1, "{}", nas.log());
    assert!(!nas.log().contains("takes a restart"), "{}", nas.log());
    wait_for(|| asked().code() == Some(0));
    let _ = nas.push(&[]).expect_code(40);
    nas.know(&new);
    let _ = nas.push(&[]).expect_quiet_success();

    // The old one is a name of the server still, as long as it runs.
    fs::write(&key, old).unwrap();
    nas.reconfigure(&text);
    assert_eq!(nas.log().matches("the server has another key from now on").count(), 2, "{}", nas.log());
    assert_eq!(asked().code(), Some(0));
}

#[test]
fn all_addresses_are_those_of_ipv4_too_whatever_the_systems_default_is() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let set = Run::of("sh").args(["-c", "echo 1 >/proc/sys/net/ipv6/bindv6only"]).within(&namespace).run();
    if set.code() != Some(0) {
        // A kernel without IPv6 has nothing to set.
        return;
    }
    let (nas, key) = Nas::offering("full");
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    fs::write(nas.config("home/dsync/known-hosts"), format!("127.0.0.1:8730 {key}\n::1:8730 {key}\n"))
        .unwrap();
    for (listen, said) in [
        ("", "listening on [::]:8730"),
        ("listen = ['[::]:8730', '0.0.0.0:8730']", "listening on 0.0.0.0:8730"),
    ] {
        nas.configure(&text.replacen("listen = ['127.0.0.1:0']", listen, 1));
        let serve = Run::dsync().args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
        let mut server = serve.within(&namespace).start();
        wait_for(|| !server.is_running() || server.has_said(said));
        for host in ["127.0.0.1", "[::1]"] {
            let listed = Run::dsync().env("XDG_CONFIG_HOME", nas.config("home")).arg(format!("{host}::"));
            let listed = listed.within(&namespace).run().expect_code(0);
            assert_eq!(listed.stdout_text(), "nas full\n", "{host}: {}", listed.account());
            // As the client has it, and as a session through ssh tells it.
            wait_for(|| server.has_said(&format!("session peer={host}:")));
        }
        server.kill();
        let _ = server.wait();
    }
}

#[test]
fn a_port_in_use_is_told_with_its_address() {
    needs_dsync!();
    let (nas, _) = Nas::offering("full");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let config = nas.scratch.at("serve.toml");
    let text = fs::read_to_string(&config).unwrap();
    nas.configure(&text.replacen("127.0.0.1:0", &address, 1));
    let failed = Run::dsync().args(["serve", "--config"]).arg(&config).run().expect_code(10);
    let words = format!("cannot listen on {address}: ");
    assert!(failed.stderr_text().contains(&words), "{}", failed.account());
    assert!(!failed.stderr_text().contains("listening on"), "{}", failed.account());
}

#[test]
fn two_pushes_at_one_directory_through_the_port_are_one_at_a_time() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("big"), noise(1, BIG)).unwrap();
    let first = until_met(|| {
        plant_old(&nas, "full");
        held_push(&nas, "full")
    });
    let second = nas.push(&["--retries=0"]).expect_code(41);
    assert!(second.stderr_text().contains("in use by another dsync run"), "{}", second.account());
    wait_for(|| nas.log().contains(" code=41"));

    first.signal(Signal::CONT);
    let _ = first.wait().expect_quiet_success();
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(1, BIG));
    let _ = nas.push(&[]).expect_quiet_success();
}

/// Starts the server under a shell's prefix with its notifications going to a socket.
fn notified(nas: &mut Nas, script: &str, input: Stdio) -> UnixDatagram {
    let path = nas.scratch.at("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    // Only a hang takes this long.
    socket.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let log = fs::File::create(nas.scratch.at("log")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(program()).arg(nas.scratch.at("serve.toml"));
    command.env("NOTIFY_SOCKET", &path).stdin(input).stdout(Stdio::null()).stderr(log);
    nas.server = Some(Server { process: command.spawn().unwrap(), port: 0 });
    socket
}

/// Receives the next notification.
fn heard(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let count = socket.recv(&mut buffer).expect("a notification");
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

#[test]
fn systemd_is_told_when_the_server_is_ready_and_when_it_stops() {
    needs_dsync!();
    let (mut nas, _) = Nas::offering("full");
    let socket = notified(&mut nas, "exec \"$1\" serve --config \"$2\"", Stdio::null());
    assert!(heard(&socket).lines().any(|line| line == "READY=1"));
    // Ready is who listens.
    assert!(nas.log().contains("dsync: listening on 127.0.0.1:"), "{}", nas.log());

    let server = nas.server.as_mut().unwrap();
    send(server.process.id(), Signal::TERM);
    assert!(heard(&socket).lines().any(|line| line == "STOPPING=1"));
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_socket_that_systemd_hands_over_is_the_one_that_is_served() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // As systemd does it: the socket is descriptor 3 of the process that the variables name.
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$1\" serve --config \"$2\"";
    let socket = notified(&mut nas, script, Stdio::from(OwnedFd::from(listener)));
    assert!(heard(&socket).lines().any(|line| line == "READY=1"));
    let listening = format!("dsync: listening on 127.0.0.1:{port}");
    assert_eq!(nas.log().matches("listening on").count(), 1);
    wait_for(|| nas.log().contains(&listening));

    nas.server.as_mut().unwrap().port = port;
    nas.know(&key);
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    assert_eq!(fs::read(nas.there("new")).unwrap(), b"new");
}

/// Starts a server that has the listener as systemd hands it over. Its log goes to a file of this name.
fn stand_with(nas: &Nas, listener: &TcpListener, log: &str) -> Server {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$1\" serve --config \"$2\"";
    let log = fs::File::create(nas.scratch.at(log)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(program()).arg(nas.scratch.at("serve.toml"));
    command.env("NOTIFY_SOCKET", nas.scratch.at("notify"));
    let input = OwnedFd::from(listener.try_clone().unwrap());
    let process = command.stdin(input).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    Server { process, port: listener.local_addr().unwrap().port() }
}

#[test]
fn a_connection_waits_for_the_next_server_where_systemd_has_the_socket() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = UnixDatagram::bind(nas.scratch.at("notify")).unwrap();
    told.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    nas.server = Some(stand_with(&nas, &listener, "log"));
    nas.know(&key);
    assert!(heard(&told).contains("READY=1"));
    fs::write(nas.scratch.src().join("big"), noise(1, BIG)).unwrap();
    let first = until_met(|| {
        plant_old(&nas, "full");
        held_push(&nas, "full")
    });
    send(nas.server.as_ref().unwrap().process.id(), Signal::TERM);
    assert!(heard(&told).contains("STOPPING=1"));

    // Nobody takes them now, and nobody drops them.
    let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    stranger.shutdown(Shutdown::Write).unwrap();
    let other = nas.scratch.at("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("new"), "new").unwrap();
    let second = nas.run().args(["-a", "--retries=0"]).arg(slash(&other)).arg(nas.operand("second")).start();
    let second_server = stand_with(&nas, &listener, "second log");
    let _ = second.wait().expect_quiet_success();
    assert_eq!(fs::read(nas.place().join("second/new")).unwrap(), b"new");
    let refused = format!("dsync: refused peer={} why=", stranger.local_addr().unwrap());
    wait_for(|| fs::read_to_string(nas.scratch.at("second log")).is_ok_and(|log| log.contains(&refused)));

    // The first run goes on with the server that it began with.
    first.signal(Signal::CONT);
    let _ = first.wait().expect_quiet_success();
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(1, BIG));
    assert_eq!(nas.server.as_mut().unwrap().process.wait().unwrap().code(), Some(0));
    assert!(nas.log().contains(" code=0") && !nas.log().contains(&refused), "{}", nas.log());
    drop(second_server);
}

#[test]
fn a_server_that_stops_closes_a_port_of_its_own_at_once() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    // One that the system gives to nobody who asks for any port.
    let own = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let own = (own..32_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&text.replacen("127.0.0.1:0", &format!("127.0.0.1:{own}"), 1));
    nas.stand();
    nas.know(&key);
    fs::write(nas.scratch.src().join("big"), noise(1, BIG)).unwrap();
    let held = until_met(|| {
        plant_old(&nas, "full");
        held_push(&nas, "full")
    });
    send(nas.server.as_ref().unwrap().process.id(), Signal::TERM);
    // A connection that came before the stop is closed, and a later one is refused.
    wait_for(|| TcpStream::connect(("127.0.0.1", nas.port())).is_err());
    // Another server may have the port while the session lasts.
    let mut stopping = nas.server.take().unwrap();
    nas.stand();
    assert_eq!(nas.port(), own);

    held.signal(Signal::CONT);
    let _ = held.wait().expect_quiet_success();
    assert_eq!(stopping.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_datagram_socket_that_systemd_hands_over_carries_quic() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    let (listener, udp) = until_met(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind(listener.local_addr().unwrap()).ok()?;
        Some((listener, udp))
    });
    let port = listener.local_addr().unwrap().port();
    let log = fs::File::create(nas.scratch.at("log")).unwrap();
    // As systemd does it: descriptors 3 and 4.
    let script =
        "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$1\" serve --config \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(program()).arg(nas.scratch.at("serve.toml"));
    command.stdin(OwnedFd::from(listener)).stdout(OwnedFd::from(udp)).stderr(log);
    nas.server = Some(Server { process: command.spawn().unwrap(), port });
    wait_for(|| nas.log().contains(&format!("dsync: listening on 127.0.0.1:{port}")));
    assert!(!nas.log().contains("no QUIC"), "{}", nas.log());

    nas.know(&key);
    fs::write(nas.scratch.src().join("big"), noise(3, 6 << 20)).unwrap();
    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let pushed = nas.push(&["-v", "--transport=quic", "--bwlimit=6M"]).expect_code(0);
        pushed.all_text().contains("then quic: asked for").then_some(())
    });
}
