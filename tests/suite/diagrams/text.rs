//! Draws a diagram with the characters of a terminal, in at most 100 columns. Pure.

use std::fmt::Write;

use super::trace::{Diagram, Event, Lane, Style, wrapped};

const SPACING: usize = 11;
pub(super) const COLUMNS: usize = 100;

pub(super) fn draw(diagram: &Diagram) -> String {
    let mut drawing = format!("{}\n\n", diagram.title);
    for line in wrapped(diagram.description, COLUMNS) {
        writeln!(drawing, "{line}").unwrap();
    }
    drawing.push('\n');
    let header = diagram
        .lanes
        .iter()
        .fold(String::new(), |mut header, lane| {
            write!(header, "{lane:<SPACING$}").unwrap();
            header
        });
    writeln!(drawing, "{}", header.trim_end()).unwrap();
    let mut sheet = Sheet {
        busy: vec![false; diagram.lanes.len()],
        drawing,
    };
    for event in &diagram.events {
        sheet.draw(event);
    }
    sheet.drawing
}

struct Sheet {
    busy: Vec<bool>,
    drawing: String,
}

fn column(lane: Lane) -> usize {
    lane * SPACING + 2
}

impl Sheet {
    fn draw(&mut self, event: &Event) {
        match event {
            Event::Begins(lane) => self.busy[*lane] = true,
            Event::Ends(lane) => self.busy[*lane] = false,
            Event::Dies(lane, why) => {
                self.busy[*lane] = false;
                let mut row = self.lifelines();
                row[column(*lane)] = '✕';
                self.row(&row, std::slice::from_ref(why));
            }
            Event::Later(text) => {
                let width = self.busy.len() * SPACING;
                let row: Vec<_> = "┄".repeat(width - SPACING + 5).chars().collect();
                self.row(&row, std::slice::from_ref(text));
            }
            Event::Arrow {
                from,
                to,
                style,
                lines,
            } => {
                let row = self.arrow(*from, *to, *style);
                self.row(&row, lines);
            }
        }
    }

    fn lifelines(&self) -> Vec<char> {
        let mut row = vec![' '; self.busy.len() * SPACING];
        for (lane, busy) in self.busy.iter().enumerate() {
            row[column(lane)] = if *busy { '┃' } else { '│' };
        }
        row
    }

    fn arrow(&self, from: Lane, to: Lane, style: Style) -> Vec<char> {
        let mut row = self.lifelines();
        let (left, right) = (column(from.min(to)), column(from.max(to)));
        let line = if matches!(style, Style::Call) {
            '─'
        } else {
            '╌'
        };
        row[left + 1..right].fill(line);
        let head = match (style, from < to) {
            (Style::Lost, _) => '✕',
            (_, true) => '▶',
            (_, false) => '◀',
        };
        // One that doesn't arrive ends half way.
        match (style, from < to) {
            (Style::Lost, true) => {
                let middle = usize::midpoint(left, right);
                row[middle] = head;
                row[middle + 1..right].fill(' ');
            }
            (Style::Lost, false) => {
                let middle = usize::midpoint(left, right);
                row[middle] = head;
                row[left + 1..middle].fill(' ');
            }
            (_, true) => row[right - 1] = head,
            (_, false) => row[left + 1] = head,
        }
        row
    }

    /// A row of the drawing with its text at the right, and further rows where the text needs them.
    fn row(&mut self, row: &[char], lines: &[String]) {
        let width = self.busy.len() * SPACING;
        let mut row: String = row.iter().collect();
        let texts = lines.iter().flat_map(|line| wrapped(line, COLUMNS - width));
        for text in texts {
            let padding = width - row.chars().count();
            let line = format!("{row}{}{text}", " ".repeat(padding));
            writeln!(self.drawing, "{}", line.trim_end()).unwrap();
            row = self.lifelines().iter().collect();
        }
    }
}
