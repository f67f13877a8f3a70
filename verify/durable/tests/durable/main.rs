//! The statements of `docs/recipes/durable.md`: the library inside durable functions, on the local runner of their SDK, and executions that
//! are started once.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests, and files that the page shows as they are"
)]

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

mod execution;
mod order;
mod refused;
mod started;
mod state_machine;
mod steps;

/// A payment provider that honours no keys: each call is a charge.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    keys: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    async fn charge(&self, amount: u64, key: String) -> io::Result<String> {
        tokio::task::yield_now().await;
        let mut keys = self.keys.lock().unwrap();
        keys.push(key);
        Ok(format!("payment {} of {amount}", keys.len()))
    }

    fn charges(&self) -> usize {
        self.keys.lock().unwrap().len()
    }

    /// The keys that charges came with, each once.
    fn keys(&self) -> BTreeSet<String> {
        self.keys.lock().unwrap().iter().cloned().collect()
    }
}

/// `UPDATE_PAGES=1` writes them into the page.
#[test]
fn the_page_shows_the_files_that_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = folder.join("../../docs/recipes/durable.md");
    let shown = std::fs::read_to_string(&page).unwrap();
    let mut wanted = shown.clone();
    for name in ["order", "execution"] {
        let path = format!("verify/durable/tests/durable/{name}.rs");
        let file = folder.join("tests/durable").join(name);
        let file = std::fs::read_to_string(file.with_extension("rs")).unwrap();
        let head = format!("<!-- {path} -->\n```rust\n");
        let (before, rest) = wanted.split_once(&head).expect(&path);
        let (_, after) = rest.split_once("```\n").expect(&path);
        wanted = format!("{before}{head}{file}```\n{after}");
    }
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&page, &wanted).unwrap();
    } else {
        assert_eq!(shown, wanted, "write it with UPDATE_PAGES=1");
    }
}
