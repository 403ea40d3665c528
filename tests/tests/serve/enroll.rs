//! `dsync enroll`: both ends know each other after one step over a real login, and nothing else is
//! changed at either.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
};

use dsync_tests::{
    Outcome, Run, Scratch, Sshd, needs_dsync, program, run::wait_for, scratch::slash, skip::is_root, strace,
};
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};

use crate::nas::Nas;

/// Makes a server that knows no client; returns its key too.
fn nas_of_nobody() -> (Nas, String) {
    let mut nas = Nas::new("append");
    let server = Nas::public(&nas.scratch.at("server.key"));
    let user = if is_root() { "user = 'root'\n" } else { "" };
    nas.configure(&format!(
        "# Words of the administrator.\n[server]\nlisten = ['127.0.0.1:0']\nidentity = '{}'\n[shares.nas]\npath = \
         '{}'\n{user}# The last line has no end.",
        nas.scratch.at("server.key").display(),
        nas.scratch.at("share").display()
    ));
    nas.stand();
    (nas, server)
}

fn config(nas: &Nas) -> PathBuf {
    nas.scratch.at("serve.toml")
}

fn known_hosts(nas: &Nas) -> PathBuf {
    nas.config("home/dsync/known-hosts")
}

/// Enrolls with these options, without a terminal.
fn enroll(nas: &Nas, options: &[&str]) -> Outcome {
    let sshd = Sshd::shared();
    let run = Run::of("setsid").arg("--wait").arg(program()).arg("enroll").arg("-e").arg(sshd.shell());
    let run = run.arg("--dsync-path").arg(program()).arg("--config").arg(config(nas));
    let run = run.arg(format!("--address=127.0.0.1:{}", nas.port())).args(options).arg("dsync-test");
    run.env("XDG_CONFIG_HOME", nas.config("home")).run()
}

#[test]
fn a_client_without_a_key_pushes_after_one_step() {
    needs_dsync!();
    let (nas, server) = nas_of_nobody();
    let path = config(&nas);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        chown(&path, None, Some(65534)).unwrap();
    }
    let (before, found) = (fs::read_to_string(&path).unwrap(), fs::metadata(&path).unwrap());
    let options = ["--key=laptop", "--role=append", "--directory=of-{key}"];

    let public = Nas::public(&nas.config("home/dsync/key"));
    let public = public.trim_end_matches(" test");
    let dry = enroll(&nas, &[&options[..], &["-n"]].concat()).expect_code(0);
    let lines = |since: &str| {
        format!(
            "\n[keys.laptop]\npublic = \"{public}\"\nsince = {since}\n\n[shares.nas.keys.laptop]\nrole = \"append\"\ndirectory = \
         \"of-{{key}}\"\n"
        )
    };
    let pin = format!("127.0.0.1:{} {}\n", nas.port(), server.trim_end_matches(" test"));
    let since = since(&dry);
    for line in lines(&since)
        .lines()
        .chain(pin.lines())
        .chain(["key 'laptop' in share 'nas': append, 'of-laptop' in it"])
    {
        assert!(dry.stdout_text().contains(line), "{line}: {}", dry.account());
    }
    // Without a terminal nobody agrees.
    let unasked = enroll(&nas, &options).expect_code(1);
    assert!(unasked.stderr_text().contains("--yes"), "{}", unasked.account());
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert!(!known_hosts(&nas).exists());

    let done = enroll(&nas, &[&options[..], &["--yes"]].concat()).expect_code(0);
    // It may be tomorrow by now.
    let today = self::since(&done);
    assert!(done.stdout_text() == dry.stdout_text().replace(&since, &today), "{}", done.account());
    assert!(done.stderr_text().contains("the server reads it anew"), "{}", done.account());
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}\n{}", lines(&today)));
    assert_eq!(fs::read_to_string(known_hosts(&nas)).unwrap(), pin);
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.mode(), now.uid(), now.gid()), (found.mode(), found.uid(), found.gid()));
    assert!(now.ino() != found.ino(), "the file was written in place");

    // Nothing is asked on the way.
    wait_for(|| nas.log().contains("was read anew"));
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let push = nas.run().arg("-a").arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).run();
    let _ = push.expect_quiet_success();
    assert_eq!(fs::read(nas.scratch.at("share/of-laptop/tree/new")).unwrap(), b"new");
}

