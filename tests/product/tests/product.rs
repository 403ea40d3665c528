//! Holds what the product needs of the engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    num::{NonZero, NonZeroU64},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use dsync_engine::{
    Action, AlternateUse, Alternates, Backup, CancelToken, Cause, Changes, ConnectOptions, Destination, Done,
    Durability, EntryPath, Event, FakeSuper, FileType, FilterRule, IdMatch, IdRule, IdTarget, Job, Limits,
    Manifest, ModeRule, MungeLinks, Observer, Operation, Planned, Problem, Progress, Reconnect,
    RelativePaths, Resources, Silent, Source, SyncError, SyncOptions, Workers, WritePolicy,
    verify::{self, Difference, Finding, Reading, VerifyObserver},
};
use dsync_product::{Agent, Identity, Ledger, Running, Service};
use tokio::runtime::{Builder, Runtime};

/// A service, the directories of its agents, and the agents' own trees.
struct Scene {
    scratch: tempfile::TempDir,
    identity: Identity,
    agents: Vec<Identity>,
    resources: Resources,
    brought: Arc<Brought>,
}

/// Entries that the service has heard of: agent, path and content.
#[derive(Default)]
struct Brought(Mutex<Vec<(String, Done)>>);

impl Ledger for Brought {
    fn done(&self, agent: &str, done: &Done) {
        self.0.lock().unwrap().push((agent.to_owned(), done.clone()));
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Scene {
    fn new(agents: usize) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for number in 0..agents {
            fs::create_dir_all(scratch.path().join(format!("service/{number}"))).unwrap();
            fs::create_dir_all(scratch.path().join(format!("agent/{number}/sub"))).unwrap();
        }
        // All jobs and all sessions take their threads from two between them.
        let workers = Workers::new(NonZero::new(2).unwrap());
        Self {
            scratch,
            identity: Identity::generate().unwrap(),
            agents: (0..agents).map(|_| Identity::generate().unwrap()).collect(),
            resources: Resources::default().workers(workers),
            brought: Arc::default(),
        }
    }

    fn own(&self, agent: usize) -> PathBuf {
        self.scratch.path().join("agent").join(agent.to_string())
    }

    fn kept(&self, agent: usize) -> PathBuf {
        self.scratch.path().join("service").join(agent.to_string()).join("backup")
    }

    /// Plants files of an agent, none like another's, that do not get smaller.
    fn plant(&self, agent: usize, files: usize, bytes: usize) {
        for file in 0..files {
            // xorshift (Marsaglia, 2003).
            let mut state = (agent * 1000 + file + 1) as u64;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[0]
            };
            let content: Vec<u8> = (0..bytes).map(|_| next()).collect();
            fs::write(self.own(agent).join("sub").join(file.to_string()), content).unwrap();
        }
    }

    async fn start(&self, address: SocketAddr) -> Running {
        let agents = self.agents.iter().enumerate();
        let agents = agents.map(|(number, identity)| (identity.certificate(), number.to_string())).collect();
        let service = Service {
            root: self.scratch.path().join("service"),
            resources: self.resources.clone(),
            ledger: Arc::clone(&self.brought) as Arc<dyn Ledger>,
        };
        service.start(&self.identity, agents, address).await.unwrap()
    }

    fn agent(&self, identity: &Identity, address: SocketAddr, runtime: &Runtime) -> Agent {
        let service = self.identity.certificate();
        let handle = runtime.handle().clone();
        Agent::new(identity, service, address, handle, self.resources.clone()).unwrap()
    }
}

fn assert_same(wanted: &Path, found: &Path) {
    for file in fs::read_dir(wanted.join("sub")).unwrap() {
        let name = file.unwrap().file_name();
        let read = |tree: &Path| fs::read(tree.join("sub").join(&name)).unwrap();
        assert!(read(wanted) == read(found), "{}", name.display());
    }
}

