//! Names the client of a request, as API Gateway or Lambda has verified it: ready-made scopes for
//! [`IdempotencyLayer::scoped`](super::IdempotencyLayer::scoped).
//!
//! ```
//! use lambda_idempotency::{Idempotency, http::{IdempotencyLayer, scope}, store::MemoryStore};
//!
//! let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
//! // Each subject of the API's JWT authorizer has keys of its own; a request without one is refused.
//! let layer = IdempotencyLayer::scoped(once, scope::jwt_claim("sub"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each function reads what API Gateway, a function URL, VPC Lattice or Lambda says *about* the
//! request, which a client can't choose; none reads a header. Without such information there is no
//! scope, and the request is refused: a forgotten authorizer never lets clients share their keys.

use http::request::Parts;
use lambda_http::request::RequestContext;
use serde_json::Value;

/// Takes a claim of the token that API Gateway's JWT or Cognito authorizer has verified, `sub` for
/// example.
///
/// A `sub` is unique within its issuer only. An API that trusts several needs a closure over both
/// claims.
pub fn jwt_claim(
    name: impl Into<String>,
) -> impl Fn(&Parts) -> Option<String> + Send + Sync + 'static {
    let name = name.into();
    move |parts| {
        match context(parts)? {
            RequestContext::ApiGatewayV1(context) => {
                text(context.authorizer.fields.get("claims")?.get(&name)?)
            }
            RequestContext::ApiGatewayV2(context) => {
                let claims = &context.authorizer.as_ref()?.jwt.as_ref()?.claims;
                claims.get(&name).cloned()
            }
            _ => None,
        }
        .filter(|claim| !claim.is_empty())
    }
}

/// Takes a value that a Lambda authorizer has put into the request's context, a tenant's id for
/// example.
pub fn authorizer_context(
    name: impl Into<String>,
) -> impl Fn(&Parts) -> Option<String> + Send + Sync + 'static {
    let name = name.into();
    move |parts| {
        let fields = &context(parts)?.authorizer()?.fields;
        text(fields.get(&name)?).filter(|value| !value.is_empty())
    }
}

/// Takes the identity that signed the request with AWS credentials: a user, a role, or an identity
/// of a Cognito identity pool.
///
/// The sessions of one role are one identity: a service that retries from another of its tasks, or
/// after its credentials were renewed, comes with another session name. Where the sessions are
/// people, use [`iam_session`].
pub fn iam_identity() -> impl Fn(&Parts) -> Option<String> + Send + Sync + 'static {
    |parts| {
        let identity = Identity::of(parts)?;
        identity
            .cognito
            .or_else(|| identity.principal.as_deref().map(without_session))
    }
}

/// Takes the same identity as [`iam_identity`], with the session of an assumed role apart from its
/// other sessions.
pub fn iam_session() -> impl Fn(&Parts) -> Option<String> + Send + Sync + 'static {
    |parts| {
        let identity = Identity::of(parts)?;
        identity.cognito.or(identity.principal)
    }
}

/// Takes the tenant that Lambda's tenant isolation mode names for the invocation.
pub fn tenant_id() -> impl Fn(&Parts) -> Option<String> + Send + Sync + 'static {
    |parts| {
        let tenant = parts
            .extensions
            .get::<lambda_http::Context>()?
            .tenant_id
            .clone();
        tenant.filter(|tenant| !tenant.is_empty())
    }
}

fn context(parts: &Parts) -> Option<&RequestContext> {
    parts.extensions.get::<RequestContext>()
}

/// Writes a value as the text of a token: a string without its quotes, anything else in JSON.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

struct Identity {
    cognito: Option<String>,
    principal: Option<String>,
}

