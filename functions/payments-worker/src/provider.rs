//! The payment provider: `POST /charges`, with an `Idempotency-Key`.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Error as HttpError, Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::payment::Payment;

/// The time that a charge may take: well below the `FunctionTimeout` of `template.yaml`.
const TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Clone)]
pub(crate) struct Provider {
    client: Client,
    charges: String,
    /// Whether it recognises a key that it has seen, and answers with the charge that it made then.
    pub(crate) honours_keys: bool,
}

/// The provider's answer to a charge.
#[derive(Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) charge_id: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// It answered, and didn't charge.
    #[error("the provider refused the charge: {0}")]
    Refused(HttpError),
    /// No answer, or none that tells.
    #[error("the provider gave no answer: {0}")]
    NoAnswer(HttpError),
}

/// Returns whether a status says that nothing was charged. A timeout (408), a conflict (409) and an
/// early request (425) are answers about this request: another one with its key may have charged.
fn is_refusal(status: StatusCode) -> bool {
    const OTHERS: [StatusCode; 3] = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT,
        StatusCode::TOO_EARLY,
    ];
    status.is_client_error() && !OTHERS.contains(&status)
}

impl ProviderError {
    pub(crate) fn may_have_charged(&self) -> bool {
        matches!(self, Self::NoAnswer(_))
    }

    fn of(error: HttpError) -> Self {
        if error.is_connect() || error.status().is_some_and(is_refusal) {
            Self::Refused(error)
        } else {
            Self::NoAnswer(error)
        }
    }
}

impl Provider {
    pub(crate) fn new(url: &str, honours_keys: bool) -> Result<Self, HttpError> {
        Ok(Self {
            // Behind a redirect an error would be of another request than the charge.
            client: Client::builder()
                .timeout(TIMEOUT)
                .redirect(Policy::none())
                .build()?,
            charges: format!("{}/charges", url.trim_end_matches('/')),
            honours_keys,
        })
    }

    pub(crate) async fn charge(
        &self,
        payment: &Payment,
        key: String,
    ) -> Result<Receipt, ProviderError> {
        let request = self.client.post(&self.charges);
        let request = request.header("Idempotency-Key", key).json(payment);
        let answer = request.send().await.and_then(Response::error_for_status);
        let answer = answer.map_err(ProviderError::of)?;
        // It charged; an answer that can't be read doesn't change that.
        answer.json().await.map_err(ProviderError::NoAnswer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_status_that_leaves_the_charge_open_is_no_refusal() {
        let refusals: Vec<u16> = (400..600)
            .filter(|&status| StatusCode::from_u16(status).is_ok_and(is_refusal))
            .collect();
        let open = [408, 409, 425];
        let expected: Vec<u16> = (400..500).filter(|status| !open.contains(status)).collect();
        assert_eq!(refusals, expected);
    }

    /// The provider has charged, and sends its client to a page that isn't there.
    #[tokio::test(flavor = "current_thread")]
    async fn an_error_behind_a_redirect_is_no_refusal_of_the_charge() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in ["303 See Other\r\nlocation: /gone", "404 Not Found"] {
                let (mut client, _) = server.accept().unwrap();
                let _ = client.read(&mut [0; 4096]);
                let head = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n");
                let head = format!("{head}connection: close\r\n\r\n");
                client.write_all(head.as_bytes()).unwrap();
            }
        });
        let payment = Payment {
            payment_id: "p-17".to_owned(),
            order_id: "o-17".to_owned(),
            amount: 1250,
            currency: "EUR".to_owned(),
        };
        let provider = Provider::new(&url, false).unwrap();
        let charged = provider.charge(&payment, "key".to_owned()).await;
        assert!(charged.is_err_and(|error| error.may_have_charged()));
    }
}
