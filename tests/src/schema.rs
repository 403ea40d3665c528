//! Holds JSON values against a schema: the words of JSON Schema that `docs/events.schema.json` uses,
//! and no others.

use serde_json::Value;

/// Returns what is wrong with `value`, at which path; `None` if the schema allows it.
///
/// # Panics
/// If the schema uses a word that is not known here.
pub fn fault(root: &Value, value: &Value) -> Option<String> {
    of(root, root, value, "$")
}

fn of(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let words = schema.as_object().expect("a schema");
    words.iter().find_map(|(word, wanted)| match word.as_str() {
        "$schema" | "title" | "description" | "$defs" | "properties" => None,
        "$ref" => of(root, resolve(root, wanted), value, at),
        "oneOf" => one_of(root, wanted, value, at),
        "const" => (value != wanted).then(|| format!("{at}: {value} is not {wanted}")),
        "enum" => {
            let known = wanted.as_array().expect("an enum").contains(value);
            (!known).then(|| format!("{at}: {value} is none of {wanted}"))
        }
        "type" => (!has_type(wanted, value)).then(|| format!("{at}: {value} is no {wanted}")),
        "minimum" => {
            let is_below = value.as_f64().is_some_and(|number| Some(number) < wanted.as_f64());
            is_below.then(|| format!("{at}: {value} is below {wanted}"))
        }
        "pattern" => {
            let text = value.as_str().unwrap_or_default();
            (!matches(wanted.as_str().unwrap_or_default(), text))
                .then(|| format!("{at}: {text}, not {wanted}"))
        }
        "items" => value
            .as_array()?
            .iter()
            .enumerate()
            .find_map(|(index, item)| of(root, wanted, item, &format!("{at}[{index}]"))),
        "required" => wanted.as_array()?.iter().find_map(|name| {
            let lacks = value.as_object()?.get(name.as_str()?).is_none();
            lacks.then(|| format!("{at}: no {name}"))
        }),
        "additionalProperties" => {
            value.as_object()?.iter().find_map(|(name, field)| match words["properties"].get(name) {
                Some(schema) => of(root, schema, field, &format!("{at}.{name}")),
                None => Some(format!("{at}: {name} is unknown")),
            })
        }
        other => panic!("the schema's word {other}"),
    })
}

fn resolve<'a>(root: &'a Value, reference: &Value) -> &'a Value {
    let pointer = reference.as_str().and_then(|text| text.strip_prefix('#')).expect("a reference");
    root.pointer(pointer).expect("a definition")
}

/// Events say by their names which of the schemas is theirs: its fault is the one that is told.
fn one_of(root: &Value, schemas: &Value, value: &Value, at: &str) -> Option<String> {
    let faults: Vec<_> = schemas.as_array()?.iter().map(|schema| of(root, schema, value, at)).collect();
    match faults.iter().filter(|fault| fault.is_none()).count() {
        1 => None,
        0 => {
            let own = faults.iter().flatten().find(|fault| !fault.contains(".event:"));
            Some(own.or(faults[0].as_ref()).cloned().unwrap_or_default())
        }
        several => Some(format!("{at}: {several} schemas allow {value}")),
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::Array(types) => types.iter().any(|wanted| has_type(wanted, value)),
        Value::String(name) => match name.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "null" => value.is_null(),
            other => panic!("the type {other}"),
        },
        other => panic!("the type {other}"),
    }
}

/// Returns whether a text has a form: the schema has three.
fn matches(pattern: &str, text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match pattern {
        "^([0-9a-f]{2})+$" => !text.is_empty() && text.len().is_multiple_of(2) && text.bytes().all(hex),
        "^[0-7]{4}$" => text.len() == 4 && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)),
        "^[A-Z0-9]+$" => {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        }
        other => panic!("the pattern {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_held_against_every_word() {
        let schema = json!({
            "oneOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/b" }],
            "$defs": {
                "a": {
                    "type": "object", "required": ["event", "n"], "additionalProperties": false,
                    "properties": {
                        "event": { "const": "a" },
                        "n": { "type": ["integer", "null"], "minimum": 0 },
                        "m": { "type": "string", "pattern": "^[0-7]{4}$" },
                        "l": { "type": "array", "items": { "enum": ["x", "y"] } }
                    }
                },
                "b": {
                    "type": "object", "required": ["event"], "additionalProperties": false,
                    "properties": { "event": { "const": "b" } }
                }
            }
        });
        for good in [
            json!({ "event": "b" }),
            json!({ "event": "a", "n": 5, "m": "0644", "l": ["x", "y", "x"] }),
            json!({ "event": "a", "n": null }),
        ] {
            assert_eq!(fault(&schema, &good), None);
        }
        for (bad, why) in [
            (json!({ "event": "c" }), ""),
            (json!({ "event": "a" }), "no \"n\""),
            (json!({ "event": "a", "n": -1 }), "below"),
            (json!({ "event": "a", "n": "1" }), "is no"),
            (json!({ "event": "a", "n": 1, "z": 1 }), "z is unknown"),
            (json!({ "event": "a", "n": 1, "m": "0648" }), "not"),
            (json!({ "event": "a", "n": 1, "l": ["z"] }), "none of"),
        ] {
            let fault = fault(&schema, &bad);
            assert!(fault.as_ref().is_some_and(|fault| fault.contains(why)), "{bad}: {fault:?}");
        }
    }
}
