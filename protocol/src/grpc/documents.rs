//! Converts HTTP documents to messages if their JSON differs.
//!
//! In: documents of [`metadata`](crate::metadata). Out: messages with the same content. Other documents are messages
//! themselves.

use super::messages::model_version_policy::{All, Latest, PolicyChoice, Specific};
use super::messages::{
    DataType, ModelInput, ModelMetadataResponse, ModelOutput, ModelTensorReshape, ModelVersionPolicy, TensorMetadata,
};
use crate::metadata::{ModelMetadata, VersionPolicy};
use crate::tensor::{self, TensorSpec};

impl From<TensorSpec> for TensorMetadata {
    fn from(spec: TensorSpec) -> Self {
        Self {
            name: spec.name,
            datatype: spec.dtype.to_string(),
            shape: spec.shape,
        }
    }
}

impl From<ModelMetadata> for ModelMetadataResponse {
    fn from(document: ModelMetadata) -> Self {
        Self {
            name: document.name,
            versions: document.versions,
            platform: document.platform,
            inputs: document.inputs.into_iter().map(Into::into).collect(),
            outputs: document.outputs.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<VersionPolicy> for ModelVersionPolicy {
    fn from(policy: VersionPolicy) -> Self {
        let number = |version: u64| i64::try_from(version).unwrap_or(i64::MAX);
        let choice = match policy {
            VersionPolicy::Latest { num_versions } => PolicyChoice::Latest(Latest { num_versions }),
            VersionPolicy::All {} => PolicyChoice::All(All {}),
            VersionPolicy::Specific { versions } => PolicyChoice::Specific(Specific {
                versions: versions.into_iter().map(number).collect(),
            }),
        };
        Self {
            policy_choice: Some(choice),
        }
    }
}

/// A data type as Triton's configuration names it.
impl From<tensor::DataType> for DataType {
    fn from(dtype: tensor::DataType) -> Self {
        let named = match dtype {
            tensor::DataType::Bytes => Some(Self::TypeString),
            dtype => Self::from_str_name(&format!("TYPE_{dtype}")),
        };
        named.unwrap_or(Self::TypeInvalid)
    }
}

impl ModelInput {
    /// Describes a tensor as Triton's configuration does; `batched` omits the first dimension. `reshape` is the shape
    /// in the graph if it differs.
    pub fn new(spec: &TensorSpec, batched: bool, reshape: Option<Vec<i64>>) -> Self {
        Self {
            name: spec.name.clone(),
            data_type: DataType::from(spec.dtype).into(),
            dims: spec.shape.get(usize::from(batched)..).unwrap_or_default().to_vec(),
            reshape: reshape.map(|shape| ModelTensorReshape { shape }),
        }
    }
}

/// An output's message has the fields of an input's, with other numbers.
impl From<ModelInput> for ModelOutput {
    fn from(tensor: ModelInput) -> Self {
        Self {
            name: tensor.name,
            data_type: tensor.data_type,
            dims: tensor.dims,
            label_filename: String::new(),
            reshape: tensor.reshape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::messages::model_warmup::Input;
    use crate::grpc::messages::model_warmup::input::InputDataType;

    #[test]
    fn configuration_leaves_the_batch_dimension_out_and_names_types() {
        let spec = |dtype, shape: &[i64]| TensorSpec {
            name: "x".into(),
            dtype,
            shape: shape.to_vec(),
        };
        let json = |tensor: ModelInput| serde_json::to_string(&tensor).unwrap();
        let batched = ModelInput::new(&spec(tensor::DataType::Fp32, &[-1, 64]), true, Some(vec![8, 8]));
        assert_eq!(
            json(batched),
            r#"{"name":"x","data_type":"TYPE_FP32","dims":[64],"reshape":{"shape":[8,8]}}"#
        );
        let text = ModelInput::new(&spec(tensor::DataType::Bytes, &[-1]), false, None);
        assert_eq!(json(text), r#"{"name":"x","data_type":"TYPE_STRING","dims":[-1]}"#);
        for dtype in tensor::DataType::ALL {
            assert_ne!(DataType::from(dtype), DataType::TypeInvalid, "{dtype}");
        }
    }

    #[test]
    fn choices_are_keys_of_their_document() {
        let policy = ModelVersionPolicy::from(VersionPolicy::default());
        assert_eq!(
            serde_json::to_string(&policy).unwrap(),
            r#"{"latest":{"num_versions":1}}"#
        );
        let all = ModelVersionPolicy::from(VersionPolicy::All {});
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"{"all":{}}"#);
        let input = Input {
            data_type: DataType::TypeInt64.into(),
            dims: vec![2],
            input_data_type: Some(InputDataType::ZeroData(true)),
        };
        let json = serde_json::to_string(&input).unwrap();
        assert_eq!(json, r#"{"data_type":"TYPE_INT64","dims":[2],"zero_data":true}"#);
    }
}
