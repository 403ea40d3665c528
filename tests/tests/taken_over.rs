//! An end that an attacker has taken over: code of his runs in the caged process, in the middle of a
//! run, and tries what he would. The loader puts it there, so that the program is the real one and its
//! whole cage is in force (`LD_PRELOAD` would take the seccomp list away).

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use dsync_tests::{
    Run, Scope, Scratch, assert_same, deeds, needs_dsync, program, remote_shell, scratch::slash,
};

/// Returns the loader of this system's programs.
fn loader() -> PathBuf {
    let dirs = ["/lib64", "/lib", "/lib/ld-linux-aarch64.so.1"].map(Path::new);
    let names = dirs.into_iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let is_loader =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
    names.into_iter().find(is_loader).expect("the loader")
}

/// Writes a remote shell whose program has the attacker's code in it.
fn shell(scratch: &Scratch, inside: &Path) -> PathBuf {
    let script = format!(
        "eval \"set -- $command\"\nexport OUTSIDE='{}' INSIDE='{}'\nexec 9>>'{}'\nexec '{}' --preload '{}' \"$@\"",
        scratch.at("outside").display(),
        inside.display(),
        scratch.at("deeds").display(),
        loader().display(),
        deeds::build(scratch).display(),
    );
    remote_shell::write(scratch.at("shell"), &script)
}

#[test]
fn code_of_an_attacker_in_a_remote_end_reaches_nothing_beside_the_operand() {
    needs_dsync!();
    for push in [true, false] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("outside")).unwrap();
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.at("outside/secret"), "secret").unwrap();
        fs::write(scratch.src().join("f"), "content").unwrap();
        let (here, there) =
            if push { (scratch.src(), scratch.dst()) } else { (scratch.dst(), scratch.src()) };
        let mut remote = std::ffi::OsString::from("host:");
        remote.push(slash(&there));
        let run = Run::dsync().args(["-a", "--transport=ssh", "-e"]).arg(shell(&scratch, &there));
        let run = run.arg("--dsync-path").arg(program());
        let run = if push { run.arg(slash(&here)).arg(remote) } else { run.arg(remote).arg(slash(&here)) };
        let outcome = run.run();

        let _ = outcome.expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        let mut last = deeds::each_time(&scratch.at("deeds")).pop().unwrap();
        // A destination may write into its operand, a source may not.
        let met = if push { 0 } else { Errno::ACCESS.raw_os_error() };
        assert_eq!(last.remove("inside"), Some(met));
        // Who has a login there may read the names, and take what the account may have.
        assert_eq!((last.remove("names"), last.remove("memory")), (Some(0), Some(0)));
        // It has a pipe of sshd's, and no connection. Name services may be asked, and none is there.
        let _ = last.remove("reconnect");
        assert_eq!(last.remove("service"), Some(Errno::NOENT.raw_os_error()));
        assert_eq!(last, deeds::refused(push), "push {push}");
        assert_eq!(fs::read(scratch.at("outside/secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 1);
    }
}

#[test]
fn code_of_an_attacker_in_the_local_end_of_a_push_changes_nothing() {
    needs_dsync!();
    for carrier in ["ssh", "tls", "quic"] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("outside")).unwrap();
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.at("outside/secret"), "secret").unwrap();
        fs::write(scratch.src().join("f"), "content").unwrap();
        let shell = remote_shell::write(scratch.at("plain"), remote_shell::PLAIN);

        let taken = "exec 9>>\"$1\"; shift; exec \"$@\"";
        let run = Run::of("sh").args(["-ec", taken, "sh"]).arg(scratch.at("deeds")).arg(loader());
        let run = run.arg("--preload").arg(deeds::build(&scratch)).arg(program());
        let run = run.arg(format!("--transport={carrier}")).args(["-a", "-e"]).arg(shell);
        let run = run.arg("--dsync-path").arg(program()).arg(slash(&scratch.src()));
        let run = run.arg(format!("localhost:{}", slash(&scratch.dst()).display()));
        let run = run.env("OUTSIDE", scratch.at("outside")).env("INSIDE", scratch.src());
        let _ = run.run().expect_code(0);

        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        let last = deeds::each_time(&scratch.at("deeds")).pop().unwrap();
        // It may connect, as who pushes has to, and its files are those of the source, to be read.
        let met = deeds::refused(false);
        for deed in met.keys().filter(|deed| !["socket", "signal"].contains(&deed.as_str())) {
            assert_eq!(last.get(deed), met.get(deed), "{carrier}: {deed}");
        }
        assert_eq!(last.get("inside"), Some(&Errno::ACCESS.raw_os_error()));
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 1);
    }
}
