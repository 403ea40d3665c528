//! The description of a run's ends: where the files come from, where they go, and how a remote end
//! is reached.

use std::{ffi::OsString, num::NonZeroU64, os::unix::ffi::OsStrExt, path::PathBuf, time::Duration};

use dsync_fs::FileList;
use dsync_transport::{AddressFamily, TransportChoice};
use dsync_wire::setters;
use dsync_wire::{bootstrap::PortRange, link::Carrier};

use crate::{Batch, Manifest, RelativePaths};

/// The place of the new files.
///
/// Paths keep rsync's trailing-slash rule: `dir` is copied as an entry named `dir`, `dir/` (and
/// `.`, `dir/.`) stands for what is in it. Several paths are merged into one tree; where two bring
/// the same name the first wins, and directories are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// On this machine.
    Local {
        /// One or more paths.
        paths: Vec<PathBuf>,
    },
    /// Entries of this machine that a program knows by name: as [`Job::files_from`](crate::Job::files_from),
    /// with the names of an iterator, which may be any number.
    ///
    /// The run copies the entries of these paths and no others, each to the same path below the
    /// destination, and the directories on the way. So [`SyncOptions::relative`](crate::SyncOptions::relative)
    /// and [`dirs`](crate::SyncOptions::dirs) are on, and [`recursive`](crate::SyncOptions::recursive) is off,
    /// whatever the options say. Filters apply. `delete` removes nothing but what is in a directory whose
    /// path ends with a slash.
    Files {
        /// The directory in which the paths begin.
        root: PathBuf,
        /// The paths below it.
        relative: RelativePaths,
    },
    /// The entries of this machine that a manifest names, in the place of a listing of the source: see
    /// [`verify::record`](crate::verify::record) and `docs/manifest.md`.
    ///
    /// The run copies these entries and no others, as [`Source::Files`] does, with the attributes that they
    /// have now and the contents that the manifest has of them. Files are compared by content
    /// ([`SyncOptions::checksum`](crate::SyncOptions::checksum)), with the manifest's hashes, so the source
    /// reads just what it sends; and each file that was written is read once more before it gets its name
    /// ([`contents_as_listed`](crate::SyncOptions::contents_as_listed)). After exit code 0 every file that the
    /// manifest names has its content at the destination, whatever happens at the source meanwhile.
    ///
    /// An entry that is missing by now, or is of another type, and a file of another content are failures
    /// of that entry ([`Cause::OtherContent`](crate::Cause::OtherContent)): the destination's own stays.
    /// A manifest that lacks contents, `delete`, and files that are written in place are refused. Options that leave
    /// out a type of entry hold here too: links of the manifest need [`links`](crate::SyncOptions::links), as
    /// [`SyncOptions::archive`](crate::SyncOptions::archive) has it.
    ///
    /// ```
    /// use dsync_engine::{
    ///     CancelToken, Destination, Job, Manifest, Silent, Source,
    ///     verify::{self, Reading},
    /// };
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let (root, copy) = (home.path().join("root"), home.path().join("copy"));
    /// # std::fs::create_dir(&root)?;
    /// # std::fs::write(root.join("kept"), "as it was")?;
    /// # std::fs::write(root.join("lost"), "as it was")?;
    /// let (reading, cancel) = (Reading::default(), CancelToken::new());
    /// let file = home.path().join("manifest");
    /// verify::record_to_file(&root, &file, &reading, &Silent, &cancel)?;
    /// std::fs::write(root.join("lost"), "otherwise")?;
    ///
    /// let source = Source::Manifest { root, manifest: Manifest::open(&file)? };
    /// let summary = Job::new(source, Destination::Local { path: copy.clone() }).run(&Silent, &cancel)?;
    /// assert_eq!(summary.exit_code(), 23);
    /// assert!(copy.join("kept").exists() && !copy.join("lost").exists());
    /// # Ok(())
    /// # }
    /// ```
    Manifest {
        /// The directory in which the manifest's paths begin.
        root: PathBuf,
        /// The manifest.
        manifest: Manifest,
    },
    /// On another host.
    Remote {
        /// The host.
        host: RemoteHost,
        /// One or more paths; relative ones start at the remote home directory.
        paths: Vec<OsString>,
    },
    /// A recorded run, in the place of the source that it had.
    Batch(Batch),
    /// At the other end of a connection that [`Job::run_over`](crate::Job::run_over) is given.
    Peer {
        /// One or more paths; relative ones start where the server says.
        paths: Vec<OsString>,
    },
}

