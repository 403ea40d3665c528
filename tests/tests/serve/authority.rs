//! An authority in place of pinned keys: at the client, at the server, at both; what no certificate lets in,
//! and the words that say what does not fit.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use dsync_tests::{Outcome, Run, Scope, assert_same, needs_dsync, run::wait_for};
use rustls::{SignatureScheme, crypto::aws_lc_rs::sign::any_eddsa_type, pki_types::PrivatePkcs8KeyDer};

use crate::nas::Nas;

const SERVER: u8 = 1;
const CLIENT: u8 = 2;
const HOST: &str = "127.0.0.1";

/// A share, an authority, and the lines of all keys.
struct House {
    nas: Nas,
    authority: PathBuf,
    own: String,
    server: String,
    /// The configuration where the client's key is pinned.
    pinned: String,
}

impl House {
    /// Makes a server that stands and that nobody knows yet.
    fn new() -> Self {
        let (mut nas, server) = Nas::offering("full");
        nas.stand();
        let authority = nas.scratch.at("ca.key");
        let _ = Nas::public(&authority);
        let own = Nas::public(&nas.config("home/dsync/key"));
        let pinned = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
        Self { nas, authority, own, server, pinned }
    }

    /// Returns the configuration with authorities in place of the client's pinned key.
    fn certified(&self, authorities: &[&Path]) -> String {
        let lines: Vec<_> = authorities.iter().map(|file| format!("'{}'", Nas::public(file))).collect();
        let list = format!("authority = [{}]", lines.join(", "));
        self.pinned.replacen(&format!("public = '{}'", self.own), &list, 1)
    }

    /// Returns a configuration whose server shows a certificate.
    fn showing(&self, config: &str) -> String {
        let line = format!("[server]\ncertificate = '{}'", self.server_file().display());
        config.replacen("[server]", &line, 1)
    }

    fn server_file(&self) -> PathBuf {
        self.nas.scratch.at("server.cert")
    }

    fn client_file(&self) -> PathBuf {
        self.nas.config("home/dsync/key.cert")
    }

    /// Makes the client know the server by authorities.
    fn know(&self, authorities: &[&Path]) {
        let line = |file: &&Path| format!("@authority {HOST}:{} {}\n", self.nas.port(), Nas::public(file));
        let lines: String = authorities.iter().map(line).collect();
        fs::write(self.nas.config("home/dsync/known-hosts"), lines).unwrap();
    }

    /// Pushes another content; it arrives or nothing does.
    fn push(&self, content: &str) -> Outcome {
        fs::write(self.nas.scratch.src().join("file"), content).unwrap();
        let pushed = self.nas.push(&["-c", "--retries=0"]);
        let arrived = fs::read_to_string(self.nas.there("file")).is_ok_and(|there| there == content);
        assert_eq!(arrived, pushed.code() == Some(0), "{}", pushed.account());
        pushed
    }

    /// Waits for a line of the log that has all of these words, behind what was there before.
    fn logs(&self, before: usize, words: &[&str]) {
        wait_for(|| {
            self.nas.log()[before..].lines().any(|line| words.iter().all(|word| line.contains(word)))
        });
    }
}

/// Lets `dsync key` certify a key until long after this.
pub(crate) fn certify(authority: &Path, end: &str, name: &str, line: &str) -> String {
    let words = ["key", "--certify", line, "--as", end, "--name", name, "--expires=2099-01-01", "--file"];
    let made = Run::dsync().args(words).arg(authority).run().expect_code(0);
    assert!(made.stderr_text().contains(&format!("{end} certificate for '{name}'")), "{}", made.account());
    made.stdout_text()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let digits = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Signs whatever it is told, by docs/wire.md alone.
fn forge(authority: &Path, (kind, name): (u8, &str), line: &str, (from, until): (u64, u64)) -> String {
    let word = |text: &str| bytes_of(text.split_whitespace().nth(1).unwrap());
    let mut bytes = vec![1, kind];
    bytes.extend(word(line));
    bytes.extend(from.to_le_bytes());
    bytes.extend(until.to_le_bytes());
    bytes.push(u8::try_from(name.len()).unwrap());
    bytes.extend(name.as_bytes());
    bytes.extend(word(&Nas::public(authority)));
    let document = word(&fs::read_to_string(authority).unwrap());
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(document)).unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
    bytes.extend(signer.sign(&[&b"dsync certificate 1\0"[..], &bytes].concat()).unwrap());
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("dsync-ed25519-cert {digits}\n")
}