#[test]
fn twenty_agents_push_at_once_and_restore() {
    let (scene, runtime) = (Scene::new(20), runtime());
    let running = runtime.block_on(scene.start(any_port()));
    std::thread::scope(|scope| {
        for (number, identity) in scene.agents.iter().enumerate() {
            let (scene, agent) = (&scene, scene.agent(identity, running.address, &runtime));
            scope.spawn(move || {
                scene.plant(number, 12, 40_000);
                let push = || agent.push(scene.own(number), "backup", &Silent, &CancelToken::new()).unwrap();
                let first = push();
                assert_eq!((first.exit_code(), first.report.files_transferred), (0, 12));
                assert_same(&scene.own(number), &scene.kept(number));
                assert_eq!(push().report.files_transferred, 0);
                let restored = scene.scratch.path().join(format!("restored/{number}"));
                fs::create_dir_all(restored.parent().unwrap()).unwrap();
                assert_eq!(agent.restore("backup", restored.clone()).unwrap().exit_code(), 0);
                assert_same(&scene.own(number), &restored);
            });
        }
    });
    let sessions = runtime.block_on(running.ended());
    assert_eq!(sessions.len(), 60);
    assert!(sessions.iter().all(Result::is_ok), "{sessions:?}");
}

/// Brings the service down when the first file is done, and up again before the next try.
struct Restarts<'a> {
    scene: &'a Scene,
    address: SocketAddr,
    /// The runtime that the service lives on.
    alive: Mutex<Option<Runtime>>,
}

impl Observer for Restarts<'_> {
    fn progress(&self, progress: &Progress) {
        if progress.files_done > 0 {
            let alive = self.alive.lock().unwrap().take();
            // As if the process were killed: nobody says goodbye.
            alive.into_iter().for_each(Runtime::shutdown_background);
        }
    }

    fn reconnecting(&self, _reconnect: &Reconnect<'_>) {
        let again = runtime();
        again.block_on(self.scene.start(self.address));
        // Leaked on purpose: the test ends with it.
        std::mem::forget(again);
    }
}

/// Keeps the text that a person reads about each entry, and the number of files that are done.
#[derive(Default)]
struct Screen(Mutex<(Vec<String>, u64)>);

impl Observer for Screen {
    fn event(&self, event: &Event) {
        let text = match event {
            Event::Planned(Planned { action: Action::Delete, path, .. }) => format!("-{path}"),
            Event::Planned(Planned { action: Action::Create, path, .. }) => format!("+{path}"),
            Event::Failed(Problem { path, cause, .. }) => format!("{path}: {cause}"),
            _ => return,
        };
        self.0.lock().unwrap().0.push(text);
    }

    fn progress(&self, progress: &Progress) {
        self.0.lock().unwrap().1 = progress.files_done;
    }
}

#[test]
fn an_observer_can_be_tested_without_a_run() {
    let screen = Screen::default();
    let plan = |action, path: &str| Planned::new(action, FileType::File, path);
    screen.event(&Event::Planned(plan(Action::Create, "new").size(3).changes(Changes::SIZE)));
    screen.event(&Event::Planned(plan(Action::Keep, "same")));
    screen.event(&Event::Planned(plan(Action::Delete, "old")));
    screen.event(&Event::Failed(Problem::new(Operation::ReadFile, "gone", Cause::Vanished)));
    screen.progress(&Progress::default().files_done(7).totals_final(true));

    let (lines, files_done) = screen.0.into_inner().unwrap();
    assert_eq!((lines, files_done), (["+new", "-old", "gone: it has vanished"].map(String::from).into(), 7));
}

