//! `--detect-renamed`: what was moved or copied at the source is made from the destination's own
//! files, and is the source's whatever those were.

use std::{fs, path::Path};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, differences, needs_dsync,
    scratch::slash,
    tree::{noise, set_mtime},
};

const DETECT: &str = "--detect-renamed";

/// Files of several sizes below a directory.
fn files(directory: &str) -> Vec<Node> {
    let sizes = [256, 300, 4095, 4096, 4097, 20_000, 131_072, 140_001, 5 << 20];
    let file = |(seed, len)| Node::file(format!("{directory}/sub/file {seed}"), seed, len);
    let directories = [Node::dir(directory), Node::dir(format!("{directory}/sub"))];
    directories.into_iter().chain((0..).zip(sizes).map(file)).collect()
}

/// Copies `src/` to `dst` over a carrier, as a push or as a pull; the trees are equal then.
fn copy(scratch: &Scratch, (via, pulls): (Via, bool), options: &[&str]) -> Outcome {
    let outcome = run(scratch, (via, pulls), options).expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
    outcome
}

fn run(scratch: &Scratch, (via, pulls): (Via, bool), options: &[&str]) -> Outcome {
    let sshd = Sshd::shared();
    let (from, to) = (slash(&scratch.src()), scratch.dst());
    let run = sshd.run(via).args(["-a", "--stats"]).args(options);
    let run = if pulls { run.arg(sshd.operand(from)).arg(to) } else { run.arg(from).arg(sshd.operand(to)) };
    run.run()
}

fn literal(outcome: &Outcome) -> u64 {
    outcome.stat("Literal data")
}

#[test]
fn a_moved_directory_sends_no_file_data_over_any_carrier() {
    needs_dsync!();
    for via in Via::EACH {
        for pulls in [false, true] {
            let scratch = Scratch::new();
            fs::create_dir(scratch.at("src/new")).unwrap();
            Tree::of(files("new/name")).plant(&scratch.src());
            Tree::of(files("old")).plant(&scratch.dst());
            let outcome = copy(&scratch, (via, pulls), &[DETECT, "-i", "--delete"]);
            assert_eq!(literal(&outcome), 0, "{}", outcome.account());
            let arrow = if pulls { ">f+++++++++" } else { "<f+++++++++" };
            let line = format!("{arrow} new/name/sub/file 5 <- old/sub/file 5\n");
            assert!(outcome.stdout_text().contains(&line), "{}", outcome.account());
        }
    }
}

