//! Writes a copy of the library's source that holds every mutant behind a switch, and prints the mutants as lines of JSON.
//!
//! `mutants ROOT COPY FILE…`, with the numbers of the mutants that the compiler refused on standard input. `cargo mutants` could
//! list mutants too, but it leaves out no statements and no numbers, and builds each mutant anew.

mod changes;
mod walk;

use std::collections::HashSet;
use std::error::Error;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::{env, fs, io, mem, vec};

use serde_json::{Value, json};

use syn::visit::Visit;
use walk::{Form, Switch, Walk};

/// Files and folders below `src/` that get no mutants, beside those called `tests`: clocks, log lines and metrics, errors' texts,
/// `MemoryStore`, the outbox, Powertools' formats; and what is of tests alone.
const LEFT_OUT: &str = "lib powertools testing batch/fate/properties dynamodb/outbox dynamodb/wire engine/error engine/events \
    engine/metrics protocol/clock store/error store/memory store/process";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [root, copy, paths @ ..] = arguments.as_slice() else {
        return Err("mutants ROOT COPY FILE…".into());
    };
    let mut sources = Vec::new();
    for path in paths {
        let text = fs::read_to_string(Path::new(root).join(path))?;
        let file = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        sources.push((path, text, file));
    }
    let names = changes::Names::of(sources.iter().map(|(_, _, file)| file));
    let refused = io::read_to_string(io::stdin())?;
    let refused: HashSet<usize> = refused.split(' ').flat_map(str::parse).collect();
    let mut walk = Walk {
        source: "",
        names: &names,
        refused: &refused,
        count: 0,
        found: Vec::new(),
        path: Vec::new(),
    };
    for (path, source, file) in &sources {
        if !is_left_out(path) {
            walk.source = source;
            walk.visit_file(file);
        }
        let mut switches = mem::take(&mut walk.found);
        switches.retain(|switch| !switch.mutants.is_empty());
        switches.sort_by_key(|one| (one.range.start, usize::MAX - one.range.end));
        let mut output = Output {
            path,
            source,
            text: String::with_capacity(source.len() * 4),
            mutants: Vec::new(),
        };
        output.write(0..source.len(), &mut switches.into_iter().peekable());
        for mutant in output.mutants {
            println!("{mutant}");
        }
        if *path == "src/lib.rs" {
            output.text.push_str(include_str!("active.rs.txt"));
        }
        // A file that stays the same keeps its time, so that cargo builds only what changed.
        let target = Path::new(copy).join(path);
        if !fs::read_to_string(&target).is_ok_and(|before| before == output.text) {
            fs::create_dir_all(target.parent().ok_or("a file without a folder")?)?;
            fs::write(target, output.text)?;
        }
    }
    Ok(())
}

fn is_left_out(path: &str) -> bool {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs");
    let is_below = |start| format!("{module}/").starts_with(&format!("{start}/"));
    LEFT_OUT.split(' ').any(is_below) || module.split('/').any(|part| part == "tests")
}

struct Output<'a> {
    path: &'a str,
    source: &'a str,
    text: String,
    mutants: Vec<Value>,
}

impl Output<'_> {
    /// Writes a part of the source with the switches in it. Notes where each stands in the copy, as the compiler names places.
    fn write(&mut self, range: Range<usize>, switches: &mut Peekable<vec::IntoIter<Switch>>) {
        let mut at = range.start;
        while let Some(switch) = switches.next_if(|next| next.range.end <= range.end) {
            self.text.push_str(&self.source[at..switch.range.start]);
            at = switch.range.end;
            // The texts that open the switch, and those around each mutant and around the source. A mutant's text may end in a comment.
            let (open, not, before, after, inner, close) = match switch.form {
                Form::Value => ("(", "", "{", "\n} else ", "{", "})"),
                Form::Body => (" ", "", "{ return ", ";\n} ", "", ""),
                Form::Statement => ("", "!", "", "", "{", "}"),
                Form::Arm => (" ", "!", "", "", "", ""),
            };
            let (first, start) = (self.mutants.len(), self.text.len());
            self.text.push_str(open);
            for (number, (operator, text)) in &switch.mutants {
                let on = format!("if {not}crate::mutants::on({number}) {before}");
                self.text.push_str(&on);
                let start = self.text.len();
                if not.is_empty() {
                    self.text.push_str(text);
                }
                self.mutants.push(json!({
                    "number": number, "file": self.path, "function": switch.function, "line": switch.line, "operator": operator,
                    "from": switch.from, "to": walk::one_line(text), "text": [start, self.text.len()],
                }));
                self.text.push_str(after);
            }
            let last = self.mutants.len();
            self.text.push_str(inner);
            self.write(switch.range, switches);
            self.text.push_str(close);
            for mutant in &mut self.mutants[first..last] {
                mutant["switch"] = json!([start, self.text.len()]);
            }
        }
        self.text.push_str(&self.source[at..range.end]);
    }
}
