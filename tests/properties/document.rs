//! JSON documents with their own value, apart from any text: two texts of one document are equal JSON, whatever they look like.

use std::collections::BTreeMap;
use std::fmt::Write;

use arbitrary::Arbitrary;

/// A JSON value. Numbers are exact: equal are those that have the same decimal value.
#[derive(Arbitrary, Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    List(Vec<Document>),
    Object(BTreeMap<String, Document>),
}

/// So many times ten to the power of `exponent`.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub negative: bool,
    pub digits: u64,
    pub exponent: i16,
}

impl Decimal {
    /// One form for each value: no zeros at the end, and one zero.
    fn normal(self) -> Self {
        let mut number = self;
        if number.digits == 0 {
            return Self {
                negative: false,
                digits: 0,
                exponent: 0,
            };
        }
        while number.digits.is_multiple_of(10) && number.exponent < i16::MAX {
            number.digits /= 10;
            number.exponent += 1;
        }
        number
    }

    fn text(self, dice: &mut Dice) -> String {
        let Self {
            negative,
            digits,
            exponent,
        } = self;
        let sign = match (negative, digits) {
            (true, _) => "-",
            // Minus zero is zero.
            (false, 0) if dice.one_in(4) => "-",
            _ => "",
        };
        if digits == 0 {
            return format!("{sign}{}", dice.pick(["0", "0.0", "0e7", "0.00E-7"]));
        }
        let exponent = i32::from(exponent);
        let form = match (dice.upto(5), exponent) {
            (0, 0..=30) => format!(
                "{digits}{}",
                "0".repeat(usize::try_from(exponent).expect("it is small"))
            ),
            (1, _) => {
                let zeros = dice.upto(4);
                let power = exponent - i32::try_from(zeros).expect("it is small");
                format!(
                    "{digits}{}{}{power}",
                    "0".repeat(zeros),
                    dice.pick(["e", "E"])
                )
            }
            (2, -30..0) => {
                let places = usize::try_from(-exponent).expect("it is negative");
                let padded = format!("{digits:0>width$}", width = places + 1);
                let (whole, fraction) = padded.split_at(padded.len() - places);
                format!("{whole}.{fraction}{}", "0".repeat(dice.upto(3)))
            }
            (3, _) => {
                let all = digits.to_string();
                let (first, rest) = all.split_at(1);
                let power = exponent + i32::try_from(rest.len()).expect("it is short");
                let plus = if power >= 0 {
                    dice.pick(["", "+", "+0"])
                } else {
                    ""
                };
                format!("{first}.{rest}0e{plus}{power}")
            }
            (_, 0) => digits.to_string(),
            _ => format!("{digits}e{exponent}"),
        };
        format!("{sign}{form}")
    }
}

impl Document {
    /// The same value, in its one form.
    pub fn normal(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(number.normal()),
            Self::List(items) => Self::List(items.iter().map(Self::normal).collect()),
            Self::Object(members) => {
                let members = members.iter();
                Self::Object(
                    members
                        .map(|(name, value)| (name.clone(), value.normal()))
                        .collect(),
                )
            }
            other => other.clone(),
        }
    }

    /// Another value, which differs in one place.
    pub fn nudged(&self, dice: &mut Dice) -> Self {
        match self {
            Self::Null => Self::Text("null".to_owned()),
            Self::Bool(value) => Self::Bool(!value),
            Self::Number(number) if number.digits == 0 => Self::Bool(false),
            Self::Number(number) => Self::Number(match dice.upto(3) {
                0 => Decimal {
                    negative: !number.negative,
                    ..*number
                },
                1 => Decimal {
                    digits: number.digits ^ 1,
                    ..*number
                },
                _ => Decimal {
                    exponent: number.exponent.wrapping_add(1),
                    ..*number
                },
            }),
            Self::Text(text) => Self::Text(format!(
                "{text}{}",
                dice.pick(["\u{0}", "\"", " ", "\u{1f600}"])
            )),
            Self::List(items) => {
                let mut items = items.clone();
                let place = dice.upto(items.len() + 1);
                match items.get_mut(place) {
                    Some(item) => *item = item.nudged(dice),
                    None => items.push(Self::Null),
                }
                Self::List(items)
            }
            Self::Object(members) => {
                let mut members = members.clone();
                let place = dice.upto(members.len() + 1);
                match members.keys().nth(place).cloned() {
                    Some(name) if dice.one_in(2) => {
                        let value = members.remove(&name).expect("it is there");
                        // Longer than any other name.
                        let longest = members.keys().map(String::len).max().unwrap_or_default();
                        members.insert(format!("{name}{}", "x".repeat(longest + 1)), value);
                    }
                    Some(name) => {
                        let value = members.get_mut(&name).expect("it is there");
                        *value = value.nudged(dice);
                    }
                    None => {
                        let longest = members.keys().map(String::len).max().unwrap_or_default();
                        members.insert("x".repeat(longest + 1), Self::Null);
                    }
                }
                Self::Object(members)
            }
        }
    }

    /// Returns the number of its levels.
    pub fn depth(&self) -> usize {
        let deepest = match self {
            Self::List(items) => items.iter().map(Self::depth).max(),
            Self::Object(members) => members.values().map(Self::depth).max(),
            _ => None,
        };
        1 + deepest.unwrap_or_default()
    }

    /// One of its texts.
    pub fn text(&self, dice: &mut Dice) -> String {
        let mut text = String::new();
        self.write(&mut text, dice);
        text
    }

    fn write(&self, out: &mut String, dice: &mut Dice) {
        space(out, dice);
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(&number.text(dice)),
            Self::Text(text) => write_text(text, out, dice),
            Self::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    item.write(out, dice);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                dice.0.shuffle(&mut members);
                out.push('{');
                for (place, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    space(out, dice);
                    write_text(name, out, dice);
                    space(out, dice);
                    out.push(':');
                    value.write(out, dice);
                }
                out.push('}');
            }
        }
        space(out, dice);
    }
}

fn space(out: &mut String, dice: &mut Dice) {
    if dice.one_in(6) {
        out.push_str(dice.pick([" ", "\n", "\t", "\r\n", "  "]));
    }
}

fn write_text(text: &str, out: &mut String, dice: &mut Dice) {
    out.push('"');
    for c in text.chars() {
        let must = c < ' ' || matches!(c, '"' | '\\');
        if !must && !dice.one_in(8) {
            out.push(c);
            continue;
        }
        let short = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '/' => "\\/",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            _ => "",
        };
        if !short.is_empty() && dice.one_in(2) {
            out.push_str(short);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let written = if dice.one_in(2) {
                write!(out, "\\u{unit:04x}")
            } else {
                write!(out, "\\u{unit:04X}")
            };
            written.expect("memory");
        }
    }
    out.push('"');
}

/// Chooses between texts of one value; the same seed chooses the same.
pub struct Dice(fastrand::Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn upto(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.upto(times) == 0
    }

    fn pick<const N: usize>(&mut self, from: [&'static str; N]) -> &'static str {
        from[self.upto(N)]
    }
}
