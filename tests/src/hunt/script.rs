//! A case as a shell script that shows the difference by itself.

use std::fmt::Write as _;

use super::{
    case::{Carrier, Case},
    judge::Finding,
    options,
    world::{CONFINED, SHELL, nobody},
};
use crate::tree::{Kind, Node, Piece};

/// Makes the script; it contains names and texts byte by byte.
pub(super) fn script(case: &Case, filesystem: &str, finding: &Finding, often: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let says = finding.line.replace('\n', " ");
    let head = format!(
        "#!/bin/sh\n\
         # {class:?}: {says}\n\
         # Case {seed} on {filesystem}; it failed in {often} with all that it had at first.\n\
         # Runs rsync and dsync ($DSYNC) on the same trees, in $BASE and $OTHER, and shows what differs.\n\
         D=${{DSYNC:-dsync}}\n\
         # The cage of an end spares the directory of temporary files.\n\
         export TMPDIR=/var/tmp\n\
         BASE=${{BASE:-$(mktemp -d /tmp/hunt.XXXXXX)}} OTHER=${{OTHER:-$(mktemp -d /dev/shm/hunt.XXXXXX)}}\n\
         chmod 755 \"$BASE\" \"$OTHER\"\n\
         W=$BASE/x O=$OTHER/x\n",
        class = finding.class,
        seed = case.seed
    );
    text.extend(head.bytes());
    if case.carrier != Carrier::Local {
        text.extend(format!("cat >\"$BASE/rsh\" <<'END'\n{SHELL}END\nchmod 755 \"$BASE/rsh\"\n").bytes());
        let confined = format!("#!/bin/sh\nexec \"$D\" {CONFINED}\n");
        text.extend(
            format!("export D\ncat >\"$BASE/bound\" <<'END'\n{confined}END\nchmod 755 \"$BASE/bound\"\n")
                .bytes(),
        );
    }
    text.extend(b"plant() {\n  rm -rf \"$W\" \"$O\"; mkdir \"$W\" \"$O\"; umask 022\n");
    for (root, nodes) in [("W", &case.world), ("O", &case.other)] {
        nodes.iter().for_each(|node| make(&mut text, root, node));
        nodes.iter().rev().for_each(|node| dress(&mut text, root, node));
        text.extend(format!("  touch -d @1100000000.000000005 \"${root}\"\n").bytes());
        if case.is_nobody {
            text.extend(format!("  chown 65534:65534 \"${root}\"\n").bytes());
        }
    }
    text.extend(b"}\n");
    text.extend(tail(case).bytes());
    text
}

/// Returns the runs, and the commands that show their results.
fn tail(case: &Case) -> String {
    let mut tail = String::from(
        "show() {\n  (cd \"$1\" && find . -printf '%p %y %m %U:%G %T+ %s %n %l\\n' | sort\n   \
         getfattr -Rhd -m - . 2>/dev/null\n   find . -type f -exec md5sum {} + | sort -k2)\n}\n",
    );
    let before = if case.is_nobody { nobody().join(" ") + " " } else { String::new() };
    let words = |is_rsync: bool| {
        let given = case.options.iter().filter(|option| !(is_rsync && options::is_own(option)));
        let mut words: Vec<String> = given.chain(&case.operands).map(|word| quote_word(word)).collect();
        if is_rsync {
            words.iter_mut().for_each(absolute);
        }
        if is_rsync && !case.has(&["--modify-window"]) {
            words.insert(0, "--modify-window=-1".into());
        }
        if let Carrier::Push(transport) | Carrier::Pull(transport) = case.carrier {
            let shell = if case.is_confined && !is_rsync { "bound" } else { "rsh" };
            words.insert(0, format!("-e \"$BASE/{shell}\""));
            if is_rsync {
                words.insert(0, "--rsync-path=rsync".into());
            } else {
                words.insert(0, format!("--transport={transport} --dsync-path=\"$D\""));
            }
        }
        words.join(" ")
    };
    let (theirs, ours) = (words(true), words(false));
    let run = format!("cd \"$W/{}\" && umask {:03o} && {before}", case.cwd, case.umask);
    let _ = write!(
        tail,
        "echo '== rsync'; plant; ({run}rsync -i {theirs}); echo \"exit $?\"\n\
         show \"$BASE/x\" >\"$BASE/rsync.1\"; show \"$OTHER/x\" >\"$BASE/rsync.2\"\n\
         echo '== dsync -n'; plant; ({run}\"$D\" -i -n {ours}); echo \"exit $?\"\n\
         echo '== dsync'; plant; ({run}\"$D\" -i {ours}); echo \"exit $?\"\n\
         show \"$BASE/x\" >\"$BASE/dsync.1\"; show \"$OTHER/x\" >\"$BASE/dsync.2\"\n\
         echo '== dsync again'; ({run}\"$D\" -i {ours}); echo \"exit $?\"\n\
         echo '== rsync makes (<), dsync makes (>)'\n\
         diff \"$BASE/rsync.1\" \"$BASE/dsync.1\"; diff \"$BASE/rsync.2\" \"$BASE/dsync.2\"\n\
         rm -rf \"$BASE\" \"$OTHER\"\n"
    );
    tail
}

