//! The pages of `docs/` that rustdoc shows, too, in `src/guide.rs`: their links lead somewhere there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{between, read, root};

/// A page as `src/guide.rs` has it: its file in `docs/`, and the links that rustdoc is given.
fn pages() -> Vec<(String, BTreeSet<String>)> {
    let guide = read("src/guide.rs");
    let mut found = Vec::new();
    for page in guide.split("\npage!(").skip(1) {
        let page = page.split_once(");").unwrap().0;
        let file = page.split('"').nth(1).unwrap().to_owned();
        let labels = page.lines().filter_map(|line| line.split_once("\" => "));
        let labels = labels.map(|(label, _)| label.trim().trim_start_matches('"').to_owned());
        found.push((file, labels.collect()));
    }
    assert!(found.len() > 5, "{found:?}");
    found
}

/// A page without its code blocks.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

fn is_relative(target: &str) -> bool {
    !target.starts_with("https://") && !target.starts_with('#')
}

/// A file that a page of `docs/` names, from `docs/`, without `..`.
fn from_docs(page: &str, target: &str) -> PathBuf {
    let mut place = PathBuf::new();
    let joined = Path::new("docs").join(page).with_file_name(target);
    for component in joined.components() {
        match component {
            Component::ParentDir => assert!(place.pop(), "{target}"),
            other => place.push(other),
        }
    }
    place.strip_prefix("docs").unwrap_or(&place).to_owned()
}

#[test]
fn each_page_that_rustdoc_shows_links_to_other_files_by_reference() {
    for (file, _) in pages() {
        let page = prose(&read(&format!("docs/{file}")));
        let inline = between(&page, "](", ")");
        let relative: Vec<_> = inline.iter().filter(|link| is_relative(link)).collect();
        assert!(
            relative.is_empty(),
            "docs/{file} is in src/guide.rs, too: write [words][label], and define the label there and here: {relative:?}"
        );
    }
}

#[test]
fn rustdoc_is_given_each_relative_link_of_a_page_and_no_other() {
    for (file, given) in pages() {
        let page = prose(&read(&format!("docs/{file}")));
        let defined = page
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
        let mut labels = BTreeSet::new();
        for (label, target) in defined.filter(|(_, target)| is_relative(target)) {
            let (path, anchor) = target
                .split_once('#')
                .map_or((target, String::new()), |(path, anchor)| {
                    (path, format!("#{anchor}"))
                });
            let place = from_docs(&file, path);
            let named = place.with_extension("").display().to_string() + &anchor;
            assert_eq!(label, named, "docs/{file}: a label is the target's path");
            let exists = root().join("docs").join(&place).exists() || root().join(&place).exists();
            assert!(exists, "docs/{file}: {target}");
            assert!(
                page.contains(&format!("][{label}]")),
                "docs/{file}: {label}"
            );
            labels.insert(label.to_owned());
        }
        let used: BTreeSet<_> = between(&page, "][", "]").into_iter().collect();
        let used: BTreeSet<_> = used.into_iter().map(str::to_owned).collect();
        assert!(labels.is_subset(&used), "docs/{file}: {labels:?}, {used:?}");
        assert_eq!(labels, given, "docs/{file} and src/guide.rs");
    }
}
