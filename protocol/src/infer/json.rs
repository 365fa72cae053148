//! The JSON part of a body: objects to plain fields, with every error naming its field.
//!
//! In: JSON text. Out: [`WireRequest`] and [`WireReply`], whose tensors have their JSON data already as bytes, or the
//! size of the binary data that follows. Keys may come in any order; a `data` array before its `datatype` and `shape` is
//! kept as raw text until both are known. Unknown keys are ignored, as the protocol asks. Lists and names are limited while
//! they are read, so that nothing is built and then refused.

use super::budget::{MemoryBudget, OVER_BUDGET, ReusedBudget, Unlimited};
use super::element::{Expected, ReadContext};
use super::error::BadRequest;
use super::limits::{MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS};
use super::nonfinite::Prescan;
use super::quick;
use super::wire::{WireOutput, WireReply, WireRequest, WireTensor};
use crate::tensor::DataType;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The keys of all objects of the protocol.
#[derive(Deserialize, Clone, Copy)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Id,
    ModelName,
    ModelVersion,
    Parameters,
    Inputs,
    Outputs,
    Name,
    Shape,
    Datatype,
    Data,
    #[serde(other)]
    Unknown,
}

/// The parameters that mean something here; the protocol lets clients send any others.
#[derive(Deserialize, Default)]
struct Parameters {
    binary_data_output: Option<bool>,
    timeout: Option<u64>,
    priority: Option<u64>,
    binary_data_size: Option<u64>,
    binary_data: Option<bool>,
    classification: Option<IgnoredAny>,
    shared_memory_region: Option<IgnoredAny>,
}

impl Parameters {
    /// Refuses the extensions that would change what is read or returned.
    fn refuse_unsupported<E: Error>(&self, label: &str) -> Result<(), E> {
        let unsupported = if self.classification.is_some() {
            "classification"
        } else if self.shared_memory_region.is_some() {
            "shared_memory_region"
        } else {
            return Ok(());
        };
        Err(E::custom(format_args!(
            "{label}: `parameters.{unsupported}` is not supported"
        )))
    }
}

pub(super) fn parse_request(json: &[u8], budget: &dyn MemoryBudget) -> Result<WireRequest, BadRequest> {
    let budget = ReusedBudget::of(budget);
    if let Some(request) = quick::request(json, &budget) {
        return Ok(request);
    }
    budget.again();
    parse_request_in_full(json, &budget)
}

/// Reads what any client may write, and says what is wrong with the rest.
pub(super) fn parse_request_in_full(json: &[u8], budget: &dyn MemoryBudget) -> Result<WireRequest, BadRequest> {
    parse(json, budget, "request", |reading, text| {
        Request(reading).deserialize(text)
    })
}

pub(super) fn parse_reply(json: &[u8]) -> Result<WireReply, BadRequest> {
    parse(json, &Unlimited, "reply", |reading, text| {
        Reply(reading).deserialize(text)
    })
}

/// Maximum memory of a text reader per byte of its longest string: unescaping may double the memory that it grows in, and a
/// misplaced string is quoted in the error.
const STRING_COPIES: usize = 4;
/// Texts up to this size are not looked over for strings: what reading them takes is bounded by it.
const SMALL_TEXT_BYTES: usize = 64 << 10;
/// Bytes of an error's message at most: it may quote what was sent.
const MAX_MESSAGE_BYTES: usize = 2 << 10;

type Text<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

fn parse<T>(
    json: &[u8],
    budget: &dyn MemoryBudget,
    what: &str,
    read: impl for<'de> FnOnce(ReadContext<'_>, &mut Text<'de>) -> serde_json::Result<T>,
) -> Result<T, BadRequest> {
    let refused = |e: &dyn fmt::Display| BadRequest(shortened(format!("malformed {what}: {e}")));
    let prescan = Prescan::of(json);
    let mut text = Cow::Borrowed(json);
    let mut wanted = 0;
    if json.len() > SMALL_TEXT_BYTES {
        wanted += prescan.longest_string.saturating_mul(STRING_COPIES);
    }
    if prescan.literals > 0 {
        wanted += prescan.replaced_bytes(json);
    }
    if wanted > 0 && !budget.take(wanted) {
        return Err(refused(&OVER_BUDGET));
    }
    if prescan.literals > 0 {
        text = Cow::Owned(prescan.replace(json));
    }
    let reading = ReadContext {
        budget,
        text_bytes: json.len(),
        placeholders: prescan.literals > 0,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(&text);
    let value = read(reading, &mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    value.map_err(|e| refused(&e))
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
        message.truncate(end);
        message.push_str(" …");
        message.shrink_to_fit();
    }
    message
}

/// Reads the value of a key that may stand once; errors name the key.
fn once<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    slot: &mut Option<T>,
    key: &str,
) -> Result<(), A::Error> {
    once_with(map, slot, key, PhantomData)
}

