//! Has nothing but the tests of the attribute `#[idempotent]`, in `tests/`.
