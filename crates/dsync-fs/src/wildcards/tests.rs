use std::{fs, os::unix::fs::symlink};

use super::*;

const MOST: MostNames = MostNames { count: 1000, bytes: 100_000, looks: 100_000 };

fn alternatives_of(operand: &str) -> Vec<String> {
    let found = alternatives(operand.as_bytes(), MOST).unwrap();
    found.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
}

#[test]
fn braces_stand_for_each_alternative_in_order() {
    assert_eq!(alternatives_of("a{b,c}d"), ["abd", "acd"]);
    assert_eq!(alternatives_of("{a,b}/{1,2}"), ["a/1", "a/2", "b/1", "b/2"]);
    assert_eq!(alternatives_of("{a,{b,c}d}"), ["a", "bd", "cd"]);
    assert_eq!(alternatives_of("{a,}x"), ["ax", "x"]);
    for whole in ["{a}", "{a", "a,b}", "{}", r"\{a,b}", r"{a\,b}"] {
        assert_eq!(alternatives_of(whole), [whole]);
        assert!(!has_wildcards(whole.as_bytes()), "{whole}");
    }
    // 2^40 of them end at once.
    assert_eq!(alternatives("{a,b}".repeat(40).as_bytes(), MOST), Err(TooManyNames));
}

#[test]
fn name_pattern_matches_as_a_shell_does() {
    for (pattern, yes, no) in [
        ("*.pdf", &["a.pdf", "x y.pdf"][..], &[".pdf", ".a.pdf", "a.pdf2"][..]),
        ("*", &["a", "a*"], &[".a", ".", ".."]),
        (".*", &[".a"], &["a"]),
        ("a?", &["ab", "a?"], &["a", "abc"]),
        ("a[12]", &["a1"], &["a3", "a[12]"]),
        ("[!a]*", &["b"], &["a", ".b"]),
        (r"a\*", &["a*"], &["ab", r"a\*"]),
        (r"\.a", &[".a"], &["a"]),
        ("[a", &["[a"], &["a"]),
        ("a**b", &["ab", "axxb"], &["a"]),
    ] {
        let compiled = NamePattern::of(pattern.as_bytes());
        for name in yes {
            assert!(compiled.matches(name.as_bytes()), "{pattern} {name}");
        }
        for name in no {
            assert!(!compiled.matches(name.as_bytes()), "{pattern} {name}");
        }
    }
    assert!(NamePattern::of(b"a*").matches(b"a\xff\xfe"));
}

#[test]
fn path_pattern_knows_what_is_above_and_below_it() {
    let pattern = PathPattern::of(b"a*/x", false);
    for (path, place) in [
        ("", PatternPlace::Above),
        ("a1", PatternPlace::Above),
        ("b", PatternPlace::Elsewhere),
        ("a1/x", PatternPlace::Named),
        ("a1/y", PatternPlace::Elsewhere),
        ("a1/x/z", PatternPlace::Below),
    ] {
        assert_eq!(pattern.place(path.as_bytes()), place, "{path}");
    }
}

/// Makes a tree and expands operands below it.
fn expanded(operands: &[&str]) -> Vec<Vec<String>> {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    for dir in ["a1", "a2", "b", "{x,y}"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for file in ["a1/f", "a2/g", "b/f", "star", "st*r", "q[1]", "q1", ".hid", "back\\slash"] {
        fs::write(root.join(file), "").unwrap();
    }
    symlink("a2", root.join("link")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let open = |path: &Path| Dir::open_operand(&root.join(path));
    let expanded = operands.iter().map(|operand| {
        let found = expand(Path::new(operand), &mut MOST.clone(), &open).unwrap();
        found.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
    });
    expanded.collect()
}

#[test]
fn operands_are_expanded_as_by_a_shell() {
    let cases: &[(&str, &[&str])] = &[
        ("a*", &["a1", "a2"]),
        ("a*/", &["a1/", "a2/"]),
        ("a*/.", &["a1/.", "a2/."]),
        // Only where it is there.
        ("*/f", &["a1/f", "b/f"]),
        ("*/g", &["a2/g", "link/g"]),
        ("./a*/./[fg]", &["./a1/./f", "./a2/./g"]),
        ("st*r", &["st*r", "star"]),
        (r"st\*r", &["st*r"]),
        (r"q\[1\]", &["q[1]"]),
        ("q[1]", &["q1"]),
        // Nothing matches: as it is written.
        ("none*", &["none*"]),
        ("st*r/x", &["st*r/x"]),
        ("back\\slash", &["back\\slash"]),
        ("{a1,none,b}/*", &["a1/f", "none/*", "b/f"]),
        // There is a directory of that name.
        ("{x,y}", &["{x,y}"]),
        ("*id", &["*id"]),
        (".h*", &[".hid"]),
    ];
    let operands: Vec<_> = cases.iter().map(|(operand, _)| *operand).collect();
    for ((operand, expected), found) in cases.iter().zip(expanded(&operands)) {
        assert_eq!(&found, expected, "{operand}");
    }
}

#[test]
fn too_many_names_are_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    for number in 0..20 {
        fs::write(scratch.path().join(number.to_string()), "").unwrap();
    }
    let open = |path: &Path| Dir::open_operand(&scratch.path().join(path));
    let mut most = MostNames { count: 10, bytes: 1000, looks: 1000 };
    assert_eq!(expand(Path::new("*"), &mut most, &open), Err(TooManyNames));
}

/// Each of 20 names leads back to the directory that has 20.
#[test]
fn a_directory_is_not_read_as_often_as_it_has_entries() {
    let scratch = tempfile::tempdir().unwrap();
    for number in 0..20 {
        fs::create_dir(scratch.path().join(number.to_string())).unwrap();
    }
    let open = |path: &Path| Dir::open_operand(&scratch.path().join(path));
    let names = |operand: &str, looks| {
        let mut most = MostNames { looks, ..MOST };
        expand(Path::new(operand), &mut most, &open).map(|paths| paths.len())
    };
    assert_eq!(names("*/../1?", 19 * 20), Err(TooManyNames));
    assert_eq!(names("*/../1?", 22 * 22), Ok(200));
    // As many as there are, and what a directory itself costs.
    assert_eq!(names("*", 20), Err(TooManyNames));
    assert_eq!(names("*", 22), Ok(20));
}
