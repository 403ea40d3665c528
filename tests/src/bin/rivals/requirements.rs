//! The requirements: what has to hold, on which path or disk, and how much of it.

use std::time::Duration;

use dsync_tests::{
    Via,
    lab::{Conditions, Path},
};

use crate::{
    disk::{self, Kind},
    input::Input,
};

/// One requirement: a row of the table.
pub(crate) struct Requirement {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) what: What,
    /// The bar that the figure must reach or may not exceed.
    pub(crate) bar: Bar,
}

/// Place of a measurement.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Over a path, in a directory of memory.
    Over(fn() -> Path),
    /// Over loopback or without it, on a cold disk.
    On(&'static str),
}

/// A bar for a figure.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

/// The figure to measure.
#[derive(Clone, Copy)]
pub(crate) enum What {
    /// Times as fast as the fastest of the others.
    Faster(Faster),
    /// The payload of a whole run, login included, as a share of the path's rate.
    RunShare { mib: u64 },
    /// The same, between the arrival of the first half of the bytes and of the last.
    LateShare { mib: u64 },
    /// Mbit/s from memory to memory in six seconds, including the start.
    Pump,
    /// The smaller share of the path, in per cent, of two flows: ours and one of TCP CUBIC.
    Sharing { transport: &'static str, seconds: u64, ours_first: bool },
    /// Deviation of ten seconds of a limited run from the limit, in per cent.
    BandwidthLimit { via: Via, mib_per_second: u64 },
}

/// A race of one of ours beside others, by the names of their tools.
#[derive(Clone, Copy)]
pub(crate) struct Faster {
    pub(crate) input: Input,
    pub(crate) mib: u64,
    pub(crate) ours: &'static str,
    pub(crate) others: &'static [&'static str],
    pub(crate) cpu: Cpu,
    pub(crate) limit: Limit,
}

/// A bar for the processor time of both ends.
#[derive(Clone, Copy)]
pub(crate) enum Cpu {
    /// None.
    Any,
    /// At most this share of that of the fastest of the others.
    Share(f64),
    /// At most these seconds.
    Seconds(f64),
}

/// Bound that no program is faster than.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Unknown.
    Unknown,
    /// The payload at the path's rate.
    Line,
    /// The time of this tool, which does nothing but the part that nobody can leave out.
    Tool(&'static str),
}

impl Limit {
    /// Copies each byte and makes each name once.
    const COPY: Self = Self::Tool("cp-local");
    /// Looks at each entry of both ends once.
    const LOOK: Self = Self::Tool("look");
    /// Reads each file once, as many at a time as the disk serves.
    const READ: Self = Self::Tool("cat-32");
    /// Reads each file of both ends once.
    const READ_BOTH: Self = Self::Tool("cat-both");
}

impl Requirement {
    /// Sets the bar for the processor time.
    const fn cpu(mut self, cpu: Cpu) -> Self {
        if let What::Faster(faster) = &mut self.what {
            faster.cpu = cpu;
        }
        self
    }

    /// Sets the physical limit.
    const fn limit(mut self, limit: Limit) -> Self {
        if let What::Faster(faster) = &mut self.what {
            faster.limit = limit;
        }
        self
    }
}

impl Bar {
    /// Returns whether a figure is on the right side of it.
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }

    /// Returns its words in the table.
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least:.2}"),
            Self::AtMost(most) => format!("<= {most:.2}"),
        }
    }
}

fn named(name: &str) -> Path {
    Path::named(name).expect("a named path")
}

fn over(megabits: u64, milliseconds: u64, loss: f64) -> Path {
    Path::over(Conditions { loss, ..Conditions::of(megabits, Duration::from_millis(milliseconds)) })
}

const LO: Place = Place::Over(|| named("lo"));
const VETH: Place = Place::Over(|| named("veth"));
const JUMBO: Place = Place::Over(|| named("jumbo"));
const LAN: Place = Place::Over(|| named("lan"));
const WAN: Place = Place::Over(|| named("wan"));
const SAT: Place = Place::Over(|| named("sat"));
const HOTEL: Place = Place::Over(|| named("hotel"));

/// rsync over the ssh cipher that is fastest here.
const RSYNC: &[&str] = &["rsync-ssh-aes128gcm"];
const RSYNC_SSH: &[&str] = &["rsync-ssh"];
const DAEMON: &[&str] = &["rsync-daemon"];
const FIXED: &[&str] = &["dsync-quic", "dsync-tls"];
/// Everything else that encrypts.
const ENCRYPTED: &[&str] =
    &["scp", "sftp", "tar-ssh", "tar-lz4-ssh", "tar-zstd-ssh", "rclone-sftp", "qcp", "sparsync"];
const COMPRESSING: &[&str] = &["rsync-ssh-zstd", "tar-lz4-ssh", "tar-zstd-ssh"];
const HERE: &[&str] = &["cp-local", "rsync-local"];

