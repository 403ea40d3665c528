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

mod acl;
mod acting_user;
pub mod apart;
mod attributes;
mod backup;
pub mod blank;
mod commit;
mod component;
mod content_index;
mod dir;
mod disk_wait;
mod explained;
mod extended;
mod extents;
mod fake_super;
mod file_index;
mod file_list;
mod filter;
mod flat_spool;
mod foresight;
mod ids;
mod kept;
mod list_ahead;
mod listed_name;
mod metadata;
mod names;
mod operand;
mod operand_paths;
mod operator_files;
mod own_names;
mod own_places;
mod owner;
mod place;
pub mod probe;
mod quota;
mod read_ahead;
mod remove;
mod settled;
mod shared_path;
mod source_file;
mod spelling;
mod spool;
mod staged;
pub mod sys;
mod tree_watch;
mod walk;
mod wildcards;
mod xattr_rules;

pub use crate::{
    acl::Acl,
    acting_user::{ActingUser, ActingUserError},
    attributes::{Privileges, Wanted},
    backup::BackupPlace,
    commit::{CommitError, CommitGroup, Durability, SyncFailed},
    component::{Component, InvalidComponent, RelPath},
    content_index::{ContentIndex, ContentIndexBuilder, FileVersion},
    dir::{
        Dir, DirLock, LeadsOut, Links, Listing, Special, Target, UntrustedLink, cannot_link, is_no_directory,
        is_target_changed, is_wrong_type,
    },
    explained::Explained,
    extended::{Acls, Extended, ExtendedScope, MAX_EXTENDED_BYTES, Withheld, Xattr},
    extents::{CopyError, DataRanges, Patched, Sharing},
    fake_super::is_damaged,
    file_index::{FileIndex, FileIndexBuilder, IndexedAt, Sought},
    file_list::{FileList, FileListError, FileListWriter, MAX_LINE, NamedPath},
    filter::{
        CVS_PATTERNS, Ends, FilterError, FilterReason, FilterSet, ParsedRule, RuleFault, RuleFile,
        RuleFileError, RuleFileFault, RuleLines, RuleOrigin, RuleSpec, Scope, Subject, Verdict, Within,
    },
    ids::{Names, home_directory, home_directory_of, preload_names},
    kept::{KeptNames, Notes, find_finished, is_left, reap_kept, reap_left},
    list_ahead::{ListAhead, ListedPart},
    metadata::{DeviceNumber, Kind, Metadata, Origin, Stamp, Timestamp},
    operand::OperandForm,
    operand_paths::{InvalidRelative, Naming, OperandPath, OperandPaths, PathSorter, RelativeForm, Standing},
    operator_files::{OperatorFiles, append_operator_file, open_operator_file},
    own_names::{
        is_apart_name, is_behind_notes, is_finished_name, is_kept_name, is_lock_name, is_notes_name,
        is_own_name, is_temp_name,
    },
    own_places::OwnPlaces,
    owner::{boot_number, is_abandoned, preload_owner, reap_abandoned},
    place::Location,
    quota::{Meter, Quota, QuotaReached, Usage},
    remove::{RemoveError, Spare},
    settled::{LeasedFile, StableFilesystem, filesystem_time, wait_until_past},
    shared_path::SharedPath,
    source_file::{DISK_UNIT, Opening, SourceFile},
    spelling::{Charset, Spelling, is_unspelled},
    spool::{MAX_SPOOLS_IN_MEMORY, RecordAt, SealedSpool, Spool, SpoolError, SpoolHome},
    staged::{PreparedFile, StagedFile, temp_name},
    tree_watch::{Seen, TreeWatch},
    walk::{
        Choice, Chooser, DirRef, FollowLinks, LostPath, OperandProblem, Walk, WalkError, WalkOperation,
        WalkOptions, WalkProblem, WalkRuled, WalkRuling, WalkedDir, WalkedEntry, WantedRulings,
        default_readers, leads_out, processors,
    },
    wildcards::{MostNames, PathPattern, PatternPlace, TooManyNames, alternatives, expand, has_wildcards},
    xattr_rules::XattrRules,
};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
