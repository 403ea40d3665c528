//! The output of `--version`.

use crate::in_place_of_rsync;

/// Returns version, carriers, cryptography, compression, checksum, licence.
pub(crate) fn text() -> String {
    if in_place_of_rsync::is_called_rsync() {
        return in_place_of_rsync::version();
    }
    let (exchanges, ciphers) = dsync_engine::cryptography();
    format!(
        "dsync {} (protocol {})\n\
         Carriers: quic, tls, ssh\n\
         Key exchange: {} (quic, tls)\n\
         Ciphers: {} (quic, tls)\n\
         Compression: zstd, lz4\n\
         Checksum: blake3\n\
         Licence: MIT OR Apache-2.0\n",
        env!("CARGO_PKG_VERSION"),
        dsync_engine::PROTOCOL_VERSION,
        exchanges.join(", "),
        ciphers.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriers_key_exchange_and_ciphers_are_named() {
        let text = text();
        for part in [
            "Carriers: quic, tls, ssh\n",
            "Key exchange: X25519MLKEM768 (quic, tls)\n",
            "Ciphers: AES_128_GCM_SHA256, CHACHA20_POLY1305_SHA256 (quic, tls)\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
