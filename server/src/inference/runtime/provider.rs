//! Execution provider of the models, with its options; and what is missing if it does not start.
//!
//! In: the configuration. Out: providers for ONNX Runtime, in order, and messages. Option names and meanings: ONNX
//! Runtime's pages on the CUDA and TensorRT execution providers.

use anyhow::{Result, anyhow};
use ort::environment::Environment;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};
use ort::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;
use tierlab_storage::device::{Search, device_nodes};

/// Execution provider of the models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(crate) enum Provider {
    /// CUDA if the library has it and it starts, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// CUDA; an error if it does not start.
    Cuda,
    /// TensorRT, with CUDA for nodes that it does not support; an error if it does not start.
    Tensorrt,
}

/// Growth strategy of the device memory arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arena {
    /// In powers of two.
    #[default]
    NextPowerOfTwo,
    /// By the requested size.
    SameAsRequested,
}

/// Search for the algorithm of a convolution, done when the shape of its input changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConvolutionSearch {
    /// By cuDNN's estimates.
    #[default]
    Heuristic,
    /// By trying all algorithms. Takes tenths of a second, during requests.
    Exhaustive,
    /// None: one fixed algorithm.
    Default,
}

/// `[runtime.cuda]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CudaOptions {
    /// Number of the device.
    pub(crate) device_id: u32,
    /// Maximum device memory of a session's arena, in bytes; 0 sets no limit.
    pub(crate) memory_limit_bytes: usize,
    pub(crate) arena: Arena,
    /// If true, copies use the computing stream; if false, a separate stream.
    pub(crate) copy_in_default_stream: bool,
    /// If true, uses TensorFloat-32 instead of 32-bit floats if the device supports it.
    pub(crate) tf32: bool,
    /// Search for the algorithms of convolutions.
    pub(crate) convolution_search: ConvolutionSearch,
    /// If true, pads the batches of a model for which a change of the batch size is slow.
    pub(crate) pad_batches: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            device_id: 0,
            memory_limit_bytes: 0,
            arena: Arena::default(),
            copy_in_default_stream: true,
            tf32: false,
            convolution_search: ConvolutionSearch::default(),
            pad_batches: true,
        }
    }
}

/// `[runtime.tensorrt]`; the device is that of `[runtime.cuda]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TensorRtOptions {
    /// If true, uses 16-bit floats where TensorRT finds them faster.
    pub(crate) fp16: bool,
    /// Maximum device memory for building and running, in bytes; 0 means TensorRT's own limit.
    pub(crate) workspace_bytes: usize,
    /// Folder of stored engines, for shorter cold starts. Without it, engines are built at each start.
    pub(crate) engine_cache: Option<PathBuf>,
}

/// Provider with its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Providers {
    pub(crate) choice: Provider,
    pub(crate) cuda: CudaOptions,
    pub(crate) tensorrt: TensorRtOptions,
}

/// True if the library was built with CUDA.
pub(crate) fn has_cuda() -> bool {
    <ep::CUDA as ExecutionProvider>::is_available().unwrap_or(false)
}

fn has_tensorrt() -> bool {
    <ep::TensorRT as ExecutionProvider>::is_available().unwrap_or(false)
}

impl Providers {
    /// Execution providers in order of preference. A provider that does not start fails the session.
    pub(crate) fn dispatch(&self, provider: Provider) -> Vec<ExecutionProviderDispatch> {
        let cuda = || self.cuda().build().error_on_failure();
        match provider {
            Provider::Cpu => Vec::new(),
            Provider::Auto | Provider::Cuda => vec![cuda()],
            Provider::Tensorrt => vec![self.tensorrt().build().error_on_failure(), cuda()],
        }
    }

    fn cuda(&self) -> ep::CUDA {
        let options = &self.cuda;
        let default_stream = if options.copy_in_default_stream { "1" } else { "0" };
        let mut cuda = ep::CUDA::default()
            .with_device_id(i32::try_from(options.device_id).unwrap_or(i32::MAX))
            .with_arena_extend_strategy(match options.arena {
                Arena::NextPowerOfTwo => ep::ArenaExtendStrategy::NextPowerOfTwo,
                Arena::SameAsRequested => ep::ArenaExtendStrategy::SameAsRequested,
            })
            .with_arbitrary_config("do_copy_in_default_stream", default_stream)
            .with_tf32(options.tf32)
            .with_conv_algorithm_search(match options.convolution_search {
                ConvolutionSearch::Heuristic => ep::cuda::ConvAlgorithmSearch::Heuristic,
                ConvolutionSearch::Exhaustive => ep::cuda::ConvAlgorithmSearch::Exhaustive,
                ConvolutionSearch::Default => ep::cuda::ConvAlgorithmSearch::Default,
            });
        if options.memory_limit_bytes > 0 {
            cuda = cuda.with_memory_limit(options.memory_limit_bytes);
        }
        cuda
    }

