//! `dsync serve`: accepts connections, each of which becomes a process of its own.
//!
//! The law: this process reads no byte of a client but the preface of a further connection, which has
//! one length and one meaning ([`super::silent`]; over UDP it is a datagram), answers no datagram, and opens no file of a share. (It answers who
//! asks for metrics, on this machine: [`super::metrics`].) It starts a
//! session ([`super::session`]) with the connection and what the session needs to judge it, and
//! counts those whose client has proved no key yet. Who sends nothing gets no session at all
//! ([`super::silent`]). A session that dies takes no other with it.
//!
//! SIGHUP reads the configuration anew; sessions keep the one that they started with. SIGTERM closes
//! the listeners and lets sessions end ([`super::stop`]); a second one ends them, and then this process.

use std::{
    collections::HashSet,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    path::Path,
    process::{Child, ExitStatus},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dsync_engine::{
    exit_code,
    standing::{DatagramPort, SessionNumber},
};
use rustix::{
    io::retry_on_intr,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
    rand::GetRandomFlags,
};
use sd_notify::NotifyState;
use signal_hook::{
    consts::signal::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use zeroize::Zeroizing;

use super::{
    addressed::Addressed,
    child::own_program,
    clean,
    config::{self, Config, Server},
    listener, metrics,
    session::Terms,
    silent::{Accepted, Silent, Spoke},
    status::{self, Board, Now, hear},
    stop::Stop,
    strangers::{Stranger, Strangers},
    user::{Users, ownerless},
};
use crate::{
    cage::missing_layers,
    certificates::CertificateFile,
    console::{blame, say},
    escape::escape_text,
    keys, streams,
    words::system_words,
};

/// Serves until a signal ends it; returns the exit code.
pub(super) fn run(path: &Path, config: &Config) -> u8 {
    let begun = begin(path, config);
    let Begun { listeners, ports, metrics, terms, opened, fingerprint } = match begun {
        Ok(begun) => begun,
        Err((code, why)) => {
            blame(&escape_text(&why));
            return code;
        }
    };
    let heard = Signals::new([SIGHUP, SIGINT, SIGTERM]);
    let Ok(signals) = streams::end_at(&[SIGINT, SIGTERM]).and(heard) else {
        blame("cannot watch for signals");
        return exit_code::START;
    };

    let prepared = Silent::new().and_then(|silent| Ok((silent, Stop::new()?)));
    let (silent, stop) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            blame(&format!("cannot wait for connections: {}", system_words(&error)));
            return exit_code::START;
        }
    };

    let house = Arc::new(House::new((terms, opened), (silent, stop), &ports));
    *lock(&house.stop_timeout) = config.server.as_ref().and_then(|server| server.stop_timeout);
    let accepting = open(&house, listeners, ports);
    if let Some(listener) = metrics {
        let house = Arc::clone(&house);
        thread::spawn(move || metrics::answer(&listener, || house.board.figures(house.without_key())));
    }
    answer(&house, fingerprint, path);
    let cleaner = Arc::clone(&house);
    thread::spawn(move || cleaner.clean());
    // Nobody to tell is no failure: systemd is one way to start it.
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    watch(&house, signals, path, accepting)
}

/// Starts the threads that take connections and datagrams. Returns those that accept.
fn open(house: &Arc<House>, listeners: Vec<TcpListener>, ports: Vec<DatagramPort>) -> Vec<JoinHandle<()>> {
    let host = Arc::clone(house);
    thread::spawn(move || {
        let ended = host.silent.watch(|accepted, spoke| match spoke {
            Spoke::Anything => begin_session(&host, accepted),
            Spoke::Preface(session) => host.pass_on(&accepted.tcp, accepted.peer, &session),
        });
        // Without it no connection would ever be served, and nobody would know.
        if let Err(error) = ended {
            blame(&format!("cannot wait for connections: {}", system_words(&error)));
            std::process::exit(i32::from(exit_code::SOCKET));
        }
    });

    let mut accepting = Vec::new();
    for listener in listeners {
        let address = listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        // The system changes a flag of an open socket, which cannot fail.
        let _ = listener.set_nonblocking(true);
        say(&format!("dsync: listening on {address}"));
        let house = Arc::clone(house);
        accepting.push(thread::spawn(move || accept(&house, &listener)));
    }
    for port in ports {
        let house = Arc::clone(house);
        thread::spawn(move || lead(&house, &port));
    }
    accepting
}

