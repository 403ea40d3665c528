//! Lanes over TLS: one connection for each, and a main one.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Cursor, ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Instant,
};

use rustls::{ClientConnection, Connection, ServerConnection, pki_types::ServerName};

use super::{
    key,
    lanes::{Shared, kind},
    outlet::{Outlet, Terms, lock},
};
use crate::run::PATIENCE;

/// The main connection and the lanes' connections.
pub(super) struct Tls {
    side: Side,
    main: Arc<Line>,
    secret: [u8; 32],
    lines: Mutex<Lines>,
    added: Condvar,
    shared: Arc<Shared>,
}

enum Side {
    Client { port: u16 },
    Server,
}

#[derive(Default)]
struct Lines {
    /// By this end's number of a lane: its connection and the number there.
    open: HashMap<u32, (Arc<Line>, u32)>,
    /// Lanes of this end for which the client was asked to connect.
    wanted: VecDeque<u32>,
    /// Number of lanes that the other end has opened.
    theirs: u32,
}

/// A port that waits for its client.
pub(super) struct Port(TcpListener);

impl Port {
    /// Opens a port of this host.
    pub(super) fn open() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
    }

    /// Returns its number.
    pub(super) fn number(&self) -> u16 {
        self.0.local_addr().expect("its address").port()
    }

    /// Accepts the client, and its further connections as they arrive.
    pub(super) fn accept(self, token: [u8; 32], shared: &Arc<Shared>) -> Arc<Tls> {
        let (main, opening) = loop {
            // A client also connects to measure the distance to the port.
            if let Ok(taken) = self.take() {
                break taken;
            }
        };
        assert_eq!((opening[0], &opening[6..]), (0, &token[..]), "the main connection's opening");
        let secret = [6; 32];
        main.send(&secret).expect("a connection that stays");
        let tls = Tls::start(Side::Server, main, secret, shared);
        let weak = Arc::downgrade(&tls);
        thread::spawn(move || {
            // Runs until the process ends: there is no other way to leave the port. A connection
            // that measured the distance may have come after the main one.
            loop {
                let taken = self.take();
                let Some(tls) = weak.upgrade() else { return };
                let Ok((line, opening)) = taken else { continue };
                let number = u32::from_le_bytes([opening[2], opening[3], opening[4], opening[5]]);
                tls.arrived(opening[0], number, line);
            }
        });
        tls
    }

    fn take(&self) -> io::Result<(Arc<Line>, Vec<u8>)> {
        let (tcp, _) = self.0.accept()?;
        let connection = ServerConnection::new(Arc::new(key::server())).map_err(io::Error::other)?;
        let line = Line::over(tcp, connection.into())?;
        let opening = line.read_exactly(38)?;
        Ok((line, opening))
    }
}

impl Tls {
    /// Connects to a port of this host.
    pub(super) fn connect(terms: Terms, shared: &Arc<Shared>) -> Arc<Self> {
        let main = Line::dial(terms.port, 0, 0, &terms.token).expect("the main connection");
        let secret = main.read_exactly(32).expect("the secret").try_into().expect("32 bytes");
        Self::start(Side::Client { port: terms.port }, main, secret, shared)
    }

    fn start(side: Side, main: Arc<Line>, secret: [u8; 32], shared: &Arc<Shared>) -> Arc<Self> {
        let (heard, shared) = (Arc::clone(&main), Arc::clone(shared));
        let (lines, added) = (Mutex::default(), Condvar::new());
        let this = Arc::new(Self { side, main, secret, lines, added, shared });
        let weak = Arc::downgrade(&this);
        thread::spawn(move || {
            while let Ok(word) = heard.read_exactly(5) {
                let Some(this) = weak.upgrade() else { return };
                let number = u32::from_le_bytes([word[1], word[2], word[3], word[4]]);
                if word[0] == 1 {
                    break;
                }
                this.hear(word[0], number);
            }
            if let Some(this) = weak.upgrade() {
                this.shared.end();
                this.added.notify_all();
            }
        });
        this
    }

    /// Handles a word on the main connection.
    fn hear(&self, word: u8, number: u32) {
        match (word, &self.side) {
            (3, _) => {
                let lines = lock(&self.lines);
                let lane = lines.open.iter().find(|(_, (_, there))| *there == number).map(|(lane, _)| *lane);
                drop(lines);
                if let Some(lane) = lane {
                    self.shared.take(lane, kind::FINISH, &[]);
                }
            }
            (4, Side::Client { port }) => {
                let lane = lock(&self.lines).next_of_theirs();
                if let Ok(line) = Line::dial(*port, 2, lane, &self.secret) {
                    self.add(lane, lane, line);
                }
            }
            _ => {}
        }
    }

    /// Accepts a connection of the client.
    fn arrived(&self, kind: u8, number: u32, line: Arc<Line>) {
        let mut lines = lock(&self.lines);
        let lane = if kind == 2 { lines.wanted.pop_front() } else { Some(lines.next_of_ours()) };
        drop(lines);
        if let Some(lane) = lane {
            self.add(lane, number, line);
        }
    }

    fn add(&self, lane: u32, there: u32, line: Arc<Line>) {
        lock(&self.lines).open.insert(lane, (Arc::clone(&line), there));
        self.added.notify_all();
        let shared = Arc::clone(&self.shared);
        shared.take(lane, kind::OPEN, &[]);
        thread::spawn(move || {
            while let Ok(Some(bytes)) = line.read() {
                shared.take(lane, kind::DATA, &bytes);
                while shared.is_deaf() {
                    thread::sleep(std::time::Duration::from_millis(20));
                }
            }
            shared.take(lane, kind::FINISH, &[]);
        });
    }

