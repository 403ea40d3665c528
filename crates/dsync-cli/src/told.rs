//! The lines of a list in the order of the listing, each when its entry is done.
//!
//! Plans come in the listing's order, their ends in any. A line waits for those before it, so that
//! the list reads as rsync's. Only [`MAX_BEHIND`] lines wait for one that is not done: beyond, the
//! others go first, and that line follows when its entry is done. An entry that fails, or is not
//! done when the run ends, has no line.

use std::collections::{HashMap, VecDeque};

use dsync_engine::{Ended, Planned};

/// A line that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// An entry that is done or, in a dry run, planned.
    Entry(Box<Planned>, Ended),
    /// A text among the lines.
    Text(String),
}

/// Lines that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Told {
    queue: VecDeque<Slot>,
    /// The position of the queue's first slot among all.
    first: u64,
    /// Entries that are not done, by their numbers.
    waiting: HashMap<u64, Waiting>,
}

#[derive(Debug)]
enum Slot {
    Waits(Box<Planned>),
    Due(Line),
    Gone,
}

#[derive(Debug)]
enum Waiting {
    /// At this position.
    Queued(u64),
    /// The others have gone first.
    Passed(Box<Planned>),
}

impl Told {
    /// Adds a plan, which is carried out already or has a number.
    pub(crate) fn plan(&mut self, planned: &Planned, due: &mut dyn FnMut(Line)) {
        let number = planned.facts.map_or(0, |facts| facts.number);
        let planned = Box::new(planned.clone());
        if number == 0 {
            return self.add(Line::Entry(planned, Ended::default()), due);
        }
        self.waiting.insert(number, Waiting::Queued(self.first + self.queue.len() as u64));
        self.queue.push_back(Slot::Waits(planned));
        self.release(due);
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, text: String, due: &mut dyn FnMut(Line)) {
        self.add(Line::Text(text), due);
    }

    /// Ends a plan. One that nobody knows is a peer's invention, and nothing.
    pub(crate) fn end(&mut self, ended: Ended, due: &mut dyn FnMut(Line)) {
        match self.waiting.remove(&ended.number) {
            Some(Waiting::Passed(planned)) if ended.done => due(Line::Entry(planned, ended)),
            Some(Waiting::Queued(position)) => {
                let index = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
                if let Some(slot) = self.queue.get_mut(index)
                    && let Slot::Waits(planned) = std::mem::replace(slot, Slot::Gone)
                    && ended.done
                {
                    *slot = Slot::Due(Line::Entry(planned, ended));
                }
                self.release(due);
            }
            _ => {}
        }
    }

    /// Ends the list: what is due goes, what is not done never will.
    pub(crate) fn flush(&mut self, due: &mut dyn FnMut(Line)) {
        self.waiting.clear();
        self.first += self.queue.len() as u64;
        for slot in self.queue.drain(..) {
            if let Slot::Due(line) = slot {
                due(line);
            }
        }
    }

    fn add(&mut self, line: Line, due: &mut dyn FnMut(Line)) {
        if self.queue.is_empty() {
            return due(line);
        }
        self.queue.push_back(Slot::Due(line));
        self.release(due);
    }

    /// Releases the lines from the front on that are due, or that others wait too long for.
    fn release(&mut self, due: &mut dyn FnMut(Line)) {
        loop {
            match self.queue.front() {
                None => return,
                Some(Slot::Waits(_)) if self.queue.len() <= MAX_BEHIND => return,
                Some(_) => {}
            }
            self.first += 1;
            match self.queue.pop_front() {
                Some(Slot::Due(line)) => due(line),
                Some(Slot::Waits(planned)) => {
                    let number = planned.facts.map_or(0, |facts| facts.number);
                    self.waiting.insert(number, Waiting::Passed(planned));
                }
                Some(Slot::Gone) | None => {}
            }
        }
    }
}

/// Lines that wait for one: a screenful many times over, and some MB at the most.
const MAX_BEHIND: usize = 1000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::{Action, Changes, Facts, FileType};

    use super::*;

    fn planned(name: &str, number: u64) -> Planned {
        Planned::new(Action::Create, FileType::File, name)
            .changes(Changes::NONE)
            .target(Vec::new())
            .size(0)
            .facts(Some(Facts::default().number(number)))
    }

    fn ended(number: u64, done: bool) -> Ended {
        Ended::default().number(number).done(done)
    }

    /// Plays a script: `+a1` plans, `!1` ends well, `?1` fails, `=x` is a text, `.` ends the list.
    fn play(script: &str) -> String {
        let (mut told, mut lines) = (Told::default(), Vec::new());
        let mut due = |line: Line| {
            lines.push(match line {
                Line::Entry(planned, _) => String::from_utf8(planned.path.into_bytes()).unwrap(),
                Line::Text(text) => text,
            });
        };
        for step in script.split_whitespace() {
            let number = || step[1..].trim_start_matches(char::is_alphabetic).parse().unwrap_or(0);
            match &step[..1] {
                "+" => told.plan(&planned(&step[1..2], number()), &mut due),
                "!" => told.end(ended(number(), true), &mut due),
                "?" => told.end(ended(number(), false), &mut due),
                "=" => told.text(step[1..].to_owned(), &mut due),
                _ => told.flush(&mut due),
            }
        }
        lines.join(" ")
    }

    #[test]
    fn lines_keep_the_order_of_the_listing_and_wait_for_their_end() {
        assert_eq!(play("+a0 +b1 +c2 +d0 =x !2 !1 +e0"), "a b c d x e");
        assert_eq!(play("+a0 +b1 +c2 +d0 !2"), "a");
    }

    #[test]
    fn failed_and_unfinished_entries_have_no_line() {
        assert_eq!(play("+a1 +b2 +c0 ?1 !2"), "b c");
        assert_eq!(play("+a1 +b2 +c0 !2 ."), "b c");
        assert_eq!(play("+a1 . !1 +b0"), "b");
        assert_eq!(play("!7 ?8 ="), "");
    }

    #[test]
    fn others_go_first_when_too_many_wait() {
        let (mut told, mut names) = (Told::default(), Vec::new());
        let mut due = |line: Line| {
            if let Line::Entry(planned, _) = line {
                names.push(String::from_utf8(planned.path.into_bytes()).unwrap());
            }
        };
        told.plan(&planned("slow", 1), &mut due);
        for index in 0..2 * MAX_BEHIND {
            told.plan(&planned(&format!("{index}"), 0), &mut due);
        }
        told.end(ended(1, true), &mut due);
        assert_eq!((names.len(), names.last().unwrap().as_str()), (2 * MAX_BEHIND + 1, "slow"));
        assert!(names[..2 * MAX_BEHIND].iter().enumerate().all(|(index, name)| *name == index.to_string()));
    }
}
