//! Jobs that write a manifest of their destination.

use dsync_fs::OperatorFiles;

use super::Job;
use crate::{
    Destination, Observer, SyncError,
    manifest_file::{ManifestFile, ManifestHears},
    own_entries::OwnEntries,
};

impl Job {
    /// Writes a manifest of what the destination has after the run, in the format of
    /// [`Manifest`](crate::Manifest). It is sorted and has every entry below the transfer's root, also those
    /// that were there before, but none for which a failure was reported. The file appears whole, readable
    /// for its owner only, when the run has ended well, even if entries failed; else an old one stays. A dry
    /// run writes none.
    ///
    /// A record has the content of a file that this run wrote or compared by content. Of every other
    /// file it has none, which says that nobody read it, and [`verify`](crate::verify::verify()) compares such a
    /// file by size and time.
    ///
    /// It costs a walk through the destination's tree. Keep the file out of that tree where it is at another
    /// end; here it is left out of the manifest. Not with [`spelling`](Self::spelling), nor where the
    /// destination is the name of a file.
    ///
    /// ```
    /// use dsync_engine::{CancelToken, Destination, Job, Manifest, ManifestFile, Silent, Source, SyncOptions};
    /// use dsync_engine::verify::{Reading, verify};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to, list) = (home.path().join("from"), home.path().join("to"), home.path().join("list"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// let source = Source::Local { paths: vec![from.join("")] };
    /// let job = Job::new(source, Destination::Local { path: to.clone() })
    ///     .options(SyncOptions::archive())
    ///     .write_manifest(ManifestFile::new(&list));
    /// job.run(&Silent, &CancelToken::new())?;
    ///
    /// let found = verify(&to, &Manifest::open(&list)?, &Reading::default(), &Silent, &CancelToken::new())?;
    /// assert_eq!((found.sound, found.findings()), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn write_manifest(mut self, file: ManifestFile) -> Self {
        self.manifest_file = Some(file);
        self
    }

    /// Asks the destination of a run that writes a manifest to tell of its tree. Returns whether the caller's
    /// observer hears of the tree as well.
    pub(super) fn prepare_manifest(&mut self) -> Result<bool, SyncError> {
        let passes = self.options.event_tree;
        let Some(file) = self.manifest_file.as_ref().filter(|_| !self.options.dry_run) else {
            return Ok(passes);
        };
        if self.spelling.is_some() {
            let why = "has two character sets, and a manifest names of one".to_owned();
            return Err(SyncError::InvalidOption { option: "spelling", why });
        }
        self.options.event_tree = true;
        self.options.event_contents |= file.contents;
        Ok(passes)
    }

    /// Finds what the run itself has in a destination on this machine.
    pub(super) fn own_entries(&self) -> OwnEntries {
        let mut own = OwnEntries::default();
        let Destination::Local { path } = &self.destination else { return own };
        let files = OperatorFiles::default().with_destination(path);
        for file in &self.own_files {
            own.note(file, &files);
        }
        if let Some(manifest) = &self.manifest_file {
            let files = OperatorFiles::new(manifest.links).with_destination(path);
            own.left_out = own.note(&manifest.path, &files);
        }
        own
    }

    /// Begins the file of a run that writes one; `passes` is what was [prepared](Self::prepare_manifest).
    pub(super) fn begin_manifest<'a>(
        &mut self,
        observer: &'a dyn Observer,
        passes: bool,
    ) -> Result<Option<ManifestHears<'a>>, SyncError> {
        let Some(file) = self.manifest_file.take().filter(|_| !self.options.dry_run) else { return Ok(None) };
        let mut files = OperatorFiles::new(file.links);
        if let Destination::Local { path } = &self.destination {
            files = files.with_destination(path);
        }
        ManifestHears::begin(file.path, files, (observer, passes)).map(Some)
    }
}
