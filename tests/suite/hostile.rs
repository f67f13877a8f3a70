//! Hostile input: every property of `tests/properties`, on the kept corpora and on bytes made up around them. The same ones are
//! driven by libFuzzer in `fuzz/`.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use crate::properties::{ALL, Property};

mod strays;

/// The kept inputs of a target, the crashes that were found among them.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no corpus");
    files
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

/// As it would stand in a byte string.
#[derive(Clone)]
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

fn property(target: &str) -> Property {
    let (_, property) = ALL.into_iter().find(|(name, _)| *name == target).unwrap();
    property
}

/// One change to an input.
#[derive(Clone, Debug)]
enum Edit {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Repeat(Index, u8),
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(&b"{}[],:\"\\ 019-+.eE\n#;\xff\x00"[..])
    ];
    let bytes = prop_oneof![
        prop::collection::vec(byte.clone(), 1..6),
        prop::sample::select(vec![
            "null",
            "\\ud800",
            "1e400",
            "9007199254740993",
            "\u{1f600}",
            "#",
            "\"\""
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        (any::<Index>(), byte).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<Index>(), 1..8_u8).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<Index>(), 1..16_u8).prop_map(|(at, length)| Edit::Repeat(at, length)),
    ]
}

fn edited(mut input: Vec<u8>, edits: Vec<Edit>) -> Vec<u8> {
    for edit in edits {
        let range = |at: Index, length: u8| {
            let start = at.index(input.len() + 1);
            start..(start + usize::from(length)).min(input.len())
        };
        match edit {
            Edit::Replace(at, byte) if !input.is_empty() => {
                let at = at.index(input.len());
                input[at] = byte;
            }
            Edit::Replace(_, byte) => input.push(byte),
            Edit::Insert(at, bytes) => {
                let at = at.index(input.len() + 1);
                input.splice(at..at, bytes);
            }
            Edit::Remove(at, length) => drop(input.drain(range(at, length))),
            Edit::Repeat(at, length) => {
                let range = range(at, length);
                let copy = input[range.clone()].to_vec();
                input.splice(range.end..range.end, copy);
            }
        }
    }
    input
}

/// Bytes as they come, and inputs of the corpus with a few changes.
fn inputs(target: &str) -> impl Strategy<Value = Input> + use<> {
    let kept: Vec<_> = corpus(target).into_iter().map(|(_, bytes)| bytes).collect();
    let near = (
        prop::sample::select(kept),
        prop::collection::vec(any_edit(), 1..6),
    )
        .prop_map(|(input, edits)| edited(input, edits));
    let any = prop::collection::vec(any::<u8>(), 0..400);
    prop_oneof![1 => any, 3 => near].prop_map(Input)
}

fn holds(target: &str) {
    let property = property(target);
    for (path, bytes) in corpus(target) {
        let held = std::panic::catch_unwind(|| property(&bytes));
        assert!(held.is_ok(), "{} breaks {target}", path.display());
    }
    // A failure is kept in the corpus, by hand, rather than as a seed.
    let config = Config {
        cases: 512,
        failure_persistence: None,
        ..Config::default()
    };
    let ended = TestRunner::new(config).run(&inputs(target), |Input(input)| {
        property(&input);
        Ok(())
    });
    if let Err(error) = ended {
        panic!("{target}: {error}");
    }
}

macro_rules! targets {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            holds(stringify!($target));
        })*

        const TARGETS: &[&str] = &[$(stringify!($target)),*];
    };
}

targets! { fingerprint header http_event identity outbox record selector sqs_event stored_answer }

#[test]
fn each_property_is_held_here_and_by_the_fuzzer() {
    let names: Vec<_> = ALL.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, TARGETS);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut fuzzed: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    fuzzed.sort();
    assert_eq!(names, fuzzed);
}
