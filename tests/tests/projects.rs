//! `alias rsync=dsync`: command lines of public projects, each run with both programs.
//!
//! The table and its rules are in `tests/projects/`. The remote shell is a script named `ssh` that
//! runs the command here, so that lines with `-e "ssh ..."` stay as they are.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Facts, Run, Scratch, needs_dsync, needs_root, program, scratch::slash, survey, tree::set_mtime,
};

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    project: String,
    place: String,
    state: String,
    line: String,
}

impl Row {
    fn words(&self) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for letter in self.line.chars().chain([' ']) {
            match letter {
                '"' => quoted = !quoted,
                ' ' if !quoted => {
                    words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                }
                letter => word.push(letter),
            }
        }
        words
    }
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("projects")
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(home().join("commands.txt")).expect("the table");
    let row = |line: &str| {
        let cells: Vec<&str> = line.splitn(4, " | ").collect();
        let [project, place, state, line] = cells[..] else { panic!("not a row: {line}") };
        let cell = |text: &str| text.trim().to_owned();
        Row { project: cell(project), place: cell(place), state: cell(state), line: cell(line) }
    };
    text.lines().map(row).collect()
}

/// Plants the small tree that all lines run on.
fn plant(at: &Path) {
    let write = |name: &str, text: &str| {
        let path = at.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    for name in [
        "plain",
        "dir/sub/head.h",
        "dir/code.c",
        "dir/code.o",
        "photos/山.jpg",
        ".hidden",
        "back~",
        "dir/.empty",
    ] {
        write(&format!("src/{name}"), name);
    }
    for name in [
        ".git/config",
        "node_modules/m.js",
        "cache/big",
        "dev/null",
        "storage/kept",
        "Packages.xz",
        "check_summary.html",
    ] {
        write(&format!("src/{name}"), name);
    }
    write("src/.gitignore", "*.o\nnode_modules\n");
    write("src/zeros", &"\0".repeat(100_000));
    fs::create_dir_all(at.join("src/void/below")).expect("a directory");
    // The place of a row of copies that has none yet.
    fs::create_dir(at.join("row")).expect("a directory");
    symlink("plain", at.join("src/to-plain")).expect("a link");
    symlink("../../key", at.join("src/dir/to-key")).expect("a link");
    fs::hard_link(at.join("src/plain"), at.join("src/other-name")).expect("a name");
    fs::set_permissions(at.join("src/dir/code.c"), fs::Permissions::from_mode(0o755)).expect("a mode");
    for name in ["dst/plain", "dst/stale", "dst/gone/f", "prev/dir/code.c", "dst/cache/stays"] {
        write(name, if name.ends_with("code.c") { "dir/code.c" } else { "old" });
    }
    fs::set_permissions(at.join("prev/dir/code.c"), fs::Permissions::from_mode(0o755)).expect("a mode");
    write("exclude.list", "cache\n*.o\n");
    write("files.list", "plain\ndir/code.c\n");
    write("key", "k");
    age(at);
}

/// Sets all times: those of the old destination are older.
fn age(dir: &Path) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            age(&path);
        }
        let old = path.to_string_lossy().contains("/dst/");
        set_mtime(&path, (if old { 1_000_000_000 } else { 1_100_000_000 }, 0));
    }
}

/// Makes a directory for `PATH` with a remote shell and a `sudo` that run their command here.
fn tools(scratch: &Scratch, remote: &Path) -> PathBuf {
    let dir = scratch.at("tools");
    fs::create_dir_all(&dir).expect("a directory");
    let script = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    };
    script(
        "ssh",
        "while :; do case $1 in --) shift;; -[peoilScF]) shift 2;; -*) shift;; *) break;; esac; done; shift; exec sh -c \"$*\"",
    );
    script("sudo", "exec \"$@\"");
    symlink(remote, dir.join("rsync")).expect("a link");
    symlink(remote, dir.join(remote.file_name().expect("a name"))).or_else(ignore).expect("a link");
    dir
}

