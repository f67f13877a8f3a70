//! What an expression can become.

use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprBinary, ExprCall, ExprLit, ExprMethodCall, ExprPath, Lit, UnOp};

use crate::names::{Constant, Names};

pub struct Change {
    pub operator: &'static str,
    pub text: String,
}

fn change(operator: &'static str, text: impl Into<String>) -> Change {
    Change {
        operator,
        text: text.into(),
    }
}

/// A method and another of the same type.
const METHODS: [(&str, &str); 24] = [
    ("min", "max"),
    ("max", "min"),
    ("any", "all"),
    ("all", "any"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_err", "is_ok"),
    ("is_some_and", "is_none_or"),
    ("is_none_or", "is_some_and"),
    ("saturating_add", "saturating_sub"),
    ("saturating_sub", "saturating_add"),
    ("checked_add", "checked_sub"),
    ("checked_sub", "checked_add"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("starts_with", "ends_with"),
    ("ends_with", "starts_with"),
    ("strip_prefix", "strip_suffix"),
    ("strip_suffix", "strip_prefix"),
    ("first", "last"),
    ("last", "first"),
    ("pop_front", "pop_back"),
    ("push_back", "push_front"),
];

/// Calls of these are given times and sizes: the double is what a slip of the pen makes of them.
const UNITS: [&str; 5] = [
    "from_millis",
    "from_secs",
    "from_mins",
    "from_hours",
    "from_micros",
];

/// The negation of a condition, where no operator inside is the same.
pub fn of_condition(condition: &Expr, text: &str) -> Vec<Change> {
    let other_operator_does = match condition {
        Expr::Binary(ExprBinary { op, .. }) => matches!(op, BinOp::Eq(_) | BinOp::Ne(_)),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Not(_)),
        Expr::MethodCall(call) => {
            let method = call.method.to_string();
            method.starts_with("is_") && METHODS.iter().any(|(one, _)| *one == method)
        }
        Expr::Lit(_) => true,
        _ => false,
    };
    if other_operator_does || binds(condition) {
        return Vec::new();
    }
    vec![change("condition", format!("!({text})"))]
}

/// `if let … && …` has parts that can't stand alone.
fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

/// Calls and assignments of which nothing is used but what they do. Log lines are no behaviour here.
pub fn can_be_left_out(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) => true,
        Expr::Call(call) => !matches!(call.func.as_ref(), Expr::Path(path) if logs(path)),
        Expr::MethodCall(call) => {
            let method = call.method.to_string();
            !is_for_logs(&method) && !is_about_room(&method)
        }
        Expr::Binary(ExprBinary { op, .. }) => is_compound(op),
        Expr::Await(inner) => can_be_left_out(&inner.base),
        Expr::Try(inner) => can_be_left_out(&inner.expr),
        _ => false,
    }
}

/// A function of `src/engine/events.rs`, or one that is named after what it does.
fn logs(path: &ExprPath) -> bool {
    let segments = &path.path.segments;
    let named = |name: &syn::PathSegment| is_for_logs(&name.ident.to_string());
    segments.iter().any(|segment| segment.ident == "events") || segments.last().is_some_and(named)
}

/// `log`, `log_batch`: by their name, as this library has it.
pub fn is_for_logs(function: &str) -> bool {
    function.split('_').any(|word| word == "log")
}

/// A hint of how much room to make: nothing but the time depends on it.
pub fn is_about_room(function: &str) -> bool {
    matches!(function, "with_capacity" | "reserve")
}

fn is_compound(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_)
    )
}

pub struct Facts<'a> {
    pub source: &'a str,
    pub names: &'a Names,
    pub own: Option<&'a str>,
}

