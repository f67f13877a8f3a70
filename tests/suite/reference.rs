//! The reference of the guide, compared with the code that it describes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::pages::files;

mod alarms;
mod errors;
mod guide;
mod settings;
mod words;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of these folders, without their tests.
fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let folders = folders.iter().map(|folder| root().join(folder));
    let paths = folders.flat_map(|folder| files(&folder, "rs"));
    let is_test = |path: &Path| path.with_extension("").iter().any(|part| part == "tests");
    let code = paths.filter(|path| !is_test(path.strip_prefix(root()).unwrap()));
    code.map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        (path, code.to_owned())
    })
    .collect()
}

/// The codes that a function has, from its head on.
pub(crate) fn codes(path: &str, head: &str) -> Vec<String> {
    let text = read(path);
    let (_, body) = text.split_once(head).unwrap();
    let (body, _) = body.split_once("\n    }\n").unwrap();
    let is_code = |word: &&str| word.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    let words = body.split('"').skip(1).step_by(2).filter(is_code);
    let found: Vec<_> = words.map(str::to_owned).collect();
    assert!(found.len() > 3, "{path}: {found:?}");
    found
}

/// The sections of a page: heading, and what stands below it, up to the next heading of this level
/// or of a higher one.
fn sections<'a>(page: &'a str, level: &str) -> Vec<(&'a str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if let Some(heading) = line
            .strip_prefix(level)
            .and_then(|rest| rest.strip_prefix(' '))
        {
            found.push((heading, String::new()));
            is_inside = true;
        } else if line.starts_with('#')
            && line.chars().take_while(|c| *c == '#').count() < level.len()
        {
            is_inside = false;
        } else if let Some((_, body)) = found.last_mut().filter(|_| is_inside) {
            body.push_str(line);
            body.push('\n');
        }
    }
    found
}

/// The words of a text that stand between these two marks.
pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let parts = text.split(before).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(after)?.0))
        .collect()
}
