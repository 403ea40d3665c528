//! Include and exclude rules choose the entries that rsync's choose.

use dsync_tests::{Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, differences, scratch::slash};

fn tree() -> Tree {
    let mut nodes = Vec::new();
    for dir in ["", "a/", "a/b/", "src/", "src/target/", "build/", "x y/", "[odd]/"] {
        if !dir.is_empty() {
            nodes.push(Node::dir(dir.trim_end_matches('/')));
        }
        for name in [
            "f.o",
            "f.c",
            "keep.o",
            "a.txt",
            "b.TXT",
            ".hidden",
            "note1",
            "note22",
            "star*",
            "q?",
            "é.o",
            "back\\slash",
            "[a",
            "x[",
            "f\\",
        ] {
            nodes.push(Node::file(format!("{dir}{name}"), 1, 10));
        }
    }
    nodes.push(Node::symlink("a/link.o", "f.o"));
    Tree::of(nodes)
}

const RULES: &[&[&str]] = &[
    &["--exclude=*.o"],
    &["--exclude=*.o", "--include=keep.o"],
    &["--include=keep.o", "--exclude=*.o"],
    &["--exclude=/f.o"],
    &["--exclude=a/"],
    &["--exclude=a"],
    &["--exclude=/a/"],
    &["--exclude=/a/*"],
    &["--exclude=/a/**"],
    &["--exclude=/a/***"],
    &["--exclude=a/b"],
    &["--exclude=a/*.o"],
    &["--exclude=a/**.o"],
    &["--exclude=**/b/**"],
    &["--exclude=**.o"],
    &["--exclude=**/f.o"],
    &["--exclude=note?"],
    &["--exclude=note??"],
    &["--exclude=note[0-9]"],
    &["--exclude=note[!0-9]*"],
    &["--exclude=note[^3-9]*"],
    &["--exclude=[[:alpha:]].[[:lower:]]*"],
    &["--exclude=[[:upper:]]*"],
    &["--exclude=star\\*"],
    &["--exclude=q\\?"],
    &["--exclude=\\[odd\\]"],
    &["--exclude=[[]odd]"],
    &["--exclude=back\\slash"],
    &["--exclude=back\\\\sl*"],
    &["--exclude=.*"],
    &["--exclude=x y"],
    &["--exclude=?.o"],
    &["--exclude=*/target/"],
    &["--exclude=src/target"],
    &["--exclude=/src/target/"],
    &["--exclude=/src/target/f.o"],
    &["--include=*/", "--include=*.c", "--exclude=*"],
    &["--include=/a/", "--include=/a/***", "--exclude=*"],
    &["--include=a/b/***", "--exclude=*"],
    &["--exclude=*"],
    &["--exclude=/*"],
    &["--exclude=- *.o"],
    &["--exclude=+ keep.o", "--exclude=*.o"],
    &["--exclude=é.o"],
    &["--exclude=*.txt", "--exclude=*.TXT"],
    &["--exclude=//f.o"],
    &["--exclude=a//b"],
    &["--exclude="],
    // Text with wildcards that matches nothing, whichever sign it has.
    &["--exclude=["],
    &["--exclude=[a"],
    &["--exclude=[a-"],
    &["--exclude=[a\\"],
    &["--exclude=[]"],
    &["--exclude=[!]"],
    &["--exclude=[^]"],
    &["--exclude=[a\\]"],
    &["--exclude=x["],
    &["--exclude=*["],
    &["--exclude=**["],
    &["--exclude=/[a"],
    &["--exclude=a/[a"],
    &["--exclude=[a/"],
    &["--exclude=[[:foo:]]"],
    &["--exclude=[a[:ALPHA:]]"],
    &["--exclude=[[:alpha:]"],
    &["--exclude=*\\"],
    &["--include=[a", "--exclude=*"],
    &["--include=*[", "--exclude=f*"],
    &["--include=[[:foo:]]", "--exclude=*.o"],
    &["--include=f*\\", "--exclude=f*"],
    &["--exclude=[a", "--exclude=*.o"],
    // Negated, it matches everything.
    &["-f", "-! [a"],
    &["-f", "-! [a/", "-f", "- *.o"],
    &["-f", "+! [a", "-f", "- *"],
    // Other classes, and text without wildcards.
    &["--exclude=[[:]"],
    &["--exclude=[[.a.]]"],
    &["--exclude=[z-a]"],
    &["--exclude=\\[a"],
    &["--exclude=f\\"],
];

