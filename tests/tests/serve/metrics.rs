//! The endpoint for Prometheus: what it counts, and what it answers.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use dsync_tests::{Run, needs_dsync, run::wait_for};

use crate::nas::Nas;

/// Makes a share of a server with metrics; returns their port too.
fn measured() -> (Nas, u16) {
    let (mut nas, server) = Nas::offering("append");
    nas.limit_server("metrics = '127.0.0.1:0'");
    nas.stand();
    nas.know(&server);
    let log = nas.log();
    let port = log.lines().find_map(|line| line.strip_prefix("dsync: metrics on 127.0.0.1:"));
    let port = port.unwrap_or_else(|| panic!("{log}")).parse().unwrap();
    (nas, port)
}

/// Sends a request and returns the answer.
fn ask(port: u16, request: &[u8]) -> String {
    let mut asking = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _ = asking.write_all(request);
    let mut answer = Vec::new();
    // The end, or a reset where unread bytes were left.
    let _ = asking.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn metrics(port: u16) -> String {
    ask(port, b"GET /metrics HTTP/1.1\r\nHost: nas\r\nAccept: text/plain\r\n\r\n")
}

#[test]
fn sessions_entries_and_refusals_are_counted_for_prometheus() {
    needs_dsync!();
    let (nas, port) = measured();
    let idle = metrics(port);
    assert!(idle.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"), "{idle}");
    assert!(idle.contains("\ndsync_refused_total{why=\"handshake\"} 0\n"), "{idle}");

    fs::write(nas.scratch.src().join("one"), "one").unwrap();
    fs::write(nas.scratch.src().join("two"), "two").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    let _ = nas.push(&["--delete"]).expect_code(42);
    let mut stranger = TcpStream::connect(("127.0.0.1", nas.port())).unwrap();
    let _ = stranger.write_all(&[0; 100]);
    let _ = stranger.read_to_end(&mut Vec::new());

    let mut seen = String::new();
    for line in [
        "dsync_sessions{share=\"nas\"} 0",
        "dsync_sessions_ended_total{share=\"nas\",code=\"0\"} 1",
        "dsync_sessions_ended_total{share=\"nas\",code=\"42\"} 1",
        "dsync_entries_total{share=\"nas\"} 2",
        "dsync_files_total{share=\"nas\"} 2",
        "dsync_refused_total{why=\"handshake\"} 1",
        "dsync_strangers 0",
    ] {
        wait_for(|| {
            seen = metrics(port);
            seen.lines().any(|found| found == line)
        });
    }
    // Every user of the machine may ask.
    assert!(!seen.contains("web1") && !seen.contains("127.0.0.1"), "{seen}");
    let value = |name: &str| {
        let line = seen.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or_else(|| panic!("{name}: {seen}"))
    };
    assert!(value("dsync_received_bytes_total{share=\"nas\"}") > 0);
    assert!(value("dsync_sent_bytes_total{share=\"nas\"}") > 0);
}

#[test]
fn other_questions_are_not_answered_and_keep_no_other_from_an_answer() {
    needs_dsync!();
    let (_nas, port) = measured();
    for other in ["GET / HTTP/1.1", "POST /metrics HTTP/1.1", "GET /metrics/../etc HTTP/1.1", "\u{1}"] {
        let answer = ask(port, format!("{other}\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 404 "), "{other}: {answer}");
    }
    assert_eq!(ask(port, &[b'x'; 64 << 10]), "");
    // They ask for nothing, and go.
    let silent: Vec<_> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert!(metrics(port).contains("dsync_strangers"));
    drop(silent);
}

#[test]
fn metrics_are_for_this_machine_only() {
    needs_dsync!();
    let (nas, _) = Nas::offering("append");
    for (address, why) in [
        ("0.0.0.0:9100", "is no loopback address"),
        ("[::]:0", "is no loopback address"),
        ("x", "is no address"),
    ] {
        let config = nas.scratch.at("serve.toml");
        let text = fs::read_to_string(&config).unwrap();
        nas.limit_server(&format!("metrics = '{address}'"));
        let refused = Run::dsync().args(["serve", "--config"]).arg(&config).run().expect_code(1);
        assert!(refused.stderr_text().contains(why), "{}", refused.account());
        assert!(refused.stderr_text().contains("serve.toml:2:"), "{}", refused.account());
        nas.configure(&text);
    }
}
