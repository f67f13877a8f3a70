//! Walks through a file and finds the places that get mutants.
//!
//! Left out by rule: tests; macros, whose arguments are no expressions yet; log lines; hints of
//! how much room to make; patterns, types and attributes;
//! constants, which are mutated where they are used; what prints (`Debug`, `Display`, `Error`); text.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprMatch, File, ImplItemFn, ItemFn, ItemImpl, Pat, PatGuard, ReceiverKind,
    Signature, Stmt,
};

use crate::names::{Names, is_for_tests, is_test_item};
use crate::operators::{self, Change};
use crate::returns;
use crate::switch::{Form, Mutant, Switch, one_line};

#[derive(Default)]
pub struct Found {
    pub file: String,
    pub switches: Vec<Switch>,
    /// The keyword `const` of each function that has it, and the function's body.
    pub constant_functions: Vec<(Range<usize>, Range<usize>)>,
}

pub fn find(path: &str, source: &str, file: &File, names: &Names) -> Found {
    let mut walk = Walk {
        source,
        names,
        found: Found {
            file: path.to_owned(),
            ..Found::default()
        },
        path: Vec::new(),
        own: None,
    };
    walk.visit_file(file);
    walk.found
}

struct Walk<'a> {
    source: &'a str,
    names: &'a Names,
    found: Found,
    /// Of the function that is being looked at: its type, its name, and those around it.
    path: Vec<String>,
    /// What `Self` is.
    own: Option<String>,
}

impl Walk<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        self.source
            .get(node.span().byte_range())
            .unwrap_or_default()
    }

    fn switch(&mut self, form: Form, node: &impl Spanned, changes: Vec<Change>) {
        let range = node.span().byte_range();
        let place = match form {
            Form::Body => range.start + 1..range.start + 1,
            Form::Arm => range.end..range.end,
            Form::Value | Form::Statement => range.clone(),
        };
        self.switch_at(form, place, node, changes);
    }

    fn switch_at(
        &mut self,
        form: Form,
        place: Range<usize>,
        node: &impl Spanned,
        changes: Vec<Change>,
    ) {
        if changes.is_empty() {
            return;
        }
        let start = node.span().start();
        let from = one_line(self.text(node));
        let mutants = changes.into_iter().map(|change| Mutant {
            number: 0,
            operator: change.operator,
            function: self.path.join("::"),
            line: start.line,
            column: start.column + 1,
            from: from.clone(),
            to: one_line(&change.text),
            text: change.text,
        });
        self.found.switches.push(Switch {
            range: place,
            form,
            mutants: mutants.collect(),
        });
    }

    fn function(&mut self, signature: &Signature, block: &Block, visit: impl FnOnce(&mut Self)) {
        if let Some(keyword) = &signature.constness {
            self.found
                .constant_functions
                .push((keyword.span().byte_range(), block.span().byte_range()));
        }
        if operators::is_for_logs(&signature.ident.to_string()) {
            return;
        }
        self.path.push(signature.ident.to_string());
        let takes_self = signature
            .receiver()
            .is_some_and(|receiver| matches!(receiver.kind, ReceiverKind::Value));
        let body = one_line(self.text(block));
        let inner = body.trim_start_matches('{').trim_end_matches('}').trim();
        // `Default::default()` in a `default` would call itself for ever.
        let values = returns::values(&signature.output, takes_self)
            .into_iter()
            .filter(|value| inner != value && !inner.is_empty())
            .filter(|value| signature.ident != "default" || !value.contains("Default::"))
            .map(|text| Change {
                operator: "body",
                text,
            });
        let values = values.collect();
        self.switch(Form::Body, block, values);
        visit(self);
        self.path.pop();
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item::{Const, Enum, Macro, Static};
        let has_none = matches!(item, Const(_) | Static(_) | Enum(_) | Macro(_));
        if !has_none && !is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let prints = item.trait_.as_ref().is_some_and(|(path, _)| {
            let last = path.segments.last().map(|last| last.ident.to_string());
            matches!(last.as_deref(), Some("Debug" | "Display" | "Error"))
        });
        if prints {
            return;
        }
        let own = match item.self_ty.as_ref() {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let before = std::mem::replace(&mut self.own, own.clone());
        self.path.extend(own.clone());
        visit::visit_item_impl(self, item);
        if own.is_some() {
            self.path.pop();
        }
        self.own = before;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.path.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.path.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block, |walk| {
            visit::visit_block(walk, &item.block);
        });
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Fn(item) if !is_for_tests(&item.attrs) => self.visit_impl_item_fn(item),
            _ => {}
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block, |walk| {
            visit::visit_block(walk, &item.block);
        });
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(item) = item
            && let Some(block) = &item.default
        {
            self.function(&item.sig, block, |walk| visit::visit_block(walk, block));
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && operators::can_be_left_out(expression)
        {
            let change = Change {
                operator: "statement",
                text: String::new(),
            };
            self.switch(Form::Statement, statement, vec![change]);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        // An attribute such as `#[cfg]` decides for the whole statement.
        if local.attrs.is_empty() {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_match(&mut self, expression: &'ast ExprMatch) {
        self.visit_expr(&expression.expr);
        let falls_through = expression
            .arms
            .last()
            .is_some_and(|last| matches!(last.pat, Pat::Wild(_)));
        for (index, arm) in expression.arms.iter().enumerate() {
            if let Pat::Guard(PatGuard { guard, .. }) = &arm.pat {
                let changes = ["true", "false"].map(|text| Change {
                    operator: "guard",
                    text: text.to_owned(),
                });
                self.switch(Form::Value, guard.as_ref(), changes.into());
                self.visit_expr(guard);
            } else if falls_through && index + 1 < expression.arms.len() {
                let change = Change {
                    operator: "arm",
                    text: "_".to_owned(),
                };
                self.switch(Form::Arm, &arm.pat, vec![change]);
            }
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        if let Expr::If(syn::ExprIf { cond, .. }) | Expr::While(syn::ExprWhile { cond, .. }) =
            expression
        {
            let changes = operators::of_condition(cond, self.text(cond));
            self.switch(Form::Value, cond.as_ref(), changes);
        }
        let facts = operators::Facts {
            source: self.source,
            names: self.names,
            own: self.own.as_deref(),
        };
        let changes = facts.of(expression);
        self.switch(Form::Value, expression, changes);
        match expression {
            // What is called, and what is assigned to, stays what it is.
            Expr::Call(call) => {
                if let Expr::Path(path) = call.func.as_ref()
                    && let Some(last) = path.path.segments.last()
                    && operators::is_about_room(&last.ident.to_string())
                {
                    return;
                }
                if !matches!(call.func.as_ref(), Expr::Path(_)) {
                    self.visit_expr(&call.func);
                }
                call.args
                    .iter()
                    .for_each(|argument| self.visit_expr(argument));
            }
            Expr::MethodCall(call) if operators::is_about_room(&call.method.to_string()) => {}
            Expr::Assign(assign) => self.visit_expr(&assign.right),
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::Macro(_) | Expr::Const(_) => {}
            Expr::Closure(closure) => self.visit_expr(&closure.body),
            _ => visit::visit_expr(self, expression),
        }
    }

    fn visit_pat(&mut self, _: &'ast Pat) {}

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
}
