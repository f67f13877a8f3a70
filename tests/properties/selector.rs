//! A selector finds what a pointer's other implementation finds, and the same token in each text of a document.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary, Unstructured};
use lambda_idempotency::sqs::{BatchLayer, Message, SqsEvent};
use lambda_idempotency::{Key, Selector};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::document::{Dice, Document};
use super::{block_on, empty};

/// Longer ones are no developer's.
const LONGEST_EXPRESSION: usize = 64;

/// A token of a JMESPath expression.
#[derive(Arbitrary, Debug)]
enum Token {
    Dot,
    Name(u8),
    Quoted(String),
    Index(i8),
    Slice(Option<i8>, Option<i8>, Option<i8>),
    Flatten,
    Star,
    AllItems,
    OpenFilter,
    OpenList,
    OpenHash,
    CloseList,
    CloseHash,
    Or,
    And,
    Not,
    Less,
    Pipe,
    Current,
    Literal(i8),
    Text(String),
    Comma,
    Colon,
    Ampersand,
    Function(u8),
    CloseCall,
}

impl Token {
    fn text(&self) -> String {
        let number =
            |number: &Option<i8>| number.map_or(String::new(), |number| number.to_string());
        let text = match self {
            Self::Dot => ".",
            Self::Name(letter) => return char::from(b'a' + letter % 26).to_string(),
            Self::Quoted(name) => return Value::from(name.as_str()).to_string(),
            Self::Index(index) => return format!("[{index}]"),
            Self::Slice(start, end, step) => {
                return format!("[{}:{}:{}]", number(start), number(end), number(step));
            }
            Self::Flatten => "[]",
            Self::Star => "*",
            Self::AllItems => "[*]",
            Self::OpenFilter => "[?",
            Self::OpenList => "[",
            Self::OpenHash => "{",
            Self::CloseList => "]",
            Self::CloseHash => "}",
            Self::Or => "||",
            Self::And => "&&",
            Self::Not => "!",
            Self::Less => "<",
            Self::Pipe => "|",
            Self::Current => "@",
            Self::Literal(number) => return format!("`{number}`"),
            Self::Text(text) => return format!("'{text}'"),
            Self::Comma => ",",
            Self::Colon => ":",
            Self::Ampersand => "&",
            Self::Function(which) => FUNCTIONS[usize::from(*which) % FUNCTIONS.len()],
            Self::CloseCall => ")",
        };
        text.to_owned()
    }
}

/// Without those whose result depends on how a number is written: `7` and `7.0` are not equal in the library's JMESPath.
const FUNCTIONS: [&str; 19] = [
    "abs(",
    "avg(",
    "ceil(",
    "ends_with(",
    "floor(",
    "join(",
    "length(",
    "map(",
    "max(",
    "max_by(",
    "merge(",
    "min(",
    "not_null(",
    "reverse(",
    "sort(",
    "sort_by(",
    "starts_with(",
    "sum(",
    "type(",
];

#[derive(Arbitrary, Debug)]
struct Case {
    seed: u64,
    expression: Vec<Token>,
    steps: Vec<u8>,
    body: BTreeMap<String, Document>,
}

/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    let body = Document::Object(case.body);
    // Deeper ones don't decode, and are reported as such.
    if body.depth() > 100 {
        return;
    }
    let mut dice = Dice::new(case.seed);
    let texts = [body.text(&mut dice), body.text(&mut dice)];
    let path = walk(&body, &case.steps);
    let (mut pointer, mut expression) = (String::new(), "@".to_owned());
    for step in &path {
        pointer.push('/');
        pointer.push_str(&step.pointer());
        expression.push_str(&step.jmespath());
    }
    block_on(judge_pointer(&pointer, &texts));
    block_on(judge_paths(&pointer, &expression, &texts[0]));
    let expression: String = case.expression.iter().map(Token::text).collect();
    if expression.len() <= LONGEST_EXPRESSION
        && !has_long_number(&body)
        && let Ok(selector) = Selector::jmespath(&expression)
    {
        let [one, other] = &texts;
        let (first, second) =
            block_on(async { (key(&selector, one).await, key(&selector, other).await) });
        assert_eq!(
            first, second,
            "{expression} finds two things in one document:\n{one}\n{other}"
        );
    }
}

/// In JMESPath a number is of 64 bits, whole or not, depending on how it is written.
fn has_long_number(document: &Document) -> bool {
    match document {
        Document::Number(number) => {
            number.digits >= 1 << 53 || !(-20..=0).contains(&number.exponent)
        }
        Document::List(items) => items.iter().any(has_long_number),
        Document::Object(members) => members.values().any(has_long_number),
        _ => false,
    }
}