#[test]
fn a_dry_run_makes_nothing_from_what_goes_before() {
    needs_dsync!();
    let scratch = Scratch::new();
    let nodes = |directory: &str, seed| {
        let len = 40_000 + 10_000 * seed;
        [Node::dir(directory), Node::file(format!("{directory}/file"), seed, len)]
    };
    Tree::of(nodes("new", 1).into_iter().chain(nodes("copied", 2)).chain(nodes("stays", 2)))
        .plant(&scratch.src());
    Tree::of(nodes("old", 1).into_iter().chain(nodes("stays", 2))).plant(&scratch.dst());
    let options = |words: &[&'static str]| [&["-i", DETECT][..], words].concat();
    for (words, made) in [
        (&["--delete-before"][..], vec!["copied/file <- stays/file"]),
        (&["--delete"], vec!["copied/file <- stays/file", "new/file <- old/file"]),
    ] {
        let lines = |outcome: Outcome| {
            let text = outcome.stdout_text();
            let made = text.lines().filter(|line| line.contains(" <- "));
            made.filter_map(|line| line.split_once(' '))
                .map(|(_, names)| names.to_owned())
                .collect::<Vec<_>>()
        };
        let planned = options(&[words, &["-n"]].concat());
        let planned = run(&scratch, (Via::Ssh, false), &planned).expect_code(0);
        assert_eq!(lines(planned), made, "{words:?}");
    }
    let outcome = run(&scratch, (Via::Ssh, false), &options(&["--delete-before"])).expect_code(0);
    assert_eq!(literal(&outcome), 50_000, "{}", outcome.account());
}

#[test]
fn unasked_files_are_looked_for_once_the_new_ones_have_a_mib() {
    needs_dsync!();
    for (via, pulls) in [(Via::Ssh, false), (Via::Quic, true)] {
        let scratch = Scratch::new();
        Tree::of(files("new")).plant(&scratch.src());
        Tree::of(files("old")).plant(&scratch.dst());
        let planned = run(&scratch, (via, pulls), &["-ni", "--delete"]).expect_code(0).stdout_text();
        let outcome = copy(&scratch, (via, pulls), &["-i", "--delete"]);
        let listed = outcome.stdout_text();
        assert!(listed.contains("new/sub/file 8 <- old/sub/file 8\n"), "{}", outcome.account());
        // Those before it are 303,917 bytes.
        assert!(listed.contains("new/sub/file 7\n"), "{}", outcome.account());
        assert_eq!(literal(&outcome), 303_917, "{}", outcome.account());
        let lines = |text: &str| text.lines().filter(|line| line.contains(" <- ")).count();
        assert_eq!((lines(&planned), lines(&listed)), (1, 1), "{planned}{listed}");
    }
}

#[test]
fn unasked_a_large_tree_is_looked_at_for_much_new_content_only() {
    needs_dsync!();
    let scratch = Scratch::new();
    let entries = (0..20_000).map(|number| Node::file(format!("old/{number}"), number, 1));
    let films = [("a", 1, 2 << 20), ("b", 2, 3 << 20)];
    let film = |directory: &str, (name, seed, len): (&str, u64, u64)| {
        Node::file(format!("{directory}/{name}"), seed, len)
    };
    Tree::of([Node::dir("new")].into_iter().chain(films.map(|one| film("new", one)))).plant(&scratch.src());
    let old = [Node::dir("old")].into_iter().chain(entries);
    Tree::of(old.chain(films.map(|one| film("old", one)))).plant(&scratch.dst());

    // 20,000 entries are worth 2.5 MB: not after the first file, but after the second.
    let outcome = run(&scratch, (Via::Ssh, false), &["-i"]).expect_code(0);
    let listed = outcome.stdout_text();
    assert!(listed.contains("new/a\n") && listed.contains("new/b <- old/b\n"), "{}", outcome.account());
    assert_eq!(literal(&outcome), 2 << 20, "{}", outcome.account());
}

#[test]
fn where_it_is_refused_or_of_no_use_everything_is_sent_and_nothing_is_read() {
    needs_dsync!();
    for options in [
        &["--no-detect-renamed"][..],
        &[DETECT, "--no-detect-renamed"],
        &[DETECT, "-W"],
        // To make room early, deletions do not wait for what is made from the old files.
        &["--delete-during"],
        &["--delete-before"],
        // A batch file has contents.
        &["--write-batch=batch"],
    ] {
        let scratch = Scratch::new();
        Tree::of(files("new")).plant(&scratch.src());
        Tree::of(files("old")).plant(&scratch.dst());
        let sshd = Sshd::shared();
        let run = sshd.run(Via::Ssh).args(["-ai", "--stats", "--delete"]).args(options);
        let run = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let outcome = run.cwd(scratch.path()).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
        assert!(literal(&outcome) > 5 << 20, "{}", outcome.account());
        assert!(!outcome.stdout_text().contains("<-"), "{}", outcome.account());
    }
    // A file alone, and a destination that does not exist, have nothing to look for.
    let scratch = Scratch::new();
    Tree::of(files("new")).plant(&scratch.src());
    let _ = copy(&scratch, (Via::Ssh, false), &[DETECT]);
    let run = Run::dsync().args(["-a", DETECT]).arg(slash(&scratch.src())).arg(scratch.at("local"));
    let _ = run.run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("local"), Scope { dir_times: false, ..Scope::full() });
}

#[test]
fn it_goes_with_the_options_that_delete_keep_and_write_otherwise() {
    needs_dsync!();
    for (options, sends) in [
        (&["--delete"][..], false),
        (&["--delete-during"], false),
        (&["--delete-after"], false),
        (&["--delete-delay", "--max-delete=1000"], false),
        // The files are gone before the first new one is looked at.
        (&["--delete-before"], true),
        (&["--delete", "--delay-updates"], false),
        (&["--delete", "--inplace"], false),
        (&["--delete", "--append"], false),
        (&["--delete", "--partial-dir=.part"], false),
        (&["--delete", "-H"], false),
        (&["--delete", "-c"], false),
        (&["--delete", "-y"], false),
        (&["--delete", "-S"], false),
        (&["--delete", "--detect-moved"], false),
        (&["--delete", "--backup", "--backup-dir=../kept"], false),
    ] {
        let scratch = Scratch::new();
        Tree::of(files("new")).plant(&scratch.src());
        Tree::of(files("old")).plant(&scratch.dst());
        let outcome = copy(&scratch, (Via::Ssh, false), &[options, &[DETECT]].concat());
        assert_eq!(literal(&outcome) > 0, sends, "{options:?}: {}", outcome.account());
        if options.contains(&"--backup") {
            assert!(scratch.at("kept/old/sub/file 5").exists());
        }
    }
}

