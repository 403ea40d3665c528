//! Whole sessions: a peer sends a sequence of messages to an end of dsync over the memory link.
//!
//! The input is a script. Most of its messages are legal and in order, so that a session gets far;
//! some have damaged bytes, arrive at the wrong time, or are arbitrary bytes.
//!
//! The oracles: no panic (libFuzzer ends the process on the first one, in any thread), no hang,
//! memory within the limit of the end under test, and no change outside the tree.

mod destination;
mod script;
mod source;

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_delta::Key;
use dsync_engine::{CancelToken, Resources, Server, Silent, Stream, SyncError, SyncOptions};
use dsync_transport::memory::{MemoryLink, pair};
use dsync_wire::{
    codec::{encode_control, encode_data},
    compress::Packer,
    frame::ControlReceiver,
    link::{CloseReason, LaneRead, LaneWrite, Link},
    message::{Asked, ControlMessage, DataMessage, Fatal, Hello, ListPlace, PeerRole, Start},
    version::{FEATURES, VERSION},
};

use self::script::Script;
use crate::within_memory;

/// The role of dsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer is the source.
    Destination,
    /// The peer is the destination.
    Source,
}

/// Limit of memory (`--max-alloc`) of the end under test, in bytes.
const MAX_ALLOC: u64 = 16 << 20;
/// Memory beyond that limit: queues of the link (4 MiB for each lane and direction), threads,
/// buffers of lanes and compression.
const FIXED: usize = 160 << 20;
/// Time for which the peer waits for an optional answer.
const PATIENCE: Duration = Duration::from_millis(15);
/// Limit for a session's duration.
const LIMIT: Duration = Duration::from_secs(8);

/// Runs one session.
///
/// # Panics
/// When an oracle fails.
pub fn run(role: Role, data: &[u8]) {
    let arena = Arena::new();
    let before = arena.outside();
    let begun = Instant::now();
    let outcome = within_memory(FIXED + 2 * (MAX_ALLOC as usize), data.len(), || {
        let (here, there) = pair();
        let resources = Resources::default().max_alloc(MAX_ALLOC).max_stall(LIMIT);
        let server = Server::new(Stream::from_link(Arc::new(there))).timeout(LIMIT).resources(resources);
        let under_test = thread::spawn(move || server.serve(&Silent, &CancelToken::new()));
        talk(role, here, &arena, Script::new(data));
        under_test.join().expect("an end without a panic")
    });
    assert!(begun.elapsed() < LIMIT, "a session took {:?}: {outcome:?}", begun.elapsed());
    assert!(!matches!(outcome, Err(SyncError::Aborted { .. })), "{outcome:?}");
    assert_eq!(arena.outside(), before, "after {outcome:?}");
}

/// Plays the other end until the script is over.
fn talk(role: Role, link: MemoryLink, arena: &Arena, mut script: Script<'_>) {
    let link = Arc::new(link);
    let Ok(lane) = link.open_lane() else { return };
    let mut peer = Peer::new(Arc::clone(&link), lane.tx, lane.rx);
    let options = script::options(&mut script);
    let role_message = match role {
        Role::Destination => {
            let asked = Asked { contents: true, names: None, paths: Vec::new() };
            PeerRole::Destination { path: slashed(&arena.tree()), asked }
        }
        Role::Source => PeerRole::Source { paths: vec![slashed(&arena.tree())] },
    };
    peer.begin(role_message, options.clone());
    match role {
        Role::Destination => source::play(&mut peer, &mut script, &options),
        Role::Source => destination::play(&mut peer, &mut script),
    }
    // The other end acts on this at once, so it waits for no other.
    peer.say(&ControlMessage::Fatal(Fatal { exit_code: 20, text: b"enough".to_vec(), reason: None }), None);
    // Damage may have left the other end inside a frame; there it hears the end of the lane.
    let _ = peer.control.finish();
    // Wait until it hangs up.
    while peer.hear(LIMIT).is_some() {}
    link.close(CloseReason::Failed);
}

/// The end that the script drives.
struct Peer {
    link: Arc<MemoryLink>,
    control: Box<dyn LaneWrite>,
    packer: Packer,
    heard: Receiver<ControlMessage>,
    key: Key,
    lanes: Vec<Box<dyn LaneWrite>>,
}

/// Damage to a byte of a frame: its position, and the mask to XOR it with.
type Damage = Option<(usize, u8)>;

impl Peer {
    fn new(link: Arc<MemoryLink>, control: Box<dyn LaneWrite>, replies: Box<dyn LaneRead>) -> Self {
        let (told, heard) = channel();
        let ending = Arc::clone(&link);
        thread::spawn(move || listen(replies, &told, &ending));
        let lanes = Arc::clone(&link);
        thread::spawn(move || {
            while let Ok(lane) = lanes.accept_lane() {
                thread::spawn(move || drain(lane.rx));
            }
        });
        let key = Key::derive(&[]);
        Self { link, control, packer: Packer::new(), heard, key, lanes: Vec::new() }
    }

