//! What a lab measures next, and what it answers.
//!
//! In: a question, and every step so far as evidence. Out: the next block of steps or the reason to stop, and the answer. Pure: a
//! lab that is resumed goes on where it stopped, for what comes next follows from what there is. Must not know how a step is made.
//!
//! - [`evidence`]: a step, a candidate, a block, in the rule's words; [`from_run`]: evidence from the record of a run
//! - [`rates`]: the rates that matter to a question; [`score`]: what a variant has of what should be least
//! - [`likelihood`]: how likely a step's counts are; [`places`]: the steps of each rate; [`percentile`]: the percentile itself
//! - [`curve`]: how likely each highest rate of a candidate is; [`chance`]: how likely each candidate is the answer
//! - [`standing`]: what candidates say together; [`reach`]: highest rates above those that matter; `missed`: rates that steps miss
//! - [`next()`]: the next block; [`answer()`]: the answer, its sentences in `why`
//!
//! # The rule
//!
//! *What is asked.* Up to which rate the mean share of requests slower than the limit lies below `1 - quantile`, over all repeats that
//! could be: the long run, of which a few bad repeats may make the most. All steps of a variant together say how likely
//! each highest rate is ([`curve`]), and so each number of instances and each cost. A variant's chance is that of costing no
//! more than any other, the tie apart.
//!
//! *What is measured.* First one short step of each at a low rate, which also tells requests and bytes per inference. Then, while more
//! than two may be the answer, each at the rate that it has to carry to be as good as the likeliest one. Then, block by block, the variant with the greatest chance and the one that is likeliest to be better (top two: Russo, *Simple Bayesian
//! Algorithms for Best Arm Identification*, COLT 2016), each at the rate at which a step is expected to tell most of whether it is
//! (Lindley, *On a Measure of the Information Provided by an Experiment*, 1956). Whoever cannot win is not measured, and a rate that
//! changes nothing is not asked for.
//!
//! *When it stops.* When one variant's chance is great enough: the question's confidence, and four fifths of the rest, which are for what the
//! model of a curve leaves out. Chances are by Bayes' rule, and so may be looked at at any time: whenever one stops, a chance of 0.99 is one,
//! as far as curves are like those that are taken to be likely. How far that holds for queues that are not is simulated. Then fresh steps of
//! the winner, which did not choose it, must not contradict it.

pub mod answer;
pub mod chance;
pub mod curve;
pub mod evidence;
pub mod from_run;
pub mod likelihood;
mod missed;
pub mod next;
pub mod percentile;
pub mod places;
pub mod rates;
pub mod reach;
pub mod score;
mod shown;
pub mod standing;
mod verdict;
mod why;

pub use answer::answer;
pub use evidence::{Candidate, Next, Phase, Probe, StepEvidence, StopReason, Time};
pub use from_run::candidates;
pub use next::next;

#[cfg(test)]
mod tests;
