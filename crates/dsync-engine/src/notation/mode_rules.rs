//! Changes of permissions, in the notation of rsync's `--chmod`.
//!
//! A comma separates rules; `D` and `F` in front limit one to directories or to everything else. A
//! rule is octal (`D755`) or symbolic (`ug+rwX`, `o-w`, `u=rw,+t`): who (`u`, `g`, `o`, `a`; nobody
//! named means everybody, less the umask), `+`, `-` or `=`, and what (`r`, `w`, `x`, `X`, `s`,
//! `t`), or whose permissions (`g=u`).

use dsync_wire::options::{CopiedBits, ModeRule};

use super::{Notation, NotationError};

/// Parses changes of permissions, for [`SyncOptions::mode_rules`](crate::SyncOptions::mode_rules).
/// `umask` limits rules that name nobody: [`file_creation_mask`](crate::file_creation_mask) is the process's.
///
/// ```
/// use dsync_engine::{ModeRule, notation::mode_rules};
///
/// let rules = mode_rules("Dg+s,Fgo-w", 0o022)?;
/// assert_eq!(ModeRule::apply(&rules, 0o666, false), 0o644);
/// assert!(mode_rules("g+q", 0o022).is_err());
/// # Ok::<(), dsync_engine::notation::NotationError>(())
/// ```
///
/// # Errors
/// [`NotationError`] names the first word that is no rule.
pub fn mode_rules(text: &str, umask: u16) -> Result<Vec<ModeRule>, NotationError> {
    let rules = text
        .split(',')
        .map(|word| rule(word, umask).ok_or_else(|| NotationError::new(Notation::ModeRules, word, text)));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    Ok(rules.into_iter().flatten().collect())
}

fn rule(word: &str, mask: u16) -> Option<Vec<ModeRule>> {
    let (files, directories, rest) = match word.as_bytes().first()? {
        b'D' => (false, true, &word[1..]),
        b'F' => (true, false, &word[1..]),
        _ => (true, true, word),
    };
    if let Some(rule) = copying(rest, mask) {
        return Some(vec![rule.files(files).directories(directories)]);
    }
    let (keep, set, if_executable) = if rest.starts_with(|letter: char| letter.is_ascii_digit()) {
        (0, u16::from_str_radix(rest, 8).ok().filter(|&mode| mode <= ALL)?, 0)
    } else {
        symbolic(rest, mask)?
    };
    let rule = ModeRule::new(keep, set).files(files).directories(directories);
    let mut rules = vec![rule];
    if if_executable != 0 {
        rules.push(rule.keep(ALL).set(if_executable).if_executable(true));
    }
    Some(rules)
}

/// Returns a rule by which classes get or lose the permissions of one (`go=u`); `None` for another one.
fn copying(word: &str, mask: u16) -> Option<ModeRule> {
    let (who, rest) = word.split_at(word.find(['+', '-', '='])?);
    let from = match rest.get(1..)? {
        "u" => 6,
        "g" => 3,
        "o" => 0,
        _ => return None,
    };
    // With `=`, each class loses the special bit that it has.
    let classes = |letter| match letter {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(ALL),
        _ => None,
    };
    let whose = who.chars().map(classes).try_fold(0, |whose, class| Some(whose | class?))?;
    let (whose, to) = if who.is_empty() { (ALL, 0o777 & !mask) } else { (whose, whose & 0o777) };

    let copied = CopiedBits::new(from, to);
    Some(match rest.as_bytes().first()? {
        b'+' => ModeRule::new(ALL, 0).copied(Some(copied)),
        b'-' => ModeRule::new(ALL, 0).copied(Some(copied.removed(true))),
        _ => ModeRule::new(ALL & !whose, 0).copied(Some(copied)),
    })
}

