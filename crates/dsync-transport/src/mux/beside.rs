//! Connections beside the mux, to which the lanes of a long run move.
//!
//! One stream has one connection's losses, and one thread's cryptography and copies at each end. So
//! a lane that has sent much goes on by a connection of its own where there is one, at any moment:
//! the mux says where with the last frame of that direction. Nobody waits for a connection to be
//! made, and where none can be made everything stays on the mux.
//!
//! The law: a direction of a lane moves once, or twice where losses hold back what it has moved to:
//! from TLS to QUIC. Its bytes keep their order, and its end on a further connection is as clean or as
//! broken as the mux would show it. The mux's own connection tells signs of life and the link's end
//! for all.

use dsync_wire::link::{LaneRead, LaneWrite, LinkError, Move, Traffic};

/// The further connections of one end of a link.
pub(crate) trait Beside: Send + Sync {
    /// Returns the server's invitation, at the server.
    fn invitation(&self) -> Option<[u8; INVITATION]>;

    /// Takes the server's invitation, at the client; a second one changes nothing.
    fn invited(&self, invitation: &[u8; INVITATION]);

    /// Returns whether both ends know of further connections over QUIC.
    fn knows_quic(&self) -> bool;

    /// Returns whether both ends know of second moves.
    fn moves_again(&self) -> bool;

    /// Returns whether the port takes QUIC, at the server.
    fn takes_quic(&self) -> bool;

    /// Hears that the port takes QUIC, at the client.
    fn told_of_quic(&self);

    /// Returns the loss, in packets of a million, for which the client is to make the connection over
    /// QUIC: at the server, and once.
    fn asks_for_quic(&self) -> Option<u32>;

    /// Hears that the server's data is held back by this loss, at the client.
    fn asked_for_quic(&self, per_million: u32);

    /// Returns the number of data lanes that fill what the lanes will move to, if it is known.
    fn data_lanes(&self) -> Option<usize>;

    /// Returns the number of data lanes that are to send.
    fn sending_lanes(&self) -> usize;

    /// Returns whether the lanes will soon move, as far as this end knows.
    fn is_expected(&self) -> bool;

    /// Returns the moves to another carrier so far, at the client.
    fn moves(&self) -> Vec<Move>;

    /// Hears how much has passed over the link, often. The client makes connections once they pay.
    fn passed(&self, traffic: Traffic);

    /// Takes a connection that a lane may go on by which has sent this many bytes, and its number; `None`
    /// if there is none now.
    fn take(&self, sent_bytes: u64) -> Option<(u32, Box<dyn LaneWrite>)>;

    /// Takes a connection that a lane may go on by which sends on this one; `None` if there is none that
    /// does better.
    fn take_again(&self, from: u32) -> Option<(u32, Box<dyn LaneWrite>)>;

    /// Waits for the connection on which the peer goes on.
    ///
    /// # Errors
    /// [`LinkError`] if the peer may not send on it, or it could not be made.
    fn receive(&self, number: u32) -> Result<Box<dyn LaneRead>, LinkError>;

    /// Returns whether the path of a connection is gone, and its lanes with it.
    fn has_lost(&self) -> bool;

    /// Ends all connections, and wakes everybody who waits in one.
    fn end(&self);
}

/// Length of an invitation in bytes: the number of the session, the secret that a connection has to
/// show, and the fingerprint of the server's key.
pub(crate) const INVITATION: usize = 16 + 32 + 32;
