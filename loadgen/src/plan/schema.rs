//! JSON Schema of plans, for editors and for the reference. In: the types of [`super::raw`]. Out: draft 2020-12.

use super::raw::RawPlan;
use schemars::Schema;

/// JSON Schema of plans.
#[must_use]
pub fn schema() -> Schema {
    tierlab_program::schema::of_toml::<RawPlan>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    /// Keywords that only describe.
    const NOTES: [&str; 7] = ["$schema", "$defs", "title", "description", "default", "format", "$ref"];

    fn list(said: &Value) -> &Vec<Value> {
        said.as_array().expect("a list")
    }

    /// Returns the path of the first value that a schema refuses; panics at a keyword that it does not know.
    fn refused(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let Some(keywords) = schema.as_object() else {
            return (schema == &Value::Bool(false)).then(|| at.to_owned());
        };
        if let Some(name) = schema["$ref"].as_str() {
            let held = root.pointer(&name[1..]).expect("a definition");
            if let Some(fault) = refused(root, held, value, at) {
                return Some(fault);
            }
        }
        let fits = |schema: &&Value| refused(root, schema, value, at).is_none();
        let is_type = |name: &Value| match name.as_str().expect("a name") {
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("type {other}"),
        };
        let number = |limit: &Value| Some((value.as_f64()?, limit.as_f64()?));
        let count = |limit: &Value| Some((value.as_array()?.len() as u64, limit.as_u64()?));
        for (keyword, said) in keywords {
            let holds = match keyword.as_str() {
                note if NOTES.contains(&note) => true,
                "type" => match said {
                    Value::Array(any) => any.iter().any(is_type),
                    one => is_type(one),
                },
                "const" => said == value,
                "enum" => list(said).contains(value),
                "anyOf" => list(said).iter().any(|one| fits(&one)),
                "oneOf" => list(said).iter().filter(fits).count() == 1,
                "minimum" => number(said).is_none_or(|(value, least)| value >= least),
                "maximum" => number(said).is_none_or(|(value, most)| value <= most),
                "minItems" => count(said).is_none_or(|(items, least)| items >= least),
                "maxItems" => count(said).is_none_or(|(items, most)| items <= most),
                "required" => {
                    let there = |name: &Value| value.get(name.as_str().expect("a name")).is_some();
                    !value.is_object() || list(said).iter().all(there)
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    let mut faults = items.filter_map(|(i, item)| refused(root, said, item, &format!("{at}[{i}]")));
                    match faults.next() {
                        Some(fault) => return Some(fault),
                        None => true,
                    }
                }
                "properties" | "additionalProperties" => {
                    let named = &schema["properties"];
                    for (name, held) in value.as_object().into_iter().flatten() {
                        let rule = match keyword.as_str() {
                            "properties" => said.get(name),
                            _ => named.get(name).is_none().then_some(said),
                        };
                        if let Some(fault) = rule.and_then(|rule| refused(root, rule, held, &format!("{at}.{name}"))) {
                            return Some(fault);
                        }
                    }
                    true
                }
                other => panic!("unknown keyword {other} at {at}"),
            };
            if !holds {
                return Some(at.to_owned());
            }
        }
        None
    }

    fn refused_in(plan: &str) -> Option<String> {
        let plan: toml::Table = toml::from_str(plan).unwrap();
        let schema = schema().to_value();
        refused(&schema, &schema, &serde_json::to_value(plan).unwrap(), "plan")
    }

    #[test]
    fn every_shipped_plan_fits_its_schema() {
        let mut plans = 0;
        for folder in ["../configs/labs", "../configs/sweeps", "src/commands/init"] {
            let entries = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).read_dir().unwrap();
            let files = entries.map(|entry| entry.unwrap().path());
            for file in files.filter(|file| file.extension().is_some_and(|kind| kind == "toml")) {
                let text = std::fs::read_to_string(&file).unwrap();
                assert_eq!(refused_in(&text), None, "{}", file.display());
                plans += 1;
            }
        }
        assert!(plans >= 14, "{plans}");
    }

    #[test]
    fn schemas_refuse_unknown_keys_wrong_types_and_values_out_of_range() {
        const HEAD: &str = "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0\nstep_s = 1\ndrain_s = 1\n";
        for (more, at) in [
            ("", None),
            ("shape = { kind = \"steps\", shares = [1, 4] }", None),
            ("shape = { kind = \"steps\", share = [1, 4] }", Some("plan.shape")),
            ("[[load]]\nmode = \"concurrency\"\nthink_time_ms = [0, 5]", None),
            (
                "[[load]]\nmode = \"concurrency\"\nthink_time_ms = [0, 5, 9]",
                Some("plan.load[0].think_time_ms"),
            ),
            ("[[load]]\nmode = \"fast\"", Some("plan.load[0].mode")),
            ("[[load]]\nrates = [1]", Some("plan.load[0]")),
            ("lod = 1", Some("plan.lod")),
            ("repeats = \"ten\"", Some("plan.repeats")),
            ("repeats = 101", Some("plan.repeats")),
            ("[keys]\nexponent = 0", Some("plan.keys.exponent")),
            (
                "[[variant]]\nname = \"v\"\nstaged = [\"none\", \"full\"]",
                Some("plan.variant[0].staged"),
            ),
            (
                "[[variant]]\nname = \"v\"\nset = { a.b = 1 }\nstaged = [\"none\", \"filled\"]",
                None,
            ),
            (
                "[question]\nslo = []\nbudget = \"1m\"\ntie = 2",
                Some("plan.question.tie"),
            ),
            (
                "[question]\nslo = []\nbudget = \"1m\"\ntie = \"2 %\"\ndemand_rps = { trace = \"t.csv\" }",
                None,
            ),
        ] {
            assert_eq!(refused_in(&format!("{HEAD}{more}")).as_deref(), at, "{more}");
        }
    }

    #[test]
    fn every_key_has_a_description() {
        fn undescribed(schema: &Value, found: &mut Vec<String>) {
            for (name, key) in schema["properties"].as_object().into_iter().flatten() {
                // A table has the description of its type.
                let is_table = key.to_string().contains("$ref");
                if key["description"].is_null() && key["const"].is_null() && !is_table {
                    found.push(name.clone());
                }
                undescribed(key, found);
            }
        }
        let schema = schema().to_value();
        let mut found = Vec::new();
        undescribed(&schema, &mut found);
        for held in schema["$defs"].as_object().unwrap().values() {
            undescribed(held, &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
    }
}