#[test]
fn a_dry_run_of_a_fresh_client_shows_all_but_the_key_and_makes_nothing() {
    needs_dsync!();
    let (nas, server) = nas_of_nobody();
    let before = fs::read_to_string(config(&nas)).unwrap();
    let options = ["-n", "--key=laptop", "--role=append"];
    let dry = enroll(&nas, &options).expect_code(0);
    let home = nas.config("home/dsync");
    for line in [
        "key 'laptop' in share 'nas': append, 'laptop' in it".to_owned(),
        format!("here, {} gets a new key", home.join("key").display()),
        "    [keys.laptop]".to_owned(),
        "    public = \"(the new key's line)\"".to_owned(),
        "    role = \"append\"".to_owned(),
        format!("    127.0.0.1:{} {}", nas.port(), server.trim_end_matches(" test")),
        "              client of the new key".to_owned(),
    ] {
        assert!(dry.stdout_text().lines().any(|found| found == line), "{line}: {}", dry.account());
    }
    // No other key than the server's is shown: nobody has it.
    assert_eq!(dry.stdout_text().matches("dsync-ed25519 ").count(), 1, "{}", dry.account());
    assert!(dry.stderr_text().contains("nothing was written (-n)"), "{}", dry.account());
    assert!(!home.exists(), "{}", dry.account());
    assert_eq!(fs::read_to_string(config(&nas)).unwrap(), before);

    // No key is made before somebody agrees to the line that is shown.
    let unasked = enroll(&nas, &options[1..]).expect_code(1);
    assert!(unasked.stderr_text().contains("nothing was enrolled"), "{}", unasked.account());
    let new = format!("here, {} gets a new key", home.join("key").display());
    assert!(unasked.stdout_text().lines().any(|found| found == new), "{}", unasked.account());
    assert_eq!(unasked.stdout_text().matches("dsync-ed25519 ").count(), 2, "{}", unasked.account());
    assert!(!home.exists(), "{}", unasked.account());
    assert_eq!(fs::read_to_string(config(&nas)).unwrap(), before);

    // The key that was shown is the one that is written, and that the server knows.
    let done = enroll(&nas, &[&options[1..], &["--yes"]].concat()).expect_code(0);
    let public = Nas::public(&home.join("key"));
    let line = format!("public = \"{}\"", public.trim_end_matches(" test"));
    assert!(done.stdout_text().contains(&line), "{}", done.account());
    assert!(fs::read_to_string(config(&nas)).unwrap().contains(&line), "{}", done.account());

    // A key that others can read is no reason to show another one.
    fs::set_permissions(home.join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = enroll(&nas, &options).expect_code(40);
    assert!(refused.stderr_text().contains("can be read by others"), "{}", refused.account());
}

#[test]
fn a_key_has_its_name_only_with_all_of_its_content() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (key, linkless) = (scratch.at("key"), scratch.at("linkless"));
    let calls = "openat,write,fsync,link,linkat,rename,renameat,renameat2,unlink,unlinkat";
    let (made, traced) =
        strace::watch(calls, &scratch.at("trace"), |run| run.args(["key", "--file"]).arg(&key));
    let _ = made.expect_code(0);

    // Power may go after each of these.
    let name = format!("\"{}\"", key.display());
    let is_named = |call: &&String| call.contains(&name) && !call.contains("ENOENT");
    let named = traced.iter().position(|call| is_named(&call)).unwrap();
    let synced = traced.iter().position(|call| call.starts_with("fsync(")).unwrap();
    assert!(synced < named && traced[named].starts_with("link"), "{traced:#?}");
    assert_eq!(fs::metadata(&key).unwrap().mode() & 0o7777, 0o600);

    // A filesystem without hard links; and a disk that fails, after which nothing is left.
    let _ = strace::inject("link,linkat", "error=EPERM")
        .args(["key", "--file"])
        .arg(&linkless)
        .run()
        .expect_code(0);
    let failed = strace::inject("fsync", "error=EIO").args(["key", "--file"]).arg(scratch.at("none")).run();
    assert_ne!(failed.code(), Some(0), "{}", failed.account());
    let mut names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let has = |name: &str| names.iter().any(|found| found.to_string_lossy().contains(name));
    assert!(has("key") && has("linkless") && !has("none") && !has(".new"), "{names:?}");
}

/// Returns the lines of a drawing, as `dsync key` shows it beside the key's fingerprint.
fn drawing(shown: &Outcome) -> Vec<String> {
    let text = shown.stderr_text();
    let lines = text.lines().skip_while(|line| !line.starts_with("+-")).take(11);
    lines.map(str::to_owned).collect()
}

