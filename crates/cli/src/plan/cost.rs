//! The cost of protection: request units by form, as `docs/operations/deploy.md` and
//! `docs/recipes/transactions.md` count them at the wire. Pure.

use schemars::JsonSchema;
use serde::Serialize;

/// A write unit is for each KB.
const WRITE_UNIT: u64 = 1_024;

/// The requests and the price that the cost is computed from.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cost")]
#[group(requires = "requests")]
pub struct CostArgs {
    /// The number of requests in a month. Without it, no cost is computed.
    #[arg(long, value_name = "NUMBER")]
    pub requests: Option<u64>,
    /// The percentage of requests that are duplicates.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=100), value_name = "PERCENT")]
    pub duplicate_percent: u64,
    /// The size of a record, with its outcome.
    #[arg(long, default_value_t = 400, value_name = "BYTES")]
    pub record_bytes: u64,
    /// The price of a million write units in dollars. The default is us-east-1's on demand, of
    /// November 2026.
    #[arg(long, default_value_t = 0.625, value_parser = price, value_name = "DOLLARS")]
    pub write_price: f64,
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok();
    let is_price = |price: &f64| price.is_finite() && *price >= 0.0;
    price
        .filter(is_price)
        .ok_or_else(|| "give dollars, such as 0.625".to_owned())
}

/// The form of a request's protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A claim, the handler, a completion.
    Claimed,
    /// The same, with the effect and the completion in one transaction.
    Transaction,
    /// One transaction, without a claim before.
    Claimless,
}

impl Form {
    const ALL: [Self; 3] = [Self::Claimed, Self::Transaction, Self::Claimless];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Transaction => "transaction",
            Self::Claimless => "claimless",
        }
    }

    /// The writes of a record's first request: of the claim, and of the completion. A transaction's
    /// count twice.
    fn writes(self) -> (u64, u64) {
        match self {
            Self::Claimed => (1, 1),
            Self::Transaction => (1, 2),
            Self::Claimless => (0, 2),
        }
    }
}

/// The cost of a month's records in one form. The handler's own writes are not in it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    /// The form.
    pub form: Form,
    /// The requests, duplicates among them.
    pub requests: u64,
    /// The duplicates.
    pub duplicates: u64,
    /// The size of a record, with its outcome.
    pub record_bytes: u64,
    /// The write units.
    pub write_units: u64,
    /// The price of the write units, in dollars.
    pub dollars: f64,
}

impl CostArgs {
    /// The cost of each form; nothing where no number of requests is given.
    pub(super) fn of_month(&self) -> Vec<Cost> {
        let Some(requests) = self.requests else {
            return Vec::new();
        };
        Form::ALL
            .into_iter()
            .map(|form| self.of(form, requests))
            .collect()
    }

    fn of(&self, form: Form, requests: u64) -> Cost {
        let percent = |of: u64| of * self.duplicate_percent;
        let duplicates = percent(requests / 100) + percent(requests % 100) / 100;
        let first = requests - duplicates;
        let units = self.record_bytes.div_ceil(WRITE_UNIT).max(1);
        // A claim has no outcome yet.
        let (claims, completions) = form.writes();
        let new = claims + completions * units;
        // A duplicate's claim or transaction is refused, and billed by the record that it meets. A queue's
        // redelivery without a claim reads first, and costs less.
        let refused = match form {
            Form::Claimless => 2 * units,
            _ => units,
        };
        let write_units = first
            .saturating_mul(new)
            .saturating_add(duplicates.saturating_mul(refused));
        #[expect(clippy::cast_precision_loss, reason = "a price")]
        let dollars = write_units as f64 * self.write_price / 1_000_000.0;
        Cost {
            form,
            requests,
            duplicates,
            record_bytes: self.record_bytes,
            write_units,
            dollars,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(requests: u64, duplicate_percent: u64, record_bytes: u64) -> CostArgs {
        CostArgs {
            requests: Some(requests),
            duplicate_percent,
            record_bytes,
            write_price: 0.625,
        }
    }

    /// The page's figures are counted at the wire, by other tests.
    #[test]
    fn a_million_requests_cost_what_the_page_says() {
        let page = include_str!("../../../../docs/operations/deploy.md");
        let row = |name: &str| {
            let row = page
                .lines()
                .find(|line| line.starts_with(&format!("| {name}")))
                .unwrap();
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let units = cells[2].split(' ').next().unwrap().replace(',', "");
            (
                units.parse::<u64>().unwrap(),
                cells[5].trim_start_matches('$').parse::<f64>().unwrap(),
            )
        };
        for (name, percent, form) in [
            ("new requests over HTTP", 0, Form::Claimed),
            (
                "the same, with the effect in one transaction",
                0,
                Form::Transaction,
            ),
            ("replayed requests", 100, Form::Claimed),
        ] {
            let (units, dollars) = row(name);
            let costs = args(1_000_000, percent, 400).of_month();
            let cost = costs.iter().find(|cost| cost.form == form).unwrap();
            assert_eq!(cost.write_units, units, "{name}");
            assert!(
                (cost.dollars - dollars).abs() < 0.006,
                "{name}: {} and {dollars}",
                cost.dollars
            );
        }
    }

    /// The rows of a page's table that begin so, each cell a number.
    fn row(page: &str, name: &str) -> Vec<f64> {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {name} |")))
            .unwrap();
        let cells = row.trim_matches('|').split('|').skip(1);
        cells
            .map(|cell| cell.trim().replace([',', '$'], "").parse().unwrap())
            .collect()
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
    fn the_page_on_scale_has_what_is_computed() {
        let page = include_str!("../../../../docs/operations/scale.md");
        let sizes = [400, 2_048, 8_192];
        let units = |form: Form, percent| {
            sizes.map(|size| {
                let costs = args(100, percent, size).of_month();
                let cost = costs.iter().find(|cost| cost.form == form).unwrap();
                cost.write_units as f64 / 100.0
            })
        };
        for (name, form) in [
            ("this library, claimed", Form::Claimed),
            (
                "this library, claimed, in one transaction with the effect",
                Form::Transaction,
            ),
            (
                "this library, claimless, in one transaction with the effect",
                Form::Claimless,
            ),
            // A put of what fits in a unit, then an update of the whole record.
            ("Powertools: a put and an update", Form::Claimed),
        ] {
            assert_eq!(row(page, name), units(form, 0), "{name}");
        }
        let [small, middle, large] = units(Form::Claimed, 100);
        let duplicates = format!("as its record has KB: {small}, {middle} and {large}.");
        assert!(page.contains(&duplicates), "{duplicates}");

        for (name, a_second) in [("100", 100), ("10,000", 10_000), ("100,000", 100_000)] {
            let hour = args(a_second * 3_600, 0, 400).of_month().remove(0);
            let written = hour.write_units as f64 / 3_600.0;
            let expected = [
                written,
                (written / 1_000.0).ceil(),
                hour.dollars,
                hour.dollars * 24.0 * 30.0,
            ];
            assert_eq!(row(page, name), expected, "{name}");
        }
    }

    #[test]
    fn a_large_outcome_costs_a_unit_for_each_kilobyte() {
        let costs = args(100, 10, 5_000).of_month();
        let units: Vec<_> = costs.iter().map(|cost| cost.write_units).collect();
        // 90 new, with five units for the outcome; 10 duplicates.
        assert_eq!(
            units,
            [90 * 6 + 10 * 5, 90 * 11 + 10 * 5, 90 * 10 + 10 * 10]
        );
        assert!(
            CostArgs {
                requests: None,
                ..args(0, 0, 0)
            }
            .of_month()
            .is_empty()
        );
    }
}
