//! Matches a text with wildcards in little memory.
//!
//! All places of the pattern where a match may stand are followed at once, so that a text takes
//! time in proportion to its length and the pattern's, however many wildcards there are. What stands before
//! the first wildcard and behind the last one is compared first: most texts differ there.

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Byte(u8),
    /// Any byte but a slash.
    Any,
    /// Any number of bytes but slashes.
    Run,
    /// Any number of bytes.
    LongRun,
    /// Nothing, or any number of bytes and a slash.
    Directories,
    /// One byte of a set, by value.
    Class(Box<[bool; 256]>),
}

/// A pattern of which each token takes a few bytes.
#[derive(Debug, Clone)]
pub(super) struct Glob {
    /// The bytes before the first wildcard.
    head: Box<[u8]>,
    /// The tokens from the first wildcard to the last one.
    middle: Box<[Token]>,
    /// The bytes behind the last wildcard.
    tail: Box<[u8]>,
}

impl Glob {
    pub(super) fn new(mut tokens: Vec<Token>) -> Self {
        let byte = |token: &Token| if let Token::Byte(byte) = token { Some(*byte) } else { None };
        let head: Box<[u8]> = tokens.iter().map_while(byte).collect();
        tokens.drain(..head.len());
        let mut tail: Vec<u8> = tokens.iter().rev().map_while(byte).collect();
        tokens.truncate(tokens.len() - tail.len());
        tail.reverse();
        Self { head, middle: tokens.into(), tail: tail.into() }
    }

    /// Returns the text that matches, if no other does.
    pub(super) fn only(&self) -> Option<Vec<u8>> {
        self.middle.is_empty().then(|| self.head.to_vec())
    }

    /// Returns whether all of the text matches.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        let Some(rest) = text.strip_prefix(&*self.head) else { return false };
        rest.strip_suffix(&*self.tail).is_some_and(|rest| self.middle_matches(rest))
    }

    /// Returns whether the text matches all tokens of the middle.
    fn middle_matches(&self, text: &[u8]) -> bool {
        let tokens = &*self.middle;
        match tokens {
            [] => return text.is_empty(),
            [Token::Run] => return !text.contains(&b'/'),
            [Token::LongRun] => return true,
            _ => {}
        }

        // The places before which a match may stand; the last is the middle's end.
        let (mut now, mut next) = (vec![false; tokens.len() + 1], vec![false; tokens.len() + 1]);
        self.reach(0, &mut now);
        for &byte in text {
            next.fill(false);
            for (place, token) in tokens.iter().enumerate().filter(|(place, _)| now[*place]) {
                match token {
                    Token::Byte(wanted) if byte == *wanted => self.reach(place + 1, &mut next),
                    Token::Any if byte != b'/' => self.reach(place + 1, &mut next),
                    Token::Class(set) if set[usize::from(byte)] => self.reach(place + 1, &mut next),
                    Token::Run if byte != b'/' => self.reach(place, &mut next),
                    Token::LongRun => self.reach(place, &mut next),
                    // A match below begins after a slash, so this place alone stays.
                    Token::Directories if byte == b'/' => self.reach(place, &mut next),
                    Token::Directories => next[place] = true,
                    _ => {}
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        now[tokens.len()]
    }

    /// Notes a place, and those behind tokens that may stand for nothing.
    fn reach(&self, mut place: usize, places: &mut [bool]) {
        loop {
            places[place] = true;
            match self.middle.get(place) {
                Some(Token::Run | Token::LongRun | Token::Directories) => place += 1,
                _ => return,
            }
        }
    }
}
