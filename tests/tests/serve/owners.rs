//! Owners by the server's own rules: `fake-super`, `usermap` and `groupmap` of a key.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use dsync_tests::{Outcome, Run, assert_unchanged, needs_dsync, needs_root, survey};

use crate::{
    limits::WAYS,
    nas::{Nas, user},
};

/// Asserts that a push was refused by a rule for owners.
fn contradicts(push: Outcome, option: &str, rule: &str) {
    let refused = push.expect_code(42);
    let text = refused.stderr_text();
    for part in [option, &format!("the limit '{rule}' of the key"), "share 'nas'", "administrator there"] {
        assert!(text.contains(part), "{part}: {}", refused.account());
    }
}

/// Returns the mode, device and owner that a tree's file has in its attributes.
fn noted_owner(tree: &Path) -> String {
    String::from_utf8(survey(tree)[&b"file"[..]].xattrs["user.rsync.%stat"].clone()).unwrap()
}

#[test]
fn what_only_root_may_set_is_noted_whatever_the_client_asks() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("fake-super = true");
        fs::write(nas.scratch.src().join("file"), "content").unwrap();
        for options in [&["--chown=1234:5678"][..], &["--chown=1234:5678", "-M--super"]] {
            let _ = nas.push(options).expect_quiet_success();
            let file = fs::metadata(nas.there("file")).unwrap();
            assert_eq!(file.uid(), rustix::process::geteuid().as_raw(), "{options:?}");
            assert!(noted_owner(&nas.tree()).ends_with(" 1234:5678"), "{}", noted_owner(&nas.tree()));
        }

        // A pull gives back what was noted, though the client does not ask for it.
        let _ = nas.pull(&["--fake-super"]).expect_quiet_success();
        assert!(
            noted_owner(&nas.scratch.at("got")).ends_with(" 1234:5678"),
            "{}",
            noted_owner(&nas.scratch.at("got"))
        );

        let before = survey(&nas.place());
        contradicts(nas.push(&["-M--no-super"]), "Leave -M--no-super out", "fake-super");
        assert_unchanged(&before, &nas.place());
    }
}

#[test]
fn owners_go_by_the_map_of_the_key() {
    needs_dsync!();
    needs_root!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("usermap = '1234:4321,*:77'\ngroupmap = '*:88'");
        for (name, owner) in [("known", 1234), ("other", 99)] {
            fs::write(nas.scratch.src().join(name), name).unwrap();
            chown(nas.scratch.src().join(name), Some(owner), Some(owner)).unwrap();
        }
        for options in [&[][..], &["--numeric-ids"]] {
            let _ = nas.push(options).expect_quiet_success();
            for (name, owner) in [("known", 4321), ("other", 77)] {
                let there = fs::metadata(nas.there(name)).unwrap();
                assert_eq!((there.uid(), there.gid()), (owner, 88), "{name} {options:?}");
            }
        }

        let before = survey(&nas.place());
        for (option, rule) in
            [("--usermap=*:0", "usermap"), ("--chown=0", "usermap"), ("--groupmap=*:0", "groupmap")]
        {
            contradicts(nas.push(&[option]), "and --chown out", rule);
            contradicts(nas.push(&[option, "-n"]), "and --chown out", rule);
        }
        assert_unchanged(&before, &nas.place());
        // In a pull they are the client's own affair.
        let _ = nas.pull(&["--chown=5:6"]).expect_quiet_success();
        assert_eq!(fs::metadata(nas.scratch.at("got/known")).unwrap().uid(), 5);
    }
}

#[test]
fn a_map_of_one_kind_leaves_the_other_to_the_client() {
    needs_dsync!();
    needs_root!();
    let nas = Nas::new("write");
    nas.limit("usermap = '*:77'");
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    let _ = nas.push(&["--groupmap=*:55"]).expect_quiet_success();
    let there = fs::metadata(nas.there("file")).unwrap();
    assert_eq!((there.uid(), there.gid()), (77, 55));
}

#[test]
fn check_says_the_rules_and_warns_of_maps_that_lead_nowhere() {
    needs_dsync!();
    let nas = Nas::new("append");
    let config = nas.scratch.at("serve.toml");
    let text = fs::read_to_string(&config).unwrap();
    let check = |text: &str, lines: &str| {
        nas.configure(&format!("{text}{lines}\n"));
        Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run()
    };

    let checked = check(&text, "usermap = '*:nobody-here'\ngroupmap = '5:6,*:no-group'\nfake-super = true");
    let (said, warned) = (checked.stdout_text(), checked.stderr_text());
    for line in ["owners by the map '*:nobody-here'", "what only root may set is noted, not set"] {
        assert!(said.contains(&format!("    limit: {line}\n")), "{line}: {}", checked.account());
    }
    for warning in ["'usermap' names user 'nobody-here'", "'groupmap' names group 'no-group'"] {
        assert!(warned.contains(warning), "{warning}: {}", checked.account());
    }

    let of_user = text.replacen(user(), "", 1).replacen("keep-days", "user = 'nobody'\nkeep-days", 1);
    // Root looks as that user, who has to be able to write there.
    let of_nobody = dsync_tests::skip::is_root().then_some(65_534);
    chown(nas.place(), of_nobody, None).unwrap();
    let checked = check(&of_user, "usermap = '*:0'").expect_code(0);
    assert!(checked.stderr_text().contains("'usermap' has no effect"), "{}", checked.account());
    let checked = check(&of_user, "usermap = '*:0'\nfake-super = true").expect_code(0);
    assert!(!checked.stderr_text().contains("has no effect"), "{}", checked.account());

    for (text, lines, why) in [
        (text.clone(), "usermap = 'all'", "'all' is not FROM:TO"),
        (text.replacen("'append'", "'read'", 1), "groupmap = '*:0'", "gives nothing an owner"),
    ] {
        let wrong = check(&text, lines).expect_code(1);
        assert!(wrong.stderr_text().contains(why), "{why}: {}", wrong.account());
    }
}
