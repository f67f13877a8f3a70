//! Hostile input: every property of `tests/properties`, on the kept corpora and on bytes made up around them, new ones in each run.
//! The same properties are driven by libFuzzer in `verify/fuzz/`.
//!
//! ```sh
//! HOSTILE_INPUTS=100000 cargo test --test suite -- --nocapture hostile               # so many for each property
//! HOSTILE_SEED=4711 cargo test --test suite -- --nocapture hostile::stored_answer    # the inputs of a seed again
//! ```

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{env, fmt, fs};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::properties::{ALL, Property};

mod strays;

/// The kept inputs of a target, the crashes that were found among them.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("verify/fuzz/corpus")
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
    let kept = prop::sample::select(kept);
    let near = (kept.clone(), prop::collection::vec(any_edit(), 1..12))
        .prop_map(|(input, edits)| edited(input, edits));
    let crossed = (
        (kept.clone(), any::<Index>()),
        (kept, any::<Index>()),
        prop::collection::vec(any_edit(), 0..4),
    )
        .prop_map(|(head, tail, edits)| edited(crossed(head, tail), edits));
    let any = prop::collection::vec(any::<u8>(), 0..400);
    prop_oneof![1 => any, 3 => near, 2 => crossed].prop_map(Input)
}

/// The beginning of one input, and the end of another.
fn crossed((mut head, cut): (Vec<u8>, Index), (tail, from): (Vec<u8>, Index)) -> Vec<u8> {
    head.truncate(cut.index(head.len() + 1));
    head.extend_from_slice(&tail[from.index(tail.len() + 1)..]);
    head
}

/// So many inputs come from one seed.
const INPUTS: u32 = 512;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}

/// Inputs that no run has tried before, seed after seed: as many as `HOSTILE_INPUTS` says, and those of one seed at least.
fn explore(target: &str) {
    let (property, inputs) = (property(target), inputs(target));
    let wanted = variable("HOSTILE_INPUTS").unwrap_or(INPUTS);
    let first: u64 = variable("HOSTILE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seeds = u64::from(wanted.div_ceil(INPUTS).max(1));
    for seed in (0..seeds).map(|number| first.wrapping_add(number)) {
        // A failure is kept in the corpus, by hand, rather than as a seed.
        let config = Config {
            cases: INPUTS,
            failure_persistence: None,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let dice = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let ended = TestRunner::new_with_rng(config, dice).run(&inputs, |Input(input)| {
            property(&input);
            Ok(())
        });
        if let Err(error) = ended {
            panic!(
                "{target}: {error}\nagain: HOSTILE_SEED={seed} cargo test --test suite hostile::{target}"
            );
        }
    }
    let tried = u64::from(INPUTS) * seeds;
    println!("{target}: {tried} inputs from HOSTILE_SEED={first} on, none breaks its property");
}

fn holds(target: &str) {
    let property = property(target);
    for (path, bytes) in corpus(target) {
        let held = std::panic::catch_unwind(|| property(&bytes));
        assert!(held.is_ok(), "{} breaks {target}", path.display());
    }
    explore(target);
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

targets! { fingerprint header http_event identity invoke_event multipart outbox record selector source_event sqs_event stored_answer stream_event }

#[test]
fn each_property_is_held_here_and_by_the_fuzzer() {
    let names: Vec<_> = ALL.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, TARGETS);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("verify/fuzz/fuzz_targets");
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
