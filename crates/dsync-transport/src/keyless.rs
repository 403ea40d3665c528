//! Stand-ins of a build without TLS for the keys of a run and the ports that need them: there are
//! none, so the pipe to ssh carries every session.
//!
//! The law: no port is offered and no carrier but the pipe is asked for, so that nobody ever checks
//! the fingerprint that such a build announces.

/// The keys.
pub(crate) mod identity {
    use std::convert::Infallible;

    use dsync_wire::bootstrap::Fingerprint;

    /// The place of a key.
    #[derive(Clone)]
    pub(crate) struct Identity;

    impl Identity {
        pub(crate) fn generate() -> Result<Self, Infallible> {
            Ok(Self)
        }

        /// Returns a fingerprint that no key has.
        pub(crate) fn fingerprint(&self) -> Fingerprint {
            Fingerprint([0; 32])
        }
    }
}

/// The ports.
pub(crate) mod offers {
    use std::{net::IpAddr, num::NonZeroU16, time::Duration};

    use dsync_wire::bootstrap::{ClientBootstrap, ClientChoice};

    use super::identity::Identity;
    use crate::carried::Carried;

    /// No port.
    pub(crate) struct Offers;

    /// The times that a port would keep to.
    pub(crate) struct Window {
        #[expect(dead_code, reason = "no port keeps to it")]
        pub(crate) idle_timeout: Duration,
        #[expect(dead_code, reason = "no port keeps to it")]
        pub(crate) choice: Duration,
    }

    impl Offers {
        pub(crate) fn open(_: &ClientBootstrap, _: &Identity, _: Option<IpAddr>, _: Window) -> Self {
            Self
        }

        /// Returns false: what this build does not have cannot fail to open.
        pub(crate) fn lacks_all(&self, _: &ClientBootstrap) -> bool {
            false
        }

        pub(crate) fn udp_port(&self) -> Option<NonZeroU16> {
            None
        }

        pub(crate) fn tcp_port(&self) -> Option<NonZeroU16> {
            None
        }

        pub(crate) fn take(self, _: ClientChoice) -> Option<Carried> {
            None
        }
    }
}