impl Facts<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        self.source
            .get(node.span().byte_range())
            .unwrap_or_default()
    }

    /// The source of `whole` with another text where `part` stands.
    fn with(&self, whole: &impl Spanned, part: &impl Spanned, text: &str) -> String {
        let (whole, part) = (whole.span().byte_range(), part.span().byte_range());
        let piece = |range| self.source.get(range).unwrap_or_default();
        format!(
            "{}{text}{}",
            piece(whole.start..part.start),
            piece(part.end..whole.end)
        )
    }

    pub fn of(&self, expression: &Expr) -> Vec<Change> {
        match expression {
            Expr::Binary(binary) if !binds(expression) => self.of_binary(binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                vec![change("not", self.text(&unary.expr))]
            }
            Expr::MethodCall(call) => self.of_method(call),
            Expr::Call(call) => self.of_call(call),
            Expr::Lit(literal) => of_literal(literal),
            Expr::Path(path) => self.of_path(path),
            _ => Vec::new(),
        }
    }

    fn of_binary(&self, binary: &ExprBinary) -> Vec<Change> {
        let (operator, other) = match binary.op {
            BinOp::Lt(_) => ("comparison", "<="),
            BinOp::Le(_) => ("comparison", "<"),
            BinOp::Gt(_) => ("comparison", ">="),
            BinOp::Ge(_) => ("comparison", ">"),
            BinOp::Eq(_) => ("comparison", "!="),
            BinOp::Ne(_) => ("comparison", "=="),
            BinOp::And(_) => ("logic", "||"),
            BinOp::Or(_) => ("logic", "&&"),
            BinOp::Add(_) => ("arithmetic", "-"),
            BinOp::Sub(_) => ("arithmetic", "+"),
            BinOp::Mul(_) | BinOp::Rem(_) => ("arithmetic", "/"),
            BinOp::Div(_) => ("arithmetic", "*"),
            BinOp::AddAssign(_) => ("arithmetic", "-="),
            BinOp::SubAssign(_) => ("arithmetic", "+="),
            BinOp::MulAssign(_) => ("arithmetic", "/="),
            BinOp::DivAssign(_) => ("arithmetic", "*="),
            BinOp::BitAnd(_) => ("arithmetic", "|"),
            BinOp::BitOr(_) => ("arithmetic", "&"),
            BinOp::Shl(_) => ("arithmetic", ">>"),
            BinOp::Shr(_) => ("arithmetic", "<<"),
            _ => return Vec::new(),
        };
        // `a && b || c` would be read anew: each side keeps its own.
        let text = format!(
            "({}) {other} ({})",
            self.text(&binary.left),
            self.text(&binary.right)
        );
        let text = if is_compound(&binary.op) {
            self.with(binary, &binary.op, other)
        } else {
            text
        };
        vec![change(operator, text)]
    }

    fn of_method(&self, call: &ExprMethodCall) -> Vec<Change> {
        let method = call.method.to_string();
        METHODS
            .iter()
            .filter(|(one, _)| *one == method)
            .map(|(_, other)| change("method", self.with(call, &call.method, other)))
            .collect()
    }

    fn of_call(&self, call: &ExprCall) -> Vec<Change> {
        let Expr::Path(path) = call.func.as_ref() else {
            return Vec::new();
        };
        let last = path.path.segments.last().map(|last| last.ident.to_string());
        if path.path.is_ident("Some") {
            return vec![change("none", "None")];
        }
        let mut changes = Vec::new();
        if let (Some(last), Some(argument)) = (&last, call.args.first())
            && UNITS.contains(&last.as_str())
            && call.args.len() == 1
        {
            let argument_text = self.text(argument);
            let doubled = self.with(call, argument, &format!("2 * ({argument_text})"));
            changes.push(change("time", doubled));
        }
        if let Some(other) = self.neighbour(path) {
            changes.push(change("variant", self.with(call, path, &other)));
        }
        changes
    }

    fn of_path(&self, path: &ExprPath) -> Vec<Change> {
        if let Some(other) = self.neighbour(path) {
            return vec![change("variant", other)];
        }
        let Some(last) = path.path.segments.last() else {
            return Vec::new();
        };
        let text = self.text(path);
        match self.names.constant(&last.ident.to_string()) {
            Some(Constant::Integer) => vec![
                change("constant", format!("({text} + 1)")),
                change("constant", format!("({text} - 1)")),
            ],
            Some(Constant::Duration) => vec![
                change("constant", format!("({text} * 2)")),
                change("constant", format!("({text} / 2)")),
            ],
            Some(Constant::Bool) => vec![change("constant", format!("!{text}"))],
            None => Vec::new(),
        }
    }

    /// `Enum::Other` for `Enum::One`, whose fields are the same.
    fn neighbour(&self, path: &ExprPath) -> Option<String> {
        let mut segments = path.path.segments.iter().rev();
        let variant = segments.next()?;
        let of = segments.next()?.ident.to_string();
        let of = if of == "Self" { self.own? } else { &of };
        let other = self.names.neighbour(of, &variant.ident.to_string())?;
        Some(self.with(path, variant, other))
    }
}

fn of_literal(literal: &ExprLit) -> Vec<Change> {
    match &literal.lit {
        Lit::Bool(value) => vec![change("boolean", (!value.value).to_string())],
        Lit::Int(number) => {
            let Ok(value) = number.base10_parse::<u64>() else {
                return Vec::new();
            };
            let suffix = number.suffix();
            let mut values = vec![value + 1];
            if let Some(less) = value.checked_sub(1) {
                values.push(less);
            }
            values
                .into_iter()
                .map(|value| change("number", format!("{value}{suffix}")))
                .collect()
        }
        _ => Vec::new(),
    }
}