/// Answers `--status` by the name of the server's key and configuration. The name of a key that the
/// server had before stays one of it.
fn answer(house: &Arc<House>, fingerprint: Option<String>, path: &Path) {
    let name = fingerprint.map(|fingerprint| status::name(&fingerprint, path));
    let Some(name) = name.filter(|name| lock(&house.names).insert(name.clone())) else { return };
    let house = Arc::clone(house);
    thread::spawn(move || house.board.answer(&name, || house.now()));
}

/// Handles signals until all sessions have ended after a SIGTERM; returns the exit code.
fn watch(house: &Arc<House>, mut signals: Signals, path: &Path, mut accepting: Vec<JoinHandle<()>>) -> u8 {
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(house, path);
            continue;
        }
        if house.stop.tell() {
            // A third one asks for no more.
            let _ = lock(&house.hurried).get_or_insert_with(Instant::now);
            continue;
        }

        // The listeners are closed before anybody hears of the stop, and may start the next server.
        for thread in accepting.drain(..) {
            let _ = thread.join();
        }
        let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
        let house = Arc::clone(house);
        thread::spawn(move || {
            house.let_sessions_end();
            let is_hurried = lock(&house.hurried).is_some();
            std::process::exit(i32::from(if is_hurried { exit_code::INTERRUPTED } else { exit_code::OK }));
        });
    }
    exit_code::OK
}

/// Reads the configuration anew; one with a mistake changes nothing.
fn reload(house: &Arc<House>, path: &Path) {
    let read = Config::read(path).map_err(|error| error.to_string());
    let read = read.and_then(|config| {
        let terms = terms(&config).map_err(|(_, why)| why)?;
        let server = server(&config)?;
        Ok((terms, server.stop_timeout, house.opened.changed(server), fingerprint(server)))
    });

    match read {
        Ok((terms, stop_timeout, changed, fingerprint)) => {
            let had = std::mem::replace(&mut *lock(&house.terms), Arc::new(terms));
            *lock(&house.stop_timeout) = stop_timeout;
            if let Some(named) = fingerprint.as_ref().filter(|_| had.identity != lock(&house.terms).identity)
            {
                say(&format!(
                    "dsync: the server has another key from now on, with the fingerprint {named}: clients that know \
                     the old one are turned away until they know this one"
                ));
            }
            answer(house, fingerprint, path);
            for key in changed {
                say(&format!("dsync: '{key}' has changed, which takes a restart of the server"));
            }
            say("dsync: the configuration was read anew");
        }
        Err(why) => say(&escape_text(&format!("dsync: the old configuration stays: {why}"))),
    }
}

/// The part of a configuration that is carried out once, when the server starts.
struct Opened {
    /// `None` where systemd has the sockets, and the addresses count for nothing.
    listen: Option<Vec<SocketAddr>>,
    quic: bool,
    metrics: Option<SocketAddr>,
}

impl Opened {
    /// Returns the keys of which a newer configuration has other values.
    fn changed(&self, server: &Server) -> Vec<&'static str> {
        let listen = self.listen.as_ref().is_some_and(|listen| *listen != server.listen);
        let keys = [
            ("listen", listen),
            ("quic", self.quic != server.quic),
            ("metrics", self.metrics != server.metrics),
        ];
        keys.into_iter().filter_map(|(key, has_changed)| has_changed.then_some(key)).collect()
    }
}

/// Returns the fingerprint of a server's key, if the key can be read.
fn fingerprint(server: &Server) -> Option<String> {
    keys::read(&server.identity).ok().map(|key| key.public().fingerprint())
}

/// A server that is about to serve.
struct Begun {
    listeners: Vec<TcpListener>,
    /// Their UDP halves, where there are any.
    ports: Vec<DatagramPort>,
    /// The endpoint for Prometheus.
    metrics: Option<TcpListener>,
    terms: Terms,
    opened: Opened,
    /// The fingerprint of the server's key.
    fingerprint: Option<String>,
}

fn begin(path: &Path, config: &Config) -> Result<Begun, (u8, String)> {
    let terms = terms(config)?;
    let server = server(config).map_err(|why| (exit_code::USAGE, format!("{}: {why}", path.display())))?;
    let metrics = server.metrics.map(metrics_listener).transpose()?;
    let (mut listeners, sockets) = inherited()?;
    let listen = listeners.is_empty().then(|| server.listen.clone());
    let fingerprint = fingerprint(server);
    let opened = Opened { listen, quic: server.quic, metrics: server.metrics };
    if !listeners.is_empty() {
        let ports = sockets.into_iter().filter(|_| server.quic).filter_map(|socket| {
            let address = socket.local_addr().ok()?;
            noted(address, DatagramPort::adopt(socket))
        });
        return Ok(Begun { ports: ports.collect(), listeners, metrics, terms, opened, fingerprint });
    }

    let mut ports = Vec::new();
    for address in &server.listen {
        let listener = bind(*address, &server.listen)?;
        // The system may have chosen the port.
        let address = listener.local_addr().unwrap_or(*address);
        if server.quic {
            ports.extend(noted(address, DatagramPort::bind(address)));
        }
        listeners.push(listener);
    }
    Ok(Begun { listeners, ports, metrics, terms, opened, fingerprint })
}

