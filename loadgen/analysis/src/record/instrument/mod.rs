//! What is known of the instrument and of the machine that it ran on.

mod certificate;
mod check;
mod machine;

pub use certificate::{CarriedCertificate, Certificate, Machine, Program, VALID_DAYS};
pub use check::Check;
pub use machine::MachineUse;