impl Identity {
    fn of(parts: &Parts) -> Option<Self> {
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let (cognito, principal) = match context(parts)? {
            RequestContext::ApiGatewayV1(context) => {
                let identity = &context.identity;
                (
                    named(&identity.cognito_identity_id),
                    named(&identity.user_arn),
                )
            }
            RequestContext::ApiGatewayV2(context) => {
                let iam = context.authorizer.as_ref()?.iam.as_ref()?;
                let cognito = iam.cognito_identity.as_ref();
                (
                    cognito.and_then(|cognito| named(&cognito.identity_id)),
                    named(&iam.user_arn),
                )
            }
            RequestContext::VpcLattice(context) => {
                (None, named(&context.identity.as_ref()?.principal))
            }
            _ => return None,
        };
        Some(Self { cognito, principal })
    }
}

/// `arn:aws:sts::123456789012:assumed-role/checkout/task-17` without `/task-17`.
fn without_session(arn: &str) -> String {
    let is_session = arn.contains(":assumed-role/");
    match arn.rsplit_once('/') {
        Some((role, _)) if is_session && role.contains('/') => role.to_owned(),
        _ => arn.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use lambda_http::RequestExt;

    use super::*;

    fn request(event: &str) -> Parts {
        let request = lambda_http::request::from_str(event).unwrap();
        request.into_parts().0
    }

    fn v1(context: &str) -> Parts {
        request(&format!(
            r#"{{"resource":"/o","path":"/o","httpMethod":"POST","headers":{{}},"multiValueHeaders":{{}},
            "requestContext":{{"httpMethod":"POST","resourcePath":"/o","identity":{{}},{context}}},"isBase64Encoded":false}}"#
        ))
    }

    fn signed_v1(identity: &str) -> Parts {
        request(&format!(
            r#"{{"resource":"/o","path":"/o","httpMethod":"POST","headers":{{}},"multiValueHeaders":{{}},
            "requestContext":{{"httpMethod":"POST","resourcePath":"/o","identity":{identity}}},"isBase64Encoded":false}}"#
        ))
    }

    fn v2(authorizer: &str) -> Parts {
        request(&format!(
            r#"{{"version":"2.0","routeKey":"$default","rawPath":"/o","rawQueryString":"","headers":{{}},
            "requestContext":{{"stage":"$default","http":{{"method":"POST","path":"/o"}},"authorizer":{authorizer}}},
            "isBase64Encoded":false}}"#
        ))
    }

    fn lattice(identity: &str) -> Parts {
        request(&format!(
            r#"{{"version":"2.0","path":"/o","method":"POST","headers":{{}},"requestContext":{{"serviceNetworkArn":"n",
            "serviceArn":"s","targetGroupArn":"t","region":"eu-central-1","timeEpoch":"1","identity":{identity}}},
            "isBase64Encoded":false}}"#
        ))
    }

    #[test]
    fn a_claim_is_read_where_the_authorizer_put_it() {
        let scope = jwt_claim("sub");
        let v1 = v1(r#""authorizer":{"claims":{"sub":"user-1"}}"#);
        assert_eq!(scope(&v1).as_deref(), Some("user-1"));
        let v2 = v2(r#"{"jwt":{"claims":{"sub":"user-1"},"scopes":null}}"#);
        assert_eq!(scope(&v2).as_deref(), Some("user-1"));
        assert_eq!(jwt_claim("tenant")(&v2), None);
        assert_eq!(scope(&lattice("{}")), None);
    }

    #[test]
    fn what_a_lambda_authorizer_said_is_read() {
        let scope = authorizer_context("tenant");
        for parts in [
            v1(r#""authorizer":{"tenant":"t-7"}"#),
            v2(r#"{"lambda":{"tenant":"t-7"}}"#),
        ] {
            assert_eq!(scope(&parts).as_deref(), Some("t-7"));
        }
        assert_eq!(scope(&v2(r#"{"lambda":{"tenant":""}}"#)), None);
        assert_eq!(
            scope(&v2(r#"{"lambda":{"tenant":7}}"#)).as_deref(),
            Some("7")
        );
    }

    #[test]
    fn the_sessions_of_a_role_are_one_identity_unless_asked_for() {
        const SESSION: &str = "arn:aws:sts::123456789012:assumed-role/checkout/task-17";
        let iam = |arn: &str| v2(&format!(r#"{{"iam":{{"userArn":"{arn}"}}}}"#));
        let role = "arn:aws:sts::123456789012:assumed-role/checkout";
        assert_eq!(iam_identity()(&iam(SESSION)).as_deref(), Some(role));
        assert_eq!(iam_session()(&iam(SESSION)).as_deref(), Some(SESSION));

        let user = "arn:aws:iam::123456789012:user/ops/anna";
        assert_eq!(iam_identity()(&iam(user)).as_deref(), Some(user));
        let lattice = lattice(&format!(r#"{{"principal":"{SESSION}","type":"AWS_IAM"}}"#));
        assert_eq!(iam_identity()(&lattice).as_deref(), Some(role));
    }

    #[test]
    fn an_identity_of_a_cognito_pool_is_not_its_role() {
        let parts = v2(
            r#"{"iam":{"userArn":"arn:aws:sts::1:assumed-role/pool/CognitoIdentityCredentials",
            "cognitoIdentity":{"amr":[],"identityId":"eu-central-1:7f"}}}"#,
        );
        for identity in [iam_identity()(&parts), iam_session()(&parts)] {
            assert_eq!(identity.as_deref(), Some("eu-central-1:7f"));
        }
    }

    #[test]
    fn who_signed_a_request_to_a_rest_api_is_read() {
        let user = "arn:aws:iam::123456789012:user/anna";
        let parts = signed_v1(&format!(r#"{{"userArn":"{user}"}}"#));
        let pool = signed_v1(&format!(
            r#"{{"userArn":"{user}","cognitoIdentityId":"eu-central-1:7f"}}"#
        ));
        let no_pool = signed_v1(&format!(r#"{{"userArn":"{user}","cognitoIdentityId":""}}"#));
        for (parts, expected) in [(parts, user), (pool, "eu-central-1:7f"), (no_pool, user)] {
            assert_eq!(iam_identity()(&parts).as_deref(), Some(expected));
            assert_eq!(iam_session()(&parts).as_deref(), Some(expected));
        }
    }

    #[test]
    fn an_empty_name_is_no_identity() {
        let user = |arn: &str| format!(r#"{{"iam":{{"userArn":"{arn}"}}}}"#);
        for parts in [
            signed_v1(r#"{"userArn":""}"#),
            v2(&user("")),
            v2("null"),
            lattice(r#"{"principal":""}"#),
        ] {
            assert_eq!(iam_identity()(&parts), None);
            assert_eq!(iam_session()(&parts), None);
        }
        assert_eq!(
            jwt_claim("sub")(&v2(r#"{"jwt":{"claims":{"sub":""}}}"#)),
            None
        );
        let mut context = lambda_http::Context::default();
        context.tenant_id = Some(String::new());
        let request = http::Request::new(()).with_lambda_context(context);
        assert_eq!(tenant_id()(&request.into_parts().0), None);
    }

    #[test]
    fn what_is_no_session_of_a_role_keeps_its_whole_name() {
        for arn in [
            "arn:aws:iam::123456789012:role/service/checkout",
            "arn:aws:sts::123456789012:assumed-role/checkout",
            "anna",
        ] {
            assert_eq!(without_session(arn), arn);
        }
    }

    #[test]
    fn the_tenant_of_the_invocation_is_read() {
        let mut context = lambda_http::Context::default();
        assert_eq!(tenant_id()(&v2("null")), None);
        context.tenant_id = Some("t-7".to_owned());
        let request = http::Request::new(()).with_lambda_context(context);
        assert_eq!(tenant_id()(&request.into_parts().0).as_deref(), Some("t-7"));
    }
}
