//! The view of a finding that an entry of the table gets, and the questions that entries ask.

use std::collections::BTreeMap;

use crate::{
    compare::Facts,
    hunt::{
        case::Case,
        judge::{Class, Finding},
        options,
        world::Survey,
    },
    run::Outcome,
    tree::{Kind, Node},
};

/// A finding with its case and the output of both programs.
pub(in crate::hunt) struct Seen<'a> {
    pub case: &'a Case,
    pub finding: &'a Finding,
    pub rsync: &'a Outcome,
    pub dsync: &'a Outcome,
    /// The trees before the runs, unless reading them would change them.
    pub before: Option<&'a Survey>,
    /// The trees after rsync and after dsync.
    pub theirs: &'a Survey,
    pub ours: &'a Survey,
}

impl Seen<'_> {
    pub(super) fn is(&self, class: Class) -> bool {
        self.finding.class == class
    }

    /// Returns whether the line is about one of these facts of an entry.
    pub(super) fn about(&self, facts: &[&str]) -> bool {
        self.is(Class::Tree) && facts.iter().any(|fact| self.finding.line.contains(&format!("': {fact} is ")))
    }

    /// Returns whether the line is about the destination operand itself.
    pub(super) fn is_root(&self) -> bool {
        let operand = self.case.operands.last().map_or("", |operand| operand.trim_end_matches('/'));
        let name = operand.rsplit('/').next().unwrap_or_default();
        self.path().strip_prefix("w/").is_some_and(|path| path == name || path == "d")
    }

    /// Returns whether nothing is where the destination is to be.
    pub(super) fn has_new_destination(&self) -> bool {
        let operand = self.case.operands.last().map_or("", |operand| operand.trim_end_matches('/'));
        let within = operand.rsplit_once("@/w/").map_or(operand, |(_, within)| within);
        let path = format!("w/{}", within.trim_start_matches("./"));
        let is_there = |node: &Node| {
            let rest = node.path.strip_prefix(path.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.case.cwd == "w" && !self.case.world.iter().any(is_there)
    }

    /// Returns whether the one source is a single entry, which may get another name.
    pub(super) fn is_of_one_entry(&self) -> bool {
        self.case.operands.len() == 2 && !self.case.operands[0].ends_with(['/', '.'])
    }

    /// Returns whether the line reports an entry that only one of the programs has.
    pub(super) fn is_presence(&self) -> bool {
        self.is(Class::Tree)
            && ["extra: ", "missing: "].iter().any(|word| self.finding.line.starts_with(word))
    }

    /// Returns the path that the line is about, as printed.
    pub(super) fn path(&self) -> &str {
        self.finding.path()
    }

    /// Returns the path as rsync prints it, without the destination in front.
    pub(super) fn printed_path(&self) -> String {
        as_rsync_prints(self.path().trim_start_matches("w/d/"))
    }

    /// Returns whether the path's entry has the source's type and content after dsync.
    pub(super) fn is_sources_own(&self) -> bool {
        self.is_sources_own_at(self.path())
    }

    /// Returns whether the path's entry has after dsync the type and content that it had before.
    pub(super) fn is_as_before(&self) -> bool {
        let facts = |survey: &Survey| {
            let found = survey.iter().find(|(path, _)| path.escape_ascii().to_string() == self.path());
            found.map(|(_, facts)| (facts.kind, facts.content.clone()))
        };
        let before = self.before.and_then(facts);
        before.is_some() && before == facts(self.ours)
    }

    /// Returns whether another name of the path's file has the source's type and content after dsync, or
    /// the path itself.
    pub(super) fn is_one_with_a_sources_own(&self) -> bool {
        let names = || self.ours.iter().map(|(path, facts)| (path.escape_ascii().to_string(), facts.inode));
        let inode = names().find(|(path, _)| path == self.path()).and_then(|(_, inode)| inode);
        let is_own = |(path, other): (String, Option<_>)| other == inode && self.is_sources_own_at(&path);
        self.is_sources_own() || inode.is_some() && names().any(is_own)
    }

    /// Returns whether the path's file has several names after dsync that are not one file at the source.
    pub(super) fn is_one_of_two_sources(&self) -> bool {
        let names = || self.ours.iter().map(|(path, facts)| (path.escape_ascii().to_string(), facts.inode));
        let inode_of = |wanted: &str| names().find(|(path, _)| path == wanted).map(|(_, inode)| inode);
        let Some(Some(here)) = inode_of(self.path()) else { return false };
        let all = names().filter(|(_, inode)| *inode == Some(here)).map(|(path, _)| path);
        let mut sources = all.filter_map(|path| {
            let within = path.strip_prefix("w/d/")?.to_owned();
            ["w/s/", "w/s2/", "w/"].iter().find_map(|root| inode_of(&format!("{root}{within}")))
        });
        let first = sources.next().flatten();
        sources.any(|other| other.is_none() || other != first)
    }

    /// Returns whether the entry of a path has the source's type and content after dsync.
    fn is_sources_own_at(&self, path: &str) -> bool {
        let Some(within) = path.strip_prefix("w/d/") else { return false };
        let Some(here) = find(self.ours, path) else { return false };
        let sources = [format!("w/s/{within}"), format!("w/s2/{within}"), format!("w/{within}")];
        // One that was moved is gone, or still there after rsync, if that did not copy it.
        let surveys = || [Some(self.ours), Some(self.theirs), self.before].into_iter().flatten();
        let is_of = |path: &String| surveys().any(|all| find(all, path).as_ref() == Some(&here));
        sources.iter().any(is_of)
    }

    /// Returns whether the path's entry has the size and the time of the source's after dsync, so
    /// that it was taken for equal.
    pub(super) fn looks_like_the_sources(&self) -> bool {
        let facts = |path: &str| {
            let found = self.ours.iter().find(|(key, _)| key.escape_ascii().to_string() == path);
            found.map(|(_, facts)| (facts.kind, facts.size, facts.mtime))
        };
        let within = self.path().strip_prefix("w/d/").unwrap_or_default();
        let here = facts(self.path());
        here.is_some() && ["w/s/", "w/s2/", "w/"].iter().any(|root| facts(&format!("{root}{within}")) == here)
    }

    /// Returns whether a file of the destination was newer than the source's before the run, and is
    /// after dsync what it was.
    pub(super) fn is_newer_than_the_sources(&self, path: &str) -> bool {
        let Some(within) = path.strip_prefix("w/d/") else { return false };
        let facts = |survey: &Survey, path: &str| {
            let found = survey.iter().find(|(key, _)| key.escape_ascii().to_string() == path);
            found.map(|(_, facts)| (facts.kind, facts.content.clone(), facts.mtime))
        };
        let Some(before) = self.before else { return false };
        let old = facts(before, path).filter(|(kind, ..)| *kind == "file");
        let sources = ["w/s/", "w/s2/", "w/"].iter().map(|root| facts(before, &format!("{root}{within}")));
        old.is_some()
            && old == facts(self.ours, path)
            && sources
                .flatten()
                .any(|(kind, _, mtime)| kind == "file" && old.as_ref().is_some_and(|old| old.2 > mtime))
    }

    /// Returns whether a file of the destination was as long as the source's before the run, or longer,
    /// and is after dsync what it was.
    pub(super) fn is_kept_as_long_as_the_sources(&self, path: &str) -> bool {
        let Some(within) = path.strip_prefix("w/d/") else { return false };
        let facts = |survey: &Survey, path: &str| {
            let found = survey.iter().find(|(key, _)| key.escape_ascii().to_string() == path);
            found.map(|(_, facts)| (facts.kind, facts.size, facts.content.clone(), facts.mtime))
        };
        let Some(before) = self.before else { return false };
        let Some(old) = facts(before, path).filter(|(kind, ..)| *kind == "file") else { return false };
        let sources = ["w/s/", "w/s2/", "w/"].iter().map(|root| facts(before, &format!("{root}{within}")));
        facts(self.ours, path).as_ref() == Some(&old)
            && sources.flatten().any(|(kind, size, ..)| kind == "file" && old.1 >= size)
    }

    /// Returns whether the entry lacks a list after dsync that rsync's copy has taken over from its
    /// directory, and differs in nothing else that an attribute says.
    pub(super) fn lacks_a_list_of_its_directory(&self) -> bool {
        let Some((ours, mut theirs)) = self.attributes() else { return false };
        let has_list = theirs.remove("system.posix_acl_access").is_some();
        // XFS shows it as an attribute as well.
        theirs.remove("trusted.SGI_ACL_FILE");
        let above = self.path().rsplit_once('/').map_or("", |(above, _)| above);
        let gives_one = |(path, facts): (&Vec<u8>, &Facts)| {
            path.escape_ascii().to_string() == above && facts.xattrs.contains_key("system.posix_acl_default")
        };
        has_list && ours == theirs && !self.case.has_letter('A') && self.theirs.iter().any(gives_one)
    }

    /// Returns whether the path's entry is an empty file after rsync.
    pub(super) fn is_empty_after_rsync(&self) -> bool {
        self.theirs.iter().any(|(path, facts)| {
            (facts.kind, facts.size) == ("file", 0) && path.escape_ascii().to_string() == self.path()
        })
    }

    /// Returns whether the path's entry is a file after dsync that is as long as the source's, or
    /// longer.
    pub(super) fn is_as_long_as_the_sources(&self) -> bool {
        let bytes = |path: &str| {
            let is_it = |(key, facts): &(&Vec<u8>, &Facts)| {
                facts.kind == "file" && key.escape_ascii().to_string() == path
            };
            self.ours.iter().find(is_it).map(|(_, facts)| facts.size)
        };
        let within = self.path().strip_prefix("w/d/").unwrap_or_default();
        let sources = ["w/s/", "w/s2/", "w/"].iter().filter_map(|root| bytes(&format!("{root}{within}")));
        bytes(self.path()).is_some_and(|here| sources.into_iter().any(|source| here >= source))
    }

    /// Returns whether the path's entry is the source's own after dsync, while rsync put there the
    /// old data that dsync keeps under the next name of a backup.
    pub(super) fn is_sources_own_beside_its_backup(&self, suffix: &str) -> bool {
        let kept =
            (1..4).filter_map(|times| find(self.ours, &format!("{}{}", self.path(), suffix.repeat(times))));
        let old = find(self.theirs, self.path());
        self.is_sources_own()
            && self.path().ends_with(suffix)
            && kept.into_iter().any(|kept| Some(kept) == old)
    }

    /// Returns whether the path, or it with a suffix less, has a backup's name and is an entry of
    /// the source's.
    pub(super) fn has_a_sources_name(&self, suffix: &str) -> bool {
        let paths = self.finding.paths();
        let within = paths.iter().filter_map(|path| path.strip_prefix("w/d/"));
        let names = within.flat_map(|name| [Some(name), name.strip_suffix(suffix)]).flatten();
        names.filter(|name| name.ends_with(suffix)).any(|name| {
            // A directory that was named without a slash is an entry itself.
            let there = [format!("w/s/{name}"), format!("w/s2/{name}"), format!("w/{name}")];
            self.case.world.iter().any(|node| there.contains(&node.path.escape_ascii().to_string()))
        })
    }

    /// Returns whether the path is in a directory that the source has too and that has a backup's name.
    pub(super) fn is_in_a_sources_directory_named(&self, suffix: &str) -> bool {
        let Some(within) = self.path().strip_prefix("w/d/") else { return false };
        let mut above = within.match_indices('/').map(|(at, _)| &within[..at]);
        above.any(|above| {
            let there = [format!("w/s/{above}"), format!("w/s2/{above}"), format!("w/{above}")];
            let is_it = |node: &Node| {
                matches!(node.kind, Kind::Dir) && there.contains(&node.path.escape_ascii().to_string())
            };
            above.ends_with(suffix) && self.case.world.iter().any(is_it)
        })
    }

    /// Returns whether the path is that of a backup whose own name, with a suffix less, the source
    /// has, so that other backups are called otherwise than with rsync.
    pub(super) fn is_backup_below_a_sources_name(&self, suffix: &str) -> bool {
        let mut name = self.path();
        while let Some(less) = name.strip_suffix(suffix) {
            let last = less.rsplit('/').next().unwrap_or_default();
            let is_it = |node: &Node| {
                let path = node.path.escape_ascii().to_string();
                node.path.starts_with(b"w/s") && path.rsplit('/').next() == Some(last)
            };
            if less.ends_with(suffix) && self.case.world.iter().any(is_it) {
                return true;
            }
            name = less;
        }
        false
    }

    /// Returns whether the path is the directory that one of these options names, or is inside it.
    pub(super) fn is_within(&self, names: &[&str]) -> bool {
        let places = self.places_of(names);
        let paths = self.finding.paths();
        let is_in = |path: &str, place: &str| {
            path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        places.iter().any(|place| paths.iter().any(|path| is_in(path, place)))
    }

    /// Returns the directories that these options name.
    pub(super) fn places_of(&self, names: &[&str]) -> Vec<String> {
        let given = self.case.options.iter().filter(|option| names.contains(&options::name(option)));
        given.filter_map(|option| option.split_once('=')).map(|(_, value)| options::place(value)).collect()
    }

    /// Returns whether there is a link in an alternate directory.
    pub(super) fn has_link_in_alternate(&self) -> bool {
        let places = self.places_of(ALTERNATES);
        let is_one = |node: &Node| {
            let path = node.path.escape_ascii().to_string();
            let is_below = |place: &String| path.starts_with(&format!("{place}/"));
            matches!(node.kind, Kind::Symlink(_)) && places.iter().any(is_below)
        };
        self.case.world.iter().any(is_one)
    }

    /// Returns the directories that options name.
    fn places(&self) -> impl Iterator<Item = String> {
        self.places_of(PLACES).into_iter()
    }

    /// Returns whether an option names this directory.
    pub(super) fn has_place_at(&self, directory: &str) -> bool {
        self.places().any(|place| place.trim_end_matches('/') == directory.trim_end_matches('/'))
    }

    /// Returns whether an option names a directory inside this one.
    pub(super) fn has_place_in(&self, directory: &str) -> bool {
        let within = |place: String| {
            place.strip_prefix(directory.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
        };
        self.places().any(within)
    }

    /// Returns whether an option names a directory that this one is in.
    pub(super) fn has_place_around(&self, directory: &str) -> bool {
        let is_around =
            |place: String| directory.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.places().any(is_around)
    }

    /// Returns whether an option names a directory inside the destination.
    pub(super) fn has_place_inside(&self) -> bool {
        self.has_place_in("w/d")
    }

    /// Returns whether an option names a directory inside the one that the line is about, itself in
    /// the destination.
    pub(super) fn has_place_below(&self) -> bool {
        self.path().starts_with("w/d/") && self.has_place_in(self.path())
    }

    /// Returns the entries of all trees that have the path's last name.
    pub(super) fn namesakes(&self) -> impl Iterator<Item = &Node> {
        let name = self.path().rsplit('/').next().unwrap_or_default().to_owned();
        let is_namesake = move |node: &&Node| {
            let last = node.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            last.escape_ascii().to_string() == name
        };
        self.case.world.iter().chain(&self.case.other).filter(is_namesake)
    }

    /// Returns the values of a fact after dsync and after rsync, as printed.
    pub(super) fn values(&self) -> Option<(&str, &str)> {
        self.finding.line.rsplit_once("': ")?.1.split_once(" is ")?.1.split_once(", should be ")
    }

    /// Returns the extended attributes after dsync and after rsync, each value as printed.
    pub(super) fn attributes(&self) -> Option<(Attributes<'_>, Attributes<'_>)> {
        let (ours, theirs) = self.values().filter(|_| self.about(&["extended attributes"]))?;
        Some((attributes(ours), attributes(theirs)))
    }

    /// Returns the modes after dsync and after rsync.
    pub(super) fn modes(&self) -> Option<(u16, u16)> {
        let (ours, theirs) = self.values().filter(|_| self.about(&["mode"]))?;
        Some((ours.parse().ok()?, theirs.parse().ok()?))
    }

    /// Returns whether the attributes differ only in what an access control list allows the owner.
    pub(super) fn differs_in_owner_of_list(&self) -> bool {
        let Some((ours, theirs)) = self.values().filter(|_| self.about(&["extended attributes"])) else {
            return false;
        };
        // After the version: tag, permissions and name of the first entry, which is the owner's.
        let list = "\"system.posix_acl_access\": [2, 0, 0, 0, 1, 0, ";
        let without = |text: &str| {
            let (before, after) = text.split_once(list)?;
            Some((before.to_owned(), after.split_once(',')?.1.to_owned()))
        };
        without(ours).is_some_and(|rest| Some(rest) == without(theirs))
    }

    /// Returns whether two names of the destination are of one file.
    pub(super) fn has_links_in_destination(&self) -> bool {
        let is_link = |node: &Node| matches!(node.kind, Kind::HardLink(_)) && node.path.starts_with(b"w/d/");
        self.case.world.iter().any(is_link)
    }

    /// Returns whether the system may refuse links to an alternate directory.
    pub(super) fn may_link_nothing(&self) -> bool {
        let is_elsewhere = |option: &String| option.starts_with("--link-dest=%");
        self.case.options.iter().any(is_elsewhere) || self.case.is_nobody && self.case.has(&["--link-dest"])
    }

    /// Returns whether two names of the source are of one file.
    pub(super) fn has_links_in_source(&self) -> bool {
        let is_link = |node: &Node| matches!(node.kind, Kind::HardLink(_)) && node.path.starts_with(b"w/s");
        self.case.world.iter().any(is_link)
    }

    /// Returns the modification times after dsync and after rsync, in whole seconds.
    pub(super) fn seconds(&self) -> Option<(i64, i64)> {
        let of = |time: &str| time.trim_start_matches('(').split(',').next()?.parse().ok();
        let (ours, theirs) = self.values().filter(|_| self.about(&["mtime"]))?;
        Some((of(ours)?, of(theirs)?))
    }

    /// Returns whether a line of rsync's has these words and the path's last name.
    pub(super) fn rsync_says_of_it(&self, words: &str) -> bool {
        let name = as_rsync_prints(self.path().rsplit('/').next().unwrap_or_default());
        self.rsync.stderr_text().lines().any(|line| line.contains(words) && line.contains(&name))
    }

    /// Returns whether dsync says words in a line that has the entry's name.
    pub(super) fn dsync_says_of_it(&self, words: &str) -> bool {
        let name = format!("{}'", self.path().rsplit('/').next().unwrap_or_default());
        self.dsync.stderr_text().lines().any(|line| line.contains(words) && line.contains(&name))
    }

    /// Returns whether the path, or a directory above it, is another user's link.
    pub(super) fn is_at_a_foreign_link(&self) -> bool {
        let path = self.path();
        self.case.world.iter().any(|node| {
            let at = node.path.escape_ascii().to_string();
            let is_foreign =
                matches!(node.kind, Kind::Symlink(_)) && node.owner.is_some_and(|(uid, _)| uid != 0);
            is_foreign && path.strip_prefix(&at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Returns whether another user's link at the destination has the name of a directory of the
    /// source's.
    pub(super) fn has_foreign_link_for_a_directory(&self) -> bool {
        let last = |node: &Node| node.path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
        let is_directory = |node: &&Node| matches!(node.kind, Kind::Dir) && node.path.starts_with(b"w/s");
        let directories: Vec<_> = self.case.world.iter().filter(is_directory).map(last).collect();
        self.case.world.iter().any(|node| {
            let is_foreign = node.owner.is_some_and(|(uid, _)| uid != 0) && node.path.starts_with(b"w/d");
            matches!(node.kind, Kind::Symlink(_)) && is_foreign && directories.contains(&last(node))
        })
    }

    /// Returns whether rsync says that it deletes what a link of the destination leads to.
    pub(super) fn rsync_deletes_through_a_link(&self) -> bool {
        let is_link = |path: &[u8]| {
            let node = self.case.world.iter().find(|node| node.path == path);
            let first = match node.map(|node| &node.kind) {
                Some(Kind::HardLink(first)) => self.case.world.iter().find(|node| node.path == *first),
                _ => node,
            };
            first.is_some_and(|node| matches!(node.kind, Kind::Symlink(_)))
        };
        self.rsync.stdout_text().lines().filter_map(|line| line.strip_prefix("*deleting   ")).any(|path| {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            above.into_iter().any(|above| is_link(format!("w/d/{above}").as_bytes()))
        })
    }

    /// Returns whether a namesake is a hard link or the first name of one.
    pub(super) fn is_linked(&self) -> bool {
        let is_first = |node: &Node| {
            self.case
                .world
                .iter()
                .any(|other| matches!(&other.kind, Kind::HardLink(first) if *first == node.path))
        };
        self.namesakes().any(|node| matches!(node.kind, Kind::HardLink(_)) || is_first(node))
    }

    /// Returns whether the namesakes are of several types.
    pub(super) fn is_of_several_types(&self) -> bool {
        let mut kinds = self.namesakes().map(|node| std::mem::discriminant(&node.kind));
        let first = kinds.next();
        kinds.any(|kind| Some(kind) != first)
    }

    /// Returns whether the destination or the source has a directory that can be listed but not
    /// entered.
    pub(super) fn has_directory_without_x(&self) -> bool {
        let is_listed_only = |node: &Node| {
            // Whose bits count depends on the owner.
            let is_so = |shift: &u16| node.mode >> shift & 0o5 == 0o4;
            matches!(node.kind, Kind::Dir) && [0, 3, 6].iter().any(is_so)
        };
        self.case.is_nobody && self.case.world.iter().any(is_listed_only)
    }
}

/// Extended attributes by name, each value as a finding prints it.
pub(super) type Attributes<'a> = BTreeMap<&'a str, &'a str>;

/// Parses the attributes that a finding prints.
fn attributes(text: &str) -> Attributes<'_> {
    let text = text.trim_start_matches('{').trim_end_matches('}');
    let pairs = text.split("], ").filter_map(|pair| pair.split_once(": ["));
    pairs.map(|(name, value)| (name.trim_matches('"'), value.trim_end_matches(']'))).collect()
}

/// Returns the type and content of an entry, by its path as printed.
fn find(survey: &Survey, path: &str) -> Option<(&'static str, Vec<u8>)> {
    let found = survey.iter().find(|(key, _)| key.escape_ascii().to_string() == path);
    found.map(|(_, facts)| (facts.kind, facts.content.clone()))
}

/// Returns a name as rsync prints it, from its form in findings.
fn as_rsync_prints(name: &str) -> String {
    let mut printed = String::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match escaped {
            None => printed.push(letter),
            Some('t') => printed.push('\t'),
            Some('n') => printed.push_str("\\#012"),
            Some('r') => printed.push_str("\\#015"),
            Some('x') => {
                let digits: String = letters.by_ref().take(2).collect();
                let byte = u8::from_str_radix(&digits, 16).unwrap_or_default();
                printed.push_str(&format!("\\#{byte:03o}"));
            }
            Some(letter) => printed.push(letter),
        }
    }
    printed
}

/// Options that name a directory of the run.
pub(super) const PLACES: &[&str] =
    &["--backup-dir", "--partial-dir", "--temp-dir", "--link-dest", "--copy-dest", "--compare-dest"];
/// Those of them that name an alternate directory.
pub(super) const ALTERNATES: &[&str] = &["--link-dest", "--copy-dest", "--compare-dest"];
