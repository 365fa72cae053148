//! Target of a measurement: one server in one cache state, and its requests.

use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::{Control, ControlError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tierlab_instrument::units::wait;
use tierlab_load::custom::{Custom, CustomSpec};
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::inputs::{Declared, Inputs, Recorded};
use tierlab_load::keys::Population;
use tierlab_load::reply::Expected;
use tierlab_protocol::metadata::{ENTITY_ID, JoinedMetadata, ModelMetadata};
use tierlab_protocol::tensor::{DataType, TensorSpec};
use tokio::time::{Instant, sleep};

/// Time after which a refused request is not sent again.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);
/// First pause before a refused request is sent again, and the longest: each is twice the one before.
const REFUSAL_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(2)];
/// Pause before a request without a reply is sent again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// Sends a request again, for a limited time, while a server that just started or sheds load refuses it.
///
/// # Errors
/// Any other error, or the last refusal with the time of all attempts.
pub(crate) async fn until_accepted<T, E: Into<RunError>, F: Future<Output = Result<T, E>>>(
    mut send: impl FnMut() -> F,
) -> Result<T, RunError> {
    let start = Instant::now();
    let [mut pause, longest] = REFUSAL_PAUSES;
    loop {
        let refusal = match send().await.map_err(Into::into) {
            Err(RunError::Control(error)) if error.is_transient => error,
            sent => return sent,
        };
        if start.elapsed() >= REFUSAL_LIMIT {
            let (problem, tried) = (refusal.problem, wait(start.elapsed()));
            let problem = format!("{problem}; refused for {tried}: fix the request, or wait until the server is ready");
            return Err(ControlError { problem, ..refusal }.into());
        }
        sleep(pause).await;
        pause = longest.min(2 * pause);
    }
}

/// Content of a target's requests.
#[derive(Debug, Clone)]
pub enum Content {
    /// Entities whose rows the server joins.
    Joined(Population),
    /// Tensors in the request.
    Inline(Inputs),
    /// Entities, and the tensors that the server does not join.
    Mixed(Population, Inputs),
    /// Bodies of the plan, for an endpoint that does not speak the Open Inference Protocol.
    Custom {
        /// Requests to send.
        custom: Arc<Custom>,
        /// Population of the ids in its bodies; absent without ids.
        ids: Option<Population>,
    },
}

impl Content {
    /// Creates the requests to an endpoint of another protocol than the Open Inference Protocol.
    pub fn custom(plan: &Plan, spec: &CustomSpec, custom: &Arc<Custom>) -> Self {
        let has_ids = custom.needs_id() || custom.needs_ids();
        let ids = spec.entities.filter(|_| has_ids).map(|entities| {
            let count = entities.count.max(1);
            Population::new(entities.first_id, count, plan.keys.clone(), plan.seed)
        });
        Self::Custom {
            custom: Arc::clone(custom),
            ids,
        }
    }

    /// Creates the requests to a model: entities if it joins, and the inputs that a request must contain.
    ///
    /// # Errors
    /// Inputs that the plan does not describe, with the lines to add, or that the model does not accept.
    pub fn new(plan: &Plan, model: &ModelMetadata) -> Result<Self, RunError> {
        let rules = plan.inputs_of(&model.name);
        let joined = model.joined.as_ref().filter(|joined| joined.rows > 0);
        let (specs, joined) = match (joined, rules.recorded.as_deref()) {
            (Some(joined), Some(recorded)) => (recorded_inputs(model, joined, recorded), None),
            (Some(joined), None) => {
                let is_joined = |spec: &&TensorSpec| !joined.inputs.contains(&spec.name);
                (model.inputs.iter().filter(is_joined).cloned().collect(), Some(joined))
            }
            (None, _) => (model.inputs.clone(), None),
        };
        // The plan's seed, not the step's: the popular entities stay the same throughout a run, as a cache expects.
        let population = joined.map(|joined| {
            Population::new(joined.first_id, joined.rows, plan.keys.clone(), plan.seed)
                .with_keys(joined.key.as_ref().map(|key| key.datatype))
        });
        if let (Some(population), true, true) = (&population, specs.is_empty(), rules.tensors.is_empty()) {
            return Ok(Self::Joined(population.clone()));
        }
        let declared = Declared {
            model: &model.name,
            inputs: &specs,
            outputs: &model.outputs,
            batched: model.batched == Some(true) || population.is_some(),
        };
        let inputs = Inputs::resolve(&rules, &declared)
            .map_err(|problem| RunError::Usage(plan.inputs_error(&model.name, &problem)))?;
        Ok(match population {
            Some(population) => Self::Mixed(population, inputs),
            None => Self::Inline(inputs),
        })
    }
}

