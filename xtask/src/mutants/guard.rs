//! A guard against a hostile end, and the binaries whose tests notice when one is gone.

/// A guard, and the test of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    /// The subject of the guard, by which a mutant is chosen.
    pub(super) name: &'static str,
    /// The file, from the checkout's root.
    pub(super) file: &'static str,
    /// The text, which is there once, with the guard between « and ».
    pub(super) guard: &'static str,
    /// The expression that disables it.
    pub(super) instead: &'static str,
    /// The test binary, of [`TEST_BINARIES`].
    pub(super) binary: &'static str,
    /// The test's full name.
    pub(super) test: &'static str,
}

impl Guard {
    /// Returns the text before the guard, the guard, and the text behind it.
    pub(super) fn parts(&self) -> (&'static str, &'static str, &'static str) {
        let (before, rest) = self.guard.split_once('«').unwrap_or(("", self.guard));
        let (guard, after) = rest.split_once('»').unwrap_or((rest, ""));
        (before, guard, after)
    }

    /// Returns the file that has the test.
    #[cfg(test)]
    pub(super) fn source(&self) -> String {
        match (self.binary, self.test.rsplit_once("::")) {
            ("hostile_peer", Some((module, _))) => format!("tests/tests/hostile_peer/{module}.rs"),
            ("dsync-engine", Some((module, _))) if module.ends_with("asked::tests") => {
                "crates/dsync-engine/src/destination/asked/tests.rs".to_owned()
            }
            ("dsync-fs", Some((module, _))) if module.starts_with("wildcards::") => {
                "crates/dsync-fs/src/wildcards/tests.rs".to_owned()
            }
            ("dsync-transport", Some((module, _))) if module.starts_with("standing::further::") => {
                "crates/dsync-transport/src/standing/further/tests.rs".to_owned()
            }
            ("dsync-transport", Some((module, _))) if module.starts_with("mux::tests") => {
                "crates/dsync-transport/src/mux/tests.rs".to_owned()
            }
            ("serve", Some((module, _))) => format!("tests/tests/serve/{module}.rs"),
            (_, Some(_)) => self.file.to_owned(),
            ("serve", None) => "tests/tests/serve/main.rs".to_owned(),
            (binary, None) => format!("tests/tests/{binary}.rs"),
        }
    }
}

/// The test binaries, with cargo's arguments for each.
pub(super) const TEST_BINARIES: &[(&str, &[&str])] = &[
    ("hostile_peer", &["-p", "dsync-tests", "--test", "hostile_peer"]),
    ("attacker", &["-p", "dsync-tests", "--test", "attacker"]),
    ("guards", &["-p", "dsync-tests", "--test", "guards"]),
    ("links_of_others", &["-p", "dsync-tests", "--test", "links_of_others"]),
    ("rights", &["-p", "dsync-tests", "--test", "rights"]),
    ("backups", &["-p", "dsync-tests", "--test", "backups"]),
    ("selection", &["-p", "dsync-tests", "--test", "selection"]),
    ("troubled_source", &["-p", "dsync-tests", "--test", "troubled_source"]),
    ("screen", &["-p", "dsync-tests", "--test", "screen"]),
    ("cage", &["-p", "dsync-tests", "--test", "cage"]),
    ("copy_as", &["-p", "dsync-tests", "--test", "copy_as"]),
    ("restricted", &["-p", "dsync-tests", "--test", "restricted"]),
    ("special_bits", &["-p", "dsync-tests", "--test", "special_bits"]),
    ("devices", &["-p", "dsync-tests", "--test", "devices"]),
    ("serve", &["-p", "dsync-tests", "--test", "serve"]),
    ("renamed", &["-p", "dsync-tests", "--test", "renamed"]),
    ("dsync-cli", &["-p", "dsync-cli", "--bin", "dsync"]),
    ("dsync-engine", &["-p", "dsync-engine", "--lib"]),
    ("dsync-fs", &["-p", "dsync-fs", "--lib"]),
    ("dsync-transport", &["-p", "dsync-transport", "--lib"]),
];
