//! A user of the host who may write to a share, and turns a directory in it into a link and back
//! during the sessions of root's server.

use std::{fs, os::unix::fs::chown};

use dsync_tests::{
    assert_unchanged,
    attack::{ATTACKER, assert_nothing_came_in, race, while_flipping},
    needs_dsync, needs_root, survey,
    tree::set_mtime,
};

use crate::nas::Nas;

#[test]
fn no_session_is_led_out_of_its_share() {
    needs_root!();
    needs_dsync!();
    for way in [Nas::new, Nas::standing] {
        // Flipped are a directory of the tree, the tree itself, the key's directory.
        for place in ["of-web1/tree/d", "of-web1/tree", "of-web1"] {
            for (role, pushes) in [("full", true), ("append", true), ("read", false)] {
                let nas = way(role);
                let outside = nas.scratch.at("outside");
                let below = "of-web1/tree/d/f".strip_prefix(place).unwrap().trim_start_matches('/');
                for (root, content) in [(nas.there("d/f"), "there"), (outside.join(below), "!!outside")] {
                    fs::create_dir_all(root.parent().unwrap()).unwrap();
                    fs::write(&root, content).unwrap();
                }
                fs::create_dir(nas.scratch.src().join("d")).unwrap();
                fs::write(nas.scratch.src().join("d/f"), "of the client").unwrap();
                let flipped = nas.scratch.at("share").join(place);
                chown(flipped.parent().unwrap(), Some(ATTACKER), Some(ATTACKER)).unwrap();
                let before = survey(&outside);
                while_flipping(&flipped, &outside, |flips| {
                    race(flips, |turn| {
                        if pushes {
                            let time = (1_300_000_000 + i64::try_from(turn).unwrap(), 0);
                            set_mtime(&nas.scratch.src().join("d/f"), time);
                            fs::write(nas.scratch.src().join(format!("d/new{turn}")), "new").unwrap();
                            let deletes = if role == "full" { "--delete" } else { "-v" };
                            return nas.push(&[deletes, "--exclude=flipped"]);
                        }
                        let _ = fs::remove_dir_all(nas.scratch.at("got"));
                        let outcome = nas.pull(&["--exclude=flipped"]);
                        if nas.scratch.at("got").exists() {
                            assert_nothing_came_in(&nas.scratch.at("got"), &format!("{place} {role}"));
                        }
                        outcome
                    });
                });
                assert_unchanged(&before, &outside);
            }
        }
    }
}
