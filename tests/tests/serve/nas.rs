//! A share, and the ways to it.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use dsync_tests::{
    Outcome, Run, Scratch, Sshd, program,
    run::{Running, is_alive, send, wait_for},
    scratch::slash,
    tree::set_mtime,
};
use rustix::process::Signal;

/// A time that both ends of each planted file have.
pub(crate) const LONG_AGO: (i64, i64) = (1_500_000_000, 0);

/// Each way to a share.
pub(crate) const EACH_WAY: [fn(&str) -> Nas; 3] = [Nas::new, Nas::through_sshd, Nas::standing];

/// A share, and a way to it: a remote shell that runs the key's command, sshd, or a server.
pub(crate) struct Nas {
    pub(crate) scratch: Scratch,
    pub(crate) server: Option<Server>,
    /// Whether the remote shell is ssh, and sshd runs the command.
    has_sshd: bool,
}

/// A server that stands.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nas {
    /// Makes a share that key `web1` uses with this role.
    pub(crate) fn new(role: &str) -> Self {
        let nas = Self { scratch: Scratch::new(), server: None, has_sshd: false };
        fs::create_dir_all(nas.tree()).unwrap();
        nas.configure(&format!(
            "[keys.web1]\n[shares.nas]\npath = '{}'\nkeep-days = 30\n{}[shares.nas.keys.web1]\nrole = '{role}'\ndirectory = 'of-{{key}}'\n",
            nas.scratch.at("share").display(),
            user()
        ));
        nas.command("--share nas --key web1");
        nas
    }

    /// Makes the same share behind sshd: the command is that of a key in authorized_keys.
    pub(crate) fn through_sshd(role: &str) -> Self {
        let nas = Self { has_sshd: true, ..Self::new(role) };
        nas.command("--share nas --key web1");
        nas
    }

    /// Makes a share that a server offers to key `web1` with this role. Its user knows the server.
    pub(crate) fn standing(role: &str) -> Self {
        let (mut nas, server) = Self::offering(role);
        nas.stand();
        nas.know(&server);
        nas
    }

    /// Makes a share for a server that does not stand yet. Returns the server's key too.
    pub(crate) fn offering(role: &str) -> (Self, String) {
        let nas = Self::new(role);
        let place = nas.scratch.at("share");
        let own = Self::public(&nas.config("home/dsync/key"));
        let server = Self::public(&nas.scratch.at("server.key"));
        let user = user();
        nas.configure(&format!(
            "[server]\nlisten = ['127.0.0.1:0']\nidentity = '{}'\n[keys.web1]\npublic = '{own}'\n[shares.nas]\n\
             path = '{}'\nkeep-days = 30\n{user}[shares.nas.keys.web1]\nrole = '{role}'\ndirectory = 'of-{{key}}'\n",
            nas.scratch.at("server.key").display(),
            place.display()
        ));
        (nas, server)
    }

    pub(crate) fn config(&self, path: &str) -> PathBuf {
        self.scratch.at(path)
    }

    /// Makes a key and returns its public line.
    pub(crate) fn public(file: &Path) -> String {
        let made = Run::dsync().args(["key", "--comment=test", "--file"]).arg(file).run().expect_code(0);
        made.stdout_text().trim().to_owned()
    }

    /// Starts the server and waits for its port.
    pub(crate) fn stand(&mut self) {
        self.stand_by(self.server_in(&[]));
    }

    /// Returns the command that becomes the server, behind the words of a program that runs it.
    pub(crate) fn server_in(&self, words: &[OsString]) -> Command {
        let words = [words, &[program().into()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["serve", "--config"]).arg(self.scratch.at("serve.toml"));
        command
    }

    /// Starts the server by a command that becomes it, and waits for its port.
    pub(crate) fn stand_by(&mut self, mut command: Command) {
        let log = fs::File::create(self.scratch.at("log")).unwrap();
        // Lists that outgrow memory may be there, and scratch directories are elsewhere.
        command.env("TMPDIR", "/var/tmp");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { process, port: 0 };
        wait_for(|| {
            let said = self.log();
            let line = said.lines().find_map(|line| line.strip_prefix("dsync: listening on 127.0.0.1:"));
            server.port = line.and_then(|port| port.parse().ok()).unwrap_or_default();
            server.port != 0 || server.process.try_wait().unwrap().is_some()
        });
        assert_ne!(server.port, 0, "{}", self.log());
        self.server = Some(server);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.at("log")).unwrap_or_default()
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.as_ref().unwrap().port
    }

    /// Notes the server's key.
    pub(crate) fn know(&self, key: &str) {
        let line = format!("127.0.0.1:{} {key}\n", self.port());
        let known = self.config("home/dsync/known-hosts");
        fs::write(&known, line).unwrap();
        fs::set_permissions(known, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns the processes of sessions.
    pub(crate) fn sessions(&self, run: &Running) -> Vec<u32> {
        match &self.server {
            Some(server) => children(server.process.id()),
            None if self.has_sshd => self.sessions_of_sshd(),
            None => run.children(),
        }
    }

    /// Returns the processes that sshd's shell became for sessions, and that have not ended.
    fn sessions_of_sshd(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.scratch.at("sessions")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|id| is_alive(*id)).collect()
    }

    pub(crate) fn operand(&self, path: &str) -> String {
        match &self.server {
            Some(server) => format!("dsync://127.0.0.1:{}/nas/{path}", server.port),
            None => format!("host:{path}"),
        }
    }

    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.scratch.at("serve.toml"), text).unwrap();
        fs::set_permissions(self.scratch.at("serve.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Adds lines to what the configuration says of the key in the share.
    pub(crate) fn limit(&self, lines: &str) {
        let text = fs::read_to_string(self.scratch.at("serve.toml")).unwrap();
        self.reconfigure(&format!("{text}{lines}\n"));
    }

    /// Adds lines to what the configuration says of the server.
    pub(crate) fn limit_server(&self, lines: &str) {
        let text = fs::read_to_string(self.scratch.at("serve.toml")).unwrap();
        self.reconfigure(&text.replacen("[server]", &format!("[server]\n{lines}"), 1));
    }

    /// Writes the configuration anew and has a server read it.
    pub(crate) fn reconfigure(&self, text: &str) {
        self.configure(text);
        if let Some(server) = &self.server {
            let read = || self.log().matches("was read anew").count();
            let before = read();
            send(server.process.id(), Signal::HUP);
            wait_for(|| read() > before || self.log().contains("the old configuration stays"));
            assert!(read() > before, "{}", self.log());
        }
    }

    /// Sends a server the signal at which it reads its configuration anew.
    pub(crate) fn hang_up(&self) {
        send(self.server.as_ref().unwrap().process.id(), Signal::HUP);
    }

    /// Returns the command that serves a session.
    pub(crate) fn serving(&self, words: &str) -> String {
        let (dsync, config) = (program().display(), self.scratch.at("serve.toml"));
        format!("{dsync} serve --stdio {words} --config {}", config.display())
    }

    /// Makes this the key's command, whatever its client asks for.
    pub(crate) fn command(&self, words: &str) {
        self.force(&self.serving(words));
    }

    /// Writes the remote shell, which becomes this command, or has sshd do so.
    pub(crate) fn force(&self, command: &str) {
        let text = if self.has_sshd {
            let ids = self.scratch.at("sessions");
            let config =
                Sshd::shared().force(&format!("echo $$ >>{}; exec {command}", ids.display()), &["restrict"]);
            format!("exec ssh -F {} \"$@\"", config.display())
        } else {
            format!("cd /\nexport SSH_ORIGINAL_COMMAND=\"$*\"\nexec {command}")
        };
        fs::write(self.shell(), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(self.shell(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn shell(&self) -> PathBuf {
        self.scratch.at("forced")
    }

    /// Returns the key's directory.
    pub(crate) fn place(&self) -> PathBuf {
        self.scratch.at("share/of-web1")
    }

    /// Returns the tree in the key's directory that pushes go to.
    pub(crate) fn tree(&self) -> PathBuf {
        self.place().join("tree")
    }

    pub(crate) fn run(&self) -> Run {
        match &self.server {
            Some(_) => Run::dsync().env("XDG_CONFIG_HOME", self.config("home")),
            // As the page says it, and by whatever ports there are.
            None if self.has_sshd => Run::dsync().arg("-e").arg(self.shell()),
            None => Run::dsync().args(["--transport=ssh", "-e"]).arg(self.shell()),
        }
    }

    pub(crate) fn push(&self, options: &[&str]) -> Outcome {
        self.run().arg("-a").args(options).arg(slash(&self.scratch.src())).arg(self.operand("tree")).run()
    }

    pub(crate) fn pull(&self, options: &[&str]) -> Outcome {
        let got = slash(&self.scratch.at("got"));
        self.run().arg("-a").args(options).arg(self.operand("tree/")).arg(got).run()
    }

    /// Plants a file at both ends, with one time.
    pub(crate) fn plant(&self, name: &str, here: &str, there: &str) {
        for (root, content) in [(self.scratch.src(), here), (self.tree(), there)] {
            fs::write(root.join(name), content).unwrap();
            set_mtime(&root.join(name), LONG_AGO);
        }
    }

    pub(crate) fn there(&self, name: &str) -> PathBuf {
        self.tree().join(name)
    }
}

/// Returns the line about the user of a share: root's sessions become one, and any will do who may
/// write there.
pub(crate) fn user() -> &'static str {
    if dsync_tests::skip::is_root() { "user = 'root'\n" } else { "" }
}

/// Returns the children of a process.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    listed
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}
