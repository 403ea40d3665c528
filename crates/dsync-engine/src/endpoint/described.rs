//! The description of a job: one setter for each part of it.

use std::{path::PathBuf, sync::Arc};

use dsync_fs::{Choice, Spelling, TreeWatch};
use dsync_wire::{options::SyncOptions, path::EntryPath};

use super::Job;
use crate::{
    Resources,
    batch::Recording,
    choice::{Candidate, Filter},
    ends::{ConnectOptions, FilesFrom},
    footprint::Cage,
};

impl Job {
    /// Sets the run's policy.
    ///
    /// ```
    /// use dsync_engine::{
    ///     ActAs, AlternateUse, Alternates, Backup, Compression, CopyAs, DeleteLimit,
    ///     DeleteTiming, Destination, Durability, FakeSuper, Job, KeepPartial, MungeLinks, Source,
    ///     SyncOptions, WritePolicy,
    /// };
    ///
    /// // A mirror that loses nothing by accident.
    /// let kept = WritePolicy::default().backup(Some(Backup::new(b".old".to_vec())));
    /// let mirror = SyncOptions::archive()
    ///     .delete(true)
    ///     .delete_timing(DeleteTiming::After)
    ///     .max_delete(Some(DeleteLimit::Percent(10)))
    ///     .writing(kept);
    ///
    /// // Today's snapshot: what has not changed is another name of yesterday's file.
    /// let yesterday = Alternates::new(AlternateUse::Link, vec![b"../yesterday".to_vec()]);
    /// let snapshot =
    ///     SyncOptions::archive().writing(WritePolicy::default().alternates(Some(yesterday)));
    ///
    /// // Large files over a line that breaks, to a scratch disk.
    /// let far = SyncOptions::archive()
    ///     .keep_partial(KeepPartial::Always)
    ///     .compression(Compression::Zstd(10))
    ///     .durability(Durability::None);
    ///
    /// // Foreign systems at a vault whose files belong to one user without rights.
    /// let vault = SyncOptions::archive()
    ///     .fake_super(FakeSuper::default().destination(true))
    ///     .munge_links(MungeLinks::default().destination(true))
    ///     .copy_as(CopyAs::default().destination(Some(ActAs::new(b"vault".to_vec()))));
    /// # for options in [mirror, snapshot, far, vault] {
    /// let source = Source::Local { paths: vec!["/srv/".into()] };
    /// let job =
    ///     Job::new(source, Destination::Local { path: "/mnt/copy".into() }).options(options);
    /// # }
    /// ```
    #[must_use]
    pub fn options(mut self, options: SyncOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how a remote end is reached.
    #[must_use]
    pub fn connect(mut self, connect: ConnectOptions) -> Self {
        self.connect = connect;
        self
    }

    /// Sets the limits on what the run takes of this machine.
    #[must_use]
    pub fn resources(mut self, resources: Resources) -> Self {
        self.resources = resources;
        self
    }

    /// Sets a list of the paths to copy. The source's only path is the directory in which they
    /// begin, and [`SyncOptions::relative`] says whether entries keep their paths. Directories need
    /// [`SyncOptions::dirs`], and are copied with what is in them under
    /// [`recursive`](SyncOptions::recursive), or where their line ends in a slash.
    ///
    /// ```
    /// use dsync_engine::{
    ///     CancelToken, Destination, FileList, FileListWriter, FilesFrom, Job, Resources,
    /// };
    /// use dsync_engine::{Silent, Source, SyncOptions};
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// # std::fs::write(from.join("other"), "not listed")?;
    /// // Names of a program's own, one for each line.
    /// let mut lines: FileListWriter = Resources::default().file_list(true);
    /// lines.push(b"note")?;
    /// let list: FileList = lines.finish()?;
    ///
    /// let source = Source::Local { paths: vec![from] };
    /// let job = Job::new(source, Destination::Local { path: to.clone() })
    ///     .options(SyncOptions::archive().relative(true))
    ///     .files_from(FilesFrom::List(list));
    /// job.run(&Silent, &CancelToken::new())?;
    /// assert!(to.join("note").exists() && !to.join("other").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn files_from(mut self, files_from: FilesFrom) -> Self {
        self.files_from = Some(files_from);
        self
    }

