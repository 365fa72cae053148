//! Column types in the schemas of Delta and Iceberg, and the file types that they can be read from. Source: the Delta
//! Lake protocol, "Schema Serialization Format" and "Type Widening"; the Iceberg specification, "Schema Evolution".

use arrow_schema::{DataType as Arrow, Field, TimeUnit};
use serde_json::Value;
use std::sync::Arc;

/// Returns the type of a column in a schema; `Null` for structs and maps, whose columns have the file's type.
///
/// # Errors
/// An unknown type.
pub(super) fn of_schema(value: &Value) -> Result<Arrow, String> {
    if let Some(name) = value.as_str() {
        return primitive(name).ok_or_else(|| format!("unknown type `{name}`"));
    }
    // Delta's `elementType`, Iceberg's `element`.
    let element = value.get("elementType").or_else(|| value.get("element"));
    match (value.get("type").and_then(Value::as_str), element) {
        (Some("array" | "list"), Some(element)) => {
            let element = of_schema(element)?;
            Ok(Arrow::List(Arc::new(Field::new("element", element, true))))
        }
        (Some("struct" | "map"), _) => Ok(Arrow::Null),
        _ => Err(format!("unknown type {value}")),
    }
}

fn primitive(name: &str) -> Option<Arrow> {
    Some(match name {
        "boolean" => Arrow::Boolean,
        "byte" => Arrow::Int8,
        "short" => Arrow::Int16,
        "int" | "integer" => Arrow::Int32,
        "long" => Arrow::Int64,
        "float" => Arrow::Float32,
        "double" => Arrow::Float64,
        "date" => Arrow::Date32,
        "time" => Arrow::Time64(TimeUnit::Microsecond),
        "timestamp" | "timestamp_ntz" | "timestamptz" => Arrow::Timestamp(TimeUnit::Microsecond, None),
        "timestamp_ns" | "timestamptz_ns" => Arrow::Timestamp(TimeUnit::Nanosecond, None),
        "string" => Arrow::Utf8,
        "binary" => Arrow::Binary,
        "uuid" => Arrow::FixedSizeBinary(16),
        "unknown" | "void" => Arrow::Null,
        _ => {
            let (kind, rest) = name.split_once(['(', '['])?;
            let mut numbers = rest.trim_end_matches([')', ']']).split(',').map(str::trim);
            match kind {
                "decimal" => Arrow::Decimal128(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?),
                "fixed" => Arrow::FixedSizeBinary(numbers.next()?.parse().ok()?),
                _ => return None,
            }
        }
    })
}

/// Returns the type as which a file's column is read for the table; `None` if the table's type cannot hold every value
/// of the file's.
pub(super) fn read_as(file: &Arrow, table: &Arrow) -> Option<Arrow> {
    use Arrow::{
        Binary, BinaryView, Date32, Decimal128, Dictionary, FixedSizeBinary, FixedSizeList, Float32, Float64, Int8,
        Int16, Int32, Int64, LargeBinary, LargeList, LargeUtf8, List, Null, Timestamp, Utf8, Utf8View,
    };
    let with_item = |item: &Arc<Field>, table: &Arc<Field>| {
        let read = read_as(item.data_type(), table.data_type())?;
        Some(Arc::new(item.as_ref().clone().with_data_type(read)))
    };
    match (file, table) {
        (file, table) if file == table => Some(file.clone()),
        (Null, _) => Some(table.clone()),
        // Structs and maps, and text and bytes in any encoding.
        (file, Null) => Some(file.clone()),
        (LargeUtf8 | Utf8View, Utf8) | (LargeBinary | BinaryView | FixedSizeBinary(_), Binary) => Some(file.clone()),
        (Dictionary(_, values), table) => read_as(values, table).map(|read| match read == **values {
            true => file.clone(),
            false => read,
        }),
        (Int8, Int16 | Int32 | Int64 | Float64)
        | (Int16, Int32 | Int64 | Float64)
        | (Int32, Int64 | Float64)
        | (Float32, Float64)
        | (Date32, Timestamp(..)) => Some(table.clone()),
        (Decimal128(digits, scale), Decimal128(wider, finer)) => {
            let is_held =
                finer >= scale && i16::from(*wider) - i16::from(*finer) >= i16::from(*digits) - i16::from(*scale);
            is_held.then(|| table.clone())
        }
        // The file's zone does not change the integers.
        (Timestamp(from, zone), Timestamp(to, _)) => (from <= to).then(|| Timestamp(*to, zone.clone())),
        (List(item), List(wanted)) => with_item(item, wanted).map(List),
        (LargeList(item), List(wanted)) => with_item(item, wanted).map(LargeList),
        (FixedSizeList(item, count), List(wanted)) => with_item(item, wanted).map(|item| FixedSizeList(item, *count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_read_by_name() {
        for (value, wanted) in [
            (json!("long"), Arrow::Int64),
            (json!("decimal(9, 2)"), Arrow::Decimal128(9, 2)),
            (json!("decimal(9,2)"), Arrow::Decimal128(9, 2)),
            (json!("fixed[4]"), Arrow::FixedSizeBinary(4)),
            (json!({"type": "struct", "fields": []}), Arrow::Null),
        ] {
            assert_eq!(of_schema(&value), Ok(wanted));
        }
        let list = of_schema(&json!({"type": "list", "element": "float"})).unwrap();
        assert!(matches!(&list, Arrow::List(item) if *item.data_type() == Arrow::Float32));
        for bad in [json!("variant"), json!("fixed"), json!({"type": "list"}), json!(7)] {
            assert!(of_schema(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_read_as_wider_types_and_never_as_narrower() {
        let micros = Arrow::Timestamp(TimeUnit::Microsecond, None);
        let zoned = |unit| Arrow::Timestamp(unit, Some("UTC".into()));
        assert_eq!(read_as(&Arrow::Int32, &Arrow::Int64), Some(Arrow::Int64));
        assert_eq!(read_as(&Arrow::Float64, &Arrow::Float32), None);
        assert_eq!(read_as(&Arrow::Int64, &Arrow::Float64), None);
        assert_eq!(
            read_as(&zoned(TimeUnit::Millisecond), &micros),
            Some(zoned(TimeUnit::Microsecond))
        );
        assert_eq!(read_as(&zoned(TimeUnit::Nanosecond), &micros), None);
        let (narrow, wide) = (Arrow::Decimal128(9, 2), Arrow::Decimal128(11, 4));
        assert_eq!(read_as(&narrow, &wide), Some(wide.clone()));
        assert_eq!(read_as(&wide, &narrow), None);
    }
}
