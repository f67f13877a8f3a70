//! Draws a diagram as SVG: for a page of any colour, and for a phone. Pure.
//!
//! Lines and text have the colour of the text around an inlined picture. One that stands alone (`<img>`) is the root of its document, and
//! brings colours for light and dark. Text cuts the lifelines that it crosses, by a mask, since what is behind the picture isn't known.

use std::fmt::Write;

use super::trace::{Diagram, Event, Lane, Style, wrapped};

pub(super) const WIDTH: f64 = 420.0;
const MARGIN: f64 = 44.0;
pub(super) const FONT: f64 = 13.0;
pub(super) const LINE: f64 = 16.0;
/// An average character of a sans-serif font, in parts of its size; a little wide, so that no text is cut.
const ADVANCE: f64 = 0.55;
/// Characters of a line: what the width has room for.
const CHARACTERS: usize = 56;
/// For shapes alone: no colour has the contrast that text needs on white and on dark pages.
pub(super) const WORK: &str = "#2a78e6";
pub(super) const REFUSED: &str = "#d1570f";

pub(super) fn draw(diagram: &Diagram) -> String {
    let mut sheet = Sheet::new(diagram);
    for event in &diagram.events {
        sheet.draw(event);
    }
    sheet.finish(diagram)
}

struct Sheet {
    x: Vec<f64>,
    y: f64,
    /// Since where each lane's handler runs.
    busy: Vec<Option<f64>>,
    bars: String,
    shapes: String,
    cuts: String,
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn width(text: &str) -> f64 {
    f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX)) * FONT * ADVANCE
}

impl Sheet {
    fn new(diagram: &Diagram) -> Self {
        let lanes = diagram.lanes.len();
        let gaps = f64::from(u32::try_from(lanes - 1).unwrap());
        let step = (WIDTH - 2.0 * MARGIN) / gaps;
        let x = (0..lanes)
            .map(|lane| MARGIN + step * f64::from(u32::try_from(lane).unwrap()))
            .collect();
        Self {
            x,
            y: 44.0,
            busy: vec![None; lanes],
            bars: String::new(),
            shapes: String::new(),
            cuts: String::new(),
        }
    }

    fn draw(&mut self, event: &Event) {
        match event {
            Event::Begins(lane) => self.busy[*lane] = Some(self.y),
            Event::Ends(lane) => self.end(*lane),
            Event::Dies(lane, why) => {
                self.text(self.x[*lane], std::slice::from_ref(why), "refused");
                let (x, y) = (self.x[*lane], self.y + 4.0);
                self.y = y;
                self.end(*lane);
                self.cross(x, y, 6.0);
                self.y += 12.0;
            }
            Event::Later(text) => {
                self.y += 6.0;
                self.text(WIDTH / 2.0, std::slice::from_ref(text), "later");
                self.y += 6.0;
            }
            Event::Arrow {
                from,
                to,
                style,
                lines,
            } => self.arrow(*from, *to, *style, lines),
        }
    }

    /// The handler on this lane has ended.
    fn end(&mut self, lane: Lane) {
        if let Some(since) = self.busy[lane].take() {
            let (x, height) = (self.x[lane] - 5.0, self.y - since);
            writeln!(
                self.bars,
                r#"<rect class="sq-work" x="{x:.1}" y="{since:.1}" width="10" height="{height:.1}" rx="2"/>"#
            )
            .unwrap();
        }
    }

    fn cross(&mut self, x: f64, y: f64, arm: f64) {
        let (left, right, top, bottom) = (x - arm, x + arm, y - arm, y + arm);
        writeln!(
            self.shapes,
            r#"<path class="sq-cross" d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{right:.1} {top:.1}L{left:.1} {bottom:.1}"/>"#
        )
        .unwrap();
    }

    /// Lines of text around this place, as far as the picture is wide; below what is there.
    fn text(&mut self, middle: f64, lines: &[String], class: &str) {
        let lines: Vec<_> = lines
            .iter()
            .flat_map(|line| wrapped(line, CHARACTERS))
            .collect();
        let widest = lines.iter().map(|line| width(line)).fold(0.0, f64::max);
        let half = widest / 2.0;
        let middle = middle.clamp(half.min(WIDTH / 2.0), (WIDTH - half).max(WIDTH / 2.0));
        for line in &lines {
            self.y += LINE;
            let (left, top, wide) = (
                middle - width(line) / 2.0 - 3.0,
                self.y - 12.0,
                width(line) + 6.0,
            );
            writeln!(
                self.cuts,
                r##"<rect x="{left:.1}" y="{top:.1}" width="{wide:.1}" height="{LINE}" fill="#000"/>"##
            )
            .unwrap();
            let (baseline, text) = (self.y, escaped(line));
            writeln!(
                self.shapes,
                r#"<text class="sq-{class}" x="{middle:.1}" y="{baseline:.1}">{text}</text>"#
            )
            .unwrap();
        }
    }

