//! The serving end of a session, in the role that the client assigns.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dsync_fs::{Chooser, FileList, OperatorFiles, Spelling, SpoolHome, TreeWatch};
use dsync_transport::{Sides, Throttle, throttled};
use dsync_wire::{
    link::Link,
    message::{Asked, ListPlace, PeerRole},
    options::SyncOptions,
    state::{DestinationInbox, SourceInbox},
};

use super::{Place, expanded, homes::at_homes, lent::Lent, open_tree};
use crate::{
    CancelToken, Grant, Manifest, Observer, SyncError,
    acting::{acting, with_own_workers},
    batch::{Batch, Recording},
    callbacks::caught,
    destination::{self, asked::AskedFor},
    error::Wording,
    footprint::{Cage, Footprint, Inmates, operator_links},
    grant::Start,
    names,
    own_entries::OwnEntries,
    resources::Allowance,
    rules::{self, Filters},
    session::{DestinationMail, Invitation, Keying, Session, SourceMail, span_key},
    source::{self, ListedFiles, Origin, Tree},
    states::States,
};

/// Means of the serving end, in which the client has no say.
pub(crate) struct Means<'a> {
    /// The session's share of this machine.
    pub(crate) allowance: Allowance,
    /// The home of lists that outgrow memory.
    pub(crate) spools: SpoolHome,
    /// The start of the operands' paths, and the rights there.
    pub(crate) start: Start,
    /// The cage of the process.
    pub(crate) cage: Option<&'a dyn Cage>,
    /// The threads that may take another user's rights for good.
    pub(crate) inmates: Inmates,
    /// The source's operands, where the client is this process; else those that it sends.
    pub(crate) operands: Option<&'a [PathBuf]>,
    /// The list of the paths to copy, where the client is this process.
    pub(crate) list: Option<FileList>,
    /// The destination of a local run, which the source does not enter through a link.
    pub(crate) barred: Option<&'a Path>,
    /// The batch that stands for the source, where the client is this process.
    pub(crate) batch: Option<Batch>,
    /// The batch that the source's listing is recorded in.
    pub(crate) recording: Option<Recording>,
    /// The character sets of the source's names, where the client is this process.
    pub(crate) spelling: Option<Spelling>,
    /// The judge of the source's entries, where the client is this process.
    pub(crate) chooser: Option<&'a Chooser>,
    /// The watch on what the source reads, where the client is this process.
    pub(crate) watch: Option<&'a TreeWatch>,
    /// The manifest that the source's entries are held to, where the client is this process.
    pub(crate) manifest: Option<&'a Manifest>,
    /// Whether the destination is in this process and reads the source's files itself.
    pub(crate) is_direct: bool,
    /// The wording of errors for the client.
    pub(crate) wording: Wording,
    /// Whoever serves and listens.
    pub(crate) listener: Option<&'a dyn Observer>,
    /// The states that sessions may use.
    pub(crate) states: Option<Arc<dyn States>>,
    /// Sentences for the client on what this end lacks.
    pub(crate) lacks: Vec<String>,
}

impl Means<'_> {
    /// Makes the means of an end that may do all that its process may, without a cage.
    pub(crate) fn new(allowance: Allowance, spools: SpoolHome) -> Self {
        let (start, wording) = Default::default();
        let (cage, operands, list, barred, spelling, chooser) = Default::default();
        let (manifest, watch) = (None, None);
        let (inmates, (batch, recording)) = (Inmates::Thread, Default::default());

        Self {
            allowance,
            spools,
            start,
            cage,
            inmates,
            operands,
            list,
            barred,
            batch,
            recording,
            spelling,
            chooser,
            watch,
            manifest,
            is_direct: false,
            wording,
            listener: None,
            states: None,
            lacks: Vec::new(),
        }
    }
}

