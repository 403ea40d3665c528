//! Compressed pieces: each stands alone, holds at most 1 MiB raw, and declares its raw length.
//!
//! The law: [`Unpacker::unpack`] returns exactly the input of [`Packer::pack`], and a piece is
//! never larger than its raw content. No piece, however hostile, makes the receiver write or
//! allocate more than its declared length, which is checked against the limit first. A zstd frame
//! must be a single one, carry its content size, and ask for no window beyond [`MAX_ZSTD_WINDOW`].
//!
//! The sender chooses its effort ([`Effort`]) piece by piece; the receiver needs no agreement.
//! Formats: LZ4 block (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>) and zstd (RFC
//! 8878; window and sizes in section 3.1.1).

use bytes::Bytes;
use zstd::zstd_safe;

use crate::limits::{MAX_RAW_FRAME, MAX_ZSTD_WINDOW};

/// The compression of a piece. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Codec {
    /// Uncompressed.
    Raw = 0,
    /// Only zero bytes; no content is sent.
    Zero = 1,
    /// An LZ4 block.
    Lz4 = 2,
    /// One zstd frame.
    Zstd = 3,
}

impl Codec {
    /// Returns the codec for a wire value; `None` if this version knows none.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Raw,
            1 => Self::Zero,
            2 => Self::Lz4,
            3 => Self::Zstd,
            _ => return None,
        })
    }
}

/// A compressed piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The compression of the bytes.
    pub codec: Codec,
    /// Length of the content in bytes, at most [`MAX_RAW_FRAME`].
    pub raw_len: u32,
    /// The bytes on the wire.
    pub bytes: Bytes,
}

/// The effort that a [`Packer`] spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Effort {
    /// Elide zeros, compress nothing.
    #[default]
    Raw,
    /// LZ4: about 500 MB/s and more per core.
    Lz4,
    /// zstd at this level, clamped to 1 to 19.
    Zstd(u8),
}