#[test]
fn a_key_is_shown_with_its_drawing_and_printed_as_one_line() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    let of = |file: PathBuf| Run::dsync().args(["key", "--file"]).arg(file).run().expect_code(0);
    let server = of(nas.scratch.at("server.key"));
    let fingerprint = server.stderr_text().lines().next().unwrap_or_default().to_owned();
    assert!(fingerprint.starts_with("dsync: fingerprint "), "{}", server.account());
    assert_eq!(server.stdout_text().lines().count(), 1, "{}", server.account());

    // The field of OpenSSH's, and the same each time.
    let drawn = drawing(&server);
    assert!(drawn.len() == 11 && drawn.iter().all(|line| line.len() == 19), "{}", server.account());
    assert_eq!(drawn, drawing(&of(nas.scratch.at("server.key"))));
    let client = of(nas.config("home/dsync/key"));
    assert_ne!(drawn, drawing(&client));

    // Who is about to agree sees both, side by side.
    let shown = enroll(&nas, &["-n"]).expect_code(0);
    for (left, right) in drawn.iter().zip(drawing(&client)) {
        let line = format!("    {left}  {right}");
        assert!(shown.stdout_text().lines().any(|found| found == line), "{line}: {}", shown.account());
    }
}

/// Returns the day in the lines that were shown.
fn since(shown: &Outcome) -> String {
    let text = shown.stdout_text();
    let day = text.lines().find_map(|line| line.trim().strip_prefix("since = "));
    day.map(str::to_owned).unwrap_or_else(|| panic!("no day: {}", shown.account()))
}

#[test]
fn enrolling_again_changes_nothing_and_more_than_before_is_refused() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    let _ = enroll(&nas, &["--key=laptop", "--yes"]).expect_code(0);
    let (config, known) = (config(&nas), known_hosts(&nas));
    let texts = || (fs::read_to_string(&config).unwrap(), fs::read_to_string(&known).unwrap());
    let before = texts();
    assert!(before.0.contains("role = \"read\"\ndirectory = \"{key}\"\n"), "{}", before.0);

    for options in [&["--yes"][..], &["--key=laptop", "--role=read", "--directory=laptop"], &["-n"]] {
        let again = enroll(&nas, options).expect_code(0);
        assert_eq!(again.stdout_text().matches("has this already").count(), 2, "{}", again.account());
    }
    for (options, code, words) in [
        (&["--role=full", "--yes"][..], 42, "with another role or directory: read, 'laptop' in it"),
        (&["--whole-share", "--yes"], 42, "with another role or directory"),
        (&["--key=other", "--yes"], 1, "known there as 'laptop': leave --key out"),
        (&["--share=none", "--yes"], 1, "no share 'none', only nas"),
    ] {
        let refused = enroll(&nas, options).expect_code(code);
        assert!(refused.stderr_text().contains(words), "{words}: {}", refused.account());
    }

    // A pin that is lost comes back by itself.
    fs::write(&known, "").unwrap();
    let _ = enroll(&nas, &["--yes"]).expect_code(0);
    assert_eq!(texts(), before);
    fs::write(&known, "# without an end").unwrap();
    let _ = enroll(&nas, &["--yes"]).expect_code(0);
    assert_eq!(texts().1, format!("# without an end\n{}", before.1));
    // A server with another key than before gets nothing.
    let other = Nas::public(&nas.scratch.at("other.key"));
    nas.know(&other);
    let refused = enroll(&nas, &["--yes"]).expect_code(40);
    for words in ["another key than before", "remove the line of '127.0.0.1:", "known-hosts"] {
        assert!(refused.stderr_text().contains(words), "{}", refused.account());
    }
    assert_eq!(texts().0, before.0);
}

#[test]
fn a_configuration_that_cannot_be_added_to_stays_and_says_why() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    let _ = Nas::public(&nas.config("home/dsync/key"));
    let path = config(&nas);
    let good = fs::read_to_string(&path).unwrap();
    let refused = |text: &str, mode, code, words: &str| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = enroll(&nas, &["--yes"]).expect_code(code);
        assert!(refused.stderr_text().contains(words), "{words}: {}", refused.account());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(!known_hosts(&nas).exists(), "{}", refused.account());
    };
    refused(&good, 0o666, 1, "can be written by others");
    refused(&format!("{good}\n[serve]"), 0o600, 1, "this version knows no key 'serve'");
    refused(&good.replace("[server]", "keys = {}\n[server]"), 0o600, 1, "by hand");
    refused(&good.replace("server.key", "none.key"), 0o600, 40, "none.key' there makes one");
    refused("[server]\n", 0o600, 40, "has no key of its own");
    refused("[shares]\n", 0o600, 1, "has no [server]");

    fs::remove_file(&path).unwrap();
    let missing = enroll(&nas, &["--yes"]).expect_code(11);
    assert!(missing.stderr_text().contains("docs/server.md"), "{}", missing.account());
    assert!(!path.exists());
}

