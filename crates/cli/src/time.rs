//! Times as people and programs read them.

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

/// A time as an operator gives it: RFC 3339, or epoch seconds or milliseconds.
pub(crate) fn parse(text: &str) -> Result<EpochMillis, String> {
    if let Ok(number) = text.parse::<i64>() {
        // Seconds stay below this for 3,000 years.
        let is_millis = number.unsigned_abs() >= 100_000_000_000;
        let millis = if is_millis {
            number
        } else {
            number.saturating_mul(1_000)
        };
        let at = Timestamp::from_millisecond(millis);
        return at
            .map(|_| EpochMillis(millis))
            .map_err(|_| "no calendar has this time: give epoch seconds".to_owned());
    }
    text.parse::<Timestamp>()
        .map(|at| EpochMillis(at.as_millisecond()))
        .map_err(|error| {
            format!("{error}: give a time such as 2026-11-23T03:12:00Z, or epoch seconds")
        })
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
    fn what_no_calendar_has_is_refused() {
        for text in ["9223372036854775807", "-9223372036854775808"] {
            assert!(parse(text).is_err_and(|words| words.contains("calendar")));
        }
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
