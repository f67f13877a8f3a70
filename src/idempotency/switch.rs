//! Reads the kill switch from the environment.

/// The environment variable that switches protection off: `IDEMPOTENCY_DISABLED=true`.
///
/// It takes `true`, `1`, `yes` and `on` in any case. `false`, `0`, `no`, `off` and an empty value
/// leave protection on; so does any other word, with a warning.
pub const DISABLED_VARIABLE: &str = "IDEMPOTENCY_DISABLED";

/// Tells whether the environment switches protection off.
pub(super) fn is_thrown() -> bool {
    let Some(value) = std::env::var_os(DISABLED_VARIABLE) else {
        return false;
    };
    let value = value.to_string_lossy();
    read(&value).unwrap_or_else(|| {
        tracing::warn!(
            event = "switch_unknown",
            variable = DISABLED_VARIABLE,
            value = &*value,
            "the value is none of true, 1, yes, on, false, 0, no, off: protection stays on"
        );
        false
    })
}

/// Reads the word; `None` where it is unknown.
fn read(word: &str) -> Option<bool> {
    match word.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "" | "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_words_throw_the_switch_or_leave_it() {
        for word in ["true", " TRUE ", "True", "1", "yes", "YES", "on", "On"] {
            assert_eq!(read(word), Some(true), "{word:?}");
        }
        for word in ["", "false", "FALSE", "0", "no", "No", "off"] {
            assert_eq!(read(word), Some(false), "{word:?}");
        }
        for word in ["ture", "2", "enabled", "disabled", "yes please"] {
            assert_eq!(read(word), None, "{word:?}");
        }
    }
}
