//! The diagrams of `docs/diagrams`: texts in Mermaid's language, and pictures that `scripts/diagrams` makes of them.
//!
//! The texts of sequences are the requests that real runs send to the embedded DynamoDB. One that is no longer what happens fails here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

mod effects;
mod scenarios;
mod stage;
mod words;

use stage::Diagram;

/// Written by hand.
const TREES: [&str; 2] = ["choose-form", "choose-key"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/diagrams")
}

const UPDATE: &str = "write it with UPDATE_DIAGRAMS=1, and read the difference";

fn compare(Diagram { name, text }: &Diagram) {
    let path = folder().join(format!("{name}.mmd"));
    if env::var_os("UPDATE_DIAGRAMS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    for (committed, happens) in committed.lines().zip(text.lines()) {
        assert_eq!(
            committed, happens,
            "{name}.mmd isn't what happens: {UPDATE}"
        );
    }
    assert_eq!(
        committed.len(),
        text.len(),
        "{name}.mmd isn't what happens: {UPDATE}"
    );
}

#[test]
fn each_picture_is_of_its_text() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/diagrams.json");
    let config = fs::read(config).unwrap();
    let names = RECORDED
        .iter()
        .chain(&TREES)
        .map(|name| name.replace('_', "-"));
    let names: BTreeSet<_> = names.collect();
    for name in &names {
        let text = fs::read(folder().join(format!("{name}.mmd"))).unwrap();
        let hash = Sha256::new_with_prefix(&config)
            .chain_update(text)
            .finalize();
        let hash = u64::from_be_bytes(hash[..8].try_into().unwrap());
        let picture = fs::read_to_string(folder().join(format!("{name}.svg"))).unwrap_or_default();
        let id = format!("id=\"{name}-{hash:016x}\"");
        assert!(
            picture.contains(&id),
            "{name}.svg isn't of its text: run scripts/diagrams"
        );
        if let Ok(address) = fs::read_to_string(folder().join(format!("{name}.uri"))) {
            let held = percent_decode_str(&address).decode_utf8().unwrap();
            assert!(
                held == picture,
                "{name}.uri doesn't hold its picture: run scripts/diagrams"
            );
        }
    }
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(names.contains(name), "nothing makes {}", path.display());
    }
}

macro_rules! recorded {
    ($($module:ident::$name:ident),+ $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                compare(&$module::$name().await);
            }
        )+

        const RECORDED: &[&str] = &["outbox", $(stringify!($name)),+];
    };
}

recorded!(
    scenarios::twice,
    scenarios::concurrent_duplicate,
    scenarios::takeover,
    scenarios::stale_owner,
    scenarios::mismatch,
    scenarios::batch,
    effects::transaction,
    effects::steps,
);

/// With the relay's process, as all tests of this name have one: it needs the machine's time.
mod end_to_end {
    #[tokio::test]
    async fn outbox() {
        super::compare(&super::effects::outbox().await);
    }
}
