//! The sequence diagrams of the book, drawn from the requests of real runs on the embedded DynamoDB: one that is no longer what happens
//! fails here. `scripts/diagrams` draws them anew.

use std::path::PathBuf;
use std::{env, fs};

mod choice;
mod engine;
mod pages;
mod queue;
mod scenarios;
mod several;
mod svg;
mod text;
mod trace;
mod wire;
mod words;

use trace::Diagram;

/// Set by `scripts/diagrams`: the pictures are written, not compared.
const DRAW: &str = "DRAW_DIAGRAMS";

/// The pictures of pages that `src/guide.rs` has. Rustdoc has no place for files, so they are there as addresses that hold them.
const IN_RUSTDOC: [&str; 4] = ["choose-form", "choose-key", "steps", "transaction"];

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("docs/diagrams")
        .join(name)
}

/// Where two texts differ first.
fn difference(committed: &str, drawn: &str) -> Option<String> {
    if committed == drawn {
        return None;
    }
    let lines = committed.lines().zip(drawn.lines()).enumerate();
    let first = lines.into_iter().find(|(_, (old, new))| old != new);
    Some(first.map_or_else(
        || "one is longer".to_owned(),
        |(number, (old, new))| {
            format!("line {}:\n  in docs/: {old}\n  happens:  {new}", number + 1)
        },
    ))
}

fn hold(diagram: &Diagram) {
    hold_forms(diagram.name, text::draw(diagram), svg::draw(diagram));
}

fn hold_forms(name: &str, text: String, svg: String) {
    let address = IN_RUSTDOC.contains(&name).then(|| svg::address(&svg));
    let forms = [("txt", Some(text)), ("svg", Some(svg)), ("uri", address)];
    for (extension, drawn) in forms {
        let Some(drawn) = drawn else { continue };
        let path = place(&format!("{name}.{extension}"));
        if env::var_os(DRAW).is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, drawn).unwrap();
            continue;
        }
        let committed = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; run scripts/diagrams", path.display()));
        let difference = difference(&committed, &drawn);
        assert!(
            difference.is_none(),
            "{} isn't what happens; run scripts/diagrams, and read what has changed: {}",
            path.display(),
            difference.unwrap_or_default()
        );
    }
}

macro_rules! diagrams {
    ($($module:ident::$name:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                hold(&$module::$name().await);
            }
        )+

        /// Each committed picture is one that is drawn.
        #[test]
        fn no_picture_is_left_over() {
            let mut drawn = vec!["outbox".to_owned()];
            drawn.extend(choice::CHOICES.map(|choice| choice.name.to_owned()));
            drawn.extend([$(stringify!($name).replace('_', "-")),+]);
            for entry in fs::read_dir(place("")).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let is_drawn = drawn.contains(&name)
                    && (path.extension().unwrap() != "uri" || IN_RUSTDOC.contains(&name.as_str()));
                assert!(is_drawn, "{} is drawn by nothing", path.display());
            }
        }
    };
}

#[test]
fn choices() {
    for choice in &choice::CHOICES {
        hold_forms(choice.name, choice::text(choice), choice::svg(choice));
    }
}

diagrams!(
    scenarios::first_run,
    scenarios::duplicate,
    scenarios::concurrent_duplicate,
    scenarios::takeover,
    scenarios::stale_owner,
    scenarios::mismatch,
    scenarios::lost_reply,
    queue::batch,
    several::transaction,
    several::steps,
);

/// With the relay's process, as all tests of this name have one.
mod end_to_end {
    #[tokio::test]
    async fn outbox() {
        super::hold(&super::several::outbox().await);
    }
}
