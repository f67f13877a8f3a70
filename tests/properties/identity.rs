//! Two identities share a record if and only if they are the same: no choice of tokens, scopes, operations and delimiters leads into
//! another tenant's record, by the key itself or through the layers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary, Unstructured};
use http::{HeaderValue, Request, Response};
use lambda_http::Body;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::sqs::{BatchLayer, Message, SqsEvent};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Claim, Idempotency, Key, RecordId};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use super::block_on;

/// All parts of a request's name.
#[derive(Arbitrary, Clone, Debug, PartialEq, Eq)]
struct Identity {
    namespace: String,
    scope: Option<String>,
    operation: String,
    token: String,
}

/// A change that an attacker may make to an identity, to reach that of a neighbour.
#[derive(Arbitrary, Debug)]
enum Move {
    /// So many characters from the end of a part to the beginning of the next.
    Forward(Part, u8),
    /// So many characters from the beginning of the next part to the end of this.
    Back(Part, u8),
    /// The whole of a part, with something between, before the next.
    Merge(Part, Delimiter),
    Exchange(Part),
    Append(Part, Delimiter),
    Prepend(Part, Delimiter),
    ForgetScope,
    EmptyScope,
    Replace(Part, String),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Part {
    Namespace,
    Scope,
    Operation,
    Token,
}

/// A text between the parts of ids or of digests, or one that looks alike.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Delimiter {
    Hash,
    Zero,
    One,
    Colon,
    /// As a length of eight bytes is written, in either order.
    LengthFirst(u8),
    LengthLast(u8),
    Decimal(u8),
    Nul,
    UnitSeparator,
    /// U+00E9, which has a second spelling.
    Composed,
    Decomposed,
    Space,
    WordJoiner,
}

impl Delimiter {
    fn text(self) -> String {
        let length = |number: u8| char::from(number & 0x7f).to_string();
        match self {
            Self::Hash => "#".to_owned(),
            Self::Zero => "0".to_owned(),
            Self::One => "1".to_owned(),
            Self::Colon => ":".to_owned(),
            Self::LengthFirst(number) => length(number) + &"\0".repeat(7),
            Self::LengthLast(number) => "\0".repeat(7) + &length(number),
            Self::Decimal(number) => format!("{number}:"),
            Self::Nul => "\0".to_owned(),
            Self::UnitSeparator => "\u{1f}".to_owned(),
            Self::Composed => "\u{e9}".to_owned(),
            Self::Decomposed => "e\u{301}".to_owned(),
            Self::Space => " ".to_owned(),
            Self::WordJoiner => "\u{2060}".to_owned(),
        }
    }
}

/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok(one) = Identity::arbitrary(&mut data) else {
        return;
    };
    let mut moved = one.clone();
    let steps = u8::arbitrary(&mut data).unwrap_or_default() % 4;
    for _ in 0..steps {
        if let Ok(step) = Move::arbitrary(&mut data) {
            moved.apply(&step);
        }
    }
    let other = Identity::arbitrary_take_rest(data).unwrap_or_else(|_| one.clone());
    for (p, q) in [
        (&one, &moved),
        (&one, &other),
        (&moved, &other),
        (&one, &one),
    ] {
        let (Some(first), Some(second)) = (p.record(), q.record()) else {
            continue;
        };
        let same = p == q;
        assert_eq!(same, first == second, "{p:?} {q:?}");
        assert_eq!(same, first.as_str() == second.as_str(), "{p:?} {q:?}");
        assert_eq!(same, first.hash() == second.hash(), "{p:?} {q:?}");
        assert!(
            first.as_str().starts_with(&format!("{}#", p.namespace)),
            "an IAM condition confines it"
        );
    }
    block_on(through_layers(&[&one, &moved, &other]));
}

/// Each layer finds the record that the key itself names.
async fn through_layers(identities: &[&Identity]) {
    for identity in identities {
        let Some(record) = identity.record() else {
            continue;
        };
        let hash = through_sqs(identity).await;
        assert_eq!(hash, record.hash(), "through SQS: {identity:?}");
        if let Some((hash, expected)) = through_http(identity).await {
            assert_eq!(hash, expected, "through HTTP: {identity:?}");
        }
    }
}

impl Identity {
    fn engine(&self) -> Option<Idempotency> {
        let builder = Idempotency::builder(MemoryStore::new()).namespace(self.namespace.as_str());
        builder.build().ok()
    }

    fn key(&self) -> Key {
        let key = Key::new(self.operation.as_str(), self.token.as_str());
        match &self.scope {
            Some(scope) => key.scope(scope.as_str()),
            None => key,
        }
    }

    /// `None` where it can't be used.
    fn record(&self) -> Option<RecordId> {
        self.engine()?.record_id(&self.key()).ok()
    }

    fn part(&mut self, part: Part) -> &mut String {
        match part {
            Part::Namespace => &mut self.namespace,
            Part::Scope => self.scope.get_or_insert_default(),
            Part::Operation => &mut self.operation,
            Part::Token => &mut self.token,
        }
    }

