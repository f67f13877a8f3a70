//! Reads from the environment variables whether the SDK has nothing to look for.

use std::ffi::OsString;

const FUNCTION_NAME: &str = "AWS_LAMBDA_FUNCTION_NAME";

/// What Lambda gives every function that has a role and no file of settings.
const GIVEN: [&str; 4] = [
    FUNCTION_NAME,
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

/// What says that the SDK has to look: for certificates of one's own, on the way to a proxy that
/// may have such, or in files.
const LOOKED_UP: [&str; 13] = [
    "AWS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
];

/// What names an endpoint that gives credentials, and new ones before those expire.
const RENEWED_AT: [&str; 2] = [
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];

/// `AWS_ENDPOINT_URL`, and `AWS_ENDPOINT_URL_DYNAMODB` and its like.
const ENDPOINT: &str = "AWS_ENDPOINT_URL";

/// What the variables say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Environment {
    /// Region and credentials are in the environment itself, and only AWS's own servers, or servers
    /// without TLS, are called.
    pub(super) is_complete: bool,
    /// This is a function, and an endpoint is named that renews its credentials.
    pub(super) is_renewed: bool,
}

impl Environment {
    pub(super) fn of(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let (mut given, mut looks_up) = (0, false);
        let (mut is_function, mut has_endpoint) = (false, false);
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            let Some(name) = name.to_str() else { continue };
            let has_tls = || !value.to_string_lossy().trim_start().starts_with("http://");
            looks_up |= LOOKED_UP.contains(&name) || (name.starts_with(ENDPOINT) && has_tls());
            given += usize::from(GIVEN.contains(&name));
            is_function |= name == FUNCTION_NAME;
            has_endpoint |= RENEWED_AT.contains(&name);
        }
        Self {
            is_complete: given == GIVEN.len() && !looks_up,
            is_renewed: is_function && has_endpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: [(&str, &str); 4] = [
        ("AWS_LAMBDA_FUNCTION_NAME", "payments"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter();
        Environment::of(variables.map(|&(name, value)| (name.into(), value.into())))
    }

    fn complete(variables: &[(&str, &str)]) -> bool {
        environment(variables).is_complete
    }

    fn with(name: &str, value: &str) -> bool {
        let mut variables = FUNCTION.to_vec();
        variables.push((name, value));
        complete(&variables)
    }

    #[test]
    fn a_functions_environment_is_complete() {
        assert!(complete(&FUNCTION));
        assert!(with("AWS_SESSION_TOKEN", "token"));
    }

    #[test]
    fn whatever_lambda_gives_may_not_be_missing_or_empty() {
        for missing in 0..FUNCTION.len() {
            let mut variables = FUNCTION.to_vec();
            let (name, _) = variables.remove(missing);
            assert!(!complete(&variables), "without {name}");
            variables.push((name, ""));
            assert!(!complete(&variables), "with an empty {name}");
        }
    }

    #[test]
    fn whatever_has_to_be_looked_up_is_left_to_the_sdk() {
        for name in LOOKED_UP {
            assert!(!with(name, "/var/task/own"), "{name}");
            assert!(with(name, ""), "an empty {name}");
        }
    }

    #[test]
    fn credentials_of_a_function_are_renewed_where_an_endpoint_is_named() {
        let renewed = |variables: &[(&str, &str)]| environment(variables).is_renewed;
        let (at, function) = ("http://127.0.0.1:9001/credentials", (FUNCTION_NAME, "f"));
        for name in RENEWED_AT {
            assert!(renewed(&[function, (name, at)]), "{name}");
            assert!(!renewed(&[function, (name, "")]), "an empty {name}");
            assert!(!renewed(&[(name, at)]), "elsewhere");
        }
        assert!(!renewed(&FUNCTION));
    }

    #[test]
    fn an_endpoint_with_tls_of_its_own_is_left_to_the_sdk() {
        for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"] {
            assert!(!with(name, "https://localhost:8000"));
            assert!(!with(name, "localhost:8000"));
            assert!(with(name, "http://localhost:8000"));
        }
    }
}
