//! The changes that `-i` lists, compared between the programs: each name's, whatever the order.

use std::collections::BTreeMap;

/// Number of letters before the name in a line of `-i`, and a space.
const CODE_BYTES: usize = 12;

/// The changes of names; a name is there twice if it is removed and made anew.
type Changes = BTreeMap<(bool, Vec<u8>), Vec<String>>;

/// Returns what one program lists otherwise than the other.
pub(super) fn differences(rsync: &[u8], dsync: &[u8]) -> Vec<String> {
    let (theirs, ours) = (changes(rsync), changes(dsync));
    let mut lines = Vec::new();
    for (key, codes) in &theirs {
        let name = shown(&key.1, codes);
        match ours.get(key) {
            None => lines.push(format!("only rsync lists {}: '{name}'", codes.join(" "))),
            Some(others) if others != codes => {
                let (others, codes) = (others.join(" "), codes.join(" "));
                lines.push(format!("'{name}': listed as {others}, should be {codes}"));
            }
            Some(_) => {}
        }
    }
    let more = ours.iter().filter(|(key, _)| !theirs.contains_key(key));
    lines.extend(
        more.map(|(key, codes)| format!("only dsync lists {}: '{}'", codes.join(" "), shown(&key.1, codes))),
    );
    lines
}

/// Returns a name for a finding, a directory's without the slash and a link's without its text.
fn shown(name: &[u8], codes: &[String]) -> String {
    let is_link = codes.iter().any(|code| code.as_bytes().get(1) == Some(&b'L'));
    let name = if is_link { before(name, b" -> ") } else { name };
    name.strip_suffix(b"/").unwrap_or(name).escape_ascii().to_string()
}

/// Returns whether a line says that nothing changed.
pub(super) fn is_unchanged(line: &[u8]) -> bool {
    let code = line.split_at_checked(CODE_BYTES).map(|(code, _)| code);
    code.is_some_and(|code| code[0] == b'.' && code[2..].iter().all(|&byte| byte == b' '))
}

fn changes(text: &[u8]) -> Changes {
    let mut changes = Changes::new();
    for line in text.split(|&byte| byte == b'\n') {
        let Some((code, rest)) = line.split_at_checked(CODE_BYTES).filter(|(code, _)| is_code(code)) else {
            continue;
        };
        if is_unchanged(line) {
            continue;
        }
        // Which of a file's names others are linked to is the program's choice.
        let rest = if code[0] == b'h' { before(rest, b" => ") } else { rest };
        // From where a file of another name came, with `--detect-renamed`.
        let rest = if code[1] == b'f' { before(rest, b" <- ") } else { rest };
        let code = String::from_utf8_lossy(code).trim_end().to_owned();
        changes.entry((code.starts_with('*'), unescaped(rest))).or_default().push(code);
    }
    changes.values_mut().for_each(|codes| codes.sort_unstable());
    changes
}

/// Returns whether a line begins as one of `-i` does.
fn is_code(code: &[u8]) -> bool {
    code == b"*deleting   "
        || b"<>ch.".contains(&code[0]) && b"fdLDS".contains(&code[1]) && code[CODE_BYTES - 1] == b' '
}

/// Returns what is before the words, or everything.
fn before<'a>(text: &'a [u8], words: &[u8]) -> &'a [u8] {
    let at = text.windows(words.len()).position(|part| part == words);
    at.map_or(text, |at| &text[..at])
}

/// Returns a name as it is: `\#ooo` stands for a byte that a program does not print.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = rest.strip_prefix(b"\\#").and_then(|digits| digits.get(..3));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &rest[5..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_compared_by_name_whatever_their_order_and_escapes() {
        let rsync = b".d..t...... ./\n>f+++++++++ \\#303\\#244\nhf+++++++++ b => a\n*deleting   c\n";
        let dsync = b"*deleting   c\n>f+++++++++ \xc3\xa4 <- e/f\nhf+++++++++ b => d\n.d..t...... ./\n";
        assert_eq!(differences(rsync, dsync), [""; 0]);
        let dsync = b"*deleting   c\n>f.st...... \xc3\xa4\n>f+++++++++ c\n.f          b\n.d..t...... ./\n";
        let wanted = [
            "only rsync lists hf+++++++++: 'b'",
            r"'\xc3\xa4': listed as >f.st......, should be >f+++++++++",
            "only dsync lists >f+++++++++: 'c'",
        ];
        assert_eq!(differences(rsync, dsync), wanted);
    }
}
