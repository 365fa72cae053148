//! Next measurement of a lab, and its answer.
//!
//! In: a question, and every step so far as evidence. Out: the next block of steps or the reason to stop, and the
//! answer. Pure: a resumed lab goes on where it stopped, because the next block follows from the steps so far. Must not
//! know how a step is measured.
//!
//! - [`evidence`]: steps, candidates and blocks; [`from_run`]: evidence from the record of a run
//! - [`rates`]: the rates that matter to a question
//! - `likelihood`: likelihood of a step's counts; `rate_points`: the steps of each rate
//! - `curve`: distribution of a candidate's highest rate; `probability`: probability of each candidate being the answer
//! - [`lab`]: all candidates together; [`highest_rates`]: highest rates above those that matter
//! - [`next()`]: the next block; [`answer()`]: the answer, its sentences in `why`
//!
//! # The rule
//!
//! *Estimand.* The highest rate at which the mean share of requests slower than the limit lies below `1 - quantile`,
//! over all possible repeats: the long run, in which a few bad repeats may dominate. All steps of a variant together
//! give the distribution of its highest rate (`curve`), and so of the number of instances and the cost. A variant's
//! probability is that of costing no more than any other, within the tie margin.
//!
//! *Allocation.* First one short step of each variant at a low rate, which also shows requests and bytes per inference.
//! Then, while more than two may be the answer, each at the rate that it must carry to match the likeliest one. Then,
//! block by block, the variant with the greatest probability and its likeliest rival (top two: Russo, *Simple Bayesian
//! Algorithms for Best Arm Identification*, COLT 2016), each at the rate at which a step is expected to give most
//! information about which of them is better (Lindley, *On a Measure of the Information Provided by an Experiment*,
//! 1956). Variants that cannot win and rates that change nothing are not measured.
//!
//! *Stopping.* The lab stops when one variant's probability exceeds the question's confidence plus four fifths of the
//! rest, a margin for errors of the curve model. Probabilities follow from Bayes' rule and hold at every interim
//! analysis, as far as real curves resemble the prior. Simulations test this for other queues. Then fresh steps of the
//! winner, which did not choose it, must not contradict it.

pub mod answer;
pub(crate) mod curve;
pub mod evidence;
pub mod from_run;
pub mod highest_rates;
pub mod lab;
mod likelihood;
pub mod next;
mod probability;
pub(crate) mod rate_points;
pub mod rates;
mod why;

pub use answer::answer;
pub use evidence::{Candidate, Next, Phase, Probe, StepEvidence, StopReason, Time};
pub use from_run::candidates;
pub use next::next;

#[cfg(test)]
mod tests;
