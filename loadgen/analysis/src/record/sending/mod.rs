//! Requests of a step and their driver. Independent of their outcome.

mod agents;
mod driven;
mod requests;

pub use agents::{AgentStart, worst_start};
pub use driven::{ClosedLoopFigures, Driven, GooseFigures, JourneyFigures};
pub use requests::{SentInput, SentRequests, ShapeShare, Spread, ValueCheck};
