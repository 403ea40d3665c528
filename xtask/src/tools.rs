//! The tools that the tasks need: installed if permitted, else named.

use std::{env, fs, path::Path};

use crate::{
    error::TaskError,
    step::{cargo, command, run, succeeds},
};

/// A program and the Debian package that contains it.
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

/// The programs that the test suite runs besides dsync itself.
pub(crate) const FOR_TESTS: &[Tool] = &[
    Tool { program: "sshd", package: "openssh-server" },
    Tool { program: "ssh", package: "openssh-client" },
    Tool { program: "rsync", package: "rsync" },
    Tool { program: "nft", package: "nftables" },
    Tool { program: "ip", package: "iproute2" },
    Tool { program: "unshare", package: "util-linux" },
    Tool { program: "mkfs.ext4", package: "e2fsprogs" },
    Tool { program: "mkfs.xfs", package: "xfsprogs" },
    Tool { program: "mkfs.btrfs", package: "btrfs-progs" },
    Tool { program: "fakeroot", package: "fakeroot" },
    Tool { program: "getfattr", package: "attr" },
    Tool { program: "strace", package: "strace" },
    Tool { program: "chattr", package: "e2fsprogs" },
    Tool { program: "mount", package: "mount" },
    Tool { program: "git", package: "git" },
    Tool { program: "perl", package: "perl-base" },
    Tool { program: "cc", package: "gcc" },
    Tool { program: "rdiff", package: "rdiff" },
];

/// The programs that `cargo xtask hunt` runs in addition.
pub(crate) const FOR_HUNTING: &[Tool] = &[
    Tool { program: "mkfs.btrfs", package: "btrfs-progs" },
    Tool { program: "setpriv", package: "util-linux" },
];

/// The programs that try the packages out.
pub(crate) const FOR_PACKAGES: &[Tool] = &[
    Tool { program: "systemd-analyze", package: "systemd" },
    Tool { program: "unshare", package: "util-linux" },
    Tool { program: "nsenter", package: "util-linux" },
    Tool { program: "pgrep", package: "procps" },
    Tool { program: "ip", package: "iproute2" },
];

/// The compiler for the fuzz targets' runtime.
pub(crate) const FOR_FUZZING: &[Tool] = &[Tool { program: "g++", package: "g++" }];

/// Ensures that every tool is installed: as root on a machine with apt it installs missing ones.
///
/// # Errors
/// [`TaskError::Missing`] with the tools that are still missing.
pub(crate) fn provide(tools: &[Tool]) -> Result<(), TaskError> {
    let missing = || tools.iter().filter(|tool| !is_there(tool.program));
    let mut packages: Vec<&str> = missing().map(|tool| tool.package).collect();
    packages.dedup();
    if !packages.is_empty() && is_root() && is_there("apt-get") {
        println!("installing {}", packages.join(" "));
        let bounded = ["-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"];
        let apt = |verb: &[&str]| {
            let args: Vec<&str> = bounded.iter().chain(verb).copied().collect();
            run(command("apt-get", &args).env("DEBIAN_FRONTEND", "noninteractive"))
        };
        apt(&["update"])?;
        apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())?;
    }
    let list: Vec<String> =
        missing().map(|tool| format!("{} (Debian package {})", tool.program, tool.package)).collect();
    if list.is_empty() { Ok(()) } else { Err(TaskError::Missing { list }) }
}

/// Ensures that a cargo subcommand is installed, built without optimisation and debug information:
/// it runs for seconds.
///
/// # Errors
/// Those of [`run`], or [`TaskError::Unreachable`] if the registry cannot be reached.
pub(crate) fn provide_subcommand(name: &str, version: &str) -> Result<(), TaskError> {
    if succeeds(&env::var("CARGO").unwrap_or_else(|_| "cargo".into()), &[name, "--version"]) {
        return Ok(());
    }
    let package = format!("cargo-{name}@{version}");
    println!("installing {package}");
    let mut install = cargo(&["install", "--locked", "--debug", "--quiet", &package]);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_NET_RETRY", "1");
    run(&mut install).map_err(|error| {
        let registry_answers = succeeds("cargo", &["info", "--quiet", &package]);
        if registry_answers { error } else { TaskError::Unreachable { package } }
    })
}

/// Ensures that a component of the toolchain is installed.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn provide_component(subcommand: &str, component: &str) -> Result<(), TaskError> {
    if succeeds(&env::var("CARGO").unwrap_or_else(|_| "cargo".into()), &[subcommand, "--version"]) {
        return Ok(());
    }
    run(&mut command("rustup", &["component", "add", component]))
}

/// Returns whether the effective user is root.
pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)).is_some_and(|effective| effective == "0")
}

/// Returns whether a program is on the path, or in a directory of root's path.
fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).any(|dir| dir.join(program).is_file());
    on_path || ["/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(program).is_file())
}