/// Returns the bits to keep, to set, and to set on directories and executable files.
fn symbolic(word: &str, mask: u16) -> Option<(u16, u16, u16)> {
    let at = word.find(['+', '-', '='])?;
    let (who, rest) = word.split_at(at);
    let (mut whose, mut special) = (0, 0);
    for letter in who.chars() {
        match letter {
            'u' => (whose, special) = (whose | 0o100, special | 0o4000),
            'g' => (whose, special) = (whose | 0o010, special | 0o2000),
            'o' => whose |= 0o001,
            'a' => (whose, special) = (0o111, 0o6000),
            _ => return None,
        }
    }

    let everybody = who.is_empty();
    if everybody {
        whose = 0o111;
    }
    if special == 0 {
        special = 0o4000;
    }

    let (mut bits, mut conditional) = (0, 0);
    for letter in rest[1..].chars() {
        match letter {
            'r' => bits |= whose * 4,
            'w' => bits |= whose * 2,
            'x' => bits |= whose,
            'X' => conditional |= whose,
            's' => bits |= special,
            't' => bits |= 0o1000,
            _ => return None,
        }
    }
    if everybody {
        (bits, conditional) = (bits & !mask, conditional & !mask);
    }

    Some(match rest.as_bytes().first()? {
        b'+' => (ALL, bits, conditional),
        b'-' => (ALL & !(bits | conditional), 0, 0),
        _ => (ALL & !(whose * 7), bits, conditional),
    })
}

const ALL: u16 = 0o7777;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn change(word: &str, mode: u16, is_dir: bool) -> u16 {
        let rules: Vec<_> = word.split(',').flat_map(|word| rule(word, 0o022).unwrap()).collect();
        ModeRule::apply(&rules, mode, is_dir)
    }

    /// Each one as rsync 3.5.0 set it under umask 022.
    #[test]
    fn rules_change_what_rsync_changes() {
        for (word, mode, is_dir, changed) in [
            ("644", 0o755, false, 0o644),
            ("D755,F640", 0o777, true, 0o755),
            ("D755,F640", 0o777, false, 0o640),
            ("a+rX", 0o600, false, 0o644),
            ("a+rX", 0o700, false, 0o755),
            ("a+rX", 0o600, true, 0o755),
            ("go-rwx", 0o755, false, 0o700),
            ("u=rw,g=r,o=", 0o755, false, 0o640),
            ("+w", 0o444, false, 0o644),
            ("Dg+s,ug+w,Fo-w,+X", 0o555, true, 0o2775),
            ("Dg+s,ug+w,Fo-w,+X", 0o446, false, 0o664),
            ("u+s", 0o755, false, 0o4755),
            ("ug-s,+t", 0o6755, false, 0o1755),
            ("F-x", 0o777, false, 0o666),
            ("+s", 0o755, false, 0o4755),
            ("o+s", 0o755, false, 0o4755),
            ("a+s", 0o755, false, 0o6755),
            ("u=rwx", 0o4755, false, 0o4755),
            ("u=s", 0o755, false, 0o4055),
            ("a-X", 0o777, false, 0o666),
            ("=r", 0o777, false, 0o444),
            ("g=u", 0o741, false, 0o771),
            ("go=u", 0o4652, false, 0o4666),
            ("Fg=u", 0o2315, false, 0o335),
            ("o=g", 0o7752, false, 0o6755),
            ("g+u", 0o4652, false, 0o4672),
            ("a-g", 0o7752, false, 0o7202),
            ("+u", 0o741, false, 0o755),
            ("-u", 0o4652, false, 0o4012),
            ("D=u", 0o7752, true, 0o755),
            ("u+o,g=u", 0o2315, false, 0o775),
            ("ug=o", 0o4652, false, 0o222),
        ] {
            assert_eq!(format!("{:o}", change(word, mode, is_dir)), format!("{changed:o}"), "{word}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for word in ["", "u", "u+q", "u+r,", "DD755", "88", "77777", "x+r", "D", "u~r", "g=ur", "u=go", "q=u"]
        {
            assert!(mode_rules(word, 0o022).is_err(), "{word}");
        }
    }
}
