//! Times as people and programs read them.

use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use lambda_idempotency::EpochMillis;

/// The time in UTC, to the millisecond where it has any: `2026-11-23T03:12:00Z`. A number that no
/// calendar has stays a number.
pub(crate) fn text(at: EpochMillis) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| format!("{} ms", at.0), |at| at.to_string())
}

/// Words the distance of a time from now, for an operator: `in 2m 5s`, `3h ago`.
pub(crate) fn distance(at: EpochMillis, now: EpochMillis) -> String {
    let (earlier, later) = if at < now { (at, now) } else { (now, at) };
    let seconds = later.saturating_since(earlier).as_secs();
    let days = seconds / 86_400;
    let (hours, minutes, rest) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let length = match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, minutes) => format!("{minutes}m {rest}s"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    };
    if at < now {
        format!("{length} ago")
    } else {
        format!("in {length}")
    }
}

/// A length of time, as the flags take it: in days, hours, minutes and seconds.
pub(crate) fn length(of: Duration) -> String {
    let days = of.as_secs() / 86_400;
    let rest = of.saturating_sub(Duration::from_secs(days * 86_400));
    match (days, rest.is_zero()) {
        (0, _) => humantime::format_duration(rest).to_string(),
        (days, true) => format!("{days}days"),
        (days, false) => format!("{days}days {}", humantime::format_duration(rest)),
    }
}

/// The longest time that a flag takes: with it, no sum of times leaves the calendar.
const LONGEST: Duration = Duration::from_hours(100 * 366 * 24);

/// A length of time as an operator gives it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration > LONGEST {
        return Err("give at most a hundred years".to_owned());
    }
    Ok(duration)
}

/// The forms of a time.
const FORMS: &str = "give a time such as 2026-11-23T03:12:00Z, or its epoch seconds (10 digits) or \
    milliseconds (13 digits)";

/// The milliseconds that a number may stand for, from September 2001 to 2200. No number is both
/// seconds and milliseconds of these years. A date without dashes is neither, unless it ends with
/// its hour, as [`is_date_and_hour`] says.
const OF_NUMBERS: Range<i64> = 1_000_000_000_000..7_258_118_400_000;

/// Returns whether the ten digits of a number read as a date and its hour, from 2020 to 2099:
/// `2026112303`. As seconds they are times from 2034 to 2036.
fn is_date_and_hour(number: i64) -> bool {
    let (year, month) = (number / 1_000_000, number / 10_000 % 100);
    let (day, hour) = (number / 100 % 100, number % 100);
    (2020..2100).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
}

/// A time as an operator gives it: RFC 3339, or epoch seconds or milliseconds.
pub(crate) fn parse(text: &str) -> Result<EpochMillis, String> {
    if let Ok(number) = text.parse::<i64>() {
        if is_date_and_hour(number) {
            return Err(format!("it reads as a date and its hour: {FORMS}"));
        }
        let mut millis = [number.saturating_mul(1_000), number].into_iter();
        let at = millis.find(|millis| OF_NUMBERS.contains(millis));
        return at
            .map(EpochMillis)
            .ok_or_else(|| format!("it is no time from 2001 to 2200: {FORMS}"));
    }
    text.parse::<Timestamp>()
        .map(|at| EpochMillis(at.as_millisecond()))
        .map_err(|error| format!("{error}: {FORMS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for millis in [0, 1_764_000_000_000, 1_764_000_000_123] {
            assert_eq!(parse(&text(EpochMillis(millis))), Ok(EpochMillis(millis)));
        }
        assert_eq!(parse("1764000000"), Ok(EpochMillis(1_764_000_000_000)));
        assert_eq!(parse("1764000000123"), Ok(EpochMillis(1_764_000_000_123)));
        assert!(parse("yesterday").is_err_and(|words| words.contains("2026-11-23T03:12:00Z")));
    }

    #[test]
    fn a_length_is_read_as_it_is_written() {
        for (seconds, words) in [
            (42 * 86_400, "42days"),
            (185, "3m 5s"),
            (90_000, "1days 1h"),
            (0, "0s"),
        ] {
            let length_of = Duration::from_secs(seconds);
            assert_eq!(length(length_of), words);
            assert_eq!(humantime::parse_duration(words), Ok(length_of));
        }
    }

    #[test]
    fn a_number_that_is_no_time_of_these_years_is_refused() {
        for text in [
            "20",
            "2026",
            "20261123",
            "2020010100",
            "2026112303",
            "2099123123",
            "202611230312",
            "20261123031200",
            "999999999",
            "7258118400",
            "-1764000000",
            "9223372036854775807",
            "-9223372036854775808",
        ] {
            let is_said = |words: String| words.contains("2026-11-23T03:12:00Z");
            assert!(parse(text).is_err_and(is_said), "{text}");
        }
        assert_eq!(parse("1000000000"), Ok(EpochMillis(1_000_000_000_000)));
        assert_eq!(parse("7258118399"), Ok(EpochMillis(7_258_118_399_000)));
        for number in [
            2_019_123_123,
            2_026_112_324,
            2_026_113_200,
            2_026_110_000,
            2_026_130_100,
            2_026_000_100,
            2_100_010_100,
        ] {
            let seconds = parse(&number.to_string());
            assert_eq!(seconds, Ok(EpochMillis(number * 1_000)), "{number}");
        }
    }

    #[test]
    fn what_no_calendar_has_is_refused() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for text in ["500000000000years", "101years", "584554531years"] {
            assert!(
                duration(text).is_err_and(|words| words.contains("hundred years")),
                "{text}"
            );
        }
        assert!(duration("99999999999999999999s").is_err());
    }

    #[test]
    fn a_number_that_no_calendar_has_stays_a_number() {
        assert_eq!(text(EpochMillis(i64::MAX)), "9223372036854775807 ms");
    }

    #[test]
    fn a_distance_has_two_units() {
        let now = EpochMillis(1_000_000_000);
        for (seconds, words) in [
            (-5, "5s ago"),
            (65, "in 1m 5s"),
            (-7_260, "2h 1m ago"),
            (180_000, "in 2d 2h"),
            (0, "in 0s"),
        ] {
            assert_eq!(distance(EpochMillis(now.0 + seconds * 1_000), now), words);
        }
    }
}
