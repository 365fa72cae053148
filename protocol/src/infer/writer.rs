//! The bytes of a body: its JSON part, then the binary data behind it.
//!
//! In: tensors and pieces of JSON. Out: one buffer, reserved once, and the length of its JSON part.

use super::{Tensor, element};

/// Writes the JSON of a body, then the binary data behind it.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Room for `fixed` bytes and for the tensors; `binary` says of each whether it goes behind the JSON part.
    pub(super) fn with_capacity(fixed: usize, tensors: &[Tensor], binary: &[bool]) -> Self {
        let room = |(tensor, &binary): (&Tensor, &bool)| {
            let size = tensor.dtype.size().unwrap_or(1).max(1);
            // A float in JSON takes some 12 bytes and its comma.
            let data = if binary {
                tensor.data.len()
            } else {
                tensor.data.len() / size * 13
            };
            96 + tensor.name.len() + data
        };
        let tensors: usize = tensors.iter().zip(binary).map(room).sum();
        Self(Vec::with_capacity(fixed + tensors))
    }

    pub(super) fn raw(&mut self, json: &str) -> &mut Self {
        self.0.extend_from_slice(json.as_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        element::json(&mut self.0, text);
        self
    }

    pub(super) fn tensors(&mut self, tensors: &[Tensor], binary: &[bool]) -> &mut Self {
        self.raw("[");
        for (i, (tensor, &binary)) in tensors.iter().zip(binary).enumerate() {
            self.raw(if i > 0 { "," } else { "" });
            self.raw("{\"name\":").text(&tensor.name);
            self.raw(",\"datatype\":\"")
                .raw(tensor.dtype.as_str())
                .raw("\",\"shape\":");
            element::json(&mut self.0, &tensor.shape);
            if binary {
                self.raw(",\"parameters\":{\"binary_data_size\":");
                element::json(&mut self.0, &tensor.data.len());
                self.raw("}}");
            } else {
                self.raw(",\"data\":");
                element::write(tensor.dtype, &tensor.data.whole(), &mut self.0);
                self.raw("}");
            }
        }
        self.raw("]")
    }

    /// The body, and the length of its JSON part where binary data follows it.
    pub(super) fn finish(self, tensors: &[Tensor], binary: &[bool]) -> (Vec<u8>, Option<usize>) {
        let json_len = self.0.len();
        let mut body = self.0;
        for (tensor, _) in tensors.iter().zip(binary).filter(|(_, binary)| **binary) {
            tensor.data.pieces().for_each(|piece| body.extend_from_slice(piece));
        }
        (body, binary.contains(&true).then_some(json_len))
    }
}
