//! The places of a message's key, and the tenant that it belongs to.

use lambda_idempotency::{OnMissingKey, Selector};

use super::*;

type Layer = BatchLayer<Value, PaymentError>;

/// A worker that takes any JSON, under this key, and always takes effect.
fn selecting(
    once: &Idempotency,
    keyed: fn(Layer) -> Layer,
    effects: &Effects,
) -> impl Worker + use<> {
    let layer = keyed(BatchLayer::new(once.clone()).operation("charge"));
    layer.handler(effects.handler())
}

/// The message with an attribute in place of those that it had.
fn with_attribute(mut message: Value, name: &str, attribute: &Value) -> Value {
    message["messageAttributes"] = json!({ name: attribute });
    message
}

/// The message with a text attribute.
fn with_text(message: Value, name: &str, value: &str) -> Value {
    with_attribute(
        message,
        name,
        &json!({ "stringValue": value, "dataType": "String" }),
    )
}

on_each_server!(a_message_attribute_may_be_the_key);
async fn a_message_attribute_may_be_the_key(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = selecting(&once, |layer| layer.key_attribute("payment-id"), &effects);
    let binary = json!({ "binaryValue": "AP8=", "dataType": "Binary" });
    let messages = [
        with_text(message("m-1", "5"), "payment-id", "p-1"),
        with_text(message("m-2", "5"), "payment-id", "p-1"),
        with_attribute(message("m-3", "5"), "payment-id", &binary),
        with_text(message("none", "5"), "other", "p-1"),
        with_text(message("empty", "5"), "payment-id", ""),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["none", "empty"]);
    assert_eq!(effects.take(), ["m-1", "m-3"]);

    let redriven = [
        with_text(message("m-8", "5"), "payment-id", "p-1"),
        with_attribute(message("m-9", "5"), "payment-id", &binary),
    ];
    assert_eq!(deliver(&mut worker, redriven).await, NOTHING);
    assert_eq!(
        effects.take(),
        NOTHING,
        "a new message id, and the same key"
    );
}

on_each_server!(a_place_in_the_body_may_be_the_key);
async fn a_place_in_the_body_may_be_the_key(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let event = |id: &str, order: &str| message(id, format!(r#"{{"detail": {{"id": {order}}}}}"#));
    for selector in [
        Selector::pointer("/detail/id").unwrap(),
        Selector::jmespath("detail.id").unwrap(),
    ] {
        let operation = format!("{selector:?}");
        let mut worker = BatchLayer::new(once.clone())
            .operation(operation)
            .key_from(selector)
            .handler(effects.handler::<Value>());
        let messages = [
            event("text", r#""o-1""#),
            event("number", "7"),
            event("same-number", "7.0"),
            event("object", r#"{"a": 1, "b": 2}"#),
            event("same-object", r#"{"b": 2, "a": 1}"#),
            event("false", "false"),
            event("null", "null"),
            event("empty", r#""""#),
            event("list", "[]"),
            event("part", r#"["t-1", null]"#),
            message("missing", r#"{"detail": {}}"#),
            message("elsewhere", "5"),
        ];
        let unkeyed = ["null", "empty", "list", "part", "missing", "elsewhere"];
        assert_eq!(deliver(&mut worker, messages).await, unkeyed);
        assert_eq!(effects.take(), ["false", "number", "object", "text"]);
    }
}

on_each_server!(an_expression_may_compose_the_key_of_several_parts);
async fn an_expression_may_compose_the_key_of_several_parts(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let keyed = |layer: Layer| layer.key_from(Selector::jmespath("[tenant, payment]").unwrap());
    let mut worker = selecting(&once, keyed, &effects);
    let body =
        |tenant: &str, payment: u64| json!({ "tenant": tenant, "payment": payment }).to_string();
    let messages = [
        message("m-1", body("a", 1)),
        message("m-2", body("b", 1)),
        message("m-3", body("a", 2)),
        message("m-4", body("a", 1)),
    ];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-3"]);
}

on_each_server!(a_selection_that_finds_nothing_meets_the_policy);
async fn a_selection_that_finds_nothing_meets_the_policy(server: Server) {
    let store = server.store().await;
    let once = builder(store)
        .on_missing_key(OnMissingKey::RunUnprotected)
        .build()
        .unwrap();
    let effects = Effects::default();
    let keyed = |layer: Layer| layer.key_from(Selector::pointer("/id").unwrap());
    let mut worker = selecting(&once, keyed, &effects);
    let messages = [message("m-1", "{}"), message("m-2", "{}")];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-2"], "two requests, unprotected");
}

/// A worker whose messages have their tenant in an attribute, and always take effect.
fn charging_tenants(once: &Idempotency, effects: &Effects) -> impl Worker + use<> {
    charge(once)
        .scope(|_, message| {
            message
                .message_attributes
                .get("tenant")?
                .string_value
                .clone()
        })
        .handler(effects.handler())
}

on_each_server!(a_message_of_a_blank_tenant_is_reported_and_does_not_run);
async fn a_message_of_a_blank_tenant_is_reported_and_does_not_run(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging_tenants(&once, &effects);
    let messages = [
        with_text(payment("empty", "p-1", 5), "tenant", ""),
        with_text(payment("blank", "p-1", 5), "tenant", " "),
        with_text(payment("named", "p-1", 5), "tenant", "a"),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["empty", "blank"]);
    assert_eq!(effects.take(), ["named"]);
}

on_each_server!(tenants_that_choose_the_same_token_do_not_meet);
async fn tenants_that_choose_the_same_token_do_not_meet(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging_tenants(&once, &effects);
    let of =
        |tenant: &str, id: &str, amount| with_text(payment(id, "p-1", amount), "tenant", tenant);
    let messages = [
        of("a", "m-1", 5),
        of("b", "m-2", 6),
        of("a", "m-3", 5),
        payment("m-4", "p-1", 7),
    ];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-4"]);

    let again = [of("b", "m-5", 6), of("b", "m-6", 5)];
    assert_eq!(
        deliver(&mut worker, again).await,
        ["m-6"],
        "another body under the tenant's own key"
    );
    assert_eq!(effects.take(), NOTHING);
}
