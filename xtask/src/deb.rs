//! `cargo xtask deb`: a Debian package and a tarball of the command, in `target/deb/`.
//!
//! Both have the same files; the package puts them below `/usr`, the tarball below a directory of
//! its own. dpkg-deb makes the package: what it needs is a list of files and four scripts, and it is
//! wherever the package can be installed. `docs/design/packages.md` has the reasons.
//!
//! `--test` installs the package into a copy of this system that is gone afterwards, serves from
//! it, upgrades it while a session runs, and removes it; first without systemd, then under systemd
//! itself.

mod licences;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cargo_metadata::MetadataCommand;

use crate::{
    error::TaskError,
    step::{cargo, command, root, run as run_command, succeeds},
    tools::{FOR_PACKAGES, is_root, provide},
};

/// Makes the packages of a release build, or of the program that `--binary FILE` names.
///
/// # Errors
/// [`TaskError`]: a command that failed, or a file that cannot be read or written.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    let (mut binary, mut test) = (None, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--binary" => binary = Some(PathBuf::from(words.next().map_or("", String::as_str))),
            "--test" => test = true,
            _ => return Err(TaskError::Argument(word.clone())),
        }
    }
    let binary = match binary {
        Some(binary) => binary,
        None => {
            run_command(&mut cargo(&["build", "--release", "--locked", "-p", "dsync-cli"]))?;
            root().join("target/release/dsync")
        }
    };

    let made = Packages::make(&binary, FIRST)?;
    println!("{}\n{}", made.deb.display(), made.tarball.display());
    print_exposure();
    if test {
        try_out(&made.deb, &Packages::make(&binary, SECOND)?.deb)?;
    }
    Ok(())
}

/// Makes and tries out the packages of the program that the tests have built.
///
/// # Errors
/// As [`run`].
pub(crate) fn check() -> Result<(), TaskError> {
    let binary = root().join("target/debug/dsync").display().to_string();
    run(&["--binary".to_owned(), binary, "--test".to_owned()])
}

/// The files of one build.
struct Packages {
    deb: PathBuf,
    tarball: PathBuf,
}

impl Packages {
    fn make(binary: &Path, revision: &str) -> Result<Self, TaskError> {
        let out = root().join("target/deb");
        let tree = out.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(failed(&tree))?;
        }
        let version = version()?;
        let arch = printed(&mut command("dpkg", &["--print-architecture"]))?;

        fill(&tree, binary)?;
        let tarball = out.join(format!("dsync-{version}-linux-{arch}.tar.gz"));
        pack(&tree.join("usr"), &tarball, &format!("dsync-{version}"))?;

        control(&tree, &format!("{version}-{revision}"), &arch)?;
        let deb = out.join(format!("dsync_{version}-{revision}_{arch}.deb"));
        let mut build = command("dpkg-deb", &["--root-owner-group", "-Zxz", "-z1", "--build"]);
        run_command(build.arg(&tree).arg(&deb).stdout(Stdio::null()))?;
        Ok(Self { deb, tarball })
    }
}

/// Returns the version of the command.
fn version() -> Result<String, TaskError> {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let command = metadata.packages.iter().find(|package| package.name.as_str() == "dsync-cli");
    Ok(command.map(|package| package.version.to_string()).unwrap_or_default())
}

/// Puts the files into a tree as they are installed.
fn fill(tree: &Path, binary: &Path) -> Result<(), TaskError> {
    let program = tree.join("usr/bin/dsync");
    put(&program, &[], 0o755)?;
    run_command(command("strip", &["--strip-unneeded", "-o"]).arg(&program).arg(binary))?;

    let manual = output(Command::new(&program).arg("man"))?;
    put(&tree.join("usr/share/man/man1/dsync.1"), &manual, 0o644)?;
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/dsync"),
        ("zsh", "usr/share/zsh/vendor-completions/_dsync"),
        ("fish", "usr/share/fish/vendor_completions.d/dsync.fish"),
    ] {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        put(&tree.join(path), &script, 0o644)?;
    }

    for (from, to) in [
        ("packaging/dsync.service", "usr/lib/systemd/system/dsync.service"),
        ("packaging/dsync.socket", "usr/lib/systemd/system/dsync.socket"),
        ("packaging/serve.toml", "usr/share/doc/dsync/examples/serve.toml"),
        ("docs/server.md", "usr/share/doc/dsync/server.md"),
        ("docs/from-rsync.md", "usr/share/doc/dsync/from-rsync.md"),
        ("CHANGELOG.md", "usr/share/doc/dsync/changelog"),
    ] {
        put(&tree.join(to), &read(&root().join(from))?, 0o644)?;
    }
    put(&tree.join("usr/share/doc/dsync/copyright"), licences::text()?.as_bytes(), 0o644)?;
    for long in ["usr/share/man/man1/dsync.1", "usr/share/doc/dsync/changelog"] {
        run_command(command("gzip", &["-9nf"]).arg(tree.join(long)))?;
    }
    Ok(())
}

