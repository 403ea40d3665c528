//! The location of the remote end, by this host's own knowledge and never by what the remote end
//! says.
//!
//! The law: no packet goes to an address that the server named. ssh has checked the host's key over
//! one connection of its own, and the kernel knows the other end of that. If ssh shares another
//! process' connection, its configuration says whether it goes to the host itself; then the host's
//! name counts. If it goes through another host or a command, nobody here knows an address that
//! leads to that very host, and only the pipe remains. A remote shell that is not ssh goes wherever
//! it likes; then the name from the operator counts.

#![expect(clippy::disallowed_methods, reason = "the kernel's own files about a process of this user")]

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::ffi::OsStringExt,
    process::{Command, Stdio},
};

/// The location at which the remote end may be reached besides the pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// The address that ssh is connected to.
    Reached(IpAddr),
    /// The addresses of this name, which is the operator's.
    Named(String),
    /// None, with the reason in words.
    Unknown(&'static str),
}

impl Whereabouts {
    /// Writes to the log where ssh goes.
    pub(crate) fn logged(self) -> Self {
        tracing::debug!(remote = ?self, "where ssh goes");
        self
    }

    /// Finds out where the remote shell that runs as process `shell` went, which was told to go to
    /// `host`. Reads `/proc`, and may ask ssh for its configuration.
    pub(crate) fn find(shell: u32, host: &str) -> Self {
        let Some(ssh) = find_ssh(shell) else { return Self::named(host) };
        match peer_of(ssh) {
            Some(address) => Self::Reached(address.ip()),
            None => by_configuration(ssh),
        }
    }

    fn named(host: &str) -> Self {
        let address = host.parse().ok().filter(|address| is_usable(*address));
        address.map_or_else(|| Self::Named(host.to_owned()), Self::Reached)
    }
}

/// Returns the first ssh among a process and its descendants. Processes that an ssh has started
/// itself, to get there, do not count.
fn find_ssh(shell: u32) -> Option<u32> {
    let mut level = vec![shell];
    for _ in 0..MAX_DEPTH {
        let mut below = Vec::new();
        for process in level {
            // Not by the name that it claims: a script of this name only starts one.
            let program = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            let name = program.file_name().unwrap_or_default().as_encoded_bytes();
            if matches!(name, b"ssh" | b"ssh (deleted)") {
                return Some(process);
            }
            // Any thread of a process may have started others.
            let threads = fs::read_dir(format!("/proc/{process}/task"));
            for thread in threads.into_iter().flatten().flatten().take(MAX_PROCESSES) {
                let children = read(&thread.path().join("children").to_string_lossy()).unwrap_or_default();
                let children = String::from_utf8_lossy(&children).into_owned();
                below.extend(children.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
            }
        }
        below.truncate(MAX_PROCESSES);
        level = below;
    }
    None
}

/// Returns the other end of the first TCP connection of a process. ssh opens its own before those
/// that it forwards.
fn peer_of(process: u32) -> Option<SocketAddr> {
    let mut sockets: Vec<(u32, u64)> = fs::read_dir(format!("/proc/{process}/fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
            Some((number, inode))
        })
        .collect();
    sockets.sort_unstable();
    let mut found: Vec<(u64, SocketAddr)> = Vec::new();
    for table in ["tcp", "tcp6"] {
        let lines = BufReader::new(File::open(format!("/proc/{process}/net/{table}")).ok()?).lines();
        let connections = lines.map_while(Result::ok).filter_map(|line| connection(&line));
        found.extend(connections.filter(|(inode, _)| sockets.iter().any(|(_, own)| own == inode)));
    }
    let first = sockets.iter().find_map(|(_, own)| found.iter().find(|(inode, _)| inode == own));
    first.map(|(_, address)| *address).filter(|address| is_usable(address.ip()))
}

/// Parses the inode and the far address of an established connection from a line of
/// `/proc/net/tcp`.
fn connection(line: &str) -> Option<(u64, SocketAddr)> {
    let mut words = line.split_ascii_whitespace();
    let (remote, state) = (words.nth(2)?, words.next()?);
    let inode = words.nth(5)?.parse().ok()?;
    let (address, port) = remote.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == ESTABLISHED).then_some((inode, SocketAddr::new(parse_address(address)?, port)))
}

/// Parses an address, which the kernel prints as numbers of 32 bits in its own byte order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (index, part) in octets.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(index * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
        }
        _ => None,
    }
}

