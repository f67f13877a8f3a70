//! Trusts the authorities that were compiled in.

use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use data_encoding::BASE64;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// An HTTPS client that reads no certificate from the system.
///
/// `None`, where the SDK doesn't take them: its own client does, then.
pub(super) fn compiled_in() -> Option<SharedHttpClient> {
    let trusted = TrustStore::empty().with_pem_certificate(pem());
    let context = TlsContext::builder().with_trust_store(trusted).build();
    let client = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
    Some(client.tls_context(context.ok()?).build_https())
}

/// The authorities of Mozilla's programme, in the one form that the SDK takes.
fn pem() -> String {
    let mut pem = String::with_capacity(300_000);
    for certificate in TLS_SERVER_ROOT_CERTS {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        BASE64.encode_append(certificate, &mut pem);
        pem.push_str("\n-----END CERTIFICATE-----\n");
    }
    pem
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aws_sdk_dynamodb::config::retry::RetryConfig;
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    use aws_sdk_dynamodb::{Client, Config};
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
    use tokio_rustls::rustls::{RootCertStore, ServerConfig};

    use super::*;
    use crate::protocol::causes::in_words;

    #[test]
    fn each_authority_is_read_as_the_sdk_reads_it_and_those_of_amazon_are_among_them() {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem().as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        assert_eq!(roots.len(), TLS_SERVER_ROOT_CERTS.len());
        let named = |name: &str| {
            let subjects = roots.roots.iter().map(|root| root.subject.as_ref());
            subjects
                .filter(|subject| {
                    subject
                        .windows(name.len())
                        .any(|part| part == name.as_bytes())
                })
                .count()
        };
        for name in [
            "Amazon Root CA 1",
            "Amazon Root CA 2",
            "Amazon Root CA 3",
            "Amazon Root CA 4",
            "Starfield Services Root Certificate Authority - G2",
        ] {
            assert_eq!(named(name), 1, "{name}");
        }
    }

    #[tokio::test]
    async fn a_certificate_that_none_of_them_signed_is_refused() {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let server = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .retry_config(RetryConfig::disabled())
            .endpoint_url(format!("https://localhost:{port}"))
            .http_client(compiled_in().unwrap());
        let client = Client::from_conf(config.build());
        let accepted = async {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = TlsAcceptor::from(Arc::new(server));
            in_words(&tls.accept(stream).await.unwrap_err())
        };
        let (sent, accepted) = tokio::join!(client.list_tables().send(), accepted);
        let refused = in_words(&sent.unwrap_err());
        let words = "invalid peer certificate: UnknownIssuer";
        assert!(refused.contains(words), "{refused}");
        // The server was told so by the client, and it wasn't the connection that failed.
        assert!(accepted.contains("UnknownCA"), "{accepted}");
    }
}
