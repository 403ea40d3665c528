//! The process that accepts connections.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use dsync_tests::{needs_dsync, program, run::send, run::wait_for, strace::calls_of_process};
use rustix::{io::ioctl_fionread, pipe::fcntl_setpipe_size, process::Signal};

use crate::nas::{Nas, Server};

/// Calls that open files, and those by which threads and processes start.
const CALLS: &str = "trace=open,openat,openat2,open_tree,name_to_handle_at,clone,clone3,vfork,fork";

#[test]
fn the_process_that_accepts_connections_opens_nothing_of_a_share() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("keep");
    nas.limit("max-files = 1000\nmax-bytes = '60M'");
    let log = nas.scratch.at("calls");
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-y", "-qq", "-s", "4096", "-e", CALLS, "-o"]).arg(&log).arg(program());
    command.args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
    nas.stand_by(command);
    nas.know(&key);

    // It copies, keeps what is replaced, reads its configuration anew, and cleans.
    fs::write(nas.scratch.src().join("f"), "new").unwrap();
    fs::write(nas.there("f"), "older").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    let process = nas.server.as_ref().unwrap().process.id();
    send(process, Signal::HUP);
    wait_for(|| nas.log().contains("was read anew"));
    let _ = nas.pull(&[]).expect_quiet_success();
    send(process, Signal::TERM);
    let _ = nas.server.as_mut().unwrap().process.wait().unwrap();

    let share = nas.scratch.at("share").display().to_string();
    let trace = || String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    // The tracer ends after the server.
    wait_for(|| trace().contains(&format!("{process} +++ exited")) || !trace().is_empty());
    let trace = trace();
    assert!(trace.contains(&share), "no session opened the share");
    let own = calls_of_process(&trace, process);
    assert!(own.iter().any(|call| call.contains("serve.toml")), "{own:#?}");
    let of_share: Vec<_> = own.iter().filter(|call| call.contains(&share)).collect();
    assert!(of_share.is_empty(), "{of_share:#?}");
}

#[test]
fn a_server_whose_lines_nobody_reads_ends_all_the_same() {
    needs_dsync!();
    let (nas, _) = Nas::offering("full");
    let mut command = nas.server_in(&[]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = Server { process: command.spawn().unwrap(), port: 0 };
    let mut said = BufReader::new(server.process.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on") {
        assert!(said.read_line(&mut line).unwrap() > 0, "{line}");
    }

    // A line fills a pipe of one page for `poll`, and who handles signals waits with the next line.
    fcntl_setpipe_size(said.get_ref(), 4096).unwrap();
    send(server.process.id(), Signal::HUP);
    wait_for(|| ioctl_fionread(said.get_ref()).unwrap() > 0);
    send(server.process.id(), Signal::HUP);
    send(server.process.id(), Signal::TERM);
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}
