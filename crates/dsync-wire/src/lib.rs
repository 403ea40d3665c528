//! Messages, limits, codec, frame compression and the Link trait.
//!
//! The messages between the two ends of a session, as checked types, and their encoding. Nothing in
//! here opens a socket or a file, starts a thread or reads a clock. Carriers implement
//! [`link::Link`], the engine drives it, and everything between is a function of bytes.
//! `docs/wire.md` is the normative description of the bytes.
//!
//! | module | invariant |
//! |---|---|
//! | [`message`], [`options`], [`event`] | only valid statements can be expressed |
//! | [`kind`], [`version`], [`limits`] | numbers never change their meaning, and no peer can raise a bound |
//! | [`name`] | a name cannot leave its directory |
//! | [`path`] | the path that one run tells of is the one that another takes |
//! | [`codec`], [`frame`] | bytes are decoded strictly and within bounds, or refused with a sentence |
//! | [`compress`] | a piece unpacks to its declared length, never to more |
//! | [`state`] | messages come in the agreed order |
//! | [`bootstrap`] | a greeting is told from noise, and both ends agree before a link exists |
//! | [`budget`] | the memory that a peer makes an end hold never exceeds one bound |
//! | `schema` (feature `serde`) | a report that was serialized is read back equal |
//! | [`link`] | the guarantees that a session needs from its carrier |

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
pub mod path;
mod problem;
pub mod ruling;
#[cfg(feature = "serde")]
pub mod schema;
mod setters;
mod span_table;
pub mod state;
pub mod unprintable;
pub mod version;

pub use crate::error::{DecodeError, EncodeError};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