#[test]
fn a_dry_run_and_json_say_what_comes_from_where() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of(files("new")).plant(&scratch.src());
    Tree::of(files("old")).plant(&scratch.dst());
    let outcome = run(&scratch, (Via::Ssh, true), &[DETECT, "-ni"]).expect_code(0);
    assert!(outcome.stdout_text().contains("new/sub/file 3 <- old/sub/file 3\n"), "{}", outcome.account());
    assert!(!scratch.at("dst/new").exists());
    let outcome = run(&scratch, (Via::Ssh, false), &[DETECT, "--json"]).expect_code(0);
    let said = r#""made_from":{"path":"old/sub/file 3"}"#;
    assert!(outcome.stdout_text().contains(said), "{}", outcome.account());
}

#[test]
fn copies_and_names_in_use_by_another_file_end_with_the_sources_content() {
    needs_dsync!();
    let scratch = Scratch::new();
    // The old 'a' is 'b' now, and 'a' is another file; 'd' is a file now, and its content is in 'e'.
    Tree::of([
        Node::file("a", 1, 70_000),
        Node::file("b", 2, 60_000),
        Node::file("b too", 2, 60_000),
        Node::file("d", 3, 50_000),
        Node::dir("e"),
        Node::file("e/f", 4, 40_000),
    ])
    .plant(&scratch.src());
    Tree::of([Node::file("a", 2, 60_000), Node::dir("d"), Node::file("d/f", 4, 40_000)])
        .plant(&scratch.dst());
    let _ = copy(&scratch, (Via::Quic, false), &[DETECT, "--delete", "--inplace"]);
    // A copy: the first one stays.
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 2, 60_000), Node::file("copy", 2, 60_000)]).plant(&scratch.src());
    Tree::of([Node::file("a", 2, 60_000)]).plant(&scratch.dst());
    let outcome = copy(&scratch, (Via::Quic, true), &[DETECT]);
    assert_eq!(literal(&outcome), 0, "{}", outcome.account());
}

#[test]
fn a_file_that_looks_alike_and_is_not_costs_its_sums_and_nothing_else() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("new", 1, 90_000), Node::file("small", 3, 300)]).plant(&scratch.src());
    Tree::of([Node::file("old", 2, 90_000), Node::file("tiny", 4, 300)]).plant(&scratch.dst());
    let outcome = copy(&scratch, (Via::Ssh, false), &[DETECT, "--delete"]);
    assert_eq!(literal(&outcome), 90_300, "{}", outcome.account());
    // Of another time, but of its name: a delta.
    let scratch = Scratch::new();
    let mut content = noise(5, 200_000);
    fs::create_dir_all(scratch.at("src/new")).unwrap();
    fs::create_dir_all(scratch.at("dst/old")).unwrap();
    fs::write(scratch.at("src/new/disk.img"), &content).unwrap();
    content[100_000] ^= 1;
    fs::write(scratch.at("dst/old/disk.img"), &content).unwrap();
    set_mtime(&scratch.at("dst/old/disk.img"), (1_300_000_000, 0));
    let outcome = copy(&scratch, (Via::Ssh, false), &[DETECT, "--delete"]);
    assert!((1..50_000).contains(&literal(&outcome)), "{}", outcome.account());
}

#[test]
fn a_new_snapshot_is_made_from_the_moved_files_of_the_last_one() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of(files("new")).plant(&scratch.src());
    Tree::of(files("old")).plant(&scratch.at("yesterday"));
    let outcome = copy(&scratch, (Via::Ssh, false), &[DETECT, "-i", "--link-dest=../yesterday"]);
    assert_eq!(literal(&outcome), 0, "{}", outcome.account());
    let line = "new/sub/file 5 <- ../yesterday/old/sub/file 5\n";
    assert!(outcome.stdout_text().contains(line), "{}", outcome.account());
}