    /// Returns the connection of a lane, waiting for it.
    fn line(&self, lane: u32) -> Option<(Arc<Line>, u32)> {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = lock(&self.lines);
        loop {
            if let Some((line, there)) = lines.open.get(&lane) {
                return Some((Arc::clone(line), *there));
            }
            if self.shared.is_over() {
                return None;
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            lines = self.added.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn say(&self, word: u8, number: u32) {
        let _ = self.main.send(&[&[word][..], &number.to_le_bytes()].concat());
    }
}

impl Lines {
    /// Numbers a lane of a server that has not connected anywhere.
    fn next_of_theirs(&mut self) -> u32 {
        self.theirs += 2;
        self.theirs
    }

    /// Numbers a lane of a client.
    fn next_of_ours(&mut self) -> u32 {
        self.theirs += 2;
        self.theirs - 1
    }
}

impl Outlet for Tls {
    fn put(&self, lane: u32, kind: u8, payload: &[u8]) {
        match (kind, &self.side) {
            (kind::OPEN, Side::Client { port }) => {
                if let Ok(line) = Line::dial(*port, 1, lane, &self.secret) {
                    self.add(lane, lane, line);
                }
            }
            (kind::OPEN, Side::Server) => {
                lock(&self.lines).wanted.push_back(lane);
                self.say(4, 0);
            }
            (kind::DATA, _) => {
                if let Some((line, _)) = self.line(lane) {
                    let _ = line.send(payload);
                }
                self.shared.credit(lane, payload.len());
            }
            (kind::FINISH, _) => {
                if let Some((line, _)) = self.line(lane) {
                    line.finish();
                }
            }
            (kind::RESET | kind::STOP, _) => {
                if let Some((_, there)) = self.line(lane) {
                    self.say(if kind == kind::RESET { 3 } else { 2 }, there);
                }
            }
            (kind::ALIVE, _) => self.say(0, 0),
            _ => {}
        }
    }

    fn put_raw(&self, _: &[u8]) {}

    fn hang_up(&self) {
        for (line, _) in lock(&self.lines).open.values() {
            let _ = line.tcp.shutdown(Shutdown::Both);
        }
        let _ = self.main.tcp.shutdown(Shutdown::Both);
    }
}

/// One connection. It is read by one thread.
struct Line {
    tcp: TcpStream,
    tls: Mutex<Connection>,
    /// Held while sending, to keep the order of bytes.
    sending: Mutex<()>,
    /// Bytes read beyond those that were requested.
    unread: Mutex<Vec<u8>>,
}

impl Line {
    fn dial(port: u16, what: u8, lane: u32, secret: &[u8; 32]) -> io::Result<Arc<Self>> {
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let name = ServerName::try_from("dsync.invalid").expect("a name");
        let connection = ClientConnection::new(Arc::new(key::client()), name).map_err(io::Error::other)?;
        let line = Self::over(tcp, connection.into())?;
        line.send(&[&[what, 1][..], &lane.to_le_bytes(), secret].concat())?;
        Ok(line)
    }

    fn over(mut tcp: TcpStream, mut tls: Connection) -> io::Result<Arc<Self>> {
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        tls.set_buffer_limit(None);
        let (tls, sending, unread) = (Mutex::new(tls), Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { tcp, tls, sending, unread }))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let _order = lock(&self.sending);
        let sealed = {
            let mut tls = lock(&self.tls);
            tls.writer().write_all(bytes)?;
            seal(&mut tls)?
        };
        (&self.tcp).write_all(&sealed)
    }

    fn finish(&self) {
        let _order = lock(&self.sending);
        let mut tls = lock(&self.tls);
        tls.send_close_notify();
        let sealed = seal(&mut tls);
        drop(tls);
        let _ = sealed.and_then(|sealed| (&self.tcp).write_all(&sealed));
    }

    /// Returns the next bytes; `None` at the clean end.
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let ready = std::mem::take(&mut *lock(&self.unread));
        if !ready.is_empty() {
            return Ok(Some(ready));
        }
        let mut sealed = [0; 16_640];
        loop {
            let (plain, ended) = open(&mut lock(&self.tls), &mut Cursor::new(&[]))?;
            if !plain.is_empty() {
                return Ok(Some(plain));
            }
            if ended {
                return Ok(None);
            }
            let count = (&self.tcp).read(&mut sealed)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let (plain, ended) = open(&mut lock(&self.tls), &mut Cursor::new(&sealed[..count]))?;
            match (plain.is_empty(), ended) {
                (false, _) => return Ok(Some(plain)),
                (true, true) => return Ok(None),
                (true, false) => {}
            }
        }
    }

    fn read_exactly(&self, len: usize) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        while found.len() < len {
            let more = self.read()?.ok_or(ErrorKind::UnexpectedEof)?;
            found.extend_from_slice(&more);
        }
        *lock(&self.unread) = found.split_off(len);
        Ok(found)
    }
}

/// Returns the bytes to send.
fn seal(tls: &mut Connection) -> io::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut sealed)?;
    }
    Ok(sealed)
}

/// Decrypts received bytes; returns the content and whether this was the clean end.
fn open(tls: &mut Connection, sealed: &mut Cursor<&[u8]>) -> io::Result<(Vec<u8>, bool)> {
    let mut plain = Vec::new();
    loop {
        let more = (sealed.position() as usize) < sealed.get_ref().len();
        if more {
            tls.read_tls(sealed)?;
        }
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        let mut piece = vec![0; state.plaintext_bytes_to_read()];
        if !piece.is_empty() {
            tls.reader().read_exact(&mut piece)?;
            plain.extend_from_slice(&piece);
        }
        if !more {
            return Ok((plain, state.peer_has_closed()));
        }
    }
}
