//! Certificates of keys: `dsync key --certify`, their files, and words for them.
//!
//! The law: a certificate is taken from a file only for the key beside it. Whether it is in its time is for
//! the other end, whose clock decides; here its end is told.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use dsync_engine::standing::{Certificate, CertificateError, CertificateKind, PrivateKey, PublicKey};
use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::{keys, numbers::counted, words::system_words};

/// A certificate, and its file for messages.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFile {
    pub(crate) path: PathBuf,
    pub(crate) certificate: Certificate,
}

impl CertificateFile {
    /// Returns the certificate of a client's key, which is beside the key's file if there is one.
    ///
    /// # Errors
    /// The reason in words: it cannot be read, or is not this key's.
    pub(crate) fn of_client(key_path: &Path, key: &PrivateKey) -> Result<Option<Self>, String> {
        let mut path = key_path.as_os_str().to_owned();
        path.push(".cert");
        read(path.into(), (CertificateKind::Client, key.public()))
    }

    /// Returns the certificate that a server's configuration names.
    ///
    /// # Errors
    /// The reason in words: it is not there, cannot be read, or is not this key's.
    pub(crate) fn of_server(path: &Path, key: &PrivateKey) -> Result<Self, String> {
        let read = read(path.to_owned(), (CertificateKind::Server, key.public()))?;
        read.ok_or_else(|| {
            format!("there is no certificate '{}': 'dsync key --certify' makes it", path.display())
        })
    }

    /// Returns words for a certificate that has ended or will within some days.
    pub(crate) fn ends_soon(&self) -> Option<String> {
        let (path, until) = (self.path.display(), self.certificate.until());
        let left = until.saturating_sub(now());
        match left / DAY {
            _ if left == 0 => Some(format!("certificate '{path}' has expired on {}: {RENEWAL}", day(until))),
            days @ 0..SOON => {
                let days = counted(days + 1, "day", "days");
                Some(format!("certificate '{path}' expires within {days}, on {}: {RENEWAL}", day(until)))
            }
            _ => None,
        }
    }

    /// Returns what can be seen here of why a server does not take the certificate.
    pub(crate) fn refused(&self) -> String {
        let Self { path, certificate } = self;
        let time = match certificate.is_in_time(now()) {
            Err(CertificateError::Expired { until }) => format!(" expired on {}:", day(until)),
            Err(CertificateError::Early { from }) => format!(" is not valid before {}:", day(from)),
            _ => String::new(),
        };
        format!(
            "its certificate '{}'{time} is for '{}', by the authority {}",
            path.display(),
            certificate.name(),
            certificate.authority().fingerprint()
        )
    }
}

/// Reads a certificate of a key; `None` if there is no file.
fn read(path: PathBuf, (kind, key): (CertificateKind, PublicKey)) -> Result<Option<CertificateFile>, String> {
    let fail = |why: &str| format!("certificate '{}': {why}", path.display());
    let file = match keys::open_regular(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| fail(&system_words(&error)))?,
    };
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| fail(&system_words(&error)))?;
    let certificate: Certificate =
        text.parse().map_err(|error: CertificateError| fail(&error.to_string()))?;
    certificate.belongs_to(kind, &key).map_err(|error| match error {
        CertificateError::Key => fail(&format!(
            "is of another key, with the fingerprint {}; this one's is {}: remove it, or have this key certified",
            certificate.key().fingerprint(),
            key.fingerprint()
        )),
        other => fail(&format!("{other}, and a {kind}'s is needed here")),
    })?;
    Ok(Some(CertificateFile { path, certificate }))
}

/// A certificate that is asked for.
pub(crate) struct Wanted<'a> {
    /// The public line of the key.
    pub(crate) public: &'a str,
    pub(crate) kind: CertificateKind,
    pub(crate) name: &'a str,
    /// The first day on which it is no longer valid.
    pub(crate) expires: &'a str,
}

/// Signs a certificate with the key of a file.
///
/// # Errors
/// The reason in words.
pub(crate) fn certify(authority: &Path, wanted: &Wanted<'_>) -> Result<Certificate, String> {
    let Wanted { public, kind, name, expires } = wanted;
    let key: PublicKey = public.parse().map_err(|error| format!("'{public}' {error}"))?;
    let no_day = || format!("'{expires}' is no day like 2027-12-31");
    let until: Date = expires.parse().map_err(|_| no_day())?;
    let until = until.to_zoned(TimeZone::UTC).map_err(|_| no_day())?.timestamp().as_second();
    let until = u64::try_from(until).map_err(|_| no_day())?;

    let authority = keys::read(authority)?;
    let signed = Certificate::sign(&authority, (*kind, name), key, (now(), until));
    signed.map_err(|error| match error {
        CertificateError::Expired { .. } => format!("{expires} is over: a certificate ends on a day to come"),
        CertificateError::Unnameable { kind: CertificateKind::Server, .. } => {
            format!(
                "{error}: a host as clients name it, in lower case and without a port, or a pattern like *.example.org"
            )
        }
        error => {
            format!("{error}: letters, digits, '.', '_' and '-', a letter or digit first, at most 64")
        }
    })
}

/// Describes a certificate.
pub(crate) fn describe(certificate: &Certificate) -> String {
    format!(
        "{} certificate for '{}', from {} until {}\n  key       {}\n  authority {}",
        certificate.kind(),
        certificate.name(),
        day(certificate.from()),
        day(certificate.until()),
        certificate.key().fingerprint(),
        certificate.authority().fingerprint()
    )
}

/// Returns a moment in UTC: a day if it is the day's beginning.
pub(crate) fn day(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    match moment {
        Some(moment) if seconds.is_multiple_of(DAY) => moment.to_zoned(TimeZone::UTC).date().to_string(),
        Some(moment) => moment.to_string(),
        None => "the end of time".to_owned(),
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or_default()
}

/// Advice for a certificate that ends.
const RENEWAL: &str = "its authority makes the next one with 'dsync key --certify'";
/// Days before its end in which a certificate is warned of.
const SOON: u64 = 30;
/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;
/// Bytes of the longest file of a certificate, with a comment.
const LONGEST: u64 = 4096;
