//! Limits on what a peer makes a run take of this machine.

use std::{path::PathBuf, sync::Arc, time::Duration};

use dsync_fs::{FileListWriter, SpoolHome};
use dsync_transport::Throttle;
use dsync_wire::setters;
use dsync_wire::{budget::Budget, limits::DEFAULT_MAX_ALLOC};

use crate::{State, States, Workers};

/// Bounds of one end. They are this end's own: no peer changes them.
///
/// ```
/// use std::{num::NonZero, time::Duration};
///
/// use dsync_engine::{FileListWriter, Resources, Workers};
///
/// // One value for all sessions of a service: they share four threads.
/// let resources = Resources::default()
///     .workers(Workers::new(NonZero::new(4).ok_or("no threads")?))
///     .max_alloc(64 << 20)
///     .max_stall(Duration::from_secs(600));
///
/// // Lists of names outgrow memory in the directory for spools.
/// let mut list: FileListWriter = resources.spool_dir(Some("/var/tmp".into())).file_list(true);
/// list.read(&mut b"photos/one\nphotos/two\n".as_slice(), false)?;
/// # list.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Resources {
    /// Bytes of memory that the peer can make this end hold, beside the fixed costs of a process
    /// (about 30 MiB). Default 256 MiB, at least 16 MiB: less would end any session over a connection, whose
    /// lanes alone may have 12 MiB on the way. A local run has no peer and no such bound.
    pub max_alloc: u64,
    /// Directory for lists that outgrow a mebibyte, as files without a name. The directory of
    /// [temporaries](crate::WritePolicy::temp_dir) comes before it, if the run has one. Default
    /// `None`: `/var/tmp`, else `/tmp`. If no file can be made in any of them, all lists may have
    /// 32 MiB together.
    pub spool_dir: Option<PathBuf>,
    /// Longest time without progress while the peer shows signs of life only; at least 1 s. Each 8
    /// MiB of the longest file that this end knows adds a second; comparing files by content adds a
    /// day. A message of up to 1 MiB is progress when it is there, so this has to be longer than a MiB takes at the
    /// lowest [rate](crate::ConnectOptions::bytes_per_second). A local run has no peer and no such bound. Default an hour.
    pub max_stall: Duration,
    /// The threads that make sums and read details of files. Default: as many as there are
    /// processors, started when a run first needs them. Runs with clones of one value share them.
    pub workers: Workers,
    /// The contents that are known of earlier runs of this pair of trees, for comparing files by
    /// content. Whoever opened it saves it. A run with another user's rights does not use it. Default
    /// `None`: all of them are read.
    pub state: Option<State>,
    /// The states that this end offers to sessions that it serves without a grant. Default `None`.
    pub states: Option<Arc<dyn States>>,
    /// The directory that `~` stands for at the start of a client's path, as `$HOME` for a shell. Default
    /// `None`: the home directory of this process's user.
    pub home: Option<PathBuf>,
}

setters!(Resources {
    max_alloc: u64,
    spool_dir: Option<PathBuf>,
    max_stall: Duration,
    workers: Workers,
    state: Option<State>,
    states: Option<Arc<dyn States>>,
    home: Option<PathBuf>,
});

impl Resources {
    /// Returns the share of this machine that a session may take.
    pub(crate) fn allowance(&self, budget: Arc<Budget>) -> Allowance {
        let (workers, state) = (self.workers.clone(), self.state.clone());
        Allowance { budget, stall: self.max_stall, workers, throttle: None, state }
    }

    /// Starts a list of paths that outgrows memory in these directories. With `relative` entries
    /// keep the paths of their lines.
    pub fn file_list(&self, relative: bool) -> FileListWriter {
        FileListWriter::new(relative, &self.spool_home())
    }

    /// Returns where the spools of a session go.
    pub(crate) fn spool_home(&self) -> SpoolHome {
        match &self.spool_dir {
            Some(dir) => SpoolHome::new(vec![dir.clone()]),
            // The first should be on a disk, the second often is memory.
            None => SpoolHome::new(vec!["/var/tmp".into(), "/tmp".into()]),
        }
    }
}