/// A list of the paths to copy, for [`Job::files_from`](crate::Job::files_from).
///
/// ```
/// use dsync_engine::{
///     CancelToken, Destination, FilesFrom, Job, Resources, Silent, Source, SyncOptions,
/// };
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// # std::fs::write(from.join("other"), "not listed")?;
/// let mut list = Resources::default().file_list(true);
/// list.read(&mut b"note\0".as_slice(), true)?;
///
/// let source = Source::Local { paths: vec![from.clone()] };
/// let job = Job::new(source, Destination::Local { path: to.clone() })
///     .options(SyncOptions::archive().relative(true))
///     .files_from(FilesFrom::List(list.finish()?));
/// job.run(&Silent, &CancelToken::new())?;
/// assert!(to.join("note").exists() && !to.join("other").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FilesFrom {
    /// Here: made by [`Resources::file_list`](crate::Resources::file_list).
    List(FileList),
    /// In a file of the remote end, in rsync's format.
    AtPeer {
        /// The file's path, as of an operand.
        path: OsString,
        /// Whether its lines end with zero bytes.
        nul: bool,
    },
}

impl Source {
    /// Returns the source with the directory in which a list's paths begin, if there is a list.
    pub(crate) fn for_list(self, list: Option<&FilesFrom>) -> Self {
        let there = |paths: Vec<OsString>| match list {
            Some(_) => paths.into_iter().map(directory).collect(),
            None => paths,
        };
        match self {
            Self::Local { paths } => Self::Local {
                paths: match list {
                    Some(_) => {
                        paths.into_iter().map(|path| directory(path.into_os_string()).into()).collect()
                    }
                    None => paths,
                },
            },
            Self::Remote { host, paths } => Self::Remote { host, paths: there(paths) },
            Self::Peer { paths } => Self::Peer { paths: there(paths) },
            named_or_recorded @ (Self::Files { .. } | Self::Manifest { .. } | Self::Batch(_)) => {
                named_or_recorded
            }
        }
    }
}

/// Returns an operand as the directory in which the paths of a list begin.
fn directory(mut operand: OsString) -> OsString {
    if !operand.as_bytes().ends_with(b"/") {
        operand.push("/");
    }
    operand
}

/// The place that the files go to.
///
/// ```
/// use dsync_engine::{Destination, Operand};
///
/// /// Takes what a person wrote in the settings.
/// fn destination(written: &str) -> Result<Destination, dsync_engine::OperandError> {
///     Ok(match Operand::parse(written.as_ref())? {
///         Operand::Local(path) => Destination::Local { path },
///         Operand::Remote { host, path } => Destination::Remote { host, path },
///     })
/// }
/// assert_eq!(destination("/mnt/disk")?, Destination::Local { path: "/mnt/disk".into() });
/// assert!(matches!(destination("vault:photos")?, Destination::Remote { .. }));
/// # Ok::<(), dsync_engine::OperandError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// On this machine.
    Local {
        /// A directory; or, for one source that is not a directory, the name of a file.
        path: PathBuf,
    },
    /// On another host.
    Remote {
        /// The host.
        host: RemoteHost,
        /// As for [`Destination::Local`]; relative paths start at the remote home directory.
        path: OsString,
    },
    /// At the other end of a connection that [`Job::run_over`](crate::Job::run_over) is given.
    Peer {
        /// As for [`Destination::Local`]; relative paths start where the server says.
        path: OsString,
    },
    /// Nowhere: the run looks at the source only, and plans every entry as a new one. Needs
    /// [`SyncOptions::dry_run`](crate::SyncOptions::dry_run).
    Nowhere,
}

