//! Matches a text with wildcards in little memory.
//!
//! All places of the pattern where a match may stand are followed at once, so that a text takes
//! time in proportion to its length and the pattern's, however many wildcards there are.

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
pub(super) struct Glob(Box<[Token]>);

impl Glob {
    pub(super) fn new(tokens: Vec<Token>) -> Self {
        Self(tokens.into())
    }

    /// Returns the text that matches, if no other does.
    pub(super) fn only(&self) -> Option<Vec<u8>> {
        let byte = |token: &Token| if let Token::Byte(byte) = token { Some(*byte) } else { None };
        self.0.iter().map(byte).collect()
    }

    /// Returns whether all of the text matches.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        let tokens = &*self.0;
        // The places before which a match may stand; the last is the pattern's end.
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
            match self.0.get(place) {
                Some(Token::Run | Token::LongRun | Token::Directories) => place += 1,
                _ => return,
            }
        }
    }
}
