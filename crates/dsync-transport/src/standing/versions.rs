//! The protocols in TLS that the two ends of a server's port agree on.
//!
//! The newer one names a version and features: two ends that have it need not wait for each other's
//! bootstrap. The older one leaves both to the bootstrap, where each end tells its range. Both are there a
//! second time, for ends that show each other certificates. The law: two
//! ends that have none in common end as two of other versions do, which no later attempt changes.

use dsync_wire::{
    bootstrap::VersionRange,
    version::{FEATURES, VERSION},
};

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

/// Returns the words for two ends without a protocol in common. TLS tells only that, so they have this
/// end's versions.
pub(super) fn none_in_common() -> String {
    let offered: Vec<_> = protocols().iter().map(|name| name.escape_ascii().to_string()).collect();
    format!(
        "no version in common: this program speaks {} ({}), the other end none of these; update the older of the two",
        VersionRange::OURS,
        offered.join(", ")
    )
}

/// The protocol whose versions the bootstrap agrees on: neither a lane of a run nor anything else is
/// mistaken for it.
pub(super) const ALPN: &[u8] = b"dsync-share/1";
/// [`ALPN`] with certificates.
const CERTIFIED: &[u8] = b"dsync-share-cert/1";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{io::Read as _, net::TcpListener, sync::Arc, thread};

    use dsync_wire::bootstrap::{BootstrapMessage, Refusal};

    use super::{
        super::{
            Address, ChannelError, WELCOME,
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