/// Asserts that a pointer finds the value that `serde_json` finds, and that it stands for the token that the documentation says.
async fn judge_pointer(pointer: &str, texts: &[String; 2]) {
    let selector = Selector::pointer(pointer).expect("it was escaped");
    let (one, other) = (
        key(&selector, &texts[0]).await,
        key(&selector, &texts[1]).await,
    );
    assert_eq!(
        one, other,
        "{pointer} finds two things in one document:\n{}\n{}",
        texts[0], texts[1]
    );
    let Ok(body) = serde_json::from_str::<Value>(&texts[0]) else {
        return;
    };
    let hash = |token: &str| {
        empty()
            .record_id(&Key::new("work", token))
            .ok()
            .map(|id| id.hash().to_owned())
    };
    match body.pointer(pointer) {
        None | Some(Value::Null) => assert_eq!(one, None, "{pointer} finds nothing"),
        Some(Value::String(text)) => assert_eq!(one, hash(text), "{pointer} finds a text"),
        Some(Value::Bool(value)) => assert_eq!(one, hash(&value.to_string())),
        Some(Value::Array(items)) if items.is_empty() => assert_eq!(one, None),
        Some(Value::Object(members)) if members.is_empty() => assert_eq!(one, None),
        // Of these, only that they have one token in all texts.
        Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => {}
    }
}

/// The same place by both languages: where no number is in the way, which loses digits in one of them, the same token.
async fn judge_paths(pointer: &str, expression: &str, text: &str) {
    let Ok(body) = serde_json::from_str::<Value>(text) else {
        return;
    };
    let found = body.pointer(pointer);
    if found.is_none_or(has_number) {
        return;
    }
    let pointer = Selector::pointer(pointer).expect("it was escaped");
    let Ok(by_expression) = Selector::jmespath(expression) else {
        panic!("{expression} is an expression");
    };
    assert_eq!(
        key(&by_expression, text).await,
        key(&pointer, text).await,
        "{expression} in {text}"
    );
}

fn has_number(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(items) => items.iter().any(has_number),
        Value::Object(members) => members.values().any(has_number),
        _ => false,
    }
}

/// The hash of the key that a message with this body runs under; `None` where it is reported.
async fn key(selector: &Selector, body: &str) -> Option<String> {
    let event = json!({ "Records": [{
        "messageId": "m-1", "body": body, "attributes": {}, "messageAttributes": {},
    }] });
    let event: SqsEvent = serde_json::from_value(event).expect("an event");
    let seen = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&seen);
    let layer = BatchLayer::new(empty())
        .operation("work")
        .key_from(selector.clone());
    let worker = layer.handler(move |message: Message<serde::de::IgnoredAny>| {
        *noted.lock().expect("one at a time") = Some(message.claim.key_hash().to_owned());
        std::future::ready(Ok::<_, Infallible>(()))
    });
    let reply = worker
        .oneshot(LambdaEvent::new(event, Context::default()))
        .await
        .expect("a batch");
    let seen = seen.lock().expect("one at a time").take();
    assert_eq!(
        seen.is_some(),
        reply.batch_item_failures.is_empty(),
        "it runs, or it is reported"
    );
    seen
}

/// One step down into a document.
enum Step {
    Member(String),
    Item(usize),
}

impl Step {
    fn pointer(&self) -> String {
        match self {
            Self::Member(name) => name.replace('~', "~0").replace('/', "~1"),
            Self::Item(place) => place.to_string(),
        }
    }

    fn jmespath(&self) -> String {
        match self {
            Self::Member(name) => format!(".{}", Value::from(name.as_str())),
            Self::Item(place) => format!("[{place}]"),
        }
    }
}

/// Down into the document, as far as the steps lead, and sometimes beside it.
fn walk(document: &Document, steps: &[u8]) -> Vec<Step> {
    let mut path = Vec::new();
    let mut place = Some(document);
    for step in steps.iter().take(8) {
        let number = usize::from(*step);
        place = match place {
            Some(Document::Object(members)) if !members.is_empty() => {
                let next = members.iter().nth(number % members.len());
                path.extend(next.map(|(name, _)| Step::Member(name.clone())));
                next.map(|(_, value)| value)
            }
            Some(Document::List(items)) => {
                path.push(Step::Item(number % (items.len() + 1)));
                items.get(number % (items.len() + 1))
            }
            _ => break,
        };
    }
    path
}
