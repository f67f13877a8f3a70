//! A server with TLS, whose certificate a private authority signed.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::Server;
use super::server::unique;

/// TLS before a server, on `localhost`.
pub struct Tls {
    endpoint: String,
    authority: PathBuf,
}

impl Tls {
    pub async fn before(server: &Server) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, key()).expect("an authority");
        let (name, key) = (vec!["localhost".to_owned()], key());
        let certificate = CertificateParams::new(name).expect("a name");
        let certificate = certificate.signed_by(&key, &authority).expect("signed");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a certificate and its key");
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let target = server.endpoint().trim_start_matches("http://").to_owned();
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), target));
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique("authority") + ".pem");
        std::fs::write(&file, authority.pem()).expect("a file");
        Self {
            endpoint: format!("https://localhost:{port}"),
            authority: file,
        }
    }

    pub fn server(&self) -> Server {
        Server::behind(self.endpoint.clone())
    }

    /// A file with the certificate of its authority.
    pub fn authority(&self) -> &str {
        self.authority.to_str().expect("UTF-8")
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.authority);
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, target: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, target) = (tls.clone(), target.clone());
        tokio::spawn(async move {
            // A client that trusts nobody here goes away, which its own error says.
            let Ok(mut client) = tls.accept(stream).await else {
                return;
            };
            let mut server = TcpStream::connect(target).await.expect("the server");
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}
