//! What a function can return at once instead of what it computes.

use syn::{GenericArgument, Path, PathArguments, ReturnType, Type};

/// Expressions for the place of a body, none where no value is known. What the type has no `Default` for, the compiler refuses.
pub fn values(returned: &ReturnType, takes_self: bool) -> Vec<String> {
    match returned {
        ReturnType::Default => vec!["()".into()],
        ReturnType::Type(_, ty) => of(ty, takes_self),
    }
}

fn of(ty: &Type, takes_self: bool) -> Vec<String> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".into()],
        Type::Tuple(tuple) => {
            let parts: Option<Vec<String>> = tuple
                .elems
                .iter()
                .map(|part| of(part, false).into_iter().next())
                .collect();
            parts
                .map(|parts| format!("({})", parts.join(", ")))
                .into_iter()
                .collect()
        }
        Type::Reference(reference) => match reference.elem.as_ref() {
            Type::Path(path) if path.path.is_ident("str") => vec!["\"\"".into()],
            Type::Slice(_) => vec!["&[]".into()],
            _ => Vec::new(),
        },
        Type::Path(path) => of_path(&path.path, takes_self),
        _ => Vec::new(),
    }
}

fn of_path(path: &Path, takes_self: bool) -> Vec<String> {
    let Some(last) = path.segments.last() else {
        return Vec::new();
    };
    let inner = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
        }
        _ => None,
    };
    let within = |wrap: &str| -> Vec<String> {
        inner
            .map(|inner| of(inner, false))
            .unwrap_or_default()
            .iter()
            .map(|value| format!("{wrap}({value})"))
            .collect()
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" => {
            vec!["0".into(), "1".into()]
        }
        "String" => vec!["String::new()".into()],
        "Vec" => vec!["Vec::new()".into()],
        "Duration" => vec!["std::time::Duration::ZERO".into()],
        "Option" => {
            let mut values = vec!["None".to_owned()];
            values.extend(within("Some").into_iter().take(1));
            values
        }
        "Result" => within("Ok"),
        "Poll" => within("std::task::Poll::Ready"),
        "Box" => within("Box::new"),
        "Self" if takes_self => vec!["self".into()],
        _ => vec!["Default::default()".into()],
    }
}