/// Takes the sockets that systemd hands over.
fn inherited() -> Result<(Vec<TcpListener>, Vec<UdpSocket>), (u8, String)> {
    let mut inherited = listenfd::ListenFd::from_env();
    let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
    for index in 0..inherited.len() {
        match inherited.take_tcp_listener(index) {
            Ok(taken) => listeners.extend(taken),
            // One that is no listener stays in its place, and may be for datagrams.
            Err(error) => match inherited.take_udp_socket(index) {
                Ok(taken) => sockets.extend(taken),
                Err(_) => return Err((exit_code::SOCKET, system_words(&error))),
            },
        }
    }
    Ok((listeners, sockets))
}

/// Returns the UDP half of a port; says if there is none, which costs speed on long paths and nothing else.
fn noted(address: SocketAddr, port: std::io::Result<DatagramPort>) -> Option<DatagramPort> {
    let failed =
        |error: &std::io::Error| say(&format!("dsync: no QUIC on {address}: {}", system_words(error)));
    port.inspect_err(failed).ok()
}

fn bind(address: SocketAddr, all: &[SocketAddr]) -> Result<TcpListener, (u8, String)> {
    let fail = |error| (exit_code::SOCKET, format!("cannot listen on {address}: {}", system_words(&error)));
    listener::open(address, all).map_err(fail)
}

/// Opens the endpoint for Prometheus and says where it is.
fn metrics_listener(address: SocketAddr) -> Result<TcpListener, (u8, String)> {
    let listener = bind(address, &[address])?;
    let address = listener.local_addr().unwrap_or(address);
    say(&format!("dsync: metrics on {address}"));
    Ok(listener)
}

fn server(config: &Config) -> Result<&Server, String> {
    config.server.as_ref().ok_or_else(|| "has no [server], without which nothing listens".to_owned())
}

/// Returns what sessions need, if the configuration can be served by this user.
fn terms(config: &Config) -> Result<Terms, (u8, String)> {
    let server = server(config).map_err(|why| (exit_code::USAGE, format!("the configuration {why}")))?;
    if let Some(why) = ownerless(config) {
        return Err((exit_code::USAGE, why));
    }
    // Each session would be refused. The other shares are served.
    for fault in Users::faults(config) {
        say(&escape_text(&format!("dsync: {fault}")));
    }
    let lacks = missing_layers();
    if let Some(lack) = lacks.first().filter(|_| config.require_cage) {
        return Err((exit_code::START, format!("require-cage: {lack}")));
    }
    for lack in lacks {
        say(&escape_text(&format!("dsync: a part of the cage is missing here: {lack}")));
    }

    let unusable = |why| (exit_code::AUTHENTICATION, why);
    let key = keys::read(&server.identity).map_err(unusable)?;
    let shown = server.certificate.as_ref().map(|path| CertificateFile::of_server(path, &key));
    let shown = shown.transpose().map_err(unusable)?;
    // Clients that know its key are served without a certificate.
    if let Some(warning) = shown.as_ref().and_then(CertificateFile::ends_soon) {
        say(&escape_text(&format!("dsync: {warning}")));
    }
    let certificate = shown.map(|shown| shown.certificate.to_string());
    let (config, identity) = (config.text.clone(), Zeroizing::new(key.pkcs8().to_vec()));
    Ok(Terms { config, identity, certificate, ..Terms::default() })
}