#[test]
fn only_who_may_write_beside_the_configuration_keeps_a_client_from_it() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    let path = config(&nas);
    let before = fs::read_to_string(&path).unwrap();

    // Another one that adds lines, as it seems, and does not end.
    let beside = nas.scratch.at(".serve.toml.lock");
    let writing = fs::File::create(&beside).unwrap();
    flock(&writing, FlockOperation::LockExclusive).unwrap();
    let refused = enroll(&nas, &["--yes"]).expect_code(41);
    assert!(refused.stderr_text().contains("another 'dsync enroll'"), "{}", refused.account());
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert!(!known_hosts(&nas).exists(), "{}", refused.account());

    // It was killed, and who may read the directory has locked its handle.
    drop(writing);
    let reading = fs::File::open(path.parent().unwrap()).unwrap();
    flock(&reading, FlockOperation::LockExclusive).unwrap();
    let _ = enroll(&nas, &["--yes"]).expect_code(0);
    assert_ne!(fs::read_to_string(&path).unwrap(), before);
    assert!(known_hosts(&nas).exists() && !beside.exists());
}

#[test]
fn a_host_without_dsync_or_with_an_older_one_is_named() {
    needs_dsync!();
    let (nas, sshd) = (Nas::new("append"), Sshd::shared());
    let stub = nas.scratch.at("older");
    fs::write(&stub, "#!/bin/sh\necho \"dsync: error: 'enroll' is for a later version\" >&2\nexit 4\n")
        .unwrap();
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |shell: std::ffi::OsString, program: &str| {
        let run = Run::dsync().args(["enroll", "--yes", "-e"]).arg(shell).arg("--dsync-path").arg(program);
        run.arg("dsync-test").env("XDG_CONFIG_HOME", nas.config("home")).run()
    };
    let missing = run(sshd.shell(), "/no/such/dsync").expect_code(5);
    assert!(missing.stderr_text().contains("install dsync there"), "{}", missing.account());
    let older = run(sshd.shell(), &stub.display().to_string()).expect_code(2);
    assert!(older.stderr_text().contains("install this version of dsync there"), "{}", older.account());
    let lost = run("ssh -o BatchMode=yes -o HostName=127.0.0.1 -p 1".into(), "dsync").expect_code(10);
    assert!(lost.stderr_text().contains("ssh by hand"), "{}", lost.account());
    for words in
        [&["enroll"][..], &["enroll", "a/b"], &["enroll", "host:dir"], &["enroll", "--role=root", "h"]]
    {
        let _ = Run::dsync().args(words).run().expect_code(1);
    }
}

#[test]
fn a_person_at_a_terminal_is_asked_and_only_yes_writes() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    let (path, sshd) = (config(&nas), Sshd::shared());
    let before = fs::read_to_string(&path).unwrap();
    let line = format!(
        "{} enroll -e '{}' --dsync-path {} --config {} --address=127.0.0.1:{} dsync-test",
        program().display(),
        sshd.shell().display(),
        program().display(),
        path.display(),
        nas.port()
    );
    for (answer, writes) in [("no", false), ("y", false), ("yes", true)] {
        let script = format!("echo {answer} | script -qec \"{line}\" /dev/null");
        let run = Run::of("sh").args(["-c", &script]).env("XDG_CONFIG_HOME", nas.config("home")).run();
        assert!(run.stdout_text().contains("Write this at both ends (yes/no)?"), "{}", run.account());
        assert_eq!(fs::read_to_string(&path).unwrap() != before, writes, "{answer}: {}", run.account());
        assert_eq!(known_hosts(&nas).exists(), writes);
    }
}

#[test]
fn a_first_contact_at_a_terminal_is_asked_about_and_only_yes_trusts_it() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let known = known_hosts(&nas);
    let pin = fs::read_to_string(&known).unwrap();
    let pin = pin.trim_end().trim_end_matches(" test");
    let key = Run::dsync().args(["key", "--file"]).arg(nas.scratch.at("server.key")).run().expect_code(0);
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let line =
        format!("{} -a {} {}", program().display(), slash(&nas.scratch.src()).display(), nas.operand("tree"));

    let before = "# No server yet.\n";
    fs::write(&known, before).unwrap();
    for (answer, trusts) in [("no", false), ("y", false), ("yes", true)] {
        let script = format!("echo {answer} | script -qec \"{line}\" /dev/null");
        let run = Run::of("sh").args(["-c", &script]).env("XDG_CONFIG_HOME", nas.config("home")).run();
        let asked = run.stdout_text();
        assert!(asked.contains("Is that what its administrator says (yes/no)?"), "{}", run.account());
        assert!(drawing(&key).iter().all(|line| asked.contains(line)), "{}", run.account());

        let after = if trusts { format!("{before}{pin}\n") } else { before.to_owned() };
        assert_eq!(fs::read_to_string(&known).unwrap(), after, "{answer}: {}", run.account());
        assert_eq!(nas.there("new").exists(), trusts, "{answer}: {}", run.account());
        assert_eq!(run.code(), Some(if trusts { 0 } else { 40 }), "{answer}: {}", run.account());
    }

    // Who is known is not asked about again.
    let _ = nas.push(&[]).expect_quiet_success();
}

