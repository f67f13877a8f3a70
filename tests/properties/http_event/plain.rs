//! The events that `lambda_http` takes as they are. It parses addresses as browsers do, which rewrites some paths and queries and panics
//! on a text that is no address, and it lets one value of a repeated header replace the others; the project's own reading does neither.
//! On the events here both must agree.

use serde_json::{Map, Value};

pub(super) fn is_plain(event: &str) -> bool {
    let Ok(event) = serde_json::from_str::<Value>(event) else {
        return false;
    };
    let context = &event["requestContext"];
    let paths = [&event["path"], &event["rawPath"]];
    let hosts = [&context["domainName"]];
    paths.into_iter().all(|path| may(path, is_path))
        && hosts.into_iter().all(|host| may(host, is_host))
        && may(&context["stage"], |stage| {
            !stage.is_empty() && stage.bytes().all(|byte| is_name(byte) || byte == b'$')
        })
        && may(&event["rawQueryString"], |query| {
            query.split('&').all(is_pair)
        })
        && has_plain_queries(&event)
        && has_plain_headers(&event)
        && has_plain_body(&event)
}

/// Returns whether a plain event has the one stage and the one route that a function URL has.
pub(super) fn is_without_stage_and_route(event: &str) -> bool {
    let event = serde_json::from_str::<Value>(event).unwrap_or_default();
    let is_default = |name| may(&event["requestContext"][name], |value| value == "$default");
    is_default("stage") && is_default("routeKey")
}

fn may(value: &Value, is: impl Fn(&str) -> bool) -> bool {
    match value {
        Value::Null => true,
        value => value.as_str().is_some_and(is),
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Without dots, which may lead upwards.
fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.contains("//")
        && path.bytes().all(|byte| is_name(byte) || byte == b'/')
}

/// A name that can't be a number, nor in Punycode.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        let first = label.bytes().next().unwrap_or_default();
        first.is_ascii_lowercase()
            && !label.starts_with("xn--")
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    host.split('.').all(is_label)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_name)
}

fn is_pair(pair: &str) -> bool {
    pair.is_empty()
        || pair
            .split_once('=')
            .is_some_and(|(name, value)| is_word(name) && is_word(value))
}

fn has_plain_queries(event: &Value) -> bool {
    let is_plain_value = |value: &Value| match value {
        Value::Array(values) => {
            !values.is_empty()
                && values
                    .iter()
                    .all(|value| value.as_str().is_some_and(is_word))
        }
        other => other.as_str().is_some_and(is_word),
    };
    let names = ["queryStringParameters", "multiValueQueryStringParameters"];
    let mut maps = names.into_iter().filter_map(|name| event[name].as_object());
    maps.all(|map| {
        map.iter()
            .all(|(name, value)| is_word(name) && is_plain_value(value))
    })
}

fn has_plain_headers(event: &Value) -> bool {
    let empty = Map::new();
    let single = event["headers"].as_object().unwrap_or(&empty);
    let multi = event["multiValueHeaders"].as_object().unwrap_or(&empty);
    // Names that differ in case are one name.
    let are_distinct = |map: &Map<String, Value>| {
        let mut names: Vec<_> = map.keys().map(|name| name.to_ascii_lowercase()).collect();
        names.sort();
        names.windows(2).all(|pair| pair[0] != pair[1])
    };
    let agree = |(name, value): (&String, &Value)| {
        let other = multi
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name));
        other.is_none_or(|(_, values)| *values == Value::Array(vec![value.clone()]))
    };
    let says = |name: &str, is: fn(&str) -> bool| {
        let values = single.iter().chain(multi);
        let mut values = values
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value);
        values.all(|value| match value {
            Value::Array(values) => values.iter().all(|value| value.as_str().is_some_and(is)),
            other => other.as_str().is_some_and(is),
        })
    };
    are_distinct(single)
        && are_distinct(multi)
        && (multi.is_empty() || single.iter().all(agree))
        && says("host", is_host)
        && says("x-forwarded-proto", |proto| {
            matches!(proto, "http" | "https")
        })
}

fn has_plain_body(event: &Value) -> bool {
    event["isBase64Encoded"] != true
        || may(&event["body"], |body| {
            data_encoding::BASE64.decode(body.as_bytes()).is_ok()
        })
}
