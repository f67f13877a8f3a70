//! The `ClientRequestToken` of each transaction, as it is sent.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Bench, Form};
use crate::on_each_server;
use crate::support::recorder::Recorder;
use crate::support::{Fault, Proxy, Server};

on_each_server!(all_sends_of_a_request_carry_one_token);
async fn all_sends_of_a_request_carry_one_token(server: Server) {
    for form in [Form::Transaction, Form::Claimless] {
        let recorder = Arc::new(Recorder::default());
        let proxy = Proxy::meddled_with(&server, recorder.clone()).await;
        let bench = Bench::on(&server).await;
        let bench = Bench { proxy, ..bench };
        bench.proxy.repeat(form.operation(), Fault::LoseReply, 4);
        form.assert_places(&bench, &bench.once(), 1).await;
        let sent = recorder.of(form.operation());
        assert!(sent.len() >= 4, "{sent:?}");
        let token = |request: &serde_json::Value| request["ClientRequestToken"].to_string();
        let tokens: HashSet<_> = sent.iter().map(token).collect();
        assert_eq!(tokens.len(), 1, "{tokens:?}");
        assert_eq!(bench.balance().await, form.amount());
    }
}