fn ignore(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// The result of a line: exit code, what was said, and both trees.
struct Result {
    code: Option<i32>,
    said: String,
    trees: [BTreeMap<Vec<u8>, Facts>; 2],
}

fn carry_out(row: &Row, run: fn() -> Run, remote: &Path) -> Result {
    let scratch = Scratch::new();
    let at = scratch.at("at");
    fs::create_dir(&at).expect("a directory");
    plant(&at);
    let path = format!("{}:{}", tools(&scratch, remote).display(), env::var("PATH").expect("PATH"));
    let outcome = run().args(row.words()).cwd(&at).env("PATH", path).env("HOME", &at).run();
    let trees = ["src", "dst"].map(|name| survey(&at.join(name)).into_iter().map(seen).collect());
    Result { code: outcome.code(), said: outcome.stderr_text(), trees }
}

/// Leaves out what no two runs have alike: new times, and the numbers of inodes.
fn seen((path, mut facts): (Vec<u8>, Facts)) -> (Vec<u8>, Facts) {
    facts.atime = None;
    if facts.mtime.0 > 1_200_000_000 {
        facts.mtime = (0, 0);
    }
    facts.inode = facts.inode.map(|_| (0, 0));
    (path, facts)
}

/// Runs a line with both programs and returns what is true of it.
fn judge(row: &Row) -> String {
    let real = real_rsync();
    let theirs = carry_out(row, || Run::of("rsync"), &real);
    let ours = carry_out(row, Run::dsync, program());
    if ours.code != theirs.code {
        if matches!(ours.code, Some(1 | 4)) {
            return format!("needs {}", culprit(&ours.said));
        }
        return format!(
            "differs: exit code {:?}, rsync {:?}",
            ours.code.unwrap_or(-1),
            theirs.code.unwrap_or(-1)
        );
    }
    for (number, name) in ["source", "destination"].iter().enumerate() {
        if ours.trees[number] != theirs.trees[number] {
            let other = theirs.trees[number]
                .iter()
                .find(|(path, facts)| ours.trees[number].get(*path) != Some(*facts));
            let more = ours.trees[number].keys().find(|path| !theirs.trees[number].contains_key(*path));
            let path = more.or(other.map(|(path, _)| path)).expect("a difference");
            return format!("differs: {name}, '{}'", String::from_utf8_lossy(path));
        }
    }
    "same".to_owned()
}

/// Returns the option or the filter rule that a refusal names.
fn culprit(said: &str) -> String {
    if let Some((_, rule)) = said.split_once("filter rule '") {
        return format!("filter rule '{}'", rule.split('\'').next().unwrap_or_default());
    }
    let mut words = said.split(['\'', ' ', ',']);
    let option = words.find(|word| word.starts_with('-') && word.len() > 1).unwrap_or("?");
    option.trim_end_matches([':', ';', '.']).to_owned()
}

/// Returns the first rsync on the path, before a row's own directory is put in front of it.
fn real_rsync() -> PathBuf {
    let path = env::var_os("PATH").expect("PATH");
    env::split_paths(&path).map(|dir| dir.join("rsync")).find(|path| path.is_file()).expect("rsync")
}

/// Returns the sentence of the page that has the count.
fn sentence(rows: &[Row]) -> String {
    let same = rows.iter().filter(|row| row.state == "same").count();
    format!(
        "Of {} command lines of public projects (`tests/projects/commands.txt`), {same} leave the same tree and exit code.",
        rows.len()
    )
}

#[test]
fn command_lines_of_projects_do_what_their_rows_say() {
    needs_dsync!();
    needs_root!();
    let stated = rows();
    let projects: std::collections::BTreeSet<&str> =
        stated.iter().map(|row| row.project.split(',').next().expect("a name")).collect();
    assert!(projects.len() >= 40, "{} projects", projects.len());
    let found: Vec<Row> = stated.iter().map(|row| Row { state: judge(row), ..row.clone() }).collect();

    let page = home().join("../../docs/from-rsync.md");
    let text = fs::read_to_string(&page).expect("the page");
    if env::var_os("DSYNC_BLESS").is_some() {
        let table: String = found
            .iter()
            .map(|row| format!("{} | {} | {} | {}\n", row.project, row.place, row.state, row.line))
            .collect();
        fs::write(home().join("commands.txt"), table).expect("the table");
        let lines = text.lines().map(|line| {
            if line.contains("command lines of public projects") { sentence(&found) } else { line.to_owned() }
        });
        fs::write(page, lines.map(|line| line + "\n").collect::<String>()).expect("the page");
        return;
    }

    let wrong: Vec<String> = stated
        .iter()
        .zip(&found)
        .filter(|(stated, found)| stated != found)
        .map(|(stated, found)| {
            format!("{}: says '{}', is '{}'\n  {}", stated.project, stated.state, found.state, stated.line)
        })
        .collect();
    assert!(wrong.is_empty(), "DSYNC_BLESS=1 writes the rows again:\n{}", wrong.join("\n"));
    assert!(text.contains(&sentence(&found)), "the page lacks: {}", sentence(&found));
}

#[test]
fn tree_of_the_rows_is_one_that_rsync_changes() {
    let scratch = Scratch::new();
    plant(scratch.path());
    let run = Run::of("rsync").arg("-a").arg(slash(&scratch.src())).arg(slash(&scratch.at("dst")));
    let before = survey(&scratch.at("dst"));
    let _ = run.run().expect_code(0);
    assert_ne!(before, survey(&scratch.at("dst")));
}
