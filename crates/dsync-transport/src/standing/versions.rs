//! The protocols in TLS that the two ends of a server's port agree on.
//!
//! The newer one names a version and features: two ends that have it need not wait for each other's
//! bootstrap. The older one leaves both to the bootstrap, where each end tells its range. Both are there a
//! second time, for ends that show each other certificates. The law: two
//! ends that have none in common end as two of other versions do, which no later attempt changes.
//!
//! TLS tells a client only that the server has none of its protocols. A server sees what the client offered,
//! and its log is where an administrator finds both.

use std::sync::{Arc, Mutex, PoisonError};

use dsync_wire::{
    bootstrap::VersionRange,
    version::{FEATURES, VERSION},
};
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::ChannelError;

/// Returns the protocols, the better one first.
pub(super) fn protocols() -> Vec<Vec<u8>> {
    vec![protocol_ahead(), ALPN.to_vec()]
}

/// Returns the protocol of two ends that speak the same version with the same features, so that each
/// knows what the other would answer in the bootstrap. Nobody can make two ends agree on another
/// one: the handshake proves what was offered.
fn protocol_ahead() -> Vec<u8> {
    format!("dsync-share/2 {VERSION} {FEATURES:x}").into_bytes()
}

/// Returns the protocols of ends that show certificates, the better one first.
pub(super) fn certified() -> Vec<Vec<u8>> {
    vec![certified_ahead(), CERTIFIED.to_vec()]
}

/// Returns [`protocol_ahead`] with certificates.
fn certified_ahead() -> Vec<u8> {
    format!("dsync-share-cert/2 {VERSION} {FEATURES:x}").into_bytes()
}

/// Returns whether the ends of a connection show certificates.
pub(super) fn is_certified(agreed: Option<&[u8]>) -> bool {
    agreed.is_some_and(|agreed| agreed == CERTIFIED || agreed == certified_ahead())
}

/// Returns whether a protocol tells the client the server's part of the bootstrap.
pub(super) fn is_ahead(agreed: Option<&[u8]>) -> bool {
    agreed.is_some_and(|agreed| agreed == protocol_ahead() || agreed == certified_ahead())
}

/// Returns the client's words for two ends without a protocol in common. TLS tells only that, so they
/// have this end's versions.
pub(super) fn none_in_common() -> String {
    format!("no version in common: {}, the other end none of these; {ADVICE}", own_versions())
}

/// Returns the versions of this end, and the protocols that stand for them.
fn own_versions() -> String {
    let offered: Vec<_> = protocols().iter().map(|name| name.escape_ascii().to_string()).collect();
    format!("this program speaks {} ({})", VersionRange::OURS, offered.join(", "))
}

/// A server's key, which notes what each client offers that it is shown to.
#[derive(Debug)]
pub(super) struct Offers {
    key: Arc<dyn ResolvesServerCert>,
    offered: Mutex<Vec<Vec<u8>>>,
}

impl Offers {
    /// Makes a server's configuration note the protocols that its client offers.
    pub(super) fn noted_by(config: &mut ServerConfig) -> Arc<Self> {
        let offers = Arc::new(Self { key: Arc::clone(&config.cert_resolver), offered: Mutex::default() });
        config.cert_resolver = Arc::<Self>::clone(&offers);
        offers
    }

    /// Returns the error of a handshake that agreed on no protocol: a dsync of other versions is told from
    /// somebody who offers none of dsync's protocols.
    ///
    /// # Security
    /// The client chose the names: they are escaped, and few and short.
    pub(super) fn none_in_common(&self) -> ChannelError {
        let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<_> = offered.iter().map(|name| quoted(name)).collect();
        let names = names.join(", ");
        if !offered.iter().any(|name| name.starts_with(FAMILY)) {
            return ChannelError::NotDsync { why: format!("it offers the protocols {names}") };
        }
        let why = format!("no version in common: {}, the client offers {names}; {ADVICE}", own_versions());
        ChannelError::NoVersion { why }
    }
}

impl ResolvesServerCert for Offers {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let names = hello.alpn().into_iter().flatten().take(MOST_NAMES);
        // One byte more than is shown tells that there are more.
        let names = names.map(|name| name[..name.len().min(LONGEST_NAME + 1)].to_vec()).collect();
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = names;
        self.key.resolve(hello)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.key.only_raw_public_keys()
    }
}

/// Returns a client's name of a protocol in quotes, cut where it is long.
fn quoted(name: &[u8]) -> String {
    let rest = if name.len() > LONGEST_NAME { "..." } else { "" };
    format!("'{}'{rest}", name[..name.len().min(LONGEST_NAME)].escape_ascii())
}

/// The cure, of either end.
const ADVICE: &str = "update the older of the two";
/// The beginning of each protocol of a server's port, in every version.
const FAMILY: &[u8] = b"dsync-share/";
/// Names of a client that are noted: a dsync offers two.
const MOST_NAMES: usize = 4;
/// Bytes of such a name that are shown: one with a version and features has up to 32.
const LONGEST_NAME: usize = 40;

