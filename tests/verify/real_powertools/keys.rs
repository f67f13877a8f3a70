//! The ids are the function's own, to the byte.

use lambda_idempotency::{Key, powertools};
use serde_json::{Value, json};

use super::process::{Called, Function};
use super::{PREFIX, Shared, charge};
use crate::support::Server;

/// Values of every shape that a selection can give, some of them from a generator with a fixed seed.
fn selections() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(""),
        json!([]),
        json!({}),
        json!([null]),
        json!({"a": null}),
        json!([null, 0]),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(true),
        json!(false),
        json!(" "),
        json!("order-1734"),
        json!("\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}\u{80}é\u{2028}\u{ffff}😀"),
        json!({"b": 1, "a": {"é": [], "z": {}, "Z": null}, "": 0, "😀": 1, "\u{ffff}": 2}),
    ];
    let mut dice = fastrand::Rng::with_seed(7);
    for _ in 0..500 {
        // All doubles there are, and those with few digits around the places where the notation changes.
        let any = f64::from_bits(dice.u64(..));
        let round = f64::from(dice.i32(-9_999..9_999)) * 10_f64.powi(dice.i32(-9..19));
        let text: String = (0..dice.usize(1..9)).map(|_| dice.char(..)).collect();
        values.extend([json!(any), json!(round), json!(text)]);
    }
    values
}

#[tokio::test]
async fn ids_are_those_that_the_function_makes() {
    // No request is made for it.
    let server = Server::behind("http://127.0.0.1:1".to_owned());
    let mut function = Function::start(&server, "none").await.with("do", "ids");
    let values = selections();
    let Called::Returned(ids) = function.call(json!(values)).await else {
        panic!("no ids");
    };
    let theirs = ids.as_array().unwrap();
    assert_eq!(theirs.len(), values.len());
    for (value, theirs) in values.into_iter().zip(theirs) {
        let id = powertools::id(PREFIX, value.clone());
        assert_eq!(id.as_deref(), theirs.as_str(), "{value}");
    }
}

on_both!(without_a_prefix_of_its_own_the_functions_name_module_and_qualified_name_are_it);
async fn without_a_prefix_of_its_own_the_functions_name_module_and_qualified_name_are_it(
    shared: Shared,
) {
    let mut function = shared.function().await.with("prefix", Value::Null);
    function.run("o-1", json!("receipt")).await;
    let id = powertools::id("payments-prod.__main__.guarded.<locals>.charge", "o-1");
    let key = id.map(|id| Key::raw("charge", id));
    shared.replays(key, None, "receipt").await;
}

on_both!(a_key_of_several_fields_is_a_list);
async fn a_key_of_several_fields_is_a_list(shared: Shared) {
    let mut function = shared.keyed_by("[tenant, n]").await;
    let payload = json!({"tenant": "ü", "n": 1.5, "other": 1});
    assert_eq!(function.call(payload).await, Called::Running);
    function.return_(json!("receipt")).await;
    let key = charge(json!(["ü", 1.5]));
    shared.replays(key, None, "receipt").await;
}

on_both!(without_an_expression_the_whole_payload_is_the_key);
async fn without_an_expression_the_whole_payload_is_the_key(shared: Shared) {
    let mut function = shared.keyed_by("").await;
    let payload = json!({"order_id": "o-1", "amount": 12.0, "items": [{"ü": null}, -3]});
    assert_eq!(function.call(payload.clone()).await, Called::Running);
    function.return_(json!("receipt")).await;
    shared.replays(charge(payload), None, "receipt").await;
}