/// Serves one session over a link, in the role that the controller assigns; as a source it lists
/// into `files`.
pub(crate) fn serve_link(
    link: Arc<dyn Link>,
    timeout: Duration,
    cancel: &CancelToken,
    files: ListedFiles,
    mut means: Means<'_>,
) -> Result<(), SyncError> {
    // The client may keep any other rate, or none.
    let link = match means.start.bytes_per_second() {
        Some(rate) => throttled(link, &Throttle::new(Some(rate)), Sides::All),
        None => link,
    };
    let Invitation { mut session, receiver, key, hellos: (theirs, ours), role, list } =
        Session::accept(link, timeout, means.allowance.clone(), cancel)?;

    session.halt.set_wording(means.wording);
    session.grant.clone_from(&means.start.grant);
    session.tally = means.start.tally();
    if let Some(grant) = &means.start.grant
        && let Err(error) = judge(grant, (&role, &list), &mut session.options)
    {
        return Err(session.refuse(error));
    }
    let users = session.options.copy_as.clone();
    let user = match &role {
        PeerRole::Source { .. } => users.source.as_ref(),
        PeerRole::Destination { .. } => users.destination.as_ref(),
    };
    session = with_own_workers(session, user);
    acting(user, means.inmates, move |became| {
        let asked = became.and_then(|()| at_homes(role, list, &session.options, &means.start));
        let (role, list) = match asked {
            Ok(asked) => asked,
            Err(error) => return Err(session.refuse(error)),
        };
        if let (Some(grant), PeerRole::Destination { .. }) = (&means.start.grant, &role)
            && let Err(error) = session.while_beginning(|| grant.begin_writing(&session.options))
        {
            return Err(session.refuse(error));
        }
        let states = means.states.as_ref().filter(|_| user.is_none());
        let lent = Lent::to(&mut session, states, &role, &mut means.lacks);
        let served = match role {
            PeerRole::Source { paths } => {
                let (mut order, features) = (SourceInbox::peer(), theirs.features);
                order.allow_file_keys(features);
                let (keying, spans) = (Keying::Agreed(key), span_key(features, &ours));
                let source = (session, SourceMail { receiver, order, keying, spans, features });
                serve_source(source, (paths, &list), files, cancel, means)
            }
            PeerRole::Destination { path, asked } => {
                let (order, spans) = (DestinationInbox::peer(), span_key(theirs.features, &theirs));
                let mail = DestinationMail { receiver, order, key, spans, features: theirs.features };
                serve_destination((session, mail), path, (asked, &list), cancel, means)
            }
        };
        lent.into_iter().for_each(|lent| lent.close(served.is_ok()));
        served
    })
}

/// Holds a client to its grant. Rules of the program's may panic: the client has to be told, or it would take
/// that for a broken connection and try again.
fn judge(grant: &Grant, task: (&PeerRole, &ListPlace), options: &mut SyncOptions) -> Result<(), SyncError> {
    caught(|| {
        grant.check(task, options)?;
        grant.impose(task, options);
        Ok(())
    })
}