/// The same of what servers and clients write as null where they have nothing to say: MLServer's, out of pydantic.
fn once_or_null<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    slot: &mut Option<T>,
    key: &str,
) -> Result<(), A::Error> {
    let mut told = slot.take().map(Some);
    once_with(map, &mut told, key, PhantomData)?;
    *slot = told.flatten();
    Ok(())
}

fn once_with<'de, A: MapAccess<'de>, S: DeserializeSeed<'de>>(
    map: &mut A,
    slot: &mut Option<S::Value>,
    key: &str,
    seed: S,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::custom(format_args!("`{key}` is given twice")));
    }
    let value = map.next_value_seed(seed);
    *slot = Some(value.map_err(|e| A::Error::custom(format_args!("`{key}`: {e}")))?);
    Ok(())
}

/// A name or an id, which is short.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Short;
        impl Visitor<'_> for Short {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Name, E> {
                if text.len() > MAX_NAME_BYTES {
                    return Err(E::custom(format_args!("it is longer than {MAX_NAME_BYTES} bytes")));
                }
                Ok(Name(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Short)
    }
}

/// Dimensions, no more than a tensor may have.
struct Shape(Vec<i64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Dimensions;
        impl<'de> Visitor<'de> for Dimensions {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::with_capacity(4);
                while let Some(dimension) = seq.next_element()? {
                    if shape.len() == MAX_RANK {
                        return Err(A::Error::custom(format_args!("more than {MAX_RANK} dimensions")));
                    }
                    shape.push(dimension);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(Dimensions)
    }
}

fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Seed and visitor of a request.
struct Request<'a>(ReadContext<'a>);

impl<'de> DeserializeSeed<'de> for Request<'_> {
    type Value = WireRequest;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireRequest, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Request<'_> {
    type Value = WireRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `inputs`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireRequest, A::Error> {
        let mut id: Option<Name> = None;
        let mut parameters: Option<Parameters> = None;
        let mut inputs: Option<Vec<WireTensor>> = None;
        let mut outputs: Option<Wanted> = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::Id => once_or_null(&mut map, &mut id, "id")?,
                Key::Parameters => once_or_null(&mut map, &mut parameters, "parameters")?,
                Key::Inputs => once_with(&mut map, &mut inputs, "inputs", Tensors::<false>(self.0))?,
                Key::Outputs => once_or_null(&mut map, &mut outputs, "outputs")?,
                _ => skip(&mut map)?,
            }
        }
        let parameters = parameters.unwrap_or_default();
        parameters.refuse_unsupported("request")?;
        let inputs = inputs.ok_or_else(|| A::Error::custom("`inputs` is missing"))?;
        if inputs.is_empty() {
            return Err(A::Error::custom("`inputs` is empty"));
        }
        Ok(WireRequest {
            id: id.map(|id| id.0),
            binary_output: parameters.binary_data_output.unwrap_or(false),
            timeout_us: parameters.timeout,
            priority: parameters.priority.unwrap_or(0),
            inputs,
            outputs: outputs.map_or_else(Vec::new, |outputs| outputs.0),
        })
    }
}

/// Seed and visitor of a reply.
struct Reply<'a>(ReadContext<'a>);

impl<'de> DeserializeSeed<'de> for Reply<'_> {
    type Value = WireReply;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireReply, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reply<'_> {
    type Value = WireReply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `model_name` and `outputs`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireReply, A::Error> {
        let mut model_name: Option<String> = None;
        let mut model_version: Option<String> = None;
        let mut id: Option<String> = None;
        let mut outputs: Option<Vec<WireTensor>> = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::ModelName => once(&mut map, &mut model_name, "model_name")?,
                Key::ModelVersion => once_or_null(&mut map, &mut model_version, "model_version")?,
                Key::Id => once_or_null(&mut map, &mut id, "id")?,
                Key::Outputs => once_with(&mut map, &mut outputs, "outputs", Tensors::<true>(self.0))?,
                _ => skip(&mut map)?,
            }
        }
        Ok(WireReply {
            model_name: model_name.ok_or_else(|| A::Error::custom("`model_name` is missing"))?,
            model_version: model_version.unwrap_or_default(),
            id,
            outputs: outputs.ok_or_else(|| A::Error::custom("`outputs` is missing"))?,
        })
    }
}

/// Seed and visitor of an array of tensors, of a reply or of a request.
struct Tensors<'a, const REPLY: bool>(ReadContext<'a>);

