//! The number of times that each situation was reached.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

#[derive(Debug, Default)]
pub struct Report {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Report {
    pub fn count(&self, what: &str) {
        self.count_all(what, 1);
    }

    pub fn count_all(&self, what: &str, times: usize) {
        let mut counts = self.counts.lock().expect("not poisoned");
        *counts.entry(what.to_owned()).or_default() += times as u64;
    }

    pub fn of(&self, what: &str) -> u64 {
        let counts = self.counts.lock().expect("not poisoned");
        counts.get(what).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in self.counts.lock().expect("not poisoned").iter() {
            writeln!(f, "{count:>8}  {what}")?;
        }
        Ok(())
    }
}
