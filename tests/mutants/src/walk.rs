//! Finds the places in a file that get mutants.
//!
//! Left out: tests; constants, which are mutated where they are used, and constant functions; macros, whose arguments are no
//! expressions yet; log lines; hints of capacity; what prints (`Debug`, `Display`, `Error`); patterns, types and text.

use std::collections::HashSet;
use std::ops::Range;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ImplItem, Item, Pat, Path, Signature, Stmt, TraitItem, Type};

use crate::changes::{self, Change, Names};

/// A place that has one form or another, by the mutant that is on.
pub struct Switch {
    /// In bytes of the source: the expression or the statement; the start of a body; the end of an arm's pattern.
    pub range: Range<usize>,
    pub form: Form,
    /// The path of the function around it.
    pub function: String,
    pub line: usize,
    pub from: String,
    /// With their numbers, counted through all files in their order: the same whatever the compiler refuses.
    pub mutants: Vec<(usize, Change)>,
}

/// An expression, which has a value; a function's body, which may return at once; a statement, which may be left out; a match arm,
/// which may be skipped.
#[derive(Clone, Copy)]
pub enum Form {
    Value,
    Body,
    Statement,
    Arm,
}

/// One line, whatever the source's layout.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub struct Walk<'a> {
    pub source: &'a str,
    pub names: &'a Names,
    /// Mutants that the compiler refuses.
    pub refused: &'a HashSet<usize>,
    pub count: usize,
    pub found: Vec<Switch>,
    /// Of the function that is looked at: its type, its name, and those around it.
    pub path: Vec<String>,
}

impl Walk<'_> {
    fn switch(&mut self, form: Form, node: &impl Spanned, changes: Vec<Change>) {
        let all = node.span().byte_range();
        let range = match form {
            Form::Body => all.start + 1..all.start + 1,
            Form::Arm => all.end..all.end,
            Form::Value | Form::Statement => all.clone(),
        };
        let numbers = self.count + 1..;
        self.count += changes.len();
        let mutants = numbers.zip(changes);
        self.found.push(Switch {
            range,
            form,
            function: self.path.join("::"),
            line: node.span().start().line,
            from: one_line(&self.source[all]),
            mutants: mutants
                .filter(|(number, _)| !self.refused.contains(number))
                .collect(),
        });
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() || changes::is_for_logs(&signature.ident.to_string()) {
            return;
        }
        self.path.push(signature.ident.to_string());
        let body = one_line(&self.source[block.span().byte_range()]);
        let body = body.trim_start_matches('{').trim_end_matches('}').trim();
        // `Default::default()` in a `default` would call itself for ever.
        let values = changes::of_body(signature).into_iter().filter(|value| {
            body != value
                && !body.is_empty()
                && (signature.ident != "default" || !value.contains("Default::"))
        });
        let values = values.map(|value| ("body", value)).collect();
        self.switch(Form::Body, block, values);
        visit::visit_block(self, block);
        self.path.pop();
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Fn(item) if !is_for_tests(&item.attrs) => self.function(&item.sig, &item.block),
            Item::Mod(item) if !is_for_tests(&item.attrs) => visit::visit_item_mod(self, item),
            Item::Trait(item) => {
                self.path.push(item.ident.to_string());
                visit::visit_item_trait(self, item);
                self.path.pop();
            }
            Item::Impl(item) if !is_for_tests(&item.attrs) => {
                let last = |path: &Path| path.segments.last().map(|last| last.ident.to_string());
                let implements = item.trait_.as_ref().and_then(|(path, _)| last(path));
                if !matches!(implements.as_deref(), Some("Debug" | "Display" | "Error")) {
                    let length = self.path.len();
                    if let Type::Path(path) = item.self_ty.as_ref() {
                        self.path.extend(last(&path.path));
                    }
                    visit::visit_item_impl(self, item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if let ImplItem::Fn(item) = item
            && !is_for_tests(&item.attrs)
        {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if let TraitItem::Fn(item) = item
            && let Some(block) = &item.default
        {
            self.function(&item.sig, block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && changes::can_be_left_out(expression)
        {
            let change = ("statement", String::new());
            self.switch(Form::Statement, statement, vec![change]);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        self.visit_expr(&expression.expr);
        let arms = &expression.arms;
        let falls_through = matches!(arms.last(), Some(last) if matches!(last.pat, Pat::Wild(_)));
        for (index, arm) in arms.iter().enumerate() {
            if let Pat::Guard(pattern) = &arm.pat {
                let changes = ["true", "false"].map(|value| ("guard", value.to_owned()));
                self.switch(Form::Value, pattern.guard.as_ref(), changes.into());
                self.visit_expr(&pattern.guard);
            } else if falls_through && index + 1 < arms.len() {
                self.switch(Form::Arm, &arm.pat, vec![("arm", "_".to_owned())]);
            }
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        if let Expr::If(syn::ExprIf { cond, .. }) | Expr::While(syn::ExprWhile { cond, .. }) =
            expression
        {
            let text = &self.source[cond.span().byte_range()];
            let changes = changes::of_condition(cond, text);
            self.switch(Form::Value, cond.as_ref(), changes);
        }
        let own = self.path.iter().rev().nth(1);
        let changes = changes::of(expression, self.source, self.names, own);
        self.switch(Form::Value, expression, changes);
        match expression {
            // A called name, the target of an assignment and a length stay as they are.
            Expr::Call(call) if changes::is_about_room(&call.func) => {}
            Expr::Call(call) => {
                if !matches!(call.func.as_ref(), Expr::Path(_)) {
                    self.visit_expr(&call.func);
                }
                for argument in &call.args {
                    self.visit_expr(argument);
                }
            }
            Expr::Assign(assign) => self.visit_expr(&assign.right),
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::MethodCall(call) if changes::is_about_room(&call.method) => {}
            _ => visit::visit_expr(self, expression),
        }
    }

    fn visit_pat(&mut self, _: &'ast Pat) {}

    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`; not the feature `"test-util"`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let meta = attribute.meta.to_token_stream().to_string();
        let mut words = meta.split(|one: char| !one.is_alphanumeric() && !"-_".contains(one));
        let name = attribute.path().to_token_stream().to_string();
        name.ends_with("test")
            || name == "cfg" && words.any(|word| matches!(word, "test" | "doctest"))
    })
}
