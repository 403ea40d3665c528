//! Memory to memory through a carrier: the speed that the path and the carrier allow without any
//! files.
//!
//! ```text
//! pump [--transport auto|quic|ssh] [--seconds N] SHELL HOST    a shell command line, as for dsync -e
//! pump --tcp ADDRESS [--seconds N]                             one TCP connection, to compare
//! pump --tcp-server ADDRESS                                    its other end, for one connection
//! ```
//! For example `cargo xtask lab wan -- sh -c 'pump "$LAB_SSH" $LAB_HOST'`. One line per second
//! shows the Mbit/s that the other end received in it. The last line is the mean of all seconds and
//! of their second half.
#![allow(clippy::disallowed_methods, reason = "a measuring tool")]

use std::{
    env, error,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_transport::{
    AddressFamily, ConnectOptions, Entrance, RemoteShell, TransportChoice, accept, connect,
};
use dsync_wire::link::{CloseReason, LaneRead};

type Result<T> = std::result::Result<T, Box<dyn error::Error>>;

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let (mut seconds, mut choice, mut rest) = (6, TransportChoice::Auto, Vec::new());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--server" => return serve(),
            "--tcp-server" => return serve_tcp(&value()?),
            "--tcp" => rest = vec![arg.clone(), value()?],
            "--seconds" => seconds = value()?.parse()?,
            "--transport" => {
                choice = match value()?.as_str() {
                    "auto" => TransportChoice::Auto,
                    "quic" => TransportChoice::Quic,
                    "tls" => TransportChoice::Tls,
                    "ssh" => TransportChoice::Ssh,
                    other => return Err(format!("unknown transport {other}").into()),
                }
            }
            _ => rest.push(arg),
        }
    }
    match rest.as_slice() {
        [flag, address] if flag == "--tcp" => send_tcp(address, seconds),
        [shell, host] => send(shell, host, choice, seconds),
        _ => Err("usage: see the head of pump.rs".into()),
    }
}

/// Fills all lanes of a link and prints the amount that the other end reports as received.
fn send(shell: &str, host: &str, transport: TransportChoice, seconds: u64) -> Result<()> {
    let shell = RemoteShell {
        command: shell.split_whitespace().map(Into::into).collect(),
        user: None,
        host: host.to_owned(),
        family: AddressFamily::Any,
        remote_program: env::current_exe()?.display().to_string(),
        pipe: dsync_wire::link::Carrier::Ssh,
    };
    let connected = connect(&shell, &ConnectOptions { transport, ..ConnectOptions::default() })?;
    let link = &connected.link;
    println!("{}, {} lanes; {:?}", link.carrier(), link.data_lanes(), connected.reason);
    let stop = AtomicBool::new(false);
    let mut account = link.open_lane()?;
    account.tx.write(Bytes::from_static(b"a"))?;
    thread::scope(|scope| {
        for number in 0..link.data_lanes() {
            let stop = &stop;
            scope.spawn(move || -> std::result::Result<(), dsync_wire::link::LinkError> {
                let piece = Bytes::from(vec![0x5a; PIECE]);
                let mut lane = link.open_lane()?;
                while !stop.load(Ordering::Relaxed) {
                    if number < link.sending_lanes() {
                        lane.tx.write(piece.clone())?;
                    } else {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
                Ok(())
            });
        }
        let told = listen(|buf| Ok(account.rx.read(buf)?), seconds);
        stop.store(true, Ordering::Relaxed);
        link.close(CloseReason::Done);
        told
    })
}

/// Runs the other end of [`send`]: discards everything and counts it.
fn serve() -> Result<()> {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    let reached = env::var("SSH_CONNECTION").ok();
    let (input, output) = (input.as_fd().try_clone_to_owned()?, output.as_fd().try_clone_to_owned()?);
    let entrance = Entrance::new(input, output).ssh_connection(reached.as_deref());
    let link = accept(entrance, &Arc::default())?.link;
    let received = Arc::new(AtomicU64::new(0));
    let mut account = link.accept_lane()?;
    let counted = Arc::clone(&received);
    let lanes = Arc::clone(&link);
    thread::spawn(move || {
        while let Ok(lane) = lanes.accept_lane() {
            let counted = Arc::clone(&counted);
            thread::spawn(move || drain(lane.rx, &counted));
        }
    });
    tell(&received, |count| Ok(account.tx.write(Bytes::copy_from_slice(&count))?));
    Ok(())
}

fn drain(mut lane: Box<dyn LaneRead>, received: &AtomicU64) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = lane.read(&mut buffer) {
        received.fetch_add(count as u64, Ordering::Relaxed);
    }
}

fn send_tcp(address: &str, seconds: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let mut sending = stream.try_clone()?;
    thread::spawn(move || {
        let piece = vec![0x5a; PIECE];
        while sending.write_all(&piece).is_ok() {}
    });
    println!("tcp");
    let told = listen(|buf| Ok(stream.read(buf)?), seconds);
    stream.shutdown(std::net::Shutdown::Both)?;
    told
}

fn serve_tcp(address: &str) -> Result<()> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    let received = Arc::new(AtomicU64::new(0));
    let (counted, mut receiving) = (Arc::clone(&received), stream.try_clone()?);
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = receiving.read(&mut buffer) {
            counted.fetch_add(count as u64, Ordering::Relaxed);
        }
    });
    tell(&received, |count| Ok(stream.write_all(&count)?));
    Ok(())
}

/// Reports ten times a second how much has been received, until nobody listens.
fn tell(received: &AtomicU64, mut say: impl FnMut([u8; 8]) -> Result<()>) {
    while say(received.load(Ordering::Relaxed).to_be_bytes()).is_ok() {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Prints a rate for each second, and the mean of all seconds and of the second half.
fn listen(mut read: impl FnMut(&mut [u8]) -> Result<usize>, seconds: u64) -> Result<()> {
    let since = Instant::now();
    let mut seen = vec![(0.0, 0)];
    let (mut word, mut filled) = ([0; 8], 0);
    while seen.len() as u64 <= seconds {
        filled += match read(&mut word[filled..])? {
            0 => return Err("the other end went away".into()),
            count => count,
        };
        if filled < word.len() {
            continue;
        }
        filled = 0;
        let now = since.elapsed().as_secs_f64();
        if now >= seen.len() as f64 {
            seen.push((now, u64::from_be_bytes(word)));
            println!("{:3} s  {:7.1}", seen.len() - 1, rate(seen[seen.len() - 2], seen[seen.len() - 1]));
        }
    }
    let last = seen[seen.len() - 1];
    println!("mean {:.1} Mbit/s, second half {:.1}", rate(seen[0], last), rate(seen[seen.len() / 2], last));
    Ok(())
}

fn rate((from, before): (f64, u64), (to, after): (f64, u64)) -> f64 {
    (after - before) as f64 * 8.0 / 1e6 / (to - from)
}

const PIECE: usize = 256 << 10;
