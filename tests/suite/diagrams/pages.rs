//! What a page needs of the pictures that it shows, some of them side by side and inlined as HTML.

use std::collections::BTreeMap;
use std::fs;

use super::place;
use super::text::COLUMNS;
use crate::reference::between;

/// The committed pictures of this kind, by name.
fn pictures(extension: &str) -> BTreeMap<String, String> {
    let paths = fs::read_dir(place(""))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found: BTreeMap<_, _> = paths
        .filter(|path| path.extension().is_some_and(|own| own == extension))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    assert!(found.len() > 10, "{:?}", found.keys());
    found
}

#[test]
fn each_id_is_one_pictures_alone_and_each_reference_leads_to_its_own() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for (name, svg) in pictures("svg") {
        let ids = between(&svg, " id=\"", "\"");
        assert!(ids.len() > 1, "{name}: {ids:?}");
        for id in &ids {
            let other = owners.insert((*id).to_owned(), name.clone());
            assert_eq!(other, None, "{name} has the id {id} of another picture");
        }
        let labels = between(&svg, "aria-labelledby=\"", "\"");
        let masks = between(&svg, "url(#", ")");
        let labels = labels.iter().flat_map(|list| list.split(' '));
        for reference in labels.chain(masks) {
            assert!(ids.contains(&reference), "{name}: {reference}");
        }
    }
}

#[test]
fn no_picture_has_a_blank_line() {
    // In Markdown, it would end the block of HTML that an inlined picture is.
    for (name, svg) in pictures("svg") {
        let blank = svg.lines().position(|line| line.trim().is_empty());
        assert_eq!(blank.map(|line| line + 1), None, "{name}");
    }
}

#[test]
fn no_text_is_wider_than_a_terminal() {
    for (name, text) in pictures("txt") {
        for line in text.lines() {
            let columns = line.chars().count();
            assert!(columns <= COLUMNS, "{name} has {columns} columns: {line}");
        }
    }
}
