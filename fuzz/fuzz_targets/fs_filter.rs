//! Filter patterns: compiling never panics and stays bounded, matching agrees with a slow twin that
//! reads the pattern byte by byte and backtracks.
#![no_main]

use dsync_fs::FilterSet;
use libfuzzer_sys::fuzz_target;

// The pattern, a NUL byte, the path: neither can contain NUL.
fuzz_target!(|data: &[u8]| {
    let Some(split) = data.iter().position(|&byte| byte == 0) else { return };
    let (pattern, path) = (&data[..split], &data[split + 1..]);
    if path.contains(&0) {
        return;
    }
    let compiled = FilterSet::compile(&[(false, pattern)]);
    let set = match compiled {
        Ok(set) => set,
        Err(error) => {
            assert!(error.column >= 1 && error.column <= pattern.len().max(1) + 1);
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let directory = set.excludes(path, true);
    let file = set.excludes(path, false);
    assert!(directory || !file, "what excludes a file excludes a directory of that name");
    if path.len() <= 12 && pattern.len() <= 12 && is_plain(pattern) && is_clean(path) {
        assert_eq!(file, twin(pattern, path), "{:?} {:?}", pattern.escape_ascii(), path.escape_ascii());
    }
});

/// Returns whether the twin can read a pattern: wildcards, no classes, escapes or special ends.
fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"[\\".contains(byte))
        && !pattern.ends_with(b"/")
        && !pattern.starts_with(b"**")
}

fn is_clean(path: &[u8]) -> bool {
    !path.is_empty() && path.split(|&byte| byte == b'/').all(|name| !name.is_empty())
}

fn twin(pattern: &[u8], path: &[u8]) -> bool {
    if let Some(anchored) = pattern.strip_prefix(b"/") {
        return glob(anchored, path);
    }
    (0..path.len()).filter(|&at| at == 0 || path[at - 1] == b'/').any(|at| glob(pattern, &path[at..]))
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => {
            let rest = &rest[rest.iter().take_while(|&&byte| byte == b'*').count()..];
            (0..=text.len()).any(|at| glob(rest, &text[at..]))
        }
        [b'*', rest @ ..] => {
            let end = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
            (0..=end).any(|at| glob(rest, &text[at..]))
        }
        [b'?', rest @ ..] => matches!(text, [first, tail @ ..] if *first != b'/' && glob(rest, tail)),
        [literal, rest @ ..] => matches!(text, [first, tail @ ..] if first == literal && glob(rest, tail)),
    }
}
