//! `--watch` to a share, by a server's address and by a key's command.

use std::{fs, os::unix::fs::symlink};

use dsync_tests::{needs_dsync, run::wait_for, scratch::slash};
use rustix::process::Signal;

use super::nas::Nas;

#[test]
fn a_share_follows_each_change_of_a_watched_source() {
    needs_dsync!();
    for nas in [Nas::standing("full"), Nas::new("full")] {
        let far = nas.scratch.at("far");
        fs::create_dir(&far).unwrap();
        fs::write(far.join("file"), "1").unwrap();
        symlink(&far, nas.scratch.at("src/link")).unwrap();
        let run = nas.run().args(["-aL", "--delete", "--watch"]).arg(slash(&nas.scratch.src()));
        let running = run.arg(nas.operand("tree")).start();
        let has =
            |content: &str| fs::read_to_string(nas.there("link/file")).is_ok_and(|found| found == content);
        wait_for(|| has("1"));

        fs::write(far.join("file"), "22").unwrap();
        wait_for(|| has("22"));
        fs::create_dir_all(nas.scratch.at("src/new/deep")).unwrap();
        wait_for(|| nas.there("new/deep").is_dir());
        fs::remove_dir_all(nas.scratch.at("src/new")).unwrap();
        wait_for(|| !nas.there("new").exists());
        running.signal(Signal::TERM);
        let outcome = running.wait().expect_code(20);
        let said = outcome.stderr_text();
        assert!(!said.contains("trying again") && !said.contains("watched"), "{}", outcome.account());
    }
}