    fn tensorrt(&self) -> ep::TensorRT {
        let mut tensorrt = ep::TensorRT::default()
            .with_device_id(i32::try_from(self.cuda.device_id).unwrap_or(i32::MAX))
            .with_fp16(self.tensorrt.fp16);
        if self.tensorrt.workspace_bytes > 0 {
            tensorrt = tensorrt.with_max_workspace_size(self.tensorrt.workspace_bytes);
        }
        if let Some(folder) = &self.tensorrt.engine_cache {
            tensorrt = tensorrt
                .with_engine_cache(true)
                .with_engine_cache_path(folder.display());
        }
        tensorrt
    }

    /// Provider of models that ask for none, decided before anything else is done: `auto` is the CPU if CUDA does not
    /// start.
    ///
    /// # Errors
    /// Fails with one message if a provider requested by name is not in the library or its own libraries cannot be
    /// loaded.
    pub(crate) fn resolve(&self, environment: &Environment, library: &Path) -> Result<Provider> {
        if self.choice == Provider::Cpu || (self.choice == Provider::Auto && !has_cuda()) {
            return Ok(Provider::Cpu);
        }
        let unusable = |what: &str| anyhow!(self.unusable(self.choice, library, what.trim()));
        if !has_cuda() || (self.choice == Provider::Tensorrt && !has_tensorrt()) {
            return Err(unusable("ONNX Runtime was built without it"));
        }
        let builder = Session::builder(environment)?;
        match builder.with_execution_providers(self.dispatch(self.choice)) {
            Ok(_) => Ok(self.choice),
            Err(error) if self.choice == Provider::Auto => {
                tracing::warn!(%error, "cannot start CUDA; running the models on the CPU");
                Ok(Provider::Cpu)
            }
            Err(error) => Err(unusable(&error.to_string())),
        }
    }

    /// Message about a provider: what does not work, the libraries and devices searched, and what to do.
    pub(crate) fn unusable(&self, provider: Provider, library: &Path, what: &str) -> String {
        let mut files = vec!["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"];
        let mut search = Search::default();
        for names in CUDA_LIBRARIES {
            search.has(names);
        }
        if provider == Provider::Tensorrt {
            files.push("libonnxruntime_providers_tensorrt.so");
            search.has(&["libnvinfer.so.10"]);
        }
        let mut looked_for = vec![format!("{}: loaded", library.display())];
        for (provider, is_present) in [("CUDA", has_cuda()), ("TensorRT", has_tensorrt())] {
            looked_for.push(format!("{provider} in it: {}", if is_present { "yes" } else { "no" }));
        }
        for path in files.into_iter().map(|file| library.with_file_name(file)) {
            let presence = if path.exists() { "there" } else { "not there" };
            looked_for.push(format!("{}: {presence}", path.display()));
        }
        looked_for.extend(search.searched().iter().cloned());
        looked_for.extend(device_nodes(self.cuda.device_id));
        format!(
            "`runtime.provider = \"{}\"` cannot be used: {what}. Searched:\n  {}\nInstall NVIDIA's driver, and an ONNX Runtime \
             with its CUDA libraries (`pip install \"onnxruntime-gpu[cuda,cudnn]\"`), set ORT_DYLIB_PATH to its \
             onnxruntime/capi/libonnxruntime.so.* and put the folders of CUDA's libraries on LD_LIBRARY_PATH; or run the \
             models on the CPU: `runtime.provider = \"cpu\"`.",
            provider.into_str(),
            looked_for.join("\n  ")
        )
    }
}

/// Libraries linked by ONNX Runtime's CUDA provider, each by its names in CUDA 13 and 12.
const CUDA_LIBRARIES: [&[&str]; 7] = [
    &["libcuda.so.1"],
    &["libcudart.so.13", "libcudart.so.12"],
    &["libcublasLt.so.13", "libcublasLt.so.12"],
    &["libcublas.so.13", "libcublas.so.12"],
    &["libcufft.so.12", "libcufft.so.11"],
    &["libcurand.so.10"],
    &["libcudnn.so.9"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let text = "memory_limit_bytes = 1000\narena = \"same-as-requested\"\ncopy_in_default_stream = false";
        let options: CudaOptions = toml::from_str(text).unwrap();
        assert_eq!(
            (options.memory_limit_bytes, options.arena),
            (1000, Arena::SameAsRequested)
        );
        assert!(toml::from_str::<CudaOptions>("stream = 1").is_err());
        assert!(toml::from_str::<TensorRtOptions>("fp8 = true").is_err());
    }
}
