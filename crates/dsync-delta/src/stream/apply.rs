//! The machine that applies a delta.

use std::io;

use super::{
    error::{FormatError, StreamError},
    format::{FrameReader, Header, Kind, Piece, field},
};
use crate::{
    block::Layout,
    num::{len_u64, saturating_usize},
    token::{Token, TokenDecoder},
};

/// Limits of an application.
///
/// ```
/// use std::io::Cursor;
///
/// use dsync_delta::stream::{
///     self, ApplyOptions, FormatError, SignatureOptions, SignatureReader, StreamError,
/// };
///
/// # let (mut signature, mut delta) = (Vec::new(), Vec::new());
/// # stream::signature(b"old".as_slice(), &mut signature, &SignatureOptions::new())?;
/// # let index = stream::read_signature(signature.as_slice(), SignatureReader::MAX_BLOCKS)?;
/// # stream::delta(&index, [0; 1 << 20].as_slice(), &mut delta)?;
/// // A delta of a MiB of zeros has some hundred bytes; a stranger's may describe exabytes.
/// assert!(delta.len() < 200);
/// let limit = ApplyOptions::new().max_len(64 << 10);
/// let refused = stream::apply(Cursor::new(b"old"), delta.as_slice(), std::io::sink(), &limit);
/// assert!(matches!(refused, Err(StreamError::Format(FormatError::TooLong { max: 65_536 }))));
/// # Ok::<(), StreamError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyOptions {
    /// Largest accepted length of the new file in bytes. Default: no limit.
    ///
    /// # Security
    /// A delta of some hundred bytes can describe a file of exabytes, by zero runs or by copies.
    pub max_len: u64,
}

impl ApplyOptions {
    /// Makes options without a limit.
    pub fn new() -> Self {
        Self { max_len: u64::MAX }
    }

    /// Sets the largest accepted length of the new file.
    #[must_use]
    pub fn max_len(mut self, max_len: u64) -> Self {
        self.max_len = max_len;
        self
    }
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of applying a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ApplyCounts {
    /// Length of the new file in bytes.
    pub new_len: u64,
    /// Bytes that came as literals.
    pub literal_bytes: u64,
    /// Bytes copied from the basis.
    pub matched_bytes: u64,
    /// Bytes that came as zero runs.
    pub zero_bytes: u64,
}

/// The rest of a token.
#[derive(Debug, Clone, Copy)]
enum Rest {
    Nothing,
    /// Bytes of the payload.
    Literal {
        at: usize,
        len: usize,
    },
    /// Bytes of the basis.
    Copy {
        at: u64,
        len: u64,
    },
    Zero {
        len: u64,
    },
}

/// Applies a delta that arrives in pieces of any length, into pieces of any length.
///
/// Turns are taken: [`push`](Self::push) takes bytes of the delta until tokens are there, and
/// [`pull`](Self::pull) carries them out until none is left.
///
/// Memory: one frame, at most 256 KiB.
///
/// ```
/// use dsync_delta::stream::{ApplyCounts, ApplyOptions, DeltaApplier, StreamError};
/// # use dsync_delta::stream::{self, SignatureOptions, SignatureReader};
///
/// # let (mut signature, mut delta) = (Vec::new(), Vec::new());
/// # stream::signature(b"old".as_slice(), &mut signature, &SignatureOptions::new())?;
/// # let index = stream::read_signature(signature.as_slice(), SignatureReader::MAX_BLOCKS)?;
/// # stream::delta(&index, b"something new".as_slice(), &mut delta)?;
/// let mut read_basis = |offset: u64, buffer: &mut [u8]| {
///     let rest = b"old".get(offset as usize..).unwrap_or_default();
///     let len = rest.len().min(buffer.len());
///     buffer[..len].copy_from_slice(&rest[..len]);
///     Ok(len)
/// };
/// let (mut applier, mut new, mut piece) =
///     (DeltaApplier::new(&ApplyOptions::new()), Vec::new(), [0; 5]);
/// for mut message in delta.chunks(10) {
///     while !message.is_empty() || applier.has_output() {
///         message = &message[applier.push(message)?..];
///         let len = applier.pull(&mut piece, &mut read_basis)?;
///         new.extend_from_slice(&piece[..len]);
///     }
/// }
/// assert_eq!((applier.basis_len(), applier.is_done()), (Some(3), true));
/// let ApplyCounts { new_len, literal_bytes, .. } = applier.finish()?;
/// assert_eq!((new_len, literal_bytes, &new[..]), (13, 13, b"something new".as_slice()));
/// # Ok::<(), StreamError>(())
/// ```
#[derive(Debug)]
pub struct DeltaApplier {
    frames: FrameReader,
    options: ApplyOptions,
    layout: Option<Layout>,
    hasher: Option<blake3::Hasher>,
    /// Bytes of the frame's payload that are not decoded yet.
    undecoded: usize,
    /// The block that the next copy counts from.
    next_block: u64,
    rest: Rest,
    is_done: bool,
    counts: ApplyCounts,
}

impl DeltaApplier {
    /// Starts a delta.
    pub fn new(options: &ApplyOptions) -> Self {
        Self {
            frames: FrameReader::new(Kind::Delta),
            options: *options,
            layout: None,
            hasher: None,
            undecoded: 0,
            next_block: 0,
            rest: Rest::Nothing,
            is_done: false,
            counts: ApplyCounts::default(),
        }
    }

