//! Decides which status is an outcome and which is passing. Pure.

use http::StatusCode;

use crate::idempotency::Verdict;

/// Decides: successes, redirects and refusals that a retry would meet again are final. Refusals
/// that depend on the moment or on something besides the request (400 among them: a corrected body
/// may use the key again), and server errors, are not.
pub(super) fn verdict(status: StatusCode, stores_server_errors: bool) -> Verdict {
    match status {
        _ if status.is_server_error() && stores_server_errors => Verdict::Complete,
        StatusCode::BAD_REQUEST
        | StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::CONFLICT
        | StatusCode::MISDIRECTED_REQUEST
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => Verdict::Release,
        _ if status.is_success() || status.is_redirection() || status.is_client_error() => {
            Verdict::Complete
        }
        _ => Verdict::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_answers_are_stored_and_passing_ones_released() {
        for status in [
            200, 201, 202, 204, 206, 301, 303, 304, 307, 402, 404, 405, 406, 410, 413, 415, 422,
            451,
        ] {
            assert_eq!(
                verdict(StatusCode::from_u16(status).unwrap(), false),
                Verdict::Complete,
                "{status}"
            );
        }
        for status in [
            100, 101, 400, 401, 403, 408, 409, 421, 425, 429, 500, 501, 502, 503, 504, 599, 999,
        ] {
            assert_eq!(
                verdict(StatusCode::from_u16(status).unwrap(), false),
                Verdict::Release,
                "{status}"
            );
        }
    }

    #[test]
    fn server_errors_and_only_they_are_stored_too_where_the_setting_says_so() {
        for (status, expected) in [
            (500, Verdict::Complete),
            (503, Verdict::Complete),
            (201, Verdict::Complete),
            (400, Verdict::Release),
            (429, Verdict::Release),
            (999, Verdict::Release),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(verdict(status, true), expected, "{status}");
        }
    }
}
