//! Network namespaces: a loopback of one test's own, on which packets can be dropped.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::{run::Run, skip::is_root};

/// A network namespace with its loopback up. It lives as long as this value.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes a namespace; returns `None` if the process may not.
    ///
    /// # Panics
    /// If it was made but its loopback cannot be brought up.
    pub fn create() -> Option<Self> {
        if !is_root() {
            return None;
        }
        // The holder ends with its stdin, so it cannot outlive the test, however that ends.
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("stdout is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        if read.is_err() || line.trim() != "up" {
            let _ = holder.kill();
            let _ = holder.wait();
            return None;
        }
        Some(Self { holder })
    }

    /// Returns the words before a command that make it run inside.
    pub fn enter(&self) -> Vec<OsString> {
        vec!["nsenter".into(), format!("--net={}", self.handle().display()).into(), "--".into()]
    }

    /// Drops every UDP packet that arrives on the loopback, without an answer, as firewalls do.
    ///
    /// # Panics
    /// If the rules cannot be set.
    pub fn drop_udp(&self) {
        self.drop("meta l4proto udp");
    }

    /// Drops new TCP connections to every port except one, likewise.
    ///
    /// # Panics
    /// If the rules cannot be set.
    pub fn drop_tcp_but(&self, port: u16) {
        self.drop(&format!("tcp flags & (syn | ack) == syn tcp dport != {port}"));
    }

    /// Drops the packets of one TCP connection in both directions, likewise, by the port of one of its ends.
    ///
    /// # Panics
    /// If the rules cannot be set.
    pub fn drop_connection(&self, port: u16) {
        self.drop(&format!("tcp sport {port}"));
        self.drop(&format!("tcp dport {port}"));
    }

    /// Returns the TCP connections that are established: the ports of an end, its own and the peer's, and
    /// the bytes that the peer has acknowledged. Each connection has two ends here.
    ///
    /// # Panics
    /// If `ss` cannot be run.
    pub fn connections(&self) -> Vec<([u16; 2], u64)> {
        let said = Run::of("ss").args(["-HtniO", "state", "established"]).within(self).run().expect_code(0);
        let parse = |line: &str| {
            let mut words = line.split_whitespace().skip(2);
            let mut port = || words.next()?.rsplit_once(':')?.1.parse().ok();
            let ports = [port()?, port()?];
            let acknowledged = words.find_map(|word| word.strip_prefix("bytes_acked:")?.parse().ok());
            Some((ports, acknowledged.unwrap_or_default()))
        };
        said.stdout_text().lines().filter_map(parse).collect()
    }

    fn drop(&self, packets: &str) {
        let rules = format!(
            "add table inet dsync; \
             add chain inet dsync in {{ type filter hook input priority 0; }}; \
             add rule inet dsync in {packets} drop"
        );
        let _ = Run::of("nft").arg(rules).within(self).run().expect_code(0);
    }

    /// Returns the file that represents it.
    pub fn handle(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// Returns the bytes that have crossed the loopback so far, headers included, both directions.
    ///
    /// # Panics
    /// If the counters cannot be read.
    pub fn wire_bytes(&self) -> u64 {
        self.traffic("lo").received_bytes
    }

    /// Returns the traffic of one of its interfaces so far.
    ///
    /// # Panics
    /// If there is no such interface.
    pub fn traffic(&self, interface: &str) -> Traffic {
        let outcome = Run::of("cat").arg("/proc/self/net/dev").within(self).run().expect_code(0);
        let text = outcome.stdout_text();
        let own = |line: &str| line.trim().strip_prefix(interface)?.strip_prefix(':').map(str::to_owned);
        let line = text.lines().find_map(own).expect("the interface's counters");
        let counters: Vec<u64> = line.split_whitespace().map_while(|count| count.parse().ok()).collect();
        assert_eq!(counters.len(), 16, "{line}");
        Traffic {
            received_bytes: counters[0],
            received_packets: counters[1],
            sent_bytes: counters[8],
            sent_packets: counters[9],
            sent_drops: counters[11],
        }
    }
}

/// The traffic of an interface, as counted by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets to send that found no room.
    pub sent_drops: u64,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
