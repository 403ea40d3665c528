//! The time at which a run stops by itself.

use clap::Args;

use super::{Group, NotInRange, whole_number};
use crate::stop::{Moment, NotAMoment};

/// The end of a run, and whether others follow.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Stopping")]
pub(crate) struct Stopping {
    /// Stop after MINUTES, with exit code 30
    ///
    /// Finished files are kept, nothing is deleted any more, and the next run goes on from there. Of a
    /// file that is under way --partial keeps what has arrived. The last of --stop-after and --stop-at
    /// counts.
    #[arg(
        long,
        alias = "time-limit",
        value_name = "MINUTES",
        allow_hyphen_values = true,
        overrides_with = "stop_at",
        value_parser = minutes
    )]
    pub(crate) stop_after: Option<u64>,
    /// Stop at a local time, with exit code 30: 2026-12-31T23:59, 12-31, 23:59 or :30
    ///
    /// Parts that are left out are the next possible ones: 1-30 is the next January 30th at midnight,
    /// 14:00 the next 2 P.M., 1 the next 1st of a month, :59 the next 59th minute. Slashes do for
    /// dashes, and a year may have two digits. A time that has passed is an error. See --stop-after.
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        overrides_with = "stop_after",
        value_parser = moment
    )]
    pub(crate) stop_at: Option<Moment>,
    /// Wait up to SECONDS for another run into the same destination
    ///
    /// Without it a run waits for three seconds, and then ends with exit code 41. Programs that start several
    /// runs into one destination get them one after the other.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) lock_wait: Option<u64>,
    /// Run again whenever the source has changed, until an interrupt, with exit code 20
    ///
    /// Of a local source: to another directory, or as a push. A run begins when nothing has changed for
    /// half a second, or every 10 s in a tree that never rests; each is a whole run with a summary of
    /// its own, so nothing is missed. What rules leave out takes no watch and begins no run, links are
    /// watched wherever they are followed, and a changed list of --files-from begins a run with the new
    /// names. A run that fails is told and made again after 1 s, then 2 s, up to a minute, or at the
    /// next change if only some entries failed; if the first one cannot be made, the command ends.
    /// Where the system allows fewer watches than there are directories, or a directory on the way may
    /// only be searched, that is said, and the source is looked through every minute as well. With --json each run is a stream from `start` to
    /// `summary`.
    #[arg(long)]
    pub(crate) watch: bool,
}

impl Group for Stopping {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("watch", &mut self.watch)]
    }
}

fn seconds(value: &str) -> Result<u64, NotInRange> {
    whole_number(value, 0, u32::MAX.into())
}

fn minutes(value: &str) -> Result<u64, NotInRange> {
    whole_number(value, 1, MOST_MINUTES)
}

fn moment(value: &str) -> Result<Moment, NotAMoment> {
    Moment::parse(value)
}

/// A century, far below the overflow of clock arithmetic.
const MOST_MINUTES: u64 = 100 * 366 * 24 * 60;