    /// Sends hello and start, and waits until the other end is ready.
    fn begin(&mut self, role: PeerRole, options: SyncOptions) {
        let share = [5; 32];
        let hello = Hello { version: VERSION, features: FEATURES, key_share: share };
        self.say(&ControlMessage::Hello(hello), None);
        let start = Start { role, options, data_lanes: LANES, again: None, list: ListPlace::None };
        self.say(&ControlMessage::Start(Box::new(start)), None);
        while let Some(message) = self.hear(LIMIT) {
            match message {
                ControlMessage::Hello(theirs) => self.key = Key::derive(&[&share, &theirs.key_share]),
                ControlMessage::Ready { .. } => return,
                _ => {}
            }
        }
    }

    /// Sends a control message. Ignores errors: they mean that the session is over.
    fn say(&mut self, message: &ControlMessage, damage: Damage) {
        let mut frame = Vec::new();
        if encode_control(message, &mut self.packer, &mut frame).is_ok() {
            spoil(&mut frame, damage);
            let _ = self.control.write(frame.into());
        }
    }

    /// Sends arbitrary bytes on the control lane.
    fn say_raw(&mut self, bytes: Vec<u8>) {
        let _ = self.control.write(bytes.into());
    }

    /// Opens a data lane.
    fn open(&mut self, number: u8) {
        if self.lanes.len() < 70
            && let Ok(lane) = self.link.open_lane()
        {
            self.lanes.push(lane.tx);
            thread::spawn(move || drain(lane.rx));
            let last = self.lanes.len() - 1;
            self.send(last, &DataMessage::LaneStart { lane: number }, None);
        }
    }

    /// Sends a message on an open data lane.
    fn send(&mut self, lane: usize, message: &DataMessage, damage: Damage) {
        let mut frame = Vec::new();
        let Ok(tail) = encode_data(message, &mut frame) else { return };
        frame.extend_from_slice(tail.unwrap_or(&Bytes::new()));
        spoil(&mut frame, damage);
        self.send_raw(lane, frame);
    }

    fn send_raw(&mut self, lane: usize, bytes: Vec<u8>) {
        let count = self.lanes.len();
        if count > 0 {
            let _ = self.lanes[lane % count].write(bytes.into());
        }
    }

    /// Waits a limited time for a message; skips progress, events and keep-alives.
    fn hear(&mut self, patience: Duration) -> Option<ControlMessage> {
        loop {
            match self.heard.recv_timeout(patience) {
                Ok(ControlMessage::Progress(_) | ControlMessage::Alive | ControlMessage::Event(_)) => {}
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

/// Number of data lanes of a session.
const LANES: u8 = 2;

fn spoil(frame: &mut [u8], damage: Damage) {
    if let Some((at, with)) = damage
        && !frame.is_empty()
    {
        let at = at % frame.len();
        frame[at] ^= with;
    }
}

/// Forwards the messages of the other end, and hangs up after its last one.
fn listen(lane: Box<dyn LaneRead>, told: &Sender<ControlMessage>, link: &MemoryLink) {
    let mut receiver = ControlReceiver::new(lane);
    while let Ok(Some(message)) = receiver.recv() {
        if matches!(message, ControlMessage::Fatal(_)) {
            break;
        }
        if told.send(message).is_err() {
            break;
        }
    }
    link.close(CloseReason::Failed);
}

fn drain(mut lane: Box<dyn LaneRead>) {
    let mut buffer = vec![0; 64 << 10];
    while lane.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// A tree and its surroundings.
struct Arena(PathBuf);

/// Path, mode, length, modification time and link count of everything outside the tree.
type Outside = Vec<(PathBuf, u32, u64, i64, u64)>;

impl Arena {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let shared = Path::new("/dev/shm");
        let home = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let this = Self(home.join(format!("dsync-fuzz-{}-{number}", std::process::id())));
        let _ = fs::remove_dir_all(&this.0);
        fs::create_dir_all(this.tree().join("sub")).expect("a tree");
        fs::create_dir(this.0.join("outside")).expect("a directory");
        fs::write(this.0.join("outside/canary"), "secret").expect("a file");
        fs::write(this.tree().join("kept"), vec![7; 6000]).expect("a file");
        fs::write(this.tree().join("sub/inner"), "inner").expect("a file");
        symlink("../outside", this.tree().join("out")).expect("a link");
        symlink("../outside/canary", this.tree().join("peek")).expect("a link");
        this
    }

    fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    /// Surveys everything outside the tree.
    fn outside(&self) -> Outside {
        let mut found = Outside::new();
        for dir in [self.0.clone(), self.0.join("outside")] {
            for entry in fs::read_dir(&dir).expect("the directory is there") {
                let path = entry.expect("an entry").path();
                let now = fs::symlink_metadata(&path).expect("its metadata");
                let of_tree = path == self.tree();
                // The tree itself is the destination, so its attributes may change.
                let facts = (now.mode(), now.len(), now.mtime_nsec() ^ now.mtime(), now.nlink());
                let (mode, len, time, links) = if of_tree { (0, 0, 0, 0) } else { facts };
                found.push((path, mode, len, time, links));
            }
        }
        found.sort();
        assert_eq!(fs::read(self.0.join("outside/canary")).expect("the canary"), b"secret");
        found
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn slashed(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    [path.as_os_str().as_bytes(), b"/"].concat()
}
