//! A handler's own error: itself for the hook, its text in the log where the setting asks for it, and on to the caller.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use lambda_idempotency::http::IdempotencyLayer;
use tower::{Layer, ServiceExt, service_fn};

use crate::on_each_server;
use crate::secrets::Log;
use crate::support::{Server, builder_on};

type Request = http::Request<Full<Bytes>>;

/// Returns the traces of a request whose handler fails: the caller's error, the lines of the hook, the log.
async fn failing(server: &Server, logs: bool, panics: bool) -> (String, Vec<String>, String) {
    let (log, _capture) = Log::capture();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let once = builder_on(server.store().await, "shop")
        .settings(|settings| settings.log_errors = logs)
        .build()
        .unwrap();
    let layer = IdempotencyLayer::unscoped(once).on_error(move |parts, error| {
        let key = parts.headers["idempotency-key"].to_str().unwrap();
        let line = format!("{} {}, {key}: {error}", parts.method, parts.uri.path());
        noted.lock().unwrap().push(line);
        assert!(!panics, "the hook");
    });
    let api = layer.layer(service_fn(|_: Request| async {
        Err::<Response<Full<Bytes>>, _>("no route to the warehouse")
    }));
    let request = http::Request::post("/orders").header("idempotency-key", "k-1");
    let request = request.body(Full::default()).unwrap();
    let error = api.oneshot(request).await.err().unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (error.to_owned(), seen, log.text())
}

on_each_server!(the_hook_is_shown_the_error_and_the_request_and_the_caller_gets_the_error);
async fn the_hook_is_shown_the_error_and_the_request_and_the_caller_gets_the_error(server: Server) {
    let (error, seen, log) = failing(&server, false, false).await;
    assert_eq!(error, "no route to the warehouse");
    assert_eq!(seen, ["POST /orders, k-1: no route to the warehouse"]);
    assert!(!log.contains("warehouse"), "{log}");
}

on_each_server!(the_setting_logs_the_error_once);
async fn the_setting_logs_the_error_once(server: Server) {
    let (_, _, log) = failing(&server, true, false).await;
    assert_eq!(log.matches("warehouse").count(), 1, "{log}");
    assert!(log.contains(r#"event="handler_failed""#), "{log}");
}

on_each_server!(a_hook_that_panics_changes_nothing);
async fn a_hook_that_panics_changes_nothing(server: Server) {
    let (error, _, log) = failing(&server, false, true).await;
    assert_eq!(error, "no route to the warehouse");
    assert!(log.contains("hook_failed"), "{log}");
    assert!(log.contains(r#"event="released""#), "{log}");
}
