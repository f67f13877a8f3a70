//! Messages that are the same request, within a batch and between batches.

use lambda_idempotency::Key;

use super::*;
use crate::secrets::Log;

on_each_server!(a_key_that_is_twice_in_a_batch_runs_once);
async fn a_key_that_is_twice_in_a_batch_runs_once(server: Server) {
    let proxy = Proxy::before(&server).await;
    let (once, effects) = (engine(proxy.server()).await, Effects::default());
    let mut worker = charging(&once, &effects);
    proxy.take_total();

    let twice = [payment("m-1", "p-1", 5), payment("m-2", "p-1", 5)];
    assert_eq!(deliver(&mut worker, twice).await, NOTHING);
    assert_eq!(effects.take(), ["m-1"]);
    assert_eq!(proxy.take_total(), 2, "the second message costs no request");
}

on_each_server!(a_duplicate_in_the_batch_is_reported_when_the_first_fails);
async fn a_duplicate_in_the_batch_is_reported_when_the_first_fails(server: Server) {
    let (log, _capture) = Log::capture();
    let (once, effects) = (engine(&server).await, Effects::default());
    let runs = effects.clone();
    let mut worker = charge(&once).handler(move |message| {
        runs.of(&message);
        async { Err::<(), _>(PaymentError::Unreachable) }
    });
    let messages = [
        payment("m-1", "p-1", 5),
        payment("m-2", "p-2", 5),
        payment("m-3", "p-1", 5),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["m-1", "m-2", "m-3"]);
    assert_eq!(effects.take(), ["m-1", "m-2"]);
    let text = log.text();
    let logged = r#"reason="duplicate_of_reported" message_id="m-3""#;
    assert!(text.contains(logged), "{text}");
}

on_each_server!(a_duplicate_that_is_looked_at_when_the_first_is_over_shares_its_fate);
async fn a_duplicate_that_is_looked_at_when_the_first_is_over_shares_its_fate(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let runs = effects.clone();
    let mut worker = charge(&once).handler(move |message| {
        runs.of(&message);
        let fails = message.body.payment_id == "p-7";
        async move {
            if fails {
                Err(PaymentError::Unreachable)
            } else {
                Ok(())
            }
        }
    });
    // A hundred requests, and then the same ones again: far behind all that is looked at together.
    let messages =
        (0..200).map(|n| payment(&format!("m-{n:03}"), &format!("p-{}", n % 100), n % 100));
    assert_eq!(deliver(&mut worker, messages).await, ["m-007", "m-107"]);
    let first: Vec<_> = (0..100).map(|n| format!("m-{n:03}")).collect();
    assert_eq!(effects.take(), first);
}

on_each_server!(messages_behind_more_duplicates_than_a_group_holds_run);
async fn messages_behind_more_duplicates_than_a_group_holds_run(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    // Forty of the same request, then thirty others: who doesn't run must not be waited for.
    let messages = (0..70_u64).map(|n| {
        payment(
            &format!("m-{n:02}"),
            &format!("p-{}", n.saturating_sub(39)),
            n.saturating_sub(39),
        )
    });
    let delivered = tokio::time::timeout(Duration::from_secs(20), deliver(&mut worker, messages));
    assert_eq!(delivered.await.unwrap(), NOTHING);
    assert_eq!(effects.take().len(), 31);
}

