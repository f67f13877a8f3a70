//! The attribute `#[idempotent]`, which `lambda-idempotency` exports with its feature `macros`.

use proc_macro::TokenStream;
use syn::parse_macro_input;

mod arguments;
mod expand;

use arguments::Arguments;

/// Makes an async function idempotent: its body becomes the handler of
/// [`Idempotency::run`](https://docs.rs/lambda-idempotency/latest/lambda_idempotency/struct.Idempotency.html#method.run).
///
/// ```
/// use lambda_idempotency::{Claim, Fingerprint, Idempotency, Outcome, idempotent, store::{MemoryStore, Store}};
///
/// struct Order {
///     id: u64,
///     body: Vec<u8>, // as it was received
/// }
///
/// #[idempotent(operation = "charge", key = order.id, fingerprint = Fingerprint::json(&order.body))]
/// async fn charge<S: Store>(once: &Idempotency<S>, claim: Claim, order: Order) -> Result<String, std::io::Error> {
///     // Charge the card here, and hand the provider `claim.derive_key("gateway")`: it is the same in every attempt.
///     Ok(format!("receipt of order {}, attempt {}", order.id, claim.attempt()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// let order = || Order { id: 17, body: br#"{"amount": 1250}"#.to_vec() };
/// assert!(matches!(charge(&once, order()).await?, Outcome::Executed(_)));
/// let again = charge(&once, order()).await?;
/// assert!(again.is_replayed());
/// assert_eq!(again.get(), "receipt of order 17, attempt 1");
/// # Ok(()) }
/// ```
///
/// The function above is, written by hand:
///
/// ```
/// # use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Outcome, store::Store};
/// # struct Order { id: u64, body: Vec<u8> }
/// async fn charge<S: Store>(once: &Idempotency<S>, order: Order) -> Result<Outcome<String>, Error<std::io::Error>> {
///     let key = Key::new("charge", order.id.to_string());
///     once.run(key, Fingerprint::json(&order.body), |claim| async move {
///         Ok(format!("receipt of order {}, attempt {}", order.id, claim.attempt()))
///     })
///     .await
/// }
/// ```
///
/// # Arguments
///
/// | argument | | |
/// |---|---|---|
/// | `operation` | a string | names the work |
/// | `key` | an expression of the parameters that implements `Display` | the token that the request's producer chose: the same each time the request arrives |
/// | `fingerprint` | an expression, as `run` takes it | the hash of the payload, best as it was received; `None` where it says nothing about the request |
/// | `scope` | an expression that implements `Display`; optional | the tenant: without one, two clients that choose the same token get each other's outcome |
/// | `engine` | an expression; optional | the `Idempotency`, such as `self.once`; by default the first parameter |
/// | `retention` | a [`Duration`](std::time::Duration); optional | how long the outcome is replayed; by default as long as the engine says |
///
/// `key`, `scope` and `fingerprint` are evaluated before the body begins.
///
/// # What becomes of the function
///
/// - A return type `Result<T, E>` becomes `Result<Outcome<T>, Error<E>>`. `T` must survive a round
///   trip through JSON.
/// - A parameter of the type `Claim` is taken out of the signature: the body gets the claim of its
///   run in it.
///
/// All other settings are those of the engine: lease, policies. In a Lambda handler, hand in an
/// engine that is bound to the invocation: `&once.deadline(event.context.deadline())`.
///
/// # Errors
///
/// Those of `run`.
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as Arguments);
    let function = parse_macro_input!(function as syn::ItemFn);
    expand::expand(arguments, function)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