    /// Sets the character sets of names: here that of this machine's end, there that of the other
    /// end; of a local run that of the destination. Whatever else the job says of names is in the
    /// set here, and so is what the observer hears; paths of this machine are opened as they are.
    /// The other end has no part in the conversion. Default: none, names are copied byte for byte.
    ///
    /// A name that one of the sets lacks is an [`Event::Failed`](crate::Event::Failed) with
    /// `EILSEQ`, and nothing is deleted then.
    ///
    /// ```
    /// use dsync_engine::{Charset, Destination, Job, Source, Spelling, SyncOptions};
    ///
    /// // An old server has its names in Latin-1.
    /// let latin = Charset::named("iso-8859-15").ok_or("no such character set")?;
    /// let utf8 = Charset::named("utf-8").ok_or("no such character set")?;
    /// let source = Source::Local { paths: vec!["photos/".into()] };
    /// let job = Job::new(source, Destination::Local { path: "/mnt/old-server".into() })
    ///     .options(SyncOptions::archive())
    ///     .spelling(Spelling::new(utf8, latin));
    /// # drop(job);
    /// // For a menu:
    /// assert!(Charset::all().any(|set| set.name() == latin.name()));
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn spelling(mut self, spelling: Spelling) -> Self {
        self.spelling = Some(spelling);
        self
    }

    /// Records the run in a batch file, which takes its name when the run has ended well, even if
    /// entries failed. With `only` (see [`Recording::create`]), nothing is changed, and the file has what the
    /// run would have sent.
    /// A connection that breaks is not made again.
    #[must_use]
    pub fn record(mut self, recording: Recording) -> Self {
        self.recording = Some(recording);
        self
    }

