//! The deeds of an attacker whose code runs in a process of dsync: what each met.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::{Scratch, preload};

/// The attacker's code: it runs whenever the caged process makes a thread, and writes its deeds with
/// the errors that they met, 0 for none, into descriptor 9: all at once, as threads make threads at the
/// same time, and the process may end meanwhile.
const CODE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static __thread char told[4096];
static __thread size_t length;

static void tell(const char *deed, long result) {
    int error = result < 0 ? errno : 0;
    length += snprintf(told + length, sizeof told - length, "%s %d\n", deed, error);
}

static const char *at(const char *directory, const char *name) {
    static __thread char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv(directory), name);
    return path;
}

// Speaks to a datagram service by the first socket that could.
static long speak(const struct sockaddr_un *service) {
    for (int fd = 0; fd < 64; fd++) {
        int domain = 0, type = 0;
        socklen_t length = sizeof domain;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) || domain != AF_UNIX) continue;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) || type != SOCK_DGRAM) continue;
        return syscall(SYS_sendto, fd, "order", 5, MSG_NOSIGNAL | MSG_DONTWAIT, service, sizeof *service);
    }
    errno = EPIPE;
    return -1;
}

#define TELL(deed, call) do { errno = 0; tell(deed, call); } while (0)

static void deeds(void) {
    char outside[4096];
    char *none[] = { "none", 0 };
    snprintf(outside, sizeof outside, "%s", at("OUTSIDE", "secret"));
    // Before the cage is closed most of this is allowed, and would harm the run.
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2) return;
    length = 0;
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
    // The session's own connection, which is all that it has of the network.
    struct sockaddr_in elsewhere = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = { htonl(0x7f000001) } };
    TELL("reconnect", syscall(SYS_connect, 0, &elsewhere, sizeof elsewhere));
    // A service of this system, by its path.
    struct sockaddr_un service = { .sun_family = AF_UNIX };
    snprintf(service.sun_path, sizeof service.sun_path, "%s", at("OUTSIDE", "service"));
    long made = syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    tell("service", made < 0 ? made : syscall(SYS_connect, made, &service, sizeof service));
    if (made >= 0) syscall(SYS_close, made);
    snprintf(service.sun_path, sizeof service.sun_path, "%s", at("OUTSIDE", "../heard"));
    TELL("speak", speak(&service));
    int pair[2];
    TELL("pair", syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair));
    // The shell of a terminal would run it.
    TELL("type", syscall(SYS_ioctl, 2, TIOCSTI, "x"));
    TELL("show", syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0));
    TELL("mount", syscall(SYS_mount, "none", getenv("INSIDE"), "tmpfs", 0, 0));
    TELL("chroot", syscall(SYS_chroot, getenv("OUTSIDE")));
    struct rlimit more = { 1 << 20, 1 << 20 };
    TELL("unlimit", syscall(SYS_prlimit64, 0, RLIMIT_CORE, &more, 0));
    TELL("names", syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY));
    void *memory = mmap(0, 5L << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    tell("memory", memory == MAP_FAILED ? -1 : 0);
    if (memory != MAP_FAILED) munmap(memory, 5L << 30);
    long inside = syscall(SYS_openat, AT_FDCWD, at("INSIDE", "taken"), O_CREAT | O_WRONLY, 0600);
    tell("inside", inside);
    if (inside >= 0) {
        close(inside);
        unlink(at("INSIDE", "taken"));
    }
    syscall(SYS_write, 9, told, length);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    deeds();
    return real(thread, attributes, start, argument);
}
"#;

/// Builds the attacker's code as a library for the loader; returns its path. It reads the variables
/// `OUTSIDE`, a directory with a file `secret`, and `INSIDE`.
///
/// # Panics
/// If there is no compiler.
pub fn build(scratch: &Scratch) -> PathBuf {
    preload::build(scratch, "deeds", CODE, &[])
}

/// Returns the deeds of each time that they were done, by name, with the error of each; 0 is none.
///
/// # Panics
/// If they were never done.
pub fn each_time(file: &Path) -> Vec<BTreeMap<String, i32>> {
    let text = fs::read_to_string(file).expect("deeds");
    let times = text.split("begin 0\n").skip(1);
    let line = |line: &str| {
        let (deed, met) = line.split_once(' ')?;
        Some((deed.to_owned(), met.parse().expect("an error's number")))
    };
    let times: Vec<_> = times.map(|time| time.lines().filter_map(line).collect()).collect();
    assert!(!times.is_empty(), "no deeds");
    times
}

/// Returns what each deed meets in a cage; `inside`, and `names` and `memory`, which are a session's
/// only, are not among them.
///
/// `writes` is whether the cage lets its run write somewhere.
pub fn refused(writes: bool) -> BTreeMap<String, i32> {
    let denied = ["read", "write", "create", "list", "mkdir", "symlink", "rename", "unlink"];
    let denied = denied.map(|deed| (deed, Errno::ACCESS));
    // The kernel looks at a new link's file first, and finds it on the other side.
    let link = if writes { Errno::XDEV } else { Errno::ACCESS };
    let others = [("link", link), ("signal", Errno::PERM), ("speak", Errno::PIPE)];
    let missing = [
        "truncate", "execute", "fork", "trace", "socket", "mount", "chroot", "unlimit", "pair", "type",
        "show",
    ];
    let missing = missing.map(|deed| (deed, Errno::NOSYS));
    let met = denied.into_iter().chain(others).chain(missing);
    met.map(|(deed, error)| (deed.to_owned(), error.raw_os_error())).collect()
}