fn fingerprint(file: &Path) -> String {
    let shown = Run::dsync().args(["key", "--file"]).arg(file).run().expect_code(0);
    let text = shown.stderr_text();
    text.lines().next().and_then(|line| line.strip_prefix("dsync: fingerprint ")).unwrap().to_owned()
}

#[test]
fn pushes_and_pulls_pass_where_either_end_or_both_are_certified() {
    needs_dsync!();
    let house = House::new();
    let (nas, authority) = (&house.nas, fingerprint(&house.authority));
    fs::write(house.server_file(), certify(&house.authority, "server", HOST, &house.server)).unwrap();
    for (client_is_certified, server_is_certified) in [(true, false), (false, true), (true, true)] {
        let config =
            if client_is_certified { house.certified(&[&house.authority]) } else { house.pinned.clone() };
        if client_is_certified {
            fs::write(house.client_file(), certify(&house.authority, "client", "web1", &house.own)).unwrap();
        } else {
            let _ = fs::remove_file(house.client_file());
        }
        if server_is_certified {
            nas.reconfigure(&house.showing(&config));
            house.know(&[&house.authority]);
        } else {
            nas.reconfigure(&config);
            nas.know(&house.server);
        }

        let before = nas.log().len();
        let _ = house.push(&format!("{client_is_certified} {server_is_certified}")).expect_quiet_success();
        let _ = fs::remove_dir_all(nas.scratch.at("got"));
        let _ = nas.pull(&[]).expect_quiet_success();
        assert_same(&nas.scratch.src(), &nas.scratch.at("got"), Scope::CONTENT);
        let listed = nas.run().arg(format!("dsync://{HOST}:{}", nas.port())).run().expect_code(0);
        assert_eq!(listed.stdout_text(), "nas full\n", "{}", listed.account());
        house.logs(before, &["key=web1", "share=nas", "code=0"]);
        house.logs(before, &["key=web1", "role=list", "code=0"]);
        let named = format!(" authority={authority} ");
        assert_eq!(nas.log()[before..].contains(&named), client_is_certified, "{}", nas.log());
    }
}

#[test]
fn a_client_whose_certificate_does_not_fit_is_refused_with_words_for_it() {
    needs_dsync!();
    let house = House::new();
    let nas = &house.nas;
    let other = nas.scratch.at("other.key");
    let stranger = Nas::public(&other);
    nas.know(&house.server);
    nas.reconfigure(&house.certified(&[&house.authority]));
    let by_other = fingerprint(&other);
    let times = (now(), now() + 3600);
    let of = |authority: &Path, name, times| forge(authority, (CLIENT, name), &house.own, times);

    // The server's judgement, and what client and log say of it.
    for (shown, told, logged) in [
        (of(&house.authority, "web1", (0, 1_577_836_800)), "expired on 2020-01-01", "has expired"),
        (
            of(&house.authority, "web1", (4_070_908_800, 4_080_000_000)),
            "is not valid before 2099-01-01",
            "is not valid yet",
        ),
        (of(&house.authority, "web9", times), "is for 'web9'", "the certificate is for 'web9'"),
        (of(&other, "web1", times), by_other.as_str(), "of another authority"),
    ] {
        fs::write(house.client_file(), shown).unwrap();
        let before = nas.log().len();
        let refused = house.push(logged).expect_code(40);
        for part in ["does not let this key in", told, house.own.trim_end_matches(" test")] {
            assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
        }
        house.logs(before, &["dsync: refused peer=127.0.0.1:", logged]);
    }

    // A fault that the client sees by itself.
    let mut forged = of(&house.authority, "web1", times);
    forged.truncate(forged.len() - 3);
    for (shown, told) in [
        (forge(&house.authority, (CLIENT, "web1"), &stranger, times), "is of another key"),
        (forge(&house.authority, (SERVER, "web1"), &house.own, times), "a client's is needed here"),
        (forged, "is no certificate like"),
    ] {
        fs::write(house.client_file(), shown).unwrap();
        let refused = house.push(told).expect_code(40);
        for part in ["key.cert", told] {
            assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
        }
    }

    // A client without one is a stranger, and the nearest that fit are let in.
    fs::remove_file(house.client_file()).unwrap();
    let before = nas.log().len();
    let _ = house.push("none").expect_code(40);
    house.logs(before, &["dsync: refused peer=127.0.0.1:", "its key is none that this server lets in"]);
    fs::write(house.client_file(), of(&house.authority, "web1", (now() + 200, now() + 3600))).unwrap();
    let _ = house.push("of a clock that is ahead").expect_quiet_success();
    // A key that the server knows needs no certificate, even with one that has expired.
    fs::write(house.client_file(), of(&house.authority, "web1", (0, 1_577_836_800))).unwrap();
    let both = house.certified(&[&house.authority]);
    let both = both.replacen("authority =", &format!("public = '{}'\nauthority =", house.own), 1);
    nas.reconfigure(&both);
    let _ = house.push("pinned").expect_quiet_success();
    fs::remove_file(house.client_file()).unwrap();
    let _ = house.push("pinned, and without").expect_quiet_success();

    // The key's own end counts whatever its certificate says.
    fs::write(house.client_file(), of(&house.authority, "web1", times)).unwrap();
    let ended = house.certified(&[&house.authority]);
    nas.reconfigure(&ended.replacen("authority =", "expires = 2020-01-01\nauthority =", 1));
    let refused = house.push("too late").expect_code(40);
    assert!(refused.stderr_text().contains("key web1 has expired"), "{}", refused.account());
}

