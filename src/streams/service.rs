//! Compares the service that an event names with the one whose events are expected. Pure.

/// Reports an event that another service made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is an event of {found}, not of {expected}: connect the function to a source of {expected}, or use the layer for {found}"
)]
pub(crate) struct OtherService {
    found: String,
    expected: &'static str,
}

/// Checks the service that a record names. A record that names none passes: its id is still
/// required.
pub(crate) fn check_service(
    found: Option<String>,
    expected: &'static str,
) -> Result<(), OtherService> {
    match found {
        Some(found) if found != expected => Err(OtherService { found, expected }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_service_is_named_beside_the_expected_one() {
        let of = |service: &str| check_service(Some(service.to_owned()), "aws:kinesis");
        assert_eq!(of("aws:kinesis"), Ok(()));
        assert_eq!(check_service(None, "aws:kinesis"), Ok(()));
        let said = of("aws:sqs").unwrap_err().to_string();
        assert!(
            said.starts_with("this is an event of aws:sqs, not of aws:kinesis"),
            "{said}"
        );
    }
}