    fn arrow(&mut self, from: Lane, to: Lane, style: Style, lines: &[String]) {
        let class = match style {
            Style::Call => "call",
            Style::Reply => "reply",
            Style::Refused | Style::Lost => "refused",
        };
        self.y += 4.0;
        self.text(f64::midpoint(self.x[from], self.x[to]), lines, class);
        self.y += 9.0;
        let direction = if from < to { 1.0 } else { -1.0 };
        let edge = |lane: Lane, towards: f64| {
            self.x[lane] + towards * if self.busy[lane].is_some() { 6.0 } else { 1.0 }
        };
        let (begin, mut end) = (edge(from, direction), edge(to, -direction));
        if style == Style::Lost {
            end = f64::midpoint(begin, end);
        }
        let (y, neck) = (self.y, end - direction * 7.0);
        let tail = if style == Style::Lost { end } else { neck };
        writeln!(
            self.shapes,
            r#"<path class="sq-line sq-{class}-line" d="M{begin:.1} {y:.1}H{tail:.1}"/>"#
        )
        .unwrap();
        if style == Style::Lost {
            self.cross(end, y, 5.0);
        } else {
            let (top, bottom) = (y - 4.5, y + 4.5);
            writeln!(
                self.shapes,
                r#"<path class="sq-head sq-{class}-head" d="M{end:.1} {y:.1}L{neck:.1} {top:.1}V{bottom:.1}Z"/>"#
            )
            .unwrap();
        }
        self.y += 5.0;
    }

    fn finish(mut self, diagram: &Diagram) -> String {
        for lane in 0..self.x.len() {
            self.end(lane);
        }
        let (name, title, description) = (
            diagram.name,
            escaped(diagram.title),
            escaped(diagram.description),
        );
        let bottom = self.y + 8.0;
        let height = bottom + 4.0;
        let mut heads = String::new();
        let mut lifelines = String::new();
        for (x, lane) in self.x.iter().zip(&diagram.lanes) {
            writeln!(
                heads,
                r#"<text class="sq-lane" x="{x:.1}" y="20">{}</text>"#,
                escaped(lane)
            )
            .unwrap();
            writeln!(
                lifelines,
                r#"<path class="sq-life" d="M{x:.1} 30V{bottom:.1}"/>"#
            )
            .unwrap();
        }
        let Self {
            bars, shapes, cuts, ..
        } = self;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-labelledby="sq-{name}-t sq-{name}-d" class="sequence">
<title id="sq-{name}-t">{title}</title>
<desc id="sq-{name}-d">{description}</desc>
<style>
svg:root {{ color: #1f2328; }}
@media (prefers-color-scheme: dark) {{ svg:root {{ color: #e6edf3; }} }}
.sequence text {{ font: {FONT}px system-ui, sans-serif; fill: currentColor; text-anchor: middle; }}
.sequence .sq-lane {{ font-weight: 600; }}
.sequence .sq-later {{ font-style: italic; }}
.sq-life {{ stroke: currentColor; opacity: 0.45; stroke-dasharray: 4 3; }}
.sq-work {{ fill: {WORK}; }}
.sq-line {{ stroke: currentColor; stroke-width: 1.3; fill: none; }}
.sq-reply-line, .sq-refused-line {{ stroke-dasharray: 5 3; }}
.sq-refused-line, .sq-cross {{ stroke: {REFUSED}; }}
.sq-head {{ fill: currentColor; }}
.sq-refused-head {{ fill: {REFUSED}; }}
.sq-cross {{ stroke-width: 2.4; fill: none; }}
</style>
<mask id="sq-{name}-m" maskUnits="userSpaceOnUse" x="0" y="0" width="{WIDTH}" height="{height:.0}">
<rect width="{WIDTH}" height="{height:.0}" fill="#fff"/>
{cuts}</mask>
{heads}<g mask="url(#sq-{name}-m)">
{lifelines}{bars}</g>
{shapes}</svg>
"##
        )
    }
}

/// What follows `data:image/svg+xml,` in the address that is this picture: <https://www.rfc-editor.org/rfc/rfc2397>.
pub(super) fn address(svg: &str) -> String {
    let mut address = String::new();
    for byte in svg.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:;,=".contains(&byte) {
            address.push(byte.into());
        } else {
            write!(address, "%{byte:02X}").unwrap();
        }
    }
    address
}

/// Backgrounds: mdBook's themes, as `css/variables.css` of mdBook 0.5 has them; GitHub's; an editor's preview.
const PAGES: [(&str, &str); 8] = [
    ("mdBook, light", "#ffffff"),
    ("mdBook, rust", "#e1e1db"),
    ("mdBook, coal", "#131516"),
    ("mdBook, navy", "#161923"),
    ("mdBook, ayu", "#0f1419"),
    ("GitHub, light", "#ffffff"),
    ("GitHub, dark", "#0d1117"),
    ("an editor, dark", "#1e1e1e"),
];

/// How light a colour is: <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>.
fn luminance(colour: &str) -> f64 {
    let channel = |from: usize| {
        let value = u8::from_str_radix(&colour[from..from + 2], 16).unwrap();
        let part = f64::from(value) / 255.0;
        if part <= 0.04045 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (a, b) = (luminance(one), luminance(other));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_can_be_told_on_light_and_dark_pages() {
    for (page, background) in PAGES {
        for colour in [REFUSED, WORK] {
            let contrast = contrast(colour, background);
            assert!(contrast >= 3.0, "{colour} on {page}: {contrast:.2}");
        }
    }
}
