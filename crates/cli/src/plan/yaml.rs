//! Reads a template's YAML or JSON. `!Ref x` becomes `{"Ref": "x"}`, as `CloudFormation` itself has it.

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

use super::intrinsic::members;

/// Reads the first document of the text.
pub(super) fn read(text: &str) -> Result<Value, String> {
    // JSON writes some characters as two escapes, which YAML doesn't take.
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(json);
    }
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    documents
        .first()
        .map(value)
        .ok_or_else(|| "the file is empty".to_owned())
}

fn value(node: &Yaml<'_>) -> Value {
    match node {
        Yaml::Value(scalar) => of_scalar(scalar),
        Yaml::Representation(text, ..) => Value::String(text.to_string()),
        Yaml::Sequence(items) => items.iter().map(value).collect(),
        Yaml::Mapping(of) => {
            let member = |(name, member): (&Yaml<'_>, &Yaml<'_>)| (name_of(name), value(member));
            Value::Object(merged(of.iter().map(member).collect()))
        }
        Yaml::Tagged(tag, node) => intrinsic(&tag.suffix, value(node)),
        Yaml::Alias(_) | Yaml::BadValue => Value::Null,
    }
}

fn of_scalar(scalar: &Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(is) => Value::Bool(*is),
        Scalar::Integer(number) => json!(number),
        Scalar::FloatingPoint(number) => json!(number.into_inner()),
        Scalar::String(text) => Value::String(text.to_string()),
    }
}

fn name_of(node: &Yaml<'_>) -> String {
    match value(node) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Puts a mapping's own members over those of the mappings that `<<` names, as SAM does.
fn merged(mut own: Map<String, Value>) -> Map<String, Value> {
    let others = match own.remove("<<") {
        Some(Value::Array(several)) => several,
        Some(one) => vec![one],
        None => return own,
    };
    for (name, value) in others.iter().flat_map(members) {
        own.entry(name).or_insert_with(|| value.clone());
    }
    own
}

fn intrinsic(tag: &str, argument: Value) -> Value {
    let name = match tag {
        "Ref" | "Condition" => tag.to_owned(),
        other => format!("Fn::{other}"),
    };
    let argument = match (tag, argument) {
        // `!GetAtt A.B.C` is of A, and of B.C.
        ("GetAtt", Value::String(text)) => {
            let (of, attribute) = text.split_once('.').unwrap_or((&text, ""));
            json!([of, attribute])
        }
        (_, argument) => argument,
    };
    Value::Object(Map::from_iter([(name, argument)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_intrinsics_become_long_ones() {
        let text = "a: !Ref B\nc: !GetAtt D.Outputs.E\nf: !If [G, !Sub '${H}', !Ref AWS::NoValue]\nn: 7\ns: '7'\n";
        let expected = json!({
            "a": {"Ref": "B"}, "c": {"Fn::GetAtt": ["D", "Outputs.E"]},
            "f": {"Fn::If": ["G", {"Fn::Sub": "${H}"}, {"Ref": "AWS::NoValue"}]}, "n": 7, "s": "7",
        });
        assert_eq!(read(text), Ok(expected.clone()));
        assert_eq!(read(&expected.to_string()), Ok(expected));
        assert_eq!(read(r#"{"a": "\ud83d\ude00"}"#), Ok(json!({"a": "😀"})));
        assert!(read("a: [").is_err());
    }

    #[test]
    fn own_members_stand_over_merged_ones() {
        let text = "a: &a\n  b: 1\n  c: 2\nd: &d\n  c: 3\n  e: 4\nf:\n  <<: *a\n  b: 5\ng:\n  h: 6\n  <<: [ *a , *d ]\n";
        let read = read(text).unwrap();
        assert_eq!(read["f"], json!({"b": 5, "c": 2}));
        assert_eq!(read["g"], json!({"h": 6, "b": 1, "c": 2, "e": 4}));
    }
}
