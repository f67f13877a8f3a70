//! Puts the switches into the text of a file.

use std::collections::HashSet;
use std::ops::Range;

use serde::Serialize;

use crate::points::Found;
use crate::switch::{Form, Mutant, Switch};

/// The file of the copy, and where each mutant stands in it.
pub struct Rewritten {
    pub text: String,
    pub mutants: Vec<Placed>,
}

/// A mutant as the driver knows it. Ranges are bytes of the rewritten file: the compiler's messages are mapped back by them.
#[derive(Serialize)]
pub struct Placed {
    pub number: u32,
    pub file: String,
    pub function: String,
    pub line: usize,
    pub column: usize,
    pub operator: &'static str,
    pub from: String,
    pub to: String,
    pub text: Range<usize>,
    pub switch: Range<usize>,
}

struct Insertion<'a> {
    at: usize,
    /// At one place, what closes stands before what opens.
    opens: bool,
    /// Then the shorter closes first, and the longer opens first.
    length: usize,
    order: usize,
    switch: &'a Switch,
}

/// Leaves out the switches of which the compiler refused every mutant.
pub fn rewrite(source: &str, found: &Found, refused: &HashSet<u32>) -> Rewritten {
    let mut insertions = Vec::new();
    for (order, switch) in found.switches.iter().enumerate() {
        if switch.mutants.is_empty() {
            continue;
        }
        let length = switch.range.len();
        let one = |at, opens| Insertion {
            at,
            opens,
            length,
            order,
            switch,
        };
        insertions.push(one(switch.range.start, true));
        if matches!(switch.form, Form::Value | Form::Statement) {
            insertions.push(one(switch.range.end, false));
        }
    }
    insertions.sort_by_key(|one| {
        let nested = |value: usize| {
            if one.opens { usize::MAX - value } else { value }
        };
        let order = if one.opens {
            one.order
        } else {
            usize::MAX - one.order
        };
        (one.at, one.opens, nested(one.length), order)
    });

    let source = without_const(source, found, refused);
    let mut text = String::with_capacity(source.len() * 4);
    let mut mutants: Vec<Placed> = Vec::new();
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut copied = 0;
    for insertion in insertions {
        text.push_str(source.get(copied..insertion.at).unwrap_or_default());
        copied = insertion.at;
        let start = text.len();
        if insertion.opens {
            let first = mutants.len();
            opening(&mut text, &mut mutants, &found.file, insertion.switch);
            let of_this: Vec<usize> = (first..mutants.len()).collect();
            if matches!(insertion.switch.form, Form::Value | Form::Statement) {
                open.push((start, of_this));
            } else {
                let end = text.len();
                for index in of_this {
                    mutants[index].switch = start..end;
                }
            }
        } else {
            text.push_str(if insertion.switch.form == Form::Value {
                "})"
            } else {
                "}"
            });
            if let Some((start, of_this)) = open.pop() {
                for index in of_this {
                    mutants[index].switch = start..text.len();
                }
            }
        }
    }
    text.push_str(source.get(copied..).unwrap_or_default());
    Rewritten { text, mutants }
}

fn opening(text: &mut String, mutants: &mut Vec<Placed>, file: &str, switch: &Switch) {
    let mut place = |mutant: &Mutant, text: Range<usize>| {
        mutants.push(Placed {
            number: mutant.number,
            file: file.to_owned(),
            function: mutant.function.clone(),
            line: mutant.line,
            column: mutant.column,
            operator: mutant.operator,
            from: mutant.from.clone(),
            to: mutant.to.clone(),
            text,
            switch: 0..0,
        });
    };
    match switch.form {
        Form::Value => text.push('('),
        Form::Arm => text.push_str(" if "),
        Form::Statement => text.push_str("if "),
        Form::Body => {}
    }
    for (index, mutant) in switch.mutants.iter().enumerate() {
        let asks = format!("crate::mutants::on({})", mutant.number);
        let start = match switch.form {
            Form::Value => {
                text.extend(["if ", &asks, " {"]);
                text.len()
            }
            Form::Body => {
                text.extend([" if ", &asks, " { return "]);
                text.len()
            }
            Form::Statement | Form::Arm => {
                if index > 0 {
                    text.push_str(" && ");
                }
                text.extend(["!", &asks]);
                place(mutant, text.len()..text.len());
                continue;
            }
        };
        text.push_str(&mutant.text);
        place(mutant, start..text.len());
        // The text may end in a comment.
        text.push_str(match switch.form {
            Form::Value => "\n} else ",
            _ => ";\n}",
        });
    }
    match switch.form {
        Form::Value | Form::Statement => text.push_str(" {"),
        Form::Arm | Form::Body => text.push(' '),
    }
}

/// A function with a switch can't be constant: in the copy it isn't, unless the compiler refused all that is in it.
fn without_const(source: &str, found: &Found, refused: &HashSet<u32>) -> String {
    let mut bytes = source.to_owned();
    for (keyword, body) in &found.constant_functions {
        let holds_any = found.switches.iter().any(|switch| {
            body.start <= switch.range.start
                && switch.range.end <= body.end
                && switch
                    .mutants
                    .iter()
                    .any(|mutant| !refused.contains(&mutant.number))
        });
        if holds_any {
            bytes.replace_range(keyword.clone(), &" ".repeat(keyword.len()));
        }
    }
    bytes
}
