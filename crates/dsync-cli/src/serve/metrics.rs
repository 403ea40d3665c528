//! The endpoint for Prometheus: what `--status` tells, as metrics over HTTP on a loopback address.
//!
//! The law: it answers `GET /metrics` and nothing else, reads [`LONGEST_REQUEST`] bytes of a request
//! at most, and gives no one longer than [`PATIENCE`] to ask and as long to listen. Every user of the machine may ask, so the
//! names of keys and the addresses of clients are not told, only sums of shares.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::prometheus_text,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::status::{Passed, Refused};

/// The figures of a server at one moment.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Connections whose client has proved no key yet.
    pub(super) strangers: usize,
    pub(super) refused: Refused,
    pub(super) shares: BTreeMap<String, ShareFigures>,
}

/// The figures of a share.
#[derive(Debug, Default)]
pub(super) struct ShareFigures {
    /// Sessions that last.
    pub(super) present: u64,
    /// Sessions that have ended, by exit code.
    pub(super) ended: BTreeMap<String, u64>,
    /// The counts of all of them.
    pub(super) passed: Passed,
}

/// Answers who asks, for as long as the process lives: [`AT_ONCE`] at a time, so that some who say nothing keep
/// nobody waiting.
pub(super) fn answer(listener: &TcpListener, figures: impl Fn() -> Figures + Sync) {
    let (present, figures) = (AtomicUsize::new(0), &figures);
    thread::scope(|scope| {
        loop {
            let Ok((asking, _)) = listener.accept() else {
                // Most likely out of descriptors.
                thread::sleep(AGAIN);
                continue;
            };

            if present.fetch_add(1, Ordering::AcqRel) >= AT_ONCE {
                present.fetch_sub(1, Ordering::AcqRel);
                continue;
            }

            let present = &present;
            let work = move || {
                // Who has gone meanwhile is nobody's concern.
                drop(tell(asking, figures));
                present.fetch_sub(1, Ordering::AcqRel);
            };
            if thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).is_err() {
                present.fetch_sub(1, Ordering::AcqRel);
            }
        }
    });
}

fn tell(mut asking: TcpStream, figures: &impl Fn() -> Figures) -> io::Result<()> {
    let request = read_request(&mut asking)?;
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let is_asked = line.starts_with(b"GET /metrics ") || line.starts_with(b"GET /metrics?");

    let (status, content, body) = if is_asked {
        ("200 OK", prometheus_text::CONTENT_TYPE, exposition(&figures()))
    } else {
        ("404 Not Found", "text/plain", "only GET /metrics is answered\n".to_owned())
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    write_until(&mut asking, &answer, Instant::now() + PATIENCE)?;
    asking.shutdown(Shutdown::Write)
}

/// Writes an answer in the time that is left, however slowly it is read.
fn write_until(asking: &mut TcpStream, mut answer: &[u8], ends: Instant) -> io::Result<()> {
    while !answer.is_empty() {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        asking.set_write_timeout(Some(left))?;
        match asking.write(answer)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => answer = answer.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Reads a request up to the blank line after its headers.
fn read_request(asking: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut request, ends) = (Vec::new(), Instant::now() + PATIENCE);
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > LONGEST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        asking.set_read_timeout(Some(left))?;
        match asking.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => request.extend_from_slice(&piece[..read]),
        }
    }
    Ok(request)
}

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;