/// Serves as the source.
fn serve_source(
    (session, mut mail): (Session, SourceMail),
    (paths, list): (Vec<Vec<u8>>, &ListPlace),
    files: ListedFiles,
    cancel: &CancelToken,
    mut means: Means<'_>,
) -> Result<(), SyncError> {
    if let Some(batch) = means.batch {
        session.say_ready(&[])?;
        let (origin, manifest) = (Origin::Batch(batch), None);
        let recording = means.recording;
        let tree = Tree { origin, files, recording, manifest, in_process: false };
        return source::run(session, mail, tree, None, cancel).map(drop);
    }
    let sent = || paths.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect();
    let typed: Vec<_> = means.operands.map_or_else(sent, <[_]>::to_vec);
    if *list == ListPlace::Sent {
        mail.order = mail.order.with_names();
    }
    let heard = hear_list((&session, &mut mail), list, means.list, (&means.start, &means.spools));

    let paths = heard.and_then(|list| {
        // Opens directories that the cage has no place for: only their names are read.
        let expand = || expanded(typed, list.is_some(), (&session.options, means.start.floor().as_ref()));
        let paths = if session.options.wildcards { session.while_alive(expand) } else { expand() };
        Ok((list, paths?))
    });
    let tree = paths.and_then(|(list, paths)| {
        // The cage keeps this end from what is above the operands.
        let filter = rules::compile(&session.options)?;
        let filter = rules::above_source(filter, &paths, (means.start.floor().as_ref(), means.spelling))?;
        if let Some(cage) = means.cage {
            let operands = (&*paths, list.is_some());
            let footprint = Footprint::of_source(operands, &session.options, &means.start);
            cage.enter(&footprint.with_state(session.state.as_ref()), Inmates::Process);
        }
        let open = || {
            let terms = (&session.options, filter);
            let place = Place {
                floor: means.start.floor(),
                barred: means.barred,
                spelling: means.spelling,
                chooser: means.chooser,
                watch: means.watch,
            };
            open_tree((&paths, list.as_ref()), terms, (files, means.recording), means.spools, place)
        };
        // A long list takes its time.
        if list.is_some() { session.while_alive(open) } else { open() }
    });
    let tree = match tree {
        Ok(tree) => Tree { manifest: means.manifest.cloned(), in_process: means.is_direct, ..tree },
        Err(error) => return Err(session.refuse(error)),
    };
    means.lacks.extend(means.cage.into_iter().flat_map(Cage::lacks));
    session.say_ready(&means.lacks)?;
    source::run(session, mail, tree, None, cancel)?;
    Ok(())
}

/// Returns the list of the paths to copy, from where it is.
fn hear_list(
    (session, mail): (&Session, &mut SourceMail),
    place: &ListPlace,
    own: Option<FileList>,
    (start, spools): (&Start, &SpoolHome),
) -> Result<Option<FileList>, SyncError> {
    match place {
        ListPlace::None => Ok(own),
        ListPlace::Sent => names::hear(session, (&mut mail.receiver, &mut mail.order), spools).map(Some),
        ListPlace::File { path, nul } => {
            let from = (start, spools, &OperatorFiles::default());
            names::read(path, *nul, session.options.relative, from).map(Some)
        }
    }
}

/// Serves as the destination.
fn serve_destination(
    (session, mail): (Session, DestinationMail),
    path: Vec<u8>,
    (asked, list): (Asked, &ListPlace),
    cancel: &CancelToken,
    Means { spools, start, cage, listener, mut lacks, .. }: Means<'_>,
) -> Result<(), SyncError> {
    let operand = PathBuf::from(OsString::from_vec(path));
    let asked = match list {
        ListPlace::File { path, nul } => {
            let files = OperatorFiles::new(operator_links(&session.options)).with_destination(&operand);
            let from = (&start, &spools, &files);
            names::read(path, *nul, session.options.relative, from).map(AskedFor::in_list)
        }
        _ => Ok(asked.into()),
    };
    let terms = asked.and_then(|asked| {
        let filters =
            Filters::of(&session.options, &operand, asked.contents(), (start.floor().as_ref(), None))?;
        Ok((asked, filters))
    });
    let (asked, filters) = match terms {
        Ok(terms) => terms,
        Err(error) => return Err(session.refuse(error)),
    };

    if let Some(cage) = cage {
        let footprint = Footprint::of_destination(&operand, asked.may_be_file(), &session.options, &start);
        cage.enter(&footprint.with_state(session.state.as_ref()), Inmates::Process);
    }
    lacks.extend(cage.into_iter().flat_map(Cage::lacks));
    session.say_ready(&lacks)?;
    if let Some(Err(error)) = asked.list().map(|list| names::send(&session, list)) {
        return Err(session.refuse(error));
    }
    let (observer, files, recording) = (None, None, None);
    let terms = destination::Terms {
        operand,
        filters,
        asked,
        observer,
        listener,
        files,
        spools,
        start,
        recording,
        own: OwnEntries::default(),
    };
    destination::run(session, mail, terms, cancel)?;
    Ok(())
}
