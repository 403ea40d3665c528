//! Round trips of a run to a server, counted on a path that carries in steps.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dsync_tests::{
    needs_dsync,
    run::{until_met, wait_for},
    scratch::slash,
};

use crate::{authority::certify, nas::Nas};

/// Silence after which both ends wait for each other. One that is too short cuts a flight in two and
/// counts more than there is, never less.
const SILENCE: Duration = Duration::from_millis(100);

/// One direction of a connection.
struct Way {
    from: TcpStream,
    to: TcpStream,
    flight: Vec<u8>,
    ended: bool,
}

impl Way {
    fn new(from: &TcpStream, to: &TcpStream) -> Self {
        let from = from.try_clone().unwrap();
        from.set_nonblocking(true).unwrap();
        Self { from, to: to.try_clone().unwrap(), flight: Vec::new(), ended: false }
    }

    /// Takes what was sent; returns whether something was.
    fn take(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.from.read(&mut piece) {
            _ if self.ended => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Ok(0) | Err(_) => {
                self.ended = true;
                true
            }
            Ok(read) => {
                self.flight.extend_from_slice(&piece[..read]);
                true
            }
        }
    }

    /// Delivers the flight.
    fn deliver(&mut self) {
        let mut flight = &self.flight[..];
        while !flight.is_empty() {
            match self.to.write(flight) {
                Ok(written) => flight = &flight[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(_) => break,
            }
        }
        self.flight.clear();
        if self.ended {
            let _ = self.to.shutdown(Shutdown::Write);
        }
    }
}

/// Carries one connection to a port, in steps: all that both ends have sent by the time at which they
/// wait for each other arrives at once. Returns the number of steps before the client's run was over, two
/// of which are a round trip.
fn carry(listener: TcpListener, port: u16, is_over: Arc<AtomicBool>) -> JoinHandle<usize> {
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
        }
        let mut ways = [Way::new(&client, &server), Way::new(&server, &client)];
        let mut steps = 0;
        while !ways.iter().all(|way| way.ended) {
            let mut heard = Instant::now();
            while heard.elapsed() < SILENCE {
                let took = ways.iter_mut().map(Way::take).filter(|took| *took).count() > 0;
                if took {
                    heard = Instant::now();
                } else {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            if is_over.load(Ordering::Acquire) {
                break;
            }
            if ways.iter().any(|way| way.ended || !way.flight.is_empty()) {
                steps += 1;
            }
            ways.iter_mut().for_each(Way::deliver);
        }
        // The run's last words.
        ways.iter_mut().for_each(Way::deliver);
        steps
    })
}

/// Pushes over the path and returns the round trips, with the one that opens the connection.
fn round_trips(nas: &Nas, key: &str) -> usize {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::write(nas.scratch.at("home/dsync/known-hosts"), format!("127.0.0.1:{port} {key}\n")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let path = carry(listener, nas.port(), Arc::clone(&is_over));
    let push = nas.run().args(["-a", "--retries=0"]).arg(slash(&nas.scratch.src()));
    let _ = push.arg(format!("dsync://127.0.0.1:{port}/nas/tree")).run().expect_quiet_success();
    is_over.store(true, Ordering::Release);
    1 + path.join().unwrap().div_ceil(2)
}

#[test]
fn one_small_file_takes_few_round_trips() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    nas.stand();
    let mut tries = 0;
    // A machine that is busy for longer than the silence makes two flights of one.
    until_met(|| {
        tries += 1;
        let _ = fs::remove_file(nas.there("small"));
        fs::write(nas.scratch.src().join("small"), format!("content {tries}")).unwrap();
        let count = round_trips(&nas, &key);
        assert_eq!(fs::read(nas.there("small")).unwrap(), format!("content {tries}").as_bytes());
        println!("{count} round trips");
        (count <= MOST).then_some(())
    });
    // Nothing is left to do.
    until_met(|| {
        let count = round_trips(&nas, &key);
        println!("{count} round trips");
        (count < MOST).then_some(())
    });
}

#[test]
fn a_certified_client_of_a_pinned_server_takes_no_more_round_trips() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    let authority = nas.scratch.at("ca.key");
    let (own, config) = (Nas::public(&nas.config("home/dsync/key")), nas.scratch.at("serve.toml"));
    let line = format!("authority = '{}'", Nas::public(&authority));
    let text = fs::read_to_string(config).unwrap();
    nas.configure(&text.replacen(&format!("public = '{own}'"), &line, 1));
    nas.stand();
    fs::write(nas.config("home/dsync/key.cert"), certify(&authority, "client", "web1", &own)).unwrap();
    until_met(|| {
        let _ = fs::remove_file(nas.there("small"));
        fs::write(nas.scratch.src().join("small"), "content").unwrap();
        let count = round_trips(&nas, &key);
        assert_eq!(fs::read(nas.there("small")).unwrap(), b"content");
        println!("{count} round trips");
        (count <= MOST).then_some(())
    });
    wait_for(|| nas.log().contains(" authority="));
}

/// Round trips of a push of one small file, with the one that opens the connection.
const MOST: usize = 5;
