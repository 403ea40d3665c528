//! Messages, limits, codec, frame compression and the Link trait.
//!
//! What travels between the two ends of a session, as checked types, and how it becomes bytes. Nothing in
//! here opens a socket or a file, starts a thread or reads a clock: carriers implement [`link::Link`], the
//! engine drives it, and everything between is a function of bytes. `docs/wire.md` is the normative
//! description of the bytes.
//!
//! | module | what it keeps true |
//! |---|---|
//! | [`message`], [`options`], [`event`] | what can be said at all |
//! | [`kind`], [`version`], [`limits`] | numbers that never change their meaning, bounds that no peer can raise |
//! | [`name`] | a name cannot leave its directory |
//! | [`codec`], [`frame`] | bytes are decoded strictly, within bounds, or refused with a sentence |
//! | [`compress`] | a piece unfolds to what it declared, never to more |
//! | [`state`] | messages come in the agreed order |
//! | [`bootstrap`] | noise is told from a greeting; both ends agree before a link exists |
//! | [`budget`] | what a peer makes an end hold never exceeds one bound |
//! | [`link`] | what a carrier owes a session |

pub mod bootstrap;
pub mod budget;
mod byte_text;
pub mod codec;
pub mod compress;
pub mod error;
pub mod event;
pub mod frame;
pub mod kind;
pub mod limits;
pub mod link;
pub mod message;
pub mod name;
pub mod options;
pub mod state;
pub mod unprintable;
pub mod version;

pub use crate::error::{DecodeError, EncodeError};
