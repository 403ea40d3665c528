//! A session that an attacker has taken over: code of his runs in its process, before the operands are
//! known and after, and tries what he would; and a kernel without all of the cage.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    os::unix::net::UnixDatagram,
    process::Command,
};

use dsync_tests::{
    deeds, needs_dsync, needs_root, preload, program,
    run::{catch, send, until_met, wait_for},
    scratch::slash,
    skip::is_root,
    tree::noise,
};
use rustix::process::Signal;

use crate::nas::{Nas, children};

/// Plants what the attacker is after, and the attacker's code. Returns the line of a shell that becomes a
/// command with that code in it.
fn taken(nas: &Nas, command: &str) -> String {
    fs::create_dir(nas.scratch.at("outside")).unwrap();
    fs::write(nas.scratch.at("outside/secret"), "secret").unwrap();
    fs::write(nas.scratch.src().join("f"), "content").unwrap();
    fs::write(nas.there("g"), "there").unwrap();

    let starter = preload::starter(&deeds::build(&nas.scratch)).join(" ");
    let [outside, inside, told] = [nas.scratch.at("outside"), nas.tree(), nas.scratch.at("deeds")];
    let [outside, inside, told] = [outside.display(), inside.display(), told.display()];
    format!("env OUTSIDE={outside} INSIDE={inside} {starter} {command} 9>>{told}")
}

/// Returns the command of a server with the attacker's code in it.
pub(crate) fn taken_server(nas: &Nas, server: &Command) -> Command {
    let words: Vec<_> = words(server).map(|word| word.to_str().unwrap()).collect();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {}", taken(nas, &words.join(" ")))]);
    command
}

/// Returns the words of a command.
pub(crate) fn words(command: &Command) -> impl Iterator<Item = &OsStr> {
    std::iter::once(command.get_program()).chain(command.get_args())
}

/// Returns what each deed meets in a session, of those that always meet the same.
pub(crate) fn refused(writes: bool) -> BTreeMap<String, i32> {
    let mut refused = deeds::refused(writes);
    let missing = rustix::io::Errno::NOSYS.raw_os_error();
    let memory = rustix::io::Errno::NOMEM.raw_os_error();
    let met = [("memory", memory), ("reconnect", missing), ("service", missing)];
    refused.extend(met.map(|(deed, met)| (deed.to_owned(), met)));
    refused
}

