//! What `--version` says.

/// Version, carriers, compression, checksum, licence.
pub(crate) fn text() -> String {
    format!(
        "dsync {} (protocol {})\n\
         Carriers: quic, ssh\n\
         Compression: zstd, lz4\n\
         Checksum: blake3\n\
         Licence: MIT OR Apache-2.0\n",
        env!("CARGO_PKG_VERSION"),
        dsync_engine::PROTOCOL_VERSION,
    )
}