/// A host, in the form that ssh takes. Made by [`Operand::parse`](crate::Operand::parse), which
/// refuses text that could be read as an option or by a shell.
///
/// ```
/// use dsync_engine::{OperandError, RemoteHost};
///
/// let host = RemoteHost::new(Some("backup"), "vault.example")?;
/// assert_eq!(host.host, "vault.example");
/// // A name from a form or a variable never becomes an option of ssh.
/// assert!(matches!(
///     RemoteHost::new(None, "-oProxyCommand=x"),
///     Err(OperandError::LeadingDash { .. })
/// ));
///
/// // The fields are public, so what others filled in is checked again.
/// let mut theirs = host.clone();
/// theirs.host = "two words".into();
/// assert!(host.check().is_ok() && theirs.check().is_err());
/// # Ok::<(), OperandError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteHost {
    /// Login name, when given.
    pub user: Option<String>,
    /// Host name, ssh alias or address (IPv6 without brackets).
    pub host: String,
}

/// The way to start and to reach a remote end.
///
/// ```
/// use std::time::Duration;
///
/// use dsync_engine::{AddressFamily, ConnectOptions, TransportChoice};
///
/// // A jump host, no port opened, and patience with a line that breaks.
/// let connect = ConnectOptions::default()
///     .shell(["ssh", "-J", "jump.example"].map(Into::into).into())
///     .transport(TransportChoice::Ssh)
///     .family(AddressFamily::V4)
///     .retries(20)
///     .timeout(Duration::from_secs(120));
/// # assert_eq!(connect.shell.len(), 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The remote shell and its arguments, before the host. Default `["ssh"]`.
    pub shell: Vec<OsString>,
    /// The command that starts dsync on the remote host, as its shell reads it. Default `dsync`.
    pub remote_program: String,
    /// The label of the remote shell's own pipe in the summary. Default [`Carrier::Ssh`].
    pub pipe: Carrier,
    /// The carrier to use. Default [`TransportChoice::Auto`].
    pub transport: TransportChoice,
    /// The carrier of a long run's lanes later on. If `shell` connects to a standing server (`dsync serve`), a
    /// long run may move its lanes to this carrier. `Auto` picks QUIC or TLS by the round trip. If the move
    /// fails, the run goes on as before. Default [`TransportChoice::Auto`].
    pub further: TransportChoice,
    /// Longest silence of the peer before the run ends with exit code 30; at least 1 s. Default 60
    /// s: both ends send a sign of life every second whatever they are busy with.
    pub timeout: Duration,
    /// Most attempts in a row to connect again when the connection breaks; 0 to end the run at
    /// once. Default 5: the pauses before them add up to about half a minute.
    pub retries: u32,
    /// Time for the remote end to answer over a remote shell, logging in included. Default 300 s: a person may be
    /// typing a password. Over a connection of the program's own [`timeout`](Self::timeout) is the only one.
    pub connect_timeout: Duration,
    /// The ports of the remote host that may be opened. Default `None`: whichever its system
    /// chooses.
    pub ports: Option<PortRange>,
    /// The kinds of addresses of the host that may be used. Default both kinds.
    pub family: AddressFamily,
    /// Bytes per second that each end may send, before encryption; counts for local runs too.
    /// Default `None`.
    pub bytes_per_second: Option<NonZeroU64>,
}

setters!(ConnectOptions {
    shell: Vec<OsString>,
    remote_program: String,
    pipe: Carrier,
    transport: TransportChoice,
    further: TransportChoice,
    timeout: Duration,
    retries: u32,
    connect_timeout: Duration,
    ports: Option<PortRange>,
    family: AddressFamily,
    bytes_per_second: Option<NonZeroU64>,
});

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            shell: vec!["ssh".into()],
            remote_program: "dsync".into(),
            pipe: Carrier::Ssh,
            transport: TransportChoice::Auto,
            further: TransportChoice::Auto,
            timeout: Duration::from_secs(60),
            retries: 5,
            connect_timeout: Duration::from_secs(300),
            ports: None,
            family: AddressFamily::Any,
            bytes_per_second: None,
        }
    }
}

/// The path of [`Destination::Nowhere`], which no operand has.
pub(crate) const NOWHERE: &str = "";
