//! `--iconv`: names in another character set, as the real rsync converts them, here, to a host and
//! from one; and where dsync differs, because a name means characters at both ends.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, Run, Scope, Scratch, Sshd, Via, differences, needs_dsync, scratch::slash, tree::set_mtime,
};

/// Plants a tree of names in some character set. A name that ends in a slash is a directory; a text
/// after ` -> ` is that of a link, after ` = ` the first name of the file.
fn plant(at: &Path, names: &[&[u8]]) {
    fs::create_dir_all(at).unwrap();
    let path = |name: &[u8]| at.join(OsStr::from_bytes(name));
    for (name, seed) in names.iter().zip(1_700_000_000..) {
        let parts = |sign: &[u8]| {
            let cut = name.windows(sign.len()).position(|part| part == sign)?;
            Some((path(&name[..cut]), name[cut + sign.len()..].to_vec()))
        };
        if let Some(dir) = name.strip_suffix(b"/") {
            fs::create_dir_all(path(dir)).unwrap();
        } else if let Some((link, text)) = parts(b" -> ") {
            symlink(OsStr::from_bytes(&text), &link).unwrap();
            set_mtime(&link, (1_600_000_000, 0));
        } else if let Some((further, first)) = parts(b" = ") {
            fs::hard_link(path(&first), further).unwrap();
        } else {
            fs::write(path(name), seed.to_string()).unwrap();
            let file = fs::File::options().write(true).open(path(name)).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seed);
            file.set_modified(time).unwrap();
        }
    }
}

/// Returns the paths of a tree, in the order of their bytes.
fn names(at: &Path) -> Vec<Vec<u8>> {
    let paths = dsync_tests::compare::survey(at).into_keys();
    paths.filter(|path| !path.is_empty()).collect()
}

/// The ways of a run from names in `from` to names in `to`.
const WAYS: [&str; 3] = ["local", "push", "pull"];

struct Case<'a> {
    sets: (&'a str, &'a str),
    options: &'a [&'a str],
    source: &'a [&'a [u8]],
    before: &'a [&'a [u8]],
}

impl Case<'_> {
    /// Runs dsync in one way; returns the outcome and the destination.
    fn run(&self, scratch: &Scratch, way: &str) -> (Outcome, PathBuf) {
        let ours = scratch.at(way);
        plant(&ours, self.before);
        let (from, to) = self.sets;
        let sshd = Sshd::shared();
        let source = slash(&scratch.src());
        let run = match way {
            "local" => Run::dsync().arg(format!("--iconv={from},{to}")).arg(source).arg(slash(&ours)),
            "push" => {
                let run = sshd.run(Via::Tls).arg(format!("--iconv={from},{to}"));
                run.arg(source).arg(sshd.operand(slash(&ours)))
            }
            // The first set is always that of the end where the command is typed.
            _ => {
                let run = sshd.run(Via::Ssh).arg(format!("--iconv={to},{from}"));
                run.arg(sshd.operand(source)).arg(slash(&ours))
            }
        };
        (run.args(self.options).arg("--durability=none").run(), ours)
    }

    /// Asserts that dsync makes the tree that rsync makes, in every way, with the same exit code.
    fn as_rsync(&self) {
        let scratch = Scratch::new();
        plant(&scratch.src(), self.source);
        let theirs = scratch.at("theirs");
        plant(&theirs, self.before);
        let (from, to) = self.sets;
        let oracle = Run::of("rsync").args(self.options).arg(format!("--iconv={from},{to}"));
        let oracle = oracle.arg(slash(&scratch.src())).arg(slash(&theirs)).run();

        for way in WAYS {
            let (outcome, ours) = self.run(&scratch, way);
            let account = format!("{way} {:?}\n{}\n{}", self.sets, outcome.account(), oracle.account());
            assert_eq!(outcome.code(), oracle.code(), "{account}");
            let scope = Scope { dir_times: false, root: false, ..Scope::full() };
            let found = differences(&theirs, &ours, Scope { links: true, ..scope });
            assert!(found.is_empty(), "{found:?}\n{account}");
        }
    }
}

