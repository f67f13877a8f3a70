//! Decisions as pictures: questions from the top, the first "yes" has the answer at its right. Pure.

use std::fmt::Write;

use super::svg::{FONT, LINE, WIDTH, WORK, escaped};
use super::trace::wrapped;

/// A decision. What is chosen where each answer is no comes last.
pub(super) struct Choice {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) questions: &'static [(&'static str, &'static str)],
    pub(super) otherwise: &'static str,
}

pub(super) const CHOICES: [Choice; 2] = [
    Choice {
        name: "choose-form",
        title: "Which form for which effect",
        description: "Ask from the top, and take the first form whose question you answer with yes.",
        questions: &[
            (
                "Does a repetition harm nothing: a cache, a read?",
                "No form: the handler may run twice",
            ),
            (
                "Does the handler nothing but read, and hand writes to DynamoDB over to the claim?",
                "Claimless: once.claimless, one transaction at the end",
            ),
            (
                "Is each effect a write to DynamoDB?",
                "Claim + transaction: claim.write",
            ),
            (
                "Are there several effects outside, one after the other?",
                "Claim + steps: claim.step; without keys at a provider, Crashed::Interrupt for its step",
            ),
            (
                "Does the provider of the effect honour idempotency keys?",
                "Claim + derived key: claim.derive_key",
            ),
        ],
        otherwise: "Claim, and Crashed::Interrupt: after a crash nothing runs until a person has looked",
    },
    Choice {
        name: "choose-key",
        title: "Which key",
        description: "Ask from the top, and take the first key whose question you answer with yes.",
        questions: &[
            (
                "Has the payload an identity of the work: an order's number, an event's id?",
                "That: by closure, pointer or JMESPath",
            ),
            (
                "Do you write the client or the producer?",
                "Let it make a key for each request, and send the same with each retry",
            ),
            (
                "Is it in an envelope of SNS, EventBridge or S3?",
                "The envelope's id: .envelope(…)",
            ),
            (
                "Is it certain that nothing sends the same work twice?",
                "The delivery's id: the source's default",
            ),
        ],
        otherwise: "Have the producer add an identity. A hash of the payload would make one of two equal requests",
    },
];

pub(super) fn text(choice: &Choice) -> String {
    let mut drawing = format!("{}\n\n{}\n\n", choice.title, choice.description);
    for (question, answer) in choice.questions {
        writeln!(drawing, "{question}").unwrap();
        writeln!(drawing, "├─ yes ─▶ {answer}").unwrap();
        writeln!(drawing, "│ no\n▼").unwrap();
    }
    writeln!(drawing, "{}", choice.otherwise).unwrap();
    drawing
}

const PADDING: f64 = 9.0;
const QUESTION: f64 = 206.0;
const ANSWER_LEFT: f64 = 256.0;
const GAP: f64 = 26.0;

/// Lines of text in a box; the box's height.
fn boxed(shapes: &mut String, class: &str, left: f64, top: f64, width: f64, text: &str) -> f64 {
    let characters = if width > 250.0 {
        56
    } else if class == "question" {
        27
    } else {
        20
    };
    let lines = wrapped(text, characters);
    let count = f64::from(u32::try_from(lines.len()).unwrap());
    let height = count * LINE + 2.0 * PADDING;
    writeln!(
        shapes,
        r#"<rect class="ch-{class}" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" rx="5"/>"#
    )
    .unwrap();
    let mut baseline = top + PADDING - 4.0;
    let middle = left + width / 2.0;
    for line in lines {
        baseline += LINE;
        let line = escaped(&line);
        writeln!(
            shapes,
            r#"<text x="{middle:.1}" y="{baseline:.1}">{line}</text>"#
        )
        .unwrap();
    }
    height
}

fn arrow_right(shapes: &mut String, from: f64, to: f64, y: f64) {
    let (neck, above, below, word) = (to - 7.0, y - 4.5, y + 4.5, y - 5.0);
    let middle = f64::midpoint(from, neck);
    writeln!(
        shapes,
        r#"<path class="ch-line" d="M{from:.1} {y:.1}H{neck:.1}"/><path class="ch-head" d="M{to:.1} {y:.1}L{neck:.1} {above:.1}V{below:.1}Z"/><text x="{middle:.1}" y="{word:.1}">yes</text>"#
    )
    .unwrap();
}

fn arrow_down(shapes: &mut String, x: f64, from: f64, to: f64) {
    let (neck, before, after, word) = (to - 7.0, x - 4.5, x + 4.5, x + 14.0);
    let beside = f64::midpoint(from, to) + 3.0;
    writeln!(
        shapes,
        r#"<path class="ch-line" d="M{x:.1} {from:.1}V{neck:.1}"/><path class="ch-head" d="M{x:.1} {to:.1}L{before:.1} {neck:.1}H{after:.1}Z"/><text x="{word:.1}" y="{beside:.1}">no</text>"#
    )
    .unwrap();
}

pub(super) fn svg(choice: &Choice) -> String {
    let mut shapes = String::new();
    let mut top = 4.0;
    let left = 2.0;
    for (question, answer) in choice.questions {
        let answer_width = WIDTH - ANSWER_LEFT - 2.0;
        // Drawn once to know their heights, then in their places.
        let mut scratch = String::new();
        let height = boxed(&mut scratch, "question", 0.0, 0.0, QUESTION, question);
        let answer_height = boxed(&mut scratch, "answer", 0.0, 0.0, answer_width, answer);
        let middle = top + height.max(answer_height) / 2.0;
        let (half, answer_half) = (height / 2.0, answer_height / 2.0);
        boxed(
            &mut shapes,
            "question",
            left,
            middle - half,
            QUESTION,
            question,
        );
        boxed(
            &mut shapes,
            "answer",
            ANSWER_LEFT,
            middle - answer_half,
            answer_width,
            answer,
        );
        arrow_right(&mut shapes, left + QUESTION, ANSWER_LEFT, middle);
        top = middle + half.max(answer_half - GAP / 2.0) + GAP;
        arrow_down(&mut shapes, left + QUESTION / 2.0, middle + half, top);
    }
    let width = WIDTH - 4.0;
    let height = top + boxed(&mut shapes, "answer", left, top, width, choice.otherwise) + 4.0;
    let (name, title, description) = (choice.name, choice.title, choice.description);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-labelledby="ch-{name}-t ch-{name}-d" class="choice">
<title id="ch-{name}-t">{title}</title>
<desc id="ch-{name}-d">{description}</desc>
<style>
svg:root {{ color: #1f2328; }}
@media (prefers-color-scheme: dark) {{ svg:root {{ color: #e6edf3; }} }}
.choice text {{ font: {FONT}px system-ui, sans-serif; fill: currentColor; text-anchor: middle; }}
.ch-question {{ fill: none; stroke: currentColor; stroke-width: 1.2; }}
.ch-answer {{ fill: {WORK}; fill-opacity: 0.16; stroke: {WORK}; stroke-width: 1.5; }}
.ch-line {{ stroke: currentColor; stroke-width: 1.3; fill: none; }}
.ch-head {{ fill: currentColor; }}
</style>
{shapes}</svg>
"#
    )
}
