//! Messages that can't be worked on, and what the rest of their batch sees of it.

use lambda_idempotency::OnMissingKey;
use lambda_runtime::Diagnostic;

use super::*;

/// The message, without one member.
fn without(member: &str, mut message: Value) -> Value {
    message.as_object_mut().unwrap().remove(member).unwrap();
    message
}

on_each_server!(a_message_without_an_id_fails_the_invocation_before_anything_runs);
async fn a_message_without_an_id_fails_the_invocation_before_anything_runs(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let mut empty = payment("m-2", "p-2", 5);
    empty["messageId"] = json!("");
    for nameless in [without("messageId", payment("m-2", "p-2", 5)), empty] {
        let event = batch([payment("m-1", "p-1", 5), nameless]);
        let error = worker.call(event).await.unwrap_err();
        assert_eq!(error, BatchError::MessageWithoutId { position: 1 });
        let diagnostic = Diagnostic::from(error);
        assert!(diagnostic.error_message.contains("has no id"));
    }
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_body_that_does_not_decode_fails_its_message_alone);
async fn a_body_that_does_not_decode_fails_its_message_alone(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let mut null = payment("m-2", "p-2", 5);
    null["body"] = json!(null);
    let messages = [
        payment("good-1", "p-1", 5),
        without("body", payment("m-1", "p-1", 5)),
        null,
        message("m-3", ""),
        message("m-4", "not JSON"),
        message("m-5", "eyJwYXltZW50X2lkIjoicC0xIiwiYW1vdW50Ijo1fQ=="),
        message("m-6", r#"{"payment_id": "p-6"}"#),
        message("m-7", r#"{"payment_id": "p-7", "amount": "five"}"#),
        message("m-8", r#"{"payment_id": "p-8", "amount": 5"#),
        message("m-9", "[".repeat(10_000)),
        payment("good-2", "p-2", 5),
    ];
    let reported = deliver(&mut worker, messages).await;
    assert_eq!(
        reported,
        (1..=9).map(|n| format!("m-{n}")).collect::<Vec<_>>()
    );
    assert_eq!(effects.take(), ["good-1", "good-2"]);
}

on_each_server!(a_batch_in_which_all_fail_answers_with_all_ids);
async fn a_batch_in_which_all_fail_answers_with_all_ids(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let messages = (1..=10).map(|n| message(&format!("m-{n}"), "not JSON"));
    assert_eq!(deliver(&mut worker, messages).await.len(), 10);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_key_that_cannot_be_used_fails_its_message_alone);
async fn a_key_that_cannot_be_used_fails_its_message_alone(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let messages = [
        payment("m-1", "", 5),
        payment("m-2", &"x".repeat(256), 5),
        payment("m-3", "line\nbreak", 5),
        payment("good", "ключ-ü", 5),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["m-1", "m-2", "m-3"]);
    assert_eq!(effects.take(), ["good"]);
}

on_each_server!(a_missing_key_meets_the_policy);
async fn a_missing_key_meets_the_policy(server: Server) {
    for (policy, reported) in [
        (OnMissingKey::Refuse, vec!["m-1", "m-2"]),
        (OnMissingKey::RunUnprotected, vec![]),
    ] {
        let once = builder(server.store().await)
            .on_missing_key(policy)
            .build()
            .unwrap();
        let mut worker = BatchLayer::new(once)
            .key(|body: &Option<String>| body.clone())
            .handler(|message| async move {
                assert_eq!(
                    message.claim.is_protected(),
                    message.body.as_deref() == Some("key")
                );
                Ok::<_, PaymentError>(())
            });
        // Two messages without a key are two requests, whatever they say.
        let messages = [
            message("m-1", "null"),
            message("m-2", "null"),
            message("m-3", r#""key""#),
        ];
        assert_eq!(deliver(&mut worker, messages).await, reported);
    }
}
