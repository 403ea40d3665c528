//! The list of the paths to copy, at the two ends of a session.
//!
//! The law: a list crosses the link at most once, from the destination to the source, and only if
//! the destination has it: a destination that reads a list knows what it asked for. A list that the
//! source reads itself stays there.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use crossbeam_channel::bounded;
use dsync_fs::{FileList, FileListError, FileListWriter, OperandForm, OperatorFiles, SourceFile, SpoolHome};
use dsync_wire::{
    event::Progress,
    frame::ControlReceiver,
    limits::{MAX_NAMES, MAX_NAMES_BYTES},
    message::{ControlMessage, ListPlace, Names},
    state::SourceInbox,
};

use crate::{
    SyncError,
    ends::FilesFrom,
    grant::Start,
    session::{self, Keying, Session, SourceMail},
    threads,
};

/// Returns the place of a list for the peer of a destination, or of a source.
pub(crate) fn place(from: Option<&FilesFrom>, peer_is_source: bool) -> ListPlace {
    match from {
        Some(FilesFrom::List(_)) if peer_is_source => ListPlace::Sent,
        Some(FilesFrom::AtPeer { path, nul }) => ListPlace::File { path: path.clone().into_vec(), nul: *nul },
        _ => ListPlace::None,
    }
}

impl Session {
    /// Waits, as a controller and source, for the list that the destination reads.
    pub(crate) fn await_names(&self, mail: &mut SourceMail, home: &SpoolHome) -> Result<FileList, SyncError> {
        mail.order = mail.order.clone().with_names();
        if let Keying::Offered(ours) = &mail.keying {
            let key = self.while_hearing(|| {
                self.hear_ready(&mut mail.receiver, ours, |message| Ok(mail.order.check(message)?))
            })?;
            mail.keying = Keying::Agreed(key);
        }
        hear(self, (&mut mail.receiver, &mut mail.order), home)
    }

    /// Does a source's work that may take long while nobody listens to the peer, and shows signs of
    /// life.
    pub(crate) fn while_alive<T>(&self, work: impl FnOnce() -> Result<T, SyncError>) -> Result<T, SyncError> {
        self.while_saying(&ControlMessage::Alive, work)
    }

    /// Does a destination's work before it is ready, and shows signs of life: the order of messages
    /// gives each end its own.
    pub(crate) fn while_beginning<T>(
        &self,
        work: impl FnOnce() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        self.while_saying(&ControlMessage::Progress(Progress::default()), work)
    }

    fn while_saying<T>(
        &self,
        sign: &ControlMessage,
        work: impl FnOnce() -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        let (over_tx, over) = bounded::<()>(0);
        // The watch of the session hears of a link that broke.
        let say = || _ = self.control.send(sign);
        // On a thread that ends here: those of the clock start in the cage, which comes later.
        let saying = || {
            std::thread::scope(|scope| {
                threads::spawn_scoped(scope, "pulse", || self.tell_until(&over, say))?;
                let done = work();
                drop(over_tx);
                done
            })
        };
        self.in_hours(saying)
    }
}

/// Sends a list to the source.
pub(crate) fn send(session: &Session, list: &FileList) -> Result<(), SyncError> {
    let mut names = Names::default();
    let mut bytes = 0;
    let say = |names: Names| session.while_sending(|| session.control.send(&ControlMessage::Names(names)));

    for line in list.lines() {
        if names.lines.len() >= MAX_NAMES || bytes + line.len() > MAX_NAMES_BYTES {
            say(std::mem::take(&mut names))?;
            bytes = 0;
        }
        bytes += line.len();
        names.lines.push(line);
    }
    say(Names { last: true, ..names })
}

/// Receives a list from the destination.
pub(crate) fn hear(
    session: &Session,
    (receiver, order): (&mut ControlReceiver, &mut SourceInbox),
    home: &SpoolHome,
) -> Result<FileList, SyncError> {
    let most = session.grant.as_ref().map(|_| MAX_GRANTED_BYTES);
    let mut list = FileListWriter::new(session.options.relative, home).bounded(most);
    let failed = |source| SyncError::FileList { path: None, source };
    loop {
        let names = session.while_hearing(|| hear_part(session, receiver, order))?;
        names.lines.iter().try_for_each(|line| list.push(line)).map_err(failed)?;
        if names.last {
            return list.finish().map_err(failed);
        }
    }
}

/// Receives the next part of a list.
fn hear_part(
    session: &Session,
    receiver: &mut ControlReceiver,
    order: &mut SourceInbox,
) -> Result<Names, SyncError> {
    loop {
        let message = session.hear(receiver)?;
        order.check(&message)?;
        match message {
            ControlMessage::Names(names) => return Ok(names),
            // A sign of life.
            ControlMessage::Progress(_) => {}
            other => return Err(session::unexpected(&other)),
        }
    }
}

/// Reads a list from a file of this end that the client names: below a grant's directory if there
/// is a grant, else as a file of this end's operator.
pub(crate) fn read(
    path: &[u8],
    nul: bool,
    relative: bool,
    (start, home, files): (&Start, &SpoolHome, &OperatorFiles),
) -> Result<FileList, SyncError> {
    let path = Path::new(OsStr::from_bytes(path));
    let failed = |source| SyncError::FileList { path: Some(path.to_owned()), source };
    let most = start.floor().map(|_| MAX_GRANTED_BYTES);
    let mut list = FileListWriter::new(relative, home).bounded(most);
    let text = open(path, (start, files)).map_err(|error| failed(FileListError::Read(error)))?;
    list.read(text, nul).map_err(failed)?;
    list.finish().map_err(failed)
}

fn open(path: &Path, (start, files): (&Start, &OperatorFiles)) -> io::Result<Text> {
    if start.floor().is_none() {
        return Ok(Text::Own(files.open(path)?));
    }
    match OperandForm::of(path) {
        Ok(OperandForm::Entry { parent, name }) => {
            Ok(Text::Granted(start.open_source(&parent)?.open_source(&name)?, 0))
        }
        Ok(OperandForm::Contents(_)) => Err(io::ErrorKind::IsADirectory.into()),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
    }
}

/// Bytes that a list of a client with a grant may have, each line with what it takes besides: some
/// million lines. It lies in files of the serving end, where the client has no quota.
const MAX_GRANTED_BYTES: u64 = 256 << 20;

/// The text of a list.
enum Text {
    /// A file of the operator's.
    Own(File),
    /// A regular file below a grant's directory, and the offset in it.
    Granted(SourceFile, u64),
}

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Own(file) => file.read(buffer),
            Self::Granted(file, at) => {
                let read = file.read_at(*at, buffer)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}
