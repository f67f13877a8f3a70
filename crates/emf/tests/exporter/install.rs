//! The installation of an exporter.

use lambda_idempotency_emf::{Builder, InstallError};

#[test]
fn a_namespace_that_cloudwatch_would_drop_is_refused() {
    let with = |namespace: &str| Builder::default().namespace(namespace).build();
    for accepted in ["Shop", "Shop/Orders v2", "a#b:c-d_e.f", &"n".repeat(255)] {
        assert!(with(accepted).is_ok(), "{accepted}");
    }
    let too_long = "n".repeat(256);
    for refused in ["", " ", ":Shop", "AWS/Lambda", "Läden", "a\nb", &too_long] {
        let error = with(refused).unwrap_err();
        assert_eq!(error, InstallError::Namespace(refused.to_owned()));
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}

#[test]
fn a_second_recorder_of_the_process_is_refused() {
    lambda_idempotency_emf::install().unwrap();
    let error = lambda_idempotency_emf::install().unwrap_err();
    assert_eq!(error, InstallError::AlreadyInstalled);
    assert_eq!(format!("{error:?}"), error.to_string());
}
