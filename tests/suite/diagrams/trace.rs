//! What happened in a run, in order: the input of the drawings. Pure.

use std::sync::{Arc, Mutex};

/// A participant's place, from the left.
pub(super) type Lane = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A request, or a delivery.
    Call,
    /// An answer.
    Reply,
    /// An answer that refuses.
    Refused,
    /// A request or an answer that doesn't arrive.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Arrow {
        from: Lane,
        to: Lane,
        style: Style,
        lines: Vec<String>,
    },
    /// The participant is at work: its handler runs.
    Begins(Lane),
    Ends(Lane),
    /// The participant dies.
    Dies(Lane, String),
    /// Time passes for all.
    Later(String),
}

/// A picture: what a program can't know of it, and what happened.
pub(super) struct Diagram {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) lanes: Vec<&'static str>,
    pub(super) events: Vec<Event>,
}

/// Collects events; clones are one.
#[derive(Clone, Default)]
pub(super) struct Trace(Arc<Mutex<Vec<Event>>>);

impl Trace {
    pub(super) fn push(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    pub(super) fn arrow(&self, from: Lane, to: Lane, style: Style, text: impl Into<String>) {
        let lines = vec![text.into()];
        self.push(Event::Arrow {
            from,
            to,
            style,
            lines,
        });
    }

    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Breaks a text between words; a no-break space holds two together, and is a space then.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    for line in &mut lines {
        *line = line.replace('\u{a0}', " ");
    }
    lines
}
