//! Everything that must come to no harm: a tree, its surroundings, and the process that an attack
//! targets.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Carrier,
    lanes::Pipe,
    session::{Order, Session},
    shell::Shell,
};
use crate::{
    Facts, Outcome, Scope, Scratch, compare, program,
    run::{PATIENCE, Running, peak_memory},
    survey,
};

/// Largest resident size of dsync under any attack, in bytes. An idle end takes 7 MiB, the worst
/// attack 28; the rest is for allocators and builds that need more.
pub const MEMORY: u64 = 64 << 20;

/// Two directories: `tree`, where dsync works, and `outside`, which it must not touch.
#[derive(Debug)]
pub struct Arena {
    scratch: Scratch,
    before: BTreeMap<Vec<u8>, Facts>,
}

/// Length of the file `kept`: enough for a delta to pay.
pub const KEPT: usize = 256 << 10;

impl Arena {
    /// Plants `tree/{kept,sub/inner,out,pipe}` and `outside/canary`; `out` leads outside.
    ///
    /// # Panics
    /// If that fails.
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let tree = scratch.at("tree");
        for dir in ["tree/sub", "outside"] {
            fs::create_dir_all(scratch.at(dir)).expect("a directory");
        }
        let old: Vec<u8> = (0..KEPT).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        fs::write(tree.join("kept"), old).expect("a file");
        fs::write(tree.join("sub/inner"), "inner").expect("a file");
        fs::write(scratch.at("outside/canary"), "secret of the canary").expect("a file");
        symlink("../outside", tree.join("out")).expect("a link");
        symlink("../outside/canary", tree.join("peek")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), rustix::fs::Mode::RUSR).expect("a fifo");
        let before = survey(scratch.path());
        Self { scratch, before }
    }

    /// Adds a file of one hole to the tree, which takes long to read. Afterwards no survey of the
    /// tree is made.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn with_hole(self, name: &str, bytes: u64) -> Self {
        let file = fs::File::create(self.scratch.at("tree").join(name)).expect("a file");
        file.set_len(bytes).expect("a hole");
        self
    }

    /// Returns the tree with a slash at its end.
    pub fn tree(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStringExt;
        crate::scratch::slash(&self.scratch.at("tree")).into_vec()
    }

    /// Returns the directory of the test.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Starts `dsync --server`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn server(&self) -> (Server, Pipe) {
        self.server_with(&[])
    }

    /// Starts `dsync ARGS --server`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn server_with(&self, args: &[&str]) -> (Server, Pipe) {
        self.serve(&[args, &["--server"]].concat())
    }

    /// Starts `dsync --server --restrict TREE,ACCESS`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn restricted_server(&self, access: &str) -> (Server, Pipe) {
        let restrict = format!("{},{access}", self.scratch.at("tree").display());
        self.serve(&["--server", "--restrict", &restrict])
    }

    fn serve(&self, args: &[&str]) -> (Server, Pipe) {
        let mut command = Command::new(program());
        command.args(args).current_dir(self.scratch.path()).env_remove("SSH_CONNECTION");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("dsync --server");
        let writer = Box::new(child.stdin.take().expect("its stdin"));
        let reader = Box::new(child.stdout.take().expect("its stdout"));
        let stderr = child.stderr.take().expect("its stderr");
        (Server { child, stderr: Some(stderr), memory: MEMORY }, Pipe { reader, writer })
    }

    /// Starts `dsync --server` and a session in which it is the destination of the tree.
    pub fn destination(&self, options: &str) -> (Server, Session) {
        self.destination_over(Carrier::Pipe, options)
    }

    /// Starts the same over any carrier.
    pub fn destination_over(&self, carrier: Carrier, options: &str) -> (Server, Session) {
        let (server, pipe) = self.server();
        let session = Session::greet_over(pipe, carrier);
        (server, session.start(Order::Destination(&self.tree()), options))
    }

    /// Starts `dsync --server` and a session in which it is the source of the tree.
    pub fn source(&self, options: &str) -> (Server, Session) {
        self.source_over(Carrier::Pipe, options)
    }

    /// Starts the same over any carrier.
    pub fn source_over(&self, carrier: Carrier, options: &str) -> (Server, Session) {
        let (server, pipe) = self.server();
        let session = Session::greet_over(pipe, carrier);
        (server, session.start(Order::Source(&self.tree()), options))
    }

    /// Starts the client, which pulls into the tree; returns it with the pipe to its remote shell.
    pub fn pull(&self, relay: &str, flags: &[&str]) -> (Running, Pipe) {
        self.pull_over(Carrier::Pipe, relay, flags)
    }

    /// Starts the same over any carrier.
    pub fn pull_over(&self, carrier: Carrier, relay: &str, flags: &[&str]) -> (Running, Pipe) {
        let shell = Shell::new(self.scratch.path(), relay);
        let run = shell
            .client(carrier)
            .args(["-a", "--delete", "--retries=0"])
            .args(flags)
            .arg(format!("{}:x/", carrier.host()));
        let running = run.arg(self.scratch.at("tree")).start();
        let pipe = shell.accept();
        (running, pipe)
    }

    /// Starts the client, which pulls these operands into the tree, with only these relevant flags.
    pub fn pull_of(&self, relay: &str, flags: &[&str], operands: &[&str]) -> (Running, Pipe) {
        let shell = Shell::new(self.scratch.path(), relay);
        let run = shell.client(Carrier::Pipe).arg("--retries=0").args(flags).args(operands);
        let running = run.arg(self.scratch.at("tree")).start();
        let pipe = shell.accept();
        (running, pipe)
    }

    /// Starts the client, which verifies a tree at the other end against a manifest of the arena's.
    pub fn verify(&self, relay: &str, manifest: &str) -> (Running, Pipe) {
        let shell = Shell::new(self.scratch.path(), relay);
        let run = shell.command("verify").arg("--manifest").arg(self.scratch.at(manifest));
        let running = run.arg(format!("{}:x", Carrier::Pipe.host())).start();
        let pipe = shell.accept();
        (running, pipe)
    }

    /// Starts the client, which pushes from the tree.
    pub fn push(&self, relay: &str, flags: &[&str]) -> (Running, Pipe) {
        self.push_over(Carrier::Pipe, relay, flags)
    }

    /// Starts the same over any carrier.
    pub fn push_over(&self, carrier: Carrier, relay: &str, flags: &[&str]) -> (Running, Pipe) {
        let shell = Shell::new(self.scratch.path(), relay);
        let mut tree = self.scratch.at("tree").into_os_string();
        tree.push("/");
        let running = shell
            .client(carrier)
            .args(["-a", "--delete", "--retries=0"])
            .args(flags)
            .arg(tree)
            .arg(format!("{}:x", carrier.host()))
            .start();
        let pipe = shell.accept();
        (running, pipe)
    }

    /// Returns whether `tree/kept` is unchanged.
    pub fn has_old_kept(&self) -> bool {
        let path = b"tree/kept".as_slice();
        survey(self.scratch.path()).get(path).map(|now| &now.content)
            == self.before.get(path).map(|before| &before.content)
    }

    /// Asserts that nothing has changed, except for the entries below the tree in `made`, which may
    /// have been made.
    ///
    /// # Panics
    /// If anything else has changed.
    pub fn assert_unharmed(&self, made: &[&str]) {
        self.assert_unharmed_but(made, &[]);
    }

    /// Asserts the same, except for those in `replaced` as well, which may be anything now.
    ///
    /// # Panics
    /// If anything else has changed.
    pub fn assert_unharmed_but(&self, made: &[&str], replaced: &[&str]) {
        let _ = fs::remove_file(self.scratch.at("shell.socket"));
        let (mut before, mut now) = (self.before.clone(), survey(self.scratch.path()));
        for name in made {
            now.remove(format!("tree/{name}").as_bytes());
        }
        for name in replaced {
            let path = format!("tree/{name}").into_bytes();
            before.remove(&path);
            now.remove(&path);
        }
        let found = compare::compare(&before, &now, Scope::CONTENT);
        assert!(found.is_empty(), "changed:\n{}", found.join("\n"));
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

/// A running `dsync --server`, killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stderr: Option<ChildStderr>,
    memory: u64,
}