#[test]
fn options_of_every_kind_are_set_by_name() {
    let backup = Backup::new(b".old".to_vec()).dir(Some(b"../kept".to_vec()));
    let alternates = Alternates::new(AlternateUse::Link, vec![b"../yesterday".to_vec()]);
    let writing = WritePolicy::default().backup(Some(backup)).alternates(Some(alternates));
    let owner = IdRule::new(IdMatch::Name(b"*".to_vec()), IdTarget::Number(1000));
    let options = SyncOptions::archive()
        .writing(writing)
        .filters(vec![FilterRule::default().pattern(b"*.tmp".to_vec())])
        .mode_rules(vec![ModeRule::new(0o755, 0).directories(false)])
        .id_rules(vec![owner.clone(), owner.group(true)])
        .fake_super(FakeSuper::default().destination(true))
        .munge_links(MungeLinks::default().source(true))
        .max_size(Some(1 << 30));
    assert!(options.recursive && options.fake_super.destination && !options.mode_rules[0].directories);
    assert_eq!((options.id_rules.len(), options.max_size), (2, Some(1 << 30)));
    assert_eq!(options.writing.backup.map(|backup| backup.suffix), Some(b".old".to_vec()));

    let resources = Resources::default().max_alloc(64 << 20).spool_dir(Some("/var/tmp".into()));
    assert_eq!((resources.max_alloc, resources.spool_dir), (64 << 20, Some("/var/tmp".into())));
    let limits = Limits::default().largest_file(Some(1 << 40));
    assert_eq!(limits.largest_file, Some(1 << 40));
    let connect = ConnectOptions::default().retries(0).timeout(Duration::from_secs(120));
    assert_eq!((connect.retries, connect.timeout.as_secs()), (0, 120));
}

#[test]
fn a_service_that_is_restarted_in_the_middle_is_found_again() {
    let (scene, agents, service) = (Scene::new(1), runtime(), runtime());
    scene.plant(0, 40, 200_000);
    let address = service.block_on(scene.start(any_port())).address;
    let mut agent = scene.agent(&scene.agents[0], address, &agents);
    // Slow enough that the first file is done long before the last.
    agent.rate = NonZeroU64::new(2_000_000);
    let restarts = Restarts { scene: &scene, address, alive: Mutex::new(Some(service)) };
    let summary = agent.push(scene.own(0), "backup", &restarts, &CancelToken::new()).unwrap();
    assert_eq!((summary.exit_code(), summary.reconnects), (0, 1));
    assert_same(&scene.own(0), &scene.kept(0));
}

#[test]
fn a_stranger_gets_no_session() {
    let (scene, runtime) = (Scene::new(1), runtime());
    scene.plant(0, 1, 10);
    let running = runtime.block_on(scene.start(any_port()));
    let stranger = scene.agent(&Identity::generate().unwrap(), running.address, &runtime);
    let error = stranger.push(scene.own(0), "backup", &Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::Connector { .. } | SyncError::Link(_)), "{error:?}");
    assert!(runtime.block_on(running.stop()).is_empty(), "a session has begun");
    assert!(!scene.kept(0).exists());
}

#[test]
fn an_agent_stays_in_its_own_directory() {
    let (scene, runtime) = (Scene::new(2), runtime());
    scene.plant(0, 1, 10);
    let running = runtime.block_on(scene.start(any_port()));
    let agent = scene.agent(&scene.agents[0], running.address, &runtime);
    let outside = scene.scratch.path().join("service/1");
    let outside = outside.to_str().unwrap();
    for name in ["../1", outside] {
        // Absolute paths start at the agent's directory as well, where this one does not exist.
        let error = agent.push(scene.own(0), name, &Silent, &CancelToken::new()).unwrap_err();
        assert!(matches!(error, SyncError::Peer { .. }), "{name}: {error:?}");
    }
    assert!(fs::read_dir(outside).unwrap().next().is_none());
}