const UTF8: &[&[u8]] = &[
    b"plain",
    "hé/".as_bytes(),
    "hé/ü".as_bytes(),
    "hé/sub/".as_bytes(),
    "hé/sub/æøå".as_bytes(),
    "lnk -> hé/ü".as_bytes(),
    "zweiter ß = hé/ü".as_bytes(),
];

#[test]
fn names_and_links_are_converted_as_rsync_does() {
    needs_dsync!();
    let latin1: &[&[u8]] = &[b"plain", b"h\xe9/", b"h\xe9/\xfc", b"\xff", b"l\xe9 -> h\xe9/\xfc"];
    let before_utf8: &[&[u8]] = &["hé/".as_bytes(), "hé/alt".as_bytes(), b"\xe9", "ö".as_bytes()];
    let before_latin1: &[&[u8]] = &[b"h\xe9/", b"h\xe9/alt", "é".as_bytes(), b"\xf6"];
    let both = [("utf8", "latin1", UTF8, before_latin1), ("latin1", "utf8", latin1, before_utf8)];
    for (from, to, source, before) in both {
        for options in [&["-a"][..], &["-aH", "--delete"], &["-rlt", "--delete-before", "--exclude=alt"]] {
            Case { sets: (from, to), options, source, before }.as_rsync();
        }
    }
}

/// Every letter of every set, to UTF-8 and back.
#[test]
fn every_set_is_the_one_that_rsync_has() {
    needs_dsync!();
    let sets = "ISO-8859-1 ISO-8859-2 ISO-8859-3 ISO-8859-4 ISO-8859-5 ISO-8859-6 ISO-8859-7 ISO-8859-8 \
        ISO-8859-10 ISO-8859-13 ISO-8859-14 ISO-8859-15 ISO-8859-16 KOI8-R CP866 CP874 CP1250 CP1251 CP1252 \
        CP1253 CP1254 CP1256 CP1257 US-ASCII";
    let letters: Vec<[u8; 2]> = (0x80..=0xff).map(|byte| [b'n', byte]).collect();
    let letters: Vec<&[u8]> = letters.iter().map(<[u8; 2]>::as_slice).collect();
    for set in sets.split_whitespace() {
        let scratch = Scratch::new();
        plant(&scratch.src(), &letters);
        let made = |run: Run, name: &str| {
            let copy = scratch.at(name);
            let code = run
                .args(["-a", &format!("--iconv={set},utf8")])
                .arg(slash(&scratch.src()))
                .arg(slash(&copy))
                .run()
                .code();
            (code, names(&copy))
        };
        let theirs = made(Run::of("rsync"), "theirs");
        assert_eq!(made(Run::dsync(), "ours"), theirs, "{set}");

        let back = scratch.at("back");
        let run = Run::dsync().args(["-a", &format!("--iconv=utf8,{set}")]);
        let _ = run.arg(slash(&scratch.at("ours"))).arg(slash(&back)).run().expect_code(0);
        assert_eq!(names(&back).len(), theirs.1.len(), "{set}");
        assert!(names(&back).iter().all(|name| letters.contains(&name.as_slice())), "{set}");
    }
}

#[test]
fn what_cannot_be_spelled_is_left_out_and_nothing_is_deleted() {
    needs_dsync!();
    let options = &["-a", "--delete"];
    // A name that is none of the source's set, and one that the destination's set lacks.
    for (sets, source) in [
        (("utf8", "latin1"), &[b"plain", &b"no\xe9"[..], "hé".as_bytes(), "zé -> no€".as_bytes()][..]),
        (("utf8", "latin1"), &[b"plain", "eur€".as_bytes(), "hé".as_bytes()]),
        (("latin1", "ascii"), &[b"plain", b"h\xe9"]),
    ] {
        Case { sets, options, source, before: &[b"old"] }.as_rsync();
    }

    // With a directory rsync ends its run; here the rest is copied.
    let source: &[&[u8]] = &[b"a/", "d€/".as_bytes(), "d€/in".as_bytes(), "hé".as_bytes(), b"z"];
    let case = Case { sets: ("utf8", "latin1"), options, source, before: &[b"old"] };
    let scratch = Scratch::new();
    plant(&scratch.src(), source);
    for way in WAYS {
        let (outcome, ours) = case.run(&scratch, way);
        let outcome = outcome.expect_code(23);
        assert!(outcome.stderr_text().contains("d\u{20ac}"), "{way}: {}", outcome.account());
        assert_eq!(names(&ours), [&b"a"[..], b"h\xe9", b"old", b"z"], "{way}");
    }
}

