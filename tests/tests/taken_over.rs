//! An end that an attacker has taken over: code of his runs in the caged process, in the middle of a
//! run, and tries what he would. The loader puts it there, so that the program is the real one and its
//! whole cage is in force (`LD_PRELOAD` would take the seccomp list away).

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::io::Errno;

use dsync_tests::{Run, Scope, Scratch, assert_same, needs_dsync, program, scratch::slash};

/// The attacker's code: it runs whenever the caged process makes a thread, and writes each deed with
/// the error that it met, 0 for none, into descriptor 9.
const CODE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void tell(const char *deed, long result) {
    char line[160];
    int error = result < 0 ? errno : 0;
    int length = snprintf(line, sizeof line, "%s %d\n", deed, error);
    syscall(SYS_write, 9, line, length);
}

static const char *at(const char *directory, const char *name) {
    static __thread char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv(directory), name);
    return path;
}

#define TELL(deed, call) do { errno = 0; tell(deed, call); } while (0)

static void deeds(void) {
    char outside[4096];
    char *none[] = { "none", 0 };
    snprintf(outside, sizeof outside, "%s", at("OUTSIDE", "secret"));
    // Before the cage is closed most of this is allowed, and would harm the run.
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2) return;
    TELL("begin", 0);
    TELL("read", syscall(SYS_openat, AT_FDCWD, outside, O_RDONLY));
    TELL("write", syscall(SYS_openat, AT_FDCWD, outside, O_WRONLY));
    TELL("truncate", syscall(SYS_truncate, outside, 1));
    TELL("create", syscall(SYS_openat, AT_FDCWD, at("OUTSIDE", "new"), O_CREAT | O_WRONLY, 0600));
    TELL("list", syscall(SYS_openat, AT_FDCWD, getenv("OUTSIDE"), O_RDONLY | O_DIRECTORY));
    TELL("mkdir", syscall(SYS_mkdirat, AT_FDCWD, at("OUTSIDE", "dir"), 0700));
    TELL("symlink", syscall(SYS_symlinkat, "secret", AT_FDCWD, at("OUTSIDE", "symlink")));
    TELL("link", syscall(SYS_linkat, AT_FDCWD, outside, AT_FDCWD, at("INSIDE", "linked"), 0));
    TELL("rename", syscall(SYS_renameat2, AT_FDCWD, outside, AT_FDCWD, at("INSIDE", "moved"), 0));
    TELL("unlink", syscall(SYS_unlinkat, AT_FDCWD, outside, 0));
    TELL("execute", syscall(SYS_execve, "/bin/false", none, 0));
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    TELL("fork", child < 0 ? (errno = ENOSYS, -1) : 0);
    TELL("signal", syscall(SYS_kill, getppid(), 0));
    TELL("trace", syscall(SYS_ptrace, PTRACE_ATTACH, getppid(), 0, 0));
    TELL("socket", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    TELL("mount", syscall(SYS_mount, "none", getenv("INSIDE"), "tmpfs", 0, 0));
    TELL("chroot", syscall(SYS_chroot, getenv("OUTSIDE")));
    long inside = syscall(SYS_openat, AT_FDCWD, at("INSIDE", "taken"), O_CREAT | O_WRONLY, 0600);
    tell("inside", inside);
    if (inside >= 0) {
        close(inside);
        unlink(at("INSIDE", "taken"));
    }
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    deeds();
    return real(thread, attributes, start, argument);
}
"#;

/// Builds the attacker's code; returns its path.
fn code(scratch: &Scratch) -> PathBuf {
    let (source, library) = (scratch.at("deeds.c"), scratch.at("deeds.so"));
    fs::write(&source, CODE).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

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
    let path = scratch.at("shell");
    let text = format!(
        "#!/bin/sh\nfor command; do :; done\neval \"set -- $command\"\nexport OUTSIDE='{}' INSIDE='{}'\n\
         exec 9>>'{}'\nexec '{}' --preload '{}' \"$@\"\n",
        scratch.at("outside").display(),
        inside.display(),
        scratch.at("deeds").display(),
        loader().display(),
        code(scratch).display(),
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Returns the deeds of the last time, with the error of each.
fn last_deeds(scratch: &Scratch) -> BTreeMap<String, i32> {
    let text = fs::read_to_string(scratch.at("deeds")).unwrap();
    let (_, last) = text.rsplit_once("begin 0\n").expect("deeds");
    let lines = last.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(deed, error)| (deed.to_owned(), error.parse().unwrap())).collect()
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
        let mut deeds = last_deeds(&scratch);
        // A destination may write into its operand, a source may not.
        assert_eq!(deeds.remove("inside"), Some(if push { 0 } else { Errno::ACCESS.raw_os_error() }));
        let denied = ["read", "write", "create", "list", "mkdir", "symlink", "rename", "unlink"];
        let denied = denied.map(|deed| (deed, Errno::ACCESS));
        // The kernel looks at a new link's file first, and finds it on the other side.
        let others = [("link", if push { Errno::XDEV } else { Errno::ACCESS }), ("signal", Errno::PERM)];
        let missing = ["truncate", "execute", "fork", "trace", "socket", "mount", "chroot"];
        let missing = missing.map(|deed| (deed, Errno::NOSYS));
        let expected: BTreeMap<_, _> = denied.into_iter().chain(others).chain(missing).collect();
        let met: BTreeMap<_, _> =
            deeds.iter().map(|(deed, error)| (deed.as_str(), Errno::from_raw_os_error(*error))).collect();
        assert_eq!(met, expected, "push {push}");
        assert_eq!(fs::read(scratch.at("outside/secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 1);
    }
}
