use std::time::UNIX_EPOCH;

use http::StatusCode as Status;
use http::header::HeaderValue;

use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::KeyLayer;

fn attempts(method: &Method) -> Attempts {
    let mut attempts = Attempts::of(
        &Policy::default(),
        method,
        &mut HeaderMap::new(),
        &Extensions::new(),
    );
    attempts.begin();
    attempts
}

fn saying(after: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, HeaderValue::from_str(after).unwrap());
    headers
}

#[tokio::test(start_paused = true)]
async fn each_answer_is_told_apart() {
    let none = HeaderMap::new();
    let again = |method: &Method, status: u16, headers: &HeaderMap| {
        let status = Status::from_u16(status).unwrap();
        attempts(method).again(Some((status, headers))).is_some()
    };
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::GET] {
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert!(again(&method, status, &none), "{method} {status}");
        }
        for name in REPLAYED {
            let mut replayed = saying("1");
            replayed.insert(name, HeaderValue::from_static("true"));
            for status in [409, 429, 500, 503] {
                assert!(!again(&method, status, &replayed), "{method} {status}");
            }
        }
        for status in [
            200, 201, 204, 301, 400, 401, 403, 404, 409, 410, 412, 422, 501, 505,
        ] {
            assert!(!again(&method, status, &none), "{method} {status}");
        }
        assert!(again(&method, 400, &saying("1")));
        assert!(again(&method, 409, &saying("1")));
        assert!(!again(&method, 422, &saying("1")));
        assert!(attempts(&method).again(None).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_key_is_sent_once() {
    let mut extensions = Extensions::new();
    extensions.insert(Unkeyed);
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let mut headers = HeaderMap::new();
        let mut once = Attempts::of(&Policy::default(), &method, &mut headers, &extensions);
        once.begin();
        assert!(headers.is_empty());
        assert_eq!(once.again(None), None, "{method}");
        let busy = (Status::SERVICE_UNAVAILABLE, &saying("1"));
        assert_eq!(once.again(Some(busy)), None, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_is_the_callers_or_a_new_one_and_what_changes_nothing_has_none() {
    let key = |method: &Method, policy: &Policy, mut headers: HeaderMap, given: Option<&str>| {
        let mut extensions = Extensions::new();
        if let Some(given) = given {
            extensions.insert(IdempotencyKey::new(given).unwrap());
        }
        let attempts = Attempts::of(policy, method, &mut headers, &extensions);
        assert_eq!(
            attempts.key.is_some(),
            headers.contains_key(IDEMPOTENCY_KEY)
        );
        headers
            .get(IDEMPOTENCY_KEY)
            .map(|key| key.to_str().unwrap().to_owned())
    };
    let plain = Policy::default();
    let (post, none) = (Method::POST, HeaderMap::new);
    assert_eq!(key(&Method::GET, &plain, none(), Some("k")), None);
    assert_eq!(key(&post, &plain, none(), Some("k")).unwrap(), "k");
    assert_eq!(
        key(&post, &plain.clone().quoted(), none(), Some("k")).unwrap(),
        "\"k\""
    );
    assert_eq!(key(&post, &plain, none(), None).unwrap().len(), 36);
    let mut own = HeaderMap::new();
    own.insert(
        IDEMPOTENCY_KEY,
        HeaderValue::from_static("\"of the caller\""),
    );
    assert_eq!(
        key(&post, &plain, own, Some("k")).unwrap(),
        "\"of the caller\""
    );
}

#[tokio::test(start_paused = true)]
async fn the_server_says_how_long_to_wait_and_the_policy_how_long_at_most() {
    let busy = |headers: &HeaderMap| {
        attempts(&Method::POST).again(Some((Status::SERVICE_UNAVAILABLE, headers)))
    };
    let seconds = Duration::from_secs;
    let pause = busy(&saying("7")).unwrap();
    assert!((seconds(7)..seconds(8)).contains(&pause), "{pause:?}");
    let date = |time| saying(&httpdate::fmt_http_date(time));
    let pause = busy(&date(SystemTime::now() + seconds(30))).unwrap();
    assert!((seconds(28)..seconds(31)).contains(&pause), "{pause:?}");
    for past in ["0", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        assert!(busy(&saying(past)).unwrap() < seconds(1), "{past}");
    }
    // A year, and more than a number holds: the answer is handed over at once.
    for long in ["31536000", "99999999999999999999999"] {
        assert_eq!(busy(&saying(long)), None, "{long}");
    }
    assert_eq!(busy(&date(SystemTime::now() + seconds(31_536_000))), None);
    // A value that can't be read is as if it were not there.
    for odd in ["", "-1", "soon", "1.5", "Thu, 32 Jan 1970"] {
        assert!(busy(&saying(odd)).unwrap() <= seconds(1), "{odd}");
    }
    assert_eq!(
        retry_after(&date(UNIX_EPOCH + seconds(9)), UNIX_EPOCH),
        Some(seconds(9))
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_and_time_are_bounded() {
    let policy = Policy::default().attempts(3).time(Duration::from_secs(10));
    let policy = policy.attempt_time(Duration::from_secs(8));
    let (mut headers, extensions) = (HeaderMap::new(), Extensions::new());
    let mut attempts = Attempts::of(&policy, &Method::POST, &mut headers, &extensions);
    assert_eq!(attempts.begin(), Duration::from_secs(8));
    tokio::time::advance(Duration::from_secs(8)).await;
    assert!(attempts.again(None).is_some());
    assert_eq!(
        attempts.begin(),
        Duration::from_secs(2),
        "what is left of the time"
    );
    assert!(attempts.again(None).is_some());
    assert_eq!(attempts.begin(), Duration::from_secs(2));
    assert_eq!(attempts.again(None), None, "the third was the last");
    let failed = attempts.unanswered(Some("connection refused".into()));
    assert_eq!(failed.attempts(), 3);
    let text = failed.to_string();
    let begin = "attempt 3, the last, got no answer: connection refused. ";
    assert!(
        text.starts_with(begin) && text.contains("same key"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_handed_over_where_hardly_any_time_is_left_for_another_attempt() {
    let within = |millis, backoff| {
        let policy = Policy::default().time(Duration::from_millis(millis));
        let policy = policy.backoff(Duration::from_millis(backoff));
        let (mut own, extensions) = (HeaderMap::new(), Extensions::new());
        let mut attempts = Attempts::of(&policy, &Method::POST, &mut own, &extensions);
        attempts.begin();
        attempts
    };
    let again = |attempts: &mut Attempts, headers: &HeaderMap| {
        let busy = (Status::SERVICE_UNAVAILABLE, headers);
        attempts.again(Some(busy)).is_some()
    };
    let (mut long, none) = (within(9_500, 100), HeaderMap::new());
    assert!(again(&mut long, &saying("8")) && !again(&mut long, &saying("9")));
    assert!(again(&mut within(500, 100), &none));
    // Without an answer there is none to hand over.
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(!again(&mut long, &none) && long.again(None).is_some());
    assert_eq!(within(0, 0).again(None), None);
}

#[test]
fn pauses_grow_to_a_bound_and_half_of_each_is_random() {
    let policy = Policy::default().backoff(Duration::from_millis(100));
    let pauses = [1, 2, 3, 8, 9, u32::MAX].map(|made| policy.pause(made, None, 1.0).as_millis());
    assert_eq!(pauses, [100, 200, 400, 10_000, 10_000, 10_000]);
    assert_eq!(policy.pause(2, None, 0.0).as_millis(), 100);
    let pause = |after| policy.pause(9, Some(Duration::from_secs(after)), 1.0);
    let pauses = [0, 1, 30].map(|after| pause(after).as_millis());
    assert_eq!(pauses, [10_000, 10_000, 30_100]);
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_handed_over_as_one() {
    let attempts = attempts(&Method::POST);
    let is_replayed = |name: &'static str, value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        attempts.delivery(&headers).is_replayed
    };
    assert!(is_replayed("idempotent-replayed", "true"));
    assert!(is_replayed("idempotency-replayed", "True"));
    assert!(!is_replayed("idempotent-replayed", "false"));
    assert!(!is_replayed("replayed", "true"));
}

#[tokio::test(start_paused = true)]
async fn an_empty_header_is_no_key() {
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static(" "));
    let unkeyed = Attempts::of(
        &Policy::default(),
        &Method::POST,
        &mut headers,
        &Extensions::new(),
    );
    let key = unkeyed.key.unwrap();
    assert_eq!(headers.get(IDEMPOTENCY_KEY), Some(key.as_header()));
    assert!(!key.as_header().as_bytes().trim_ascii().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_from_a_header_is_sent_again_as_it_was() {
    let policy = Policy::default().quoted();
    for key in ["\"order-17\"", "order-17"] {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static(key));
        let given = Attempts::of(&policy, &Method::POST, &mut headers, &Extensions::new());
        let mut extensions = Extensions::new();
        extensions.insert(given.key.unwrap());
        let mut again = HeaderMap::new();
        Attempts::of(&policy, &Method::POST, &mut again, &extensions);
        assert_eq!(again, headers);
    }
}

#[test]
fn a_date_counts_from_the_answers_own_date_or_else_from_the_clock() {
    let minutes = |minutes| UNIX_EPOCH + Duration::from_mins(minutes);
    let text = httpdate::fmt_http_date;
    let mut headers = saying(&text(minutes(11)));
    let after = |headers: &HeaderMap, now| retry_after(headers, now).unwrap().as_secs();
    for (date, expected) in [(text(minutes(10)), [60; 3]), ("now".into(), [360, 60, 0])] {
        headers.insert(DATE, HeaderValue::from_str(&date).unwrap());
        let waits = [5, 10, 15].map(|now| after(&headers, minutes(now)));
        assert_eq!(waits, expected, "{date}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nothing_keeps_from_being_done_twice_is_sent_once() {
    let mut headers = HeaderMap::new();
    let again = |status, headers: &HeaderMap| {
        let answer = Some((status, headers));
        attempts(&Method::POST).again(answer).is_some()
    };
    for said in ["final", "unrecorded", "unprotected"] {
        headers.insert(STATUS, HeaderValue::from_static(said));
        for status in [
            Status::REQUEST_TIMEOUT,
            Status::INTERNAL_SERVER_ERROR,
            Status::SERVICE_UNAVAILABLE,
        ] {
            assert!(!again(status, &headers), "{said} {status}");
        }
    }
    assert!(again(Status::TOO_MANY_REQUESTS, &headers));
    // Nothing was done.
    headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
    assert!(again(Status::SERVICE_UNAVAILABLE, &headers));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_no_end_where_an_attempt_of_its_own_may_still_run() {
    let (none, mut last) = (HeaderMap::new(), HeaderMap::new());
    last.insert(STATUS, HeaderValue::from_static("final"));
    let status = |code| Status::from_u16(code).unwrap();
    for (earlier, may_run) in [
        (None, true),
        (Some(408), true),
        (Some(429), false),
        (Some(500), false),
        (Some(502), true),
        (Some(503), true),
        (Some(504), true),
    ] {
        let mut attempts = attempts(&Method::POST);
        let answer = earlier.map(|code| (status(code), &none));
        assert!(attempts.again(answer).is_some());
        attempts.begin();
        let conflict = |headers| Some((Status::CONFLICT, headers));
        let repeated = attempts.again(conflict(&none)).is_some();
        assert_eq!(repeated, may_run, "{earlier:?}");
        assert_eq!(attempts.again(conflict(&last)), None, "{earlier:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_box_is_a_cause_too() {
    // As those of tower's `Timeout` and `LoadShed` are.
    let broken = service_fn(async |_: http::Request<()>| {
        Err::<http::Response<()>, BoxError>(std::fmt::Error.into())
    });
    let client = KeyLayer::default().layer(broken);
    let sent = client.oneshot(http::Request::new(())).await;
    let error: BoxError = sent.unwrap_err().into();
    let error = error.downcast::<RequestError>().unwrap();
    assert_eq!(error.attempts(), 5);
    assert!(error.into_cause().unwrap().is::<std::fmt::Error>());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_printed() {
    let (mut headers, mut extensions) = (HeaderMap::new(), Extensions::new());
    extensions.insert(IdempotencyKey::new("order-17").unwrap());
    let attempts = Attempts::of(&Policy::default(), &Method::POST, &mut headers, &extensions);
    let delivery = format!("{:?}", attempts.delivery(&headers));
    let error = format!("{:?}", attempts.unanswered(None));
    for shown in [delivery, error] {
        assert!(shown.contains("key: Some(IdempotencyKey(..))"), "{shown}");
        assert!(!shown.contains("order-17"), "{shown}");
    }
}