/// Runs the session that the attacker has taken over, and asserts that each deed was refused.
fn assert_confined(nas: &Nas, role: &str) {
    let outcome = if role == "full" { nas.push(&[]) } else { nas.pull(&[]) };
    let _ = outcome.expect_code(0);

    let times = deeds::each_time(&nas.scratch.at("deeds"));
    let denied = rustix::io::Errno::ACCESS.raw_os_error();
    // The last threads copy files; whose key reads only may write nothing then.
    let refused = |writes, inside| {
        let mut refused = refused(writes);
        refused.extend([("inside", inside), ("names", denied)].map(|(deed, met)| (deed.to_owned(), met)));
        refused
    };
    let (least, most) = (refused(false, denied), refused(true, 0));
    let last = if role == "full" { &most } else { &least };
    if nas.server.is_some() {
        // The first threads carry bytes, and begin before the operands are known.
        assert_eq!(times.first(), Some(&most), "{role}");
        assert_eq!(times.last(), Some(last), "{role}");
    } else {
        // Those of TLS and QUIC, which sshd's sessions have, open no file at all. Two threads may tell at once.
        for (deed, met) in times.iter().flatten() {
            assert!([last, &least].iter().any(|cage| cage.get(deed) == Some(met)), "{role}: {deed} {met}");
        }
        assert!(times.iter().any(|met| met.get("inside") == last.get("inside")), "{role}: {times:?}");
    }
    assert_eq!(fs::read(nas.scratch.at("outside/secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(nas.scratch.at("outside")).unwrap().count(), 1);
}

#[test]
fn code_of_an_attacker_in_a_session_reaches_nothing_beside_the_share() {
    needs_root!();
    needs_dsync!();
    for role in ["full", "read"] {
        let (mut nas, key) = Nas::offering(role);
        let mut server = Command::new(program());
        server.args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
        // Its place is a datagram socket, and a service would hear what is sent by it.
        nas.limit("sessions = 1");
        let service = UnixDatagram::bind(nas.scratch.at("heard")).unwrap();
        service.set_nonblocking(true).unwrap();
        nas.stand_by(taken_server(&nas, &server));
        nas.know(&key);
        assert_confined(&nas, role);
        let heard = service.recv(&mut [0; 16]);
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::WouldBlock, "{role}");
    }
}

#[test]
fn code_of_an_attacker_in_a_session_through_ssh_reaches_nothing_beside_the_share() {
    needs_root!();
    needs_dsync!();
    for way in [Nas::new, Nas::through_sshd] {
        for role in ["full", "read"] {
            let nas = way(role);
            nas.force(&taken(&nas, &nas.serving("--share nas --key web1")));
            assert_confined(&nas, role);
        }
    }
}

/// Returns how often a process has these bytes in its memory.
fn held_in_memory(process: u32, bytes: &[u8]) -> usize {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
    let mut count = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        // The kernel's own pages, and what the process may not read itself, cannot be read.
        memory.seek(SeekFrom::Start(from)).ok()?;
        let mut held = vec![0; usize::try_from(to - from).unwrap()];
        memory.read_exact(&mut held).ok()?;
        Some(held.windows(bytes.len()).filter(|at| *at == bytes).count())
    };
    maps.lines().filter(|line| line.contains(" r")).filter_map(&mut count).sum()
}

#[test]
fn a_session_whose_client_is_known_has_nothing_of_the_servers_key_in_its_memory() {
    needs_root!();
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("big"), noise(5, 8 << 20)).unwrap();
    let text = fs::read_to_string(nas.scratch.at("server.key")).unwrap();
    let digits = text.split_whitespace().nth(1).unwrap();
    let document: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    // The secret half in a PKCS #8 document (RFC 8410, section 7).
    let marker = [0x04, 0x22, 0x04, 0x20];
    let seed = document.windows(4).position(|at| at == marker).unwrap() + 4;

    let (session, run) = until_met(|| {
        let _ = fs::remove_dir_all(nas.tree());
        let run = nas.run().args(["-a", "--bwlimit=1M", "--timeout=3600"]);
        let mut run = run.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).start();
        wait_for(|| !run.is_running() || nas.tree().exists());
        let session = nas.sessions(&run).first().copied()?;
        catch(session, || nas.tree().exists()).then_some((session, run))
    });
    // The search finds what is there.
    assert!(held_in_memory(session, nas.scratch.at("share").to_str().unwrap().as_bytes()) > 0);
    for half in [seed..seed + 16, seed + 16..seed + 32] {
        let in_digits = &digits[half.start * 2..half.end * 2];
        assert_eq!(held_in_memory(session, in_digits.as_bytes()), 0, "as digits");
        assert_eq!(held_in_memory(session, &document[half]), 0, "as bytes");
    }
    send(session, Signal::CONT);
    let _ = run.wait().expect_code(0);
}

/// Returns the command of a server whose kernel lacks a call.
pub(crate) fn without(nas: &Nas, call: &str) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={call}:error=ENOSYS")]);
    command.arg(program()).args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
    command
}

/// Ends a server that strace started: it would outlive strace.
pub(crate) fn end_traced(nas: &mut Nas) {
    let mut server = nas.server.take().unwrap();
    for process in children(server.process.id()) {
        send(process, Signal::KILL);
    }
    let _ = server.process.wait();
}

#[test]
fn what_the_kernel_lacks_of_the_cage_is_said_and_can_be_an_error() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    fs::write(nas.scratch.src().join("f"), "content").unwrap();
    nas.stand_by(without(&nas, "landlock_create_ruleset"));
    assert!(nas.log().contains("a part of the cage is missing here: Landlock"), "{}", nas.log());
    let has_namespace = nas.log().contains("by a mount namespace in its place");
    assert_eq!(has_namespace, is_root(), "{}", nas.log());
    nas.know(&key);
    let _ = nas.push(&[]).expect_quiet_success();

    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&format!("require-cage = true\n{config}"));
    end_traced(&mut nas);
    let refused = without(&nas, "landlock_create_ruleset").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("require-cage: Landlock"), "{said}");

    // A session that cannot enter all of it serves nobody.
    nas.stand_by(without(&nas, "landlock_restrict_self"));
    nas.know(&key);
    let refused = nas.push(&["--retries=0"]);
    assert_ne!(refused.code(), Some(0), "{}", refused.account());
    wait_for(|| nas.log().contains("require-cage: "));

    // With all of it, it serves.
    end_traced(&mut nas);
    nas.stand();
    nas.know(&key);
    let _ = nas.push(&[]).expect_quiet_success();
}
