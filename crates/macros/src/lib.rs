//! The attribute `#[idempotent]`, which `lambda-idempotency` exports and describes with its feature `macros`.

use proc_macro::TokenStream;
use syn::parse_macro_input;

mod arguments;
mod expand;

use arguments::Arguments;

/// The attribute is defined in `lambda-idempotency-macros`. Use it by the feature `macros` of
/// [`lambda-idempotency`](https://docs.rs/lambda-idempotency/latest/lambda_idempotency/attr.idempotent.html).
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as Arguments);
    let function = parse_macro_input!(function as syn::ItemFn);
    expand::expand(arguments, function)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
