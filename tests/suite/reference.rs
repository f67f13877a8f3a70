//! The reference of the guide, compared with the code that it describes.

use std::fs;
use std::path::{Path, PathBuf};

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
    let mut files = Vec::new();
    for folder in folders {
        collect(&root().join(folder), &mut files);
    }
    assert!(!files.is_empty(), "{folders:?}");
    files
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if is_test {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap_or_default();
            files.push((path, code.to_owned()));
        }
    }
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
