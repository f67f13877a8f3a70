//! A function whose DynamoDB is behind TLS of a private authority: what `SSL_CERT_FILE` names is trusted, and nothing else.

use super::payments_worker::{NONE, batch, failed, one_payment, payment};
use crate::support::Tls;
use crate::support::lambda::{Function, Reply};

#[tokio::test]
async fn a_private_authority_is_trusted_where_ssl_cert_file_names_it() {
    let function = Function::payments_worker().await;
    let tls = Tls::before(function.server()).await;
    let function = function.reached_at(&tls.server());
    let trusting = function.with("SSL_CERT_FILE", tls.authority());
    let mut sandbox = trusting.start().await;
    assert_eq!(failed(sandbox.invoke(one_payment()).await), NONE);
    assert_eq!(function.effects().await.len(), 1);
}

#[tokio::test]
async fn another_authority_is_refused_and_the_log_says_what_to_set() {
    let function = Function::payments_worker().await;
    let tls = Tls::before(function.server()).await;
    let function = function.reached_at(&tls.server());
    let refusing = async |function: Function| {
        let mut sandbox = function.start().await;
        for event in [one_payment(), batch(&["pay-1", "pay-2"].map(payment))] {
            let reply = sandbox.invoke(event).await;
            assert_matches!(reply, Reply::Failed(_));
        }
        let log = sandbox.lines();
        assert!(log.contains("UnknownIssuer"), "{log}");
        assert!(log.contains("set SSL_CERT_FILE"), "{log}");
        assert!(!log.contains("groups_denied"), "{log}");
        assert_eq!(function.effects().await.len(), 0);
    };
    // `AWS_CA_BUNDLE` is not read by the SDK, and the private authority is none of the system's.
    let misled = function.with("AWS_CA_BUNDLE", tls.authority());
    tokio::join!(refusing(function), refusing(misled));
}
