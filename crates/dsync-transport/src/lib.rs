//! Carriers that implement Link: QUIC, the ssh pipe, memory.