#[test]
fn a_server_whose_certificate_does_not_fit_gets_nothing_and_is_named() {
    needs_dsync!();
    let house = House::new();
    let nas = &house.nas;
    let other = nas.scratch.at("other.key");
    let _ = Nas::public(&other);
    house.know(&[&house.authority]);
    let times = (now(), now() + 3600);
    let of = |authority: &Path, name, times| forge(authority, (SERVER, name), &house.server, times);
    let refused = house.push("none").expect_code(40);
    let words = ["it shows no certificate", "known-hosts", "Somebody may be in its place"];
    for part in words {
        assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
    }

    for (shown, told) in [
        (of(&house.authority, HOST, (0, 1_577_836_800)), "expired on 2020-01-01"),
        (of(&house.authority, HOST, (4_070_908_800, 4_080_000_000)), "is not valid before 2099-01-01"),
        (of(&house.authority, "nas.example.org", times), "is for 'nas.example.org'"),
        (of(&house.authority, "*.0.0.1", times), "is for '*.0.0.1'"),
        (of(&other, HOST, times), "is of another authority"),
    ] {
        fs::write(house.server_file(), shown).unwrap();
        nas.reconfigure(&house.showing(&house.pinned));
        let refused = house.push(told).expect_code(40);
        for part in [told, "known-hosts"] {
            assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
        }
    }

    // Its own line wins, whatever it shows.
    nas.know(&house.server);
    let own = fs::read_to_string(nas.config("home/dsync/known-hosts")).unwrap();
    house.know(&[&house.authority]);
    let authority = fs::read_to_string(nas.config("home/dsync/known-hosts")).unwrap();
    fs::write(nas.config("home/dsync/known-hosts"), format!("{authority}{own}")).unwrap();
    let _ = house.push("pinned").expect_quiet_success();
    let wrong = own.replacen(&house.server, &Nas::public(&other), 1);
    fs::write(house.server_file(), of(&house.authority, HOST, times)).unwrap();
    nas.reconfigure(&house.showing(&house.pinned));
    fs::write(nas.config("home/dsync/known-hosts"), format!("{authority}{wrong}")).unwrap();
    let refused = house.push("another one is pinned").expect_code(40);
    assert!(refused.stderr_text().contains("has another key than before"), "{}", refused.account());
    house.know(&[&house.authority]);
    let _ = house.push("certified").expect_quiet_success();
}

#[test]
fn a_new_authority_takes_over_while_both_are_known() {
    needs_dsync!();
    let house = House::new();
    let (nas, old) = (&house.nas, house.authority.as_path());
    let new = nas.scratch.at("new.key");
    let show = |authority: &Path| {
        fs::write(house.server_file(), certify(authority, "server", HOST, &house.server)).unwrap();
        fs::write(house.client_file(), certify(authority, "client", "web1", &house.own)).unwrap();
    };
    let _ = Nas::public(&new);
    let both = [old, &new];
    house.know(&both);
    for authority in both {
        show(authority);
        nas.reconfigure(&house.showing(&house.certified(&both)));
        let before = nas.log().len();
        let _ = house.push(&authority.display().to_string()).expect_quiet_success();
        house.logs(before, &[&format!("authority={}", fingerprint(authority)), "code=0"]);
    }

    // Without the old one at either end.
    nas.reconfigure(&house.showing(&house.certified(&[&new])));
    house.know(&[&new]);
    let _ = house.push("of the new one").expect_quiet_success();
    fs::write(house.client_file(), certify(old, "client", "web1", &house.own)).unwrap();
    let refused = house.push("of the old one").expect_code(40);
    assert!(refused.stderr_text().contains(&fingerprint(old)), "{}", refused.account());
}

