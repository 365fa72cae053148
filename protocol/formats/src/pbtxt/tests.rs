//! Accepted texts, refused texts with their positions, and a property: every text is one or the other.

use super::*;
use proptest::prelude::*;

fn fields(text: &str) -> Vec<Field> {
    match parse(text).unwrap().value {
        Value::Message(fields) => fields,
        other => panic!("{other:?}"),
    }
}

fn one(text: &str) -> Value {
    let fields = fields(text);
    assert_eq!(fields.len(), 1, "{text}: {fields:?}");
    fields[0].value.clone()
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().message(text)
}

#[test]
fn scalars_have_every_form_of_the_language() {
    for (text, value) in [
        ("a: 12", Value::Integer(12)),
        ("a:-12", Value::Integer(-12)),
        ("a: - 12 # so far", Value::Integer(-12)),
        ("a: 0x1F", Value::Integer(31)),
        ("a: 017", Value::Integer(15)),
        ("a: 0", Value::Integer(0)),
        ("a: 18446744073709551615;", Value::Integer(i128::from(u64::MAX))),
        ("a: 1.5,", Value::Float(1.5)),
        ("a: 1.5e-3", Value::Float(0.0015)),
        ("a: 2E+3f", Value::Float(2000.0)),
        ("a: .5", Value::Float(0.5)),
        ("a: 3f", Value::Float(3.0)),
        ("a: -inf", Value::Float(f64::NEG_INFINITY)),
        ("a: true", Value::Word("true".into())),
        ("a: TYPE_FP32", Value::Word("TYPE_FP32".into())),
        (
            "a: 'it''s' \" one\"\n  # still\n \" string\"",
            Value::String(b"its one string".to_vec()),
        ),
        (
            r#"a: "\n\t\"\\\x41\101\u00e9""#,
            Value::String("\n\t\"\\AA\u{e9}".as_bytes().to_vec()),
        ),
    ] {
        assert_eq!(one(text), value, "{text}");
    }
}

#[test]
fn messages_and_lists_are_fields_with_their_places() {
    let text =
        "# a model\nname: \"m\"\ninput [\n  { name: 'a' dims: [1, -1] },\n  < name: 'b' >\n]\nempty {}\nnone: []\n";
    let fields = fields(text);
    let describe = |field: &Field| field.error("").message(text);
    let seen: Vec<String> = fields.iter().map(describe).collect();
    assert_eq!(
        seen,
        [
            "line 2, column 7: `name`: ",
            "line 4, column 3: `input`: ",
            "line 5, column 3: `input`: ",
            "line 7, column 7: `empty`: "
        ]
    );
    let input = fields[1].message().unwrap();
    let dims: Vec<_> = input.iter().filter(|field| field.name == "dims").collect();
    assert_eq!(
        (dims[0].value.clone(), dims[1].value.clone()),
        (Value::Integer(1), Value::Integer(-1))
    );
    assert_eq!(describe(dims[1]), "line 4, column 25: `input.dims`: ");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_key() {
    for (text, expected) in [
        (
            "a",
            "line 1, column 2: `a`: expected `:` or `{`, found the end of the text",
        ),
        ("a: ", "`a`: expected a value, found the end"),
        ("a 5", "line 1, column 3: `a`"),
        ("a: 5 }", "line 1, column 6: expected a field, found `}`"),
        ("x {\n  b: 089\n}", "line 2, column 6: `x.b`: invalid number: `089`"),
        ("x { b: 1", "`x`: expected a field or `}`"),
        ("x { b: 1 >", "a field or `}`"),
        ("a: \"open\nb: 1", "line 1, column 4: `a`: a string begins here"),
        ("a: \"\\q\"", "invalid escape: `\\q`"),
        ("a: \"\\777\"", "more than a byte"),
        ("a: [1, 2", "`,` or `]`"),
        ("a: [1,]", "expected a value, found `]`"),
        ("a [1]", "`{`, found `1`"),
        ("[type.googleapis.com/x] { }", "extensions"),
        ("a: 1.2.3", "invalid number: `1.2.3`"),
        ("a: 5x", "invalid number: `5x`"),
        ("a: 0x", "invalid number: `0x`"),
        ("a: @", "line 1, column 4: `a`: expected a value, found `@`"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text:?}: {error}\n  should say {expected}");
    }
    assert!(error(&"a {".repeat(10_000)).contains("messages nested more than"));
    assert!(error(&" ".repeat(MAX_BYTES + 1)).contains("the limit is"));
}

/// Trees, and their text.
fn message(depth: u32) -> BoxedStrategy<(Vec<Field>, String)> {
    let scalar = prop_oneof![
        any::<i64>().prop_map(|n| (Value::Integer(n.into()), n.to_string())),
        "[A-Z_]{1,8}".prop_map(|word| (Value::Word(word.clone()), word)),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| {
            let text: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
            (Value::String(bytes), format!("\"{text}\""))
        }),
    ];
    let value = if depth == 0 {
        scalar.boxed()
    } else {
        let inner = message(depth - 1).prop_map(|(fields, text)| (Value::Message(fields), format!("{{ {text} }}")));
        prop_oneof![3 => scalar, 1 => inner].boxed()
    };
    let separator = prop_oneof![Just(" "), Just("\n"), Just(", "), Just(" ; "), Just(" # note\n")];
    let fields = prop::collection::vec(("[a-z][a-z0-9_]{0,6}", value, separator), 0..6);
    fields
        .prop_map(|fields| {
            let mut text = String::new();
            let fields = fields.into_iter().map(|(name, (value, value_text), separator)| {
                text.push_str(&format!("{name}: {value_text}{separator}"));
                bare(name, value)
            });
            (fields.collect(), text)
        })
        .boxed()
}

/// Field without place and path.
fn bare(name: String, value: Value) -> Field {
    Field {
        name,
        key: String::new(),
        offset: 0,
        value: match value {
            Value::Message(inner) => {
                Value::Message(inner.into_iter().map(|field| bare(field.name, field.value)).collect())
            }
            other => other,
        },
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read((fields, text) in message(3)) {
        let read = parse(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e:?}")))?;
        prop_assert_eq!(bare(String::new(), read.value), bare(String::new(), Value::Message(fields)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,120}") {
        let _ = parse(&text);
    }

    #[test]
    fn near_misses_are_read_or_refused(text in "[a-c0-9{}<>:;,\\[\\]\"'\\\\#.\\-+ex\n ]{0,80}") {
        if let Err(error) = parse(&text) {
            prop_assert!(error.message(&text).starts_with("line "));
        }
    }
}
