//! Bytes of messages, written by hand after `docs/wire.md`: nothing here refuses a wrong value.

/// The first bytes of every bootstrap message.
pub const MAGIC: &[u8; 10] = b"\x89dsync\r\n\x1a\n";

/// A message under construction: its number, then fields in the order they are added.
#[derive(Debug, Clone)]
pub struct Message(Vec<u8>);

impl Message {
    /// Starts a message of the given number.
    pub fn new(number: u8) -> Self {
        Self(vec![number])
    }

    /// Adds an `int`.
    #[must_use]
    pub fn int(mut self, value: u64) -> Self {
        put_int(&mut self.0, value);
        self
    }

    /// Adds a `sint`.
    #[must_use]
    pub fn sint(self, value: i64) -> Self {
        self.int(zigzag(value))
    }

    /// Adds a byte or a flag.
    #[must_use]
    pub fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// Adds raw bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a `text`.
    #[must_use]
    pub fn text(self, text: &[u8]) -> Self {
        self.int(text.len() as u64).bytes(text)
    }

    /// Adds a `packed` of codec raw.
    #[must_use]
    pub fn raw(self, content: &[u8]) -> Self {
        self.packed(0, content.len() as u64, content)
    }

    /// Adds a `packed` of any codec and declared length.
    #[must_use]
    pub fn packed(self, codec: u8, raw_len: u64, bytes: &[u8]) -> Self {
        self.byte(codec).int(raw_len).bytes(bytes)
    }

    /// Adds `attributes`: mode 0755, time 0, owner and group 0, no attribute set.
    #[must_use]
    pub fn attributes(self) -> Self {
        self.int(0o755).sint(0).int(0).int(0).int(0).byte(0)
    }

    /// Returns the message as a frame.
    pub fn frame(self) -> Vec<u8> {
        frame(&self.0)
    }
}

/// Returns a frame of any content, its number first.
pub fn frame(content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).expect("the content of a frame");
    [&len.to_le_bytes()[..], content].concat()
}

/// One entry of a listing.
#[derive(Debug, Clone)]
pub struct Item {
    name: Vec<u8>,
    code: u8,
    mode: u64,
    seconds: i64,
    nanoseconds: Option<u32>,
    on_the_way: bool,
    names: Names,
    details: Vec<u8>,
}

/// The other names of an entry.
#[derive(Debug, Clone, Copy)]
enum Names {
    None,
    First,
    To(u64),
}

impl Item {
    /// Makes a regular file of a declared size.
    pub fn file(name: impl AsRef<[u8]>, size: u64) -> Self {
        let mut details = Vec::new();
        put_int(&mut details, size);
        Self::new(name.as_ref(), 0, details)
    }

    /// Makes a directory.
    pub fn dir(name: impl AsRef<[u8]>) -> Self {
        Self::new(name.as_ref(), 1, Vec::new())
    }

    /// Makes an entry of which only the name is told.
    pub fn hidden(name: impl AsRef<[u8]>) -> Self {
        Self::new(name.as_ref(), 7, Vec::new()).mode(0).at(0)
    }

    /// Makes a symbolic link.
    pub fn symlink(name: impl AsRef<[u8]>, target: &[u8]) -> Self {
        let mut details = Vec::new();
        put_int(&mut details, target.len() as u64);
        details.extend_from_slice(target);
        Self::new(name.as_ref(), 2, details)
    }

    /// Makes an entry of any type; `details` are the raw bytes after its times.
    pub fn new(name: &[u8], code: u8, details: Vec<u8>) -> Self {
        let (name, mode, seconds) = (name.to_vec(), 0o755, 1_000_000_000);
        Self { name, code, mode, seconds, nanoseconds: None, on_the_way: false, names: Names::None, details }
    }

    /// Makes it a directory on the way to what operands name.
    #[must_use]
    pub fn on_the_way(mut self) -> Self {
        self.on_the_way = true;
        self
    }

    /// Makes it the first of several names.
    #[must_use]
    pub fn first_of_several(mut self) -> Self {
        self.names = Names::First;
        self
    }

    /// Makes it another name of an entry.
    #[must_use]
    pub fn another_name_of(mut self, first: u64) -> Self {
        self.names = Names::To(first);
        self
    }