#[test]
fn rules_choose_what_rsyncs_choose() {
    let scratch = Scratch::new();
    tree().plant(&scratch.src());
    let mut wrong = Vec::new();
    for (index, rules) in RULES.iter().enumerate() {
        for source in [slash(&scratch.src()), scratch.src().into_os_string()] {
            let [dsync, rsync] = ["dsync", "rsync"].map(|name| scratch.at(&format!("{name}-{index}")));
            let results = [(Run::dsync(), &dsync), (Run::of("rsync"), &rsync)]
                .map(|(program, to)| program.args(["-a"]).args(*rules).arg(&source).arg(to).run());
            let found = if dsync.exists() && rsync.exists() {
                differences(&rsync, &dsync, Scope { dir_times: false, ..Scope::full() })
            } else if dsync.exists() == rsync.exists() {
                Vec::new()
            } else {
                vec!["only one of the two made the destination".to_owned()]
            };
            if !found.is_empty() || results[0].code() != results[1].code() {
                wrong.push(format!(
                    "{rules:?} from {source:?}: {found:?}\n{}\n{}",
                    results[0].account(),
                    results[1].account()
                ));
            }
            for made in [dsync, rsync] {
                let _ = std::fs::remove_dir_all(made);
            }
        }
    }
    assert!(wrong.is_empty(), "{} rule sets differ from rsync:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rules_from_files_keep_their_order() {
    let scratch = Scratch::new();
    tree().plant(&scratch.src());
    std::fs::write(scratch.at("rules"), "# comment\n; comment\n\n+ keep.o\n*.o\n- /a/\n").unwrap();
    let from = format!("--exclude-from={}", scratch.at("rules").display());
    for (program, to) in [(Run::dsync(), "dst"), (Run::of("rsync"), "rsync")] {
        let run = program.args(["-a", "--exclude=note1"]).arg(&from).arg("--include=f.o");
        let _ = run.arg(slash(&scratch.src())).arg(scratch.at(to)).run().expect_quiet_success();
    }
    assert_same(&scratch.at("rsync"), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
}

#[test]
fn rules_hold_over_the_wire_in_both_directions() {
    let sshd = Sshd::shared();
    for via in Via::EACH {
        let scratch = Scratch::new();
        tree().plant(&scratch.src());
        let rules = ["-a", "--delete", "--include=keep.o", "--exclude=*.o", "--exclude=/src/"];
        let rsync = Run::of("rsync").args(rules).arg(slash(&scratch.src())).arg(scratch.at("rsync"));
        let _ = rsync.run().expect_quiet_success();
        let up = sshd.run(via).args(rules).arg(slash(&scratch.src())).arg(sshd.operand(scratch.at("up")));
        let _ = up.run().expect_quiet_success();
        let down = sshd.run(via).args(rules).arg(sshd.operand(slash(&scratch.src()))).arg(scratch.at("down"));
        let _ = down.run().expect_quiet_success();
        for made in ["up", "down"] {
            assert_same(&scratch.at("rsync"), &scratch.at(made), Scope { dir_times: false, ..Scope::full() });
        }
    }
}

#[test]
fn a_pull_deletes_as_little_of_what_filters_hide_as_rsync_does() {
    let sshd = Sshd::shared();
    let scratch = Scratch::new();
    Tree::of([Node::dir("a"), Node::file("a/f", 1, 10), Node::file(".cvsignore", 2, 0)])
        .plant(&scratch.src());
    std::fs::write(scratch.src().join(".cvsignore"), "listed\n").unwrap();
    let old = ["a/f~", ".git/config", "x.o", "listed", "excluded", "extra"];
    for rules in [&["-C"][..], &["--filter=-C"], &["--filter=:C"], &["-C", "--exclude=excluded"]] {
        for delete in ["--delete", "--delete-excluded"] {
            let operands = |to: &str| [sshd.operand(slash(&scratch.src())), slash(&scratch.at(to))];
            let [ours, theirs] = ["dsync", "rsync"].map(|name| {
                for path in old {
                    let path = scratch.at(name).join(path);
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, "old").unwrap();
                }
                // One that arrives counts with dsync at once, with rsync in the next run.
                std::fs::copy(scratch.src().join(".cvsignore"), scratch.at(name).join(".cvsignore")).unwrap();
                let run = if name == "dsync" {
                    sshd.run(Via::Ssh)
                } else {
                    Run::of("rsync").arg("-e").arg(sshd.shell())
                };
                let _ =
                    run.args(["-a", delete]).args(rules).args(operands(name)).run().expect_quiet_success();
                old.map(|path| scratch.at(name).join(path).exists())
            });
            assert_eq!(ours, theirs, "{rules:?} {delete}: of {old:?}");
        }
    }
}