#[test]
fn a_service_that_stops_ends_its_sessions() {
    let (scene, agents, service) = (Scene::new(1), runtime(), runtime());
    scene.plant(0, 40, 200_000);
    let running = service.block_on(scene.start(any_port()));
    let mut agent = scene.agent(&scene.agents[0], running.address, &agents);
    agent.rate = NonZeroU64::new(500_000);
    /// Stops the service when the first file is done.
    struct Stops<'a>(&'a Runtime, Mutex<Option<Running>>);
    impl Observer for Stops<'_> {
        fn progress(&self, progress: &Progress) {
            let running = if progress.files_done > 0 { self.1.lock().unwrap().take() } else { None };
            if let Some(running) = running {
                let outcomes = self.0.block_on(running.stop());
                assert!(matches!(outcomes.as_slice(), [Err(SyncError::Cancelled)]), "{outcomes:?}");
            }
        }
    }
    let stops = Stops(&service, Mutex::new(Some(running)));
    let error = agent.push(scene.own(0), "backup", &stops, &CancelToken::new()).unwrap_err();
    assert!(
        matches!(error, SyncError::Peer { .. } | SyncError::Link(_) | SyncError::GaveUp { .. }),
        "{error:?}"
    );
    // The service has whole files only.
    for file in fs::read_dir(scene.kept(0).join("sub")).unwrap().map(Result::unwrap) {
        if !file.file_name().to_string_lossy().starts_with('.') {
            assert_eq!(file.metadata().unwrap().len(), 200_000);
        }
    }
}

/// Keeps the paths of what rots.
#[derive(Default)]
struct Rot(Mutex<Vec<EntryPath>>);

impl VerifyObserver for Rot {
    fn finding(&self, finding: &Finding) {
        assert!(matches!(finding.difference, Difference::Rot), "{finding:?}");
        self.0.lock().unwrap().push(finding.path.clone());
    }
}

#[test]
fn a_backup_is_verified_against_the_manifest_of_what_was_pushed() {
    let (scene, runtime) = (Scene::new(1), runtime());
    scene.plant(0, 20, 5000);
    let (running, cancel) = (runtime.block_on(scene.start(any_port())), CancelToken::new());
    let agent = scene.agent(&scene.agents[0], running.address, &runtime);
    agent.push(scene.own(0), "backup", &Silent, &cancel).unwrap();
    let list = scene.scratch.path().join("manifest");
    let reading = Reading::default().workers(scene.resources.workers.clone());
    let totals = verify::record_to_file(&scene.own(0), &list, &reading, &Silent, &cancel).unwrap();
    assert_eq!((totals.files, totals.bytes), (20, 100_000));

    // At the service, and again after a restore.
    let manifest = Manifest::open(&list).unwrap();
    let restored = scene.scratch.path().join("restored");
    agent.restore("backup", restored.clone()).unwrap();
    for tree in [scene.kept(0), restored] {
        let verified = verify::verify(&tree, &manifest, &reading, &Rot::default(), &cancel).unwrap();
        assert_eq!((verified.sound, verified.findings()), (20, 0));
    }

    let damaged = scene.kept(0).join("sub/7");
    let (mut content, time) =
        (fs::read(&damaged).unwrap(), fs::metadata(&damaged).unwrap().modified().unwrap());
    content[4000] ^= 1;
    fs::write(&damaged, content).unwrap();
    fs::File::options().write(true).open(&damaged).unwrap().set_modified(time).unwrap();
    let rot = Rot::default();
    let verified = verify::verify(&scene.kept(0), &manifest, &reading, &rot, &cancel).unwrap();
    assert_eq!((verified.rotten, verified.exit_code()), (1, 23));
    let rotten = rot.0.into_inner().unwrap();
    assert_eq!(rotten, ["sub/7"]);

    // The findings name what is copied again.
    let source = Source::Files { root: scene.own(0), relative: RelativePaths::new(rotten) };
    let mended = Job::new(source, Destination::Local { path: scene.kept(0) })
        .options(SyncOptions::archive().checksum(true))
        .run(&Silent, &cancel)
        .unwrap();
    assert_eq!((mended.exit_code(), mended.report.files_transferred), (0, 1));
}