impl Default for Resources {
    fn default() -> Self {
        let (spool_dir, workers, state, states, home) = Default::default();
        let max_stall = Duration::from_secs(3600);
        Self { max_alloc: DEFAULT_MAX_ALLOC, spool_dir, max_stall, workers, state, states, home }
    }
}

/// The share of this machine that a session may take; its peer has no say in it.
#[derive(Clone)]
pub(crate) struct Allowance {
    /// The account of what the peer makes this end hold.
    pub(crate) budget: Arc<Budget>,
    /// Longest time without progress at either end.
    pub(crate) stall: Duration,
    /// The threads for sums and details.
    pub(crate) workers: Workers,
    /// The speed of what is copied without a link.
    pub(crate) throttle: Option<Throttle>,
    /// The contents that are known of earlier runs.
    pub(crate) state: Option<State>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use dsync_wire::{
        budget::{LANES_RESERVE, Share},
        limits::{
            DEFAULT_MAX_ALLOC, MAX_ATTEMPTS, MAX_OPEN_SIGNATURES, MAX_OPEN_SPANS, MAX_PATH_DEPTH,
            MAX_SPAN_ITEMS, MAX_SPAN_PIECES,
        },
    };

    use crate::{
        Resources,
        limits::{MAX_FINE_BLOCKS, MAX_OPEN_PATH_BYTES, MAX_UNRELEASED_ENTRIES, MAX_UNRELEASED_SET_BYTES},
    };

    /// Cells of the table after the comment `<!-- table: NAME -->` of the threat model.
    fn rows(name: &str) -> Vec<Vec<String>> {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/threat-model.md");
        let document = fs::read_to_string(page).unwrap();
        let (_, after) = document.split_once(&format!("<!-- table: {name} -->\n")).unwrap();
        let rows = after.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
            .collect()
    }

    #[test]
    fn the_table_of_bounds_is_that_of_the_code() {
        let documented: BTreeMap<_, _> = rows("bounds")
            .into_iter()
            .map(|row| (row[0].trim_matches('`').to_owned(), row[1].replace(',', "").parse::<u64>().unwrap()))
            .collect();
        let code = [
            ("DEFAULT_MAX_ALLOC", DEFAULT_MAX_ALLOC),
            ("LANES_RESERVE", LANES_RESERVE),
            ("MAX_UNRELEASED_ENTRIES", MAX_UNRELEASED_ENTRIES as u64),
            ("MAX_UNRELEASED_SET_BYTES", MAX_UNRELEASED_SET_BYTES),
            ("MAX_SPOOLS_IN_MEMORY", dsync_fs::MAX_SPOOLS_IN_MEMORY),
            ("MAX_OPEN_PATH_BYTES", MAX_OPEN_PATH_BYTES),
            ("MAX_OPEN_SPANS", MAX_OPEN_SPANS as u64),
            ("MAX_SPAN_ITEMS", MAX_SPAN_ITEMS.into()),
            ("MAX_SPAN_PIECES", MAX_SPAN_PIECES as u64),
            ("MAX_PATH_DEPTH", MAX_PATH_DEPTH as u64),
            ("MAX_ATTEMPTS", MAX_ATTEMPTS.into()),
            ("MAX_OPEN_SIGNATURES", MAX_OPEN_SIGNATURES as u64),
            ("MAX_FINE_BLOCKS", MAX_FINE_BLOCKS),
            ("MAX_TOKENS_PER_MIB", dsync_delta::most_tokens(1 << 20)),
            ("MAX_STALL_SECONDS", Resources::default().max_stall.as_secs()),
        ];
        assert_eq!(documented, code.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    }

    #[test]
    fn every_share_has_a_row() {
        let shares: Vec<String> = rows("shares").into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(shares, Share::ALL.map(|share| share.to_string()));
    }
}
