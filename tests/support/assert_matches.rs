//! The standard library's `assert_matches!`, which the oldest supported Rust doesn't have. Each crate of tests names this file.

/// Panics, with the value, unless it matches the pattern. A text says which of several cases it was.
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)?) => {
        assert_matches!($value, $pattern $(if $guard)?, "{}", stringify!($value))
    };
    ($value:expr, $pattern:pat $(if $guard:expr)?, $($case:tt)+) => {
        match $value {
            $pattern $(if $guard)? => {}
            ref value => panic!(
                "{}: {value:?} is no {}",
                format_args!($($case)+),
                stringify!($pattern $(if $guard)?)
            ),
        }
    };
}
