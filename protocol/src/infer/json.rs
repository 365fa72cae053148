//! The JSON part of a body: objects to plain fields, with every error naming its field.
//!
//! In: JSON text. Out: [`WireRequest`] and [`WireReply`], whose tensors have their JSON data already as bytes, or the
//! size of the binary data that is to follow. Keys may come in any order; a `data` array that comes before its
//! `datatype` and `shape` waits as raw text. Keys that the protocol does not know are passed over, as its text asks.

use super::element::Expected;
use super::{BadRequest, MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS, quick};
use crate::tensor::DataType;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A request before its binary data.
#[derive(Debug, Default, PartialEq)]
pub(super) struct WireRequest {
    pub(super) id: Option<String>,
    pub(super) binary_output: bool,
    pub(super) timeout_us: Option<u64>,
    pub(super) priority: u64,
    pub(super) inputs: Vec<WireTensor>,
    /// Name, and `parameters.binary_data` where given.
    pub(super) outputs: Vec<(String, Option<bool>)>,
}

/// A reply before its binary data.
pub(super) struct WireReply {
    pub(super) model_name: String,
    pub(super) model_version: String,
    pub(super) id: Option<String>,
    pub(super) outputs: Vec<WireTensor>,
}

/// A tensor before its binary data.
#[derive(Debug, PartialEq)]
pub(super) struct WireTensor {
    pub(super) name: String,
    pub(super) dtype: DataType,
    pub(super) shape: Vec<i64>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) binary_data_size: Option<u64>,
}

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

pub(super) fn parse_request(json: &[u8]) -> Result<WireRequest, BadRequest> {
    quick::request(json).map_or_else(|| parse_request_in_full(json), Ok)
}

/// Reads what any client may write, and says what is wrong with the rest.
pub(super) fn parse_request_in_full(json: &[u8]) -> Result<WireRequest, BadRequest> {
    parse(json, Request, "request")
}

pub(super) fn parse_reply(json: &[u8]) -> Result<WireReply, BadRequest> {
    parse(json, Reply, "reply")
}

fn parse<T>(json: &[u8], seed: impl for<'de> DeserializeSeed<'de, Value = T>, what: &str) -> Result<T, BadRequest> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let read = seed.deserialize(&mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    read.map_err(|e| BadRequest(format!("malformed {what}: {e}")))
}

/// Reads the value of a key that may stand once; errors name the key.
fn once<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    slot: &mut Option<T>,
    key: &str,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::custom(format_args!("`{key}` stands twice")));
    }
    *slot = Some(
        map.next_value()
            .map_err(|e| A::Error::custom(format_args!("`{key}`: {e}")))?,
    );
    Ok(())
}

fn short_text<E: Error>(key: &str, text: Option<String>) -> Result<Option<String>, E> {
    match text {
        Some(text) if text.len() > MAX_NAME_BYTES => {
            Err(E::custom(format_args!("`{key}` is longer than {MAX_NAME_BYTES} bytes")))
        }
        text => Ok(text),
    }
}

fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Seed and visitor of a request.
struct Request;

impl<'de> DeserializeSeed<'de> for Request {
    type Value = WireRequest;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireRequest, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Request {
    type Value = WireRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `inputs`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireRequest, A::Error> {
        let mut id: Option<String> = None;
        let mut parameters: Option<Parameters> = None;
        let mut inputs: Option<Tensors<false>> = None;
        let mut outputs: Option<Wanted> = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::Id => once(&mut map, &mut id, "id")?,
                Key::Parameters => once(&mut map, &mut parameters, "parameters")?,
                Key::Inputs => once(&mut map, &mut inputs, "inputs")?,
                Key::Outputs => once(&mut map, &mut outputs, "outputs")?,
                _ => skip(&mut map)?,
            }
        }
        let parameters = parameters.unwrap_or_default();
        parameters.refuse_unsupported("request")?;
        let inputs = inputs.ok_or_else(|| A::Error::custom("`inputs` is missing"))?.0;
        if inputs.is_empty() {
            return Err(A::Error::custom("`inputs` is empty"));
        }
        Ok(WireRequest {
            id: short_text("id", id)?,
            binary_output: parameters.binary_data_output.unwrap_or(false),
            timeout_us: parameters.timeout,
            priority: parameters.priority.unwrap_or(0),
            inputs,
            outputs: outputs.map_or_else(Vec::new, |outputs| outputs.0),
        })
    }
}

/// Seed and visitor of a reply.
struct Reply;