#[test]
fn what_failed_is_tried_again_and_nothing_else() {
    let scene = Scene::new(1);
    scene.plant(0, 30, 1000);
    let copy = scene.scratch.path().join("copy");
    // Something is in the way of two files.
    for file in ["3", "12"] {
        fs::create_dir_all(copy.join("sub").join(file).join("held")).unwrap();
    }
    let source = Source::Local { paths: vec![scene.own(0).join("")] };
    let destination = Destination::Local { path: copy.clone() };
    let job = Job::new(source, destination).options(SyncOptions::archive());
    let outcome = job.clone().start(Silent).unwrap().join();
    assert_eq!(outcome.summary.unwrap().exit_code(), 23);
    assert_eq!(outcome.failed, ["sub/12", "sub/3"]);

    fs::remove_dir_all(copy.join("sub/3")).unwrap();
    let again = job.clone().only(&outcome.failed).start(Silent).unwrap().join();
    let report = again.summary.unwrap().report;
    assert_eq!((report.listed.files, report.files_transferred, report.failed), (2, 1, 1));
    assert_eq!(again.failed, ["sub/12"]);
    fs::remove_dir_all(copy.join("sub/12")).unwrap();
    // One vanished meanwhile, which is nobody's failure.
    fs::remove_file(scene.own(0).join("sub/3")).unwrap();
    let last = job.only(&outcome.failed).start(Silent).unwrap().join();
    let summary = last.summary.unwrap();
    assert_eq!((summary.exit_code(), summary.report.files_transferred, last.failed.len()), (0, 1, 0));
    fs::remove_file(copy.join("sub/3")).unwrap();
    assert_same(&scene.own(0), &copy);
}

/// Keeps the receipt of each entry that was carried out.
#[derive(Default)]
struct Receipts(Mutex<BTreeMap<EntryPath, Done>>);

impl Observer for Receipts {
    fn event(&self, event: &Event) {
        if let Event::Done(done) = event {
            let before = self.0.lock().unwrap().insert(done.path.clone(), done.clone());
            assert!(before.is_none(), "told twice: {done:?}");
        }
    }
}