    /// Takes bytes of the delta and returns how many: none as long as [`pull`](Self::pull) has output.
    ///
    /// # Errors
    /// [`FormatError`]. After an error the delta cannot be continued.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        let mut rest = bytes;
        while !self.has_output()
            && let Some(piece) = self.frames.next(&mut rest)?
        {
            match piece {
                Piece::Header(Header { key, block_len, basis_len }) => {
                    self.hasher = Some(key.hasher());
                    self.layout = Some(Layout::new(basis_len, block_len));
                }
                Piece::Frame => (self.undecoded, self.next_block) = (self.frames.payload().len(), 0),
                Piece::End => self.end()?,
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Returns the length that the basis must have, once the header has arrived.
    pub fn basis_len(&self) -> Option<u64> {
        self.layout.map(Layout::file_len)
    }

    /// Returns whether [`pull`](Self::pull) has tokens to carry out.
    pub fn has_output(&self) -> bool {
        self.undecoded > 0 || !matches!(self.rest, Rest::Nothing)
    }

    /// Returns whether the whole delta was applied and the output is the new file.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Writes the next bytes of the new file into `out` and returns their number: less than its length
    /// only if more of the delta is needed. `read` reads the basis at an offset and returns the number
    /// of bytes read, 0 only at its end.
    ///
    /// # Errors
    /// [`StreamError::Format`] for an impossible token, [`StreamError::File`] with an error of `read`,
    /// [`FormatError::BasisLength`] if the basis ends too early.
    pub fn pull(
        &mut self,
        out: &mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> Result<usize, StreamError> {
        let mut filled = 0;
        while filled < out.len() && self.has_output() {
            if matches!(self.rest, Rest::Nothing) {
                self.rest = self.decode()?;
            }
            filled += self.carry_out(&mut out[filled..], &mut read)?;
        }

        // All at once: BLAKE3 is slow on short pieces.
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&out[..filled]);
        }
        Ok(filled)
    }

    /// Checks that the delta was whole; returns what it did.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    pub fn finish(self) -> Result<ApplyCounts, FormatError> {
        self.frames.finish()?;
        if self.is_done { Ok(self.counts) } else { Err(FormatError::Ended) }
    }

    /// Decodes the next token of the frame and checks it.
    fn decode(&mut self) -> Result<Rest, FormatError> {
        let Some(layout) = self.layout else { return Err(FormatError::Ended) };
        let payload = self.frames.payload();
        let mut decoder = TokenDecoder::resume(&payload[payload.len() - self.undecoded..], self.next_block);
        let token = decoder.next().ok_or(FormatError::Ended)?.map_err(FormatError::Token)?;
        (self.undecoded, self.next_block) = decoder.position();

        let (rest, len) = match token {
            Token::Literal(bytes) => {
                let (at, len) = (payload.len() - self.undecoded - bytes.len(), bytes.len());
                self.counts.literal_bytes += len_u64(len);
                (Rest::Literal { at, len }, len_u64(len))
            }
            Token::Copy(run) => {
                let (first, count, blocks) = (run.first().0, run.count(), layout.block_count());
                let range =
                    layout.run_range(run).ok_or(FormatError::CopyPastBasis { first, count, blocks })?;
                let len = range.end - range.start;
                self.counts.matched_bytes = self.counts.matched_bytes.saturating_add(len);
                (Rest::Copy { at: range.start, len }, len)
            }
            Token::Zero(len) => {
                self.counts.zero_bytes = self.counts.zero_bytes.saturating_add(len);
                (Rest::Zero { len }, len)
            }
        };

        let max = self.options.max_len;
        let new_len = self.counts.new_len.checked_add(len).filter(|&len| len <= max);
        self.counts.new_len = new_len.ok_or(FormatError::TooLong { max })?;
        Ok(rest)
    }

    /// Carries out as much of the token as `out` has room for; returns the number of bytes.
    fn carry_out(
        &mut self,
        out: &mut [u8],
        read: &mut impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> Result<usize, StreamError> {
        let room = out.len();
        let done = match &mut self.rest {
            Rest::Nothing => return Ok(0),
            Rest::Literal { at, len } => {
                let done = room.min(*len);
                out[..done].copy_from_slice(&self.frames.payload()[*at..*at + done]);
                (*at, *len) = (*at + done, *len - done);
                done
            }
            Rest::Copy { at, len } => {
                let wanted = room.min(saturating_usize(*len));
                let done = read(*at, &mut out[..wanted]).map_err(StreamError::File)?.min(wanted);
                if done == 0 {
                    let expected = self.layout.map_or(0, Layout::file_len);
                    return Err(FormatError::BasisLength { expected, found: *at }.into());
                }
                (*at, *len) = (*at + len_u64(done), *len - len_u64(done));
                done
            }
            Rest::Zero { len } => {
                let done = room.min(saturating_usize(*len));
                out[..done].fill(0);
                *len -= len_u64(done);
                done
            }
        };

        if let Rest::Literal { len: 0, .. } | Rest::Copy { len: 0, .. } | Rest::Zero { len: 0 } = self.rest {
            self.rest = Rest::Nothing;
        }
        Ok(done)
    }

    /// Compares length and root of the output with those of the new file.
    fn end(&mut self) -> Result<(), FormatError> {
        let fields = self.frames.payload();
        let (expected, found) = (u64::from_le_bytes(field(fields, 0)), self.counts.new_len);
        if expected != found {
            return Err(FormatError::WrongLength { expected, found });
        }
        let root: Option<[u8; 32]> = self.hasher.as_ref().map(|hasher| *hasher.finalize().as_bytes());
        if root != Some(field(fields, 8)) {
            return Err(FormatError::WrongRoot);
        }
        self.is_done = true;
        Ok(())
    }
}