impl<'de> DeserializeSeed<'de> for Reply {
    type Value = WireReply;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireReply, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reply {
    type Value = WireReply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `model_name` and `outputs`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireReply, A::Error> {
        let mut model_name: Option<String> = None;
        let mut model_version: Option<String> = None;
        let mut id: Option<String> = None;
        let mut outputs: Option<Tensors<true>> = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::ModelName => once(&mut map, &mut model_name, "model_name")?,
                Key::ModelVersion => once(&mut map, &mut model_version, "model_version")?,
                Key::Id => once(&mut map, &mut id, "id")?,
                Key::Outputs => once(&mut map, &mut outputs, "outputs")?,
                _ => skip(&mut map)?,
            }
        }
        Ok(WireReply {
            model_name: model_name.ok_or_else(|| A::Error::custom("`model_name` is missing"))?,
            model_version: model_version.unwrap_or_default(),
            id,
            outputs: outputs.ok_or_else(|| A::Error::custom("`outputs` is missing"))?.0,
        })
    }
}

/// An array of tensors, of a reply or of a request.
struct Tensors<const REPLY: bool>(Vec<WireTensor>);

impl<'de, const REPLY: bool> Deserialize<'de> for Tensors<REPLY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<const REPLY: bool>;
        impl<'de, const REPLY: bool> Visitor<'de> for List<REPLY> {
            type Value = Tensors<REPLY>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of tensors")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tensors<REPLY>, A::Error> {
                let mut tensors = Vec::new();
                while let Some(tensor) = seq.next_element_seed(TensorSeed::<REPLY> { index: tensors.len() })? {
                    if tensors.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
                    }
                    tensors.push(tensor);
                }
                Ok(Tensors(tensors))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// Seed and visitor of one tensor; `index` names it in messages until its name is known.
struct TensorSeed<const REPLY: bool> {
    index: usize,
}

impl<const REPLY: bool> TensorSeed<REPLY> {
    fn label(&self, name: Option<&String>) -> String {
        let role = if REPLY { "output" } else { "input" };
        match name {
            Some(name) => format!("{role} `{name}`"),
            None => format!("{role} {}", self.index),
        }
    }
}

impl<'de, const REPLY: bool> DeserializeSeed<'de> for TensorSeed<REPLY> {
    type Value = WireTensor;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireTensor, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const REPLY: bool> Visitor<'de> for TensorSeed<REPLY> {
    type Value = WireTensor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `name`, `datatype`, `shape` for {}", self.label(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireTensor, A::Error> {
        let mut name: Option<String> = None;
        let mut dtype: Option<DataType> = None;
        let mut shape: Option<Vec<i64>> = None;
        let mut parameters: Option<Parameters> = None;
        let mut data: Option<Vec<u8>> = None;
        let mut early: Option<&'de RawValue> = None;
        while let Some(key) = map.next_key()? {
            let field = match key {
                Key::Name => once(&mut map, &mut name, "name"),
                Key::Datatype => once(&mut map, &mut dtype, "datatype"),
                Key::Shape => once(&mut map, &mut shape, "shape"),
                Key::Parameters => once(&mut map, &mut parameters, "parameters"),
                Key::Data if data.is_some() || early.is_some() => Err(A::Error::custom("`data` stands twice")),
                Key::Data => match (dtype, &shape) {
                    (Some(dtype), Some(shape)) if shape.len() <= MAX_RANK => {
                        let label = &self.label(name.as_ref());
                        data = Some(map.next_value_seed(Expected {
                            dtype,
                            shape,
                            label,
                            null_is_nan: REPLY,
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
        let shape = shape.ok_or_else(|| missing("shape"))?;
        if shape.len() > MAX_RANK {
            return Err(A::Error::custom(format_args!(
                "{label}: `shape` has more than {MAX_RANK} dimensions"
            )));
        }
        if let Some(raw) = early {
            let mut text = serde_json::Deserializer::from_str(raw.get());
            let expected = Expected {
                dtype,
                shape: &shape,
                label: &label,
                null_is_nan: REPLY,
            };
            data = Some(expected.deserialize(&mut text).map_err(A::Error::custom)?);
        }
        let parameters = parameters.unwrap_or_default();
        parameters.refuse_unsupported(&label)?;
        Ok(WireTensor {
            name: short_text("name", name)?.ok_or_else(|| missing("name"))?,
            dtype,
            shape,
            data,
            binary_data_size: parameters.binary_data_size,
        })
    }
}

/// The `outputs` of a request.
struct Wanted(Vec<(String, Option<bool>)>);

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Output {
            name: String,
            #[serde(default)]
            parameters: Parameters,
        }
        let mut wanted: Vec<(String, Option<bool>)> = Vec::new();
        for Output { name, parameters } in Vec::<Output>::deserialize(deserializer)? {
            let label = format!("output `{name}`");
            parameters.refuse_unsupported(&label)?;
            if wanted.iter().any(|(other, _)| *other == name) {
                return Err(D::Error::custom(format_args!("{label}: the name stands twice")));
            }
            if wanted.len() == MAX_TENSORS {
                return Err(D::Error::custom(format_args!("more than {MAX_TENSORS} outputs")));
            }
            wanted.push((name, parameters.binary_data));
        }
        Ok(Self(wanted))
    }
}