/// Returns the recorded inputs of a joining model: its own tensors, or entities.
fn recorded_inputs(model: &ModelMetadata, joined: &JoinedMetadata, recorded: &Recorded) -> Vec<TensorSpec> {
    let entities = TensorSpec {
        name: ENTITY_ID.to_owned(),
        dtype: DataType::Int64,
        shape: vec![-1],
    };
    let candidates = model.inputs.iter().chain([&entities]);
    let required = candidates
        .filter(|spec| recorded.holds(&spec.name) || !(joined.inputs.contains(&spec.name) || spec.name == ENTITY_ID));
    required.cloned().collect()
}

/// One server in one cache state.
#[derive(Debug, Clone)]
pub struct Target {
    /// Variant of the lab; empty if tier and cache identify the target.
    pub variant: String,
    /// Tier of its features.
    pub tier: String,
    /// Name of the cache state.
    pub cache: String,
    /// Capacity of the cache as a share of the table.
    pub cache_share: f64,
    /// Control of the server.
    pub control: Control,
    /// Content of its requests.
    pub content: Content,
    /// Content of requests to its other models, by name, for a plan's mixes.
    pub others: BTreeMap<String, Content>,
    /// Declared outputs of its models, by the model's name.
    pub outputs: BTreeMap<String, Vec<TensorSpec>>,
}

impl Target {
    /// Creates a target identified by its tier and cache state, with one model.
    pub fn new(control: Control, content: Content, outputs: BTreeMap<String, Vec<TensorSpec>>) -> Self {
        Self {
            variant: String::new(),
            tier: String::new(),
            cache: String::new(),
            cache_share: 0.0,
            control,
            content,
            others: BTreeMap::new(),
            outputs,
        }
    }

    /// Asks a server for the plan's model; returns its target, and the bytes of the table that the model joins (0 without one, or
    /// if the server does not report it).
    ///
    /// # Errors
    /// No server, no such model, or requests that cannot be built.
    pub async fn fetch(plan: &Plan, spec: &TargetSpec, control: Control) -> Result<(Self, u64), RunError> {
        if let (Some(spec), Some(custom)) = (&spec.custom, &control.custom) {
            let content = Content::custom(plan, spec, custom);
            return Ok((Self::new(control, content, BTreeMap::new()), 0));
        }
        let model = until_accepted(|| control.model(&plan.model)).await?;
        let joined = model.joined.as_ref();
        let table_bytes = joined.map_or(0, |joined| joined.rows.saturating_mul(joined.row_bytes.into()));
        let content = Content::new(plan, &model)?;
        let outputs = BTreeMap::from([(plan.model.clone(), model.outputs)]);
        Ok((Self::new(control, content, outputs), table_bytes))
    }

    /// Combines the servers of one variant that take turns; `None` without servers.
    pub fn fleet(servers: Vec<Self>) -> Option<Self> {
        let mut servers = servers.into_iter();
        let first = servers.next()?;
        let control = Control::fleet(first.control, servers.map(|server| server.control).collect());
        Some(Self { control, ..first })
    }

    /// Key of prices, origins and labels: the variant, or the tier without variants.
    pub fn label(&self) -> &str {
        match self.variant.as_str() {
            "" => &self.tier,
            variant => variant,
        }
    }

    /// Returns the content of requests to a model.
    pub fn content_of(&self, model: &str) -> &Content {
        self.others.get(model).unwrap_or(&self.content)
    }

    /// Returns the expected reply of a model to `rows` rows.
    pub fn expected(&self, model: &str, rows: u32) -> Expected {
        if let Content::Inline(inputs) | Content::Mixed(_, inputs) = self.content_of(model) {
            return inputs.expected(rows);
        }
        Expected::new(model, self.outputs.get(model).map_or(&[], Vec::as_slice), Some(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::control;
    use std::cell::Cell;
    use tierlab_analysis::record::Failure;

    #[tokio::test(start_paused = true)]
    async fn a_refused_request_is_sent_again_for_a_limited_time() {
        let sent = Cell::new(0);
        let refusing = |times: u32, failure: Failure| {
            let sent = &sent;
            move || {
                sent.set(sent.get() + 1);
                let is_refused = sent.get() <= times;
                async move {
                    match is_refused {
                        true => Err(control::refusal("http://h", &format!("answered {failure}")).after(failure)),
                        false => Ok(()),
                    }
                }
            }
        };
        for failure in [Failure::Status(503), Failure::Status(429), Failure::Rpc(14)] {
            assert!(until_accepted(refusing(3, failure)).await.is_ok(), "{failure}");
            assert_eq!(sent.take(), 4, "{failure}");
        }
        let never = until_accepted(refusing(u32::MAX, Failure::Status(503))).await;
        let never = never.unwrap_err().to_string();
        assert!(never.starts_with("http://h: answered 503; refused for 1"), "{never}");
        assert!((8..20).contains(&sent.take()));
        for failure in [Failure::Status(500), Failure::Rpc(3), Failure::Connect] {
            assert!(until_accepted(refusing(1, failure)).await.is_err(), "{failure}");
            assert_eq!(sent.take(), 1, "{failure}");
        }
    }
}
