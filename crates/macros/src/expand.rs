//! The function becomes a call of `Idempotency::run`, as it is written by hand.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Error, Expr, FnArg, GenericArgument, Ident, ItemFn, Pat, PathArguments, Result, ReturnType,
    Signature, Type, parse_quote,
};

use crate::arguments::Arguments;

pub(crate) fn expand(arguments: Arguments, mut function: ItemFn) -> Result<TokenStream> {
    let signature = &mut function.sig;
    if signature.asyncness.is_none() {
        let message = "only an async function can wait for its claim: write `async fn`";
        return Err(Error::new(signature.fn_token.span(), message));
    }
    let (value, error) = value_and_error(signature)?;
    let (claim, inputs) = signature
        .inputs
        .iter()
        .cloned()
        .partition::<Vec<_>, _>(is_claim);
    let claim = match claim.as_slice() {
        [] => quote!(_),
        [claim] => quote!(#claim),
        [_, second, ..] => {
            return Err(Error::new(
                second.span(),
                "a run has one claim: take one `Claim`, and import another type of this name as another (`use … as …`)",
            ));
        }
    };
    signature.inputs = inputs.into_iter().collect();
    let engine = match arguments.engine {
        Some(engine) => engine,
        None => first_parameter(function.sig.inputs.first(), &function.sig.ident)?,
    };

    let library = quote!(::lambda_idempotency);
    let operation = arguments.operation;
    let token = text(&arguments.key);
    let mut key = quote!(#library::Key::new(#operation, #token));
    if let Some(scope) = &arguments.scope {
        let scope = text(scope);
        key = quote!(#key.scope(#scope));
    }
    let fingerprint = arguments.fingerprint;
    let body = &function.block;
    let handler = quote!(move |#claim| async move #body);
    let bound = Ident::new("engine", Span::mixed_site());
    let settings = arguments.retention.map(
        |retention| quote_spanned!(at(&retention)=> let #bound = &#bound.retention(#retention);),
    );
    let run = quote_spanned!(at(&engine)=> #bound.run::<#value, #error, _, _, _>);
    function.block = parse_quote!({
        let #bound = &#engine;
        #settings
        #run(#key, #fingerprint, #handler).await
    });
    function.sig.output = parse_quote! {
        -> ::core::result::Result<#library::Outcome<#value>, #library::Error<#error>>
    };
    Ok(quote!(#function))
}

/// The text of a key's part; a value that has none is an error at the argument.
fn text(value: &Expr) -> TokenStream {
    quote_spanned!(at(value)=> ::std::string::ToString::to_string(&(#value)))
}

/// The place of an argument, for errors. The code at it is still the attribute's, so that lints about
/// style leave it alone.
fn at(argument: &Expr) -> Span {
    argument.span().resolved_at(Span::mixed_site())
}

/// A claim is told by its type's name, as `Claim` or at the end of a path.
fn is_claim(input: &FnArg) -> bool {
    matches!(input, FnArg::Typed(input) if matches!(&*input.ty, Type::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident == "Claim")))
}

/// The parameter that stands for the engine where no argument names one.
fn first_parameter(first: Option<&FnArg>, function: &Ident) -> Result<Expr> {
    match first {
        Some(FnArg::Typed(first)) if let Pat::Ident(name) = &*first.pat => {
            let name = &name.ident;
            Ok(parse_quote!(#name))
        }
        Some(first) => Err(Error::new(
            first.span(),
            "the first parameter is not the engine: say where it is, with `engine = self.once`",
        )),
        None => Err(Error::new(
            function.span(),
            "there is no engine: make it the first parameter, `once: &Idempotency`, or say `engine = …`",
        )),
    }
}

/// The two types of the `Result` that the function returns.
fn value_and_error(signature: &Signature) -> Result<(Type, Type)> {
    let message = "the return type must be written as `Result<T, E>`: `T` is stored and replayed, `E` ends the claim";
    let ReturnType::Type(_, output) = &signature.output else {
        return Err(Error::new(signature.ident.span(), message));
    };
    let Type::Path(path) = &**output else {
        return Err(Error::new(output.span(), message));
    };
    let last = path.path.segments.last();
    let types = match last.map(|last| (&last.ident, &last.arguments)) {
        Some((name, PathArguments::AngleBracketed(types))) if name == "Result" => types,
        _ => return Err(Error::new(output.span(), message)),
    };
    let types: Vec<_> = types.args.iter().collect();
    match types.as_slice() {
        [GenericArgument::Type(value), GenericArgument::Type(error)] => {
            Ok((value.clone(), error.clone()))
        }
        _ => Err(Error::new(output.span(), message)),
    }
}
