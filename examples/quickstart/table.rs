//! The figures, and what they should be.

use std::fmt;

/// What one scene counted, or should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub deliveries: usize,
    pub runs: usize,
    pub replays: usize,
    pub refusals: usize,
    pub requests: usize,
}

#[derive(Default)]
pub struct Table {
    scenes: Vec<(&'static str, Figures, Figures)>,
}

impl Table {
    pub fn add(&mut self, scene: &'static str, counted: Figures, expected: Figures) {
        self.scenes.push((scene, counted, expected));
    }

    /// Whether every figure is what it should be. A table without scenes shows nothing.
    pub fn is_right(&self) -> bool {
        !self.scenes.is_empty()
            && self
                .scenes
                .iter()
                .all(|(_, counted, expected)| counted == expected)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = [
            "deliveries",
            "handler runs",
            "replays",
            "refusals",
            "store requests",
        ];
        write!(f, "\n{:<52}", "")?;
        for head in heads {
            write!(f, "{head:>16}")?;
        }
        writeln!(f)?;
        for (scene, counted, expected) in &self.scenes {
            write!(f, "{scene:<52}")?;
            for (value, should) in columns(counted).into_iter().zip(columns(expected)) {
                let shown = if value == should {
                    value.to_string()
                } else {
                    format!("! {value}, not {should}")
                };
                write!(f, "{shown:>16}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn columns(figures: &Figures) -> [usize; 5] {
    [
        figures.deliveries,
        figures.runs,
        figures.replays,
        figures.refusals,
        figures.requests,
    ]
}
