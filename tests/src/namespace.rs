//! Network namespaces: a loopback of one test's own, on which UDP can be dropped.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::{run::Run, skip::is_root};

/// A network namespace with its loopback up. It lives as long as this value.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes one; `None` where the process may not.
    ///
    /// # Panics
    /// When it was made but its loopback cannot be brought up.
    pub fn create() -> Option<Self> {
        if !is_root() {
            return None;
        }
        // The holder ends with its stdin, so that it cannot outlive the test however that ends.
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

    /// What to put before a command so that it runs inside.
    pub fn enter(&self) -> Vec<OsString> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.holder.id()).into(), "--".into()]
    }

    /// Drops every UDP packet that arrives on the loopback, without an answer, as firewalls do.
    ///
    /// # Panics
    /// When the rules cannot be set.
    pub fn drop_udp(&self) {
        let rules = "add table inet dsync; \
                     add chain inet dsync in { type filter hook input priority 0; }; \
                     add rule inet dsync in meta l4proto udp drop";
        let _ = Run::of("nft").arg(rules).within(self).run().expect_code(0);
    }

    /// Bytes that crossed the loopback so far, headers included, both directions.
    ///
    /// # Panics
    /// When the counters cannot be read.
    pub fn wire_bytes(&self) -> u64 {
        let outcome = Run::of("cat").arg("/proc/self/net/dev").within(self).run().expect_code(0);
        let text = outcome.stdout_text();
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix("lo:")).expect("the loopback's counters");
        line.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).expect("a byte count")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
