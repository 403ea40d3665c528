//! `docs/wire.md` matches the code.

use std::{collections::BTreeMap, fs};

use dsync_wire::{bootstrap, kind::Kind, limits, options::SyncOptions, version};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::Value;

use crate::strategies;

#[test]
fn the_table_of_messages_is_that_of_the_code() {
    let document = document();
    let mut documented = BTreeMap::new();
    for (number, rest) in rows(&document, "messages") {
        documented.insert(number.parse::<u8>().unwrap(), rest[0].clone());
    }
    let code: BTreeMap<_, _> = Kind::control()
        .chain(Kind::data())
        .map(|kind| (kind.0, format!("`{}`", kind.name().unwrap())))
        .collect();
    assert_eq!(documented, code);
}

#[test]
fn the_table_of_limits_is_that_of_the_code() {
    let document = document();
    let documented: BTreeMap<_, _> = rows(&document, "limits")
        .map(|(name, rest)| {
            (name.trim_matches('`').to_owned(), rest[0].replace(',', "").parse::<u64>().unwrap())
        })
        .collect();
    let code: BTreeMap<_, _> = limits()
        .into_iter()
        .chain(of_lists())
        .chain(of_spans())
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    assert_eq!(documented, code);
}

#[test]
fn options_that_are_no_switches_and_their_choices_are_named() {
    let document = document();
    let (_, section) = document.split_once("### 6.1 Start").unwrap();
    let (section, _) = section.split_once("### 6.2").unwrap();
    let defaults = serde_json::to_value(SyncOptions::default()).unwrap();
    let mut runner = TestRunner::deterministic();
    for _ in 0..400 {
        let options = strategies::options().new_tree(&mut runner).unwrap().current();
        let options = serde_json::to_value(options).unwrap();
        for (options, defaults) in [(&options, &defaults), (&options["writing"], &defaults["writing"])] {
            for (name, value) in options.as_object().unwrap() {
                assert!(value.is_boolean() || section.contains(&format!("`{name}`")), "{name} is not there");
                if let (Value::String(_), Value::String(choice)) = (&defaults[name], value) {
                    assert!(section.contains(&format!("`{choice}`")), "{name}: {choice} is not there");
                }
            }
        }
    }
}

#[test]
fn magic_and_protocol_are_those_of_the_code() {
    let document = document();
    let magic: Vec<_> = bootstrap::MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(document.contains(&magic.join(" ")));
    assert!(document.contains(std::str::from_utf8(version::ALPN).unwrap()));
    assert_eq!(version::ALPN, format!("dsync/{}", version::VERSION).as_bytes());
}

/// Returns the limits of lists of paths.
fn of_lists() -> [(&'static str, u64); 3] {
    let limits = [limits::MAX_NAMES, limits::MAX_LINE, limits::MAX_NAMES_BYTES];
    let names = ["MAX_NAMES", "MAX_LINE", "MAX_NAMES_BYTES"];
    std::array::from_fn(|at| (names[at], limits[at] as u64))
}

/// Returns the limits of spans.
fn of_spans() -> [(&'static str, u64); 3] {
    let limits = [limits::MAX_SPAN_ITEMS as usize, limits::MAX_SPAN_PIECES, limits::MAX_OPEN_SPANS];
    let names = ["MAX_SPAN_ITEMS", "MAX_SPAN_PIECES", "MAX_OPEN_SPANS"];
    std::array::from_fn(|at| (names[at], limits[at] as u64))
}

fn limits() -> Vec<(&'static str, u64)> {
    macro_rules! table {
        ($($name:ident),* $(,)?) => {
            vec![$((stringify!($name), u64::try_from(limits::$name).unwrap())),*]
        };
    }
    table![
        MAX_FRAME,
        MAX_RAW_FRAME,
        MAX_ZSTD_WINDOW,
        MAX_DATA_LANES,
        MAX_LISTING_ENTRIES,
        MAX_LISTING_BYTES,
        MAX_BATCH_RECORDS,
        MAX_NAME,
        MAX_PATH_DEPTH,
        MAX_PATH,
        MAX_SYMLINK,
        MAX_XATTR_NAME,
        MAX_XATTR_VALUE,
        MAX_XATTRS,
        MAX_ACL_NAMED,
        MAX_OPERANDS,
        MAX_OPERAND,
        MAX_OPERAND_BYTES,
        MAX_ASKED,
        MAX_ASKED_BYTES,
        MAX_START,
        MAX_START_PART,
        MAX_ALTERNATES,
        MAX_OPTIONS,
        MAX_EXPLAINED,
        MAX_FILTERS,
        MAX_PATTERN,
        MAX_MODIFIERS,
        MAX_PATTERN_BYTES,
        MAX_MODE_RULES,
        MAX_ID_RULES,
        MAX_ID_NAME,
        MAX_FATAL_TEXT,
        MAX_READY_TEXT,
        MAX_SUMS,
        MAX_OPEN_SIGNATURES,
        MAX_REST_RUNS,
        MAX_ID_NAMES,
        MAX_ATTEMPTS,
        MAX_OPEN_RESTS,
        MAX_LANDED,
        MAX_BLOCK_LEN,
        MAX_FILE_LEN,
        MAX_MODE,
        MIN_SEGMENT_LOG2,
        MAX_SEGMENT_LOG2,
        MAX_HOLES,
        MAX_ZSTD_LEVEL,
        MAX_BOOTSTRAP,
        MAX_SERVER_ADDRESSES,
        MAX_REFUSAL_TEXT,
    ]
}

/// Returns the rows of the table after the comment `<!-- table: NAME -->`: first cell, then the
/// others.
fn rows<'a>(document: &'a str, name: &str) -> impl Iterator<Item = (String, Vec<String>)> + 'a {
    let (_, after) = document.split_once(&format!("<!-- table: {name} -->\n")).unwrap();
    after.lines().skip(2).take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        (cells.next().unwrap(), cells.collect())
    })
}

fn document() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/wire.md")).unwrap()
}