/// All of them, in the order of the table.
pub(crate) const ALL: &[Requirement] = &[
    race("lo-one", LO, (Input::One, 1024), "dsync-auto", RSYNC, 2.8).cpu(Cpu::Share(0.35)).limit(Limit::COPY),
    race("lo-many", LO, (Input::Many, 1024), "dsync-auto", RSYNC, 2.8)
        .cpu(Cpu::Share(0.35))
        .limit(Limit::COPY),
    race("lo-small", LO, (Input::Files, 0), "dsync-auto", RSYNC, 2.2)
        .cpu(Cpu::Share(0.45))
        .limit(Limit::COPY),
    race("lo-same", LO, (Input::Archive, 0), "dsync-auto", RSYNC, 1.0 / 0.7).limit(Limit::LOOK),
    race("local-million", LO, (Input::MillionSame, 0), "dsync-local", &["rsync-local"], 1.0 / 0.45)
        .limit(Limit::LOOK),
    race("lo-million", LO, (Input::MillionSame, 0), "dsync-auto", RSYNC, 1.0 / 0.45).limit(Limit::LOOK),
    race("lo-delta", LO, (Input::Delta, 1024), "dsync-auto", RSYNC, 2.0).limit(Limit::READ_BOTH),
    race("lo-dump", LO, (Input::Dump, 1024), "dsync-auto", RSYNC, 1.0 / 0.7).limit(Limit::READ_BOTH),
    race("lo-rivals", LO, (Input::One, 256), "dsync-auto", ENCRYPTED, 1.0).limit(Limit::COPY),
    race("lo-mixed", LO, (Input::Mixed, 0), "dsync-serve", &["sparsync"], 1.0).limit(Limit::COPY),
    race("lo-mixed-same", LO, (Input::MixedSame, 0), "dsync-serve", &["sparsync"], 1.0),
    race("lo-mixed-changed", LO, (Input::MixedChanged, 0), "dsync-serve", &["sparsync"], 1.0),
    race("port-one", LO, (Input::One, 1024), "dsync-serve", DAEMON, 1.0).limit(Limit::COPY),
    race("port-many", LO, (Input::Many, 1024), "dsync-serve", DAEMON, 1.0).limit(Limit::COPY),
    race("port-same", LO, (Input::Archive, 0), "dsync-serve", DAEMON, 1.0 / 0.6).limit(Limit::LOOK),
    race("veth-auto", VETH, (Input::One, 1024), "dsync-auto", FIXED, 0.92).limit(Limit::COPY),
    race("veth-quic", VETH, (Input::One, 1024), "dsync-quic", RSYNC, 2.0)
        .cpu(Cpu::Seconds(2.6))
        .limit(Limit::COPY),
    race("jumbo-auto", JUMBO, (Input::One, 1024), "dsync-auto", FIXED, 0.92).limit(Limit::COPY),
    race("lan-one-1g", LAN, (Input::One, 1024), "dsync-auto", &["tar-nc"], 0.97).limit(Limit::Line),
    race("lan-one", LAN, (Input::One, 4096), "dsync-auto", &["tar-nc"], 0.97).limit(Limit::Line),
    race("lan-log", LAN, (Input::Log, 1024), "dsync-auto", COMPRESSING, 1.5),
    race("lan-log-lz4", LAN, (Input::Log, 1024), "dsync-auto", &["rsync-ssh-lz4"], 1.0),
    race("lan-log-quic", LAN, (Input::Log, 1024), "dsync-quic", &["dsync-tls"], 1.0 / 1.15),
    race("wan-one", WAN, (Input::One, 64), "dsync-auto", RSYNC_SSH, 10.0).limit(Limit::Line),
    race("wan-few", WAN, (Input::Few, 0), "dsync-auto", RSYNC_SSH, 10.0).limit(Limit::Line),
    race("wan-auto", WAN, (Input::One, 64), "dsync-auto", FIXED, 0.92).limit(Limit::Line),
    race("sat-auto", SAT, (Input::One, 32), "dsync-auto", FIXED, 0.92).limit(Limit::Line),
    race("hotel-auto", HOTEL, (Input::One, 16), "dsync-auto", &["dsync-tls"], 0.92).limit(Limit::Line),
    race("ext4-local", Place::On("ext4"), (Input::Files, 0), "dsync-local", HERE, 2.2).limit(Limit::READ),
    race("ext4-push", Place::On("ext4"), (Input::Files, 0), "dsync-auto", RSYNC, 2.2).limit(Limit::READ),
    race("ext4-pull", Place::On("ext4"), (Input::Files, 0), "dsync-pull", PULL, 2.2).limit(Limit::READ),
    race("ext4-same", Place::On("ext4"), (Input::FilesSame, 0), "dsync-local", &["rsync-local"], 2.5)
        .limit(Limit::LOOK),
    race("xfs-local", Place::On("xfs"), (Input::Files, 0), "dsync-local", HERE, 2.2).limit(Limit::READ),
    race("xfs-push", Place::On("xfs"), (Input::Files, 0), "dsync-auto", RSYNC, 2.2).limit(Limit::READ),
    race("xfs-pull", Place::On("xfs"), (Input::Files, 0), "dsync-pull", PULL, 2.2).limit(Limit::READ),
    race("xfs-same", Place::On("xfs"), (Input::FilesSame, 0), "dsync-local", &["rsync-local"], 2.5)
        .limit(Limit::LOOK),
    race("hard-disk-few", Place::On("hard-disk"), (Input::Few, 0), "dsync-local", HERE, 3.0)
        .limit(Limit::READ),
    race("hard-disk-same", Place::On("hard-disk"), (Input::FewSame, 0), "dsync-local", &["rsync-local"], 3.0)
        .limit(Limit::LOOK),
    race("volume-few", Place::On("volume"), (Input::Few, 0), "dsync-local", HERE, 3.0).limit(Limit::READ),
    race("volume-same", Place::On("volume"), (Input::FewSame, 0), "dsync-local", &["rsync-local"], 3.0)
        .limit(Limit::LOOK),
    flow("wan-rate", WAN, What::RunShare { mib: 64 }, Bar::AtLeast(0.7)),
    flow("sat-rate", SAT, What::LateShare { mib: 64 }, Bar::AtLeast(0.6)),
    flow("pump-100ms-0", Place::Over(|| over(1000, 100, 0.0)), What::Pump, Bar::AtLeast(700.0)),
    flow("pump-100ms-0.1", Place::Over(|| over(1000, 100, 0.001)), What::Pump, Bar::AtLeast(700.0)),
    flow("pump-100ms-1", Place::Over(|| over(1000, 100, 0.01)), What::Pump, Bar::AtLeast(700.0)),
    flow("pump-20ms-1", Place::Over(|| over(1000, 20, 0.01)), What::Pump, Bar::AtLeast(850.0)),
    sharing("cubic-20s-ours-first", "quic", 20, true),
    sharing("cubic-20s-tcp-first", "quic", 20, false),
    sharing("cubic-60s-ours-first", "quic", 60, true),
    sharing("cubic-60s-tcp-first", "quic", 60, false),
    sharing("cubic-20s-tls-first", "tls", 20, true),
    sharing("cubic-20s-tls-later", "tls", 20, false),
    limited("bwlimit-quic", Via::Quic),
    limited("bwlimit-tls", Via::Tls),
    limited("bwlimit-ssh", Via::Ssh),
];

