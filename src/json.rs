//! Strings in JSON.

/// Appends a text as a JSON string. What `serde_json` escapes is exactly what RFC 8785, 3.2.2.2 asks for; most strings hold
/// nothing of that.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // All bytes, without a way out half-way: so the compiler looks at many at a time.
    if text.bytes().fold(true, |all, byte| all & plain(byte)) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Neither a text nor a `Vec` gives it a reason to fail.
        let _ = serde_json::to_writer(out, text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::write_string;

    proptest! {
        #[test]
        fn a_string_is_written_as_serde_json_writes_it(text in "\\PC*|[\\x00-\\x7f]*") {
            let mut out = b"before".to_vec();
            write_string(&text, &mut out);
            let expected = format!("before{}", serde_json::to_string(&text).unwrap());
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