/// Compresses pieces and keeps its tables between them.
///
/// Memory: some 20 KiB for LZ4, 1 to 10 MiB for zstd depending on the level, and one output buffer
/// of [`MAX_RAW_FRAME`]. All are allocated at first use.
#[derive(Default)]
pub struct Packer {
    zstd: Option<(u8, zstd::bulk::Compressor<'static>)>,
    lz4: Option<lz4_flex::block::CompressTable>,
    output: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Creates an empty packer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Compresses one piece of at most [`MAX_RAW_FRAME`] bytes. A longer one is returned raw, and
    /// sending it fails. Raw pieces share the memory of `raw`.
    ///
    /// If a sample shows that the content is incompressible, it stays raw. The sample costs 32 KiB
    /// of LZ4 and 8 KiB of counting, once per piece of 64 KiB and more.
    pub fn pack(&mut self, raw: Bytes, effort: Effort) -> Packed {
        let raw_len = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        if raw.is_empty() || raw_len > MAX_RAW_FRAME {
            return Packed { codec: Codec::Raw, raw_len, bytes: raw };
        }
        if is_zero(&raw) {
            return Packed { codec: Codec::Zero, raw_len, bytes: Bytes::new() };
        }
        let packed = match effort {
            Effort::Raw => None,
            Effort::Lz4 => self.lz4(&raw).map(|bytes| (Codec::Lz4, bytes)),
            Effort::Zstd(level) => self.zstd(&raw, level.clamp(1, 19)).map(|bytes| (Codec::Zstd, bytes)),
        };
        match packed {
            Some((codec, bytes)) => Packed { codec, raw_len, bytes },
            None => Packed { codec: Codec::Raw, raw_len, bytes: raw },
        }
    }

    /// Compresses `raw` with LZ4; returns `None` if that does not pay.
    fn lz4(&mut self, raw: &[u8]) -> Option<Bytes> {
        if raw.len() >= PROBED_LEN && !self.lz4_finds_matches(raw) {
            return None;
        }
        let len = self.lz4_into_output(raw)?;
        worthwhile(len, raw.len()).then(|| Bytes::copy_from_slice(&self.output[..len]))
    }

    /// Compresses `raw` with zstd; returns `None` if that does not pay.
    fn zstd(&mut self, raw: &[u8], level: u8) -> Option<Bytes> {
        if raw.len() >= PROBED_LEN && bits_per_byte(raw) > DENSE_BITS && !self.lz4_finds_matches(raw) {
            return None;
        }
        self.reserve(zstd_safe::compress_bound(raw.len()));
        let compressor = match &mut self.zstd {
            Some((at, compressor)) if *at == level => compressor,
            other => &mut other.insert((level, zstd::bulk::Compressor::new(i32::from(level)).ok()?)).1,
        };
        let len = compressor.compress_to_buffer(raw, &mut self.output[..]).ok()?;
        worthwhile(len, raw.len()).then(|| Bytes::copy_from_slice(&self.output[..len]))
    }

    /// Returns whether LZ4 shrinks one of two samples, at the start and in the middle.
    fn lz4_finds_matches(&mut self, raw: &[u8]) -> bool {
        let middle = raw.len() / 2;
        [&raw[..SAMPLE_LEN], &raw[middle..middle + SAMPLE_LEN]]
            .into_iter()
            .any(|sample| self.lz4_into_output(sample).is_some_and(|len| worthwhile(len, sample.len())))
    }

    fn lz4_into_output(&mut self, raw: &[u8]) -> Option<usize> {
        self.reserve(lz4_flex::block::get_maximum_output_size(raw.len()));
        let table = self.lz4.get_or_insert_with(lz4_flex::block::CompressTable::large);
        lz4_flex::block::compress_into_with_table(raw, &mut self.output, table).ok()
    }

    fn reserve(&mut self, len: usize) {
        if self.output.len() < len {
            self.output.resize(len, 0);
        }
    }
}

/// Decompresses pieces and keeps its tables between them.
#[derive(Default)]
pub struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Creates an empty unpacker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a piece's content: exactly `packed.raw_len` bytes. Raw pieces are not copied.
    ///
    /// Cost: at most one allocation of `raw_len` bytes beside zstd's tables (about 150 KiB, once).
    ///
    /// # Errors
    /// [`UnpackError`] if the declared length is beyond `limit` or [`MAX_RAW_FRAME`], or the bytes
    /// do not match the header.
    ///
    /// # Security
    /// The peer controls the whole piece. Output is freshly zeroed memory that must be filled
    /// exactly, so nothing of an earlier piece can leak into it.
    pub fn unpack(&mut self, packed: &Packed, limit: u32) -> Result<Bytes, UnpackError> {
        let limit = limit.min(MAX_RAW_FRAME);
        if packed.raw_len > limit {
            return Err(UnpackError::RawLen { raw_len: packed.raw_len, limit });
        }
        packed.check_size()?;
        let expected = packed.raw_len as usize;
        match packed.codec {
            Codec::Raw => Ok(packed.bytes.clone()),
            Codec::Zero => Ok(Bytes::from(vec![0; expected])),
            Codec::Lz4 => {
                let mut raw = vec![0; expected];
                let got = lz4_flex::block::decompress_into(&packed.bytes, &mut raw)
                    .map_err(|_| UnpackError::Corrupt { codec: Codec::Lz4 })?;
                filled(raw, got)
            }
            Codec::Zstd => self.unzstd(&packed.bytes, expected),
        }
    }

    fn unzstd(&mut self, bytes: &[u8], expected: usize) -> Result<Bytes, UnpackError> {
        let corrupt = UnpackError::Corrupt { codec: Codec::Zstd };
        check_zstd_frame(bytes, expected)?;
        let decompressor = match &mut self.zstd {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(|_| corrupt.clone())?),
        };
        let mut raw = vec![0; expected];
        let got = decompressor.decompress_to_buffer(bytes, &mut raw[..]).map_err(|_| corrupt)?;
        filled(raw, got)
    }
}

impl Packed {
    /// Checks that the bytes can belong to the declared length: raw ones equal it, zeros need none,
    /// compressed ones are fewer.
    pub(crate) fn check_size(&self) -> Result<(), UnpackError> {
        let (len, raw_len) = (self.bytes.len(), self.raw_len as usize);
        let fits = match self.codec {
            Codec::Raw => len == raw_len,
            Codec::Zero => len == 0 && raw_len > 0,
            Codec::Lz4 | Codec::Zstd => (1..raw_len).contains(&len),
        };
        if fits {
            Ok(())
        } else {
            Err(UnpackError::Size { codec: self.codec, len: len as u64, raw_len: self.raw_len })
        }
    }
}