impl Receipts {
    fn take(&self) -> BTreeMap<EntryPath, Done> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Returns the BLAKE3 hash of a file's content.
fn hash(file: &Path) -> Option<[u8; 32]> {
    Some(*blake3::hash(&fs::read(file).unwrap()).as_bytes())
}

/// Plants a tree in which everything happens on the second run.
fn plant_changes(own: &Path) {
    fs::write(own.join("sub/1"), "changed").unwrap();
    fs::hard_link(own.join("sub/1"), own.join("sub/9-again")).unwrap();
    fs::remove_file(own.join("sub/2")).unwrap();
    fs::create_dir(own.join("new")).unwrap();
    std::os::unix::fs::symlink("sub/1", own.join("link")).unwrap();
}

fn assert_receipts(receipts: &BTreeMap<EntryPath, Done>, own: &Path, durable: bool) {
    let told: Vec<_> = receipts.iter().map(|(path, done)| (path.clone(), done.action, done.bytes)).collect();
    let expected = [
        ("", Action::Retag, 0),
        ("link", Action::Create, 0),
        ("new", Action::Create, 0),
        ("sub", Action::Retag, 0),
        ("sub/1", Action::Update, 7),
        ("sub/2", Action::Delete, 0),
        ("sub/9-again", Action::Create, 7),
    ]
    .map(|(path, action, bytes)| (EntryPath::from(path), action, bytes));
    assert_eq!(told, expected);

    let of = |path: &str| &receipts[path.as_bytes()];
    let changed = of("sub/1");
    assert_eq!((changed.content, changed.durable), (hash(&own.join("sub/1")), durable));
    assert!(of("sub/9-again").linked && of("sub/9-again").content.is_none());
    assert_eq!(receipts.values().filter(|done| done.linked).count(), 1);
}

#[test]
fn a_push_has_a_receipt_for_every_entry_with_the_hash_of_its_content() {
    let (scene, runtime) = (Scene::new(1), runtime());
    scene.plant(0, 20, 30_000);
    let running = runtime.block_on(scene.start(any_port()));
    let agent = scene.agent(&scene.agents[0], running.address, &runtime);
    let (receipts, cancel) = (Receipts::default(), CancelToken::new());
    agent.push(scene.own(0), "backup", &receipts, &cancel).unwrap();
    let first = receipts.take();
    assert_eq!(first.len(), 22);
    for file in 0..20 {
        let path = EntryPath::from(format!("sub/{file}"));
        let own = scene.own(0).join(&path);
        assert_eq!((first[&path].content, first[&path].durable), (hash(&own), true), "{path}");
        assert_eq!((first[&path].action, first[&path].bytes), (Action::Create, 30_000));
    }

    plant_changes(&scene.own(0));
    let summary = agent.push(scene.own(0), "backup", &receipts, &cancel).unwrap();
    assert_receipts(&receipts.take(), &scene.own(0), true);
    assert_eq!((summary.report.linked, summary.report.cloned), (Some(1), Some(0)));
    // Entries that were up to date have no receipt.
    agent.push(scene.own(0), "backup", &receipts, &cancel).unwrap();
    assert_eq!(receipts.take(), BTreeMap::new());
}

#[test]
fn a_local_run_has_the_same_receipts_and_says_what_is_not_on_the_disk() {
    for (durability, durable) in [(Durability::Batch, true), (Durability::None, false)] {
        let scene = Scene::new(1);
        scene.plant(0, 4, 30_000);
        let copy = scene.scratch.path().join("copy");
        let source = Source::Local { paths: vec![scene.own(0).join("")] };
        let options = SyncOptions::archive().hard_links(true).delete(true).durability(durability);
        let options = options.event_done(true).event_contents(true);
        let job = Job::new(source, Destination::Local { path: copy.clone() }).options(options);
        let (receipts, cancel) = (Receipts::default(), CancelToken::new());
        let summary = job.clone().run(&receipts, &cancel).unwrap();
        let first = receipts.take();
        let cloned = first.values().filter(|done| done.cloned).count() as u64;
        assert_eq!((summary.report.linked, summary.report.cloned), (Some(0), Some(cloned)));
        let directories = first.values().filter(|done| done.kind == FileType::Directory);
        assert!(directories.clone().count() == 2 && directories.clone().all(|done| !done.durable));

        plant_changes(&scene.own(0));
        assert_eq!(job.clone().run(&receipts, &cancel).unwrap().report.linked, Some(1));
        assert_receipts(&receipts.take(), &scene.own(0), durable);
        let options = SyncOptions::archive().event_done(true).dry_run(true).ignore_times(true);
        job.options(options).run(&receipts, &cancel).unwrap();
        assert_eq!(receipts.take(), BTreeMap::new(), "a dry run carries nothing out");
    }
}

/// The product's database: the names of 1,000 of 1,100 files, asked for one by one.
struct Database {
    rows: std::ops::Range<usize>,
    /// The row at which the connection to it breaks.
    breaks_at: Option<usize>,
}

impl Iterator for Database {
    type Item = std::io::Result<PathBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.find(|row| row % 11 != 0)?;
        if self.breaks_at.is_some_and(|at| row >= at) {
            return Some(Err(std::io::Error::other("the database is gone")));
        }
        Some(Ok(format!("sub/{row}").into()))
    }
}

#[test]
fn exactly_the_files_that_the_database_names_are_pushed() {
    let (scene, runtime) = (Scene::new(1), runtime());
    scene.plant(0, 1100, 50);
    let running = runtime.block_on(scene.start(any_port()));
    let agent = scene.agent(&scene.agents[0], running.address, &runtime);
    let push = |breaks_at, receipts: &Receipts| {
        let names = RelativePaths::fallible(Database { rows: 0..1100, breaks_at });
        agent.push_named(scene.own(0), names, "backup", receipts)
    };

    let error = push(Some(500), &Receipts::default()).unwrap_err();
    assert!(matches!(error, SyncError::FileList { .. }), "{error:?}");
    assert!(!scene.kept(0).exists(), "a part of the names is no selection");

    let receipts = Receipts::default();
    let summary = push(None, &receipts).unwrap();
    assert_eq!((summary.exit_code(), summary.report.files_transferred), (0, 1000));
    let receipts = receipts.take();
    for row in 0..1100 {
        let (path, is_named) = (EntryPath::from(format!("sub/{row}")), row % 11 != 0);
        assert_eq!((receipts.contains_key(&path), scene.kept(0).join(&path).exists()), (is_named, is_named));
    }
    assert_eq!(push(None, &Receipts::default()).unwrap().report.files_transferred, 0);
}

