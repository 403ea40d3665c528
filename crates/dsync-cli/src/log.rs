//! `--log-file`: what a run does and says, a line each with time and process, in rsync's form.
//!
//! The file is opened before anything else happens and only ever added to. A log that cannot be
//! written ends no run: rsync's does not either, and the copy is worth more; whoever started the
//! run is told once.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    sync::{Mutex, PoisonError},
};

use dsync_engine::{Ended, OperatorFiles, Planned};
use jiff::{Timestamp, tz::TimeZone};

use crate::listing::Listing;

/// The time of day where the command runs.
#[derive(Debug, Clone)]
pub(crate) struct LocalClock(TimeZone);

impl LocalClock {
    /// Reads the time zone of the system, or of `TZ`: once, as a caged process could not.
    pub(crate) fn new() -> Self {
        Self(TimeZone::system())
    }

    /// Returns the time as rsync writes it: `2026/11/22 17:01:11`.
    pub(crate) fn now(&self) -> String {
        Timestamp::now().to_zoned(self.0.clone()).strftime("%Y/%m/%d %H:%M:%S").to_string()
    }

    /// Returns the time of a file, in seconds since 1970, as rsync writes it; a time that no
    /// calendar has is that of 1970.
    pub(crate) fn of_file(&self, seconds: i64, form: &str) -> String {
        let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        time.to_zoned(self.0.clone()).strftime(form).to_string()
    }
}

/// A log file that is open.
pub(crate) struct Log {
    listing: Listing,
    clock: LocalClock,
    file: Mutex<(File, Option<io::Error>)>,
}

impl Log {
    /// Opens the file, which need not exist; it is opened by the rules of `files`.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(path: &Path, files: &OperatorFiles, listing: Listing) -> io::Result<Self> {
        let file = files.append(path)?;
        Ok(Self { listing, clock: LocalClock::new(), file: Mutex::new((file, None)) })
    }

    /// Logs what is done with an entry, if the format says anything.
    pub(crate) fn entry(&self, planned: &Planned, ended: &Ended) {
        if let Some(line) = self.listing.line(planned, ended).filter(|line| !line.is_empty()) {
            self.line(&line);
        }
    }

    /// Logs a line of text, already escaped.
    pub(crate) fn line(&self, line: &[u8]) {
        let mut text = format!("{} [{}] ", self.clock.now(), std::process::id()).into_bytes();
        text.extend_from_slice(line);
        text.push(b'\n');

        // One call for each line: runs that share a log do not mix theirs.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.1.is_none() {
            file.1 = file.0.write_all(&text).err();
        }
    }

    /// Returns the first error of writing, once.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).1.take()
    }
}
