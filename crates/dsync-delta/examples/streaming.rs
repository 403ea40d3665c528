//! Updates one file to the content of another as a sync engine does. Signature, search and apply
//! each stream, and only sums and tokens pass between the two ends.
//!
//! `cargo run -p dsync-delta --example streaming -- NEW BASIS` writes the result to `BASIS.new` and
//! prints the number of bytes sent.

use std::{
    env,
    error::Error,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    sync::mpsc,
    thread,
};

use dsync_delta::{
    Applier, BlockLen, FileRoot, IndexedSignature, Key, Layout, ReadAt, Rolling, RootBuilder, SegmentHasher,
    Segments, SignatureDecoder, Step, StepError, SumsFormat, Token, TokenEncoder, TokenSink, search_segment,
    signature_parallel,
};

/// The most sums accepted from a peer: 12 MB of them.
const MAX_BLOCKS: u64 = 1 << 20;

/// Payload length at which tokens are sent, in bytes.
const PAYLOAD_LEN: usize = 256 << 10;

/// A message from the source.
enum Message {
    Segment { index: u64, lead: u32 },
    Tokens(Vec<u8>),
    End { root: FileRoot },
}

// The operator chose these paths; they do not come from a tree.
#[allow(clippy::disallowed_methods)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let (Some(new), Some(basis)) = (args.next(), args.next()) else {
        return Err("usage: streaming NEW BASIS".into());
    };
    let mut target = basis.clone();
    target.push(".new");
    let (new, basis, target) = (File::open(new)?, File::open(basis)?, File::create(target)?);
    // In a session, each end contributes random bytes.
    let key = Key::derive(&[b"source", b"destination"]);

    // Destination: the sums of the basis.
    let basis_len = basis.metadata()?.len();
    let layout = Layout::new(basis_len, BlockLen::for_file(basis_len));
    let sums = signature_parallel(&key, layout, SumsFormat::default(), &Positional(&basis))?.encode();
    writeln!(io::stderr(), "{} bytes of sums in blocks of {}", sums.len(), layout.block_len().get())?;

    // One thread each for source and destination. The bounded queue provides the backpressure.
    let segments = Segments::for_file(new.metadata()?.len())?;
    let (sender, receiver) = mpsc::sync_channel(4);
    let source_key = key.clone();
    let source = thread::spawn(move || {
        send_delta(&new, layout, &sums, &segments, &source_key, &sender).map_err(|error| error.to_string())
    });
    let token_bytes = receive_delta(&receiver, &basis, &target, layout, &segments, &key)?;
    source.join().map_err(|_| "the source panicked")??;
    writeln!(io::stderr(), "{token_bytes} bytes of tokens")?;
    Ok(())
}

fn send_delta(
    new: &File,
    layout: Layout,
    sums: &[u8],
    segments: &Segments,
    key: &Key,
    sender: &mpsc::SyncSender<Message>,
) -> Result<(), Box<dyn Error>> {
    let mut decoder = SignatureDecoder::new(layout, SumsFormat::default(), MAX_BLOCKS)?;
    decoder.push(sums)?;
    let index = IndexedSignature::new(decoder.finish()?, key);
    let (mut root, rolling) = (RootBuilder::new(key, segments), Rolling::new());
    for segment in 0..segments.count() {
        let mut lane = Lane { index: segment, sender, tokens: TokenEncoder::new() };
        let outcome = search_segment(&index, &Positional(new), segments, segment, &rolling, &mut lane)?;
        sender.send(Message::Tokens(lane.tokens.take()))?;
        root.set(segment, outcome.value)?;
    }
    sender.send(Message::End { root: root.finish()? })?;
    Ok(())
}

fn receive_delta(
    receiver: &mpsc::Receiver<Message>,
    basis: &File,
    target: &File,
    layout: Layout,
    segments: &Segments,
    key: &Key,
) -> Result<u64, Box<dyn Error>> {
    let mut root = RootBuilder::new(key, segments);
    let mut open: Option<(u64, Applier, SegmentHasher)> = None;
    let mut token_bytes = 0;
    for message in receiver {
        match message {
            Message::Segment { index, lead } => {
                close(open.take(), &mut root)?;
                let applier = Applier::new(Some(layout), segments, index, lead)?;
                open = Some((index, applier, SegmentHasher::new(key, segments, index)?));
            }
            Message::Tokens(payload) => {
                token_bytes += payload.len() as u64;
                let Some((_, applier, hasher)) = &mut open else {
                    return Err("tokens before a segment".into());
                };
                let step = |step: Step<'_>| carry_out(step, basis, target, hasher);
                applier.push(&payload, step).map_err(|error| match error {
                    StepError::Sink(error) => Box::<dyn Error>::from(error),
                    error => error.to_string().into(),
                })?;
            }
            Message::End { root: expected } => {
                close(open.take(), &mut root)?;
                if root.finish()? != expected {
                    return Err("the rebuilt file differs; a sync engine would send it whole now".into());
                }
                return Ok(token_bytes);
            }
        }
    }
    Err("the source stopped".into())
}

fn close(open: Option<(u64, Applier, SegmentHasher)>, root: &mut RootBuilder) -> Result<(), Box<dyn Error>> {
    if let Some((index, applier, hasher)) = open {
        applier.finish()?;
        root.set(index, hasher.finish()?)?;
    }
    Ok(())
}

fn carry_out(step: Step<'_>, basis: &File, target: &File, hasher: &mut SegmentHasher) -> io::Result<()> {
    match step {
        Step::Write { offset, bytes } => {
            hasher.update(bytes);
            target.write_all_at(bytes, offset)
        }
        Step::Copy { mut basis_offset, mut offset, mut len } => {
            let mut buffer = vec![0; 256 << 10];
            while len > 0 {
                let piece = &mut buffer[..usize::try_from(len).unwrap_or(usize::MAX).min(256 << 10)];
                basis.read_exact_at(piece, basis_offset)?;
                hasher.update(piece);
                target.write_all_at(piece, offset)?;
                let done = piece.len() as u64;
                (basis_offset, offset, len) = (basis_offset + done, offset + done, len - done);
            }
            Ok(())
        }
        Step::Zero { offset, len } => {
            hasher.update_zeros(len);
            // A hole: extend the length over it and write nothing.
            target.set_len(target.metadata()?.len().max(offset + len))
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Collects the tokens of one segment and sends them when a payload is full.
struct Lane<'s> {
    index: u64,
    sender: &'s mpsc::SyncSender<Message>,
    tokens: TokenEncoder,
}

impl TokenSink for Lane<'_> {
    type Error = mpsc::SendError<Message>;

    fn start(&mut self, lead: u32) -> Result<(), Self::Error> {
        self.sender.send(Message::Segment { index: self.index, lead })
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error> {
        self.tokens.push(token);
        if self.tokens.len() >= PAYLOAD_LEN {
            self.sender.send(Message::Tokens(self.tokens.take()))?;
        }
        Ok(())
    }
}

/// A file read by position.
struct Positional<'f>(&'f File);

impl ReadAt for Positional<'_> {
    type Error = io::Error;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
}
