//! The lab: two hosts on one machine, joined by a path of chosen quality.
//!
//! A [`Lab`] is two network namespaces and an sshd in the far one. Between them is the loopback, a
//! pair of virtual cards, or two TUN devices joined by our own link emulator (`link.rs` is the
//! model). Both hosts see the same files. Dropping the value removes all of it.
//!
//! The emulator works in user space, on its users' cores. [`Conditions`] hold up to about 1 Gbit/s.
//! Packets that it was too slow to take are counted as [`Counts::overrun`], and a run with many of
//! them measured the machine, not the path.

mod emulator;
pub mod flags;
mod link;
mod path;

use std::{fs, io, os::fd::AsFd, thread, time::Duration};

use emulator::Emulator;
pub use path::{Burst, Conditions, Medium, Path};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::{Run, namespace::Namespace, sshd::Sshd};

/// The interface of both hosts.
const INTERFACE: &str = "lab";
const NEAR: &str = "10.77.0.1";
const NEAR_LATER: &str = "10.77.0.3";
const FAR: &str = "10.77.0.2";
const NETWORK: &str = "10.77.0.0/24";
const LOOPBACK: &str = "127.0.0.1";

/// Packets that wait in a device for the emulator: those of 1 Gbit/s in 100 ms, because other
/// processes run here too.
const DEVICE_QUEUE: u32 = 10_000;

/// Two hosts and the path between them.
#[derive(Debug)]
pub struct Lab {
    // In the order in which they must be dropped.
    sshd: Sshd,
    path: Path,
    emulator: Option<Emulator>,
    near: Namespace,
    /// None if both are one.
    far: Option<Namespace>,
}

/// Packets of one direction, by their fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the sender passed to the path.
    pub offered_packets: u64,
    /// Their bytes, IP headers included.
    pub offered_bytes: u64,
    /// Packets that the receiver got.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Dropped because the queue was full.
    pub queue: u64,
    /// Lost at random or in a burst.
    pub loss: u64,
    /// UDP packets dropped because UDP is blocked.
    pub blocked: u64,
    /// Lost while the path was cut.
    pub cut: u64,
    /// Never taken by the emulator, because it got no processor: not a property of the path.
    pub overrun: u64,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.offered_packets += more.offered_packets;
        self.offered_bytes += more.offered_bytes;
        self.delivered_packets += more.delivered_packets;
        self.delivered_bytes += more.delivered_bytes;
        self.queue += more.queue;
        self.loss += more.loss;
        self.blocked += more.blocked;
        self.cut += more.cut;
        self.overrun += more.overrun;
    }
}

impl Lab {
    /// Builds the hosts and the path; returns `None` if the process may not make namespaces or
    /// devices.
    ///
    /// # Panics
    /// If it may, but something else is missing.
    pub fn create(path: &Path) -> Option<Self> {
        let near = Namespace::create()?;
        let (emulator, far) = match path.medium {
            Medium::Loopback => (None, None),
            Medium::Pair => {
                let far = Namespace::create()?;
                pair(&near, &far);
                (None, Some(far))
            }
            Medium::Link(conditions) => {
                let far = Namespace::create()?;
                let devices = [device(&near).ok()?, device(&far).ok()?];
                let [near_device, far_device] = devices;
                let emulator = Emulator::start(near_device, far_device, conditions).expect("the emulator");
                (Some(emulator), Some(far))
            }
        };
        if let Some(far) = &far {
            set_up(&near, NEAR, path);
            set_up(far, FAR, path);
        } else {
            let route = "route replace local 127.0.0.1 dev lo table local src 127.0.0.1";
            shell(&near, &format!("ip {route} congctl {}", path.congestion));
        }
        let (address, host) = match &far {
            Some(far) => (FAR, far),
            None => (LOOPBACK, &near),
        };
        let sshd = Sshd::start(address, Some(host));
        Some(Self { sshd, path: *path, emulator, near, far })
    }

    /// Returns the host that runs are started on.
    pub fn near(&self) -> &Namespace {
        &self.near
    }

    /// Returns the host that sshd runs on.
    pub fn far(&self) -> &Namespace {
        self.far.as_ref().unwrap_or(&self.near)
    }