#[test]
fn check_says_whom_an_authority_lets_in_and_judges_the_servers_certificate() {
    needs_dsync!();
    let house = House::new();
    let nas = &house.nas;
    let check =
        || Run::dsync().args(["serve", "--check", "--config"]).arg(nas.scratch.at("serve.toml")).run();
    nas.configure(&house.showing(&house.certified(&[&house.authority])));
    let missing = check().expect_code(40);
    assert!(missing.stderr_text().contains("there is no certificate"), "{}", missing.account());

    let other = Nas::public(&nas.scratch.at("other.key"));
    let long = (now(), now() + 1000 * 24 * 3600);
    for (shown, told) in [
        (forge(&house.authority, (SERVER, HOST), &other, long), "is of another key"),
        (forge(&house.authority, (CLIENT, "nas"), &house.server, long), "a server's is needed here"),
        ("dsync-ed25519-cert 00\n".to_owned(), "is no certificate like"),
    ] {
        fs::write(house.server_file(), shown).unwrap();
        let refused = check().expect_code(40);
        for part in ["server.cert", told] {
            assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
        }
    }

    let day = 24 * 3600;
    for (until, told) in [
        (1_577_836_800, Some("has expired on 2020-01-01")),
        (now() + 10 * day + day / 2, Some("expires within 11 days")),
        (now() + 40 * day, None),
    ] {
        fs::write(house.server_file(), forge(&house.authority, (SERVER, HOST), &house.server, (0, until)))
            .unwrap();
        let checked = check().expect_code(0);
        let words = format!("server certificate for '{HOST}'");
        assert!(checked.stderr_text().contains(&words), "{}", checked.account());
        let warned = checked.stderr_text().contains("'dsync key --certify'");
        assert_eq!(warned, told.is_some(), "{}", checked.account());
        assert!(told.is_none_or(|told| checked.stderr_text().contains(told)), "{}", checked.account());
        let named = fingerprint(&house.authority);
        let line = format!("key 'web1': any key that the authority {named} certifies as 'web1'");
        assert!(checked.stdout_text().lines().any(|found| found == line), "{}", checked.account());
        assert!(!checked.stderr_text().contains("it is for --stdio only"), "{}", checked.account());
    }
}

#[test]
fn nothing_is_certified_that_nobody_could_use() {
    needs_dsync!();
    let house = House::new();
    let certify = |line: &str, end: &str, name: &str, day: &str| {
        let words = ["key", "--certify", line, "--as", end, "--name", name, "--expires", day, "--file"];
        Run::dsync().args(words).arg(&house.authority).run()
    };
    let own = house.own.as_str();
    for (refused, told) in [
        (certify("ssh-ed25519 AAAA", "client", "web1", "2099-01-01"), "is no key like"),
        (certify(own, "peer", "web1", "2099-01-01"), "peer"),
        (certify(own, "client", "../web1", "2099-01-01"), "is no name of a client"),
        (certify(own, "server", "NAS", "2099-01-01"), "is no name of a server"),
        (certify(own, "server", "*", "2099-01-01"), "is no name of a server"),
        (certify(own, "client", "web1", "2020-01-01"), "2020-01-01 is over"),
        (certify(own, "client", "web1", "tomorrow"), "is no day like"),
    ] {
        let refused = refused.expect_code(1);
        assert!(refused.stderr_text().contains(told), "{told}: {}", refused.account());
        assert!(refused.stdout.is_empty(), "{}", refused.account());
    }

    let missing = house.nas.scratch.at("no.key");
    let words = ["key", "--certify", own, "--as=client", "--name=web1", "--expires=2099-01-01", "--file"];
    let refused = Run::dsync().args(words).arg(&missing).run().expect_code(1);
    assert!(
        refused.stderr_text().contains("cannot read the key") && !missing.exists(),
        "{}",
        refused.account()
    );
}