    fn apply(&mut self, step: &Move) {
        match step {
            Move::Forward(part, chars) => {
                let from = self.part(*part);
                let tail = from.split_off(boundary(
                    from,
                    from.chars().count().saturating_sub(usize::from(*chars)),
                ));
                self.part(part.next()).insert_str(0, &tail);
            }
            Move::Back(part, chars) => {
                let from = self.part(part.next());
                let rest = from.split_off(boundary(from, usize::from(*chars)));
                let head = std::mem::replace(from, rest);
                self.part(*part).push_str(&head);
            }
            Move::Merge(part, delimiter) => {
                let whole = std::mem::take(self.part(*part)) + &delimiter.text();
                self.part(part.next()).insert_str(0, &whole);
            }
            Move::Exchange(part) => {
                let whole = std::mem::take(self.part(*part));
                let next = std::mem::replace(self.part(part.next()), whole);
                *self.part(*part) = next;
            }
            Move::Append(part, delimiter) => self.part(*part).push_str(&delimiter.text()),
            Move::Prepend(part, delimiter) => self.part(*part).insert_str(0, &delimiter.text()),
            Move::ForgetScope => self.scope = None,
            Move::EmptyScope => self.scope = Some(String::new()),
            Move::Replace(part, text) => text.clone_into(self.part(*part)),
        }
    }
}

impl Part {
    /// In the order in which ids have them.
    fn next(self) -> Self {
        match self {
            Self::Namespace => Self::Scope,
            Self::Scope => Self::Operation,
            Self::Operation => Self::Token,
            Self::Token => Self::Namespace,
        }
    }
}

/// Returns the place where the character of this number begins.
fn boundary(text: &str, chars: usize) -> usize {
    text.char_indices()
        .nth(chars)
        .map_or(text.len(), |(at, _)| at)
}

/// The tenant in one message attribute, the token in another.
async fn through_sqs(identity: &Identity) -> String {
    let text = |text: &str| json!({ "stringValue": text, "dataType": "String" });
    let mut attributes = json!({ "token": text(&identity.token) });
    if let Some(scope) = &identity.scope {
        attributes["tenant"] = text(scope);
    }
    let event = json!({ "Records": [{ "messageId": "m-1", "body": "{}", "attributes": {}, "messageAttributes": attributes }] });
    let event: SqsEvent = serde_json::from_value(event).expect("an event");
    let (seen, noted) = slot();
    let layer = BatchLayer::new(identity.engine().expect("an engine"))
        .operation(identity.operation.as_str())
        .key_attribute("token")
        .scope(|_: &Value, message| {
            message
                .message_attributes
                .get("tenant")?
                .string_value
                .clone()
        });
    let worker = layer.handler(move |message: Message<Value>| {
        note(&noted, &message.claim);
        std::future::ready(Ok::<_, Infallible>(()))
    });
    worker
        .oneshot(LambdaEvent::new(event, Context::default()))
        .await
        .expect("a batch");
    taken(&seen).expect("the identity is usable, so that it ran")
}

/// The tenant and the token in headers, as far as these can hold them; with what the layer is to find.
async fn through_http(identity: &Identity) -> Option<(String, String)> {
    let printable = identity
        .token
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~'));
    let quoted = identity.token.replace('\\', "\\\\").replace('"', "\\\"");
    let token = HeaderValue::from_str(&format!("\"{quoted}\""))
        .ok()
        .filter(|_| printable)?;
    let operation = identity.operation.clone();
    let scope = identity.scope.clone();
    let once = identity.engine()?;
    let expected = once.record_id(&identity.key()).ok()?.hash().to_owned();
    let (seen, noted) = slot();
    let layer = match scope {
        Some(scope) => IdempotencyLayer::scoped(once, move |_| Some(scope.clone())),
        None => IdempotencyLayer::unscoped(once),
    };
    let layer = layer.operation(move |_| operation.clone());
    let service = layer.layer(service_fn(move |request: Request<Body>| {
        note(
            &noted,
            request.extensions().get::<Claim>().expect("it has a key"),
        );
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::Empty)))
    }));
    let mut request = Request::post("/").body(Body::Empty).expect("a request");
    request.headers_mut().insert("idempotency-key", token);
    service.oneshot(request).await.expect("an answer");
    Some((
        taken(&seen).expect("the identity is usable, so that it ran"),
        expected,
    ))
}

type Slot = Arc<Mutex<Option<String>>>;

fn slot() -> (Slot, Slot) {
    let slot = Slot::default();
    (Arc::clone(&slot), slot)
}

fn note(slot: &Slot, claim: &Claim) {
    *slot.lock().expect("one at a time") = Some(claim.key_hash().to_owned());
}

fn taken(slot: &Slot) -> Option<String> {
    slot.lock().expect("one at a time").take()
}
