#![doc = include_str!("../README.md")]

mod account;
mod acting;
pub mod batch;
mod callbacks;
pub mod cancel;
mod check;
mod choice;
mod clock;
mod content;
mod destination;
pub mod endpoint;
pub mod ends;
pub mod error;
pub mod exit_code;
mod failures;
pub mod footprint;
pub mod grant;
mod guard;
mod halt;
mod handle;
mod keep;
mod limits;
pub mod manifest;
mod manifest_file;
pub mod misbehaved;
mod munge;
mod names;
pub mod notation;
pub mod observe;
pub mod operand;
mod own_entries;
mod plan;
mod reconnect;
mod relative_paths;
mod resources;
mod retry;
mod rules;
mod runs;
mod schedule;
#[cfg(feature = "serde")]
pub mod schema;
mod server;
mod session;
mod set_bytes;
pub mod share;
mod slow_reads;
mod source;
mod span;
mod spelled;
mod state;
mod states;
pub mod summary;
mod tally;
mod threads;
mod under_way;
mod verdict;
pub mod verify;
mod way;
mod whole_file;
mod workers;

pub use dsync_fs::probe as filesystem;
pub use dsync_fs::{
    ActingUserError, CVS_PATTERNS, Charset, Choice, Ends, Explained, FileList, FileListError, FileListWriter,
    LeadsOut, Links, OperatorFiles, ParsedRule, RuleFault, RuleFile, RuleLines, RuleSpec, Seen, Spelling,
    SpoolError, TreeWatch, UntrustedLink, append_operator_file, has_wildcards, open_operator_file,
    preload_names, preload_owner,
    sys::{file_creation_mask, raise_nofile_limit, reserve_descriptors},
};
pub use dsync_transport::{
    AcceptError, AddressFamily, ConnectError, ShellStatus, Stream, StreamEnd, TransportChoice,
};
#[cfg(feature = "ssh")]
pub use dsync_transport::{Entrance, HostAnswer, MAX_ANSWER};
#[cfg(feature = "tls")]
pub use dsync_transport::{cryptography, standing};
pub use dsync_wire::{
    bootstrap::{BootstrapError, PortRange, VersionRange},
    budget::OverBudget,
    error::{EncodeError, PeerText},
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, Facts, FileType, LeftAlone, Planned, Present,
        Progress, Report, TypeCounts, WhyLeft,
    },
    limits::{MAX_ALTERNATES, MAX_FILTERS, MAX_PATTERN, MAX_PATTERN_BYTES},
    link::{Carrier, CloseReason, Lane, LaneRead, LaneWrite, Link, LinkError, Move, MoveCause, Traffic},
    message::{Cause, Operation, Problem, Reason, Timestamp},
    options::{
        ActAs, AlternateUse, Alternates, Append, Backup, Compression, CopiedBits, CopyAs, DeleteLimit,
        DeleteTiming, DetectRenamed, Durability, EventLevel, FakeSuper, FilterRule, IdMatch, IdRule,
        IdTarget, KeepPartial, ModeRule, MungeLinks, OptionFault, SyncOptions, WritePolicy,
    },
    path::EntryPath,
    ruling::{RulePlace, Ruled, Ruling},
    unprintable::is_unprintable,
    version::VERSION as PROTOCOL_VERSION,
};

pub use crate::{
    batch::{Batch, BatchError, BatchFault, Recording},
    cancel::CancelToken,
    choice::Candidate,
    endpoint::Job,
    ends::{ConnectOptions, Destination, FilesFrom, RemoteHost, Source},
    error::{Fault, PathRole, SyncError, Wording},
    footprint::{Cage, Footprint, Inmates, Touch},
    grant::{Access, Excess, Grant, GrantTerms, GrantTermsError, Limits},
    handle::{RunControls, RunHandle, RunOutcome},
    keep::Keeping,
    manifest::{Manifest, ManifestError, ManifestWriter, Record},
    manifest_file::ManifestFile,
    misbehaved::PeerMisbehaved,
    observe::{Connection, FileProgress, Observer, Reconnect, Silent},
    operand::{Operand, OperandError},
    relative_paths::RelativePaths,
    resources::Resources,
    server::Server,
    share::{Share, ShareError},
    state::{KeptState, Recorded, SignatureUse, State, StateError, StateUse},
    states::States,
    summary::Summary,
    tally::Tally,
    verdict::Verdict,
    way::Connector,
    workers::Workers,
};
#[cfg(feature = "ssh")]
pub use crate::{
    endpoint::serve,
    way::{ask_host, host_command_line},
};
