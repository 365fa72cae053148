//! What a lab measures next, and what it answers.
//!
//! In: a question, and every step so far as evidence. Out: the next block of steps or the reason to stop, and the answer. Pure: a
//! lab that is resumed goes on where it stopped, for what comes next follows from what there is. Must not know how a step is made.
//!
//! - [`evidence`]: a step, a candidate, a block, in the rule's words; [`from_run`]: evidence from the record of a run
//! - [`rates`]: the rates that matter to a question; [`score`]: what a variant has of what should be least
//! - [`sequence`]: how far steps speak for or against an objective, at every look; [`percentile`]: the same for the percentile itself
//! - [`bounds`]: what the steps of one candidate say together; [`standing`]: what candidates say together
//! - [`next()`]: the next block; [`answer()`]: the answer, its sentences in `why`
//!
//! # The rule
//!
//! *What is tested.* Whether at a rate the share of requests slower than the limit lies below `1 - quantile` in a typical repeat: at
//! the median of the machine's weather, which moves all requests of a step together. Evidence is an e-value ([`sequence`]), which
//! holds at whatever time one looks at it. A variant that meets the objective at a rate meets it at lower ones, and one that does
//! not does not at higher ones: each variant has an interval of its highest rate, and so of its instances and its cost.
//!
//! *What is measured.* First one short step of each at a low rate, which also tells requests and bytes per inference and so the least
//! that a variant can cost; then at doubling rates until the objective looks broken; then, block by block, the variant that looks
//! best and its strongest rival (LUCB: Kalyanakrishnan, Tewari, Auer, Stone, *PAC Subset Selection in Stochastic Multi-armed
//! Bandits*, ICML 2012), each at the rate at which the least evidence settles it. Only rates at which the number of instances
//! changes are asked for. Whoever cannot be best any more is not measured.
//!
//! *When it stops.* When the best variant's upper bound lies within the tie of every rival's lower one. An answer can be wrong in two
//! ways only: the one named does not meet the objective where it was said to, or the truly best was said not to. Half of the
//! allowed error goes to each; the first is split over the variants that could be named so, both over the rates that may be
//! judged. Then fresh steps of the winner, which did not choose it, must not contradict it.

pub mod answer;
pub mod bounds;
pub mod evidence;
pub mod from_run;
pub mod next;
pub mod percentile;
pub mod rates;
pub mod score;
pub mod sequence;
pub mod standing;
mod verdict;
mod why;

pub use answer::answer;
pub use evidence::{Candidate, Next, Phase, Probe, StepEvidence, StopReason, Time};
pub use from_run::candidates;
pub use next::next;

#[cfg(test)]
mod tests;
