//! A rate, with the interval in which the true one lies.

/// The quantile of a normal distribution that leaves 2.5 % above it.
const Z: f64 = 1.959_963_984_540_054;

/// A rate, with the 95 % interval of
/// [Wilson's score](https://www.itl.nist.gov/div898/handbook/prc/section2/prc241.htm), which holds for
/// rates near zero, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The number that was found.
    pub count: u64,
    /// The number that was looked at.
    pub of: u64,
    /// The rate that was found, from 0 to 1.
    pub rate: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Rate {
    /// The rate of so many, among so many that were looked at. Where nothing was looked at, the
    /// interval is from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub fn of(count: u64, of: u64) -> Self {
        if of == 0 {
            return Self {
                count,
                of,
                rate: 0.0,
                low: 0.0,
                high: 1.0,
            };
        }
        let (n, rate) = (of as f64, count as f64 / of as f64);
        let squared = Z * Z;
        let center = (rate + squared / (2.0 * n)) / (1.0 + squared / n);
        let spread = (rate * (1.0 - rate) / n + squared / (4.0 * n * n)).sqrt();
        let half = Z * spread / (1.0 + squared / n);
        Self {
            count,
            of,
            rate,
            low: if count == 0 {
                0.0
            } else {
                (center - half).max(0.0)
            },
            high: if count == of {
                1.0
            } else {
                (center + half).min(1.0)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST's example: 4 of 20. <https://www.itl.nist.gov/div898/handbook/prc/section2/prc241.htm>
    #[test]
    fn the_interval_is_wilsons() {
        let rate = Rate::of(4, 20);
        assert!((rate.low - 0.080_66).abs() < 1e-4, "{rate:?}");
        assert!((rate.high - 0.416_02).abs() < 1e-4, "{rate:?}");
        let none = Rate::of(0, 1_000);
        assert!(
            none.low.abs() < 1e-12 && (none.high - 0.003_827).abs() < 1e-5,
            "{none:?}"
        );
        assert!((Rate::of(0, 0).high - 1.0).abs() < 1e-12);
    }
}
