//! What the library's files declare: enums, constants, and which of the files are tests.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Type};

use crate::Source;

#[derive(Default)]
pub struct Names {
    enums: HashMap<String, Vec<Variant>>,
    constants: HashMap<String, Constant>,
    tests: HashSet<String>,
}

struct Variant {
    name: String,
    fields: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    Integer,
    Duration,
    Bool,
}

impl Names {
    pub fn of(sources: &[Source]) -> Self {
        let mut names = Self::default();
        for (path, _, file) in sources {
            Reader {
                names: &mut names,
                path,
            }
            .visit_file(file);
        }
        names
    }

    /// A file that only the library's own tests are made of, or one below such a file.
    pub fn is_test(&self, path: &str) -> bool {
        let stem = path.trim_end_matches(".rs");
        self.tests
            .iter()
            .any(|test| stem == test || stem.starts_with(&format!("{test}/")))
    }

    pub fn constant(&self, name: &str) -> Option<Constant> {
        self.constants.get(name).copied()
    }

    /// The next variant of the same enum that holds the same fields.
    pub fn neighbour(&self, of: &str, variant: &str) -> Option<&str> {
        let variants = self.enums.get(of)?;
        let at = variants.iter().position(|one| one.name == variant)?;
        let fields = &variants.get(at)?.fields;
        let (before, after) = variants.split_at(at);
        after
            .iter()
            .skip(1)
            .chain(before)
            .find(|other| other.fields == *fields)
            .map(|other| other.name.as_str())
    }
}

struct Reader<'a> {
    names: &'a mut Names,
    path: &'a str,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => {
                if module.content.is_none() {
                    let folder = folder_of(self.path);
                    self.names
                        .tests
                        .insert(format!("{folder}/{}", module.ident));
                }
                return;
            }
            Item::Enum(item) => {
                let variants = item.variants.iter().map(|variant| Variant {
                    name: variant.ident.to_string(),
                    fields: variant.fields.to_token_stream().to_string(),
                });
                self.names
                    .enums
                    .insert(item.ident.to_string(), variants.collect());
            }
            Item::Const(item) => {
                if let Some(kind) = constant(&item.ty) {
                    self.names.constants.insert(item.ident.to_string(), kind);
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

/// Where the modules lie that a file declares.
fn folder_of(path: &str) -> String {
    let path = Path::new(path);
    let own = path.with_extension("");
    let folder = match own.file_name().and_then(|name| name.to_str()) {
        Some("lib" | "main" | "mod") => own.parent().unwrap_or(Path::new("")),
        _ => &own,
    };
    folder.display().to_string()
}

fn constant(ty: &Type) -> Option<Constant> {
    match ty.to_token_stream().to_string().as_str() {
        "usize" | "u8" | "u16" | "u32" | "u64" | "i32" | "i64" => Some(Constant::Integer),
        "Duration" => Some(Constant::Duration),
        "bool" => Some(Constant::Bool),
        _ => None,
    }
}

/// Whether an item is compiled for the library's own tests alone.
pub fn is_test_item(item: &Item) -> bool {
    match item {
        Item::Fn(item) => is_for_tests(&item.attrs),
        Item::Mod(item) => is_for_tests(&item.attrs),
        Item::Impl(item) => is_for_tests(&item.attrs),
        Item::Use(item) => is_for_tests(&item.attrs),
        _ => false,
    }
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path
            .segments
            .last()
            .is_some_and(|last| last.ident == "test")
        {
            return true;
        }
        path.is_ident("cfg") && names_tests(attribute.meta.to_token_stream())
    })
}

/// A word of its own: the feature `"test-util"` is none.
fn names_tests(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "test" || word == "doctest",
        TokenTree::Group(group) => names_tests(group.stream()),
        _ => false,
    })
}
