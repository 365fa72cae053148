//! Accepted texts, refused texts with their positions, and a property: every text is one or the other.

use super::*;
use proptest::prelude::*;

fn one(text: &str) -> Value {
    let message = parse(text).unwrap();
    assert_eq!(message.fields.len(), 1, "{text}: {message:?}");
    message.fields[0].value.clone()
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
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
    let message = parse(text).unwrap();
    let seen: Vec<String> = message
        .fields
        .iter()
        .map(|field| format!("{} {}", field.key, field.at))
        .collect();
    assert_eq!(
        seen,
        [
            "name line 2, column 7",
            "input line 4, column 3",
            "input line 5, column 3",
            "empty line 7, column 7"
        ]
    );
    let Value::Message(input) = &message.fields[1].value else {
        panic!("{message:?}");
    };
    let dims: Vec<_> = input.fields.iter().filter(|field| field.name == "dims").collect();
    assert_eq!(
        (dims[0].value.clone(), dims[1].value.clone()),
        (Value::Integer(1), Value::Integer(-1))
    );
    assert_eq!(
        (dims[1].key.as_str(), dims[1].at),
        ("input.dims", Position { line: 4, column: 25 })
    );
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_key() {
    for (text, told) in [
        (
            "a",
            "line 1, column 2: `a`: `:` or `{` is expected here, not the end of the text",
        ),
        ("a: ", "`a`: a value is expected here, not the end"),
        ("a 5", "line 1, column 3: `a`"),
        ("a: 5 }", "line 1, column 6: a field is expected here, not `}`"),
        ("x {\n  b: 089\n}", "line 2, column 6: `x.b`: `089` is no number"),
        ("x { b: 1", "`x`: a field or `}` is expected here"),
        ("x { b: 1 >", "a field or `}`"),
        ("a: \"open\nb: 1", "line 1, column 4: `a`: a string begins here"),
        ("a: \"\\q\"", "`\\q` is no escape"),
        ("a: \"\\777\"", "more than a byte"),
        ("a: [1, 2", "`,` or `]`"),
        ("a: [1,]", "a value is expected here, not `]`"),
        ("a [1]", "`{` is expected here, not the number 1"),
        ("[type.googleapis.com/x] { }", "extensions"),
        ("a: 1.2.3", "`1.2.3` is no number"),
        ("a: 5x", "`5x` is no number"),
        ("a: 0x", "`0x` is no number"),
        ("a: @", "line 1, column 4: `a`: '@' has no meaning here"),
    ] {
        let error = error(text);
        assert!(error.contains(told), "{text:?}: {error}\n  should say {told}");
    }
    assert!(error(&"a {".repeat(10_000)).contains("inside each other"));
    assert!(error(&" ".repeat(MAX_BYTES + 1)).contains("the most that is read"));
}

/// Trees, and their text.
fn message(depth: u32) -> BoxedStrategy<(Message, String)> {
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
        let inner = message(depth - 1).prop_map(|(message, text)| (Value::Message(message), format!("{{ {text} }}")));
        prop_oneof![3 => scalar, 1 => inner].boxed()
    };
    let separator = prop_oneof![Just(" "), Just("\n"), Just(", "), Just(" ; "), Just(" # note\n")];
    let fields = prop::collection::vec(("[a-z][a-z0-9_]{0,6}", value, separator), 0..6);
    fields
        .prop_map(|fields| {
            let mut message = Message::default();
            let mut text = String::new();
            for (name, (value, value_text), separator) in fields {
                text.push_str(&format!("{name}: {value_text}{separator}"));
                message.fields.push(Field {
                    name,
                    key: String::new(),
                    at: Position { line: 0, column: 0 },
                    value,
                });
            }
            (message, text)
        })
        .boxed()
}

/// Without places and paths.
fn bare(message: &Message) -> Message {
    let fields = message.fields.iter().map(|field| Field {
        key: String::new(),
        at: Position { line: 0, column: 0 },
        value: match &field.value {
            Value::Message(inner) => Value::Message(bare(inner)),
            other => other.clone(),
        },
        ..field.clone()
    });
    Message {
        fields: fields.collect(),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read((message, text) in message(3)) {
        let read = parse(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        prop_assert_eq!(bare(&read), message);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,120}") {
        let _ = parse(&text);
    }

    #[test]
    fn near_misses_are_read_or_refused(text in "[a-c0-9{}<>:;,\\[\\]\"'\\\\#.\\-+ex\n ]{0,80}") {
        if let Err(error) = parse(&text) {
            let lines = text.split('\n').count() as u32;
            prop_assert!(error.at.line >= 1 && error.at.line <= lines && error.at.column >= 1);
        }
    }
}