/// The protocol whose versions the bootstrap agrees on: neither a lane of a run nor anything else is
/// mistaken for it.
pub(super) const ALPN: &[u8] = b"dsync-share/1";
/// [`ALPN`] with certificates.
const CERTIFIED: &[u8] = b"dsync-share-cert/1";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::Read as _,
        net::{TcpListener, TcpStream},
        thread,
    };

    use dsync_wire::bootstrap::{BootstrapMessage, Refusal};

    use super::{
        super::{
            Address, WELCOME, answer,
            meeting::ServerEnd,
            tests::{LIMIT, dial_one_that, keys, knock},
        },
        *,
    };
    use crate::{AddressFamily, tls::stream::Stream};

    #[test]
    fn a_server_without_a_version_in_common_is_told_from_one_that_is_no_dsync() {
        let (client, server) = keys();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".into(), port, family: AddressFamily::Any };
        let pins = vec![client.public().pin()];
        let config = server.identity().standing_server(pins, vec![b"dsync-share/9".to_vec()]).unwrap();
        // Known or not: nothing is shown to a client of another version.
        for pinned in [Some(server.public()), None] {
            let config = Arc::new(config.clone());
            let (near, far) = thread::scope(|scope| {
                let far =
                    scope.spawn(|| Stream::server(listener.accept().unwrap().0, config, LIMIT).map(drop));
                (knock(&address, &client, pinned).map(drop), far.join().unwrap())
            });
            for ended in [near, far.map_err(ChannelError::from)] {
                let Err(ChannelError::NoVersion { why }) = ended else { panic!("{ended:?}") };
                for part in ["speaks version 1", "dsync-share/1", "update the older"] {
                    assert!(why.contains(part), "{part}: {why}");
                }
            }
        }
    }

    /// Returns what a server meets of a known client that offers these protocols.
    fn met_by_a_client_of(protocols: Vec<Vec<u8>>) -> ChannelError {
        let (client, server) = keys();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap();
        let pins = vec![server.public().pin()];
        let (config, _) = client.identity().standing_client(pins, protocols).unwrap();
        thread::scope(|scope| {
            let known = [client.public()];
            let answering = scope.spawn(move || {
                let end = ServerEnd { key: &server, certificate: None, clients: &known, authorities: &[] };
                answer(listener.accept().unwrap().0, &end, LIMIT).map(drop)
            });
            let tcp = TcpStream::connect(port).unwrap();
            assert!(Stream::client(tcp, Arc::new(config), LIMIT).is_err());
            answering.join().unwrap().err().unwrap()
        })
    }

    #[test]
    fn a_server_says_what_a_client_of_another_version_offers() {
        let ours = own_versions();
        for (offered, shown) in [
            (vec![&b"dsync-share/9"[..]], "'dsync-share/9'"),
            (vec![b"dsync-share/3 7 ff", b"dsync-share/9"], "'dsync-share/3 7 ff', 'dsync-share/9'"),
            (vec![b"dsync-share/\n\x1b[2J' x='"], r"'dsync-share/\n\x1b[2J\' x=\''"),
            // The fifth is not shown.
            (vec![b"h2", b"a", b"dsync-share/7", b"b", b"c"], "'h2', 'a', 'dsync-share/7', 'b'"),
        ] {
            let met = met_by_a_client_of(offered.iter().map(|name| name.to_vec()).collect());
            let words = format!("no version in common: {ours}, the client offers {shown}; {ADVICE}");
            assert!(matches!(&met, ChannelError::NoVersion { why } if *why == words), "{met:?}: {words}");
        }

        let long = [FAMILY, &[b'x'; 200]].concat();
        let met = met_by_a_client_of(vec![long]).to_string();
        assert!(
            met.contains(&format!("'dsync-share/{}'...", "x".repeat(LONGEST_NAME - FAMILY.len()))),
            "{met}"
        );
        // Whoever offers none of dsync's protocols is a stranger like any other.
        let met = met_by_a_client_of(vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
        let words = "it offers the protocols 'h2', 'http/1.1'";
        assert!(matches!(&met, ChannelError::NotDsync { why } if why == words), "{met:?}");
    }

    #[test]
    fn a_refusal_for_the_version_has_both_ranges() {
        let refusal = BootstrapMessage::Refusal(Refusal::Versions {
            supported: VersionRange::new(VERSION + 2, VERSION + 3).unwrap(),
        });
        let mut refused = WELCOME.to_vec();
        refusal.encode(&mut refused).unwrap();

        let error = dial_one_that(protocols(), &refused).1.hear_go().unwrap_err();
        let words = "peer speaks versions 3-4, this program version 1; upgrade this side";
        assert!(matches!(&error, ChannelError::NoVersion { why } if why == words), "{error:?}");

        // One that does not go ahead hands the same bytes to its run, which reads them as over ssh.
        let (ahead, mut reader) = dial_one_that(vec![ALPN.to_vec()], &refused);
        let mut heard = Vec::new();
        reader.read_to_end(&mut heard).unwrap();
        assert!(ahead.is_none() && heard == refused[WELCOME.len()..]);
    }
}