/// Puts the package's own description and scripts into a tree.
fn control(tree: &Path, version: &str, arch: &str) -> Result<(), TaskError> {
    let size = printed(command("du", &["-sk"]).arg(tree.join("usr")))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let libc = needed_libc(&tree.join("usr/bin/dsync"))?;
    let text = format!(
        "Package: dsync\nVersion: {version}\nArchitecture: {arch}\nMaintainer: the dsync project\nSection: net\n\
         Priority: optional\nInstalled-Size: {size}\nDepends: libc6 (>= {libc}), libgcc-s1\n\
         Suggests: openssh-client\nDescription: {DESCRIPTION}\n"
    );
    put(&tree.join("DEBIAN/control"), text.as_bytes(), 0o644)?;
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        let text = read(&root().join("packaging/debian").join(script))?;
        put(&tree.join("DEBIAN").join(script), &text, 0o755)?;
    }
    Ok(())
}

/// Returns the version of the C library that a program needs, from the versions of its symbols.
fn needed_libc(program: &Path) -> Result<String, TaskError> {
    let symbols = printed(command("objdump", &["-T"]).arg(program))?;
    let versions = symbols.split(|letter: char| letter.is_whitespace() || "()".contains(letter));
    let versions = versions.filter_map(|word| word.strip_prefix("GLIBC_"));
    let parts =
        |version: &str| version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    Ok(versions.max_by_key(|version| parts(version)).unwrap_or("2.34").to_owned())
}

/// Packs a tree under another name, the same bytes whenever it is done.
fn pack(tree: &Path, tarball: &Path, name: &str) -> Result<(), TaskError> {
    let rename = format!("s,^\\.,{name},");
    let mut tar = command("tar", &["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    tar.args(["--transform", &rename, "-czf"]).arg(tarball).arg("-C").arg(tree).arg(".");
    run_command(&mut tar)
}

/// Prints what systemd thinks of the unit, where it is installed.
fn print_exposure() {
    let unit = root().join("packaging/dsync.service");
    let unit = unit.display().to_string();
    let score =
        printed(&mut command("systemd-analyze", &["security", "--offline=true", "--no-pager", &unit]));
    if let Some(line) = score.ok().and_then(|text| text.lines().last().map(str::to_owned)) {
        println!("{}", line.trim_start_matches(|letter: char| !letter.is_ascii()).trim());
    }
}

/// Runs the scripts of the test, each in a copy of the system.
fn try_out(first: &Path, second: &Path) -> Result<(), TaskError> {
    if !is_root() || !succeeds("unshare", &["--mount", "true"]) {
        println!("deb: not tried out, which takes root and a mount namespace");
        return Ok(());
    }
    provide(FOR_PACKAGES)?;
    let script = root().join("packaging/try-out.sh");
    let mut unshare =
        command("unshare", &["--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-eu"]);
    run_command(unshare.arg(script).arg(first).arg(second))?;

    let script = root().join("packaging/under-systemd.sh");
    run_command(command("sh", &["-eu"]).arg(script).arg(first).arg(second))
}

/// Writes a file, and the directories above it.
fn put(path: &Path, text: &[u8], mode: u32) -> Result<(), TaskError> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed(dir))?;
    }
    fs::write(path, text).map_err(failed(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed(path))
}

fn read(path: &Path) -> Result<Vec<u8>, TaskError> {
    fs::read(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> TaskError + use<> {
    let path = path.display().to_string();
    move |source| TaskError::Read { path, source }
}

/// Returns the standard output of a command that succeeds.
fn output(command: &mut Command) -> Result<Vec<u8>, TaskError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|source| TaskError::Start { program, source })?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    Err(TaskError::Failed { command: crate::step::line(command), status: done.status })
}

fn printed(command: &mut Command) -> Result<String, TaskError> {
    Ok(String::from_utf8_lossy(&output(command)?).trim_end().to_owned())
}

/// The revision of the package.
const FIRST: &str = "1";
/// The revision of the package which the first one is upgraded to in the test.
const SECOND: &str = "2";

const DESCRIPTION: &str = "fast, encrypted and durable copies of directory trees
 dsync takes the options of rsync and copies trees here, over ssh, and to servers of its
 own, in parallel streams. Exit code 0 means that the copy survives a power cut.
 .
 The service dsync.service offers shares to keys; it starts once /etc/dsync/serve.toml is
 there. /usr/share/doc/dsync/server.md begins with how.";

#[test]
fn the_page_of_the_server_shows_the_units_of_the_package() -> Result<(), TaskError> {
    let page = String::from_utf8_lossy(&read(&root().join("docs/server.md"))?).into_owned();
    for unit in ["dsync.service", "dsync.socket"] {
        let text = String::from_utf8_lossy(&read(&root().join("packaging").join(unit))?).into_owned();
        let indent = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        let shown: String = text.lines().map(indent).collect();
        assert!(page.contains(&shown), "docs/server.md does not show {unit}");
    }
    Ok(())
}
