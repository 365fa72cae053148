//! How requests of a step were sent, and what they were. Knows nothing of what became of them.

mod agents;
mod driven;
mod requests;

pub use agents::{AgentStart, worst_start};
pub use driven::{ClosedLoopFigures, Driven, GooseFigures, JourneyFigures};
pub use requests::{SentInput, SentRequests, ShapeShare, Spread, ValueCheck};