/// Writes the figures in the text format of Prometheus.
fn exposition(figures: &Figures) -> String {
    let (present, ended) = (Family::<Labels, Gauge>::default(), Counts::default());
    let (entries, files) = (Counts::default(), Counts::default());
    let (sent, received) = (Counts::default(), Counts::default());
    for (share, figures) in &figures.shares {
        let of_share = vec![("share", share.clone())];
        present.get_or_create(&of_share).set(i64::try_from(figures.present).unwrap_or(i64::MAX));
        for (code, count) in &figures.ended {
            let of_code = vec![("share", share.clone()), ("code", code.clone())];
            ended.get_or_create(&of_code).inc_by(*count);
        }
        let passed = &figures.passed;
        for (family, count) in [
            (&entries, passed.entries),
            (&files, passed.files),
            (&sent, passed.sent),
            (&received, passed.received),
        ] {
            family.get_or_create(&of_share).inc_by(count);
        }
    }
    let strangers: Gauge = Gauge::default();
    strangers.set(i64::try_from(figures.strangers).unwrap_or(i64::MAX));
    let refused = Counts::default();
    for (why, count) in [("handshake", figures.refused.handshakes), ("crowd", figures.refused.crowd)] {
        refused.get_or_create(&vec![("why", why.to_owned())]).inc_by(count);
    }

    let mut registry = Registry::with_prefix("dsync");
    registry.register("sessions", "Sessions that last", present);
    registry.register("sessions_ended", "Sessions that have ended, by exit code", ended);
    registry.register("entries", "Entries that were listed or compared", entries);
    registry.register("files", "Files of which content was asked for", files);
    registry.register("sent_bytes", "Bytes to clients", sent);
    registry.register("received_bytes", "Bytes of clients", received);
    registry.register("strangers", "Connections without a key", strangers);
    registry.register("refused", "Connections that got no session", refused);
    let mut text = String::new();
    // A string takes whatever is written to it.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

/// Bytes of the longest request: Prometheus sends some hundred.
const LONGEST_REQUEST: usize = 8 << 10;
/// Most connections that are answered at one time; others are closed. Prometheus has one.
const AT_ONCE: usize = 16;
/// Stack of a thread that answers, in bytes.
const STACK: usize = 256 << 10;
/// Time to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a failure to accept.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_read_drop_by_drop_is_given_up() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut reading = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut asking, _) = listener.accept().unwrap();
        thread::spawn(move || {
            while reading.read(&mut [0; 512]).is_ok_and(|read| read > 0) {
                thread::sleep(Duration::from_millis(5));
            }
        });
        // To its end it would be read for ten minutes.
        let ends = Instant::now() + Duration::from_millis(100);
        assert!(write_until(&mut asking, &vec![0; 64 << 20], ends).is_err());
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || answer(&listener, Figures::default));
        // On a busy machine the patience with the silent one may be over before the other is answered.
        let is_met = (0..100).any(|_| {
            let mut silent = TcpStream::connect(address).unwrap();
            let mut asking = TcpStream::connect(address).unwrap();
            asking.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut answer = String::new();
            asking.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            silent.set_nonblocking(true).unwrap();
            silent.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        assert!(is_met);
    }

    #[test]
    fn figures_are_written_with_their_labels() {
        let nas = ShareFigures {
            present: 2,
            ended: BTreeMap::from([("0".to_owned(), 3), ("42".to_owned(), 1)]),
            passed: Passed { entries: 10, files: 4, sent: 5, received: 6, connections: 1 },
        };
        let shares =
            BTreeMap::from([("nas".to_owned(), nas), ("a\"b\\\n".to_owned(), ShareFigures::default())]);
        let refused = Refused { handshakes: 7, crowd: 8 };
        let text = exposition(&Figures { strangers: 9, refused, shares });
        for line in [
            "# TYPE dsync_sessions gauge",
            "dsync_sessions{share=\"nas\"} 2",
            "dsync_sessions_ended_total{share=\"nas\",code=\"0\"} 3",
            "dsync_sessions_ended_total{share=\"nas\",code=\"42\"} 1",
            "dsync_entries_total{share=\"nas\"} 10",
            "dsync_files_total{share=\"nas\"} 4",
            "# TYPE dsync_sent_bytes_total counter",
            "dsync_sent_bytes_total{share=\"nas\"} 5",
            "dsync_received_bytes_total{share=\"nas\"} 6",
            "dsync_strangers 9",
            "dsync_refused_total{why=\"handshake\"} 7",
            "dsync_refused_total{why=\"crowd\"} 8",
            // The name of a share is a session's word.
            "dsync_sessions{share=\"a\\\"b\\\\\\n\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