    /// Returns the far host's address.
    pub fn host(&self) -> &'static str {
        if self.far.is_some() { FAR } else { LOOPBACK }
    }

    /// Returns the far host's sshd; its runs must be started [`Run::within`] the near host.
    pub fn sshd(&self) -> &Sshd {
        &self.sshd
    }

    /// Blocks the path for this long, both ways, without notifying either host; zero restores it at
    /// once.
    ///
    /// # Panics
    /// If the path is not an emulated link.
    pub fn cut(&self, time: Duration) {
        self.emulator.as_ref().expect("an emulated link can be cut").cut(time);
    }

    /// Blocks the path, both ways, from the packet on with which this many bytes have arrived at
    /// the far host, until [`Lab::cut`] changes that. Anything that uses the path is then caught in
    /// the middle, however late anybody looks.
    ///
    /// # Panics
    /// If the path is not an emulated link.
    pub fn cut_after(&self, bytes: u64) {
        self.emulator.as_ref().expect("an emulated link can be cut").cut_after(bytes);
    }

    /// Changes the path's conditions, both ways, once this many bytes have arrived at the far host.
    /// One change for each lab.
    ///
    /// # Panics
    /// If the path is not an emulated link.
    pub fn change_after(&self, bytes: u64, conditions: Conditions) {
        self.emulator.as_ref().expect("an emulated link can change").change_after(bytes, conditions);
    }

    /// Changes the near host's address for another one, as a change of networks does.
    ///
    /// # Panics
    /// If both hosts are one, or it was done before.
    pub fn change_near_address(&self) {
        assert!(self.far.is_some(), "the loopback keeps its address");
        shell(&self.near, &format!("ip addr del {NEAR}/24 dev {INTERFACE}"));
        set_up(&self.near, NEAR_LATER, &self.path);
    }

    /// Returns the counts so far: near to far, far to near. The loopback counts everything as the
    /// first.
    pub fn counts(&self) -> [Counts; 2] {
        let Some(emulator) = &self.emulator else {
            let interface = if self.far.is_some() { INTERFACE } else { "lo" };
            let traffic = self.near.traffic(interface);
            let passed = |bytes, packets| Counts {
                offered_packets: packets,
                offered_bytes: bytes,
                delivered_packets: packets,
                delivered_bytes: bytes,
                ..Counts::default()
            };
            let back = if self.far.is_some() {
                passed(traffic.received_bytes, traffic.received_packets)
            } else {
                Counts::default()
            };
            return [passed(traffic.sent_bytes, traffic.sent_packets), back];
        };
        let [mut out, mut back] = emulator.counts();
        out.overrun = self.near.traffic(INTERFACE).sent_drops;
        back.overrun = self.far().traffic(INTERFACE).sent_drops;
        [out, back]
    }
}

/// Brings a host's interface up. TCP's congestion control is set on the route, because the kernel
/// permits only its unrestricted ones as a namespace's default. IPv6 would add packets of its own
/// to the counted ones.
fn set_up(host: &Namespace, address: &str, path: &Path) {
    let (mtu, congestion) = (path.mtu, path.congestion);
    shell(
        host,
        &format!(
            "set -e; echo 1 >/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6 2>/dev/null || true; \
             ip link set {INTERFACE} mtu {mtu} up; ip addr add {address}/24 dev {INTERFACE}; \
             ip route replace {NETWORK} dev {INTERFACE} src {address} congctl {congestion}; \
             echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save"
        ),
    );
}

/// Makes a TUN device inside a namespace: a thread enters the namespace for it, the device stays.
fn device(namespace: &Namespace) -> io::Result<SyncDevice> {
    let place = fs::File::open(namespace.handle())?;
    let made = thread::spawn(move || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))?;
        DeviceBuilder::new().name(INTERFACE).tx_queue_len(DEVICE_QUEUE).enable(false).build_sync()
    });
    made.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the device ended")))
}

/// Joins two namespaces with a pair of virtual cards.
fn pair(near: &Namespace, far: &Namespace) {
    let peer = far.handle();
    let peer = peer.components().nth(2).expect("/proc/PID/ns/net").as_os_str().to_string_lossy().into_owned();
    shell(near, &format!("ip link add {INTERFACE} type veth peer name {INTERFACE} netns {peer}"));
}

fn shell(namespace: &Namespace, script: &str) {
    let _ = Run::of("sh").args(["-c", script]).within(namespace).run().expect_code(0);
}
