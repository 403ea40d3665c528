//! Operands that name shares, beside each other and beside options: they mean what the same paths mean to
//! rsync and to a run of this machine, and what cannot be meant is named as it was typed.

use std::{collections::BTreeSet, fs, path::Path};

use dsync_tests::{Outcome, Run, needs_dsync, schema, scratch::slash};
use serde_json::Value;

use crate::nas::Nas;

/// Makes a share with `src/dir/sub/deep` and `src/a` in the key's directory.
fn planted() -> Nas {
    let nas = Nas::standing("full");
    fs::create_dir_all(nas.place().join("src/dir/sub")).unwrap();
    fs::write(nas.place().join("src/dir/sub/deep"), "deep").unwrap();
    fs::write(nas.place().join("src/a"), "a").unwrap();
    nas
}

/// Returns the files below a directory.
fn files(at: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![at.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(at).unwrap().display().to_string());
            }
        }
    }
    found
}

#[test]
fn relative_paths_of_a_share_are_cut_where_those_of_a_directory_are() {
    needs_dsync!();
    let nas = planted();
    let paths = [
        "./src/./dir/sub",
        "././src/./dir/sub",
        "./src/dir/./sub",
        "src/./dir/sub",
        "src/./dir/./sub",
        "./src/dir/sub",
        "src/dir/sub",
        "./src",
        ".",
    ];
    for (number, path) in paths.into_iter().enumerate() {
        let [here, there] = ["here", "there"].map(|way| nas.scratch.at(&format!("{way}{number}")));
        let _ = Run::dsync().cwd(&nas.place()).args(["-aR", path]).arg(slash(&here)).run().expect_code(0);
        let _ = nas.run().arg("-aR").arg(nas.operand(path)).arg(slash(&there)).run().expect_code(0);
        assert!(!files(&here).is_empty());
        assert_eq!(files(&here), files(&there), "{path}");
    }
}

#[test]
fn two_colons_name_the_server_of_the_source_before() {
    needs_dsync!();
    let nas = planted();
    let got = nas.scratch.at("got");
    let run = nas.run().arg("-a").arg(nas.operand("src/dir/")).args(["::nas/src/a"]).arg(slash(&got));
    let _ = run.run().expect_quiet_success();
    assert_eq!(files(&got), ["a", "sub/deep"].map(String::from).into());
}

/// Runs a command at a share that has to fail with 1, and returns its words.
fn refused(run: Run) -> String {
    run.run().expect_code(1).stderr_text()
}

#[test]
fn sources_of_two_shares_are_refused_as_such() {
    needs_dsync!();
    let nas = planted();
    let other = nas.operand("x").replace("/nas/", "/other/");
    let run = || nas.run().arg("-a").arg(nas.operand("src/a"));
    let said = refused(run().arg(&other).arg(nas.scratch.at("got")));
    assert!(said.contains(&format!("must be in one share, and '{other}' is not in")), "{said}");
    let said = refused(run().arg("x").arg(nas.scratch.at("got")));
    assert!(said.contains("a path there is written '::nas/x'"), "{said}");
    // The last one is the destination.
    for destination in [other.as_str(), "host:x"] {
        let said = refused(run().arg(destination));
        assert!(said.contains("both source and destination are remote"), "{said}");
    }
}

#[test]
fn options_of_other_connections_are_refused_with_the_cure_for_copies_and_lists() {
    needs_dsync!();
    let nas = planted();
    let server = nas.operand("").replace("/nas/", "/");
    for (option, cure) in [
        ("--rsh=ssh", "without ssh"),
        ("--dsync-path=x", "without ssh"),
        ("--transport=ssh", "without ssh"),
        ("--port=8741", "write dsync://127.0.0.1:8741/"),
        ("--address=1.2.3.4", "this system chooses the address"),
    ] {
        let name = option
            .split_once('=')
            .filter(|(name, _)| *name != "--transport")
            .map_or(option, |(name, _)| name);
        let copy = nas.run().args(["-a", option]).arg(nas.operand("src/")).arg(nas.scratch.at("got"));
        for said in [refused(copy), refused(nas.run().arg(option).arg(&server))] {
            assert!(
                said.contains(&format!("{name} is not for a share")) && said.contains(cure),
                "{option}: {said}"
            );
            assert!(name == "--address" || !said.contains("this system"), "{option}: {said}");
        }
    }
    let named =
        refused(nas.run().args(["-a", "--port=8741"]).arg(nas.operand("src/")).arg(nas.scratch.at("got")));
    assert!(named.contains("write dsync://127.0.0.1:8741/nas/"), "{named}");
    let default =
        refused(nas.run().args(["-a", "--port=8730"]).arg(nas.operand("src/")).arg(nas.scratch.at("got")));
    assert!(default.contains("write 127.0.0.1::nas/"), "{default}");
}

#[test]
fn an_address_without_the_name_of_a_share_lists_none() {
    needs_dsync!();
    let nas = planted();
    let server = nas.operand("").replace("/nas/", "/");
    let nameless = format!("{server}/nas/");
    let said = refused(nas.run().arg(&nameless));
    assert!(said.contains(&format!("'{nameless}' names no share")), "{said}");
    assert_eq!(nas.run().arg(&server).run().expect_quiet_success().stdout_text(), "nas full\n");
}

/// Returns the events of a run, held against the schema.
fn events(outcome: &Outcome) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let lines = outcome.stdout_text();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for event in &events {
        assert_eq!(schema::fault(&schema, event), None, "{event}");
    }
    events
}

#[test]
fn shares_are_listed_as_events_where_events_are_wanted() {
    needs_dsync!();
    let nas = planted();
    let server = nas.operand("").replace("/nas/", "/");
    let listed = events(&nas.run().arg("--json").arg(&server).run().expect_quiet_success());
    let names: Vec<_> = listed.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["start", "share", "summary"]);
    assert_eq!(
        (&listed[0]["mode"], &listed[0]["sources"][0]["path"]),
        (&"list".into(), &server.as_str().into())
    );
    assert_eq!((&listed[1]["name"], &listed[1]["role"]), (&"nas".into(), &"full".into()));
    assert_eq!(listed[2]["exit_code"], 0);

    // A server that lets nobody in ends the stream as well.
    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.reconfigure(&config.replacen("[keys.web1]", "[keys.web1]\nexpires = 2020-01-01", 1));
    let refused = nas.run().arg("--json").arg(&server).run().expect_code(40);
    let told = events(&refused);
    assert_eq!((told.len(), &told[1]["exit_code"]), (2, &40.into()), "{}", refused.account());
    let why = told[1]["error"].as_str().unwrap();
    assert!(why.contains("key web1 has expired") && refused.stderr_text().contains(why), "{why}");
}
