//! Rewrites a copy of the library so that one program holds every mutant behind a switch.
//!
//! Reads an [`Order`] as JSON from standard input and writes the rewritten files. Prints a number for the code, then each mutant
//! as a line of JSON.
//! `driver/` builds the copy, names the mutants that the compiler refuses in the next order, and runs the tests.

mod names;
mod operators;
mod points;
mod returns;
mod rewrite;
mod switch;

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use quote::ToTokens;
use serde::Deserialize;

/// What to rewrite, and where to.
#[derive(Deserialize)]
struct Order {
    /// The package whose source is read.
    root: PathBuf,
    /// The copy of it that is written to.
    copy: PathBuf,
    /// Every file of the library, from `root`: enums and constants are looked up in all of them.
    library: Vec<String>,
    /// Those that get mutants.
    mutated: Vec<String>,
    /// Numbers of the mutants to leave out, since the compiler refused them.
    refused: HashSet<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let order: Order = serde_json::from_reader(io::stdin().lock())?;
    let sources = read(&order.root, &order.library)?;
    let names = names::Names::of(&sources);
    let mut out = io::BufWriter::new(io::stdout().lock());
    writeln!(out, "{}", code(&sources, &names))?;
    let mut number = 0;
    for (path, text, file) in &sources {
        let mutated = order.mutated.contains(path) && !names.is_test(path);
        let mut found = if mutated {
            points::find(path, text, file, &names)
        } else {
            points::Found::default()
        };
        for switch in &mut found.switches {
            for mutant in &mut switch.mutants {
                number += 1;
                mutant.number = number;
            }
            switch
                .mutants
                .retain(|mutant| !order.refused.contains(&mutant.number));
        }
        let rewritten = rewrite::rewrite(text, &found, &order.refused);
        for mutant in rewritten.mutants {
            serde_json::to_writer(&mut out, &mutant)?;
            out.write_all(b"\n")?;
        }
        let mut result = rewritten.text;
        if path == "src/lib.rs" {
            result.push_str(include_str!("active.rs.txt"));
        }
        write_if_changed(&order.copy.join(path), &result)?;
    }
    out.flush()?;
    Ok(())
}

/// Stands for all that isn't a test: a mutant that was caught stays caught while this is the same.
fn code(sources: &[Source], names: &names::Names) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, _, file) in sources {
        if !names.is_test(path) {
            path.hash(&mut hasher);
            for item in file.items.iter().filter(|item| !names::is_test_item(item)) {
                item.to_token_stream().to_string().hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

type Source = (String, String, syn::File);

fn read(root: &Path, paths: &[String]) -> Result<Vec<Source>, Box<dyn Error>> {
    let one = |path: &String| {
        let text = fs::read_to_string(root.join(path))?;
        let file = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        Ok((path.clone(), text, file))
    };
    paths.iter().map(one).collect()
}

/// An untouched file keeps its time, so that cargo builds what changed.
fn write_if_changed(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    fs::write(path, text)
}
