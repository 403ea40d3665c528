//! The opening of a session from either side, and the calls that attacks consist of.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Carrier,
    bytes::{MAGIC, Message, put_int, take_int},
    key,
    lanes::{Lanes, Pipe, Shared, kind},
    outlet::{Outlet, Terms},
    quic::{self, Quic},
    tls::{self, Tls},
};

/// A session whose other end is dsync.
#[derive(Debug)]
pub struct Session {
    /// The lanes, for faults below the messages.
    pub lanes: Lanes,
    /// The session key, after both ends have sent `Hello`.
    key: [u8; 32],
    next_lane: u32,
    /// From the server's greeting to its go, with the handshake in between; as the client only.
    pub handshake: Option<Duration>,
}

/// dsync's last message.
#[derive(Debug)]
pub struct Fatal {
    /// Exit code from dsync.
    pub code: u8,
    /// Text from dsync.
    pub text: String,
}

/// The request for a run, if this end is the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order<'a> {
    /// dsync is the source of this operand.
    Source(&'a [u8]),
    /// dsync is the source of the paths below this operand that are sent to it.
    SourceOfList(&'a [u8]),
    /// dsync is the destination at this operand and receives the contents of a directory.
    Destination(&'a [u8]),
    /// dsync is the destination at the first operand and receives entries of these names.
    DestinationOf(&'a [u8], &'a [&'a [u8]]),
    /// dsync is the destination at the first operand and receives these paths of a relative run.
    DestinationOfPaths(&'a [u8], &'a [&'a [u8]]),
    /// dsync is the destination and receives those, and the contents of a directory.
    DestinationAlsoOf(&'a [u8], &'a [&'a [u8]]),
}

/// The control lane: the client's first, which is the controller.
const CONTROL: u32 = 1;

impl Session {
    /// Greets as the client and opens the control lane; sends nothing on it.
    pub fn greet(pipe: Pipe) -> Self {
        Self::greet_over(pipe, Carrier::Pipe)
    }

    /// Greets over any carrier.
    pub fn greet_over(mut pipe: Pipe, carrier: Carrier) -> Self {
        // An hour of silence, so that it never ends an attack; any rate, any port.
        let terms = [&3600_u32.to_le_bytes()[..], &[0; 8], &[0; 4]].concat();
        let (known, token) = (key::fingerprint(), [9; 32]);
        let client =
            [&[1, 0, 1, 0][..], &FEATURES, &[0; 8], &[carrier.bit()], &terms, &known, &token].concat();
        say(&mut pipe, &bootstrap(1, &client));
        let (number, answer) = read_bootstrap(&mut pipe);
        assert_eq!(number, 2, "the server's greeting");
        let greeted = Instant::now();
        let shared = Arc::new(Shared::default());
        // Version, features, fingerprint, then the ports of UDP and TCP.
        let port = |at: usize| u16::from_le_bytes([answer[at], answer[at + 1]]);
        let out: Option<Arc<dyn Outlet>> = match carrier {
            Carrier::Pipe => None,
            Carrier::Quic => Some(Quic::connect(Terms { port: port(42), token }, &shared)),
            Carrier::Tls => Some(Tls::connect(Terms { port: port(44), token }, &shared)),
        };
        say(&mut pipe, &bootstrap(4, &[carrier.choice()]));
        assert_eq!(read_bootstrap(&mut pipe).0, 5, "the server's go");
        let handshake = Some(greeted.elapsed());
        let lanes = match out {
            None => Lanes::over(pipe),
            Some(out) => Lanes::beside(pipe, out, shared),
        };
        let session = Self { lanes, key: [0; 32], next_lane: 3, handshake };
        session.lanes.open(CONTROL);
        session
    }

    /// Answers a client's greeting; sends nothing on the control lane.
    pub fn serve(pipe: Pipe) -> Self {
        Self::serve_over(pipe, Carrier::Pipe)
    }

    /// Answers over any carrier.
    pub fn serve_over(pipe: Pipe, carrier: Carrier) -> Self {
        Self::serve_knowing(pipe, carrier, FEATURES)
    }

    /// Answers as an end that knows these features.
    pub fn serve_knowing(mut pipe: Pipe, carrier: Carrier, features: [u8; 8]) -> Self {
        let (number, greeting) = read_bootstrap(&mut pipe);
        assert_eq!(number, 1, "the client's greeting");
        let token = *greeting.last_chunk().expect("the token at its end");
        let shared = Arc::new(Shared::default());
        let udp = (carrier == Carrier::Quic).then(quic::Port::open);
        let tcp = (carrier == Carrier::Tls).then(tls::Port::open);
        let ports = [udp.as_ref().map_or(0, quic::Port::number), tcp.as_ref().map_or(0, tls::Port::number)];
        let ports = ports.map(u16::to_le_bytes).concat();
        say(&mut pipe, &bootstrap(2, &[&[1, 0][..], &features, &key::fingerprint(), &ports, &[0]].concat()));
        let out: Option<Arc<dyn Outlet>> = match (udp, tcp) {
            (Some(port), _) => Some(port.accept(token, &shared)),
            (_, Some(port)) => Some(port.accept(token, &shared)),
            _ => None,
        };
        assert_eq!(read_bootstrap(&mut pipe), (4, vec![carrier.choice()]), "the client's choice");
        say(&mut pipe, &bootstrap(5, &[]));
        let lanes = match out {
            None => Lanes::over(pipe),
            Some(out) => Lanes::beside(pipe, out, shared),
        };
        let session = Self { lanes, key: [0; 32], next_lane: 2, handshake: None };
        session.lanes.wait_for_lane(CONTROL);
        session
    }

    /// Sends `Hello` and `Start`, and waits until dsync is ready.
    ///
    /// # Panics
    /// If it does not get there.
    #[must_use]
    pub fn start(self, order: Order<'_>, options: &str) -> Self {
        self.try_start(order, options).unwrap_or_else(|fatal| panic!("dsync gave up: {}", fatal.text))
    }

    /// Starts as [`start`](Self::start) does; returns dsync's last message if it refuses.
    ///
    /// # Errors
    /// dsync's refusal.
    ///
    /// # Panics
    /// If another message arrives.
    pub fn try_start(mut self, order: Order<'_>, options: &str) -> Result<Self, Fatal> {
        self.control(&hello(1));
        self.control(&start(order, options));
        let theirs = self.expect(1);
        self.key = derive(&SHARE, &theirs[theirs.len() - 32..]);
        match self.peek() {
            Some(4) => Err(self.fatal()),
            _ => {
                self.expect(3);
                Ok(self)
            }
        }
    }

    /// Waits for the controller's request and sends `Ready`.
    ///
    /// # Panics
    /// If the controller sends something else.
    #[must_use]
    pub fn answer(mut self) -> Self {
        let theirs = self.expect(1);
        self.expect(2);
        self.key = derive(&theirs[theirs.len() - 32..], &SHARE);
        self.control(&hello(1));
        self.control(&Message::new(3).frame());
        self
    }

    /// Sends bytes on the control lane.
    pub fn control(&self, bytes: &[u8]) {
        self.lanes.send(CONTROL, bytes);
    }

    /// Ends the control lane.
    pub fn finish_control(&self) {
        self.lanes.finish(CONTROL);
    }

    /// Reports, as the source, that the only operand stands for the contents of a directory.
    pub fn tops(&self) {
        self.control(&Message::new(5).byte(1).attributes().int(0).frame());
    }

    /// Reports, as the source, that operands name this many entries, without a root.
    pub fn named_tops(&self, entries: u64) {
        self.control(&Message::new(5).byte(0).int(entries).frame());
    }

    /// Opens a data lane with the number `number`.
    pub fn lane(&mut self, number: u8) -> u32 {
        let lane = self.bare_lane();
        self.lanes.send(lane, &Message::new(64).byte(number).frame());
        lane
    }

    /// Opens a data lane without a message.
    pub fn bare_lane(&mut self) -> u32 {
        let lane = self.next_lane;
        self.next_lane += 2;
        self.lanes.open(lane);
        lane
    }

    /// Returns the number of the next lane without opening it.
    pub fn next_lane(&mut self) -> u32 {
        let lane = self.next_lane;
        self.next_lane += 2;
        lane
    }

    /// Returns the next control message other than signs of life, progress and events.
    ///
    /// # Panics
    /// If the lane or the link ends.
    pub fn hear(&self) -> (u8, Vec<u8>) {
        loop {
            let heard = self.lanes.receive(CONTROL).expect("a control message before the end");
            if !matches!(heard.0, 15 | 16 | 18) {
                return heard;
            }
        }
    }

    /// Returns the number of the next control message, and leaves the message there; `None` at the
    /// end.
    pub fn peek(&self) -> Option<u8> {
        self.lanes.peek(CONTROL)
    }

    /// Peeks as [`peek`](Self::peek) does, but also returns `None` if nothing has arrived yet;
    /// removes signs of life.
    pub fn peek_now(&self) -> Option<u8> {
        loop {
            match self.lanes.peek_now(CONTROL) {
                None | Some(4) => return self.lanes.peek_now(CONTROL),
                Some(_) => _ = self.lanes.receive(CONTROL),
            }
        }
    }

    /// Returns the payload of the next control message of this number; skips tops, names and
    /// credit.
    ///
    /// # Panics
    /// If another message arrives first.
    pub fn expect(&self, number: u8) -> Vec<u8> {
        loop {
            match self.hear() {
                (found, payload) if found == number => return payload,
                (5 | 6 | 13, _) => {}
                (4, payload) => panic!("dsync gave up: {}", String::from_utf8_lossy(&payload)),
                (other, _) => panic!("message {other} instead of {number}"),
            }
        }
    }

    /// Waits until dsync requests nothing more; skips its earlier requests.
    ///
    /// # Panics
    /// If it gives up.
    pub fn expect_end_of_needs(&self) {
        loop {
            match self.hear() {
                (14, _) => return,
                (4, payload) => panic!("dsync gave up: {}", String::from_utf8_lossy(&payload)),
                _ => {}
            }
        }
    }

    /// Waits as [`expect_end_of_needs`](Self::expect_end_of_needs) does; returns `false` if dsync gives
    /// up.
    pub fn hear_to_end_of_needs(&self) -> bool {
        loop {
            match self.hear() {
                (14, _) => return true,
                (4, _) => return false,
                _ => {}
            }
        }
    }

    /// Returns the payload of the next `ListingDone`.
    ///
    /// # Panics
    /// If another message that is not a request arrives first.
    pub fn expect_credit(&self) -> Vec<u8> {
        loop {
            match self.hear() {
                (13, payload) => return payload,
                (10..=12, _) => {}
                (other, payload) => panic!("message {other}: {}", String::from_utf8_lossy(&payload)),
            }
        }
    }

    /// Returns dsync's last message; skips everything before it.
    ///
    /// # Panics
    /// If the link ends without one.
    pub fn fatal(&self) -> Fatal {
        self.last_word().expect("a control message before the end")
    }

    /// Returns the same, or `None` if the link ends without one. Over QUIC and TLS the end may
    /// overtake the message.
    pub fn last_word(&self) -> Option<Fatal> {
        loop {
            let (number, payload) = self.lanes.receive(CONTROL)?;
            if number == 4 {
                let (&code, mut rest) = payload.split_first().expect("an exit code");
                let len = usize::try_from(take_int(&mut rest)).expect("length of the text");
                let (text, reason) = rest.split_at(len);
                assert!(reason.len() <= 1, "a reason is a byte");
                return Some(Fatal { code, text: String::from_utf8_lossy(text).into_owned() });
            }
        }
    }

    /// Returns the keyed hash of a batch's content under the session's key.
    pub fn value(&self, records: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, records).as_bytes()
    }

    /// Makes the only record of a batch.
    pub fn record(entry: u64, attempt: u8, content: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        put_int(&mut record, entry);
        record.extend_from_slice(&[attempt, 0]);
        // Time: 1,000,000,000 s.
        put_int(&mut record, 2_000_000_000);
        put_int(&mut record, 0);
        put_int(&mut record, content.len() as u64);
        record.extend_from_slice(content);
        record
    }

    /// Makes a `Batch` of these records with the given value.
    pub fn batch(value: &[u8; 32], records: &[u8]) -> Vec<u8> {
        Message::new(65).bytes(value).raw(records).frame()
    }

    /// Makes a `FileEnd` of a file that was read.
    pub fn file_end(entry: u64, attempt: u8) -> Vec<u8> {
        Message::new(69).int(entry).byte(attempt).byte(0).sint(1_000_000_000).int(0).frame()
    }

    /// Sends a sign of life below the messages.
    pub fn breathe(&self) {
        self.lanes.write(0, kind::ALIVE, &[]);
    }
}

/// Makes a bootstrap message.
pub fn bootstrap(number: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("the length of a payload");
    [MAGIC, &[number][..], &len.to_le_bytes(), payload].concat()
}

/// Makes a `Hello` of a version.
pub fn hello(version: u64) -> Vec<u8> {
    Message::new(1).int(version).bytes(&FEATURES).bytes(&SHARE).frame()
}

/// Begins a `Start` for a destination of these names.
fn destination(role: u8, path: &[u8], names: &[&[u8]]) -> Message {
    let message = Message::new(2).byte(role).text(path).int(names.len() as u64);
    names.iter().fold(message, |message, name| message.text(name))
}

/// Makes a `Start` with four data lanes, no syncs, no compression, all events, and more options
/// (6.1): `"name":value` with a comma before each.
pub fn start(order: Order<'_>, more: &str) -> Vec<u8> {
    let message = match order {
        Order::Source(path) => Message::new(2).byte(0).int(1).text(path),
        Order::SourceOfList(path) => Message::new(2).byte(32).int(1).text(path),
        Order::Destination(path) => destination(5, path, &[]),
        Order::DestinationOf(path, names) => destination(1, path, names),
        Order::DestinationOfPaths(path, paths) => destination(17, path, paths),
        Order::DestinationAlsoOf(path, names) => destination(5, path, names),
    };
    let events = if more.contains(r#""events""#) { "" } else { r#","events":"all""# };
    let options = format!(r#"{{"durability":"none","compression":"off"{events}{more}}}"#);
    message.int(4).text(options.as_bytes()).frame()
}

/// Options of `-rlpt`.
pub const COPY: &str = r#","recursive":true,"links":true,"perms":true,"times":true"#;

/// Options of `-a --delete`.
pub const ARCHIVE_DELETE: &str = concat!(
    r#","recursive":true,"links":true,"perms":true,"times":true,"owner":true,"group":true"#,
    r#","devices":true,"specials":true,"delete":true"#,
);

fn say(pipe: &mut Pipe, bytes: &[u8]) {
    let _ = pipe.writer.write_all(bytes).and_then(|()| pipe.writer.flush());
}

fn read_bootstrap(pipe: &mut Pipe) -> (u8, Vec<u8>) {
    let mut header = [0; 13];
    pipe.reader.read_exact(&mut header).expect("a bootstrap message");
    assert_eq!(header[..10], MAGIC[..], "its magic");
    let mut payload = vec![0; usize::from(u16::from_le_bytes([header[11], header[12]]))];
    pipe.reader.read_exact(&mut payload).expect("its payload");
    (header[10], payload)
}

/// Returns the session key of both shares, the controller's first.
fn derive(controller: &[u8], peer: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("dsync session key v1");
    for share in [controller, peer] {
        hasher.update(&(share.len() as u64).to_le_bytes()).update(share);
    }
    *hasher.finalize().as_bytes()
}

/// The features that this end names: spans, and keys of files.
pub const FEATURES: [u8; 8] = [1 | 8, 0, 0, 0, 0, 0, 0, 0];

/// This end's key share.
const SHARE: [u8; 32] = [5; 32];
