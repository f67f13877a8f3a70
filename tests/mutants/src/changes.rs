//! The changes that an expression, a condition or a function's body can have.

use std::collections::HashMap;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprPath, GenericArgument, Item, Lit, PathArguments, ReceiverKind};
use syn::{ReturnType, Signature, Type, UnOp};

use crate::walk::is_for_tests;

/// An operator's name, and the text that takes the source's place.
pub type Change = (&'static str, String);

/// One and another of the same type.
const BINARY: &str = "comparison: < <=, <= <, > >=, >= >, == !=, != ==; logic: && ||, || &&; \
    arithmetic: + -, - +, * /, / *, += -=, -= +=, *= /=, /= *=, & |, | &, << >>, >> <<";
const METHODS: &str = "min max, max min, any all, all any, first last, last first, \
    is_some is_none, is_none is_some, is_ok is_err, is_err is_ok, is_some_and is_none_or, is_none_or is_some_and, \
    saturating_add saturating_sub, saturating_sub saturating_add, checked_add checked_sub, checked_sub checked_add, \
    starts_with ends_with, ends_with starts_with, strip_prefix strip_suffix, strip_suffix strip_prefix, \
    pop_front pop_back, push_back push_front";

fn other<'a>(pairs: &'a str, of: &str) -> Option<&'a str> {
    let mut pairs = pairs.split(", ").filter_map(|pair| pair.split_once(' '));
    pairs.find_map(|(one, other)| (one == of).then_some(other))
}

/// The enums and the constants that the library's files declare; the constants with the changes that they can have.
#[derive(Default)]
pub struct Names {
    enums: HashMap<String, Vec<(String, String)>>,
    constants: HashMap<String, [&'static str; 2]>,
}

impl Names {
    pub fn of<'a>(files: impl Iterator<Item = &'a syn::File>) -> Self {
        let mut names = Self::default();
        files.for_each(|file| names.visit_file(file));
        names
    }

