//! The outcome that a duplicate is given.

use super::*;

#[tokio::test(start_paused = true)]
async fn falsy_outcomes_replay_exactly() {
    async fn replays<T>(first: T)
    where
        T: Clone + Debug + PartialEq + serde::Serialize + serde::de::DeserializeOwned,
    {
        let bench = bench();
        assert_eq!(
            bench.run(first.clone()).await.unwrap(),
            Outcome::Executed(first.clone())
        );
        let again = bench.once.run(key(), payload(), |_| async {
            Err::<T, _>(HandlerError::other("ran again"))
        });
        let again = again.await.unwrap();
        assert!(again.is_replayed());
        assert_eq!(again.into_inner(), first);
    }
    replays(()).await;
    replays(Option::<i32>::None).await;
    replays(false).await;
    replays(0).await;
    replays(String::new()).await;
    replays(Vec::<i32>::new()).await;
    replays(serde_json::json!({})).await;
    replays(serde_json::Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_tells_when_and_in_which_attempt_the_request_was_processed() {
    let bench = bench();
    bench.crash().await;
    bench.clock.advance(LEASE + MARGIN);
    bench.run(1).await.unwrap();
    let processed_at = SystemTime::from(bench.clock.now());
    bench.clock.advance(Duration::from_hours(1));

    let Outcome::Replayed(1, replay) = bench.run(2).await.unwrap() else {
        panic!("a replay")
    };
    assert_eq!(replay.processed_at, Some(processed_at));
    assert_eq!(replay.attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_changes_its_input_changes_neither_key_nor_fingerprint() {
    let bench = bench();
    let mut body = br#"{"amount":1}"#.to_vec();
    let fingerprint = Fingerprint::json(&body);
    let run = bench.once.run(key(), fingerprint.clone(), |_| async {
        body.clear();
        Ok::<_, Infallible>(1)
    });
    run.await.unwrap();
    assert_eq!(bench.record().await.fingerprint, Some(fingerprint));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_replayed_for_its_retention() {
    let bench = bench_with(|builder| {
        builder.settings(|settings| settings.failure_retention = Duration::from_mins(10))
    });
    let decline = || {
        let declined = |_| async { Err::<i32, _>(HandlerError::other("declined")) };
        bench
            .once
            .run_with(key(), payload(), declined, |_| Verdict::Fail)
    };
    assert_matches!(decline().await, Err(Error::Handler(_)));
    assert_eq!(bench.record().await.status, Status::Failed);
    match decline().await {
        Err(Error::Failed(failure)) => assert_eq!(failure.message, "declined"),
        other => panic!("{other:?}"),
    }
    bench.clock.advance(Duration::from_secs(602));
    assert_matches!(decline().await, Err(Error::Handler(_)), "it runs again");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_with_much_to_say_is_still_a_failure() {
    let bench = bench_with(|builder| builder.settings(|settings| settings.inline_limit = 10));
    for _ in 0..2 {
        let declined = |_| async { Err::<i32, _>(HandlerError::other("x".repeat(100_000))) };
        let run = bench
            .once
            .run_with(key(), payload(), declined, |_| Verdict::Fail)
            .await;
        assert_matches!(run, Err(Error::Handler(_) | Error::Failed(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_outcome_counts_as_absent_though_nothing_swept_it() {
    let bench = bench_with(|builder| builder.retention(Duration::from_hours(1)));
    assert_eq!(value(bench.run(1).await), 1);
    bench.clock.advance(Duration::from_hours(1));
    assert_eq!(value(bench.run(2).await), 1, "kept for its retention");
    bench.clock.advance(Duration::from_secs(3));
    let fresh = attempt(&bench.once, key()).await;
    assert_eq!(fresh.unwrap(), Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_over_the_inline_limit_is_compressed_and_replays() {
    let bench = bench_with(|builder| builder.settings(|settings| settings.inline_limit = 10));
    assert_eq!(value(bench.run("x".repeat(5_000)).await).len(), 5_000);
    let again = bench.run(String::new()).await.unwrap();
    assert!(again.is_replayed());
    assert_eq!(again.into_inner(), "x".repeat(5_000));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_another_type_is_an_error_that_quotes_nothing() {
    let bench = bench();
    bench.run("secret".to_owned()).await.unwrap();
    let before = bench.found().await;
    let error = bench.run(7).await.unwrap_err();
    assert_matches!(error, Error::Unreadable(_));
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(bench.found().await, before);
}
