//! The emulated link between two TUN devices: a thread for each direction moves packets and keeps
//! count.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::SyncDevice;

use super::{
    Counts,
    link::{Cause, Fate, Link},
    path::Conditions,
};

/// Sleep of a busy direction. Packets are then moved several at a time, which lets two shared cores
/// carry 1 Gbit/s, and delays no packet by more than this.
const QUANTUM: Duration = Duration::from_micros(100);

/// Longest sleep of an idle direction before it checks whether to end.
const IDLE: Duration = Duration::from_millis(50);

/// Packets to read before those that are due are written.
const BATCH: usize = 256;

/// A running link.
#[derive(Debug)]
pub(super) struct Emulator {
    shared: Arc<Shared>,
    directions: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    since: Instant,
    stop: AtomicBool,
    /// Nothing passes until this time, in nanoseconds since the start.
    cut_until: AtomicU64,
    /// Nothing passes after this many bytes have arrived at the far end.
    cut_after: AtomicU64,
    /// Other conditions hold after this many bytes have arrived at the far end.
    change_after: AtomicU64,
    changed: AtomicBool,
    changed_to: Mutex<Option<Conditions>>,
    /// Near to far, far to near.
    counts: [Mutex<Counts>; 2],
}

impl Emulator {
    /// Joins two devices.
    pub(super) fn start(near: SyncDevice, far: SyncDevice, conditions: Conditions) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            since: Instant::now(),
            stop: AtomicBool::new(false),
            cut_until: AtomicU64::new(0),
            cut_after: AtomicU64::new(u64::MAX),
            change_after: AtomicU64::new(u64::MAX),
            changed: AtomicBool::new(false),
            changed_to: Mutex::default(),
            counts: [Mutex::default(), Mutex::default()],
        });
        let (near, far) = (Arc::new(near), Arc::new(far));
        let ends = [(Arc::clone(&near), Arc::clone(&far)), (far, near)];
        let mut emulator = Self { shared, directions: Vec::new() };
        for (index, (from, to)) in ends.into_iter().enumerate() {
            from.set_nonblocking(true)?;
            let link = Link::new(conditions, index as u64);
            let shared = Arc::clone(&emulator.shared);
            let direction = Direction {
                from,
                to,
                link,
                shared,
                index,
                waiting: BinaryHeap::new(),
                number: 0,
                has_changed: false,
            };
            let thread = thread::Builder::new().name(format!("link-{index}"));
            emulator.directions.push(thread.spawn(move || direction.run())?);
        }
        Ok(emulator)
    }

    /// Blocks the link after this many bytes have arrived at the far end.
    pub(super) fn cut_after(&self, bytes: u64) {
        self.shared.cut_after.store(bytes, Ordering::Release);
    }

    /// Changes the conditions after this many bytes have arrived at the far end.
    pub(super) fn change_after(&self, bytes: u64, conditions: Conditions) {
        *self.shared.changed_to.lock().unwrap_or_else(PoisonError::into_inner) = Some(conditions);
        self.shared.change_after.store(bytes, Ordering::Release);
    }

    /// Blocks the link for this long.
    pub(super) fn cut(&self, time: Duration) {
        self.cut_after(u64::MAX);
        let until = self.shared.since.elapsed().saturating_add(time).as_nanos();
        self.shared.cut_until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Returns the counts so far: near to far, far to near.
    pub(super) fn counts(&self) -> [Counts; 2] {
        [0, 1].map(|index| *self.shared.lock(index))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for direction in self.directions.drain(..) {
            let _ = direction.join();
        }
    }
}

