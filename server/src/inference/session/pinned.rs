//! Runs of a session on a GPU, with host copies in pinned memory.
//!
//! In: the parts of a batch. Out: outputs in pinned memory, each copied there once. Parts on the host are laid out
//! directly in pinned input tensors, which ONNX Runtime copies to the device; if a part is already on the device, the
//! input's tensor is built there ([`DeviceInputs`]). Pinned memory comes from ONNX Runtime's own arenas. The tests
//! use the CPU's memory in place of both.

use super::RunError;
use super::device::DeviceInputs;
use crate::inference::tensors;
use crate::request::{Elements, Part};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, RunOptions, Session, SessionOutputs};
use ort::value::DynTensor;
use std::borrow::Cow;
use tierlab_protocol::infer::Data;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Binding of a session, and its tensors. The binding is the first field, because it points to the later ones.
#[derive(Debug)]
pub(crate) struct PinnedRun {
    binding: IoBinding,
    inputs: Allocator,
    pub(super) device: DeviceInputs,
    outputs: MemoryInfo<'static>,
}

impl PinnedRun {
    /// Binds the outputs of a session to memory that the device `id` copies to directly. `None` for models with text,
    /// which has no fixed size.
    pub(crate) fn new(
        session: &Session,
        inputs: &[TensorSpec],
        outputs: &[TensorSpec],
        (pinned, device, id): (AllocationDevice<'static>, AllocationDevice<'static>, u32),
    ) -> ort::Result<Option<Self>> {
        if inputs.iter().chain(outputs).any(|spec| spec.dtype == DataType::Bytes) {
            return Ok(None);
        }
        let mut binding = session.create_binding()?;
        let id = i32::try_from(id).unwrap_or(i32::MAX);
        let memory =
            |device: &AllocationDevice<'static>, kind| MemoryInfo::new(device.clone(), id, AllocatorType::Device, kind);
        let host = memory(&pinned, MemoryType::CPUOutput)?;
        for output in outputs {
            binding.bind_output_to_device(&output.name, &host)?;
        }
        Ok(Some(Self {
            binding,
            inputs: Allocator::new(session, memory(&pinned, MemoryType::CPUInput)?)?,
            device: DeviceInputs::new(Allocator::new(session, memory(&device, MemoryType::Default)?)?),
            outputs: host,
        }))
    }

    /// Binds an input: its parts in order, in device memory if one of them is there, else in pinned memory.
    ///
    /// # Errors
    /// Fails if the parts do not have the shape, which is the requests' fault, or with an error of the device or ONNX
    /// Runtime.
    pub(super) fn bind<'a>(
        &mut self,
        spec: &TensorSpec,
        shape: Vec<i64>,
        parts: impl Iterator<Item = &'a Part> + Clone,
    ) -> Result<(), RunError> {
        let element = tensors::element_type(spec.dtype).ok_or_else(|| RunError::misfit("text cannot be bound"))?;
        let is_on_device = |part: &Part| matches!(part.data, Elements::Device(_));
        let tensor = if parts.clone().any(is_on_device) {
            self.device.tensor(&spec.name, element, &shape, parts)?
        } else {
            let mut tensor = DynTensor::new(&self.inputs, element, shape)?;
            // Each part in one piece, because an element may span two pieces.
            let host = parts.filter_map(|part| part.data.host());
            let whole: Vec<Cow<'_, [u8]>> = host.map(Data::whole).collect();
            let mut bytes = whole.iter().map(AsRef::as_ref);
            let laid_out = tensors::buffer(spec.dtype).lay_out(&mut tensor, &mut bytes);
            laid_out.map_err(RunError::misfit)?;
            tensor
        };
        Ok(self.binding.bind_input(&spec.name, &tensor)?)
    }

    /// Runs the session, and waits until every output is in pinned memory.
    ///
    /// # Errors
    /// Returns ONNX Runtime's error.
    pub(crate) fn run<'s>(
        &'s mut self,
        session: &'s mut Session,
        options: &RunOptions,
    ) -> ort::Result<SessionOutputs<'s>> {
        // Each run allocates new outputs: those of the previous one may still be read.
        for output in session.outputs() {
            self.binding.bind_output_to_device(output.name(), &self.outputs)?;
        }
        self.binding.synchronize_inputs()?;
        let outputs = session.run_binding_with_options(&self.binding, options)?;
        self.binding.synchronize_outputs()?;
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::session::Fault;
    use crate::inference::session::tests::{engines, parts};

    /// The same batches through a session as it is, and through one that is bound, with plain memory for pinned.
    #[test]
    fn a_bound_session_answers_as_an_unbound_one() {
        let [mut plain, mut bound] = engines();
        let mut retained = Vec::new();
        for (first, second) in [(1, 3), (8, 1), (2, 30), (1, 1)] {
            let requests = [parts(first, 0.1), parts(second, 0.9)];
            let requests: Vec<&[Part]> = requests.iter().map(Vec::as_slice).collect();
            let [expected, actual] = [&mut plain, &mut bound].map(|engine| {
                let answers = engine.run_parts(&requests, &[first, second]);
                answers.map_err(|e| e.message).unwrap().outputs
            });
            assert_eq!(expected, actual);
            retained.push((expected, actual));
        }
        assert!(
            retained.iter().all(|(expected, actual)| expected == actual),
            "later runs leave earlier answers alone"
        );
        let short = vec![Part {
            shape: vec![2, 64],
            data: vec![0; 64 * 4].into(),
        }];
        let refused = bound.run_parts(&[&short], &[2]).err().unwrap();
        assert_eq!(refused.fault, Fault::Input, "fewer bytes than the shape says");
        assert!(bound.run_parts(&[&parts(2, 0.5)], &[2]).is_ok());
    }

    /// Batches of several sizes through a padded session, which runs them in one size.
    #[test]
    fn a_padded_session_answers_as_an_exact_one() {
        let [mut plain, mut padded] = engines();
        padded.padded_rows = Some(24);
        for rows in [vec![1], vec![2, 1], vec![1, 2], vec![3], vec![11, 7], vec![24], vec![2]] {
            let requests: Vec<Vec<Part>> = rows.iter().map(|&rows| parts(rows, 0.3 * rows as f32)).collect();
            let requests: Vec<&[Part]> = requests.iter().map(Vec::as_slice).collect();
            let [expected, actual] = [&mut plain, &mut padded].map(|engine| {
                let answers = engine.run_parts(&requests, &rows);
                answers.map_err(|e| e.message).unwrap().outputs
            });
            assert_eq!(expected, actual, "{rows:?}");
        }
    }
}