impl<'de, const REPLY: bool> DeserializeSeed<'de> for Tensors<'_, REPLY> {
    type Value = Vec<WireTensor>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<WireTensor>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, const REPLY: bool> Visitor<'de> for Tensors<'_, REPLY> {
    type Value = Vec<WireTensor>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of tensors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<WireTensor>, A::Error> {
        let mut tensors = Vec::new();
        let seed = |index| TensorSeed::<'_, REPLY> { index, reading: self.0 };
        while let Some(tensor) = seq.next_element_seed(seed(tensors.len()))? {
            if tensors.len() == MAX_TENSORS {
                return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
            }
            tensors.push(tensor);
        }
        Ok(tensors)
    }
}

/// Seed and visitor of one tensor; `index` names it in messages until its name is known.
struct TensorSeed<'a, const REPLY: bool> {
    index: usize,
    reading: ReadContext<'a>,
}

impl<const REPLY: bool> TensorSeed<'_, REPLY> {
    fn label(&self, name: Option<&Name>) -> String {
        let role = if REPLY { "output" } else { "input" };
        match name {
            Some(Name(name)) => format!("{role} `{name}`"),
            None => format!("{role} {}", self.index),
        }
    }
}

impl<'de, const REPLY: bool> DeserializeSeed<'de> for TensorSeed<'_, REPLY> {
    type Value = WireTensor;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireTensor, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const REPLY: bool> Visitor<'de> for TensorSeed<'_, REPLY> {
    type Value = WireTensor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `name`, `datatype`, `shape` for {}", self.label(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireTensor, A::Error> {
        let mut name: Option<Name> = None;
        let mut dtype: Option<DataType> = None;
        let mut shape: Option<Shape> = None;
        let mut parameters: Option<Parameters> = None;
        let mut data: Option<Vec<u8>> = None;
        let mut early: Option<&'de RawValue> = None;
        while let Some(key) = map.next_key()? {
            let field = match key {
                Key::Name => once(&mut map, &mut name, "name"),
                Key::Datatype => once(&mut map, &mut dtype, "datatype"),
                Key::Shape => once(&mut map, &mut shape, "shape"),
                Key::Parameters => once_or_null(&mut map, &mut parameters, "parameters"),
                Key::Data if data.is_some() || early.is_some() => Err(A::Error::custom("`data` is given twice")),
                Key::Data => match (dtype, &shape) {
                    (Some(dtype), Some(Shape(shape))) => {
                        let label = &self.label(name.as_ref());
                        data = Some(map.next_value_seed(Expected {
                            dtype,
                            shape,
                            label,
                            null_is_nan: REPLY,
                            reading: self.reading,
                        })?);
                        continue;
                    }
                    _ => once(&mut map, &mut early, "data"),
                },
                _ => skip(&mut map),
            };
            field.map_err(|e| A::Error::custom(format_args!("{}: {e}", self.label(name.as_ref()))))?;
        }
        let label = self.label(name.as_ref());
        let missing = |key: &str| A::Error::custom(format_args!("{label}: `{key}` is missing"));
        let dtype = dtype.ok_or_else(|| missing("datatype"))?;
        let Shape(shape) = shape.ok_or_else(|| missing("shape"))?;
        if let Some(raw) = early {
            let mut text = serde_json::Deserializer::from_str(raw.get());
            let expected = Expected {
                dtype,
                shape: &shape,
                label: &label,
                null_is_nan: REPLY,
                reading: self.reading,
            };
            data = Some(expected.deserialize(&mut text).map_err(A::Error::custom)?);
        }
        let parameters = parameters.unwrap_or_default();
        parameters.refuse_unsupported(&label)?;
        Ok(WireTensor {
            name: name.ok_or_else(|| missing("name"))?.0,
            dtype,
            shape,
            data,
            binary_data_size: parameters.binary_data_size,
        })
    }
}

/// The `outputs` of a request.
struct Wanted(Vec<WireOutput>);

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Output {
            name: Name,
            parameters: Option<Parameters>,
        }
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Wanted;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of outputs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Wanted, A::Error> {
                let mut wanted: Vec<WireOutput> = Vec::new();
                while let Some(Output { name, parameters }) = seq.next_element()? {
                    let name = name.0;
                    let label = format!("output `{name}`");
                    let parameters = parameters.unwrap_or_default();
                    parameters.refuse_unsupported(&label)?;
                    if wanted.iter().any(|other| other.name == name) {
                        return Err(A::Error::custom(format_args!("{label}: the name is given twice")));
                    }
                    if wanted.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} outputs")));
                    }
                    let binary = parameters.binary_data;
                    wanted.push(WireOutput { name, binary });
                }
                Ok(Wanted(wanted))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
