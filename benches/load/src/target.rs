//! The server, or the function, that the requests are sent to.

use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Error;
use crate::effects::PREFIX;
use crate::runtime_api::RuntimeApi;

/// A server, or the environments of a function; ended with it.
pub struct Target {
    way: Way,
    children: Vec<Child>,
}

enum Way {
    Server(Box<Client<HttpConnector, Full<Bytes>>>, String),
    Function(RuntimeApi),
}

/// The environment variables of a process that has no others.
pub type Environment = Vec<(&'static str, String)>;

impl Target {
    /// The server whose program this is. It prints its address.
    pub async fn server(program: &Path, environment: &Environment) -> Result<Self, Error> {
        let mut child = command(program, environment)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let address = BufReader::new(output).lines().next_line().await?;
        let address = address.ok_or("the server ended at its start")?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let way = Way::Server(Box::new(client), format!("http://{address}/orders"));
        Ok(Self {
            way,
            children: vec![child],
        })
    }

    /// So many execution environments of the function whose program this is.
    pub async fn function(
        program: &Path,
        environment: &Environment,
        environments: usize,
    ) -> Result<Self, Error> {
        let api = RuntimeApi::start().await?;
        let children = (0..environments)
            .map(|_| {
                let mut command = command(program, environment);
                command
                    .env("AWS_LAMBDA_RUNTIME_API", &api.address)
                    .env("AWS_LAMBDA_FUNCTION_NAME", "orders-api")
                    .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
                    .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1769")
                    .stdout(Stdio::null());
                command.spawn()
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            way: Way::Function(api),
            children,
        })
    }

    /// Places an order; the answer's status.
    pub async fn send(&self, order: u32) -> Result<u16, Error> {
        let key = format!("{PREFIX}{order}");
        let body = json!({ "sku": key, "quantity": 1, "amount": 1250, "currency": "EUR" });
        match &self.way {
            Way::Server(client, url) => {
                let request = Request::post(url)
                    .header("idempotency-key", &key)
                    .header("content-type", "application/json")
                    .body(body.to_string().into())?;
                let response = client.request(request).await?;
                let status = response.status().as_u16();
                http_body_util::BodyExt::collect(response.into_body()).await?;
                Ok(status)
            }
            Way::Function(api) => {
                let answer = api.invoke(event(&key, &body.to_string())).await?;
                let answer: Answer = serde_json::from_slice(&answer)?;
                Ok(answer.status_code)
            }
        }
    }

    /// The processes that serve.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().filter_map(Child::id).collect()
    }

    /// Ends the processes.
    pub async fn end(&mut self) -> Result<(), Error> {
        for child in &mut self.children {
            child.kill().await?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
}

fn command(program: &Path, environment: &Environment) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.iter().cloned());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// As an HTTP API of API Gateway sends it.
fn event(key: &str, body: &str) -> String {
    let event = json!({
        "version": "2.0",
        "routeKey": "POST /orders",
        "rawPath": "/orders",
        "rawQueryString": "",
        "headers": {
            "content-type": "application/json",
            "host": "y6u7i8o9p0.execute-api.eu-central-1.amazonaws.com",
            "idempotency-key": key,
            "x-forwarded-for": "203.0.113.9",
            "x-tenant-id": "load",
        },
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "y6u7i8o9p0",
            "domainName": "y6u7i8o9p0.execute-api.eu-central-1.amazonaws.com",
            "domainPrefix": "y6u7i8o9p0",
            "http": {
                "method": "POST",
                "path": "/orders",
                "protocol": "HTTP/1.1",
                "sourceIp": "203.0.113.9",
                "userAgent": "load",
            },
            "requestId": "Zk3vTgX4liAEJ8Q=",
            "routeKey": "POST /orders",
            "stage": "$default",
            "time": "20/Nov/2025:12:00:00 +0000",
            "timeEpoch": 1_763_640_000_000_u64,
        },
        "body": body,
        "isBase64Encoded": false,
    });
    event.to_string()
}