/// The source gets the sums of a basis. It gets none of a file that it could not have listed itself.
#[test]
fn what_the_source_may_not_list_is_no_basis() {
    needs_dsync!();
    let plant = |at: &Path, path: &str| Tree::of([Node::file(path, 1, 50_000)]).plant(at);
    for (excluded, old) in [
        ("--exclude=secret", "secret"),
        ("--exclude=/keep/", "keep/secret"),
        ("--exclude=*.key", "d/a.key"),
        ("--exclude=secret", ".dsync-away-0123456789abcdef0123456789abcdef"),
    ] {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("dst").join(old).parent().unwrap()).unwrap();
        plant(&scratch.src(), "new");
        if let Some(directory) = Path::new(old).parent().filter(|path| *path != Path::new("")) {
            fs::create_dir_all(scratch.dst().join(directory)).unwrap();
        }
        plant(&scratch.dst(), old);
        let outcome = run(&scratch, (Via::Ssh, true), &[DETECT, "-i", excluded]).expect_code(0);
        assert_eq!(literal(&outcome), 50_000, "{old}: {}", outcome.account());
        assert!(!outcome.stdout_text().contains("<-"), "{}", outcome.account());
    }

    // An operand without a slash stands for its own name only.
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::dir("a"), Node::file("a/new", 1, 50_000)]).plant(&scratch.src());
    for (old, sends) in [("b", true), ("a", false)] {
        let to = scratch.at(&format!("to {old}"));
        Tree::of([Node::dir(old), Node::file(format!("{old}/old"), 1, 50_000)]).plant(&to);
        let run = sshd.run(Via::Ssh).args(["-a", "--stats", DETECT]);
        let outcome = run.arg(sshd.operand(scratch.at("src/a"))).arg(&to).run().expect_code(0);
        assert_eq!(literal(&outcome) > 0, sends, "{old}: {}", outcome.account());
    }
}

/// Law: a run with the option has the result of one without it, whatever was moved, copied, changed and
/// removed.
#[test]
fn runs_with_it_are_runs_without_it() {
    needs_dsync!();
    let mut state = 7_u64;
    let mut below = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let sshd = Sshd::shared();
    for round in 0..8 {
        let scratch = Scratch::new();
        let mut tree = |root: &Path| {
            let mut nodes: Vec<_> = (0..4).map(|directory| Node::dir(format!("d{directory}"))).collect();
            for name in 0..30 {
                if below(3) > 0 {
                    // Few contents, sizes and times: many files look alike, and some of them are.
                    let (seed, len) = (below(12), 200 + 9000 * below(4));
                    let mtime = (1_500_000_000 + below(2) as i64, 0);
                    nodes.push(Node { mtime, ..Node::file(format!("d{}/f{name}", below(4)), seed, len) });
                }
            }
            Tree::of(nodes).plant(root);
        };
        tree(&scratch.src());
        tree(&scratch.at("old"));
        let options = [&["--delete"][..], &["--delete-during"], &[], &["--delete", "--delay-updates"]];
        let options = options[round % options.len()];
        for (name, detect) in [("plain", &[][..]), ("detecting", &[DETECT])] {
            let to = scratch.at(name);
            let copied = Run::dsync().arg("-a").arg(slash(&scratch.at("old"))).arg(&to);
            let _ = copied.run().expect_quiet_success();
            let run = sshd.run(Via::Ssh).arg("-a").args(options).args(detect).arg(slash(&scratch.src()));
            let _ = run.arg(sshd.operand(&to)).run().expect_quiet_success();
        }
        let scope = Scope { dir_times: false, ..Scope::full() };
        assert_eq!(differences(&scratch.at("plain"), &scratch.at("detecting"), scope), [""; 0], "{round}");
    }
}

#[test]
fn logs_that_were_rotated_arrive_although_their_old_copies_are_rewritten_in_place_meanwhile() {
    needs_dsync!();
    // Whether an old copy is cut between its signing and its use is chance: some of so many are.
    let logs = 0..60;
    for pulls in [false, true] {
        let scratch = Scratch::new();
        let old = |name: &str, number: u64| Node::file(format!("{name} {number}"), number, 300_000 + number);
        let fresh = logs.clone().map(|number| Node::file(format!("log {number}"), 1_000 + number, 10));
        Tree::of(fresh.chain(logs.clone().map(|number| old("rotated", number)))).plant(&scratch.src());
        Tree::of(logs.clone().map(|number| old("log", number))).plant(&scratch.dst());

        let _ = copy(&scratch, (Via::Ssh, pulls), &[DETECT, "--inplace"]);
    }
}