const PULL: &[&str] = &["rsync-pull"];

const fn race(
    name: &'static str,
    place: Place,
    (input, mib): (Input, u64),
    ours: &'static str,
    others: &'static [&'static str],
    least: f64,
) -> Requirement {
    let what = What::Faster(Faster { input, mib, ours, others, cpu: Cpu::Any, limit: Limit::Unknown });
    flow(name, place, what, Bar::AtLeast(least))
}

const fn flow(name: &'static str, place: Place, what: What, bar: Bar) -> Requirement {
    Requirement { name, place, what, bar }
}

const fn sharing(name: &'static str, transport: &'static str, seconds: u64, ours_first: bool) -> Requirement {
    let what = What::Sharing { transport, seconds, ours_first };
    flow(name, Place::Over(|| over(100, 40, 0.0)), what, Bar::AtLeast(25.0))
}

const fn limited(name: &'static str, via: Via) -> Requirement {
    flow(name, VETH, What::BandwidthLimit { via, mib_per_second: 16 }, Bar::AtMost(5.0))
}

impl Place {
    /// Returns the path to the other host.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::Over(path) => path(),
            Self::On(_) => named("lo"),
        }
    }

    /// Returns the disk, where there is one.
    pub(crate) fn disk(self) -> Option<&'static Kind> {
        match self {
            Self::Over(_) => None,
            Self::On(name) => Some(disk::Kind::named(name).expect("a named disk")),
        }
    }

    /// Returns its words in the table.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Over(path) => path().to_string(),
            Self::On(name) => format!("{name}, cold"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool;

    #[test]
    fn every_requirement_names_tools_and_disks_that_exist_and_fit() {
        for row in ALL {
            let near = !matches!(row.place.path().medium, dsync_tests::lab::Medium::Link(_));
            let _ = row.place.disk();
            let What::Faster(Faster { input, ours, others, limit, .. }) = row.what else { continue };
            let limit = if let Limit::Tool(name) = limit { Some(name) } else { None };
            for name in others.iter().copied().chain([ours]).chain(limit) {
                let tool = tool::ALL.iter().find(|tool| tool.name == name);
                assert!(tool.is_some_and(|tool| tool.fits(input, near)), "{}: {name}", row.name);
            }
        }
    }

    #[test]
    fn names_are_used_once() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