#[test]
fn a_server_that_does_not_stand_is_said() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    let server = nas.server.as_ref().unwrap().process.id();
    dsync_tests::run::send(server, Signal::KILL);
    wait_for(|| !dsync_tests::run::is_alive(server));
    let done = enroll(&nas, &["--yes"]).expect_code(0);
    assert!(done.stderr_text().contains("start it"), "{}", done.account());
}

#[test]
fn a_server_that_has_not_read_what_was_added_is_said() {
    needs_dsync!();
    let (nas, _) = nas_of_nobody();
    // It keeps the old configuration, as its certificate is none.
    let text = fs::read_to_string(config(&nas)).unwrap();
    let certificate = nas.scratch.at("certificate");
    fs::write(&certificate, "none").unwrap();
    let line = format!("[server]\ncertificate = '{}'", certificate.display());
    fs::write(config(&nas), text.replacen("[server]", &line, 1)).unwrap();
    let done = enroll(&nas, &["--yes"]).expect_code(0);
    assert!(!done.stderr_text().contains("the server reads it anew"), "{}", done.account());
    assert!(done.stderr_text().contains("see the log"), "{}", done.account());
    assert!(nas.log().contains("the old configuration stays"), "{}", nas.log());
}

/// Enrolls at a host that answers each request with the next of these texts.
fn enroll_at(nas: &Nas, answers: &[String], options: &[&str]) -> Outcome {
    let (shell, told) = (nas.scratch.at("shell"), nas.scratch.at("told"));
    let _ = fs::remove_file(&told);
    for (number, answer) in answers.iter().enumerate() {
        fs::write(nas.scratch.at(&format!("answer{number}")), answer).unwrap();
    }
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ncat '{0}'\"$(cat '{1}' 2>/dev/null | wc -c)\"\nprintf x >>'{1}'\n",
        nas.scratch.at("answer").display(),
        told.display()
    );
    fs::write(&shell, script).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Run::of("setsid").arg("--wait").arg(program()).arg("enroll").arg("-e").arg(&shell);
    run.args(options).arg("nas").env("XDG_CONFIG_HOME", nas.config("home")).run()
}

#[test]
fn a_host_that_lies_is_no_success_and_pins_nothing() {
    needs_dsync!();
    let nas = Nas::new("append");
    let server = Nas::public(&nas.scratch.at("server.key"));
    let known = |config: &str, lines: &str, added: bool| {
        format!(
            r#"{{"Known":{{"config":"{config}","lines":"{lines}","sum":"","share":"nas","key":"web1","purpose":"read",
            "server":"{}","port":8730,"added":{added},"told":false}}}}"#,
            server.trim_end_matches(" test")
        )
    };
    let lies = [
        // A refusal with the code of a success.
        (vec![r#"{"Refused":[0,"no"]}"#.to_owned()], "on 'nas': no"),
        // A name that writes a line of its own between those that the person reads.
        (vec![known("/x\\nfingerprints: server 0000", "", false)], "a name of more than one line"),
        // Lines that are shown and never added.
        (vec![known("/x", "[keys.web1]", false), known("/x", "[keys.web1]", false)], "did not add the lines"),
    ];
    for (answers, words) in lies {
        let lied = enroll_at(&nas, &answers, &["--yes"]).expect_code(12);
        assert!(lied.stderr_text().contains(words), "{}", lied.account());
        assert!(!lied.stdout_text().lines().any(|line| line.ends_with("0000")), "{}", lied.account());
        assert!(!known_hosts(&nas).exists());
    }

    // The honest answer, in the same words.
    let honest = [known("/x", "[keys.web1]", false), known("/x", "[keys.web1]", true)];
    let _ = enroll_at(&nas, &honest, &["--yes"]).expect_code(0);
    assert!(fs::read_to_string(known_hosts(&nas)).unwrap().starts_with("nas:8730 "));
}