    /// `Enum::Other` for `Enum::One`: the next variant that holds the same fields.
    fn neighbour(&self, path: &ExprPath, source: &str, own: Option<&String>) -> Option<String> {
        let mut segments = path.path.segments.iter().rev().map(|one| &one.ident);
        let (variant, of) = (segments.next()?, segments.next()?.to_string());
        let variants = self.enums.get(if of == "Self" { own? } else { &of })?;
        let at = variants.iter().position(|(name, _)| variant == name)?;
        let mut others = variants[at + 1..].iter().chain(&variants[..at]);
        let (other, _) = others.find(|(_, fields)| *fields == variants[at].1)?;
        Some(with(source, path, variant, other))
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => return,
            Item::Enum(item) => {
                let variants = item.variants.iter().map(|variant| {
                    let fields = variant.fields.to_token_stream().to_string();
                    (variant.ident.to_string(), fields)
                });
                self.enums
                    .insert(item.ident.to_string(), variants.collect());
            }
            Item::Const(item) => {
                let changes = match item.ty.to_token_stream().to_string().as_str() {
                    "usize" | "u8" | "u16" | "u32" | "u64" | "i32" | "i64" => [" + 1", " - 1"],
                    "Duration" => [" * 2", " / 2"],
                    _ => return,
                };
                self.constants.insert(item.ident.to_string(), changes);
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

fn text<'a>(source: &'a str, node: &impl Spanned) -> &'a str {
    &source[node.span().byte_range()]
}

/// The source of `whole` with another text where `part` stands.
fn with(source: &str, whole: &impl Spanned, part: &impl Spanned, text: &str) -> String {
    let (whole, part) = (whole.span().byte_range(), part.span().byte_range());
    let before = &source[whole.start..part.start];
    format!("{before}{text}{}", &source[part.end..whole.end])
}

pub fn of(expression: &Expr, source: &str, names: &Names, own: Option<&String>) -> Vec<Change> {
    match expression {
        Expr::Binary(binary) if !binds(expression) => {
            let op = binary.op.to_token_stream().to_string();
            let changes = BINARY.split("; ").filter_map(|group| {
                let (operator, pairs) = group.split_once(": ")?;
                let other = other(pairs, &op)?;
                let (left, right) = (text(source, &binary.left), text(source, &binary.right));
                // `a && b || c` would be read anew: each side keeps its own.
                let text = if is_compound(&binary.op) {
                    with(source, binary, &binary.op, other)
                } else {
                    format!("({left}) {other} ({right})")
                };
                Some((operator, text))
            });
            changes.collect()
        }
        Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
            vec![("not", text(source, &unary.expr).to_owned())]
        }
        Expr::MethodCall(call) => other(METHODS, &call.method.to_string())
            .map(|other| ("method", with(source, call, &call.method, other)))
            .into_iter()
            .collect(),
        Expr::Call(call) => match call.func.as_ref() {
            Expr::Path(path) if path.path.is_ident("Some") => vec![("none", "None".to_owned())],
            Expr::Path(path) => {
                let other = names.neighbour(path, source, own);
                let change = |other: String| ("variant", with(source, call, path, &other));
                other.map(change).into_iter().collect()
            }
            _ => Vec::new(),
        },
        Expr::Path(path) => {
            if let Some(other) = names.neighbour(path, source, own) {
                return vec![("variant", other)];
            }
            let last = path.path.segments.last().map(|last| last.ident.to_string());
            let known = last.and_then(|last| names.constants.get(&last)).into_iter();
            let change = |change| ("constant", format!("({}{change})", text(source, path)));
            known.flatten().map(change).collect()
        }
        Expr::Lit(literal) => match &literal.lit {
            Lit::Bool(value) => vec![("boolean", (!value.value).to_string())],
            Lit::Int(number) => {
                let value = number.base10_parse::<u64>().ok();
                let changed = value.map(|value| [Some(value + 1), value.checked_sub(1)]);
                let changed = changed.into_iter().flatten().flatten();
                let change = |value| ("number", format!("{value}{}", number.suffix()));
                changed.map(change).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The negation of a condition, where no operator inside is the same.
pub fn of_condition(condition: &Expr, text: &str) -> Vec<Change> {
    let other_operator_does = match condition {
        Expr::Binary(binary) => matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Not(_)),
        Expr::MethodCall(call) => {
            other(METHODS, &call.method.to_string()).is_some_and(|other| other.starts_with("is_"))
        }
        expression => matches!(expression, Expr::Lit(_)),
    };
    if other_operator_does || binds(condition) {
        return Vec::new();
    }
    vec![("condition", format!("!({text})"))]
}

/// `if let … && …` has parts that can't stand alone.
fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

/// Calls and assignments of which nothing is used but what they do.
pub fn can_be_left_out(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) => true,
        Expr::Call(call) => {
            let function = call.func.to_token_stream().to_string();
            let mut names = function.split(" :: ");
            !names.any(|name| name == "events" || is_for_logs(name))
        }
        Expr::MethodCall(call) => {
            !is_for_logs(&call.method.to_string()) && !is_about_room(&call.method)
        }
        Expr::Binary(binary) => is_compound(&binary.op),
        Expr::Await(inner) => can_be_left_out(&inner.base),
        Expr::Try(inner) => can_be_left_out(&inner.expr),
        _ => false,
    }
}

fn is_compound(op: &BinOp) -> bool {
    let op = op.to_token_stream().to_string();
    matches!(op.as_str(), "+=" | "-=" | "*=" | "/=")
}

/// `log`, `log_batch`: by their name, as this library has it. Log lines are no behaviour here.
pub fn is_for_logs(function: &str) -> bool {
    function.split('_').any(|word| word == "log")
}

/// A hint of how much room to make: only the time depends on it.
pub fn is_about_room(function: &impl ToTokens) -> bool {
    let name = function.to_token_stream().to_string();
    name.ends_with("with_capacity") || name.starts_with("reserve")
}

/// Returns the values that a function can return at once. The compiler refuses a `Default` that the type doesn't have.
pub fn of_body(signature: &Signature) -> Vec<String> {
    let by_value = |receiver: &syn::Receiver| matches!(receiver.kind, ReceiverKind::Value);
    match &signature.output {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, ty) => values(ty, signature.receiver().is_some_and(by_value)),
    }
}

fn values(ty: &Type, takes_self: bool) -> Vec<String> {
    let path = match ty {
        Type::Path(path) => &path.path,
        Type::Tuple(tuple) => {
            let first = |part| values(part, false).into_iter().next();
            let parts: Option<Vec<String>> = tuple.elems.iter().map(first).collect();
            let parts = parts.map(|parts| format!("({})", parts.join(", ")));
            return parts.into_iter().collect();
        }
        Type::Reference(reference) => {
            return match reference.elem.as_ref() {
                Type::Path(path) if path.path.is_ident("str") => vec!["\"\"".to_owned()],
                Type::Slice(_) => vec!["&[]".to_owned()],
                _ => Vec::new(),
            };
        }
        _ => return Vec::new(),
    };
    let Some(last) = path.segments.last() else {
        return Vec::new();
    };
    let within = |wrap: &str| -> Vec<String> {
        let PathArguments::AngleBracketed(arguments) = &last.arguments else {
            return Vec::new();
        };
        let inner = arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(values(ty, false)),
            _ => None,
        });
        let inner = inner.into_iter().flatten();
        inner.map(|value| format!("{wrap}({value})")).collect()
    };
    let known: &[&str] = match last.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" => &["0", "1"],
        "String" => &["String::new()"],
        "Vec" => &["Vec::new()"],
        "Duration" => &["std::time::Duration::ZERO"],
        "Option" => {
            let some = within("Some").into_iter().take(1);
            return ["None".to_owned()].into_iter().chain(some).collect();
        }
        "Result" => return within("Ok"),
        "Poll" => return within("std::task::Poll::Ready"),
        "Box" => return within("Box::new"),
        "Self" if takes_self => &["self"],
        _ => &["Default::default()"],
    };
    known.iter().map(|&value| value.to_owned()).collect()
}
