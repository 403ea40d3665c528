//! The input as a sequence of choices.

use dsync_wire::options::{
    AlternateUse, Alternates, Append, Backup, DeleteTiming, Durability, EventLevel, SyncOptions,
};

use super::Damage;

/// The unread input, followed by zeros without end.
pub(super) struct Script<'a> {
    rest: &'a [u8],
    steps: usize,
}

impl<'a> Script<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data, steps: 0 }
    }

    /// Returns whether a step is left, and counts it.
    pub(super) fn goes_on(&mut self) -> bool {
        self.steps += 1;
        !self.rest.is_empty() && self.steps <= MOST_STEPS
    }

    pub(super) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => 0,
        }
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Returns true with a chance of one in `times`.
    pub(super) fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// Returns one of the choices.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns up to `most` bytes.
    pub(super) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken.to_vec()
    }

    /// Returns damage for one message in ten.
    pub(super) fn damage(&mut self) -> Damage {
        self.rarely(10).then(|| (self.below(256), self.byte()))
    }
}

/// Limit for the steps of one script. Later steps find nothing that more scripts would not.
const MOST_STEPS: usize = 200;

/// Returns the options of a run; none leads out of the tree.
pub(super) fn options(script: &mut Script<'_>) -> SyncOptions {
    let mut options = SyncOptions::archive()
        .durability(Durability::None)
        .events(script.pick(&[EventLevel::Problems, EventLevel::All]))
        .devices(false)
        .hard_links(script.byte() & 1 == 1);
    for _ in 0..2 {
        let settings: &[fn(&mut SyncOptions)] = &[
            |_| {},
            |options| (options.acls, options.xattrs) = (true, true),
            |options| options.delete = true,
            |options| (options.delete, options.delete_timing) = (true, DeleteTiming::Before),
            |options| (options.delete, options.delete_timing) = (true, DeleteTiming::During),
            |options| options.writing.inplace = true,
            |options| (options.writing.inplace, options.writing.append) = (true, Append::Verifying),
            |options| options.writing.delay_updates = true,
            |options| options.writing.partial_dir = Some(b".part".to_vec()),
            |options| options.writing.sparse = true,
            |options| options.writing.backup = Some(Backup::new(Vec::new()).dir(Some(b"old".to_vec()))),
            |options| options.writing.backup = Some(Backup::new(b"~".to_vec())),
            |options| {
                let dirs = vec![b"sub".to_vec()];
                options.writing.alternates = Some(Alternates::new(AlternateUse::Link, dirs));
            },
            |options| options.checksum = true,
            |options| options.keep_dirlinks = true,
            |options| options.ignore_times = true,
            |options| options.dry_run = true,
            |options| options.delete_missing_args = true,
            |options| (options.remove_source_files, options.durability) = (true, Durability::Batch),
            |options| options.fake_super.destination = true,
        ];
        script.pick(settings)(&mut options);
    }
    if options.remove_source_files {
        (options.delete, options.delete_missing_args) = (false, false);
    }
    options
}