/// The reason why a compressed piece was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The piece declares more content than allowed.
    #[error("compressed chunk declares {raw_len} bytes, the limit is {limit}")]
    RawLen {
        /// Declared length in bytes.
        raw_len: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// The piece's size cannot belong to its declared length.
    #[error("compressed chunk of {len} bytes cannot stand for {raw_len} bytes ({codec:?})")]
    Size {
        /// Codec that the piece declares.
        codec: Codec,
        /// Size of the piece in bytes.
        len: u64,
        /// Declared length in bytes.
        raw_len: u32,
    },
    /// A zstd frame asks for too large a window.
    #[error("compressed chunk asks for a window of {mib} MiB (limit {limit_mib})")]
    Window {
        /// Requested window in MiB, rounded up.
        mib: u64,
        /// The limit in MiB.
        limit_mib: u64,
    },
    /// A zstd frame's own header contradicts the declared length.
    #[error("compressed chunk holds {got} bytes, {declared} declared")]
    Length {
        /// Length in the frame's header, in bytes.
        got: u64,
        /// Declared length in bytes.
        declared: u64,
    },
    /// Bytes follow the compressed frame.
    #[error("compressed chunk has {count} bytes after its end")]
    Trailing {
        /// Number of bytes after the frame.
        count: u64,
    },
    /// The piece cannot be decompressed.
    #[error("compressed chunk is corrupt ({codec:?})")]
    Corrupt {
        /// Codec that the piece declares.
        codec: Codec,
    },
}

/// Checks a zstd frame's own header and extent before a decoder sees it.
fn check_zstd_frame(bytes: &[u8], expected: usize) -> Result<(), UnpackError> {
    let corrupt = UnpackError::Corrupt { codec: Codec::Zstd };
    let window = zstd_window(bytes).ok_or_else(|| corrupt.clone())?;
    if window > MAX_ZSTD_WINDOW {
        return Err(UnpackError::Window { mib: window.div_ceil(1 << 20), limit_mib: MAX_ZSTD_WINDOW >> 20 });
    }
    let declared = expected as u64;
    match zstd_safe::get_frame_content_size(bytes) {
        Ok(Some(got)) if got == declared => {}
        Ok(Some(got)) => return Err(UnpackError::Length { got, declared }),
        _ => return Err(corrupt),
    }
    let end = zstd_safe::find_frame_compressed_size(bytes).map_err(|_| corrupt)?;
    match bytes.len().checked_sub(end) {
        Some(0) => Ok(()),
        Some(count) => Err(UnpackError::Trailing { count: count as u64 }),
        None => Err(UnpackError::Corrupt { codec: Codec::Zstd }),
    }
}

/// Returns the window that a zstd frame asks for, in bytes (RFC 8878, 3.1.1.1); 0 if its content is
/// its window. Returns `None` for other bytes and for frames that need a dictionary.
fn zstd_window(bytes: &[u8]) -> Option<u64> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, rest @ ..] = bytes else { return None };
    let (single_segment, dictionary) = (descriptor & 0x20 != 0, descriptor & 3);
    if dictionary != 0 {
        return None;
    }
    if single_segment {
        return Some(0);
    }
    let window = *rest.first()?;
    let base = 1u64 << (10 + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}

fn filled(raw: Vec<u8>, got: usize) -> Result<Bytes, UnpackError> {
    if got == raw.len() {
        Ok(Bytes::from(raw))
    } else {
        Err(UnpackError::Length { got: got as u64, declared: raw.len() as u64 })
    }
}

/// Returns whether all bytes are zero. Stops at the first block that is not.
fn is_zero(raw: &[u8]) -> bool {
    // Fixed blocks without an early exit inside them vectorise.
    let (blocks, rest) = raw.as_chunks::<64>();
    blocks.iter().all(|block| block.iter().fold(0, |seen, byte| seen | byte) == 0)
        && rest.iter().all(|&byte| byte == 0)
}

/// Returns whether the saving, at least 3 %, pays for decompression at the other end.
fn worthwhile(len: usize, raw_len: usize) -> bool {
    len < raw_len - raw_len / 32
}

/// Returns the entropy of single bytes in two samples, in bits per byte: the best that Huffman
/// coding alone can reach. It detects text in base 64 or hexadecimal and skewed binary data, in
/// which LZ4 finds no matches.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^24")]
fn bits_per_byte(raw: &[u8]) -> f32 {
    let mut counts = [0u32; 256];
    let middle = raw.len() / 2;
    for sample in [&raw[..COUNTED_LEN], &raw[middle..middle + COUNTED_LEN]] {
        for &byte in sample {
            counts[usize::from(byte)] += 1;
        }
    }
    let total = (2 * COUNTED_LEN) as f32;
    counts.iter().filter(|&&count| count > 0).map(|&count| count as f32 / total).map(|p| -p * p.log2()).sum()
}

