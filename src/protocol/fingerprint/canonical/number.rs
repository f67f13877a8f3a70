//! Writes the canonical form of a number: as RFC 8785 does where a double holds its value, else by
//! its own digits.

/// The number of digits that always survive the round trip through a double.
const SAFE_DIGITS: usize = 15;

pub(super) fn write_number(digits: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // A whole number that a double holds is its own shortest form: JSON allows no leading zeros,
    // and a `-` makes this test fail.
    if digits.len() <= SAFE_DIGITS && digits.iter().all(u8::is_ascii_digit) {
        out.extend_from_slice(digits);
        return Some(());
    }
    let digits = std::str::from_utf8(digits).ok()?;
    let double: f64 = digits.parse().ok()?;
    if double.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let shortest = buffer.format_finite(double);
        if shortest == digits || Decimal::parse(shortest)? == Decimal::parse(digits)? {
            out.extend_from_slice(shortest.as_bytes());
            return Some(());
        }
    }
    out.extend_from_slice(Decimal::parse(digits)?.to_text().as_bytes());
    Some(())
}

/// A decimal number has one form per value: digits without zeros at either end, times a power of
/// ten.
#[derive(Default, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self::default());
        }
        let dropped = i64::try_from(significant.len() - digits.len()).ok()?;
        let exponent = exponent
            .checked_sub(i64::try_from(fraction.len()).ok()?)?
            .checked_add(dropped)?;
        Some(Self {
            negative,
            digits: digits.to_owned(),
            exponent,
        })
    }

    fn to_text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        format!("{sign}{}e{}", self.digits, self.exponent)
    }
}
