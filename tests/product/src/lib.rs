//! A small backup product: agents on many hosts push to a service, over mutual TLS of the
//! product's own.
//!
//! It uses nothing but the public API of `dsync-engine`, as a product would. The service is
//! asynchronous; each session runs on a blocking thread. An agent is known by its certificate,
//! which decides the directory that it may write below: it names no host, no share and no user.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    num::NonZeroU64,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use dsync_engine::{
    Access, CancelToken, Choice, ConnectOptions, Destination, Done, Event, FileType, Grant, GrantTerms, Job,
    Manifest, Observer, RelativePaths, Resources, Server, Silent, Source, Stream, Summary, SyncError,
    SyncOptions,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A key, and the certificate by which others know it.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

/// The name in every certificate. What is checked is the certificate itself.
const NAME: &str = "dsync-product";

impl Identity {
    /// Makes a new one.
    ///
    /// # Errors
    /// The random number generator's, which does not fail in practice.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self { certificate: made.cert.der().clone(), key })
    }

    /// Returns the public part.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

/// The agents that may connect, each with the name of its directory.
pub type Agents = Vec<(CertificateDer<'static>, String)>;

/// The place in the middle that keeps everybody's backups.
pub struct Service {
    /// The directory of all backups.
    pub root: PathBuf,
    /// The share of this machine that all sessions take together.
    pub resources: Resources,
    /// Listener to every entry that any agent has brought, by the agent's directory.
    pub ledger: Arc<dyn Ledger>,
}

/// Hears of the entries of all agents.
pub trait Ledger: Send + Sync {
    /// Notes an entry of an agent that was carried out.
    fn done(&self, agent: &str, done: &Done);
}

/// Passes on what an agent has brought.
struct Entries {
    agent: String,
    ledger: Arc<dyn Ledger>,
}

impl Observer for Entries {
    fn event(&self, event: &Event) {
        if let Event::Done(done) = event {
            self.ledger.done(&self.agent, done);
        }
    }
}

/// A service that accepts connections.
pub struct Running {
    /// The address that agents connect to.
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
    cancel: CancelToken,
    sessions: Arc<Mutex<Vec<Session>>>,
}

/// A session on its thread.
type Session = JoinHandle<Result<(), SyncError>>;

impl Service {
    /// Starts to accept connections.
    ///
    /// # Errors
    /// The system's, or a certificate that TLS does not take.
    pub async fn start(
        self,
        identity: &Identity,
        agents: Agents,
        address: SocketAddr,
    ) -> io::Result<Running> {
        let acceptor =
            TlsAcceptor::from(Arc::new(server_config(identity, &agents).map_err(io::Error::other)?));
        let directories: HashMap<_, _> = agents
            .into_iter()
            .map(|(certificate, name)| (certificate, (name.clone(), self.root.join(name))))
            .collect();
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (cancel, sessions) = (CancelToken::new(), Arc::new(Mutex::new(Vec::new())));
        let (stop, begun) = (cancel.clone(), Arc::clone(&sessions));
        let accepting = tokio::spawn(async move {
            let (directories, resources, ledger) = (Arc::new(directories), self.resources, self.ledger);
            while let Ok((socket, _)) = listener.accept().await {
                let accepted = accept(acceptor.clone(), socket, Arc::clone(&directories));
                let (resources, stop, begun) = (resources.clone(), stop.clone(), Arc::clone(&begun));
                let ledger = Arc::clone(&ledger);
                tokio::spawn(async move {
                    // Whoever is not known gets no session and no word.
                    let Ok((stream, grant, agent)) = accepted.await else { return };
                    let observer = Entries { agent, ledger };
                    let server = Server::new(stream).grant(grant).resources(resources);
                    let session = tokio::task::spawn_blocking(move || server.serve(&observer, &stop));
                    begun.lock().unwrap_or_else(PoisonError::into_inner).push(session);
                });
            }
        });
        Ok(Running { address, accepting, cancel, sessions })
    }
}

impl Running {
    /// Stops: sessions end as if they were cancelled, and the port is free. Returns how each of
    /// them ended.
    pub async fn stop(mut self) -> Vec<Result<(), SyncError>> {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
        self.cancel.cancel();
        self.ended().await
    }

    /// Waits for the sessions that have begun. Returns how each of them ended.
    pub async fn ended(&self) -> Vec<Result<(), SyncError>> {
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        let mut outcomes = Vec::with_capacity(sessions.len());
        for session in sessions {
            outcomes.extend(session.await);
        }
        outcomes
    }
}

/// Authenticates an agent; returns the connection, what it may do, and its name.
async fn accept(
    acceptor: TlsAcceptor,
    socket: TcpStream,
    directories: Arc<HashMap<CertificateDer<'static>, (String, PathBuf)>>,
) -> io::Result<(Stream, Grant, String)> {
    let tls = acceptor.accept(socket).await?;
    let certificates = tls.get_ref().1.peer_certificates().unwrap_or_default();
    let path = certificates.first().and_then(|certificate| directories.get(certificate));
    let (agent, path) = path.ok_or(io::ErrorKind::PermissionDenied)?.clone();
    let grant = Grant::open(GrantTerms::new(path, Access::ReadWrite))?;
    Ok((Stream::from_async(tls, &Handle::current())?, grant, agent))
}

/// One host that keeps its backups at the service.
pub struct Agent {
    /// The address of the service.
    pub address: SocketAddr,
    /// The runtime that the connections live on.
    pub runtime: Handle,
    /// Bytes per second that it may send.
    pub rate: Option<NonZeroU64>,
    config: Arc<ClientConfig>,
    resources: Resources,
}

impl Agent {
    /// Makes an agent that trusts one service and nobody else.
    ///
    /// # Errors
    /// A certificate that TLS does not take.
    pub fn new(
        identity: &Identity,
        service: CertificateDer<'static>,
        address: SocketAddr,
        runtime: Handle,
        resources: Resources,
    ) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(service)?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![identity.certificate()], identity.key())?;
        Ok(Self { address, runtime, rate: None, config: Arc::new(config), resources })
    }

    /// Pushes what is in a directory to the agent's place `name` at the service. Blocks.
    ///
    /// # Errors
    /// As [`Job::run_over`].
    pub fn push(
        &self,
        directory: PathBuf,
        name: &str,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Summary, SyncError> {
        let mut contents = directory.into_os_string();
        contents.push("/");
        let source = Source::Local { paths: vec![contents.into()] };
        self.run(push_job(source, name), observer, cancel)
    }

    /// Pushes the files of a directory that the product's database names, and no others. Blocks.
    ///
    /// # Errors
    /// As [`Job::run_over`].
    pub fn push_named(
        &self,
        root: PathBuf,
        relative: RelativePaths,
        name: &str,
        observer: &dyn Observer,
    ) -> Result<Summary, SyncError> {
        let job = push_job(Source::Files { root, relative }, name);
        self.run(job, observer, &CancelToken::new())
    }

    /// Pushes as [`push`](Self::push) does, without files of more than `most` bytes: those that are at
    /// the service stay there. Blocks.
    ///
    /// # Errors
    /// As [`Job::run_over`].
    pub fn push_small(&self, directory: PathBuf, name: &str, most: u64) -> Result<Summary, SyncError> {
        let mut contents = directory.into_os_string();
        contents.push("/");
        let job = push_job(Source::Local { paths: vec![contents.into()] }, name);
        let job = job.filter(move |entry| match entry.kind {
            FileType::File if entry.size > most => Choice::Hide,
            _ => Choice::Copy,
        });
        self.run(job, &Silent, &CancelToken::new())
    }

    /// Pushes what a manifest names, with the contents that it has of it. Blocks.
    ///
    /// # Errors
    /// As [`Job::run_over`].
    pub fn push_recorded(
        &self,
        root: PathBuf,
        manifest: Manifest,
        name: &str,
        observer: &dyn Observer,
    ) -> Result<Summary, SyncError> {
        let job = push_job(Source::Manifest { root, manifest }, name);
        self.run(job.options(policy().delete(false)), observer, &CancelToken::new())
    }

    fn run(&self, job: Job, observer: &dyn Observer, cancel: &CancelToken) -> Result<Summary, SyncError> {
        let connect = ConnectOptions::default().bytes_per_second(self.rate);
        let job = job.connect(connect).resources(self.resources.clone());
        job.run_over(&|_: &CancelToken| self.connect(), observer, cancel)
    }

    /// Restores the place `name` into a directory. Blocks.
    ///
    /// # Errors
    /// As [`Job::run_over`].
    pub fn restore(&self, name: &str, directory: PathBuf) -> Result<Summary, SyncError> {
        let source = Source::Peer { paths: vec![format!("{name}/").into()] };
        let job = Job::new(source, Destination::Local { path: directory }).options(SyncOptions::archive());
        let job = job.resources(self.resources.clone());
        job.run_over(&|_: &CancelToken| self.connect(), &Silent, &CancelToken::new())
    }

    fn connect(&self) -> io::Result<Stream> {
        let tls = self.runtime.block_on(async {
            let socket = TcpStream::connect(self.address).await?;
            let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
            TlsConnector::from(Arc::clone(&self.config)).connect(name, socket).await
        })?;
        Stream::from_async(tls, &self.runtime)
    }
}

/// Returns the policy of a push. The product keeps a receipt for every entry: its content, and that it is
/// on the disk.
fn policy() -> SyncOptions {
    SyncOptions::archive().hard_links(true).delete(true).event_done(true).event_contents(true)
}

fn push_job(source: Source, name: &str) -> Job {
    Job::new(source, Destination::Peer { path: name.into() }).options(policy())
}

fn server_config(
    identity: &Identity,
    agents: &Agents,
) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    for (certificate, _) in agents {
        roots.add(certificate.clone())?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    Ok(config)
}