/// Length from which a piece is probed. Shorter ones are compressed at once, as a probe would cost
/// as much.
const PROBED_LEN: usize = 64 << 10;
/// Length of each of the two samples for LZ4, in bytes.
const SAMPLE_LEN: usize = 16 << 10;
/// Length of each of the two samples whose bytes are counted. Samples four times as long cost a
/// sender of incompressible data a fifteenth of its processor time and show no more.
const COUNTED_LEN: usize = 4 << 10;
/// Entropy from which byte frequencies promise less than 2 %: random bytes measure 7.98 on a sample
/// of 8 KiB.
const DENSE_BITS: f32 = 7.85;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns text that both codecs shrink.
    fn text(len: usize) -> Vec<u8> {
        b"It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(len / 74 + 1)
            [..len]
            .to_vec()
    }

    /// Returns random bytes that pass through `alphabet`.
    fn noise(len: usize, alphabet: impl Fn(u8) -> u8) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut out = Vec::with_capacity(len);
        for _ in 0..len {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            out.push(alphabet((state >> 32) as u8));
        }
        out
    }

    fn pack(raw: &[u8], effort: Effort) -> Packed {
        Packer::new().pack(Bytes::copy_from_slice(raw), effort)
    }

    fn unpack(packed: &Packed) -> Result<Bytes, UnpackError> {
        Unpacker::new().unpack(packed, MAX_RAW_FRAME)
    }

    const EFFORTS: [Effort; 4] = [Effort::Raw, Effort::Lz4, Effort::Zstd(1), Effort::Zstd(19)];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Law: packing and unpacking returns any content, and no piece grows.
        #[test]
        fn pieces_survive_and_never_grow(
            unit in prop::collection::vec(any::<u8>(), 1..300),
            times in 1..600usize,
            tail in prop::collection::vec(any::<u8>(), 0..70_000),
        ) {
            let raw = [unit.repeat(times), tail].concat();
            let (mut packer, mut unpacker) = (Packer::new(), Unpacker::new());
            for effort in EFFORTS {
                let packed = packer.pack(Bytes::copy_from_slice(&raw), effort);
                prop_assert!(packed.bytes.len() <= raw.len());
                prop_assert_eq!(unpacker.unpack(&packed, MAX_RAW_FRAME).unwrap(), &raw[..]);
            }
        }

        /// Law: any bytes under any header end in exactly the declared length, or in an error.
        #[test]
        fn damaged_pieces_do_no_harm(
            codec in prop::sample::select(vec![Codec::Raw, Codec::Zero, Codec::Lz4, Codec::Zstd]),
            raw_len in 0..200_000u32,
            len in 0..2000usize,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let effort = if codec == Codec::Lz4 { Effort::Lz4 } else { Effort::Zstd(1) };
            let mut bytes = pack(&text(len + 100), effort).bytes.to_vec();
            for (index, byte) in damage {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            for raw_len in [raw_len, len as u32 + 100] {
                if let Ok(raw) = unpack(&Packed { codec, raw_len, bytes: bytes.clone().into() }) {
                    prop_assert_eq!(raw.len(), raw_len as usize);
                }
            }
        }
    }

    #[test]
    fn each_kind_of_content_gets_the_codec_that_pays() {
        let base64 = |byte: u8| {
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[usize::from(byte & 63)]
        };
        let size = 256 << 10;
        for (raw, effort, codec) in [
            (text(size), Effort::Raw, Codec::Raw),
            (text(size), Effort::Lz4, Codec::Lz4),
            (text(size), Effort::Zstd(1), Codec::Zstd),
            (noise(size, |byte| byte), Effort::Lz4, Codec::Raw),
            (noise(size, |byte| byte), Effort::Zstd(1), Codec::Raw),
            (noise(size, base64), Effort::Lz4, Codec::Raw),
            (noise(size, base64), Effort::Zstd(1), Codec::Zstd),
            (noise(size / 2, |byte| byte).repeat(2), Effort::Lz4, Codec::Raw),
            (vec![0; size], Effort::Raw, Codec::Zero),
            (vec![0; 1], Effort::Zstd(1), Codec::Zero),
            (text(1), Effort::Zstd(1), Codec::Raw),
            (vec![], Effort::Zstd(1), Codec::Raw),
        ] {
            assert_eq!(pack(&raw, effort).codec, codec, "{} bytes, {effort:?}", raw.len());
        }
    }

    #[test]
    fn random_bytes_are_not_compressed_at_all() {
        assert!(bits_per_byte(&noise(64 << 10, |byte| byte)) > DENSE_BITS);
        assert!(bits_per_byte(&noise(64 << 10, |byte| byte & 0x7f)) < DENSE_BITS);
    }

    #[test]
    fn zeros_are_told_from_a_single_bit() {
        let mut raw = vec![0; 1000];
        assert!(is_zero(&raw));
        for at in [0, 63, 64, 999] {
            raw[at] = 1;
            assert!(!is_zero(&raw));
            raw[at] = 0;
        }
    }

    #[test]
    fn raw_pieces_are_not_copied() {
        let raw = Bytes::from(text(1000));
        let packed = Packer::new().pack(raw.clone(), Effort::Raw);
        assert_eq!(unpack(&packed).unwrap().as_ptr(), raw.as_ptr());
    }

    #[test]
    fn declared_lengths_are_checked_first() {
        let packed = Packed { codec: Codec::Zero, raw_len: u32::MAX, bytes: Bytes::new() };
        let error = unpack(&packed).unwrap_err();
        assert_eq!(error.to_string(), "compressed chunk declares 4294967295 bytes, the limit is 1048576");
        let packed = Packed { codec: Codec::Zero, raw_len: 100, bytes: Bytes::new() };
        let error = Unpacker::new().unpack(&packed, 99).unwrap_err();
        assert_eq!(error, UnpackError::RawLen { raw_len: 100, limit: 99 });
    }

    #[test]
    fn pieces_that_unfold_to_another_length_are_refused() {
        for effort in [Effort::Lz4, Effort::Zstd(1)] {
            let packed = pack(&text(10_000), effort);
            for raw_len in [9_999, 10_001, MAX_RAW_FRAME] {
                assert!(unpack(&Packed { raw_len, ..packed.clone() }).is_err());
            }
        }
    }

    #[test]
    fn a_zstd_piece_is_one_frame_and_nothing_else() {
        let packed = pack(&text(10_000), Effort::Zstd(1));
        let with = |bytes: Vec<u8>| unpack(&Packed { bytes: bytes.into(), ..packed.clone() });
        assert!(with(packed.bytes.to_vec()).is_ok());
        let garbage = with([&packed.bytes[..], b"x"].concat());
        assert_eq!(garbage, Err(UnpackError::Trailing { count: 1 }));
        let twice = with([&packed.bytes[..], &packed.bytes[..]].concat());
        assert_eq!(twice, Err(UnpackError::Trailing { count: packed.bytes.len() as u64 }));
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
        assert!(with([&skippable[..], &packed.bytes].concat()).is_err());
        assert!(with(packed.bytes[..packed.bytes.len() - 1].to_vec()).is_err());
    }

    #[test]
    fn large_windows_are_refused() {
        // Magic, descriptor without a single segment and with an 8-byte size, window of 2 GiB.
        let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 21 << 3];
        bytes.extend(1000u64.to_le_bytes());
        bytes.extend([1, 0, 0]);
        let error = unpack(&Packed { codec: Codec::Zstd, raw_len: 1000, bytes: bytes.into() }).unwrap_err();
        assert_eq!(error.to_string(), "compressed chunk asks for a window of 2048 MiB (limit 8)");
    }

    #[test]
    fn a_bomb_costs_no_more_than_it_declares() {
        // A piece of zeros that claims to be small: zstd's own header betrays it.
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
        let error =
            unpack(&Packed { codec: Codec::Zstd, raw_len: MAX_RAW_FRAME, bytes: bomb.into() }).unwrap_err();
        assert!(matches!(error, UnpackError::Window { .. } | UnpackError::Length { .. }));
        // An LZ4 block whose match never ends: 255 per byte.
        let mut bomb = vec![0x1f, b'a', 1, 0];
        bomb.extend([255; 5000]);
        let error =
            unpack(&Packed { codec: Codec::Lz4, raw_len: MAX_RAW_FRAME, bytes: bomb.into() }).unwrap_err();
        assert_eq!(error, UnpackError::Corrupt { codec: Codec::Lz4 });
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_before_decoding() {
        for (codec, raw_len, len) in [
            (Codec::Raw, 3, 2),
            (Codec::Zero, 3, 1),
            (Codec::Zero, 0, 0),
            (Codec::Lz4, 3, 3),
            (Codec::Zstd, 3, 0),
        ] {
            let error = unpack(&Packed { codec, raw_len, bytes: vec![0; len].into() }).unwrap_err();
            assert_eq!(error, UnpackError::Size { codec, len: len as u64, raw_len });
        }
    }
}