/// The state of the parent.
struct House {
    terms: Mutex<Arc<Terms>>,
    opened: Opened,
    /// The names by which `--status` finds it, of the keys that it has and had.
    names: Mutex<HashSet<String>>,
    /// Connections whose client has sent nothing.
    silent: Silent,
    /// Sessions whose client has proved no key.
    strangers: Arc<Strangers>,
    /// Sessions whose client has proved a key, by their numbers.
    addressed: Addressed,
    /// Ports that take datagrams.
    takes_quic: Vec<u16>,
    sessions: AtomicUsize,
    /// The processes of sessions, none of which has been waited for.
    processes: Mutex<HashSet<Pid>>,
    stop: Stop,
    /// The time in which sessions have to end once the server stops.
    stop_timeout: Mutex<Option<Duration>>,
    /// The moment at which the server was told to stop once more.
    hurried: Mutex<Option<Instant>>,
    board: Board,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes connections until the server stops.
fn accept(house: &House, listener: &TcpListener) {
    loop {
        match house.stop.accept(listener) {
            Ok(Some((tcp, peer))) => {
                // A port of all addresses knows a client of IPv4 by an address of IPv6.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                if let Err(error) = house.silent.add(tcp, peer) {
                    say(&format!("dsync: no session for {peer}: {}", system_words(&error)));
                }
            }
            Ok(None) => return,
            // Most likely out of descriptors.
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// Leads the senders of datagrams to the sessions that they name. Others get no answer, and no line of the log:
/// whoever forges an address would fill it with lines about somebody else.
fn lead(house: &House, port: &DatagramPort) {
    loop {
        match port.next_preface() {
            Ok((session, sender)) => house.addressed.lead(port, &session, sender),
            // Most likely out of memory.
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// Starts a session for a connection that speaks, if there is room for one more stranger.
fn begin_session(house: &Arc<House>, accepted: Accepted) {
    if house.stop.is_told() {
        return;
    }
    let peer = accepted.peer;
    let stranger = match house.strangers.admit(peer) {
        Ok(stranger) => stranger,
        Err(before) => {
            house.board.refuse(|refused| &mut refused.crowd);
            // A flood is told of, and does not fill the log.
            if before == 0 || before.is_power_of_two() {
                let unknown = house.strangers.count();
                // Who is caught in a crowd may have a key: `refused` is for failed ones alone.
                say(&format!("dsync: crowded peer={peer} why=\"{unknown} connections without a key\""));
            }
            return;
        }
    };

    house.sessions.fetch_add(1, Ordering::AcqRel);
    let keeper = Arc::clone(house);
    let keep = move || keeper.keep(accepted, stranger);
    if thread::Builder::new().stack_size(KEEPER_STACK).spawn(keep).is_err() {
        house.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl House {
    fn new((terms, opened): (Terms, Opened), (silent, stop): (Silent, Stop), ports: &[DatagramPort]) -> Self {
        let numbers = ports.iter().filter_map(|port| port.address().ok()).map(|address| address.port());
        Self {
            terms: Mutex::new(Arc::new(terms)),
            opened,
            names: Mutex::default(),
            silent,
            strangers: Arc::default(),
            addressed: Addressed::default(),
            takes_quic: numbers.collect(),
            sessions: AtomicUsize::default(),
            processes: Mutex::default(),
            stop,
            stop_timeout: Mutex::default(),
            hurried: Mutex::default(),
            board: Board::default(),
        }
    }

    /// Returns the number of connections whose client has proved no key yet.
    fn without_key(&self) -> usize {
        self.strangers.count() + self.silent.count()
    }

    /// Returns what who asks by `--status` hears besides the sessions.
    fn now(&self) -> Now {
        let configuration = config::sum(&lock(&self.terms).config);
        Now { strangers: self.without_key(), configuration }
    }

    /// Removes what was kept long enough, again and again.
    fn clean(&self) {
        loop {
            let terms = Arc::clone(&lock(&self.terms));
            if let Some(config) = Config::parse_again(&terms.config) {
                // Failures were told on the way.
                let _ = clean::run(&config);
            }
            thread::sleep(CLEANING);
        }
    }

    /// Passes a further connection on to the session that it names.
    fn pass_on(&self, tcp: &TcpStream, peer: SocketAddr, session: &SessionNumber) {
        if let Err(before) = self.addressed.pass(session, tcp) {
            self.board.refuse(|refused| &mut refused.handshakes);
            // A flood is told of, and does not fill the log.
            if before == 0 || before.is_power_of_two() {
                say(&format!("dsync: crowded peer={peer} why=\"a connection of no session that is here\""));
            }
        }
    }

    /// Waits until all sessions have ended. Those that take longer than the configuration allows, or
    /// that have not ended when the server is told to stop once more, get TERM, and KILL some seconds
    /// later; one that outlasts both is left to itself.
    fn let_sessions_end(&self) {
        let began = Instant::now();
        let mut signals = [(Duration::ZERO, Signal::TERM), (GRACE, Signal::KILL)].into_iter();
        let mut next = signals.next();
        while self.sessions.load(Ordering::Acquire) > 0 {
            // It may be read anew meanwhile.
            let limit = *lock(&self.stop_timeout);
            let over = limit.and_then(|limit| began.elapsed().checked_sub(limit));
            let hurried = lock(&self.hurried).map(|since| since.elapsed());
            let why =
                if over < hurried { "as the server was told twice to stop" } else { "after 'stop-timeout'" };
            match (over.max(hurried), next) {
                (Some(over), Some((after, signal))) if over >= after => {
                    self.signal_sessions(signal, why);
                    next = signals.next();
                }
                (Some(over), None) if over >= GRACE * 2 => return,
                _ => {}
            }

            thread::sleep(POLL);
        }
    }

    /// Sends a signal to each session that has not ended, and says why.
    fn signal_sessions(&self, signal: Signal, why: &str) {
        // None is waited for meanwhile, so each number is still its session's.
        for process in &*lock(&self.processes) {
            let number = process.as_raw_nonzero();
            say(&format!("dsync: process {number} of a session is ended {why}"));
            if let Err(errno) = kill_process(*process, signal) {
                say(&format!("dsync: process {number} cannot be ended: {}", system_words(&errno.into())));
            }
        }
    }

    /// Waits for the end of a session's process.
    fn wait(&self, child: &mut Child) -> Option<ExitStatus> {
        let process = Pid::from_child(child);
        let ends = || waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = retry_on_intr(ends);
        // From here on its number may be another process's.
        lock(&self.processes).remove(&process);
        child.wait().ok()
    }

    /// Starts a session and stays with it to its end.
    fn keep(&self, Accepted { tcp, peer, since }: Accepted, stranger: Stranger) {
        let began = Instant::now();
        let local = tcp.local_addr().ok();
        let takes_quic = local.is_some_and(|local| self.takes_quic.contains(&local.port()));
        let mut terms = Terms { peer: peer.to_string(), takes_quic, ..Terms::clone(&lock(&self.terms)) };
        terms.waited = since.elapsed();
        let mut stranger = Some(stranger);
        match number(&mut terms).and_then(|()| start(tcp, &terms)) {
            Ok((mut child, control)) => {
                lock(&self.processes).insert(Pid::from_child(&child));
                // The first report comes when its client is known.
                let hands = control.try_clone().ok();
                hear(control, |report| {
                    if stranger.take().is_some() {
                        hands
                            .as_ref()
                            .inspect(|hands| self.addressed.add(SessionNumber(terms.number), hands, local));
                    }
                    self.board.note(child.id(), &terms.peer, report);
                });
                self.addressed.remove(&SessionNumber(terms.number));
                let ended = self.wait(&mut child);
                let report = self.board.end(child.id(), ended.and_then(|status| status.code()));
                if stranger.is_some() {
                    self.board.refuse(|refused| &mut refused.handshakes);
                }
                // It said nothing itself.
                if let Some(signal) = ended.and_then(|status| status.signal()) {
                    let why = format!("process {} was killed by signal {signal}", child.id());
                    let code = (format!("signal:{signal}"), Some(why.as_str()));
                    let line = report.unwrap_or_default().line(&terms.peer, began, code);
                    say(&format!("dsync: {line}"));
                }
            }
            Err(error) => {
                say(&format!("dsync: no session for {peer}: {}", system_words(&error)));
            }
        }

        drop(stranger);
        self.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Draws the number of a session, which its further connections name.
fn number(terms: &mut Terms) -> std::io::Result<()> {
    let number = rustix::rand::getrandom(&mut terms.number, GetRandomFlags::empty())?;
    // The system gives so few bytes all at once.
    if number == terms.number.len() { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// Starts a session's process; returns it and the socket that it reports by.
fn start(tcp: TcpStream, terms: &Terms) -> std::io::Result<(Child, UnixStream)> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = own_program(&["serve", "--session"]);
    command.stdin(OwnedFd::from(tcp)).stdout(OwnedFd::from(theirs));
    let child = command.spawn()?;
    drop(command);
    // A session that died early shows by its end.
    let _ = terms.send(&mut ours);
    Ok((child, ours))
}

/// Stack of a thread that waits for a session, in bytes.
const KEEPER_STACK: usize = 128 << 10;
/// Time between two cleanings of what was kept: days are counted, so an hour is exact enough.
const CLEANING: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(50);
/// Time between TERM and KILL for a session that outlasts a stopping server's patience, and from there to the
/// server's own end.
const GRACE: Duration = Duration::from_secs(5);
