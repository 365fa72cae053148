//! Quick reader of JSON requests in the form that clients usually write; all others are left to [`super::json`].
//!
//! In: JSON text. Out: the same [`WireRequest`] as the full reader's, or `None`. `None` does not mean an error: escapes, nested
//! arrays, unknown keys, numbers of many digits, and every error are read again by the full reader, which has the rules and the
//! messages. A property test compares both readers.
//!
//! Gain, by `cargo run --release -p tierlab-protocol --example json_readers` on two cores of an AMD EPYC, medians of five runs:
//! a request of one row of 13 floats and 26 integers takes 1.2 us in place of 2.8 (2.35 times as fast), one of 32 rows 18 us in
//! place of 38 (2.11 times).

use super::budget::MemoryBudget;
use super::element::{Element, ReadContext, push_with};
use super::limits::{MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS};
use super::nonfinite::literal;
use super::wire::{WireRequest, WireTensor};
use crate::tensor::{DataType, element_count};

/// Powers of ten that a double holds exactly; with a significand below 2^53, one multiplication or division rounds right
/// (W. D. Clinger, "How to read floating point numbers accurately", 1990).
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Digits of a significand that always fit below 2^53.
const MAX_DIGITS: usize = 15;

/// Reads a request, if it is written in the usual way and within the budget.
pub(super) fn request(json: &[u8], budget: &dyn MemoryBudget) -> Option<WireRequest> {
    let reading = ReadContext {
        budget,
        text_bytes: json.len(),
        placeholders: false,
    };
    let mut scan = Scan { rest: json, reading };
    let mut request = WireRequest::default();
    let (mut has_inputs, mut has_id, mut has_parameters) = (false, false, false);
    scan.object(|scan, key| match key {
        "inputs" if !has_inputs => {
            has_inputs = true;
            scan.array(|scan| {
                request.inputs.push(tensor(scan)?);
                (request.inputs.len() <= MAX_TENSORS).then_some(())
            })
        }
        "id" if !has_id => {
            has_id = true;
            request.id = Some(scan.name()?.to_owned());
            Some(())
        }
        "parameters" if !has_parameters => {
            has_parameters = true;
            let mut given = false;
            scan.object(|scan, key| {
                (key == "binary_data_output" && !std::mem::replace(&mut given, true)).then_some(())?;
                request.binary_output = scan.boolean()?;
                Some(())
            })
        }
        _ => None,
    })?;
    scan.space();
    (scan.rest.is_empty() && !request.inputs.is_empty()).then_some(request)
}