on_each_server!(a_key_that_is_twice_in_a_batch_with_another_body_is_reported);
async fn a_key_that_is_twice_in_a_batch_with_another_body_is_reported(server: Server) {
    let effects = Effects::default();
    let claimless = engine(&server).await.claimless();
    for once in [engine(&server).await, claimless] {
        let mut worker = charging(&once, &effects);
        let messages = [
            payment("m-1", "p-1", 5),
            payment("m-2", "p-1", 6),
            // The same body, written in another way.
            message("m-3", r#"{ "amount": 5, "payment_id": "p-1" }"#),
        ];
        assert_eq!(deliver(&mut worker, messages).await, ["m-2"]);
        assert_eq!(effects.take(), ["m-1"]);
    }
}

on_each_server!(a_message_that_differs_from_one_that_is_done_is_read_first);
async fn a_message_that_differs_from_one_that_is_done_is_read_first(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let mut worker = charging(&once, &Effects::default());
    proxy.take_total();
    let messages = [payment("m-1", "p-1", 5), payment("m-2", "p-1", 6)];
    assert_eq!(deliver(&mut worker, messages).await, ["m-2"]);
    let counts = proxy.take_counts();
    let requests = ["PutItem", "UpdateItem", "GetItem"].map(|name| counts.get(name));
    assert_eq!(requests, [Some(&1); 3], "{counts:?}");
}

on_each_server!(a_message_that_is_twice_in_a_batch_is_reported_once);
async fn a_message_that_is_twice_in_a_batch_is_reported_once(server: Server) {
    let once = engine(&server).await;
    let mut failing = charge(&once).handler(|_| async { Err::<(), _>(PaymentError::Unreachable) });
    let same_key = [payment("m-1", "p-1", 5), payment("m-1", "p-1", 5)];
    assert_eq!(deliver(&mut failing, same_key).await, ["m-1"]);
    let other_keys = [payment("m-1", "p-1", 5), payment("m-1", "p-2", 5)];
    assert_eq!(deliver(&mut failing, other_keys).await, ["m-1"]);
}

on_each_server!(without_a_key_of_its_own_a_message_is_known_by_its_id);
async fn without_a_key_of_its_own_a_message_is_known_by_its_id(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let runs = effects.clone();
    let mut worker = BatchLayer::new(once).handler(move |message: Message<u64>| {
        assert_eq!(message.claim.operation(), "payments", "the queue's name");
        runs.of(&message);
        async { Ok::<_, PaymentError>(()) }
    });
    deliver(&mut worker, [message("m-1", "1"), message("m-2", "1")]).await;
    assert_eq!(effects.take(), ["m-1", "m-2"]);

    deliver(&mut worker, [message("m-1", "1")]).await;
    assert_eq!(effects.take(), NOTHING, "received again");

    deliver(&mut worker, [message("m-3", "1")]).await;
    assert_eq!(
        effects.take(),
        ["m-3"],
        "redriven: it has a new id, and is not recognised"
    );
}

on_each_server!(one_token_serves_two_operations);
async fn one_token_serves_two_operations(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    for operation in ["charge", "refund"] {
        let layer = charge(&once).operation(operation);
        let mut worker = layer.handler(effects.handler());
        deliver(&mut worker, [payment("m-1", "p-1", 5)]).await;
        assert_eq!(effects.take(), ["m-1"], "{operation}");
    }
}

on_each_server!(every_outcome_replays_even_those_that_look_like_nothing);
async fn every_outcome_replays_even_those_that_look_like_nothing(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    for (n, outcome) in [
        json!(null),
        json!(false),
        json!(0),
        json!(""),
        json!([]),
        json!({}),
    ]
    .into_iter()
    .enumerate()
    {
        let (runs, result) = (effects.clone(), outcome.clone());
        let mut worker = charge(&once).handler(move |message| {
            runs.of(&message);
            let result = result.clone();
            async { Ok(result) }
        });
        for expected in [1, 0] {
            let messages = [payment("m-1", &format!("p-{n}"), 5)];
            assert_eq!(deliver(&mut worker, messages).await, NOTHING);
            assert_eq!(effects.take().len(), expected, "{outcome}");
        }
    }
}

on_each_server!(an_outcome_that_was_not_kept_does_not_bring_its_message_back);
async fn an_outcome_that_was_not_kept_does_not_bring_its_message_back(server: Server) {
    let once = builder(server.store().await)
        .settings(|settings| settings.inline_limit = 8)
        .build()
        .unwrap();
    let effects = Effects::default();
    let runs = effects.clone();
    let mut worker = charge(&once).handler(move |message| {
        runs.of(&message);
        async { Ok("longer than eight bytes".to_owned()) }
    });
    for expected in [1, 0] {
        reports(&mut worker, [payment("m-1", "p-1", 5)], &[]).await;
        assert_eq!(effects.take().len(), expected);
    }
}

on_each_server!(the_kill_switch_runs_every_message_and_asks_the_store_nothing);
async fn the_kill_switch_runs_every_message_and_asks_the_store_nothing(server: Server) {
    let (log, _capture) = Log::capture();
    let proxy = Proxy::before(&server).await;
    let once = builder(proxy.server().store().await)
        .disabled(true)
        .build()
        .unwrap();
    let effects = Effects::default();
    let mut worker = charging(&once, &effects);
    proxy.take_total();

    let messages = [
        payment("m-1", "p-1", 5),
        payment("m-2", "p-1", 5),
        payment("m-3", "p-1", 6),
    ];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-3"]);
    assert_eq!(proxy.take_total(), 0);
    // Each run is in the log, under the key that it would have claimed.
    let key = once.record_id(&Key::new("charge", "p-1")).unwrap();
    let run = format!(r#"event="unprotected" operation="charge" key={key} reason=protection is"#);
    let text = log.text();
    assert_eq!(text.matches(&run).count(), 3, "{text}");
}