#[test]
fn a_name_of_the_destination_without_a_spelling_can_be_removed() {
    needs_dsync!();
    let before: &[&[u8]] = &[b"bad\xe9", b"bad\xe9 too/", b"bad\xe9 too/in", "é".as_bytes()];
    Case { sets: ("latin1", "utf8"), options: &["-a", "--delete"], source: &[b"a", b"\xe9"], before }
        .as_rsync();
}

/// With rsync a pattern means bytes at each end: it deletes the destination's `hé` here.
#[test]
fn a_rule_means_characters_at_both_ends() {
    needs_dsync!();
    let before: &[&[u8]] = &[b"h\xe9", b"old", b"l\xe9s/", b"l\xe9s/x", b"l\xe9s/\xfc"];
    let source: &[&[u8]] =
        &["hé".as_bytes(), "ö".as_bytes(), "lés/".as_bytes(), "lés/ü".as_bytes(), "€".as_bytes()];
    for options in [
        &["-a", "--delete", "--exclude=hé", "--exclude=/l?s/ü", "--exclude=€"][..],
        &["-a", "--delete", "--filter=- h[é]", "--filter=- lés/ü", "--filter=- *€*"],
    ] {
        let scratch = Scratch::new();
        plant(&scratch.src(), source);
        for way in ["local", "push"] {
            let (outcome, ours) =
                Case { sets: ("utf8", "latin1"), options, source, before }.run(&scratch, way);
            let _ = outcome.expect_code(0);
            assert_eq!(
                names(&ours),
                [&b"h\xe9"[..], b"l\xe9s", b"l\xe9s/\xfc", b"\xf6"],
                "{way} {options:?}"
            );
        }
    }

    // The same from the other end, whose command line is in latin1, and a file of rules in each set.
    let scratch = Scratch::new();
    plant(&scratch.src(), source);
    let ours = scratch.at("ours");
    plant(&ours, before);
    fs::write(scratch.src().join(".rules"), "- hé\n- €\n").unwrap();
    fs::write(ours.join(".rules"), b"P h\xe9\n").unwrap();
    let sshd = Sshd::shared();
    let run = sshd.run(Via::Tls).args(["-a", "--delete", "--filter=:e .rules", "--iconv=latin1,utf8"]);
    let run = run.arg(OsStr::from_bytes(b"--exclude=l\xe9s/\xfc")).arg(sshd.operand(slash(&scratch.src())));
    let _ = run.arg(slash(&ours)).run().expect_code(0);
    assert_eq!(names(&ours), [&b".rules"[..], b"h\xe9", b"l\xe9s", b"l\xe9s/\xfc", b"\xf6"]);
}