/// Stores each event as a line of JSON, as a product's log does.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<(Vec<String>, Vec<Event>)>>);

impl Observer for Journal {
    fn event(&self, event: &Event) {
        let mut journal = self.0.lock().unwrap();
        journal.0.push(serde_json::to_string(event).unwrap());
        journal.1.push(event.clone());
    }
}

#[test]
fn a_journal_of_a_run_is_read_back_and_so_is_its_summary() {
    let scene = Scene::new(1);
    scene.plant(0, 3, 1000);
    let odd = std::ffi::OsString::from_vec(b"odd\xff\n".to_vec());
    fs::write(scene.own(0).join("sub").join(&odd), "x").unwrap();
    let copy = scene.scratch.path().join("copy");
    fs::create_dir_all(copy.join("sub/1/held")).unwrap();
    let source = Source::Local { paths: vec![scene.own(0).join("")] };
    let options = SyncOptions::archive().event_done(true).event_contents(true);
    let job = Job::new(source, Destination::Local { path: copy }).options(options);
    let journal = Journal::default();
    let outcome = job.start(journal.clone()).unwrap().join();

    let (lines, events) = std::mem::take(&mut *journal.0.lock().unwrap());
    let read: Vec<Event> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, events);
    let of =
        |name: &str| lines.iter().filter(|line| line.contains(&format!(r#"{{"event":"{name}""#))).count();
    assert!(of("entry") >= 3 && of("done") >= 3 && of("problem") == 1, "{lines:?}");
    let hex = r#""path_hex":"7375622f6f6464ff0a""#;
    assert!(lines.iter().any(|line| line.contains(hex)), "{lines:?}");

    let stored = serde_json::to_value(&outcome).unwrap();
    assert_eq!(stored["exit_code"], outcome.summary.as_ref().unwrap().exit_code());
    assert_eq!(stored["failed"][0]["path"], "sub/1");
    let summary: dsync_engine::Summary = serde_json::from_value(stored["totals"].clone()).unwrap();
    assert_eq!(summary.report, outcome.summary.unwrap().report);
}

#[test]
fn a_file_that_failed_has_no_receipt() {
    let scene = Scene::new(1);
    scene.plant(0, 3, 1000);
    let copy = scene.scratch.path().join("copy");
    fs::create_dir_all(copy.join("sub/1/held")).unwrap();
    let source = Source::Local { paths: vec![scene.own(0).join("")] };
    let options = SyncOptions::archive().event_done(true);
    let job = Job::new(source, Destination::Local { path: copy }).options(options);
    let receipts = Receipts::default();
    assert_eq!(job.run(&receipts, &CancelToken::new()).unwrap().report.failed, 1);
    let receipts = receipts.take();
    assert!(!receipts.contains_key(&b"sub/1"[..]) && receipts.contains_key(&b"sub/2"[..]), "{receipts:?}");
}

#[test]
fn the_service_hears_of_every_entry_that_an_agent_brings() {
    let (scene, runtime) = (Scene::new(2), runtime());
    for number in 0..2 {
        scene.plant(number, 5, 1000);
    }
    let running = runtime.block_on(scene.start(any_port()));
    let receipts = Receipts::default();
    for (number, identity) in scene.agents.iter().enumerate() {
        let agent = scene.agent(identity, running.address, &runtime);
        agent.push(scene.own(number), "backup", &receipts, &CancelToken::new()).unwrap();
        let mut brought = std::mem::take(&mut *scene.brought.0.lock().unwrap());
        assert!(brought.iter().all(|(agent, _)| *agent == number.to_string()), "{brought:?}");
        let heard = receipts.take();
        brought.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        assert_eq!(
            brought.into_iter().map(|(_, done)| done).collect::<Vec<_>>(),
            Vec::from_iter(heard.into_values())
        );
    }
}

#[test]
fn a_ledger_that_panics_ends_its_session_only() {
    struct Panics;
    impl Ledger for Panics {
        fn done(&self, agent: &str, _: &Done) {
            assert_ne!(agent, "0", "the ledger is full");
        }
    }
    let (scene, runtime) = (Scene::new(2), runtime());
    let agents = scene.agents.iter().enumerate();
    let agents = agents.map(|(number, identity)| (identity.certificate(), number.to_string())).collect();
    let service = Service {
        root: scene.scratch.path().join("service"),
        resources: scene.resources.clone(),
        ledger: Arc::new(Panics),
    };
    let running = runtime.block_on(service.start(&scene.identity, agents, any_port())).unwrap();
    let push = |number: usize| {
        scene.plant(number, 2, 10);
        let agent = scene.agent(&scene.agents[number], running.address, &runtime);
        agent.push(scene.own(number), "backup", &Silent, &CancelToken::new())
    };
    assert!(push(0).is_err());
    assert_eq!(push(1).unwrap().exit_code(), 0);
    let ends = runtime.block_on(running.ended());
    assert!(matches!(&ends[0], Err(SyncError::Aborted { message }) if message.contains("full")), "{ends:?}");
}

#[test]
fn files_beyond_a_size_stay_behind_and_those_of_before_stay_at_the_service() {
    let (scene, runtime) = (Scene::new(1), runtime());
    let running = runtime.block_on(scene.start(any_port()));
    let agent = scene.agent(&scene.agents[0], running.address, &runtime);
    scene.plant(0, 3, 4000);
    agent.push(scene.own(0), "backup", &Silent, &CancelToken::new()).unwrap();

    // One has grown, one is new and long, one is gone.
    fs::write(scene.own(0).join("sub/0"), vec![1; 9000]).unwrap();
    fs::write(scene.own(0).join("sub/long"), vec![1; 9000]).unwrap();
    fs::remove_file(scene.own(0).join("sub/1")).unwrap();
    let pushed = agent.push_small(scene.own(0), "backup", 8000).unwrap();
    assert_eq!((pushed.exit_code(), pushed.report.deleted.files, pushed.report.files_transferred), (0, 1, 0));
    let kept = |name: &str| fs::metadata(scene.kept(0).join("sub").join(name)).map(|file| file.len()).ok();
    assert_eq!(["0", "1", "2", "long"].map(kept), [Some(4000), None, Some(4000), None]);
}

#[test]
fn what_was_recorded_is_pushed_with_the_contents_that_were_recorded() {
    let (scene, runtime) = (Scene::new(1), runtime());
    let running = runtime.block_on(scene.start(any_port()));
    let agent = scene.agent(&scene.agents[0], running.address, &runtime);
    scene.plant(0, 4, 50_000);
    let (list, reading, cancel) = (scene.scratch.path().join("list"), Reading::default(), CancelToken::new());
    verify::record_to_file(&scene.own(0), &list, &reading, &Silent, &cancel).unwrap();

    fs::write(scene.own(0).join("sub/1"), vec![7; 50_000]).unwrap();
    fs::write(scene.own(0).join("sub/later"), "later").unwrap();
    let manifest = Manifest::open(&list).unwrap();
    let screen = Screen::default();
    let pushed = agent.push_recorded(scene.own(0), manifest.clone(), "backup", &screen).unwrap();
    assert_eq!(pushed.exit_code(), 23);
    let lines = std::mem::take(&mut screen.0.lock().unwrap().0);
    let failed: Vec<_> = lines.iter().filter(|line| line.contains(": ")).collect();
    assert_eq!(failed, ["sub/1: its content is not the one that was asked for; nothing was replaced"]);

    let found = verify::verify(&scene.kept(0), &manifest, &reading, &Silent, &cancel).unwrap();
    assert_eq!((found.missing, found.rotten + found.edited + found.new), (1, 0));
    // Every receipt is of a content that was recorded.
    let brought = scene.brought.0.lock().unwrap().clone();
    assert_eq!(brought.iter().filter(|(_, done)| done.content.is_some()).count(), 3);
}
