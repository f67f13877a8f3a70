//! Servers on the loopback interface.

use std::error::Error;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Listens on a free port. Returns the endpoint, too.
pub async fn bind() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    (listener, endpoint)
}

/// Answers requests so, and cuts the connection at an error. Returns the endpoint.
pub async fn serve<A, F, E>(answer: A) -> String
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let (listener, endpoint) = bind().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(answer.clone());
            tokio::spawn(async move {
                // An error here is one of the client, or one that the test asked for.
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    endpoint
}