fn tensor(scan: &mut Scan<'_>) -> Option<WireTensor> {
    let (mut name, mut dtype, mut shape) = (None, None, None);
    let (mut data, mut binary_data_size, mut has_parameters) = (None, None, false);
    scan.object(|scan, key| {
        match key {
            "name" if name.is_none() => name = Some(scan.name()?.to_owned()),
            "datatype" if dtype.is_none() => dtype = Some(scan.text()?.parse::<DataType>().ok()?),
            "shape" if shape.is_none() => shape = Some(scan.shape()?),
            // Data before its type and shape is left to the full reader.
            "data" if data.is_none() => data = Some(scan.elements(dtype?, shape.as_deref()?)?),
            "parameters" if !has_parameters => {
                has_parameters = true;
                scan.object(|scan, key| {
                    (key == "binary_data_size" && binary_data_size.is_none()).then_some(())?;
                    binary_data_size = Some(scan.count()?);
                    Some(())
                })?;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(WireTensor {
        name: name?,
        dtype: dtype?,
        shape: shape?,
        data,
        binary_data_size,
    })
}

/// The text that is left.
struct Scan<'a> {
    rest: &'a [u8],
    reading: ReadContext<'a>,
}

impl<'a> Scan<'a> {
    #[inline]
    fn space(&mut self) {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Takes `byte`, after any space.
    fn take(&mut self, byte: u8) -> bool {
        self.space();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    /// Calls `value` with every key, its value next in the text.
    fn object(&mut self, mut value: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Some(());
        }
        loop {
            let key = self.text()?;
            self.expect(b':')?;
            value(self, key)?;
            if !self.take(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// Calls `item` for every item, next in the text.
    fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.take(b']') {
            return Some(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return self.expect(b']');
            }
        }
    }

    /// A string without escapes.
    fn text(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.expect_here(b'"')?;
        std::str::from_utf8(text).ok()
    }

    fn expect_here(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*first == byte).then_some(())
    }

    fn name(&mut self) -> Option<&'a str> {
        self.text().filter(|name| name.len() <= MAX_NAME_BYTES)
    }

    fn boolean(&mut self) -> Option<bool> {
        self.space();
        let (value, rest) = match self.rest {
            [b't', b'r', b'u', b'e', rest @ ..] => (true, rest),
            [b'f', b'a', b'l', b's', b'e', rest @ ..] => (false, rest),
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }

    fn count(&mut self) -> Option<u64> {
        self.space();
        match self.number()? {
            Number::Unsigned(count) => Some(count),
            _ => None,
        }
    }

    fn shape(&mut self) -> Option<Vec<i64>> {
        let mut shape = Vec::with_capacity(4);
        self.array(|scan| {
            shape.push(i64::try_from(scan.count()?).ok()?);
            (shape.len() <= MAX_RANK).then_some(())
        })?;
        Some(shape)
    }

    /// A flat array of numbers, exactly as many as the shape says.
    fn elements(&mut self, dtype: DataType, shape: &[i64]) -> Option<Vec<u8>> {
        let count = element_count(shape)?;
        dtype.size()?;
        let mut out = self.reading.reserve(dtype, count)?;
        let mut left = count;
        push_with!(dtype, E => {
            self.array(|scan| {
                left = left.checked_sub(1)?;
                scan.space();
                let pushed = match scan.number()? {
                    Number::Unsigned(value) => E::unsigned(value, &mut out),
                    Number::Signed(value) => E::signed(value, &mut out),
                    Number::Float(value) => E::float(value, &mut out),
                };
                pushed.then_some(())
            })?;
        });
        (left == 0).then_some(out)
    }

    /// A number of few digits. In line, or its result goes through memory for every element.
    #[inline(always)]
    fn number(&mut self) -> Option<Number> {
        let text = self.rest;
        let negative = text.first() == Some(&b'-');
        let start = usize::from(negative);
        let (mut at, mut significand) = digits(text, start, 0);
        let mut all = at - start;
        if all == 0 {
            let (value, len) = literal(text)?;
            self.rest = &text[len..];
            return Some(Number::Float(value));
        }
        if all > 1 && text[start] == b'0' {
            return None;
        }
        let mut power = 0_i32;
        let mut is_float = false;
        if text.get(at) == Some(&b'.') {
            is_float = true;
            let point = at + 1;
            (at, significand) = digits(text, point, significand);
            let behind = at - point;
            if behind == 0 {
                return None;
            }
            all += behind;
            power = -i32::try_from(behind).ok()?;
        }
        if all > MAX_DIGITS {
            return None;
        }
        if let Some(b'e' | b'E') = text.get(at) {
            is_float = true;
            let sign = text.get(at + 1).copied();
            let first = at + 1 + usize::from(matches!(sign, Some(b'-' | b'+')));
            let (end, value) = digits(text, first, 0);
            if !(1..=3).contains(&(end - first)) {
                return None;
            }
            at = end;
            let value = i32::try_from(value).ok()?;
            power += if sign == Some(b'-') { -value } else { value };
        }
        self.rest = text.get(at..)?;
        if !is_float {
            // At most MAX_DIGITS digits are far below 2^63.
            return Some(match (negative, significand) {
                (false, _) => Number::Unsigned(significand),
                (true, 0) => Number::Float(-0.0),
                (true, _) => Number::Signed(-(significand as i64)),
            });
        }
        let scale = *POWERS.get(power.unsigned_abs() as usize)?;
        let value = significand as f64;
        let value = if power < 0 { value / scale } else { value * scale };
        Some(Number::Float(if negative { -value } else { value }))
    }
}

/// A number as the full reader tells them apart.
enum Number {
    Unsigned(u64),
    /// Below zero.
    Signed(i64),
    Float(f64),
}

/// Reads digits from `at` on behind those of `value`; says where they end. The value is right up to [`MAX_DIGITS`] of them.
#[inline]
fn digits(text: &[u8], mut at: usize, mut value: u64) -> (usize, u64) {
    while let Some(digit) = text
        .get(at)
        .map(|byte| byte.wrapping_sub(b'0'))
        .filter(|digit| *digit < 10)
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (at, value)
}

#[cfg(test)]
mod tests {
    use super::super::{Unlimited, json};
    use super::*;
    use proptest::prelude::*;

    fn same(text: &str) -> Result<bool, TestCaseError> {
        let Some(quick) = request(text.as_bytes(), &Unlimited) else {
            return Ok(false);
        };
        let full = json::parse_request_in_full(text.as_bytes(), &Unlimited);
        prop_assert!(full.is_ok(), "{}: {}", text, full.err().unwrap());
        prop_assert_eq!(&quick, &full.unwrap(), "{}", text);
        Ok(true)
    }

    fn number() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<f32>().prop_map(|float| float.to_string()),
            any::<f64>().prop_map(|float| format!("{float:e}")),
            any::<i64>().prop_map(|int| int.to_string()),
            (-300_i32..300).prop_map(|int| int.to_string()),
            (-1.0..1.0_f64).prop_map(|float| format!("{float:.6}")),
            "-?[0-9]{0,18}(\\.[0-9]{0,18})?([eE][+-]?[0-9]{0,4})?",
            "-?(NaN|Infinity|Inf|nan|I|N|Infinit)[0-9]?",
        ]
    }

    proptest! {
        #[test]
        fn what_it_reads_is_what_the_full_reader_reads(
            numbers in prop::collection::vec(number(), 1..6),
            dtype in prop::sample::select(DataType::ALL.to_vec()),
            extra in -1_i64..=1,
            space in "[ \n\t]{0,2}",
        ) {
            let count = (numbers.len() as i64 + extra).max(0);
            let data = numbers.join(&format!("{space},"));
            let text = format!(
                "{{{space}\"id\":\"a\",\"inputs\":[{{\"name\":\"x\",{space}\"datatype\":\"{dtype}\",\"shape\":[{count},1]{space},\"data\":[{data}{space}]}}]}}"
            );
            same(&text)?;
        }

        #[test]
        fn damage_is_never_read_differently(at in 0_usize..400, byte in prop::sample::select(b"{}[]\",:0-.e \\tn\nNI".to_vec())) {
            let mut text = USUAL.to_owned().into_bytes();
            let len = text.len();
            text[at % len] = byte;
            same(std::str::from_utf8(&text).unwrap())?;
            same(&USUAL[..at % len])?;
        }
    }

    const USUAL: &str = r#"{"id":"7", "inputs":[{"name":"a","shape":[2,2],"datatype":"FP32","data":[0.5, -1, NaN,-Infinity]},
        {"name":"b","datatype":"INT64","shape":[1],"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}"#;

    #[test]
    fn the_usual_is_read_here() {
        assert!(same(USUAL).unwrap());
        for left in [
            r#"{"inputs":[{"name":"a","shape":[1],"datatype":"FP32","data":[0.1234567890123456789]}]}"#,
            r#"{"inputs":[{"name":"a","shape":[1],"datatype":"FP32","data":[01]}]}"#,
            r#"{"inputs":[{"name":"a","shape":[1,2],"datatype":"FP32","data":[[1,2]]}]}"#,
            r#"{"inputs":[{"name":"a\u0062","shape":[1],"datatype":"FP32","data":[1]}]}"#,
            r#"{"inputs":[{"name":"a","shape":[1],"datatype":"INT8","data":[300]}]}"#,
            r#"{"inputs":[]}"#,
            r#"{"inputs":[],"inputs":[{"name":"a","shape":[1],"datatype":"INT8","data":[3]}]}"#,
            r#"{"inputs":[{"name":"a","shape":[1],"datatype":"INT8","data":[3]}],"parameters":{},"parameters":{}}"#,
        ] {
            assert!(request(left.as_bytes(), &Unlimited).is_none(), "{left}");
        }
    }
}