    /// Sets the mode, unknown bits included.
    #[must_use]
    pub fn mode(mut self, mode: u64) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the seconds of the time, of which no nanoseconds are given.
    #[must_use]
    pub fn at(mut self, seconds: i64) -> Self {
        self.seconds = seconds;
        self
    }

    /// Sets the time, impossible ones included.
    #[must_use]
    pub fn time(mut self, seconds: i64, nanoseconds: u32) -> Self {
        (self.seconds, self.nanoseconds) = (seconds, Some(nanoseconds));
        self
    }
}

/// Makes a `Listing` of a directory: its last part, read completely.
pub fn listing(dir: u64, items: &[Item]) -> Vec<u8> {
    listing_part(dir, 3, items)
}

/// Makes a `Listing` with any flags.
pub fn listing_part(dir: u64, flags: u8, items: &[Item]) -> Vec<u8> {
    raw_listing(dir, flags, &entries(items))
}

/// Makes a `Listing` whose content is given as bytes.
pub fn raw_listing(dir: u64, flags: u8, content: &[u8]) -> Vec<u8> {
    Message::new(7).int(dir).byte(flags).raw(content).frame()
}

/// Returns the content of a listing's `packed`.
pub fn entries(items: &[Item]) -> Vec<u8> {
    // No attribute sets.
    let mut out = vec![0];
    put_int(&mut out, items.len() as u64);
    let (mut before, mut seconds): (&[u8], i64) = (&[], 0);
    for item in items {
        let shared = item.name.iter().zip(before).take_while(|(a, b)| a == b).count();
        let names = match item.names {
            Names::None => 0,
            Names::First => 2,
            Names::To(_) => 4,
        };
        let more = names | if item.on_the_way { 16 } else { 0 };
        let has_more = if more == 0 { 0 } else { 128 };
        out.push(item.code | if item.nanoseconds.is_some() { 32 } else { 0 } | has_more);
        out.extend((more != 0).then_some(more));
        put_int(&mut out, shared as u64);
        put_int(&mut out, (item.name.len() - shared) as u64);
        out.extend_from_slice(&item.name[shared..]);
        put_int(&mut out, item.mode);
        put_int(&mut out, 0);
        put_int(&mut out, 0);
        put_int(&mut out, zigzag(item.seconds.wrapping_sub(seconds)));
        out.extend(item.nanoseconds.iter().flat_map(|nanoseconds| nanoseconds.to_le_bytes()));
        if let Names::To(first) = item.names {
            put_int(&mut out, first);
        }
        out.extend_from_slice(&item.details);
        (before, seconds) = (&item.name, item.seconds);
    }
    out
}

/// Packs content into an LZ4 block that shortens runs of equal bytes.
pub fn lz4(content: &[u8]) -> Vec<u8> {
    fn length(out: &mut Vec<u8>, mut rest: usize) {
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest.to_le_bytes()[0]);
    }
    fn literals(out: &mut Vec<u8>, bytes: &[u8], matched: Option<usize>) {
        let (low, high) = (matched.map_or(0, |len| (len - 4).min(15)), bytes.len().min(15));
        out.push((high << 4 | low).to_le_bytes()[0]);
        if high == 15 {
            length(out, bytes.len() - 15);
        }
        out.extend_from_slice(bytes);
        if let Some(matched) = matched {
            out.extend_from_slice(&1_u16.to_le_bytes());
            if low == 15 {
                length(out, matched - 4 - 15);
            }
        }
    }
    let (mut out, mut sent, mut at) = (Vec::new(), 0, 1);
    // The end of a block is literals.
    let most = content.len().saturating_sub(12);
    while at < most {
        let run = content[at..most].iter().take_while(|&&byte| byte == content[at - 1]).count();
        if run >= 16 {
            literals(&mut out, &content[sent..at], Some(run));
            sent = at + run;
        }
        at += run.max(1);
    }
    literals(&mut out, &content[sent..], None);
    out
}

/// Appends an `int`.
pub fn put_int(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Takes an `int` from the front.
///
/// # Panics
/// If there is none.
pub fn take_int(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("an integer");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}
