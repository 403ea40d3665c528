//! The terms of the run that a batch records: its operands, and the options that decide what its
//! listing has.
//!
//! The law: a batch is read under the options of whoever reads it. Where they would make another
//! listing than the recorded one, the run is refused before it begins, so no batch turns on what
//! nobody asked for. Filter rules are the exception: where the reader has none, those of the batch
//! hold. Rules only keep entries from being removed.

use dsync_wire::{
    codec::{decode_start, encode_start},
    error::{DecodeError, EncodeError},
    message::{Asked, ListPlace, PeerRole, Start},
    options::SyncOptions,
};

/// The terms of a recorded run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Terms {
    pub(super) asked: Asked,
    pub(super) options: SyncOptions,
}

/// An option with another value in the batch than in the run that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    /// The option's name in this API.
    pub(super) option: &'static str,
    /// Whether the recorded run had it, of an option that is on or off.
    pub(super) recorded: Option<bool>,
}

/// Calls a macro with the options that are on or off and decide what a listing has.
macro_rules! switches {
    ($make:ident, $($more:tt)*) => {
        $make! { $($more)*;
            recursive, dirs, relative, no_implied_dirs, links, copy_links, copy_dirlinks, copy_unsafe_links,
            owner, group, acls, xattrs, atimes, hard_links, devices, specials, copy_devices, numeric_ids,
            checksum, prune_empty_dirs, delete_missing_args }
    };
}

macro_rules! taken {
    ($options:ident; $($name:ident),*) => {{
        let mut taken = SyncOptions::default();
        $(taken.$name = $options.$name;)*
        taken
    }};
}

macro_rules! compared {
    ($recorded:ident, $read:ident; $($name:ident),*) => {
        [$((stringify!($name), $recorded.$name, $read.$name)),*]
    };
}

impl Terms {
    /// Takes what a batch keeps of a run's options: no path, and nothing of how it was carried out.
    pub(super) fn new(asked: Asked, options: &SyncOptions) -> Self {
        let mut taken = switches!(taken, options);
        taken.munge_links = options.munge_links;
        taken.mode_rules.clone_from(&options.mode_rules);
        taken.filters.clone_from(&options.filters);
        Self { asked, options: taken }
    }

    /// Returns the payload of the section.
    pub(super) fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let role = PeerRole::Destination { path: b".".to_vec(), asked: self.asked.clone() };
        let options = self.options.clone();
        encode_start(&Start { role, options, data_lanes: 1, again: None, list: ListPlace::None })
    }

    /// Reads the payload of the section; `None` if it is of no destination.
    pub(super) fn decode(payload: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Start { role, options, .. } = decode_start(payload)?;
        Ok(match role {
            PeerRole::Destination { asked, .. } => Some(Self::new(asked, &options)),
            PeerRole::Source { .. } => None,
        })
    }

    /// Returns the options under which the listing differs from one of `options`.
    pub(super) fn differences(&self, options: &SyncOptions) -> Vec<Difference> {
        let recorded = &self.options;
        let switches = switches!(compared, recorded, options).into_iter();
        let mut found: Vec<_> = switches
            .filter(|(_, recorded, read)| recorded != read)
            .map(|(option, recorded, _)| Difference { option, recorded: Some(recorded) })
            .collect();
        let values = [
            ("munge_links", recorded.munge_links.source != options.munge_links.source),
            ("mode_rules", recorded.mode_rules != options.mode_rules),
            ("filters", !options.filters.is_empty() && recorded.filters != options.filters),
        ];
        let differing = values.into_iter().filter(|(_, differs)| *differs);
        found.extend(differing.map(|(option, _)| Difference { option, recorded: None }));
        found
    }
}