/// Makes rsync's `--temp-dir` absolute: it accepts no relative one that leaves the destination.
fn absolute(word: &mut String) {
    if let Some(dir) = word.strip_prefix("--temp-dir=")
        && !dir.starts_with('$')
    {
        *word = format!("\"--temp-dir=$W/{}\"", options::place(dir));
    }
}

/// Returns a word of the command line, with variables for its placeholders.
fn quote_word(word: &str) -> String {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=./:,+@%".contains(&byte));
    if is_plain {
        let word = word.replace('@', "$W").replace('%', "$O");
        return if word.contains('$') { format!("\"{word}\"") } else { word };
    }
    let quoted = format!("'{}'", word.replace('\'', "'\\''"));
    quoted.replace('@', "'\"$W\"'").replace('%', "'\"$O\"'")
}

/// Returns bytes as one shell word.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in bytes {
        if byte == b'\'' {
            word.extend(b"'\\''");
        } else {
            word.push(byte);
        }
    }
    word.push(b'\'');
    word
}

fn path(root: &str, path: &[u8]) -> Vec<u8> {
    let is_plain = path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(byte));
    let mut word = format!("${root}/").into_bytes();
    if is_plain {
        word.extend(path);
        return word;
    }
    word.extend(quoted(path));
    word
}

fn line(text: &mut Vec<u8>, parts: &[&[u8]]) {
    text.extend(b"  ");
    parts.iter().for_each(|part| text.extend(*part));
    text.push(b'\n');
}

fn make(text: &mut Vec<u8>, root: &str, node: &Node) {
    let at = path(root, &node.path);
    match &node.kind {
        Kind::Dir => line(text, &[b"mkdir ", &at]),
        Kind::Symlink(target) => {
            let target = match target.strip_prefix(b"@/") {
                Some(rest) => [&b"\"$W\"/"[..], &quoted(rest)].concat(),
                None => quoted(target),
            };
            line(text, &[b"ln -s -- ", &target, b" ", &at]);
        }
        Kind::HardLink(first) => line(text, &[b"ln -P ", &path(root, first), b" ", &at]),
        Kind::Fifo => line(text, &[b"mkfifo ", &at]),
        Kind::Socket => line(
            text,
            &[b"perl -MSocket -e 'socket(S,1,1,0);chdir $ARGV[0];bind(S,pack_sockaddr_un($ARGV[1]))' \"$(dirname ", &at, b")\" \"$(basename ", &at, b")\""],
        ),
        Kind::CharDevice(major, minor) => line(text, &[b"mknod ", &at, format!(" c {major} {minor}").as_bytes()]),
        Kind::BlockDevice(major, minor) => line(text, &[b"mknod ", &at, format!(" b {major} {minor}").as_bytes()]),
        Kind::Spliced(pieces) => splice(text, &at, pieces),
        Kind::File(content) => line(text, &[format!("truncate -s {} ", content.len).as_bytes(), &at]),
    }
}

fn splice(text: &mut Vec<u8>, at: &[u8], pieces: &[Piece]) {
    line(text, &[b": >", at]);
    for piece in pieces {
        match *piece {
            Piece::Lines { first, from, len } => {
                let bytes = format!("seq {first} 999999999999 | head -c {} | tail -c {len} >>", from + len);
                line(text, &[bytes.as_bytes(), at]);
            }
            Piece::Zeros(len) => line(text, &[format!("head -c {len} /dev/zero >>").as_bytes(), at]),
            Piece::Hole(len) => line(text, &[format!("truncate -s +{len} ").as_bytes(), at]),
            Piece::Text("\0") => line(text, &[b"printf '\\0' >>", at]),
            Piece::Text(words) => line(text, &[b"printf %s ", &quoted(words.as_bytes()), b" >>", at]),
        }
    }
}

fn dress(text: &mut Vec<u8>, root: &str, node: &Node) {
    if matches!(node.kind, Kind::HardLink(_)) {
        return;
    }
    let at = path(root, &node.path);
    let is_link = matches!(node.kind, Kind::Symlink(_));
    if let Some((uid, gid)) = node.owner {
        line(text, &[format!("chown -h {uid}:{gid} ").as_bytes(), &at]);
    }
    for (name, value) in &node.xattrs {
        let hex = value.iter().fold(String::from("0x"), |hex, byte| hex + &format!("{byte:02x}"));
        line(text, &[format!("setfattr -h -n '{name}' -v {hex} ").as_bytes(), &at]);
    }
    if !is_link {
        line(text, &[format!("chmod {:04o} ", node.mode).as_bytes(), &at]);
    }
    let (seconds, nanoseconds) = node.mtime;
    // touch counts a fraction of a time before 1970 downwards.
    let time = if seconds < 0 && nanoseconds > 0 {
        format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds)
    } else {
        format!("{seconds}.{nanoseconds:09}")
    };
    line(text, &[format!("touch -hd @{time} ").as_bytes(), &at]);
}
