//! Reads a template's YAML or JSON. `!Ref x` becomes `{"Ref": "x"}`, as `CloudFormation` itself has it.

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// Reads the first document of the text.
pub(super) fn read(text: &str) -> Result<Value, String> {
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
        Yaml::Mapping(members) => {
            let member = |(name, member): (&Yaml<'_>, &Yaml<'_>)| (name_of(name), value(member));
            Value::Object(members.iter().map(member).collect())
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
        assert!(read("a: [").is_err());
    }
}
