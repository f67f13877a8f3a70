//! The arguments of the attribute.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Result, Token};

/// The arguments of the attribute.
pub(crate) struct Arguments {
    pub(crate) operation: LitStr,
    pub(crate) key: Expr,
    pub(crate) fingerprint: Expr,
    pub(crate) scope: Option<Expr>,
    pub(crate) engine: Option<Expr>,
    pub(crate) retention: Option<Expr>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut operation, mut key, mut fingerprint) = (None, None, None);
        let (mut scope, mut engine, mut retention) = (None, None, None);
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "operation" => once(&mut operation, &name, input.parse()?)?,
                "key" => once(&mut key, &name, input.parse()?)?,
                "fingerprint" => once(&mut fingerprint, &name, input.parse()?)?,
                "scope" => once(&mut scope, &name, input.parse()?)?,
                "engine" => once(&mut engine, &name, input.parse()?)?,
                "retention" => once(&mut retention, &name, input.parse()?)?,
                _ => {
                    let message = format!(
                        "no argument `{name}`: there are `operation`, `key`, `fingerprint`, `scope`, `engine` and \
                         `retention`; all other settings are the engine's"
                    );
                    return Err(Error::new(name.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self {
            operation: needed(operation, "`operation = \"charge\"` names the work")?,
            key: needed(
                key,
                "`key = order.id` is what tells one request from another",
            )?,
            fingerprint: needed(
                fingerprint,
                "`fingerprint = Fingerprint::json(&order.body)` refuses a key that comes again with another payload; \
                 `fingerprint = None` compares nothing",
            )?,
            scope,
            engine,
            retention,
        })
    }
}

fn once<T>(slot: &mut Option<T>, name: &Ident, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is there twice")));
    }
    Ok(())
}

fn needed<T>(value: Option<T>, why: &str) -> Result<T> {
    value.ok_or_else(|| Error::new(Span::call_site(), format!("an argument is missing: {why}")))
}