/// Operands, lists and option paths are in the set of the end where they are typed.
#[test]
fn paths_are_typed_in_the_set_of_this_end() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), UTF8);
    let sshd = Sshd::shared();
    let list = scratch.at("list");
    fs::write(&list, "hé/ü\nnicht da\n").unwrap();
    let from_list: OsString = format!("--files-from={}", list.display()).into();
    let expected: [&[u8]; 2] = [b"h\xe9", b"h\xe9/\xfc"];
    let run =
        |run: Run, words: &[&OsStr]| run.arg("--iconv=utf8,latin1").args(words).cwd(scratch.path()).run();

    for remote in [false, true] {
        let there =
            |name: &str| if remote { sshd.operand(scratch.at(name)) } else { scratch.at(name).into() };
        let start = || if remote { sshd.run(Via::Tls) } else { Run::dsync() };
        let at = |name: &str| scratch.at(&format!("{name}-{remote}"));
        let to = |name: &str| there(&format!("{name}-{remote}"));
        let source = slash(&scratch.src());

        let _ = run(start(), &["-a".as_ref(), &from_list, &source, &to("listed")]).expect_code(23);
        assert_eq!(names(&at("listed")), expected);
        let _ = run(start(), &["-aR".as_ref(), "src/./hé/ü".as_ref(), &to("relative")]).expect_code(0);
        assert_eq!(names(&at("relative")), expected);
        let _ = run(start(), &["-a".as_ref(), "src/hé/ü".as_ref(), &to("single")]).expect_code(0);
        assert!(at("single").is_file());
        fs::create_dir(at("into")).unwrap();
        let _ = run(start(), &["-a".as_ref(), "src/hé/ü".as_ref(), "src/hé/sub".as_ref(), &to("into")])
            .expect_code(0);
        assert_eq!(names(&at("into")), [&b"sub"[..], b"sub/\xe6\xf8\xe5", b"\xfc"]);
    }

    // The remote end's own paths.
    let latin1 = |text: &[u8]| scratch.path().join(OsStr::from_bytes(text));
    let _ = run(
        sshd.run(Via::Tls),
        &["-a".as_ref(), "src/plain".as_ref(), &sshd.operand(slash(&scratch.at("zü")))],
    )
    .expect_code(0);
    assert!(latin1(b"z\xfc/plain").is_file());
    let _ = run(sshd.run(Via::Tls), &["-a".as_ref(), &sshd.operand(scratch.at("zü")), "back".as_ref()])
        .expect_code(0);
    assert!(scratch.at("back/zü/plain").is_file());
    let outcome =
        run(sshd.run(Via::Tls), &["-a".as_ref(), "src/plain".as_ref(), &sshd.operand(scratch.at("€"))]);
    assert!(outcome.expect_code(1).stderr_text().contains("cannot spell"));
    assert!(!scratch.at("€").exists());
}

#[test]
fn other_trees_of_the_destination_are_in_its_set() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), UTF8);
    for way in WAYS {
        let sets = ("utf8", "latin1");
        let full = Case { sets, options: &["-aH"], source: UTF8, before: &[] };
        let (_, first) = full.run(&scratch, way);
        let link_dest = format!("--link-dest={}", first.display());
        let options = ["-aH", &link_dest];
        let next = scratch.at("next");
        fs::rename(&first, &next).unwrap();
        let link_dest = format!("--link-dest={}", next.display());
        let (outcome, second) = Case { options: &[options[0], &link_dest], ..full }.run(&scratch, way);
        let _ = outcome.expect_code(0);
        let file = |at: &Path| {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(at.join(OsStr::from_bytes(b"h\xe9/\xfc"))).unwrap().ino()
        };
        assert_eq!(file(&next), file(&second), "{way}");

        // A backup of what is replaced, and one of what is removed.
        fs::write(second.join(OsStr::from_bytes(b"h\xe9/\xfc")), b"changed").unwrap();
        fs::write(second.join(OsStr::from_bytes(b"g\xf6ne")), b"").unwrap();
        let options = &["-aH", "--delete", "-b", "--backup-dir=kept", "--exclude=/kept"];
        let (outcome, _) =
            Case { options, ..Case { sets, options, source: UTF8, before: &[] } }.run(&scratch, way);
        let _ = outcome.expect_code(0);
        let kept = names(&second.join("kept"));
        assert_eq!(kept, [&b"g\xf6ne"[..], b"h\xe9", b"h\xe9/\xfc", b"zweiter \xdf"], "{way}");
        fs::remove_dir_all(&next).unwrap();
    }
}

#[test]
fn names_are_shown_in_the_set_of_this_end() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &["hé".as_bytes()]);
    let case =
        Case { sets: ("utf8", "latin1"), options: &["-ain", "--delete"], source: &[], before: &[b"\xfc"] };
    for way in ["local", "push"] {
        let (outcome, ours) = case.run(&scratch, way);
        let text = outcome.expect_code(0).stdout_text();
        assert!(text.contains("hé") && text.contains("*deleting   ü"), "{way}: {text}");
        assert_eq!(names(&ours), [b"\xfc"]);
    }
}

#[test]
fn unknown_sets_are_refused_with_the_code_of_rsync() {
    needs_dsync!();
    let scratch = Scratch::new();
    for program in [Run::dsync(), Run::of("rsync")] {
        let run = program.args(["-a", "--iconv=klingon,utf8"]).arg(slash(&scratch.src())).arg(scratch.dst());
        let outcome = run.run().expect_code(4);
        assert!(outcome.stderr_text().contains("klingon"), "{}", outcome.account());
        assert!(!scratch.dst().exists());
    }
}
