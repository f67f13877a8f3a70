//! The `ClientRequestToken` of each transaction, as it is sent.

use std::sync::Arc;

use lambda_idempotency::{Error, Outcome};

use super::{Bench, Failed, key, payload};
use crate::on_each_server;
use crate::support::recorder::Recorder;
use crate::support::{Fault, Proxy, Server};

async fn recorded(server: &Server) -> (Arc<Recorder>, Bench) {
    let recorder = Arc::new(Recorder::default());
    let proxy = Proxy::meddled_with(server, recorder.clone()).await;
    let bench = Bench::on(server).await;
    (recorder, Bench { proxy, ..bench })
}

/// A run with one write; its transactions' tokens, each as the place of the first request that had it.
async fn tokens(recorder: &Recorder, bench: &Bench, is_claimless: bool) -> Vec<usize> {
    let before = recorder.of("TransactWriteItems").len();
    let once = bench.once();
    let once = if is_claimless { once.claimless() } else { once };
    let run = once.run(key(), payload(), async |claim| {
        claim.write(bench.deposit(5))?;
        Ok::<_, Failed>(1)
    });
    assert_eq!(run.await.unwrap(), Outcome::Executed(1));
    let sent = recorder.of("TransactWriteItems").split_off(before);
    let token =
        |request: &serde_json::Value| request["ClientRequestToken"].as_str().unwrap().to_owned();
    let sent: Vec<String> = sent.iter().map(token).collect();
    let first = |token| sent.iter().position(|other| other == token).unwrap();
    sent.iter().map(first).collect()
}

on_each_server!(all_sends_of_a_request_carry_one_token);
async fn all_sends_of_a_request_carry_one_token(server: Server) {
    for is_claimless in [false, true] {
        let (recorder, bench) = recorded(&server).await;
        for _ in 0..4 {
            bench.proxy.inject("TransactWriteItems", Fault::LoseReply);
        }
        let tokens = tokens(&recorder, &bench, is_claimless).await;
        assert!(tokens.len() >= 4, "{tokens:?}");
        assert!(tokens.iter().all(|token| *token == 0), "{tokens:?}");
        assert_eq!(bench.balance().await, 5);
    }
}

on_each_server!(each_round_of_the_claimless_form_carries_a_token_of_its_own);
async fn each_round_of_the_claimless_form_carries_a_token_of_its_own(server: Server) {
    let (recorder, bench) = recorded(&server).await;
    let once = bench.once();
    let failed = once
        .run(key(), payload(), async |_| Err::<i32, _>(Failed::Broken))
        .await;
    assert!(matches!(failed, Err(Error::Handler(Failed::Broken))));
    let tokens = tokens(&recorder, &bench, true).await;
    assert_eq!(tokens, [0, 1], "the first met a released record");
    assert_eq!(bench.balance().await, 5);
}
