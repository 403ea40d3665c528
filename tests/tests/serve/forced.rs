//! A share behind a real sshd: the command of a key in authorized_keys is all that the key's owner can
//! start, whatever the client asks for.

use std::{collections::BTreeSet, fs, net::TcpListener};

use dsync_tests::{
    Outcome, Run, Sshd, assert_unchanged,
    compare::temporaries,
    needs_dsync, program,
    run::{is_alive, send, until_met, wait_for},
    scratch::slash,
    strace::whole_calls,
    survey,
    tree::noise,
};
use rustix::process::Signal;

use crate::{
    killed::{BIG, held_push, is_old, plant_old},
    nas::Nas,
};

/// A share whose key's command is traced.
struct Traced {
    nas: Nas,
}

impl Traced {
    fn new(role: &str) -> Self {
        let nas = Nas::through_sshd(role);
        let watched = nas.serving("--share nas --key web1");
        let traced = Self { nas };
        traced.watch(&watched);
        traced
    }

    /// Makes this the key's command, and traces the programs that it starts.
    fn watch(&self, command: &str) {
        let trace = self.nas.scratch.at("trace");
        let trace = trace.display();
        self.nas.force(&format!("strace -A -f -qq -e trace=execve,execveat -o {trace} {command}"));
    }

    /// Returns the programs that sessions started, their own among them.
    fn started(&self) -> BTreeSet<String> {
        let trace = fs::read_to_string(self.nas.scratch.at("trace")).unwrap_or_default();
        let calls = whole_calls(&trace);
        calls.iter().filter_map(|call| call.split('"').nth(1)).map(str::to_owned).collect()
    }

    /// Asserts that sessions were nothing but dsync, and that nobody left a mark.
    fn assert_confined(&self, what: &str) {
        let own = BTreeSet::from([program().display().to_string()]);
        assert_eq!(self.started(), own, "{what}");
        assert!(!self.nas.scratch.at("mark").exists(), "{what}");
    }

    /// Asks sshd to run something, as ssh does; nobody talks to what answers.
    fn ask(&self, words: &[&str]) -> Outcome {
        Run::of(self.nas.shell()).args(words).run()
    }
}

/// Returns commands that a client may ask sshd for: each would leave `mark`, or reach beyond the share.
fn commands(traced: &Traced) -> Vec<String> {
    let (dsync, config) = (program().display(), traced.nas.scratch.at("serve.toml"));
    let mark = traced.nas.scratch.at("mark").display().to_string();

    vec![
        format!("touch {mark}"),
        format!("/bin/sh -c 'touch {mark}'"),
        format!("{dsync}; touch {mark};"),
        format!("{dsync} && touch {mark} ||"),
        format!("$(touch {mark})"),
        format!("`touch {mark}`"),
        format!("{dsync} | tee {mark}"),
        format!("{dsync}\ntouch {mark}\n"),
        format!("{dsync} >{mark}"),
        format!("{dsync} --log-file={mark}"),
        format!("{dsync} --server --restrict /,rw"),
        format!("{dsync} --server --restrict ../..,rw"),
        format!("{dsync} serve --stdio --share other --key web1 --config {}", config.display()),
        format!("{dsync} serve --stdio --share nas --key other --config {}", config.display()),
        format!("{dsync} -a / {mark}"),
        format!("DSYNC_LOG=trace {dsync}"),
        "rsync --server -logDtpre.iLsfxC . /".to_owned(),
        "scp -t /".to_owned(),
        "internal-sftp".to_owned(),
        String::new(),
    ]
}

#[test]
fn whatever_sshd_is_asked_to_run_the_keys_command_is_what_runs() {
    needs_dsync!();
    let traced = Traced::new("full");
    let nas = &traced.nas;
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    let other = nas.scratch.at("other");
    fs::create_dir(&other).unwrap();
    nas.configure(&format!(
        "{text}[keys.other]\n[shares.other]\npath = '{}'\n[shares.other.keys.other]\nrole = 'full'\n",
        other.display()
    ));
    let outside = survey(&other);

    for (number, command) in commands(&traced).into_iter().enumerate() {
        // Somebody who is no dsync, and says nothing.
        let before = survey(&nas.place());
        let asked = traced.ask(&["host", &command]);
        assert_ne!(asked.code(), Some(0), "{command}: {}", asked.account());
        assert_unchanged(&before, &nas.place());

        // A client whose remote program this is: it gets the key's share.
        let name = format!("f{number}");
        fs::write(nas.scratch.src().join(&name), &name).unwrap();
        let path = format!("--dsync-path={command}");
        let push = nas.run().args(["-a", &path]).arg(slash(&nas.scratch.src())).arg(nas.operand("tree"));
        // No client asks for nothing.
        if !command.is_empty() {
            let _ = push.run().expect_code(0);
            assert_eq!(fs::read_to_string(nas.there(&name)).unwrap(), name, "{command}");
        }
        traced.assert_confined(&command);
        assert_unchanged(&outside, &other);
    }
}

