//! Standard streams as other programs leave them: full, broken, or set to fail in place of waiting.

use std::{
    fs,
    io::{Read as _, Write as _, pipe},
    process::{Command, Stdio},
};

use dsync_tests::{Run, Scope, Scratch, Tree, assert_same, needs_dsync, program, run::wait_for};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::ioctl_fionread,
};

/// Sets a stream to fail in place of waiting, for all that share it.
fn do_not_wait(stream: &impl std::os::fd::AsFd) {
    let flags = fcntl_getfl(stream).unwrap();
    fcntl_setfl(stream, flags | OFlags::NONBLOCK).unwrap();
}

#[test]
fn a_list_waits_for_its_reader_though_the_pipe_would_not() {
    needs_dsync!();
    let scratch = Scratch::new();
    for number in 0..2000 {
        fs::write(scratch.src().join(format!("{number:0100}")), "").unwrap();
    }
    for (words, lines) in [(&["-av", "src/", "dst/"][..], 2000), (&["--json", "-a", "src/", "again/"], 2000)]
    {
        let (mut reader, writer) = pipe().unwrap();
        do_not_wait(&writer);
        let mut command = Command::new(program());
        command.args(words).current_dir(scratch.path()).stdin(Stdio::null()).stdout(writer);
        let mut run = command.spawn().unwrap();
        // It holds the writing end, too.
        drop(command);
        wait_for(|| ioctl_fionread(&reader).unwrap() > 60_000);

        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(0), "{words:?}");
        assert!(text.lines().filter(|line| line.contains("0000")).count() >= lines, "{words:?}");
        assert!(text.ends_with('\n'));
    }
}

#[test]
fn a_list_of_names_and_one_of_rules_wait_for_their_writer_though_the_pipe_would_not() {
    needs_dsync!();
    let scratch = Scratch::new();
    for name in ["one", "two"] {
        fs::write(scratch.src().join(name), "").unwrap();
    }
    for (option, text) in [("--files-from=-", "one\n"), ("--exclude-from=-", "two\n")] {
        let _ = fs::remove_dir_all(scratch.dst());
        let (reader, mut writer) = pipe().unwrap();
        do_not_wait(&reader);
        let mut command = Command::new(program());
        command.args(["-a", option, "src/", "dst/"]).current_dir(scratch.path()).stdin(reader);
        let mut run = command.spawn().unwrap();
        drop(command);
        // It sleeps in a call then, or has ended with an error.
        wait_for(|| waits(run.id()) || run.try_wait().unwrap().is_some());
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        assert_eq!(run.wait().unwrap().code(), Some(0), "{option}");
        assert!(scratch.dst().join("one").exists() && !scratch.dst().join("two").exists(), "{option}");
    }
}

/// Returns whether the process's first thread waits in `read`, `poll` or `ppoll` (of x86-64 or AArch64).
fn waits(pid: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().unwrap_or_default();
    ["0", "7", "271", "63", "73"].contains(&number)
}

#[test]
fn a_log_that_cannot_be_written_costs_nothing_but_itself() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    for words in ["--debug=all", "-v"] {
        let _ = fs::remove_dir_all(scratch.dst());
        let full = format!("exec \"$1\" -a {words} src/ dst/ 2>/dev/full >/dev/null");
        let run = Run::of("sh").args(["-c", &full, "sh"]).arg(program()).cwd(scratch.path());
        let _ = run.env("DSYNC_LOG", "trace").run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}