impl Server {
    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asserts that its memory has stayed within bounds so far.
    ///
    /// # Panics
    /// If it has not.
    pub fn assert_lean(&self) {
        let peak = peak_memory(self.child.id());

        println!("server: peak {} MiB resident", peak >> 20);
        assert!(peak <= self.memory, "{} MiB resident", peak >> 20);
    }

    /// Allows more memory than [`MEMORY`], for an attack that may cost as much as it sends.
    #[must_use]
    pub fn allow(mut self, bytes: u64) -> Self {
        self.memory += bytes;
        self
    }

    /// Hangs up, waits for the end of the process, and returns its exit code.
    ///
    /// # Panics
    /// If it does not end, although its limit of silence is far, or writes anything to stderr.
    pub fn end(mut self, session: Session) -> i32 {
        self.assert_lean();
        drop(session);
        self.wait()
    }

    /// Waits for the end of the process and returns its exit code.
    ///
    /// # Panics
    /// If it does not end, although its limit of silence is far, or writes anything to stderr.
    pub fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the state of a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            thread::sleep(Duration::from_millis(2));
        };
        let mut said = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        assert!(said.is_empty(), "the server says: {said}");
        status.code().unwrap_or_else(|| panic!("the server was ended by {status:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts the end of a client: the exit code, one line with `text`, and no trace of a panic.
///
/// # Panics
/// If it differs.
pub fn assert_ends(outcome: Outcome, code: i32, text: &str) -> Outcome {
    let outcome = outcome.expect_code(code);
    let said = outcome.stderr_text();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(text)).collect();
    assert!(lines.len() == 1, "'{text}' in {} lines\n{}", lines.len(), outcome.account());
    for word in ["panicked", "Err(", "Os {", "this is an error in dsync"] {
        assert!(!said.contains(word), "'{word}' on stderr\n{}", outcome.account());
    }
    let all = outcome.all_text();
    assert!(!all.chars().any(|c| c.is_control() && c != '\n'), "control characters\n{}", outcome.account());
    println!("client: peak {} MiB resident", outcome.peak_memory >> 20);
    assert!(outcome.peak_memory <= MEMORY, "{} MiB resident", outcome.peak_memory >> 20);
    outcome
}