#[test]
fn a_command_that_does_what_sshd_is_asked_is_told_from_the_keys() {
    needs_dsync!();
    let traced = Traced::new("full");
    traced.watch(r#"sh -c "$SSH_ORIGINAL_COMMAND""#);
    let mark = traced.nas.scratch.at("mark");
    let _ = traced.ask(&["host", &format!("touch {}", mark.display())]).expect_code(0);
    assert!(mark.exists());
    assert!(traced.started().iter().any(|program| program.ends_with("/touch")), "{:?}", traced.started());
}

#[test]
fn paths_of_a_client_lead_nowhere_but_the_keys_directory() {
    needs_dsync!();
    let traced = Traced::new("full");
    let nas = &traced.nas;
    let outside = nas.scratch.at("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let before = survey(&outside);
    let (absolute, mark) = (outside.display(), nas.scratch.at("mark").display().to_string());

    // A path that leads up is refused, an absolute one starts in the key's directory, and no shell reads any.
    for path in ["..", "../..", "tree/../../secret", "../../outside"] {
        let push = nas.run().arg("-a").arg(slash(&nas.scratch.src())).arg(nas.operand(path)).run();
        assert!(push.expect_code(42).stderr_text().contains("leads out"), "{path}");
        let pull = nas.run().arg("-a").arg(nas.operand(path)).arg(slash(&nas.scratch.at("got"))).run();
        assert!(pull.expect_code(42).stderr_text().contains("leads out"), "{path}");
    }
    for path in [
        format!("{absolute}/"),
        format!("$(touch {mark})"),
        format!("`touch {mark}`"),
        format!("; touch {mark}"),
    ] {
        let push = nas.run().args(["-a", "--mkpath"]).arg(slash(&nas.scratch.src())).arg(nas.operand(&path));
        let _ = push.run().expect_code(0);
        let there = nas.place().join(path.trim_start_matches('/'));
        assert_eq!(fs::read(there.join("new")).unwrap(), b"new", "{path}");
    }
    assert_unchanged(&before, &outside);
    traced.assert_confined("paths");
}

#[test]
fn nothing_else_that_ssh_can_do_is_open_to_the_key() {
    needs_dsync!();
    let traced = Traced::new("full");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let there = listener.local_addr().unwrap();
    let through = format!("-W{there}");
    let back = format!("-R0:{there}");

    // A subsystem and a terminal get the key's command as well; a way to a port is refused.
    for words in [&["-s", "host", "sftp"][..], &["-tt", "host"], &[&through, "host"]] {
        let asked = traced.ask(words);
        assert_ne!(asked.code(), Some(0), "{words:?}: {}", asked.account());
    }
    let asked = traced.ask(&["-oExitOnForwardFailure=yes", &back, "-N", "host"]);
    assert_eq!(asked.code(), Some(255), "{}", asked.account());
    assert!(listener.accept().is_err(), "somebody came through");
    traced.assert_confined("ssh");

    // With the same key a run works.
    fs::write(traced.nas.scratch.src().join("new"), "new").unwrap();
    let _ = traced.nas.push(&[]).expect_code(0);
    assert_eq!(fs::read(traced.nas.there("new")).unwrap(), b"new");
}

#[test]
fn without_restrict_the_command_is_still_all_that_runs() {
    needs_dsync!();
    let nas = Nas::through_sshd("full");
    let config = Sshd::shared().force(&nas.serving("--share nas --key web1"), &[]);
    let mark = nas.scratch.at("mark");
    for words in [&["host", "touch"][..], &["-tt", "host", "touch"], &["-s", "host", "touch"]] {
        let asked = Run::of("ssh").arg("-F").arg(&config).args(words).arg(&mark).run();
        assert_ne!(asked.code(), Some(0), "{words:?}: {}", asked.account());
        assert!(!mark.exists(), "{words:?}");
    }
}

/// Returns the parent of a process.
fn parent(process: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// Processes of a push through sshd, from the client to the session.
const PROCESSES: [&str; 4] = ["client", "ssh", "sshd", "session"];

#[test]
fn whichever_process_is_killed_the_old_file_stays_and_the_next_push_goes_on() {
    needs_dsync!();
    let new = noise(1, BIG);
    for role in ["append", "keep", "write", "full"] {
        for killed in PROCESSES {
            let nas = Nas::through_sshd(role);
            fs::write(nas.scratch.src().join("big"), &new).unwrap();
            let client = until_met(|| {
                plant_old(&nas, role);
                held_push(&nas, role)
            });
            let sessions = nas.sessions(&client);
            assert_eq!(sessions.len(), 1);
            let victim = match killed {
                "client" => client.id(),
                "ssh" => client.children()[0],
                "sshd" => parent(sessions[0]),
                _ => sessions[0],
            };
            // The client, which is held, sends nothing more before the session has ended.
            send(victim, Signal::KILL);
            wait_for(|| !sessions.iter().any(|session| is_alive(*session)));
            client.signal(Signal::CONT);
            assert_ne!(client.wait().code(), Some(0), "{role} {killed}");
            assert!(is_old(&nas, role), "{role} {killed}");

            // A file that arrived is not sent again.
            let again = nas.push(&["--stats"]).expect_code(0);
            assert_eq!(fs::read(nas.there("big")).unwrap(), new, "{role} {killed}");
            assert!(again.stat("Literal data") < new.len() as u64, "{role} {killed}: {}", again.account());
            let kept = fs::read_dir(nas.scratch.at("share/.dsync-kept/web1")).into_iter().flatten().count();
            assert_eq!(kept, usize::from(role == "keep"), "{role} {killed}");
            wait_for(|| temporaries(&nas.place()).is_empty());
        }
    }
}

#[test]
fn a_session_through_sshd_has_its_line_where_the_command_leads_it() {
    needs_dsync!();
    let nas = Nas::through_sshd("append");
    let log = nas.scratch.at("log");
    nas.force(&format!("{} 2>>{}", nas.serving("--share nas --key web1 --log"), log.display()));
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    let _ = nas.push(&["--delete"]).expect_code(42);

    wait_for(|| fs::read_to_string(&log).unwrap_or_default().lines().count() == 2);
    let text = fs::read_to_string(&log).unwrap();
    for (line, code) in text.lines().zip([" code=0", " code=42 why="]) {
        let start = " dsync: session peer=127.0.0.1:";
        assert!(line.contains(start) && line.contains(" key=web1 share=nas role=append "), "{line}");
        assert!(line.contains(code), "{line}");
    }
}
