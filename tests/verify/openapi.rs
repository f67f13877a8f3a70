//! `orders-api` and `docs/openapi.yaml`, held together by Schemathesis: what the function answers is in the document, and what
//! the document promises, it answers.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::support::lambda::{Function, Reply, Sandbox};
use crate::support::loopback;

/// The number of cases for each operation: about half a minute.
const CASES: &str = "150";

/// The same cases each time: a merge must not depend on luck.
const SEED: &str = "4";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_api_answers_what_its_document_says() {
    let program =
        std::env::var("SCHEMATHESIS").expect("`scripts/with schemathesis -- …` sets SCHEMATHESIS");
    let function = Function::orders_api().await;
    let url = serve(function.start().await).await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = tokio::process::Command::new(program)
        .arg("--config-file")
        .arg(root.join("tests/verify/schemathesis.toml"))
        .arg("run")
        .arg(root.join("docs/openapi.yaml"))
        .args(["--url", &url, "--max-examples", CASES, "--seed", SEED])
        .args(["--checks", "all", "--mode", "all", "--no-color"])
        .args(["--generation-database", "none", "--continue-on-failure"])
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("Schemathesis");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{report}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // A run that placed nothing, or only ever the same, has compared nothing.
    let placed = function.effects().await.len();
    assert!(placed > 20, "{placed} orders\n{report}");
    println!("{placed} orders placed\n{report}");
}

/// API Gateway, as far as this needs it: HTTP in, events of an HTTP API out to the function, one after the other.
async fn serve(sandbox: Sandbox) -> String {
    let sandbox = Arc::new(Mutex::new(sandbox));
    loopback::serve(move |request| forward(Arc::clone(&sandbox), request)).await
}

async fn forward(
    sandbox: Arc<Mutex<Sandbox>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let reply = sandbox.lock().await.invoke(event(&parts, &body)).await;
    let Reply::Answered(answer) = reply else {
        // As API Gateway does when the function fails; the document promises no such thing.
        let mut failed = Response::new(Full::new(Bytes::from(format!("{reply:?}"))));
        *failed.status_mut() = StatusCode::BAD_GATEWAY;
        return Ok(failed);
    };
    Ok(response(&answer))
}

fn event(parts: &http::request::Parts, body: &[u8]) -> Value {
    let mut headers = Map::new();
    for name in parts.headers.keys() {
        let values = parts.headers.get_all(name).iter();
        // Header values are bytes; API Gateway hands on what of them is text.
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        headers.insert(name.to_string(), json!(values.join(",")));
    }
    let is_text = std::str::from_utf8(body);
    let path = parts.uri.path();
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path,
        "rawQueryString": parts.uri.query().unwrap_or_default(), "headers": headers,
        "requestContext": {
            "accountId": "123456789012", "apiId": "f6g7h8i9j0", "routeKey": "$default", "stage": "$default",
            "http": { "method": parts.method.as_str(), "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1" },
            "timeEpoch": 1_790_260_290_456_u64,
        },
        "body": is_text.map_or_else(|_| BASE64.encode(body), str::to_owned),
        "isBase64Encoded": is_text.is_err(),
    })
}

fn response(answer: &Value) -> Response<Full<Bytes>> {
    let status = answer["statusCode"].as_u64().expect("a status");
    let mut response = Response::builder().status(u16::try_from(status).expect("a status"));
    for (name, value) in answer["headers"].as_object().into_iter().flatten() {
        response = response.header(name, value.as_str().expect("text"));
    }
    let text = answer["body"].as_str().unwrap_or_default();
    let body = if answer["isBase64Encoded"] == true {
        BASE64.decode(text.as_bytes()).expect("base64")
    } else {
        text.as_bytes().to_vec()
    };
    response
        .body(Full::from(body))
        .expect("an answer of HTTP's")
}
