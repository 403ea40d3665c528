//! Makes a failing case smaller, as long as it fails in the same way.

use std::time::{Duration, Instant};

use super::{
    case::{Carrier, Case},
    judge::{Class, judge_for},
    model::sound,
    world::{HOST, World},
};
use crate::tree::{Kind, Node, Piece};

/// Time limit for one case.
pub(super) const LIMIT: Duration = Duration::from_secs(45);

/// Number of further runs of a case before it is made smaller.
const ATTEMPTS: usize = 4;

/// A search for smaller cases.
struct Reducer<'a> {
    world: &'a World,
    key: (Class, String),
    case: Case,
    /// Number of runs for a case that does not always fail.
    tries: usize,
    until: Instant,
}

/// Returns the smallest case found until then that has the same finding, and how many of the first
/// attempts failed.
pub(super) fn reduce(case: &Case, key: (Class, String), world: &World, until: Instant) -> (Case, String) {
    let fails =
        |case: &Case| judge_for(case, world, Some(key.0)).findings.iter().any(|finding| finding.key() == key);

    let attempts = (0..ATTEMPTS).take_while(|_| Instant::now() < until).map(|_| fails(case));
    let attempts: Vec<bool> = attempts.collect();
    let tried = attempts.len();
    let failed = attempts.iter().filter(|&&failed| failed).count();
    let tries = match failed {
        0 => return (case.clone(), format!("0 of {tried} further runs")),
        failed if failed == tried => 1,
        failed => (4 * tried / failed).min(24),
    };
    let mut reducer = Reducer { world, key, case: case.clone(), tries, until };
    for _ in 0..3 {
        let before = reducer.size();
        reducer.pass();
        if reducer.size() == before {
            break;
        }
    }
    (reducer.case, format!("{failed} of {tried} further runs"))
}

impl Reducer<'_> {
    fn size(&self) -> usize {
        let nodes = self.case.world.iter().chain(&self.case.other);
        let dressed = nodes.map(|node| 10 + node.xattrs.len() + usize::from(node.owner.is_some()));
        self.case.options.len() * 100 + dressed.sum::<usize>()
    }

    fn fails(&self, case: &Case) -> bool {
        (0..self.tries).any(|_| {
            Instant::now() < self.until
                && judge_for(case, self.world, Some(self.key.0))
                    .findings
                    .iter()
                    .any(|finding| finding.key() == self.key)
        })
    }

    /// Takes the change if the case still fails.
    fn attempt(&mut self, change: impl Fn(&mut Case)) -> bool {
        let mut smaller = self.case.clone();
        change(&mut smaller);
        smaller.settle();
        let fails = self.fails(&smaller);
        if fails {
            self.case = smaller;
        }
        fails
    }

    fn pass(&mut self) {
        self.attempt(|case| case.carrier_local());
        self.options();
        self.nodes();
        self.attempt(|case| case.is_confined = false);
        self.attempt(|case| case.is_nobody = false);
        self.attempt(|case| case.umask = 0o22);
        for index in 0..self.case.world.len() {
            self.plain(index);
        }
        self.options();
    }

    fn options(&mut self) {
        // The first one requests copying directories at all.
        let mut index = 1;
        while index < self.case.options.len() {
            if !self.attempt(|case| drop(case.options.remove(index))) {
                index += 1;
            }
        }
        let index = self.case.options.iter().position(|option| option == "-aHAX");
        if let Some(index) = index {
            self.attempt(|case| case.options[index] = "-a".into());
        }
    }

    /// Drops entries, many at once first.
    fn nodes(&mut self) {
        let mut step = (self.case.world.len() / 2).max(1);
        loop {
            let mut at = 1;
            while at < self.case.world.len() {
                let end = (at + step).min(self.case.world.len());
                if !self.attempt(|case| drop(case.world.drain(at..end))) {
                    at += step;
                }
            }
            if step == 1 {
                break;
            }
            step /= 2;
        }
        let mut at = 0;
        while at < self.case.other.len() {
            if !self.attempt(|case| drop(case.other.remove(at))) {
                at += 1;
            }
        }
    }

    /// Makes an entry an ordinary one.
    fn plain(&mut self, index: usize) {
        let Some(node) = self.case.world.get(index).cloned() else { return };
        let ordinary = Node::new(&node.path, node.kind.clone());
        if self.attempt(|case| case.world[index] = ordinary.clone()) {
            self.shorten(index);
            return;
        }
        let changes: [&dyn Fn(&mut Node); 4] = [
            &|node| node.owner = None,
            &|node| node.mtime = ordinary.mtime,
            &|node| node.mode = ordinary.mode,
            &|node| node.xattrs.clear(),
        ];
        for change in changes {
            self.attempt(|case| change(&mut case.world[index]));
        }
        let mut at = 0;
        while at < self.case.world.get(index).map_or(0, |node| node.xattrs.len()) {
            if !self.attempt(|case| drop(case.world[index].xattrs.remove(at))) {
                at += 1;
            }
        }
        self.shorten(index);
    }

    fn shorten(&mut self, index: usize) {
        let Some(Kind::Spliced(pieces)) = self.case.world.get(index).map(|node| node.kind.clone()) else {
            return;
        };
        if pieces.is_empty() || pieces == [SHORT] {
            return;
        }
        if matches!(pieces[0], Piece::Text(_)) {
            self.fewer_lines(index, pieces.len());
            return;
        }
        let _ = self.attempt(|case| case.world[index].kind = Kind::Spliced(Vec::new()))
            || self.attempt(|case| case.world[index].kind = Kind::Spliced(vec![SHORT]))
            || self.attempt(|case| case.world[index].kind = Kind::Spliced(vec![pieces[0]]));
    }

    /// Drops lines of a file of rules or of a list.
    fn fewer_lines(&mut self, index: usize, lines: usize) {
        for line in (0..lines).rev() {
            self.attempt(|case| {
                if let Kind::Spliced(pieces) = &mut case.world[index].kind {
                    pieces.remove(line);
                }
            });
        }
    }
}

const SHORT: Piece = Piece::Lines { first: 1, from: 0, len: 2 };

impl Case {
    /// Makes the run a local one.
    fn carrier_local(&mut self) {
        self.carrier = Carrier::Local;
        for operand in &mut self.operands {
            if let Some(path) = operand.strip_prefix(HOST).and_then(|rest| rest.strip_prefix(':')) {
                *operand = path.to_owned();
            }
        }
        self.world = sound(std::mem::take(&mut self.world));
    }
}
