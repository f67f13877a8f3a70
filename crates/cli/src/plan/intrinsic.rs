//! Computes what a template's intrinsic functions give, as far as the template alone tells. A
//! resource is known by its logical name, one of a nested template by `Stack/Name`.
#![allow(
    clippy::indexing_slicing,
    reason = "of a JSON value, a member that is not there is null"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::yaml;
use crate::failure::Failure;
use crate::files;

/// The depth from which nested templates are not read: one may nest itself.
const MOST_DEEP: u8 = 4;

/// A template, with the values of its parameters.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) root: Value,
    parameters: BTreeMap<String, Value>,
    /// Before the names of its resources: `Stack/`.
    prefix: String,
    nested: BTreeMap<String, Template>,
    /// The resources that make others, which were not read, each with the reason.
    unread: Vec<String>,
    /// Which of its conditions hold, as far as they were asked for.
    conditions: RefCell<BTreeMap<String, Option<bool>>>,
}

impl Template {
    /// Reads a template and those that it nests, where they are files.
    pub(super) fn read(path: &Path, given: &[(String, String)]) -> Result<Self, Failure> {
        let given = given
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)));
        Self::load(path, given.collect(), String::new(), 0)
    }

    fn load(
        path: &Path,
        given: BTreeMap<String, Value>,
        prefix: String,
        depth: u8,
    ) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let root = yaml::read(&files::text(path)?)
            .map_err(|error| Failure::usage(format!("{shown} is no template: {error}")))?;
        if !root["Resources"].is_object() {
            return Err(Failure::usage(format!(
                "{shown} is no template: it has no Resources"
            )));
        }
        let mut parameters: BTreeMap<String, Value> = members(&root["Parameters"])
            .map(|(name, parameter)| (name.clone(), value_of(parameter, &parameter["Default"])))
            .collect();
        for (name, value) in given {
            let Some(known) = parameters.get_mut(&name) else {
                return Err(Failure::usage(format!("{shown} has no parameter `{name}`")));
            };
            *known = value_of(&root["Parameters"][&name], &value);
        }
        let mut template = Self {
            root,
            parameters,
            prefix,
            nested: BTreeMap::new(),
            unread: Vec::new(),
            conditions: RefCell::default(),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        template.load_nested(folder, depth)?;
        Ok(template)
    }

    fn load_nested(&mut self, folder: &Path, depth: u8) -> Result<(), Failure> {
        let (mut nested, mut unread) = (BTreeMap::new(), Vec::new());
        for (name, resource) in self.resources() {
            let place = match resource["Type"].as_str() {
                Some("AWS::CloudFormation::Stack") => &resource["Properties"]["TemplateURL"],
                Some("AWS::Serverless::Application") => &resource["Properties"]["Location"],
                Some(_) => continue,
                // A loop has no type: `Fn::ForEach`.
                None => &Value::Null,
            };
            let own = format!("{}{name}", self.prefix);
            let file = place.as_str().map(|place| folder.join(place));
            let Some(file) = file.filter(|file| file.is_file()) else {
                unread.push(format!("{own}: what it makes is in no file here"));
                continue;
            };
            if depth == MOST_DEEP {
                unread.push(format!("{own}: it is nested too deep to be read"));
                continue;
            }
            let given = self.resolve(&resource["Properties"]["Parameters"]);
            let given = members(&given)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            let template = Self::load(&file, given, format!("{own}/"), depth + 1)?;
            nested.insert(name.clone(), template);
        }
        self.nested = nested;
        self.unread = unread;
        Ok(())
    }

    /// The resources, here or in nested templates, that make others, which were not read, each with the
    /// reason.
    pub(super) fn unread(&self) -> Vec<String> {
        let nested = self.nested.values().flat_map(Self::unread);
        self.unread.iter().cloned().chain(nested).collect()
    }

    /// The resources of this template, by name, without those that their condition leaves out.
    fn resources(&self) -> impl Iterator<Item = (&String, &Value)> {
        let is_left_out = |resource: &Value| {
            let condition = resource["Condition"].as_str();
            condition.and_then(|name| self.condition(name)) == Some(false)
        };
        members(&self.root["Resources"]).filter(move |(_, resource)| !is_left_out(resource))
    }

    /// The resources of this template and of those that it nests, by name, each with the template that
    /// it is in.
    pub(super) fn every(&self) -> Vec<(&Self, String, &Value)> {
        let named = |(name, resource)| (self, format!("{}{name}", self.prefix), resource);
        let own = self.resources().map(named);
        own.chain(self.nested.values().flat_map(Self::every))
            .collect()
    }

    /// The resource of this name, here or in a nested template, with the template that it is in.
    pub(super) fn resource(&self, name: &str) -> Option<(&Self, &Value)> {
        match name.split_once('/') {
            Some((stack, rest)) => self.nested.get(stack)?.resource(rest),
            None => self.root["Resources"]
                .get(name)
                .map(|resource| (self, resource)),
        }
    }

    /// Computes a value's intrinsic functions. A part that can't be known is `null`, and one that is
    /// `AWS::NoValue` is left out.
    pub(super) fn resolve(&self, value: &Value) -> Value {
        self.part(value).unwrap_or_default()
    }

    /// Computes a part of a value; `None` of `AWS::NoValue`.
    fn part(&self, value: &Value) -> Option<Value> {
        if let Some((name, argument)) = intrinsic(value) {
            return self.intrinsic(name, argument);
        }
        let member = |(name, value): (&String, &Value)| Some((name.clone(), self.part(value)?));
        Some(match value {
            Value::Object(of) => of.iter().filter_map(member).collect(),
            Value::Array(items) => items.iter().filter_map(|item| self.part(item)).collect(),
            other => told(other),
        })
    }

    fn intrinsic(&self, name: &str, argument: &Value) -> Option<Value> {
        Some(match name {
            "Ref" if argument == "AWS::NoValue" => return None,
            "Ref" => argument
                .as_str()
                .map_or(Value::Null, |name| self.reference(name)),
            "Fn::GetAtt" => self.attribute(argument),
            "Fn::If" => {
                let condition = argument[0].as_str().and_then(|name| self.condition(name));
                return condition.map_or(Some(Value::Null), |is| {
                    self.part(&argument[if is { 1 } else { 2 }])
                });
            }
            "Fn::Sub" => self.substitute(argument),
            _ => Value::Null,
        })
    }

    fn reference(&self, name: &str) -> Value {
        if let Some(value) = self.parameters.get(name) {
            return told(value);
        }
        // SAM makes an alias and a version of these names, for `AutoPublishAlias`.
        let of = name.strip_suffix(".Alias");
        let of = of.or_else(|| name.strip_suffix(".Version"));
        let name = of.unwrap_or(name);
        if self.root["Resources"].get(name).is_some() {
            return json!(format!("{}{name}", self.prefix));
        }
        Value::Null
    }

    fn attribute(&self, argument: &Value) -> Value {
        let (Some(of), attribute) = (
            argument[0].as_str(),
            argument[1].as_str().unwrap_or_default(),
        ) else {
            return Value::Null;
        };
        match (self.nested.get(of), attribute.strip_prefix("Outputs.")) {
            (Some(nested), Some(output)) => {
                nested.resolve(&nested.root["Outputs"][output]["Value"])
            }
            _ => self.reference(of),
        }
    }

    /// A text with one name in it is that name's value; another text is not computed.
    fn substitute(&self, argument: &Value) -> Value {
        let text = argument.as_str().unwrap_or_default();
        let inner = text
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'));
        match inner.map(|inner| inner.split_once('.').unwrap_or((inner, ""))) {
            Some((of, "")) => self.reference(of),
            Some((of, attribute)) => self.attribute(&json!([of, attribute])),
            None if text.contains("${") => Value::Null,
            None => told(&json!(text)),
        }
    }

    fn condition(&self, name: &str) -> Option<bool> {
        if let Some(known) = self.conditions.borrow().get(name) {
            return *known;
        }
        // Not known while it is computed: a condition may refer to itself.
        self.conditions.borrow_mut().insert(name.to_owned(), None);
        let holds = self.holds(&self.root["Conditions"][name]);
        self.conditions.borrow_mut().insert(name.to_owned(), holds);
        holds
    }

    fn holds(&self, of: &Value) -> Option<bool> {
        let (name, argument) = of.as_object()?.iter().next()?;
        let each = || {
            argument
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| self.holds(one))
        };
        match name.as_str() {
            "Condition" => self.condition(argument.as_str()?),
            "Fn::Equals" => {
                let side = |place: usize| text(&self.resolve(&argument[place]));
                Some(side(0)? == side(1)?)
            }
            "Fn::Not" => Some(!self.holds(&argument[0])?),
            "Fn::And" => each().try_fold(true, |all, one| Some(all && one?)),
            "Fn::Or" => each().try_fold(false, |any, one| Some(any || one?)),
            _ => None,
        }
    }
}

/// The value of a parameter that is given this one, or has it by default; `null` where that only names
/// the value in SSM.
fn value_of(parameter: &Value, given: &Value) -> Value {
    let kind = parameter["Type"].as_str().unwrap_or_default();
    if kind.starts_with("AWS::SSM::Parameter::Value<") {
        Value::Null
    } else {
        given.clone()
    }
}

/// The value; `null` where another service has it.
fn told(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains("{{resolve:") => Value::Null,
        other => other.clone(),
    }
}

/// The name and the argument of an intrinsic function; `None` of any other value.
pub(super) fn intrinsic(value: &Value) -> Option<(&str, &Value)> {
    let of = value.as_object().filter(|of| of.len() == 1)?;
    let (name, argument) = of.iter().next()?;
    (name == "Ref" || name.starts_with("Fn::")).then_some((name, argument))
}

/// A scalar's text, as `CloudFormation` passes it on.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The members of an object; nothing of what is none.
pub(super) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
