//! `--log-file`: what a run does and says, a line each with time and process, in rsync's form.
//!
//! The file is opened before anything else happens and only ever added to. A log that cannot be
//! written ends no run: rsync's does not either, and the copy is worth more; whoever started the
//! run is told once.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Component, Path},
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
        Self(system_zone())
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

/// Returns the time zone of the system, or of `TZ`; UTC where that names something without an end, such as a device,
/// which would be read into memory.
pub(crate) fn system_zone() -> TimeZone {
    let names_a_zone = std::env::var_os("TZ").is_none_or(|name| may_be_zone(&name));
    if names_a_zone { TimeZone::system() } else { TimeZone::UTC }
}

/// Returns whether a value of `TZ` names no file outside of the system's directory of zones, or a regular one of the
/// size of a zone.
#[expect(clippy::disallowed_methods, reason = "a file of the operator's, which is only looked at")]
fn may_be_zone(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let path = Path::new(OsStr::from_bytes(name.strip_prefix(b":").unwrap_or(name)));
    if path.is_absolute() {
        return std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MAX_ZONE_BYTES);
    }
    !path.components().any(|part| part == Component::ParentDir)
}

/// Most bytes of a file with a time zone. Those of the system have some thousand.
const MAX_ZONE_BYTES: u64 = 1 << 20;

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

    /// Returns the first error of writing, once, or that the file has lost its name: the copy may have
    /// brought an entry of it.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (log, error) = &mut *file;
        let is_lost = || log.metadata().is_ok_and(|now| now.is_file() && now.nlink() == 0);
        let lost = || is_lost().then(|| io::Error::other("it was removed or replaced meanwhile"));
        error.take().or_else(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_a_time_zone_is_read() {
        let may_be = |name: &str| may_be_zone(OsStr::new(name));
        for name in
            ["", "UTC", "Europe/Berlin", ":Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3", "/etc/passwd"]
        {
            assert!(may_be(name), "{name}");
        }
        for name in ["/dev/zero", ":/dev/zero", "/dev", "/nowhere", "../../../dev/zero"] {
            assert!(!may_be(name), "{name}");
        }
    }
}
