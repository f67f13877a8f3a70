//! Pages of `docs/` that name tests: one that names a test that is gone promises what nobody checks.

use std::path::{Path, PathBuf};

/// The files with this extension in a folder, and in those below it.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}

/// Asserts that each `module::…::test` that a page names exists in this folder, and returns their number. A name that begins with no
/// module of the folder is no test's.
pub fn named_tests(page: &str, folder: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut named = 0;
    // Every second part stands between two backticks.
    for name in page.split('`').skip(1).step_by(2) {
        let Some((modules, test)) = name.rsplit_once("::") else {
            continue;
        };
        if test.starts_with(char::is_uppercase) {
            continue; // A type.
        }
        let path = modules.replace("::", "/");
        let first = path.split('/').next().unwrap_or_default();
        if !folder.join(first).is_dir() && !folder.join(first).with_extension("rs").is_file() {
            continue;
        }
        let files = [
            folder.join(&path).with_extension("rs"),
            folder.join(&path).join("mod.rs"),
        ];
        let source = files
            .iter()
            .find_map(|file| std::fs::read_to_string(file).ok());
        let exists = source.is_some_and(|source| source.contains(&format!("fn {test}(")));
        assert!(exists, "{name} is named, and isn't there");
        named += 1;
    }
    named
}