/// Returns whether an address is complete: a link-local one lacks its interface.
fn is_usable(address: IpAddr) -> bool {
    !address.is_unspecified() && !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Asks an ssh that has no connection of its own how another one would reach its host.
fn by_configuration(ssh: u32) -> Whereabouts {
    let words = read(&format!("/proc/{ssh}/cmdline")).unwrap_or_default();
    let mut words = words.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let program = words.next().filter(|program| !program.is_empty());
    let mut arguments: Vec<OsString> = words.collect();
    // The line ends with a NUL.
    arguments.pop();
    let asked = program.and_then(|program| {
        let mut command = Command::new(program);
        command.arg("-G").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut text = String::new();
        let read = child.stdout.take()?.take(MAX_CONFIGURATION).read_to_string(&mut text);
        let status = child.wait().ok()?;
        (read.is_ok() && status.success()).then_some(text)
    });
    asked.map_or(Whereabouts::Unknown("ssh does not say where it goes"), |text| judge(&text))
}

fn judge(configuration: &str) -> Whereabouts {
    let value = |name: &str| {
        configuration.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let is_set = |name| value(name).is_some_and(|value| !value.eq_ignore_ascii_case("none"));
    if is_set("proxyjump") {
        return Whereabouts::Unknown("ssh goes through another host");
    }
    if is_set("proxycommand") {
        return Whereabouts::Unknown("ssh goes through a command");
    }
    match value("hostname") {
        Some(host) if !host.is_empty() => Whereabouts::named(host),
        _ => Whereabouts::Unknown("ssh does not say where it goes"),
    }
}

fn read(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_CONFIGURATION).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

const ESTABLISHED: &str = "01";
/// Most processes between the remote shell and ssh (`sshpass`, `nice`, a script); below it, the
/// most at one level.
const MAX_DEPTH: usize = 8;
const MAX_PROCESSES: usize = 64;
/// Most bytes of a command line or of ssh's configuration.
const MAX_CONFIGURATION: u64 = 1 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_process_is_where_its_first_connection_leads() {
        for address in ["127.0.0.3:0", "[::1]:0"] {
            // A host may have one family only.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (_, inode) = socket_of(&stream);
            let table = if address.starts_with('[') { "tcp6" } else { "tcp" };
            let text = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap();
            let found = text.lines().filter_map(connection).find(|(found, _)| *found == inode);
            assert_eq!(found.unwrap().1, listener.local_addr().unwrap());
        }
    }

    fn socket_of(stream: &TcpStream) -> (i32, u64) {
        use std::os::fd::AsRawFd;
        let number = stream.as_raw_fd();
        let target = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        let text = target.to_str().unwrap();
        (number, text.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap())
    }

    #[test]
    fn lines_of_the_kernels_table_are_read() {
        let line = "   3: 0100007F:8F2C 0300007F:0016 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1";
        if cfg!(target_endian = "little") {
            assert_eq!(connection(line), Some((4242, (Ipv4Addr::new(127, 0, 0, 3), 22).into())));
        }
        assert_eq!(connection(&line.replace(" 01 ", " 0A ")), None, "a listener is no connection");
        for broken in ["", "sl local rem st", "1: 2: 3: 01 5 6 7 8 9 10", "0: 0: zz:0 01 0 0 0 0 0 7"] {
            assert_eq!(connection(broken), None, "{broken}");
        }
        assert_eq!(
            parse_address("0000000000000000FFFF00000100007F").is_some_and(|a| a.is_ipv4()),
            cfg!(target_endian = "little")
        );
        assert!(!is_usable("fe80::1".parse().unwrap()) && !is_usable("::".parse().unwrap()));
    }

    #[test]
    fn ways_through_others_lead_to_no_address() {
        let named = Whereabouts::Named("far.example".into());
        let address = Whereabouts::Reached("192.0.2.7".parse().unwrap());
        for (text, expected) in [
            ("host h\nhostname 192.0.2.7\nproxycommand none\n", address),
            ("hostname far.example\n", named),
            ("hostname h\nproxyjump j\n", Whereabouts::Unknown("ssh goes through another host")),
            ("proxycommand nc %h %p\nhostname h\n", Whereabouts::Unknown("ssh goes through a command")),
            ("", Whereabouts::Unknown("ssh does not say where it goes")),
        ] {
            assert_eq!(judge(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_ssh_goes_by_the_operators_name() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(Whereabouts::find(child.id(), "h"), Whereabouts::Named("h".into()));
        child.kill().unwrap();
        let _ = child.wait();
    }
}
