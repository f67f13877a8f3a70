//! API Gateway: requests as it hands them to a function, and what the function answers.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::lambda::Reply;

/// One of API Gateway's event formats.
#[derive(Clone, Copy)]
pub enum Gateway {
    /// 1.0, from a REST API.
    Rest,
    /// 2.0, from an HTTP API.
    Http,
}

impl Gateway {
    pub fn post(self, headers: &[(&str, &str)], body: &Value) -> Value {
        let (fixture, is_multi_value) = match self {
            Self::Rest => (include_str!("../fixtures/e2e-apigw-v1.json"), true),
            Self::Http => (include_str!("../fixtures/e2e-apigw-v2.json"), false),
        };
        let mut event: Value = serde_json::from_str(fixture).expect("JSON");
        for (name, value) in headers {
            event["headers"][name] = json!(value);
            if is_multi_value {
                event["multiValueHeaders"][name] = json!([value]);
            }
        }
        event["body"] = json!(body.to_string());
        event
    }
}

/// An order for `orders-api`.
pub fn order() -> Value {
    json!({ "sku": "KETTLE-01", "quantity": 2, "amount": 5_980, "currency": "EUR" })
}

pub struct Response {
    pub status: u64,
    pub answer: Value,
}

impl Response {
    pub fn of(reply: Reply) -> Self {
        let answer = reply.answer();
        Self {
            status: answer["statusCode"].as_u64().expect("a status"),
            answer,
        }
    }

    pub fn header(&self, wanted: &str) -> Option<String> {
        let find = |field: &str| {
            let headers = self.answer[field].as_object()?;
            let (_, value) = headers
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
            let value = value.get(0).unwrap_or(value);
            value.as_str().map(str::to_owned)
        };
        find("headers").or_else(|| find("multiValueHeaders"))
    }

    pub fn body(&self) -> Value {
        let body = self.answer["body"].as_str().expect("a body");
        if self.answer["isBase64Encoded"] == true {
            serde_json::from_slice(&BASE64.decode(body.as_bytes()).expect("base64"))
        } else {
            serde_json::from_str(body)
        }
        .expect("JSON")
    }

    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed").as_deref() == Some("true")
    }

    pub fn assert_problem(&self, status: u64) {
        assert_eq!(self.status, status, "{}", self.answer);
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/problem+json"), "{kind}");
    }
}
