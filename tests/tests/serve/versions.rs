//! Clients and servers of versions that do not overlap: each end says what it speaks, and a server's log
//! says what its client offers.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use dsync_tests::{needs_dsync, run::wait_for};

use crate::nas::Nas;

#[test]
fn a_server_without_a_version_in_common_ends_the_run_at_once_with_2() {
    needs_dsync!();
    let mut nas = Nas::standing("full");
    // In its place, one that knows none of the protocols that the client offers: a fatal alert of TLS (120).
    let server = nas.server.as_mut().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.port = listener.local_addr().unwrap().port();
    let met = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&met);
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { break };
            count.fetch_add(1, Ordering::SeqCst);
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(&[21, 3, 3, 0, 2, 2, 120]);
            let _ = client.shutdown(Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        }
    });

    let pushed = nas.push(&["--retries=3"]).expect_code(2);
    let listed = nas.run().arg(format!("dsync://127.0.0.1:{}", nas.port())).run().expect_code(2);
    for refused in [&pushed, &listed] {
        for part in ["no version in common", "speaks version 1", "update the older of the two"] {
            assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
        }
    }
    // Not tried again.
    assert_eq!(met.load(Ordering::SeqCst), 2, "{}", pushed.account());
}

/// Carries connections to a port, and makes another version of each client: the protocols of its first
/// message are these. Returns its own port.
fn relay_as(port: u16, protocols: [(&'static [u8], &'static [u8]); 2]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) =
                (client.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
            // A record of TLS: its length is in the fourth byte and the fifth.
            let mut head = [0; 5];
            client.read_exact(&mut head).unwrap();
            let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            client.read_exact(&mut hello).unwrap();
            for (from, to) in protocols {
                let at = hello.windows(from.len()).position(|window| window == from).unwrap();
                hello[at..at + to.len()].copy_from_slice(to);
            }
            server.write_all(&[&head[..], &hello].concat()).unwrap();

            let (mut there, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut client, &mut server));
            thread::spawn(move || {
                let _ = std::io::copy(&mut there, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
        }
    });
    own
}

#[test]
fn the_servers_log_says_what_a_client_of_another_version_offers() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    nas.stand();
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let own = nas.port();
    let reach = |nas: &mut Nas, port| {
        nas.server.as_mut().unwrap().port = port;
        nas.know(&key);
    };

    // A client of versions to come, whose names are as long as this one's.
    let relay = relay_as(own, [(b"dsync-share/2", b"dsync-share/8"), (b"dsync-share/1", b"dsync-share/9")]);
    reach(&mut nas, relay);
    // The relay's work spoils the alert for the client.
    assert_ne!(nas.push(&["--retries=0"]).code(), Some(0));
    let lines = |start: &str| nas.log().lines().filter(|line| line.starts_with(start)).count();
    let start = "dsync: no session for 127.0.0.1:";
    wait_for(|| lines(start) > 0);
    let line = nas.log().lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    for part in [
        "no version in common: this program speaks version 1 (dsync-share/2 1 ",
        ", the client offers 'dsync-share/8 1 ",
        ", 'dsync-share/9'; update the older of the two",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // Nobody is to be banned for an old program.
    assert_eq!((lines(start), lines("dsync: refused")), (1, 0), "{}", nas.log());

    // Who offers none of dsync's protocols is a stranger, whatever the text is.
    let relay =
        relay_as(own, [(b"dsync-share/2", b"h2 \x1b[2J\" x=\"\n"), (b"dsync-share/1", b"code=0 role=y")]);
    reach(&mut nas, relay);
    assert_ne!(nas.push(&["--retries=0"]).code(), Some(0));
    let start = "dsync: refused peer=127.0.0.1:";
    wait_for(|| nas.log().lines().any(|line| line.starts_with(start)));
    let line = nas.log().lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    let shown = r#"it offers the protocols 'h2 \\x1b[2J\\\" x=\\\"\\n 1"#;
    assert!(line.contains(shown) && line.ends_with(r#"'code=0 role=y'""#), "{line}");

    reach(&mut nas, own);
    let _ = nas.push(&[]).expect_quiet_success();
}