    /// Sets a filter that is this program's own code. It is asked about each entry of the source that
    /// [`SyncOptions::filters`] leave, with its type, size, time, permissions and owner, and says
    /// whether the entry is copied and whether a directory is descended into. Default: none.
    ///
    /// It takes part as an exclude rule does:
    ///
    /// * What it hides is not copied, and of a directory nothing is looked at.
    /// * With [`delete`](SyncOptions::delete), whatever has a hidden entry's name at the destination is
    ///   left alone, with all that is in it. With
    ///   [`delete_excluded`](SyncOptions::delete_excluded) as well it is deleted.
    /// * An entry that only the destination has is not judged, as the filter knows the source's
    ///   entries: it is deleted, where an exclude rule would protect it by its path.
    /// * What was copied before the filter hid it stays, without `delete_excluded`.
    /// * [`Choice::CopyAlone`] stands for a directory whose entries are none of the run's: those at the
    ///   destination stay.
    ///
    /// The root is not judged, nor are directories that are only on the way to a path of
    /// [`relative`](SyncOptions::relative) or of a list. A source at the other end cannot ask this
    /// program: that is [`SyncError::InvalidOption`](crate::SyncError::InvalidOption). So is a filter that would have to protect entries
    /// of what [`prune_empty_dirs`](SyncOptions::prune_empty_dirs) leaves out, or where a batch is read.
    ///
    /// It is called by several threads, once for each entry in a session, twice with `prune_empty_dirs`.
    /// It should answer at once, and the same to the same question. A panic ends the run with
    /// [`SyncError::Aborted`](crate::SyncError::Aborted), and nothing is deleted on its account.
    ///
    /// ```
    /// use dsync_engine::{CancelToken, Choice, Destination, FileType, Job, Silent, Source, SyncOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// # std::fs::write(from.join("film"), vec![0; 3 << 20])?;
    /// let source = Source::Local { paths: vec![from.join("")] };
    /// let job = Job::new(source, Destination::Local { path: to.clone() })
    ///     .options(SyncOptions::archive())
    ///     .filter(|entry| match entry.kind {
    ///         FileType::File if entry.size > 1 << 20 => Choice::Hide,
    ///         FileType::Directory if entry.path.ends_with(b"/cache") => Choice::CopyAlone,
    ///         _ => Choice::Copy,
    ///     });
    /// job.run(&Silent, &CancelToken::new())?;
    /// assert!(to.join("note").exists() && !to.join("film").exists());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&Candidate<'_>) -> Choice + Send + Sync + 'static) -> Self {
        self.filter = Some(Filter::new(filter));
        self
    }

    /// Adds a watch on all that the run reads of a local source: the directories that it lists, the
    /// ways of its operands, and where the links lead that it follows. What the options leave out takes
    /// no watch. A run that comes to its end ends the watches of earlier ones that it did not need.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use dsync_engine::{
    ///     CancelToken, Destination, Job, Seen, Silent, Source, SyncOptions, TreeWatch,
    /// };
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// let watch = TreeWatch::new()?;
    /// // The program's own settings decide on the next run too.
    /// watch.file(&home.path().join("settings"));
    /// let source = Source::Local { paths: vec![from.join("")] };
    /// let job = Job::new(source, Destination::Local { path: to.clone() })
    ///     .options(SyncOptions::archive())
    ///     .watch(&watch);
    /// job.clone().run(&Silent, &CancelToken::new())?;
    /// if let Some(error) = watch.lacking() {
    ///     eprintln!("some directories are not watched: {error}");
    /// }
    ///
    /// // Whatever changes from the beginning of the run on is noticed.
    /// std::fs::write(from.join("new"), "")?;
    /// assert_eq!(watch.take(Duration::from_secs(600))?, Seen::Changed);
    /// job.run(&Silent, &CancelToken::new())?;
    /// assert!(to.join("new").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn watch(mut self, watch: &TreeWatch) -> Self {
        self.watch = Some(watch.clone());
        self
    }

    /// Sets the cage of the threads that write the data of a remote source. Default: none, they may
    /// do all that the process may. The thread that calls [`run`](Self::run) is not confined: it
    /// starts the remote shell.
    #[must_use]
    pub fn cage(mut self, cage: Arc<dyn Cage>) -> Self {
        self.cage = Some(cage);
        self
    }

    /// Narrows the job to some of its entries, by their paths below the transfer's root: to those
    /// that [failed](crate::RunOutcome::failed), most often. What has vanished from the source by
    /// now is left out; `delete` removes things below these entries only. Where only the whole job
    /// does them all, because the root is among them, one belongs to no operand, or the job has wildcards, a
    /// batch or a list of paths at the other end, it stays whole. Narrowed to no entry, its run checks the
    /// options and does nothing: it connects to nobody, makes no destination and writes no manifest.
    /// A further call replaces the entries of an earlier one; other setters may come before or after.
    ///
    /// ```no_run
    /// # use dsync_engine::{Destination, Job, Silent, Source, SyncError};
    /// # fn main() -> Result<(), SyncError> {
    /// # let source = Source::Local { paths: vec!["src/".into()] };
    /// let job = Job::new(source, Destination::Local { path: "dst".into() });
    /// let outcome = job.clone().start(Silent)?.join();
    /// if !outcome.failed.is_empty() {
    ///     job.only(&outcome.failed).start(Silent)?.join();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn only(mut self, entries: &[EntryPath]) -> Self {
        self.only = Some(entries.to_vec());
        self
    }

    /// Names a file that the caller writes while the job runs, such as a log. In a destination on this machine
    /// no deletion removes it, nor its directory. Several may be named.
    ///
    /// ```
    /// use dsync_engine::{CancelToken, Destination, Job, Silent, Source, SyncOptions};
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::create_dir(&to)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// std::fs::write(to.join("log"), "begun")?;
    /// let source = Source::Local { paths: vec![from.join("")] };
    /// let options = SyncOptions::archive().delete(true);
    /// let job = Job::new(source, Destination::Local { path: to.clone() }).options(options);
    /// job.own_file(to.join("log")).run(&Silent, &CancelToken::new())?;
    /// assert_eq!(std::fs::read(to.join("log"))?, b"begun");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn own_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.own_files.push(path.into());
        self
    }
}
