//! The doctor's report: findings as lines or as JSON, and JSON of another host read again.

use std::{
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::escape::{escape_text, json_line};

/// Version of the JSON form; a reader ignores keys that it does not know.
const SCHEMA: u64 = 1;

/// The gravity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Ok,
    /// Works, with less.
    Warn,
    /// Does not work.
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Ok, Self::Warn, Self::Fail].into_iter().find(|verdict| verdict.word() == word)
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    /// One word for a script.
    pub(super) name: String,
    pub(super) text: String,
    /// The next step; empty where there is none.
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn ok(name: &str, text: String) -> Self {
        Self { verdict: Verdict::Ok, name: name.to_owned(), text, advice: String::new() }
    }

    pub(super) fn warn(name: &str, text: String, advice: &str) -> Self {
        Self { verdict: Verdict::Warn, name: name.to_owned(), text, advice: advice.to_owned() }
    }

    pub(super) fn fail(name: &str, text: String, advice: &str) -> Self {
        Self { verdict: Verdict::Fail, name: name.to_owned(), text, advice: advice.to_owned() }
    }
}

/// All findings, and who found them when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) program: String,
    pub(super) protocol: u64,
    /// Seconds since 1970.
    pub(super) seconds: u64,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    /// Makes a report of this program, now.
    pub(super) fn of(findings: Vec<Finding>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: u64::from(dsync_engine::PROTOCOL_VERSION),
            seconds: now.map_or(0, |now| now.as_secs()),
            findings,
        }
    }

    pub(super) fn has_failures(&self) -> bool {
        self.findings.iter().any(|finding| finding.verdict == Verdict::Fail)
    }

    /// Returns a line for each finding, and one below it for what to do.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for Finding { verdict, name, text: fact, advice } in &self.findings {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:<4}  {:<10}  {}", verdict.word(), escape_text(name), escape_text(fact));
            if !advice.is_empty() {
                let _ = writeln!(text, "                  {}", escape_text(advice));
            }
        }
        text
    }

    /// Returns the report as one line of JSON.
    pub(super) fn to_json(&self) -> String {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|Finding { verdict, name, text, advice }| {
                json!({ "name": name, "verdict": verdict.word(), "text": text, "advice": advice })
            })
            .collect();
        let report = json!({
            "schema": SCHEMA,
            "program": self.program,
            "protocol": self.protocol,
            "seconds": self.seconds,
            "findings": findings,
        });
        format!("{}\n", json_line(&report))
    }

    /// Reads the report of another host; `None` if it is none.
    pub(super) fn from_json(text: &[u8]) -> Option<Self> {
        // A login script may have printed something before.
        let start = text.iter().position(|byte| *byte == b'{')?;
        let report: Value = serde_json::from_slice(text.get(start..)?).ok()?;
        let word = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let finding = |value: &Value| {
            let verdict = Verdict::of(value.get("verdict")?.as_str()?)?;
            let (name, text, advice) = (word(value, "name")?, word(value, "text")?, word(value, "advice")?);
            Some(Finding { verdict, name, text, advice })
        };
        Some(Self {
            program: word(&report, "program")?,
            protocol: report.get("protocol")?.as_u64()?,
            seconds: report.get("seconds")?.as_u64()?,
            findings: report.get("findings")?.as_array()?.iter().map(finding).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn report_crosses_json_and_escapes_on_the_screen_only() {
        let odd = Finding::warn("x", "a\u{1b}[2J\n\"b\"".to_owned(), "do");
        let report = Report::of(vec![Finding::ok("space", "much".to_owned()), odd]);
        let text = report.to_json();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(Report::from_json(format!("Welcome!\n{text}").as_bytes()), Some(report.clone()));
        assert_eq!(
            report.to_text(),
            "ok    space       much\nwarn  x           a\\#033[2J\\#012\"b\"\n                  do\n"
        );
        assert!(!report.has_failures());
    }

    #[test]
    fn whatever_is_no_report_is_none() {
        for text in ["", "{", "{}", "sh: dsync: not found", "{\"program\":1}"] {
            assert_eq!(Report::from_json(text.as_bytes()), None, "{text}");
        }
    }
}
