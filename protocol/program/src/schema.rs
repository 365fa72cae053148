//! JSON Schema (draft 2020-12) of files that programs read and write, for editors and for the reference. In: serde
//! types. Out: schemas.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Schema of a TOML file that a program reads.
pub fn of_toml<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(without_null));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Schema of a JSON document that a program writes.
pub fn of_json<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Removes `null`, which TOML does not have, from the values of an optional key.
fn without_null(schema: &mut Schema) {
    for key in ["type", "enum", "anyOf"] {
        let Some(Value::Array(values)) = schema.get_mut(key) else {
            continue;
        };
        values.retain(|value| *value != "null" && !value.is_null() && *value != json!({ "type": "null" }));
        match &values[..] {
            [Value::Object(only)] => {
                let only = only.clone();
                schema.remove(key);
                schema.ensure_object().extend(only);
            }
            [only] if key == "type" => {
                let only = only.clone();
                schema.insert(key.into(), only);
            }
            _ => {}
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}
