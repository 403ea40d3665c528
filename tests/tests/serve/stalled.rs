//! An end that stops in the middle of a connection: it reads no more, or says no more, and hangs up no
//! more. It keeps nobody at the other end.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use dsync_tests::{Outcome, needs_dsync, run::wait_for, scratch::slash, tree::noise};

use crate::nas::{Nas, children};

/// A path between a client and a server that carries one connection and closes all others. It carries so
/// many bytes of the server, then none in either direction, and keeps both ends open.
struct Path {
    port: u16,
    carried: Arc<AtomicUsize>,
}

impl Path {
    fn start(nas: &Nas, key: &str, most: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let known = format!("127.0.0.1:{port} {key}\n127.0.0.1:{} {key}\n", nas.port());
        fs::write(nas.config("home/dsync/known-hosts"), known).unwrap();
        let (server, carried) = (nas.port(), Arc::new(AtomicUsize::new(0)));
        let counting = Arc::clone(&carried);
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let counted = Arc::clone(&counting);
            thread::spawn(move || {
                carry(&client_too, &server_too, |_| counted.load(Ordering::Acquire) < most);
            });
            thread::spawn(move || {
                carry(&server, &client, |piece| {
                    let before = counting.fetch_add(piece.len(), Ordering::AcqRel);
                    let left = most.saturating_sub(before);
                    *piece = &piece[..piece.len().min(left)];
                    true
                });
            });
            // Dropped at once: nobody else gets through.
            listener.incoming().for_each(drop);
        });
        Self { port, carried }
    }

    fn operand(&self, path: &str) -> String {
        format!("dsync://127.0.0.1:{}/{path}", self.port)
    }
}

/// Carries one direction. Once a piece is cut or refused, the direction stays open and carries nothing.
fn carry(mut from: &TcpStream, mut to: &TcpStream, mut passes: impl FnMut(&mut &[u8]) -> bool) {
    let mut buffer = [0; 1 << 14];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer) else {
            let _ = to.shutdown(Shutdown::Write);
            return;
        };
        let mut piece = &buffer[..read];
        let passes = passes(&mut piece) && to.write_all(piece).is_ok();
        if !passes || piece.len() < read {
            loop {
                thread::park();
            }
        }
    }
}

/// Waits until the server has no session.
fn wait_for_the_end(nas: &Nas) {
    wait_for(|| children(nas.server.as_ref().unwrap().process.id()).is_empty());
}

#[test]
fn a_client_that_stops_reading_keeps_neither_its_session_nor_its_place() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    nas.stand();
    nas.limit("sessions = 1");
    fs::write(nas.there("big"), noise(3, 48 << 20)).unwrap();
    let path = Path::start(&nas, &key, 4 << 20);
    let pull = nas.run().args(["-a", "--timeout=5", "--retries=0"]);
    let stalled = pull.arg(path.operand("nas/tree/")).arg(slash(&nas.scratch.at("stalled"))).run();
    assert_ne!(stalled.code(), Some(0), "{}", stalled.account());
    assert!(path.carried.load(Ordering::Acquire) >= 4 << 20, "{}", stalled.account());

    wait_for_the_end(&nas);
    let _ = nas.pull(&[]).expect_quiet_success();
}

#[test]
fn a_list_of_shares_whose_end_does_not_come_ends_the_asking_and_not_the_servers_success() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    nas.stand();
    let list = |path: &Path| -> Outcome { nas.run().arg(path.operand("")).run() };
    let whole = Path::start(&nas, &key, usize::MAX);
    let listed = list(&whole).expect_code(0);
    assert_eq!(listed.stdout_text(), "nas full\n", "{}", listed.account());
    wait_for_the_end(&nas);

    // The same bytes come each time; the last ones are the list's.
    let most = whole.carried.load(Ordering::Acquire) - 8;
    let refused = list(&Path::start(&nas, &key, most)).expect_code(35);
    assert!(refused.stderr_text().contains("did not answer in time"), "{}", refused.account());
    assert!(!refused.stdout_text().contains("nas"), "{}", refused.account());
    wait_for_the_end(&nas);
    let log = nas.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" role=list ")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.ends_with(" code=0")), "{log}");
}
