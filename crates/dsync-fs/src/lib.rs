//! The only crate that touches a tree: walk, metadata, staged writes, commit.
//!
//! Everything below an operator's own path is reached through directory handles: one validated
//! [`Component`] per step, never a path, and no step follows a symbolic link. A peer might send a
//! link and then files "under" it, and a local user might swap a directory for a link during a run.
//! Neither can lead a read, write or removal out of the tree.
//!
//! # The way of a file through this crate
//! [`Walk`] lists a source (several operands merged into one tree), and [`SourceFile`] reads one of
//! its files with positional reads. At the destination [`StagedFile`] receives the new content
//! beside the target, [`PreparedFile`] has all its metadata, and [`CommitGroup`] makes a group of
//! them durable and visible.
//!
//! # What it does not do
//! No network, no policy, no threads except those that read directories ahead of a walk. The engine
//! decides which entries to copy or remove. Linux only.

pub mod acl;
pub mod apart;
pub mod attributes;
pub mod backup;
pub mod blank;
pub mod commit;
pub mod component;
pub mod dir;
pub mod extended;
pub mod extents;
pub mod fake_super;
pub mod filter;
pub mod ids;
pub mod kept;
pub mod list_ahead;
pub mod metadata;
mod names;
pub mod operand;
pub mod own_places;
pub mod owner;
mod place;
mod read_ahead;
pub mod remove;
pub mod shared_path;
pub mod source_file;
pub mod spool;
pub mod staged;
pub mod sys;
pub mod walk;

pub use crate::{
    acl::Acl,
    apart::is_apart_name,
    attributes::{Privileges, Wanted},
    backup::BackupPlace,
    commit::{CommitError, CommitGroup, Durability, SyncFailed},
    component::{Component, InvalidComponent, RelPath},
    dir::{
        Dir, DirLock, LeadsOut, Links, Listing, Special, UntrustedLink, append_operator_file, cannot_link,
        is_lock_name, open_operator_file,
    },
    extended::{Acls, Extended, ExtendedScope, MAX_EXTENDED_BYTES, Withheld, Xattr},
    extents::{CopyError, Patched, Sharing},
    fake_super::{Origin, is_damaged},
    filter::{FilterError, FilterReason, FilterSet, Within},
    ids::Names,
    kept::{KeptNames, Notes, is_finished_name, is_kept_name, is_own_name},
    list_ahead::{ListAhead, ListedPart},
    metadata::{DeviceNumber, Kind, Metadata, Stamp, Timestamp},
    operand::OperandForm,
    own_places::OwnPlaces,
    place::Location,
    remove::{RemoveError, Spare},
    shared_path::SharedPath,
    source_file::SourceFile,
    spool::{MAX_SPOOLS_IN_MEMORY, RecordAt, SealedSpool, Spool, SpoolError, SpoolHome},
    staged::{PreparedFile, StagedFile, is_temp_name, temp_name},
    walk::{
        DirRef, OperandProblem, Walk, WalkError, WalkOperation, WalkOptions, WalkProblem, WalkedDir,
        WalkedEntry,
    },
};