impl Shared {
    fn lock(&self, index: usize) -> MutexGuard<'_, Counts> {
        self.counts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A packet in flight: its arrival time, its number, its bytes.
type Travelling = Reverse<(Duration, u64, Box<[u8]>)>;

struct Direction {
    from: Arc<SyncDevice>,
    to: Arc<SyncDevice>,
    link: Link,
    shared: Arc<Shared>,
    index: usize,
    waiting: BinaryHeap<Travelling>,
    number: u64,
    has_changed: bool,
}

impl Direction {
    fn run(mut self) {
        // The link must not wait for its users' processes. Without the right to raise its priority
        // it is only less exact.
        let _ = rustix::process::nice(-15);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while !self.shared.stop.load(Ordering::Acquire) {
            let received = self.receive(&mut buffer);
            let delivered = self.deliver();
            self.wait(received + delivered > 0);
        }
    }

    /// Reads the waiting packets, up to a batch; returns their number.
    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        let mut counts = Counts::default();
        if !self.has_changed && self.shared.changed.load(Ordering::Acquire) {
            self.has_changed = true;
            let changed_to = self.shared.changed_to.lock().unwrap_or_else(PoisonError::into_inner);
            changed_to.into_iter().for_each(|conditions| self.link.change(conditions));
        }
        for _ in 0..BATCH {
            let Ok(len) = self.from.recv(buffer) else { break };
            let now = self.shared.since.elapsed();
            let packet = &buffer[..len];
            counts.offered_packets += 1;
            counts.offered_bytes += len as u64;
            if self.is_cut(now) {
                counts.cut += 1;
                continue;
            }
            match self.link.offer(now, packet) {
                Fate::Arrives(at) => {
                    self.waiting.push(Reverse((at, self.number, packet.into())));
                    self.number += 1;
                }
                Fate::Dropped(Cause::Queue) => counts.queue += 1,
                Fate::Dropped(Cause::Loss) => counts.loss += 1,
                Fate::Dropped(Cause::Blocked) => counts.blocked += 1,
            }
        }
        self.shared.lock(self.index).add(&counts);
        counts.offered_packets as usize
    }

    /// Delivers the packets that are due; returns their number.
    fn deliver(&mut self) -> usize {
        let mut counts = Counts::default();
        let now = self.shared.since.elapsed();
        while let Some(first) = self.waiting.peek() {
            if first.0.0 > now {
                break;
            }
            let Some(Reverse((_, _, packet))) = self.waiting.pop() else { break };
            if self.is_cut(now) {
                counts.cut += 1;
                continue;
            }
            // A device that is down takes nothing, as if the far host were down.
            if self.to.send(&packet).is_ok() {
                counts.delivered_packets += 1;
                counts.delivered_bytes += packet.len() as u64;
                self.note_arrived(counts.delivered_bytes);
            }
        }
        self.shared.lock(self.index).add(&counts);
        (counts.delivered_packets + counts.cut) as usize
    }

    /// Cuts or changes the link at its limit, to the packet: `bytes` have arrived and are not
    /// counted yet.
    fn note_arrived(&self, bytes: u64) {
        let change = self.shared.change_after.load(Ordering::Acquire);
        if self.index == 0 && change != u64::MAX && self.shared.lock(0).delivered_bytes + bytes >= change {
            self.shared.changed.store(true, Ordering::Release);
        }
        let limit = self.shared.cut_after.load(Ordering::Acquire);
        if self.index == 0 && limit != u64::MAX && self.shared.lock(0).delivered_bytes + bytes >= limit {
            self.shared.cut_until.store(u64::MAX, Ordering::Release);
        }
    }

    /// Sleeps briefly if there is traffic, else until there is.
    fn wait(&self, busy: bool) {
        if busy {
            thread::sleep(QUANTUM);
            return;
        }
        let now = self.shared.since.elapsed();
        let next =
            self.waiting.peek().map_or(IDLE, |first| first.0.0.saturating_sub(now).clamp(QUANTUM, IDLE));
        let timeout = Timespec { tv_sec: 0, tv_nsec: next.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&*self.from, PollFlags::IN)], Some(&timeout));
    }

    fn is_cut(&self, now: Duration) -> bool {
        now.as_nanos() < u128::from(self.shared.cut_until.load(Ordering::Acquire))
    }
}
